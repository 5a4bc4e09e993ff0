//! What the writer stores into on every append, kept out of the way of fork.
//!
//! A fork write-protects every private page of the parent; the next store into one is a page fault that waits for the fork to
//! end. So the writer's own few words live, like the ring and the window, in shared memory that children do not get.

use std::io;
use std::ops::{Deref, DerefMut};

use crate::lane::Lane;
use crate::live::memory;
use crate::sys::{Mapping, page_bytes};

/// The writer's words.
#[derive(Debug)]
pub(crate) struct Hot {
    pub(crate) lane: Lane,
    pub(crate) worst_ticks: u64,
    pub(crate) appends: u64,
    /// Bytes that the last `reserve` lent and that no call has used or dropped since.
    pub(crate) reserved: Option<usize>,
}

const _: () = assert!(size_of::<Hot>() <= 4096 && !std::mem::needs_drop::<Hot>());

/// A page that holds them.
#[derive(Debug)]
pub(crate) struct HotPage(Mapping);

impl HotPage {
    pub(crate) fn new(hot: Hot) -> io::Result<HotPage> {
        let bytes = page_bytes();
        let file = memory(c"precursor-hot", bytes)?;
        let map = Mapping::of(&file, bytes as usize)?;
        map.not_in_children()?;
        // Without lock rights the page stays unlocked, as the rest does; the choice of mode has said so.
        let _ = map.lock_on_fault(0, bytes as usize);
        // SAFETY: a fresh page, aligned for anything, larger than Hot, and ours alone.
        unsafe { map.base().cast::<Hot>().write(hot) };
        Ok(HotPage(map))
    }
}

impl Deref for HotPage {
    type Target = Hot;

    #[inline(always)]
    fn deref(&self) -> &Hot {
        // SAFETY: written in `new`, and reached through this owner alone.
        unsafe { &*self.0.base().cast::<Hot>() }
    }
}

impl DerefMut for HotPage {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Hot {
        // SAFETY: as above, and the borrow of self is unique.
        unsafe { &mut *self.0.base().cast::<Hot>() }
    }
}
