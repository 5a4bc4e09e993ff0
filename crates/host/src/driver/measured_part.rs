//! Determines when the measured part of a run begins and ends. Preparation (loading a store, building trees) is not
//! measured: the scenario's duration counts from the time when no actor prepares any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{KEEP_NS_MAX, PREPARE_NS_MAX};
use crate::clock::{monotonic_ns, sleep_until};

/// Shortest interval between two checks whether an actor still prepares.
pub const LOOK_NS: u64 = 1_000_000;
/// Time from the end of the last preparation to the begin of the measured part, in which all actors have checked.
const LEAD_NS: u64 = 2 * LOOK_NS;

/// Shared by all actors of a run. A planned end is postponed by the time spent preparing.
#[derive(Debug, Default)]
pub struct MeasuredPart(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    preparing: usize,
    /// Actors that have not yet decided whether they prepare.
    undecided: usize,
    since_ns: u64,
    shift_ns: u64,
    /// Actors with work without which the run must not end.
    kept_by: usize,
}

impl State {
    fn shift_ns(&self, now_ns: u64) -> u64 {
        let under_way_ns = if self.preparing > 0 { now_ns.saturating_sub(self.since_ns) } else { 0 };
        // A preparation that never ends must not keep the run from ending.
        self.shift_ns.saturating_add(under_way_ns).min(PREPARE_NS_MAX)
    }
}

impl MeasuredPart {
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Announces this many actors that begin with the run and may prepare.
    pub fn expect(&self, actors: usize) {
        self.with(|state| state.undecided += actors);
    }

    /// One of these actors has decided whether it prepares.
    pub fn decided(&self) {
        self.with(|state| state.undecided = state.undecided.saturating_sub(1));
    }

    /// Whether all actors have decided and none prepares.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.with(|state| state.undecided == 0 && state.preparing == 0)
    }

    /// An actor begins to prepare.
    pub fn begin(&self, now_ns: u64) {
        self.with(|state| {
            if state.preparing == 0 {
                state.since_ns = now_ns;
            }
            state.preparing += 1;
        });
    }

    /// An actor has finished preparing, or has given up.
    pub fn ready(&self, now_ns: u64) {
        self.with(|state| {
            if state.preparing == 1 {
                state.shift_ns = state.shift_ns(now_ns.saturating_add(LEAD_NS));
            }
            state.preparing = state.preparing.saturating_sub(1);
        });
    }

    /// By how much planned times are postponed at `now_ns`.
    #[must_use]
    pub fn shift_ns(&self, now_ns: u64) -> u64 {
        self.with(|state| state.shift_ns(now_ns))
    }

    /// Waits until the measured part has begun and the postponed time is reached, and returns that time. Planned times
    /// count from the begin of the measured part.
    pub fn put_off(&self, planned_ns: u64, stop: &AtomicBool) -> u64 {
        loop {
            let now_ns = monotonic_ns();
            let put_off_ns = planned_ns.saturating_add(self.shift_ns(now_ns));
            let begun = self.is_begun();
            if (begun && now_ns >= put_off_ns) || stop.load(Ordering::Relaxed) {
                return put_off_ns;
            }
            sleep_until(if begun { put_off_ns.min(now_ns + 100 * LOOK_NS) } else { now_ns + LOOK_NS });
        }
    }

    /// The time after which no operation begins, for a planned end.
    #[must_use]
    pub fn end_ns(&self, planned_ns: u64, now_ns: u64) -> u64 {
        self.with(|state| {
            let kept_ns = if state.kept_by > 0 { KEEP_NS_MAX } else { 0 };
            planned_ns.saturating_add(state.shift_ns(now_ns)).saturating_add(kept_ns)
        })
    }

    /// Adds (or removes) an actor for which the run does not end.
    pub fn keep(&self, on: bool) {
        self.with(|state| {
            state.kept_by = if on { state.kept_by + 1 } else { state.kept_by.saturating_sub(1) };
        });
    }

    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.with(|state| state.kept_by > 0)
    }

    #[must_use]
    pub fn is_preparing(&self) -> bool {
        self.with(|state| state.preparing > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{KEEP_NS_MAX, LEAD_NS, MeasuredPart, PREPARE_NS_MAX};

    #[test]
    fn preparation_time_postpones_the_end_once() {
        let measured = MeasuredPart::default();
        measured.begin(100);
        measured.begin(150);
        measured.ready(200);
        assert!(measured.is_preparing());
        assert_eq!(measured.shift_ns(260), 160);
        measured.ready(300);
        assert!(!measured.is_preparing());
        assert_eq!(measured.shift_ns(1000), 200 + LEAD_NS);
        measured.begin(2000);
        assert_eq!(measured.shift_ns(u64::MAX), PREPARE_NS_MAX);
    }

    #[test]
    fn the_measured_part_begins_when_all_are_ready() {
        let measured = MeasuredPart::default();
        measured.expect(2);
        measured.decided();
        assert!(!measured.is_begun() && !measured.is_preparing(), "the other may still prepare");
        measured.begin(100);
        measured.decided();
        assert!(!measured.is_begun());
        measured.ready(400);
        assert!(measured.is_begun() && measured.shift_ns(500) == 300 + LEAD_NS);
    }

    #[test]
    fn an_actor_prolongs_a_run_up_to_a_limit() {
        let measured = MeasuredPart::default();
        assert_eq!(measured.end_ns(1000, 10), 1000);
        measured.keep(true);
        measured.keep(true);
        measured.keep(false);
        assert!(measured.is_kept());
        assert_eq!(measured.end_ns(1000, 2000), 1000 + KEEP_NS_MAX);
        measured.keep(false);
        assert_eq!(measured.end_ns(1000, 2000), 1000);
    }
}
