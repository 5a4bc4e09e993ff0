//! The command line, one verb per operation. Exit status: 0 done, 1 failed, 2 usage, 3 not proven.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use chrono::Utc;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use flatwater_experiment::verdict::Verdict;
use flatwater_recording::printable;
use flatwater_recording::summary::HourStart;
use flatwater_recording::units::Bytes;
#[cfg(feature = "ask")]
use flatwater_recording::units::Nanos;

#[cfg(feature = "ballista")]
use crate::ask::Cluster;
use crate::ask::{Format, Question, json_for_terminals};
#[cfg(feature = "ask")]
use crate::ask::{Limits, Session};
use crate::judge::{Changed, Facts, findings, rollout};
use crate::tables::Engine;
use crate::time::{self, Range};
use crate::{Fleet, FleetError, compact, generate, input, push, report, tables};

/// Find which hosts, kernels and settings stall and why, and whether a rollout helped.
#[derive(Debug, Parser)]
#[command(name = "flatwater-fleet", version, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Copy summaries and recordings of this host into the store.
    Push {
        /// A directory, or s3://bucket/prefix, gs://..., az://...
        fleet: String,
        /// Summaries, recordings, and directories of them (/var/lib/flatwater/recordings).
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Also copy the recordings themselves.
        #[arg(long)]
        recordings: bool,
        /// Maximum bytes per second (4MiB).
        #[arg(long, value_name = "SIZE")]
        bandwidth: Option<Bytes>,
    },
    /// Merge the summaries that hosts pushed into a few sorted files per hour.
    Compact {
        fleet: String,
        #[command(flatten)]
        range: RangeArgs,
        /// Remove compacted rows and recordings that are older than this (400d).
        #[arg(long, value_name = "AGE")]
        keep: Option<String>,
    },
    /// Answer a named question; without a name, list the questions.
    #[cfg(feature = "ask")]
    Ask {
        fleet: String,
        #[command(flatten)]
        asked: QuestionArgs,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Answer your own SQL over `stalls`, `hours`, `stall_sums`, `host_sums` and `summary`.
    #[cfg(feature = "ask")]
    Sql {
        fleet: String,
        sql: String,
        #[command(flatten)]
        range: RangeArgs,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Print the SQL of a named question, for another engine; without a name, list the questions.
    Questions(QuestionArgs),
    /// Print everything that is significant at 95 %: kernels and settings that cost time, jobs that make others wait,
    /// dark hosts.
    Findings {
        fleet: String,
        #[command(flatten)]
        range: RangeArgs,
        /// Format: text or json.
        #[arg(long, default_value = "text", value_parser = text_or_json(), alias = "output", short_alias = 'O')]
        format: Format,
    },
    /// Judge a rollout as better, worse or not proven: changed hosts before and after, compared with unchanged hosts.
    Rollout {
        fleet: String,
        #[command(flatten)]
        change: ChangeArgs,
        /// Format: text or json.
        #[arg(long, default_value = "text", value_parser = text_or_json(), alias = "output", short_alias = 'O')]
        format: Format,
    },
    /// Write one HTML page: hosts by hour, causes over time, a rollout.
    Report {
        fleet: String,
        /// Write to this file.
        #[arg(short = 'o', long = "out", value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        range: RangeArgs,
        /// A rollout to show: what changed.
        #[arg(long, requires = "at", value_name = "WHAT")]
        changed: Option<String>,
        /// A rollout to show: when.
        #[arg(long, requires = "changed", value_name = "TIME")]
        at: Option<String>,
    },
    /// Print the statements that create the tables in another engine.
    Tables {
        fleet: String,
        #[arg(long, value_enum)]
        engine: Engine,
    },
    /// Write a synthetic fleet, and print the facts planted in it as JSON.
    Generate {
        fleet: String,
        #[arg(long, default_value_t = 100)]
        hosts: u32,
        #[arg(long, default_value_t = 24)]
        hours: i64,
        /// The first hour.
        #[arg(long, default_value = "2026-11-20")]
        from: String,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Write compacted files instead of the summaries that hosts push.
        #[arg(long)]
        compacted: bool,
        /// Summaries of recordings from which to take the duration of calls.
        #[arg(long, value_name = "FILE")]
        like: Vec<PathBuf>,
    },
}

/// The formats of verbs that print no rows.
fn text_or_json() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(["text", "json"]).map(|name| if name == "json" { Format::Json } else { Format::Text })
}

