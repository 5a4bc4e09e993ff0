//! page-leak: memory that is neither free nor cache and has no known owner.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::Table;
use flatwater_recording::schema::{Column, meminfo, vmstat, zones};
use flatwater_recording::units::Bytes;

/// Minimum share of memory without an owner.
const UNACCOUNTED_SHARE_MIN: f64 = 0.2;
/// From `free` alone: minimum share of memory that is neither free nor cache.
const USED_SHARE_MIN: f64 = 0.7;
const FREE_SHARE_MAX: f64 = 0.01;
const SWAP_USED_SHARE_MAX: f64 = 0.1;

/// From a part of /proc/meminfo: minimum share of memory that is on no list.
const LISTS_SHARE_MIN: f64 = 0.5;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "page-leak",
    span: None,
    headline: "much memory is neither free, nor cache, nor swapped out, and no owner is shown",
    mechanism: "Pages can stay on the LRU lists although no file and no process has them: with data=journal, \
        invalidatepage refuses pages whose buffers belong to a running transaction; truncate removes them from their \
        file nevertheless (mapping becomes NULL) and leaves them to reclaim. They are counted neither as Cached nor \
        as Buffers. reiserfs with data=journal did so on every unlink of a short-lived file (2.6). Drivers that take \
        pages for themselves, balloons and leaks in the kernel look the same from outside.",
    kernels: "Any; reiserfs and ext3 with data=journal in 2.6 as described.",
    in_spans: "",
    in_counters: "/proc/meminfo does not add up: MemTotal - MemFree - Buffers - Cached - SwapCached - AnonPages - \
        Slab - PageTables - KernelStack is a large part of memory. LRU pages (Active + Inactive) exceed Cached + \
        Buffers + AnonPages. With `free` alone: used minus buffers and cache is most of memory, while hardly \
        anything was swapped out.",
    against: "Processes that really have that much (sum of Pss in /proc/*/smaps_rollup, or RSS), huge pages, \
        shared memory, a balloon driver.",
    fix: "Another journal mode for short-lived files (data=ordered) or a patched kernel. Until then echo 1 > \
        /proc/sys/vm/drop_caches frees orphaned LRU pages; if it does, this is the cause.",
    prove: "echo 1 > /proc/sys/vm/drop_caches: `free` grows by more than Cached and Buffers were.",
    sources: &[
        "fs/reiserfs/inode.c: reiserfs_invalidatepage",
        "mm/truncate.c: truncate_complete_page (2.6)",
        "Documentation/filesystems/proc.rst: meminfo",
    ],
    find,
};

const SETTLE: &str = "read /proc/meminfo (AnonPages, Slab, PageTables, Active, Inactive) and add up the Pss of all \
    processes: what then has no owner has leaked";

fn find(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer() {
        return None;
    }
    match facts.meminfo(meminfo::ANON_PAGES_BYTES) {
        Some(_) => from_meminfo(facts),
        None => from_lists(facts).or_else(|| from_zones(facts)).or_else(|| from_free(facts)),
    }
}

