//! What the finders read: the recording, with the slow calls summed once.
//!
//! Sixty finders over a million calls must not mean sixty passes, so the sums by cause are made here, in one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

use super::aggressor::Charges;
use super::page_lock::held_by_reads;
use flatwater_recording::{
    Call, Cause, CauseBasis, DurationBasis, HookState, HookStatus, LatencyBucket, OpKind, Recording, Source, StackId,
};

/// A cause is worth a finding when it cost this share of the recorded time ...
pub const LOST_SHARE_MIN: f64 = 0.001;
/// ... or when one call lost this many thresholds to it ...
pub const WORST_THRESHOLDS_MIN: u64 = 10;
/// ... and in either case this share of all the time lost: below it, mending it would not be noticed.
pub const CAUSE_SHARE_MIN: f64 = 0.01;
/// So many calls are no coincidence of two gaps.
const NOISY_CALLS_MIN: u64 = 4;
/// What a tool printed because it prints everything is no stall: nobody pastes a log for half a millisecond.
pub const PASTED_NS_MIN: u64 = 500_000;
/// Where a recording names no threshold (some imports).
pub const THRESHOLD_NS_DEFAULT: u64 = 1_000_000;

/// A recording and what the finders ask of it again and again.
#[derive(Debug)]
pub struct Facts<'a> {
    pub recording: &'a Recording,
    /// Foreground slow calls.
    pub calls: u64,
    /// Time in them, and after them on the way to user space, ns.
    pub lost_ns: u64,
    /// Of the calls those that had not returned at the recording's end, and how long the longest had lasted.
    pub still_under_way: u64,
    pub under_way_ns_max: u64,
    /// Length of what was recorded, ns; from the header, or from the calls and samples where it says nothing.
    pub duration_ns: u64,
    pub threshold_ns: u64,
    /// Largest gap of a thread that makes no syscalls: nothing shorter is blamed on memory management.
    pub noise_ns: u64,
    /// Calls over the threshold that the log counts in its histograms without telling any of them, and their time.
    pub counted: Counted,
    /// Time in a page's lock that a read held, counted as that read's; see `page_lock`.
    pub page_reads_ns: u64,
    /// Who made these calls wait, where the recording holds it.
    pub charges: Charges,
    page_reads: HashSet<StackId>,
    sums: Vec<CauseSum>,
}

/// Hashes the small numbers that stacks have: a million calls ask some millions of times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

impl BuildHasher for Spread {
    type Hasher = Spread;

    fn build_hasher(&self) -> Spread {
        Spread::default()
    }
}

/// Exclusive time of one cause over the foreground's slow calls.
#[derive(Clone, Debug)]
pub struct CauseSum {
    pub cause: Cause,
    pub lost_ns: u64,
    pub calls: u64,
    /// Most that one call lost to it.
    pub worst_ns: u64,
    /// Index of that call in `Recording::calls`.
    pub worst_call: Option<usize>,
    /// Calls of it that lost an event, so that a segment may carry the wrong name.
    pub damaged: u64,
    pub by_op_ns: BTreeMap<OpKind, u64>,
    pub by_stack_ns: HashMap<StackId, u64, Spread>,
    by_duration_ns: [u64; DurationBasis::ALL.len()],
    by_cause_ns: [u64; CauseBasis::ALL.len()],
}

/// Slow calls known by their number only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub calls: u64,
    /// At least.
    pub ns: u64,
    pub worst_ns: u64,
    /// All that was counted are waits for locks.
    pub locks: bool,
}

impl Counted {
    fn of(recording: &Recording, threshold_ns: u64) -> Counted {
        let own = || counted_buckets(recording);
        let mut counted = Counted { locks: own().all(|bucket| bucket.op == OpKind::Lock), ..Counted::default() };
        for bucket in own() {
            for (lowest_ns, _, count) in bucket.from_start.steps().filter(|(lowest_ns, ..)| *lowest_ns >= threshold_ns)
            {
                counted.calls = counted.calls.saturating_add(count);
                counted.ns = counted.ns.saturating_add(lowest_ns.saturating_mul(count));
                counted.worst_ns = counted.worst_ns.max(bucket.worst_from_start_ns.max(lowest_ns));
            }
        }
        counted
    }
}

/// The histograms of a log: those of no thread in particular, or all where each has a name (a map of bpftrace, a lock
/// of perf's).
pub fn counted_buckets(recording: &Recording) -> impl Iterator<Item = &LatencyBucket> {
    let each_named = recording.latency.iter().all(|bucket| !bucket.thread.is_empty());
    recording.latency.iter().filter(move |bucket| each_named || bucket.thread.is_empty())
}

