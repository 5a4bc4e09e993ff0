//! Reads text of sar (sysstat 10 to 12), with 12- and 24-hour clocks, and its JSON (`json`).
//!
//! The rates of a row are means since the row before. They become counters that are 0 at the time in the header, which
//! is the time of the reading before the first row. `Average:` lines (in any language) are skipped; `LINUX RESTART` is
//! a gap. The date of a banner applies to the rows below it; after midnight the day advances.

pub mod columns;
mod json;
mod sample;

use std::collections::HashMap;

pub use json::IMPORTER as SADF_JSON;
pub use sample::{Interval, cells, push};

use super::builder::{Builder, Track};
use super::error::ImportError;
use super::number::number;
use super::text::{Cursor, Line, Token};
use super::when::{DAY_NS, Zero, clock, date, half_day};
use super::{FormatKind, Importer, is_of_another};
use crate::anchors::Anchor;
use columns::{Report, normal};
use flatwater_recording::{Entity, EventKind};

pub const IMPORTER: Importer = Importer {
    name: "sar",
    sentence: "sar of sysstat 10 to 12 (-B -r -S -W -d -q -u -w -v), 12- and 24-hour clock.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&["LINUX RESTART", "Linux "]),
        Anchor::Line(&["Average", "Mittel", "Moyenne", "Media", "MAXIMUM"]),
        Anchor::Start("0123456789ADMm"),
    ],
    detect,
    read,
};

/// Splits a line that begins with a time, in either clock: ns of the day, and the words after the time.
pub(super) fn timed<'a>(line: &Line<'a>) -> Option<(i64, Vec<Token<'a>>)> {
    let tokens: Vec<Token<'a>> = line.tokens().collect();
    let (first, rest) = tokens.split_first()?;
    let ns = clock(first.text).filter(|_| first.text.matches(':').count() == 2)?;
    let (ns, rest) = match rest.split_first() {
        Some((word, behind)) => half_day(ns, word.text).map_or((ns, rest), |ns| (ns, behind)),
        None => (ns, rest),
    };
    let rest = rest.split_first().filter(|(word, _)| is_zone(word.text)).map_or(rest, |(_, behind)| behind);
    Some((ns, rest.to_vec()))
}

/// Whether the word is a time zone, which some locales print after each time.
fn is_zone(word: &str) -> bool {
    const ZONES: &[&str] = &[
        "UTC", "GMT", "IST", "CET", "CEST", "EET", "EEST", "WET", "WEST", "MSK", "BST", "EST", "EDT", "CST", "CDT",
        "MST", "MDT", "PST", "PDT", "JST", "KST", "HKT", "SGT", "AEST", "AEDT", "NZST", "NZDT", "BRT", "SAST",
    ];
    ZONES.contains(&word)
}