/// From the whole of /proc/meminfo: subtracts everything that has an owner.
fn from_meminfo(facts: &Facts<'_>) -> Option<Finding> {
    let get = |column: Column| facts.meminfo(column).map(|bytes| bytes as f64);
    let total = get(meminfo::MEM_TOTAL_BYTES)?;
    // A part of the file without one of these lines proves nothing.
    let owners = [
        meminfo::MEM_FREE_BYTES,
        meminfo::BUFFERS_BYTES,
        meminfo::CACHED_BYTES,
        meminfo::ANON_PAGES_BYTES,
        meminfo::SLAB_BYTES,
    ];
    // Lines that not every kernel prints.
    let others = [
        meminfo::SWAP_CACHED_BYTES,
        meminfo::PAGE_TABLES_BYTES,
        meminfo::KERNEL_STACK_BYTES,
        meminfo::PERCPU_BYTES,
        meminfo::BOUNCE_BYTES,
    ];
    let owned: f64 = owners.into_iter().map(get).sum::<Option<f64>>()?;
    let known = owned + others.into_iter().filter_map(get).sum::<f64>() + huge_bytes(facts);
    let unaccounted = total - known;
    if unaccounted < UNACCOUNTED_SHARE_MIN * total || total <= 0.0 {
        return None;
    }
    // How much more the LRU lists hold than the page cache and processes own; `None` if a line is missing.
    let sum = |columns: &[Column]| columns.iter().map(|column| get(*column)).sum::<Option<f64>>();
    let orphaned = sum(&[meminfo::ACTIVE_BYTES, meminfo::INACTIVE_BYTES])
        .zip(sum(&[meminfo::CACHED_BYTES, meminfo::BUFFERS_BYTES, meminfo::ANON_PAGES_BYTES]))
        .map(|(lists, owned)| lists - owned - get(meminfo::SWAP_CACHED_BYTES).unwrap_or(0.0));
    let on_lru = orphaned.filter(|bytes| *bytes >= 0.5 * unaccounted);
    let text = format!(
        "{} of {} ({:.0} %) is neither free, cache, anonymous, slab nor in another line of /proc/meminfo",
        Bytes(unaccounted as u64),
        Bytes(total as u64),
        100.0 * unaccounted / total
    );
    let mut finding = Finding::inferred(CauseId::PageLeak, if on_lru.is_some() { 0.85 } else { 0.6 }, ENTRY.headline);
    finding.evidence.push(Evidence::new(text, unaccounted, "bytes"));
    if let Some(bytes) = on_lru {
        let text = format!(
            "the LRU lists hold {} more than the page cache and anonymous memory: orphaned pages would be there",
            Bytes(bytes as u64)
        );
        finding.evidence.push(Evidence::new(text, bytes, "bytes"));
    } else {
        let lists = match orphaned {
            Some(_) => "most of this memory is not on the LRU lists either",
            None => "the log does not show the LRU lists",
        };
        let text = format!("{lists}: a driver, a balloon or a kernel leak may hold it");
        finding.against.push(Evidence::statement(text));
    }
    let fix = Fix::advice(
        "echo 1 > /proc/sys/vm/drop_caches on a quiet hour: if this frees more memory than the cache had, pages were \
            orphaned",
    );
    Some(finding.fix(fix).settle(
        "compare `free` before and after echo 1 > /proc/sys/vm/drop_caches, and look for balloon drivers (lsmod)",
    ))
}

fn huge_bytes(facts: &Facts<'_>) -> f64 {
    if let Some(bytes) = facts.meminfo(meminfo::HUGETLB_BYTES) {
        return bytes as f64;
    }
    let pages = facts.meminfo(meminfo::HUGE_PAGES_TOTAL).unwrap_or(0) as f64;
    pages * facts.meminfo(meminfo::HUGEPAGESIZE_BYTES).unwrap_or(0) as f64
}

/// From a part of /proc/meminfo without AnonPages: the LRU lists contain everything that processes and the page
/// cache own.
fn from_lists(facts: &Facts<'_>) -> Option<Finding> {
    let get = |column: Column| facts.meminfo(column).map(|bytes| bytes as f64);
    let total = get(meminfo::MEM_TOTAL_BYTES)?;
    let (free, slab) = (get(meminfo::MEM_FREE_BYTES)?, get(meminfo::SLAB_BYTES)?);
    let lists = get(meminfo::ACTIVE_BYTES)? + get(meminfo::INACTIVE_BYTES)?;
    let others =
        [meminfo::UNEVICTABLE_BYTES, meminfo::PAGE_TABLES_BYTES, meminfo::PERCPU_BYTES, meminfo::VMALLOC_USED_BYTES];
    let others: f64 = others.into_iter().filter_map(get).sum();
    let unaccounted = total - free - slab - lists - others - huge_bytes(facts);
    if unaccounted < LISTS_SHARE_MIN * total || total <= 0.0 {
        return None;
    }
    let text = format!(
        "{} of {} ({:.0} %) is neither free nor slab nor on the LRU lists, where all of cache and processes is",
        Bytes(unaccounted as u64),
        Bytes(total as u64),
        100.0 * unaccounted / total
    );
    let finding =
        Finding::inferred(CauseId::PageLeak, 0.6, ENTRY.headline).with([Evidence::new(text, unaccounted, "bytes")]);
    Some(finding.but([not_shown(facts, true)]).settle(SETTLE))
}