#[derive(Debug, clap::Args)]
struct RangeArgs {
    /// First hour: 2026-11-22, 2026-11-22T02:00, 36h or 7d ago [default: a day before the end].
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// End of the range [default: now].
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

// A question and its range: `ask` answers it, `questions` prints it. (A doc comment here would replace those of the
// verbs.)
#[derive(Debug, clap::Args)]
struct QuestionArgs {
    question: Option<String>,
    /// Parameters, name=value.
    parameters: Vec<String>,
    #[command(flatten)]
    range: RangeArgs,
    /// Directory with your own questions, NAME.sql.
    #[arg(long, value_name = "DIR")]
    questions: Option<PathBuf>,
}

/// A question with its parameters filled in.
struct Asked {
    #[cfg_attr(not(feature = "ask"), expect(dead_code, reason = "used only to print answers"))]
    about: String,
    sql: String,
    #[cfg_attr(not(feature = "ask"), expect(dead_code, reason = "used only to answer"))]
    range: Range,
}

impl QuestionArgs {
    /// `None` if no question is named.
    fn asked(&self) -> Result<Option<Asked>, FleetError> {
        let Some(name) = &self.question else { return Ok(None) };
        let question = Question::find(name, self.questions.as_deref())?;
        let range = range_of(&self.range, question.range_hours.unwrap_or(24))?;
        let sql = question.sql(&pairs(&self.parameters)?, range)?;
        Ok(Some(Asked { about: question.about, sql, range }))
    }
}

#[cfg(feature = "ask")]
#[derive(Debug, clap::Args)]
struct AnswerArgs {
    /// Format of the answer.
    #[arg(long, value_enum, default_value = "text", alias = "output", short_alias = 'O')]
    format: Format,
    /// Write to this file.
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Maximum memory for a question.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Bytes,
    /// Answer on a cluster: Ballista's scheduler, df://HOST:PORT.
    #[arg(long, value_name = "URL")]
    on: Option<String>,
    /// Maximum time for the cluster.
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "on")]
    wait: Nanos,
}

#[derive(Debug, clap::Args)]
struct ChangeArgs {
    /// A setting (vm.dirty_bytes, or vm.dirty_bytes=268435456), kernel, kernel=6.12.9, or a file with one host per
    /// line.
    #[arg(long, value_name = "WHAT")]
    changed: String,
    /// Time of the change: the hours before are compared with the hours after.
    #[arg(long, value_name = "TIME")]
    at: String,
    /// Hours before.
    #[arg(long, default_value_t = 24)]
    before: i64,
    /// Hours after.
    #[arg(long, default_value_t = 24)]
    after: i64,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime.context("cannot start threads").and_then(|runtime| runtime.block_on(run(cli.verb)));
    done.unwrap_or_else(|error| {
        let pipe = error.downcast_ref::<std::io::Error>();
        if pipe.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        // The message may contain names from other hosts.
        for line in format!("flatwater-fleet: {error:#}").lines() {
            eprintln!("{}", printable::line(line));
        }
        let usage = error.downcast_ref::<FleetError>().is_some_and(FleetError::is_usage);
        ExitCode::from(if usage { 2 } else { 1 })
    })
}

async fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Push { fleet, paths, recordings, bandwidth } => {
            let options = push::Options { recordings, bandwidth: bandwidth.map(|bytes| bytes.0) };
            let pushed = push::push(&Fleet::open(&fleet)?, &paths, &options).await?;
            eprint!("{}", pushed.left_out);
            print_json(&pushed)?;
            // A refused file must not look pushed.
            return Ok(ExitCode::from(u8::from(!pushed.left_out.is_empty())));
        }
        Verb::Compact { fleet, range, keep } => {
            let range = match (&range.from, &range.to) {
                (None, None) => None,
                _ => Some(range_of(&range, 24)?),
            };
            let keep = keep.map(|age| time::parse(&age, Utc::now()).map(|at| Utc::now() - at)).transpose()?;
            let options = compact::Options { range, keep, ..compact::Options::default() };
            let done = compact::compact(&Fleet::existing(&fleet)?, &options).await?;
            eprint!("{}", done.left_out);
            print_json(&done)?;
        }
        #[cfg(feature = "ask")]
        Verb::Ask { fleet, asked, answer } => {
            let Some(Asked { about, sql, range }) = asked.asked()? else { return list(asked.questions.as_deref()) };
            return ask(&fleet, (about, &sql), range, &answer).await;
        }
        #[cfg(feature = "ask")]
        Verb::Sql { fleet, sql, range, answer } => {
            return ask(&fleet, (sql.clone(), &sql), range_of(&range, 24)?, &answer).await;
        }
        Verb::Questions(asked) => {
            let Some(Asked { sql, .. }) = asked.asked()? else { return list(asked.questions.as_deref()) };
            print(format!("{sql}\n").as_bytes())?;
        }
        Verb::Findings { fleet, range, format } => {
            let found = findings(&Facts::read(&Fleet::existing(&fleet)?, range_of(&range, 24)?).await?);
            let text = if format == Format::Json { json(&found)? } else { found.to_string() };
            print(text.as_bytes())?;
        }
        Verb::Rollout { fleet, change, format } => return judge(&fleet, &change, format).await,
        Verb::Report { fleet, out, range, changed, at } => {
            let fleet = Fleet::existing(&fleet)?;
            let facts = Facts::read(&fleet, range_of(&range, 24)?).await?;
            let change = changed.zip(at).map(|(changed, at)| anyhow::Ok((Changed::parse(&changed)?, hour(&at)?)));
            let page = report::page(&fleet, &facts, change.transpose()?);
            flatwater_safefs::write_output(&out, page.as_bytes())?;
        }
        Verb::Tables { fleet, engine } => {
            let place = Fleet::existing(&fleet)?.shown().to_owned();
            print(tables::statements(engine, &place)?.as_bytes())?;
        }
        Verb::Generate { fleet, hosts, hours, from, seed, compacted, like } => {
            let mut rows = Vec::new();
            for path in like {
                let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let decoded = input::decode(bytes.into());
                rows.extend(decoded.map_err(|refused| anyhow::anyhow!("{}: {}", path.display(), refused.exactly))?);
            }
            let options = generate::Options { hosts, hours, from: hour(&from)?, seed, compacted, like: rows };
            print_json(&generate::generate(&Fleet::open(&fleet)?, &options).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "ask")]
async fn ask(fleet: &str, (about, sql): (String, &str), range: Range, given: &AnswerArgs) -> anyhow::Result<ExitCode> {
    use std::io::IsTerminal;
    if given.format == Format::Parquet && given.out.is_none() && std::io::stdout().is_terminal() {
        return Err(FleetError::Usage("refusing to write Parquet to a terminal; use -o FILE".to_owned()).into());
    }
    let limits = Limits { memory_bytes: usize::try_from(given.memory.0).unwrap_or(usize::MAX), threads: None };
    let fleet = Fleet::existing(fleet)?;
    let mut session = match &given.on {
        None => Session::open(&fleet, range, limits).await?,
        Some(on) => on_cluster(&fleet, range, limits, on, given.wait).await?,
    };
    let answer = session.answer(about, sql).await?;
    let bytes = answer.render(given.format)?;
    match &given.out {
        Some(out) => flatwater_safefs::write_output(out, &bytes)?,
        None => print(&bytes)?,
    }
    // These formats contain only rows, so the notes go to stderr.
    if matches!(given.format, Format::Csv | Format::Parquet) {
        eprint!("{}", answer.notes_text());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "ballista")]
