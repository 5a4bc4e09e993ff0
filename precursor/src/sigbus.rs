//! Turns SIGBUS in a mapped file into an error of the appender.
//!
//! Write-back write-protects a page. To make it writable again, the kernel asks the file system (`page_mkwrite`), which
//! refuses after an I/O error has shut it down; and a page beyond the end of a truncated file does not exist. In both
//! cases the store raises SIGBUS. The handler maps a page of anonymous memory at the address and sets a flag; the
//! appender checks the flag at its next page and at every sync, and fails. Faults at other addresses go to the previous
//! handler.

use std::io;
use std::os::raw::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};

use crate::sys::page_bytes;

/// List of guarded ranges. Nodes are reused and never freed.
static RANGES: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());
/// Previous action for SIGBUS. Leaked; stored before the handler is installed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
/// Page size, stored before the handler can run, where sysconf may not be safe.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

#[derive(Debug)]
struct Node {
    /// First address; 0 if the node is free.
    from: AtomicUsize,
    to: AtomicUsize,
    /// Number of ranges that the node has had. A handler that reads two different numbers ignores the node.
    version: AtomicUsize,
    hit: AtomicBool,
    next: Option<&'static Node>,
}

/// A range of memory in which a failing store sets a flag instead of ending the process.
#[derive(Debug)]
pub(crate) struct Guarded(&'static Node);

impl Guarded {
    /// Guards a mapping, which must outlive the returned value.
    pub(crate) fn new(base: *mut u8, len: usize) -> Guarded {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let node = free_node();
        // Release: a handler that reads this version reads no older `from`. The fence: one that reads the new `to`
        // reads this version afterwards.
        node.version.fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
        node.hit.store(false, Ordering::Relaxed);
        node.to.store(base as usize + len, Ordering::Relaxed);
        node.from.store(base as usize, Ordering::Release);
        Guarded(node)
    }

    /// Whether a store went to anonymous memory, and so did not reach the file.
    pub(crate) fn hit(&self) -> bool {
        self.0.hit.load(Ordering::Acquire)
    }

    /// The error to report for a hit.
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
/// `from` of a node that is taken and guards nothing yet.
const TAKEN: usize = usize::MAX;

fn first() -> Option<&'static Node> {
    // SAFETY: `RANGES` is null or points to a node that `free_node` has leaked, so it is valid for ever.
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
    let (version, hit) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut node = Box::new(Node { from, to, version, hit, next: None });
    loop {
        let seen = RANGES.load(Ordering::Acquire);
        // SAFETY: as in `first`: null or a leaked node.
        node.next = unsafe { seen.as_ref() };
        let raw = Box::into_raw(node);
        match RANGES.compare_exchange(seen, raw, Ordering::AcqRel, Ordering::Relaxed) {
            // SAFETY: the node is now in the list and never freed.
            Ok(_) => return unsafe { &*raw },
            // SAFETY: the exchange failed, so nothing else has the pointer that `into_raw` gave.
            Err(_) => node = unsafe { Box::from_raw(raw) },
        }
    }
}

fn install() {
    PAGE_BYTES.store(page_bytes() as usize, Ordering::Relaxed);
    // SAFETY: all pointers are to structures that outlive the calls, and an all-zero sigaction is valid. `BEFORE` is
    // stored before the handler can run. The handler uses atomics, mmap and the previous action, all safe in a signal
    // handler.
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
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    let fault = is_fault(code);
    // SAFETY: for a fault of this thread, `si_addr` is the address.
    if fault && redirect(unsafe { (*info).si_addr() } as usize) {
        return;
    }
    pass_on(signal, info, context, fault);
}

/// Whether a SIGBUS with this `si_code` comes from an access of this thread. Otherwise a process has sent it (codes up
/// to 0), or the kernel reports a broken page that no thread has accessed; then `si_addr` does not name a fault.
fn is_fault(code: c_int) -> bool {
    matches!(code, libc::BUS_ADRALN | libc::BUS_ADRERR | libc::BUS_OBJERR | libc::BUS_MCEERR_AR)
}

/// The node whose range contains the address.
fn guard_of(at: usize) -> Option<&'static Node> {
    let mut node = first();
    while let Some(range) = node {
        let version = range.version.load(Ordering::Acquire);
        let (from, to) = (range.from.load(Ordering::Acquire), range.to.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        // `from` and `to` of different ranges would contain memory between them. The owner of a range does not change
        // it during an access, so a node that is changing does not guard `at`.
        let same = range.version.load(Ordering::Relaxed) == version;
        if same && from != FREE && from <= at && at < to {
            return Some(range);
        }
        node = range.next;
    }
    None
}

/// Maps anonymous memory at the address, if a guarded range contains it.
fn redirect(at: usize) -> bool {
    let Some(range) = guard_of(at) else { return false };
    let page = PAGE_BYTES.load(Ordering::Relaxed);
    let (both, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: the page lies in a mapping of this library, whose owner unmaps it as a whole and drops the guard before.
    // errno is restored for the interrupted code.
    let put = unsafe {
        let errno = *libc::__errno_location();
        let put = libc::mmap((at / page * page) as *mut libc::c_void, page, both, flags, -1, 0);
        *libc::__errno_location() = errno;
        put
    };
    range.hit.store(true, Ordering::Release);
    put != libc::MAP_FAILED
}

/// Does what happened before this handler was installed. The default action ends the process: after a fault by
/// restoring it and returning, since the fault happens again; after a signal of a process by sending it again. An
/// ignored fault ends the process too.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, fault: bool) {
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: `install` has leaked the action; its handler has the signature that its flags say. `sigaction` and
    // `raise` are async-signal-safe.
    unsafe {
        let Some(before) = before.as_ref() else { return };
        match before.sa_sigaction {
            libc::SIG_IGN if !fault => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, before, std::ptr::null_mut());
                if !fault {
                    // Blocked until this handler returns.
                    libc::raise(signal);
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::{Guarded, guard_of, is_fault};

    /// The handler reads both ends of a range while its node gets another range. Memory between the two may belong to
    /// the program.
    #[test]
    fn memory_between_two_ranges_of_one_node_is_never_guarded() {
        const LEN: usize = 4096;
        let (low, between, high) = (1usize << 20, 1usize << 21, 1usize << 22);
        let range = |from: usize| Guarded::new(std::ptr::without_provenance_mut(from), LEN);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(range(low));
                    drop(range(high));
                }
            });
            let found = (0..20_000_000).find(|_| guard_of(between).is_some());
            stop.store(true, Ordering::Relaxed);
            assert_eq!(found, None, "guarded at this look");
        });
        let (one, two) = (range(low), range(high));
        assert!(guard_of(low + LEN - 1).is_some() && guard_of(high).is_some());
        assert!(guard_of(low - 1).is_none() && guard_of(low + LEN).is_none());
        drop((one, two));
        assert!(guard_of(low).is_none() && guard_of(high).is_none());
    }

    #[test]
    fn only_an_access_of_the_thread_is_a_fault() {
        for sent in [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL, libc::BUS_MCEERR_AO] {
            assert!(!is_fault(sent), "{sent}");
        }
        assert!(is_fault(libc::BUS_ADRERR) && is_fault(libc::BUS_MCEERR_AR));
    }
}
