//! One simulated thread: its CPU, and the ledger of the present call's time.
//!
//! CPU work is noted first and performed in one burst (`Task::run`), so that a call of a few microseconds costs at most
//! one event. Its changes of state take effect at the burst's start: two threads can be out of step by at most one
//! burst. Long loops run their noted work often enough to keep that below 100 us.

use crate::Machine;
use crate::sched::site::Site;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    pub site: Site,
    pub ns: u64,
    /// The cause of the wait.
    pub by: Culprit,
}

/// The true cause of a wait, which no tracer sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Culprit {
    #[default]
    Unattributed,
    /// A reader of /proc/slabinfo had a list lock.
    Monitor,
    /// Other threads that wanted the same resource.
    Peers,
    /// The device was slower than the requests came.
    Device,
}

/// A wait that has not ended and is not in the ledger.
#[derive(Clone, Copy, Debug)]
struct Waits {
    site: Site,
    by: Culprit,
    from_ns: u64,
}

/// A mechanism that a thread was in, timed independently of the ledger; the swarm compares both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    DirtyThrottle,
    DirectReclaim,
    NodeReclaim,
    MemcgReclaim,
}

#[derive(Debug, Default)]
pub struct Task {
    pub node: usize,
    /// The CPU that this thread may run on; `None` for all.
    pub pinned: Option<u16>,
    pub bound_node: Option<usize>,
    pub cpu: u16,
    /// In the scenario's memory cgroup.
    pub in_cgroup: bool,
    /// A kernel thread that reclaims (PF_MEMALLOC): may go below every watermark, never reclaims recursively.
    pub memalloc: bool,
    /// Its call may not enter the file system again (GFP_NOFS).
    pub no_fs: bool,
    /// Its writes are for an fsync (WB_SYNC_ALL).
    pub syncs: bool,
    /// Purpose of the task's writes.
    pub writes: crate::block::wbt::Purpose,
    pub spent: Vec<Spent>,
    /// Mechanisms that the present call was in, with the instants of entry and exit.
    pub inside: Vec<(Mechanism, u64, u64)>,
    /// Mechanisms that it is in now, the innermost last, with the instant of entry.
    entered: Vec<(Mechanism, u64)>,
    /// Its present wait.
    waits: Option<Waits>,
    /// CPU time noted but not yet performed, and from which entry on.
    pending_ns: u64,
    pending_from: usize,
    /// Pages dirtied since the last check of the dirty limits, and the number at which the next check is due (3.2 and
    /// later).
    pub nr_dirtied: u64,
    pub nr_dirtied_pause: u64,
    /// When the last pause ended, jiffies; ahead of the clock while shorter pauses are not taken (`dirty_paused_when`).
    pub paused_when: Option<u64>,
    /// Its permission to batch requests on a full queue.
    pub batcher: crate::block::requests::Batcher,
    /// Its last request waits for requests that continue it (blk_start_plug).
    pub plugs: bool,
    pub plug: Option<crate::block::requests::Request>,
    /// The task has waited for the requested user lock.
    pub queued: bool,
    /// Its anonymous memory, and how many pages `read_kept` has filled.
    pub own_memory: Option<crate::fs::inode::InodeId>,
    pub own_pages: u64,
    /// The last operation's file.
    pub last_file: Option<crate::fs::inode::InodeId>,
}

impl Task {
    #[must_use]
    pub fn new(node: usize, cpu: u16) -> Task {
        Task { node, cpu, nr_dirtied_pause: crate::writeback::io_less::DIRTY_POLL_THRESH.get(), ..Task::default() }
    }

    pub fn begin(&mut self) {
        self.spent.clear();
        self.inside.clear();
        self.entered.clear();
        self.pending_ns = 0;
        self.pending_from = 0;
    }

    /// Notes CPU work; it is performed by the next `run`.
    #[inline]
    pub fn work(&mut self, site: Site, ns: u64) {
        self.pending_ns += ns;
        self.note(site, ns, Culprit::Unattributed);
    }

