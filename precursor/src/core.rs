//! State that the writer, its helper threads and callers of `sync_to` share.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use crate::budget::Part;
use crate::claim;
use crate::error::{AppendError, SyncError};
use crate::files::Names;
use crate::fork::{Born, Locked};
use crate::frame::{self, FileHeader};
use crate::handles::Dir;
use crate::lasting::Removal;
use crate::live::{Line, LiveMap};
use crate::mode::Mode;
use crate::options::{BackPressure, Framing};
use crate::own::OwnFile;
use crate::sidecar::{Entry, Sidecar};
use crate::sigbus::Guarded;
use crate::space::Space;
use crate::stage::Stage;
use crate::sys::{Mapping, page_bytes};

/// A data file of the appender; `window` also maps it.
#[derive(Debug)]
pub(crate) struct DataFile {
    pub(crate) seq: u64,
    pub(crate) file: Arc<OwnFile>,
    /// Declared before the mapping, so that it is dropped first.
    pub(crate) guard: Option<Guarded>,
    pub(crate) map: Option<Mapping>,
    /// End of the pages that the writer may use, bytes of this file.
    pub(crate) warm: AtomicU64,
    /// `prefetch`: end of the zeros. The helper writes them, so it would overwrite the data of a writer beyond this.
    pub(crate) zeroed: AtomicU64,
    /// Excludes other appenders; `None` after close.
    lock: Mutex<Option<Locked>>,
}

impl DataFile {
    /// Locks file `seq`; fails if another appender holds the lock.
    pub(crate) fn new(
        names: &Names,
        seq: u64,
        file: OwnFile,
        map: Option<Mapping>,
        guarded: bool,
    ) -> io::Result<DataFile> {
        let lock = Mutex::new(Some(names.lock(seq, &file)?));
        let guard = map.as_ref().filter(|_| guarded).map(|map| Guarded::new(map.base(), map.len()));
        let (warm, zeroed) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(DataFile { seq, file: Arc::new(file), guard, map, warm, zeroed, lock })
    }
}

/// Why the appender has failed for good.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) what: &'static str,
    pub(crate) message: String,
}

/// What other threads tell the writer. Read by every append and rarely stored, so it gets a separate cache line.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) failed: AtomicBool,
    /// The current file is old: the next append begins another, if one is ready.
    pub(crate) roll_due: AtomicBool,
}

/// Counters of rare events.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) late: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) rolls: AtomicU64,
    pub(crate) grown: AtomicU64,
    /// How often `window` switched to its ring.
    pub(crate) fallbacks: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) current: Arc<DataFile>,
    /// Previous files that are not known to be durable.
    pub(crate) older: Vec<Left>,
}

/// A previous file, with the descriptor through which it was written. A descriptor opened later may miss a write-back
/// error: the kernel reports it once to each open file description, and forgets it with the inode (`lib/errseq.c`,
/// `fs/inode.c`).
#[derive(Debug, Clone)]
pub(crate) struct Left {
    pub(crate) seq: u64,
    pub(crate) file: Arc<OwnFile>,
}

