//! How fast this machine's time stamp counter runs, for a guest to be told.
//!
//! A guest measures it at boot against a timer that QEMU emulates (arch/x86/kernel/tsc.c: pit_calibrate_tsc,
//! pit_hpet_ptimer_calibrate_cpu). Where QEMU does not get the CPU meanwhile the measure is too small, and the guest's clock
//! runs too fast by as much: with 120 runnable threads on two CPUs Debian's 5.10 said "PIT calibration deviates from HPET:
//! 171529 2596130", used the former, and counted 140 s in the 43 s of its boot. What is told is not measured
//! (`tsc_early_khz`, since 5.6), and what the kernel refines later is taken only within 1 % of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(50);
/// Of so many readings of clock and counter the one that took least is kept: others were interrupted between the two.
const READINGS: usize = 32;

/// The counter's rate in kHz, to some parts in 100 000; `None` on processors without one.
#[must_use]
pub fn khz() -> Option<u64> {
    let (began, first) = reading()?;
    sleep(INTERVAL);
    let (ended, last) = reading()?;
    let ns = u64::try_from(ended.duration_since(began).as_nanos()).ok()?;
    let ticks = last.checked_sub(first)?;
    // A counter that stands still, or goes by steps, is none to be trusted.
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
    // SAFETY: RDTSC is there on every x86_64 processor, and reads a counter. Where the kernel forbids it to user space
    // (prctl PR_SET_TSC), which nobody does to us, it would end in SIGSEGV.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Option<u64> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::time::{Duration, Instant};

    /// Held against a counter read over a longer time, as far as a busy machine allows: 1 %, where the kernel of a guest
    /// refuses to refine what is further off.
    #[test]
    fn the_counters_rate_is_known_to_less_than_a_hundredth() {
        let (began, first) = super::reading().expect("a counter");
        std::thread::sleep(Duration::from_millis(300));
        let khz = super::khz().expect("a rate");
        let (ended, last): (Instant, u64) = super::reading().expect("a counter");
        let expected = (last - first) as f64 * 1e6 / ended.duration_since(began).as_nanos() as f64;
        assert!((khz as f64 / expected - 1.0).abs() < 0.01, "{khz} kHz, over a longer time {expected:.0}");
    }
}
