//! False alarms on real recordings: blocks of a recording against other blocks of the same one. Generated series have a
//! chosen autocorrelation; these have that of a machine.
//!
//! `tests/fixtures/a-against-a.txt` has, for each second of each recording, the number of calls by duration (rounded to
//! a sixteenth of an octave). `make_the_fixture` wrote it from recordings of this project's machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use flatwater_experiment::bootstrap::{difference, estimate};
use flatwater_experiment::trial::{Trial, arm_of};
use flatwater_experiment::verdict::Verdict;
use flatwater_experiment::windowed::{Durations, Mean, Quantile, Windowed};
use flatwater_recording::{OpKind, read};
use rand_core::Rng;
use rand_pcg::Pcg64;

const FIXTURE: &str = "tests/fixtures/a-against-a.txt";
/// The promised confidence level.
const LEVEL: f64 = 0.95;

/// (duration in ns, calls) in one second.
type Second = Vec<(u64, u64)>;

fn recordings() -> BTreeMap<String, Vec<Second>> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(FIXTURE);
    let text = std::fs::read_to_string(path).expect("the fixture");
    let mut recordings: BTreeMap<String, Vec<Second>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, steps) = line.split_once(' ').expect("a name and steps");
        let step = |step: &str| {
            let (ns, count) = step.split_once(':').expect("ns:count");
            (ns.parse().expect("ns"), count.parse().expect("a count"))
        };
        recordings.entry(name.to_owned()).or_default().push(steps.split(' ').map(step).collect());
    }
    recordings
}

fn worst(seconds: &[Second]) -> f64 {
    seconds.iter().flatten().map(|(ns, _)| *ns).max().unwrap_or(1) as f64
}

/// Time in calls over 100 us, ns per second. Recordings of a quiet machine hardly have a call over 1 ms.
fn lost(seconds: &[Second]) -> f64 {
    let slow = seconds.iter().flatten().filter(|(ns, _)| *ns >= 100_000);
    slow.map(|(ns, count)| (ns * count) as f64).sum::<f64>() / seconds.len().max(1) as f64
}

fn p999(seconds: &[Second]) -> f64 {
    let quantile = Quantile::new(0.999, Arc::new(Durations::of_windows(seconds)));
    quantile.value(&vec![1; seconds.len()]).map_or(0.0, f64::exp)
}

