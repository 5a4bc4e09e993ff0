//! The victim: one thread for each operation, which times its own calls.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flatwater_host::clock::{monotonic_ns, sleep_ns};
use flatwater_safefs::Dir;
use flatwater_workload::dice::Dice;

use super::files::{self, BLOCK};
use super::{Command, DONE, FAILED, READY, SAMPLE, answer, next};
use crate::plan::{APPEND_BYTES, CACHED_BYTES, Operation, READ_BYTES, SYNC_BYTES};

/// At most this many calls of each thread are kept: half an hour at the highest rate.
const SAMPLES_MAX: usize = 600_000;
const POLL: Duration = Duration::from_millis(1);

/// Shared with the thread that reads commands.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Calls that began after this instant are counted.
    since_ns: AtomicU64,
    /// Such calls that have ended, by operation.
    ended: [AtomicU64; Operation::ALL.len()],
}

impl Shared {
    /// Counts calls from now on; returns the time.
    fn begin(&self) -> u64 {
        let now_ns = monotonic_ns();
        self.since_ns.store(now_ns, Ordering::SeqCst);
        self.ended.iter().for_each(|ended| ended.store(0, Ordering::SeqCst));
        now_ns
    }

    /// The calls of the thread that made the fewest.
    fn fewest(&self) -> u64 {
        self.ended.iter().map(|ended| ended.load(Ordering::SeqCst)).min().unwrap_or(0)
    }
}

struct Sample {
    start_ns: u64,
    duration_ns: u64,
}

pub fn serve(seed: u64) -> io::Result<()> {
    let dir = Dir::open(Path::new(".")).map_err(io::Error::other)?;
    let begun_ns = monotonic_ns();
    let actors: Vec<Actor> =
        Operation::ALL.iter().map(|operation| Actor::new(&dir, *operation, seed)).collect::<io::Result<_>>()?;
    let took_ns = (monotonic_ns() - begun_ns).max(1);
    let bytes_per_s = u128::from(READ_BYTES + CACHED_BYTES) * 1_000_000_000 / u128::from(took_ns);
    let shared = Arc::new(Shared::default());
    let mut threads = Vec::new();
    for (index, actor) in actors.into_iter().enumerate() {
        let shared = shared.clone();
        let thread = std::thread::Builder::new().name(actor.operation.thread().to_owned());
        threads.push((index, thread.spawn(move || actor.perform(index, &shared))?));
    }
    answer(&format!("{READY} {bytes_per_s}"));
    loop {
        match next() {
            Some(Command::Calls { count, at_least_ns, at_most_ns }) => {
                let from_ns = shared.begin();
                loop {
                    std::thread::sleep(POLL);
                    let passed_ns = monotonic_ns() - from_ns;
                    let all = shared.fewest() >= count && passed_ns >= at_least_ns;
                    if all || passed_ns >= at_most_ns || threads.iter().any(|(_, thread)| thread.is_finished()) {
                        break;
                    }
                }
                answer(DONE);
            }
            Some(Command::End) => break,
            _ => std::process::exit(1),
        }
        if threads.iter().any(|(_, thread)| thread.is_finished()) {
            break;
        }
    }
    shared.stop.store(true, Ordering::Relaxed);
    for (index, thread) in threads {
        let samples = thread.join().map_err(|_| io::Error::other("a thread of the probe panicked"))?;
        match samples {
            Ok(samples) => samples.iter().for_each(|sample| {
                answer(&format!("{SAMPLE}{index} {} {}", sample.start_ns, sample.duration_ns));
            }),
            Err(error) => answer(&format!("{FAILED}{error}")),
        }
    }
    answer(DONE);
    Ok(())
}

struct Actor {
    operation: Operation,
    file: File,
    /// The next byte to write.
    at: u64,
    dice: Dice,
    block: Vec<u8>,
}

impl Actor {
    fn new(dir: &Dir, operation: Operation, seed: u64) -> io::Result<Actor> {
        let file = files::nameless(dir, operation.name())?;
        match operation {
            Operation::Append | Operation::Fsync => {}
            Operation::Read => {
                files::fill(&file, READ_BYTES, seed)?;
                files::read_singly(&file);
                files::forget(&file, 0, READ_BYTES);
            }
            Operation::CachedRead => {
                files::fill(&file, CACHED_BYTES, seed)?;
                files::read_singly(&file);
            }
        }
        let mut block = vec![0; BLOCK];
        files::scramble(&mut block, seed);
        Ok(Actor { operation, file, at: 0, dice: Dice::new(seed, 0, operation.name()), block })
    }

    fn perform(mut self, index: usize, shared: &Shared) -> io::Result<Vec<Sample>> {
        let mut samples = Vec::new();
        while !shared.stop.load(Ordering::Relaxed) && samples.len() < SAMPLES_MAX {
            self.prepare()?;
            let start_ns = monotonic_ns();
            self.call()?;
            let duration_ns = monotonic_ns() - start_ns;
            samples.push(Sample { start_ns, duration_ns });
            if start_ns >= shared.since_ns.load(Ordering::SeqCst)
                && let Some(ended) = shared.ended.get(index)
            {
                ended.fetch_add(1, Ordering::SeqCst);
            }
            sleep_ns(self.operation.pause_ns());
        }
        Ok(samples)
    }

    /// What belongs to the next call but is not timed.
    fn prepare(&mut self) -> io::Result<()> {
        match self.operation {
            Operation::Append if self.at >= APPEND_BYTES => self.start_again(),
            Operation::Fsync => {
                if self.at >= SYNC_BYTES {
                    self.start_again()?;
                }
                self.append()
            }
            Operation::Read => {
                self.at = self.random_block(READ_BYTES);
                files::forget(&self.file, self.at, BLOCK as u64);
                Ok(())
            }
            Operation::CachedRead => {
                self.at = self.random_block(CACHED_BYTES);
                Ok(())
            }
            Operation::Append => Ok(()),
        }
    }

    fn call(&mut self) -> io::Result<()> {
        match self.operation {
            Operation::Append => self.append(),
            Operation::Fsync => self.file.sync_all(),
            Operation::Read | Operation::CachedRead => self.file.read_exact_at(&mut self.block, self.at),
        }
    }

    fn append(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.block, self.at)?;
        self.at += BLOCK as u64;
        Ok(())
    }

    fn start_again(&mut self) -> io::Result<()> {
        self.at = 0;
        self.file.set_len(0)
    }

    fn random_block(&mut self, bytes: u64) -> u64 {
        self.dice.below(bytes / BLOCK as u64) * BLOCK as u64
    }
}
