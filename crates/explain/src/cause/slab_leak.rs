//! slab-leak: kernel objects that are never freed.

use super::{CauseEntry, CauseId};
use crate::counters::{Point, Track};
use crate::facts::Facts;
use crate::sums::total_signed;
use crate::{Evidence, Finding, Fix, exclude};
use flatwater_recording::schema::{meminfo, slabs, vmstat, zones};
use flatwater_recording::units::Bytes;
use flatwater_recording::{Entity, Source, Table};

/// Minimum share of memory in unreclaimable slab, if it does not grow ...
const SHARE_MIN: f64 = 0.2;
/// ... or minimum growth as a share of memory over the log, without falling much.
const GROWTH_SHARE_MIN: f64 = 0.02;
/// If the memory size is unknown: minimum size of one cache, in bytes and as a share of all slab.
const CACHE_BYTES_MIN: f64 = 4.0 * 1_073_741_824.0;
const CACHE_SHARE_MIN: f64 = 0.4;
/// From this raw confidence, the finding rests on growth and not on a level.
const GROWN: f64 = 0.6;
/// Minimum share of memory in slab as a whole.
const SLAB_SHARE_MIN: f64 = 0.3;
const BYTES_MIN: f64 = 256.0 * 1_048_576.0;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "slab-leak",
    span: None,
    headline: "unreclaimable kernel objects hold a large part of memory, and grow",
    mechanism: "Objects of a slab cache without a shrinker (SUnreclaim) are freed only by their owner. A driver or \
        subsystem that leaks them takes pages until page cache and processes are squeezed, and reclaim scans in vain. \
        Reclaimable caches (dentries, inodes) may look the same when something pins them: open files, mounts of dead \
        containers, memory cgroups that linger because of one cached page (offline cgroups).",
    kernels: "All.",
    in_spans: "direct-reclaim or shrinker, with a poor yield.",
    in_counters: "SUnreclaim in /proc/meminfo (nr_slab_unreclaimable) is 20 % of memory or more, or grows and never \
        falls; slabtop names the cache.",
    against: "SReclaimable is the large part: that is cache, and shrinks under pressure (see inode-cache-pressure). A \
        busy network or file server has some hundreds of MiB of unreclaimable slab.",
    fix: "Find the cache (slabtop -s c), then its owner: kmem tracepoints or slub_debug=U,CACHE with \
        /sys/kernel/debug/slab/CACHE/alloc_traces; upgrade the driver. A restart buys time.",
    prove: "Two readings of /proc/slabinfo some minutes apart under the same load: the leak is in the cache that only \
        grows.",
    sources: &["Documentation/mm/slab.rst (slub)", "Documentation/filesystems/proc.rst: SUnreclaim"],
    find,
};

fn unreclaimable(facts: &Facts<'_>) -> Track {
    let meminfo = facts.meminfo_level(meminfo::SUNRECLAIM_BYTES);
    if !meminfo.is_empty() {
        return meminfo;
    }
    let page_bytes = facts.recording.header.machine.page_size_bytes() as f64;
    let mut pages = facts.level(vmstat::NR_SLAB_UNRECLAIMABLE, "");
    // A kernel report without totals still has its zones.
    if pages.is_empty()
        && let Some(zones) = facts.recording.table(Table::Zones)
    {
        let each = zones.by_entity().filter_map(|(_, rows)| rows.last(zones::NR_SLAB_UNRECLAIMABLE));
        let all = total_signed(each);
        let point = |at_ns| Point { from_ns: at_ns, at_ns, value: all as f64 };
        pages.points.extend((all > 0).then(|| point(0)));
    }
    for point in &mut pages.points {
        point.value *= page_bytes;
    }
    pages
}

/// The largest cache of a slabinfo reading: (name, bytes, objects).
fn largest_cache(facts: &Facts<'_>) -> Option<(String, f64, i64)> {
    let slabs = facts.recording.table(Table::Slabs)?;
    let each = slabs.by_entity().filter_map(|(entity, rows)| {
        let objects = rows.last(slabs::NUM_OBJS)?;
        Some((entity.name.clone(), objects as f64 * rows.last(slabs::OBJSIZE_BYTES)? as f64, objects))
    });
    each.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let found = from_unreclaimable(facts).or_else(|| from_caches(facts));
    let found = found.or_else(|| from_slab_alone(facts)).or_else(|| unreclaimable_alone(facts))?;
    // A steady level hurts nothing on a machine that neither scans nor swaps.
    let calm = found.weight < GROWN && exclude::view(facts).is_calm(exclude::Matter::Memory);
    (!calm || facts.recording.header.source != Source::Import).then_some(found)
}

