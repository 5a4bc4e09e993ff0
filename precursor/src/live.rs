//! The live block: one page of shared memory that holds the position, so that it survives the process.
//!
//! It is on tmpfs and not beside the file because a page of a disk file is write-protected whenever the kernel writes
//! it back; the writer's store of its position would then fault into the file system.

use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fork::Locked;
use crate::handles::Dir;
use crate::sidecar::Entry;
use crate::sys::{Mapping, page_bytes};

const MAGIC: u64 = u64::from_le_bytes(*b"prcrsr\x02\x00");
/// Roll boundaries announced and not yet reached by the flusher.
pub(crate) const BOUNDARIES: usize = 64;
/// Room for the data's path, in words.
const PATH_WORDS: usize = 128;
/// Rings of one appender over its life.
pub(crate) const RINGS: usize = 12;

/// A ring's place in the stream of positions.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct RingEntry {
    /// Bytes, a power of two.
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

/// Keeps what different threads store on cache lines of their own (two, for the adjacent-line prefetcher).
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// What the writer stores on every append: one cache line.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Writer(pub(crate) AtomicU64, pub(crate) WriterCounters);

/// For readers in other processes: records accepted, and the longest append in ticks.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct WriterCounters {
    pub(crate) appends: AtomicU64,
    pub(crate) worst_ticks: AtomicU64,
}

/// The page itself. Every field is atomic: a reader in another process may look at any time.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Live {
    magic: AtomicU64,
    token: AtomicU64,
    /// Bit 0 framed (for people who look with a debugger), bit 1 many producers.
    flags: AtomicU64,
    /// The boot in which it was made, low half first: shared memory does not outlive it, so that one of another boot is forged.
    boot: [AtomicU64; 2],
    /// End of what was accepted. One producer stores it; with many, the flusher does.
    pub(crate) position: Writer,
    /// Many producers: end of the places taken, and whether further ones may be (`claim::seal`).
    pub(crate) reserved: Line<AtomicU64>,
    /// Ring: end of what was written to the file.
    pub(crate) flushed: Line<AtomicU64>,
    /// Many producers: end of what was written and then zeroed, so that its space may be handed out again. Behind `flushed`,
    /// or recovery would take the zeros for records that never came.
    pub(crate) freed: Line<AtomicU64>,
    /// Number of changes of file; its low bit says which entry holds.
    epoch: AtomicU64,
    entries: [FileEntry; 2],
    /// Number of the file being prepared, plus one; 0 = none.
    pub(crate) preparing: AtomicU64,
    pub(crate) ring_count: AtomicU64,
    pub(crate) rings: [RingEntry; RINGS],
    pub(crate) boundaries_pushed: AtomicU64,
    pub(crate) boundaries_popped: AtomicU64,
    pub(crate) boundaries: [AtomicU64; BOUNDARIES],
    /// A sync has failed: one more than the last position known to be durable then; 0 = none has.
    unsound: AtomicU64,
    /// The data's path, for people: the name of this file is only a hash of it. 0 bytes = too long to be held.
    path_len: AtomicU64,
    path: [AtomicU64; PATH_WORDS],
}

const _: () = assert!(size_of::<Live>() <= 4096);

impl Live {
    /// Number and first position of the current file.
    pub(crate) fn file(&self) -> (u64, u64) {
        let entry = &self.entries[(self.epoch.load(Ordering::Acquire) & 1) as usize];
        (entry.seq.load(Ordering::Relaxed), entry.base.load(Ordering::Relaxed))
    }

    /// Number and first position of the file before the current one, if this run has left one.
    pub(crate) fn file_before(&self) -> Option<(u64, u64)> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let entry = &self.entries[(epoch & 1 ^ 1) as usize];
        (epoch > 1).then(|| (entry.seq.load(Ordering::Relaxed), entry.base.load(Ordering::Relaxed)))
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Goes over to another file: number and base appear together or not at all.
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

    /// Announces that a file ends at this position. False when too many are already announced.
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

    /// Whether it announces no more ends than it has room for: a damaged one may announce thousands, each a file to be made.
    pub(crate) fn boundaries_fit(&self) -> bool {
        let (pushed, popped) =
            (self.boundaries_pushed.load(Ordering::Acquire), self.boundaries_popped.load(Ordering::Relaxed));
        pushed.checked_sub(popped).is_some_and(|waiting| waiting <= BOUNDARIES as u64)
    }

