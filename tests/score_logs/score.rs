//! Compares answers with confirmed causes and counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use flatwater_explain::confidence::{self, Class};
use flatwater_import::import_texts;

use crate::score_logs::corpus::{Kind, Log, Part};
use crate::score_logs::rival;

/// Confidence from which a wrong answer counts as confidently wrong.
pub const CONFIDENT: f64 = 0.8;

/// Answers that name no cause. `refused`: the import recognized no line.
const ABSTAINED: &[&str] = &["refused", "not-enough", "not-enough-to-judge", "not-observed", "unexplained"];

/// The answer to one log.
#[derive(Clone, Debug)]
pub struct Answer {
    pub cause: String,
    pub confidence: f64,
    /// The causes of all findings, including the first.
    pub findings: Vec<String>,
    /// The formats that the import recognized.
    pub formats: BTreeSet<&'static str>,
    /// The uncalibrated confidence of the first finding, and the finding's class of evidence.
    pub raw: f64,
    pub class: Class,
    /// Lines that were understood, and all lines that are not blank.
    pub lines: (u64, u64),
    /// The lines that the first finding rests on: file, first and last line.
    pub decided: Vec<(String, u32, u32)>,
}

pub fn flatwater(log: &Log) -> Answer {
    let read = log.paths().into_iter().map(|path| std::fs::read(path).expect("a log"));
    answer(&log.files.iter().cloned().zip(read).collect::<Vec<_>>())
}

/// Answers a paste of these files.
pub fn answer(texts: &[(String, Vec<u8>)]) -> Answer {
    let lines = |text: &[u8]| String::from_utf8_lossy(text).lines().filter(|line| !line.trim().is_empty()).count();
    let refused = || Answer {
        cause: "refused".to_owned(),
        confidence: 1.0,
        findings: vec!["refused".to_owned()],
        formats: BTreeSet::new(),
        raw: 1.0,
        class: Class::Abstains,
        lines: (0, texts.iter().map(|(_, text)| lines(text)).sum::<usize>() as u64),
        decided: Vec::new(),
    };
    let Ok(imported) = import_texts(texts) else { return refused() };
    let explanation = flatwater_explain::explain(&imported.recording);
    let Some(first) = explanation.findings.first() else { return refused() };
    let read = imported.recording.header.import.as_ref().map_or((0, 0), |read| (read.understood, read.lines));
    Answer {
        cause: first.cause.to_string(),
        confidence: first.confidence,
        findings: explanation.findings.iter().map(|finding| finding.cause.to_string()).collect(),
        formats: imported.formats.iter().map(|(_, format)| *format).collect(),
        raw: first.weight,
        class: confidence::class(first),
        lines: read,
        decided: first.log_lines.iter().map(|lines| (lines.file.clone(), lines.first, lines.last)).collect(),
    }
}

pub fn thumb(log: &Log) -> Answer {
    let cause = rival::answer(&log.text()).to_owned();
    // A rule of thumb is always certain.
    Answer {
        findings: vec![cause.clone()],
        cause,
        confidence: 1.0,
        formats: BTreeSet::new(),
        raw: 1.0,
        class: Class::Counters,
        lines: (0, 0),
        decided: Vec::new(),
    }
}

pub fn abstains(cause: &str) -> bool {
    ABSTAINED.contains(&cause)
}

/// Whether this one cause is a right answer for the log.
pub fn is_right(log: &Log, cause: &str) -> bool {
    // `not-enough` in the corpus matches every form of abstention.
    let may_abstain = log.also.iter().any(|also| also == "not-enough") && abstains(cause);
    let listed = cause == log.cause || may_abstain || log.also.iter().any(|also| also == cause);
    match log.kind() {
        Kind::Cause => listed,
        // Averages show that nothing is wrong for long, and do not exclude a short stall.
        Kind::Quiet => listed || log.is_of_averages() && cause == "not-enough-to-judge",
        Kind::Other => listed || cause == "quiet" || abstains(cause),
        Kind::NotEnough => listed || abstains(cause),
    }
}

/// The counts of one half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    pub logs: usize,
    pub first: usize,
    pub among: usize,
    pub confident_wrong: usize,
    pub wrongly_quiet: usize,
    pub abstained: usize,
    pub controls: usize,
    pub controls_right: usize,
}

