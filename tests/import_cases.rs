//! The published tables in ../shared/cases: each imports completely and is explained as its author explained it.

use std::path::{Path, PathBuf};

use flatwater_explain::CauseId;
use flatwater_import::{Imported, import_files};
use flatwater_recording::{Entity, Rows, Table};
use needs::{Need, skip};

/// The folder of the published tables; skips the test if there is none.
fn cases() -> Option<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    // Beside the clone, or beside the folder of worktrees.
    let found = ["../shared/cases", "../../shared/cases"].iter().map(|path| root.join(path)).find(|path| path.is_dir());
    if found.is_none() {
        skip(Need::Shared, "published tables", "../shared/cases does not exist");
    }
    found
}

fn read(folder: &Path, name: &str) -> Imported {
    let imported = import_files(&[folder.join(name)]).expect(name);
    assert_eq!(imported.problems, [], "{name} reads without a problem");
    imported
}

fn rows<'a>(imported: &'a Imported, table: Table, entity: &Entity) -> Rows<'a> {
    imported.recording.table(table).and_then(|table| table.rows_of(entity)).expect("rows")
}

#[test]
fn vmstat_of_1999() {
    let Some(folder) = cases() else { return };
    for (name, last_buff_kib) in [("sdet-2.2.3-vmstat.txt", 380_332), ("sdet-2.2.5-vmstat.txt", 91_856)] {
        let imported = read(&folder, name);
        let memory = rows(&imported, Table::Meminfo, &Entity::default());
        let last = memory.max("Buffers_bytes").map(|(_, bytes)| bytes).expect(name);
        assert!(last >= last_buff_kib * 1024, "{name}: {last}");
        let cpu = rows(&imported, Table::Cpu, &Entity::named("all"));
        assert!(cpu.rise("idle_ns").is_some_and(|ns| ns > 0), "{name}");
        assert!(imported.recording.gaps.iter().any(|gap| gap.why.contains("...")), "{name}: the break is a gap");
    }
}

#[test]
fn sar_of_both_modes() {
    let Some(folder) = cases() else { return };
    for (name, rows_expected, direct_per_s_max) in
        [("graphdb-mode0-sar-B.txt", 21, 16_282.73), ("graphdb-mode1-sar-B.txt", 11, 6_222_810.91)]
    {
        let imported = read(&folder, name);
        let vmstat = rows(&imported, Table::Vmstat, &Entity::default());
        let rates: Vec<f64> = vmstat.rates_per_s("pgscan_direct").map(|(_, _, rate)| rate).collect();
        assert_eq!(rates.len(), rows_expected, "{name}");
        let max = rates.into_iter().fold(0.0, f64::max);
        assert!((max - direct_per_s_max).abs() < 1.0, "{name}: {max}");
    }
}

#[test]
fn two_modes_join_by_their_clock() {
    let Some(folder) = cases() else { return };
    let files =
        ["graphdb-mode1-sar-B.txt", "graphdb-mode0-sar-B.txt", "graphdb-numactl.txt"].map(|name| folder.join(name));
    let recording = import_files(&files).expect("all three").recording;
    // 10:30:55 to 10:36:52.
    assert_eq!(recording.header.duration_ns, 357_000_000_000);
    assert_eq!(recording.table(Table::Vmstat).map(flatwater_recording::Series::len), Some(34));
}

#[test]
fn nodes_and_distances() {
    let Some(folder) = cases() else { return };
    for (name, nodes, distances) in
        [("graphdb-numactl.txt", 4, vec![21, 10, 21, 21]), ("journal-numactl.txt", 2, vec![20, 10])]
    {
        let machine = read(&folder, name).recording.header.machine;
        assert_eq!(machine.nodes.len(), nodes, "{name}");
        assert_eq!(machine.nodes[1].distances, distances, "{name}");
        assert!(machine.nodes.iter().all(|node| node.memory_bytes > Some(60 << 30) && !node.cpus.is_empty()), "{name}");
    }
}

