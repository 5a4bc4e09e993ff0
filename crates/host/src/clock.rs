//! CLOCK_MONOTONIC, the clock of every instant in a host recording (and of `bpf_ktime_get_ns`).

use rustix::thread::{ClockId, NanosleepRelativeResult, Timespec, clock_nanosleep_absolute, nanosleep};
use rustix::time::clock_gettime;

/// Now, ns. Served by the vDSO: no syscall on the machines we know.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Wall time minus monotonic time, ns; taken between two monotonic readings so that it is off by at most
/// half their distance.
#[must_use]
pub fn wall_offset_ns() -> i64 {
    let before = monotonic_ns();
    let wall = clock_gettime(ClockId::Realtime);
    let after = monotonic_ns();
    let wall_ns = i128::from(wall.tv_sec) * 1_000_000_000 + i128::from(wall.tv_nsec);
    i64::try_from(wall_ns - i128::from(before.midpoint(after))).unwrap_or_default()
}

/// Sleeps until the instant or until a signal arrives, whichever is first.
pub fn sleep_until(at_ns: u64) {
    let at = Timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as i64 };
    // EINTR is an early end, which every caller treats as a reason to look at its stop flag.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// Sleeps for the length or until a signal arrives.
pub fn sleep_ns(ns: u64) {
    let length = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    match nanosleep(&length) {
        NanosleepRelativeResult::Ok | NanosleepRelativeResult::Interrupted(_) | NanosleepRelativeResult::Err(_) => {}
    }
}
