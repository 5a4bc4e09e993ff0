//! Reads iostat with and without -x, -t, -k, -m, of sysstat 9 to 12.
//!
//! The first report holds averages since boot (unless `-y` was given, which the text does not show). It only sets every
//! counter to 0. If it is the only report, its averages count as one interval, and a gap reports it.

use std::collections::HashSet;

use super::builder::{Builder, Cell, Track};
use super::error::ImportError;
use super::number::{number, size};
use super::sar::columns::{Report, normal};
use super::sar::{banner, cells as sar_cells, is_banner};
use super::text::{Cursor, Line, Token};
use super::when::{SECOND_NS, When, stamp};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::{Column, disks};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "iostat",
    sentence: "iostat, -x, -t, of sysstat 9 to 12.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["avg-cpu", "Device", "%iowait", "Linux "]), Anchor::Start("svxhndm")],
    detect: |cursor| match cursor.next_text() {
        text if is_cpu_header(text) || is_device_header(text) => 92,
        text if is_banner(text) => {
            let mut below = (1..5).filter_map(|ahead| cursor.ahead(ahead));
            if below.any(|line| is_cpu_header(line.text) || is_device_header(line.text)) { 93 } else { 0 }
        }
        text if headless(text).is_some() => 62,
        _ => 0,
    },
    read,
};

fn is_cpu_header(text: &str) -> bool {
    // The label is missing if the table was pasted into another.
    let alone = || text.contains("%iowait") && text.split_whitespace().all(|word| word.starts_with('%'));
    text.contains("%idle") && (text.trim_start().starts_with("avg-cpu:") || alone())
}

fn is_device_header(text: &str) -> bool {
    // With -h the name is the last column, and reads, writes and the queue have separate tables.
    is_first_header(text) || (text.trim_end().ends_with("Device") && (text.contains("/s") || text.contains("aqu-sz")))
}

/// Whether this is the header of a report's only or first device table.
fn is_first_header(text: &str) -> bool {
    let named = text.trim_start_matches(['#', ' ']).starts_with("Device") || text.trim_end().ends_with("Device");
    // With -h the name is the last column, and %util is in the last of several tables.
    let alone = || text.contains("%util") && !text.trim_end().ends_with("Device");
    named && (text.contains("r/s") || text.contains("tps") || text.contains("r_await") || alone())
}

/// The columns of `iostat -x` after the device's name, by version of sysstat: up to 9, 10 to 11.5, 11.6 to 12.0, 12.1,
/// and from 12.2 on with flushes. Each version has a different number of columns.
const AGES: [&str; 5] = [
    "rrqm/s wrqm/s r/s w/s rsec/s wsec/s avgrq-sz avgqu-sz await svctm %util",
    "rrqm/s wrqm/s r/s w/s rkB/s wkB/s avgrq-sz avgqu-sz await r_await w_await svctm %util",
    "r/s w/s rkB/s wkB/s rrqm/s wrqm/s %rrqm %wrqm r_await w_await aqu-sz rareq-sz wareq-sz svctm %util",
    "r/s rkB/s rrqm/s %rrqm r_await rareq-sz w/s wkB/s wrqm/s %wrqm w_await wareq-sz d/s dkB/s drqm/s %drqm d_await \
        dareq-sz aqu-sz %util",
    "r/s rkB/s rrqm/s %rrqm r_await rareq-sz w/s wkB/s wrqm/s %wrqm w_await wareq-sz d/s dkB/s drqm/s %drqm d_await \
        dareq-sz f/s f_await aqu-sz %util",
];

/// The columns of a row of `iostat -x` without its header: a disk's name, as many numbers with decimals as one version
/// of sysstat prints, and plausible percentages. The unit of bytes of the oldest version is unknown (-k), but its times
/// are not affected.
fn headless(text: &str) -> Option<Vec<String>> {
    const DISKS: [&str; 8] = ["sd", "vd", "xvd", "hd", "nvme", "dm-", "md", "mmcblk"];
    let mut words = text.split_whitespace();
    let name = words.next()?;
    let is_disk =
        DISKS.iter().any(|kind| name.strip_prefix(kind).is_some_and(|rest| !rest.is_empty() && rest.len() <= 8));
    let values: Option<Vec<f64>> = words.map(|word| number(word).filter(|value| *value >= 0.0)).collect();
    let values = values.filter(|_| is_disk && text.contains(['.', ',']))?;
    let age = AGES.iter().find(|age| age.split_whitespace().count() == values.len())?;
    let shares = age.split_whitespace().zip(&values).filter(|(column, _)| column.starts_with('%'));
    let fits = shares.into_iter().all(|(_, share)| *share <= 112.0);
    fits.then(|| ["Device"].into_iter().chain(age.split_whitespace()).map(normal).collect())
}