    /// From here on nothing after that position is to be believed durable, whatever a later sync says: the kernel has dropped
    /// the pages or calls them clean.
    pub(crate) fn distrust(&self, durable: u64) {
        let _ = self.unsound.compare_exchange(0, durable + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The last durable position before a sync failed, if one has.
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

    /// The path that the data was opened by, absolute.
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

    /// Whether this is the block of the run that wrote that entry: of that token, and made in the boot that both say.
    pub(crate) fn belongs_to(&self, entry: &Entry) -> bool {
        self.token() == entry.token && self.boot() == entry.boot && entry.boot == crate::probe::boot_id()
    }

    pub(crate) fn pop_boundary(&self) {
        self.boundaries_popped.fetch_add(1, Ordering::Release);
    }
}

/// What a new live block says from the start.
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
}

/// The live block, mapped, and the file it lives in.
#[derive(Debug)]
pub(crate) struct LiveMap {
    map: Mapping,
    /// Why it is anonymous and dies with the process, if it is.
    nameless: Option<String>,
    /// Locked by the appender that made it, so that anybody can tell a dead one's block.
    lock: Locked,
}

impl LiveMap {
    /// Makes the block in `dir`, or in anonymous memory where that cannot be done.
    pub(crate) fn create(dir: &io::Result<Dir>, stem: &str, birth: Birth<'_>) -> io::Result<LiveMap> {
        let (file, nameless) = match named(dir, stem) {
            Ok(file) => (file, None),
            Err(e) => (memory(c"precursor-live", page_bytes())?, Some(e.to_string())),
        };
        let bytes = page_bytes();
        let map = Mapping::of(&file, bytes as usize)?;
        map.not_in_children()?;
        // Without lock rights the page stays unlocked: choose.rs has said so by then.
        let _ = map.lock_on_fault(0, bytes as usize);
        let live = LiveMap { map, nameless, lock: Locked::new(file) };
        // Nobody else can hold it: the file is new. Without locks there it would only be taken for a dead one's.
        let _ = live.lock.try_lock();
        live.token.store(birth.token, Ordering::Relaxed);
        live.flags.store(u64::from(birth.framed) | u64::from(birth.many) << 1, Ordering::Relaxed);
        let [low, high] = &live.boot;
        low.store(birth.boot as u64, Ordering::Relaxed);
        high.store((birth.boot >> 64) as u64, Ordering::Relaxed);
        for at in [&live.position.0, &live.reserved.0, &live.flushed.0, &live.freed.0] {
            at.store(birth.position, Ordering::Relaxed);
        }
        live.set_file(birth.seq, birth.base);
        live.set_path(birth.data);
        live.magic.store(MAGIC, Ordering::Release);
        Ok(live)
    }

    /// The whole block of that name, if it is ours. Whether it belongs to any sidecar is not asked.
    pub(crate) fn find(dir: &Dir, stem: &str) -> io::Result<Option<LiveMap>> {
        let Some(file) = dir.private(&format!("{stem}.live"))? else { return Ok(None) };
        if file.metadata()?.len() < page_bytes() {
            return Ok(None);
        }
        let live = LiveMap { map: Mapping::of(&file, page_bytes() as usize)?, nameless: None, lock: Locked::new(file) };
        let whole = live.magic.load(Ordering::Acquire) == MAGIC;
        Ok(whole.then_some(live))
    }

    /// Whether the appender that made it lives, on this machine: asked by the lock it holds.
    pub(crate) fn is_held(&self) -> bool {
        let asked = rustix::fs::flock(self.lock.file(), rustix::fs::FlockOperation::NonBlockingLockShared);
        asked == Err(rustix::io::Errno::WOULDBLOCK)
    }

    pub(crate) fn survives_process(&self) -> bool {
        self.nameless.is_none()
    }

    /// Why it does not, in words.
    pub(crate) fn nameless(&self) -> Option<&str> {
        self.nameless.as_deref()
    }
}

impl std::ops::Deref for LiveMap {
    type Target = Live;

    fn deref(&self) -> &Live {
        // SAFETY: the mapping is one page, page-aligned, at least as long as Live, and every field of Live is atomic, so
        // any bytes are a valid value.
        unsafe { &*self.map.base().cast::<Live>() }
    }
}

fn named(dir: &io::Result<Dir>, stem: &str) -> io::Result<File> {
    let dir = dir.as_ref().map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
    create_shm(dir, &format!("{stem}.live"), page_bytes())
}

/// Makes a shared-memory file that owns every block of its length: a store into a page that a full tmpfs cannot give is SIGBUS.
pub(crate) fn create_shm(dir: &Dir, name: &str, bytes: u64) -> io::Result<File> {
    dir.remove(name)?;
    let file = dir.create(name)?;
    // A folder that is not on tmpfs may know no fallocate; it is refused before it comes to that (`probe::takes_shm`).
    let given = file.set_len(bytes).and_then(|()| crate::sys::allocate(&file, 0, bytes, false));
    match given {
        Ok(()) => Ok(file),
        Err(e) => {
            // Half a file would keep what it got from everybody else.
            dir.remove(name)?;
            Err(e)
        }
    }
}

/// Shared memory without a name, every block of it present.
pub(crate) fn memory(name: &std::ffi::CStr, bytes: u64) -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?);
    file.set_len(bytes)?;
    crate::sys::allocate(&file, 0, bytes, false)?;
    Ok(file)
}

/// Where which numbers stand in the block of a writer that died at that position of file 0, for the fuzz target.
pub(crate) fn words_of_a_dead_writer(entry: &Entry, position: u64, ring: bool) -> Vec<(usize, u64)> {
    use std::mem::offset_of;
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

/// Removes the live block and rings of that stem, as far as they are ours. The live block last: it says whose the rings are.
pub(crate) fn remove_shm(dir: &Dir, stem: &str) -> io::Result<()> {
    let rings = (0..RINGS).map(|index| format!("{stem}.ring{index}"));
    for name in rings.chain([format!("{stem}.live")]) {
        match dir.private(&name) {
            Ok(None) => {}
            Ok(Some(_)) => dir.remove(&name)?,
            // Planted by somebody else; it was not believed, and is his to remove.
            Err(e) if crate::handles::unfit(&e).is_some() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
