//! Attributes slow calls to aggressors for metrics and for `top`. A sleep is charged to the owners of the requests that
//! the call's own request queued behind; without a request, to the thread that ended the sleep; without that, to the
//! holder of the lock. A wait for a CPU is charged to the programs that ran on that CPU. `flatwater explain` weighs the
//! same evidence in full; this module charges nothing that `explain` would not charge.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Call, CpuOwner, QueueAhead, Request, Task, Wait, WakerKind};

use crate::cgroup::{Hierarchies, unit_of};
use crate::owner::Owner;

/// The time charged to one program of one cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub who: Owner,
    pub ns: u64,
}

/// Maximum number of requests kept. The kernel side reports a request once, and several calls may wait for it.
const REQUESTS_MAX: usize = 4_096;

/// Recent requests, each with the owners of the earlier requests in the device's queue.
#[derive(Debug, Default)]
pub struct Requests {
    known: BTreeMap<u64, Known>,
}

#[derive(Debug)]
struct Known {
    device: Arc<str>,
    ahead: Vec<(Option<Task>, u64)>,
}

impl Requests {
    /// Adds the requests of this second; removes the ones with the lowest ids beyond `REQUESTS_MAX`.
    pub fn add(&mut self, requests: &[Request], ahead: &[QueueAhead]) {
        for request in requests {
            self.known.insert(request.id, Known { device: request.device.as_str().into(), ahead: Vec::new() });
        }
        for row in ahead {
            if let Some(known) = self.known.get_mut(&row.request) {
                known.ahead.push((row.owner.clone(), row.device_ns));
            }
        }
        while self.known.len() > REQUESTS_MAX {
            self.known.pop_first();
        }
    }
}

/// The wait chains and waits for a CPU of one second, by call.
#[derive(Debug)]
pub struct Evidence<'a> {
    requests: &'a Requests,
    cpus: HashMap<(u32, u64), Vec<&'a CpuOwner>>,
    chains: HashMap<(u32, u64), Vec<&'a Wait>>,
}

impl<'a> Evidence<'a> {
    #[must_use]
    pub fn of(waits: &'a [Wait], cpus: &'a [CpuOwner], requests: &'a Requests) -> Evidence<'a> {
        let mut chains: HashMap<(u32, u64), Vec<&Wait>> = HashMap::new();
        for wait in waits {
            chains.entry((wait.call_tid, wait.call_start_ns)).or_default().push(wait);
        }
        let mut of_call: HashMap<(u32, u64), Vec<&CpuOwner>> = HashMap::new();
        for row in cpus {
            of_call.entry((row.call_tid, row.call_start_ns)).or_default().push(row);
        }
        Evidence { requests, chains, cpus: of_call }
    }

    fn chain(&self, call: &Call) -> &[&'a Wait] {
        self.chains.get(&(call.tid, call.start_ns)).map_or(&[], Vec::as_slice)
    }

    /// The sleeper's cgroup, as the kernel side recorded it.
    #[must_use]
    pub fn cgroup(&self, call: &Call) -> Option<&'a str> {
        self.chain(call).iter().find(|wait| wait.depth == 0)?.sleeper.cgroup.as_deref()
    }

    /// The device of the call's first known request.
    #[must_use]
    pub fn device(&self, call: &Call) -> Option<Arc<str>> {
        let mut requests = self.chain(call).iter().filter_map(|wait| wait.request);
        requests.find_map(|id| self.requests.known.get(&id)).map(|known| known.device.clone())
    }

    /// The owners charged for this call, the largest share first.
    #[must_use]
    pub fn shares(&self, call: &Call) -> Vec<Share> {
        let mut sums: BTreeMap<Owner, u64> = BTreeMap::new();
        let chain = self.chain(call);
        let first = |at: &usize| chain[*at].depth == 0;
        let begins: Vec<usize> = (0..chain.len()).filter(first).collect();
        for (place, &at) in begins.iter().enumerate() {
            let end = begins.get(place + 1).copied().unwrap_or(chain.len());
            self.charge(&chain[at..end], call, &mut sums);
        }
        for row in self.cpus.get(&(call.tid, call.start_ns)).into_iter().flatten() {
            if let Some(task) = row.owner.as_ref().filter(|task| task.pid != call.pid) {
                *sums.entry(owner_of(task)).or_default() += row.ran_ns.min(row.duration_ns);
            }
        }
        let mut shares: Vec<Share> = sums.into_iter().map(|(who, ns)| Share { who, ns }).collect();
        shares.sort_short_by(|one, other| other.ns.cmp(&one.ns).then_with(|| one.who.cmp(&other.who)));
        shares
    }

