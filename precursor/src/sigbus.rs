//! A store into a mapped file that the kernel cannot carry out: an error instead of the process's death.
//!
//! Write-back write-protects a page, and making it writable again asks the file system (`page_mkwrite`), which refuses after an
//! I/O error that shut it down; a file that somebody cut has no page there at all. Both are SIGBUS. The handler puts a page of
//! plain memory where the store goes and notes that it did; the appender looks at the note at its next page and at every sync,
//! and fails. Faults elsewhere go to whatever handler was there before.

use std::io;
use std::os::raw::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::sys::page_bytes;

/// Ranges looked after; nodes are never freed, only used again.
static RANGES: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());
/// What handled SIGBUS before; leaked, set before the handler is installed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
/// Known before a handler may ask: sysconf need not be safe there.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

#[derive(Debug)]
struct Node {
    /// First address; 0 = the node is free.
    from: AtomicUsize,
    to: AtomicUsize,
    hit: AtomicBool,
    next: Option<&'static Node>,
}

/// A range of memory in which a failing store is noted instead of ending the process.
#[derive(Debug)]
pub(crate) struct Guarded(&'static Node);

impl Guarded {
    /// Looks after a mapping from now on, which must outlive this.
    pub(crate) fn new(base: *mut u8, len: usize) -> Guarded {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let node = free_node();
        node.hit.store(false, Ordering::Relaxed);
        node.to.store(base as usize + len, Ordering::Relaxed);
        node.from.store(base as usize, Ordering::Release);
        Guarded(node)
    }

    /// Whether a store went elsewhere: what was stored there is not in the file.
    pub(crate) fn hit(&self) -> bool {
        self.0.hit.load(Ordering::Acquire)
    }

    /// The error to report then.
    pub(crate) fn error() -> io::Error {
        io::Error::other("the kernel refused a page of the file (SIGBUS): its device failed, or another process cut it")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.from.store(FREE, Ordering::Release);
    }
}

const FREE: usize = 0;
/// Taken, and not yet in force.
const TAKEN: usize = usize::MAX;

fn first() -> Option<&'static Node> {
    // SAFETY: only `free_node` stores here, pointers to leaked nodes.
    unsafe { RANGES.load(Ordering::Acquire).as_ref() }
}

fn free_node() -> &'static Node {
    let mut at = first();
    while let Some(node) = at {
        if node.from.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return node;
        }
        at = node.next;
    }
    let (from, to) = (AtomicUsize::new(TAKEN), AtomicUsize::new(0));
    let mut node = Box::new(Node { from, to, hit: AtomicBool::new(false), next: None });
    loop {
        let seen = RANGES.load(Ordering::Acquire);
        // SAFETY: as in `first`.
        node.next = unsafe { seen.as_ref() };
        let raw = Box::into_raw(node);
        match RANGES.compare_exchange(seen, raw, Ordering::AcqRel, Ordering::Relaxed) {
            // SAFETY: leaked just now, never freed.
            Ok(_) => return unsafe { &*raw },
            // SAFETY: it was not stored, so it is ours still.
            Err(_) => node = unsafe { Box::from_raw(raw) },
        }
    }
}

fn install() {
    PAGE_BYTES.store(page_bytes() as usize, Ordering::Relaxed);
    // SAFETY: sigaction with valid pointers; an all-zero sigaction is a value of its type. The handler is safe to run at any
    // instant: atomics, mmap, and what the program itself had installed.
    unsafe {
        let before = Box::leak(Box::new(std::mem::zeroed::<libc::sigaction>()));
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), before) != 0 {
            return;
        }
        BEFORE.store(before, Ordering::Release);
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_sigbus as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut ours.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut());
    }
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to a handler with SA_SIGINFO; of a fault it holds the address.
    let at = unsafe { (*info).si_addr() } as usize;
    if !redirect(at) {
        pass_on(signal, info, context);
    }
}

/// Puts plain memory there if the address is looked after.
fn redirect(at: usize) -> bool {
    let mut node = first();
    while let Some(range) = node {
        let from = range.from.load(Ordering::Acquire);
        if from != FREE && from <= at && at < range.to.load(Ordering::Relaxed) {
            let page = PAGE_BYTES.load(Ordering::Relaxed);
            let (both, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
            // SAFETY: a page inside a mapping of ours, which its owner unmaps whole. errno is the interrupted code's.
            let put = unsafe {
                let errno = *libc::__errno_location();
                let put = libc::mmap((at / page * page) as *mut libc::c_void, page, both, flags, -1, 0);
                *libc::__errno_location() = errno;
                put
            };
            range.hit.store(true, Ordering::Release);
            return put != libc::MAP_FAILED;
        }
        node = range.next;
    }
    false
}

/// To whoever handled it before; to the default, which ends the process, by letting the fault happen again.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: leaked in `install`; what it holds was a valid action then, with the signature that its flags say.
    unsafe {
        let Some(before) = before.as_ref() else { return };
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, before, std::ptr::null_mut());
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal),
        }
    }
}