impl CauseSum {
    fn new(cause: Cause) -> CauseSum {
        CauseSum {
            cause,
            lost_ns: 0,
            calls: 0,
            worst_ns: 0,
            worst_call: None,
            damaged: 0,
            by_op_ns: BTreeMap::new(),
            by_stack_ns: HashMap::default(),
            by_duration_ns: [0; DurationBasis::ALL.len()],
            by_cause_ns: [0; CauseBasis::ALL.len()],
        }
    }

    /// How well the length of most of the time is known.
    #[must_use]
    pub fn duration_basis(&self) -> DurationBasis {
        most(DurationBasis::ALL, &self.by_duration_ns).unwrap_or(DurationBasis::Inferred)
    }

    /// How well the cause of most of the time is known.
    #[must_use]
    pub fn cause_basis(&self) -> CauseBasis {
        most(CauseBasis::ALL, &self.by_cause_ns).unwrap_or(CauseBasis::Elimination)
    }

    /// The stack with the most time in this cause.
    #[must_use]
    pub fn top_stack(&self) -> Option<StackId> {
        self.by_stack_ns.iter().max_by_key(|&(id, ns)| (ns, std::cmp::Reverse(id))).map(|(id, _)| *id)
    }

    fn add(&mut self, ns: u64, known: (DurationBasis, CauseBasis), stack: Option<StackId>) {
        self.lost_ns = self.lost_ns.saturating_add(ns);
        for sum in [&mut self.by_duration_ns[known.0 as usize], &mut self.by_cause_ns[known.1 as usize]] {
            *sum = sum.saturating_add(ns);
        }
        if let Some(stack) = stack {
            let of_stack = self.by_stack_ns.entry(stack).or_default();
            *of_stack = of_stack.saturating_add(ns);
        }
    }
}

/// The basis with the most time; of two with as much, the better.
fn most<B: Copy>(bases: &[B], sums_ns: &[u64]) -> Option<B> {
    let known = bases.iter().zip(sums_ns).rev().filter(|(_, ns)| **ns > 0);
    known.max_by_key(|(_, ns)| **ns).map(|(basis, _)| *basis)
}

