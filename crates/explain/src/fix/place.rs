//! The recorded machine as the target of a fix.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use flatwater_recording::{Controller, ControllerName, Setup, Storage};

use crate::facts::Facts;
use crate::settings;

/// Change the scheduling class of at most this many threads.
const THREADS_MAX: usize = 4;

/// The recorded machine as the target of a fix.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub facts: &'a Facts<'a>,
    /// The settings at the recording's end.
    pub setup: Setup,
    /// The disk whose queue settings apply.
    pub disk: Option<&'a str>,
    /// The target's cgroup, if there is exactly one.
    pub own_cgroup: Option<&'a str>,
    /// Computed for the first fix that needs them: this takes a pass over all calls.
    threads: OnceCell<Vec<u32>>,
}

impl<'a> Place<'a> {
    pub fn of(facts: &'a Facts<'a>) -> Place<'a> {
        Place {
            facts,
            setup: settings::at(facts.recording, u64::MAX),
            disk: disk(facts),
            own_cgroup: facts.charges.only_own_cgroup(),
            threads: OnceCell::new(),
        }
    }

    pub fn controller(&self, name: ControllerName) -> Option<&'a Controller> {
        self.facts.recording.header.machine.controllers.iter().find(|controller| controller.name == name)
    }

    pub fn storage(&self) -> Option<&'a Storage> {
        self.facts.recording.header.target.storage.as_ref()
    }

    /// Whether the recording is of a scenario, whose cgroup, mount and threads no longer exist.
    pub fn is_scenario(&self) -> bool {
        self.facts.recording.header.scenario.is_some()
    }

    /// Whether the disk's queue has the scheduler; true if the list is unknown.
    pub fn offers(&self, scheduler: &str) -> bool {
        let offered = self.storage().map(|storage| storage.schedulers.as_slice()).unwrap_or_default();
        offered.is_empty() || offered.iter().any(|one| one == scheduler)
    }

    /// The threads that lost most time, worst first.
    pub fn threads(&self) -> &[u32] {
        self.threads.get_or_init(|| worst_threads(self.facts))
    }
}

/// The disk of the target's files; if it was not recorded, the device of most awaited requests.
pub(super) fn disk<'a>(facts: &'a Facts<'_>) -> Option<&'a str> {
    let storage = facts.recording.header.target.storage.as_ref();
    storage.and_then(|storage| storage.disk.as_deref()).or_else(|| busiest_device(facts))
}

/// The device of most awaited requests.
fn busiest_device<'a>(facts: &'a Facts<'_>) -> Option<&'a str> {
    let mut requests: BTreeMap<&str, u64> = BTreeMap::new();
    for request in &facts.recording.requests {
        let count = requests.entry(request.device.as_str()).or_default();
        *count = count.saturating_add(1);
    }
    requests.into_iter().max_by_key(|(_, count)| *count).map(|(device, _)| device)
}

fn worst_threads(facts: &Facts<'_>) -> Vec<u32> {
    let mut lost: BTreeMap<u32, u64> = BTreeMap::new();
    for call in facts.recording.foreground_calls().filter(|call| call.tid != 0) {
        let ns = lost.entry(call.tid).or_default();
        *ns = ns.saturating_add(call.duration_ns);
    }
    let mut threads: Vec<(u64, u32)> = lost.into_iter().map(|(tid, ns)| (ns, tid)).collect();
    threads.sort_unstable_by(|one, other| other.cmp(one));
    threads.into_iter().take(THREADS_MAX).map(|(_, tid)| tid).collect()
}

#[cfg(test)]
mod tests {
    use super::Place;
    use crate::Fix;
    use crate::facts::Facts;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, OpKind};

    #[test]
    fn threads_are_sorted_for_fixes_that_need_them_only() {
        let recording = RecordingBuilder::new().slow(OpKind::Write, &[(Cause::RunQueue, 40.0)]).done();
        let facts = Facts::of(&recording);
        let place = Place::of(&facts);
        Fix::knob("less", knob!("vm.swappiness"), "1").at(&place).expect("a sysctl");
        assert_eq!(place.threads.get(), None);
        let fix = Fix::knob("first", knob!("placement.fifo_priority"), "10").at(&place).expect("a thread");
        assert_eq!((place.threads.get(), fix.steps.len()), (Some(&vec![7]), 1));
    }
}
