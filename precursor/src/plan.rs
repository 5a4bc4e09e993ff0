//! What to prepare, and when: pure decisions, no clock of its own and no I/O.
//!
//! The library's helper thread acts on these steps, and the simulator models the same steps, so that both run the one
//! policy. Everything is counted in bytes of the current file and in nanoseconds handed in by the caller.
//!
//! Invariant kept by the caller, never repaired here: `released <= position`, `written_back <= position` and
//! `warm <= allocated`. `position` may pass `warm`: that is a late window, and the caller counts it.

/// A range of the file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub at: u64,
    /// Number of bytes, never zero in a [`Step`].
    pub len: u64,
}

impl Span {
    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.at.saturating_add(self.len)
    }
}

/// The way in which appended bytes reach the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Stores into locked memory; a flusher thread writes the file.
    Ring,
    /// Stores into a mapped, populated and locked window of a preallocated file.
    Window,
    /// The cure of 2012: preallocated zeros, a thread that reads ahead of the writer, and `write()`.
    Prefetch,
    /// `write()` and nothing else.
    Plain,
}

impl Mode {
    /// The name used by `--set precursor=` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Ring => "ring",
            Mode::Window => "window",
            Mode::Prefetch => "prefetch",
            Mode::Plain => "plain",
        }
    }

    /// The mode of that name; `auto` is not a mode but a request to choose one.
    pub fn from_name(name: &str) -> Option<Mode> {
        [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain].into_iter().find(|m| m.name() == name)
    }
}

/// Which file a step concerns when files roll over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The file being appended to.
    Current,
    /// The file that follows it.
    Next,
}

/// What the helper should do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ring: write these bytes from the ring to the file.
    Flush(Span),
    /// Give the file real blocks for this range.
    Allocate(Which, Span),
    /// Bring this range into the page cache, writable and locked (window) or merely read (prefetch).
    Warm(Which, Span),
    /// Make writable again what write-back has write-protected, so that the writer's store does not fault.
    Refresh(Span),
    /// Start write-back of bytes the writer has left.
    WriteBack(Span),
    /// Unlock and unmap bytes the writer has left, written back or not.
    Release(Span),
    /// Nothing to do for this long, ns.
    Nap(u64),
}

/// How far each stage has come, in bytes of the current file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// End of what the writer has appended.
    pub position: u64,
    /// Ring: end of what was written to the file. Other modes: equal to `position`.
    pub flushed: u64,
    /// End of the blocks the file owns.
    pub allocated: u64,
    /// End of what the writer may enter without a page fault.
    pub warm: u64,
    /// End of what was handed to write-back.
    pub written_back: u64,
    /// The last write-back is still being handed over: a full device queue makes that wait (`sync_file_range`), so it is not
    /// done by the thread that prepares.
    pub write_back_busy: bool,
    /// End of what was unlocked and unmapped.
    pub released: u64,
    /// The same two stages of the next file (roll-over only).
    pub next_allocated: u64,
    /// See above.
    pub next_warm: u64,
}

impl Ledger {
    /// Bytes warmed and not yet released, in both files.
    pub fn held_bytes(&self) -> u64 {
        self.warm.saturating_sub(self.released).saturating_add(self.next_warm)
    }
}

/// The sizes and rates that a planner obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Method of writing.
    pub mode: Mode,
    /// The machine's page size, bytes: steps that lock, populate or release begin on a page.
    pub page_bytes: u64,
    /// Unit of warming and releasing, bytes; whole pages.
    pub window_bytes: u64,
    /// Unit of allocation, bytes.
    pub allocate_bytes: u64,
    /// Least run-ahead, whatever the rate, bytes.
    pub ahead_bytes_min: u64,
    /// Most run-ahead: [`crate::budget::Budget::bytes`].
    pub ahead_bytes_max: u64,
    /// Size at which files roll over, bytes; 0 = one file for ever.
    pub roll_bytes: u64,
    /// Most bytes a second handed to write-back; 0 = follow the writer at one and a half times its rate.
    pub write_back_bytes_per_s: u64,
    /// Most bytes of one flush of the ring.
    pub flush_bytes: u64,
    /// Longest nap, ns.
    pub nap_ns_max: u64,
    /// How often the range before the writer is refreshed, ns.
    pub refresh_ns: u64,
}

impl Tuning {
    /// The defaults of a mode, bounded by a budget in bytes, on a machine with pages of that many bytes.
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

/// Least stretch before the writer that is made writable again, bytes.
const REFRESH_BYTES_MIN: u64 = 256 << 10;
const SECOND_NS: u64 = 1_000_000_000;
/// Floor of the write-back rate, so that an idle writer's last window still leaves memory.
const WRITE_BACK_FLOOR_BYTES_PER_S: u64 = 16 << 20;

/// The writer's rate and the helper's cost, measured from what has happened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    last_ns: Option<u64>,
    last_position: u64,
    /// Writer's rate, bytes a second: rises at once, falls by an eighth per observation.
    rate_bytes_per_s: u64,
    /// Cost of warming one window, ns: the worst seen, falling by a sixteenth per observation.
    warm_ns: u64,
}

