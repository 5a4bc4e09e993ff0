//! The thread that empties the kernel side's ring buffer: whoever writes the recording may stand before a disk for seconds,
//! for that is what is recorded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use aya::maps::{MapData, RingBuf};

use super::layout::Record;

/// The ring holds what a fast device makes in some 0.4 s.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Records are of a few hundred bytes each.
const RECORD_BYTES: usize = 512;

/// What the ring held, until somebody takes it.
pub struct Reader {
    held: Arc<Mutex<Held>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Held {
    ring: RingBuf<MapData>,
    records: Vec<Record>,
    most: usize,
    /// Records that are none of ours, or too short.
    unread: u64,
}

impl Held {
    /// Beyond the most that is held records stay in the ring: what does not fit there the kernel side counts.
    fn fill(&mut self) {
        while self.records.len() < self.most {
            let Some(bytes) = self.ring.next() else { return };
            match Record::read(&bytes) {
                Some(record) => self.records.push(record),
                None => self.unread += 1,
            }
        }
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reader {
    /// Holds so many bytes of records at most, beside those in the ring.
    pub fn start(ring: RingBuf<MapData>, bytes_max: usize) -> Reader {
        let held = Arc::new(Mutex::new(Held { ring, records: Vec::new(), most: bytes_max / RECORD_BYTES, unread: 0 }));
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, ended) = (Arc::clone(&held), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("flatwater-waits".to_owned()).spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                lock(&theirs).fill();
                std::thread::park_timeout(LOOK_EVERY);
            }
        });
        // Without the thread `take` does the same, only later.
        Reader { held, stop, thread: thread.ok() }
    }

    /// What was sent and could not be understood: lost.
    pub fn unread(&self) -> u64 {
        lock(&self.held).unread
    }

    /// Everything that the kernel side has sent so far.
    pub fn take(&self) -> Vec<Record> {
        let mut held = lock(&self.held);
        let mut taken = std::mem::take(&mut held.records);
        held.fill();
        taken.append(&mut held.records);
        taken
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::warn!("the reader of the ring buffer of waits panicked");
            }
        }
    }
}
