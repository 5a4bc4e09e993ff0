//! The anticipatory scheduler in outline (block/as-iosched.c, 2.6.0 to 2.6.32): whose request is next.
//!
//! Models: batches of reads (500 ms) and of writes (125 ms) in turn; after a read the disk waits for a little while for the same
//! process's next one, which is likely to lie near it, although others are queued; where that does not come, the nearest one upwards is
//! next, whoever's it is (as_find_next_arq); every eighth of a second the oldest read and every quarter the oldest write is
//! served if it has waited for that long (as_fifo_expired). Leaves out: statistics of each process's think time and seek distance, which
//! can break the wait; short ways back; writes counted by batch.

use std::collections::BTreeSet;

use super::cfq::Turn;
use super::clock::TaskId;
use super::constant::constants;

constants! {
    const READ_BATCH_NS: u64 = kernel(500_000_000, "block/as-iosched.c", "default_read_batch_expire (HZ / 2)", "2.6.32");
    const WRITE_BATCH_NS: u64 = kernel(125_000_000, "block/as-iosched.c", "default_write_batch_expire (HZ / 8)", "2.6.32");
    const READ_EXPIRE_NS: u64 = kernel(125_000_000, "block/as-iosched.c", "default_read_expire (HZ / 8)", "2.6.32");
    const WRITE_EXPIRE_NS: u64 = kernel(250_000_000, "block/as-iosched.c", "default_write_expire (HZ / 4)", "2.6.32");
    const ANTIC_NS: u64 = kernel(6_666_667, "block/as-iosched.c", "default_antic_expire ((HZ / 150) ? HZ / 150 : 1)", "2.6.32");
}

#[derive(Debug, Default)]
pub struct Anticipatory {
    writes: bool,
    batch_end_ns: u64,
    /// Whose read was served last, and until when the disk waits for that process.
    last: Option<TaskId>,
    /// It was a write for an fsync, after which the disk waits for nobody.
    wrote: bool,
    waits_until_ns: Option<u64>,
    /// When the oldest read and the oldest write were looked for.
    looked_ns: [u64; 2],
}

impl Anticipatory {
    /// Whether whose turn it is has anything queued.
    pub fn goes_on(&self, readers: &BTreeSet<TaskId>, writes: bool) -> bool {
        if self.writes { writes } else { self.last.is_some_and(|last| readers.contains(&last)) }
    }

    /// as_fifo_expired: how old the oldest of a direction has to be, looked for as often.
    pub fn looks_for_overdue(&mut self, of_reads: bool, now_ns: u64) -> Option<u64> {
        let expire_ns = if of_reads { READ_EXPIRE_NS.get() } else { WRITE_EXPIRE_NS.get() };
        let looked_ns = &mut self.looked_ns[usize::from(!of_reads)];
        if now_ns < *looked_ns + expire_ns {
            return None;
        }
        *looked_ns = now_ns;
        Some(expire_ns)
    }

    /// Whether reads have their batch, of which one that is overdue ends the wait for another.
    pub fn reads(&self) -> bool {
        !self.writes
    }

    /// Whose read the disk was given.
    pub fn took(&mut self, reader: TaskId, write: bool) {
        (self.last, self.wrote, self.waits_until_ns) = (Some(reader), write, None);
    }

    /// As `Cfq::turn`.
    pub fn turn(&mut self, readers: &BTreeSet<TaskId>, writes: bool, has_arm: bool, now_ns: u64) -> Turn {
        let over = now_ns >= self.batch_end_ns;
        let own_empty = if self.writes { !writes } else { readers.is_empty() };
        let others = if self.writes { !readers.is_empty() } else { writes };
        let reads = !self.writes && !self.wrote;
        if reads && !over && has_arm && self.last.is_some_and(|last| !readers.contains(&last)) {
            let until = *self.waits_until_ns.get_or_insert(now_ns + ANTIC_NS.get());
            if now_ns < until {
                return Turn::Idle(until);
            }
        }
        self.waits_until_ns = None;
        if others && (over || own_empty) {
            self.writes = !self.writes;
            self.batch_end_ns = now_ns + if self.writes { WRITE_BATCH_NS.get() } else { READ_BATCH_NS.get() };
            self.last = None;
        } else if own_empty {
            self.last = None;
            return Turn::Nobody;
        } else if over {
            self.batch_end_ns = now_ns + if self.writes { WRITE_BATCH_NS.get() } else { READ_BATCH_NS.get() };
        }
        if self.writes {
            return Turn::Writes;
        }
        self.last = self.last.filter(|last| readers.contains(last));
        self.last.map_or(Turn::Nearest, Turn::Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::Anticipatory;
    use crate::cfq::Turn;
    use std::collections::BTreeSet;

    const MS: u64 = 1_000_000;

    #[test]
    fn reads_have_half_a_second_writes_an_eighth_of_one() {
        let mut all = Anticipatory::default();
        let readers = BTreeSet::from([3]);
        let turns: Vec<Turn> = (0..125).map(|step| all.turn(&readers, true, false, step * 5 * MS)).collect();
        let writes = turns.iter().filter(|turn| **turn == Turn::Writes).count();
        assert_eq!((turns[0], writes), (Turn::Writes, 25), "125 ms of 625");
    }

    #[test]
    fn the_disk_waits_for_the_last_reader_although_others_are_queued() {
        let mut all = Anticipatory::default();
        let (both, other) = (BTreeSet::from([3, 7]), BTreeSet::from([7]));
        assert_eq!(all.turn(&both, false, true, 0), Turn::Nearest);
        all.took(3, false);
        assert!(matches!(all.turn(&other, false, true, MS), Turn::Idle(until) if until == MS + 6_666_667));
        assert_eq!(all.turn(&both, false, true, 2 * MS), Turn::Reader(3), "it came back in time");
        assert!(matches!(all.turn(&other, false, true, 3 * MS), Turn::Idle(_)));
        assert_eq!(all.turn(&other, false, true, 10 * MS), Turn::Nearest, "whoever is next on the way");
    }
}
