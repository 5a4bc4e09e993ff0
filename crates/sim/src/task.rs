//! One simulated thread: its CPU, and the ledger of where the time of its present call goes.
//!
//! CPU work is noted first and performed in one burst (`Task::run`), so that a call of a few microseconds costs
//! the simulator one event or none. State that the work touched has changed at the burst's start: two threads can
//! be out of step by at most one burst, which long loops keep under 100 us by running what they noted.

use super::Machine;
use super::clock::TaskId;
use super::site::Site;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    pub site: Site,
    pub ns: u64,
    /// Whoever made us wait, where one party did.
    pub by: Culprit,
}

/// The simulator's truth about a wait, which no tracer sees: who stood in the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Culprit {
    #[default]
    Nobody,
    /// The reader of /proc/slabinfo held a list lock.
    Monitor,
    /// Other threads that wanted the same thing.
    Peers,
    /// The device was slower than what was asked of it.
    Device,
}

/// What a thread was inside of, by the clock and apart from the ledger: the swarm holds the one against the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    DirtyThrottle,
    DirectReclaim,
    NodeReclaim,
    MemcgReclaim,
}

#[derive(Debug)]
pub struct Task {
    pub node: usize,
    /// CPUs this thread may run on; `None` is every one.
    pub pinned: Option<u16>,
    pub bound_node: Option<usize>,
    pub cpu: u16,
    /// In the scenario's memory cgroup.
    pub in_cgroup: bool,
    /// A kernel thread that reclaims (PF_MEMALLOC): may go below every watermark, never reclaims recursively.
    pub memalloc: bool,
    /// Its call may not enter the file system again (GFP_NOFS).
    pub no_fs: bool,
    /// It handles a page fault (lru_gen_in_fault).
    pub in_fault: bool,
    /// What it writes now is for an fsync (WB_SYNC_ALL).
    pub syncs: bool,
    pub spent: Vec<Spent>,
    /// The mechanisms that the present call was inside of, with the instants of entry and exit.
    pub inside: Vec<(Mechanism, u64, u64)>,
    /// CPU time noted but not yet performed, and from which entry on.
    pending_ns: u64,
    pending_from: usize,
    /// Pages dirtied since the dirty limits were last checked, and how many may be until the next check (3.2 and later).
    pub nr_dirtied: u64,
    pub nr_dirtied_pause: u64,
    /// When the last pause ended, jiffies; ahead of the clock while shorter pauses are not taken (`dirty_paused_when`).
    pub paused_when: Option<u64>,
    /// Its share of what is dirtied (2.6.32).
    pub dirties: super::throttle::TaskDirties,
    /// Its leave to batch requests on a full queue.
    pub batcher: super::requests::Batcher,
    /// It has waited for the user lock it asks for now.
    pub queued: bool,
    /// Its anonymous memory, and how many pages of it `read_kept` has filled.
    pub own_memory: Option<super::inode::InodeId>,
    pub own_pages: u64,
    /// The file of its last operation.
    pub last_file: Option<super::inode::InodeId>,
}

impl Task {
    #[must_use]
    pub fn new(node: usize, cpu: u16) -> Task {
        Task {
            node,
            pinned: None,
            bound_node: None,
            cpu,
            in_cgroup: false,
            memalloc: false,
            no_fs: false,
            in_fault: false,
            syncs: false,
            spent: Vec::with_capacity(32),
            inside: Vec::new(),
            pending_ns: 0,
            pending_from: 0,
            nr_dirtied: 0,
            nr_dirtied_pause: super::io_less::DIRTY_POLL_THRESH.get(),
            paused_when: None,
            dirties: super::throttle::TaskDirties::default(),
            batcher: super::requests::Batcher::default(),
            queued: false,
            own_memory: None,
            own_pages: 0,
            last_file: None,
        }
    }

    pub fn begin(&mut self) {
        self.spent.clear();
        self.inside.clear();
        self.pending_ns = 0;
        self.pending_from = 0;
    }

