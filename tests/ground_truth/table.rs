//! target/score.md: the method, the table of right answers, and the confusion matrix.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::ground_truth::measure::{Mode, Outcome, kernel};
use crate::ground_truth::recipe::RECIPES;
use crate::ground_truth::slices::Asked;

fn percent(part: usize, of: usize) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.0} %", 100.0 * part as f64 / of as f64) }
}

fn named(outcomes: &[&Outcome]) -> String {
    let lost: f64 =
        outcomes.iter().filter(|outcome| outcome.named_share.is_some()).map(|outcome| outcome.lost_ns as f64).sum();
    let named: f64 = outcomes.iter().map(|outcome| outcome.named_share.unwrap_or(0.0) * outcome.lost_ns as f64).sum();
    if lost > 0.0 { format!("{:.1} %", 100.0 * named / lost) } else { "-".to_owned() }
}

pub fn page(outcomes: &[Outcome], asked: &Asked) -> String {
    let mut out = String::new();
    let measured: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.failure.is_none()).collect();
    let (quiet, stalls): (Vec<&Outcome>, Vec<&Outcome>) = measured.iter().partition(|outcome| outcome.is_control());
    let right = stalls.iter().filter(|outcome| outcome.is_right()).count();
    let alarms = quiet.iter().filter(|outcome| !outcome.is_right()).count();
    let kinds: BTreeSet<&str> = stalls.iter().map(|outcome| outcome.recipe.as_str()).collect();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = write!(
        out,
        "# Injected stalls\n\nEach recipe (tests/ground_truth) injects a stall of known cause on this machine. 3 s of the stall (5 s of a \
         control) are recorded\nat a threshold of 500 us, as a foreign process (`record -p`) and, where our journal workload \
         can show it, as our own\n(`run`). The first finding counts. Recipes without CPU contention give the victim a real-time \
         priority, so that other\nprograms on the machine do not count. The kinds alternate.\n\nkernel {}, {cpus} CPUs\n\n",
        kernel(),
    );
    let _ = write!(
        out,
        "- stalls: {} kinds, top cause right in {right} of {} runs ({}), {} of their slow time named\n\
         - controls: {alarms} false alarms in {} quiet runs\n",
        kinds.len(),
        stalls.len(),
        percent(right, stalls.len()),
        named(&stalls),
        quiet.len()
    );
    let missing: usize = missing(&measured, asked);
    if missing > 0 {
        let _ = writeln!(out, "- {missing} runs of a full pass are missing; `make score` performs all of them");
    }
    out.push('\n');
    rows(&mut out, outcomes);
    confusion(&mut out, &measured);
    wrong(&mut out, &measured);
    failures(&mut out, outcomes);
    out
}

fn missing(measured: &[&Outcome], asked: &Asked) -> usize {
    let kinds = RECIPES.iter().flat_map(|recipe| [(recipe, Mode::Foreign), (recipe, Mode::Own)]);
    kinds
        .map(|(recipe, mode)| {
            let had = measured.iter().filter(|outcome| outcome.recipe == recipe.name && outcome.mode == mode).count();
            asked.repeats(recipe, mode).saturating_sub(had)
        })
        .sum()
}

fn rows(out: &mut String, outcomes: &[Outcome]) {
    out.push_str(
        "| recipe | as | right answers | runs | top right | slow calls | named |\n|---|---|---|---:|---:|---:|---:|\n",
    );
    for recipe in RECIPES {
        for mode in [Mode::Foreign, Mode::Own] {
            let ours =
                |outcome: &&Outcome| outcome.recipe == recipe.name && outcome.mode == mode && outcome.failure.is_none();
            let of: Vec<&Outcome> = outcomes.iter().filter(ours).collect();
            if of.is_empty() {
                continue;
            }
            let right = of.iter().filter(|outcome| outcome.is_right()).count();
            let calls: u64 = of.iter().map(|outcome| outcome.slow_calls).sum();
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {right} | {calls} | {} |",
                recipe.name,
                mode.name(),
                recipe.right.join(", "),
                of.len(),
                named(&of)
            );
        }
    }
}

fn confusion(out: &mut String, measured: &[&Outcome]) {
    let tops: BTreeSet<&str> = measured.iter().map(|outcome| outcome.top()).collect();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for outcome in measured {
        *counts.entry((outcome.recipe.as_str(), outcome.top())).or_default() += 1;
    }
    let _ = write!(out, "\n## Confusion matrix\n\nRows: the injected stall; columns: the top finding.\n\n| injected |");
    for top in &tops {
        let _ = write!(out, " {top} |");
    }
    let _ = write!(out, "\n|---|{}\n", "---:|".repeat(tops.len()));
    for recipe in RECIPES.iter().filter(|recipe| measured.iter().any(|outcome| outcome.recipe == recipe.name)) {
        let _ = write!(out, "| {} |", recipe.name);
        for top in &tops {
            let count = counts.get(&(recipe.name, *top)).copied().unwrap_or(0);
            let _ = if count == 0 { write!(out, " |") } else { write!(out, " {count} |") };
        }
        out.push('\n');
    }
}

fn wrong(out: &mut String, measured: &[&Outcome]) {
    let mut wrong = measured.iter().filter(|outcome| !outcome.is_right()).peekable();
    if wrong.peek().is_some() {
        out.push_str("\n## Wrong answers\n\n");
    }
    for outcome in wrong {
        let parts: String = outcome.parts.chars().take(300).collect();
        let _ =
            writeln!(out, "- {} ({}): {}. {parts}", outcome.recipe, outcome.mode.name(), outcome.findings.join(", "));
    }
}

fn failures(out: &mut String, outcomes: &[Outcome]) {
    let _ = write!(
        out,
        "\n## Not measured\n\n- direct-reclaim by raised global watermarks: a high vm.min_free_kbytes would stall every program of the measuring machine\n\
         - memory.high: this machine's cgroup v2 has no memory controller, and v1 has no memory.high\n- swap-in: this machine has no swap\n\
         - cpu-quota as a foreign process: kernel 6.18 throttles a thread on its return to user space, so \
         its calls are not slow\n"
    );
    for outcome in outcomes {
        if let Some(why) = &outcome.failure {
            let _ = writeln!(out, "- {} ({}): {why}", outcome.recipe, outcome.mode.name());
        }
    }
}
