//! The deadline elevator, and mq-deadline.

use super::{Block, Request};
use crate::constant::constants;

constants! {
    const FIFO_BATCH: u32 = kernel(16, "block/deadline-iosched.c", "fifo_batch", "2.6.18");
    const WRITES_STARVED: u32 = kernel(2, "block/deadline-iosched.c", "writes_starved", "2.6.18");
    const READ_EXPIRE_NS: u64 = kernel(500_000_000, "block/deadline-iosched.c", "read_expire (HZ/2)", "2.6.18");
    const WRITE_EXPIRE_NS: u64 = kernel(5_000_000_000, "block/deadline-iosched.c", "write_expire (5*HZ)", "2.6.18");
}

impl Block {
    /// block/deadline-iosched.c: deadline_dispatch_requests, 2.6.32 (block/mq-deadline.c has the same): a batch goes
    /// upwards; then reads, but after two batches of them writes; from the oldest, if it has expired or no request is
    /// further up.
    pub(crate) fn deadline_dispatch(&mut self, now_ns: u64) -> Option<Request> {
        let standing = self.deadline.next.filter(|_| self.deadline.batching < FIFO_BATCH.get());
        let (write, key) = match standing {
            Some(next) => next,
            None => {
                self.deadline.batching = 0;
                let [reads, writes] = [0, 1].map(|side| !self.sides[side].sorted.is_empty());
                let write = writes && (!reads || self.deadline.starved >= WRITES_STARVED.get());
                self.deadline.starved = if write { 0 } else { self.deadline.starved + u32::from(reads && writes) };
                let next = self.deadline.next.filter(|(direction, _)| *direction == write).map(|(_, key)| key);
                let expire_ns = if write { WRITE_EXPIRE_NS.get() } else { READ_EXPIRE_NS.get() };
                let side = &self.sides[usize::from(write)];
                let oldest = side.first()?;
                (write, if side.expired(now_ns, expire_ns) { oldest } else { next.unwrap_or(oldest) })
            }
        };
        self.deadline.batching += 1;
        let side = &mut self.sides[usize::from(write)];
        let next = side.after(key).map(|next| (write, next));
        let request = side.take(key);
        self.deadline.next = next;
        request
    }
}
