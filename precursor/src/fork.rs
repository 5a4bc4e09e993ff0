//! Forked children: they use no appender that they inherited, unmap nothing of it, and keep none of its locks.
//!
//! A child has neither the helper threads nor (MADV_DONTFORK) the memory, and its copy of a locked descriptor would
//! hold the lock for as long as it lives, also after its parent's death. `pthread_atfork` tells a child what it is; a
//! child made by the bare `clone` system call does not notice, and must exec or leave the appender alone.

use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// Forks that are between this process and the first one that used the library.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Descriptors whose lock no child may keep; nodes are never freed, only used again.
static HELD: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());
/// An open file of no consequence, to put in a child in the place of a locked one: that number may be closed there later.
static HARMLESS: AtomicI32 = AtomicI32::new(NONE);
const NONE: i32 = -1;

#[derive(Debug)]
struct Node {
    fd: AtomicI32,
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
            if let Ok(file) = File::open("/dev/null") {
                HARMLESS.store(file.into_raw_fd(), Ordering::Release);
            }
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

/// Runs in the child before `fork` returns there: atomics and dup3, nothing that could wait for a thread that is not there.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let harmless = HARMLESS.load(Ordering::Acquire);
    let mut node = first();
    while let Some(held) = node {
        let fd = held.fd.swap(NONE, Ordering::Relaxed);
        if fd != NONE && harmless != NONE {
            // SAFETY: plain numbers. The child's copy of the lock's description is gone; the parent's keeps the lock.
            unsafe { libc::dup3(harmless, fd, libc::O_CLOEXEC) };
        }
        node = held.next;
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
        Locked { node: hold(file.as_raw_fd()), file, born }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
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
            self.node.fd.store(NONE, Ordering::Release);
        }
    }
}

fn first() -> Option<&'static Node> {
    // SAFETY: only `hold` stores here, pointers to leaked nodes.
    unsafe { HELD.load(Ordering::Acquire).as_ref() }
}

fn hold(fd: i32) -> &'static Node {
    let mut at = first();
    while let Some(node) = at {
        if node.fd.compare_exchange(NONE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return node;
        }
        at = node.next;
    }
    let mut node = Box::new(Node { fd: AtomicI32::new(fd), next: None });
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