#[test]
fn free_with_the_old_columns() {
    let Some(folder) = cases() else { return };
    let imported = read(&folder, "maildir-leak-free.txt");
    let memory = rows(&imported, Table::Meminfo, &Entity::default());
    assert_eq!(memory.first("UsedMinusCache_bytes"), Some(10_405_968 * 1024));
    assert_eq!(memory.first("Cached_bytes"), Some(1_550_232 * 1024));
    let imported = read(&folder, "maildir-64bit-free.txt");
    let memory = rows(&imported, Table::Meminfo, &Entity::default());
    assert_eq!(memory.first("SwapUsed_bytes"), Some(121_500 * 1024));
}

#[test]
fn a_write_traced_by_systemtap() {
    let Some(folder) = cases() else { return };
    let recording = read(&folder, "journal-stap.txt").recording;
    let [call] = recording.calls.as_slice() else { panic!("one call, not {}", recording.calls.len()) };
    assert!(call.tiles() && !call.damaged);
    assert_eq!(call.duration_ns, 40_568_000);
    let inside = |function: &str| -> u64 {
        let holds = |id| recording.stack(id).is_some_and(|stack| stack.frames.iter().any(|frame| frame == function));
        call.segments.iter().filter(|segment| segment.stack.is_some_and(holds)).map(|segment| segment.ns).sum()
    };
    assert_eq!(inside("cache_alloc_refill"), 40_487_000);
    assert_eq!(inside("cache_grow"), 9_000);
}

#[test]
fn zones_and_writers() {
    let Some(folder) = cases() else { return };
    let imported = read(&folder, "journal-zoneinfo-node1.txt");
    let zone = rows(&imported, Table::Zones, &Entity::on_node(1, "Normal"));
    let column = |name: &str| zone.first(name);
    assert_eq!(
        [column("free"), column("min"), column("low"), column("high")],
        [174_188, 131_132, 163_915, 196_698].map(Some)
    );
    assert_eq!(column("present"), Some(16_547_840));
    let imported = read(&folder, "bulk-writer-log.txt");
    let outcome = format!("{:?}", imported.recording.outcomes);
    assert!(outcome.contains("delay_ns_max: 14968000000") && outcome.contains("pid: 6582"), "{outcome}");
}

/// For each table, the cause of the first finding, and words in the evidence.
#[test]
fn each_table_alone_leads_to_its_cause() {
    let Some(folder) = cases() else { return };
    for (name, causes, words) in [
        ("sdet-2.2.3-vmstat.txt", &[CauseId::OrphanedBuffers][..], &["72.3 MiB"][..]),
        ("sdet-2.2.5-vmstat.txt", &[CauseId::NotEnough], &["averages"]),
        ("graphdb-mode1-sar-B.txt", &[CauseId::ZoneReclaimThrash], &["6222811"]),
        ("maildir-leak-free.txt", &[CauseId::PageLeak], &["9.92 GiB"]),
        // One reading of `free` neither shows a stall nor rules one out.
        ("maildir-64bit-free.txt", &[CauseId::NotEnough], &[]),
        ("journal-stap.txt", &[CauseId::SlabRefill], &["99.8 %", "cache_alloc_refill", "cache_grow"]),
        ("graphdb-numactl.txt", &[CauseId::ZoneReclaimDefault], &["3.16", "21"]),
        ("bulk-writer-log.txt", &[CauseId::UnfairThrottling, CauseId::DirtyThrottle], &["15.0 s"]),
    ] {
        let explanation = flatwater_explain::explain(&read(&folder, name).recording);
        let Some(first) = explanation.findings.first() else { panic!("{name}: no finding") };
        assert!(causes.contains(&first.cause), "{name}: {} first", first.cause);
        let text = format!("{first:?}");
        for word in words {
            assert!(text.contains(word), "{name}: '{word}' is not in {text}");
        }
    }
    let explanation = flatwater_explain::explain(&read(&folder, "graphdb-mode0-sar-B.txt").recording);
    assert!(
        explanation.findings.iter().all(|finding| finding.cause != CauseId::ZoneReclaimThrash),
        "mode 0 does not thrash"
    );
}
