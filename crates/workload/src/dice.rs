//! Random numbers of workloads. Each generator is a Pcg64 seeded by scenario, actor and purpose, so that a new choice
//! in one place does not shift the choices elsewhere.

use rand_core::Rng;
use rand_pcg::Pcg64;

#[derive(Clone, Debug)]
pub struct Dice(Pcg64);

impl Dice {
    #[must_use]
    pub fn new(seed: u64, actor: u64, purpose: &str) -> Dice {
        // FNV-1a: any fixed function of the text would do, and this one never changes.
        let purpose = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Dice(Pcg64::new(u128::from(seed) << 64 | u128::from(purpose), u128::from(actor)))
    }

    /// Uniform in 0 to `end` - 1; 0 if `end` is 0. The bias of a 64-bit multiplication is below 2^-32 for every range
    /// that a workload uses.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Uniform in `from` to `to`, both inclusive.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from).saturating_add(1))
    }

    /// Uniform in 0 to 1, excluding 1.
    pub fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The Fisher-Yates shuffle.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn generators_differ_by_seed_actor_and_purpose_and_are_reproducible() {
        let draw = |seed, actor, purpose| Dice::new(seed, actor, purpose).below(u64::MAX);
        assert_eq!(draw(1, 0, "files"), draw(1, 0, "files"));
        assert_ne!(draw(1, 0, "files"), draw(2, 0, "files"));
        assert_ne!(draw(1, 0, "files"), draw(1, 1, "files"));
        assert_ne!(draw(1, 0, "files"), draw(1, 0, "lengths"));
    }

    #[test]
    fn numbers_stay_in_range_and_reach_both_ends() {
        let mut dice = Dice::new(7, 0, "range");
        let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| dice.between(3, 6)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(dice.below(0), 0);
        assert!((0..200).map(|_| dice.share()).all(|share| (0.0..1.0).contains(&share)));
    }
}
