//! The segments of an operation of io_uring or libaio, from its submission to its completion.
//!
//! They are laid in layers, of which each fills what the earlier ones left: the work itself, the queue for a worker,
//! waits for a CPU, and the time between the end of the work and its completion.

use std::rc::Rc;

use super::layout::{AsyncRecord, SleepRecord, row};
use super::ledger::Ledger;
use super::operations::Awaited;
use super::runners::Runners;
use crate::tracer::stacks::StackTable;
use flatwater_recording::{Cause, CauseBasis, DurationBasis, Segment, StackId};

/// The known parts of an operation's work.
pub struct Served<'a> {
    /// Sleeps of the thread or worker that performed it.
    pub sleeps: &'a [Rc<SleepRecord>],
    /// Its direct I/O.
    pub requests: &'a [Awaited],
    /// Sleeps of workers in other operations, behind which it was queued.
    pub ahead: &'a [Rc<SleepRecord>],
}

/// A thread that entered a system call for completions this shortly before it got this one did not wait for it.
const AWAY_NS_MIN: u64 = 20_000;

/// The segments of an operation; they sum to its duration.
pub fn of_operation(
    record: &AsyncRecord,
    served: &Served<'_>,
    (ledger, runners): (&Ledger, &Runners),
    stacks: &mut StackTable,
) -> Vec<Segment> {
    let mut tiles = Tiles { from_ns: record.submit_ns, to_ns: record.end_ns, known: Vec::new() };
    for sleep in served.sleeps {
        let stack = stacks.of_addresses(sleep.frames());
        let (cause, basis) = match stack.and_then(|stack| stacks.cause_of(stack)) {
            Some(cause) => (cause, CauseBasis::Stack),
            None => (Cause::Unexplained, CauseBasis::Elimination),
        };
        tiles.fill((sleep.start_ns, sleep.end_ns), (cause, DurationBasis::Measured, basis, stack));
    }
    let device = (Cause::DeviceWait, DurationBasis::Measured, CauseBasis::Bracketed, None);
    for (from_ns, request) in served.requests {
        tiles.fill((*from_ns, request.done_ns), device);
    }
    if record.punted != 0 {
        in_worker(record, served, runners, stacks, &mut tiles);
    }
    match work_ended_ns(record, served) {
        Some(ended_ns) => {
            if record.punted == 0 {
                waits_for_cpu(record.tid, (record.submit_ns, ended_ns), runners, &mut tiles);
            }
            uncollected(record, (served, ended_ns), (ledger, runners), stacks, &mut tiles);
        }
        None => waits_for_cpu(record.tid, (record.submit_ns, record.end_ns), runners, &mut tiles),
    }
    tiles.finish()
}

/// The queue for a worker, and the worker's waits for a CPU.
fn in_worker(record: &AsyncRecord, served: &Served<'_>, runners: &Runners, stacks: &mut StackTable, tiles: &mut Tiles) {
    let begun_ns = if record.worker_from_ns == 0 { record.end_ns } else { record.worker_from_ns };
    for sleep in served.ahead {
        let part = (sleep.start_ns.max(record.punt_ns), sleep.end_ns.min(begun_ns));
        let stack = stacks.of_addresses(sleep.frames());
        tiles.fill(part, (Cause::WorkerQueue, DurationBasis::Measured, CauseBasis::Bracketed, stack));
    }
    let until_ns = if record.worker_last_ns == 0 { record.end_ns } else { record.worker_last_ns };
    let mut workers: Vec<u32> = served.ahead.iter().map(|sleep| sleep.sleeper.tid).chain([record.worker]).collect();
    workers.sort_unstable();
    workers.dedup();
    for worker in workers.into_iter().filter(|worker| *worker != 0) {
        waits_for_cpu(worker, (record.punt_ns, until_ns), runners, tiles);
    }
    if record.worker_from_ns != 0 {
        let queued = (Cause::WorkerQueue, DurationBasis::Inferred, CauseBasis::Elimination, None);
        tiles.fill((record.punt_ns, record.worker_from_ns), queued);
        tiles.fill_short((record.worker_from_ns, until_ns));
    }
}

fn waits_for_cpu(tid: u32, (from_ns, to_ns): (u64, u64), runners: &Runners, tiles: &mut Tiles) {
    for waited in runners.of_thread(tid, from_ns, to_ns) {
        let part = (waited.start_ns.max(from_ns), waited.end_ns.min(to_ns));
        tiles.fill(part, (Cause::RunQueue, DurationBasis::Measured, CauseBasis::Bracketed, None));
    }
}