/// One cache: its bytes at the first and the last reading, and whether it fell in between.
struct Cache {
    name: String,
    objects: i64,
    first: f64,
    last: f64,
    readings: usize,
    fell: bool,
}

/// The caches with their bytes: as slabtop prints them, or objects times object size.
fn caches(facts: &Facts<'_>) -> Vec<Cache> {
    let Some(table) = facts.recording.table(Table::Slabs) else { return Vec::new() };
    let each = table.entities().iter().filter_map(|entity| {
        let rows = table.rows_of(entity)?;
        let printed = facts.level(slabs::SIZE_BYTES, &entity.name);
        let size = rows.last(slabs::OBJSIZE_BYTES).unwrap_or(0) as f64;
        let mut track = if printed.is_empty() { facts.level(slabs::NUM_OBJS, &entity.name) } else { printed.clone() };
        if printed.is_empty() {
            track.points.iter_mut().for_each(|point| point.value *= size);
        }
        let (first, last) = (track.first()?, track.last()?);
        let fell = track.points.windows(2).any(|pair| pair[1].value < pair[0].value * 0.9);
        let objects = rows.last(slabs::NUM_OBJS).unwrap_or(0);
        Some(Cache { name: entity.name.clone(), objects, first, last, readings: track.len(), fell })
    });
    each.collect()
}

/// Caches that have few objects on a healthy machine. Very many belong to things that no longer exist (cgroups,
/// mounts, processes).
const OF_THE_DEAD: &[(&str, i64)] = &[
    ("kernfs_node_cache", 1_000_000),
    ("kmem_cache", 200_000),
    ("kmem_cache_node", 200_000),
    ("mnt_cache", 500_000),
    ("task_struct", 200_000),
    ("cred_jar", 2_000_000),
    ("pid", 2_000_000),
];

/// Whether clean objects of this cache are freed at once. Inodes of xfs and btrfs may have to be written first.
fn cheap(name: &str) -> bool {
    matches!(
        name,
        "ext4_inode_cache" | "ext3_inode_cache" | "ext2_inode_cache" | "inode_cache" | "dentry" | "buffer_head"
    )
}

