//! Slots in which flatwater's own threads mark their operations. A thread writes the start of an operation into memory
//! that it shares with the BPF programs, and after the end reads from there what the hooks recorded. This needs no
//! system call and no hook on system calls, and the hooks skip the thread between operations.

use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{MmapMut, MmapOptions, MmapRaw};

use super::layout::{CallState, DirtyNumbers, Stretch, size};

/// Keep at most this many slow operations until they are attributed; the oldest are dropped.
const KEPT_MAX: usize = 65_536;

/// The slots, shared with the BPF programs (or private memory without BPF programs).
#[derive(Debug)]
pub struct SlotMemory {
    memory: MmapRaw,
    free: Mutex<Vec<u32>>,
}

impl SlotMemory {
    /// Maps the array map `own_slots`.
    pub fn shared(map: BorrowedFd<'_>) -> std::io::Result<SlotMemory> {
        Ok(SlotMemory::over(MmapOptions::new().len(mapped_bytes()).map_raw(&map)?))
    }

    /// Memory that no hook reads.
    pub fn private() -> std::io::Result<SlotMemory> {
        Ok(SlotMemory::over(MmapMut::map_anon(mapped_bytes())?.into()))
    }

    fn over(memory: MmapRaw) -> SlotMemory {
        let free = (0..size::OWN_SLOTS as u32).rev().collect();
        SlotMemory { memory, free: Mutex::new(free) }
    }

    pub fn take(&self) -> Option<u32> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give_back(&self, slot: u32) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }

    fn state(&self, slot: u32) -> NonNull<CallState> {
        debug_assert!((slot as usize) < size::OWN_SLOTS);
        let base = NonNull::new(self.memory.as_mut_ptr().cast()).expect("a mapping is never at address 0");
        // SAFETY: slots come from `take`, so they are within the mapping, which is aligned to a page. Each slot belongs
        // to one `OpSlot` at a time, which holds an Arc of `self`; data that the kernel writes into the slot is read
        // only after the operation has ended.
        unsafe { base.add(slot as usize) }
    }
}

fn mapped_bytes() -> usize {
    let page = rustix::param::page_size();
    (size::OWN_SLOTS * size_of::<CallState>()).div_ceil(page) * page
}

/// The record that the hooks made of one slow operation.
#[derive(Clone, Debug)]
pub struct SlotRecord {
    pub tid: u32,
    pub start_ns: u64,
    pub stretches: Vec<Stretch>,
    /// The number of batches that went through the ring buffer before these stretches.
    pub pieces: u32,
    pub damaged: bool,
    pub dirty: Option<DirtyNumbers>,
}

/// Records of slow operations, by thread and start.
#[derive(Debug, Default)]
pub struct Inbox {
    kept: HashMap<(u32, u64), SlotRecord>,
    order: VecDeque<(u32, u64)>,
    pub dropped: u64,
}

impl Inbox {
    fn put(&mut self, seen: SlotRecord) {
        let key = (seen.tid, seen.start_ns);
        while self.order.len() >= KEPT_MAX {
            if self.order.pop_front().is_some_and(|oldest| self.kept.remove(&oldest).is_some()) {
                self.dropped += 1;
            }
        }
        self.order.push_back(key);
        self.kept.insert(key, seen);
    }

    pub fn take(&mut self, tid: u32, start_ns: u64) -> Option<SlotRecord> {
        self.kept.remove(&(tid, start_ns))
    }
}

/// The slot of one thread for its current operation. Only the thread whose id it was taken for may use it.
#[derive(Debug)]
pub struct OpSlot {
    memory: Arc<SlotMemory>,
    inbox: Arc<Mutex<Inbox>>,
    state: NonNull<CallState>,
    slot: Option<u32>,
    tid: u32,
    threshold_ns: u64,
    start_ns: u64,
}

// SAFETY: the pointer leads into `memory`, which is Send and kept alive by the Arc. An OpSlot is not Clone, so only one
// thread uses it at a time.
unsafe impl Send for OpSlot {}

