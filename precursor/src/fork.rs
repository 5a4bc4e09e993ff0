//! Forked children: they must not use an inherited appender, unmap its memory or keep its locks.
//!
//! A child has neither the helper threads nor (MADV_DONTFORK) the memory, and its copy of a locked descriptor would
//! hold the lock while it lives, even after the parent's death. A handler of `pthread_atfork` marks the child. A child
//! of the bare `clone` system call is not marked; it must exec or leave the appender alone.
//!
//! A program may close descriptors that it did not open (`closefrom(3)` in a daemon) and reuse their numbers. So no
//! spare descriptor is kept open for a later fork, and a child replaces a descriptor only if it still refers to the
//! locked file.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use crate::own::OwnFile;

/// Number of forks between the first process that used the library and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Descriptors whose locks children must drop. Nodes are reused and never freed.
static HELD: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());
/// `fd` of a free node.
const NONE: i32 = -1;
/// `fd` of a node that is taken and whose file is not yet stored.
const TAKEN: i32 = -2;

#[derive(Debug)]
struct Node {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    next: Option<&'static Node>,
}

/// The process in which an object was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Born(u64);

impl Born {
    /// This process. Registers the fork handler at the first call.
    pub(crate) fn here() -> Born {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: `in_child` uses only atomics and async-signal-safe system calls, as a child of several threads
            // must.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Born(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this process was forked after `self` was created.
    #[inline(always)]
    pub(crate) fn elsewhere(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

/// Runs in the child before `fork` returns. Takes no lock, since its owner may be a thread that does not exist here.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let mut node = first();
    while let Some(held) = node {
        let fd = held.fd.swap(NONE, Ordering::Relaxed);
        let locked = (held.device.load(Ordering::Relaxed), held.inode.load(Ordering::Relaxed));
        if fd >= 0 && identity_of(fd).is_ok_and(|found| found == locked) {
            // SAFETY: `fd` still refers to the locked file, and every call on its owner returns `Forked` from here on.
            unsafe { make_harmless(fd) };
        }
        node = held.next;
    }
}

/// Device and inode of an open descriptor.
pub(crate) fn identity_of(fd: i32) -> std::io::Result<(u64, u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `fstat` writes at most one `stat`, which `stat` has room for, and is async-signal-safe.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the structure.
    let stat = unsafe { stat.assume_init() };
    #[allow(clippy::useless_conversion, reason = "st_dev and st_ino are not u64 on every architecture")]
    Ok((u64::from(stat.st_dev), u64::from(stat.st_ino)))
}

/// Replaces a descriptor by an eventfd, since its owner in the child may close the number later. Only the child's copy
/// of the locked open file description is closed; the parent's keeps the lock. Closes first, so that a number is free
/// even at the limit of open files.
///
/// # Safety
/// The child uses the descriptor no more, except to close it.
unsafe fn make_harmless(fd: i32) {
    // SAFETY: the calls take plain numbers and are async-signal-safe; no other thread exists in the child that could
    // open a file under `fd` in between.
    unsafe {
        libc::close(fd);
        let harmless = libc::eventfd(0, libc::EFD_CLOEXEC);
        if harmless >= 0 && harmless != fd {
            libc::dup3(harmless, fd, libc::O_CLOEXEC);
            libc::close(harmless);
        }
    }
}

/// A file that this process alone locks, as long as the value lives.
#[derive(Debug)]
pub(crate) struct Locked {
    file: OwnFile,
    node: &'static Node,
    born: Born,
}

impl Locked {
    /// Registers the file, so that no child keeps its lock. Must be called before the file is locked.
    pub(crate) fn new(file: File) -> std::io::Result<Locked> {
        let born = Born::here();
        let file = OwnFile::unpinned(file)?;
        let node = hold(file.number(), file.identity());
        Ok(Locked { node, file, born })
    }

    pub(crate) fn file(&self) -> &OwnFile {
        &self.file
    }

    /// Locks the data file against other appenders, under any name. False if another appender holds the lock.
    ///
    /// The lock is a write lock on one byte (fcntl(2), F_OFD_SETLK), which belongs to the open file description. Only a
    /// process that may write to the file can hold it. A reader's lock is ignored, since an appender never takes one.
    /// On file systems and kernels (before 3.15) without these locks this returns true, and only the sidecar's lock
    /// remains.
    pub(crate) fn try_lock_data(&self) -> std::io::Result<bool> {
        let fd = self.file.get()?.as_raw_fd();
        loop {
            let mut lock = byte_lock(libc::F_WRLCK);
            // SAFETY: `self.file` is open, and `lock` outlives the call.
            if unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) } == 0 {
                return Ok(true);
            }
            let refused = std::io::Error::last_os_error();
            match refused.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => {}
                Some(libc::EINVAL | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP) => return Ok(true),
                _ => return Err(refused),
            }
            // SAFETY: `self.file` is open, and `lock`, which the call overwrites, outlives the call.
            if unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut lock) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
            match i32::from(lock.l_type) {
                libc::F_UNLCK => {}
                kind => return Ok(kind == libc::F_RDLCK),
            }
        }
    }

    /// Whether another open file description holds the lock of `try_lock_data`. False if that cannot be determined.
    pub(crate) fn is_data_locked(&self) -> bool {
        let Ok(file) = self.file.get() else { return false };
        // Shared locks do not conflict with each other, so only an appender's lock is found.
        let mut lock = byte_lock(libc::F_RDLCK);
        // SAFETY: `file` is open, and `lock`, which the call overwrites, outlives the call.
        let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        asked == 0 && i32::from(lock.l_type) == libc::F_WRLCK
    }

    /// Locks the whole file with `flock`. False if another open file description holds the lock.
    pub(crate) fn try_lock(&self) -> std::io::Result<bool> {
        match rustix::fs::flock(self.file.get()?, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.born.elsewhere() {
            return;
        }
        // If the program has closed the descriptor, the lock is gone, and the number may be a file that it has locked.
        if let Ok(file) = self.file.get() {
            // Unlock first: a fork between the next two steps would otherwise leave the lock with the child.
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
            let unlocked = byte_lock(libc::F_UNLCK);
            // SAFETY: `file` is open, and `unlocked` outlives the call.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const unlocked) };
        }
        self.node.fd.store(NONE, Ordering::Release);
    }
}

