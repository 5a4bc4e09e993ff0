//! Turns looks at one thread into slow calls.

use std::collections::HashMap;

use super::read::{Accounts, Sample, Syscall, ThreadFiles};
use crate::tracer::calls::{self, BytesArg, FileArg, OffsetArg};
use flatwater_recording::{Call, Cause, CauseBasis, DurationBasis, OpKind, Segment, Stack, StackId, symbol};

/// Time beyond this many segments is joined to the last one and counts as unexplained.
const SEGMENTS_MAX: usize = 4_096;
/// Keep at most this many stacks: one for each kernel function in which a thread slept.
const STACKS_MAX: usize = 4_096;

/// The stacks that were seen: the scheduler and one function.
#[derive(Debug, Default)]
pub struct Stacks {
    ids: HashMap<String, StackId>,
    new: Vec<Stack>,
}

impl Stacks {
    fn id(&mut self, function: &str) -> Option<StackId> {
        if let Some(id) = self.ids.get(function) {
            return Some(*id);
        }
        let next = u32::try_from(self.ids.len()).ok().filter(|_| self.ids.len() < STACKS_MAX)?;
        self.ids.insert(function.to_owned(), StackId(next));
        self.new.push(Stack { id: StackId(next), frames: frames(function).map(str::to_owned).to_vec() });
        Some(StackId(next))
    }

    /// Stacks that were not returned before.
    pub fn take_new(&mut self) -> Vec<Stack> {
        std::mem::take(&mut self.new)
    }
}

/// A thread asleep is in schedule(), called by this function or by a primitive of the scheduler or of a lock in between.
fn frames(function: &str) -> [&str; 2] {
    ["schedule", function]
}

/// Functions that sleep for nothing but a lock: `wchan` shows the function that took the lock (kernel/sched/core.c:
/// get_wchan skips the scheduler's and the locks' own functions).
const LOCK_TAKERS: &[&str] = &[
    "ext4_buffered_write_iter",
    "ext4_dio_write_iter",
    "ext4_file_write_iter",
    "ext4_dio_read_iter",
    "ext4_fallocate",
    "ext4_map_blocks",
    "xfs_ilock",
    "xfs_file_write_checks",
    "btrfs_inode_lock",
    "f2fs_file_write_iter",
    "generic_file_write_iter",
    "blkdev_write_iter",
    "fdget_pos",
    "__fdget_pos",
    "open_last_lookups",
    "walk_component",
    "lookup_slow",
    "filename_create",
    "do_unlinkat",
    "do_rmdir",
    "lock_rename",
    "lock_two_directories",
    "iterate_dir",
    "do_truncate",
    "vfs_utimes",
    "chmod_common",
    "chown_common",
    "vfs_setxattr",
    "lock_mm_and_find_vma",
    "do_user_addr_fault",
    "vm_mmap_pgoff",
    "__vm_munmap",
    "do_madvise",
    "do_mprotect_pkey",
];

fn cause_of(function: &str) -> Option<Cause> {
    let named = symbol::meaning(&frames(function)).map(|found| found.cause);
    named.or_else(|| LOCK_TAKERS.contains(&symbol::base_name(function)).then_some(Cause::Lock))
}

/// An interval of a call and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interval {
    ns: u64,
    cause: Cause,
    duration: DurationBasis,
    basis: CauseBasis,
    stack: Option<StackId>,
}

#[derive(Debug)]
struct UnderWay {
    call: Syscall,
    start_ns: u64,
    /// The end of the last interval.
    until_ns: u64,
    intervals: Vec<Interval>,
    accounts: Accounts,
    file: Option<String>,
    name: String,
    /// The thread was not asleep at the last look: it ran within the call, or has returned.
    ran: bool,
}

/// The calls of one thread.
#[derive(Debug)]
pub struct ThreadCalls {
    pid: u32,
    tid: u32,
    threshold_ns: u64,
    looked_ns: Option<u64>,
    under_way: Option<UnderWay>,
}

