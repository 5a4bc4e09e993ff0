//! The facts that finders read: the recording, and sums by cause over its slow calls.
//!
//! The sums are made in one pass, so that sixty finders need not make sixty passes over a million calls.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

use super::aggressor::Charges;
use super::page_lock::held_by_reads;
use super::sums::add_to;
use flatwater_recording::units::Nanos;
use flatwater_recording::{
    Call, Cause, CauseBasis, DurationBasis, HookState, HookStatus, LatencyBucket, OpKind, Recording, Source, StackId,
};

/// A cause is significant if it cost at least this share of the recorded time ...
pub const LOST_SHARE_MIN: f64 = 0.001;
/// ... or at least this many thresholds in one call ...
pub const WORST_THRESHOLDS_MIN: u64 = 10;
/// ... and in either case this share of all stall time: fixing less would not be noticed.
pub const CAUSE_SHARE_MIN: f64 = 0.01;
/// At least this many calls are not explained by two gaps of the machine.
const NOISY_CALLS_MIN: u64 = 4;
/// In an imported log, shorter calls are not stalls: a tool that prints everything prints them as well.
pub const PASTED_NS_MIN: u64 = 500_000;
/// The threshold of a recording that names none (some imports).
pub const THRESHOLD_NS_DEFAULT: u64 = 1_000_000;

/// A recording and the sums that the finders share.
#[derive(Debug)]
pub struct Facts<'a> {
    pub recording: &'a Recording,
    /// Foreground slow calls.
    pub calls: u64,
    /// Their time, and the time they lost on return to user space, ns.
    pub lost_ns: u64,
    /// Calls that had not returned at the recording's end, and the longest time of one until then.
    pub still_under_way: u64,
    pub under_way_ns_max: u64,
    /// Length of the recording, ns; from the header, otherwise from the calls and samples.
    pub duration_ns: u64,
    pub threshold_ns: u64,
    /// The largest gap of a thread that makes no system calls. Shorter delays are not blamed on memory management.
    pub noise_ns: u64,
    /// Calls over the threshold that a log only counts, in histograms.
    pub counted: Counted,
    /// Time spent waiting for a page that a read had locked, counted as that read; see `page_lock`.
    pub page_reads_ns: u64,
    /// Who made these calls wait, if the recording can tell.
    pub charges: Charges,
    /// Whose calls these are, as `Focused::who`; `None` if they are all slow calls.
    pub judged: Option<String>,
    page_reads: HashSet<StackId>,
    sums: Vec<CauseSum>,
}

/// A fast hash for the small numbers of stacks, which a million calls look up millions of times.
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

/// Exclusive time of one cause over the slow calls of the foreground.
#[derive(Clone, Debug)]
pub struct CauseSum {
    pub cause: Cause,
    pub lost_ns: u64,
    pub calls: u64,
    /// The longest time that one call lost to it, ns.
    pub worst_ns: u64,
    /// Index of that call in `Recording::calls`.
    pub worst_call: Option<usize>,
    /// Calls with this cause that lost an event, so that a segment may have the wrong cause.
    pub damaged: u64,
    pub by_op_ns: BTreeMap<OpKind, u64>,
    pub by_stack_ns: HashMap<StackId, u64, Spread>,
    by_duration_ns: [u64; DurationBasis::ALL.len()],
    by_cause_ns: [u64; CauseBasis::ALL.len()],
}

/// Slow calls that are known only as counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub calls: u64,
    /// A lower bound.
    pub ns: u64,
    pub worst_ns: u64,
    /// All counted calls are waits for locks.
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

/// The histograms of a log: those without a thread, or all if every histogram has a name (a map of bpftrace, a lock
/// of perf).
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

    /// How the length of most of the time is known.
    #[must_use]
    pub fn duration_basis(&self) -> DurationBasis {
        most(DurationBasis::ALL, &self.by_duration_ns).unwrap_or(DurationBasis::Inferred)
    }

    /// How the cause of most of the time is known.
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

