//! When a run's measured part begins and ends: preparing (loading a store, building trees) is not measured, and the
//! scenario's duration counts from the instant that nobody prepares any longer.

use std::sync::{Mutex, PoisonError};

use super::PREPARE_NS_MAX;

/// Shared by all actors of a run. An end that was planned for an instant is put off by the time spent preparing.
#[derive(Debug, Default)]
pub struct Term(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    preparing: usize,
    since_ns: u64,
    shift_ns: u64,
}

impl State {
    fn shift_ns(&self, now_ns: u64) -> u64 {
        let under_way_ns = if self.preparing > 0 { now_ns.saturating_sub(self.since_ns) } else { 0 };
        // A preparation that never ends must not keep a run from ending.
        self.shift_ns.saturating_add(under_way_ns).min(PREPARE_NS_MAX)
    }
}

impl Term {
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
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
                state.shift_ns = state.shift_ns(now_ns);
            }
            state.preparing = state.preparing.saturating_sub(1);
        });
    }

    /// By how much planned instants are put off by now.
    #[must_use]
    pub fn shift_ns(&self, now_ns: u64) -> u64 {
        self.with(|state| state.shift_ns(now_ns))
    }

    #[must_use]
    pub fn is_preparing(&self) -> bool {
        self.with(|state| state.preparing > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{PREPARE_NS_MAX, Term};

    #[test]
    fn time_in_which_anybody_prepares_puts_the_end_off_once() {
        let term = Term::default();
        term.begin(100);
        term.begin(150);
        term.ready(200);
        assert!(term.is_preparing());
        assert_eq!(term.shift_ns(260), 160);
        term.ready(300);
        assert!(!term.is_preparing());
        assert_eq!(term.shift_ns(1000), 200);
        term.begin(2000);
        assert_eq!(term.shift_ns(u64::MAX), PREPARE_NS_MAX);
    }
}
