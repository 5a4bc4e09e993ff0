//! Prints the results of `compare` and `verify` as text; `html/versus.rs` prints them as pages.

use super::numbers::{plain, quantity, share, time};
use super::text::hanging;
use flatwater_experiment::compare::{Comparison, Row, SettingRow};
use flatwater_experiment::trial::{Arm, Verification};
use flatwater_experiment::verdict::{Ratio, Verdict};

const WIDTH: usize = 80;

pub(crate) fn figure(value: f64, unit: &str) -> String {
    match unit {
        "ns/s" => format!("{}/s", time(value.max(0.0).round() as u64)),
        "ns" => time(value.max(0.0).round() as u64),
        unit => quantity(value, unit),
    }
}

/// Such as `x 0.012 (0.008 to 0.019)`.
pub(crate) fn ratio_text(ratio: Option<&Ratio>) -> String {
    let number = |x: f64| if x >= 1e6 { "> 10^6".to_owned() } else { plain((x * 1e4).round() / 1e4) };
    ratio.map_or_else(
        || "x ? (too little data)".to_owned(),
        |Ratio { value, low, high }| format!("x {} ({} to {})", number(*value), number(*low), number(*high)),
    )
}

fn name_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NotProven => "no difference proven",
    }
}

/// The verdict of a row: `better`, `worse`, `differs` where no direction is better, or nothing.
pub(crate) fn verdict_of(row: &Row) -> &'static str {
    match row.verdict {
        Verdict::NotProven if row.differs => "differs",
        Verdict::NotProven => "",
        verdict => name_of(verdict),
    }
}

/// The verdict in a sentence.
pub(crate) fn headline(found: &Comparison) -> String {
    match &found.judged {
        Some(row) => {
            let (a, b) = (figure(row.a, row.unit), figure(row.b, row.unit));
            format!("{}: {} {a} -> {b}, {}", name_of(found.verdict), row.name, ratio_text(row.ratio.as_ref()))
        }
        None => "no difference proven: one side has no call of the judged operation".to_owned(),
    }
}

/// The verdict and the fix in a sentence.
pub(crate) fn verification_headline(found: &Verification) -> String {
    let proven = match found.verdict {
        Verdict::Better => "proven better",
        Verdict::Worse => "proven worse",
        Verdict::NotProven => "not proven",
    };
    let fix: Vec<String> =
        found.fix.iter().map(|row| format!("{}={}", row.key, row.b.as_deref().unwrap_or("unset"))).collect();
    format!("{proven}: {} with {}", found.scenario, fix.join(" "))
}

fn rows(text: &mut String, title: &str, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title:<28} {:>11} {:>11}   B / A\n", "A", "B"));
    for row in rows {
        let (a, b) = (figure(row.a, row.unit), figure(row.b, row.unit));
        let ratio = ratio_text(row.ratio.as_ref());
        let line = format!("  {:<26} {a:>11} {b:>11}   {ratio} {}", row.name, verdict_of(row));
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn settings(text: &mut String, title: &str, settings: &[SettingRow]) {
    if settings.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}\n"));
    for row in settings {
        let one = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        text.push_str(&hanging("  ", &format!("{}: {} -> {}", row.key, one(&row.a), one(&row.b)), WIDTH));
    }
}

#[must_use]
pub fn comparison(found: &Comparison) -> String {
    let mut text = String::new();
    text.push_str(&hanging("", &headline(found), WIDTH));
    text.push_str(&format!("(B / A, {} intervals by block bootstrap)\n", share(found.level)));
    found.notes.iter().for_each(|note| text.push_str(&hanging("note: ", note, WIDTH)));
    // Settings first: they are what the user changed.
    settings(&mut text, "settings that differ", &found.settings);
    rows(&mut text, "latency", &found.operations);
    rows(&mut text, "stall time by cause", &found.causes);
    rows(&mut text, "counters that differ most", &found.counters);
    text
}

#[must_use]
pub fn verification(found: &Verification) -> String {
    let operation = found.operation.as_deref().unwrap_or("nothing");
    let mut text = hanging("", &verification_headline(found), WIDTH);
    text.push_str(&format!("{} of {operation}, {}\n", found.judge.judge.name(), found.judge.judge.sentence()));
    for (arm, name) in [(Arm::A, "A  as it is"), (Arm::B, "B  with the fix")] {
        let values: Vec<f64> = found.runs.iter().filter(|run| run.arm == arm).map(|run| run.value).collect();
        let each: Vec<String> = values.iter().map(|&value| figure(value, found.judge.judge.unit())).collect();
        text.push_str(&format!("  {name:<16} {}\n", each.join("  ")));
    }
    let ratio = ratio_text(found.ratio.as_ref());
    let level = share(found.level);
    text.push_str(&format!("  B / A            {ratio}, {level} interval at this look\n"));
    if !found.causes.is_empty() {
        text.push_str(&format!("{:<28} {:>11} {:>11}\n", "stall time by cause", "A", "B"));
        for row in &found.causes {
            let (a, b) = (figure(row.a_ns_per_s, "ns/s"), figure(row.b_ns_per_s, "ns/s"));
            text.push_str(&format!("  {:<26} {a:>11} {b:>11}\n", row.cause));
        }
    }
    found.notes.iter().for_each(|note| text.push_str(&hanging("note: ", note, WIDTH)));
    text.push_str(&format!("{}; everything is restored\n", ended(found)));
    text
}

/// How many runs there were, and why there were no more.
pub(crate) fn ended(found: &Verification) -> String {
    let why = match found.ended {
        "proven" => "stopped early, as soon as it was proven",
        "time" => "the time was up",
        "interrupted" => "interrupted",
        _ => "all planned runs are done",
    };
    format!("{} runs in {}: {why}", found.runs.len(), time(found.elapsed_ns))
}

#[cfg(test)]
pub mod tests {
    use super::verification;
    use flatwater_experiment::compare::SettingRow;
    use flatwater_experiment::judge::Judge;
    use flatwater_experiment::trial::{Arm, LostBoth, Run, Verification};
    use flatwater_experiment::verdict::{Ratio, Verdict};

    pub fn verified() -> Verification {
        let run = |arm, value| Run { arm, value };
        let row = SettingRow { key: "cgroup.memory_limit".into(), a: Some("1".into()), b: Some("2".into()) };
        Verification {
            flatwater: 1,
            kind: "verification",
            scenario: "full-cgroup".to_owned(),
            fix: vec![row],
            judge: Judge::P999.into(),
            operation: Some("write".to_owned()),
            verdict: Verdict::Better,
            level: 0.9875,
            ratio: Some(Ratio { value: 0.01, low: 0.005, high: 0.02 }),
            runs: vec![run(Arm::A, 4.0e6), run(Arm::B, 4.0e4), run(Arm::B, 4.0e4), run(Arm::A, 5.0e6)],
            causes: vec![LostBoth { cause: "memcg-reclaim", a_ns_per_s: 3.0e7, b_ns_per_s: 0.0 }],
            ended: "proven",
            elapsed_ns: 42_000_000_000,
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_verification_names_the_fix_the_figures_and_the_interval() {
        let text = verification(&verified());
        for wanted in ["proven better", "cgroup.memory_limit=2", "x 0.0100 (0.0050 to 0.0200)", "memcg-reclaim", "4 ms"]
        {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
