//! The unsafe code of the append path on plain memory, with real threads and without system calls, so that miri can run
//! it:
//!
//!     cargo +nightly miri test -p precursor --test precursor unsafe_code::
//!
//! Compiles `src/lane.rs`, `claim.rs` and `frame.rs` unchanged.

use std::sync::Arc;

mod atomics {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
}
#[allow(dead_code, reason = "the test uses a part of the file")]
#[path = "../src/claim.rs"]
mod claim;
#[allow(dead_code, reason = "the test uses a part of the file")]
#[path = "../src/frame.rs"]
mod frame;
#[allow(dead_code, reason = "the test uses a part of the file")]
#[path = "../src/lane.rs"]
mod lane;

use atomics::{AtomicU64, Ordering};
use claim::Taken;
use lane::Lane;

/// Memory for records, aligned to 8 bytes.
fn memory(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(8)]
}

fn bytes_of(memory: &[u64]) -> Vec<u8> {
    memory.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn a_lane_stores_records_one_behind_the_other() {
    for framed in [false, true] {
        let mut memory = memory(8192);
        let base = memory.as_mut_ptr().cast::<u8>();
        let mut lane = Lane { base, mask: u64::MAX, cursor: 0, limit: 8192, framed, number: 0 };
        let records: Vec<Vec<u8>> = (0..40usize).map(|i| vec![i as u8 + 1; i * 2 % 61]).collect();
        for record in &records {
            let need = lane.need(record.len());
            assert!(need <= lane.room());
            // SAFETY: there is room for `need` bytes, `memory` lives on, and all frames begin on multiples of 8.
            unsafe { lane.put(record, 0) };
            lane.cursor += need;
        }
        // In two steps, like `reserve` and `commit`.
        // SAFETY: 5 bytes and their frame fit before the limit, and no one else uses `memory`.
        unsafe {
            lane.payload().write_bytes(0x77, 5);
            if framed {
                lane.seal(5, 0);
            }
        }
        lane.cursor += lane.need(5);
        if framed {
            // SAFETY: the mark's 8 bytes fit before the limit.
            unsafe { lane.mark_end() };
        }
        let stored = bytes_of(&memory);
        let mut expected: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        expected.push(&[0x77; 5]);
        match framed {
            true => assert!(frame::records(&with_header(&stored)).eq(expected)),
            false => assert!(stored.starts_with(&expected.concat())),
        }
    }
}

/// The frames as in a file whose first record has number 0.
fn with_header(frames: &[u8]) -> Vec<u8> {
    let header = frame::FileHeader { seq: 0, base: 0, first: 0, begun: 0 };
    [&header.encode()[..], frames].concat()
}

/// A lane whose memory begins at a later position, as in the window of a rolled file and in a ring after its first
/// round.
#[test]
fn a_lane_finds_its_place_by_position() {
    let mut memory = memory(64);
    let base = memory.as_mut_ptr().cast::<u8>();
    let start = (1u64 << 40) + 16;
    let mut window = Lane {
        base: base.wrapping_sub(1 << 40),
        mask: u64::MAX,
        cursor: start,
        limit: start + 8,
        framed: false,
        number: 0,
    };
    // SAFETY: the record goes to bytes 16 to 24 of the memory.
    unsafe { window.put(b"window!!", 0) };
    let mut ring = Lane { base, mask: 63, cursor: start + 64 + 8, limit: start + 64 + 16, framed: false, number: 0 };
    // SAFETY: the record goes to bytes 24 to 32 of the memory.
    unsafe { ring.put(b"and ring", 0) };
    let stored = bytes_of(&memory);
    assert_eq!(&stored[16..32], b"window!!and ring");
}

const RING: u64 = 256;

/// A shared ring whose bytes are reached only through raw pointers.
struct Ring {
    base: *mut u8,
    reserved: AtomicU64,
    freed: AtomicU64,
}

// SAFETY: the protocol of `claim` decides who may use which bytes; miri checks that it does.
unsafe impl Sync for Ring {}
// SAFETY: as for `Sync`.
unsafe impl Send for Ring {}

impl Ring {
    fn at(&self, at: u64) -> *mut u8 {
        // SAFETY: the offset is below RING, the length of the memory.
        unsafe { self.base.add((at % RING) as usize) }
    }
}

impl claim::Places for Ring {
    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: `at` is a multiple of 8 inside the memory, and words are accessed as atomics while the ring is
        // shared.
        unsafe { &*self.at(at).cast::<AtomicU64>() }
    }

    unsafe fn copy_in(&self, at: u64, time: u64, bytes: &[u8]) {
        for (i, byte) in time.to_le_bytes().iter().chain(bytes).enumerate() {
            // SAFETY: the caller owns the place. Byte by byte, since this ring is not mapped twice in a row.
            unsafe { self.at(at + (frame::HEADER - 8 + i) as u64).write(*byte) };
        }
    }

    unsafe fn wipe(&self, at: u64, len: u64) {
        for at in at..at + len {
            // SAFETY: the caller owns the range.
            unsafe { self.at(at).write(0) };
        }
    }
}

#[test]
fn producers_and_a_consumer_share_a_ring() {
    let each: u64 = if cfg!(miri) { 30 } else { 20_000 };
    let mut memory = memory(RING as usize);
    let base = memory.as_mut_ptr().cast::<u8>();
    let ring = Arc::new(Ring { base, reserved: AtomicU64::new(0), freed: AtomicU64::new(0) });
    std::thread::scope(|scope| {
        for producer in 0..3u8 {
            let ring = &ring;
            scope.spawn(move || {
                for i in 0..each {
                    let mut record = vec![producer; 1 + (i % 30) as usize];
                    record.extend(i.to_le_bytes());
                    let need = frame::framed_len(record.len()) as u64;
                    let at = loop {
                        match claim::take(&ring.reserved, &ring.freed, RING, need) {
                            Taken::At(at) => break at,
                            Taken::Full | Taken::Sealed => std::thread::yield_now(),
                        }
                    };
                    // SAFETY: `take` has just given `at` to this record, and it is filled once.
                    unsafe { claim::fill(&**ring, at, i, &record) };
                }
            });
        }
        let (mut at, mut next) = (0, [0u64; 3]);
        while next.iter().sum::<u64>() < 3 * each {
            let Some(end) = claim::published(&*ring, at) else {
                std::thread::yield_now();
                continue;
            };
            // SAFETY: the record is published, and no thread changes it before it is freed below.
            let bytes: Vec<u8> = (at..end).map(|at| unsafe { ring.at(at).read() }).collect();
            let found = frame::Format::Second.first(&bytes).expect("a whole, sound record");
            let record = found.payload.unwrap();
            let (head, number) = record.split_last_chunk::<8>().unwrap();
            let producer = usize::from(head[0]);
            assert_eq!(u64::from_le_bytes(*number), next[producer]);
            assert!(head.iter().all(|byte| usize::from(*byte) == producer));
            next[producer] += 1;
            // SAFETY: the record is published and has been read, and this is the only consumer.
            unsafe { claim::give_back(&*ring, &ring.freed, at, end) };
            at = end;
        }
    });
    assert_eq!(ring.reserved.load(Ordering::Relaxed), ring.freed.load(Ordering::Relaxed));
    assert!(memory.iter().all(|word| *word == 0), "freed memory must be zero");
}
