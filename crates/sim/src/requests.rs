//! Requests of the queue: those that are to be had, and those that wait to be served, by place, by age and by whose they are.

use std::collections::{BTreeMap, BTreeSet};

use super::cfq;
use super::clock::{TaskId, WaitQueue};

/// What to do when a request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Clears writeback of these pages of a window: (inode, window, bits).
    Pages { inode: u32, first_page: u64, pages: u32 },
    /// The pages of a file up to this one have been read ahead.
    Ahead { inode: u32, end: u64 },
    /// Counts down a waiting task's reads or journal blocks.
    Wake(TaskId),
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub write: bool,
    /// On the disk, in pages.
    pub position: u64,
    pub pages: u32,
    pub done: Done,
    pub queued_ns: u64,
    /// Who submitted it.
    pub owner: TaskId,
    /// Somebody waits for it (rw_is_sync): a read, and from 2.6.30 on a write for an fsync.
    pub sync: bool,
    /// Its number in the order of arrival.
    pub order: u64,
    /// When the device took it.
    pub begun_ns: u64,
}

impl Request {
    /// One that is not queued yet; of no pages it is a flush of the device's cache.
    #[must_use]
    pub fn new(write: bool, position: u64, pages: u32, done: Done) -> Request {
        Request { write, position, pages, done, queued_ns: 0, owner: 0, sync: false, order: 0, begun_ns: 0 }
    }
}

/// Where a request stands: its position, and its number in the order of arrival.
pub type Key = (u64, u64);

/// Requests to be had of one kind (struct request_list): of a direction, from 2.6.30 on synchronous ones and others.
#[derive(Debug, Default)]
pub struct Pool {
    /// Allocated: queued and in service.
    pub count: u32,
    pub full: bool,
    /// Between the on and the off threshold it stays as it was.
    pub congested: bool,
    pub waiting: WaitQueue,
}

/// Queued requests: of a direction, with CFQ synchronous ones and others.
#[derive(Debug, Default)]
pub struct Side {
    pub sorted: BTreeMap<Key, Request>,
    /// The same by arrival.
    pub fifo: BTreeMap<u64, u64>,
    /// Who has requests here, and which.
    pub owners: BTreeSet<TaskId>,
    pub by_owner: BTreeMap<TaskId, BTreeSet<Key>>,
}

impl Side {
    pub fn push(&mut self, order: u64, request: Request) {
        self.fifo.insert(order, request.position);
        let key = (request.position, order);
        // Only what somebody waits for is looked for by whose it is.
        if request.sync {
            self.owners.insert(request.owner);
            self.by_owner.entry(request.owner).or_default().insert(key);
        }
        self.sorted.insert(key, request);
    }

    pub fn take(&mut self, key: Key) -> Option<Request> {
        self.fifo.remove(&key.1);
        let request = self.sorted.remove(&key)?;
        if let Some(own) = self.by_owner.get_mut(&request.owner).filter(|_| request.sync) {
            own.remove(&key);
            if own.is_empty() {
                self.by_owner.remove(&request.owner);
                self.owners.remove(&request.owner);
            }
        }
        Some(request)
    }

    /// The next one upwards from a place, of one owner or of all; from the lowest where none stands further up.
    pub fn upwards(&self, from: u64, owner: Option<TaskId>) -> Option<Key> {
        let Some(owner) = owner else {
            let next = self.sorted.range((from, 0)..).next().or_else(|| self.sorted.iter().next());
            return next.map(|(key, _)| *key);
        };
        let own = self.by_owner.get(&owner)?;
        own.range((from, 0)..).next().or_else(|| own.iter().next()).copied()
    }

    /// cfq_check_fifo: the one that came first, of one owner or of all, if it has waited for too long.
    pub fn overdue(&self, owner: Option<TaskId>, now_ns: u64) -> Option<Key> {
        let (first, expire_ns) = match owner {
            Some(owner) => {
                (self.by_owner.get(&owner)?.iter().min_by_key(|key| key.1).copied()?, cfq::FIFO_SYNC_NS.get())
            }
            None => (self.first()?, cfq::FIFO_ASYNC_NS.get()),
        };
        (now_ns > self.sorted.get(&first)?.queued_ns + expire_ns).then_some(first)
    }

    /// The one that came first.
    pub fn first(&self) -> Option<Key> {
        self.fifo.iter().next().map(|(&order, &position)| (position, order))
    }

    /// The next upwards.
    pub fn after(&self, key: Key) -> Option<Key> {
        self.sorted.range((key.0, key.1 + 1)..).next().map(|(&key, _)| key)
    }

    /// deadline_check_fifo.
    pub fn expired(&self, now_ns: u64, expire_ns: u64) -> bool {
        let oldest = self.first().and_then(|key| self.sorted.get(&key));
        oldest.is_some_and(|request| now_ns > request.queued_ns + expire_ns)
    }
}
