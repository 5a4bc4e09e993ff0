//! inode-cache-pressure: inodes are evicted, and their page cache with them.

use super::{CauseEntry, CauseId, slab_leak};
use crate::counters::lasting;
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{vmstat, workload};
use flatwater_recording::units::Bytes;
use flatwater_recording::{Cause, Rows, Table};

/// From this many cached pages per second, pages dropped with their inodes matter.
const PAGES_PER_S_MIN: f64 = 500.0;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "inode-cache-pressure",
    span: None,
    headline: "reclaim evicts inodes, and the cached pages of their files with them",
    mechanism: "prune_icache (fs/inode.c: inode_lru_isolate since 3.0) takes unused inodes from the end of their \
        list; if one still has clean pages, they are dropped (invalidate_mapping_pages), however recently they were \
        used, and counted as pginodesteal or kswapd_inodesteal. With many small files the inode is the bottleneck: \
        each costs about 1 KiB of slab, a page of cache 4 KiB. vm.vfs_cache_pressure weighs slab against pages. Since \
        5.16 inodes with pages are kept off the list until their pages are evicted (CONFIG_HIGHMEM kernels still drop \
        the pages).",
    kernels: "All; much weaker from 5.16 on.",
    in_spans: "shrinker; later synchronous-read, when the file is read again.",
    in_counters: "pginodesteal and kswapd_inodesteal rise by hundreds of pages a second while slabs_scanned is \
        high; the number of cached inodes (ext4_inode_cache in slabinfo, fs.inode-nr) falls or stays small; reads \
        (pgpgin) rise.",
    against: "pginodesteal and kswapd_inodesteal do not rise.",
    fix: "vm.vfs_cache_pressure = 50 or lower; memory for the working set of inodes; programs that walk the whole \
        tree (backup, find) in a memory cgroup of their own. 32-bit: see lowmem-exhausted.",
    prove: "Lower vm.vfs_cache_pressure: inodes in use rise, pginodesteal and pgpgin fall.",
    sources: &[
        "fs/inode.c: prune_icache_sb, inode_lru_isolate",
        "Documentation/admin-guide/sysctl/vm.rst: vfs_cache_pressure",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    from_inodesteal(facts).or_else(|| from_caches(facts))
}

/// Minimum size of one cache of inodes, in bytes and as a share of all slab, that burdens reclaim on any machine.
const INODES_BYTES_MIN: f64 = 16.0 * 1_073_741_824.0;
const INODES_SHARE_MIN: f64 = 0.4;

/// From slabtop: the inodes of one file system are most of a large slab.
fn from_caches(facts: &Facts<'_>) -> Option<Finding> {
    let caches = slab_leak::sizes(facts);
    let all: f64 = caches.iter().map(|(_, bytes)| bytes).sum();
    let (name, bytes) = caches.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if !slab_leak::holds_inodes_of_files(name)
        || *bytes < INODES_BYTES_MIN
        || *bytes < INODES_SHARE_MIN * all
        || !facts.may_infer()
    {
        return None;
    }
    let text = format!("{name} holds {}, {:.0} % of all listed slab", Bytes(*bytes as u64), 100.0 * bytes / all);
    let headline = "inodes hold much memory: where reclaim runs, it has to walk them";
    let finding =
        Finding::inferred(CauseId::InodeCachePressure, 0.5, headline).with([Evidence::new(text, *bytes, "bytes")]);
    let finding = finding.but([Evidence::statement("one reading does not show that a task waited for it")]);
    let finding = finding.fix(Fix::advice("limit the memory of the job that touches many files (memory.high)"));
    Some(
        finding.settle(
            "echo w > /proc/sysrq-trigger while it is slow: tasks in the shrinker of the file system settle it",
        ),
    )
}

/// The fall of the number of cached inodes to its lowest: (when, from, to); `None` if it did not fall.
fn fall(rows: &Rows<'_>) -> Option<(u64, i64, i64)> {
    let (at_ns, to) = rows.min(workload::INODES)?;
    let before = rows.values(workload::INODES).take_while(|(when, _)| *when < at_ns);
    let from = before.map(|(_, inodes)| inodes).max()?;
    (from > to).then_some((at_ns, from, to))
}