struct State {
    track: Track,
    /// Time of the current report.
    at: i64,
    reports: u32,
    step: i64,
    /// The reports have times.
    stamped: bool,
    /// The last of these times.
    moment: Option<When>,
    /// Time of the report before; `None` in the first.
    before: Option<i64>,
    /// The log has only one report.
    only: bool,
    /// Devices that have a row in the current report.
    named: HashSet<String>,
}

impl State {
    /// Begins a report, at the stamp before it or one interval after the last report.
    fn begin(&mut self) {
        let before = self.at;
        self.named.clear();
        self.reports += 1;
        if self.only {
            self.at = before.saturating_add(self.step);
            self.before = Some(before);
        } else if self.reports > 1 {
            // One stamp above several reports is the time of the first.
            let moment = self.moment.filter(|moment| self.stamped && moment.ns > before);
            self.at = moment.map_or(before.saturating_add(self.step), |moment| moment.ns);
            self.before = Some(before);
        }
    }

    /// Begins the next report if the device already has a row: `grep` has dropped the headers.
    fn names(&mut self, device: &str) {
        if self.named.contains(device) {
            self.begin();
        }
        self.named.insert(device.to_owned());
    }

    fn passed(&self) -> i64 {
        self.before.map_or(0, |before| self.at.saturating_sub(before).max(0))
    }

    /// Adds a row of increases; for the only report also zeros before it.
    fn row(&self, b: &mut Builder, table: Table, entity: &Entity, cells: &[(Column, Cell)]) {
        if let Some(before) = self.before.filter(|_| self.only) {
            let zeros: Vec<(Column, Cell)> = cells.iter().map(|(column, _)| (*column, Cell::Rise(0.0))).collect();
            b.row((self.track, before), table, entity, &zeros);
        }
        b.row((self.track, self.at), table, entity, cells);
    }
}

/// Whether the report at the cursor is the only one.
fn is_only(cursor: &Cursor<'_>) -> bool {
    let opens = if is_cpu_header(cursor.next_text()) { is_cpu_header } else { is_first_header };
    let mut below = (1..LINES_AHEAD).map_while(|ahead| cursor.ahead(ahead));
    !below.any(|line| opens(line.text)) && !repeats(cursor)
}

/// Whether a device has several rows below the header at the cursor: `grep` selected the rows of several reports.
fn repeats(cursor: &Cursor<'_>) -> bool {
    let mut names: HashSet<&str> = HashSet::new();
    if cursor.next_text().split_whitespace().last().is_some_and(|last| last.starts_with("Device")) {
        return false;
    }
    for line in
        (0..LINES_AHEAD).map_while(|ahead| cursor.ahead(ahead)).skip_while(|line| !is_device_header(line.text)).skip(1)
    {
        let mut tokens = line.tokens();
        let (Some(name), Some(value)) = (tokens.next(), tokens.next()) else { break };
        if human(value.text).is_none() || human(name.text).is_some() {
            break;
        }
        if !names.insert(name.text) {
            return true;
        }
    }
    false
}

/// Whether the first device of rows without a header appears again, or a header follows.
fn headless_repeats(cursor: &Cursor<'_>) -> bool {
    let name = |text: &str| text.split_whitespace().next().map(str::to_owned);
    let first = name(cursor.next_text());
    let mut below = (1..LINES_AHEAD).map_while(|ahead| cursor.ahead(ahead));
    below.any(|line| is_cpu_header(line.text) || is_first_header(line.text) || name(line.text) == first)
}

/// Maximum lines of one report, which has a line for each device.
const LINES_AHEAD: usize = 4096;

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut state: Option<State> = None;
    let mut columns: Vec<String> = Vec::new();
    // The CPU's header begins a report; without it the header of the devices does.
    let mut opened = false;
    let mut stamped = b.context().moment;
    while let Some(line) = cursor.peek() {
        let text = line.text;
        if is_banner(text) {
            banner(text, b);
        } else if let Some(moment) = stamp(text) {
            stamped = Some(moment);
            if let Some(state) = &mut state {
                state.moment = stamped;
            }
        } else if is_cpu_header(text) || is_device_header(text) {
            if is_cpu_header(text) || (!opened && is_first_header(text)) || state.is_none() {
                let only = state.is_none() && is_only(cursor);
                state.get_or_insert_with(|| first(only, stamped, b)).begin();
            }
            opened = is_cpu_header(text);
            if let Some(state) = &mut state {
                state.named.clear();
            }
            columns = line
                .tokens()
                .map(|token| normal(token.text))
                .filter(|name| name != "avg-cpu:" && name != "#")
                .collect();
            if opened {
                cursor.take();
                cpu(cursor, &columns, &state, b);
                continue;
            }
        } else if let (None, Some(age)) = (&state, headless(text)) {
            b.gap(
                "the header of iostat's rows",
                "missing: the columns are those of the sysstat version that prints as many",
                "paste the header with the rows",
            );
            let only = !headless_repeats(cursor);
            state.insert(first(only, stamped, b)).begin();
            columns = age;
            continue;
        } else if let (Some(state), false) = (&mut state, line.is_blank() || columns.is_empty()) {
            if line.tokens().nth(1).is_none_or(|token| human(token.text).is_none()) {
                break;
            }
            // With -h the name is the last column, and a report has several tables.
            let named = columns.first().is_some_and(|column| column.starts_with("Device"));
            if let Some(device) = line.tokens().next().filter(|_| named) {
                state.names(device.text);
            }
            if let Err(error) = device(&line, &columns, state, b) {
                b.problem(error);
            }
        } else if !line.is_blank() {
            break;
        }
        cursor.take();
    }
    Ok(())
}

