//! The slab of each object, for caches whose objects have very different lifetimes.
//!
//! Models: full, partial and empty slabs, of a cache's usual or smallest size (`mm/slub.c: allocate_slab`). A new
//! object comes from the oldest partial slab, else from an empty one (`mm/slab.c: cache_alloc_refill`, `free_block`,
//! 2.6). A slab is freed only with its last object, so that reclaim of single inodes frees no page for long. Leaves
//! out: colours, the arrays of freed objects of each CPU.

use crate::linked::{Link, Linked, List, NONE};

#[derive(Clone, Copy, Debug)]
struct Slab {
    in_use: u16,
    /// Objects that the slab has room for.
    objects: u16,
    zone: u8,
    link: Link,
}

impl Linked for Slab {
    fn link(&mut self, _: usize) -> &mut Link {
        &mut self.link
    }
}

#[derive(Clone, Debug, Default)]
struct OfZone {
    partial: List,
    empty: Vec<u32>,
}

#[derive(Clone, Debug)]
pub struct ZoneSlabs {
    slabs: Vec<Slab>,
    spare: Vec<u32>,
    zones: Vec<OfZone>,
}

impl ZoneSlabs {
    #[must_use]
    pub fn new(zones: usize) -> ZoneSlabs {
        ZoneSlabs { slabs: Vec::new(), spare: Vec::new(), zones: vec![OfZone::default(); zones] }
    }

    pub fn grow(&mut self, zone: u8, objects: u64) {
        let slab = Slab { in_use: 0, objects: objects as u16, zone, link: Link::default() };
        let id = match self.spare.pop() {
            Some(id) => {
                self.slabs[id as usize] = slab;
                id
            }
            None => {
                self.slabs.push(slab);
                (self.slabs.len() - 1) as u32
            }
        };
        self.zones[usize::from(zone)].empty.push(id);
    }

    /// Takes one object of the zone; returns its slab.
    pub fn take(&mut self, zone: u8) -> Option<u32> {
        let of_zone = &mut self.zones[usize::from(zone)];
        let mut id = of_zone.partial.head;
        if id == NONE {
            id = of_zone.empty.pop()?;
            of_zone.partial.push_tail(&mut self.slabs, 0, id);
        }
        let slab = &mut self.slabs[id as usize];
        slab.in_use += 1;
        if slab.in_use == slab.objects {
            of_zone.partial.remove(&mut self.slabs, 0, id);
        }
        Some(id)
    }

    /// Frees an object of the slab. If that empties the slab and `drop_empty` is set, frees the slab and returns how
    /// many objects it had room for.
    pub fn give(&mut self, id: u32, drop_empty: bool) -> Option<u64> {
        let slab = &mut self.slabs[id as usize];
        let was_full = slab.in_use == slab.objects;
        slab.in_use -= 1;
        let (is_empty, zone, objects) = (slab.in_use == 0, usize::from(slab.zone), u64::from(slab.objects));
        let partial = &mut self.zones[zone].partial;
        match (was_full, is_empty) {
            (true, false) => partial.push_tail(&mut self.slabs, 0, id),
            (false, true) => partial.remove(&mut self.slabs, 0, id),
            _ => {}
        }
        if is_empty && drop_empty {
            self.slabs[id as usize].objects = 0;
            self.spare.push(id);
        } else if is_empty {
            self.zones[zone].empty.push(id);
        }
        (is_empty && drop_empty).then_some(objects)
    }

    /// Slabs of the zone that are not full.
    pub fn partial(&self, zone: u8) -> u64 {
        let of_zone = &self.zones[usize::from(zone)];
        of_zone.partial.len + of_zone.empty.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::ZoneSlabs;

    #[test]
    fn a_slab_goes_with_its_last_object_only() {
        let mut zone_slabs = ZoneSlabs::new(1);
        (0..2).for_each(|_| zone_slabs.grow(0, 3));
        let taken: Vec<u32> = std::iter::from_fn(|| zone_slabs.take(0)).collect();
        assert_eq!(taken.len(), 6);
        let of_one: Vec<u32> = taken.iter().copied().filter(|id| *id == taken[0]).collect();
        assert_eq!(of_one.len(), 3, "filled one after the other");
        assert_eq!([0, 3, 0].map(|at| zone_slabs.give(taken[at], true)), [None; 3]);
        assert_eq!(zone_slabs.take(0), Some(taken[0]), "the one that has been partial for longest");
        assert_eq!(zone_slabs.give(taken[0], true), None);
        assert_eq!(zone_slabs.give(taken[0], true), Some(3), "now it is empty");
        assert_eq!(zone_slabs.take(0), Some(taken[3]));
        assert_eq!(zone_slabs.take(0), None);
    }
}
