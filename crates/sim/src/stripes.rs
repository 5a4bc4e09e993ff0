//! Where the pages of an array are on its drives, and what a write has to read first.
//!
//! Models: md's raid0 (`raid0_map_sector` of one zone), raid1, raid10 with two near copies (`raid10_find_phys`), raid5 left
//! symmetric (`raid5_compute_sector`) with reads for a part of a stripe (`handle_stripe_dirtying5`), all of 2.6.32; a controller is
//! taken to do the same. Leaves out: zones of unequal drives, other layouts, missing drives.

use super::constant::constants;

/// How an array's drives hold its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Stripes,
    Mirrors,
    MirroredStripes,
    Parity,
}

impl Level {
    #[must_use]
    pub fn named(name: &str) -> Option<Level> {
        Some(match name {
            "raid0" => Level::Stripes,
            "raid1" => Level::Mirrors,
            "raid10" => Level::MirroredStripes,
            "raid5" => Level::Parity,
            _ => return None,
        })
    }

    /// The fewest drives that it makes sense with.
    #[must_use]
    pub fn drives_min(self) -> u32 {
        match self {
            Level::Stripes | Level::Mirrors | Level::MirroredStripes => 2,
            Level::Parity => 3,
        }
    }
}

/// Pages that follow each other on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub drive: usize,
    pub position: u64,
    pub pages: u64,
}

/// What a write makes of its drives: reads, and once they are done the writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub reads: Vec<Piece>,
    pub writes: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub level: Level,
    pub drives: u64,
    pub chunk_pages: u64,
}

constants! {
    const COPIES: u64 = kernel(2, "drivers/md/raid10.c", "run (near_copies of layout 0x102)", "2.6.32");
}

impl Geometry {
    /// Drives' worth of data.
    #[must_use]
    pub fn data_drives(&self) -> u64 {
        match self.level {
            Level::Stripes => self.drives,
            Level::Mirrors => 1,
            Level::MirroredStripes => self.drives / COPIES.get(),
            Level::Parity => self.drives - 1,
        }
    }

    /// Pages of one stripe: a chunk of each drive's worth of data.
    #[must_use]
    pub fn stripe_pages(&self) -> u64 {
        self.data_drives() * self.chunk_pages
    }

    /// The drives and the page there that hold a page: the first of them is read. raid1's are all drives at the same place.
    fn places(&self, page: u64) -> Vec<(usize, u64)> {
        let (chunk, within) = (page / self.chunk_pages, page % self.chunk_pages);
        match self.level {
            Level::Mirrors => (0..self.drives).map(|drive| (drive as usize, page)).collect(),
            Level::Stripes => {
                vec![((chunk % self.drives) as usize, chunk / self.drives * self.chunk_pages + within)]
            }
            Level::MirroredStripes => {
                let copy = |copy: u64| {
                    let at = chunk * COPIES.get() + copy;
                    ((at % self.drives) as usize, at / self.drives * self.chunk_pages + within)
                };
                (0..COPIES.get()).map(copy).collect()
            }
            Level::Parity => {
                let stripe = chunk / self.data_drives();
                let drive = (self.parity_drive(stripe) + 1 + chunk % self.data_drives()) % self.drives;
                vec![(drive as usize, stripe * self.chunk_pages + within)]
            }
        }
    }

    fn parity_drive(&self, stripe: u64) -> u64 {
        self.data_drives() - stripe % self.drives
    }

    /// The pieces of a read, each with the drives that could serve it.
    #[must_use]
    pub fn read(&self, from: u64, pages: u64) -> Vec<(Vec<usize>, Piece)> {
        let mut all: Vec<(Vec<usize>, Piece)> = Vec::new();
        self.each_chunk(from, pages, |page, count| {
            let places = self.places(page);
            let drives: Vec<usize> = places.iter().map(|(drive, _)| *drive).collect();
            let piece = Piece { drive: drives[0], position: places[0].1, pages: count };
            // Chunks that follow each other on a drive are one command there (its queue merges them).
            let before =
                all.iter_mut().find(|(own, last)| *own == drives && last.position + last.pages == piece.position);
            match before {
                Some((_, last)) => last.pages += count,
                None => all.push((drives, piece)),
            }
        });
        all
    }

    /// A write to an array without parity: every copy.
    #[must_use]
    pub fn write(&self, from: u64, pages: u64) -> Plan {
        let mut writes = Vec::new();
        self.each_chunk(from, pages, |page, count| {
            for (drive, position) in self.places(page) {
                join(&mut writes, Piece { drive, position, pages: count });
            }
        });
        Plan { reads: Vec::new(), writes }
    }

    /// handle_stripe_dirtying5: of these ranges of one stripe, page by page: the old data and parity are read (read-modify-write)
    /// where that is less than the other drives' data (reconstruct-write); nothing where the stripe is written as a whole.
    #[must_use]
    pub fn write_stripe(&self, ranges: &[(u64, u64)]) -> Plan {
        let mut plan = Plan::default();
        let Some(&(first, _)) = ranges.first() else { return plan };
        let stripe = first / self.stripe_pages();
        let base = stripe * self.stripe_pages();
        let parity = Piece { drive: self.parity_drive(stripe) as usize, position: stripe * self.chunk_pages, pages: 1 };
        let drive_of = |column: u64| self.places(base + column * self.chunk_pages)[0].0;
        for at in 0..self.chunk_pages {
            let written = |column: u64| {
                let page = base + column * self.chunk_pages + at;
                ranges.iter().any(|&(from, to)| (from..to).contains(&page))
            };
            let of_row = |drive: usize| Piece { drive, position: parity.position + at, pages: 1 };
            let count = (0..self.data_drives()).filter(|&column| written(column)).count() as u64;
            if count == 0 {
                continue;
            }
            let (modify, reconstruct) = (count + 1, self.data_drives() - count);
            for column in 0..self.data_drives() {
                let reads = if modify < reconstruct { written(column) } else { !written(column) };
                if reads {
                    join(&mut plan.reads, of_row(drive_of(column)));
                }
                if written(column) {
                    join(&mut plan.writes, of_row(drive_of(column)));
                }
            }
            if modify < reconstruct {
                join(&mut plan.reads, of_row(parity.drive));
            }
            join(&mut plan.writes, of_row(parity.drive));
        }
        plan
    }

