//! Explores the interleavings (up to a number of preemptions) of a writer and its helper under loom: they exchange
//! bytes through a ring, and a window switches to its ring and back. Each byte must reach the file once.
//!
//! Compiles `src/ring_use.rs` with loom's atomics.

use loom::cell::UnsafeCell;
use loom::sync::Arc;

mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
#[path = "../src/ring_use.rs"]
mod ring_use;

use atomics::{AtomicU64, Ordering};
use ring_use::RingUse;

/// One byte per position, in a ring and in a file; the byte of position `p` is `p + 1`.
struct Shared {
    ring: Vec<UnsafeCell<u64>>,
    file: Vec<UnsafeCell<u64>>,
    position: AtomicU64,
    flushed: AtomicU64,
    ring_use: RingUse,
}

// SAFETY: loom panics if two threads use one cell at a time, which is what this model checks.
unsafe impl Sync for Shared {}
// SAFETY: as for `Sync`.
unsafe impl Send for Shared {}

impl Shared {
    fn new(ring: u64, file: u64) -> Shared {
        let cells = |n| (0..n).map(|_| UnsafeCell::new(0)).collect();
        let (position, flushed) = (AtomicU64::new(0), AtomicU64::new(0));
        Shared { ring: cells(ring), file: cells(file), position, flushed, ring_use: RingUse::idle() }
    }

    fn capacity(&self) -> u64 {
        self.ring.len() as u64
    }

    fn ring(&self, at: u64) -> &UnsafeCell<u64> {
        &self.ring[(at % self.capacity()) as usize]
    }

    /// Stores the next byte in the file, like `window`.
    fn store_in_file(&self, at: u64) {
        // SAFETY: loom panics if another thread uses the cell now.
        self.file[at as usize].with_mut(|place| unsafe { *place = at + 1 });
        self.position.store(at + 1, Ordering::Release);
    }

    fn store_in_ring(&self, at: u64) {
        // SAFETY: as in `store_in_file`.
        self.ring(at).with_mut(|place| unsafe { *place = at + 1 });
        self.position.store(at + 1, Ordering::Release);
    }

    /// Copies waiting bytes from the ring to the file, at most `most`.
    fn flush(&self, most: u64) {
        let (from, end) = ring_use::waiting(&self.position, &self.flushed, most);
        for at in from..end {
            // SAFETY: as in `store_in_file`.
            let byte = self.ring(at).with(|place| unsafe { *place });
            // SAFETY: as in `store_in_file`.
            self.file[at as usize].with_mut(|place| unsafe {
                assert_eq!(*place, 0, "position {at} is in the file already");
                *place = byte;
            });
        }
        if end > from {
            self.flushed.store(end, Ordering::Release);
        }
    }

    fn check(&self, end: u64) {
        for at in 0..end {
            // SAFETY: as in `store_in_file`.
            assert_eq!(self.file[at as usize].with(|place| unsafe { *place }), at + 1, "position {at}");
        }
    }
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn one_producer_hands_over_through_a_ring() {
    const END: u64 = 4;
    check(3, || {
        let shared = Arc::new(Shared::new(2, END));
        let flusher = Arc::clone(&shared);
        let flusher = loom::thread::spawn(move || {
            while flusher.flushed.load(Ordering::Relaxed) < END {
                flusher.flush(1);
                loom::thread::yield_now();
            }
        });
        for at in 0..END {
            while ring_use::limit(&shared.flushed, shared.capacity()) <= at {
                loom::thread::yield_now();
            }
            shared.store_in_ring(at);
        }
        flusher.join().unwrap();
        shared.check(END);
    });
}

/// An observer, like the thread that adds rings, must never see more bytes flushed than published. With the two reads
/// in the other order it did, and the difference overflowed (found by a power-cut test under load).
#[test]
fn an_onlooker_sees_no_more_flushed_than_published() {
    const END: u64 = 2;
    check(2, || {
        let shared = Arc::new(Shared::new(END, END));
        let (flushing, looking) = (Arc::clone(&shared), Arc::clone(&shared));
        let flusher = loom::thread::spawn(move || {
            while flushing.flushed.load(Ordering::Acquire) < END {
                flushing.flush(1);
                loom::thread::yield_now();
            }
        });
        let onlooker = loom::thread::spawn(move || {
            let (flushed, position) = ring_use::waiting(&looking.position, &looking.flushed, END);
            assert!(flushed <= position, "{flushed} of {position}");
        });
        for at in 0..END {
            shared.store_in_ring(at);
        }
        flusher.join().unwrap();
        onlooker.join().unwrap();
        shared.check(END);
    });
}

/// A reader copies a byte from the ring while the writer reuses its place: the copy is the published byte, or it is
/// discarded.
#[test]
fn a_reader_never_takes_a_byte_whose_place_is_reused() {
    check(3, || {
        let ring = Arc::new(AtomicU64::new(0));
        let (position, flushed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let reader = {
            let (ring, position, flushed) = (Arc::clone(&ring), Arc::clone(&position), Arc::clone(&flushed));
            loom::thread::spawn(move || {
                if position.load(Ordering::Acquire) == 0 {
                    return;
                }
                let byte = ring.load(Ordering::Relaxed);
                assert!(byte == 1 || !ring_use::is_unused(&flushed, 0), "the next byte was taken for this one");
            })
        };
        let flusher = {
            let (position, flushed) = (Arc::clone(&position), Arc::clone(&flushed));
            loom::thread::spawn(move || {
                if ring_use::waiting(&position, &flushed, 1).1 == 1 {
                    flushed.store(1, Ordering::Release);
                }
            })
        };
        ring.store(1, Ordering::Relaxed);
        position.store(1, Ordering::Release);
        if ring_use::limit(&flushed, 1) > 1 {
            ring.store(2, Ordering::Relaxed);
            position.store(2, Ordering::Release);
        }
        reader.join().unwrap();
        flusher.join().unwrap();
    });
}

/// Two bytes go through the window, two through the ring, and the next through the window once the ring is empty.
#[test]
fn a_window_switches_to_its_ring_and_back() {
    const END: u64 = 4;
    check(3, || {
        let shared = Arc::new(Shared::new(2, END + 1));
        let helper = Arc::clone(&shared);
        let helper = loom::thread::spawn(move || {
            // The helper ends when the ring is left for good, as at close.
            while !helper.ring_use.in_use() {
                loom::thread::yield_now();
            }
            while helper.ring_use.in_use() {
                let _ = helper.ring_use.with(|| helper.flush(1));
                loom::thread::yield_now();
            }
        });
        shared.store_in_file(0);
        // As in `Stage::enter`: bytes that were in the file before count as flushed, and only then may the helper look.
        shared.flushed.store(1, Ordering::Relaxed);
        shared.ring_use.enter();
        for at in 1..3 {
            shared.store_in_ring(at);
        }
        while !shared.ring_use.leave(&shared.flushed, 3, || {}) {
            loom::thread::yield_now();
        }
        shared.store_in_file(3);
        helper.join().unwrap();
        shared.check(END);
    });
}