/// From slabtop or /proc/slabinfo alone: a cache that grows, one with too many dead objects, or one with most of
/// the slab.
fn from_caches(facts: &Facts<'_>) -> Option<Finding> {
    let caches = caches(facts);
    let all: f64 = caches.iter().map(|cache| cache.last).sum();
    if !facts.may_infer() || all <= 0.0 {
        return None;
    }
    let grown = caches.iter().filter(|cache| cache.readings >= 2 && !cache.fell && cache.last >= 1.3 * cache.first);
    let grown = grown.max_by(|a, b| (a.last - a.first).total_cmp(&(b.last - b.first)));
    let grown = grown.filter(|cache| cache.last - cache.first >= BYTES_MIN);
    let largest = caches.iter().max_by(|a, b| a.last.total_cmp(&b.last))?;
    let floor = facts.memory_bytes().map_or(CACHE_BYTES_MIN, |memory| (SHARE_MIN * memory).max(BYTES_MIN));
    let large = largest.last >= floor && largest.last >= CACHE_SHARE_MIN * all;
    // Inodes and dentries fill free memory. Without growth, or figures that show a shortage, they are just cache.
    let cached =
        grown.is_none() && of_files(&largest.name) && facts.memory_bytes().is_none() && cheap(largest.name.as_str());
    let of_the_dead = caches.iter().find(|cache| {
        OF_THE_DEAD.iter().any(|(name, objects_min)| cache.name == *name && cache.objects >= *objects_min)
    });
    let cache = grown.or(of_the_dead).or((large && !cached).then_some(largest))?;
    let text = format!(
        "{} holds {}, {:.0} % of the {} that the log lists",
        cache.name,
        Bytes(cache.last as u64),
        100.0 * cache.last / all,
        Bytes(all as u64)
    );
    let headline = match (grown.is_some(), of_the_dead.is_some()) {
        (true, _) => format!("one cache of kernel objects, {}, grows and does not shrink", cache.name),
        (_, true) => format!("one cache of kernel objects, {}, has far more objects than usual", cache.name),
        _ => format!("one cache of kernel objects, {}, holds most of the slab", cache.name),
    };
    let mut finding = Finding::inferred(CauseId::SlabLeak, if grown.is_some() { 0.6 } else { 0.45 }, headline);
    finding.evidence.push(Evidence::new(text, cache.last, "bytes"));
    if grown.is_some() {
        let text = format!("it grew from {} without falling", Bytes(cache.first as u64));
        finding.evidence.push(Evidence::new(text, cache.last - cache.first, "bytes"));
    } else if of_the_dead.is_some() {
        let text = format!("{} objects of a kind of which a machine usually has thousands", cache.objects);
        finding.evidence.push(Evidence::new(text, cache.objects as f64, "objects"));
    } else {
        finding
            .against
            .push(Evidence::statement("one reading does not show growth: a large but steady cache is not a leak"));
    }
    if of_files(&cache.name) {
        finding
            .against
            .push(Evidence::statement("reclaim can give this cache back, unless its objects are in use or dirty"));
    }
    let finding = finding.fix(Fix::advice(
        "look for its owner: `perf trace -e kmem:kmem_cache_alloc` or slab_debug; upgrade or restart what leaks",
    ));
    Some(
        finding
            .settle("two readings of /proc/slabinfo some minutes apart, and echo 2 > /proc/sys/vm/drop_caches between"),
    )
}

/// Each cache with its bytes at the last reading.
#[must_use]
pub fn sizes(facts: &Facts<'_>) -> Vec<(String, f64)> {
    caches(facts).into_iter().map(|cache| (cache.name, cache.last)).collect()
}

/// Caches of inodes, dentries and their pages, which memory pressure shrinks.
#[must_use]
pub fn of_files(name: &str) -> bool {
    let known = ["dentry", "buffer_head", "radix_tree_node", "xfs_ili", "xfs_buf"];
    holds_inodes_of_files(name) || known.contains(&name)
}

/// Caches of inodes that have no page on a disk: sockets, and files of memory or of the kernel. Reclaim does not write
/// them, and most are in use as long as they exist.
const NOT_OF_FILES: &[&str] = &["sock_", "shmem_", "proc_", "rpc_", "mqueue_", "hugetlbfs_"];

/// Caches of inodes of files on a disk.
#[must_use]
pub fn holds_inodes_of_files(cache: &str) -> bool {
    cache.contains("inode") && NOT_OF_FILES.iter().all(|start| !cache.starts_with(start))
}

/// `Slab` of /proc/meminfo without `SUnreclaim`.
fn from_slab_alone(facts: &Facts<'_>) -> Option<Finding> {
    let mut slab = facts.meminfo_level(meminfo::SLAB_BYTES);
    if slab.is_empty() {
        slab = facts.level(vmstat::NR_SLAB, "");
        let page_bytes = facts.recording.header.machine.page_size_bytes() as f64;
        slab.points.iter_mut().for_each(|point| point.value *= page_bytes);
    }
    let parts = !unreclaimable(facts).is_empty();
    let (first, last) = (slab.first()?, slab.last()?);
    if parts || !facts.may_infer() {
        return None;
    }
    let memory = facts.memory_bytes();
    let large = last >= memory.map_or(CACHE_BYTES_MIN, |memory| SLAB_SHARE_MIN * memory) && last >= BYTES_MIN;
    let growing = slab.len() >= 3 && last - first >= BYTES_MIN && last >= 1.3 * first;
    if !large && !growing {
        return None;
    }
    let of = memory.map(|memory| format!(" of {}", Bytes(memory as u64))).unwrap_or_default();
    let text = format!("Slab is {}{of}; at first it was {}", Bytes(last as u64), Bytes(first as u64));
    let finding = Finding::inferred(
        CauseId::SlabLeak,
        if growing { 0.5 } else { 0.4 },
        "kernel objects hold a large part of memory",
    )
    .with([Evidence::new(text, last, "bytes")])
    .but([Evidence::statement("the log does not show how much of the slab is reclaimable (SReclaimable, SUnreclaim)")]);
    Some(finding.settle("`slabtop -o -s c` twice, some minutes apart: a leak is in the cache that only grows"))
}

