//! Handles of the C interface. A handle is not an address: it names a slot of a table and a generation of that slot, so
//! that a handle that is closed, or was never open, is recognised without touching freed memory.
//!
//! Without locks, since a forked child may open and close handles.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::c_types::{MessageBuffer, PRECURSOR_PANIC, Refusal, border, invalid};

/// Width of the generation in a handle, and of index and kind together.
const HALF: u32 = usize::BITS / 2;
const KIND_BITS: u32 = 3;
const KIND: usize = (1 << KIND_BITS) - 1;
const INDICES: usize = 1 << (HALF - KIND_BITS);
/// Number of slots in the table itself; each further block has as many as all before it.
const FIRST: usize = 64;
const BLOCKS: usize = if HALF == 32 { 24 } else { 8 };
/// Generation of a slot that is being opened or closed. No handle has this generation.
const BUSY: usize = usize::MAX;

#[derive(Debug)]
struct Slot<H> {
    /// Odd while a handle is open, even while the slot is free. Never falls.
    generation: AtomicUsize,
    /// The object; null after a panic, which may have left the object in any state.
    value: AtomicPtr<H>,
}

/// All handles of one type.
#[derive(Debug)]
pub(crate) struct Table<H> {
    /// Differs between tables and is not 0, so that no handle is null or belongs to two tables.
    kind: usize,
    /// The slots of almost every program, without a pointer to load.
    first: [Slot<H>; FIRST],
    blocks: [AtomicPtr<Slot<H>>; BLOCKS],
    owns: PhantomData<H>,
}

