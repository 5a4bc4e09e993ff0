//! The score over published logs with a confirmed cause (tests/corpus). `make score-logs` writes target/score-logs.md
//! and `make score-pastes` target/score-pastes.md; docs/score.md has the result. The hash of the name puts a log into
//! the half `work` or the half `held`; rules are written for `work` only.

mod corpus;
mod floors;
mod form;
mod metamorphic;
mod paste;
mod rival;
mod score;

use self::corpus::Part;
use self::score::Sheet;

#[test]
fn the_corpus_is_well_formed() {
    let breaches = form::breaches(&corpus::read());
    assert!(breaches.is_empty(), "{} breaches:\n{}", breaches.len(), breaches.join("\n"));
}

/// Minimum number of logs whose cause comes first: one less than measured on 2026-11-28. Raise them with the score.
const FLOORS: [(Part, usize); 2] = [(Part::Work, 586), (Part::Held, 154)];

/// Maximum share of confident wrong answers in a half, percent.
const CONFIDENT_WRONG_AT_MOST: usize = 10;

/// One test, since all questions need the answers to the whole corpus.
#[test]
fn the_score_does_not_fall_and_confidence_is_the_frequency_of_the_held_out_half() {
    let sheet = Sheet::of("flatwater", &corpus::read(), score::flatwater);
    check_floors(&sheet);
    check_confidence(&sheet);
    check_averages(&sheet);
}

fn check_averages(sheet: &Sheet) {
    let averages: Vec<_> = sheet.rows.iter().filter(|(log, _)| log.is_of_averages()).collect();
    let quiet = averages.iter().filter(|(_, answer)| answer.cause == "quiet");
    assert_eq!(quiet.map(|(log, _)| log.name.as_str()).collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(averages.len() > 100, "{} logs of averages", averages.len());
}

fn check_floors(sheet: &Sheet) {
    for (part, floor) in FLOORS {
        let score = sheet.score(part);
        assert!(score.first >= floor, "{}: {} causes first, were {floor}", part.name(), score.first);
        assert!(
            score.confident_wrong * 100 <= score.logs * CONFIDENT_WRONG_AT_MOST,
            "{}: {} of {} wrong with confidence",
            part.name(),
            score.confident_wrong,
            score.logs
        );
    }
}

/// Tolerance for changed answers, so that the table need not be counted again at once.
const TABLE_OFF_AT_MOST: u32 = 4;

fn check_confidence(sheet: &Sheet) {
    let counted = score::counted(sheet, Part::Held);
    for row in flatwater_explain::confidence::TABLE {
        let (right, of) = counted.get(&(row.class, row.high)).copied().unwrap_or_default();
        let off = row.right.abs_diff(right).max(row.of.abs_diff(of));
        assert!(off <= TABLE_OFF_AT_MOST, "{row:?}: counted {right} of {of}; `make score-logs` prints the counts");
    }
    for (class, high) in counted.keys() {
        let known = |row: &flatwater_explain::confidence::Row| (row.class, row.high) == (*class, *high);
        let (right, of) = counted[&(*class, *high)];
        assert!(
            flatwater_explain::confidence::TABLE.iter().any(known) || of <= TABLE_OFF_AT_MOST,
            "{class:?} {high}: {right} of {of}, without a row"
        );
    }
}

#[test]
#[ignore = "writes target/score-logs.md: `make score-logs`"]
fn score_of_both_halves() {
    let logs = corpus::read();
    let sheets = [Sheet::of("flatwater", &logs, score::flatwater), Sheet::of("rule of thumb", &logs, score::thumb)];
    let page = page(&logs, &sheets);
    println!("{page}");
    crate::common::write_result("score-logs.md", &page);
    for part in [Part::Work, Part::Held] {
        println!("{} {:?}", part.name(), score::counted(&sheets[0], part));
    }
    println!("Wrong in the working half:\n{}", score::wrong_in_work(&sheets[0]));
    assert_eq!(sheets[0].rows.len(), logs.len());
}

#[test]
fn answers_survive_pasting() {
    let right = metamorphic::right_logs(&corpus::read());
    let trials = metamorphic::trials(&right, metamorphic::in_sample);
    let below = metamorphic::below_floors(&trials, floors::FLOORS);
    let (lost, counted) = (metamorphic::lost(&trials), metamorphic::as_floors(&trials));
    assert!(below.is_empty(), "{}\n\nLost:\n{lost}\nCounted:\n{counted}", below.join("\n"));
}

#[test]
#[ignore = "33 000 pastes take minutes: `make score-pastes`"]
fn answers_of_all_pastes() {
    let right = metamorphic::right_logs(&corpus::read());
    let trials = metamorphic::trials(&right, |_, _| true);
    let page = metamorphic::tables(&trials);
    println!("{page}\n\nLost:\n{}", metamorphic::lost(&trials));
    crate::common::write_result("score-pastes.md", &page);
}

fn page(logs: &[corpus::Log], sheets: &[Sheet; 2]) -> String {
    use std::fmt::Write as _;
    let mut page = format!("# Published logs\n\nAll {} logs:\n\n{}", logs.len(), score::table(sheets));
    let batches: std::collections::BTreeSet<u32> = logs.iter().map(|log| log.batch).collect();
    for batch in batches {
        let one = sheets.each_ref().map(|sheet| sheet.of_batch(batch));
        let _ = write!(page, "\nBatch {batch} ({} logs):\n\n{}", one[0].rows.len(), score::table(&one));
    }
    let _ = write!(page, "\n## Reliability: is a claim of 0.7 right in seven of ten logs?\n\n");
    let _ = write!(page, "{}\n{}", score::reliability(&sheets[0]), score::diagram(&sheets[0]));
    let _ = write!(page, "\n## Confusion\n");
    for part in [Part::Work, Part::Held] {
        let _ = write!(page, "\n{}", score::confusion(&sheets[0], part));
    }
    let _ = write!(
        page,
        "\n## Coverage by format\n\nA log of several formats counts for each of them with all its lines.\n\n"
    );
    let _ = write!(page, "{}", score::coverage(&sheets[0], &sheets[1]));
    page
}
