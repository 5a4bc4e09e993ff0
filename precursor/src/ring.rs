//! The ring's memory, and the writer's side of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::claim::Places;
use crate::core::Core;
use crate::error::AppendError;
use crate::frame;
use crate::handles::Dir;
use crate::lane::Lane;
use crate::live::{create_shm, memory};
use crate::options::BackPressure;
use crate::patience::Patience;
use crate::sys::Mapping;
use crate::turns;

/// How far before the writer pages are touched, bytes.
pub(crate) const TOUCH_BYTES: u64 = 64 << 10;

/// One ring, mapped twice in a row.
#[derive(Debug)]
pub(crate) struct RingMemory {
    pub(crate) index: usize,
    pub(crate) capacity: u64,
    map: Mapping,
}

/// How a ring's memory is to be had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingNeeds<'a> {
    /// The folder for it; `None`: the live block has no name, and without one a named ring could not be found again.
    pub(crate) dir: Option<&'a Dir>,
    pub(crate) stem: &'a str,
    pub(crate) node: Option<u32>,
    pub(crate) locked: bool,
}

impl RingMemory {
    /// Makes a ring whose every page is present, in both halves, and locked.
    pub(crate) fn create(needs: &RingNeeds<'_>, index: usize, capacity: u64) -> io::Result<RingMemory> {
        let len = usize::try_from(capacity).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let name = format!("{}.ring{index}", needs.stem);
        let file = match needs.dir {
            Some(dir) => create_shm(dir, &name, capacity)?,
            None => memory(c"precursor-ring", capacity)?,
        };
        let made = RingMemory::map(needs, &file, len);
        if let (Err(_), Some(dir)) = (&made, needs.dir) {
            dir.remove(&name)?;
        }
        Ok(RingMemory { index, capacity, map: made? })
    }

    fn map(needs: &RingNeeds<'_>, file: &std::fs::File, len: usize) -> io::Result<Mapping> {
        let map = Mapping::mirrored(file, len)?;
        map.not_in_children()?;
        if let Some(node) = needs.node {
            // A wish: a machine without that node, or a kernel without NUMA, has nothing to refuse.
            let _ = map.prefer_node(node);
        }
        if needs.locked {
            // One half is enough: a locked page is unevictable whatever else maps it, and RLIMIT_MEMLOCK counts mappings.
            map.lock_on_fault(0, len)?;
        }
        populate(&map, len)?;
        Ok(map)
    }

    /// Maps a ring that a dead writer left.
    pub(crate) fn find(dir: &Dir, stem: &str, index: usize, capacity: u64) -> io::Result<RingMemory> {
        let file = dir.private(&format!("{stem}.ring{index}"))?;
        let file = file.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "a ring is missing"))?;
        let whole =
            capacity.is_power_of_two() && capacity >= crate::sys::page_bytes() && file.metadata()?.len() == capacity;
        if !whole {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the ring's size differs from its live block"));
        }
        let len = usize::try_from(capacity).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(RingMemory { index, capacity, map: Mapping::mirrored(&file, len)? })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.map.base()
    }

    /// Touches the pages that the writer comes to next.
    pub(crate) fn touch_ahead(&self, position: u64) {
        let page = crate::sys::page_bytes();
        let from = (position & (self.capacity - 1)) / page * page + page;
        self.map.touch(from as usize, TOUCH_BYTES.min(self.capacity) as usize);
    }

    /// Where a position is stored; `capacity` bytes from there on are mapped.
    pub(crate) fn at(&self, position: u64) -> *mut u8 {
        // SAFETY: masked, so inside the first half.
        unsafe { self.map.base().add((position & (self.capacity - 1)) as usize) }
    }

    /// The stored bytes of a range that no producer touches any more.
    ///
    /// # Safety
    /// The range was published by its producer and not yet freed, and is no longer than the ring.
    pub(crate) unsafe fn bytes(&self, from: u64, len: usize) -> &[u8] {
        debug_assert!(len as u64 <= self.capacity);
        // SAFETY: the mirrored mapping holds `capacity` bytes from any masked offset; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.at(from), len) }
    }
}

impl Places for RingMemory {
    #[inline(always)]
    fn word(&self, at: u64) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8));
        // SAFETY: mapped memory at a multiple of 8, and words are only ever accessed as atomics while the ring is shared.
        unsafe { &*self.at(at).cast::<AtomicU64>() }
    }

    #[inline(always)]
    unsafe fn copy_in(&self, at: u64, bytes: &[u8]) {
        // SAFETY: by the contract the place is the caller's alone; the second half of the mapping mirrors the first.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(at).add(frame::HEADER), bytes.len()) };
    }

    unsafe fn wipe(&self, at: u64, len: u64) {
        // SAFETY: by the contract the range is the caller's alone, and it is no longer than the ring.
        unsafe { std::ptr::write_bytes(self.at(at), 0, len as usize) };
    }
}

