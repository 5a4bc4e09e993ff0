//! The ring's memory, and the writer's side of `ring`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::claim::Places;
use crate::core::Core;
use crate::error::AppendError;
use crate::frame::{self, FILE_HEADER_LEN};
use crate::handles::Dir;
use crate::lane::Lane;
use crate::live::{create_shm, memory};
use crate::options::BackPressure;
use crate::patience::Patience;
use crate::ring_use;
use crate::sys::Mapping;

/// Distance before the writer in which pages are touched, bytes.
pub(crate) const TOUCH_BYTES: u64 = 64 << 10;

/// A ring whose memory is mapped twice in a row, so that a record may cross the ring's end.
#[derive(Debug)]
pub(crate) struct RingMemory {
    pub(crate) index: usize,
    pub(crate) capacity: u64,
    map: Mapping,
}

/// Requirements for a ring's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingNeeds<'a> {
    /// Directory of the ring's file; `None` for anonymous memory, because without a named live block no recovery could
    /// find a named ring.
    pub(crate) dir: Option<&'a Dir>,
    pub(crate) stem: &'a str,
    pub(crate) node: Option<u32>,
    pub(crate) locked: bool,
}

impl RingMemory {
    /// Creates a ring with every page present in both halves, and locked if required.
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
            // A preference: the machine may lack that node, or the kernel NUMA.
            let _ = map.prefer_node(node);
        }
        if needs.locked {
            // One half suffices: a locked page is not evicted, whatever else maps it, and RLIMIT_MEMLOCK counts
            // mappings.
            map.lock_on_fault(0, len)?;
        }
        populate(&map, len)?;
        Ok(map)
    }

    /// Maps the ring of a dead writer.
    pub(crate) fn find(dir: &Dir, stem: &str, index: usize, capacity: u64) -> io::Result<RingMemory> {
        let file = dir.private(&format!("{stem}.ring{index}"))?;
        let file = file.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "a ring is missing"))?;
        let whole =
            capacity.is_power_of_two() && capacity >= crate::sys::page_bytes() && file.metadata()?.len() == capacity;
        if !whole {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the ring's size differs from the live block's"));
        }
        let len = usize::try_from(capacity).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(RingMemory { index, capacity, map: Mapping::mirrored(&file, len)? })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.map.base()
    }

    /// Touches the pages that the writer reaches next.
    pub(crate) fn touch_ahead(&self, position: u64) {
        let page = crate::sys::page_bytes();
        let from = (position & (self.capacity - 1)) / page * page + page;
        self.map.touch(from as usize, TOUCH_BYTES.min(self.capacity) as usize);
    }

    /// Address of a position; `capacity` bytes from there are mapped.
    pub(crate) fn at(&self, position: u64) -> *mut u8 {
        // SAFETY: `capacity` is a power of two, so the masked offset lies in the first half of the mapping.
        unsafe { self.map.base().add((position & (self.capacity - 1)) as usize) }
    }

    /// The stored bytes of a range.
    ///
    /// # Safety
    /// The range is not longer than the ring, its producers have published it, and none stores into it before `'_`
    /// ends.
    pub(crate) unsafe fn bytes(&self, from: u64, len: usize) -> &[u8] {
        debug_assert!(len as u64 <= self.capacity);
        // SAFETY: the mapping has `capacity` bytes from any masked offset; the caller guarantees that they do not
        // change.
        unsafe { std::slice::from_raw_parts(self.at(from), len) }
    }
}

impl Places for RingMemory {
    #[inline(always)]
    fn word(&self, at: u64) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8));
        // SAFETY: `at` is a multiple of 8, so the word is aligned and mapped. Words are accessed as plain memory only
        // while their place belongs to one side: by `wipe`, before the space is freed.
        unsafe { &*self.at(at).cast::<AtomicU64>() }
    }

    #[inline(always)]
    unsafe fn copy_in(&self, at: u64, time: u64, bytes: &[u8]) {
        // SAFETY: the caller owns the place, which is not longer than the ring; the second half of the mapping
        // continues the first.
        unsafe {
            self.at(at).add(frame::HEADER - 8).cast::<[u8; 8]>().write(time.to_le_bytes());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(at).add(frame::HEADER), bytes.len());
        }
    }

    unsafe fn wipe(&self, at: u64, len: u64) {
        // SAFETY: the caller owns the range, which is not longer than the ring, so it lies within the two halves.
        unsafe { std::ptr::write_bytes(self.at(at), 0, len as usize) };
    }
}

/// Brings all pages in with MADV_POPULATE_WRITE, or on older kernels by a store into each. No other thread uses the
/// ring yet.
fn populate(map: &Mapping, len: usize) -> io::Result<()> {
    match map.populate_write(0, map.len()) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            for at in (0..2 * len).step_by(crate::sys::page_bytes() as usize) {
                // SAFETY: `at` is below twice `len`, the length of the mapping, which no other thread has seen.
                unsafe { map.base().add(at).write_volatile(0) };
            }
            Ok(())
        }
        other => other,
    }
}

