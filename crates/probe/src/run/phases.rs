//! Alternates pauses and loads, and assigns the victim's calls to them.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use flatwater_host::clock::monotonic_ns;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::child::Command;
use crate::children::{Samples, Silence, Worker};
use crate::mechanism::Span;
use crate::plan::{Load, Operation};
use crate::statistic::Round;

/// A load begins to count after this time, when its queues are full.
const RAMP: Duration = Duration::from_millis(150);
const ALONE_NS: u64 = 250_000_000;
const BESIDE_NS: u64 = 450_000_000;
/// A phase is prolonged, up to this length, until each thread has made a few calls.
const ALONE_MAX_NS: u64 = 1_500_000_000;
const BESIDE_MAX_NS: u64 = 2_500_000_000;
const CALLS_MIN: u64 = 4;
/// After a load, calls that began later must have ended before the pause counts.
const SETTLE_CALLS: u64 = 2;
const SETTLE_MAX_NS: u64 = 3_000_000_000;
/// Time for an answer beyond what was asked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A neighbour's seat and its load.
pub type Key = (usize, Load);

/// An interval in which the victim's calls count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    span: Span,
    /// `None`: alone.
    beside: Option<Key>,
}

/// The phases in order. A pause is first and last, and between any two loads.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    windows: Vec<Window>,
    /// The victim's calls, ordered by start.
    pub samples: Samples,
}

impl Phases {
    /// Performs rounds of all loads, in a new order each, until the time is over.
    pub fn perform(
        &mut self,
        loads: &[Key],
        seed: u64,
        (victim, neighbours): (&mut Worker, &mut [Worker]),
        (until, stop): (Instant, &AtomicBool),
        notes: &mut Vec<String>,
    ) -> Result<(), Silence> {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut left: Vec<Key> = loads.to_vec();
        self.window(victim, None, (ALONE_NS, ALONE_MAX_NS), stop)?;
        while !left.is_empty() {
            shuffle(&mut left, &mut random);
            for key in left.clone() {
                if Instant::now() >= until {
                    return Ok(());
                }
                let Some(neighbour) = neighbours.get_mut(key.0) else { continue };
                if let Err(why) = self.beside(key, victim, neighbour, stop)? {
                    notes.push(format!("the neighbour with the {} failed and was left out: {why}", key.1.text()));
                    left.retain(|other| *other != key);
                }
                calls(victim, SETTLE_CALLS, (0, SETTLE_MAX_NS), stop)?;
                self.window(victim, None, (ALONE_NS, ALONE_MAX_NS), stop)?;
            }
        }
        Ok(())
    }

    /// One phase beside a load. The inner error is the neighbour's.
    fn beside(
        &mut self,
        key: Key,
        victim: &mut Worker,
        neighbour: &mut Worker,
        stop: &AtomicBool,
    ) -> Result<Result<(), Silence>, Silence> {
        if let Err(why) = neighbour.ask(Command::Begin(key.1), PATIENCE, stop) {
            return interrupted(why);
        }
        std::thread::sleep(RAMP);
        self.window(victim, Some(key), (BESIDE_NS, BESIDE_MAX_NS), stop)?;
        match neighbour.ask(Command::Stop, PATIENCE, stop) {
            Ok(_) => Ok(Ok(())),
            Err(why) => {
                // The phase was not a full load.
                self.windows.pop();
                interrupted(why)
            }
        }
    }

    fn window(
        &mut self,
        victim: &mut Worker,
        beside: Option<Key>,
        length: (u64, u64),
        stop: &AtomicBool,
    ) -> Result<(), Silence> {
        let from_ns = monotonic_ns();
        calls(victim, CALLS_MIN, length, stop)?;
        self.windows.push(Window { span: (from_ns, monotonic_ns()), beside });
        Ok(())
    }

