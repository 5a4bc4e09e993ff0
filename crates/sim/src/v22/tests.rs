//! The three forms of bforget, on a handful of buffers.

use super::buffers::{Buffers, On};
use crate::kernel::Bforget;

/// Takes one buffer through getblk, dirty, brelse, and forgets it.
fn forgotten(form: Bforget) -> Buffers {
    let mut buffers = Buffers::default();
    buffers.grow();
    let id = buffers.getblk(77).expect("three more are free");
    buffers.mark_dirty(id, 0);
    buffers.brelse(id);
    let held = buffers.find(77).expect("hashed");
    buffers.bforget(held, form);
    buffers
}

#[test]
fn an_orphan_is_clean_nameless_and_on_no_free_list() {
    let mut buffers = forgotten(Bforget::Orphans);
    assert_eq!((buffers.count(On::Free), buffers.count(On::Clean), buffers.orphaned), (3, 1, 1));
    assert!(buffers.find(77).is_none());
    assert!(buffers.try_to_free(0), "shrink_mmap may still take its page");
}

#[test]
fn the_later_forms_put_it_back_where_getblk_looks() {
    for form in [Bforget::FreesWhenUnheld, Bforget::PutsLastFree] {
        let mut buffers = forgotten(form);
        assert_eq!((buffers.count(On::Free), buffers.count(On::Clean), buffers.orphaned), (4, 0, 0));
        assert!(buffers.find(77).is_none());
    }
}

#[test]
fn only_the_last_form_spares_a_buffer_that_another_holds() {
    for (form, found) in [(Bforget::Orphans, false), (Bforget::FreesWhenUnheld, false), (Bforget::PutsLastFree, true)] {
        let mut buffers = Buffers::default();
        buffers.grow();
        let _other = buffers.getblk(5).expect("free");
        let held = buffers.find(5).expect("hashed");
        buffers.bforget(held, form);
        assert_eq!(buffers.find(5).is_some(), found, "{form:?}");
        assert!(!buffers.try_to_free(0), "held by the other");
    }
}
