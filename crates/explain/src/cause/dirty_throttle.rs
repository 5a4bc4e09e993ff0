//! dirty-throttle: the writer sleeps because too much is dirty and the device does not write fast enough.

use super::{CauseEntry, CauseId, unfair_throttling};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix, finding};
use flatwater_recording::Cause;
use flatwater_recording::schema::{Column, meminfo, vmstat};
use flatwater_recording::units::{Bytes, Nanos};
use std::collections::BTreeMap;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "dirty-throttle",
    span: Some(Cause::DirtyThrottle),
    headline: "the kernel pauses the writer: dirty page cache is at its limit and the device writes slower than \
        everybody dirties",
    mechanism: "Every few pages a writer dirties, balance_dirty_pages_ratelimited (mm/page-writeback.c) compares \
        dirty + writeback pages with the limits. Above (background + dirty)/2 it sleeps in balance_dirty_pages so \
        that all writers together dirty no faster than the device writes; a pause lasts up to 200 ms (MAX_PAUSE) and \
        repeats. Since 3.2 the pause follows measured bandwidth; before that the writer wrote back pages itself \
        (writeback_inodes) and waited in the request queue, which was neither smooth nor fair. The limits count all \
        writers of the device, so a 220-byte append pays for a neighbour's gigabytes.",
    kernels: "All since 2.6; smooth and per task since 3.2.",
    in_spans: "Measured: a sleep with balance_dirty_pages in its stack.",
    in_counters: "nr_dirty + nr_writeback lies between nr_dirty_background_threshold and nr_dirty_threshold, and \
        stays; pgpgout (bo) is flat at the device's speed; writers count as blocked (D), while neither memory \
        pressure nor scans rise: the writer sleeps in io_schedule_timeout, which is not a PSI memory stall.",
    against: "Dirty pages far below the background limit, or an idle device.",
    fix: "Keep the bulk writer out of the page cache (O_DIRECT) or limit it there (bdi.max_bytes with \
        bdi.strict_limit, io.max, a cgroup with v2 writeback). vm.dirty_background_bytes low and vm.dirty_bytes at \
        one to two seconds of the device's speed give many short pauses instead of few long ones. A ring (`--set \
        precursor=ring`) keeps the pause away from the writer while it has room.",
    prove: "`flatwater verify bulk --set vm.dirty_bytes=...`; or watch writeback:balance_dirty_pages: its pause \
        field sums to the stall time.",
    sources: &[
        "mm/page-writeback.c: balance_dirty_pages, wb_position_ratio",
        "include/trace/events/writeback.h: balance_dirty_pages",
        "Documentation/admin-guide/sysctl/vm.rst: dirty_bytes",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    finding::from_spans(facts, Cause::DirtyThrottle, ENTRY.headline, fixes())
        .or_else(|| from_levels(facts))
        .or_else(|| from_meminfo(facts))
        .or_else(|| from_backlog(facts))
        .or_else(|| from_delays(facts))
}

fn fixes() -> [Fix; 3] {
    [
        Fix::knob("write back early", knob!("vm.dirty_background_bytes"), "16MiB"),
        Fix::advice("bound the neighbour: its own device, O_DIRECT, io.max, or bdi max_bytes with strict_limit"),
        Fix::knob("put the pause behind a ring", knob!("precursor"), "ring"),
    ]
}

/// Minimum share of windows in which the dirty level was at the point where writers are paused.
const SHARE_MIN: f64 = 0.2;

/// From dirty and writeback pages between the free run and the limit (mm/page-writeback.c: dirty_freerun_ceiling).
fn from_levels(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer_place() {
        return None;
    }
    let level = |column: Column| facts.level(column, "");
    let (dirty, writeback) = (level(vmstat::NR_DIRTY), level(vmstat::NR_WRITEBACK));
    let background = level(vmstat::NR_DIRTY_BACKGROUND_THRESHOLD).mean()?;
    let limit = level(vmstat::NR_DIRTY_THRESHOLD).mean()?;
    let freerun = (background + limit) / 2.0;
    let above = dirty.points.iter().zip(&writeback.points).filter(|(d, w)| d.value + w.value >= freerun);
    let (count, peak) =
        above.fold((0_usize, 0.0_f64), |(n, peak), (d, w)| (n.saturating_add(1), peak.max(d.value + w.value)));
    let share = count as f64 / dirty.len().max(1) as f64;
    if count < 3 || share < SHARE_MIN || freerun <= 0.0 {
        return None;
    }
    let text = format!(
        "dirty and writeback pages were over {freerun:.0} in {count} of {} windows (at most {peak:.0}; limit \
            {limit:.0}): above it writers are paused",
        dirty.len()
    );
    let mut finding =
        Finding::inferred(CauseId::DirtyThrottle, 0.7, ENTRY.headline).with([Evidence::new(text, peak, "pages")]);
    finding.fixes.extend(fixes());
    Some(finding)
}

