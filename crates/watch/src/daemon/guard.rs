//! The guard's part of a second.

use std::sync::Arc;

use flatwater_guard::Order;
use flatwater_host::own_cost::thread_cpu_ns;
use flatwater_recording::Event;

use super::Daemon;
use crate::answers::lock;
use crate::budget::Step;
use crate::guard::{Done, list};
use crate::trigger::Fired;

/// Interval between two updates of the list while nothing happens.
const LIST_EVERY_S: u64 = 10;
/// The label of the guard's recordings.
const LABEL: &str = "guard";

impl Daemon {
    /// Lets the guard judge this second. Its notes become events of the next second, so that they are in the look-back
    /// and in a recording in progress.
    pub(super) fn guard(&mut self, at_ns: u64, tell: &mut dyn FnMut(&str)) {
        let Some(mut guard) = self.guard.take() else { return };
        let losses = self.sight.losses();
        let lost = losses.lost > std::mem::replace(&mut self.guard_lost_before, losses.lost);
        let shed = self.keeper.step() >= Step::Requests || !self.sight.is_attached();
        let began_ns = thread_cpu_ns();
        let orders: Vec<Order> = std::mem::take(&mut lock(&self.shared).orders);
        let done = guard.second(&self.look_back, lost || shed, orders, tell);
        // While nothing happens, the list is as before except for its times.
        let changed = !done.notes.is_empty() || guard.controller().acting().is_some();
        if changed || self.seconds % LIST_EVERY_S == 1 {
            let list: Arc<[u8]> = Arc::from(list::state(guard.controller()).to_string().into_bytes());
            lock(&self.shared).guard = list;
        }
        self.note(done, at_ns, tell);
        guard.tally.cpu_s += thread_cpu_ns().saturating_sub(began_ns) as f64 / 1e9;
        lock(&self.shared).metrics.guard(&guard.tally);
        self.guard = Some(guard);
    }

    fn note(&mut self, done: Done, at_ns: u64, tell: &mut dyn FnMut(&str)) {
        for note in done.notes {
            if !note.line.is_empty() {
                tell(&note.line);
            }
            self.guard_events.push(Event::new(at_ns, note.event));
        }
        let Some(account) = done.acted_for else { return };
        // A recording in progress is lengthened with each pair of windows.
        let observation = "a limit is on trial".to_owned();
        let fired = Fired { name: LABEL.to_owned(), observation, at_ns, account, trigger: None };
        if let Some(capture) = &mut self.capture {
            let _ = capture.join(&fired, self.config.after_ns);
        } else if let Err(why) = self.begin(&fired, tell) {
            lock(&self.shared).metrics.skipped(why.reason());
            tell(&format!("guard: the episode is not recorded: {why}"));
        }
    }

    /// Ends the guard with the daemon.
    pub(super) fn end_guard(&mut self, tell: &mut dyn FnMut(&str)) {
        let Some(guard) = self.guard.take() else { return };
        let done = guard.end(&self.look_back, tell);
        let at_ns = flatwater_host::clock::monotonic_ns();
        let lines = done.notes.into_iter().filter(|note| !note.line.is_empty());
        lines.for_each(|note| {
            tell(&note.line);
            self.guard_events.push(Event::new(at_ns, note.event));
        });
    }
}
