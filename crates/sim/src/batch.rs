//! How an fsync of ext3 and ext4 waits for others to join its transaction.
//!
//! Models: journal_stop of a synchronous handle whose process was not the last one to sync (fs/jbd/transaction.c): up to 2.6.28 it
//! sleeps for a jiffy, and again while handles were opened meanwhile; in 2.6.29 and later as long as commits took of late, unless
//! the transaction has run for so long already. The sleeper holds its handle: the commit begins when all are closed, and
//! who comes after it was asked for joins the next transaction. Since 2.6.32 (ext3) and 2.6.33 (ext4) fsync asks for the commit
//! without a handle of its own, and nobody waits. Leaves out: O_SYNC writes, which are batched in every version.

use super::Machine;
use super::clock::{TaskId, WaitQueue, ticks_from};
use super::constant::constants;
use super::device::DeviceId;
use super::file_system::Kind;
use super::kernel::Batch;
use super::site::Site;
use super::task::{Culprit, Task};

constants! {
    const MAX_BATCH_NS: u64 = kernel(15_000_000, "fs/jbd2/journal.c", "JBD2_DEFAULT_MAX_BATCH_TIME (15000 us)", "2.6.29");
}

#[derive(Debug, Default)]
pub struct Batcher {
    /// Who synced last (j_last_sync_writer).
    last: Option<TaskId>,
    /// Handles that were opened in the running transaction (t_handle_count), and those of sleepers (t_updates).
    pub handles: u64,
    updates: u64,
    /// A commit waits for the open handles; nobody joins its transaction any more (T_LOCKED).
    pub locked: bool,
    /// j_average_commit_time.
    mean_commit_ns: u64,
    closed: WaitQueue,
    unlocked: WaitQueue,
}

impl Batcher {
    /// fs/jbd/commit.c: journal_commit_transaction, 2.6.29: three quarters of the last one.
    pub fn note_commit(&mut self, took_ns: u64) {
        self.mean_commit_ns = if self.mean_commit_ns == 0 { took_ns } else { (took_ns * 3 + self.mean_commit_ns) / 4 };
        self.handles = 0;
    }

    /// Until when a handle of 2.6.29 and later sleeps, in a transaction that began at `begun_ns`.
    fn until(&self, now_ns: u64, begun_ns: u64, most_ns: u64) -> Option<u64> {
        let commit_ns = self.mean_commit_ns.min(most_ns);
        (now_ns - begun_ns < commit_ns).then_some(now_ns + commit_ns)
    }
}

/// The handle of an fsync: until it is closed. `begun_ns` is when the running transaction began.
pub async fn join(m: &Machine, device: DeviceId, task: &mut Task) {
    let own = m.device(device);
    let batch = match own.file_system.kind {
        Kind::Ext3 => m.profile.batches.ext3,
        Kind::Ext4 => m.profile.batches.ext4,
        _ => Batch::No,
    };
    if batch == Batch::No {
        return;
    }
    let me = m.clock.current();
    wait_unlocked(m, device, task).await;
    {
        let mut journal = own.journal.borrow_mut();
        journal.batcher.handles += 1;
        if journal.batcher.last.replace(me) == Some(me) {
            return;
        }
        journal.batcher.updates += 1;
    }
    match batch {
        Batch::Jiffies => loop {
            let before = own.journal.borrow().batcher.handles;
            task.park(m, Some(ticks_from(m.clock.now(), m.profile.jiffy_ns(), 1)), Site::CommitWait, Culprit::Nobody)
                .await;
            if own.journal.borrow().batcher.handles == before {
                break;
            }
        },
        Batch::CommitTime => {
            let most_ns = if own.file_system.kind == Kind::Ext3 { m.profile.jiffy_ns() } else { MAX_BATCH_NS.get() };
            let now = m.clock.now();
            let until = own.journal.borrow().batcher.until(now, own.journal.borrow().begun_at(now), most_ns);
            if let Some(until) = until {
                task.park(m, Some(until), Site::CommitWait, Culprit::Nobody).await;
            }
        }
        Batch::No => {}
    }
    close(m, device);
}

/// jbd2__journal_start: the running transaction has one handle more, once it is not locked.
pub async fn open(m: &Machine, device: DeviceId, task: &mut Task) {
    wait_unlocked(m, device, task).await;
    m.device(device).journal.borrow_mut().batcher.updates += 1;
}

/// jbd2_journal_stop.
pub fn close(m: &Machine, device: DeviceId) {
    let mut journal = m.device(device).journal.borrow_mut();
    journal.batcher.updates -= 1;
    if journal.batcher.updates == 0 {
        journal.batcher.closed.wake_all(&m.clock);
    }
}

/// start_this_handle: wait_transaction_locked.
pub async fn wait_unlocked(m: &Machine, device: DeviceId, task: &mut Task) {
    let own = m.device(device);
    while own.journal.borrow().batcher.locked {
        // Work is performed before the look that decides about sleeping.
        if task.pending_ns() > 0 {
            task.run(m).await;
            continue;
        }
        own.journal.borrow_mut().batcher.unlocked.join(m.clock.current());
        task.park(m, None, Site::HandleWait, Culprit::Device).await;
    }
}