    /// The parts of a range that lie in one chunk each.
    fn each_chunk(&self, from: u64, pages: u64, mut part: impl FnMut(u64, u64)) {
        let chunk = if self.level == Level::Mirrors { u64::MAX } else { self.chunk_pages };
        let (mut page, end) = (from, from + pages);
        while page < end {
            let stop = end.min((page / chunk).saturating_add(1).saturating_mul(chunk));
            part(page, stop - page);
            page = stop;
        }
    }
}

/// Adds a piece; one that goes on where another ends becomes part of it.
fn join(pieces: &mut Vec<Piece>, piece: Piece) {
    let before =
        pieces.iter_mut().find(|last| last.drive == piece.drive && last.position + last.pages == piece.position);
    match before {
        Some(last) => last.pages += piece.pages,
        None => pieces.push(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::{Geometry, Level, Piece};

    fn geometry(level: Level, drives: u64) -> Geometry {
        Geometry { level, drives, chunk_pages: 16 }
    }

    fn pieces(of: &[Piece]) -> Vec<(usize, u64, u64)> {
        of.iter().map(|piece| (piece.drive, piece.position, piece.pages)).collect()
    }

    #[test]
    fn raid0_has_its_chunks_in_turn_and_what_follows_on_a_drive_is_one_command() {
        let stripes = geometry(Level::Stripes, 3);
        // Chunk 4 of 16 pages is the second of drive 1; 4 chunks from page 8: 0 (half), 1, 2, 3 and half of 4.
        assert_eq!(stripes.places(4 * 16 + 5), [(1, 16 + 5)]);
        let plan = stripes.write(8, 64);
        assert_eq!(pieces(&plan.writes), [(0, 8, 24), (1, 0, 24), (2, 0, 16)]);
        let read: Vec<Piece> = stripes.read(8, 64).into_iter().map(|(_, piece)| piece).collect();
        assert_eq!((read, plan.reads), (plan.writes, Vec::new()));
    }

    #[test]
    fn mirrors_are_written_to_both_and_could_be_read_from_either() {
        let pair = geometry(Level::Mirrors, 2);
        assert_eq!(pieces(&pair.write(100, 40).writes), [(0, 100, 40), (1, 100, 40)]);
        assert_eq!(pair.read(100, 40), [(vec![0, 1], Piece { drive: 0, position: 100, pages: 40 })]);
        // near=2 on four drives: chunk 1 is on drives 2 and 3, chunk 2 on 0 and 1 again, one chunk further.
        let four = geometry(Level::MirroredStripes, 4);
        assert_eq!(four.places(16), [(2, 0), (3, 0)]);
        assert_eq!(four.places(32), [(0, 16), (1, 16)]);
        // On three a copy is on the next drive's next row.
        assert_eq!(geometry(Level::MirroredStripes, 3).places(16), [(2, 0), (0, 16)]);
    }

    #[test]
    fn raid5_turns_its_parity_left_with_each_stripe() {
        let five = geometry(Level::Parity, 5);
        // Left symmetric: parity on 4, 3, 2 ..., data from the drive behind it on.
        assert_eq!((0..5).map(|stripe| five.parity_drive(stripe)).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        assert_eq!((0..4).map(|chunk| five.places(chunk * 16)[0].0).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(
            (4..8).map(|chunk| five.places(chunk * 16)[0]).collect::<Vec<_>>(),
            [(4, 16), (0, 16), (1, 16), (2, 16)]
        );
    }

    #[test]
    fn a_part_of_a_stripe_is_read_before_it_is_written_by_whichever_way_reads_less() {
        let five = geometry(Level::Parity, 5);
        // All four chunks: nothing is read, five are written.
        let whole = five.write_stripe(&[(0, 64)]);
        assert_eq!((whole.reads.len(), pieces(&whole.writes)), (0, (0..5).map(|drive| (drive, 0, 16)).collect()));
        // One chunk: it and the parity are read (2 < 3). Two: 3 < 2 does not hold, so the other two are.
        let one = five.write_stripe(&[(16, 32)]);
        assert_eq!(
            (pieces(&one.reads), pieces(&one.writes)),
            (vec![(1, 0, 16), (4, 0, 16)], vec![(1, 0, 16), (4, 0, 16)])
        );
        let two = five.write_stripe(&[(0, 32)]);
        assert_eq!(pieces(&two.reads), [(2, 0, 16), (3, 0, 16)]);
        assert_eq!(pieces(&two.writes), [(0, 0, 16), (1, 0, 16), (4, 0, 16)]);
        // Half a chunk of the first and a whole second: where both are written 2, elsewhere 1 and the parity.
        let uneven = five.write_stripe(&[(0, 8), (16, 32)]);
        assert_eq!(pieces(&uneven.reads), [(2, 0, 8), (3, 0, 8), (1, 8, 8), (4, 8, 8)]);
    }
}
