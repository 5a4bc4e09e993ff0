//! The score: known stalls are caused on this machine, recorded as a foreign process and as our own workload, and
//! explained without knowing the cause. `make score` writes target/score.md; docs/score.md has the result.
//!
//! The program under test sees only a process named like this binary, files named `data` and `other0`, and its own
//! journal. No name gives the recipe away.

mod act;
#[allow(dead_code)]
mod measure;
mod recipe;
mod slices;
mod stage;
mod table;

use self::measure::Mode;
use self::recipe::RECIPES;
use needs::{Need, skip};

#[test]
fn actor() {
    act::act_if_asked();
}

/// One run of one recipe checks the whole chain with the most reliable cause.
#[test]
fn a_full_memory_group_is_found_blind() {
    if !crate::common::is_root() {
        return skip(Need::Root, "ground truth", "not root");
    }
    let recipe = RECIPES.iter().find(|recipe| recipe.name == "memcg-dirty").expect("a recipe");
    // On a slow disk all pages of the group are sometimes under writeback, and the kernel kills a process instead. The
    // kernel's count of OOM kills shows which happened, and the answer must agree. On some disks every run ends with a
    // kill.
    for made in 1..=RUNS_MAX {
        let before = kills();
        match measure::once(recipe, Mode::Foreign) {
            Ok(outcome)
                if outcome.findings.first().is_some_and(|cause| cause == "out-of-memory") && kills() > before =>
            {
                println!("run {made} of {RUNS_MAX}, killed: {outcome:?}");
            }
            Ok(outcome) => return assert!(outcome.is_right(), "{outcome:?}"),
            Err(why) => return skip(Need::Bpf, "ground truth", why),
        }
    }
    println!("the kernel killed in each of {RUNS_MAX} runs, and each answer names it");
}

const RUNS_MAX: usize = 4;

/// OOM kills since boot, counted by the kernel.
fn kills() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").expect("/proc/vmstat");
    let line = counters.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|count| count.parse().ok()).expect("oom_kill, counted since 4.13")
}

/// FLATWATER_SCORE_* select the runs; tools/score.sh lists them.
#[test]
#[ignore = "takes half an hour; `make score`"]
fn score() {
    let asked = slices::Asked::from_environment();
    let mut sofar = slices::Sofar::open(&asked);
    slices::go_on(&asked, &mut sofar);
    let page = table::page(&sofar.outcomes, &asked);
    println!("{page}");
    if asked.only.is_empty() {
        crate::common::write_result("score.md", &page);
    }
    assert!(sofar.outcomes.iter().any(|outcome| outcome.failure.is_none()), "nothing could be measured here");
}
