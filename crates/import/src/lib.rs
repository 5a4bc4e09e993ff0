//! Logs that people already have, as recordings.
//!
//! Each format is one file (or one folder for a family) with two functions: `detect` says how surely the lines at
//! the cursor begin that format, `read` takes the lines it understands and stops at the first that is not its own. So
//! one file may hold many tables one after another, with prompts, blank lines and breaks between them.
//!
//! Invariants
//! - No input panics, and what is held is bounded (`text`, `builder` say how).
//! - Reading never gives up on what it has: a line that does not fit is a problem with its place, and a gap.
//! - Nothing is guessed in silence: an assumed interval, unit or clock is a gap or a note.

pub mod builder;
pub mod error;
pub mod number;
pub mod text;
pub mod when;

mod bcc;
mod call_trace;
mod events;
mod foreign;
mod free;
mod informix;
mod iostat;
mod json;
mod kernel_files;
mod kernel_log;
mod latency_log;
mod node_exporter;
mod numactl;
mod numastat;
mod perf_lock;
mod pidstat;
mod postgres;
mod registry;
mod sar;
mod single_call;
mod slabtop;
mod vmstat;
mod vmstat_modes;
mod writer_log;

use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use builder::Builder;
pub use error::ImportError;
pub use registry::IMPORTERS;

use flatwater_recording::Recording;
use text::{Cursor, Line, Text, is_break, shown};

