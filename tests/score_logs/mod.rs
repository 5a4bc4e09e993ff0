//! Published logs with a confirmed cause (tests/corpus): are they well-formed, and what does flatwater make of them?
//! `make score-logs` prints the tables. The halves, `work` and `held`, are chosen by a hash of the name: rules are
//! written while looking at `work` only.

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

/// Measured on 2026-11-25, with room for one log that changes sides. Raise them with the score.
const FLOORS: [(Part, usize); 2] = [(Part::Work, 568), (Part::Held, 138)];

/// In percent of a part.
const CONFIDENT_WRONG_AT_MOST: usize = 10;

#[test]
fn the_score_does_not_fall() {
    let sheet = Sheet::of("flatwater", &corpus::read(), score::flatwater);
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

/// Room for logs whose answer changes before the table is counted again.
const TABLE_OFF_AT_MOST: u32 = 4;

#[test]
fn confidence_is_the_frequency_of_the_held_half() {
    let sheet = Sheet::of("flatwater", &corpus::read(), score::flatwater);
    let counted = score::counted(&sheet, Part::Held);
    for row in flatwater_explain::confidence::TABLE {
        let (right, of) = counted.get(&(row.class, row.high)).copied().unwrap_or_default();
        let off = row.right.abs_diff(right).max(row.of.abs_diff(of));
        assert!(off <= TABLE_OFF_AT_MOST, "{row:?}: counted {right} of {of}; `make score-logs` prints the table");
    }
    for (class, high) in counted.keys() {
        let known = |row: &flatwater_explain::confidence::Row| (row.class, row.high) == (*class, *high);
        let (right, of) = counted[&(*class, *high)];
        assert!(
            flatwater_explain::confidence::TABLE.iter().any(known) || of <= TABLE_OFF_AT_MOST,
            "{class:?} {high}: {right} of {of}, and no row"
        );
    }
}

#[test]
#[ignore = "prints only; `make score-logs`"]
fn score_of_both_halves() {
    let logs = corpus::read();
    let sheets = [Sheet::of("flatwater", &logs, score::flatwater), Sheet::of("rule of thumb", &logs, score::thumb)];
    let page = page(&logs, &sheets);
    println!("{page}");
    if std::env::var_os("FLATWATER_WRITE").is_some() {
        write(MARKS, &page);
    }
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
#[ignore = "31 000 pastes, minutes; `make score-pastes`"]
fn answers_of_all_pastes() {
    let right = metamorphic::right_logs(&corpus::read());
    let trials = metamorphic::trials(&right, |_, _| true);
    let page = metamorphic::tables(&trials);
    println!("{page}\n\nLost:\n{}", metamorphic::lost(&trials));
    if std::env::var_os("FLATWATER_WRITE").is_some() {
        write(PASTE_MARKS, &page);
    }
}

/// The tables of docs/score.md that these tests write, between two marks.
const MARKS: [&str; 2] = ["<!-- written by make score-logs -->", "<!-- end of what make score-logs writes -->"];
const PASTE_MARKS: [&str; 2] =
    ["<!-- written by make score-pastes -->", "<!-- end of what make score-pastes writes -->"];

fn write(marks: [&str; 2], page: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/score.md");
    let text = std::fs::read_to_string(path).expect("docs/score.md");
    let (before, rest) = text.split_once(marks[0]).expect("the first mark");
    let (_, after) = rest.split_once(marks[1]).expect("the second mark");
    std::fs::write(path, format!("{before}{}\n\n{page}\n{}{after}", marks[0], marks[1])).expect("docs/score.md");
}

fn page(logs: &[corpus::Log], sheets: &[Sheet; 2]) -> String {
    use std::fmt::Write as _;
    let mut page = format!("All {} logs:\n\n{}", logs.len(), score::table(sheets));
    let batches: std::collections::BTreeSet<u32> = logs.iter().map(|log| log.batch).collect();
    for batch in batches {
        let one = sheets.each_ref().map(|sheet| sheet.of_batch(batch));
        let _ = write!(page, "\nBatch {batch} ({} logs):\n\n{}", one[0].rows.len(), score::table(&one));
    }
    let _ = write!(page, "\n### Reliability: is what is claimed with 0.7 right in seven of ten?\n\n");
    let _ = write!(page, "{}\n{}", score::reliability(&sheets[0]), score::diagram(&sheets[0]));
    let _ = write!(page, "\n### Confusion\n");
    for part in [Part::Work, Part::Held] {
        let _ = write!(page, "\n{}", score::confusion(&sheets[0], part));
    }
    let _ =
        write!(page, "\n### Coverage by format\n\nLines understood, of the whole log where it holds several formats; ");
    let _ = write!(page, "who puts the cause first.\n\n{}", score::coverage(&sheets[0], &sheets[1]));
    page.trim_end().to_owned()
}
