//! Chooses among the settings that were tried, and lists what the choice costs.

use super::Tried;
use flatwater_recording::units::{Bytes, Nanos};

/// Goals that differ by no more than this factor count as equal, since the seed alone can cause that much.
const CLOSE: f64 = 1.05;

/// Index of the setting to choose. `tried[0]` is the machine without a change and is chosen unless the lowest goal is
/// better by more than 5 %. Otherwise it is the setting within 5 % of the lowest goal that costs least CPU, then least
/// free memory.
#[must_use]
pub fn choose(tried: &[Tried]) -> Option<usize> {
    let best = tried.iter().map(|one| one.goal_ns).min()?;
    let close = |one: &Tried| one.goal_ns as f64 <= best as f64 * CLOSE;
    if tried.first().is_some_and(close) {
        return Some(0);
    }
    let cost = |one: &Tried| ((one.cpu_share * 1000.0).round() as u64, one.free_bytes_min);
    let places = (0..tried.len()).filter(|&place| close(&tried[place]));
    places.min_by_key(|&place| cost(&tried[place]))
}

/// The cost of the chosen setting compared with the unchanged one: a phrase for each figure that became worse.
#[must_use]
pub fn costs(chosen: &Tried, before: &Tried) -> Vec<String> {
    let mut phrases = Vec::new();
    if chosen.cpu_share > before.cpu_share * 1.05 {
        phrases.push(format!("CPU {:.2} % instead of {:.2} %", chosen.cpu_share * 100.0, before.cpu_share * 100.0));
    }
    if chosen.free_bytes_min as f64 > before.free_bytes_min as f64 * 1.1 {
        let (now, was) = (Bytes(chosen.free_bytes_min), Bytes(before.free_bytes_min));
        phrases.push(format!("{now} always kept free instead of {was}: less page cache"));
    }
    if chosen.scanned_per_s > before.scanned_per_s * 1.1 + 1.0 {
        phrases
            .push(format!("{:.0} pages scanned a second instead of {:.0}", chosen.scanned_per_s, before.scanned_per_s));
    }
    if chosen.median_ns as f64 > before.median_ns as f64 * 1.05 {
        phrases.push(format!(
            "the median call takes {} instead of {}",
            Nanos(chosen.median_ns),
            Nanos(before.median_ns)
        ));
    }
    if chosen.read_bytes as f64 > before.read_bytes as f64 * 1.1 + 1e6 {
        phrases.push(format!("{} read instead of {}", Bytes(chosen.read_bytes), Bytes(before.read_bytes)));
    }
    phrases
}

#[cfg(test)]
mod tests {
    use super::{choose, costs};
    use crate::whatif::Tried;
    use flatwater_recording::Setup;

    fn tried(goal_ns: u64, cpu_share: f64, free_bytes_min: u64) -> Tried {
        Tried {
            settings: Vec::new(),
            setup: Setup::default(),
            goal_ns,
            median_ns: 1000,
            slow_calls: 0,
            cpu_share,
            free_bytes_min,
            scanned_per_s: 0.0,
            read_bytes: 0,
        }
    }

    #[test]
    fn the_machine_stays_unchanged_unless_a_setting_is_clearly_better() {
        assert_eq!(choose(&[tried(102, 0.5, 1), tried(100, 0.1, 1)]), Some(0));
        assert_eq!(choose(&[tried(200, 0.1, 1), tried(100, 0.3, 1), tried(103, 0.2, 9), tried(101, 0.2, 5)]), Some(3));
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn costs_name_only_figures_that_became_worse() {
        let (before, chosen) = (tried(200, 0.1, 1 << 20), tried(100, 0.2, 64 << 20));
        let phrases = costs(&chosen, &before);
        assert_eq!(phrases.len(), 2, "{phrases:?}");
        assert!(phrases[0].contains("20.00 % instead of 10.00 %") && phrases[1].contains("64 MiB"), "{phrases:?}");
        assert!(costs(&before, &before).is_empty());
    }
}