/// Half way between the defaults of vm.dirty_background_ratio and vm.dirty_ratio (10 and 20 %).
const FREERUN_SHARE_DEFAULT: f64 = 0.15;

/// From /proc/meminfo without the thresholds: dirty and writeback pages as a share of dirtyable memory, which is
/// free memory and file pages (mm/page-writeback.c: global_dirtyable_memory).
fn from_meminfo(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer_place() || !facts.level(vmstat::NR_DIRTY_THRESHOLD, "").is_empty() {
        return None;
    }
    let (dirty, writeback) = most_at_once(facts)?;
    let last = |column: Column| facts.meminfo(column).map(|bytes| bytes as f64);
    let lists = last(meminfo::ACTIVE_FILE_BYTES).zip(last(meminfo::INACTIVE_FILE_BYTES));
    let file = lists.map(|(active, rest)| active + rest);
    let dirtyable = last(meminfo::MEM_FREE_BYTES)? + file.or_else(|| last(meminfo::CACHED_BYTES))?;
    let share = (dirty + writeback.unwrap_or(0.0)) / dirtyable.max(1.0);
    if share < FREERUN_SHARE_DEFAULT {
        return None;
    }
    let headline = "dirty page cache is at the level where writers are paused, unless the limits were raised";
    let text = format!(
        "{} dirty{}: {:.0} % of the {} that may be dirtied; with the default limits writers are paused from 15 % on",
        Bytes(dirty as u64),
        writeback.map(|bytes| format!(" and {} under writeback", Bytes(bytes as u64))).unwrap_or_default(),
        share * 100.0,
        Bytes(dirtyable as u64)
    );
    let mut finding =
        Finding::inferred(CauseId::DirtyThrottle, 0.55, headline).with([Evidence::new(text, share * 100.0, "%")]);
    finding.against.push(Evidence::statement("the log does not show vm.dirty_ratio and vm.dirty_bytes"));
    finding.fixes.extend(fixes());
    Some(finding.settle(
        "grep -E 'nr_dirty|nr_writeback' /proc/vmstat: nr_dirty and nr_writeback against nr_dirty_threshold; or \
            `flatwater record -p PID -t 60s` as root",
    ))
}

/// Dirty bytes, and those under writeback where the log has them, of the reading with the most of both.
fn most_at_once(facts: &Facts<'_>) -> Option<(f64, Option<f64>)> {
    let [dirty, writeback] = [meminfo::DIRTY_BYTES, meminfo::WRITEBACK_BYTES].map(|column| facts.meminfo_level(column));
    let writeback: BTreeMap<u64, f64> = writeback.points.iter().map(|point| (point.at_ns, point.value)).collect();
    let each = dirty.points.iter().map(|point| (point.value, writeback.get(&point.at_ns).copied()));
    let sum = |(dirty, writeback): &(f64, Option<f64>)| dirty + writeback.unwrap_or(0.0);
    each.max_by(|a, b| sum(a).total_cmp(&sum(b)))
}

/// Minimum bytes under writeback at once if the memory size is unknown; only writers at the limit leave as much.
const BACKLOG_BYTES_MIN: f64 = 1_073_741_824.0;

/// From Dirty and Writeback alone, as `grep -E` prints them.
fn from_backlog(facts: &Facts<'_>) -> Option<Finding> {
    let (dirty, writeback) = most_at_once(facts)?;
    let writeback = writeback?;
    let whole = facts.meminfo(meminfo::MEM_FREE_BYTES).is_some();
    if whole || !facts.may_infer_place() || writeback < BACKLOG_BYTES_MIN || writeback < dirty {
        return None;
    }
    let text = format!("{} under writeback and {} dirty at once", Bytes(writeback as u64), Bytes(dirty as u64));
    let headline = "much is under writeback at once: writers may be paused at the dirty limit";
    let mut finding =
        Finding::inferred(CauseId::DirtyThrottle, 0.45, headline).with([Evidence::new(text, writeback, "bytes")]);
    finding.against.push(Evidence::statement("the log does not show the limits in pages, nor who waits"));
    finding.fixes.extend(fixes());
    Some(finding.settle("grep -E 'nr_dirty|nr_writeback' /proc/vmstat against nr_dirty_threshold, and `iostat -x 1`"))
}

