//! The difference between two groups of hosts within strata of similar hosts, with a bootstrap of whole hosts.

use std::collections::BTreeMap;

use flatwater_experiment::bootstrap::{Difference, quantile_t};
use rand_core::Rng;
use rand_pcg::Pcg64;

/// Resamples for one standard error; their own noise is 1/sqrt(2 * 400), 3.5 %.
const RESAMPLES: usize = 400;
/// Fewer hosts in a group are not enough to estimate their spread.
pub const HOSTS_MIN: usize = 5;

/// One host: its stratum, whether it is in the treated group, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    pub stratum: String,
    pub treated: bool,
    pub value: f64,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    pub difference: Difference,
    /// Hosts in strata with both groups.
    pub treated: usize,
    pub controls: usize,
    pub strata: usize,
    /// Treated hosts without a similar control.
    pub without_control: usize,
}

/// Treated minus control, with strata weighted by their information; `None` if too few hosts are comparable.
#[must_use]
pub fn compare(hosts: &[Host], level: f64, seed: u64) -> Option<Compared> {
    let mut strata: BTreeMap<&str, Arms> = BTreeMap::new();
    for host in hosts {
        strata.entry(&host.stratum).or_default()[usize::from(host.treated)].push(host.value);
    }
    let without_control =
        strata.values().filter(|[controls, _]| controls.is_empty()).map(|[_, treated]| treated.len()).sum();
    let mut both: Vec<Arms> =
        strata.into_values().filter(|[controls, treated]| !controls.is_empty() && !treated.is_empty()).collect();
    let count = |arm: usize| both.iter().map(|stratum| stratum[arm].len()).sum::<usize>();
    let (controls, treated) = (count(0), count(1));
    if controls < HOSTS_MIN || treated < HOSTS_MIN {
        return None;
    }
    limit_hosts(&mut both);
    let value = weighted(&both, mean);
    let mut dice = Pcg64::new(u128::from(seed), 0x0066_6c65_6574);
    let variance = variance_of(|| weighted(&both, |arm| resampled(arm, &mut dice)));
    // Resampled hosts spread less than new hosts would, by (k - 1)/k in a group of k.
    let shrunk: f64 = both.iter().flat_map(|stratum| stratum.iter()).map(|arm| arm.len() as f64 - 1.0).sum();
    let free = (controls.min(treated) as f64 - both.len() as f64).max(1.0).min(shrunk.max(1.0));
    let all = (controls + treated) as f64;
    let inflated = (variance * all / shrunk.max(1.0)).sqrt() * error_factor(controls + treated);
    let reach = quantile_t(free, 0.5 + level / 2.0) * inflated;
    let difference = Difference { value, low: value - reach, high: value + reach };
    Some(Compared { difference, treated, controls, strata: both.len(), without_control })
}

/// The values of the controls and of the treated hosts in a stratum.
type Arms = [Vec<f64>; 2];