    /// The instant at which the noted work ends if it is not delayed.
    #[inline]
    pub fn instant(&self, m: &Machine) -> u64 {
        m.clock.now() + self.pending_ns
    }

    /// Enters a mechanism; `leave` follows.
    pub fn enter(&mut self, m: &Machine, mechanism: Mechanism) {
        let at = self.instant(m);
        self.entered.push((mechanism, at));
    }

    /// Leaves the mechanism that was entered last.
    pub fn leave(&mut self, m: &Machine) {
        let to = self.instant(m);
        if let Some((mechanism, from)) = self.entered.pop().filter(|&(_, from)| to > from) {
            self.inside.push((mechanism, from, to));
        }
    }

    /// Closes the ledger of an unfinished call: its wait lasts until now, and noted work that was not performed does
    /// not count.
    pub fn cut_off(&mut self, start_ns: u64, now_ns: u64) {
        let waits = self.waits.take().unwrap_or(Waits { site: Site::Work, by: Culprit::Unattributed, from_ns: now_ns });
        let mut left_ns = waits.from_ns.saturating_sub(start_ns);
        for spent in &mut self.spent {
            spent.ns = spent.ns.min(left_ns);
            left_ns -= spent.ns;
        }
        self.spent.retain(|spent| spent.ns > 0);
        self.note(Site::Work, left_ns, Culprit::Unattributed);
        self.note(waits.site, now_ns - waits.from_ns, waits.by);
        let inside = std::mem::take(&mut self.entered).into_iter().filter(|&(_, from)| from < now_ns);
        self.inside.extend(inside.map(|(mechanism, from)| (mechanism, from, now_ns)));
        for (_, _, to) in &mut self.inside {
            *to = (*to).min(now_ns);
        }
    }

    #[inline]
    pub fn pending_ns(&self) -> u64 {
        self.pending_ns
    }

    #[inline]
    fn note(&mut self, site: Site, ns: u64, by: Culprit) {
        if ns == 0 {
            return;
        }
        match self.spent.last_mut() {
            Some(last) if last.site == site && last.by == by => last.ns += ns,
            _ => self.spent.push(Spent { site, ns, by }),
        }
    }

    /// Performs the noted CPU work: waits for a CPU, uses it, is delayed by interrupts.
    pub async fn run(&mut self, m: &Machine) {
        if self.run_now(m) {
            return;
        }
        let mut left = std::mem::take(&mut self.pending_ns);
        while left > 0 {
            let asked = m.clock.now();
            self.waits = Some(Waits { site: Site::RunQueue, by: Culprit::Unattributed, from_ns: asked });
            let (cpu, slice) = crate::sched::cpu::acquire(m, self, left).await;
            self.waits = None;
            let has_cpu = m.clock.now();
            self.insert(Site::RunQueue, has_cpu - asked);
            let stolen = m.cpus.borrow().interrupt_left(cpu, has_cpu);
            m.clock.sleep_until(has_cpu + stolen + slice).await;
            let now = m.clock.now();
            let stolen = stolen.min(now - has_cpu);
            let slice = (now - has_cpu - stolen).min(slice);
            self.insert(Site::Interrupt, stolen);
            crate::sched::cpu::release(m, cpu, slice + stolen);
            left -= slice;
        }
        self.pending_from = self.spent.len();
    }

    /// Performs the noted work if nothing delays it; false without side effects otherwise.
    #[inline]
    pub fn run_now(&mut self, m: &Machine) -> bool {
        let performed = self.pending_ns == 0 || self.run_alone(m, self.pending_ns);
        if performed {
            self.pending_ns = 0;
            self.pending_from = self.spent.len();
        }
        performed
    }

