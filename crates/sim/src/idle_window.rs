//! Whom CFQ and bfq keep the disk idle for (cfq_update_idle_window), by what is known of each process's requests.
//!
//! Models: nobody who seeks (`seeky`), where the version asks for that; nobody whose next request comes, on a mean that forgets, later than
//! the disk would be kept idle for (cfq_update_io_thinktime: from the end of the last one, in ticks of the clock up to 4.7, which also
//! end the wait; no longer one counts than twice the wait); and from 2.6.37 on nobody whose request is a write for an fsync
//! (REQ_NOIDLE). Leaves out: that who seeks but queues four requests at once is waited for (cfq_mark_cfqq_deep), the mean of a whole service
//! tree (3.2 and later).

use std::collections::BTreeMap;

use super::clock::{TaskId, ticks_from};
use super::constant::constants;
use super::seeky::Seeks;

constants! {
    const IDLE_OF_S: u64 = kernel(125, "block/cfq-iosched.c", "cfq_slice_idle (HZ / 125, at least 1)", "2.6.32");
    const VALID_SAMPLES: u64 = kernel(80, "block/cfq-iosched.c", "sample_valid", "2.6.32");
}

/// A mean of the times between a request's end and the next one, in ticks; samples count 256.
#[derive(Clone, Copy, Debug, Default)]
struct Think {
    samples: u64,
    total: u64,
    mean: u64,
}

impl Think {
    /// cfq_update_io_thinktime.
    fn add(&mut self, ticks: u64) {
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * ticks) / 8;
        self.mean = (self.total + 128) / self.samples;
    }

    fn is_over(&self, ticks: u64) -> bool {
        self.samples > VALID_SAMPLES.get() && self.mean > ticks
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    /// When its last request was done, or it came first.
    ended_ns: u64,
    think: Think,
    is_clear: bool,
}

#[derive(Debug)]
pub struct IdleWindows {
    pub seeks: Option<Seeks>,
    /// Who writes for an fsync is not waited for (2.6.37 and later).
    pub clears_for_sync_writes: bool,
    /// Nanoseconds of what times are reckoned in.
    pub tick_ns: u64,
    of: BTreeMap<TaskId, Habit>,
}

impl Default for IdleWindows {
    fn default() -> IdleWindows {
        IdleWindows { seeks: None, clears_for_sync_writes: false, tick_ns: 1, of: BTreeMap::new() }
    }
}

/// A request of a process that waits for it, as it is queued.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    pub owner: TaskId,
    pub write: bool,
    pub position: u64,
    pub pages: u64,
}

impl IdleWindows {
    /// How many ticks the disk is kept idle for.
    fn ticks(&self) -> u64 {
        (1_000_000_000 / self.tick_ns / IDLE_OF_S.get()).max(1)
    }

    /// The same as a time.
    pub fn idle_ns(&self) -> u64 {
        self.ticks() * self.tick_ns
    }

    /// cfq_arm_slice_timer: the wait that begins now ends with a tick.
    pub fn until(&self, now_ns: u64) -> u64 {
        ticks_from(now_ns, self.tick_ns, self.ticks())
    }

    /// cfq_rq_enqueued.
    pub fn note(&mut self, request: Queued, has_arm: bool, now_ns: u64) {
        if let Some(seeks) = &mut self.seeks {
            seeks.note(request.owner, request.position, request.pages, has_arm);
        }
        let ticks = self.ticks();
        let seeks = self.seeks.as_ref().is_some_and(|seeks| seeks.is_seeky(request.owner));
        let habit = self.of.entry(request.owner).or_insert(Habit { ended_ns: now_ns, ..Habit::default() });
        // One that was held back may be older than the end of the last.
        let elapsed = (now_ns / self.tick_ns).saturating_sub(habit.ended_ns / self.tick_ns);
        habit.think.add(elapsed.min(2 * ticks));
        habit.is_clear = seeks || habit.think.is_over(ticks) || (self.clears_for_sync_writes && request.write);
    }

    /// cfq_completed_request.
    pub fn ended(&mut self, owner: TaskId, now_ns: u64) {
        if let Some(habit) = self.of.get_mut(&owner) {
            habit.ended_ns = now_ns;
        }
    }

    /// Nobody waits for its next one (cfq_cfqq_idle_window is clear).
    pub fn is_clear(&self, owner: TaskId) -> bool {
        self.of.get(&owner).is_some_and(|habit| habit.is_clear)
    }
}

#[cfg(test)]
mod tests {
    use super::{IdleWindows, Queued, Think};

    const MS: u64 = 1_000_000;

    #[test]
    fn the_mean_of_think_times_forgets() {
        let mut think = Think::default();
        // 256 / 8 = 32; 256 * 16 / 8 = 512; (512 + 128) / 32 = 20.
        think.add(16);
        assert_eq!((think.samples, think.total, think.mean), (32, 512, 20));
        // (7 * 32 + 256) / 8 = 60; (7 * 512 + 256 * 8) / 8 = 704; (704 + 128) / 60 = 13.
        think.add(8);
        assert_eq!((think.samples, think.total, think.mean), (60, 704, 13));
        assert!(!think.is_over(8), "two samples do not count");
        // (7 * 60 + 256) / 8 = 84.
        think.add(8);
        assert!(think.samples == 84 && think.is_over(8));
    }

    /// One process's write at each of these instants of the first hundred milliseconds, each done half a millisecond later.
    fn clear_after(windows: &mut IdleWindows, instants_us: &[u64]) -> bool {
        for &at_us in instants_us {
            windows.note(Queued { owner: 7, write: true, position: 0, pages: 1 }, true, at_us * 1000);
            windows.ended(7, at_us * 1000 + MS / 2);
        }
        windows.is_clear(7)
    }

    #[test]
    fn who_comes_back_after_more_than_8_ticks_is_not_waited_for() {
        let by_ms = || IdleWindows { tick_ns: MS, ..IdleWindows::default() };
        let within: Vec<u64> = (0..12).map(|step| 100 + step * 8700).collect();
        assert!(!clear_after(&mut by_ms(), &within), "8.2 ms are 8 ticks, and sometimes 9");
        let later: Vec<u64> = (0..12).map(|step| 100 + step * 10_000).collect();
        assert!(clear_after(&mut by_ms(), &later), "9.5 ms");
        let mut slower = IdleWindows { tick_ns: 4 * MS, ..IdleWindows::default() };
        assert_eq!((slower.until(9 * MS), by_ms().until(MS / 2)), (16 * MS, 8 * MS), "2 ticks of 4 ms, 8 of 1 ms");
        assert!(!clear_after(&mut slower, &within), "of 4 ms: 2 ticks, and sometimes 3");
    }

    #[test]
    fn from_2_6_37_on_who_writes_for_an_fsync_is_not_waited_for() {
        for clears_for_sync_writes in [false, true] {
            let mut windows = IdleWindows { clears_for_sync_writes, ..IdleWindows::default() };
            assert_eq!(clear_after(&mut windows, &[0]), clears_for_sync_writes);
        }
    }
}