/// The basis with the most time; of two with equal time the better.
fn most<B: Copy>(bases: &[B], sums_ns: &[u64]) -> Option<B> {
    let known = bases.iter().zip(sums_ns).rev().filter(|(_, ns)| **ns > 0);
    known.max_by_key(|(_, ns)| **ns).map(|(basis, _)| *basis)
}

impl<'a> Facts<'a> {
    #[must_use]
    pub fn of(recording: &'a Recording) -> Facts<'a> {
        Facts::of_calls(recording, |_| true)
    }

    /// Facts of those foreground calls for which `keeps` returns true, given the index in `Recording::calls`.
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
            judged: None,
        };
        let neighbours = recording.neighbours();
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
        add_to(&mut self.calls, 1);
        self.lost_ns = self.lost_ns.saturating_add(call.duration_ns).saturating_add(call.after_exit_ns);
        if call.still_under_way {
            add_to(&mut self.still_under_way, 1);
            self.under_way_ns_max = self.under_way_ns_max.max(call.duration_ns);
        }
        let mut of_call = [0_u64; Cause::ALL.len()];
        let mut tiled_ns = 0_u64;
        for segment in &call.segments {
            // A damaged or foreign file may have segments longer than their call: never count more than the call.
            let ns = segment.ns.min(call.duration_ns.saturating_sub(tiled_ns));
            tiled_ns = tiled_ns.saturating_add(ns);
            let of_read = segment.cause == Cause::Lock && segment.stack.is_some_and(|id| self.page_reads.contains(&id));
            let known = (segment.duration_basis, segment.cause_basis);
            let (cause, known) = match of_read {
                // The length was measured; that a read held the page is inferred.
                true => (Cause::SynchronousRead, (DurationBasis::Inferred, CauseBasis::Elimination)),
                false => (segment.cause, known),
            };
            add_to(&mut self.page_reads_ns, if of_read { ns } else { 0 });
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
            add_to(&mut sum.calls, 1);
            add_to(&mut sum.damaged, u64::from(call.damaged));
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

    /// The stall time that shares refer to, ns.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        if self.calls == 0 { self.counted.ns } else { self.lost_ns }
    }

    /// The same in words: `203 ms lost by request threads`.
    #[must_use]
    pub fn total(&self) -> String {
        let lost = Nanos(self.lost_ns);
        self.judged.as_ref().map_or_else(|| format!("{lost} lost"), |judged| format!("{lost} lost by {judged}"))
    }

    /// Share of the stall time of the judged calls, 0 to 1.
    #[must_use]
    pub fn share(&self, sum: &CauseSum) -> f64 {
        if self.lost_ns == 0 { 0.0 } else { sum.lost_ns as f64 / self.lost_ns as f64 }
    }

    /// The sum of this cause if it cost enough to be a finding and exceeds the machine's noise.
    #[must_use]
    pub fn significant(&self, cause: Cause) -> Option<&CauseSum> {
        let sum = self.sum(cause);
        let enough = self.enough(sum.lost_ns, sum.worst_ns) && self.share(sum) >= CAUSE_SHARE_MIN;
        let trusted = !(self.recording.header.time_distorted && cause.spec().processor_time);
        (enough && trusted && !self.is_noise(sum)).then_some(sum)
    }

    /// Whether the machine's own gaps could explain all time lost to the cause. If so it is not blamed.
    #[must_use]
    pub fn is_noise(&self, sum: &CauseSum) -> bool {
        sum.cause.spec().noise.has_floor() && sum.worst_ns <= self.noise_ns && !self.more_than_noise(sum)
    }

    /// Whether gaps cannot explain all of the time although the longest gap is as long as the worst call: at least
    /// four calls lost more than the longest gap plus three times what gaps cost on average in the time spent in
    /// calls.
    fn more_than_noise(&self, sum: &CauseSum) -> bool {
        let header = &self.recording.header;
        let noise = [&header.noise_before, &header.noise_after].into_iter().flatten();
        let share = noise.map(|noise| noise.gaps_total_ns as f64 / noise.spin_ns.max(1) as f64).fold(0.0, f64::max);
        let own = time_in_calls_ns(self.recording, self.duration_ns);
        sum.calls >= NOISY_CALLS_MIN && sum.lost_ns as f64 > self.noise_ns as f64 + 3.0 * share * own
    }

