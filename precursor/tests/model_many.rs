//! Explores interleavings (up to a number of preemptions and a time) of producers and consumer on a shared ring under
//! loom: no record may be torn, lost, doubled or out of the producer's order, and no two threads may use a byte at a
//! time.
//!
//! Compiles `src/claim.rs` and `src/frame.rs` with loom's atomics.

use loom::cell::UnsafeCell;
use loom::sync::Arc;

mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}
#[allow(dead_code, reason = "the model has no numbers")]
#[path = "../src/claim.rs"]
mod claim;
#[allow(dead_code, reason = "the model uses a part of the file")]
#[path = "../src/frame.rs"]
mod frame;

use atomics::{AtomicU64, Ordering};
use claim::Taken;

/// Length of each record: word, number, time and 8 bytes of payload.
const RECORD: u64 = 32;

/// A ring of records, each with a word and a payload.
struct Ring {
    words: Vec<AtomicU64>,
    payloads: Vec<UnsafeCell<u64>>,
    reserved: AtomicU64,
    freed: AtomicU64,
}

// SAFETY: loom panics if two threads use one cell at a time, which is what this model checks.
unsafe impl Sync for Ring {}
// SAFETY: as for `Sync`.
unsafe impl Send for Ring {}

impl Ring {
    fn new(records: u64) -> Ring {
        Ring {
            words: (0..records).map(|_| AtomicU64::new(0)).collect(),
            payloads: (0..records).map(|_| UnsafeCell::new(0)).collect(),
            reserved: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        }
    }

    fn capacity(&self) -> u64 {
        self.words.len() as u64 * RECORD
    }

    fn index(&self, at: u64) -> usize {
        assert!(at.is_multiple_of(RECORD));
        (at % self.capacity() / RECORD) as usize
    }

    fn payload(&self, at: u64) -> u64 {
        // SAFETY: loom panics if another thread writes the cell now.
        self.payloads[self.index(at)].with(|value| unsafe { *value })
    }
}

impl claim::Places for Ring {
    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[self.index(at)]
    }

    unsafe fn copy_in(&self, at: u64, _time: u64, bytes: &[u8]) {
        let value = u64::from_le_bytes(bytes.try_into().unwrap());
        // SAFETY: loom panics if another thread uses the cell now.
        self.payloads[self.index(at)].with_mut(|place| unsafe { *place = value });
    }

    unsafe fn wipe(&self, at: u64, len: u64) {
        for at in (at..at + len).step_by(RECORD as usize) {
            self.words[self.index(at)].store(0, Ordering::Relaxed);
            // SAFETY: as in `copy_in`.
            self.payloads[self.index(at)].with_mut(|place| unsafe { *place = 0 });
        }
    }
}

/// Appends records. Returns the number of accepted ones.
fn produce(ring: &Ring, producer: u64, records: u64) -> u64 {
    for i in 0..records {
        let bytes = (producer << 32 | i).to_le_bytes();
        let at = loop {
            match claim::take(&ring.reserved, &ring.freed, ring.capacity(), RECORD) {
                Taken::At(at) => break at,
                Taken::Full => loom::thread::yield_now(),
                Taken::Sealed => return i,
            }
        };
        // SAFETY: `take` has just given `at` to this record, and it is filled once.
        unsafe { claim::fill(ring, at, 0, &bytes) };
    }
    records
}

/// Reads and frees records in order up to the end that `wanted` returns. Each must be whole and its producer's next.
/// Returns the number of records of each producer.
fn consume(ring: &Ring, wanted: impl Fn() -> u64) -> [u64; 2] {
    let mut next = [0u64; 2];
    let mut at = 0;
    while at < wanted() {
        let Some(end) = claim::published(ring, at) else {
            loom::thread::yield_now();
            continue;
        };
        let value = ring.payload(at);
        let word = frame::data(&value.to_le_bytes(), 0).to_le();
        assert_eq!(claim::Places::word(ring, at).load(Ordering::Relaxed), word, "torn");
        let producer = (value >> 32) as usize;
        assert_eq!(value & 0xffff_ffff, next[producer], "out of order, lost or doubled");
        next[producer] += 1;
        // SAFETY: the record is published and has been read, and this is the only consumer.
        unsafe { claim::give_back(ring, &ring.freed, at, end) };
        at = end;
    }
    next
}

/// `each`: records of each producer. `sealing`: the consumer seals the ring at any time, then reads every accepted
/// record.
fn model(slots: u64, each: [u64; 2], preemptions: usize, sealing: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Producers that wait for room take turns with the consumer.
    builder.max_branches = 20_000;
    // A slow machine explores fewer interleavings; the test prints how many. `make test-power-cuts` gives each model a minute.
    let seconds = std::env::var("PRECURSOR_MODEL_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    builder.max_duration = Some(std::time::Duration::from_secs(seconds));
    let models = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = std::sync::Arc::clone(&models);
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let ring = Arc::new(Ring::new(slots));
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let ring = Arc::clone(&ring);
                loom::thread::spawn(move || produce(&ring, producer as u64, each[producer]))
            })
            .collect();
        if sealing {
            claim::seal(&ring.reserved);
        }
        let wanted = if sealing { None } else { Some((each[0] + each[1]) * RECORD) };
        let found = consume(&ring, || wanted.unwrap_or_else(|| claim::end(&ring.reserved)));
        let accepted: Vec<_> = producers.into_iter().map(|producer| producer.join().unwrap()).collect();
        assert_eq!(accepted, found);
    });
    let models = models.load(std::sync::atomic::Ordering::Relaxed);
    println!("{slots} places, {each:?} records, {preemptions} preemptions: {models} interleavings");
    assert!(models > 100, "{models}");
}

#[test]
fn two_producers_with_room_for_all() {
    model(2, [1, 1], 3, false);
}

/// The ring is reused: a place is taken while its neighbour is still being filled.
#[test]
#[ignore = "make test-power-cuts"]
fn two_producers_on_a_ring_that_comes_round() {
    model(2, [2, 1], 2, false);
}

/// The smallest ring: a producer must wait for the consumer.
#[test]
#[ignore = "make test-power-cuts"]
fn two_producers_on_one_place() {
    model(1, [1, 1], 2, false);
}

/// As in `close`: the consumer waits for every place that was taken, and no further place is given out.
#[test]
fn a_sealed_ring_gives_up_every_accepted_record() {
    model(2, [1, 1], 3, true);
    model(1, [2, 1], 2, true);
}