/// MADV_POPULATE_WRITE, or a store into each page where the kernel is older: nobody else knows this memory yet.
fn populate(map: &Mapping, len: usize) -> io::Result<()> {
    match map.populate_write(0, map.len()) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            for at in (0..2 * len).step_by(crate::sys::page_bytes() as usize) {
                // SAFETY: inside the mapping, which no other thread has seen.
                unsafe { map.base().add(at).write_volatile(0) };
            }
            Ok(())
        }
        other => other,
    }
}

/// Rings waiting to be taken into use, for the policy that grows.
#[derive(Debug)]
pub(crate) struct Spare(AtomicPtr<RingMemory>);

impl Spare {
    pub(crate) fn none() -> Spare {
        Spare(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire).is_null()
    }

    /// Offers a ring; the caller has seen that none is on offer.
    pub(crate) fn offer(&self, ring: Arc<RingMemory>) {
        let old = self.0.swap(Arc::into_raw(ring).cast_mut(), Ordering::AcqRel);
        Spare::owned(old);
    }

    fn take(&self) -> Option<Arc<RingMemory>> {
        Spare::owned(self.0.swap(std::ptr::null_mut(), Ordering::AcqRel))
    }

    fn owned(raw: *mut RingMemory) -> Option<Arc<RingMemory>> {
        // SAFETY: only `offer` stores here, from Arc::into_raw, and a swap hands the pointer to one taker.
        (!raw.is_null()).then(|| unsafe { Arc::from_raw(raw) })
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The one producer's view.
#[derive(Debug)]
pub(crate) struct RingSide {
    pub(crate) ring: Arc<RingMemory>,
    pub(crate) spare: Arc<Spare>,
    /// First position of the current ring.
    start: u64,
    /// First position of the current file.
    file_base: u64,
}

impl RingSide {
    pub(crate) fn new(ring: Arc<RingMemory>, spare: Arc<Spare>, start: u64, file_base: u64) -> RingSide {
        RingSide { ring, spare, start, file_base }
    }

    /// Raises the lane's limit until `need` bytes fit, as the policy allows.
    pub(crate) fn make_room(&mut self, core: &Core, lane: &mut Lane, need: u64) -> Result<(), AppendError> {
        let mut patience = Patience::new();
        loop {
            if self.raise(core, lane, need) || self.grow(core, lane) && self.raise(core, lane, need) {
                return Ok(());
            }
            if let Some(refusal) = core.append_refusal() {
                return Err(refusal);
            }
            if core.back_pressure == BackPressure::Fail {
                let waiting_bytes = lane.cursor - core.live.flushed.0.load(Ordering::Acquire);
                return Err(AppendError::Full { waiting_bytes });
            }
            patience.wait(core);
        }
    }

    fn raise(&mut self, core: &Core, lane: &mut Lane, need: u64) -> bool {
        let mut limit = turns::limit(&core.live.flushed.0, self.ring.capacity).max(self.start + self.ring.capacity);
        if core.roll_bytes != 0 {
            if lane.cursor + need > self.file_base + core.roll_room() && !self.end_file(core, lane, limit) {
                return false;
            }
            limit = limit.min(self.file_base + core.roll_room());
        }
        lane.limit = limit;
        lane.room() >= need
    }

    /// Announces that the file ends here, with its mark if it is framed.
    fn end_file(&mut self, core: &Core, lane: &mut Lane, limit: u64) -> bool {
        let mut end = lane.cursor;
        if lane.framed {
            end += frame::END_MARK_LEN as u64;
            if end > limit {
                return false;
            }
            // SAFETY: the mark's bytes are before the limit, so they are this producer's.
            unsafe { lane.mark_end() };
        }
        // Announced before it is published, so that the flusher cannot pass it by.
        let announced = core.live.push_boundary(end);
        if announced {
            core.live.position.0.store(end, Ordering::Release);
            (lane.cursor, self.file_base) = (end, end);
        }
        announced
    }

    /// Goes over to the spare ring, if there is one.
    fn grow(&mut self, core: &Core, lane: &mut Lane) -> bool {
        let Some(ring) = self.spare.take() else { return false };
        let Some(entry) = core.live.rings.get(ring.index) else { return false };
        entry.capacity.store(ring.capacity, Ordering::Relaxed);
        entry.start.store(lane.cursor, Ordering::Relaxed);
        core.live.ring_count.store(ring.index as u64 + 1, Ordering::Release);
        (lane.base, lane.mask, self.start) = (ring.base(), ring.capacity - 1, lane.cursor);
        core.counters.0.grown.fetch_add(1, Ordering::Relaxed);
        self.ring = ring;
        true
    }
}
