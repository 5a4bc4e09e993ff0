//! The live block: a page of shared memory that holds the writer's position, so that the position survives the process.
//!
//! It is on tmpfs and not beside the file: write-back write-protects a page of a file on disk, and the next store of
//! the position would fault into the file system.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::thread::futex;

use crate::fork::Locked;
use crate::frame::Format;
use crate::handles::Dir;
use crate::sidecar::Entry;
use crate::sys::{Mapping, page_bytes};

const MAGIC: u64 = u64::from_le_bytes(*b"prcrsr\x02\x00");
/// Most roll boundaries that are announced and not yet reached by the flusher.
pub(crate) const BOUNDARIES: usize = 64;
/// Space for the data's path, words.
const PATH_WORDS: usize = 128;
/// Most rings of an appender during its life.
pub(crate) const RINGS: usize = 12;

/// A ring's capacity and its first position: the part of the file that the ring holds.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct RingEntry {
    /// Capacity, bytes; a power of two.
    pub(crate) capacity: AtomicU64,
    /// First position stored in it.
    pub(crate) start: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct FileEntry {
    pub(crate) seq: AtomicU64,
    pub(crate) base: AtomicU64,
}

/// Many producers: records from `position` on have no number yet; the first of them gets `number`.
#[derive(Debug, Default)]
#[repr(C)]
struct NumberEntry {
    position: AtomicU64,
    number: AtomicU64,
}

/// A value on separate cache lines (two, for the adjacent-line prefetcher), against false sharing between threads.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// The position and counters that the writer stores on every append: one cache line.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Writer(pub(crate) AtomicU64, pub(crate) WriterCounters);

/// For readers: the number of accepted records, and the longest append in ticks.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct WriterCounters {
    pub(crate) appends: AtomicU64,
    pub(crate) worst_ticks: AtomicU64,
}

/// The live block. Every field is atomic, since another process may read it at any time.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Live {
    magic: AtomicU64,
    token: AtomicU64,
    /// Bit 0: framed (for debuggers). Bit 1: many producers. Bit 2: the frames are of format 2. Bit 3: the writer never
    /// wakes readers.
    flags: AtomicU64,
    /// ID of the boot in which the block was created, low half first. Shared memory does not outlive its boot, so a
    /// block of another boot is forged.
    boot: [AtomicU64; 2],
    /// End of the accepted data. Stored by the producer; with many producers, by the flusher.
    pub(crate) position: Writer,
    /// Many producers: end of the places that were taken, and the bit that `claim::seal` sets.
    pub(crate) reserved: Line<AtomicU64>,
    /// Ring: end of the data that was written to the file.
    pub(crate) flushed: Line<AtomicU64>,
    /// Many producers: end of the space that was written, zeroed and freed for reuse. Behind `flushed`; otherwise
    /// recovery would take the zeros for records that never came.
    pub(crate) freed: Line<AtomicU64>,
    /// Number of changes of the current file; the low bit selects the entry in use.
    epoch: AtomicU64,
    entries: [FileEntry; 2],
    /// Number of the file that is being prepared, plus one; 0 = none.
    pub(crate) preparing: AtomicU64,
    pub(crate) ring_count: AtomicU64,
    pub(crate) rings: [RingEntry; RINGS],
    pub(crate) boundaries_pushed: AtomicU64,
    pub(crate) boundaries_popped: AtomicU64,
    pub(crate) boundaries: [AtomicU64; BOUNDARIES],
    /// One more than the last durable position when a sync failed; 0 = none has failed.
    unsound: AtomicU64,
    /// The data's path, for people: this file's name is only a hash. Length 0 if the path is too long.
    path_len: AtomicU64,
    path: [AtomicU64; PATH_WORDS],
    /// Many producers: number of changes of `numbers`; the low bit selects the entry in use.
    number_epoch: Line<AtomicU64>,
    numbers: [NumberEntry; 2],
    /// 1 if a reader sleeps on this word (futex). The thread that publishes sets it to 0 and wakes all readers.
    pub(crate) waiting: Line<AtomicU32>,
}

