//! The system calls that have no safe wrapper elsewhere, each in one place.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use crate::fork::Born;

/// Page size, bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf reads a constant. (rustix would parse the auxiliary vector, which valgrind alters.)
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn off(value: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}

/// A shared mapping of a file, unmapped on drop. Pages may be touched by several threads: whoever stores into them through
/// `base` keeps to ranges that no other thread touches at the time.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    born: Born,
}

// SAFETY: the mapping is plain memory; who may touch which range when is settled by the atomics beside it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of the file, or the place where they will be, for reading and writing.
    pub(crate) fn of(file: &File, len: usize) -> io::Result<Mapping> {
        Mapping::map(std::ptr::null_mut(), len, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd())
    }

    /// Maps the file twice in a row, so that a range running over its end continues at its beginning.
    pub(crate) fn mirrored(file: &File, len: usize) -> io::Result<Mapping> {
        let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh reservation at an address the kernel chooses; nothing is overwritten.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), 2 * len, libc::PROT_NONE, reserve, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        let whole = Mapping { base, len: 2 * len, born: Born::here() };
        for half in 0..2 {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: both halves are inside the reservation above, which nobody else knows of yet.
            let at = unsafe { base.as_ptr().add(half * len) };
            let part = Mapping::map(at.cast(), len, flags, file.as_raw_fd())?;
            std::mem::forget(part);
        }
        Ok(whole)
    }

    fn map(at: *mut libc::c_void, len: usize, flags: libc::c_int, fd: libc::c_int) -> io::Result<Mapping> {
        // SAFETY: `at` is null, or is in a reservation owned by the caller (`mirrored`).
        let base = unsafe { libc::mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { base, len, born: Born::here() })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn range(&self, at: usize, len: usize) -> io::Result<*mut libc::c_void> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: inside the mapping, checked above.
        Ok(unsafe { self.base.as_ptr().add(at) }.cast())
    }

    /// A forked child must not touch what the parent's helper looks after.
    pub(crate) fn not_in_children(&self) -> io::Result<()> {
        // SAFETY: our own mapping; MADV_DONTFORK changes what a child sees, nothing here.
        check(unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_DONTFORK) })
    }

    /// Marks the range locked without touching it: pages are locked as they come in, so that none can be evicted between
    /// being populated and being locked.
    pub(crate) fn lock_on_fault(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.range(at, len)?;
        const MLOCK_ONFAULT: libc::c_long = 1;
        // SAFETY: the range is ours. mlock2 has no effect on contents.
        if unsafe { libc::syscall(libc::SYS_mlock2, base, len, MLOCK_ONFAULT) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // Before 4.4, and under valgrind: mlock also brings the pages in, for reading.
            // SAFETY: as above.
            e if e.raw_os_error() == Some(libc::ENOSYS) => Ok(unsafe { rustix::mm::mlock(base, len) }?),
            e => Err(e),
        }
    }

    /// Brings the range in, writable: every page present, its block allocated, its entry writable and dirty.
    pub(crate) fn populate_write(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.range(at, len)?;
        loop {
            // SAFETY: the range is ours; MADV_POPULATE_WRITE faults as a store would, without changing contents.
            let result = check(unsafe {
                libc::madvise(base, len, 23 /* MADV_POPULATE_WRITE */)
            });
            match result {
                Err(e) if e.kind() == io::ErrorKind::Interrupted || e.raw_os_error() == Some(libc::EAGAIN) => {}
                other => return other,
            }
        }
    }

    pub(crate) fn unlock(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.range(at, len)?;
        // SAFETY: the range is ours; unlocking has no effect on contents.
        // The system call, as above: sanitizers make libc's function do nothing, and what stays locked is not given back.
        Ok(unsafe { rustix::mm::munlock(base, len) }?)
    }

    /// Writes what is there already to one word of each page, so that whatever still stands between a present page and a store
    /// is met here: a hypervisor that has taken the page's mapping away, a page that is being moved. Populating walks the guest's
    /// page tables only. Safe beside a writer: the instruction is atomic and changes nothing.
    pub(crate) fn touch(&self, at: usize, len: usize) {
        let end = at.saturating_add(len).min(self.len);
        for at in (at..end).step_by(page_bytes() as usize) {
            // SAFETY: inside the mapping, which the caller knows to be backed there, and aligned to a page.
            unsafe { touch_word(self.base.as_ptr().add(at).cast()) };
        }
    }

    /// Drops the page-table entries of the range; the pages stay in the page cache.
    pub(crate) fn forget_pages(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.range(at, len)?;
        // SAFETY: a shared file mapping loses nothing by MADV_DONTNEED: the page cache keeps the data.
        check(unsafe { libc::madvise(base, len, libc::MADV_DONTNEED) })
    }

    /// Writes the range to the device and waits, with the file's metadata for it: fdatasync of a range
    /// (`mm/msync.c: vfs_fsync_range`), which leaves the warm pages before the writer alone.
    pub(crate) fn sync(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.range(at, len)?;
        // SAFETY: the range is ours, page-aligned by the caller.
        check(unsafe { libc::msync(base, len, libc::MS_SYNC) })
    }

    /// Prefers a NUMA node for pages that come into this range.
    pub(crate) fn prefer_node(&self, node: u32) -> io::Result<()> {
        let mask = node_mask(node)?;
        // SAFETY: the range is ours; `mask` outlives the call and holds MASK_BITS bits.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.len,
                MPOL_PREFERRED,
                mask.as_ptr(),
                MASK_BITS + 1,
                0 as libc::c_long,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// In assembly, because a compiler may turn an atomic "or 0" into a load (LLVM does), and a load is not enough.
///
/// # Safety
/// `at` is aligned and backed by writable memory.
#[cfg(target_arch = "x86_64")]
unsafe fn touch_word(at: *mut u64) {
    // SAFETY: by the contract; a locked "or" with zero leaves the word as it is, whoever else stores to it.
    unsafe { core::arch::asm!("lock or qword ptr [{at}], 0", at = in(reg) at, options(nostack)) };
}

/// # Safety
/// `at` is aligned and backed by writable memory.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn touch_word(at: *mut u64) {
    // SAFETY: by the contract; the addition changes nothing.
    unsafe { &*at.cast::<std::sync::atomic::AtomicU64>() }.fetch_add(0, std::sync::atomic::Ordering::Relaxed);
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A forked child has no such mapping, and may have another where it was.
        if self.born.elsewhere() {
            return;
        }
        // SAFETY: mapped in `map` or `mirrored`, unmapped once, and nobody holds `base` past the owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

const MPOL_PREFERRED: libc::c_long = 1;
const MASK_BITS: usize = 1024;

fn node_mask(node: u32) -> io::Result<[u64; MASK_BITS / 64]> {
    let mut mask = [0u64; MASK_BITS / 64];
    let word = mask.get_mut(node as usize / 64).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    *word = 1 << (node % 64);
    Ok(mask)
}

/// Prefers a node for what this thread allocates: page-cache pages follow the allocating thread, not the mapping.
pub(crate) fn prefer_node_here(node: u32) -> io::Result<()> {
    let mask = node_mask(node)?;
    // SAFETY: `mask` outlives the call and holds MASK_BITS bits.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_PREFERRED, mask.as_ptr(), MASK_BITS + 1) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// NUMA node of the CPU this thread runs on, when the kernel says.
pub(crate) fn node_here() -> Option<u32> {
    let (mut cpu, mut node) = (0u32, 0u32);
    // SAFETY: two out-pointers to locals; the third argument has been unused since 2.6.24.
    let result = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, std::ptr::null_mut::<u8>()) };
    (result == 0).then_some(node)
}

/// Pins this thread to a CPU.
pub(crate) fn pin_here(cpu: u32) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    let cpu = usize::try_from(cpu).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Gives the file real blocks for a range. With `keep_size` the file's length stays: its end remains the end of data.
pub(crate) fn allocate(file: &File, at: u64, len: u64, keep_size: bool) -> io::Result<()> {
    let mode = if keep_size { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
    loop {
        // SAFETY: an open descriptor and plain numbers.
        match check(unsafe { libc::fallocate(file.as_raw_fd(), mode, off(at)?, off(len)?) }) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Starts write-back of a range and does not wait for it.
pub(crate) fn start_write_back(file: &File, at: u64, len: u64) -> io::Result<()> {
    // SAFETY: an open descriptor and plain numbers.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), off(at)?, off(len)?, libc::SYNC_FILE_RANGE_WRITE) })
}

/// Bytes this user may still allocate on the file's file system, and what the file owns beyond its end already: an allocation that
/// fails half-way keeps what it got.
pub(crate) fn bytes_left(file: &File) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let beyond = file.metadata().map_or(0, |m| (m.blocks() * 512).saturating_sub(m.len()));
    rustix::fs::fstatvfs(file).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize)).saturating_add(beyond)
}