type Figure = (&'static str, fn(&[Second]) -> f64);

const FIGURES: [Figure; 3] = [("worst", worst), ("lost", lost), ("p99.9", p999)];

/// Whether a trial whose runs are these blocks, in this order, alarms at any look.
fn alarms(blocks: &[&[Second]], figure: fn(&[Second]) -> f64, looks: usize) -> bool {
    let mut trial = Trial::new(looks, true);
    blocks.iter().take(4 * looks).enumerate().any(|(number, block)| {
        trial.add(arm_of(number), (figure(block) + 1.0).ln());
        number % 4 == 3 && trial.look().is_some_and(|(_, verdict)| verdict != Verdict::NotProven)
    })
}

#[test]
fn trials_of_recorded_blocks_alarm_in_at_most_one_of_twenty() {
    const TRIALS: usize = 1000;
    const LOOKS: usize = 4;
    let mut dice = Pcg64::new(20_261_121, 17);
    let (mut all, mut of) = (0, 0);
    for (name, seconds) in recordings() {
        for (figure_name, figure) in FIGURES {
            let mut count = 0;
            for _ in 0..TRIALS {
                // As in verify: consecutive blocks of equal length. The length and the first block are random.
                let length = 2 + (dice.next_u64() % 2) as usize;
                let mut blocks: Vec<&[Second]> = seconds.chunks_exact(length).collect();
                if dice.next_u64().is_multiple_of(2) {
                    // Runs are further apart than seconds of one recording, so their order is random.
                    for place in (1..blocks.len()).rev() {
                        blocks.swap(place, (dice.next_u64() % (place as u64 + 1)) as usize);
                    }
                } else {
                    let turn = (dice.next_u64() % blocks.len() as u64) as usize;
                    blocks.rotate_left(turn);
                }
                count += usize::from(alarms(&blocks, figure, LOOKS));
            }
            let rate = count as f64 / TRIALS as f64;
            println!("{name}, {figure_name}: {:.1} % false alarms of {TRIALS} trials", 100.0 * rate);
            (all, of) = (all + count, of + TRIALS);
        }
    }
    let rate = all as f64 / of as f64;
    println!("all: {:.2} % false alarms of {of} trials", 100.0 * rate);
    assert!(of >= 4 * 3 * TRIALS && rate <= 0.05, "{rate}");
}

/// A recording whose level changed twice, each time for ten seconds and more. Two intervals really differ, which
/// no interval alone shows. This is why `verify` interleaves; docs/scenarios.md has the figure.
const UNSTEADY: &str = "cgroup-noisy";

#[test]
fn comparisons_of_recorded_halves_alarm_in_at_most_one_of_twenty() {
    let (mut count, mut of) = (0_u32, 0_u32);
    for (name, seconds) in recordings() {
        let (mut own, mut own_of) = (0, 0);
        // All pairs of disjoint intervals.
        for length in [12, 16, 20] {
            for begin in 0..seconds.len().saturating_sub(2 * length - 1) {
                let (a, rest) = seconds[begin..].split_at(length);
                let b = &rest[rest.len() - length..];
                let series = |half: &[Second], figure: fn(&[Second]) -> f64| {
                    let values: Vec<f64> = half.iter().map(|second| figure(std::slice::from_ref(second))).collect();
                    Mean::new(&values, |mean| (mean + 1.0).ln())
                };
                let pairs: [(Box<dyn Windowed>, Box<dyn Windowed>); 3] = [
                    (Box::new(series(a, worst)), Box::new(series(b, worst))),
                    (Box::new(series(a, lost)), Box::new(series(b, lost))),
                    (
                        Box::new(Quantile::new(0.999, Arc::new(Durations::of_windows(a)))),
                        Box::new(Quantile::new(0.999, Arc::new(Durations::of_windows(b)))),
                    ),
                ];
                for (a, b) in &pairs {
                    let both = estimate(a.as_ref(), 1).zip(estimate(b.as_ref(), 2));
                    let alarm = both.is_some_and(|(a, b)| difference(&a, &b, LEVEL).excludes_zero());
                    own += u32::from(alarm);
                    own_of += 1;
                }
            }
        }
        println!("{name}: {own} of {own_of} comparisons alarm");
        if name != UNSTEADY {
            (count, of) = (count + own, of + own_of);
        }
    }
    let rate = f64::from(count) / f64::from(of.max(1));
    println!("steady recordings: {:.2} % false alarms of {of} comparisons", 100.0 * rate);
    assert!(of >= 100 && rate <= 0.05, "{rate}");
}

/// Rounds up to a sixteenth of an octave, which keeps the shape of the tail and the fixture small.
fn coarse(ns: u64) -> u64 {
    let step = (ns.max(1).ilog2()).saturating_sub(4);
    ((ns >> step) + 1) << step
}

/// Writes the fixture from all recordings in DIR: `FLATWATER_RECORDINGS=DIR cargo test -p flatwater-experiment
/// make_the_fixture -- --ignored`.
#[test]
#[ignore = "writes the fixture that the other tests read"]
fn make_the_fixture() {
    let dir = std::env::var("FLATWATER_RECORDINGS").expect("FLATWATER_RECORDINGS");
    let mut text = String::from(
        "# Write latencies of the foreground (from when they were due), second by second: ns:calls ...\n\
         # Recorded by this project on a 2-core guest, kernel 6.18; see tests/bootstrap/recorded.rs.\n",
    );
    let mut places: Vec<_> = std::fs::read_dir(dir).expect("readable").flatten().map(|entry| entry.path()).collect();
    places.sort();
    for place in places.into_iter().filter(|place| place.is_dir()) {
        let recording = read(&place).expect("a recording");
        let name = place.file_name().expect("a name").to_string_lossy().into_owned();
        let own = recording.latency.iter().filter(|bucket| bucket.thread.is_empty() && bucket.op == OpKind::Write);
        let mut seconds: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
        for bucket in own {
            let second = seconds.entry(bucket.start_ns).or_default();
            let histogram = bucket.from_due.as_ref().unwrap_or(&bucket.from_start);
            histogram.steps().for_each(|(_, ns, count)| *second.entry(coarse(ns)).or_default() += count);
        }
        // The first and the last second are incomplete.
        let whole = seconds.len().saturating_sub(2);
        for second in seconds.into_values().skip(1).take(whole) {
            let steps: Vec<String> = second.into_iter().map(|(ns, count)| format!("{ns}:{count}")).collect();
            text.push_str(&format!("{name} {}\n", steps.join(" ")));
        }
    }
    std::fs::write(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(FIXTURE), text).expect("write");
}
