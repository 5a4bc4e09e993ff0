//! Which readers CFQ and bfq do not wait for: those that seek.
//!
//! Models: the history of 32 requests of each process (block/cfq-iosched.c: cfq_update_io_seektime, CFQQ_SEEKY, 2.6.34; 2.6.33 has a
//! mean with the same purpose, block/bfq-iosched.c a history of 19): on a disk with an arm a request counts as a seek if it is over
//! 800 sectors from where the last one ended, without an arm if it is of less than 32 KiB. Who sought more than 4 times of 32 is
//! served in turn with all others that seek, and what each has queued goes to the device at once. Before (2.6.18) a mean of the
//! distances in sectors, newer ones weighing more, that counts from 128 Ki on (cfq_update_io_seektime, CIC_SEEKY).

use std::collections::BTreeMap;

use super::clock::TaskId;
use super::constant::constants;

constants! {
    const FAR_PAGES: u64 = kernel(100, "block/cfq-iosched.c", "CFQQ_SEEK_THR (8 * 100 sectors)", "2.6.34");
    const SMALL_PAGES: u64 = kernel(8, "block/cfq-iosched.c", "CFQQ_SECT_THR_NONROT (2 * 32 sectors)", "2.6.34");
    const MEAN_FAR_SECTORS: u64 = kernel(131_072, "block/cfq-iosched.c", "CIC_SEEKY (128 * 1024)", "2.6.18");
    const FIRST_SAMPLES: u64 = kernel(60, "block/cfq-iosched.c", "cfq_update_io_seektime", "2.6.18");
    const FIRST_SECTORS: u64 = kernel(2_097_152, "block/cfq-iosched.c", "cfq_update_io_seektime (2*1024*1024)", "2.6.18");
    const LATER_SECTORS: u64 = kernel(131_072, "block/cfq-iosched.c", "cfq_update_io_seektime (2*1024*64)", "2.6.18");
    const SEEKS_OF_32: u32 = kernel(4, "block/cfq-iosched.c", "CFQQ_SEEKY (hweight32 > 32/8)", "2.6.34");
}

#[derive(Clone, Copy, Debug, Default)]
struct History {
    bits: u32,
    last_end: Option<u64>,
    mean: Mean,
}

/// Of distances in sectors, in 256ths.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    samples: u64,
    total: u64,
    sectors: u64,
}

impl Mean {
    /// cfq_update_io_seektime, 2.6.18.
    fn add(&mut self, sectors: u64) {
        let more = if self.samples <= FIRST_SAMPLES.get() { FIRST_SECTORS } else { LATER_SECTORS };
        let sectors = sectors.min(self.sectors * 4 + more.get());
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * sectors) / 8;
        self.sectors = (self.total + self.samples / 2) / self.samples;
    }
}

#[derive(Clone, Debug, Default)]
pub struct Seeks {
    of: BTreeMap<TaskId, History>,
    /// The one that had its turn last.
    last: TaskId,
    by_mean: bool,
}

impl Seeks {
    /// As up to 2.6.27.
    pub fn by_mean() -> Seeks {
        Seeks { by_mean: true, ..Seeks::default() }
    }

    pub fn note(&mut self, reader: TaskId, position: u64, pages: u64, has_arm: bool) {
        let history = self.of.entry(reader).or_default();
        let is_seek = match history.last_end {
            _ if !has_arm => pages < SMALL_PAGES.get(),
            Some(end) => position.abs_diff(end) > FAR_PAGES.get(),
            None => false,
        };
        history.mean.add(8 * position.abs_diff(history.last_end.unwrap_or(0)));
        history.bits = history.bits << 1 | u32::from(is_seek);
        history.last_end = Some(position + pages);
    }

    pub fn is_seeky(&self, reader: TaskId) -> bool {
        let far = |history: &History| match self.by_mean {
            true => history.mean.sectors > MEAN_FAR_SECTORS.get(),
            false => history.bits.count_ones() > SEEKS_OF_32.get(),
        };
        self.of.get(&reader).is_some_and(far)
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
    use super::{Mean, Seeks};

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

    #[test]
    fn up_to_2_6_27_a_mean_of_the_distances_decides() {
        let mut mean = Mean::default();
        // 32 samples of a 256th: 256 * 1000 / 8 = 32000, (32000 + 16) / 32 = 1000.
        mean.add(1000);
        assert_eq!((mean.samples, mean.total, mean.sectors), (32, 32_000, 1000));
        // (7 * 32 + 256) / 8 = 60; no more than 4 * 1000 + 2 Mi: (7 * 32000 + 256 * 2101152) / 8 = 67264864; + 30, / 60.
        mean.add(9_000_000);
        assert_eq!((mean.samples, mean.total, mean.sectors), (60, 67_264_864, 1_121_081));
        let mut seeks = Seeks::by_mean();
        seeks.note(1, 100, 4, true);
        assert!(!seeks.is_seeky(1), "800 sectors");
        seeks.note(1, 40_000, 4, true);
        assert!(seeks.is_seeky(1), "half of 319 168 sectors");
    }
}
