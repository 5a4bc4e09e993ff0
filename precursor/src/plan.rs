//! Decides what the helper thread prepares, and when. Pure: no clock and no I/O.
//!
//! The helper thread performs these steps, and the simulator models them, so both follow one policy. Sizes are in bytes
//! of the current file; the caller supplies times in nanoseconds.
//!
//! The caller guarantees `released <= position`, `written_back <= position` and `warm <= allocated`. `position` may
//! pass `warm`: that is a late window, which the caller counts.

/// The simulator drives the planner without the rest of the crate.
#[doc(hidden)]
pub use crate::mode::Mode;

/// A range of the file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub at: u64,
    /// Number of bytes; never zero in a [`Step`].
    pub len: u64,
}

impl Span {
    /// Offset after the last byte.
    pub fn end(self) -> u64 {
        self.at.saturating_add(self.len)
    }
}

/// Which file a step concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The file being appended to.
    Current,
    /// The file that a roll will begin.
    Next,
}

/// One step of the helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ring: write this range from the ring to the file.
    Flush(Span),
    /// Allocate blocks for this range.
    Allocate(Which, Span),
    /// Bring this range into the page cache: writable and locked (window), or read (prefetch).
    Warm(Which, Span),
    /// Make this range writable again after write-back has write-protected it, so that the writer's store does not
    /// fault.
    Refresh(Span),
    /// Start write-back of this range, which the writer has left.
    WriteBack(Span),
    /// Unlock and unmap this range, which the writer has left. It may not be written back yet.
    Release(Span),
    /// Nothing to do for this time, ns.
    Nap(u64),
}

/// Progress of each stage, in bytes of the current file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// End of the appended data.
    pub position: u64,
    /// Ring: end of the data written to the file. Other modes: equal to `position`.
    pub flushed: u64,
    /// End of the blocks the file owns.
    pub allocated: u64,
    /// End of the pages that the writer can store into without a fault.
    pub warm: u64,
    /// End of the range handed to write-back.
    pub written_back: u64,
    /// The last write-back is not yet submitted. `sync_file_range` waits while the device's queue is full, so a thread
    /// other than the helper calls it.
    pub write_back_busy: bool,
    /// End of the range that was unlocked and unmapped.
    pub released: u64,
    /// The next file's `allocated` (only with roll-over).
    pub next_allocated: u64,
    /// The next file's `warm` (only with roll-over).
    pub next_warm: u64,
}

impl Ledger {
    /// Bytes that are warm and not yet released, in both files.
    pub fn held_bytes(&self) -> u64 {
        self.warm.saturating_sub(self.released).saturating_add(self.next_warm)
    }
}

/// Sizes and rates that a planner keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Mode of writing.
    pub mode: Mode,
    /// Page size of the machine, bytes. Ranges to lock, populate or release begin on a page.
    pub page_bytes: u64,
    /// Bytes warmed and released at a time; whole pages.
    pub window_bytes: u64,
    /// Bytes allocated at a time.
    pub allocate_bytes: u64,
    /// Least run-ahead at any rate, bytes.
    pub ahead_bytes_min: u64,
    /// Most run-ahead, bytes: [`crate::budget::Budget::bytes`].
    pub ahead_bytes_max: u64,
    /// Size at which files roll over, bytes; 0 = a single file.
    pub roll_bytes: u64,
    /// Most bytes per second handed to write-back; 0 = one and a half times the writer's rate.
    pub write_back_bytes_per_s: u64,
    /// Most bytes of one flush of the ring.
    pub flush_bytes: u64,
    /// Longest nap, ns.
    pub nap_ns_max: u64,
    /// Interval of refreshing the range before the writer, ns.
    pub refresh_ns: u64,
}