/// Writers that waited for seconds and were not traced. Little else stops a write() to a file for so long, except a
/// frozen or failing device.
fn from_delays(facts: &Facts<'_>) -> Option<Finding> {
    let delays = unfair_throttling::delays(facts).filter(|delays| !delays.traced)?;
    let worst = *delays.ns.last()?;
    let text = format!(
        "{} write() calls waited {} and more, the worst {}",
        delays.ns.len(),
        Nanos(delays.ns[0]),
        Nanos(worst)
    );
    let mut finding = Finding::inferred(
        CauseId::DirtyThrottle,
        0.5,
        "the writers were probably throttled: too much dirty page cache for the device",
    );
    finding.evidence.push(Evidence::new(text, worst as f64, "ns"));
    finding.against.push(Evidence::statement(
        "a device that stops, a freeze or a full journal delays write() as long; the log cannot distinguish them",
    ));
    finding.fixes.extend(fixes());
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Basis, Cause, Entity, OpKind, Table};

    #[test]
    fn a_dirty_level_at_its_limit_is_named() {
        let levels = |dirty: i64| {
            let columns: [(&str, &[i64]); 4] = [
                ("nr_dirty", &[dirty; 6]),
                ("nr_writeback", &[2_000; 6]),
                ("nr_dirty_background_threshold", &[5_000; 6]),
                ("nr_dirty_threshold", &[10_000; 6]),
            ];
            RecordingBuilder::new().gauges(Table::Vmstat, &Entity::default(), &columns)
        };
        assert!(
            levels(7_000)
                .found(&ENTRY)
                .is_some_and(|finding| evidence_text(&finding).contains("over 7500 in 6 of 6 windows"))
        );
        assert!(levels(3_000).found(&ENTRY).is_none(), "free run");
    }

    #[test]
    fn peaks_at_different_times_do_not_add_up() {
        let memory = |dirty_mib: &[i64], writeback_mib: Option<&[i64]>| {
            let bytes = |mib: &[i64]| -> Vec<i64> { mib.iter().map(|mib| mib << 20).collect() };
            let (dirty, free) = (bytes(dirty_mib), vec![1_i64 << 30; dirty_mib.len()]);
            let writeback = writeback_mib.map(bytes);
            let mut columns: Vec<(&str, &[i64])> = vec![("Dirty_bytes", &dirty), ("MemFree_bytes", &free)];
            columns.push(("Cached_bytes", &free));
            columns.extend(writeback.as_ref().map(|bytes| ("Writeback_bytes", bytes.as_slice())));
            RecordingBuilder::new().gauges(Table::Meminfo, &Entity::default(), &columns).found(&ENTRY)
        };
        assert!(memory(&[200, 0], Some(&[200, 0])).is_some(), "400 of 2048 MiB");
        assert!(memory(&[200, 0], Some(&[0, 200])).is_none(), "never more than 200 at once");
        let dirty = memory(&[400, 0], None).expect("400 of 2048 MiB");
        assert!(!evidence_text(&dirty).contains("under writeback"), "not in the log: {}", evidence_text(&dirty));
    }

    #[test]
    fn a_quarter_of_memory_dirty_is_over_the_default_limits() {
        let memory = |dirty_gib: i64| {
            let columns: [(&str, &[i64]); 4] = [
                ("Dirty_bytes", &[dirty_gib << 30]),
                ("MemFree_bytes", &[1 << 30]),
                ("Active(file)_bytes", &[28 << 30]),
                ("Inactive(file)_bytes", &[69 << 30]),
            ];
            RecordingBuilder::new().gauges(Table::Meminfo, &Entity::default(), &columns)
        };
        let finding = memory(25).found(&ENTRY).expect("25 of 98 GiB");
        assert!(evidence_text(&finding).contains("26 % of the 98"), "{}", evidence_text(&finding));
        assert!(memory(5).found(&ENTRY).is_none(), "free run");
    }

    #[test]
    fn untraced_waits_of_seconds_are_a_guess_and_say_so() {
        let finding =
            RecordingBuilder::new().slow(OpKind::Write, &[(Cause::Unexplained, 4_806.0)]).found(&ENTRY).expect("4.8 s");
        assert!(finding.basis == Basis::Inferred && finding.weight <= 0.5 && !finding.against.is_empty());
        assert!(
            RecordingBuilder::new().slow(OpKind::Write, &[(Cause::Unexplained, 40.0)]).found(&ENTRY).is_none(),
            "too short to guess"
        );
        assert!(
            RecordingBuilder::new().slow(OpKind::Write, &[(Cause::FsFreeze, 4_000.0)]).found(&ENTRY).is_none(),
            "named already"
        );
    }
}