/// Offset of the locked byte: beyond all data.
const LOCKED_AT: libc::off_t = libc::off_t::MAX - 1;

fn byte_lock(kind: libc::c_int) -> libc::flock {
    // SAFETY: `flock` consists of integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = (LOCKED_AT, 1);
    lock
}

fn first() -> Option<&'static Node> {
    // SAFETY: `HELD` is null or points to a node that `hold` has leaked, so it is valid for ever.
    unsafe { HELD.load(Ordering::Acquire).as_ref() }
}

fn hold(fd: i32, (device, inode): (u64, u64)) -> &'static Node {
    let mut at = first();
    while let Some(node) = at {
        if node.fd.compare_exchange(NONE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            node.device.store(device, Ordering::Relaxed);
            node.inode.store(inode, Ordering::Relaxed);
            node.fd.store(fd, Ordering::Release);
            return node;
        }
        at = node.next;
    }
    let (device, inode) = (AtomicU64::new(device), AtomicU64::new(inode));
    let mut node = Box::new(Node { fd: AtomicI32::new(fd), device, inode, next: None });
    loop {
        let seen = HELD.load(Ordering::Acquire);
        // SAFETY: as in `first`: null or a leaked node.
        node.next = unsafe { seen.as_ref() };
        let raw = Box::into_raw(node);
        match HELD.compare_exchange(seen, raw, Ordering::AcqRel, Ordering::Relaxed) {
            // SAFETY: the node is now in the list and never freed.
            Ok(_) => return unsafe { &*raw },
            // SAFETY: the exchange failed, so nothing else has the pointer that `into_raw` gave.
            Err(_) => node = unsafe { Box::from_raw(raw) },
        }
    }
}