impl ThreadCalls {
    #[must_use]
    pub fn new(pid: u32, tid: u32, threshold_ns: u64) -> ThreadCalls {
        ThreadCalls { pid, tid, threshold_ns, looked_ns: None, under_way: None }
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Adds a look. Returns the call that is over, if it was slow.
    pub fn add(&mut self, at_ns: u64, sample: Sample, files: &ThreadFiles, stacks: &mut Stacks) -> Option<Call> {
        let before_ns = self.looked_ns.replace(at_ns).unwrap_or(at_ns);
        match sample {
            Sample::Running => {
                if let Some(known) = &mut self.under_way {
                    known.ran = true;
                }
                None
            }
            Sample::Interruptible => self.end(midpoint(before_ns, at_ns)),
            Sample::Uninterruptible { call, function, accounts } => {
                let stack = function.as_deref().and_then(|function| stacks.id(function));
                let cause = function.as_deref().and_then(cause_of);
                let asleep = |ns| Interval {
                    ns,
                    cause: cause.unwrap_or(Cause::Unexplained),
                    duration: DurationBasis::Sampled,
                    basis: if cause.is_some() { CauseBasis::Channel } else { CauseBasis::Elimination },
                    stack,
                };
                if let Some(known) = self.under_way.as_mut().filter(|known| known.continues(&call, &accounts)) {
                    known.extend(before_ns, at_ns, &accounts, asleep);
                    return None;
                }
                let over = self.end(midpoint(before_ns, at_ns));
                // A wait outside of system calls is a page fault only if it waits for memory or a file.
                if call.number >= 0 || cause.is_some() {
                    let begun_ns = midpoint(before_ns, at_ns);
                    self.under_way = Some(UnderWay {
                        call,
                        start_ns: begun_ns,
                        until_ns: at_ns,
                        intervals: vec![asleep(at_ns - begun_ns)],
                        accounts,
                        file: file_of(&call, files),
                        name: files.name(),
                        ran: false,
                    });
                }
                over
            }
        }
    }

    /// The thread was not found any more.
    pub fn thread_ended(&mut self, at_ns: u64) -> Option<Call> {
        let before_ns = self.looked_ns.unwrap_or(at_ns);
        self.end(midpoint(before_ns, at_ns))
    }

    /// The call that has not returned at the end of the recording.
    pub fn under_way(&mut self, at_ns: u64) -> Option<Call> {
        let asleep = !self.under_way.as_ref()?.ran;
        let mut call = self.end(at_ns)?;
        call.still_under_way = asleep;
        Some(call)
    }

    /// Ends the call under way at `end_ns`, or if the thread ran since, when it was last seen asleep in the call.
    fn end(&mut self, end_ns: u64) -> Option<Call> {
        let mut known = self.under_way.take()?;
        let end_ns = if known.ran { known.until_ns } else { end_ns.max(known.until_ns) };
        let rest_ns = end_ns.saturating_sub(known.until_ns);
        if let Some(last) = known.intervals.last_mut() {
            last.ns = last.ns.saturating_add(rest_ns);
        }
        let duration_ns = end_ns.saturating_sub(known.start_ns);
        if duration_ns < self.threshold_ns {
            return None;
        }
        let timed = calls::find(known.call.number);
        let op = timed.map_or(OpKind::PageFault, |timed| timed.op);
        let argument = |index: usize| known.call.arguments.get(index).copied();
        let bytes = timed.and_then(|timed| match timed.bytes {
            BytesArg::At(index) => argument(index),
            BytesArg::None | BytesArg::Result => None,
        });
        let offset = timed.and_then(|timed| match timed.offset {
            OffsetArg::At(index) => argument(index),
            OffsetArg::None | OffsetArg::Position => None,
        });
        let segments = segments(&known.intervals);
        let call = Call::new(op, known.start_ns, duration_ns, segments).by(self.pid, self.tid, known.name);
        Some(call.on(known.file, bytes, offset))
    }
}

impl UnderWay {
    /// Whether a look found the thread in the same call. Between two equal calls that wait, a thread completes a
    /// transfer or faults on a page of a mapping. Calls on paths may repeat without either, but within one such call a
    /// thread runs only briefly.
    fn continues(&self, call: &Syscall, accounts: &Accounts) -> bool {
        let ran_ns = match (self.accounts.scheduled, accounts.scheduled) {
            (Some(before), Some(now)) => now.cpu_ns.saturating_sub(before.cpu_ns),
            _ if self.ran => u64::MAX,
            _ => 0,
        };
        let known = |accounts: &Accounts| (accounts.transfers, accounts.minor_faults);
        self.call == *call && known(&self.accounts) == known(accounts) && ran_ns <= cpu_ns_max(call)
    }

