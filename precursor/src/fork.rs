//! Forked children: they use no appender that they inherited, unmap nothing of it, and keep none of its locks.
//!
//! A child has neither the helper threads nor (MADV_DONTFORK) the memory, and its copy of a locked descriptor would
//! hold the lock for as long as it lives, also after its parent's death. `pthread_atfork` makes a child notice; one made by the bare
//! `clone` system call does not, and must exec or leave the appender alone.
//!
//! A program may close descriptors that it did not open (`closefrom(3)` in a daemon), and open its own files under their numbers.
//! So none is kept for a later fork, and a child replaces one only if it is still the file that was locked.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// Forks that are between this process and the first one that used the library.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Descriptors whose lock no child may keep; nodes are never freed, only used again.
static HELD: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());
/// The node is free.
const NONE: i32 = -1;
/// The node is taken, and its file not yet stored.
const TAKEN: i32 = -2;

#[derive(Debug)]
struct Node {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    next: Option<&'static Node>,
}

/// The process in which something was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Born(u64);

impl Born {
    /// In this process, now.
    pub(crate) fn here() -> Born {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: the handler makes only calls that are safe in a child of a process with several threads.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Born(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this is a child that was forked since.
    #[inline(always)]
    pub(crate) fn elsewhere(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

/// Runs in the child before `fork` returns there: atomics and system calls, nothing that could wait for a thread that is not there.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let mut node = first();
    while let Some(held) = node {
        let fd = held.fd.swap(NONE, Ordering::Relaxed);
        let locked = (held.device.load(Ordering::Relaxed), held.inode.load(Ordering::Relaxed));
        if fd >= 0 && identity_of(fd) == Some(locked) {
            // SAFETY: the number is of the file that was locked through it, and its owner's calls answer `Forked` from here on.
            unsafe { make_harmless(fd) };
        }
        node = held.next;
    }
}

/// Device and inode of an open descriptor.
fn identity_of(fd: i32) -> Option<(u64, u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a plain number and room for the answer; async-signal-safe.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled in by the successful call.
    let stat = unsafe { stat.assume_init() };
    #[allow(clippy::useless_conversion, reason = "st_dev and st_ino are not u64 on every architecture")]
    Some((u64::from(stat.st_dev), u64::from(stat.st_ino)))
}

/// Puts a file without consequence in the place of a descriptor, whose number may be closed in the child later. The child's copy of the
/// lock's description goes; the parent's keeps the lock. First closed, so that a number is free where no more may be opened.
///
/// # Safety
/// The descriptor is not used any more but to be closed.
unsafe fn make_harmless(fd: i32) {
    // SAFETY: plain numbers, by the contract; the child has one thread, and each call is async-signal-safe.
    unsafe {
        libc::close(fd);
        let harmless = libc::eventfd(0, libc::EFD_CLOEXEC);
        if harmless >= 0 && harmless != fd {
            libc::dup3(harmless, fd, libc::O_CLOEXEC);
            libc::close(harmless);
        }
    }
}

/// A file that is locked for as long as this lives, by this process alone.
#[derive(Debug)]
pub(crate) struct Locked {
    file: File,
    node: &'static Node,
    born: Born,
}

impl Locked {
    /// Takes the file in, so that no child keeps what is locked through it. Before it is locked.
    pub(crate) fn new(file: File) -> Locked {
        let born = Born::here();
        let node = hold(file.as_raw_fd());
        Locked { node, file, born }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Keeps other appenders out of the file itself, by whatever name they reach it; false if one holds it.
    ///
    /// A lock for writing on one byte, which belongs to the open file description (fcntl(2), F_OFD_SETLK). Only a process that may
    /// write to the file can hold such a lock. A reader's lock is none of an appender, and is passed over. So is a file system or
    /// kernel (before 3.15) without these locks: there the lock beside the data remains.
    pub(crate) fn try_lock_data(&self) -> std::io::Result<bool> {
        let fd = self.file.as_raw_fd();
        loop {
            let mut lock = byte_lock(libc::F_WRLCK);
            // SAFETY: an open descriptor and a lock that outlives the call.
            if unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) } == 0 {
                return Ok(true);
            }
            let refused = std::io::Error::last_os_error();
            match refused.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => {}
                Some(libc::EINVAL | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP) => return Ok(true),
                _ => return Err(refused),
            }
            // SAFETY: as above; the answer replaces what was asked for.
            if unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut lock) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
            match i32::from(lock.l_type) {
                libc::F_UNLCK => {}
                kind => return Ok(kind == libc::F_RDLCK),
            }
        }
    }

    /// Locks it; false if another holds it.
    pub(crate) fn try_lock(&self) -> std::io::Result<bool> {
        match rustix::fs::flock(&self.file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if !self.born.elsewhere() {
            // First unlocked: a fork between the next two steps would otherwise leave the lock with the child.
            let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
            let unlocked = byte_lock(libc::F_UNLCK);
            // SAFETY: an open descriptor and a lock that outlives the call.
            unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const unlocked) };
            self.node.fd.store(NONE, Ordering::Release);
        }
    }
}

/// The byte of a data file that its appender locks: beyond all data.
const LOCKED_AT: libc::off_t = libc::off_t::MAX - 1;

fn byte_lock(kind: libc::c_int) -> libc::flock {
    // SAFETY: plain numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = (LOCKED_AT, 1);
    lock
}

fn first() -> Option<&'static Node> {
    // SAFETY: only `hold` stores here, pointers to leaked nodes.
    unsafe { HELD.load(Ordering::Acquire).as_ref() }
}

fn hold(fd: i32) -> &'static Node {
    let (device, inode) = identity_of(fd).unwrap_or_default();
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
        // SAFETY: as in `first`.
        node.next = unsafe { seen.as_ref() };
        let raw = Box::into_raw(node);
        match HELD.compare_exchange(seen, raw, Ordering::AcqRel, Ordering::Relaxed) {
            // SAFETY: leaked just now, never freed.
            Ok(_) => return unsafe { &*raw },
            // SAFETY: it was not stored, so it is ours still.
            Err(_) => node = unsafe { Box::from_raw(raw) },
        }
    }
}