fn names(tokens: &[Token<'_>]) -> Vec<String> {
    tokens.iter().map(|token| normal(token.text)).collect()
}

/// Whether the line is `Linux 6.1.0-18-amd64 (host) 11/21/26 _x86_64_ (2 CPU)`, the banner of sar and iostat.
pub fn is_banner(text: &str) -> bool {
    text.starts_with("Linux ") && text.contains('(') && text.split_whitespace().any(|word| date(word).is_some())
}

/// The day in a banner, days since 1970.
pub fn banner_date(text: &str) -> Option<i64> {
    text.split_whitespace().find_map(date)
}

/// Reads kernel, host and CPUs from a banner.
pub fn banner(text: &str, b: &mut Builder) {
    let mut words = text.split_whitespace().skip(1);
    let kernel = words.next().map(str::to_owned);
    b.machine.kernel = b.machine.kernel.take().or(kernel);
    let mut bracketed = text.split('(').skip(1).filter_map(|rest| rest.split(')').next());
    let host = bracketed.next().map(str::to_owned);
    b.machine.hostname = b.machine.hostname.take().or(host);
    let cpus = bracketed.next().and_then(|inner| inner.split_whitespace().next()?.parse().ok());
    b.machine.cpus = b.machine.cpus.or(cpus);
}

fn is_header(line: &Line<'_>) -> bool {
    timed(line).is_some_and(|(_, tokens)| Report::of(&names(&tokens)).is_some())
}

/// Whether the line is the header of a report of sar that is not imported (network, tty).
fn is_other_header(line: &Line<'_>) -> bool {
    timed(line).is_some_and(|(_, tokens)| {
        let telling = |text: &str| text.ends_with("/s") || text.starts_with('%') || text.starts_with("kb");
        tokens
            .iter()
            .any(|token| telling(token.text) || matches!(token.text, "INTR" | "IFACE" | "totsck" | "MHz" | "tcp6sck"))
            && tokens.iter().all(|token| number(token.text).is_none())
    })
}

fn detect(cursor: &Cursor<'_>) -> u8 {
    let Some(line) = cursor.peek() else { return 0 };
    match () {
        () if is_header(&line) => 90,
        // iostat and pidstat print the same banner; the lines below decide.
        () if is_banner(line.text) => {
            let of_sar = |line: Line<'_>| {
                let pids = line.tokens().any(|token| matches!(token.text, "PID" | "TGID"));
                timed(&line).is_some() && !pids
            };
            (1..4).filter_map(|ahead| cursor.ahead(ahead)).any(of_sar) as u8 * 80
        }
        () if is_restart(&line) || is_other_header(&line) => 70,
        () if headless(&line).is_some()
            && cursor.ahead(1).is_some_and(|next| next.is_blank() || headless(&next).is_some()) =>
        {
            68
        }
        () if b"AMDm".contains(line.text.as_bytes().first().unwrap_or(&0)) && average(line.text).is_some() => 30,
        () => 0,
    }
}

