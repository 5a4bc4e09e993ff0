//! Our own threads time themselves: a thread writes into memory that it shares with the kernel's hooks when an
//! operation begins and that it has ended, and reads there what the hooks saw in between. No system call, no
//! hook on system calls, nothing at all while the thread is between operations.

use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{MmapMut, MmapOptions, MmapRaw};

use super::layout::{CallState, DirtyNumbers, Stretch, size};

/// Slow operations kept until somebody asks for their parts; the oldest go first.
const KEPT_MAX: usize = 65_536;

/// The slots, shared with the kernel side (or with nobody, where there is none).
#[derive(Debug)]
pub struct SlotMemory {
    memory: MmapRaw,
    free: Mutex<Vec<u32>>,
}

impl SlotMemory {
    /// Maps the kernel side's array.
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
        // SAFETY: slots come from `take`, so they are within the mapping, which is aligned to a page. Each slot is
        // handed to one `OpSlot` at a time, which holds an Arc of us; what the kernel writes into it is read only after
        // the operation has ended.
        unsafe { base.add(slot as usize) }
    }
}

fn mapped_bytes() -> usize {
    let page = rustix::param::page_size();
    (size::OWN_SLOTS * size_of::<CallState>()).div_ceil(page) * page
}

/// What the hooks saw of one slow operation.
#[derive(Clone, Debug)]
pub struct SlotRecord {
    pub tid: u32,
    pub start_ns: u64,
    pub stretches: Vec<Stretch>,
    /// Batches of it that went through the ring buffer, before these stretches.
    pub pieces: u32,
    pub damaged: bool,
    pub dirty: Option<DirtyNumbers>,
}

/// Slow operations by thread and start.
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

/// One thread's place for its operation under way. Belongs to the thread whose id it was taken for.
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

// SAFETY: the pointer leads into `memory`, which is Send and kept alive by the Arc; an OpSlot is not Clone, so
// one thread at a time uses it.
unsafe impl Send for OpSlot {}

impl OpSlot {
    /// `slot` is `None` when all are taken: then operations are timed, but nothing is seen of them.
    pub(super) fn new(
        memory: Arc<SlotMemory>,
        inbox: Arc<Mutex<Inbox>>,
        slot: Option<u32>,
        tid: u32,
        threshold_ns: u64,
    ) -> OpSlot {
        // Without a slot the pointer is never followed: `word` checks.
        let state = memory.state(slot.unwrap_or(0));
        let made = OpSlot { memory, inbox, state, slot, tid, threshold_ns, start_ns: 0 };
        made.write(0);
        if made.slot.is_some() {
            // SAFETY: the slot is ours and no operation is under way, so the kernel side does not touch it.
            unsafe { (*made.state.as_ptr()).tid = tid };
        }
        made
    }

    #[inline]
    fn write(&self, start_ns: u64) {
        if self.slot.is_some() {
            // SAFETY: `op_start_ns` is the first, 8-byte aligned word of a slot that is ours alone on this side;
            // the kernel side reads it as one word.
            let word = unsafe { AtomicU64::from_ptr(self.state.as_ptr().cast::<u64>()) };
            // The hooks run on this thread's own CPU, or while it does not run: order among our own
            // instructions is all that is needed.
            compiler_fence(Ordering::SeqCst);
            word.store(start_ns, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// An operation of this thread begins; `start_ns` is CLOCK_MONOTONIC, read just before.
    #[inline]
    pub fn enter(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.write(start_ns);
    }

    /// It has ended, at `end_ns`. Keeps what the hooks saw, if it was slow.
    #[inline]
    pub fn leave(&mut self, end_ns: u64) {
        self.write(0);
        if self.slot.is_some() {
            // SAFETY: an aligned word of our own slot; the hooks do not write to it any more.
            let seen_ns = unsafe { (&raw const (*self.state.as_ptr()).start_ns).read_volatile() };
            // Equal only if a hook has met this very operation, which is true of few.
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

    /// What a hook would do within an operation.
    fn hook(own: &OpSlot, start_ns: u64) {
        // SAFETY: nobody else uses the slot in this test.
        let state = unsafe { &mut *own.state.as_ptr() };
        assert_eq!(state.op_start_ns, start_ns);
        state.start_ns = start_ns;
        state.stretch[0] = Stretch { ns: 5, ..Stretch::default() };
        state.stretches = 1;
    }

    #[test]
    fn only_slow_operations_that_a_hook_saw_are_kept_and_slots_are_given_back() {
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