/// journal_commit_transaction: the transaction is locked, and its open handles are waited for.
pub async fn lock(m: &Machine, device: DeviceId) {
    let own = m.device(device);
    own.journal.borrow_mut().batcher.locked = true;
    while own.journal.borrow().batcher.updates > 0 {
        own.journal.borrow_mut().batcher.closed.join(m.clock.current());
        m.clock.park(None).await;
    }
    let mut journal = own.journal.borrow_mut();
    journal.batcher.locked = false;
    journal.batcher.unlocked.wake_all(&m.clock);
}

#[cfg(test)]
mod tests {
    use super::Batcher;
    use crate::clock::ticks_from;
    use crate::{Options, run_with};
    use flatwater_recording::OpKind;
    use flatwater_workload::scenario::Scenario;

    #[test]
    fn a_handle_sleeps_for_a_commit_unless_its_transaction_has_run_for_one() {
        let mut batcher = Batcher::default();
        assert_eq!(batcher.until(1_000, 0, 4_000), None, "no commit is known yet");
        batcher.note_commit(800);
        batcher.note_commit(1_600);
        assert_eq!(batcher.mean_commit_ns, (1_600 * 3 + 800) / 4, "1400");
        assert_eq!(batcher.until(10_000, 9_000, 4_000), Some(11_400), "it runs for 1000 of 1400");
        assert_eq!(batcher.until(10_000, 8_600, 4_000), None, "it has run for 1400");
        assert_eq!(batcher.until(10_000, 9_900, 500), Some(10_500), "no longer than the limit");
        let next_tick = |now_ns| ticks_from(now_ns, 4_000_000, 1);
        assert_eq!((next_tick(3_999_999), next_tick(4_000_000)), (4_000_000, 8_000_000));
    }

    /// fsyncs a second of so many threads on a disk of 100 us a command.
    fn fsyncs(kernel: &str, threads: u32) -> u64 {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nkernel = '{kernel}'\nduration = '2s'\n[machine]\ncpus = 8\nnodes = ['1GiB']\n\
             disk = {{ latency = '100us', file_system = 'ext3' }}\n[[workload]]\nuse = 'access'\nthreads = {threads}\n\
             reads = 0\nsync = 'fsync'\nfile_size = '1MiB'\n"
        );
        let scenario = Scenario::parse("x", &text).expect("parses");
        let (recording, _) = run_with(&scenario, &Options::default(), |_| true).expect("runs");
        let own = recording.latency.iter().filter(|bucket| bucket.op == OpKind::Fsync);
        own.map(|bucket| bucket.from_start.count()).sum::<u64>() / 2
    }

    #[test]
    fn on_a_fast_disk_several_threads_lost_a_tick_for_each_sync_until_it_was_measured_what_a_commit_takes() {
        let [alone, before, after] = [fsyncs("linux-2.6.28", 1), fsyncs("linux-2.6.28", 2), fsyncs("linux-2.6.29", 2)];
        assert!(before <= 2 * 250, "a tick of 4 ms for both: {before}");
        assert!(alone > 2 * before && after > 2 * before, "{alone} alone, {after} in 2.6.29, {before} before");
    }

    /// A mean fsync, ms, beside a thread that overwrites pages here and there and sixteen that read so, on a drive with an arm.
    fn mean_fsync_ms(kernel: &str) -> f64 {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nkernel = '{kernel}'\nduration = '40s'\n[machine]\ncpus = 4\nnodes = ['1GiB']\n\
             disk = {{ write_bps = '100MB', seek = '8ms', file_system = 'ext4' }}\n[[workload]]\nuse = 'access'\nreads = 0\n\
             sync = 'fsync'\nfile_size = '16MiB'\npattern = 'sequential'\npause = '100ms'\n[[workload]]\nuse = 'access'\n\
             label = 'writer'\nrole = 'neighbour'\nreads = 0\nfile_size = '8GiB'\n[[workload]]\nuse = 'access'\nlabel = 'readers'\n\
             role = 'neighbour'\nthreads = 16\nshared = 'yes'\nfile_size = '8GiB'\n"
        );
        let scenario = Scenario::parse("x", &text).expect("parses");
        let (recording, _) = run_with(&scenario, &Options::default(), |_| true).expect("runs");
        let own = recording.latency.iter().filter(|bucket| bucket.op == OpKind::Fsync);
        let [count, sum_ns] = own.fold([0.0, 0.0], |[count, sum_ns], bucket| {
            let more = bucket.from_start.count() as f64;
            [count + more, sum_ns + more * bucket.from_start.unpack().mean()]
        });
        sum_ns / count / 1e6
    }

    /// A commit waits until the handle is closed under which the flusher submits up to 2048 pages into a full queue.
    #[test]
    fn a_commit_waited_for_what_the_flusher_submits_up_to_4_13() {
        let [before, after] = ["linux-4.13", "linux-4.14"].map(mean_fsync_ms);
        assert!(before > 1.5 * after, "{before} ms in 4.13, {after} in 4.14");
    }
}
