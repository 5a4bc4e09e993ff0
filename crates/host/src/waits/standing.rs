//! Requests that a device had not completed when the recording ended, for which a hanging call waits.

use std::collections::{BTreeMap, BTreeSet};

use aya::maps::{HashMap, MapData};

use super::Span;
use super::layout::{RequestRecord, RequestState, SleepRecord, record};
use crate::clock::monotonic_ns;
use crate::tracer::under_way;
use flatwater_recording::Gap;

const REQUESTS: &str = "requests that were not completed when the recording ended";
/// No working device takes this long: older requests are reported even if no call is known to wait for them, oldest
/// first.
const STANDING_NS_MIN: u64 = 1_000_000_000;
const REPORTED_MAX: usize = 64;
/// Read at most this many entries, several times the map's capacity.
const LOOKS_MAX: usize = 16_384;
/// First id of unfinished requests while the tracer runs; the BPF programs' sequence numbers never reach it.
pub const FIRST_ID: u64 = 1 << 63;

impl RequestState {
    /// The record of the request as if it ended with the recording. Until then a request without an issue time was
    /// queued.
    fn until(&self, sequence: u64, recording: &Span) -> RequestRecord {
        RequestRecord {
            kind: record::UNDER_WAY,
            sequence,
            device: self.device,
            insert_ns: self.insert_ns,
            issue_ns: if self.issue_ns == 0 { recording.end_ns } else { self.issue_ns },
            done_ns: recording.end_ns,
            sector: self.sector,
            bytes: self.bytes,
            flags: self.flags,
            function: self.function,
            tid: self.tid,
            tgid: self.tgid,
            task_flags: self.task_flags,
            ahead: self.ahead,
            ahead_kib: self.ahead_kib,
            in_flight: self.in_flight,
            comm: self.comm,
            ..RequestRecord::default()
        }
    }
}

/// Requests that have been under way for at least the threshold, oldest first, numbered from `first` on.
pub fn read(
    requests: &HashMap<MapData, u64, RequestState>,
    first: u64,
    recording: &Span,
) -> (Vec<RequestRecord>, Option<Gap>) {
    let mut found = BTreeMap::new();
    // If the entry read last was deleted, the kernel's iteration starts again: entries may come twice, and the loop
    // must end.
    for request in requests.iter().take(LOOKS_MAX) {
        match request {
            Ok((address, state)) if is_old(&state, recording) => _ = found.insert(address, state),
            Ok(_) => {}
            Err(error) => {
                return (numbered(found.into_values(), first, recording), Some(under_way::unread(REQUESTS, &error)));
            }
        }
    }
    (numbered(found.into_values(), first, recording), None)
}

/// A span up to now, with the threshold for a device that is stuck.
pub fn now() -> Span {
    Span { start_ns: 0, end_ns: monotonic_ns(), threshold_ns: STANDING_NS_MIN }
}

fn is_old(state: &RequestState, recording: &Span) -> bool {
    recording.end_ns.saturating_sub(state.insert_ns) >= recording.threshold_ns.max(1)
}

fn numbered(found: impl IntoIterator<Item = RequestState>, first: u64, recording: &Span) -> Vec<RequestRecord> {
    let mut found: Vec<RequestState> = found.into_iter().collect();
    found.sort_by_key(|state| state.insert_ns);
    (first..).zip(found).map(|(sequence, state)| state.until(sequence, recording)).collect()
}

/// The requests that are stuck and have not been reported with a wait.
pub fn to_tell(standing: Vec<RequestRecord>, reported: &BTreeSet<u64>) -> Vec<RequestRecord> {
    let still = |request: &RequestRecord| {
        request.done_ns.saturating_sub(request.insert_ns) >= STANDING_NS_MIN && !reported.contains(&request.sequence)
    };
    standing.into_iter().filter(still).take(REPORTED_MAX).collect()
}

/// The oldest unfinished request that the sleeper submitted within its call: a thread that reads, writes directly, or
/// commits a journal sleeps for its own request. 0 if there is none.
pub fn own_request(sleep: &SleepRecord, requests: &[RequestRecord]) -> u64 {
    let own = |request: &&RequestRecord| {
        request.tid == sleep.sleeper.tid && request.insert_ns >= sleep.call_start_ns && request.insert_ns < sleep.end_ns
    };
    let found = requests.iter().find(own).filter(|_| sleep.uninterruptible());
    found.map_or(0, |request| request.sequence)
}

#[cfg(test)]
mod tests {
    use super::{STANDING_NS_MIN, is_old, numbered, own_request, to_tell};
    use crate::waits::Span;
    use crate::waits::layout::{RequestState, SleepRecord, WaitTask, record};

    const SPAN: Span = Span { start_ns: 1_000, end_ns: 10_000, threshold_ns: 500 };

    fn state(tid: u32, insert_ns: u64, issue_ns: u64) -> RequestState {
        RequestState { tid, insert_ns, issue_ns, device: 7 << 20, bytes: 4_096, ..RequestState::default() }
    }

    fn asleep(tid: u32, call_start_ns: u64, state: u32) -> SleepRecord {
        let sleeper = WaitTask { tid, ..WaitTask::default() };
        SleepRecord { sleeper, call_start_ns, start_ns: 4_000, end_ns: 10_000, state, ..SleepRecord::default() }
    }

    #[test]
    fn unfinished_requests_end_with_the_recording() {
        let found = numbered(vec![state(5, 4_000, 0), state(4, 3_000, 3_500)], 90, &SPAN);
        let reported: Vec<_> =
            found.iter().map(|request| (request.sequence, request.tid, request.issue_ns, request.done_ns)).collect();
        assert_eq!(reported, [(90, 4, 3_500, 10_000), (91, 5, 10_000, 10_000)]);
        assert!(found.iter().all(|request| request.kind == record::UNDER_WAY && request.device == 7 << 20));
        assert!(is_old(&state(4, 9_500, 0), &SPAN) && !is_old(&state(4, 9_501, 0), &SPAN));
    }

    #[test]
    fn stuck_requests_are_reported_once() {
        let end_ns = 5 * STANDING_NS_MIN;
        let span = Span { end_ns, ..SPAN };
        let states = vec![state(4, 1_000, 0), state(4, 2_000, 0), state(5, end_ns - STANDING_NS_MIN + 1, 0)];
        let reported = to_tell(numbered(states, 1, &span), &[1].into());
        assert_eq!(reported.iter().map(|request| request.sequence).collect::<Vec<_>>(), [2]);
        let many = numbered(vec![state(4, 1_000, 0); 1_000], 1, &span);
        assert_eq!(to_tell(many, &[].into()).len(), super::REPORTED_MAX);
    }

    #[test]
    fn a_thread_sleeps_for_a_request_of_the_same_call() {
        let requests = numbered(vec![state(4, 3_000, 3_500), state(4, 3_200, 0), state(9, 2_000, 2_000)], 1, &SPAN);
        assert_eq!(own_request(&asleep(4, 2_500, 2), &requests), 2, "the older of two");
        assert_eq!(own_request(&asleep(4, 3_100, 2), &requests), 3, "an earlier call submitted the other one");
        assert_eq!(own_request(&asleep(5, 0, 2), &requests), 0);
        assert_eq!(own_request(&asleep(4, 2_500, 1), &requests), 0, "the sleep is interruptible");
    }
}
