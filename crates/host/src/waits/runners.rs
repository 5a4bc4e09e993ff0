//! Finds the processes that ran on a CPU while a thread of a slow call, or a kernel thread that it waited for, was
//! runnable there.
//!
//! Invariant: at most `WAITS_MAX` waits are kept, each with the CPU's last `RUNS_KEPT` runs.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::identity::Identities;
use super::layout::{Run, RunnableRecord, size};
use crate::tracer::layout::text;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Call, CpuOwner, Task};

/// Keep at most this many waits for a CPU until their call is known; the oldest are dropped.
const WAITS_MAX: usize = 4_096;
/// Rows per wait: the processes that ran longest. The time of the others has no owner.
const ROWS_MAX: usize = 16;

/// A thread's wait for a CPU.
#[derive(Debug)]
pub struct Waited {
    cpu: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    runs: Vec<Run>,
}

/// Waits by thread; each thread's are in order of time.
#[derive(Debug, Default)]
pub struct Runners {
    waits: HashMap<u32, VecDeque<Waited>>,
    order: VecDeque<u32>,
}

impl Runners {
    pub fn add(&mut self, record: &RunnableRecord) {
        while self.order.len() >= WAITS_MAX {
            self.drop_oldest();
        }
        let RunnableRecord { cpu, start_ns, end_ns, .. } = *record;
        let waited = Waited { cpu, start_ns, end_ns, runs: record.runs().to_vec() };
        self.waits.entry(record.tid).or_default().push_back(waited);
        self.order.push_back(record.tid);
    }

    fn drop_oldest(&mut self) {
        let Some(tid) = self.order.pop_front() else { return };
        if let Some(of_thread) = self.waits.get_mut(&tid) {
            of_thread.pop_front();
            if of_thread.is_empty() {
                self.waits.remove(&tid);
            }
        }
    }

    /// Rows of the waits for a CPU within a call.
    pub fn of_call(&self, call: &Call, names: &mut Identities) -> Vec<CpuOwner> {
        let end_ns = call.end_ns().saturating_add(call.after_exit_ns);
        let within = self.of_thread(call.tid, call.start_ns, end_ns);
        let of_call = |row: CpuOwner| CpuOwner { call_tid: call.tid, call_start_ns: call.start_ns, ..row };
        within.flat_map(|waited| waited.rows((waited.start_ns, waited.end_ns), names)).map(of_call).collect()
    }

    /// Rows of the waits of a kernel thread, cut to the interval in which the call waited for that thread.
    pub fn of_kernel(&self, call: &Call, waiter: &Task, part: (u64, u64), names: &mut Identities) -> Vec<CpuOwner> {
        let of_call = |row: CpuOwner| CpuOwner {
            call_tid: call.tid,
            call_start_ns: call.start_ns,
            waiter: Some(waiter.clone()),
            ..row
        };
        let within = self.of_thread(waiter.tid, part.0, part.1);
        let cut = |waited: &Waited| (waited.start_ns.max(part.0), waited.end_ns.min(part.1));
        within.flat_map(|waited| waited.rows(cut(waited), names)).map(of_call).collect()
    }