impl OpSlot {
    /// `slot` is `None` if all slots are in use: then operations are timed but not traced.
    pub(super) fn new(
        memory: Arc<SlotMemory>,
        inbox: Arc<Mutex<Inbox>>,
        slot: Option<u32>,
        tid: u32,
        threshold_ns: u64,
    ) -> OpSlot {
        // Without a slot the pointer is never dereferenced: `write` and `leave` check.
        let state = memory.state(slot.unwrap_or(0));
        let made = OpSlot { memory, inbox, state, slot, tid, threshold_ns, start_ns: 0 };
        made.write(0);
        if made.slot.is_some() {
            // SAFETY: this thread owns the slot and no operation is under way, so the BPF programs do not touch it.
            unsafe { (*made.state.as_ptr()).tid = tid };
        }
        made
    }

    #[inline]
    fn write(&self, start_ns: u64) {
        if self.slot.is_some() {
            // SAFETY: `op_start_ns` is the first, 8-byte aligned word of a slot that only this OpSlot writes in user
            // space; the BPF programs read it as one word.
            let word = unsafe { AtomicU64::from_ptr(self.state.as_ptr().cast::<u64>()) };
            // The hooks run on this thread's own CPU, or while the thread does not run, so only the compiler's order of
            // this thread's instructions matters.
            compiler_fence(Ordering::SeqCst);
            word.store(start_ns, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// Marks the begin of an operation; `start_ns` is CLOCK_MONOTONIC, read just before.
    #[inline]
    pub fn enter(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.write(start_ns);
    }

    /// Marks the end of the operation at `end_ns`. If the operation was slow, keeps what the hooks recorded.
    #[inline]
    pub fn leave(&mut self, end_ns: u64) {
        self.write(0);
        if self.slot.is_some() {
            // SAFETY: an aligned word of this OpSlot's slot; after `write(0)` no hook writes to it.
            let seen_ns = unsafe { (&raw const (*self.state.as_ptr()).start_ns).read_volatile() };
            // Equal only if a hook ran during this very operation, which is rare.
            if seen_ns == self.start_ns && end_ns.saturating_sub(seen_ns) >= self.threshold_ns {
                self.keep();
            }
        }
    }

    #[cold]
    fn keep(&self) {
        let start_ns = self.start_ns;
        // SAFETY: the operation is over, so no hook writes to the slot; the copy is of integers only.
        let state = unsafe { self.state.as_ptr().read_volatile() };
        let seen = SlotRecord {
            tid: self.tid,
            start_ns,
            stretches: state.stretches().to_vec(),
            pieces: state.pieces,
            damaged: state.damaged != 0,
            dirty: (state.dirty.pauses > 0).then_some(state.dirty),
        };
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).put(seen);
    }

    #[must_use]
    pub fn tid(&self) -> u32 {
        self.tid
    }
}

impl Drop for OpSlot {
    fn drop(&mut self) {
        self.write(0);
        if let Some(slot) = self.slot {
            self.memory.give_back(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{Inbox, OpSlot, SlotMemory, Stretch};

    /// Simulates a hook that runs within an operation.
    fn hook(own: &OpSlot, start_ns: u64) {
        // SAFETY: nothing else uses the slot in this test.
        let state = unsafe { &mut *own.state.as_ptr() };
        assert_eq!(state.op_start_ns, start_ns);
        state.start_ns = start_ns;
        state.stretch[0] = Stretch { ns: 5, ..Stretch::default() };
        state.stretches = 1;
    }

    #[test]
    fn only_slow_operations_seen_by_a_hook_are_kept() {
        let memory = Arc::new(SlotMemory::private().expect("memory"));
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let slot = memory.take();
        let mut own = OpSlot::new(memory.clone(), inbox.clone(), slot, 7, 1_000);
        own.enter(100);
        own.leave(5_000);
        assert!(inbox.lock().expect("inbox").take(7, 100).is_none(), "no hook saw it");
        own.enter(200);
        hook(&own, 200);
        own.leave(300);
        assert!(inbox.lock().expect("inbox").take(7, 200).is_none(), "it was fast");
        own.enter(300);
        hook(&own, 300);
        own.leave(5_300);
        assert_eq!(inbox.lock().expect("inbox").take(7, 300).expect("kept").stretches.len(), 1);
        drop(own);
        assert_eq!(memory.take(), slot);
    }

    #[test]
    fn a_thread_without_a_slot_does_no_harm() {
        let memory = Arc::new(SlotMemory::private().expect("memory"));
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let mut own = OpSlot::new(memory, inbox.clone(), None, 9, 10);
        own.enter(1);
        own.leave(100);
        assert!(inbox.lock().expect("inbox").take(9, 1).is_none());
    }
}
