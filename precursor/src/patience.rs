//! How an append waits for room.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::core::Core;

/// Waits in rounds: 63 spins, then sleeps of 50 us.
#[derive(Debug)]
pub(crate) struct Patience {
    rounds: u32,
}

impl Patience {
    const SPINS: u32 = 64;

    pub(crate) fn new() -> Patience {
        Patience { rounds: 0 }
    }

    /// Waits one round. The first counts the wait and wakes the helper.
    pub(crate) fn wait(&mut self, core: &Core) {
        if self.rounds == 0 {
            core.counters.0.waits.fetch_add(1, Ordering::Relaxed);
            core.wake_helper();
        }
        self.rounds += 1;
        if self.rounds < Patience::SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