impl<'a> Facts<'a> {
    #[must_use]
    pub fn of(recording: &'a Recording) -> Facts<'a> {
        Facts::of_calls(recording, |_| true)
    }

    /// Of the foreground's calls those that `keeps` wants, by their place in `Recording::calls`.
    #[must_use]
    pub fn of_calls(recording: &'a Recording, keeps: impl Fn(usize) -> bool) -> Facts<'a> {
        let header = &recording.header;
        let noise = [&header.noise_before, &header.noise_after];
        let mut facts = Facts {
            recording,
            calls: 0,
            lost_ns: 0,
            still_under_way: 0,
            under_way_ns_max: 0,
            duration_ns: duration_ns(recording),
            threshold_ns: if header.threshold_ns == 0 { THRESHOLD_NS_DEFAULT } else { header.threshold_ns },
            noise_ns: noise.into_iter().flatten().map(|noise| noise.gap_ns_max).max().unwrap_or(0),
            counted: Counted::default(),
            page_reads_ns: 0,
            charges: Charges::default(),
            page_reads: held_by_reads(recording),
            sums: Cause::ALL.iter().map(|&cause| CauseSum::new(cause)).collect(),
        };
        let neighbours: HashSet<&str> = header.target.neighbours.iter().map(String::as_str).collect();
        for (index, call) in recording.calls.iter().enumerate() {
            if keeps(index) && !neighbours.contains(call.thread.as_str()) {
                facts.add_call(index, call);
            }
        }
        let judged = |place: usize| {
            keeps(place) && recording.calls.get(place).is_some_and(|call| !neighbours.contains(call.thread.as_str()))
        };
        facts.charges = Charges::of(recording, judged);
        if recording.calls.is_empty() && header.source == Source::Import {
            facts.counted = Counted::of(recording, facts.threshold_ns);
        }
        facts
    }

    fn add_call(&mut self, index: usize, call: &Call) {
        self.calls += 1;
        self.lost_ns = self.lost_ns.saturating_add(call.duration_ns).saturating_add(call.after_exit_ns);
        if call.still_under_way {
            self.still_under_way += 1;
            self.under_way_ns_max = self.under_way_ns_max.max(call.duration_ns);
        }
        let mut of_call = [0_u64; Cause::ALL.len()];
        let mut tiled_ns = 0_u64;
        for segment in &call.segments {
            // A damaged or foreign file may hold segments longer than their call: never count more than the call.
            let ns = segment.ns.min(call.duration_ns.saturating_sub(tiled_ns));
            tiled_ns = tiled_ns.saturating_add(ns);
            let of_read = segment.cause == Cause::Lock && segment.stack.is_some_and(|id| self.page_reads.contains(&id));
            let known = (segment.duration_basis, segment.cause_basis);
            let (cause, known) = match of_read {
                // As long as measured, and whose it was is concluded.
                true => (Cause::SynchronousRead, (DurationBasis::Inferred, CauseBasis::Elimination)),
                false => (segment.cause, known),
            };
            self.page_reads_ns += if of_read { ns } else { 0 };
            of_call[cause as usize] = of_call[cause as usize].saturating_add(ns);
            self.sums[cause as usize].add(ns, known, segment.stack);
        }
        let rest_ns = call.duration_ns.saturating_sub(tiled_ns);
        of_call[Cause::Unexplained as usize] = of_call[Cause::Unexplained as usize].saturating_add(rest_ns);
        self.sums[Cause::Unexplained as usize].add(rest_ns, (DurationBasis::Measured, CauseBasis::Elimination), None);
        if call.after_exit_ns > 0 {
            of_call[Cause::MemcgOverHigh as usize] =
                of_call[Cause::MemcgOverHigh as usize].saturating_add(call.after_exit_ns);
            self.sums[Cause::MemcgOverHigh as usize].add(
                call.after_exit_ns,
                (DurationBasis::Measured, CauseBasis::Stack),
                None,
            );
        }
        for (sum, ns) in self.sums.iter_mut().zip(of_call).filter(|&(_, ns)| ns > 0) {
            sum.calls += 1;
            sum.damaged += u64::from(call.damaged);
            let by_op_ns = sum.by_op_ns.entry(call.op).or_default();
            *by_op_ns = by_op_ns.saturating_add(ns);
            if ns > sum.worst_ns {
                sum.worst_ns = ns;
                sum.worst_call = Some(index);
            }
        }
    }

    #[must_use]
    pub fn sum(&self, cause: Cause) -> &CauseSum {
        &self.sums[cause as usize]
    }

    pub fn sums(&self) -> impl Iterator<Item = &CauseSum> {
        self.sums.iter().filter(|sum| sum.calls > 0)
    }

    /// Share of all the time lost, 0 to 1.
    #[must_use]
    pub fn share(&self, sum: &CauseSum) -> f64 {
        if self.lost_ns == 0 { 0.0 } else { sum.lost_ns as f64 / self.lost_ns as f64 }
    }

    /// The cause's sum, if it cost enough to be a finding and stands above the machine's noise.
    #[must_use]
    pub fn significant(&self, cause: Cause) -> Option<&CauseSum> {
        let sum = self.sum(cause);
        let enough = self.enough(sum.lost_ns, sum.worst_ns) && self.share(sum) >= CAUSE_SHARE_MIN;
        let trusted = !(self.recording.header.time_distorted && cause.spec().processor_time);
        (enough && trusted && !self.is_noise(sum)).then_some(sum)
    }

    /// Whether the machine's own gaps could be all that was lost to the cause, so that it is not blamed.
    #[must_use]
    pub fn is_noise(&self, sum: &CauseSum) -> bool {
        sum.cause.spec().noise.has_floor() && sum.worst_ns <= self.noise_ns && !self.more_than_noise(sum)
    }

    /// One gap of the machine's is as long as the worst call, yet it cannot be all of them: many calls lost more than the
    /// longest gap and three times what gaps take on average from the time spent in calls.
    fn more_than_noise(&self, sum: &CauseSum) -> bool {
        let header = &self.recording.header;
        let noise = [&header.noise_before, &header.noise_after].into_iter().flatten();
        let share = noise.map(|noise| noise.gaps_total_ns as f64 / noise.spin_ns.max(1) as f64).fold(0.0, f64::max);
        let own = time_in_calls_ns(self.recording, self.duration_ns);
        sum.calls >= NOISY_CALLS_MIN && sum.lost_ns as f64 > self.noise_ns as f64 + 3.0 * share * own
    }

    /// Enough time was lost, in all or at once, to be a problem.
    #[must_use]
    pub fn enough(&self, lost_ns: u64, worst_ns: u64) -> bool {
        lost_ns > 0
            && (self.recording.header.source != Source::Import || worst_ns >= PASTED_NS_MIN)
            && (lost_ns as f64 >= self.duration_ns as f64 * LOST_SHARE_MIN
                || worst_ns >= self.threshold_ns.saturating_mul(WORST_THRESHOLDS_MIN))
    }

    /// Slow calls were recorded one by one and nearly all of their time has a cause: then counters have
    /// nothing to add about where the time went, only about why.
    #[must_use]
    pub fn spans_tell_all(&self) -> bool {
        let rest = self.sum(Cause::Unexplained);
        self.calls > 0 && (self.share(rest) < 0.1 || !self.enough(rest.lost_ns, rest.worst_ns))
    }

    /// Whether the recorded kernel is this one or later; `None` where the recording does not say.
    #[must_use]
    pub fn kernel_from(&self, version: [u32; 3]) -> Option<bool> {
        kernel_version(self.recording.header.machine.kernel.as_deref()?).map(|ours| ours >= version)
    }

    /// Somebody timed calls on this recording, slow or not; what counters suggest can then be checked.
    #[must_use]
    pub fn timed(&self) -> bool {
        // A tracer that watched every call and kept none has seen that none was slow.
        let watched =
            |hook: &HookStatus| hook.state == HookState::Exact && hook.serves.iter().any(|served| served == "calls");
        let Recording { header, latency, calls, .. } = self.recording;
        // Hooks on programs of others prove nothing by themselves: the processes that work may be others than those
        // that are watched, or may reach their files another way.
        let attached = || !self.watched_others() && header.hooks.iter().any(watched);
        !latency.is_empty() || !calls.is_empty() || attached()
    }

    /// Programs of others were watched, which do not time themselves.
    #[must_use]
    pub fn watched_others(&self) -> bool {
        let header = &self.recording.header;
        let named = !header.target.pids.is_empty() || header.target.cgroup.is_some() || !header.observed.is_empty();
        header.source == Source::Host && header.scenario.is_none() && named
    }

    /// The foreground lost enough time for something to be wrong.
    #[must_use]
    pub fn hurt(&self) -> bool {
        let worst_ns = self.sums.iter().map(|sum| sum.worst_ns).max().unwrap_or(0);
        self.enough(self.lost_ns, worst_ns) || self.enough(self.counted.ns, self.counted.worst_ns)
    }

    /// Counters may accuse only where nobody timed calls, or where calls were slow: a machine that scans
    /// pages or runs at full load while every call stays fast has no problem that we could name. In distorted time
    /// a fast call proves nothing, and counters are what can be trusted.
    #[must_use]
    pub fn may_infer(&self) -> bool {
        !self.timed() || self.hurt() || self.recording.header.time_distorted
    }

    /// Counters may say where time went: as `may_infer`, but not where the segments of calls said it already.
    #[must_use]
    pub fn may_infer_place(&self) -> bool {
        self.may_infer() && !self.spans_tell_all()
    }
}

/// `6.18.5-cloud` -> 6, 18, 5, and so the simulator's `linux-2.2.3`. What is missing counts as 0; a text that does not
/// start with a number has none.
#[must_use]
pub fn kernel_version(release: &str) -> Option<[u32; 3]> {
    let release = release.strip_prefix("linux-").unwrap_or(release);
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|digits| digits.parse::<u32>().ok());
    Some([numbers.next()?, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)])
}

