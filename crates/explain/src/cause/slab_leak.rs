//! slab-leak: kernel objects that nobody frees.

use super::CauseEntry;
use crate::counters::Track;
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{meminfo, slabs, vmstat};
use flatwater_recording::units::Bytes;
use flatwater_recording::{Entity, Table};

/// Unreclaimable slab as a share of memory that is too much at rest ...
const SHARE_MIN: f64 = 0.2;
/// ... or that it grew by while it was watched, never falling much.
const GROWTH_SHARE_MIN: f64 = 0.02;
const BYTES_MIN: f64 = 256.0 * 1_048_576.0;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "slab-leak",
    span: None,
    headline: "unreclaimable kernel objects hold a large part of memory, and grow",
    mechanism: "Objects of a slab cache without a shrinker (SUnreclaim) go only when their owner frees them. A \
        driver or subsystem that forgets some keeps taking pages until page cache and processes are squeezed, and \
        reclaim scans in vain. Reclaimable caches (dentries, inodes) may look the same when something pins them: \
        open files, mounts of dead containers, memory cgroups that linger because of one cached page (offline \
        cgroups).",
    kernels: "All.",
    in_spans: "direct-reclaim or shrinker, with a poor yield.",
    in_counters: "SUnreclaim in /proc/meminfo (nr_slab_unreclaimable) is 20 % of memory or more, or grows steadily \
        and never falls; slabtop names the cache.",
    against: "SReclaimable is the large one: that is cache, and shrinks under pressure (see inode-cache-pressure). \
        A busy network or file server has some hundreds of MiB of unreclaimable slab.",
    fix: "Find the cache (slabtop -s c), then its owner: kmem tracepoints or slub_debug=U,CACHE with \
        /sys/kernel/debug/slab/CACHE/alloc_traces; upgrade the driver. A restart buys time.",
    prove: "Two readings of /proc/slabinfo some minutes apart under the same load: the cache that only grows is it.",
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
    for point in &mut pages.points {
        point.value *= page_bytes;
    }
    pages
}

/// The cache with the most memory, from a slabinfo reading: (name, bytes, objects).
fn largest_cache(facts: &Facts<'_>) -> Option<(String, f64, i64)> {
    let slabs = facts.recording.table(Table::Slabs)?;
    let each = slabs.by_entity().filter_map(|(entity, rows)| {
        let objects = rows.last(slabs::NUM_OBJS)?;
        Some((entity.name.clone(), objects as f64 * rows.last(slabs::OBJSIZE_BYTES)? as f64, objects))
    });
    each.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let memory = facts.memory_bytes().filter(|_| facts.may_infer())?;
    let track = unreclaimable(facts);
    let (first, last) = (track.first()?, track.last()?);
    let grown = last - first;
    // A leak never gives back: at no time may it have fallen by a tenth of what it grew.
    let falls = track.points.windows(2).any(|pair| pair[1].value < pair[0].value - 0.1 * grown.max(0.0));
    let growing = grown >= GROWTH_SHARE_MIN * memory && grown >= BYTES_MIN && track.len() >= 5 && !falls;
    let large = last >= SHARE_MIN * memory && last >= BYTES_MIN;
    if !growing && !large {
        return None;
    }
    let text =
        format!("SUnreclaim is {} of {} ({:.0} %)", Bytes(last as u64), Bytes(memory as u64), 100.0 * last / memory);
    let mut finding = Finding::inferred(ENTRY.name, if growing { 0.8 } else { 0.6 }, ENTRY.headline)
        .with([Evidence::new(text, last, "bytes")]);
    if growing {
        let text = format!("it grew by {} over the log and never gave any back", Bytes(grown as u64));
        finding.evidence.push(Evidence::new(text, grown, "bytes"));
    } else {
        finding.headline = "unreclaimable kernel objects hold a large part of memory".to_owned();
        finding.against.push(Evidence::said("one level does not show growth: a large but steady cache is no leak"));
    }
    if let Some((name, bytes, objects)) = largest_cache(facts) {
        let text = format!("the largest cache is {name}: {} in {objects} objects", Bytes(bytes as u64));
        finding.evidence.push(Evidence::new(text, bytes, "bytes"));
    }
    let finding =
        finding.fix(Fix::advice("find the cache with `slabtop -s c`, then its owner; upgrade or restart what leaks"));
    Some(finding.settle("two readings of /proc/slabinfo some minutes apart: the cache that only grows is it"))
}

/// Whether dentries and inodes are the bulk of slab; other causes ask.
#[must_use]
pub fn cache_objects(facts: &Facts<'_>, name: &str) -> Option<i64> {
    facts.recording.table(Table::Slabs)?.rows_of(&Entity::named(name))?.last(slabs::NUM_OBJS)
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{Made, said};
    use flatwater_recording::{Entity, Table};

    const MB: i64 = 1 << 20;

    fn slab(levels_mb: &[i64]) -> Made {
        let levels: Vec<i64> = levels_mb.iter().map(|level| level * MB).collect();
        let total = vec![16_384 * MB; levels.len()];
        Made::new().gauges(
            Table::Meminfo,
            &Entity::default(),
            &[("MemTotal_bytes", &total), ("SUnreclaim_bytes", &levels)],
        )
    }

    #[test]
    fn steady_growth_is_a_leak() {
        let finding = slab(&[500, 700, 900, 1100, 1300, 1500]).found(&ENTRY).expect("growth");
        assert!(said(&finding).contains("grew by 1000 MiB"), "{}", said(&finding));
    }

    #[test]
    fn a_large_level_is_a_weaker_word() {
        assert!(slab(&[5_000]).found(&ENTRY).is_some_and(|finding| finding.confidence < 0.7));
    }

    #[test]
    fn up_and_down_or_little_is_nothing() {
        assert!(slab(&[500, 900, 600, 1000, 700, 1100]).found(&ENTRY).is_none());
        assert!(slab(&[500, 501, 502, 503, 504]).found(&ENTRY).is_none());
    }
}