    fn extend(&mut self, before_ns: u64, at_ns: u64, accounts: &Accounts, asleep: impl Fn(u64) -> Interval) {
        let from_ns = self.until_ns;
        let slept_from_ns = if std::mem::take(&mut self.ran) {
            let until_ns = midpoint(before_ns, at_ns).max(from_ns);
            self.add_running(until_ns - from_ns, accounts);
            until_ns
        } else {
            from_ns
        };
        self.accounts = *accounts;
        self.until_ns = at_ns;
        self.push(asleep(at_ns.saturating_sub(slept_from_ns)));
    }

    /// Divides time in which the thread did not sleep into the time for which it waited for a CPU, and the rest.
    fn add_running(&mut self, ns: u64, accounts: &Accounts) {
        // `continues` has refused unknown accounts.
        let delay_ns = |accounts: &Accounts| accounts.scheduled.map_or(0, |scheduled| scheduled.run_delay_ns);
        let waited_ns = delay_ns(accounts).saturating_sub(delay_ns(&self.accounts)).min(ns);
        let interval = |ns, cause, basis| Interval { ns, cause, duration: DurationBasis::Sampled, basis, stack: None };
        self.push(interval(waited_ns, Cause::RunQueue, CauseBasis::Counters));
        self.push(interval(ns - waited_ns, Cause::Compute, CauseBasis::Elimination));
    }