// The smallest page, and the offsets in docs/precursor-format.md, on which other writers and readers rely.
const _: () = assert!(size_of::<Live>() <= 4096 && align_of::<Live>() <= 4096);
const _: () = assert!(offset_of!(Live, boot) == 24 && offset_of!(Live, position) == 128);
const _: () = assert!(offset_of!(Live, reserved) == 256 && offset_of!(Live, flushed) == 384);
const _: () = assert!(offset_of!(Live, freed) == 512 && offset_of!(Live, epoch) == 640);
const _: () = assert!(offset_of!(Live, entries) == 648 && offset_of!(Live, preparing) == 680);
const _: () = assert!(offset_of!(Live, ring_count) == 688 && offset_of!(Live, rings) == 696);
const _: () = assert!(offset_of!(Live, boundaries_pushed) == 888 && offset_of!(Live, boundaries) == 904);
const _: () = assert!(offset_of!(Live, unsound) == 1416 && offset_of!(Live, path_len) == 1424);
const _: () = assert!(offset_of!(Live, number_epoch) == 2560 && offset_of!(Live, numbers) == 2688);
const _: () = assert!(offset_of!(Live, waiting) == 2816);

impl Live {
    /// Number and base (position of the first byte) of the current file.
    pub(crate) fn file(&self) -> (u64, u64) {
        let entry = &self.entries[(self.epoch.load(Ordering::Acquire) & 1) as usize];
        (entry.seq.load(Ordering::Relaxed), entry.base.load(Ordering::Relaxed))
    }

    /// Number and base of the previous file, if this run has left one.
    pub(crate) fn file_before(&self) -> Option<(u64, u64)> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let entry = &self.entries[(epoch & 1 ^ 1) as usize];
        (epoch > 1).then(|| (entry.seq.load(Ordering::Relaxed), entry.base.load(Ordering::Relaxed)))
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Makes another file current. Number and base change together.
    pub(crate) fn set_file(&self, seq: u64, base: u64) {
        let next = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        let entry = &self.entries[(next & 1) as usize];
        entry.seq.store(seq, Ordering::Relaxed);
        entry.base.store(base, Ordering::Relaxed);
        self.epoch.store(next, Ordering::Release);
    }

    pub(crate) fn many(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & 2 != 0
    }

    /// Whether the writer never wakes readers, as in Java.
    pub(crate) fn never_wakes(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & 8 != 0
    }

    /// Format of the frames in the rings.
    pub(crate) fn format(&self) -> Format {
        if self.flags.load(Ordering::Relaxed) & 4 != 0 { Format::Second } else { Format::First }
    }

    /// Many producers: position from which on the records have no number, and the number of the first.
    pub(crate) fn unnumbered(&self) -> (u64, u64) {
        let entry = &self.numbers[(self.number_epoch.0.load(Ordering::Acquire) & 1) as usize];
        (entry.position.load(Ordering::Relaxed), entry.number.load(Ordering::Relaxed))
    }

    /// The records before `position` have their numbers; the next record gets `number`.
    pub(crate) fn set_unnumbered(&self, position: u64, number: u64) {
        let next = self.number_epoch.0.load(Ordering::Relaxed).wrapping_add(1);
        let entry = &self.numbers[(next & 1) as usize];
        entry.position.store(position, Ordering::Relaxed);
        entry.number.store(number, Ordering::Relaxed);
        self.number_epoch.0.store(next, Ordering::Release);
    }

    /// Announces that a file ends at `position`. False if too many ends are waiting.
    pub(crate) fn push_boundary(&self, position: u64) -> bool {
        let pushed = self.boundaries_pushed.load(Ordering::Relaxed);
        let free = pushed - self.boundaries_popped.load(Ordering::Acquire) < BOUNDARIES as u64;
        if free {
            self.boundaries[(pushed % BOUNDARIES as u64) as usize].store(position, Ordering::Relaxed);
            self.boundaries_pushed.store(pushed + 1, Ordering::Release);
        }
        free
    }

    /// The next announced end of a file.
    pub(crate) fn next_boundary(&self) -> Option<u64> {
        let popped = self.boundaries_popped.load(Ordering::Relaxed);
        (popped < self.boundaries_pushed.load(Ordering::Acquire))
            .then(|| self.boundaries[(popped % BOUNDARIES as u64) as usize].load(Ordering::Relaxed))
    }

    /// The announced ends after position `base` that the flusher has not reached: how many, and the last of them.
    pub(crate) fn announced_after(&self, base: u64) -> Option<(u64, u64)> {
        let pushed = self.boundaries_pushed.load(Ordering::Acquire);
        let popped = self.boundaries_popped.load(Ordering::Acquire).max(pushed.saturating_sub(BOUNDARIES as u64));
        let ends = (popped..pushed)
            .filter_map(|n| Some(self.boundaries.get((n % BOUNDARIES as u64) as usize)?.load(Ordering::Relaxed)));
        ends.filter(|end| *end > base).fold(None, |found, end| Some((found.map_or(1, |(count, _)| count + 1), end)))
    }

