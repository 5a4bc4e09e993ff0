//! The clock of the append path: the CPU's counter if it is steady, which takes about 8 ns to read; clock_gettime
//! through the vDSO takes 20-25 ns.

use std::time::{Duration, Instant};

/// Reads ticks, and converts intervals to ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    counter: bool,
    /// ns per tick, times 2^32.
    scale: u64,
    start: Instant,
}

impl Timer {
    /// Measures the counter against the monotonic clock for about 0.5 ms.
    pub(crate) fn calibrated() -> Timer {
        let start = Instant::now();
        let plain = Timer { counter: false, scale: 1 << 32, start };
        if !counter_is_steady() {
            return plain;
        }
        let (ticks0, at0) = (counter(), Instant::now());
        while at0.elapsed() < Duration::from_micros(500) {
            std::hint::spin_loop();
        }
        let (ticks, ns) = (counter().wrapping_sub(ticks0), at0.elapsed().as_nanos());
        match (ns << 32).checked_div(u128::from(ticks)).and_then(|s| u64::try_from(s).ok()) {
            Some(scale) if scale > 0 => Timer { counter: true, scale, start },
            _ => plain,
        }
    }

    #[inline(always)]
    pub(crate) fn ticks(&self) -> u64 {
        if self.counter { counter() } else { self.start.elapsed().as_nanos() as u64 }
    }

    pub(crate) fn ns(&self, ticks: u64) -> u64 {
        u64::try_from((u128::from(ticks) * u128::from(self.scale)) >> 32).unwrap_or(u64::MAX)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86_64 has RDTSC, which changes no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Invariant TSC: leaf 0x8000_0007, EDX bit 8.
#[cfg(target_arch = "x86_64")]
fn counter_is_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn counter() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_is_steady() -> bool {
    false
}
