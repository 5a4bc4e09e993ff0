//! The elevators that go by process (`turns`): which of the queued requests is next.

use super::{Block, Request};
use crate::cfq::Turn;

impl Block {
    /// The same by turns: upwards among the requests of whose turn it is.
    pub(super) fn next_in_turn(&mut self, now_ns: u64) -> Option<Request> {
        let writes = !self.sides[1].sorted.is_empty();
        let has_arm = self.device.model.has_arm();
        // A queue's slice is over, or waited out, once the device has answered all of it.
        let in_service = self.device.accepted();
        let (turns, owners) = (self.turns.as_ref()?, &self.sides[0].owners);
        if turns.waits((in_service, now_ns), owners, writes, has_arm) {
            return None;
        }
        if let Some(request) = self.overdue_read(now_ns) {
            return Some(request);
        }
        let (of_writes, reader) = match self.turns.as_mut()?.turn(&self.sides[0].owners, writes, has_arm, now_ns) {
            Turn::Reader(task) => (false, Some(task)),
            Turn::Nearest => (false, None),
            Turn::Writes => (true, None),
            Turn::Idle(until_ns) => {
                self.idle_until_ns = Some(until_ns);
                return None;
            }
            Turn::Nobody => return None,
        };
        let head = self.head;
        let turns = self.turns.as_mut()?;
        let expire_ns = turns.looks_for_overdue(!of_writes, now_ns);
        let side = &mut self.sides[usize::from(of_writes)];
        let overdue = expire_ns.and_then(|expire_ns| side.overdue(reader, expire_ns, now_ns));
        let key = overdue.or_else(|| side.upwards(head, reader))?;
        let request = side.take(key);
        match request {
            Some(_) if of_writes => turns.took_write(),
            Some(request) => turns.took(request.owner, request.write),
            None => {}
        }
        request
    }

    /// One that has waited for too long, though the disk waits for another.
    fn overdue_read(&mut self, now_ns: u64) -> Option<Request> {
        let turns = self.turns.as_mut()?;
        let expire_ns = turns.looks_for_overdue_first(now_ns)?;
        let key = self.sides[0].overdue(None, expire_ns, now_ns)?;
        let request = self.sides[0].take(key)?;
        turns.took(request.owner, request.write);
        Some(request)
    }
}