/// Limits the most extreme host at each end to the next one, measured from the stratum's median. So no single host
/// decides a comparison, whatever it claims.
fn limit_hosts(strata: &mut [Arms]) {
    let middles: Vec<f64> = strata.iter().map(|arms| median(arms.iter().flatten().copied().collect())).collect();
    let mut values: Vec<f64> =
        strata.iter().zip(&middles).flat_map(|(arms, middle)| arms.iter().flatten().map(move |x| x - middle)).collect();
    limit_extremes(&mut values);
    let mut limited = values.into_iter();
    for (arms, middle) in strata.iter_mut().zip(&middles) {
        for (value, limited) in arms.iter_mut().flatten().zip(limited.by_ref()) {
            *value = middle + limited;
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(0.0);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    (lower + upper) / 2.0
}

/// Limits the largest and the smallest of at least five values to the next one: the mean is then a Winsorized mean.
pub(super) fn limit_extremes(values: &mut [f64]) {
    if values.len() < HOSTS_MIN {
        return;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (low, high) = (sorted[1], sorted[sorted.len() - 2]);
    values.iter_mut().for_each(|value| *value = value.clamp(low, high));
}

/// The standard error of a Winsorized mean, divided by that of a mean of the limited values (Tukey and McLaughlin, 1963).
pub(super) fn error_factor(values: usize) -> f64 {
    let n = values as f64;
    if values < HOSTS_MIN { 1.0 } else { (n - 1.0) / (n - 3.0) }
}

/// The mean of the differences of the strata, weighted by the effective number of hosts.
fn weighted(strata: &[Arms], mut of: impl FnMut(&[f64]) -> f64) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for [controls, treated] in strata {
        let (c, t) = (controls.len() as f64, treated.len() as f64);
        let weight = c * t / (c + t);
        sum += weight * (of(treated) - of(controls));
        weights += weight;
    }
    sum / weights
}

/// The variance of a value over resamples.
pub(super) fn variance_of(mut draw: impl FnMut() -> f64) -> f64 {
    let drawn: Vec<f64> = (0..RESAMPLES).map(|_| draw()).collect();
    let middle = mean(&drawn);
    drawn.iter().map(|x| (x - middle).powi(2)).sum::<f64>() / (drawn.len() - 1) as f64
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The mean of an equal number of hosts, drawn with replacement.
pub(super) fn resampled(values: &[f64], dice: &mut Pcg64) -> f64 {
    let n = values.len();
    let drawn = (0..n).map(|_| ((u128::from(dice.next_u64()) * n as u128) >> 64) as usize);
    drawn.map(|at| values[at]).sum::<f64>() / n as f64
}

#[cfg(test)]
mod tests {
    use super::{Host, compare};
    use rand_core::Rng;
    use rand_pcg::Pcg64;

    /// Approximately normal: the sum of twelve uniform numbers.
    fn noise(dice: &mut Pcg64) -> f64 {
        (0..12).map(|_| (dice.next_u64() >> 11) as f64 / (1_u64 << 53) as f64).sum::<f64>() - 6.0
    }

    fn fleet(seed: u64, hosts: usize, effect: f64) -> Vec<Host> {
        let mut dice = Pcg64::new(u128::from(seed), 1);
        let one = |number: usize| {
            let large = number.is_multiple_of(3);
            // Large machines stall more and are treated more often: a confounder.
            let treated = if large { number.is_multiple_of(2) } else { number.is_multiple_of(7) };
            let value = noise(&mut dice) + if large { 4.0 } else { 0.0 } + if treated { effect } else { 0.0 };
            Host { stratum: if large { "large" } else { "small" }.to_owned(), treated, value }
        };
        (0..hosts).map(one).collect()
    }

    #[test]
    fn similar_hosts_are_compared_and_a_confounder_is_not_an_effect() {
        let found = compare(&fleet(1, 600, 1.0), 0.95, 1).expect("comparable");
        assert!((found.difference.value - 1.0).abs() < 0.4 && found.difference.low > 0.0, "{found:?}");
        let nothing = compare(&fleet(2, 600, 0.0), 0.95, 1).expect("comparable");
        assert!(!nothing.difference.excludes_zero(), "{nothing:?}");
    }

    #[test]
    fn at_most_one_in_twenty_comparisons_without_effect_is_significant() {
        let wrong = (0..400)
            .filter(|seed| compare(&fleet(*seed, 60, 0.0), 0.95, *seed).is_some_and(|c| c.difference.excludes_zero()))
            .count();
        // 20 are expected; 33 is three standard deviations above.
        assert!((4..=33).contains(&wrong), "{wrong} of 400");
    }

    /// Fails without the limit, where one host makes the difference 5.1 instead of 0.7, and its interval 19 wide.
    #[test]
    fn one_host_decides_nothing() {
        let mut hosts = fleet(5, 30, 1.0);
        let honest = compare(&hosts, 0.95, 1).expect("comparable").difference;
        for (treated, claimed) in [(true, 32.0), (false, 32.0), (true, -32.0), (false, -32.0)] {
            hosts.push(Host { stratum: "small".to_owned(), treated, value: claimed });
            let one = compare(&hosts, 0.95, 1).expect("comparable").difference;
            hosts.pop();
            assert!((one.value - honest.value).abs() < 0.6, "{one:?} instead of {honest:?}");
            assert!(one.high - one.low < 1.5 * (honest.high - honest.low), "{one:?} instead of {honest:?}");
        }
    }

    #[test]
    fn hosts_without_similar_ones_are_counted_and_too_few_prove_nothing() {
        let mut hosts = fleet(3, 90, 0.0);
        hosts.extend((0..4).map(|_| Host { stratum: "odd".to_owned(), treated: true, value: 99.0 }));
        let found = compare(&hosts, 0.95, 1).expect("comparable");
        assert_eq!((found.without_control, found.strata), (4, 2));
        assert!(found.difference.value.abs() < 1.0, "hosts without controls are left out");
        assert!(compare(&fleet(4, 12, 5.0), 0.95, 1).is_none());
    }
}