    /// Wakes the readers that sleep, if there are any.
    #[cold]
    pub(crate) fn wake_readers(&self) {
        // After the position, in whichever thread it was stored: see `LiveView::sleep`.
        fence(Ordering::SeqCst);
        if self.waiting.0.load(Ordering::Relaxed) != 0 && self.waiting.0.swap(0, Ordering::AcqRel) != 0 {
            // Cannot fail for a mapped, aligned word. If it did, readers would look again after 20 ms.
            let _ = futex::wake(&self.waiting.0, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Whether the number of announced ends is valid. A damaged block may announce thousands, each a file to create.
    pub(crate) fn boundaries_fit(&self) -> bool {
        let (pushed, popped) =
            (self.boundaries_pushed.load(Ordering::Acquire), self.boundaries_popped.load(Ordering::Relaxed));
        pushed.checked_sub(popped).is_some_and(|waiting| waiting <= BOUNDARIES as u64)
    }

    /// Records that a sync has failed: nothing after `durable` counts as durable, even if a later sync succeeds, since
    /// the kernel has dropped the pages or marked them clean.
    pub(crate) fn distrust(&self, durable: u64) {
        let _ = self.unsound.compare_exchange(0, durable + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The last durable position before a sync failed, if one has failed.
    pub(crate) fn distrusted(&self) -> Option<u64> {
        self.unsound.load(Ordering::Acquire).checked_sub(1)
    }

    fn set_path(&self, path: &Path) {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() > 8 * PATH_WORDS {
            return;
        }
        for (word, chunk) in self.path.iter().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
        self.path_len.store(bytes.len() as u64, Ordering::Release);
    }

    /// The absolute path or pattern of the data.
    pub(crate) fn data_path(&self) -> Option<PathBuf> {
        let len = usize::try_from(self.path_len.load(Ordering::Acquire)).ok()?;
        if len == 0 || len > 8 * PATH_WORDS {
            return None;
        }
        let mut bytes: Vec<u8> = self.path.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(len);
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    }

    pub(crate) fn token(&self) -> u64 {
        self.token.load(Ordering::Relaxed)
    }

    fn boot(&self) -> u128 {
        let [low, high] = &self.boot;
        u128::from(low.load(Ordering::Relaxed)) | u128::from(high.load(Ordering::Relaxed)) << 64
    }

    /// Whether the run that wrote `entry` created this block: same token, and the boot of both is this boot.
    pub(crate) fn belongs_to(&self, entry: &Entry) -> bool {
        self.token() == entry.token && self.boot() == entry.boot && entry.boot == crate::probe::boot_id()
    }

    pub(crate) fn pop_boundary(&self) {
        self.boundaries_popped.fetch_add(1, Ordering::Release);
    }
}

/// Initial contents of a live block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Birth<'a> {
    pub(crate) token: u64,
    pub(crate) boot: u128,
    pub(crate) data: &'a Path,
    pub(crate) framed: bool,
    pub(crate) many: bool,
    pub(crate) position: u64,
    pub(crate) seq: u64,
    pub(crate) base: u64,
    /// Number of the next record.
    pub(crate) number: u64,
}

/// A mapped live block and its file.
#[derive(Debug)]
pub(crate) struct LiveMap {
    map: Mapping,
    /// Why the block is anonymous and lost with the process, if it is.
    nameless: Option<String>,
    /// Held by the appender that created the block, so that a dead appender's block can be recognised.
    lock: Locked,
}

impl LiveMap {
    /// Creates the block in `dir`, or in anonymous memory if that fails.
    pub(crate) fn create(dir: &io::Result<Dir>, stem: &str, birth: Birth<'_>) -> io::Result<LiveMap> {
        let (file, nameless) = match named(dir, stem) {
            Ok(file) => (file, None),
            Err(e) => (memory(c"precursor-live", page_bytes())?, Some(e.to_string())),
        };
        let bytes = page_bytes();
        let map = Mapping::of(&file, bytes as usize)?;
        map.not_in_children()?;
        // Without the right to lock, the page stays unlocked; `Choice::reasons` says so.
        let _ = map.lock_on_fault(0, bytes as usize);
        let live = LiveMap { map, nameless, lock: Locked::new(file)? };
        // Cannot fail for a new file. Without such locks the block would be taken for a dead appender's.
        let _ = live.lock.try_lock();
        // For readers in Java, which has no `flock`.
        let _ = live.lock.try_lock_data();
        live.token.store(birth.token, Ordering::Relaxed);
        live.flags.store(u64::from(birth.framed) | u64::from(birth.many) << 1 | 4, Ordering::Relaxed);
        let [low, high] = &live.boot;
        low.store(birth.boot as u64, Ordering::Relaxed);
        high.store((birth.boot >> 64) as u64, Ordering::Relaxed);
        for at in [&live.position.0, &live.reserved.0, &live.flushed.0, &live.freed.0] {
            at.store(birth.position, Ordering::Relaxed);
        }
        live.set_unnumbered(birth.position, birth.number);
        live.set_file(birth.seq, birth.base);
        live.set_path(birth.data);
        live.magic.store(MAGIC, Ordering::Release);
        Ok(live)
    }

    /// The valid block of that stem, if it belongs to this user. It need not match any sidecar.
    pub(crate) fn find(dir: &Dir, stem: &str) -> io::Result<Option<LiveMap>> {
        let Some(file) = dir.private(&format!("{stem}.live"))? else { return Ok(None) };
        if file.metadata()?.len() < page_bytes() {
            return Ok(None);
        }
        let live =
            LiveMap { map: Mapping::of(&file, page_bytes() as usize)?, nameless: None, lock: Locked::new(file)? };
        let whole = live.magic.load(Ordering::Acquire) == MAGIC;
        Ok(whole.then_some(live))
    }

    /// Whether the appender that created the block is alive on this machine, judged by its lock.
    pub(crate) fn is_held(&self) -> bool {
        let shared = rustix::fs::FlockOperation::NonBlockingLockShared;
        let refused = |file| rustix::fs::flock(file, shared) == Err(rustix::io::Errno::WOULDBLOCK);
        // An appender in Java has only the second lock.
        self.lock.file().get().is_ok_and(refused) || self.lock.is_data_locked()
    }

    pub(crate) fn survives_process(&self) -> bool {
        self.nameless.is_none()
    }

    /// Why the block does not survive the process.
    pub(crate) fn nameless(&self) -> Option<&str> {
        self.nameless.as_deref()
    }
}

impl std::ops::Deref for LiveMap {
    type Target = Live;

    fn deref(&self) -> &Live {
        // SAFETY: the mapping is page-aligned and at least a page long, and so as long as `Live` (see the assertion
        // above). Every field is atomic, so any bytes are valid and others may store at any time.
        unsafe { &*self.map.base().cast::<Live>() }
    }
}

fn named(dir: &io::Result<Dir>, stem: &str) -> io::Result<File> {
    let dir = dir.as_ref().map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
    create_shm(dir, &format!("{stem}.live"), page_bytes())
}

/// Creates a shared-memory file with all its blocks: a store into a page that a full tmpfs cannot provide raises
/// SIGBUS.
pub(crate) fn create_shm(dir: &Dir, name: &str, bytes: u64) -> io::Result<File> {
    dir.remove(name)?;
    let file = dir.create(name)?;
    // A file system other than tmpfs may have no fallocate; `probe::takes_shm` has refused it before.
    let given = file.set_len(bytes).and_then(|()| crate::sys::allocate(&file, 0, bytes, false));
    match given {
        Ok(()) => Ok(file),
        Err(e) => {
            // A partial file would hold memory that others need.
            dir.remove(name)?;
            Err(e)
        }
    }
}

/// Shared memory without a name, with all its blocks.
pub(crate) fn memory(name: &std::ffi::CStr, bytes: u64) -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?);
    file.set_len(bytes)?;
    crate::sys::allocate(&file, 0, bytes, false)?;
    Ok(file)
}

/// Offsets and values of the words in the block of a writer that died at `position` of file 0, for the fuzz target.
pub(crate) fn words_of_a_dead_writer(entry: &Entry, position: u64, ring: bool) -> Vec<(usize, u64)> {
    let boot = offset_of!(Live, boot);
    let mut words = vec![
        (offset_of!(Live, magic), MAGIC),
        (offset_of!(Live, token), entry.token),
        (boot, entry.boot as u64),
        (boot + 8, (entry.boot >> 64) as u64),
        (offset_of!(Live, position), position),
        (offset_of!(Live, reserved), position),
        (offset_of!(Live, flushed), position),
    ];
    if ring {
        words.extend([(offset_of!(Live, ring_count), 1), (offset_of!(Live, rings), page_bytes())]);
    }
    words
}

/// Removes this user's live block and rings of that stem. The live block last, since it says to which file the rings
/// belong.
pub(crate) fn remove_shm(dir: &Dir, stem: &str) -> io::Result<()> {
    let rings = (0..RINGS).map(|index| format!("{stem}.ring{index}"));
    for name in rings.chain([format!("{stem}.live")]) {
        match dir.private(&name) {
            Ok(None) => {}
            Ok(Some(_)) => dir.remove(&name)?,
            // Another user put it there. It was not trusted, and is left alone.
            Err(e) if crate::handles::unfit(&e).is_some() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