    /// Whether this time, in total or in one call, is enough to be a problem.
    #[must_use]
    pub fn enough(&self, lost_ns: u64, worst_ns: u64) -> bool {
        lost_ns > 0
            && (self.recording.header.source != Source::Import || worst_ns >= PASTED_NS_MIN)
            && (lost_ns as f64 >= self.duration_ns as f64 * LOST_SHARE_MIN
                || worst_ns >= self.threshold_ns.saturating_mul(WORST_THRESHOLDS_MIN))
    }

    /// Whether slow calls were recorded one by one and nearly all of their time has a cause. Counters can then add
    /// why time was lost, but not where.
    #[must_use]
    pub fn spans_tell_all(&self) -> bool {
        let rest = self.sum(Cause::Unexplained);
        self.calls > 0 && (self.share(rest) < 0.1 || !self.enough(rest.lost_ns, rest.worst_ns))
    }

    /// Whether the recorded kernel is this version or later; `None` if the recording does not say.
    #[must_use]
    pub fn kernel_from(&self, version: [u32; 3]) -> Option<bool> {
        kernel_version(self.recording.header.machine.kernel.as_deref()?).map(|ours| ours >= version)
    }

    /// Whether calls were timed in this recording, slow or not, so that suggestions of counters can be checked.
    #[must_use]
    pub fn timed(&self) -> bool {
        // A tracer that watched every call and kept none has shown that none was slow.
        let watched =
            |hook: &HookStatus| hook.state == HookState::Exact && hook.serves.iter().any(|served| served == "calls");
        let Recording { header, latency, calls, .. } = self.recording;
        // Hooks on other programs prove nothing by themselves: the processes that work may not be the watched ones,
        // or may reach their files another way.
        let attached = || !self.watched_others() && header.hooks.iter().any(watched);
        !latency.is_empty() || !calls.is_empty() || attached()
    }

    /// Whether the targets are programs other than flatwater's workloads, which do not time themselves.
    #[must_use]
    pub fn watched_others(&self) -> bool {
        let header = &self.recording.header;
        let named = !header.target.pids.is_empty() || header.target.cgroup.is_some() || !header.observed.is_empty();
        header.source == Source::Host && header.scenario.is_none() && named
    }

    /// Whether slow calls were only seen at intervals, asleep: a recording without privileges.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        let hooked = self.recording.header.hooks.iter().any(|hook| hook.state != HookState::Unavailable);
        let measured = |sum: &CauseSum| sum.by_duration_ns[DurationBasis::Measured as usize] > 0;
        self.watched_others() && !hooked && self.calls > 0 && !self.sums().any(measured)
    }

    /// Whether the foreground lost enough time to be a problem.
    #[must_use]
    pub fn hurt(&self) -> bool {
        let worst_ns = self.sums.iter().map(|sum| sum.worst_ns).max().unwrap_or(0);
        self.enough(self.lost_ns, worst_ns) || self.enough(self.counted.ns, self.counted.worst_ns)
    }

    /// Whether counters may suggest causes: only if calls were not timed, or if calls were slow. A machine that
    /// scans pages or runs at full load while every call is fast has no stall to explain. In distorted time a fast
    /// call proves nothing, so counters are used.
    #[must_use]
    pub fn may_infer(&self) -> bool {
        !self.timed() || self.hurt() || self.recording.header.time_distorted
    }

    /// Whether counters may suggest where time went: as `may_infer`, and not if the segments of calls already tell.
    #[must_use]
    pub fn may_infer_place(&self) -> bool {
        self.may_infer() && !self.spans_tell_all()
    }
}

/// `6.18.5-cloud` -> 6, 18, 5; also the simulator's `linux-2.2.3`. Missing numbers count as 0; `None` if the text
/// does not begin with a number.
#[must_use]
pub fn kernel_version(release: &str) -> Option<[u32; 3]> {
    let release = release.strip_prefix("linux-").unwrap_or(release);
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|digits| digits.parse::<u32>().ok());
    Some([numbers.next()?, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)])
}

/// Time that the foreground spent in its calls, slow or not, ns; the whole duration if calls were not counted.
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
