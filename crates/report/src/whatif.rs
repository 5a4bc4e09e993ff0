//! Prints a what-if as text: a table of all runs, a grid if two knobs were swept, the choice and what it costs.

use super::numbers::{count, share, size, time};
use super::text::hanging;
use flatwater_experiment::whatif::{self, Sweep, Tried};
use flatwater_recording::knob::{self, KnobKind};
use flatwater_recording::units::{Bytes, Nanos};

/// The question and the result of a what-if. All figures come from the model.
#[derive(Clone, Debug)]
pub struct Whatif {
    /// Name of the scenario or recording.
    pub what: String,
    pub kernel: String,
    /// Such as `write.p9999`.
    pub goal: String,
    pub knobs: Vec<Knob>,
    /// The first run is the unchanged machine.
    pub runs: Vec<Run>,
    /// Index in `runs` of the run to choose.
    pub chosen: Option<usize>,
    /// The cost of the choice elsewhere, a phrase per figure.
    pub costs: Vec<String>,
    /// The assumptions, one sentence each.
    pub assumed: Vec<String>,
    /// Number of combinations; larger than `runs` if only a random choice was run.
    pub combinations: usize,
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct Knob {
    pub key: String,
    /// The values as people write them, in the order of the sweep.
    pub values: Vec<String>,
    /// The value on the unchanged machine; absent if the model does not give it.
    pub now: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Run {
    /// The value of each knob, in the order of `knobs`; empty for the unchanged machine.
    pub values: Vec<String>,
    pub goal_ns: u64,
    pub median_ns: u64,
    pub slow_calls: u64,
    /// Share of the CPU time of the whole machine.
    pub cpu_share: f64,
    pub scanned_per_s: f64,
    pub free_bytes_min: u64,
    pub read_bytes: u64,
}

pub const COLUMNS: [&str; 6] = ["p50", "slow calls", "CPU", "scanned/s", "free min", "read"];

impl Run {
    fn of(one: &Tried) -> Run {
        Run {
            values: one.settings.iter().map(|(key, value)| shown(key, value)).collect(),
            goal_ns: one.goal_ns,
            median_ns: one.median_ns,
            slow_calls: one.slow_calls,
            cpu_share: one.cpu_share,
            scanned_per_s: one.scanned_per_s,
            free_bytes_min: one.free_bytes_min,
            read_bytes: one.read_bytes,
        }
    }

    /// The figures in the order of `COLUMNS`.
    #[must_use]
    pub fn cells(&self) -> [String; 6] {
        [
            time(self.median_ns),
            count(self.slow_calls),
            share(self.cpu_share),
            count(self.scanned_per_s.round() as u64),
            size(self.free_bytes_min),
            size(self.read_bytes),
        ]
    }
}

impl Whatif {
    /// The result of the sweeps; the first run is the unchanged machine. The caller fills in name, kernel, goal, seed
    /// and assumptions.
    #[must_use]
    pub fn of(sweeps: &[Sweep], tried: &[Tried]) -> Whatif {
        let before = tried.first();
        let chosen = whatif::choose(tried);
        let costs = before.zip(chosen.and_then(|place| tried.get(place)));
        let knob = |sweep: &Sweep| Knob {
            key: sweep.key.to_owned(),
            values: sweep.values.iter().map(|value| shown(sweep.key, value)).collect(),
            now: before.and_then(|one| one.setup.get(sweep.key)).map(|value| shown(sweep.key, value)),
        };
        Whatif {
            what: String::new(),
            kernel: String::new(),
            goal: String::new(),
            knobs: sweeps.iter().map(knob).collect(),
            runs: tried.iter().map(Run::of).collect(),
            chosen,
            costs: costs.map(|(before, chosen)| whatif::costs(chosen, before)).unwrap_or_default(),
            assumed: Vec::new(),
            combinations: sweeps.iter().map(|sweep| sweep.values.len()).product(),
            seed: 0,
        }
    }

    /// Such as `vm.zone_reclaim_mode=1 vm.min_free_kbytes=64 MiB`, or `unchanged`.
    #[must_use]
    pub fn settings(&self, run: &Run) -> String {
        if run.values.is_empty() {
            return "unchanged".to_owned();
        }
        let pairs = self.knobs.iter().zip(&run.values);
        pairs.map(|(knob, value)| format!("{}={value}", knob.key)).collect::<Vec<_>>().join(" ")
    }

    /// The choice in sentences: the first one names it, the second one says what it costs.
    #[must_use]
    pub fn verdict(&self) -> Vec<String> {
        let (Some(before), Some(place)) = (self.runs.first(), self.chosen) else { return Vec::new() };
        let Some(chosen) = self.runs.get(place) else { return Vec::new() };
        let (now, was) = (time(chosen.goal_ns), time(before.goal_ns));
        if place == 0 {
            return vec![format!(
                "leave it unchanged: {} is {was}, and no setting tried is more than 5 % better",
                self.goal
            )];
        }
        let costs = if self.costs.is_empty() {
            "nothing that the model counts (CPU, free memory, scanning, median, reads)".to_owned()
        } else {
            self.costs.join("; ")
        };
        vec![
            format!("choose {}: {} {now} instead of {was}", self.settings(chosen), self.goal),
            format!("it costs {costs}"),
        ]
    }

    /// Notes that a reader needs before the figures.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.assumed.clone();
        let tried = self.runs.len().saturating_sub(1);
        if tried < self.combinations {
            notes.push(format!("{tried} of {} combinations, drawn by seed {}", self.combinations, self.seed));
        }
        notes.push(format!("one run each with seed {}: differences under 5 % are luck", self.seed));
        notes
    }

    /// The run with these values, and its index.
    #[must_use]
    pub fn run_at(&self, values: &[&str]) -> Option<(usize, &Run)> {
        self.runs.iter().enumerate().find(|(_, run)| run.values.iter().eq(values))
    }
}

#[must_use]
pub fn text(found: &Whatif) -> String {
    let mut text = format!("{} on a model of {}\n", found.what, found.kernel);
    found.notes().iter().for_each(|note| text.push_str(&hanging("note: ", note, WIDTH)));
    text.push_str(&format!("\n{}, and what it costs elsewhere:\n", found.goal));
    table(&mut text, found);
    if let [down, across] = found.knobs.as_slice() {
        grid(&mut text, found, down, across);
    }
    text.push('\n');
    found.verdict().iter().for_each(|sentence| text.push_str(&hanging("", sentence, WIDTH)));
    text
}

const WIDTH: usize = 80;
/// The heads of a row's figures; shorter than `COLUMNS`, so that a setting fits beside them.
const HEADS: [&str; 7] = ["goal", "p50", "slow", "CPU", "scan/s", "free", "read"];
/// The least widths of the columns: a setting of 22 characters fits beside them.
const WIDTHS: [usize; 7] = [8, 7, 4, 7, 6, 8, 8];
/// Columns of a grid beside the first that fit the width; more values continue below.
const GRID_COLUMNS: usize = 5;

/// Adds a row for each run: its figures, then its settings, which are below the figures if they do not fit beside them.
fn table(text: &mut String, found: &Whatif) {
    let cells = |run: &Run| -> Vec<String> { [time(run.goal_ns)].into_iter().chain(run.cells()).collect() };
    let rows: Vec<Vec<String>> = found.runs.iter().map(cells).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(WIDTHS[column])
    };
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    let line = |mark: char, cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!(" {cell:>width$}"));
        format!("{mark}{}", cells.collect::<String>())
    };
    text.push_str(&line(' ', &HEADS.map(str::to_owned)));
    text.push_str("  settings\n");
    for (place, (run, cells)) in found.runs.iter().zip(&rows).enumerate() {
        let figures = line(if found.chosen == Some(place) { '*' } else { ' ' }, cells);
        let settings = found.settings(run);
        if figures.chars().count() + 2 + settings.chars().count() <= WIDTH {
            text.push_str(&format!("{figures}  {settings}\n"));
        } else {
            text.push_str(&format!("{figures}\n{}", hanging("      ", &settings, WIDTH)));
        }
    }
}

