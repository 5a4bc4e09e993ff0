//! A hostile recording must not exhaust its reader's memory or keep it busy forever. There is only one test in this
//! process, because it measures its own memory.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use flatwater_recording::{Entity, Gap, Header, Limits, ReadError, Recording, Series, Table, write_whole};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// Peak resident memory of this process so far, MiB.
fn most_resident_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a kernel that counts it");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib >> 10
}

/// 6,000 events with the same text of one MiB, which the file contains once.
fn bomb(path: &Path) {
    const ROWS: usize = 6_000;
    let word = "x".repeat(1 << 20);
    let columns: [(&str, ArrayRef); 3] = [
        ("at_ns", Arc::new(UInt64Array::from_iter_values(0..ROWS as u64))),
        ("kind", Arc::new(StringArray::from_iter_values((0..ROWS).map(|_| "mark")))),
        ("text", Arc::new(StringArray::from_iter_values((0..1).map(|_| &word)))),
    ];
    let [at_ns, kind, (name, one)] = columns;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).expect("a level")))
        .set_dictionary_page_size_limit(8 << 20)
        .build();
    // Row by row, because the whole batch would be six GB of text.
    let schema = RecordBatch::try_from_iter([
        (at_ns.0, at_ns.1.slice(0, 1)),
        (kind.0, kind.1.slice(0, 1)),
        (name, Arc::clone(&one)),
    ]);
    let schema = schema.expect("a row").schema();
    let file = File::create(path).expect("made");
    let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties)).expect("a writer");
    for row in 0..ROWS {
        let columns = vec![at_ns.1.slice(row, 1), kind.1.slice(row, 1), Arc::clone(&one)];
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns).expect("a row")).expect("written");
    }
    writer.close().expect("closed");
}

fn recording() -> Recording {
    let mut zones = Series::new(Table::Zones);
    for moment in 0..50 {
        let free = [("free", flatwater_recording::ColumnKind::Gauge, Some(7))];
        zones.push(moment, &Entity::on_node(0, "Normal"), &free);
    }
    let gaps = vec![Gap::new("one", "two", "three")];
    Recording { header: Header::default(), series: vec![zones], gaps, ..Recording::default() }
}

fn fresh(dir: &Path) {
    let _ = fs::remove_dir_all(dir);
    write_whole(dir, &recording()).expect("written");
}

fn at_once<T>(what: &str, read: impl FnOnce() -> T) -> T {
    let begin = needs::cpu_time();
    let answer = read();
    let spent = needs::cpu_time() - begin;
    assert!(spent < Duration::from_secs(20), "{what} took {spent:?} of CPU time");
    answer
}

fn has_gap(recording: &Recording, what: &str, why: &str) -> bool {
    recording.gaps_found().iter().any(|gap| gap.what.contains(what) && gap.why.contains(why))
}

#[test]
fn hostile_files_do_not_exhaust_memory_or_time() {
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("rec");
    fresh(&dir);
    let private = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((private(&dir), private(&dir.join("zones.parquet"))), (0o700, 0o600));
    assert_eq!(private(&dir.join("header.json")), 0o600);

    bomb(&dir.join("events.parquet"));
    assert!(fs::metadata(dir.join("events.parquet")).expect("made").len() < 1 << 20, "it is a small file");
    let before = most_resident_mib();
    let limited = at_once("the bomb", || Recording::open_with(&dir, Limits::of_bytes(128 << 20)).expect("opens"));
    assert!((1..128).contains(&limited.events.len()), "{} events", limited.events.len());
    assert!(has_gap(&limited, "table events", "more than the limit of"), "{:?}", limited.gaps);
    assert!(limited.table(Table::Zones).is_some_and(|zones| zones.len() == 50), "the other tables are whole");
    drop(limited);
    let grown = most_resident_mib() - before;
    assert!(grown < 300, "{grown} MiB for a limit of 128 MiB");
    let usual = at_once("the bomb", || Recording::open(&dir).expect("opens"));
    assert!(usual.events.len() < 512 && most_resident_mib() < 900, "{} MiB", most_resident_mib());
    drop(usual);

    for name in ["zones.parquet", "header.json", "outcomes.json", "sealed.json"] {
        fresh(&dir);
        let _ = fs::remove_file(dir.join(name));
        symlink("/dev/zero", dir.join(name)).expect("linked");
        match at_once(name, || Recording::open(&dir)) {
            Ok(read) => assert!(name != "header.json" && !read.gaps.is_empty(), "{name}: {:?}", read.gaps),
            Err(error) => assert!(matches!(error, ReadError::Unusable { .. }), "{name}: {error}"),
        }
        fs::remove_file(dir.join(name)).expect("removed");
        let fifo = rustix::fs::mkfifoat(rustix::fs::CWD, dir.join(name), rustix::fs::Mode::RUSR);
        fifo.expect("a FIFO");
        match at_once(name, || Recording::open(&dir)) {
            Ok(read) => assert!(name != "header.json" && !read.gaps.is_empty(), "{name}: {:?}", read.gaps),
            Err(error) => assert!(error.to_string().contains("FIFO"), "{name}: {error}"),
        }
    }

    fresh(&dir);
    File::create(dir.join("calls.parquet")).expect("made").set_len(1 << 40).expect("a sparse file");
    let read = at_once("a sparse terabyte", || Recording::open(&dir).expect("opens"));
    assert!(has_gap(&read, "table calls", "bytes"), "{:?}", read.gaps);
}