/// Most previous files kept open without a sync. Beyond it, each roll syncs the oldest.
const LEFT_MAX: usize = 128;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) mode: Mode,
    pub(crate) locked: bool,
    pub(crate) names: Names,
    /// Directory for shared memory; `None` if there is none and the live block is anonymous.
    pub(crate) shm: Option<Dir>,
    /// Stem of this run's names in that directory.
    pub(crate) stem: String,
    pub(crate) shm_id: u64,
    pub(crate) token: u64,
    /// The process that opened the appender.
    pub(crate) born: Born,
    /// Event that may remove the shared memory.
    pub(crate) removal: Option<Removal>,
    pub(crate) framing: Framing,
    /// Whether the frames carry a time.
    pub(crate) times: bool,
    /// Number of the first record of this appender.
    pub(crate) first_number: u64,
    pub(crate) back_pressure: BackPressure,
    pub(crate) roll_bytes: u64,
    pub(crate) memory_bytes: u64,
    /// This appender's part of the process's memory budget; returned when the last handle is dropped.
    #[expect(dead_code, reason = "only its drop matters")]
    pub(crate) part: Part,
    pub(crate) live: LiveMap,
    pub(crate) counters: Line<Counters>,
    pub(crate) files: Mutex<Files>,
    /// Locked while a roll syncs the oldest previous file and stores the failure, if there is one.
    pub(crate) leaving: Mutex<()>,
    /// The file prepared for the roll, as a raw `Arc`; null if there is none. An atomic, because a descheduled helper
    /// might hold a lock.
    pub(crate) next: AtomicPtr<DataFile>,
    pub(crate) durable: AtomicU64,
    pub(crate) signals: Line<Signals>,
    pub(crate) failure: OnceLock<Failure>,
    pub(crate) space: Space,
    pub(crate) closing: AtomicBool,
    /// Closing, and everything that will be is in the file.
    pub(crate) filed: AtomicBool,
    pub(crate) helper: OnceLock<Thread>,
    /// `window`: its fallback ring.
    pub(crate) stage: OnceLock<Stage>,
    /// Locked during a sync; `None` after close.
    pub(crate) sidecar: Mutex<Option<Sidecar>>,
    /// Makes the next helper that takes a turn panic.
    #[cfg(test)]
    pub(crate) doomed: AtomicBool,
}

