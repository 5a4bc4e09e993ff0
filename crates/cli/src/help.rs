//! Help texts, made from the clap definition and the verbs' pages.

use std::fmt::Write;

use clap::Command;

use crate::pages::{self, Task};
use crate::status::Status;

const WIDTH: usize = 80;

/// Adds tasks, examples and exit statuses to the help texts of the command and its verbs.
#[must_use]
pub fn decorated(command: Command) -> Command {
    let template =
        format!("{{about}}\n\n{{usage-heading}} {{usage}}\n{}\nOptions:\n{{options}}{{after-help}}", verbs(&command));
    let names: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let mut command = command
        .help_template(template)
        .after_help("`flatwater VERB --help` describes a verb; `flatwater --help` adds examples and exit status.")
        .after_long_help(format!("{}\n\n{}", examples(FIRST), statuses(COMMON)));
    for name in names {
        if let Some(page) = pages::of(&name) {
            let short = format!("`flatwater {name} --help` adds details, examples and exit status.");
            let long = format!("{}\n\n{}", examples(page.examples), statuses(page.statuses));
            command = command.mut_subcommand(&name, |verb| verb.after_help(short).after_long_help(long));
        }
    }
    command
}

/// The first commands of a newcomer.
pub const FIRST: &[(&str, &str)] = &[
    ("What can be seen here:", "flatwater check"),
    ("Why is this process slow?", "flatwater record -p PID -t 60s"),
    ("The demonstration, two minutes:", "flatwater run full-cgroup"),
];

pub const COMMON: &[Status] = &[
    Status::Done,
    Status::Failed,
    Status::Usage,
    Status::NotProven,
    Status::NotEnough,
    Status::StallFound,
    Status::Signal(2),
    Status::Command(0),
];

/// The verbs by task, as a list.
fn verbs(command: &Command) -> String {
    let mut text = String::new();
    for task in Task::ALL {
        let _ = write!(text, "\n{}:\n", task.title());
        for page in pages::all().filter(|page| page.task == task) {
            if let Some(verb) = command.find_subcommand(page.verb) {
                item(&mut text, page.verb, &about(verb), 15);
            }
        }
    }
    let strays = command.get_subcommands().filter(|verb| !verb.is_hide_set() && pages::of(verb.get_name()).is_none());
    let strays: Vec<&Command> = strays.filter(|verb| verb.get_name() != "help").collect();
    if !strays.is_empty() {
        text.push_str("\nOther:\n");
        strays.iter().for_each(|verb| item(&mut text, verb.get_name(), &about(verb), 15));
    }
    text
}

#[must_use]
pub fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// A name and its description, which continues below itself.
fn item(text: &mut String, name: &str, described: &str, column: usize) {
    let first = format!("  {name:<0$}", column - 2);
    let options = flatwater_report::text::wrapped(described, WIDTH - column);
    for (number, line) in options.iter().enumerate() {
        let begin = if number == 0 { first.clone() } else { " ".repeat(column) };
        let _ = writeln!(text, "{begin}{line}");
    }
}

fn examples(list: &[(&str, &str)]) -> String {
    let mut text = String::from("Examples:");
    for (what, command) in list {
        let _ = write!(text, "\n  {what}");
        let lines = flatwater_report::text::wrapped(command, WIDTH - 8);
        let lines = lines.iter().enumerate().map(|(number, line)| match number {
            0 => format!("\n    $ {line}"),
            _ => format!(" \\\n        {line}"),
        });
        text.extend(lines);
    }
    text
}

fn statuses(list: &[Status]) -> String {
    let mut text = String::from("Exit status:\n");
    list.iter().for_each(|status| item(&mut text, &status.label(), status.meaning(), 9));
    text.trim_end().to_owned()
}