/// The owners that this log does not show.
fn not_shown(facts: &Facts<'_>, shows_slab: bool) -> Evidence {
    let slab = if shows_slab { "" } else { "the slab, " };
    let shows_huge =
        facts.meminfo(meminfo::HUGETLB_BYTES).or_else(|| facts.meminfo(meminfo::HUGE_PAGES_TOTAL)).is_some();
    let huge = if shows_huge { "" } else { "huge pages, " };
    Evidence::statement(format!("{slab}{huge}a balloon or a driver may hold it: the log does not show them"))
}

/// From a kernel's memory report (SysRq-m, OOM kills): each zone with its size and LRU lists, and the slab.
fn from_zones(facts: &Facts<'_>) -> Option<Finding> {
    let zones = facts.recording.table(Table::Zones)?;
    let (mut present, mut known, mut slab, mut free) = (0.0, 0.0, 0.0, 0.0);
    for (_, rows) in zones.by_entity() {
        let last = |column: Column| rows.last(column).map(|pages| pages as f64);
        let any = |columns: &[Column]| columns.iter().filter_map(|column| last(*column)).reduce(|a, b| a + b);
        let size = last(zones::MANAGED).or_else(|| last(zones::PRESENT)).filter(|pages| *pages > 0.0)?;
        let active = any(&[zones::NR_ACTIVE, zones::NR_ACTIVE_ANON, zones::NR_ACTIVE_FILE])?;
        let inactive = any(&[zones::NR_INACTIVE, zones::NR_INACTIVE_ANON, zones::NR_INACTIVE_FILE])?;
        let others = any(&[zones::FREE, zones::NR_UNEVICTABLE, zones::NR_ISOLATED_ANON, zones::NR_ISOLATED_FILE]);
        free += last(zones::FREE)?;
        slab += any(&[zones::NR_SLAB_RECLAIMABLE, zones::NR_SLAB_UNRECLAIMABLE]).unwrap_or(0.0);
        present += size;
        known += active + inactive + others?;
    }
    // Slab is counted for the whole machine only before 2.6.19, and no longer by zone since 4.8.
    let machine = [vmstat::NR_SLAB, vmstat::NR_SLAB_RECLAIMABLE, vmstat::NR_SLAB_UNRECLAIMABLE];
    let machine: f64 = machine.into_iter().filter_map(|column| facts.level(column, "").last()).sum();
    // Zones are printed in kB, the machine in pages, which are 8 KiB or more on some; the ratio of the free counts
    // is the factor.
    let free_pages = facts.level(vmstat::NR_FREE_PAGES, "").last().filter(|pages| *pages > 0.0);
    let larger = free_pages.map_or(1.0, |pages| (free / pages).round().clamp(1.0, 16.0));
    known += slab.max(larger * machine);
    known += huge_bytes(facts) / facts.recording.header.machine.page_size_bytes().max(1) as f64;
    let unaccounted = present - known;
    if present <= 0.0 || unaccounted < LISTS_SHARE_MIN * present {
        return None;
    }
    let bytes = |pages: f64| Bytes((pages as u64).saturating_mul(facts.recording.header.machine.page_size_bytes()));
    let text = format!(
        "{} of {} ({:.0} %) is neither free nor slab nor on the LRU lists, where all of cache and processes is",
        bytes(unaccounted),
        bytes(present),
        100.0 * unaccounted / present
    );
    let finding =
        Finding::inferred(CauseId::PageLeak, 0.6, ENTRY.headline).with([Evidence::new(text, unaccounted, "pages")]);
    Some(finding.but([not_shown(facts, slab + machine > 0.0)]).settle(SETTLE))
}

