//! Every frame that is told from others is in one place: what the swarm asserts after each run.

use super::buddy::{Frame, UNTOLD};
use crate::invariant::Broken;
use crate::memory::Mm;

impl Mm {
    /// Frames of free pieces, of CPUs' lists, of page cache and processes, and of slabs: each at most once, and as many free ones as are counted.
    pub fn check_frames(&self) -> Result<(), Broken> {
        let frames = |zone: &crate::zone::Zone| zone.blocks.buddy.as_ref().map_or(0, |buddy| buddy.frames());
        let mut seen: Vec<Vec<bool>> = self.zones.iter().map(|zone| vec![false; frames(zone)]).collect();
        let mut note = |frame: Frame, pages: u64, of: &str| {
            let own = &mut seen[usize::from(frame.zone)];
            let first = frame.number as usize;
            if frame.number == UNTOLD || own.is_empty() {
                return Ok(());
            }
            let all = own.get_mut(first..first + pages as usize);
            let Some(all) = all.filter(|all| !all.contains(&true)) else {
                return Err(Broken::Frames(format!(
                    "{pages} frames from {first} of zone {} on, of {of}, are somewhere else too, or are none of the zone's",
                    frame.zone
                )));
            };
            all.fill(true);
            Ok(())
        };
        for (zone, slot) in (0_u8..).zip(&self.zones) {
            let Some(buddy) = &slot.blocks.buddy else { continue };
            let mut free = 0;
            for (number, order) in buddy.all() {
                note(Frame { zone, number }, 1 << order, "a free piece")?;
                free += 1 << order;
            }
            if free != slot.free || buddy.free() != slot.free {
                let counted = buddy.free();
                return Err(Broken::Frames(format!(
                    "zone {zone}: {} frames are free, {counted} of them on lists, {free} there",
                    slot.free
                )));
            }
        }
        for (place, list) in self.cpu_lists.iter().enumerate() {
            let zone = (place % self.zones.len()) as u8;
            list.held().try_for_each(|(number, order)| note(Frame { zone, number }, 1 << order, "a CPU's list"))?;
        }
        self.chunks.told().try_for_each(|frame| note(frame, 1, "a cached page"))?;
        let slabs = self.caches.iter().flat_map(|cache| cache.frames());
        slabs.into_iter().try_for_each(|(frame, pages)| note(frame, pages, "a slab"))
    }
}

#[cfg(test)]
mod tests {
    use crate::alloc::Want;
    use crate::build;
    use crate::kernel::find;
    use crate::slab::{CacheKind, Object};
    use crate::v6::fallback::Wanted;

    #[test]
    fn a_frame_that_is_in_two_places_is_found() {
        let mut mm = build::memory(&find("linux-6.12").expect("a profile"), &[64 << 20], 2);
        for zone in &mut mm.zones {
            zone.size_blocks(2, 15_000);
            zone.lay_out(None);
        }
        let inode = mm.inodes.add((0, 1), Object::default(), false);
        for page in 0..40 {
            let frame = mm.take_frame(1, 0, Want::USER).expect("memory");
            mm.insert(inode, page, frame);
        }
        let slab = Wanted { order: 2, kind: Want::KERNEL.mobility, wakes: false };
        let frame = mm.take_piece(1, 1, slab).expect("memory");
        mm.add_slab(CacheKind::Inode, frame, true);
        assert_eq!(mm.check_frames(), Ok(()));
        let mut twice = mm.take_frame(1, 0, Want::USER).expect("memory");
        let (id, bit) = mm.lookup(inode, 7).expect("cached");
        twice.number = mm.chunks.frames.of(id, bit).next().expect("told");
        mm.insert(inode, 50, twice);
        assert!(mm.check_frames().is_err_and(|broken| broken.to_string().contains("a cached page")));
        let (id, bit) = mm.lookup(inode, 50).expect("cached");
        mm.chunks.frames.note(id, bit, frame.number + 3);
        assert!(mm.check_frames().is_err_and(|broken| broken.to_string().contains("a slab")));
        mm.chunks.frames.note(id, bit, 1 << 20);
        assert!(mm.check_frames().is_err_and(|broken| broken.to_string().contains("none of the zone's")));
        mm.chunks.frames.forget(id);
        mm.zones[1].free += 1;
        assert!(mm.check_frames().is_err_and(|broken| broken.to_string().contains("on lists")));
    }
}
