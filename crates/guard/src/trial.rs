//! The sequential test: whether a limit reduces the victim's stall time.
//!
//! **Design.** Time is divided into pairs of adjacent windows, one with the limit and one without. A fair coin, drawn
//! from the seed for each pair, decides which comes first. Only the victim's own calls are measured: its stall time per
//! second. A pair is a *win* if the stall time with the limit is at most `RATIO` times that without, a *loss* in the
//! opposite case, and a *tie* otherwise.
//!
//! **Null hypothesis.** The limit has no effect: the two windows of a pair would have had the same stall times, whether
//! the limit was in force in the first or in the second. Then the coin alone decides between win and loss. Given
//! the past, and unless the pair is a tie, a win has the probability 1/2, whatever the distribution of stalls, their
//! trend and their correlation in time.
//!
//! **Test.** Each of two bettors stakes a fixed share `b` of the capital on a win: the capital is multiplied by 1 + b
//! after a win and by 1 - b after a loss. Under the null hypothesis each capital, and the mean of both, is a
//! non-negative martingale that starts at 1. By Ville's inequality the probability that it ever reaches 1/a is at most
//! `a`. So the test may look after each pair, and a limit without effect is kept with probability `a` at most. The
//! bettor with 0.95 decides quickly when each pair is a win; the one with 0.6 survives single losses.
//!
//! An episode has up to `steps_max` trials with different limits. Each gets the error rate `error_rate / steps_max`, so
//! that the sum over an episode is at most `error_rate`.
//!
//! **Assumption.** An effect ends within the settling time before each window. If a limit still had an effect in the
//! next window, wins would become rarer, which makes keeping it less likely, not more.

/// A difference counts from this ratio on.
const RATIO: f64 = 0.8;
/// Stall time per second up to which a window is quiet: a hundredth of the time.
const QUIET: f64 = 0.01;
const BETS: [f64; 2] = [0.95, 0.6];
/// Below this capital the trial is given up.
const CAPITAL_MIN: f64 = 0.2;
/// A trial has at most this many pairs.
const PAIRS_MAX: u32 = 20;
/// Without a win, this many ties end the trial.
const TIES_MAX: u32 = 4;
/// This many quiet pairs in a row end the trial: there is nothing to protect.
const QUIET_MAX: u32 = 3;
/// This many pairs that could not be measured end the trial.
const VOID_MAX: u32 = 4;

/// The stall times of one pair, s per s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    pub on: f64,
    pub off: f64,
}

/// The state of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    capital: [f64; 2],
    error_rate: f64,
    pub wins: u32,
    pub losses: u32,
    pub ties: u32,
    pub void: u32,
    quiet_in_a_row: u32,
    on_sum: f64,
    off_sum: f64,
}

/// The result of the trial so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Open,
    Proven,
    NotProven,
    /// Neither window of the last pairs had a stall.
    Quiet,
    /// Too many pairs could not be measured.
    NotObserved,
}

impl Trial {
    #[must_use]
    pub fn new(error_rate: f64) -> Trial {
        Trial {
            capital: [1.0; 2],
            error_rate,
            wins: 0,
            losses: 0,
            ties: 0,
            void: 0,
            quiet_in_a_row: 0,
            on_sum: 0.0,
            off_sum: 0.0,
        }
    }

    /// Adds a pair; `None` if a window could not be measured.
    pub fn add(&mut self, pair: Option<Pair>) {
        // NaN and negative times come from a damaged observation.
        let valid = |pair: &Pair| [pair.on, pair.off].iter().all(|stalled| stalled.is_finite() && *stalled >= 0.0);
        let Some(Pair { on, off }) = pair.filter(valid) else {
            self.void += 1;
            return;
        };
        self.on_sum += on;
        self.off_sum += off;
        if on.max(off) <= QUIET {
            self.quiet_in_a_row += 1;
            self.ties += 1;
            return;
        }
        self.quiet_in_a_row = 0;
        let sign = if on <= RATIO * off {
            self.wins += 1;
            1.0
        } else if off <= RATIO * on {
            self.losses += 1;
            -1.0
        } else {
            self.ties += 1;
            return;
        };
        for (capital, bet) in self.capital.iter_mut().zip(BETS) {
            *capital *= 1.0 + sign * bet;
        }
    }

    fn capital(&self) -> f64 {
        self.capital.iter().sum::<f64>() / self.capital.len() as f64
    }

    /// An upper bound of the probability of this much evidence, or more, if the limit had no effect.
    #[must_use]
    pub fn p_value(&self) -> f64 {
        (1.0 / self.capital().max(f64::MIN_POSITIVE)).min(1.0)
    }

