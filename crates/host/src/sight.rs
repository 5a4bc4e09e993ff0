//! How well a recording made on this machine can show each cause: exactly, sampled, by counters only, or not at all,
//! and why.

use std::fs;
use std::path::Path;

use flatwater_recording::schema::{cgroup, vmstat};
use flatwater_recording::{Cause, Gap, Hook, HookState, HookStatus};
use serde::Serialize;

/// How well a cause can be seen; best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// The time in the cause is measured.
    Exact,
    /// The time is estimated from stacks of running threads.
    Sampled,
    /// Counters of the machine or the cgroup show that it happened, but not in which call.
    CountersOnly,
    Absent,
}

impl Visibility {
    pub const ALL: [Visibility; 4] =
        [Visibility::Exact, Visibility::Sampled, Visibility::CountersOnly, Visibility::Absent];

    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Visibility::Exact => "measured",
            Visibility::Sampled => "sampled",
            Visibility::CountersOnly => "inferred",
            Visibility::Absent => "absent",
        }
    }
}

/// The visibility of one cause on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sight {
    pub cause: &'static str,
    pub seen: Visibility,
    /// The hook or counter that shows the cause.
    pub by: String,
    /// Why the cause is not seen exactly; empty if it is.
    pub why: String,
}

/// The kernel's counters of this cause: files, and the word that a file contains if it has the counter.
fn counter_of(cause: Cause) -> &'static [(&'static str, &'static str)] {
    match cause {
        Cause::DirectReclaim => &[("proc/vmstat", "allocstall")],
        Cause::MemcgReclaim => &[
            ("sys/fs/cgroup/cgroup.controllers", "memory"),
            ("sys/fs/cgroup/memory/memory.stat", cgroup::TOTAL_PGPGIN.name),
        ],
        Cause::NodeReclaim => &[("proc/vmstat", vmstat::ZONE_RECLAIM_FAILED.name)],
        Cause::Compaction => &[("proc/vmstat", vmstat::COMPACT_STALL.name)],
        Cause::Shrinker => &[("proc/vmstat", vmstat::SLABS_SCANNED.name)],
        Cause::DirtyThrottle => &[("proc/vmstat", vmstat::NR_DIRTY_THRESHOLD.name)],
        Cause::PageWriteback => &[("proc/vmstat", vmstat::NR_WRITEBACK.name)],
        Cause::PageFault => &[("proc/vmstat", "pgmajfault")],
        Cause::SwapIn => &[("proc/vmstat", "pswpin")],
        Cause::MemcgOverHigh => &[("sys/fs/cgroup/cgroup.controllers", "memory")],
        Cause::CpuQuota => {
            &[("sys/fs/cgroup/cgroup.controllers", "cpu"), ("sys/fs/cgroup/cpu/cpu.stat", "nr_throttled")]
        }
        Cause::RunQueue => &[("proc/schedstat", "cpu")],
        Cause::Steal => &[("proc/stat", "cpu")],
        Cause::Interrupt => &[("proc/softirqs", "TIMER")],
        Cause::RequestQueue | Cause::DeviceSlow | Cause::DeviceWait => &[("proc/diskstats", "")],
        _ => &[],
    }
}

/// Returns the visibility of every cause but `unexplained`, given these hooks and the counters below `root`.
#[must_use]
pub fn sights(statuses: &[HookStatus], root: &Path) -> Vec<Sight> {
    let named = Cause::ALL.iter().filter(|cause| **cause != Cause::Unexplained);
    named.map(|cause| sight(*cause, statuses, root)).collect()
}

fn sight(cause: Cause, statuses: &[HookStatus], root: &Path) -> Sight {
    let spec = cause.spec();
    let of = |seen, by: &str, why: String| Sight { cause: cause.name(), seen, by: by.to_owned(), why };
    let own = || statuses.iter().filter(|status| status.serves.iter().any(|name| name == cause.name()));
    if let Some(hook) = own().find(|status| status.state == HookState::Exact) {
        return of(Visibility::Exact, &hook.hook, String::new());
    }
    // If the whole BPF object was refused, its hooks have no status of their own.
    let whole = || statuses.iter().filter(|status| status.hook == "bpf");
    let refused = own().chain(whole()).find(|status| status.state == HookState::Unavailable);
    let refused = refused.map(|status| status.reason.clone());
    // No stack and no event separates a slow device from a long queue in front of the device.
    let has_event = !spec.brackets.is_empty() || !spec.hooks.is_empty();
    let why = match refused.filter(|_| has_event) {
        Some(reason) => reason,
        None if has_event => "no hook is attached".to_owned(),
        None => "the kernel has no event for it".to_owned(),
    };
    let samples = statuses.iter().find(|status| status.state == HookState::Sampled);
    let in_samples = spec.can_run && (!spec.symbols.is_empty() || spec.hooks.contains(&Hook::CpuClock));
    if let Some(hook) = samples.filter(|_| in_samples) {
        let has_exact = !spec.brackets.is_empty();
        return of(
            Visibility::Sampled,
            &hook.hook,
            if has_exact { why } else { "the kernel has no event for on-CPU time".to_owned() },
        );
    }
    for (file, word) in counter_of(cause) {
        if fs::read_to_string(root.join(file)).is_ok_and(|text| text.contains(word)) {
            return of(Visibility::CountersOnly, format!("/{file} {word}").trim_end(), why);
        }
    }
    of(Visibility::Absent, "", why)
}

