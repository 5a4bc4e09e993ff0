//! Metamorphic tests: a correctly answered log keeps its answer however it is pasted.
//!
//! Only the working half is used. Each change of `paste` is applied to each log that is answered correctly unchanged.
//! The answer survives if the first cause is the same, or if both answers abstain and the log is not refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use crate::score_logs::corpus::{Log, Part};
use crate::score_logs::paste::{CHANGES, Change, Files, Paste};
use crate::score_logs::score::{self, Answer, CONFIDENT};

/// The effect of a change on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The change does not apply to the log.
    Skipped,
    Kept,
    Refused,
    /// The original answer named a cause, and the new one does not.
    Abstained,
    /// Another cause that is also right.
    OtherRight,
    OtherWrong,
    /// Another cause that is wrong, with high confidence.
    ConfidentWrong,
}

/// A log that is answered correctly unchanged, with its text and answer.
pub struct Right {
    pub log: Log,
    pub files: Files,
    pub answer: Answer,
}

/// The correctly answered logs of the working half.
pub fn right_logs(logs: &[Log]) -> Vec<Right> {
    let work = logs.iter().filter(|log| log.part() == Part::Work);
    let read = work.map(|log| {
        let texts =
            log.paths().into_iter().map(|path| String::from_utf8_lossy(&std::fs::read(path).expect("a log")).into());
        let files: Files = log.files.iter().cloned().zip(texts).collect();
        Right { log: log.clone(), answer: score::answer(&bytes(&files)), files }
    });
    read.filter(|right| score::is_right(&right.log, &right.answer.cause)).collect()
}

fn bytes(files: &[(String, String)]) -> Vec<(String, Vec<u8>)> {
    files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes())).collect()
}

/// The changed files and their answer; `None` if the change does not apply.
pub fn answer(right: &Right, change: &Change) -> Option<(Files, Answer)> {
    let paste = Paste { log: &right.log, files: &right.files, decided: &right.answer.decided };
    let files = change.of(&paste)?;
    let answer = score::answer(&bytes(&files));
    Some((files, answer))
}

pub fn fate(right: &Right, after: Option<&Answer>) -> Fate {
    let Some(after) = after else { return Fate::Skipped };
    let before = &right.answer;
    match () {
        () if after.cause == before.cause => Fate::Kept,
        () if after.cause == "refused" => Fate::Refused,
        () if score::abstains(&after.cause) && score::abstains(&before.cause) => Fate::Kept,
        () if score::abstains(&after.cause) => Fate::Abstained,
        () if score::is_right(&right.log, &after.cause) => Fate::OtherRight,
        () if after.confidence >= CONFIDENT => Fate::ConfidentWrong,
        () => Fate::OtherWrong,
    }
}

/// One change applied to one log.
pub struct Trial<'a> {
    pub right: &'a Right,
    pub change: &'static Change,
    pub fate: Fate,
    pub after: Option<Answer>,
}

/// Runs all wanted trials on one thread per processor. Returns them in the order of logs and changes.
pub fn trials(logs: &[Right], wanted: impl Fn(&Log, &Change) -> bool + Sync) -> Vec<Trial<'_>> {
    let next = Mutex::new(logs.iter().enumerate());
    let found = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some((at, right)) = next.lock().expect("not poisoned").next() else { break };
                    let changes = CHANGES.iter().filter(|change| wanted(&right.log, change));
                    let tried = changes.map(|change| {
                        let after = answer(right, change).map(|(_, after)| after);
                        Trial { right, change, fate: fate(right, after.as_ref()), after }
                    });
                    let tried: Vec<Trial<'_>> = tried.collect();
                    found.lock().expect("not poisoned").push((at, tried));
                }
            });
        }
    });
    let mut found = found.into_inner().expect("not poisoned");
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().flat_map(|(_, trials)| trials).collect()
}

/// The number of trials by fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub skipped: u32,
    pub applied: u32,
    pub kept: u32,
    pub refused: u32,
    pub abstained: u32,
    pub other_right: u32,
    pub other_wrong: u32,
    pub confident_wrong: u32,
}

impl Tally {
    fn add(&mut self, fate: Fate) {
        let slot = match fate {
            Fate::Skipped => {
                self.skipped += 1;
                return;
            }
            Fate::Kept => &mut self.kept,
            Fate::Refused => &mut self.refused,
            Fate::Abstained => &mut self.abstained,
            Fate::OtherRight => &mut self.other_right,
            Fate::OtherWrong => &mut self.other_wrong,
            Fate::ConfidentWrong => &mut self.confident_wrong,
        };
        *slot += 1;
        self.applied += 1;
    }

    fn row(&self) -> String {
        let share = f64::from(self.kept) * 100.0 / f64::from(self.applied.max(1));
        format!(
            "{} | {} | {} ({share:.1} %) | {} | {} | {} | {} | {} |",
            self.skipped,
            self.applied,
            self.kept,
            self.refused,
            self.abstained,
            self.other_right,
            self.other_wrong,
            self.confident_wrong
        )
    }
}

