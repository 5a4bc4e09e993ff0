//! `flatwater precursor cat|tail FILE`: prints the records of a framed file or pattern.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use flatwater_recording::printable;
use flatwater_recording::units::Bytes;
use precursor::{ReadError, Reader, Record, Seek};

use super::message::{number, say};
use super::stop::{AtOnce, on_signal};
use crate::status::Status;

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Print the records of a framed file of the library, and end.
    Cat(Args),
    /// Print the records that are appended from now on, until ^C.
    Tail(Args),
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A framed file, or a pattern with {} for an eight-digit number.
    file: PathBuf,
    /// Begin at the first record that ends after this position, in bytes.
    #[arg(long, value_name = "POSITION", value_parser = number(0_u64, u64::MAX), group = "begin")]
    after: Option<u64>,
    /// Begin at the record with this number.
    #[arg(long, value_name = "NUMBER", value_parser = number(0_u64, u64::MAX), group = "begin")]
    number: Option<u64>,
    /// Begin at the first record of this time or later, in ns since 1970.
    #[arg(long, value_name = "NS", value_parser = number(0_u64, u64::MAX), group = "begin")]
    time_ns: Option<u64>,
    /// Print number, time (ns since 1970), position and length before each record.
    #[arg(long)]
    heads: bool,
    /// Print the records' bytes only, without a line break behind each record.
    #[arg(long, conflicts_with = "heads")]
    raw: bool,
    /// Longest record to read.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    longest: Bytes,
}

pub fn run(verb: &Verb) -> anyhow::Result<Status> {
    match verb {
        Verb::Cat(args) => cat(args),
        Verb::Tail(args) => tail(args),
    }
}

fn open(args: &Args, otherwise: Seek) -> Result<Reader, ReadError> {
    let mut reader = Reader::open(&args.file)?;
    reader.record_bytes_max(usize::try_from(args.longest.0).unwrap_or(usize::MAX));
    let begin = [args.after.map(Seek::After), args.number.map(Seek::Number), args.time_ns.map(Seek::TimeNs)];
    reader.seek(begin.into_iter().flatten().next().unwrap_or(otherwise))?;
    Ok(reader)
}

/// Whether the file, or a file of the pattern, exists.
fn exists(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((head, tail)) = name.split_once("{}") else { return file.exists() };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).any(|name| {
        name.strip_prefix(head)
            .and_then(|name| name.strip_suffix(tail))
            .is_some_and(|number| number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Prints records and remembers whether something was missing.
struct Out<'a> {
    args: &'a Args,
    to: BufWriter<std::io::StdoutLock<'static>>,
    terminal: bool,
    incomplete: bool,
}

impl<'a> Out<'a> {
    fn new(args: &'a Args) -> Out<'a> {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        Out { args, to: BufWriter::new(stdout.lock()), terminal, incomplete: false }
    }

    fn record(&mut self, record: &Record<'_>) -> std::io::Result<()> {
        if self.args.heads {
            let time = record.time_ns.map_or("-".to_owned(), |time| time.to_string());
            let (position, len) = (record.position.bytes(), record.bytes.len());
            write!(self.to, "{} {time} {position} {len} ", record.number)?;
        }
        match self.terminal {
            // Control characters of a record must not reach the terminal.
            true => self.to.write_all(printable::output(&String::from_utf8_lossy(record.bytes)).as_bytes())?,
            false => self.to.write_all(record.bytes)?,
        }
        if self.args.raw { Ok(()) } else { self.to.write_all(b"\n") }
    }

    /// A gap is reported, and reading continues behind it.
    fn gap(&mut self, error: ReadError) -> Result<(), ReadError> {
        if !matches!(error, ReadError::Missing { .. }) {
            return Err(error);
        }
        self.incomplete = true;
        say(format_args!("flatwater: {error}"));
        Ok(())
    }
}

fn cat(args: &Args) -> anyhow::Result<Status> {
    anyhow::ensure!(
        exists(&args.file),
        "{} does not exist; give a framed file, or a pattern with {{}}",
        args.file.display()
    );
    let mut reader = open(args, Seek::First)?;
    let mut out = Out::new(args);
    loop {
        match reader.next() {
            Ok(Some(record)) => out.record(&record)?,
            Ok(None) => break,
            Err(error) => {
                out.to.flush()?;
                out.gap(error)?;
            }
        }
    }
    out.to.flush()?;
    let unread = reader.unread_bytes()?;
    if unread > 0 {
        out.incomplete = true;
        say(format_args!(
            "flatwater: the last {unread} bytes of {} are not whole records: a torn tail, or damage",
            args.file.display()
        ));
    }
    Ok(if out.incomplete { Status::Failed } else { Status::Done })
}

fn tail(args: &Args) -> anyhow::Result<Status> {
    let stop = on_signal(AtOnce::Leave)?.flag;
    let mut reader = open(args, Seek::End)?;
    let mut out = Out::new(args);
    while !stop.load(Ordering::Relaxed) {
        match reader.next_within(Duration::ZERO) {
            Ok(Some(record)) => {
                out.record(&record)?;
                continue;
            }
            Ok(None) => out.to.flush()?,
            Err(error) => out.gap(error)?,
        }
        match reader.next_within(Duration::from_millis(100)) {
            Ok(Some(record)) => out.record(&record)?,
            Ok(None) => {}
            Err(error) => out.gap(error)?,
        }
    }
    out.to.flush().context("write to standard output")?;
    Ok(if out.incomplete { Status::Failed } else { Status::Done })
}