/// The columns of `sar -u` and mpstat rows without a header: a time, a CPU, and percentages that sum to 100.
fn headless(line: &Line<'_>) -> Option<&'static [&'static str]> {
    const WITH_STEAL: &[&str] = &["CPU", "user", "nice", "system", "iowait", "steal", "idle"];
    const BEFORE: &[&str] = &["CPU", "user", "nice", "system", "iowait", "idle"];
    const MPSTAT: &[&str] = &["CPU", "usr", "nice", "sys", "iowait", "irq", "soft", "steal", "guest", "gnice", "idle"];
    const MPSTAT_10: &[&str] = &["CPU", "usr", "nice", "sys", "iowait", "irq", "soft", "steal", "guest", "idle"];
    let (_, tokens) = timed(line)?;
    let (cpu, shares) = tokens.split_first()?;
    (cpu.text == "all" || cpu.text.bytes().all(|c| c.is_ascii_digit())).then_some(())?;
    let shares: Option<Vec<f64>> =
        shares.iter().map(|token| number(token.text).filter(|share| (0.0..=100.0).contains(share))).collect();
    let shares = shares?;
    let sum: f64 = shares.iter().sum();
    let columns =
        [WITH_STEAL, BEFORE, MPSTAT, MPSTAT_10].into_iter().find(|columns| columns.len() == shares.len() + 1)?;
    (99.0..=101.0).contains(&sum).then_some(columns)
}

fn is_restart(line: &Line<'_>) -> bool {
    line.text.contains("LINUX RESTART")
}

/// A line of means at the end of a report, with its number of words after `Average:`.
#[derive(Clone, Copy)]
enum Average {
    Header(usize),
    Row(usize),
}

/// Parses a line that begins with `Average:`, `Moyenne :`, `Durchschn.:` or `平均时间:`, before names or numbers.
fn average(text: &str) -> Option<Average> {
    let mut words = text.split_whitespace();
    let first = words.next()?;
    let label = first.strip_suffix(':').or_else(|| (words.next() == Some(":")).then_some(first))?;
    (!label.is_empty() && label.chars().all(|c| c.is_alphabetic() || c == '.')).then_some(())?;
    let count = words.clone().count();
    let figures = words.clone().filter(|word| number(word.trim_end_matches('%')).is_some()).count();
    if figures == 0 {
        let header = words.clone().any(|word| word.ends_with("/s") || word.contains('%') || word == "DEV");
        return header.then_some(Average::Header(count));
    }
    // A row has at most a name (CPU, device) before its figures.
    (count >= 2 && figures + 1 >= count).then_some(Average::Row(count))
}

/// State of the current output of sar.
struct State {
    track: Track,
    /// The day in the banner.
    date: Option<i64>,
    /// Days since 1970, from the banner on; without a date the days since the first row.
    day: i64,
    report: Option<Report>,
    columns: Vec<String>,
    /// Number of words of the last header.
    words: Option<usize>,
    /// The rows belong to a report that is not imported.
    skips: bool,
    /// Time of the last row of each entity of the current report.
    last: HashMap<String, i64>,
    /// Time in the header: the beginning of the first interval.
    began: i64,
    /// The last time, to detect midnight.
    latest: i64,
    /// Length of the last interval, ns; used for the row after omitted rows.
    step: i64,
}

impl State {
    fn new(b: &mut Builder, date: Option<i64>) -> State {
        let zero = if date.is_some() { Zero::Epoch } else { Zero::Day };
        let track = b.shared_track("sar", zero);
        let day = date.unwrap_or(0);
        State {
            track,
            date,
            day,
            report: None,
            columns: Vec::new(),
            words: None,
            skips: false,
            last: HashMap::new(),
            began: 0,
            latest: i64::MIN,
            step: 0,
        }
    }

    /// Whether these words can be a row of the current report.
    fn has_row(&self, tokens: &[Token<'_>]) -> bool {
        self.report.is_some()
            && tokens.len() == self.columns.len()
            && tokens.last().is_some_and(|token| number(token.text).is_some())
    }

    /// The instant of a time of day. A step back by more than half a day means that midnight has passed.
    fn at(&mut self, ns: i64) -> i64 {
        let at = self.day * DAY_NS + ns;
        if at < self.latest.saturating_sub(DAY_NS / 2) {
            self.day += 1;
        }
        self.latest = self.day * DAY_NS + ns;
        self.latest
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut state: Option<State> = None;
    let mut date = b.context().date;
    while let Some(line) = cursor.peek() {
        if let Some(lines) = cursor.lines_of_break() {
            if cursor.ahead(lines).is_none_or(|line| timed(&line).is_none()) {
                break;
            }
            cursor.take_lines(lines);
            if let Some(state) = &mut state {
                b.gap("some rows of sar", "left out in the log ('...')", "");
                state.last.clear();
                state.began = i64::MIN;
            }
        } else if line.is_blank() {
            cursor.take();
        } else if is_banner(line.text) {
            banner(line.text, b);
            date = banner_date(line.text).or(date);
            state = None;
            cursor.take();
        } else if let Some((ns, tokens)) = timed(&line) {
            // Rows of pidstat also begin with a time.
            let of_pidstat = tokens.iter().any(|token| matches!(token.text, "PID" | "TGID"));
            let is_row = state.as_ref().is_some_and(|state| state.has_row(&tokens));
            if of_pidstat || !is_row && is_of_another(cursor, &IMPORTER) {
                break;
            }
            cursor.take();
            let state = state.get_or_insert_with(|| State::new(b, date));
            read_timed(&line, ns, &tokens, state, b);
        } else if let Some(average) = average(line.text).filter(|_| !is_of_another(cursor, &IMPORTER)) {
            match (average, &mut state) {
                (Average::Header(words), Some(state)) => state.words = Some(words),
                (Average::Row(words), Some(state)) if state.words.is_some_and(|known| known != words) => break,
                _ => {}
            }
            cursor.take();
            b.pass_over();
        } else {
            break;
        }
    }
    Ok(())
}

fn read_timed(line: &Line<'_>, ns: i64, tokens: &[Token<'_>], state: &mut State, b: &mut Builder) {
    if is_restart(line) {
        let at = state.at(ns);
        b.event((state.track, at), EventKind::Report("the machine was restarted (LINUX RESTART)".to_owned()));
        b.gap("sar's rows around a restart", "the machine was restarted: counters restarted at 0", "");
        state.last.clear();
        return;
    }
    if let Some(report) = Report::of(&names(tokens)) {
        // Each report of a file begins again on the day that the banner names.
        if state.report != Some(report) {
            state.day = state.date.unwrap_or(0);
            state.latest = i64::MIN;
            state.last.clear();
        }
        (state.report, state.columns, state.skips) = (Some(report), names(tokens), false);
        state.words = Some(tokens.len());
        state.began = state.at(ns);
        return;
    }
    if is_other_header(line) {
        let columns: Vec<&str> = tokens.iter().map(|token| token.text).take(4).collect();
        b.gap(
            format!("sar's report of {}", columns.join(", ")),
            "this report is not imported",
            "sar -B, -r, -S, -W, -d, -q, -u, -w or -v",
        );
        (state.report, state.skips, state.words) = (None, true, Some(tokens.len()));
        return;
    }
    if state.report.is_none()
        && let Some(columns) = headless(line)
    {
        (state.report, state.columns) = (Some(Report::Cpu), columns.iter().map(|name| (*name).to_owned()).collect());
        state.began = i64::MIN;
        b.gap(
            "the header of sar's rows",
            "missing: percentages that sum to 100 are assumed to be those of `sar -u` or mpstat",
            "",
        );
    }
    let Some(report) = state.report else {
        let is_row = tokens.iter().any(|token| number(token.text).is_some());
        if state.skips && is_row {
            b.pass_over();
        } else {
            b.problem(ImportError::line(line, "a row below a header of sar"));
        }
        return;
    };
    let at = state.at(ns);
    if let Err(error) = row(line, at, report, tokens, state, b) {
        b.problem(error);
    }
}

fn row(
    line: &Line<'_>,
    at: i64,
    report: Report,
    tokens: &[Token<'_>],
    state: &mut State,
    b: &mut Builder,
) -> Result<(), ImportError> {
    let mut entity = String::new();
    let mut values = Vec::new();
    for (place, name) in state.columns.iter().enumerate() {
        let Some(token) = tokens.get(place) else {
            return Err(ImportError::short(
                line,
                format!("{} values, of which '{name}' is missing", state.columns.len()),
            ));
        };
        if matches!(name.as_str(), "CPU" | "DEV") {
            token.text.clone_into(&mut entity);
            continue;
        }
        let value =
            number(token.text).ok_or_else(|| ImportError::at(line, *token, format!("a number for '{name}'")))?;
        values.push((name.as_str(), value));
    }
    // People mark rows: `<-- here`.
    let is_mark = |token: &&Token<'_>| !token.text.starts_with(|c: char| c.is_alphanumeric());
    if let Some(extra) = tokens.get(state.columns.len()).filter(|extra| !is_mark(extra)) {
        return Err(ImportError::at(line, *extra, "the end of the row"));
    }
    let entity = match report {
        Report::Cpu if entity != "all" => Entity::named(&format!("cpu{entity}")),
        Report::Cpu | Report::Queue | Report::Tasks => Entity::named("all"),
        Report::Disk => Entity::named(&entity),
        Report::Pressure(resource) => Entity::named(resource),
        Report::Kernel => Entity::named("kernel"),
        Report::Paging | Report::Swapping | Report::Memory | Report::Swap => Entity::default(),
    };
    let known = state.last.insert(entity.name.clone(), at);
    // After omitted rows the beginning of the interval is unknown; its length is taken from the last one.
    let fresh = if state.began == i64::MIN { at.saturating_sub(state.step) } else { state.began };
    let began = known.unwrap_or(fresh);
    state.step = at.saturating_sub(began);
    let interval = Interval { first: known.is_none(), from: began, to: at };
    sample::push(b, state.track, &interval, report, &entity, &values);
    Ok(())
}
