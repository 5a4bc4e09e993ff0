//! Imports logs of other tools as recordings: [`import_files`] and [`import_texts`] return [`Imported`].
//!
//! An [`Importer`] reads one text format. Its `detect` scores how likely the lines at the [`text::Cursor`] begin that
//! format; its `read` consumes the lines that it understands and stops at the first other line. One file may therefore
//! hold many tables, separated by prompts, blank lines and breaks. [`IMPORTERS`] lists the formats; each is one file,
//! or one folder for a family.
//!
//! [`text::Text`] is a file without what pasting adds: mail quotes, wrapped rows, collectors' prefixes.
//!
//! [`Builder`] collects rows, calls, latencies and events; `finish` places them on one time axis.
//!
//! Invariants
//! - No input panics, and memory is bounded (see `source`, `text` and `builder`).
//! - A line that does not parse becomes a problem with its position, and a gap; reading continues.
//! - An assumed interval, unit or clock is always reported as a gap or a note.

pub mod anchors;
pub mod builder;
pub mod error;
pub mod number;
pub mod text;
pub mod when;

mod about;
mod app;
mod bcc;
mod block_trace;
mod by_command;
mod call_trace;
mod ceph;
mod chain;
mod container;
mod events;
mod folded;
mod foreign;
mod free;
mod health;
mod informix;
mod ioping;
mod iostat;
mod json;
mod kernel_files;
mod kernel_log;
mod kube_events;
mod kube_top;
mod latency_log;
mod means;
mod nfs;
mod node_exporter;
mod numactl;
mod numastat;
mod pcp;
mod perf_lock;
mod perf_sched;
mod pg_test_fsync;
mod pidstat;
mod postgres;
mod proc_pid;
mod profile;
mod registry;
mod rewrap;
mod sar;
mod settings;
mod single_call;
mod skim;
#[cfg(test)]
mod skim_agrees;
mod slabtop;
mod source;
mod syscall_trace;
mod tool;
mod undress;
mod unknown;
mod vmstat;
mod vmstat_modes;
mod writer_log;
mod zfs;
mod zpool;
mod zpool_latency;

use std::path::{Path, PathBuf};

pub use anchors::Anchor;
pub use builder::Builder;
use builder::Ignored;
pub use error::ImportError;
pub use registry::IMPORTERS;

pub use flatwater_recording::FormatKind;
use flatwater_recording::Recording;
use source::Source;
use text::{Bare, Cursor, LineCounts, Text, is_break};

/// One text format.
#[derive(Clone, Copy)]
pub struct Importer {
    /// Unique name, used in messages and by `flatwater import --list`.
    pub name: &'static str,
    /// What the format is, for the documentation.
    pub sentence: &'static str,
    /// What the format describes, and whether its figures can show that nothing is wrong.
    pub kind: FormatKind,
    /// Each line at which the format can begin has one of these. `detect` is called for no other line.
    pub anchors: &'static [Anchor],
    /// Scores how likely the lines at the cursor begin this format: 0 means no, 100 means certain.
    pub detect: fn(&Cursor<'_>) -> u8,
    /// Consumes the lines that it understands. An error means that the whole table cannot be read; a single bad line is
    /// a `Builder::problem` instead.
    pub read: fn(&mut Cursor<'_>, &mut Builder) -> Result<(), ImportError>,
}

impl std::fmt::Debug for Importer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Importer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The result of an import.
#[derive(Debug)]
pub struct Imported {
    pub recording: Recording,
    /// Pairs of file and format in the order of first appearance, without duplicates.
    pub formats: Vec<(String, &'static str)>,
    /// Pairs of file and problem. The problems are also gaps of the recording.
    pub problems: Vec<(String, ImportError)>,
}

/// Why an import produced no recording.
#[derive(Debug, thiserror::Error)]
pub enum ImportFailure {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("no known format in {files}: the first non-blank line is line {line}: '{shown}'; {hint}")]
    Unknown { files: String, line: u32, shown: String, hint: &'static str },
    #[error("{file} is not text: {say}")]
    Binary { file: String, say: &'static str },
    #[error("nothing to read: {files} is empty")]
    Empty { files: String },
    #[error(
        "{files} looks like {format}, but no row could be read: {first}; paste the whole table, with its \
         header"
    )]
    NothingRead { files: String, format: &'static str, first: ImportError },
}

/// Reads files (`-` is standard input) into one recording.
pub fn import_files(paths: &[PathBuf]) -> Result<Imported, ImportFailure> {
    let mut sources = Vec::new();
    for path in paths {
        let source = open(path).map_err(|error| ImportFailure::Unreadable { path: path.clone(), error })?;
        let name = if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() };
        sources.push((name, path.clone(), source));
    }
    import_sources(sources)
}

fn open(path: &Path) -> std::io::Result<Source<'static>> {
    if path.as_os_str() == "-" {
        return Ok(Source::new(std::io::stdin().lock()));
    }
    open_regular(path).map(Source::new)
}

/// Opens a log. Refuses everything but regular files: opening a FIFO without O_NONBLOCK blocks until a writer appears,
/// and a device may have no end.
fn open_regular(path: &Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let what = "not a regular file; pipe its content instead (`... | flatwater explain -`)";
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what))
}

