//! lowmem-exhausted: the memory that the kernel can use for its own objects is full while high memory is free.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::Table;
use flatwater_recording::schema::{Column, meminfo, zones};

const LOW_FREE_SHARE_MAX: f64 = 0.05;
/// 64 MiB.
const HIGH_FREE_PAGES_MIN: f64 = 16_384.0;
const HIGH_FREE_SHARE_MIN: f64 = 0.2;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "lowmem-exhausted",
    span: None,
    headline: "low memory is exhausted while high memory lies free: a 32-bit kernel cannot use high memory for its \
        own objects",
    mechanism: "A 32-bit kernel maps only 896 MiB directly. Inodes, dentries, buffer heads, page tables (without \
        HIGHPTE), network buffers and struct page itself (32 bytes and more for each page of all memory) must live \
        there. With 12 GiB of memory the page structs alone take a tenth of low memory. Reclaim for a GFP_KERNEL \
        allocation weighs slab against the LRU pages of the zones that the caller may use (mm/vmscan.c: \
        try_to_free_pages counts the caller's zonelist), so that caches are squeezed hard although gigabytes are \
        free. An inode's page cache is dropped with the inode.",
    kernels: "32-bit with CONFIG_HIGHMEM, worst above 4 GiB.",
    in_spans: "direct-reclaim and shrinker.",
    in_counters: "LowFree of /proc/meminfo (free -l) a few percent of LowTotal while HighFree is a large part of \
        HighTotal; zoneinfo: Normal at its watermarks, HighMem far above; oom kills with free HighMem.",
    against: "64-bit kernels have no HighMem zone.",
    fix: "A 64-bit kernel (32-bit programs may stay). Until then vm.vfs_cache_pressure = 50 keeps more inodes, \
        vm.lowmem_reserve_ratio keeps page cache out of low memory; less memory may even be faster.",
    prove: "The same load on a 64-bit kernel: cache fills memory and the number of inodes grows tenfold.",
    sources: &[
        "mm/vmscan.c: try_to_free_pages (2.6.20)",
        "fs/inode.c: prune_icache (2.6)",
        "Documentation/mm/highmem.rst",
    ],
    find,
};

/// (free share of low memory, free share of high memory, low free bytes, high free bytes).
fn shares(facts: &Facts<'_>) -> Option<(f64, f64, f64, f64)> {
    let get = |column: Column| facts.meminfo(column).map(|bytes| bytes as f64).filter(|bytes| *bytes >= 0.0);
    if let (Some(low), Some(low_free), Some(high), Some(high_free)) = (
        get(meminfo::LOW_TOTAL_BYTES),
        get(meminfo::LOW_FREE_BYTES),
        get(meminfo::HIGH_TOTAL_BYTES),
        get(meminfo::HIGH_FREE_BYTES),
    ) && low > 0.0
        && high > 0.0
    {
        return Some((low_free / low, high_free / high, low_free, high_free));
    }
    let zones = facts.recording.table(Table::Zones)?;
    let page_bytes = facts.recording.header.machine.page_size_bytes() as f64;
    let zone = |name: &str| {
        let (_, rows) = zones.by_entity().find(|(entity, _)| entity.name == name)?;
        let size = rows.last(zones::MANAGED).or_else(|| rows.last(zones::PRESENT))? as f64;
        let free = rows.last(zones::FREE)? as f64;
        (size > 0.0).then_some((free / size, free * page_bytes))
    };
    let ((low, low_free), (high, high_free)) = (zone("Normal")?, zone("HighMem")?);
    Some((low, high, low_free, high_free))
}

/// Whether low memory is at its min watermark while high memory is far above its high watermark, as OOM reports
/// print them.
fn watermarks_tell(facts: &Facts<'_>) -> bool {
    let Some(zones) = facts.recording.table(Table::Zones) else { return false };
    let of = |name: &str, mark: Column| {
        let (_, rows) = zones.by_entity().find(|(entity, _)| entity.name == name)?;
        Some((rows.last(zones::FREE)? as f64, rows.last(mark)? as f64))
    };
    let (Some((low_free, min)), Some((high_free, high))) = (of("Normal", zones::MIN), of("HighMem", zones::HIGH))
    else {
        return false;
    };
    low_free <= 1.1 * min && high_free >= 4.0 * high && high_free >= HIGH_FREE_PAGES_MIN
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let (low, high, low_free, high_free) = shares(facts).filter(|_| facts.may_infer())?;
    let shares_tell = low <= LOW_FREE_SHARE_MAX && high >= HIGH_FREE_SHARE_MIN;
    if !shares_tell && !watermarks_tell(facts) {
        return None;
    }
    let mib = |bytes: f64| bytes / 1_048_576.0;
    let evidence = [
        Evidence::new(format!("low memory: {:.0} MiB free ({:.1} %)", mib(low_free), low * 100.0), low_free, "bytes"),
        Evidence::new(
            format!("high memory: {:.0} MiB free ({:.0} %)", mib(high_free), high * 100.0),
            high_free,
            "bytes",
        ),
    ];
    let finding = Finding::inferred(CauseId::LowmemExhausted, 0.85, ENTRY.headline).with(evidence);
    let finding = finding.fix(Fix::advice("a 64-bit kernel; 32-bit programs may stay"));
    let finding =
        finding.fix(Fix::knob("until then keep more inodes and dentries", knob!("vm.vfs_cache_pressure"), "50"));
    Some(finding.settle(
        "read /proc/zoneinfo while it is slow: Normal at its watermarks with HighMem far above them settles it",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Entity, Table};

    fn memory(low_free_mb: i64, high_free_mb: i64) -> RecordingBuilder {
        let mb = |size: i64| [size << 20];
        let (low, low_free, high, high_free) = (mb(850), mb(low_free_mb), mb(11_000), mb(high_free_mb));
        let columns: [(&str, &[i64]); 4] = [
            ("LowTotal_bytes", &low),
            ("LowFree_bytes", &low_free),
            ("HighTotal_bytes", &high),
            ("HighFree_bytes", &high_free),
        ];
        RecordingBuilder::new().gauges(Table::Meminfo, &Entity::default(), &columns)
    }

    #[test]
    fn a_full_low_zone_beside_a_free_high_one() {
        assert!(memory(15, 9_800).found(&ENTRY).is_some());
    }

    #[test]
    fn balanced_or_64_bit_is_silent() {
        assert!(memory(300, 9_800).found(&ENTRY).is_none());
        assert!(memory(15, 200).found(&ENTRY).is_none());
        assert!(memory(15, 9_800).edit(|recording| recording.series.clear()).found(&ENTRY).is_none());
    }
}