    /// A thread's waits for a CPU that overlap an interval, in order of time.
    pub fn of_thread(&self, tid: u32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Waited> {
        let of_thread = self.waits.get(&tid).into_iter().flatten();
        of_thread.skip_while(move |waited| waited.end_ns <= from_ns).take_while(move |waited| waited.start_ns < to_ns)
    }
}

impl Waited {
    /// One row for each process that ran in this part of the wait, longest first, without a call. A CPU remembers only
    /// its last switches: the earlier part of a longer wait is assumed to be like the remembered one.
    pub fn rows(&self, (from_ns, to_ns): (u64, u64), names: &mut Identities) -> Vec<CpuOwner> {
        let remembered_ns = match self.runs.last() {
            Some(oldest) if self.runs.len() >= size::RUNS_KEPT => oldest.from_ns.max(self.start_ns),
            _ => self.start_ns,
        };
        // The requested part began before the remembered runs: use all of them as a sample.
        let sample = if from_ns < remembered_ns { (remembered_ns, self.end_ns) } else { (from_ns, to_ns) };
        let sampled_ns = u128::from(sample.1.saturating_sub(sample.0).max(1));
        let mut by_process: BTreeMap<u32, (u64, u32, &Run)> = BTreeMap::new();
        for run in &self.runs {
            let ns = run.to_ns.min(sample.1).saturating_sub(run.from_ns.max(sample.0));
            let row = by_process.entry(run.tgid).or_insert((0, 0, run));
            row.0 += ns;
            row.1 += u32::from(ns > 0);
        }
        let part_ns = u128::from(to_ns.saturating_sub(from_ns));
        for (ns, ..) in by_process.values_mut() {
            *ns = (u128::from(*ns) * part_ns / sampled_ns) as u64;
        }
        by_process.retain(|_, (ns, ..)| *ns > 0);
        let mut longest: Vec<_> = by_process.into_iter().collect();
        longest.sort_short_by_key(|(_, (ns, ..))| std::cmp::Reverse(*ns));
        longest.truncate(ROWS_MAX);
        let row = |(tgid, (ran_ns, runs, run)): (u32, (u64, u32, &Run))| CpuOwner {
            start_ns: from_ns,
            duration_ns: to_ns.saturating_sub(from_ns),
            cpu: self.cpu,
            owner: Some(names.owner(run.tid, tgid, &text(&run.comm))),
            ran_ns,
            runs,
            ..CpuOwner::default()
        };
        longest.into_iter().map(row).collect()
    }
}

/// A wait of a thread in which these processes ran one after the other for 10 ns each, up to its end.
#[cfg(test)]
pub fn made(tid: u32, start_ns: u64, ran: &[u32]) -> RunnableRecord {
    use super::layout::record;
    let end_ns = start_ns + 10 * ran.len() as u64;
    let mut kept = [Run::default(); size::RUNS_KEPT];
    for (place, &tgid) in ran.iter().rev().enumerate() {
        let to_ns = end_ns - 10 * place as u64;
        kept[place] = Run { from_ns: to_ns - 10, to_ns, tid: tgid, tgid, comm: *b"hog\0\0\0\0\0\0\0\0\0\0\0\0\0" };
    }
    let (kind, runs) = (record::RUNNABLE, ran.len() as u32);
    RunnableRecord { kind, cpu: 1, tid, tgid: tid, start_ns, end_ns, runs, unused: 0, run: kept }
}

#[cfg(test)]
mod tests {
    use super::{Runners, WAITS_MAX, made};
    use crate::waits::identity::Identities;
    use crate::waits::layout::{RunnableRecord, size};
    use flatwater_recording::{Call, OpKind};

    fn waited(start_ns: u64, ran: &[u32]) -> RunnableRecord {
        made(7, start_ns, ran)
    }

    fn call(start_ns: u64, duration_ns: u64) -> Call {
        Call::new(OpKind::Write, start_ns, duration_ns, Vec::new()).by(7, 7, "victim")
    }

    const HOG: u32 = u32::MAX - 5;
    const OTHER: u32 = u32::MAX - 6;

    #[test]
    fn each_process_is_charged_its_time_within_the_wait() {
        let (mut runners, mut names) = (Runners::default(), Identities::default());
        let mut early = waited(100, &[HOG, OTHER, HOG, HOG]);
        // It had the CPU before the wait began.
        early.run[3].from_ns = 50;
        runners.add(&early);
        runners.add(&waited(1_000, &[OTHER]));
        let rows = runners.of_call(&call(90, 200), &mut names);
        let times: Vec<(u32, u64, u32)> =
            rows.iter().map(|row| (row.owner.as_ref().map_or(0, |owner| owner.pid), row.ran_ns, row.runs)).collect();
        assert_eq!(times, [(HOG, 30, 3), (OTHER, 10, 1)]);
        assert!(rows.iter().all(|row| (row.start_ns, row.duration_ns, row.call_start_ns) == (100, 40, 90)));
        assert!(runners.of_call(&call(200, 700), &mut names).is_empty(), "between the two waits");
    }

    #[test]
    fn the_remembered_runs_are_a_sample_of_a_long_wait() {
        let (mut runners, mut names) = (Runners::default(), Identities::default());
        let runs: Vec<u32> = (0..size::RUNS_KEPT).map(|at| if at % 4 == 0 { OTHER } else { HOG }).collect();
        // The wait is ten times as long as the remembered runs.
        let all_ns = 10 * runs.len() as u64;
        let long = RunnableRecord { start_ns: 100_000 - 9 * all_ns, ..waited(100_000, &runs) };
        runners.add(&long);
        let rows = runners.of_call(&call(0, 200_000), &mut names);
        let times: Vec<u64> = rows.iter().map(|row| row.ran_ns).collect();
        assert_eq!(times, [10 * all_ns * 3 / 4, 10 * all_ns / 4]);
        let part =
            runners.of_thread(7, 0, 200_000).next().expect("the wait").rows((100_000 - 200, 100_000), &mut names);
        assert_eq!(part.iter().map(|row| row.ran_ns).collect::<Vec<_>>(), [150, 50], "before all that is remembered");
    }

    #[test]
    fn memory_is_bounded() {
        let mut runners = Runners::default();
        for at in 0..(2 * WAITS_MAX as u64) {
            runners.add(&RunnableRecord { tid: (at % 300) as u32, ..waited(100 * at, &[HOG]) });
        }
        assert_eq!(runners.waits.values().map(std::collections::VecDeque::len).sum::<usize>(), WAITS_MAX);
        assert_eq!(runners.order.len(), WAITS_MAX);
    }
}
