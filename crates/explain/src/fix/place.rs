//! The properties of the recorded machine that the commands of a fix depend on.

use std::collections::BTreeMap;

use flatwater_recording::{Controller, ControllerName, Setup, Storage};

use crate::facts::Facts;
use crate::settings;

/// Change the scheduling class of at most this many threads.
const THREADS_MAX: usize = 4;

/// The recorded machine as the target of commands.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// The settings at the recording's end.
    pub setup: Setup,
    pub controllers: &'a [Controller],
    pub storage: Option<&'a Storage>,
    /// The disk whose queue settings apply.
    pub disk: Option<&'a str>,
    /// The threads that lost most time.
    pub threads: Vec<u32>,
    /// The target's cgroup, if there is exactly one.
    pub own_cgroup: Option<&'a str>,
    /// The run's cgroup, mount and threads no longer exist after a scenario.
    pub is_scenario: bool,
}

impl<'a> Place<'a> {
    pub fn of(facts: &'a Facts<'_>) -> Place<'a> {
        let header = &facts.recording.header;
        let storage = header.target.storage.as_ref();
        Place {
            setup: settings::at(facts.recording, u64::MAX),
            controllers: &header.machine.controllers,
            storage,
            disk: disk(facts),
            threads: threads(facts),
            own_cgroup: facts.charges.only_own_cgroup(),
            is_scenario: header.scenario.is_some(),
        }
    }

    pub fn controller(&self, name: ControllerName) -> Option<&'a Controller> {
        self.controllers.iter().find(|controller| controller.name == name)
    }

    /// Whether the disk's queue has the scheduler, if the fix sets one and the list is known.
    pub fn offers(&self, set: &Setup) -> bool {
        let Some(scheduler) = set.get("queue.scheduler") else { return true };
        let offered = self.storage.map(|storage| storage.schedulers.as_slice()).unwrap_or_default();
        offered.is_empty() || offered.iter().any(|one| one == scheduler)
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

fn threads(facts: &Facts<'_>) -> Vec<u32> {
    let mut lost: BTreeMap<u32, u64> = BTreeMap::new();
    for call in facts.recording.foreground_calls().filter(|call| call.tid != 0) {
        let ns = lost.entry(call.tid).or_default();
        *ns = ns.saturating_add(call.duration_ns);
    }
    let mut threads: Vec<(u64, u32)> = lost.into_iter().map(|(tid, ns)| (ns, tid)).collect();
    threads.sort_unstable_by(|one, other| other.cmp(one));
    threads.into_iter().take(THREADS_MAX).map(|(_, tid)| tid).collect()
}