/// From `SUnreclaim` alone, without the memory size: more than any machine needs, or steady growth.
fn unreclaimable_alone(facts: &Facts<'_>) -> Option<Finding> {
    let track = unreclaimable(facts);
    let (first, last) = (track.first()?, track.last()?);
    if !facts.may_infer() || facts.memory_bytes().is_some() {
        return None;
    }
    let falls = track.points.windows(2).any(|pair| pair[1].value < pair[0].value * 0.95);
    let growing = track.len() >= 3 && !falls && last - first >= BYTES_MIN && last >= 1.3 * first;
    if !growing && last < CACHE_BYTES_MIN {
        return None;
    }
    let text = format!("SUnreclaim is {}; at first it was {}", Bytes(last as u64), Bytes(first as u64));
    let headline = "unreclaimable kernel objects hold much memory";
    let finding = Finding::inferred(CauseId::SlabLeak, if growing { 0.6 } else { 0.45 }, headline)
        .with([Evidence::new(text, last, "bytes")])
        .but([Evidence::statement("the log does not show how large memory is")]);
    Some(finding.settle("`slabtop -o -s c` twice, some minutes apart: a leak is in the cache that only grows"))
}

fn from_unreclaimable(facts: &Facts<'_>) -> Option<Finding> {
    let memory = facts.memory_bytes().filter(|_| facts.may_infer())?;
    let track = unreclaimable(facts);
    let (first, last) = (track.first()?, track.last()?);
    let grown = last - first;
    // A leak does not shrink: no fall may exceed a tenth of the growth.
    let falls = track.points.windows(2).any(|pair| pair[1].value < pair[0].value - 0.1 * grown.max(0.0));
    let growing = grown >= GROWTH_SHARE_MIN * memory && grown >= BYTES_MIN && track.len() >= 5 && !falls;
    let large = last >= SHARE_MIN * memory && last >= BYTES_MIN;
    if !growing && !large {
        return None;
    }
    let text =
        format!("SUnreclaim is {} of {} ({:.0} %)", Bytes(last as u64), Bytes(memory as u64), 100.0 * last / memory);
    let mut finding = Finding::inferred(CauseId::SlabLeak, if growing { 0.8 } else { 0.55 }, ENTRY.headline)
        .with([Evidence::new(text, last, "bytes")]);
    if growing {
        let text = format!("it grew by {} over the log without falling", Bytes(grown as u64));
        finding.evidence.push(Evidence::new(text, grown, "bytes"));
    } else {
        finding.headline = "unreclaimable kernel objects hold a large part of memory".to_owned();
        finding
            .against
            .push(Evidence::statement("one level does not show growth: a large but steady cache is not a leak"));
    }
    if let Some((name, bytes, objects)) = largest_cache(facts) {
        let text = format!("the largest cache is {name}: {} in {objects} objects", Bytes(bytes as u64));
        finding.evidence.push(Evidence::new(text, bytes, "bytes"));
    }
    let finding =
        finding.fix(Fix::advice("find the cache with `slabtop -s c`, then its owner; upgrade or restart what leaks"));
    Some(finding.settle("two readings of /proc/slabinfo some minutes apart: a leak is in the cache that only grows"))
}