/// From the output of `free` alone. A database with a large buffer pool looks nearly the same, so the finding is
/// only suspected; MemAvailable (3.14) or a well-used swap point to ordinary processes.
fn from_free(facts: &Facts<'_>) -> Option<Finding> {
    let get = |column: Column| facts.meminfo(column).map(|bytes| bytes as f64);
    let (total, free) = (get(meminfo::MEM_TOTAL_BYTES)?, get(meminfo::MEM_FREE_BYTES)?);
    let (buffers, cached) = (get(meminfo::BUFFERS_BYTES)?, get(meminfo::CACHED_BYTES)?);
    let (swap_total, swap_free) = (get(meminfo::SWAP_TOTAL_BYTES)?, get(meminfo::SWAP_FREE_BYTES)?);
    let used = total - free - buffers - cached;
    let swapped = swap_total - swap_free;
    let squeezed = total > 0.0 && used >= USED_SHARE_MIN * total && free <= FREE_SHARE_MAX * total;
    // Processes that fill memory are partly swapped out; leaked pages cannot be.
    let kept = swap_total > 0.0 && swapped <= SWAP_USED_SHARE_MAX * swap_total;
    let described = get(meminfo::MEM_AVAILABLE_BYTES).is_some() || get(meminfo::SLAB_BYTES).is_some();
    if !squeezed || !kept || described {
        return None;
    }
    let percent = |bytes: f64| 100.0 * bytes / total;
    let evidence = [
        Evidence::new(
            format!(
                "{} of {} ({:.0} %) is neither free nor cache",
                Bytes(used as u64),
                Bytes(total as u64),
                percent(used)
            ),
            used,
            "bytes",
        ),
        Evidence::new(
            format!(
                "only {} is free, and {} ({:.0} %) is cache",
                Bytes(free as u64),
                Bytes((buffers + cached) as u64),
                percent(buffers + cached)
            ),
            buffers + cached,
            "bytes",
        ),
        Evidence::new(
            format!(
                "yet only {} of {} swap is used; processes of that size would usually be partly swapped out",
                Bytes(swapped as u64),
                Bytes(swap_total as u64)
            ),
            swapped,
            "bytes",
        ),
    ];
    let against = Evidence::statement(
        "processes with that much locked or busy memory look the same in `free`: add them up first",
    );
    let finding = Finding::inferred(CauseId::PageLeak, 0.5, ENTRY.headline).with(evidence).but([against]);
    let finding = finding.fix(Fix::advice(
        "if no process owns it: data=ordered instead of data=journal, or a kernel with the leak fixed",
    ));
    Some(finding.settle(SETTLE))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Entity, Table};

    const GB: i64 = 1 << 30;

    fn meminfo(lines: &[(&str, i64)]) -> RecordingBuilder {
        let columns: Vec<(String, [i64; 1])> =
            lines.iter().map(|(name, gb10)| (format!("{name}_bytes"), [gb10 * GB / 10])).collect();
        let columns: Vec<(&str, &[i64])> =
            columns.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        RecordingBuilder::new().gauges(Table::Meminfo, &Entity::default(), &columns)
    }

    #[test]
    fn unaccounted_pages_are_found_in_meminfo() {
        let lines = [
            ("MemTotal", 160),
            ("MemFree", 5),
            ("Buffers", 5),
            ("Cached", 20),
            ("AnonPages", 10),
            ("Slab", 10),
            ("Active", 80),
            ("Inactive", 50),
        ];
        let finding = meminfo(&lines).found(&ENTRY).expect("11 GB missing");
        assert!(
            finding.weight > 0.8 && evidence_text(&finding).contains("11 GiB of 16 GiB"),
            "{}",
            evidence_text(&finding)
        );
        let without = |line: &str| {
            let lines: Vec<(&str, i64)> = lines.iter().copied().filter(|(name, _)| *name != line).collect();
            meminfo(&lines).found(&ENTRY)
        };
        for line in ["Slab", "Cached", "MemFree", "Buffers"] {
            assert!(without(line).is_none(), "{line} is missing, not 0");
        }
        let lists = without("Active").expect("11 GB missing");
        assert!(evidence_text(&lists).contains("does not show the LRU lists"), "{}", evidence_text(&lists));
    }

    #[test]
    fn a_machine_that_adds_up_is_silent() {
        let lines =
            [("MemTotal", 160), ("MemFree", 5), ("Buffers", 5), ("Cached", 20), ("AnonPages", 110), ("Slab", 10)];
        assert!(meminfo(&lines).found(&ENTRY).is_none());
    }

    #[test]
    fn free_alone_gives_a_suspicion_and_a_full_cache_none() {
        let free =
            [("MemTotal", 120), ("MemFree", 0), ("Buffers", 5), ("Cached", 15), ("SwapTotal", 20), ("SwapFree", 19)];
        let finding = meminfo(&free).found(&ENTRY).expect("100 of 120");
        assert!(finding.weight <= 0.5 && !finding.against.is_empty() && finding.settle.contains("/proc/meminfo"));
        let text = evidence_text(&finding);
        assert!(text.contains("only 0 B is free, and 2 GiB (17 %) is cache"), "{text}");
        assert!(!text.contains("squeezed"), "one reading does not show that the cache became smaller");
        let roomy =
            [("MemTotal", 120), ("MemFree", 5), ("Buffers", 5), ("Cached", 15), ("SwapTotal", 20), ("SwapFree", 19)];
        assert!(meminfo(&roomy).found(&ENTRY).is_none(), "4 % is free");
        let no_swap =
            [("MemTotal", 120), ("MemFree", 0), ("Buffers", 5), ("Cached", 15), ("SwapTotal", 0), ("SwapFree", 0)];
        assert!(meminfo(&no_swap).found(&ENTRY).is_none(), "without swap nothing could be swapped out");
        let cache =
            [("MemTotal", 120), ("MemFree", 0), ("Buffers", 15), ("Cached", 78), ("SwapTotal", 20), ("SwapFree", 19)];
        assert!(meminfo(&cache).found(&ENTRY).is_none());
        let swapped =
            [("MemTotal", 120), ("MemFree", 0), ("Buffers", 5), ("Cached", 15), ("SwapTotal", 20), ("SwapFree", 5)];
        assert!(meminfo(&swapped).found(&ENTRY).is_none(), "processes that are swapped out own their memory");
    }

    #[test]
    fn zones_with_unaccounted_pages_are_leaked() {
        let zone = |lists: i64| {
            let levels: [(&str, &[i64]); 5] = [
                ("free", &[5_400]),
                ("present", &[225_280]),
                ("nr_active", &[lists]),
                ("nr_inactive", &[50]),
                ("min", &[939]),
            ];
            RecordingBuilder::new().gauges(Table::Zones, &Entity::on_node(0, "Normal"), &levels)
        };
        let finding = zone(70).found(&ENTRY).expect("97 % missing");
        assert!(evidence_text(&finding).contains("of 880 MiB (98 %)"), "{}", evidence_text(&finding));
        assert!(zone(180_000).found(&ENTRY).is_none(), "processes have it");
        assert!(against(&finding).contains("the slab, huge pages, a balloon"), "{}", against(&finding));
        let with_huge = |pages: i64| {
            let huge: [(&str, &[i64]); 2] = [("HugePages_Total", &[pages]), ("Hugepagesize_bytes", &[2 << 20])];
            zone(70).gauges(Table::Meminfo, &Entity::default(), &huge).found(&ENTRY)
        };
        assert!(with_huge(400).is_none(), "800 MiB of 880 MiB are huge pages");
        let finding = with_huge(10).expect("most is missing");
        assert!(!against(&finding).contains("huge"), "the log shows them: {}", against(&finding));
    }

    fn against(finding: &crate::Finding) -> String {
        finding.against.iter().map(|one| one.text.clone()).collect()
    }

    #[test]
    fn owners_that_a_part_of_meminfo_shows_are_not_suspected() {
        let lines = [("MemTotal", 160), ("MemFree", 5), ("Slab", 5), ("Active", 20), ("Inactive", 20)];
        let finding = meminfo(&lines).found(&ENTRY).expect("11 GB missing");
        assert!(against(&finding).starts_with("huge pages, a balloon"), "{}", against(&finding));
        let with_huge = |pages: i64| {
            let huge: [(&str, &[i64]); 2] = [("HugePages_Total", &[pages]), ("Hugepagesize_bytes", &[2 << 20])];
            meminfo(&lines).gauges(Table::Meminfo, &Entity::default(), &huge).found(&ENTRY)
        };
        assert!(against(&with_huge(0).expect("11 GB missing")).starts_with("a balloon"));
        assert!(with_huge(5_000).is_none(), "10 GB of huge pages");
    }
}