/// One text format.
#[derive(Clone, Copy)]
pub struct Importer {
    /// Unique; what `--as` and messages call it.
    pub name: &'static str,
    /// What it reads, for the documentation.
    pub sentence: &'static str,
    /// How surely the lines at the cursor begin this format: 0 not at all, 100 nothing else looks like it.
    pub detect: fn(&Cursor<'_>) -> u8,
    /// Takes the lines it understands. An error is for what stops the whole table; single bad lines are
    /// `Builder::problem`s.
    pub read: fn(&mut Cursor<'_>, &mut Builder) -> Result<(), ImportError>,
}

impl std::fmt::Debug for Importer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Importer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What came of an import.
#[derive(Debug)]
pub struct Imported {
    pub recording: Recording,
    /// File and format, in the order in which they were met; each pair once.
    pub formats: Vec<(String, &'static str)>,
    /// File and problem. They are gaps of the recording too.
    pub problems: Vec<(String, ImportError)>,
}

/// Why nothing could be imported at all.
#[derive(Debug, thiserror::Error)]
pub enum ImportFailure {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("no known format in {files}: the first line that says anything is line {line}: '{shown}'; {hint}")]
    Unknown { files: String, line: u32, shown: String, hint: &'static str },
    #[error("{file} is no text: {say}")]
    Binary { file: String, say: &'static str },
    #[error("nothing to read: {files} holds no text")]
    Empty { files: String },
    #[error(
        "{files} was taken for {format}, but not one of its rows could be read: {first}; paste the table whole, with its \
         header"
    )]
    NothingRead { files: String, format: &'static str, first: ImportError },
}

/// Reads files (`-` is standard input) and joins them.
pub fn import_files(paths: &[PathBuf]) -> Result<Imported, ImportFailure> {
    let mut texts = Vec::new();
    for path in paths {
        let bytes = read_bounded(path).map_err(|error| ImportFailure::Unreadable { path: path.clone(), error })?;
        let name = if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() };
        texts.push((name, bytes));
    }
    import_texts(&texts)
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    // One byte more than is kept, so that `Text` can tell that the file was cut.
    let limit = text::FILE_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        open_regular(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Opens a log that somebody named. Without O_NONBLOCK the mere opening of a FIFO that nobody writes would hang; a device
/// may have no end.
fn open_regular(path: &Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let what = "it is no regular file; pipe it in instead (`... | flatwater explain -`)";
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what))
}

/// include/uapi/asm-generic/fcntl.h; the same on x86 and arm64.
const O_NONBLOCK: i32 = 0o4000;

/// Joins texts, each with its name, into one recording.
pub fn import_texts(texts: &[(String, Vec<u8>)]) -> Result<Imported, ImportFailure> {
    let mut builder = Builder::default();
    let mut formats = Vec::new();
    let mut unknown: Option<(u32, String)> = None;
    let mut binary: Option<(String, &'static str)> = None;
    let mut hint = "`flatwater import --list` names the formats";
    for (name, bytes) in texts {
        if let Some(say) = foreign::of_bytes(bytes) {
            builder.gap(name.clone(), say, "");
            binary.get_or_insert((name.clone(), say));
            continue;
        }
        let text = Text::new(bytes);
        let first = read_text(&text, name, &mut builder, &mut formats);
        let told = (0..5).filter_map(|at| text.line(at)).find_map(|line| foreign::of_line(line.text));
        hint = told.filter(|_| first.is_some()).unwrap_or(hint);
        unknown = unknown.or(first);
    }
    let files: Vec<String> = texts.iter().map(|(name, _)| name.clone()).collect();
    if formats.is_empty() {
        let files = files.join(", ");
        return Err(match (binary, unknown) {
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

/// A format was recognised and nothing came of it: to explain that would say `quiet` of rows that nobody could read.
fn is_empty(recording: &Recording) -> bool {
    let Recording { latency, calls, stacks, series, events, outcomes, .. } = recording;
    let nothing = latency.is_empty() && calls.is_empty() && stacks.is_empty() && outcomes.is_empty();
    nothing && events.is_empty() && series.iter().all(flatwater_recording::Series::is_empty)
}

/// Lines that no importer knows.
#[derive(Debug, Default)]
struct Unknown {
    lines: u32,
    first: Option<(u32, String)>,
}

/// Reads one text; returns its first line that nobody knew.
fn read_text(
    text: &Text,
    name: &str,
    builder: &mut Builder,
    formats: &mut Vec<(String, &'static str)>,
) -> Option<(u32, String)> {
    builder.begin_file(name);
    let mut cursor = Cursor::new(text);
    let mut unknown = Unknown::default();
    // The first of the blank lines right above.
    let mut blank_from = None;
    while let Some(line) = cursor.peek() {
        if line.is_blank() {
            blank_from.get_or_insert(line.number);
            cursor.take();
            continue;
        }
        let above = blank_from.take().unwrap_or(line.number);
        if let Some(moment) = when::stamp(line.text) {
            builder.moment = Some(moment);
            builder.understood_line();
            cursor.take();
        } else if is_break(line.text) {
            builder.elided = true;
            cursor.take();
        } else if let Some(importer) = best(&cursor) {
            let before = cursor;
            read_section(importer, &mut cursor, builder);
            builder.end_section(importer.name, before.lines_to(&cursor));
            if !formats.iter().any(|(file, format)| file == name && *format == importer.name) {
                formats.push((name.to_owned(), importer.name));
            }
            builder.elided = false;
        } else {
            unknown_line(line, above, builder, &mut unknown);
            cursor.take();
        }
    }
    if text.cut_file {
        builder.gap(
            format!("the end of {name}"),
            "the file is longer than 256 MiB or 8 million lines",
            "import it in pieces",
        );
    }
    if text.cut_lines > 0 {
        builder.gap(format!("{} lines of {name}", text.cut_lines), "longer than 1 MiB: cut", "");
    }
    if let Some((line, shown)) = &unknown.first
        && formats.iter().any(|(file, _)| file == name)
    {
        let why = format!("no known format; the first is line {line}: '{shown}'");
        builder.gap(format!("{} lines of {name}", unknown.lines), why, "");
    }
    builder.end_file();
    unknown.first
}

fn best(cursor: &Cursor<'_>) -> Option<&'static Importer> {
    let scores = IMPORTERS.iter().map(|importer| ((importer.detect)(cursor), importer));
    // The first of equals: the registry's order decides.
    scores.rev().max_by_key(|(score, _)| *score).filter(|(score, _)| *score > 0).map(|(_, importer)| importer)
}

/// Runs one importer and makes sure that it moved.
pub fn read_section(importer: &Importer, cursor: &mut Cursor<'_>, builder: &mut Builder) {
    let before = cursor.position();
    if let Err(error) = (importer.read)(cursor, builder) {
        builder.problem(error);
    }
    if cursor.position() <= before {
        cursor.take();
    }
}

/// Typed text round the tables is no evidence lost: prompts are remembered, short separators forgotten.
fn unknown_line(line: Line<'_>, blank_from: u32, builder: &mut Builder, unknown: &mut Unknown) {
    if let Some(command) = prompt(line.text) {
        builder.understood_line();
        builder.command = Some(command.to_owned());
        return;
    }
    // head, tail and grep print the file's path over its lines.
    let path = line.text.trim().trim_start_matches("==>").trim_end_matches("<==").trim().trim_end_matches(':');
    if path.starts_with('/') && !path.contains(char::is_whitespace) {
        builder.understood_line();
        builder.command = Some(format!("cat {path}"));
        return;
    }
    // trace-cmd and perf print the number of CPUs first.
    // bcc and bpftrace say what they do and echo the key that ended them.
    let said = ["cpus=", "^C", "Tracing ", "Attaching "].iter().any(|start| line.text.trim_start().starts_with(start));
    if line.text.chars().all(|c| !c.is_alphanumeric()) || said {
        return;
    }
    builder.missed_line(&line, blank_from);
    unknown.lines += 1;
    unknown.first.get_or_insert_with(|| (line.number, shown(line.text)));
}

/// The command after a shell prompt: `$ vmstat 5`, `root@db:~# free -m`, `[me@host dir]$ sar -B`.
fn prompt(text: &str) -> Option<&str> {
    let text = text.trim();
    let at = text.find(['$', '#', '%'])?;
    let (before, after) = text.split_at_checked(at)?;
    let command = after.get(1..)?.strip_prefix(' ')?.trim();
    let before = before.trim();
    let shell = before.is_empty() || before.contains('@') || before.ends_with(['~', ']', '/', ':']);
    (shell && !command.is_empty()).then_some(command)
}

#[cfg(test)]
mod tests {
    use super::text::is_break;
    use super::{IMPORTERS, import_texts, prompt};

    #[test]
    fn prompts_and_breaks() {
        assert_eq!(prompt("$ vmstat 5"), Some("vmstat 5"));
        assert_eq!(prompt("root@db1:~# free -m"), Some("free -m"));
        assert_eq!(prompt("[me@host dir]$ sar -B 5"), Some("sar -B 5"));
        assert_eq!(prompt("100% of cases"), None);
        for text in ["...", "[...]", "…..", "<snip>", "--- ... ---"] {
            assert!(is_break(text), "{text}");
        }
        assert!(!is_break("a..."));
    }

    #[test]
    fn names_are_unique_and_sentences_end() {
        for (at, importer) in IMPORTERS.iter().enumerate() {
            assert!(IMPORTERS.iter().skip(at + 1).all(|other| other.name != importer.name), "{}", importer.name);
            assert!(importer.sentence.ends_with('.'), "{}", importer.name);
        }
    }

    #[test]
    fn what_nobody_knows_is_refused_with_its_place() {
        let refuse = |text: &str| import_texts(&[("f".to_owned(), text.into())]).expect_err(text).to_string();
        assert!(refuse("\nDear list,\n").contains("line 2: 'Dear list,'"), "{}", refuse("\nDear list,\n"));
        assert!(refuse("\n\n").contains("holds no text"));
    }
}
