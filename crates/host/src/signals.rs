//! The signals that end a program.

use std::io;

/// Blocks SIGINT, SIGTERM and SIGHUP for this thread, for the program that it executes next, and for that program's
/// threads. An exec resets handlers, but not this mask, so that such a signal cannot end the program in between.
pub fn block_endings() -> io::Result<()> {
    // SAFETY: an all-zero `sigset_t` is valid memory for `sigemptyset`, which initializes it; the calls write to
    // nothing else, and the signal numbers are valid.
    let failed = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}
