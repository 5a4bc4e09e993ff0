//! cpu-quota: the cgroup used up its CPU time, and its threads wait for the next period.

use super::CauseEntry;
use crate::explain::facts::Facts;
use crate::explain::{Finding, Fix, finding};
use crate::recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "cpu-quota",
    span: Some(Cause::CpuQuota),
    headline: "the cgroup's CPU quota is used up: the thread waits for the next period",
    mechanism: "CFS bandwidth control (kernel/sched/fair.c: throttle_cfs_rq) takes the cgroup's run queue off the \
        CPU when cpu.max (v1 cpu.cfs_quota_us) of CPU time is used within a period (100 ms by default). All its \
        threads wait until the period ends, wherever in the kernel they were, even holding a lock that others \
        want; the average CPU use may be far below the quota, since many threads burn it in a fraction of the \
        period.",
    kernels: "3.2 and later. 6.18 throttles a task only on its return to user space, so that it holds no kernel \
        lock meanwhile.",
    in_spans: "Runnable but not running while the cgroup is throttled.",
    in_counters: "cpu.stat: nr_throttled and throttled_usec (v1 throttled_time, ns) rise.",
    against: "nr_throttled stands still; then it is run-queue.",
    fix: "Raise or remove the quota (cpu.max), fewer threads, or cpu.weight instead of a quota; cpu.max.burst \
        (5.14) for short bursts.",
    prove: "Raise cgroup.cpu_quota_us and compare: throttled_usec and the share fall together.",
    sources: &["kernel/sched/fair.c: throttle_cfs_rq, tg_set_cfs_bandwidth", "Documentation/scheduler/sched-bwc.rst"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes =
        [Fix::advice("raise cpu.max (v1 cpu.cfs_quota_us) of the cgroup, or use cpu.weight instead of a quota")];
    finding::from_spans(facts, Cause::CpuQuota, ENTRY.headline, fixes)
}