impl Score {
    fn add(&mut self, log: &Log, answer: &Answer) {
        let right = is_right(log, &answer.cause);
        self.logs += 1;
        self.first += usize::from(right);
        self.among += usize::from(answer.findings.iter().any(|cause| is_right(log, cause)));
        self.confident_wrong += usize::from(!right && !abstains(&answer.cause) && answer.confidence >= CONFIDENT);
        self.wrongly_quiet += usize::from(!right && answer.cause == "quiet");
        self.abstained += usize::from(abstains(&answer.cause));
        self.controls += usize::from(log.is_control());
        self.controls_right += usize::from(log.is_control() && right);
    }
}

/// All logs with the answers of one contestant.
pub struct Sheet {
    pub who: &'static str,
    pub rows: Vec<(Log, Answer)>,
}

impl Sheet {
    pub fn of(who: &'static str, logs: &[Log], answer: fn(&Log) -> Answer) -> Sheet {
        Sheet { who, rows: logs.iter().map(|log| (log.clone(), answer(log))).collect() }
    }

    /// The rows of one batch.
    pub fn of_batch(&self, batch: u32) -> Sheet {
        let rows = self.rows.iter().filter(|(log, _)| log.batch == batch).cloned().collect();
        Sheet { who: self.who, rows }
    }

    pub fn score(&self, part: Part) -> Score {
        let mut score = Score::default();
        self.rows.iter().filter(|(log, _)| log.part() == part).for_each(|(log, answer)| score.add(log, answer));
        score
    }
}

/// A table of both halves for each sheet.
pub fn table(sheets: &[Sheet]) -> String {
    let mut page = String::from(
        "| part | who | logs | cause first | among findings | confident wrong | wrongly quiet | abstained | controls right |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for part in [Part::Work, Part::Held] {
        for sheet in sheets {
            let score = sheet.score(part);
            let share = |count: usize| format!("{count} ({:.0} %)", count as f64 * 100.0 / score.logs.max(1) as f64);
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} of {} |",
                part.name(),
                sheet.who,
                score.logs,
                share(score.first),
                share(score.among),
                share(score.confident_wrong),
                share(score.wrongly_quiet),
                share(score.abstained),
                score.controls_right,
                score.controls,
            );
        }
    }
    page
}

/// The answers to each cause in one half, most frequent first.
pub fn confusion(sheet: &Sheet, part: Part) -> String {
    let mut rows: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (log, answer) in sheet.rows.iter().filter(|(log, _)| log.part() == part) {
        *rows.entry(&log.cause).or_default().entry(&answer.cause).or_default() += 1;
    }
    let mut page = format!("| cause ({}) | answers |\n|---|---|\n", part.name());
    for (cause, answers) in rows {
        let mut answers: Vec<(&str, usize)> = answers.into_iter().collect();
        answers.sort_by_key(|(answer, count)| (std::cmp::Reverse(*count), *answer));
        let cells: Vec<String> = answers.iter().map(|(answer, count)| format!("{answer} {count}")).collect();
        let _ = writeln!(page, "| {cause} | {} |", cells.join(", "));
    }
    page
}

/// By format: the number of logs, the share of their lines that the import understood (of the whole log if it has
/// several formats), and how often each contestant puts the cause first.
pub fn coverage(sheet: &Sheet, rival: &Sheet) -> String {
    let mut rows: BTreeMap<&str, [u64; 5]> = BTreeMap::new();
    for ((log, answer), (_, other)) in sheet.rows.iter().zip(&rival.rows) {
        for format in &log.formats {
            let (right, thumb) = (is_right(log, &answer.cause), is_right(log, &other.cause));
            let add = [1, answer.lines.0, answer.lines.1, u64::from(right), u64::from(thumb)];
            rows.entry(format).or_default().iter_mut().zip(add).for_each(|(sum, one)| *sum += one);
        }
    }
    let mut page = String::from(
        "| format | logs | lines understood | flatwater first | rule of thumb first |\n|---|---:|---:|---:|---:|\n",
    );
    for (format, [logs, understood, lines, first, thumb]) in rows {
        let share = understood as f64 * 100.0 / lines.max(1) as f64;
        let _ = writeln!(page, "| {format} | {logs} | {share:.0} % | {first} | {thumb} |");
    }
    page
}