impl Pace {
    /// Shortest interval that yields a rate, ns: below it a few records would look like a flood.
    const INTERVAL_NS: u64 = 500_000;

    /// Takes note of the writer's position, counted over all files.
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

    /// Takes note of what warming one window cost.
    pub fn on_warmed(&mut self, cost_ns: u64) {
        self.warm_ns = cost_ns.max(self.warm_ns - self.warm_ns / 16);
    }

    /// The writer's rate, bytes a second.
    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate_bytes_per_s
    }

    /// Bytes the writer covers in that time at its present rate.
    fn bytes_in(&self, ns: u64) -> u64 {
        let bytes = u128::from(self.rate_bytes_per_s) * u128::from(ns) / u128::from(SECOND_NS);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Decides the helper's next step.
#[derive(Debug, Clone)]
pub struct Planner {
    tuning: Tuning,
    /// Measurements; fed by whoever performs the steps.
    pub pace: Pace,
    refreshed_ns: u64,
    credit_ns: u64,
    credit_bytes: u64,
}

impl Planner {
    /// A planner that knows nothing yet of its writer.
    pub fn new(tuning: Tuning) -> Planner {
        Planner { tuning, pace: Pace::default(), refreshed_ns: 0, credit_ns: 0, credit_bytes: 0 }
    }

    /// What it obeys.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// How many bytes to keep warm before the writer: what it covers while the helper naps once and then
    /// warms a window at twice the worst recent cost, and two windows more; within the tuning's bounds.
    pub fn ahead_bytes(&self) -> u64 {
        let t = &self.tuning;
        let blind_ns = self.pace.warm_ns.saturating_mul(2).saturating_add(t.nap_ns_max);
        let wanted = self.pace.bytes_in(blind_ns).saturating_add(2 * t.window_bytes);
        wanted.clamp(t.ahead_bytes_min.min(t.ahead_bytes_max), t.ahead_bytes_max)
    }

    /// The next step. The most urgent comes first: the writer's ring, then its next bytes, then the next file, then
    /// whatever is behind it.
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
        // Blocks are taken before the flush needs them, so that a full disk is known while the ring still has room.
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

    /// The budget bounds what is held behind the writer too; one as fast as the helper always wants another window first.
    fn overdue_release(&self, at: &Ledger) -> Option<Step> {
        let next = at.held_bytes().saturating_add(self.tuning.window_bytes);
        if next > self.tuning.ahead_bytes_max { self.release_step(at) } else { None }
    }

    /// Unlocks whole windows that the writer has left.
    fn release_step(&self, at: &Ledger) -> Option<Step> {
        let left_end = at.position - at.position % self.tuning.window_bytes;
        (self.tuning.mode == Mode::Window && at.released < left_end)
            .then(|| Step::Release(Span { at: at.released, len: left_end - at.released }))
    }

    /// Allocates and warms before the writer in the current file.
    fn ahead_step(&self, at: &Ledger) -> Option<Step> {
        let mut goal = at.position.saturating_add(self.ahead_bytes()).min(self.file_end());
        if self.tuning.mode == Mode::Window {
            goal = goal.min(self.held_end_max(at.released, at.next_warm));
        }
        // A writer that overtook the helper is met at its position: warming what it has left would only be later still.
        let from = at.warm.max(self.page_start(at.position));
        self.stretch(Which::Current, at.allocated, from, goal)
    }

    /// Creates and warms the first windows of the next file well before the writer gets there.
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

    /// End of warming in a file released up to `released`, with `elsewhere` bytes held in the other: whole windows.
    fn held_end_max(&self, released: u64, elsewhere: u64) -> u64 {
        let room = self.tuning.ahead_bytes_max.saturating_sub(elsewhere);
        released.saturating_add(room) / self.tuning.window_bytes * self.tuning.window_bytes
    }

    fn stretch(&self, which: Which, allocated: u64, from: u64, goal: u64) -> Option<Step> {
        let t = &self.tuning;
        // Half a window of slack keeps the helper from waking for every record.
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

    /// Write-back by the kernel's own threads write-protects dirty pages
    /// (`mm/page-writeback.c: folio_clear_dirty_for_io`, 6.12), whether or not they are locked; the next store then
    /// faults into the file system. The range the writer reaches soon is made writable again on the helper's time.
    fn refresh_step(&mut self, now_ns: u64, at: &Ledger) -> Option<Step> {
        let due = now_ns.saturating_sub(self.refreshed_ns) >= self.tuning.refresh_ns;
        if self.tuning.mode != Mode::Window || !due || at.warm <= at.position {
            return None;
        }
        self.refreshed_ns = now_ns;
        // Sixteen times as far as the writer comes until the next refresh is due: on a busy machine the helper may not run for
        // a tenth of a second, and a page that is writable already costs it well under a microsecond.
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

    /// Fills the write-back allowance, to at most four windows so that a pause does not become a burst.
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

    /// Sleeps no longer than the writer needs for half of what lies warm before it.
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
