//! The sampler: a thread that reads the kernel's counters at a constant rate.
//!
//! It keeps all files open, reads into one buffer, and parses into rows whose memory is reused, so that in steady state
//! it allocates nothing: on a machine short of memory, an allocating sampler would wait in the same queue that it
//! measures.

mod options;
mod probe;
mod sources;
mod target;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use options::{HZ_MAX, SamplerOptions};
pub use probe::{Probe, Spare};
pub(crate) use sources::nodes;
pub use target::{BlockDevice, TargetCgroup, devices_of};

use crate::clock::monotonic_ns;
use crate::own_cost::thread_cpu_ns;
use flatwater_recording::{Gap, Series};

/// Rows are kept until they are drained, at most this long; then samples are dropped and counted.
const BACKLOG_S: u32 = 60;

#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    spare: Spare,
    thread: Option<JoinHandle<u64>>,
}

#[derive(Debug)]
struct Shared {
    probe: Mutex<Probe>,
    stop: AtomicBool,
    slabs_wanted: AtomicBool,
    late: AtomicU64,
}

/// The rows and gaps since the last drain.
#[derive(Debug, Default)]
pub struct Drained {
    pub series: Vec<Series>,
    pub gaps: Vec<Gap>,
}

/// The result of the sampler when it stops.
#[derive(Debug, Default)]
pub struct SamplerEnd {
    pub drained: Drained,
    pub samples: u64,
    /// Samples not taken in time, because the thread did not run or the rows were not drained.
    pub samples_late: u64,
    /// CPU time of the sampling thread.
    pub cpu_ns: u64,
}

impl Sampler {
    /// Opens the files, takes the first sample, reads slabinfo once, and starts the thread.
    #[must_use]
    pub fn start(options: &SamplerOptions) -> Sampler {
        let mut probe = Probe::open(options);
        let mut spare = Spare::default();
        let now = monotonic_ns();
        probe.sample(now);
        probe.reserve(&mut spare, 3 * options.rate() as usize);
        probe.sample_slabs(now);
        let shared = Arc::new(Shared {
            probe: Mutex::new(probe),
            stop: AtomicBool::new(false),
            slabs_wanted: AtomicBool::new(false),
            late: AtomicU64::new(0),
        });
        let (theirs, rate, avoid) = (Arc::clone(&shared), options.rate(), options.avoid_cpus.clone());
        let thread = std::thread::Builder::new().name("sampler".to_owned()).stack_size(256 << 10).spawn(move || {
            stay_off(&avoid);
            run(&theirs, rate, now)
        });
        if let Err(error) = &thread {
            let gap =
                Gap::new("all samples but the first", format!("no thread: {error}"), "raise the limit on threads");
            shared.lock().gaps.push(gap);
        }
        Sampler { shared, spare, thread: thread.ok() }
    }

    /// Returns the rows since the last call; call it once a second.
    pub fn drain(&mut self) -> Drained {
        self.shared.lock().drain(&mut self.spare)
    }

    /// Reads slabinfo once, at the next tick.
    pub fn request_slabs(&self) {
        self.shared.slabs_wanted.store(true, Ordering::Relaxed);
    }

    /// Stops sampling, reads slabinfo once more, and returns all remaining rows.
    #[must_use]
    pub fn stop(mut self) -> SamplerEnd {
        let cpu_ns = self.join();
        let mut probe = self.shared.lock();
        probe.sample_slabs(monotonic_ns());
        SamplerEnd {
            drained: probe.drain(&mut self.spare),
            samples: probe.samples(),
            samples_late: self.shared.late.load(Ordering::Relaxed),
            cpu_ns,
        }
    }

    fn join(&mut self) -> u64 {
        self.shared.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return 0 };
        thread.thread().unpark();
        thread.join().unwrap_or(0)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Probe> {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Samples at each multiple of the period after `first_ns`; returns the CPU time used.
fn run(shared: &Shared, rate: u32, first_ns: u64) -> u64 {
    let period_ns = 1_000_000_000 / u64::from(rate);
    let mut due_ns = first_ns + period_ns;
    while !shared.stop.load(Ordering::Relaxed) {
        let now = monotonic_ns();
        if now < due_ns {
            std::thread::park_timeout(Duration::from_nanos(due_ns - now));
            continue;
        }
        // Missed times are counted and not made up for: two samples at once show nothing new.
        let missed = (now - due_ns) / period_ns;
        due_ns += (missed + 1) * period_ns;
        let mut probe = shared.lock();
        let dropped = u64::from(!probe.has_room((BACKLOG_S * rate) as usize));
        if dropped == 0 {
            probe.sample(monotonic_ns());
        }
        if shared.slabs_wanted.swap(false, Ordering::Relaxed) {
            probe.sample_slabs(monotonic_ns());
        }
        drop(probe);
        shared.late.fetch_add(missed + dropped, Ordering::Relaxed);
    }
    thread_cpu_ns()
}

/// Keeps this thread off the CPUs that measured threads are pinned to, if other CPUs are left.
fn stay_off(avoid: &[u32]) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let mut ours = allowed;
    for &cpu in avoid {
        if (cpu as usize) < rustix::thread::CpuSet::MAX_CPU {
            ours.unset(cpu as usize);
        }
    }
    if ours.count() > 0 {
        let _ = rustix::thread::sched_setaffinity(None, &ours);
    }
}