/// Lower bounds of the ranges of confidence.
const RANGES: [f64; 7] = [0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// By half and range of confidence: the number of claims, their mean confidence, and the share that was right.
pub fn reliability(sheet: &Sheet) -> String {
    let mut page = String::from("| part | confidence | claims | mean | right |\n|---|---|---:|---:|---:|\n");
    for part in [Part::Work, Part::Held] {
        for (at, from) in RANGES.iter().enumerate() {
            let to = RANGES.get(at + 1).copied().unwrap_or(1.01);
            let claims = claims(sheet, (*from, to), |log| log.part() == part);
            if claims.is_empty() {
                continue;
            }
            let count = claims.len() as f64;
            let mean = claims.iter().map(|(confidence, _)| confidence).sum::<f64>() / count;
            let right = claims.iter().filter(|(_, right)| *right).count();
            let _ = writeln!(
                page,
                "| {} | {from:.1} to {:.1} | {} | {mean:.2} | {:.2} ({right}) |",
                part.name(),
                to.min(1.0),
                claims.len(),
                right as f64 / count
            );
        }
    }
    page
}

/// Confidence and correctness of each answer to these logs that does not abstain and is in this range.
fn claims(sheet: &Sheet, (from, to): (f64, f64), of: impl Fn(&Log) -> bool) -> Vec<(f64, bool)> {
    let rows = sheet.rows.iter().filter(|(log, _)| of(log));
    let inside = rows.filter(|(_, answer)| !abstains(&answer.cause) && (from..to).contains(&answer.confidence));
    inside.map(|(log, answer)| (answer.confidence, is_right(log, &answer.cause))).collect()
}

/// The reliability diagram of both halves: for each range, the mean confidence (`o`), the share that was right (`#`),
/// and plus or minus two standard errors (`-`).
pub fn diagram(sheet: &Sheet) -> String {
    const WIDTH: f64 = 50.0;
    let mut page = String::from("```text\nclaimed  claims  0.0       0.2       0.4       0.6       0.8       1.0\n");
    for (at, from) in RANGES.iter().enumerate() {
        let to = RANGES.get(at + 1).copied().unwrap_or(1.01);
        let claims = claims(sheet, (*from, to), |_| true);
        if claims.is_empty() {
            continue;
        }
        let count = claims.len() as f64;
        let mean = claims.iter().map(|(confidence, _)| confidence).sum::<f64>() / count;
        // Agresti and Coull, so that zero wrong answers of three do not look certain.
        let share = (claims.iter().filter(|(_, right)| *right).count() as f64 + 2.0) / (count + 4.0);
        let error = 2.0 * (share * (1.0 - share) / (count + 4.0)).sqrt();
        let column = |value: f64| (value.clamp(0.0, 1.0) * WIDTH).round() as usize;
        let mut bar = vec![' '; WIDTH as usize + 1];
        bar[column(share - error)..=column(share + error)].fill('-');
        bar[column(claims.iter().filter(|(_, right)| *right).count() as f64 / count)] = '#';
        bar[column(mean)] = if bar[column(mean)] == '#' { '@' } else { 'o' };
        let bar: String = bar.into_iter().collect();
        let _ = writeln!(page, "{mean:>7.2}  {:>6}  |{}|", claims.len(), bar);
    }
    page.push_str("```\n\n`o` claimed, `#` right, `@` both, `-` plus or minus two standard errors.\n");
    page
}

/// The counts behind `confidence::TABLE`: right answers and all answers of a half, by class and range.
pub fn counted(sheet: &Sheet, part: Part) -> BTreeMap<(Class, bool), (u32, u32)> {
    let mut rows: BTreeMap<(Class, bool), (u32, u32)> = BTreeMap::new();
    for (log, answer) in sheet.rows.iter().filter(|(log, _)| log.part() == part) {
        if answer.class == Class::Abstains {
            continue;
        }
        let row = rows.entry((answer.class, confidence::is_high(answer.raw))).or_default();
        row.0 += u32::from(is_right(log, &answer.cause));
        row.1 += 1;
    }
    rows
}

/// Lists the wrong answers in the working half. The other half stays unseen.
pub fn wrong_in_work(sheet: &Sheet) -> String {
    let mut page = String::new();
    for (log, answer) in sheet.rows.iter().filter(|(log, _)| log.part() == Part::Work) {
        if !is_right(log, &answer.cause) {
            let formats: Vec<&str> = answer.formats.iter().copied().collect();
            let _ = writeln!(
                page,
                "{}: {} ({:.2}), not {}; read as {}",
                log.name,
                answer.cause,
                answer.confidence,
                log.cause,
                formats.join(" ")
            );
        }
    }
    page
}