/// A ring that the growing thread offers to the writer.
#[derive(Debug)]
pub(crate) struct Spare(AtomicPtr<RingMemory>);

impl Spare {
    pub(crate) fn none() -> Spare {
        Spare(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire).is_null()
    }

    /// Offers a ring. The caller has checked that none is on offer.
    pub(crate) fn offer(&self, ring: Arc<RingMemory>) {
        let old = self.0.swap(Arc::into_raw(ring).cast_mut(), Ordering::AcqRel);
        Spare::owned(old);
    }

    fn take(&self) -> Option<Arc<RingMemory>> {
        Spare::owned(self.0.swap(std::ptr::null_mut(), Ordering::AcqRel))
    }

    fn owned(raw: *mut RingMemory) -> Option<Arc<RingMemory>> {
        // SAFETY: the pointer comes from `Arc::into_raw` in `offer`, and each swap gives it to one caller only.
        (!raw.is_null()).then(|| unsafe { Arc::from_raw(raw) })
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The single producer's side of the ring.
#[derive(Debug)]
pub(crate) struct RingSide {
    pub(crate) ring: Arc<RingMemory>,
    pub(crate) spare: Arc<Spare>,
    /// Position at which the current ring begins.
    start: u64,
    /// Number and base of the current file.
    file_seq: u64,
    file_base: u64,
}

impl RingSide {
    pub(crate) fn new(ring: Arc<RingMemory>, spare: Arc<Spare>, start: u64, (seq, base): (u64, u64)) -> RingSide {
        RingSide { ring, spare, start, file_seq: seq, file_base: base }
    }

    /// Raises the lane's limit until `need` bytes fit, or fails according to the policy.
    pub(crate) fn make_room(&mut self, core: &Core, lane: &mut Lane, need: u64) -> Result<(), AppendError> {
        let mut patience = Patience::new();
        loop {
            // Before `raise` looks, or a flush in between could make it 0.
            let flushed = core.live.flushed.0.load(Ordering::Acquire);
            if self.raise(core, lane, need) || self.grow(core, lane) && self.raise(core, lane, need) {
                return Ok(());
            }
            if let Some(refusal) = core.append_refusal() {
                return Err(refusal);
            }
            if core.back_pressure == BackPressure::Fail {
                return Err(AppendError::Full { waiting_bytes: lane.cursor - flushed });
            }
            patience.wait(core);
        }
    }

    fn raise(&mut self, core: &Core, lane: &mut Lane, need: u64) -> bool {
        let mut limit = ring_use::limit(&core.live.flushed.0, self.ring.capacity).max(self.start + self.ring.capacity);
        if core.roll_bytes != 0 {
            if lane.cursor + need > self.file_base + core.roll_room() && !self.end_file(core, lane, limit) {
                return false;
            }
            limit = limit.min(self.file_base + core.roll_room());
        }
        lane.limit = limit;
        lane.room() >= need
    }

    /// Ends a file that is old, unless it is empty. Not with many producers: there the flusher does.
    pub(crate) fn roll_by_age(&mut self, core: &Core, lane: &mut Lane) {
        if core.live.many() || lane.cursor <= self.file_base + lane.head_len() {
            return;
        }
        let limit = ring_use::limit(&core.live.flushed.0, self.ring.capacity).max(self.start + self.ring.capacity);
        if self.end_file(core, lane, limit) {
            self.raise(core, lane, 0);
        }
    }

    /// Announces that the file ends at the cursor, if it is framed after an end mark and with the header of the next
    /// file. False if that is not possible yet.
    fn end_file(&mut self, core: &Core, lane: &mut Lane, limit: u64) -> bool {
        let mark = if lane.framed { frame::END_MARK_LEN as u64 } else { 0 };
        let end = lane.cursor + mark;
        if lane.framed {
            if end + FILE_HEADER_LEN as u64 > limit {
                return false;
            }
            // SAFETY: the mark ends before the limit, so its bytes belong to this producer.
            unsafe { lane.mark_end() };
        }
        // Announced before the position is published, so that the flusher cannot pass the boundary.
        let announced = core.live.push_boundary(end);
        if announced {
            core.signals.0.roll_due.store(false, Ordering::Relaxed);
            (lane.cursor, self.file_base, self.file_seq) = (end, end, self.file_seq + 1);
            if lane.framed {
                let header = core.header(self.file_seq, end, lane.number);
                // SAFETY: the header ends at or before the limit, so its bytes belong to this producer.
                unsafe { lane.put_raw(&header.encode()) };
                lane.cursor += FILE_HEADER_LEN as u64;
            }
            core.live.position.0.store(lane.cursor, Ordering::Release);
        }
        announced
    }

    /// Switches to the spare ring, if there is one.
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
