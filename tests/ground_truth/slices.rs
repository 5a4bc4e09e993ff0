//! The score in slices. Each run is appended to a file when it ends, so that the half hour can be split over several
//! calls, and an interrupted pass keeps its runs.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::ground_truth::measure::{self, Mode, Outcome};
use crate::ground_truth::recipe::{RECIPES, Recipe};

/// Maximum time of a run with its preparation. A slice with less time left starts no run.
const RUN_MAX: Duration = Duration::from_secs(20);

/// The requested runs, from the environment.
pub struct Asked {
    /// Runs of each recipe in each mode.
    pub runs: usize,
    /// Runs of the quiet control, 100 by default.
    pub quiet_runs: usize,
    /// Only recipes whose name contains one of these strings, separated by commas.
    pub only: String,
    /// Maximum time of this call.
    pub slice: Option<Duration>,
    pub results: PathBuf,
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

impl Asked {
    pub fn from_environment() -> Asked {
        let results = std::env::var_os("FLATWATER_SCORE_RESULTS")
            .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("score.jsonl"), PathBuf::from);
        Asked {
            runs: number("FLATWATER_SCORE_RUNS").unwrap_or(5),
            quiet_runs: number("FLATWATER_SCORE_QUIET").unwrap_or(100),
            only: std::env::var("FLATWATER_SCORE_ONLY").unwrap_or_default(),
            slice: number("FLATWATER_SCORE_SECONDS").map(|seconds| Duration::from_secs(seconds as u64)),
            results,
        }
    }

    fn wants(&self, recipe: &Recipe) -> bool {
        self.only.is_empty() || self.only.split(',').any(|part| recipe.name.contains(part.trim()))
    }

    /// Requested runs of this recipe in this mode; 0 if the mode cannot show the recipe.
    pub fn repeats(&self, recipe: &Recipe, mode: Mode) -> usize {
        let possible = match mode {
            Mode::Foreign => recipe.foreign,
            Mode::Own => recipe.own.is_some(),
        };
        match possible && self.wants(recipe) {
            false => 0,
            true if recipe.name == "nothing" && mode == Mode::Own => self.quiet_runs,
            true => self.runs,
        }
    }
}

/// The outcomes so far, and the file that keeps them.
pub struct Sofar {
    pub outcomes: Vec<Outcome>,
    file: File,
}

impl Sofar {
    /// Opens the file. With a slice, continues with its outcomes; otherwise truncates it.
    pub fn open(asked: &Asked) -> Sofar {
        let mut outcomes = Vec::new();
        if asked.slice.is_some()
            && let Ok(file) = File::open(&asked.results)
        {
            // Skips a torn line of a killed pass.
            let lines = BufReader::new(file).lines().map_while(Result::ok);
            outcomes.extend(lines.filter_map(|line| serde_json::from_str(&line).ok()));
        }
        let anew = asked.slice.is_none();
        let file = OpenOptions::new().create(true).write(true).append(!anew).truncate(anew).open(&asked.results);
        Sofar { outcomes, file: file.expect("the file of results") }
    }

    fn add(&mut self, outcome: Outcome) {
        let line = serde_json::to_string(&outcome).expect("an outcome");
        writeln!(self.file, "{line}").expect("the file of results");
        self.outcomes.push(outcome);
    }

    fn of(&self, recipe: &Recipe, mode: Mode) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(move |outcome| outcome.recipe == recipe.name && outcome.mode == mode)
    }
}

/// Measures the missing runs. All kinds take turns, so that a noisy minute does not affect all runs of one kind.
pub fn go_on(asked: &Asked, sofar: &mut Sofar) {
    let begun = Instant::now();
    let rounds = asked.runs.max(1);
    let kinds: Vec<(&'static Recipe, Mode)> =
        RECIPES.iter().flat_map(|recipe| [(recipe, Mode::Foreign), (recipe, Mode::Own)]).collect();
    for round in 1..=rounds {
        for &(recipe, mode) in &kinds {
            // Each round performs its share of the quiet runs.
            let target = (asked.repeats(recipe, mode) * round).div_ceil(rounds);
            while sofar.of(recipe, mode).count() < target && sofar.of(recipe, mode).all(|had| had.failure.is_none()) {
                if asked.slice.is_some_and(|slice| begun.elapsed() + RUN_MAX > slice) {
                    return;
                }
                sofar.add(once(recipe, mode));
            }
        }
    }
}

fn once(recipe: &'static Recipe, mode: Mode) -> Outcome {
    match measure::once(recipe, mode) {
        Ok(outcome) => {
            eprintln!("{}", outcome.line());
            outcome
        }
        Err(why) => {
            eprintln!("{} {}: not measured: {why}", recipe.name, mode.name());
            Outcome::failed(recipe, mode, why)
        }
    }
}