/// From include/uapi/asm-generic/fcntl.h; x86 and arm64 use the same value.
const O_NONBLOCK: i32 = 0o4000;

/// Reads texts, each with a name, into one recording.
pub fn import_texts(texts: &[(String, Vec<u8>)]) -> Result<Imported, ImportFailure> {
    let sources = texts.iter().map(|(name, bytes)| (name.clone(), PathBuf::from(name), Source::new(bytes.as_slice())));
    import_sources(sources.collect())
}

/// State that is shared by all files of an import.
#[derive(Debug, Default)]
struct Reading {
    builder: Builder,
    formats: Vec<(String, &'static str)>,
    unknown: Option<(u32, String)>,
    /// The first line that is not blank. `unknown` does not cover paths and prompts, from which nothing is read either.
    begins: Option<(u32, String)>,
    binary: Option<(String, &'static str)>,
    hint: Option<&'static str>,
    /// Minimum size of a chunk to skim; `skim::CHUNK_BYTES_MIN` unless a test sets it.
    skim_from_bytes: Option<usize>,
}

fn import_sources(sources: Vec<(String, PathBuf, Source<'_>)>) -> Result<Imported, ImportFailure> {
    import_with(Reading::default(), sources)
}

fn import_with(mut reading: Reading, sources: Vec<(String, PathBuf, Source<'_>)>) -> Result<Imported, ImportFailure> {
    let files: Vec<String> = sources.iter().map(|(name, ..)| name.clone()).collect();
    for (name, path, mut source) in sources {
        reading.file(&name, &mut source).map_err(|error| ImportFailure::Unreadable { path, error })?;
    }
    let Reading { builder, formats, unknown, begins, binary, hint, .. } = reading;
    if formats.is_empty() {
        let files = files.join(", ");
        let hint = hint.unwrap_or("`flatwater import --list` names the formats");
        return Err(match (binary, unknown.or(begins)) {
            (Some((file, say)), _) => ImportFailure::Binary { file, say },
            (None, Some((line, shown))) => ImportFailure::Unknown { files, line, shown, hint },
            (None, None) => ImportFailure::Empty { files },
        });
    }
    let problems = builder.problems().to_vec();
    let recording = builder.finish(&files);
    if let (true, Some((_, first)), Some((_, format))) = (is_empty(&recording), problems.first(), formats.first()) {
        return Err(ImportFailure::NothingRead { files: files.join(", "), format, first: first.clone() });
    }
    Ok(Imported { recording, formats, problems })
}

impl Reading {
    fn file(&mut self, name: &str, source: &mut Source<'_>) -> std::io::Result<()> {
        if let Some(say) = foreign::of_bytes(source.head()?) {
            self.builder.gap(name, say, "");
            self.binary.get_or_insert((name.to_owned(), say));
            return Ok(());
        }
        self.builder.begin_file(name);
        let (mut unknown, mut number, mut cut_lines, mut cut_file) = (Unknown::default(), 1, 0, false);
        let mut dropped = Dropped::default();
        while let Some(bytes) = source.next()? {
            let skim_from = self.skim_from_bytes.unwrap_or(skim::CHUNK_BYTES_MIN);
            let skimmable = bytes.len() >= skim_from && !source.document && !foreign::is_wide(&bytes);
            let wanted = if self.builder.is_full() { skim::For::Reports } else { skim::For::All };
            let skimmed = if skimmable { skim::skim(&bytes, number, wanted) } else { None };
            let next = skimmed.as_ref().map(|left| left.next);
            let mut text = match skimmed {
                Some(left) => {
                    drop(bytes);
                    let of_kind = if wanted == skim::For::Reports { &mut dropped.unread } else { &mut dropped.lines };
                    *of_kind += left.dropped;
                    dropped.first = dropped.first.take().or(left.first_dropped);
                    Text::numbered(&left.bytes, left.numbers)
                }
                None => Text::from_line(&bytes, number),
            };
            if number == 1
                && let Some(lines) = text.cut_copy()
            {
                self.builder.ignore(Ignored::Copy, lines);
                let why = "it repeats the first half: the text was pasted twice and is read once";
                self.builder.gap(format!("the second half of {name}"), why, "");
            }
            if self.begins.is_none() {
                let lines = (0..text.len()).filter_map(|at| text.line(at));
                self.begins =
                    lines.filter(|line| !line.is_blank()).map(|line| (line.number, text::shown(line.text))).next();
            }
            if number == 1 {
                let hint = (0..5).filter_map(|at| text.line(at)).find_map(|line| foreign::of_line(line.text));
                self.hint = self.hint.or(hint);
            }
            // A chunk ends with a newline; the empty line after that newline is the first line of the next chunk.
            number = next.unwrap_or_else(|| text.next_number().saturating_sub(1).max(1));
            (cut_lines, cut_file) = (cut_lines + text.cut_lines, cut_file | text.cut_file);
            self.builder.ignore(Ignored::Marks, text.lone_marks);
            self.builder.keep_text(&text);
            read_sections(&text, &mut self.builder, &mut self.formats, &mut unknown, 0);
        }
        if cut_file || source.cut {
            let why = "the file is longer than 16 GiB, or is JSON of more than 256 MiB";
            self.builder.gap(format!("the end of {name}"), why, "import it in parts");
        }
        if cut_lines > 0 {
            self.builder.gap(format!("{cut_lines} lines of {name}"), "longer than 1 MiB: cut", "");
        }
        if dropped.unread > 0 {
            let why = "the recording is full: these lines were only searched for reports of the kernel";
            self.builder.gap(format!("{} lines of {name}", dropped.unread), why, "import the log in parts");
        }
        self.skimmed(name, dropped, &mut unknown);
        if let Some((line, shown)) = &unknown.first
            && self.formats.iter().any(|(file, _)| file == name)
        {
            let why = format!("no known format; the first is line {line}: '{shown}'");
            self.builder.gap(format!("{} lines of {name}", unknown.lines), why, "");
        }
        self.builder.end_file();
        self.unknown = self.unknown.take().or(unknown.first);
        Ok(())
    }
}

impl Reading {
    /// Counts the lines that skimming dropped: as passed over if the file has a known format, else as unknown.
    fn skimmed(&mut self, name: &str, dropped: Dropped, unknown: &mut Unknown) {
        let Some((number, shown)) = dropped.first else { return };
        self.builder.skimmed_lines(Ignored::Full, dropped.unread);
        if self.formats.iter().rev().any(|(file, _)| file == name) {
            self.builder.skimmed_lines(Ignored::Skimmed, dropped.lines);
            return;
        }
        self.builder.missed_lines(number, &shown, dropped.lines);
        unknown.lines = unknown.lines.saturating_add(u32::try_from(dropped.lines).unwrap_or(u32::MAX));
        if unknown.first.as_ref().is_none_or(|(line, _)| *line > number) {
            unknown.first = Some((number, shown));
        }
    }
}

/// Lines of a file that skimming dropped.
#[derive(Debug, Default)]
struct Dropped {
    /// Lines without a word of a format.
    lines: u64,
    /// Lines that were dropped because the recording was full.
    unread: u64,
    /// Number and text of the first of them.
    first: Option<(u32, String)>,
}

/// Whether no data was read. Explaining such a recording would conclude `quiet`, although no row was readable.
fn is_empty(recording: &Recording) -> bool {
    let Recording { header, latency, calls, stacks, series, events, outcomes, .. } = recording;
    let nothing = latency.is_empty()
        && header.sampled_tasks.is_empty()
        && header.setup.is_empty()
        && calls.is_empty()
        && stacks.is_empty()
        && outcomes.is_empty();
    nothing && events.is_empty() && series.iter().all(flatwater_recording::Series::is_empty)
}

/// Counts the lines that no importer knows.
#[derive(Debug, Default)]
struct Unknown {
    lines: u32,
    first: Option<(u32, String)>,
    /// Length of the current run of unknown lines.
    run: u32,
    /// Rows of figures in this run after its first `RUN_MAX` lines, indexed by number of columns.
    rows: Vec<u32>,
}

/// After this many unknown lines in a row, importers are asked only about lines that contain a text of some format,
const RUN_MAX: u32 = 2000;
/// and about rows of figures: about this many rows for each number of columns,
const ROWS_MAX: u32 = 64;
/// then about one row in this many. Figures may belong to many importers.
const ROWS_SELDOM: u32 = 64;
const COLUMNS_MAX: usize = 64;

impl Unknown {
    /// Whether to ask the importers about this line, which follows `RUN_MAX` unknown lines or more.
    fn asks(&mut self, text: &str) -> bool {
        // `//` and `/*` begin comments, not paths.
        let path = text.strip_prefix('/').is_some_and(|rest| !rest.starts_with(['/', '*', ' ']));
        if path || text.starts_with(['$', '[']) || anchors::is_kept(text) {
            return true;
        }
        let digits = text.bytes().filter(u8::is_ascii_digit).count();
        if digits * 3 < text.len() {
            return false;
        }
        let columns = text.split_whitespace().take(COLUMNS_MAX).count();
        self.rows.resize(COLUMNS_MAX + 1, 0);
        let Some(rows) = self.rows.get_mut(columns) else { return true };
        *rows = rows.saturating_add(1);
        *rows <= ROWS_MAX || *rows % ROWS_SELDOM == 0
    }

    /// Ends the run of unknown lines.
    fn end_run(&mut self) {
        self.run = 0;
        self.rows.clear();
    }
}

/// Maximum depth of nested prefixes, such as a container's lines that a collector forwards and `grep` prints.
const PREFIXES_MAX: usize = 3;

/// Reads all sections of a text. `depth` is the number of prefixes that were removed from its lines.
fn read_sections(
    text: &Text,
    builder: &mut Builder,
    formats: &mut Vec<(String, &'static str)>,
    unknown: &mut Unknown,
    depth: usize,
) {
    let mut cursor = Cursor::new(text);
    // Number of the first blank line directly above the cursor.
    let mut blank_from = None;
    // Lines before this position were already read without their prefix, and no format was found.
    let mut prefixed_until = 0;
    let mut tried = undress::Tried::default();
    while let Some(line) = cursor.peek() {
        if line.is_blank() {
            blank_from.get_or_insert(line.number);
            builder.ignore(Ignored::Marks, u64::from(line.lines));
            cursor.take();
            continue;
        }
        let above = blank_from.take().unwrap_or(line.number);
        if unknown.run >= RUN_MAX && !unknown.asks(line.text) {
            builder.missed_line(&line, above);
            unknown.lines = unknown.lines.saturating_add(1);
            cursor.take();
            continue;
        }
        if depth < PREFIXES_MAX
            && let Some(bare) = undress::better(&cursor, builder, &mut tried, depth)
        {
            read_bare(&bare, builder, formats, unknown, depth);
            cursor.take_lines(bare.lines);
        } else if let Some(format) = by_command::value(line.text, builder) {
            // Before `when::stamp`: a limit of 1 GiB (1073741824) is also a time in 2004.
            cursor.take();
            let lines = LineCounts { text: u64::from(line.lines), ..LineCounts::default() };
            builder.end_section(format, lines, (line.number, line.number));
            remember(format.0, builder, formats);
        } else if let Some(moment) = when::stamp(line.text) {
            builder.context_mut().moment = Some(moment);
            builder.understood_line(&line);
            cursor.take();
        } else if is_break(line.text) {
            builder.ignore(Ignored::Break, u64::from(line.lines));
            cursor.take();
        } else if let Some(importer) = best(&cursor) {
            let before = cursor;
            let when = cursor.when();
            let context = builder.context_mut();
            context.moment = when.or(context.moment);
            read_section(importer, &mut cursor, builder);
            builder.end_section((importer.name, importer.kind), before.lines_to(&cursor), before.numbers_to(&cursor));
            remember(importer.name, builder, formats);
            unknown.end_run();
        } else {
            if depth < PREFIXES_MAX && cursor.position() >= prefixed_until {
                let (lines, read) = read_prefixed(&cursor, builder, formats, unknown, depth);
                if read {
                    cursor.take_lines(lines);
                    continue;
                }
                prefixed_until = cursor.position() + lines;
            }
            unknown::unknown_line(line, above, builder, unknown);
            cursor.take();
        }
    }
}

/// Adds the pair of file and format unless it is already there.
fn remember(read: &'static str, builder: &Builder, formats: &mut Vec<(String, &'static str)>) {
    let name = builder.file_name();
    // The formats of a file follow each other.
    if !formats.iter().rev().take_while(|(file, _)| file == name).any(|(_, format)| *format == read) {
        formats.push((name.to_owned(), read));
    }
}

/// Reads the lines from the cursor on that share a collector's prefix, without the prefix, if any of them has a known
/// format. Returns the number of lines with the prefix and whether they were read.
fn read_prefixed(
    cursor: &Cursor<'_>,
    builder: &mut Builder,
    formats: &mut Vec<(String, &'static str)>,
    unknown: &mut Unknown,
    depth: usize,
) -> (usize, bool) {
    let Some(bare) = cursor.text().without_prefix(cursor.position()) else { return (0, false) };
    let mut inner = Cursor::new(&bare.text);
    let mut known = false;
    while inner.peek().is_some() && !known {
        known = best(&inner).is_some() || (depth + 1 < PREFIXES_MAX && inner.text().has_prefix(inner.position()));
        inner.take();
    }
    if known {
        read_bare(&bare, builder, formats, unknown, depth);
    }
    (bare.lines, known)
}

/// Reads lines whose prefix or marks were removed.
fn read_bare(
    bare: &Bare,
    builder: &mut Builder,
    formats: &mut Vec<(String, &'static str)>,
    unknown: &mut Unknown,
    depth: usize,
) {
    let context = builder.context_mut();
    context.moment = bare.when.or(context.moment);
    context.command = bare.file.as_ref().map(|path| format!("cat {path}")).or(context.command.take());
    let whole = rewrap::whole(&bare.text).map(|mut text| {
        text.respace();
        text
    });
    read_sections(whole.as_ref().unwrap_or(&bare.text), builder, formats, unknown, depth + 1);
}

fn best(cursor: &Cursor<'_>) -> Option<&'static Importer> {
    known(cursor).map(|(_, importer)| importer)
}

/// Whether the lines at the cursor are of another format than this importer's.
fn is_of_another(cursor: &Cursor<'_>, own: &Importer) -> bool {
    best(cursor).is_some_and(|importer| importer.name != own.name)
}

/// The importer with the highest score for the lines at the cursor, and that score.
fn known(cursor: &Cursor<'_>) -> Option<(u8, &'static Importer)> {
    // In mixed logs each importer asks which importer the next line belongs to, and so does `read_sections`.
    cursor.text().asked_once(cursor.position(), || {
        let mut best = None;
        for importer in anchors::importers_at(cursor).iter() {
            let score = (importer.detect)(cursor);
            // For equal scores the importer that is first in the registry wins.
            if score > best.map_or(0, |(highest, _)| highest) {
                best = Some((score, importer));
            }
        }
        best
    })
}

/// Runs one importer. A line that it detects and does not consume is not understood.
pub fn read_section(importer: &Importer, cursor: &mut Cursor<'_>, builder: &mut Builder) {
    let before = *cursor;
    let mut context = builder.context().clone();
    if let Err(error) = (importer.read)(cursor, builder) {
        builder.problem(error);
    }
    if cursor.position() <= before.position()
        && let Some(line) = cursor.take()
    {
        builder.stumble(line.number, line.text);
    }
    for line in (before.position()..cursor.position()).filter_map(|at| cursor.text().line(at)) {
        context.line(line.text);
    }
    *builder.context_mut() = context;
}

#[cfg(test)]
mod tests {
    use super::{IMPORTERS, Unknown, import_texts};

    #[test]
    fn names_are_unique_and_sentences_end() {
        for (at, importer) in IMPORTERS.iter().enumerate() {
            assert!(IMPORTERS.iter().skip(at + 1).all(|other| other.name != importer.name), "{}", importer.name);
            assert!(importer.sentence.ends_with('.'), "{}", importer.name);
        }
    }

    #[test]
    fn an_unknown_format_is_refused_with_its_line() {
        let refuse = |text: &str| import_texts(&[("f".to_owned(), text.into())]).expect_err(text).to_string();
        assert!(refuse("\nDear list,\n").contains("line 2: 'Dear list,'"), "{}", refuse("\nDear list,\n"));
        assert!(refuse("\n\n").contains("is empty"));
        let paths = refuse("\n/usr/share/a\n/usr/share/b\n");
        assert!(paths.contains("line 2: '/usr/share/a'"), "{paths}");
    }

    #[test]
    fn after_a_long_unknown_run_importers_see_few_rows_of_figures() {
        let mut unknown = Unknown::default();
        let asked = |unknown: &mut Unknown, row: &str, rows: u32| (0..rows).filter(|_| unknown.asks(row)).count();
        assert_eq!(asked(&mut unknown, "1 2 3 4 5 6", 64_000), 64 + 999);
        assert_eq!(asked(&mut unknown, "1 0 0 500000 40000", 60), 60, "other columns are another table");
        assert_eq!(asked(&mut unknown, "procs swpd 1 2 3 4", 900), 900, "known words are always asked about");
        unknown.end_run();
        assert_eq!(asked(&mut unknown, "1 2 3 4 5 6", 64), 64);
    }
}