/// The number of objects in the slab cache of this name; other causes use it.
#[must_use]
pub fn cache_objects(facts: &Facts<'_>, name: &str) -> Option<i64> {
    facts.recording.table(Table::Slabs)?.rows_of(&Entity::named(name))?.last(slabs::NUM_OBJS)
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Entity, Table};

    const MB: i64 = 1 << 20;

    fn slab(levels_mb: &[i64]) -> RecordingBuilder {
        let levels: Vec<i64> = levels_mb.iter().map(|level| level * MB).collect();
        let total = vec![16_384 * MB; levels.len()];
        RecordingBuilder::new().gauges(
            Table::Meminfo,
            &Entity::default(),
            &[("MemTotal_bytes", &total), ("SUnreclaim_bytes", &levels)],
        )
    }

    #[test]
    fn steady_growth_is_a_leak() {
        let finding = slab(&[500, 700, 900, 1100, 1300, 1500]).found(&ENTRY).expect("growth");
        assert!(evidence_text(&finding).contains("grew by 1000 MiB"), "{}", evidence_text(&finding));
    }

    fn listed(name: &str, levels_mb: &[i64]) -> RecordingBuilder {
        let levels: Vec<i64> = levels_mb.iter().map(|level| level * MB).collect();
        let builder = RecordingBuilder::new().gauges(Table::Slabs, &Entity::named(name), &[("size_bytes", &levels)]);
        builder.gauges(Table::Slabs, &Entity::named("task_struct"), &[("size_bytes", &vec![40 * MB; levels.len()])])
    }

    #[test]
    fn a_cache_that_grows_or_has_all_is_named_without_the_size_of_memory() {
        let grows = listed("kmalloc-192", &[900, 1400, 2100]).found(&ENTRY).expect("growth");
        assert!(
            evidence_text(&grows).contains("kmalloc-192") && evidence_text(&grows).contains("grew from 900 MiB"),
            "{}",
            evidence_text(&grows)
        );
        assert!(grows.headline.ends_with("grows and does not shrink"), "{}", grows.headline);
        let once = listed("kmalloc-192", &[9000]).found(&ENTRY).expect("nearly all of the slab");
        assert!(once.headline.ends_with("holds most of the slab") && !once.against.is_empty(), "{once:?}");
        assert!(listed("kmalloc-192", &[300]).found(&ENTRY).is_none(), "as on any machine");
        assert!(listed("kmalloc-192", &[900, 2100, 700]).found(&ENTRY).is_none(), "it gives back");
    }

    #[test]
    fn reclaim_gives_back_inodes_of_files_only() {
        let given_back = |name: &str| {
            let finding = listed(name, &[900, 1400, 2100]).found(&ENTRY).expect("growth");
            finding.against.iter().any(|one| one.text.contains("reclaim can give this cache back"))
        };
        assert!(given_back("xfs_inode") && given_back("dentry"));
        for name in ["sock_inode_cache", "shmem_inode_cache", "proc_inode_cache", "kmalloc-192"] {
            assert!(!given_back(name), "{name}");
        }
    }

    #[test]
    fn unreclaimable_slab_without_the_size_of_memory_is_named_where_it_grows_or_is_huge() {
        let build = |levels_mb: &[i64]| {
            let levels: Vec<i64> = levels_mb.iter().map(|level| level * MB).collect();
            RecordingBuilder::new().gauges(Table::Meminfo, &Entity::default(), &[("SUnreclaim_bytes", &levels)])
        };
        assert!(build(&[80, 400, 900, 1_500]).found(&ENTRY).is_some(), "it grows");
        assert!(build(&[9_000]).found(&ENTRY).is_some(), "more than any machine needs");
        assert!(build(&[300]).found(&ENTRY).is_none());
        assert!(build(&[900, 400, 900, 1_500]).found(&ENTRY).is_none(), "it gives back");
    }

    #[test]
    fn slab_alone_is_judged_by_memory() {
        let slab = |mb: i64| {
            let columns: [(&str, &[i64]); 2] = [("MemTotal_bytes", &[16_384 * MB]), ("Slab_bytes", &[mb * MB])];
            RecordingBuilder::new().gauges(Table::Meminfo, &Entity::default(), &columns)
        };
        assert!(slab(9_000).found(&ENTRY).is_some());
        assert!(slab(900).found(&ENTRY).is_none());
    }

    #[test]
    fn a_large_level_is_weaker_evidence() {
        assert!(slab(&[5_000]).found(&ENTRY).is_some_and(|finding| finding.weight < 0.7));
    }

    #[test]
    fn fluctuating_or_small_growth_is_ignored() {
        assert!(slab(&[500, 900, 600, 1000, 700, 1100]).found(&ENTRY).is_none());
        assert!(slab(&[500, 501, 502, 503, 504]).found(&ENTRY).is_none());
    }
}
