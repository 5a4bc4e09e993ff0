//! The score in slices: each run is appended to a file as it ends, so that half an hour of quiet machine may be had in
//! pieces, and a pass that broke off loses nothing.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::ground_truth::measure::{self, Mode, Outcome};
use crate::ground_truth::recipe::{RECIPES, Recipe};

/// How long the longest run takes, with its stage: a slice that has less left starts none.
const RUN_MAX: Duration = Duration::from_secs(20);

/// What was asked for, from the environment.
pub struct Asked {
    /// Runs of each recipe, as each kind.
    pub runs: usize,
    /// Runs of the control of which a hundred are wanted.
    pub quiet_runs: usize,
    /// Only recipes whose name holds this; commas between several.
    pub only: String,
    /// Stop in time to take no longer than this.
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

    /// Runs wanted of this recipe as this kind; 0 where it cannot be shown so.
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

/// What has been measured so far, and the file that keeps it.
pub struct Sofar {
    pub outcomes: Vec<Outcome>,
    file: File,
}

impl Sofar {
    /// With a slice asked for it continues where the last one stopped; else it starts again.
    pub fn open(asked: &Asked) -> Sofar {
        let mut outcomes = Vec::new();
        if asked.slice.is_some()
            && let Ok(file) = File::open(&asked.results)
        {
            // A line that a killed pass left half written is one run less, no more.
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

/// Measures what is missing, each kind once and then again, so that a minute in which the machine was not quiet does
/// not hit all the runs of one kind.
pub fn go_on(asked: &Asked, sofar: &mut Sofar) {
    let begun = Instant::now();
    let rounds = asked.runs.max(1);
    let kinds: Vec<(&'static Recipe, Mode)> =
        RECIPES.iter().flat_map(|recipe| [(recipe, Mode::Foreign), (recipe, Mode::Own)]).collect();
    for round in 1..=rounds {
        for &(recipe, mode) in &kinds {
            // Of the hundred quiet runs each round has its share.
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
