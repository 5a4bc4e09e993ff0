//! dirty-burst: writeback comes in bursts that fill the device's queue, and everything else waits behind them.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::Cause;
use flatwater_recording::schema::{cpu, vmstat};

/// A burst writes at least this many times the median, and at least this much in KiB/s.
const PER_MEDIAN_MIN: f64 = 8.0;
const KIB_PER_S_MIN: f64 = 20_480.0;
const BURSTS_MIN: usize = 2;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "dirty-burst",
    span: None,
    headline: "writeback comes in bursts: in those seconds the device is saturated and everybody else waits",
    mechanism: "Dirty pages stay in memory until they are 30 s old (vm.dirty_expire_centisecs) or their number passes \
        the background limit; then the flusher writes as fast as the queue takes it. On a machine with much memory \
        the background limit of 10 % is gigabytes: minutes without writes, then seconds in which the device does \
        nothing else. A journal commit, an fsync or a read then queues behind them; ext4's ordered mode even makes a \
        commit wait for the data of new files.",
    kernels: "All.",
    in_spans: "journal-commit, synchronous-read, page-writeback or request-queue, in groups some seconds apart.",
    in_counters: "pgpgout (bo) is near 0 for many seconds and then many times the median; nr_writeback is 0 or \
        thousands; the device is at 100 % or threads block only in those seconds.",
    against: "bo is steady; or no threads are blocked during the bursts.",
    fix: "vm.dirty_background_bytes at what the device writes in a fraction of a second, vm.dirty_expire_centisecs \
        and dirty_writeback_centisecs lower; sync_file_range or O_DIRECT in the bulk writer.",
    prove: "Lower vm.dirty_background_bytes: bo becomes steady and the groups of slow calls disappear.",
    sources: &[
        "fs/fs-writeback.c: wb_check_background_flush, wb_check_old_data_flush",
        "Documentation/admin-guide/sysctl/vm.rst: dirty_background_bytes",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let places = [Cause::SynchronousRead, Cause::JournalCommit, Cause::PageWriteback, Cause::RequestQueue];
    let blamed = places.into_iter().any(|cause| facts.significant(cause).is_some());
    if !facts.may_infer() || (facts.spans_tell_all() && !blamed) {
        return None;
    }
    let written = facts.vmstat_rate(vmstat::PGPGOUT);
    let mut sorted: Vec<f64> = written.points.iter().map(|point| point.value).collect();
    sorted.sort_by(f64::total_cmp);
    let median = *sorted.get(sorted.len() / 2)?;
    let limit = (PER_MEDIAN_MIN * median).max(KIB_PER_S_MIN);
    let bursts: Vec<_> = written.points.iter().filter(|point| point.value >= limit).collect();
    // If bursts are not the exception, the median means nothing.
    if bursts.len() < BURSTS_MIN || bursts.len() > written.len() / 3 {
        return None;
    }
    let waiting = waiting_in(facts, &bursts.iter().map(|point| point.at_ns).collect::<Vec<_>>());
    if !blamed && waiting.is_none() {
        return None;
    }
    let peak = written.peak()?;
    let text = format!(
        "{} of {} windows wrote {:.0} MiB/s and more (median {:.1} MiB/s, at most {:.0} MiB/s)",
        bursts.len(),
        written.len(),
        limit / 1024.0,
        median / 1024.0,
        peak.value / 1024.0
    );
    let finding = Finding::inferred(CauseId::DirtyBurst, if blamed { 0.65 } else { 0.5 }, ENTRY.headline);
    let finding = finding.with([Evidence::new(text, peak.value, "KiB/s").at(peak.at_ns)]).with(waiting);
    let finding = finding.fix(Fix::knob("start writeback early", knob!("vm.dirty_background_bytes"), "16MiB"));
    let finding = finding.fix(Fix::knob("do not let pages grow old", knob!("vm.dirty_expire_centisecs"), "500"));
    Some(finding.settle(
        "lower vm.dirty_background_bytes for some minutes: bo becomes steady, and the waits must end with the bursts",
    ))
}

/// Blocked threads during the bursts and outside; `None` if the bursts block no threads.
fn waiting_in(facts: &Facts<'_>, bursts: &[u64]) -> Option<Evidence> {
    let blocked = facts.level(cpu::PROCS_BLOCKED, "all");
    let (inside, outside): (Vec<_>, Vec<_>) = blocked.points.iter().partition(|point| bursts.contains(&point.at_ns));
    let mean = |points: &[&crate::counters::Point]| {
        points.iter().map(|point| point.value).sum::<f64>() / points.len().max(1) as f64
    };
    let (inside_mean, outside_mean) = (mean(&inside), mean(&outside));
    let text = format!("{inside_mean:.1} threads blocked in the bursts, {outside_mean:.1} outside");
    (inside.len() >= BURSTS_MIN && inside_mean >= 3.0 && inside_mean >= 3.0 * outside_mean)
        .then(|| Evidence::new(text, inside_mean, "threads"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Entity, Table};

    fn written(kib_per_s: &[i64], blocked: &[i64]) -> RecordingBuilder {
        let total: Vec<i64> = std::iter::once(0)
            .chain(kib_per_s.iter().scan(0, |sum, rate| {
                *sum += rate;
                Some(*sum)
            }))
            .collect();
        let blocked: Vec<i64> = std::iter::once(0).chain(blocked.iter().copied()).collect();
        let builder = RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &[("pgpgout", &total)]);
        builder.gauges(Table::Cpu, &Entity::named("all"), &[("procs_blocked", &blocked)])
    }

    #[test]
    fn bursts_that_block_threads_are_named() {
        let rates = [300, 200, 90_000, 300, 400, 250, 80_000, 300, 200, 300];
        assert!(written(&rates, &[0, 0, 9, 0, 1, 0, 8, 0, 0, 0]).found(&ENTRY).is_some());
        assert!(written(&rates, &[0; 10]).found(&ENTRY).is_none(), "no thread waits");
    }

    #[test]
    fn steady_writing_is_not() {
        assert!(written(&[80_000; 10], &[9; 10]).found(&ENTRY).is_none());
    }
}