impl Tuning {
    /// Defaults for a mode, a budget and a page size, both in bytes.
    pub fn new(mode: Mode, ahead_bytes_max: u64, page_bytes: u64) -> Tuning {
        let window_bytes = (1 << 20).min((ahead_bytes_max / 4).max(page_bytes)) / page_bytes * page_bytes;
        Tuning {
            mode,
            page_bytes,
            window_bytes,
            allocate_bytes: 64 << 20,
            ahead_bytes_min: (4 * window_bytes).min(ahead_bytes_max),
            ahead_bytes_max,
            roll_bytes: 0,
            write_back_bytes_per_s: 0,
            flush_bytes: 1 << 20,
            nap_ns_max: 2_000_000,
            refresh_ns: 20_000_000,
        }
    }
}

/// Least range before the writer that is refreshed, bytes.
const REFRESH_BYTES_MIN: u64 = 256 << 10;
const SECOND_NS: u64 = 1_000_000_000;
/// Lower limit of the write-back rate, so that an idle writer's last window is still written back.
const WRITE_BACK_FLOOR_BYTES_PER_S: u64 = 16 << 20;

/// Measured rate of the writer and cost of warming.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    last_ns: Option<u64>,
    last_position: u64,
    /// The writer's rate, bytes per second. Rises at once, and falls by an eighth per observation.
    rate_bytes_per_s: u64,
    /// Cost of warming one window, ns: the worst observed. Falls by a sixteenth per observation.
    warm_ns: u64,
}

impl Pace {
    /// Shortest interval for a rate, ns: in a shorter one, a few records would look like a high rate.
    const INTERVAL_NS: u64 = 500_000;

    /// Records the writer's position, counted over all files.
    pub fn on_position(&mut self, now_ns: u64, position_total: u64) {
        let Some(last) = self.last_ns else {
            (self.last_ns, self.last_position) = (Some(now_ns), position_total);
            return;
        };
        let elapsed_ns = now_ns.saturating_sub(last);
        if elapsed_ns < Self::INTERVAL_NS {
            return;
        }
        let moved = position_total.saturating_sub(self.last_position);
        let rate = u128::from(moved) * u128::from(SECOND_NS) / u128::from(elapsed_ns);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.rate_bytes_per_s = rate.max(self.rate_bytes_per_s - self.rate_bytes_per_s / 8);
        (self.last_ns, self.last_position) = (Some(now_ns), position_total);
    }

    /// Records the cost of warming one window, ns.
    pub fn on_warmed(&mut self, cost_ns: u64) {
        self.warm_ns = cost_ns.max(self.warm_ns - self.warm_ns / 16);
    }