    fn push(&mut self, interval: Interval) {
        if interval.ns == 0 {
            return;
        }
        let full = self.intervals.len() >= SEGMENTS_MAX;
        match self.intervals.last_mut() {
            Some(last) if (Interval { ns: last.ns, ..interval.clone() }) == *last => {
                last.ns = last.ns.saturating_add(interval.ns);
            }
            Some(last) if full => {
                (last.cause, last.basis, last.stack) = (Cause::Unexplained, CauseBasis::Elimination, None);
                last.ns = last.ns.saturating_add(interval.ns);
            }
            _ => self.intervals.push(interval),
        }
    }
}

/// A thread that ran longer than this between two waits has probably returned from its call.
fn cpu_ns_max(call: &Syscall) -> u64 {
    match calls::find(call.number).map(|timed| timed.file) {
        Some(FileArg::Descriptor(_) | FileArg::Descriptors(..) | FileArg::Address | FileArg::Nothing) => 50_000_000,
        Some(FileArg::Path(_) | FileArg::PathAt(_)) | None => 100_000,
    }
}

fn midpoint(from_ns: u64, to_ns: u64) -> u64 {
    from_ns + to_ns.saturating_sub(from_ns) / 2
}

fn segments(intervals: &[Interval]) -> Vec<Segment> {
    let mut offset_ns = 0;
    let tile = |interval: &Interval| {
        let Interval { ns, cause, duration, basis, stack } = *interval;
        let segment = Segment::new(offset_ns, ns, cause, duration, basis).with_stack(stack);
        offset_ns += ns;
        segment
    };
    intervals.iter().filter(|interval| interval.ns > 0).map(tile).collect()
}

fn file_of(call: &Syscall, files: &ThreadFiles) -> Option<String> {
    let path = |index: usize| files.path_of(*call.arguments.get(index)?);
    match calls::find(call.number)?.file {
        FileArg::Descriptor(index) => path(index),
        FileArg::Descriptors(first, second) => path(first).or_else(|| path(second)),
        // The path is in the program's memory.
        FileArg::Path(_) | FileArg::PathAt(_) | FileArg::Address | FileArg::Nothing => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::read::{Accounts, Sample, Syscall, ThreadFiles, Unreadable};
    use super::{Stacks, ThreadCalls};
    use crate::tasks::Scheduled;
    use flatwater_recording::{Call, Cause, CauseBasis, OpKind};

    const MS: u64 = 1_000_000;

    fn call(number: i64, arguments: [u64; 6]) -> Syscall {
        let number = i32::try_from(number).expect("a number of a system call");
        Syscall { number, arguments, stack_pointer: 1, instruction_pointer: 2 }
    }

    fn asleep(call: Syscall, function: &str, accounts: Accounts) -> Sample {
        Sample::Uninterruptible { call, function: Some(function.to_owned()), accounts }
    }

    fn fsync(function: &str) -> Sample {
        asleep(call(libc::SYS_fsync, [3, 0, 0, 0, 0, 0]), function, Accounts::default())
    }

    /// Looks once a millisecond, then finds the thread waiting for an event.
    fn calls(samples: Vec<Sample>) -> Vec<Call> {
        let place = tempfile::tempdir().expect("a directory");
        let own = place.path().join("7/task/7");
        std::fs::create_dir_all(&own).expect("created");
        std::fs::write(own.join("syscall"), "running\n").expect("written");
        std::fs::write(own.join("comm"), "db\n").expect("written");
        std::fs::create_dir(own.join("fd")).expect("created");
        std::os::unix::fs::symlink("/data/wal", own.join("fd/3")).expect("a link");
        let files = ThreadFiles::open(place.path(), 7, 7).expect("readable");
        let (mut thread, mut stacks) = (ThreadCalls::new(7, 7, 2 * MS), Stacks::default());
        let samples = samples.into_iter().chain([Sample::Interruptible]);
        let looks = (1..).map(|ms| ms * MS).zip(samples);
        let found: Vec<Call> = looks.filter_map(|(at, sample)| thread.add(at, sample, &files, &mut stacks)).collect();
        assert!(found.iter().all(Call::tiles), "{found:?}");
        found
    }

    fn times(call: &Call) -> Vec<(Cause, u64)> {
        call.segments.iter().map(|segment| (segment.cause, segment.ns / 1_000)).collect()
    }

    #[test]
    fn looks_at_one_call_are_joined_and_its_time_is_divided_by_function() {
        let mut looks = vec![Sample::Interruptible];
        looks.extend([fsync("folio_wait_bit"), fsync("folio_wait_bit"), fsync("jbd2_log_wait_commit")]);
        let [found] = &calls(looks)[..] else { panic!("one call") };
        assert_eq!((found.op, found.start_ns, found.duration_ns), (OpKind::Fsync, 3 * MS / 2, 3 * MS));
        assert_eq!((found.file.as_deref(), &*found.thread, found.pid), (Some("/data/wal"), "db", 7));
        let [(_, 1_500), (Cause::JournalCommit, 1_500)] = times(found)[..] else { panic!("{found:?}") };
    }

    #[test]
    fn a_file_system_function_that_only_sleeps_for_a_lock_is_a_lock() {
        let [found] = &calls(vec![fsync("ext4_buffered_write_iter"); 4])[..] else { panic!("one call") };
        assert_eq!((found.segments[0].cause, found.segments[0].cause_basis), (Cause::Lock, CauseBasis::Channel));
        let unknown = &calls(vec![fsync("some_driver_wait"); 4])[0].segments[0];
        assert_eq!((unknown.cause, unknown.cause_basis), (Cause::Unexplained, CauseBasis::Elimination));
    }

    #[test]
    fn a_completed_transfer_or_a_fault_separates_equal_calls() {
        let write = |accounts| asleep(call(libc::SYS_write, [1, 9, 4096, 0, 0, 0]), "balance_dirty_pages", accounts);
        let transfers = |count| Accounts { transfers: Some(count), ..Accounts::default() };
        let looks = [4, 4, 4, 4, 5, 5, 5].map(|count| write(transfers(count))).to_vec();
        let found = calls(looks);
        assert_eq!(found.iter().map(|call| call.duration_ns).collect::<Vec<_>>(), [7 * MS / 2, 3 * MS]);
        assert!(found.iter().all(|call| call.bytes == Some(4096)));
        let msync = |minor_faults| {
            let accounts = Accounts { minor_faults: Some(minor_faults), ..Accounts::default() };
            asleep(call(libc::SYS_msync, [4096, 4096, 4, 0, 0, 0]), "folio_wait_bit", accounts)
        };
        assert_eq!(calls([1, 1, 1, 2, 2, 2].map(msync).to_vec()).len(), 2);
    }

    #[test]
    fn time_on_the_cpu_between_two_waits_of_a_call_is_divided_by_schedstat() {
        let at = |cpu_ns, run_delay_ns| Accounts {
            scheduled: Some(Scheduled { cpu_ns, run_delay_ns }),
            ..Accounts::default()
        };
        let wait = |accounts| asleep(call(libc::SYS_fsync, [3, 0, 0, 0, 0, 0]), "folio_wait_bit", accounts);
        let looks = vec![wait(at(0, 0)), Sample::Running, Sample::Running, Sample::Running, wait(at(MS, 2 * MS))];
        let [found] = &calls(looks)[..] else { panic!("one call") };
        let waited: Vec<_> = times(found).into_iter().filter(|(cause, _)| *cause == Cause::RunQueue).collect();
        assert_eq!(waited, [(Cause::RunQueue, 2_000)]);
        // Calls on paths need no such time: the thread has returned and has called again.
        let unlink = |cpu_ns| asleep(call(libc::SYS_unlinkat, [5, 9, 0, 0, 0, 0]), "folio_wait_bit", at(cpu_ns, 0));
        let looks = vec![unlink(0), unlink(0), unlink(0), Sample::Running, unlink(MS), unlink(MS), unlink(MS)];
        assert_eq!(calls(looks).len(), 2);
    }

    /// Without schedstat a thread that ran may have returned: its time is not joined to one long call.
    #[test]
    fn a_thread_that_ran_for_an_unknown_time_has_returned() {
        let wait = || fsync("folio_wait_bit");
        let found = calls(vec![wait(), wait(), wait(), Sample::Running, wait(), wait(), wait()]);
        assert_eq!(found.iter().map(|call| call.duration_ns).collect::<Vec<_>>(), [2 * MS, 3 * MS]);
    }

    #[test]
    fn a_wait_outside_of_calls_is_a_page_fault_only_if_its_function_is_known() {
        let outside = |function: &str| asleep(call(-1, [0; 6]), function, Accounts::default());
        let fault = calls(vec![outside("folio_wait_bit"), outside("folio_wait_bit"), outside("folio_wait_bit")]);
        assert_eq!(fault.iter().map(|call| call.op).collect::<Vec<_>>(), [OpKind::PageFault]);
        assert!(calls(vec![outside("do_exit"), outside("do_exit"), outside("do_exit"), outside("do_exit")]).is_empty());
    }

    #[test]
    fn a_directory_that_is_not_a_thread_is_gone() {
        let absent = ThreadFiles::open(Path::new("/proc"), 1, u32::MAX);
        assert_eq!(absent.err(), Some(Unreadable::Gone));
    }
}
