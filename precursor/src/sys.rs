//! System calls without a safe wrapper elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use crate::fork::Born;

/// Page size, bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf only reads a constant. (rustix would parse the auxiliary vector, which valgrind changes.)
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn off(value: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}

/// A shared mapping of a file, unmapped on drop. Several threads use it; code that stores through `base` must keep to
/// ranges that no other thread uses at that time.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    born: Born,
}

// SAFETY: the mapping is memory that does not belong to a thread; atomics beside it decide who uses which range when.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of the file for reading and writing. They may lie beyond its end.
    pub(crate) fn of(file: &File, len: usize) -> io::Result<Mapping> {
        Mapping::map(std::ptr::null_mut(), len, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd())
    }

    /// Maps one page of a file without access to it, not in children. The mapping keeps the open file description
    /// alive, and so the inode.
    pub(crate) fn pin(file: &File) -> io::Result<Mapping> {
        let len = page_bytes() as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses overwrites nothing, and nothing can access it.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        let map = Mapping { base, len, born: Born::here() };
        map.not_in_children()?;
        Ok(map)
    }

    /// Maps the file twice in a row, so that a range that crosses its end continues at its beginning.
    pub(crate) fn mirrored(file: &File, len: usize) -> io::Result<Mapping> {
        let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new reservation at an address that the kernel chooses overwrites nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), 2 * len, libc::PROT_NONE, reserve, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        let whole = Mapping { base, len: 2 * len, born: Born::here() };
        for half in 0..2 {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: `half * len` is at most `len`, so both halves lie inside the reservation, which no other thread
            // uses yet.
            let at = unsafe { base.as_ptr().add(half * len) };
            let part = Mapping::map(at.cast(), len, flags, file.as_raw_fd())?;
            std::mem::forget(part);
        }
        Ok(whole)
    }

    fn map(at: *mut libc::c_void, len: usize, flags: libc::c_int, fd: libc::c_int) -> io::Result<Mapping> {
        // SAFETY: `at` is null, or `len` bytes from there lie in a reservation that the caller owns (`mirrored`).
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
        // SAFETY: the range ends within the mapping, as checked above.
        Ok(unsafe { self.base.as_ptr().add(at) }.cast())
    }

    /// Excludes the mapping from forked children, which must not touch memory that the parent's helper manages.
    pub(crate) fn not_in_children(&self) -> io::Result<()> {
        // SAFETY: the range is the whole mapping. MADV_DONTFORK changes only what children get.
        check(unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_DONTFORK) })
    }

    /// Locks the range without touching it: pages are locked as they come in, so none can be evicted between being
    /// populated and being locked.
    pub(crate) fn lock_on_fault(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.range(at, len)?;
        const MLOCK_ONFAULT: libc::c_long = 1;
        // SAFETY: `range` has checked that the range is mapped. mlock2 does not change contents.
        if unsafe { libc::syscall(libc::SYS_mlock2, base, len, MLOCK_ONFAULT) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // Before 4.4, and under valgrind. mlock also brings the pages in, for reading.
            // SAFETY: as for mlock2.
            e if e.raw_os_error() == Some(libc::ENOSYS) => Ok(unsafe { rustix::mm::mlock(base, len) }?),
            e => Err(e),
        }
    }

    /// Brings the range in for writing: every page is present, has a block, and is writable and dirty.
    pub(crate) fn populate_write(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.range(at, len)?;
        loop {
            // SAFETY: `range` has checked that the range is mapped. MADV_POPULATE_WRITE faults like a store and changes
            // no contents.
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
        // SAFETY: `range` has checked that the range is mapped. munlock does not change contents. rustix makes the
        // system call itself: a sanitizer's munlock does nothing, and locked pages cannot be dropped.
        Ok(unsafe { rustix::mm::munlock(base, len) }?)
    }

    /// Stores one word of each page back unchanged, to resolve remaining faults before the writer gets there: a
    /// hypervisor may have unmapped the page, or the kernel may be moving it. Populating only walks the guest's page
    /// tables. The instruction is atomic, so a writer may store at the same time.
    pub(crate) fn touch(&self, at: usize, len: usize) {
        let end = at.saturating_add(len).min(self.len);
        for at in (at..end).step_by(page_bytes() as usize) {
            // SAFETY: `at` is aligned to a page and within the mapping, and the caller passes only ranges that are
            // backed. Where the file was cut, the store raises SIGBUS, see sigbus.rs.
            unsafe { touch_word(self.base.as_ptr().add(at).cast()) };
        }
    }

    /// Removes the page-table entries of the range. The pages stay in the page cache.
    pub(crate) fn forget_pages(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.range(at, len)?;
        // SAFETY: `range` has checked the range. MADV_DONTNEED loses no data of a shared file mapping, which stays in
        // the page cache.
        check(unsafe { libc::madvise(base, len, libc::MADV_DONTNEED) })
    }

    /// Writes the range to the device, with the file's metadata that it needs, and waits: fdatasync of a range
    /// (`mm/msync.c: vfs_fsync_range`). The warm pages before the writer stay writable.
    pub(crate) fn sync(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.range(at, len)?;
        // SAFETY: `range` has checked that the range is mapped; msync does not change contents.
        check(unsafe { libc::msync(base, len, libc::MS_SYNC) })
    }

    /// Prefers a NUMA node for new pages of this mapping.
    pub(crate) fn prefer_node(&self, node: u32) -> io::Result<()> {
        let mask = node_mask(node)?;
        // SAFETY: the range is the whole mapping; `mask` outlives the call and has MASK_BITS bits.
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

/// Written in assembly, because a compiler may turn an atomic "or 0" into a load (LLVM does), and a load does not
/// resolve write faults.
///
/// # Safety
/// `at` is aligned and points to mapped, writable memory.
#[cfg(target_arch = "x86_64")]
unsafe fn touch_word(at: *mut u64) {
    // SAFETY: the caller guarantees the address; a locked "or" with zero leaves the word unchanged, even beside other
    // stores.
    unsafe { core::arch::asm!("lock or qword ptr [{at}], 0", at = in(reg) at, options(nostack)) };
}

/// # Safety
/// `at` is aligned and points to mapped, writable memory.
#[cfg(target_arch = "aarch64")]
unsafe fn touch_word(at: *mut u64) {
    // SAFETY: the caller guarantees the address; the exclusive store succeeds only if the word is unchanged.
    unsafe {
        core::arch::asm!(
            "2: ldxr {word}, [{at}]",
            "stxr {failed:w}, {word}, [{at}]",
            "cbnz {failed:w}, 2b",
            at = in(reg) at,
            word = out(reg) _,
            failed = out(reg) _,
            options(nostack)
        );
    }
}

/// # Safety
/// `at` is aligned and points to mapped, writable memory.
#[cfg(target_arch = "riscv64")]
unsafe fn touch_word(at: *mut u64) {
    // SAFETY: the caller guarantees the address; an atomic addition of zero leaves the word unchanged.
    unsafe { core::arch::asm!("amoadd.d zero, zero, ({at})", at = in(reg) at, options(nostack)) };
}

/// Does nothing: an atomic operation of the language beside the writer's plain stores would be a data race, and the
/// writer takes the faults itself.
///
/// # Safety
/// None needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
unsafe fn touch_word(_at: *mut u64) {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a forked child the mapping does not exist, and another one may be at its address.
        if self.born.elsewhere() {
            return;
        }
        // SAFETY: `map` or `mirrored` created the mapping; it is unmapped only here, and nothing uses `base` after its
        // owner.
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

/// Prefers a NUMA node for this thread's allocations: page-cache pages follow the allocating thread, not the mapping.
pub(crate) fn prefer_node_here(node: u32) -> io::Result<()> {
    let mask = node_mask(node)?;
    // SAFETY: `mask` outlives the call and has MASK_BITS bits.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_PREFERRED, mask.as_ptr(), MASK_BITS + 1) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// NUMA node of the CPU on which this thread runs; `None` if the kernel does not say.
pub(crate) fn node_here() -> Option<u32> {
    let (mut cpu, mut node) = (0u32, 0u32);
    // SAFETY: the pointers are to locals, and the third argument has been unused since 2.6.24.
    let result = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, std::ptr::null_mut::<u8>()) };
    (result == 0).then_some(node)
}

/// Whether the machine has this CPU, online or not.
pub(crate) fn has_cpu(cpu: u32) -> bool {
    // SAFETY: sysconf only reads.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    i64::from(cpu) < configured || Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists()
}

/// Whether the machine has this NUMA node. A kernel without NUMA has node 0 only.
pub(crate) fn has_node(node: u32) -> bool {
    node == 0 || Path::new(&format!("/sys/devices/system/node/node{node}")).exists()
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

/// Allocates blocks for a range. With `keep_size` the file's length does not change.
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

/// Starts write-back of a range without waiting for it.
pub(crate) fn start_write_back(file: &File, at: u64, len: u64) -> io::Result<()> {
    // SAFETY: an open descriptor and plain numbers.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), off(at)?, off(len)?, libc::SYNC_FILE_RANGE_WRITE) })
}

/// Bytes that this user can still allocate, including the blocks that the file has beyond its end: a failed allocation
/// keeps the blocks that it got.
pub(crate) fn bytes_left(file: &File) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let beyond = file.metadata().map_or(0, |m| (m.blocks() * 512).saturating_sub(m.len()));
    rustix::fs::fstatvfs(file).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize)).saturating_add(beyond)
}
