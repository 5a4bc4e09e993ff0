//! Which samples are kept where a long recording must fit into little memory.

use std::collections::HashMap;

use super::super::{LatencyBucket, latency};

/// Divides the measured part into equal stretches and keeps the first moment of each. All moments of the first
/// and the last stretch stay, so that what counters rose by from end to end is told in full.
#[derive(Clone, Debug)]
pub(super) struct Thinning {
    start_ns: u64,
    stretch_ns: u64,
    stretches: u64,
    kept: HashMap<u64, u64>,
}

impl Thinning {
    pub(super) fn new(start_ns: u64, duration_ns: u64, moments_max: u64) -> Thinning {
        let stretches = moments_max.max(1);
        Thinning { start_ns, stretch_ns: (duration_ns / stretches).max(1), stretches, kept: HashMap::new() }
    }

    /// Rows of one moment share the answer, in whatever order they come.
    pub(super) fn keeps(&mut self, at_ns: u64) -> bool {
        let stretch = at_ns.saturating_sub(self.start_ns) / self.stretch_ns;
        if stretch == 0 || stretch.saturating_add(1) >= self.stretches {
            return true;
        }
        *self.kept.entry(stretch).or_insert(at_ns) == at_ns
    }

    /// Counts the latencies of each stretch together, of these rows and those behind them; whether it did.
    pub(super) fn widen(&self, rows: &mut Vec<LatencyBucket>, from: usize) -> bool {
        latency::widen(rows, from, self.start_ns, self.stretch_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::Thinning;

    #[test]
    fn one_moment_of_each_stretch_and_both_ends() {
        let mut thinning = Thinning::new(100, 100, 10);
        let kept: Vec<u64> = (0..=30).map(|number| 95 + number * 4).filter(|&at_ns| thinning.keeps(at_ns)).collect();
        let ends = |at_ns: &&u64| **at_ns < 110 || **at_ns >= 190;
        assert_eq!(kept.iter().filter(ends).count(), (95..110).step_by(4).count() + (191..=215).step_by(4).count());
        assert_eq!(kept.len() - kept.iter().filter(ends).count(), 8, "{kept:?}");
        assert!(thinning.keeps(111) && !thinning.keeps(115), "the same answer for other rows of the moment");
    }
}