    /// The common case: the CPU is idle, and no event is due before the burst ends. Has the same effects as taking
    /// the CPU, sleeping and giving it back.
    #[inline]
    fn run_alone(&self, m: &Machine, ns: u64) -> bool {
        let mut cpus = m.cpus.borrow_mut();
        let now = m.clock.now();
        let free = cpus.free_for(self.cpu, self.pinned, self.bound_node, now, ns);
        if free && m.clock.run_ahead(now + ns) {
            cpus.ran(self.cpu, ns, 1);
            return true;
        }
        false
    }

    /// Inserts a delay of the burst before the delayed work.
    fn insert(&mut self, site: Site, ns: u64) {
        if ns > 0 {
            let at = self.pending_from.min(self.spent.len());
            self.spent.insert(at, Spent { site, ns, by: Culprit::Unattributed });
        }
    }

    /// Sleeps (or spins) until the instant, charged to the site.
    pub async fn wait_until(&mut self, m: &Machine, at: u64, site: Site, by: Culprit) {
        if self.pending_ns > 0 {
            self.run(m).await;
        }
        let from = m.clock.now();
        self.waits = Some(Waits { site, by, from_ns: from });
        m.clock.sleep_until(at).await;
        self.waits = None;
        self.note(site, m.clock.now() - from, by);
        self.pending_from = self.spent.len();
    }

    pub async fn sleep(&mut self, m: &Machine, ns: u64, site: Site) {
        if self.pending_ns > 0 {
            self.run(m).await;
        }
        let at = m.clock.now() + ns;
        self.wait_until(m, at, site, Culprit::Unattributed).await;
    }

    /// Parks until woken or until the deadline; the caller has joined a wait queue. Noted work must have been performed
    /// before, or the wake-up could come during it.
    pub async fn park(&mut self, m: &Machine, deadline: Option<u64>, site: Site, by: Culprit) {
        debug_assert_eq!(self.pending_ns, 0, "run() before joining a wait queue");
        // kernel/sched/core.c: sched_submit_work.
        crate::block::unplug(m, self);
        m.add_blocked(1);
        let from = m.clock.now();
        self.waits = Some(Waits { site, by, from_ns: from });
        m.clock.park(deadline).await;
        self.waits = None;
        m.add_blocked(-1);
        self.note(site, m.clock.now() - from, by);
        self.pending_from = self.spent.len();
    }
}

#[cfg(test)]
mod tests {
    use super::{Culprit, Mechanism, Site, Spent, Task, Waits};

    fn spent(site: Site, ns: u64) -> Spent {
        Spent { site, ns, by: Culprit::Unattributed }
    }

    /// A call that began at 1000 has worked for 100 ns and waits since then.
    #[test]
    fn a_call_that_is_cut_off_in_a_wait_has_waited_until_then() {
        let mut task = Task::new(0, 0);
        task.work(Site::Work, 100);
        task.entered.push((Mechanism::DirtyThrottle, 1100));
        task.waits = Some(Waits { site: Site::BalanceDirty, by: Culprit::Device, from_ns: 1100 });
        task.cut_off(1000, 5000);
        let held = Spent { by: Culprit::Device, ..spent(Site::BalanceDirty, 3900) };
        assert_eq!(task.spent, [spent(Site::Work, 100), held]);
        assert_eq!(task.inside, [(Mechanism::DirtyThrottle, 1100, 5000)]);
    }

    #[test]
    fn a_call_that_is_cut_off_excludes_noted_work_that_was_not_performed() {
        let mut task = Task::new(0, 0);
        task.work(Site::Work, 100);
        task.work(Site::DirectReclaim, 300);
        task.work(Site::Work, 50);
        task.cut_off(1000, 1250);
        assert_eq!(task.spent, [spent(Site::Work, 100), spent(Site::DirectReclaim, 150)]);
        // The task has had no CPU since 1030.
        let mut task = Task::new(0, 0);
        task.work(Site::Work, 100);
        task.waits = Some(Waits { site: Site::RunQueue, by: Culprit::Unattributed, from_ns: 1030 });
        task.cut_off(1000, 2000);
        assert_eq!(task.spent, [spent(Site::Work, 30), spent(Site::RunQueue, 970)]);
    }
}
