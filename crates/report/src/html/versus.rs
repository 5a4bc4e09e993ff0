//! The results of `compare` and `verify` as pages: the verdict first, then settings, figures and notes.

use super::element::Html;
use super::page::Frame;
use super::sections::plain_table;
use crate::numbers::share;
use crate::versus::{self, figure, ratio_text, verdict_of};
use flatwater_experiment::compare::{Comparison, Row, SettingRow};
use flatwater_experiment::trial::{Arm, Verification};

/// The page of a comparison; `names` are those of the recordings A and B.
#[must_use]
pub fn comparison_page(found: &Comparison, names: [&str; 2]) -> String {
    let [a, b] = names;
    let subject = format!("A: {a} · B: {b} · B / A with {} intervals", share(found.level));
    framed("comparison", "B beside A", &subject, |html| {
        html.leaf("p", &[("class", "lead")], &versus::headline(found));
        settings(html, "Settings that differ", &found.settings);
        rows(html, "Latency", &found.operations);
        rows(html, "Stall time by cause", &found.causes);
        rows(html, "Counters that differ most", &found.counters);
        notes(html, &found.notes);
    })
}

#[must_use]
pub fn verification_page(found: &Verification) -> String {
    let operation = found.operation.as_deref().unwrap_or("nothing");
    let subject = format!(
        "{} of {operation}, {} · B / A with a {} interval · {}",
        found.judge.judge.name(),
        found.judge.judge.sentence(),
        share(found.level),
        versus::ended(found)
    );
    framed("verification", &found.scenario, &subject, |html| {
        html.leaf("p", &[("class", "lead")], &versus::verification_headline(found));
        settings(html, "The fix", &found.fix);
        section(html, "Runs", |html| {
            let unit = found.judge.judge.unit();
            let rows: Vec<Vec<String>> = found
                .runs
                .iter()
                .enumerate()
                .map(|(number, run)| {
                    let side = if run.arm == Arm::A { "A, as it is" } else { "B, with the fix" };
                    vec![(number + 1).to_string(), side.to_owned(), figure(run.value, unit)]
                })
                .collect();
            let name = found.judge.name();
            plain_table(html, "Runs", &[("run", true), ("side", false), (name.as_str(), true)], &rows);
            html.leaf("p", &[("class", "about")], &format!("B / A {}", ratio_text(found.ratio.as_ref())));
        });
        if !found.causes.is_empty() {
            section(html, "Stall time by cause", |html| {
                let per_s = |value| figure(value, "ns/s");
                let each = found.causes.iter();
                let rows: Vec<Vec<String>> =
                    each.map(|row| vec![row.cause.to_owned(), per_s(row.a_ns_per_s), per_s(row.b_ns_per_s)]).collect();
                plain_table(html, "Stall time by cause", &[("cause", false), ("A", true), ("B", true)], &rows);
            });
        }
        notes(html, &found.notes);
    })
}

fn framed(kind: &str, heading: &str, subject: &str, inside: impl FnOnce(&mut Html)) -> String {
    Frame { title: &format!("{kind}: {heading}"), brand: kind, heading, subject: Some(subject) }.page(inside)
}

fn section(html: &mut Html, title: &str, inside: impl FnOnce(&mut Html)) {
    html.tag("section", &[], |html| {
        html.leaf("h2", &[], title);
        inside(html);
    });
}

fn settings(html: &mut Html, title: &str, settings: &[SettingRow]) {
    if settings.is_empty() {
        return;
    }
    section(html, title, |html| {
        let one = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        let rows: Vec<Vec<String>> =
            settings.iter().map(|row| vec![row.key.clone(), one(&row.a), one(&row.b)]).collect();
        plain_table(html, title, &[("setting", false), ("A", true), ("B", true)], &rows);
    });
}

fn rows(html: &mut Html, title: &str, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    section(html, title, |html| {
        let columns = [("figure", false), ("A", true), ("B", true), ("B / A", true), ("verdict", false)];
        let cells = |row: &Row| {
            let of = |value| figure(value, row.unit);
            vec![row.name.clone(), of(row.a), of(row.b), ratio_text(row.ratio.as_ref()), verdict(row).to_owned()]
        };
        plain_table(html, title, &columns, &rows.iter().map(cells).collect::<Vec<_>>());
    });
}

/// A word in every row: an empty cell could also be a verdict that was not made.
fn verdict(row: &Row) -> &'static str {
    match verdict_of(row) {
        "" => "not proven",
        verdict => verdict,
    }
}

fn notes(html: &mut Html, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    html.tag("aside", &[("class", "notes"), ("aria-label", "Notes")], |html| {
        notes.iter().for_each(|note| html.leaf("p", &[], note));
    });
}

#[cfg(test)]
mod tests {
    use super::{comparison_page, verification_page};
    use crate::versus::tests::verified;
    use flatwater_experiment::compare::{Comparison, Row, SettingRow};
    use flatwater_experiment::verdict::{Ratio, Verdict};

    fn compared() -> Comparison {
        let row = |name: &str, verdict, differs| Row {
            name: name.to_owned(),
            unit: "ns",
            a: 40e6,
            b: 4e6,
            ratio: Some(Ratio { value: 0.1, low: 0.05, high: 0.2 }),
            verdict,
            differs,
        };
        Comparison {
            flatwater: 1,
            kind: "comparison",
            verdict: Verdict::Better,
            level: 0.95,
            judged: Some(row("fdatasync p99", Verdict::Better, true)),
            operations: vec![row("fdatasync p99", Verdict::Better, true)],
            causes: Vec::new(),
            counters: vec![row("pgfree", Verdict::NotProven, true)],
            settings: vec![SettingRow { key: "queue.scheduler".into(), a: Some("none".into()), b: None }],
            notes: vec!["<script>alert(1)</script>".to_owned()],
        }
    }

    #[test]
    fn the_page_of_a_comparison_begins_with_the_verdict_and_ends_with_notes() {
        let page = comparison_page(&compared(), ["before", "after"]);
        let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        assert!(
            place("better: fdatasync p99") < place("queue.scheduler") && place("queue.scheduler") < place("pgfree")
        );
        assert!(page.contains("A: before · B: after · B / A with 95.0 % intervals"), "{page}");
        assert!(place("pgfree") < place("class=\"notes\"") && page.contains("not set") && page.contains("differs"));
        assert!(!page.contains("<script") && !page.contains(" style=\""), "escaped, and the policy allows neither");
    }

    #[test]
    fn the_page_of_a_verification_has_each_run() {
        let page = verification_page(&verified());
        for wanted in [
            "proven better",
            "cgroup.memory_limit",
            "with the fix",
            "memcg-reclaim",
            "B / A x 0.0100",
            "4 runs in 42 s: stopped early",
        ] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
    }
}
