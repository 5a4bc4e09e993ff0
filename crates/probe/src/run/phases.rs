//! Alternates pauses and loads, and assigns the victim's calls to them.

use std::time::{Duration, Instant};

use flatwater_host::clock::monotonic_ns;
use flatwater_workload::dice::Dice;

use super::Clock;
use crate::child::{Command, DONE};
use crate::children::{Samples, Silence, Worker};
use crate::mechanism::Span;
use crate::plan::{Load, Operation};
use crate::statistic::Round;
use crate::work::{Total, Work};

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

/// A phase beside a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loaded {
    key: Key,
    begun_ns: u64,
    work: Work,
}

/// An interval in which the victim's calls count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    span: Span,
    /// `None`: alone.
    beside: Option<Loaded>,
}

impl Window {
    /// The durations of the calls that began in this interval, ns. Beside a load, a call that began after the load and
    /// ended in or after the interval counts as well: the longest calls wait from the begin of the load.
    fn calls<'a>(&self, calls: &'a [(u64, u64)]) -> impl Iterator<Item = u64> + use<'a> {
        let (from_ns, to_ns) = self.span;
        let before_ns = self.beside.map_or(from_ns, |loaded| loaded.begun_ns);
        let reaches = move |(start_ns, ns): &&(u64, u64)| start_ns.saturating_add(*ns) >= from_ns;
        within(calls, (before_ns, to_ns)).iter().filter(reaches).map(|(_, ns)| *ns)
    }
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
        clock: &Clock<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(), Silence> {
        let mut dice = Dice::new(seed, 0, "phases");
        let mut left: Vec<Key> = loads.to_vec();
        self.alone(victim, clock)?;
        while !left.is_empty() {
            dice.shuffle(&mut left);
            for key in left.clone() {
                if Instant::now() >= clock.until {
                    return Ok(());
                }
                let Some(neighbour) = neighbours.get_mut(key.0) else { continue };
                if let Err(why) = self.beside(key, victim, neighbour, clock)? {
                    notes.push(format!("the neighbour with the {} failed and was left out: {why}", key.1.text()));
                    left.retain(|other| *other != key);
                }
                calls(victim, SETTLE_CALLS, (0, SETTLE_MAX_NS), clock)?;
                self.alone(victim, clock)?;
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
        clock: &Clock<'_>,
    ) -> Result<Result<(), Silence>, Silence> {
        let begun_ns = monotonic_ns();
        if let Err(why) = neighbour.ask(Command::Begin(key.1), clock.at_most(PATIENCE), clock.stop) {
            return interrupted(why);
        }
        std::thread::sleep(RAMP);
        let from_ns = monotonic_ns();
        calls(victim, CALLS_MIN, (BESIDE_NS, BESIDE_MAX_NS), clock)?;
        let span = (from_ns, monotonic_ns());
        match neighbour.ask(Command::Stop, clock.at_most(PATIENCE), clock.stop).and_then(|answer| work(&answer)) {
            Ok(work) => {
                self.windows.push(Window { span, beside: Some(Loaded { key, begun_ns, work }) });
                Ok(Ok(()))
            }
            // The phase was not a full load.
            Err(why) => interrupted(why),
        }
    }

    /// A pause.
    fn alone(&mut self, victim: &mut Worker, clock: &Clock<'_>) -> Result<(), Silence> {
        let from_ns = monotonic_ns();
        calls(victim, CALLS_MIN, (ALONE_NS, ALONE_MAX_NS), clock)?;
        self.windows.push(Window { span: (from_ns, monotonic_ns()), beside: None });
        Ok(())
    }

    /// The latencies of one operation, by round of this load.
    #[must_use]
    pub fn rounds(&self, key: Key, operation: Operation) -> Vec<Round> {
        let position = Operation::ALL.iter().position(|other| *other == operation);
        let calls = position.and_then(|index| self.samples.get(index)).map(Vec::as_slice).unwrap_or_default();
        let round = |(pauses, beside): (Vec<&Window>, &Window)| Round {
            alone: pauses.iter().flat_map(|pause| pause.calls(calls)).collect(),
            beside: beside.calls(calls).collect(),
        };
        self.rounds_of(key).map(round).collect()
    }

    /// The pauses around this load, and its phases from the begin of the load.
    #[must_use]
    pub fn spans(&self, key: Key) -> (Vec<Span>, Vec<Span>) {
        let from_load =
            |window: &Window| (window.beside.map_or(window.span.0, |loaded| loaded.begun_ns), window.span.1);
        let rounds = self.rounds_of(key);
        let (alone, beside): (Vec<Vec<Span>>, Vec<Span>) =
            rounds.map(|(pauses, beside)| (pauses.iter().map(|pause| pause.span).collect(), from_load(beside))).unzip();
        (alone.into_iter().flatten().collect(), beside)
    }

    /// What the neighbour did in all phases of this load.
    #[must_use]
    pub fn work(&self, key: Key) -> Total {
        let loaded = self.windows.iter().filter_map(|window| window.beside).filter(|loaded| loaded.key == key);
        Total::of(&loaded.map(|loaded| loaded.work).collect::<Vec<_>>())
    }

    /// For each phase of this load: the pauses directly before and after it, and the phase.
    fn rounds_of(&self, key: Key) -> impl Iterator<Item = (Vec<&Window>, &Window)> {
        let is_of = move |window: &Window| window.beside.is_some_and(|loaded| loaded.key == key);
        self.windows.iter().enumerate().filter(move |(_, window)| is_of(window)).map(|(index, window)| {
            let around = [index.checked_sub(1), index.checked_add(1)];
            let pauses = around.into_iter().flatten().filter_map(|index| self.windows.get(index));
            (pauses.filter(|pause| pause.beside.is_none()).collect(), window)
        })
    }
}

/// The work in a neighbour's answer.
fn work(answer: &str) -> Result<Work, Silence> {
    let json = answer.strip_prefix(DONE).unwrap_or_default();
    serde_json::from_str(json).map_err(|error| Silence::Failed(format!("its answer is not understood: {error}")))
}

fn interrupted(why: Silence) -> Result<Result<(), Silence>, Silence> {
    if why == Silence::Interrupted { Err(why) } else { Ok(Err(why)) }
}

/// Waits until each thread of the victim has made this many calls, between these times.
fn calls(
    victim: &mut Worker,
    count: u64,
    (at_least_ns, at_most_ns): (u64, u64),
    clock: &Clock<'_>,
) -> Result<(), Silence> {
    let within = clock.at_most(Duration::from_nanos(at_most_ns) + PATIENCE);
    victim.ask(Command::Calls { count, at_least_ns, at_most_ns }, within, clock.stop).map(drop)
}

/// The calls that began in this interval.
fn within(calls: &[(u64, u64)], (from_ns, to_ns): Span) -> &[(u64, u64)] {
    let from = calls.partition_point(|(start_ns, _)| *start_ns < from_ns);
    let to = calls.partition_point(|(start_ns, _)| *start_ns < to_ns);
    calls.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Loaded, Phases, Window, work};
    use crate::plan::{Load, Operation};
    use crate::statistic::Round;
    use crate::work::Work;

    fn loaded(load: Load, begun_ns: u64) -> Option<Loaded> {
        Some(Loaded { key: (0, load), begun_ns, work: Work { ns: 1_000_000_000, bytes: 7, ..Work::default() } })
    }

    #[test]
    fn a_phase_is_compared_with_the_pauses_around_it() {
        let (dirty, cache) = (loaded(Load::Dirty, 0), loaded(Load::Cache, 0));
        let beside = [None, dirty, None, cache, None, dirty, None];
        let windows = beside.iter().enumerate().map(|(index, beside)| {
            let from = index as u64 * 100;
            let beside = beside.map(|loaded| Loaded { begun_ns: from, ..loaded });
            Window { span: (from, from + 50), beside }
        });
        // A call every 10 ns; its duration is its start.
        let calls: Vec<(u64, u64)> = (0..70).map(|index| (index * 10, index * 10)).collect();
        let phases = Phases { windows: windows.collect(), samples: vec![calls] };
        let starts = |from: u64| (0..5).map(move |index| from + index * 10);
        let rounds = phases.rounds((0, Load::Dirty), Operation::Append);
        let round = |pauses: [u64; 2], beside: u64| Round {
            alone: pauses.into_iter().flat_map(starts).collect(),
            beside: starts(beside).collect(),
        };
        assert_eq!(rounds, [round([0, 200], 100), round([400, 600], 500)]);
        assert!(phases.rounds((1, Load::Dirty), Operation::Append).is_empty());
        assert_eq!(phases.spans((0, Load::Cache)), (vec![(200, 250), (400, 450)], vec![(300, 350)]));
        let total = phases.work((0, Load::Dirty));
        assert_eq!((total.phases, total.bytes_per_s), (2, 7));
        assert_eq!(phases.work((1, Load::Dirty)).phases, 0);
    }

    /// A call that waits for the whole phase began before the phase counted.
    #[test]
    fn a_call_that_the_load_holds_throughout_the_phase_counts() {
        let windows = vec![
            Window { span: (0, 100), beside: None },
            Window { span: (300, 600), beside: loaded(Load::Dirty, 150) },
            Window { span: (900, 1_000), beside: None },
        ];
        // Begun alone; ended before the phase counts; held; begun under load, ended in the pause.
        let samples = vec![vec![(50, 10), (160, 20), (200, 500), (550, 400), (950, 10)]];
        let rounds = Phases { windows, samples }.rounds((0, Load::Dirty), Operation::Append);
        assert_eq!(rounds, [Round { alone: vec![10, 10], beside: vec![500, 400] }]);
    }

    #[test]
    fn an_answer_without_work_is_an_error() {
        let json = serde_json::to_string(&Work { bytes: 3, ..Work::default() }).expect("JSON");
        assert_eq!(work(&format!("done {json}")).map(|work| work.bytes), Ok(3));
        assert!(work("done").is_err() && work("ready").is_err());
    }
}
