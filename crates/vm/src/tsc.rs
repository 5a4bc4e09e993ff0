//! Rate of this machine's time stamp counter, to be passed to a guest.
//!
//! A guest measures the rate at boot against a timer that QEMU emulates (arch/x86/kernel/tsc.c: pit_calibrate_tsc,
//! pit_hpet_ptimer_calibrate_cpu). If QEMU does not get the CPU during this time, the measured rate is too low and the
//! guest's clock runs too fast: with 120 runnable threads on two CPUs, Debian's 5.10 printed "PIT calibration deviates
//! from HPET: 171529 2596130", used the former, and counted 140 s while it booted for 43 s. A rate passed with
//! `tsc_early_khz` (since 5.6) is not measured, and the kernel accepts a later refinement only within 1 % of that rate.

use std::thread::sleep;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(50);
/// Number of readings of clock and counter. The fastest one is used, because slower ones were interrupted between the
/// two.
const READINGS: usize = 32;

/// The counter's rate in kHz, accurate to some parts in 100,000; `None` on processors without one.
#[must_use]
pub fn khz() -> Option<u64> {
    let (began, first) = reading()?;
    sleep(INTERVAL);
    let (ended, last) = reading()?;
    let ns = u64::try_from(ended.duration_since(began).as_nanos()).ok()?;
    let ticks = last.checked_sub(first)?;
    // A counter that does not advance, or advances in large steps, cannot be trusted.
    let khz = u64::try_from(u128::from(ticks) * 1_000_000 / u128::from(ns.max(1))).ok()?;
    (100_000..20_000_000).contains(&khz).then_some(khz)
}

fn reading() -> Option<(Instant, u64)> {
    let readings = (0..READINGS).filter_map(|_| {
        let before = Instant::now();
        let ticks = ticks()?;
        Some((before.elapsed(), before, ticks))
    });
    readings.min_by_key(|(took, ..)| *took).map(|(_, at, ticks)| (at, ticks))
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> Option<u64> {
    // SAFETY: RDTSC exists on every x86_64 processor and only reads a counter. If the kernel forbade it in user space
    // (prctl PR_SET_TSC) it would raise SIGSEGV; nothing sets this for our process.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Option<u64> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::time::{Duration, Instant};

    /// Compares with a measurement over a longer time. The tolerance for a busy machine is 1 %, beyond which a guest's
    /// kernel refuses to refine the rate.
    #[test]
    fn the_measured_rate_is_accurate_to_one_percent() {
        let (began, first) = super::reading().expect("a counter");
        std::thread::sleep(Duration::from_millis(300));
        let khz = super::khz().expect("a rate");
        let (ended, last): (Instant, u64) = super::reading().expect("a counter");
        let expected = (last - first) as f64 * 1e6 / ended.duration_since(began).as_nanos() as f64;
        assert!((khz as f64 / expected - 1.0).abs() < 0.01, "{khz} kHz, over a longer time {expected:.0}");
    }
}