    /// Notes CPU work; it is performed by the next `run`.
    #[inline]
    pub fn work(&mut self, site: Site, ns: u64) {
        self.pending_ns += ns;
        self.note(site, ns, Culprit::Nobody);
    }

    /// When what is noted so far will have been performed, if nothing delays it.
    #[inline]
    pub fn instant(&self, m: &Machine) -> u64 {
        m.clock.now() + self.pending_ns
    }

    /// Leaves a mechanism that was entered at `from`.
    pub fn bracket(&mut self, m: &Machine, mechanism: Mechanism, from: u64) {
        let to = self.instant(m);
        if to > from {
            self.inside.push((mechanism, from, to));
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

    /// Performs the noted CPU work: waits for a CPU, burns it, lets interrupts in.
    pub async fn run(&mut self, m: &Machine) {
        if self.run_now(m) {
            return;
        }
        let mut left = std::mem::take(&mut self.pending_ns);
        while left > 0 {
            let asked = m.clock.now();
            let (cpu, slice) = super::cpu::acquire(m, self, left).await;
            let began = m.clock.now();
            self.insert(Site::RunQueue, began - asked);
            let stolen = m.cpus.borrow_mut().interrupt_left(cpu, began);
            self.insert(Site::Interrupt, stolen);
            m.clock.sleep_until(began + stolen + slice).await;
            super::cpu::release(m, cpu, slice + stolen);
            left -= slice;
        }
        self.pending_from = self.spent.len();
    }

    /// Performs it if nothing delays it; else nothing has happened yet.
    #[inline]
    pub fn run_now(&mut self, m: &Machine) -> bool {
        let performed = self.pending_ns == 0 || self.run_alone(m, self.pending_ns);
        if performed {
            self.pending_ns = 0;
            self.pending_from = self.spent.len();
        }
        performed
    }

    /// Nearly every burst of a journal: its CPU is idle, and nothing else happens before the burst is over. Has the same
    /// effects as taking the CPU, sleeping and giving it back.
    #[inline]
    fn run_alone(&self, m: &Machine, ns: u64) -> bool {
        let mut cpus = m.cpus.borrow_mut();
        let now = m.clock.now();
        let free = cpus.free_for(self.cpu, self.pinned, self.bound_node, now, ns);
        if free && m.clock.run_ahead(now + ns) {
            cpus.ran(self.cpu, ns);
            return true;
        }
        false
    }

    /// A delay of the burst is put before the work it delayed.
    fn insert(&mut self, site: Site, ns: u64) {
        if ns > 0 {
            let at = self.pending_from.min(self.spent.len());
            self.spent.insert(at, Spent { site, ns, by: Culprit::Nobody });
        }
    }

    /// Sleeps (or spins) until the instant, charged to the site.
    pub async fn wait_until(&mut self, m: &Machine, at: u64, site: Site, by: Culprit) {
        if self.pending_ns > 0 {
            self.run(m).await;
        }
        let from = m.clock.now();
        m.clock.sleep_until(at).await;
        self.note(site, m.clock.now() - from, by);
        self.pending_from = self.spent.len();
    }

    pub async fn sleep(&mut self, m: &Machine, ns: u64, site: Site) {
        if self.pending_ns > 0 {
            self.run(m).await;
        }
        let at = m.clock.now() + ns;
        self.wait_until(m, at, site, Culprit::Nobody).await;
    }

    /// Parks until woken or until the deadline; the caller has joined a wait queue. Work noted before must have
    /// been run, or a wake-up could come while it is burned.
    pub async fn park(&mut self, m: &Machine, deadline: Option<u64>, site: Site, by: Culprit) {
        debug_assert_eq!(self.pending_ns, 0, "run() before joining a wait queue");
        m.add_blocked(1);
        let from = m.clock.now();
        m.clock.park(deadline).await;
        m.add_blocked(-1);
        self.note(site, m.clock.now() - from, by);
        self.pending_from = self.spent.len();
    }

    pub fn id(&self, m: &Machine) -> TaskId {
        m.clock.current()
    }
}