/// Adds a grid with a row for each value of the first knob and a column for each value of the second.
fn grid(text: &mut String, found: &Whatif, down: &Knob, across: &Knob) {
    let title = format!("{} by {} (down) and {} (across)", found.goal, down.key, across.key);
    text.push_str(&format!("\n{}", hanging("", &title, WIDTH)));
    for part in across.values.chunks(GRID_COLUMNS) {
        let head = part.iter().map(|value| format!(" {value:>11}")).collect::<String>();
        text.push_str(&format!("{:>12}{head}\n", ""));
        for value in &down.values {
            text.push_str(&format!("{value:>12}"));
            for other in part {
                let run = found.run_at(&[value, other]);
                let (mark, figure) = match run {
                    Some((place, run)) => (if found.chosen == Some(place) { "*" } else { "" }, time(run.goal_ns)),
                    None => ("", "-".to_owned()),
                };
                text.push_str(&format!(" {:>11}", format!("{mark}{figure}")));
            }
            text.push('\n');
        }
    }
}

/// A value as people write it (65536 of min_free_kbytes as `64MiB`), if that is exact; else as the kernel writes it.
fn shown(key: &str, value: &str) -> String {
    let Ok(knob) = knob::find(key) else { return value.to_owned() };
    let Ok(number) = value.parse::<u64>() else { return value.to_owned() };
    let short = match knob.kind {
        KnobKind::SizeKib { .. } => Bytes(number.saturating_mul(1024)).to_string(),
        KnobKind::Size { .. } => Bytes(number).to_string(),
        KnobKind::Duration { unit_ns, .. } => Nanos(number.saturating_mul(unit_ns)).to_string(),
        _ => return value.to_owned(),
    };
    let short = short.replace(' ', "");
    if knob.parse(&short).is_ok_and(|parsed| parsed == value) { short } else { value.to_owned() }
}