/// When the operation's work had ended, if that is known: its last request was done, its worker was seen in it for the
/// last time, or, for buffered libaio, io_submit() returned.
fn work_ended_ns(record: &AsyncRecord, served: &Served<'_>) -> Option<u64> {
    let worked = Some(record.worker_last_ns).filter(|ns| *ns != 0);
    let queued = || served.ahead.iter().map(|sleep| sleep.end_ns).max();
    let returned = || Some(record.returned_ns).filter(|ns| *ns != 0 && record.row != row::AIO_FSYNC);
    let requests = served.requests.iter().map(|(_, request)| request.done_ns).max();
    match requests {
        Some(done_ns) => Some(done_ns.max(record.worker_last_ns)),
        None if record.punted != 0 => worked.or_else(queued),
        None => returned(),
    }
    .map(|ns| ns.min(record.end_ns))
}

/// The time from the end of the work to the completion. The program's thread waited for a CPU, or did something else
/// than to collect completions, or waited for more completions than this one. If it slept for a single completion, the
/// kernel had not completed the operation: a worker had to convert unwritten extents, or did not get a CPU.
fn uncollected(
    record: &AsyncRecord,
    (served, ended_ns): (&Served<'_>, u64),
    (ledger, runners): (&Ledger, &Runners),
    stacks: &mut StackTable,
    tiles: &mut Tiles,
) {
    waits_for_cpu(record.tid, (ended_ns, record.end_ns), runners, tiles);
    for sleep in ledger.sleeps(record.tid, ended_ns, record.end_ns) {
        let stack = stacks.of_addresses(sleep.frames());
        let part = (sleep.start_ns.max(ended_ns), sleep.end_ns);
        tiles.fill(part, (Cause::CompletionWait, DurationBasis::Measured, CauseBasis::Bracketed, stack));
    }
    let away = (Cause::CompletionWait, DurationBasis::Inferred, CauseBasis::Elimination, None);
    let (from_ns, to_ns) = (record.reap_from_ns, record.reap_to_ns.max(record.reap_from_ns));
    if from_ns == 0 || to_ns <= ended_ns || to_ns - from_ns < AWAY_NS_MIN {
        return tiles.fill((ended_ns, record.end_ns), away);
    }
    tiles.fill((ended_ns, from_ns), away);
    if record.reap_count <= 1 && !served.requests.is_empty() {
        let kernel = (Cause::CompletionWork, DurationBasis::Inferred, CauseBasis::Elimination, None);
        tiles.fill((from_ns.max(ended_ns), to_ns), kernel);
    } else if record.reap_count > 1 {
        tiles.fill((from_ns.max(ended_ns), to_ns), away);
    }
    if record.end_ns.saturating_sub(to_ns) >= AWAY_NS_MIN {
        tiles.fill((to_ns, record.end_ns), away);
    }
}

/// A longer interval in which a worker neither slept nor waited for a CPU needs an explanation.
const WORK_NS_MAX: u64 = 1_000_000;

type What = (Cause, DurationBasis, CauseBasis, Option<StackId>);

/// The known parts of an interval, in order and without overlaps.
struct Tiles {
    from_ns: u64,
    to_ns: u64,
    known: Vec<(u64, u64, What)>,
}

impl Tiles {
    /// Fills the parts of this interval that are not yet known.
    fn fill(&mut self, (from_ns, to_ns): (u64, u64), what: What) {
        let (from_ns, to_ns) = (from_ns.max(self.from_ns), to_ns.min(self.to_ns));
        let first = self.known.partition_point(|(_, end_ns, _)| *end_ns <= from_ns);
        let mut at_ns = from_ns;
        let mut free = Vec::new();
        for (start_ns, end_ns, _) in self.known[first..].iter().take_while(|(start_ns, ..)| *start_ns < to_ns) {
            if *start_ns > at_ns {
                free.push((at_ns, *start_ns, what));
            }
            at_ns = at_ns.max(*end_ns);
        }
        if at_ns < to_ns {
            free.push((at_ns, to_ns, what));
        }
        for part in free {
            let place = self.known.partition_point(|(start_ns, ..)| *start_ns < part.0);
            self.known.insert(place, part);
        }
    }

    /// Fills the short parts of this interval that are not yet known: between two sleeps a worker performs the operation.
    fn fill_short(&mut self, (from_ns, to_ns): (u64, u64)) {
        let within = |known: &&(u64, u64, What)| known.1 > from_ns && known.0 < to_ns;
        let mut at_ns = from_ns;
        let mut short = Vec::new();
        let ends = [(to_ns, to_ns)];
        for (start_ns, end_ns) in self.known.iter().filter(within).map(|(start, end, _)| (*start, *end)).chain(ends) {
            if start_ns > at_ns && start_ns - at_ns <= WORK_NS_MAX {
                short.push((at_ns, start_ns));
            }
            at_ns = at_ns.max(end_ns);
        }
        for part in short {
            self.fill(part, (Cause::Compute, DurationBasis::Inferred, CauseBasis::Elimination, None));
        }
    }

    fn finish(self) -> Vec<Segment> {
        let unknown = (Cause::Unexplained, DurationBasis::Inferred, CauseBasis::Elimination, None);
        let mut segments = Vec::new();
        let mut at_ns = self.from_ns;
        let mut add = |from_ns: u64, to_ns: u64, (cause, duration, basis, stack): What| {
            let segment = Segment::new(from_ns - self.from_ns, to_ns - from_ns, cause, duration, basis);
            segments.push(segment.with_stack(stack));
        };
        for (from_ns, to_ns, what) in self.known {
            if from_ns > at_ns {
                add(at_ns, from_ns, unknown);
            }
            add(from_ns, to_ns, what);
            at_ns = to_ns;
        }
        if at_ns < self.to_ns || self.to_ns <= self.from_ns {
            add(at_ns, self.to_ns.max(at_ns), unknown);
        }
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::{Served, of_operation};
    use crate::kallsyms::Kallsyms;
    use crate::tracer::stacks::StackTable;
    use crate::waits::layout::{AsyncRecord, RequestRecord, SleepRecord, WaitTask, size};
    use crate::waits::ledger::Ledger;
    use crate::waits::runners::{Runners, made};
    use flatwater_recording::{Cause, Segment};
    use std::rc::Rc;

    fn table() -> StackTable {
        let symbols = "1000 T schedule\n2000 T folio_wait_writeback\n3000 T ext4_sync_file\n";
        StackTable::new(None, Kallsyms::parse(symbols.as_bytes()).expect("symbols"))
    }

    fn sleep(tid: u32, start_ns: u64, end_ns: u64) -> SleepRecord {
        let mut frames = [0; size::WAIT_FRAMES];
        frames[..3].copy_from_slice(&[0x1004, 0x2004, 0x3004]);
        let sleeper = WaitTask { tid, ..WaitTask::default() };
        SleepRecord { start_ns, end_ns, sleeper, frames, depth: 3, ..SleepRecord::default() }
    }

    fn causes(segments: &[Segment]) -> Vec<(Cause, u64)> {
        assert!(segments.windows(2).all(|pair| pair[0].offset_ns + pair[0].ns == pair[1].offset_ns), "{segments:?}");
        segments.iter().map(|segment| (segment.cause, segment.ns)).collect()
    }

    struct Known {
        sleeps: Vec<Rc<SleepRecord>>,
        requests: Vec<(u64, RequestRecord)>,
        ahead: Vec<Rc<SleepRecord>>,
        ledger: Ledger,
        runners: Runners,
    }

    fn known() -> Known {
        let (ledger, runners) = (Ledger::default(), Runners::default());
        Known { sleeps: Vec::new(), requests: Vec::new(), ahead: Vec::new(), ledger, runners }
    }

    fn segments(record: &AsyncRecord, known: &Known) -> Vec<(Cause, u64)> {
        let served = Served { sleeps: &known.sleeps, requests: &known.requests, ahead: &known.ahead };
        let segments = of_operation(record, &served, (&known.ledger, &known.runners), &mut table());
        assert_eq!(segments.iter().map(|segment| segment.ns).sum::<u64>(), record.end_ns - record.submit_ns);
        causes(&segments)
    }

    fn operation() -> AsyncRecord {
        AsyncRecord {
            row: 1,
            key: 1,
            submit_ns: 1_000_000,
            end_ns: 2_000_000,
            tid: 40,
            tgid: 40,
            opcode: 23,
            reap_count: 1,
            ..AsyncRecord::default()
        }
    }

    #[test]
    fn the_segments_name_what_the_worker_waited_for() {
        let sleeps = vec![Rc::new(sleep(50, 1_200_000, 1_500_000)), Rc::new(sleep(50, 1_600_000, 2_500_000))];
        let found = segments(&operation(), &Known { sleeps, ..known() });
        let (writeback, unknown) = (Cause::PageWriteback, Cause::Unexplained);
        assert_eq!(found, [(unknown, 200_000), (writeback, 300_000), (unknown, 100_000), (writeback, 400_000)]);
        assert_eq!(segments(&operation(), &known()), [(unknown, 1_000_000)]);
    }

    /// From a run of fio: direct writes that took 3 ms, of which the device worked for 0.16 ms.
    #[test]
    fn what_the_device_has_done_waits_for_its_program() {
        let request = RequestRecord { insert_ns: 1_010_000, done_ns: 1_200_000, ..RequestRecord::default() };
        let mut known = Known { requests: vec![(1_010_000, request)], ..known() };
        let (device, uncollected) = ((Cause::DeviceWait, 190_000), Cause::CompletionWait);
        let first = (Cause::Unexplained, 10_000);
        assert_eq!(segments(&operation(), &known), [first, device, (uncollected, 800_000)]);
        known.ledger.add_sleep(sleep(40, 1_300_000, 1_900_000));
        assert_eq!(
            segments(&operation(), &known),
            [first, device, (uncollected, 100_000), (uncollected, 600_000), (uncollected, 100_000)],
            "it slept in another call"
        );
    }

    #[test]
    fn a_program_that_sleeps_for_completions_is_not_to_blame() {
        let request = RequestRecord { insert_ns: 1_000_000, done_ns: 1_200_000, ..RequestRecord::default() };
        let known = Known { requests: vec![(1_000_000, request)], ..known() };
        let slept = AsyncRecord { reap_from_ns: 1_300_000, reap_to_ns: 1_995_000, ..operation() };
        let (device, uncollected) = ((Cause::DeviceWait, 200_000), (Cause::CompletionWait, 100_000));
        assert_eq!(
            segments(&slept, &known),
            [device, uncollected, (Cause::CompletionWork, 695_000), (Cause::Unexplained, 5_000)]
        );
        let for_more = AsyncRecord { reap_count: 16, ..slept };
        assert_eq!(
            segments(&for_more, &known),
            [device, uncollected, (Cause::CompletionWait, 695_000), (Cause::Unexplained, 5_000)]
        );
        let before = AsyncRecord { reap_from_ns: 900_000, reap_to_ns: 950_000, ..operation() };
        assert_eq!(segments(&before, &known), [device, (Cause::CompletionWait, 800_000)]);
    }

    #[test]
    fn a_queued_operation_waits_for_the_workers_other_operation_and_for_a_cpu() {
        let record = AsyncRecord {
            punted: 1,
            punt_ns: 1_000_000,
            worker: 50,
            worker_from_ns: 1_600_000,
            worker_last_ns: 1_900_000,
            ..operation()
        };
        let mut known = Known { ahead: vec![Rc::new(sleep(50, 900_000, 1_500_000))], ..known() };
        known.sleeps = vec![Rc::new(sleep(50, 1_600_000, 1_900_000))];
        known.runners.add(&crate::waits::layout::RunnableRecord { end_ns: 1_580_000, ..made(50, 1_500_000, &[9]) });
        assert_eq!(
            segments(&record, &known),
            [
                (Cause::WorkerQueue, 500_000),
                (Cause::RunQueue, 80_000),
                (Cause::WorkerQueue, 20_000),
                (Cause::PageWriteback, 300_000),
                (Cause::CompletionWait, 100_000),
            ]
        );
    }

    #[test]
    fn between_two_sleeps_a_worker_performs_the_operation() {
        let seen = |worker_from_ns, worker_last_ns| AsyncRecord {
            punted: 1,
            punt_ns: 1_000_000,
            worker: 50,
            worker_from_ns,
            worker_last_ns,
            ..operation()
        };
        let sleeps = vec![Rc::new(sleep(50, 1_200_000, 1_500_000)), Rc::new(sleep(50, 1_600_000, 1_900_000))];
        let slept = Known { sleeps, ..known() };
        let (queued, writeback, work) = (Cause::WorkerQueue, Cause::PageWriteback, Cause::Compute);
        let found = segments(&seen(1_200_000, 2_000_000), &slept);
        assert_eq!(
            found,
            [(queued, 200_000), (writeback, 300_000), (work, 100_000), (writeback, 300_000), (work, 100_000)]
        );
        // It completed the operation without a context switch.
        assert_eq!(segments(&seen(2_000_000, 2_000_000), &known()), [(queued, 1_000_000)]);
        let long = AsyncRecord { end_ns: 9_000_000, ..seen(1_200_000, 9_000_000) };
        assert_eq!(segments(&long, &slept).last(), Some(&(Cause::Unexplained, 7_100_000)));
    }

    #[test]
    fn buffered_libaio_is_done_when_io_submit_returns() {
        let known = Known { sleeps: vec![Rc::new(sleep(40, 1_000_000, 1_300_000))], ..known() };
        let record = AsyncRecord { libaio: 1, row: 5, returned_ns: 1_300_000, ..operation() };
        assert_eq!(segments(&record, &known), [(Cause::PageWriteback, 300_000), (Cause::CompletionWait, 700_000)]);
        let fsync = AsyncRecord { row: 6, ..record };
        assert_eq!(segments(&fsync, &known), [(Cause::PageWriteback, 300_000), (Cause::Unexplained, 700_000)]);
    }
}
