//! cpu-quota: the cgroup used up its CPU time, and its threads wait for the next period.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix, finding};
use flatwater_recording::schema::cgroup;
use flatwater_recording::{Cause, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "cpu-quota",
    span: Some(Cause::CpuQuota),
    headline: "the cgroup's CPU quota is used up: the thread waits for the next period",
    mechanism: "CFS bandwidth control (kernel/sched/fair.c: throttle_cfs_rq) takes the cgroup's run queue off the \
        CPU when cpu.max (v1 cpu.cfs_quota_us) of CPU time is used within a period (100 ms by default). All its \
        threads wait until the period ends, wherever in the kernel they were, even holding a lock that others \
        want; the average CPU use may be far below the quota, since many threads burn it in a fraction of the \
        period.",
    kernels: "3.2 and later. 6.18 throttles a task only on its return to user space, so that it holds no kernel lock \
        while it waits.",
    in_spans: "Runnable but not running while the cgroup is throttled.",
    in_counters: "cpu.stat: nr_throttled and throttled_usec (v1 throttled_time, ns) rise.",
    against: "nr_throttled does not rise: then it is run-queue.",
    fix: "Raise or remove the quota (cpu.max), fewer threads, or cpu.weight instead of a quota; cpu.max.burst \
        (5.14) for short bursts.",
    prove: "Raise cgroup.cpu_quota_us and compare: throttled_usec and the share fall together.",
    sources: &["kernel/sched/fair.c: throttle_cfs_rq, tg_set_cfs_bandwidth", "Documentation/scheduler/sched-bwc.rst"],
    find,
};

/// Minimum share of the time in which the cgroup was throttled.
const THROTTLED_SHARE_MIN: f64 = 0.02;

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fix = || Fix::advice("raise cpu.max (v1 cpu.cfs_quota_us) of the cgroup, or use cpu.weight instead of a quota");
    finding::from_spans(facts, Cause::CpuQuota, ENTRY.headline, [fix()])
        .or_else(|| throttled(facts).map(|finding| finding.fix(fix())))
        .or_else(|| counted(facts).map(|finding| finding.fix(fix())))
}

/// Minimum share of throttled periods, and minimum number of periods, in one reading of cpu.stat.
const PERIODS_SHARE_MIN: f64 = 0.1;
const PERIODS_MIN: i64 = 20;

/// From one reading of cpu.stat: the throttled periods since the cgroup was created.
fn counted(facts: &Facts<'_>) -> Option<Finding> {
    let table = facts.recording.table(Table::Cgroup).filter(|_| facts.may_infer())?;
    let each = table.by_entity().filter_map(|(entity, rows)| {
        let periods = rows.last(cgroup::CPU_PERIODS).filter(|periods| *periods >= PERIODS_MIN)?;
        let throttled = rows.last(cgroup::CPU_THROTTLED)?;
        Some((throttled as f64 / periods as f64, throttled, periods, entity.name.clone()))
    });
    let (share, throttled, periods, name) = each.max_by(|a, b| a.0.total_cmp(&b.0))?;
    if share < PERIODS_SHARE_MIN {
        return None;
    }
    let name = if name.is_empty() { "the cgroup" } else { &name };
    let text = format!("{name} used up its quota in {throttled} of {periods} periods ({:.0} %)", share * 100.0);
    let finding =
        Finding::inferred(CauseId::CpuQuota, 0.6, ENTRY.headline).with([Evidence::new(text, share * 100.0, "%")]);
    let finding = finding.but([Evidence::statement("a single reading counts since the cgroup was created")]);
    Some(finding.settle("cpu.stat twice, a minute apart: nr_throttled must rise while it is slow"))
}

/// From the cgroup's throttled time. Fast calls do not contradict it: since 6.18 the wait falls between two calls.
fn throttled(facts: &Facts<'_>) -> Option<Finding> {
    let table = facts.recording.table(Table::Cgroup)?;
    let each = table.entities().iter().filter_map(|entity| {
        let ns_per_s = facts.rate(cgroup::CPU_THROTTLED_NS, &entity.name).mean()?;
        Some((ns_per_s / 1e9, entity.name.as_str()))
    });
    let (share, path) = each.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(share, _)| *share >= THROTTLED_SHARE_MIN)?;
    let text = format!("{path} was held back by its quota for {:.0} % of the time (summed over CPUs)", share * 100.0);
    let finding =
        Finding::inferred(CauseId::CpuQuota, 0.8, ENTRY.headline).with([Evidence::new(text, share * 100.0, "%")]);
    Some(finding.settle("raise the quota for a minute: throttled time must stop rising"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, rising};
    use flatwater_recording::{Entity, OpKind, Table};

    #[test]
    fn a_throttled_cgroup_is_named_even_if_every_call_is_fast() {
        let build = |ms_per_s: i64| {
            let throttled = rising(ms_per_s * 1_000_000, 6);
            let builder = RecordingBuilder::new().counters(
                Table::Cgroup,
                &Entity::named("/batch"),
                &[("cpu_throttled_ns", &throttled)],
            );
            builder.bucket("", OpKind::Write, &[2_000; 100])
        };
        assert!(build(400).found(&ENTRY).is_some());
        assert!(build(5).found(&ENTRY).is_none());
    }
}