#[cfg(test)]
pub mod tests {
    use super::{Knob, Run, Whatif, shown, text};

    pub fn two_knobs() -> Whatif {
        let run = |values: &[&str], goal_ns| Run {
            values: values.iter().map(|&value| value.to_owned()).collect(),
            goal_ns,
            median_ns: 1_300,
            slow_calls: 9,
            cpu_share: 0.012,
            scanned_per_s: 1234.0,
            free_bytes_min: 64 << 20,
            read_bytes: 0,
        };
        let knob = |key: &str, values: &[&str]| Knob {
            key: key.to_owned(),
            values: values.iter().map(|&value| value.to_owned()).collect(),
            now: None,
        };
        Whatif {
            what: "journal".to_owned(),
            kernel: "linux-2.6.32".to_owned(),
            goal: "write.p9999".to_owned(),
            knobs: vec![knob("vm.zone_reclaim_mode", &["0", "1"]), knob("vm.min_free_kbytes", &["64 MiB", "1 GiB"])],
            runs: vec![run(&[], 40_000_000), run(&["1", "64 MiB"], 10_000_000), run(&["0", "1 GiB"], 39_000_000)],
            chosen: Some(1),
            costs: vec!["CPU 2.00 % instead of 1.20 %".to_owned()],
            assumed: vec!["assumed: a disk of 80 MB/s".to_owned()],
            combinations: 4,
            seed: 7,
        }
    }

    #[test]
    fn the_text_has_notes_table_grid_and_choice() {
        let text = text(&two_knobs());
        for wanted in [
            "note: assumed: a disk of 80 MB/s",
            "2 of 4 combinations, drawn by seed 7",
            "* 10 ms",
            "choose vm.zone_reclaim_mode=1 vm.min_free_kbytes=64 MiB: write.p9999 10 ms instead of 40 ms",
            "it costs CPU 2.00 % instead of 1.20 %",
        ] {
            let joined = text.split_whitespace().collect::<Vec<&str>>().join(" ");
            let wanted = wanted.split_whitespace().collect::<Vec<&str>>().join(" ");
            assert!(joined.contains(&wanted), "{wanted} in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let grid: Vec<&str> = text.lines().skip_while(|line| !line.contains("(down)")).skip(2).take(2).collect();
        assert_eq!(grid[0].split_whitespace().collect::<Vec<_>>(), ["0", "-", "39", "ms"]);
        assert_eq!(grid[1].split_whitespace().collect::<Vec<_>>(), ["1", "*10", "ms", "-"]);
    }

    #[test]
    fn a_wide_grid_continues_below_and_keeps_the_width() {
        let mut found = two_knobs();
        let values = (0..12).map(|value| format!("{value}00 MiB"));
        found.knobs[1].values = values.collect();
        let text = text(&found);
        assert!(text.contains("1100 MiB") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn without_a_better_setting_the_machine_stays_unchanged() {
        let mut found = two_knobs();
        found.chosen = Some(0);
        assert!(found.verdict()[0].starts_with("leave it unchanged"));
    }

    #[test]
    fn values_are_shown_in_a_form_that_can_be_given() {
        assert_eq!(shown("vm.min_free_kbytes", "65536"), "64MiB");
        assert_eq!(shown("vm.zone_reclaim_mode", "1"), "1");
        assert_eq!(shown("monitor.slabinfo_interval", "1000"), "1s");
    }
}
