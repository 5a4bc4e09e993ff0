//! CLOCK_MONOTONIC: the clock of all times in a host recording, and of `bpf_ktime_get_ns`.

use rustix::thread::{ClockId, NanosleepRelativeResult, Timespec, clock_nanosleep_absolute, nanosleep};
use rustix::time::clock_gettime;

/// The current time, ns. The vDSO reads the clock without a system call on all machines that we know.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Wall time minus monotonic time, ns. The wall clock is read between two readings of the monotonic clock, so the error
/// is at most half of their distance.
#[must_use]
pub fn wall_offset_ns() -> i64 {
    let before = monotonic_ns();
    let wall = clock_gettime(ClockId::Realtime);
    let after = monotonic_ns();
    let wall_ns = i128::from(wall.tv_sec) * 1_000_000_000 + i128::from(wall.tv_nsec);
    i64::try_from(wall_ns - i128::from(before.midpoint(after))).unwrap_or_default()
}

/// Sleeps until `at_ns` or until a signal arrives.
pub fn sleep_until(at_ns: u64) {
    let at = Timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as i64 };
    // EINTR ends the sleep early; every caller then checks its stop flag.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// Sleeps for `ns` or until a signal arrives.
pub fn sleep_ns(ns: u64) {
    let length = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    match nanosleep(&length) {
        NanosleepRelativeResult::Ok | NanosleepRelativeResult::Interrupted(_) | NanosleepRelativeResult::Err(_) => {}
    }
}