impl<H> Slot<H> {
    const fn free() -> Slot<H> {
        Slot { generation: AtomicUsize::new(0), value: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

impl<H> Table<H> {
    pub(crate) const fn new(kind: usize) -> Table<H> {
        assert!(kind > 0 && kind <= KIND);
        let first = [const { Slot::free() }; FIRST];
        Table { kind, first, blocks: [const { AtomicPtr::new(std::ptr::null_mut()) }; BLOCKS], owns: PhantomData }
    }

    /// The slot with this index, if its block exists.
    #[inline(always)]
    fn slot(&self, index: usize) -> Option<&Slot<H>> {
        self.first.get(index).or_else(|| self.later_slot(index))
    }

    #[cold]
    fn later_slot(&self, index: usize) -> Option<&Slot<H>> {
        let number = index + FIRST;
        let block = number.ilog2() - FIRST.ilog2();
        let slots = self.blocks.get(block as usize)?.load(Ordering::Acquire);
        // SAFETY: a block that is not null has `FIRST << block` slots and is never freed; the offset is less than that.
        (!slots.is_null()).then(|| unsafe { &*slots.add(number - (FIRST << block)) })
    }

    /// The slot of an open handle, and the handle's generation.
    #[inline(always)]
    fn find(&self, handle: *const H) -> Result<(&Slot<H>, usize), Refusal> {
        let bits = handle.addr();
        let (index, generation) = ((bits & ((1 << HALF) - 1)) >> KIND_BITS, bits >> HALF);
        if bits & KIND == self.kind
            && generation % 2 == 1
            && let Some(slot) = self.slot(index)
            && slot.generation.load(Ordering::Acquire) == generation
        {
            return Ok((slot, generation));
        }
        Err(not_open(handle.is_null()))
    }

    #[inline(always)]
    fn value(&self, handle: *const H) -> Result<(&Slot<H>, *mut H), Refusal> {
        let (slot, _) = self.find(handle)?;
        let value = slot.value.load(Ordering::Acquire);
        if value.is_null() { Err(panicked()) } else { Ok((slot, value)) }
    }

    /// Runs a call on an open handle that no other thread uses.
    ///
    /// # Safety
    /// No other thread uses the handle during the call.
    #[inline(always)]
    pub(crate) unsafe fn exclusive(
        &self,
        handle: *const H,
        message: MessageBuffer,
        work: impl FnOnce(&mut H) -> Result<(), Refusal>,
    ) -> c_int {
        // SAFETY: the value of an open handle is alive, and the caller guarantees that the borrow is unique.
        self.call(handle, message, |value| work(unsafe { &mut *value }))
    }

    /// Runs a call on an open handle that other threads may use too.
    ///
    /// # Safety
    /// No other thread closes the handle during the call, or calls `exclusive` on it.
    #[inline(always)]
    pub(crate) unsafe fn shared(
        &self,
        handle: *const H,
        message: MessageBuffer,
        work: impl FnOnce(&H) -> Result<(), Refusal>,
    ) -> c_int {
        // SAFETY: the value of an open handle is alive, and the caller guarantees that nothing changes it.
        self.call(handle, message, |value| work(unsafe { &*value }))
    }

    #[inline(always)]
    fn call(
        &self,
        handle: *const H,
        message: MessageBuffer,
        work: impl FnOnce(*mut H) -> Result<(), Refusal>,
    ) -> c_int {
        let code = border(message, || work(self.value(handle)?.1));
        if code == PRECURSOR_PANIC {
            self.give_up(handle);
        }
        code
    }

    /// After a panic: leaks the object. Dropping it might use what the panic has left half done.
    #[cold]
    fn give_up(&self, handle: *const H) {
        if let Ok((slot, _)) = self.find(handle) {
            slot.value.store(std::ptr::null_mut(), Ordering::Release);
        }
    }

    /// The object of an open handle.
    ///
    /// # Safety
    /// As for `shared`, until `'a` ends.
    pub(crate) unsafe fn get<'a>(&self, handle: *const H) -> Option<&'a H> {
        let (_, value) = self.value(handle).ok()?;
        // SAFETY: the value of an open handle is alive, and the caller guarantees that nothing changes it.
        Some(unsafe { &*value })
    }

    /// Opens a handle; `None` if no slot is left.
    pub(crate) fn insert(&self, object: H) -> Option<*mut H> {
        let (index, slot, free) = self.free_slot()?;
        slot.value.store(Box::into_raw(Box::new(object)), Ordering::Release);
        slot.generation.store(free + 1, Ordering::Release);
        Some(std::ptr::without_provenance_mut((free + 1) << HALF | index << KIND_BITS | self.kind))
    }

    /// Claims a free slot: its index, and the generation that it had.
    fn free_slot(&self) -> Option<(usize, &Slot<H>, usize)> {
        for index in 0..INDICES.min(FIRST << (BLOCKS - 1)) {
            let slot = match self.slot(index) {
                Some(slot) => slot,
                None => {
                    self.add_block(index);
                    self.slot(index)?
                }
            };
            let free = slot.generation.load(Ordering::Relaxed);
            // A slot that has used all generations is not used again.
            let usable = free % 2 == 0 && free + 1 < 1 << HALF;
            if usable && slot.generation.compare_exchange(free, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some((index, slot, free));
            }
        }
        None
    }

    /// Adds the block that begins with this index, unless another thread has added it.
    fn add_block(&self, index: usize) {
        let count = index + FIRST;
        let slots: Box<[Slot<H>]> = (0..count).map(|_| Slot::free()).collect();
        let slots = Box::into_raw(slots);
        let Some(block) = self.blocks.get((count.ilog2() - FIRST.ilog2()) as usize) else { return };
        let null = std::ptr::null_mut();
        if block.compare_exchange(null, slots.cast(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: the exchange failed, so nothing else has the pointer that `into_raw` gave.
            drop(unsafe { Box::from_raw(slots) });
        }
    }

    /// Closes a handle and returns its object.
    ///
    /// # Safety
    /// No other thread uses the handle.
    pub(crate) unsafe fn remove(&self, handle: *const H) -> Result<Box<H>, Refusal> {
        let (slot, generation) = self.find(handle)?;
        let claimed = slot.generation.compare_exchange(generation, BUSY, Ordering::AcqRel, Ordering::Relaxed);
        claimed.map_err(|_| not_open(false))?;
        let value = slot.value.swap(std::ptr::null_mut(), Ordering::AcqRel);
        slot.generation.store(generation + 1, Ordering::Release);
        if value.is_null() {
            return Err(panicked());
        }
        // SAFETY: the pointer comes from `Box::into_raw` in `insert`, and the exchange gives it to one caller only.
        Ok(unsafe { Box::from_raw(value) })
    }
}

#[cold]
fn not_open(null: bool) -> Refusal {
    invalid(if null { "the handle is null" } else { "the handle is closed, or was never opened" })
}

#[cold]
fn panicked() -> Refusal {
    let message = "a bug in the library ended an earlier call on this handle; end the process to release the file";
    Refusal { code: PRECURSOR_PANIC, message: Some(message.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{FIRST, Table};
    use crate::c_types::{PRECURSOR_INVALID, PRECURSOR_OK, PRECURSOR_PANIC, SILENT};

    struct Counted<'a>(&'a AtomicUsize, usize);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_closed_handle_is_an_error_even_after_its_slot_is_used_again() {
        let dropped = AtomicUsize::new(0);
        let table = Table::new(2);
        let count = if cfg!(miri) { 2 * FIRST } else { 10 * FIRST };
        let mut handles: Vec<_> = (0..count).map(|i| table.insert(Counted(&dropped, i)).unwrap()).collect();
        // SAFETY: this thread alone uses the table.
        let number = |handle| unsafe { table.get(handle) }.map(|object: &Counted<'_>| object.1);
        for (i, handle) in handles.iter().enumerate() {
            assert_eq!(number(*handle), Some(i));
        }
        let closed: Vec<_> = handles.iter().copied().step_by(2).collect();
        for handle in &closed {
            // SAFETY: as above.
            assert!(unsafe { table.remove(*handle) }.is_ok());
            // SAFETY: as above.
            assert!(unsafe { table.remove(*handle) }.is_err(), "closed twice");
        }
        assert_eq!(dropped.load(Ordering::Relaxed), closed.len());
        let again: Vec<_> = (0..closed.len()).map(|i| table.insert(Counted(&dropped, 1000 + i)).unwrap()).collect();
        assert!(again.iter().all(|handle| !handles.contains(handle)));
        assert!(closed.iter().all(|handle| number(*handle).is_none()));
        handles.retain(|handle| !closed.contains(handle));
        for handle in handles.into_iter().chain(again) {
            // SAFETY: as above.
            assert!(number(handle).is_some() && unsafe { table.remove(handle) }.is_ok());
        }
    }

    #[test]
    fn numbers_that_are_no_handles_and_handles_of_another_table_are_errors() {
        let (dropped, table, other) = (AtomicUsize::new(0), Table::new(1), Table::new(3));
        let open = table.insert(Counted(&dropped, 0)).unwrap();
        let foreign = other.insert(Counted(&dropped, 0)).unwrap();
        let local = Counted(&dropped, 0);
        let bits = open.addr();
        let numbers = (0..usize::BITS).map(|bit| bits ^ 1 << bit).chain([0, 1, usize::MAX, foreign.addr()]);
        for number in numbers.chain([(&raw const local).addr()]) {
            // SAFETY: this thread alone uses the table.
            let code = unsafe { table.shared(std::ptr::without_provenance(number), SILENT, |_| Ok(())) };
            assert_eq!(code, PRECURSOR_INVALID, "{number:x}");
        }
        // SAFETY: as above.
        assert_eq!(unsafe { table.shared(open, SILENT, |_| Ok(())) }, PRECURSOR_OK);
    }

    #[test]
    fn a_handle_is_refused_after_a_panic() {
        let (dropped, table) = (AtomicUsize::new(0), Table::new(1));
        let handle = table.insert(Counted(&dropped, 0)).unwrap();
        // SAFETY: this thread alone uses the table.
        let code = unsafe { table.exclusive(handle, SILENT, |_| panic!("a test")) };
        assert_eq!(code, PRECURSOR_PANIC);
        for _ in 0..2 {
            // SAFETY: as above.
            let code = unsafe { table.exclusive(handle, SILENT, |_| unreachable!()) };
            assert_eq!(code, PRECURSOR_PANIC);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { table.remove(handle) }.map(|_| ()).unwrap_err().code, PRECURSOR_PANIC);
        // SAFETY: as above.
        let code = unsafe { table.exclusive(handle, SILENT, |_| unreachable!()) };
        assert_eq!(code, PRECURSOR_INVALID, "closed");
        assert_eq!(dropped.load(Ordering::Relaxed), 0, "the object may be half changed");
    }
}
