//! How often a whole trial (A B B A, checked several times) finds A better or worse than A. The promise of at most 5 %
//! holds for the trial, not for each look.

use flatwater_experiment::trial::{Arm, Trial, arm_of};
use flatwater_experiment::verdict::Verdict;
use rand_core::Rng;
use rand_pcg::Pcg64;

struct Dice(Pcg64);

impl Dice {
    fn share(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// A normal deviate (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }
}

/// The logarithm of a run's largest delay: correlated seconds, plus a random part per run, plus a drift from run to
/// run.
fn run(dice: &mut Dice, memory: f64, luck: f64, drift: f64) -> f64 {
    let mut state = dice.normal();
    let mut worst = f64::NEG_INFINITY;
    for _ in 0..8 {
        state = memory * state + (1.0 - memory * memory).sqrt() * dice.normal();
        worst = worst.max(state);
    }
    worst + luck * dice.normal() + drift
}

fn false_alarms(looks: usize, memory: f64, luck: f64, drift_a_run: f64) -> f64 {
    const TRIALS: u32 = 4000;
    let mut dice = Dice(Pcg64::new(20_261_121, 11));
    let mut alarms = 0;
    for _ in 0..TRIALS {
        let mut trial = Trial::new(looks, true);
        let stopped = (0..4 * looks).any(|number| {
            let value = run(&mut dice, memory, luck, drift_a_run * number as f64);
            trial.add(arm_of(number), value);
            number % 4 == 3 && trial.look().is_some_and(|(_, verdict)| verdict != Verdict::NotProven)
        });
        alarms += u32::from(stopped);
    }
    f64::from(alarms) / f64::from(TRIALS)
}

#[test]
fn a_trial_of_a_against_a_alarms_in_at_most_one_of_twenty() {
    for (looks, memory, luck, drift) in
        [(1, 0.0, 0.0, 0.0), (5, 0.0, 0.0, 0.0), (5, 0.8, 0.0, 0.0), (5, 0.5, 1.0, 0.0), (3, 0.5, 0.5, 0.2)]
    {
        let rate = false_alarms(looks, memory, luck, drift);
        println!("{looks} looks, memory {memory}, luck {luck}, drift {drift}: {:.2} % false alarms", 100.0 * rate);
        assert!(rate <= 0.05, "{looks} looks, memory {memory}, luck {luck}, drift {drift}: {rate}");
    }
}

#[test]
fn a_tenfold_effect_is_proven_early_in_spite_of_the_noise() {
    let mut dice = Dice(Pcg64::new(3, 3));
    let mut proven = 0;
    for _ in 0..300 {
        let mut trial = Trial::new(5, true);
        let found = (0..12).any(|number| {
            let effect = if arm_of(number) == Arm::B { -(10.0_f64.ln()) } else { 0.0 };
            trial.add(arm_of(number), 0.5 * run(&mut dice, 0.5, 0.3, 0.0) + effect);
            number % 4 == 3 && trial.look().is_some_and(|(_, verdict)| verdict == Verdict::Better)
        });
        proven += u32::from(found);
    }
    assert!(proven >= 290, "{proven} of 300 within three looks");
}