fn from_inodesteal(facts: &Facts<'_>) -> Option<Finding> {
    let blamed = [Cause::Shrinker, Cause::SynchronousRead].into_iter().any(|cause| facts.significant(cause).is_some());
    if !facts.may_infer() || (facts.spans_tell_all() && !blamed) {
        return None;
    }
    let (direct, kswapd) = (facts.vmstat_rate(vmstat::PGINODESTEAL), facts.vmstat_rate(vmstat::KSWAPD_INODESTEAL));
    let windows = direct.over(PAGES_PER_S_MIN).max(kswapd.over(PAGES_PER_S_MIN));
    let seconds =
        direct.seconds().max(kswapd.seconds()) * windows as f64 / direct.len().max(kswapd.len()).max(1) as f64;
    let per_s = direct.mean().unwrap_or(0.0) + kswapd.mean().unwrap_or(0.0);
    if !lasting(windows, direct.len().max(kswapd.len()), seconds) || per_s < PAGES_PER_S_MIN {
        return None;
    }
    let text = format!("{per_s:.0} cached pages a second were dropped together with their inodes");
    let mut finding = Finding::inferred(CauseId::InodeCachePressure, 0.65, ENTRY.headline)
        .with([Evidence::new(text, per_s, "pages/s")]);
    if let Some(scanned) = facts.vmstat_rate(vmstat::SLABS_SCANNED).mean().filter(|rate| *rate > 0.0) {
        finding.evidence.push(Evidence::new(
            format!("shrinkers scanned {scanned:.0} objects a second"),
            scanned,
            "1/s",
        ));
    }
    if let Some(inodes) =
        facts.recording.table(Table::Workload).and_then(|table| table.by_entity().find_map(|(_, rows)| fall(&rows)))
    {
        let (at_ns, from, to) = inodes;
        let text = format!("cached inodes fell from {from} to {to}");
        finding.evidence.push(Evidence::new(text, to as f64, "inodes").at(at_ns));
    }
    let finding =
        finding.fix(Fix::knob("keep inodes and dentries longer than pages", knob!("vm.vfs_cache_pressure"), "50"));
    Some(finding.settle("lower vm.vfs_cache_pressure for some minutes: pginodesteal and reads (bi) must fall together"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn pages_lost_with_inodes_are_named() {
        let (many, few) = (rising(4_000, 8), rising(30, 8));
        let build = |steal: &[i64]| {
            RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &[("kswapd_inodesteal", steal)])
        };
        assert!(build(&many).found(&ENTRY).is_some());
        assert!(build(&few).found(&ENTRY).is_none());
    }

    #[test]
    fn only_a_large_cache_of_files_inodes_is_named() {
        let made = |name: &str, gb: i64, other_gb: i64| {
            let size = |gb: i64| [gb << 30];
            let made = RecordingBuilder::new().gauges(Table::Slabs, &Entity::named(name), &[("size_bytes", &size(gb))]);
            made.gauges(Table::Slabs, &Entity::named("kmalloc-64"), &[("size_bytes", &size(other_gb))]).found(&ENTRY)
        };
        let finding = made("xfs_inode", 30, 10).expect("30 GiB of 40");
        let text = evidence_text(&finding);
        assert!(text.contains("xfs_inode holds 30 GiB, 75 % of all listed slab"), "{text}");
        let all = format!("{} {text}", finding.headline);
        assert!(!all.contains("dirty") && !all.contains("fell"), "one size shows neither: {all}");
        assert!(finding.against.iter().any(|one| one.text.contains("one reading")), "{:?}", finding.against);
        // The same sizes of inodes that have no file on a disk, small ones, and a small share.
        for name in ["sock_inode_cache", "shmem_inode_cache", "proc_inode_cache", "kmalloc-1k"] {
            assert!(made(name, 30, 10).is_none(), "{name}");
        }
        assert!(made("xfs_inode", 15, 1).is_none() && made("xfs_inode", 30, 60).is_none());
    }

    #[test]
    fn inodes_that_only_grow_did_not_fall() {
        let shown = |inodes: &[i64]| {
            let builder = RecordingBuilder::new().counters(
                Table::Vmstat,
                &Entity::default(),
                &[("kswapd_inodesteal", &rising(4_000, inodes.len()))],
            );
            let builder = builder.gauges(Table::Workload, &Entity::default(), &[("inodes", inodes)]);
            evidence_text(&builder.found(&ENTRY).expect("4000 pages/s"))
        };
        assert!(shown(&[900, 700, 200, 400]).contains("cached inodes fell from 900 to 200"));
        assert!(!shown(&[200, 400, 700, 900]).contains("fell"), "the lowest reading is the first");
    }
}