    /// The writer's rate, bytes per second.
    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate_bytes_per_s
    }

    /// Bytes that the writer appends in `ns` at its present rate.
    fn bytes_in(&self, ns: u64) -> u64 {
        let bytes = u128::from(self.rate_bytes_per_s) * u128::from(ns) / u128::from(SECOND_NS);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Decides the helper's next step.
#[derive(Debug, Clone)]
pub struct Planner {
    tuning: Tuning,
    /// Measurements, which the caller updates.
    pub pace: Pace,
    refreshed_ns: u64,
    credit_ns: u64,
    credit_bytes: u64,
}

impl Planner {
    /// A planner without measurements.
    pub fn new(tuning: Tuning) -> Planner {
        Planner { tuning, pace: Pace::default(), refreshed_ns: 0, credit_ns: 0, credit_bytes: 0 }
    }

    /// The sizes and rates that the planner keeps to.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Bytes to keep warm before the writer: what it appends while the helper naps once and warms a window at twice the
    /// worst recent cost, plus two windows; within the tuning's limits.
    pub fn ahead_bytes(&self) -> u64 {
        let t = &self.tuning;
        let blind_ns = self.pace.warm_ns.saturating_mul(2).saturating_add(t.nap_ns_max);
        let wanted = self.pace.bytes_in(blind_ns).saturating_add(2 * t.window_bytes);
        wanted.clamp(t.ahead_bytes_min.min(t.ahead_bytes_max), t.ahead_bytes_max)
    }

    /// The next step, the most urgent first: the writer's ring, its next bytes, the next file, then the range behind
    /// the writer.
    pub fn next(&mut self, now_ns: u64, at: &Ledger) -> Step {
        match self.tuning.mode {
            Mode::Plain => Step::Nap(self.tuning.nap_ns_max),
            Mode::Ring => self.next_ring(at),
            Mode::Window | Mode::Prefetch => self
                .overdue_release(at)
                .or_else(|| self.ahead_step(at))
                .or_else(|| self.next_file_step(at))
                .or_else(|| self.refresh_step(now_ns, at))
                .or_else(|| self.behind_step(now_ns, at))
                .unwrap_or_else(|| self.nap(at)),
        }
    }

    fn page_start(&self, at: u64) -> u64 {
        at - at % self.tuning.page_bytes
    }

    fn file_end(&self) -> u64 {
        if self.tuning.roll_bytes == 0 { u64::MAX } else { self.tuning.roll_bytes }
    }

    fn next_ring(&self, at: &Ledger) -> Step {
        let t = &self.tuning;
        let pending = at.position.saturating_sub(at.flushed);
        // Blocks are allocated before the flush needs them, so that a full disk is detected while the ring has room.
        let allocate_to = (at.flushed + pending).saturating_add(t.allocate_bytes / 2).min(self.file_end());
        if at.allocated < allocate_to {
            let len = t.allocate_bytes.max(allocate_to - at.allocated).min(self.file_end() - at.allocated);
            return Step::Allocate(Which::Current, Span { at: at.allocated, len });
        }
        if pending > 0 {
            return Step::Flush(Span { at: at.flushed, len: pending.min(t.flush_bytes) });
        }
        Step::Nap(t.nap_ns_max / 4)
    }

    /// Releases first when the next window would exceed the budget: with a writer as fast as the helper, warming would
    /// always be more urgent.
    fn overdue_release(&self, at: &Ledger) -> Option<Step> {
        let next = at.held_bytes().saturating_add(self.tuning.window_bytes);
        if next > self.tuning.ahead_bytes_max { self.release_step(at) } else { None }
    }

    /// Releases the whole windows that the writer has left.
    fn release_step(&self, at: &Ledger) -> Option<Step> {
        let left_end = at.position - at.position % self.tuning.window_bytes;
        (self.tuning.mode == Mode::Window && at.released < left_end)
            .then(|| Step::Release(Span { at: at.released, len: left_end - at.released }))
    }

    /// Allocates and warms pages before the writer in the current file.
    fn ahead_step(&self, at: &Ledger) -> Option<Step> {
        let mut goal = at.position.saturating_add(self.ahead_bytes()).min(self.file_end());
        if self.tuning.mode == Mode::Window {
            goal = goal.min(self.held_end_max(at.released, at.next_warm));
        }
        // If the writer has overtaken the helper, warming continues at the writer's position.
        let from = at.warm.max(self.page_start(at.position));
        self.stretch(Which::Current, at.allocated, from, goal)
    }

    /// Creates the next file and warms its first windows well before the writer gets there.
    fn next_file_step(&self, at: &Ledger) -> Option<Step> {
        let roll = self.tuning.roll_bytes;
        if roll == 0 {
            return None;
        }
        let ahead = self.ahead_bytes();
        let left = roll.saturating_sub(at.position);
        if left > roll / 2 && left > 2 * ahead {
            return None;
        }
        let mut goal = ahead.saturating_sub(left).max(self.tuning.window_bytes).min(roll);
        if self.tuning.mode == Mode::Window {
            goal = goal.min(self.held_end_max(0, at.warm.saturating_sub(at.released)));
        }
        self.stretch(Which::Next, at.next_allocated, at.next_warm, goal)
    }

    /// Offset up to which a file released up to `released` may be warmed while the other file holds `elsewhere` bytes;
    /// whole windows.
    fn held_end_max(&self, released: u64, elsewhere: u64) -> u64 {
        let room = self.tuning.ahead_bytes_max.saturating_sub(elsewhere);
        released.saturating_add(room) / self.tuning.window_bytes * self.tuning.window_bytes
    }

    fn stretch(&self, which: Which, allocated: u64, from: u64, goal: u64) -> Option<Step> {
        let t = &self.tuning;
        // Half a window of tolerance, so that the helper does not wake for every record.
        if from >= goal || (goal - from < t.window_bytes / 2 && goal < self.file_end()) {
            return None;
        }
        let end = (from / t.window_bytes + 1).saturating_mul(t.window_bytes).min(self.file_end());
        if allocated < end {
            let len = t.allocate_bytes.max(end - allocated).min(self.file_end() - allocated);
            return Some(Step::Allocate(which, Span { at: allocated, len }));
        }
        Some(Step::Warm(which, Span { at: from, len: end - from }))
    }

    /// Write-back by the kernel's threads write-protects dirty pages (`mm/page-writeback.c: folio_clear_dirty_for_io`,
    /// 6.12), even locked ones, and the next store faults into the file system. The helper makes the writer's next
    /// pages writable before the writer gets there.
    fn refresh_step(&mut self, now_ns: u64, at: &Ledger) -> Option<Step> {
        let due = now_ns.saturating_sub(self.refreshed_ns) >= self.tuning.refresh_ns;
        if self.tuning.mode != Mode::Window || !due || at.warm <= at.position {
            return None;
        }
        self.refreshed_ns = now_ns;
        // Sixteen refresh intervals ahead: on a busy machine the helper may not run for a tenth of a second, and
        // refreshing a page that is already writable costs well under a microsecond.
        let near = self.pace.bytes_in(16 * self.tuning.refresh_ns).max(REFRESH_BYTES_MIN);
        let from = self.page_start(at.position);
        Some(Step::Refresh(Span { at: from, len: (near.next_multiple_of(self.tuning.page_bytes)).min(at.warm - from) }))
    }

    fn behind_step(&mut self, now_ns: u64, at: &Ledger) -> Option<Step> {
        let t = self.tuning;
        let left_end = at.position / t.window_bytes * t.window_bytes;
        self.earn(now_ns);
        if let Some(release) = self.release_step(at) {
            return Some(release);
        }
        if at.written_back < left_end && !at.write_back_busy && self.credit_bytes >= t.window_bytes {
            let len = (left_end - at.written_back).min(t.window_bytes);
            self.credit_bytes -= len;
            return Some(Step::WriteBack(Span { at: at.written_back, len }));
        }
        None
    }

    /// Adds to the write-back allowance, up to four windows, so that a pause does not cause a burst.
    fn earn(&mut self, now_ns: u64) {
        let t = &self.tuning;
        let follow = self.pace.rate_bytes_per_s.saturating_add(self.pace.rate_bytes_per_s / 2);
        let rate = match t.write_back_bytes_per_s {
            0 => follow.max(WRITE_BACK_FLOOR_BYTES_PER_S),
            fixed => fixed,
        };
        let earned = u128::from(rate) * u128::from(now_ns.saturating_sub(self.credit_ns)) / u128::from(SECOND_NS);
        if earned > 0 {
            let cap = 4 * t.window_bytes;
            self.credit_bytes = self.credit_bytes.saturating_add(u64::try_from(earned).unwrap_or(cap)).min(cap);
            self.credit_ns = now_ns;
        }
    }

    /// Naps at most as long as the writer needs for half of the warm range before it.
    fn nap(&self, at: &Ledger) -> Step {
        let t = &self.tuning;
        let half = at.warm.saturating_sub(at.position) / 2;
        let reach_ns = u128::from(half) * u128::from(SECOND_NS) / u128::from(self.pace.rate_bytes_per_s.max(1));
        let reach_ns = u64::try_from(reach_ns).unwrap_or(u64::MAX);
        Step::Nap(reach_ns.clamp(50_000.min(t.nap_ns_max), t.nap_ns_max))
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
