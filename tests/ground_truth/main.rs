//! The score: stalls of known cause made on this machine, recorded as a foreign process and as our own workload,
//! and explained blind. `make score` runs it and writes docs/score.md.
//!
//! The program under test sees a process called like this binary, files called `data` and `other0`, and its own
//! journal: nothing that names a recipe.

mod act;
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
mod measure;
mod recipe;
mod stage;
mod table;

use measure::{Mode, Outcome};
use recipe::RECIPES;

#[test]
fn actor() {
    act::act_if_asked();
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// One recipe, once: the machinery works end to end, and the most certain of all causes is found.
#[test]
fn a_full_memory_group_is_found_blind() {
    if !common::is_root() {
        return common::skip("ground truth", "not root");
    }
    let recipe = RECIPES.iter().find(|recipe| recipe.name == "memcg-dirty").expect("a recipe");
    match measure::once(recipe, Mode::Foreign) {
        Ok(outcome) => {
            assert!(outcome.findings.iter().any(|cause| recipe.right.contains(&cause.as_str())), "{outcome:?}")
        }
        Err(why) => common::skip("ground truth", &why),
    }
}

#[test]
#[ignore = "takes half an hour; `make score`"]
fn score() {
    let (runs, quiet_runs) = (number("FLATWATER_SCORE_RUNS", 5), number("FLATWATER_SCORE_QUIET", 100));
    let only = std::env::var("FLATWATER_SCORE_ONLY").unwrap_or_default();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for recipe in RECIPES.iter().filter(|recipe| recipe.name.contains(&only)) {
        for mode in [Mode::Foreign, Mode::Own] {
            if (mode == Mode::Own && recipe.own.is_none()) || (mode == Mode::Foreign && !recipe.foreign) {
                continue;
            }
            let repeats = if recipe.name == "nothing" && mode == Mode::Own { quiet_runs } else { runs };
            for _ in 0..repeats {
                match measure::once(recipe, mode) {
                    Ok(outcome) => {
                        eprintln!("{}", outcome.line());
                        outcomes.push(outcome);
                    }
                    Err(why) => {
                        eprintln!("{} {mode:?}: not measured: {why}", recipe.name);
                        outcomes.push(Outcome::failed(recipe, mode, why));
                        break;
                    }
                }
            }
        }
    }
    let page = table::page(&outcomes);
    println!("{page}");
    if only.is_empty() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/score.md");
        std::fs::write(path, page).expect("docs/score.md");
    }
    assert!(outcomes.iter().any(|outcome| outcome.failure.is_none()), "nothing could be measured here");
}