async fn on_cluster(fleet: &Fleet, range: Range, limits: Limits, on: &str, wait: Nanos) -> Result<Session, FleetError> {
    Session::open_on(fleet, range, limits, Cluster::parse(on, wait)?).await
}

#[cfg(all(feature = "ask", not(feature = "ballista")))]
async fn on_cluster(_: &Fleet, _: Range, _: Limits, on: &str, _: Nanos) -> Result<Session, FleetError> {
    let how = "cargo build --release --manifest-path crates/fleet/Cargo.toml --features ballista";
    Err(FleetError::Usage(format!("--on {on}: this flatwater-fleet was built without Ballista; build it with {how}")))
}

async fn judge(fleet: &str, change: &ChangeArgs, format: Format) -> anyhow::Result<ExitCode> {
    let (changed, at) = (Changed::parse(&change.changed)?, hour(&change.at)?);
    let range = Range {
        from: HourStart::of_hours(at.hours() - change.before.max(1)),
        to: HourStart::of_hours(at.hours() + change.after.max(1)),
    };
    let judged = rollout(&Facts::read(&Fleet::existing(fleet)?, range).await?, &changed, at);
    let text = if format == Format::Json { json(&judged)? } else { judged.to_string() };
    print(text.as_bytes())?;
    let proven = judged.total.is_some_and(|line| line.verdict != Verdict::NotProven);
    Ok(ExitCode::from(if proven { 0 } else { 3 }))
}

fn list(folder: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    for question in Question::all(folder)? {
        text.push_str(&format!("{:<12} {}\n", question.name, question.about));
        for parameter in &question.parameters {
            let default = parameter.default.as_ref().map_or("must be given".to_owned(), |value| format!("[{value}]"));
            text.push_str(&format!("{:<12}   {}: {} {default}\n", "", parameter.name, parameter.meaning));
        }
    }
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn pairs(given: &[String]) -> Result<Vec<(String, String)>, FleetError> {
    let split = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let wrong =
        |text: &String| FleetError::Usage(format!("'{text}' is not a parameter; give parameters as name=value"));
    given.iter().map(|text| split(text).ok_or_else(|| wrong(text))).collect()
}

fn range_of(given: &RangeArgs, hours: i64) -> Result<Range, FleetError> {
    let mut range = Range::parse(given.from.as_deref(), given.to.as_deref(), Utc::now())?;
    if given.from.is_none() {
        range.from = HourStart::of_hours(range.to.hours() - hours);
    }
    Ok(range)
}

fn hour(given: &str) -> Result<HourStart, FleetError> {
    Ok(HourStart::of_hours(time::parse(given, Utc::now())?.timestamp().div_euclid(3_600)))
}

/// A value as JSON that is safe on a terminal.
pub fn json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(json_for_terminals(&serde_json::to_string_pretty(value)?) + "\n")
}

fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(json(value)?.as_bytes())
}

fn print(bytes: &[u8]) -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(bytes)?)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Cli, Format, Verb};

    #[test]
    fn option_names_are_unique() {
        Cli::command().debug_assert();
    }

    fn format(option: &[&str]) -> Result<Format, clap::Error> {
        let words = ["flatwater-fleet", "findings", "fleet"].iter().chain(option);
        match Cli::try_parse_from(words)?.verb {
            Verb::Findings { format, .. } => Ok(format),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_format_has_its_old_names_which_help_does_not_show() {
        for option in [&["--format", "json"][..], &["--output", "json"], &["-O", "json"], &["-Ojson"]] {
            assert_eq!(format(option).expect("accepted"), Format::Json, "{option:?}");
        }
        assert_eq!(format(&[]).expect("accepted"), Format::Text);
        for verb in Cli::command().get_subcommands_mut() {
            let help = verb.render_long_help().to_string();
            assert!(!help.contains("-O") && !help.contains("--output"), "{help}");
        }
    }

    #[test]
    fn a_format_that_findings_do_not_have_is_refused() {
        let refused = format(&["--format", "csv"]).expect_err("no rows").to_string();
        assert!(refused.contains("csv") && refused.contains("text, json"), "{refused}");
    }
}
