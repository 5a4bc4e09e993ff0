//! Which readers CFQ and bfq do not wait for: those that seek.
//!
//! Models: the history of 32 requests of each process (block/cfq-iosched.c: cfq_update_io_seektime, CFQQ_SEEKY, 2.6.34; 2.6.33 has a
//! mean with the same purpose, block/bfq-iosched.c a history of 19): on a disk with an arm a request counts as a seek if it is over
//! 800 sectors from where the last one ended, without an arm if it is of less than 32 KiB. Who sought more than 4 times of 32 is
//! served in turn with all others that seek, and what each has queued goes to the device at once.

use std::collections::BTreeMap;

use super::clock::TaskId;
use super::constant::constants;

constants! {
    const FAR_PAGES: u64 = kernel(100, "block/cfq-iosched.c", "CFQQ_SEEK_THR (8 * 100 sectors)", "2.6.34");
    const SMALL_PAGES: u64 = kernel(8, "block/cfq-iosched.c", "CFQQ_SECT_THR_NONROT (2 * 32 sectors)", "2.6.34");
    const SEEKS_OF_32: u32 = kernel(4, "block/cfq-iosched.c", "CFQQ_SEEKY (hweight32 > 32/8)", "2.6.34");
}

#[derive(Clone, Copy, Debug, Default)]
struct History {
    bits: u32,
    last_end: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Seeks {
    of: BTreeMap<TaskId, History>,
    /// The one that had its turn last.
    last: TaskId,
}

impl Seeks {
    pub fn note(&mut self, reader: TaskId, position: u64, pages: u64, has_arm: bool) {
        let history = self.of.entry(reader).or_default();
        let is_seek = match history.last_end {
            _ if !has_arm => pages < SMALL_PAGES.get(),
            Some(end) => position.abs_diff(end) > FAR_PAGES.get(),
            None => false,
        };
        history.bits = history.bits << 1 | u32::from(is_seek);
        history.last_end = Some(position + pages);
    }

    pub fn is_seeky(&self, reader: TaskId) -> bool {
        self.of.get(&reader).is_some_and(|history| history.bits.count_ones() > SEEKS_OF_32.get())
    }

    /// The next of those that seek, one after the other.
    pub fn next(&mut self, readers: impl Iterator<Item = TaskId> + Clone) -> Option<TaskId> {
        let last = self.last;
        let next = readers.clone().find(|&reader| reader > last).or_else(|| readers.min())?;
        self.last = next;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::Seeks;

    #[test]
    fn who_sought_in_more_than_four_of_32_requests_is_seeky() {
        let mut seeks = Seeks::default();
        // The first request is compared with nothing; 100 pages are not far, 101 are.
        (0..5).for_each(|step| seeks.note(1, step * 201, 100, true));
        assert!(!seeks.is_seeky(1), "four seeks of 101 pages");
        seeks.note(1, 5 * 201, 100, true);
        assert!(seeks.is_seeky(1), "the fifth");
        (0..28).for_each(|step| seeks.note(1, 5 * 201 + 100 + step, 1, true));
        assert!(!seeks.is_seeky(1), "four are left in the last 32");
        (0..8).for_each(|step| seeks.note(2, step * 201, 100, true));
        (0..8).for_each(|step| seeks.note(3, step * 8, 8, false));
        (0..8).for_each(|step| seeks.note(4, step * 4, 4, false));
        assert_eq!(
            [2, 3, 4].map(|reader| seeks.is_seeky(reader)),
            [true, false, true],
            "without an arm small ones seek"
        );
        let all = [2, 4, 9];
        let turns: Vec<_> = (0..4).filter_map(|_| seeks.next(all.into_iter())).collect();
        assert_eq!(turns, [2, 4, 9, 2]);
    }
}