    /// The latencies of one operation, by round of this load.
    #[must_use]
    pub fn rounds(&self, key: Key, operation: Operation) -> Vec<Round> {
        let position = Operation::ALL.iter().position(|other| *other == operation);
        let calls = position.and_then(|index| self.samples.get(index)).map(Vec::as_slice).unwrap_or_default();
        let of = |spans: &[Span]| spans.iter().flat_map(|span| within(calls, *span)).map(|(_, ns)| *ns).collect();
        self.rounds_of(key).map(|(alone, beside)| Round { alone: of(&alone), beside: of(&[beside]) }).collect()
    }

    /// The pauses around this load, and its phases.
    #[must_use]
    pub fn spans(&self, key: Key) -> (Vec<Span>, Vec<Span>) {
        let (alone, beside): (Vec<Vec<Span>>, Vec<Span>) = self.rounds_of(key).unzip();
        (alone.into_iter().flatten().collect(), beside)
    }

    /// For each phase of this load: the pauses directly before and after it, and the phase.
    fn rounds_of(&self, key: Key) -> impl Iterator<Item = (Vec<Span>, Span)> {
        self.windows.iter().enumerate().filter(move |(_, window)| window.beside == Some(key)).map(|(index, window)| {
            let around = [index.checked_sub(1), index.checked_add(1)];
            let pauses = around.into_iter().flatten().filter_map(|index| self.windows.get(index));
            (pauses.filter(|pause| pause.beside.is_none()).map(|pause| pause.span).collect(), window.span)
        })
    }
}

fn interrupted(why: Silence) -> Result<Result<(), Silence>, Silence> {
    if why == Silence::Interrupted { Err(why) } else { Ok(Err(why)) }
}

/// Waits until each thread of the victim has made this many calls, between these times.
fn calls(
    victim: &mut Worker,
    count: u64,
    (at_least_ns, at_most_ns): (u64, u64),
    stop: &AtomicBool,
) -> Result<(), Silence> {
    let within = Duration::from_nanos(at_most_ns) + PATIENCE;
    victim.ask(Command::Calls { count, at_least_ns, at_most_ns }, within, stop).map(drop)
}

/// The calls that began in this interval.
fn within(calls: &[(u64, u64)], (from_ns, to_ns): Span) -> &[(u64, u64)] {
    let from = calls.partition_point(|(start_ns, _)| *start_ns < from_ns);
    let to = calls.partition_point(|(start_ns, _)| *start_ns < to_ns);
    calls.get(from..to).unwrap_or_default()
}

/// Fisher and Yates.
fn shuffle(keys: &mut [Key], random: &mut Pcg64) {
    for last in (1..keys.len()).rev() {
        let other = (random.next_u64() % (last as u64 + 1)) as usize;
        keys.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::{Phases, Window};
    use crate::plan::{Load, Operation};
    use crate::statistic::Round;

    #[test]
    fn a_phase_is_compared_with_the_pauses_around_it() {
        let (dirty, cache) = ((0, Load::Dirty), (0, Load::Cache));
        let beside = [None, Some(dirty), None, Some(cache), None, Some(dirty), None];
        let windows = beside.iter().enumerate().map(|(index, beside)| {
            let from = index as u64 * 100;
            Window { span: (from, from + 50), beside: *beside }
        });
        // A call every 10 ns; its duration is its start.
        let calls: Vec<(u64, u64)> = (0..70).map(|index| (index * 10, index * 10)).collect();
        let phases = Phases { windows: windows.collect(), samples: vec![calls] };
        let starts = |from: u64| (0..5).map(move |index| from + index * 10);
        let rounds = phases.rounds(dirty, Operation::Append);
        let round = |pauses: [u64; 2], beside: u64| Round {
            alone: pauses.into_iter().flat_map(starts).collect(),
            beside: starts(beside).collect(),
        };
        assert_eq!(rounds, [round([0, 200], 100), round([400, 600], 500)]);
        assert!(phases.rounds((1, Load::Dirty), Operation::Append).is_empty());
        assert_eq!(phases.spans(cache), (vec![(200, 250), (400, 450)], vec![(300, 350)]));
    }
}
