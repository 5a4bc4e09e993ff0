//! A thread that empties the BPF programs' ring buffer, because the thread that writes the recording may itself wait
//! for a disk for seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use aya::maps::{MapData, RingBuf};

use super::layout::Record;

/// The ring buffer holds the records that a fast device causes in some 0.4 s.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A record takes a few hundred bytes.
const RECORD_BYTES: usize = 512;

/// Holds the records from the ring buffer until `take`.
pub struct Reader {
    held: Arc<Mutex<Held>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Held {
    ring: RingBuf<MapData>,
    records: Vec<Record>,
    most: usize,
    /// Records of an unknown kind, or too short.
    unread: u64,
}

impl Held {
    /// Reads records up to the limit. Further records stay in the ring buffer; the BPF programs count those that do not
    /// fit there.
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
    /// Starts the reader. It holds at most `bytes_max` bytes of records beside those in the ring buffer.
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
        // Without the thread, `take` still empties the ring buffer, only later.
        Reader { held, stop, thread: thread.ok() }
    }

    /// The number of records that could not be parsed and are lost.
    pub fn unread(&self) -> u64 {
        lock(&self.held).unread
    }

    /// Removes and returns the records received so far, and reads those in the ring buffer up to the limit.
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
