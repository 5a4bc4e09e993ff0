//! Readers-writer locks of a workload. Fair to writers: new readers queue behind a waiting writer, so that continuous
//! readers cannot starve a checkpoint.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use flatwater_workload::LockId;

#[derive(Debug, Default)]
struct State {
    readers: u32,
    writer: bool,
    writers_waiting: u32,
}

#[derive(Debug, Default)]
pub struct RwGate {
    state: Mutex<State>,
    changed: Condvar,
}

impl RwGate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lock(&self, exclusive: bool) {
        let mut state = self.state();
        if exclusive {
            state.writers_waiting += 1;
            while state.writer || state.readers > 0 {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.writers_waiting -= 1;
            state.writer = true;
        } else {
            while state.writer || state.writers_waiting > 0 {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.readers += 1;
        }
    }

    pub fn unlock(&self, exclusive: bool) {
        let mut state = self.state();
        if exclusive {
            state.writer = false;
        } else {
            state.readers = state.readers.saturating_sub(1);
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// The locks of one workload, created on first use.
#[derive(Debug, Default)]
pub struct Locks {
    gates: Mutex<HashMap<LockId, Arc<RwGate>>>,
}

impl Locks {
    pub fn gate(&self, lock: LockId) -> Arc<RwGate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(lock).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::RwGate;

    #[test]
    fn writers_exclude_all_and_readers_only_writers() {
        let (gate, inside) = (Arc::new(RwGate::default()), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..6)
            .map(|index| {
                let (gate, inside, exclusive) = (gate.clone(), inside.clone(), index % 3 == 0);
                thread::spawn(move || {
                    for _ in 0..500 {
                        gate.lock(exclusive);
                        let weight = if exclusive { 1000 } else { 1 };
                        let before = inside.fetch_add(weight, Ordering::SeqCst);
                        assert!(if exclusive { before == 0 } else { before < 1000 }, "{before} inside");
                        inside.fetch_sub(weight, Ordering::SeqCst);
                        gate.unlock(exclusive);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no overlap");
        }
    }
}