/// Locks a mutex, even a poisoned one: the data are plain values that no interrupted change can leave invalid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Core {
    pub(crate) fn fail(&self, what: &'static str, error: &io::Error) {
        // Such a file system also loses pages that were written and not synced, and recovery must not expect them.
        if matches!(error.raw_os_error(), Some(libc::EIO | libc::EROFS | libc::ENXIO | libc::ENODEV | libc::ESTALE)) {
            self.live.distrust(self.durable.load(Ordering::Acquire));
        }
        // Only the first failure is kept; later ones follow from it.
        let _ = self.failure.set(Failure { what, message: error.to_string() });
        self.signals.0.failed.store(true, Ordering::SeqCst);
    }

    /// Panics once if a test has set `doomed`.
    #[cfg(test)]
    pub(crate) fn panic_if_doomed(&self) {
        assert!(!self.doomed.swap(false, Ordering::Relaxed), "the test makes this helper panic");
    }

    #[cfg(not(test))]
    #[inline(always)]
    #[allow(clippy::unused_self, reason = "the same signature as in the tests")]
    pub(crate) fn panic_if_doomed(&self) {}

    pub(crate) fn wake_helper(&self) {
        if let Some(helper) = self.helper.get() {
            helper.unpark();
        }
    }

    /// Fails if a store into the window did not reach the file. Callers read the position first.
    pub(crate) fn check_stores(&self, file: &DataFile) -> io::Result<()> {
        if file.guard.as_ref().is_some_and(Guarded::hit) {
            self.live.distrust(self.durable.load(Ordering::Acquire));
            return Err(Guarded::error());
        }
        Ok(())
    }

    /// The error that every append returns after a failure.
    pub(crate) fn failure(&self) -> Option<AppendError> {
        self.failure.get().map(|f| AppendError::Failed { what: f.what, message: f.message.clone() })
    }

    /// As [`Core::failure`], but only one load while nothing has failed.
    #[inline(always)]
    pub(crate) fn failure_seen(&self) -> Option<AppendError> {
        if self.signals.0.failed.load(Ordering::SeqCst) { self.failure() } else { None }
    }

    /// Why waiting for room would be pointless, if it is.
    pub(crate) fn append_refusal(&self) -> Option<AppendError> {
        if let Some(failed) = self.failure() {
            return Some(failed);
        }
        self.space.exhausted().map(|bytes_left| AppendError::OutOfSpace { bytes_left })
    }

    /// Bytes of a rolled file that records may fill.
    pub(crate) fn roll_room(&self) -> u64 {
        let mark = if self.framing == Framing::Records { frame::END_MARK_LEN as u64 } else { 0 };
        self.roll_bytes.saturating_sub(mark)
    }

    /// Header of a file that begins now with record `first`.
    pub(crate) fn header(&self, seq: u64, base: u64, first: u64) -> FileHeader {
        FileHeader { seq, base, first, begun: now_ns() }
    }

    /// The time for a record's frame; 0 if records carry no time.
    #[inline(always)]
    pub(crate) fn time(&self) -> u64 {
        if self.times { now_ns() } else { 0 }
    }

    /// Releases the files for other appenders, since other handles keep this core alive after close.
    pub(crate) fn unlock_files(&self) {
        drop(self.take_next());
        let current = Arc::clone(&lock(&self.files).current);
        drop(lock(&current.lock).take());
    }

    /// Takes the prepared file, if it is ready.
    pub(crate) fn take_next(&self) -> Option<Arc<DataFile>> {
        let raw = self.next.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the pointer comes from `Arc::into_raw` in `offer_next`, and each swap gives it to one caller only.
        (!raw.is_null()).then(|| unsafe { Arc::from_raw(raw) })
    }

    /// Whether a file is prepared.
    pub(crate) fn has_next(&self) -> bool {
        !self.next.load(Ordering::Acquire).is_null()
    }

    pub(crate) fn offer_next(&self, file: Arc<DataFile>) {
        let old = self.next.swap(Arc::into_raw(file).cast_mut(), Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: as in `take_next`: the swap has given the old pointer to this caller only.
            drop(unsafe { Arc::from_raw(old) });
        }
    }

    /// Makes everything up to `position` durable, on the calling thread. One caller syncs at a time; those that waited
    /// find their position durable.
    pub(crate) fn sync_to(&self, position: u64) -> Result<u64, SyncError> {
        if self.born.elsewhere() {
            return Err(SyncError::Forked);
        }
        let end = match self.live.many() {
            true => claim::end(&self.live.reserved.0),
            false => self.live.position.0.load(Ordering::Acquire),
        };
        if position > end {
            return Err(SyncError::Beyond { asked: position, end });
        }
        let mut sidecar = lock(&self.sidecar);
        let durable = self.durable.load(Ordering::Acquire);
        if durable >= position {
            return Ok(durable);
        }
        let Some(held) = sidecar.as_mut() else {
            return Err(self.sync_failed("sync after close", "the appender is closed"));
        };
        self.wait_flushed(position)?;
        match self.sync_files(held) {
            Ok(target) => {
                self.durable.store(target, Ordering::Release);
                Ok(target)
            }
            Err(e) => {
                self.live.distrust(durable);
                self.fail("sync", &e);
                Err(self.sync_failed("sync", &e.to_string()))
            }
        }
    }

    /// Makes `next` the current file and keeps the old one until it is synced. Fails the appender if an older file
    /// cannot be synced, whatever the error: the kernel reports it only once.
    pub(crate) fn leave(&self, old: &DataFile, next: Arc<DataFile>) {
        let mut files = lock(&self.files);
        files.older.push(Left { seq: old.seq, file: Arc::clone(&old.file) });
        files.current = next;
        let surplus = if files.older.len() > LEFT_MAX { files.older.first().cloned() } else { None };
        drop(files);
        let Some(oldest) = surplus else { return };
        let _until_stored = lock(&self.leaving);
        match oldest.file.sync_all() {
            Ok(()) => lock(&self.files).older.retain(|left| left.seq != oldest.seq),
            Err(e) => {
                self.live.distrust(self.durable.load(Ordering::Acquire));
                self.fail("sync a previous file", &e);
            }
        }
    }

    /// Syncs previous files. Fails also if `leave` has consumed the error of one of them.
    pub(crate) fn sync_left(&self, older: &[Left]) -> io::Result<()> {
        for left in older {
            left.file.sync_all()?;
        }
        drop(lock(&self.leaving));
        match self.failure.get() {
            Some(f) => Err(io::Error::other(format!("{}: {}", f.what, f.message))),
            None => Ok(()),
        }
    }

    fn sync_failed(&self, what: &'static str, message: &str) -> SyncError {
        SyncError::Failed { what, message: message.to_owned(), durable: self.durable.load(Ordering::Acquire) }
    }

    /// Waits until everything before `position` has reached the file.
    fn wait_flushed(&self, position: u64) -> Result<(), SyncError> {
        let failures = self.space.failures();
        loop {
            if let Some(f) = self.failure.get() {
                return Err(self.sync_failed(f.what, &f.message));
            }
            if self.filed_end() >= position {
                return Ok(());
            }
            // There may be room again since the last attempt.
            if let Some(bytes_left) = self.space.exhausted().filter(|_| self.space.failures() > failures) {
                return Err(self.sync_failed("write", &format!("out of space, {bytes_left} bytes left")));
            }
            self.wake_helper();
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn sync_files(&self, sidecar: &mut Sidecar) -> io::Result<u64> {
        // First the current file, then the end of the data. After a roll in between, the end may lie in a newer file;
        // then both are read again.
        let (current, older, base, target) = loop {
            let epoch = self.live.epoch();
            let (seq, base) = self.live.file();
            let files = lock(&self.files);
            let (current, older) = (Arc::clone(&files.current), files.older.clone());
            drop(files);
            let target = self.filed_end();
            if current.seq == seq && epoch == self.live.epoch() {
                break (current, older, base, target);
            }
            // The helper that would take note of the roll may have ended.
            if let Some(f) = self.failure.get() {
                return Err(io::Error::other(format!("{}: {}", f.what, f.message)));
            }
            self.wake_helper();
            std::thread::sleep(Duration::from_micros(50));
        };
        self.sync_left(&older)?;
        self.check_stores(&current)?;
        let len = target - base;
        match &current.map {
            Some(map) => {
                sync_mapped(map, self.durable.load(Ordering::Relaxed).saturating_sub(base), len)?;
                current.file.check_writable()?;
            }
            None => current.file.sync_data()?,
        }
        // The first sync in each file of a pattern records its base, so that the files before it may be archived.
        let rolled = self.roll_bytes != 0 && sidecar.seq != current.seq;
        if rolled || self.preallocated() && self.framing == Framing::None {
            // At least the number of the next record: the counter may lag behind the position by one record.
            let number = self.next_number() + u64::from(!self.live.many());
            sidecar.write(&self.entry(current.seq, len, base, Some(number)))?;
        }
        lock(&self.files).older.retain(|left| !older.iter().any(|done| done.seq == left.seq));
        Ok(target)
    }

    /// Number of the next record.
    pub(crate) fn next_number(&self) -> u64 {
        match self.live.many() {
            true => self.live.unnumbered().1,
            false => self.first_number + self.live.position.1.appends.load(Ordering::Relaxed),
        }
    }

    /// Whether the file is longer than its data while it is open.
    pub(crate) fn preallocated(&self) -> bool {
        matches!(self.mode, Mode::Window | Mode::Prefetch)
    }

    pub(crate) fn entry(&self, seq: u64, len: u64, base: u64, number: Option<u64>) -> Entry {
        Entry {
            token: self.token,
            seq,
            len,
            base: Some(base),
            closed: false,
            preallocated: self.preallocated(),
            framed: self.framing == Framing::Records,
            shm_id: self.shm_id,
            boot: crate::probe::boot_id(),
            number: number.filter(|_| self.framing == Framing::Records),
            shm_dir: self.shm.as_ref().map(|dir| dir.path().to_owned()).unwrap_or_default(),
        }
    }

    /// Directory in which rings get names; `None` without a named live block, through which recovery finds them.
    pub(crate) fn named_shm(&self) -> Option<&Dir> {
        self.shm.as_ref().filter(|_| self.live.survives_process())
    }
}

/// The time of day, ns since 1970.
pub(crate) fn now_ns() -> u64 {
    // Not rustix's clock, which looks for the vDSO by itself and dies under valgrind.
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Syncs a range of a mapped file. The kernel write-protects the pages that it writes; the last one is the writer's
/// current page, so it is made writable again at once.
fn sync_mapped(map: &Mapping, from: u64, to: u64) -> io::Result<()> {
    let page = page_bytes();
    let (from, end) = (from / page * page, to.next_multiple_of(page));
    if from < end {
        map.sync(from as usize, (end - from) as usize)?;
        let last = end - page;
        // Best effort: if it fails, the writer takes a page fault.
        let _ = map.populate_write(last as usize, page as usize);
    }
    Ok(())
}

impl Drop for Core {
    fn drop(&mut self) {
        drop(self.take_next());
    }
}
