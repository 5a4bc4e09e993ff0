//! When a run's measured part begins and ends: preparing (loading a store, building trees) is not measured, and the
//! scenario's duration counts from the instant that nobody prepares any longer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{KEEP_NS_MAX, PREPARE_NS_MAX};
use crate::clock::{monotonic_ns, sleep_until};

/// Between two looks at whether somebody still prepares, at least.
pub const LOOK_NS: u64 = 1_000_000;
/// From the end of the last preparation to the beginning of the measured part: until then everybody has looked.
const LEAD_NS: u64 = 2 * LOOK_NS;

/// Shared by all actors of a run. An end that was planned for an instant is put off by the time spent preparing.
#[derive(Debug, Default)]
pub struct MeasuredPart(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    preparing: usize,
    /// Actors of which it is not known yet whether they prepare.
    undecided: usize,
    since_ns: u64,
    shift_ns: u64,
    /// Actors that have yet to do what the run must not end without.
    kept_by: usize,
}

impl State {
    fn shift_ns(&self, now_ns: u64) -> u64 {
        let under_way_ns = if self.preparing > 0 { now_ns.saturating_sub(self.since_ns) } else { 0 };
        // A preparation that never ends must not keep a run from ending.
        self.shift_ns.saturating_add(under_way_ns).min(PREPARE_NS_MAX)
    }
}

impl MeasuredPart {
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// So many actors begin with the run, and may prepare.
    pub fn expect(&self, actors: usize) {
        self.with(|state| state.undecided += actors);
    }

    /// One of them prepares, or does not.
    pub fn decided(&self) {
        self.with(|state| state.undecided = state.undecided.saturating_sub(1));
    }

    /// Everybody has decided, and nobody prepares.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.with(|state| state.undecided == 0 && state.preparing == 0)
    }

    /// One more actor prepares.
    pub fn begin(&self, now_ns: u64) {
        self.with(|state| {
            if state.preparing == 0 {
                state.since_ns = now_ns;
            }
            state.preparing += 1;
        });
    }

    /// An actor that prepared is ready, or has given up.
    pub fn ready(&self, now_ns: u64) {
        self.with(|state| {
            if state.preparing == 1 {
                state.shift_ns = state.shift_ns(now_ns.saturating_add(LEAD_NS));
            }
            state.preparing = state.preparing.saturating_sub(1);
        });
    }

    /// By how much planned instants are put off by now.
    #[must_use]
    pub fn shift_ns(&self, now_ns: u64) -> u64 {
        self.with(|state| state.shift_ns(now_ns))
    }

    /// An instant of the plan, once it is known by how much it is put off: instants count from the beginning of the measured part.
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

    /// When operations begin no more, of a run that was planned to end at this instant.
    #[must_use]
    pub fn end_ns(&self, planned_ns: u64, now_ns: u64) -> u64 {
        self.with(|state| {
            let kept_ns = if state.kept_by > 0 { KEEP_NS_MAX } else { 0 };
            planned_ns.saturating_add(state.shift_ns(now_ns)).saturating_add(kept_ns)
        })
    }

    /// One more actor, or one less, for which the run does not end.
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
    fn time_in_which_anybody_prepares_puts_the_end_off_once() {
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
    fn it_begins_when_all_have_decided_and_the_last_is_ready() {
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
    fn a_run_is_kept_for_as_long_as_an_actor_asks_and_not_for_ever() {
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