/// Time that the foreground spent in its calls, slow or not, ns; all of the time where nobody counted calls.
fn time_in_calls_ns(recording: &Recording, duration_ns: u64) -> f64 {
    let buckets = recording.latency.iter().filter(|bucket| bucket.thread.is_empty());
    let steps = buckets.flat_map(|bucket| bucket.from_start.steps());
    let ns: f64 = steps.map(|(_, highest_ns, count)| highest_ns as f64 * count as f64).sum();
    if ns > 0.0 { ns } else { duration_ns as f64 }
}

fn duration_ns(recording: &Recording) -> u64 {
    if recording.header.duration_ns > 0 {
        return recording.header.duration_ns;
    }
    let series = recording.series.iter().flat_map(|series| series.at_ns().iter().copied());
    let calls = recording.calls.iter().flat_map(|call| [call.start_ns, call.end_ns()]);
    let (first, last) = series.chain(calls).fold((u64::MAX, 0), |(first, last), at| (first.min(at), last.max(at)));
    last.saturating_sub(first)
}

#[cfg(test)]
mod tests {
    use super::kernel_version;

    #[test]
    fn kernel_releases_are_compared_as_numbers() {
        assert_eq!(kernel_version("6.18.5-cloud+2"), Some([6, 18, 5]));
        assert_eq!(kernel_version("2.6.32-431.el6.x86_64"), Some([2, 6, 32]));
        assert_eq!(kernel_version("6.1"), Some([6, 1, 0]));
        assert_eq!(kernel_version("linux-2.2.3"), Some([2, 2, 3]));
        assert_eq!(kernel_version("linux"), None);
    }
}