    /// The share by which the victim's stall time fell, from negative values to 1; `None` if it had none.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        (self.off_sum > 0.0).then(|| 1.0 - self.on_sum / self.off_sum)
    }

    /// Mean stall time per second with and without the limit.
    #[must_use]
    pub fn means(&self) -> (f64, f64) {
        let pairs = f64::from(self.pairs().max(1));
        (self.on_sum / pairs, self.off_sum / pairs)
    }

    /// Pairs that were measured.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        self.wins + self.losses + self.ties
    }

    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.capital() * self.error_rate >= 1.0 {
            Verdict::Proven
        } else if self.quiet_in_a_row >= QUIET_MAX {
            Verdict::Quiet
        } else if self.void >= VOID_MAX {
            Verdict::NotObserved
        } else if self.capital() < CAPITAL_MIN || self.pairs() >= PAIRS_MAX || (self.wins == 0 && self.ties >= TIES_MAX)
        {
            Verdict::NotProven
        } else {
            Verdict::Open
        }
    }
}

/// A stream of random numbers (splitmix64), so that the same seed gives the same episode.
#[derive(Clone, Debug)]
pub struct Coin(u64);

impl Coin {
    #[must_use]
    pub fn new(seed: u64) -> Coin {
        Coin(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn heads(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::{Coin, Pair, Trial, Verdict};

    const RATE: f64 = 0.05 / 3.0;

    fn trial(pairs: &[(f64, f64)]) -> Trial {
        let mut trial = Trial::new(RATE);
        pairs.iter().for_each(|(on, off)| trial.add(Some(Pair { on: *on, off: *off })));
        trial
    }

    #[test]
    fn seven_wins_in_a_row_prove_an_effect_and_six_do_not() {
        assert_eq!(trial(&[(0.1, 0.9); 6]).verdict(), Verdict::Open);
        let proven = trial(&[(0.1, 0.9); 7]);
        assert_eq!(proven.verdict(), Verdict::Proven);
        assert!(proven.p_value() <= RATE, "{}", proven.p_value());
        assert!(proven.gain().is_some_and(|gain| (gain - 8.0 / 9.0).abs() < 1e-9));
    }

    #[test]
    fn single_losses_delay_a_proof() {
        let mut pairs = vec![(0.1, 0.9); 5];
        pairs.push((0.9, 0.1));
        pairs.extend([(0.1, 0.9); 6]);
        assert_eq!(trial(&pairs).verdict(), Verdict::Proven);
    }

    #[test]
    fn no_effect_quiet_and_unmeasured_pairs_end_a_trial() {
        assert_eq!(trial(&[(0.9, 0.1), (0.9, 0.1)]).verdict(), Verdict::NotProven, "it makes things worse");
        assert_eq!(trial(&[(0.5, 0.5); 4]).verdict(), Verdict::NotProven);
        assert_eq!(trial(&[(0.0, 0.0); 3]).verdict(), Verdict::Quiet);
        let mut unmeasured = trial(&[(0.1, 0.9); 2]);
        (0..2).for_each(|_| unmeasured.add(None));
        unmeasured.add(Some(Pair { on: f64::NAN, off: 0.5 }));
        unmeasured.add(Some(Pair { on: -1.0, off: 0.5 }));
        assert_eq!(unmeasured.verdict(), Verdict::NotObserved);
        assert_eq!((unmeasured.wins, unmeasured.void), (2, 4));
    }

    /// The stated error rate, with stalls that are heavy-tailed and correlated in time.
    #[test]
    fn a_limit_without_effect_is_proven_at_most_at_the_error_rate() {
        let mut coin = Coin::new(7);
        let mut uniform = move || (coin.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let runs = 20_000;
        let mut proven = 0;
        for _ in 0..runs {
            let (mut trial, mut level) = (Trial::new(RATE), 0.5);
            while trial.verdict() == Verdict::Open {
                // Bursts: the second window of a pair resembles the first, and levels drift.
                level = (level * (0.5 + 1.2 * uniform())).clamp(0.02, 4.0);
                let first = level * (0.2 + 1.0 / (0.05 + uniform()));
                let second = level * (0.2 + 1.0 / (0.05 + uniform()));
                let (on, off) = if uniform() < 0.5 { (first, second) } else { (second, first) };
                trial.add(Some(Pair { on, off }));
            }
            proven += u32::from(trial.verdict() == Verdict::Proven);
        }
        let share = f64::from(proven) / f64::from(runs);
        // Four standard errors above the rate.
        assert!(share <= RATE + 4.0 * (RATE / f64::from(runs)).sqrt(), "{share} of {RATE}");
        assert!(proven > 0, "the test can err, as stated");
    }
}