/// For a recording: one gap per reason for which hooks were refused, with all causes that lost their exact times.
#[must_use]
pub fn refused(statuses: &[HookStatus]) -> Vec<Gap> {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for status in statuses.iter().filter(|status| status.state == HookState::Unavailable) {
        // The cause is still exact if another name of the same function, or another pair of tracepoints, is attached.
        let whole = |name: &str| {
            statuses
                .iter()
                .any(|other| other.state == HookState::Exact && other.serves.iter().any(|serves| serves == name))
        };
        for name in status.serves.iter().filter(|name| !whole(name)) {
            match by_reason.iter_mut().find(|(reason, _)| *reason == status.reason) {
                Some((_, names)) if names.contains(&name.as_str()) => {}
                Some((_, names)) => names.push(name),
                None => by_reason.push((&status.reason, vec![name])),
            }
        }
    }
    let gap = |(reason, names): (&str, Vec<&str>)| {
        Gap::new(
            format!("exact times of {}", names.join(", ")),
            reason,
            "`flatwater check` lists what shows them instead",
        )
    };
    by_reason.into_iter().map(gap).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Visibility, refused, sights};
    use flatwater_recording::{HookState, HookStatus};

    fn hook(hook: &str, serves: &[&str], state: HookState, reason: &str) -> HookStatus {
        let serves = serves.iter().map(|&name| name.to_owned()).collect();
        HookStatus::new(hook, serves, state, reason)
    }

    fn seen(statuses: &[HookStatus], root: &Path, cause: &str) -> (Visibility, String) {
        let found = sights(statuses, root).into_iter().find(|sight| sight.cause == cause).expect("listed");
        (found.seen, found.why)
    }

    #[test]
    fn a_cause_is_as_visible_as_its_best_hook() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(root.path().join("proc")).expect("made");
        std::fs::write(root.path().join("proc/vmstat"), "compact_stall 0\n").expect("written");
        let refusal = "the kernel's policy forbids it";
        let statuses = [
            hook("tp_btf/sched_switch", &["journal-commit"], HookState::Exact, ""),
            hook("fentry/allocate_slab", &["slab-refill"], HookState::Unavailable, refusal),
            hook("tp_btf/mm_compaction_begin", &["compaction"], HookState::Unavailable, refusal),
        ];
        assert_eq!(seen(&statuses, root.path(), "journal-commit").0, Visibility::Exact);
        assert_eq!(seen(&statuses, root.path(), "compaction"), (Visibility::CountersOnly, refusal.to_owned()));
        assert_eq!(seen(&statuses, root.path(), "slab-refill"), (Visibility::Absent, refusal.to_owned()));
        let mut sampled = statuses.to_vec();
        sampled.push(hook("perf_event/cpu-clock", &["samples"], HookState::Sampled, "sampled by design"));
        assert_eq!(seen(&sampled, root.path(), "slab-refill"), (Visibility::Sampled, refusal.to_owned()));
        // Throttled threads sleep, so samples of running threads cannot show it.
        assert_eq!(seen(&sampled, root.path(), "dirty-throttle").0, Visibility::Absent);
    }

    #[test]
    fn every_cause_is_listed_with_a_reason_if_it_is_not_exact() {
        let all = sights(&[], Path::new("/nonexistent"));
        assert_eq!(all.len() + 1, flatwater_recording::Cause::ALL.len());
        assert!(all.iter().all(|sight| sight.seen == Visibility::Absent && !sight.why.is_empty()), "{all:?}");
    }

    #[test]
    fn refused_hooks_are_one_gap_unless_another_hook_serves_the_cause() {
        let statuses = [
            hook("fentry/__alloc_pages", &["page-allocation"], HookState::Unavailable, "no such function"),
            hook("fentry/__alloc_pages_noprof", &["page-allocation"], HookState::Exact, ""),
            hook("tp_btf/a", &["lock"], HookState::Unavailable, "refused"),
            hook("tp_btf/b", &["lock"], HookState::Unavailable, "refused"),
            hook("tp_btf/c", &["shrinker"], HookState::Unavailable, "refused"),
        ];
        let gaps = refused(&statuses);
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        assert_eq!((gaps[0].what.as_str(), gaps[0].why.as_str()), ("exact times of lock, shrinker", "refused"));
    }
}