/// The state before the first report. `moment` is the time above the report.
fn first(only: bool, moment: Option<When>, b: &mut Builder) -> State {
    let stamped = moment.is_some();
    let interval = b.context().command.as_deref().and_then(|command| {
        let words = command.split_whitespace().skip_while(|word| !word.ends_with("iostat")).skip(1);
        words.filter_map(|word| word.parse::<i64>().ok()).find(|seconds| (1..=86_400).contains(seconds))
    });
    if only {
        b.gap(
            "interval of iostat's report",
            "there is only one report: its values are means since boot (unless -y was given)",
            "iostat -x 1 while it is slow",
        );
    } else if !stamped && interval.is_none() {
        b.gap(
            "interval of iostat",
            "the reports have no times: one second between them is assumed",
            "run iostat with -t",
        );
    }
    let (track, at) = b.origin_at("iostat", moment);
    State {
        track,
        at,
        reports: 0,
        step: interval.unwrap_or(1) * SECOND_NS,
        stamped,
        moment,
        before: None,
        only,
        named: HashSet::new(),
    }
}

/// A number, also as -h prints it: `62.9%`, `12.6k` and `3.7M` (the unit of the column is KiB).
fn human(text: &str) -> Option<f64> {
    let plain = text.trim_end_matches('%');
    number(plain).or_else(|| size(plain, 1.0).map(|bytes| bytes as f64 / 1024.0))
}

/// Reads the values below `avg-cpu:`.
fn cpu(cursor: &mut Cursor<'_>, columns: &[String], state: &Option<State>, b: &mut Builder) {
    let (Some(line), Some(state)) = (cursor.peek(), state) else { return };
    let tokens: Vec<Token<'_>> = line.tokens().collect();
    let mut values = Vec::new();
    for (name, token) in columns.iter().zip(&tokens) {
        let Some(value) = human(token.text) else {
            b.problem(ImportError::at(&line, *token, format!("a percentage for '{name}'")));
            return;
        };
        values.push((name.as_str(), value));
    }
    cursor.take();
    let cells = sar_cells(Report::Cpu, &values, state.passed());
    state.row(b, Table::Cpu, &Entity::named("all"), &cells);
}

/// No device reaches this many requests, bytes or milliseconds per second, in any unit.
const IMPOSSIBLE: f64 = 1e13;