/// The tally of each change.
pub fn by_change(trials: &[Trial<'_>]) -> BTreeMap<&'static str, Tally> {
    let mut tallies: BTreeMap<&'static str, Tally> = BTreeMap::new();
    trials.iter().for_each(|trial| tallies.entry(trial.change.name).or_default().add(trial.fate));
    tallies
}

const HEAD: &str =
    "skipped | changed | kept | refused | abstains | another, right | another, wrong | confident wrong |";

/// Two tables: by change, and by format with the changes that lost most answers.
pub fn tables(trials: &[Trial<'_>]) -> String {
    let tallies = by_change(trials);
    let mut page = format!("| change | | {HEAD}\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    let mut all = Tally::default();
    trials.iter().for_each(|trial| all.add(trial.fate));
    for change in CHANGES {
        let tally = tallies.get(change.name).copied().unwrap_or_default();
        let _ = writeln!(page, "| {} | {} | {}", change.name, change.say, tally.row());
    }
    let _ = writeln!(page, "| all | | {}", all.row());
    let _ = write!(
        page,
        "\n| format | logs | {HEAD} most lost by |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n"
    );
    for (format, (logs, tally, lost)) in by_format(trials) {
        let mut lost: Vec<(&str, u32)> = lost.into_iter().collect();
        lost.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let worst: Vec<String> = lost.iter().take(3).map(|(name, count)| format!("{name} {count}")).collect();
        let _ = writeln!(page, "| {format} | {logs} | {} {} |", tally.row(), worst.join(", "));
    }
    page.trim_end().to_owned()
}

/// For one format: its logs, its tally, and the answers lost by change.
type OfFormat = (usize, Tally, BTreeMap<&'static str, u32>);

fn by_format<'a>(trials: &'a [Trial<'_>]) -> BTreeMap<&'a str, OfFormat> {
    let mut rows: BTreeMap<&str, OfFormat> = BTreeMap::new();
    for (at, trial) in trials.iter().enumerate() {
        let first = at == 0 || trials[at - 1].right.log.name != trial.right.log.name;
        for format in &trial.right.log.formats {
            let (logs, tally, lost) = rows.entry(format).or_default();
            *logs += usize::from(first);
            tally.add(trial.fate);
            if !matches!(trial.fate, Fate::Kept | Fate::Skipped) {
                *lost.entry(trial.change.name).or_default() += 1;
            }
        }
    }
    rows
}

/// Lists the lost answers. All are of the working half.
pub fn lost(trials: &[Trial<'_>]) -> String {
    let mut page = String::new();
    for trial in trials {
        if let (Some(after), false) = (&trial.after, trial.fate == Fate::Kept) {
            let before = &trial.right.answer;
            let _ = writeln!(
                page,
                "{}\t{}\t{:?}\t{} -> {}\t{}",
                trial.change.name,
                trial.right.log.name,
                trial.fate,
                before.cause,
                after.cause,
                trial.right.log.formats.join(" ")
            );
        }
    }
    page
}

/// One of this many trials is in the sample that every test run checks.
const SAMPLE: u64 = 20;

/// Whether the 64-bit FNV-1a hash of both names selects the trial for the sample.
pub fn in_sample(log: &Log, change: &Change) -> bool {
    let bytes = log.name.bytes().chain([b' ']).chain(change.name.bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash >> 16) % SAMPLE == 0
}

/// Changes that apply to fewer logs of the sample, or lose more answers, than `floors` allows.
pub fn below_floors(trials: &[Trial<'_>], floors: &[(&str, u32, u32)]) -> Vec<String> {
    let tallies = by_change(trials);
    let mut found = Vec::new();
    for change in CHANGES {
        let tally = tallies.get(change.name).copied().unwrap_or_default();
        let lost = tally.applied - tally.kept;
        match floors.iter().find(|(name, ..)| *name == change.name) {
            None => found.push(format!("{}: no floor", change.name)),
            Some((_, applied, most)) if tally.applied < *applied || lost > *most => {
                found.push(format!("{}: {lost} of {} lost, were {most} of {applied}", change.name, tally.applied));
            }
            Some(_) => {}
        }
    }
    found
}

/// The counts of the sample, formatted like `floors`.
pub fn as_floors(trials: &[Trial<'_>]) -> String {
    let tallies = by_change(trials);
    let rows = CHANGES.iter().map(|change| {
        let tally = tallies.get(change.name).copied().unwrap_or_default();
        format!("    (\"{}\", {}, {}),\n", change.name, tally.applied, tally.applied - tally.kept)
    });
    rows.collect()
}

#[test]
fn fates_are_counted_and_compared_with_floors() {
    let tally = |kept: u32| Tally { applied: 3, kept, ..Tally::default() };
    assert!(tally(3).row().contains("3 (100.0 %)"));
    let mut counted = Tally::default();
    [Fate::Kept, Fate::Skipped, Fate::Refused, Fate::ConfidentWrong].into_iter().for_each(|fate| counted.add(fate));
    let expected = Tally { skipped: 1, applied: 3, kept: 1, refused: 1, confident_wrong: 1, ..Tally::default() };
    assert_eq!(counted, expected);
    assert!(below_floors(&[], &[("quote", 1, 0)]).iter().any(|reported| reported.starts_with("quote: 0 of 0 lost")));
}