    /// Charges one sleep of the call; `links` are the sleep and the chain below it.
    fn charge(&self, links: &[&Wait], call: &Call, sums: &mut BTreeMap<Owner, u64>) {
        let Some(sleep) = links.first() else { return };
        let slept_ns = sleep.duration_ns.min(call.duration_ns);
        let known = links.iter().filter_map(|link| self.requests.known.get(&link.request?));
        let ahead: Vec<(Option<Task>, u64)> = known.flat_map(|known| known.ahead.iter().cloned()).collect();
        let sum_ns: u64 = ahead.iter().map(|(_, ns)| ns).sum();
        if sum_ns > 0 {
            // Requests of one chain may overlap in time: scale their sum down to the sleep.
            for (owner, ns) in ahead {
                let part = u128::from(ns) * u128::from(slept_ns.min(sum_ns)) / u128::from(sum_ns);
                // A request charged only to the caller's own cgroup may be the caller's own, such as its journal
                // commit.
                let own = |task: &Task| task.is_only_a_cgroup() && task.cgroup.as_deref() == self.cgroup(call);
                if let Some(task) = owner.filter(|task| !own(task)) {
                    *sums.entry(owner_of(&task)).or_default() += part as u64;
                }
            }
            return;
        }
        let waker = sleep.waker.as_ref().filter(|_| sleep.waker_kind == WakerKind::Task);
        if let Some(task) = waker.or(sleep.lock_holder.as_ref()) {
            *sums.entry(owner_of(task)).or_default() += slept_ns;
        }
    }
}

fn owner_of(task: &Task) -> Owner {
    let cgroup = task.cgroup.as_deref().unwrap_or_default();
    let unit = unit_of(Hierarchies::machine().made_by_root(cgroup));
    Owner {
        cgroup: cgroup.into(),
        container: unit.map_or_else(|| "".into(), |unit| unit.to_string().into()),
        program: if task.is_only_a_cgroup() { Task::SOME_PROGRAM.into() } else { family(&task.name).into() },
    }
}

/// The kernel puts a CPU number and a worker number into a kworker's name: thousands of names for one program.
fn family(name: &str) -> &str {
    if name.starts_with("kworker/") { "kworker" } else { name }
}

#[cfg(test)]
mod tests {
    use flatwater_recording::{CpuOwner, QueueAhead, Request, Task, Wait, WakerKind};

    use super::{Evidence, Requests};
    use crate::sight::tests::call;

    const MS: u64 = 1_000_000;

    fn sleep(depth: u32, ms: u64) -> Wait {
        Wait { call_tid: 7, call_start_ns: MS, depth, duration_ns: ms * MS, ..Wait::default() }
    }

    fn named(name: &str, cgroup: &str) -> Option<Task> {
        Some(Task::new(9, 9, name).in_cgroup(Some(cgroup.to_owned())))
    }

    #[test]
    fn an_fsync_is_charged_to_the_requests_ahead_of_the_journals_request() {
        let mut requests = Requests::default();
        let row = |owner, ms: u64| QueueAhead { request: 3, owner, device_ns: ms * MS, ..QueueAhead::default() };
        let request = Request { id: 3, device: "vda".to_owned(), ..Request::default() };
        requests.add(&[request], &[row(named("dd", "/backup"), 30), row(None, 10)]);
        let journal = Wait { waker_kind: WakerKind::Task, waker: named("jbd2/vda1-8", "/"), ..sleep(0, 40) };
        let commit = Wait { request: Some(3), ..sleep(1, 40) };
        let waits = [journal, commit];
        let evidence = Evidence::of(&waits, &[], &requests);
        let call = call(MS, 50 * MS);
        assert_eq!(evidence.device(&call).as_deref(), Some("vda"));
        let shares = evidence.shares(&call);
        assert_eq!(shares.len(), 1, "10 ms have no known owner: {shares:?}");
        assert_eq!((&*shares[0].who.program, &*shares[0].who.cgroup, shares[0].ns), ("dd", "/backup", 30 * MS));
    }

    #[test]
    fn without_a_request_the_waker_is_charged_at_most_the_calls_duration() {
        let waits = [
            Wait { waker_kind: WakerKind::Task, waker: named("kworker/u4:2", "/"), ..sleep(0, 900) },
            Wait { waker_kind: WakerKind::Timer, ..sleep(0, 5) },
        ];
        let requests = Requests::default();
        let shares = Evidence::of(&waits, &[], &requests).shares(&call(MS, 50 * MS));
        assert_eq!(shares.len(), 1, "a timer is not an aggressor");
        assert_eq!((&*shares[0].who.program, shares[0].ns), ("kworker", 50 * MS));
    }

    #[test]
    fn a_wait_for_a_cpu_is_charged_to_other_programs_that_ran_on_it() {
        let row = |owner, ms: u64| CpuOwner {
            call_tid: 7,
            call_start_ns: MS,
            duration_ns: 30 * MS,
            owner,
            ran_ns: ms * MS,
            ..CpuOwner::default()
        };
        let own = Some(Task::new(7, 8, "journal"));
        let rows = [row(named("cc1", "/build"), 20), row(own, 6), row(None, 4)];
        let requests = Requests::default();
        let shares = Evidence::of(&[], &rows, &requests).shares(&call(MS, 50 * MS));
        assert_eq!(shares.len(), 1, "neither its own threads nor time without an owner is charged: {shares:?}");
        assert_eq!((&*shares[0].who.program, &*shares[0].who.cgroup, shares[0].ns), ("cc1", "/build", 20 * MS));
    }

    #[test]
    fn the_number_of_kept_requests_is_bounded() {
        let mut requests = Requests::default();
        let all: Vec<Request> = (0..10_000).map(|id| Request { id, ..Request::default() }).collect();
        requests.add(&all, &[]);
        assert_eq!(requests.known.len(), super::REQUESTS_MAX);
        assert!(requests.known.contains_key(&9_999));
    }
}
