//! The fields that the writer stores into on every append, in a page that forks do not write-protect.
//!
//! A fork write-protects every private page of the parent; the next store faults and waits until the fork is done. So
//! these fields are, like the ring and the window, in shared memory that children do not get.

use std::io;
use std::ops::{Deref, DerefMut};

use crate::lane::Lane;
use crate::live::memory;
use crate::sys::{Mapping, page_bytes};

/// The writer's fields.
#[derive(Debug)]
pub(crate) struct Hot {
    pub(crate) lane: Lane,
    /// Time of the last frame.
    pub(crate) time: u64,
    pub(crate) worst_ticks: u64,
    pub(crate) appends: u64,
    /// Length of the reservation that `reserve` lent last and no call has used or dropped.
    pub(crate) reserved: Option<usize>,
}

const _: () = assert!(size_of::<Hot>() <= 4096 && !std::mem::needs_drop::<Hot>());

/// A page that holds a [`Hot`].
#[derive(Debug)]
pub(crate) struct HotPage(Mapping);

impl HotPage {
    pub(crate) fn new(hot: Hot) -> io::Result<HotPage> {
        let bytes = page_bytes();
        let file = memory(c"precursor-hot", bytes)?;
        let map = Mapping::of(&file, bytes as usize)?;
        map.not_in_children()?;
        // Without the right to lock, the page stays unlocked like the mode's memory; `Choice::reasons` says so.
        let _ = map.lock_on_fault(0, bytes as usize);
        // SAFETY: the mapping is writable, page-aligned, at least 4096 bytes long (see the assertion above) and not
        // shared.
        unsafe { map.base().cast::<Hot>().write(hot) };
        Ok(HotPage(map))
    }
}

impl Deref for HotPage {
    type Target = Hot;

    #[inline(always)]
    fn deref(&self) -> &Hot {
        // SAFETY: `new` has stored a `Hot` here, and the page is reached only through `self`. A forked child, where the
        // page is not mapped, must not come here; callers check `born` first.
        unsafe { &*self.0.base().cast::<Hot>() }
    }
}

impl DerefMut for HotPage {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Hot {
        // SAFETY: as in `deref`, and the borrow of `self` is unique.
        unsafe { &mut *self.0.base().cast::<Hot>() }
    }
}
