//! The slab of each object, for caches whose objects have very different lifetimes.
//!
//! Models: full, partial and empty slabs, of a cache's usual or smallest size (`mm/slub.c: allocate_slab`). A new
//! object comes from the oldest partial slab, else from an empty one (`mm/slab.c: cache_alloc_refill`, `free_block`,
//! 2.6). A slab is freed only with its last object, so that reclaim of single inodes frees no page for long. Leaves
//! out: colours, the arrays of freed objects of each CPU.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slab {
    in_use: u16,
    /// Objects that the slab has room for.
    objects: u16,
    zone: u8,
    prev: u32,
    next: u32,
}

#[derive(Clone, Debug)]
struct OfZone {
    head: u32,
    tail: u32,
    /// Length of the list from `head` to `tail`.
    linked: u64,
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
        let zone = OfZone { head: NONE, tail: NONE, linked: 0, empty: Vec::new() };
        ZoneSlabs { slabs: Vec::new(), spare: Vec::new(), zones: vec![zone; zones] }
    }

    pub fn grow(&mut self, zone: u8, objects: u64) {
        let slab = Slab { in_use: 0, objects: objects as u16, zone, prev: NONE, next: NONE };
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
        let mut id = of_zone.head;
        if id == NONE {
            id = of_zone.empty.pop()?;
            self.link_tail(id);
        }
        let slab = &mut self.slabs[id as usize];
        slab.in_use += 1;
        if slab.in_use == slab.objects {
            self.unlink(id);
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
        match (was_full, is_empty) {
            (true, false) => self.link_tail(id),
            (false, true) => self.unlink(id),
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
        of_zone.linked + of_zone.empty.len() as u64
    }

    fn link_tail(&mut self, id: u32) {
        let of_zone = &mut self.zones[usize::from(self.slabs[id as usize].zone)];
        of_zone.linked += 1;
        let tail = std::mem::replace(&mut of_zone.tail, id);
        if tail == NONE {
            of_zone.head = id;
        } else {
            self.slabs[tail as usize].next = id;
        }
        (self.slabs[id as usize].prev, self.slabs[id as usize].next) = (tail, NONE);
    }

    fn unlink(&mut self, id: u32) {
        let Slab { zone, prev, next, .. } = self.slabs[id as usize];
        let of_zone = &mut self.zones[usize::from(zone)];
        of_zone.linked -= 1;
        if prev == NONE {
            of_zone.head = next;
        } else {
            self.slabs[prev as usize].next = next;
        }
        if next == NONE {
            of_zone.tail = prev;
        } else {
            self.slabs[next as usize].prev = prev;
        }
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