fn device(line: &Line<'_>, columns: &[String], state: &State, b: &mut Builder) -> Result<(), ImportError> {
    let tokens: Vec<Token<'_>> = line.tokens().collect();
    let mut name = "";
    let mut values: Vec<(&str, f64)> = Vec::new();
    for (place, column) in columns.iter().enumerate() {
        let Some(token) = tokens.get(place) else {
            return Err(ImportError::short(line, format!("{} values, of which '{column}' is missing", columns.len())));
        };
        if column.starts_with("Device") {
            name = token.text;
            continue;
        }
        let value =
            human(token.text).ok_or_else(|| ImportError::at(line, *token, format!("a number for '{column}'")))?;
        values.push((column, value));
    }
    if values.iter().any(|(_, value)| *value >= IMPOSSIBLE) {
        return Err(ImportError::line(line, "possible figures: the counters of this device wrapped"));
    }
    let passed = state.passed();
    let seconds = passed as f64 / 1e9;
    let of = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let mut cells: Vec<(Column, Cell)> = Vec::new();
    // The rates are missing: by Little's law the rate is the queue length divided by the time per request.
    if let (None, None, None, Some(queue)) = (of("r"), of("w"), of("tps"), of("aqu-sz").or_else(|| of("avgqu-sz"))) {
        let waits = [of("await"), of("r_await"), of("w_await")];
        let each_ms = waits.iter().flatten().copied().fold(0.0, f64::max);
        let rate = if each_ms > 0.0 { queue * 1e3 / each_ms } else { 0.0 };
        // The tables of `-h` have a queue without a wait; the queue alone gives no rate.
        if waits.iter().any(Option::is_some) {
            cells.push((disks::REQUESTS, Cell::Rise(rate * seconds)));
            cells.push((disks::REQUEST_NS, Cell::Rise(rate * each_ms * 1e6 * seconds)));
        }
    }
    for &(name, value) in &values {
        let per_second = match name {
            "r" => (disks::READS, 1.0),
            "w" => (disks::WRITES, 1.0),
            "d" => (disks::DISCARDS, 1.0),
            "f" => (disks::FLUSHES, 1.0),
            "tps" => (disks::REQUESTS, 1.0),
            "rkB" | "kB_read" => (disks::READ_BYTES, 1024.0),
            "wkB" | "kB_wrtn" => (disks::WRITE_BYTES, 1024.0),
            "rMB" | "MB_read" => (disks::READ_BYTES, 1_048_576.0),
            "wMB" | "MB_wrtn" => (disks::WRITE_BYTES, 1_048_576.0),
            "rsec" | "Blk_read" => (disks::READ_BYTES, 512.0),
            "wsec" | "Blk_wrtn" => (disks::WRITE_BYTES, 512.0),
            "aqu-sz" | "avgqu-sz" => (disks::QUEUE_NS, 1e9),
            "util" => (disks::IO_NS, 1e7),
            // Milliseconds per request, times requests per second.
            "r_await" => (disks::READ_NS, of("r").unwrap_or(0.0) * 1e6),
            "f_await" => (disks::FLUSH_NS, of("f").unwrap_or(0.0) * 1e6),
            "w_await" => (disks::WRITE_NS, of("w").unwrap_or(0.0) * 1e6),
            "await" => (disks::REQUEST_NS, (of("r").unwrap_or(0.0) + of("w").unwrap_or(0.0)) * 1e6),
            _ => continue,
        };
        // `kB_read/s` comes before the total `kB_read`: the first column with a name is the rate.
        if cells.iter().all(|(known, _)| *known != per_second.0) {
            cells.push((per_second.0, Cell::Rise(value * per_second.1 * seconds)));
        }
    }
    state.row(b, Table::Disks, &Entity::named(name), &cells);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::disks;

    #[test]
    fn rows_with_wrapped_counters_are_ignored() {
        let text = "Device: rrqm/s wrqm/s r/s w/s rkB/s wkB/s avgrq-sz avgqu-sz await svctm %util\n\
            sda 0.00 0.00 10.00 5.00 1.0 1.0 17.0 2.0 0.3 0.1 90.0\n\
            sdb 0.00 0.00 10.00 5.00 18446744073709551.00 1.0 17.0 2.0 250.3 0.1 90.0\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let names: Vec<String> = recording
            .table(Table::Disks)
            .expect("disks")
            .by_entity()
            .map(|(entity, _)| entity.name.to_string())
            .collect();
        assert_eq!(names, ["sda"]);
    }

    #[test]
    fn rows_without_header_are_known_by_their_number_of_columns() {
        let reads = |text: &str| {
            let recording = import_texts(&[("f".to_owned(), text.into())]).ok()?.recording;
            let (_, rows) = recording.table(Table::Disks)?.by_entity().next()?;
            Some((rows.last(disks::READS)?, rows.last(disks::READ_NS)?))
        };
        let old = "vdb 0.00 2.50 480.00 1.50 33824.00 16.00 138.69 4.50 9.28 10.00 0.33 0.21 10.20\n";
        assert_eq!(reads(old), Some((480, 4_800_000_000)));
        let new = "sda 273.00 32568.00 0.00 0.00 8.00 119.30 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 \
            0.00 0.00 1.16 97.20\n";
        assert_eq!(reads(new), Some((273, 2_184_000_000)));
        assert_eq!(reads("sda 10.0 5.0 3.0 2.0 1.0\n"), None, "the columns of plain iostat are ambiguous");
    }

    #[test]
    fn rows_selected_by_grep_are_a_series() {
        let text = "Device: rrqm/s wrqm/s r/s w/s rMB/s wMB/s avgrq-sz avgqu-sz await r_await w_await svctm %util\n\
            sda 0.00 0.00 10.00 5.00 1.0 1.0 17.0 2.0 0.3 0.2 2.5 0.1 90.0\n\
            sda 0.00 0.00 20.00 5.00 1.0 1.0 17.0 2.0 0.3 0.2 2.5 0.1 90.0\n\
            sda 0.00 0.00 30.00 5.00 1.0 1.0 17.0 2.0 0.3 0.2 2.5 0.1 90.0\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let table = recording.table(Table::Disks).expect("disks");
        let (_, rows) = table.by_entity().next().expect("sda");
        assert_eq!(rows.last(disks::READS), Some(50), "the first row is the mean since boot, as in any first report");
    }
}
