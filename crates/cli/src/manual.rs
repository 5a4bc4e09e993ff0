//! Manual pages and the reference of docs/command-line.md, made from the clap definition and the verbs' pages.

use std::fmt::Write;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::help::{COMMON, FIRST, about};
use crate::pages::{self, Page};
use crate::status::Status;

/// A manual page: its file's name and its content.
#[derive(Debug)]
pub struct Manual {
    pub name: String,
    pub text: Vec<u8>,
}

/// The pages of the command, of each verb and of their subcommands.
pub fn manuals(command: Command) -> std::io::Result<Vec<Manual>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut found = vec![manual(&command, "flatwater", FIRST, COMMON)?];
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let page = pages::of(verb.get_name());
        let (examples, statuses) = page.map_or((&[][..], COMMON), |page| (page.examples, page.statuses));
        let name = format!("flatwater-{}", verb.get_name());
        found.push(manual(verb, &name, examples, statuses)?);
        for inner in verb.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
            let name = format!("{name}-{}", inner.get_name());
            found.push(manual(inner, &name, &[], statuses)?);
        }
    }
    Ok(found)
}

fn manual(command: &Command, name: &str, examples: &[(&str, &str)], statuses: &[Status]) -> std::io::Result<Manual> {
    // Names with spaces would end in pages that `man` does not find.
    let named = command.clone().display_name(name.to_owned()).after_help(None::<&str>).after_long_help(None::<&str>);
    let man = Man::new(named.clone()).title(name.to_uppercase()).section("1").source("flatwater").manual("flatwater");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if named.get_arguments().next().is_some() {
        man.render_options_section(&mut text)?;
    }
    let inner: Vec<&Command> =
        named.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help").collect();
    if !inner.is_empty() {
        let mut roff = Roff::new();
        roff.control("SH", ["SUBCOMMANDS"]);
        for inner in inner {
            roff.control("TP", []);
            roff.text([bold(format!("{name}-{}", inner.get_name())), roman("(1)")]);
            roff.text([roman(about(inner))]);
        }
        roff.to_writer(&mut text)?;
    }
    let mut roff = Roff::new();
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        for (what, command) in examples {
            roff.control("PP", []);
            roff.text([roman(*what)]);
            roff.control("RS", ["4"]);
            roff.control("nf", []);
            roff.text([bold(*command)]);
            roff.control("fi", []);
            roff.control("RE", []);
        }
    }
    roff.control("SH", ["EXIT STATUS"]);
    for status in statuses {
        roff.control("TP", []);
        roff.text([bold(status.label())]);
        roff.text([roman(status.meaning())]);
    }
    if name != "flatwater" {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold("flatwater"), roman("(1)")]);
    }
    roff.to_writer(&mut text)?;
    Ok(Manual { name: format!("{name}.1"), text })
}

/// The reference part of docs/command-line.md.
#[must_use]
pub fn reference(command: Command) -> String {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut text = String::new();
    for page in pages::all() {
        let Some(verb) = command.find_subcommand(page.verb) else { continue };
        let _ = write!(text, "\n### flatwater {}\n\n{}.\n", page.verb, about(verb));
        synopsis(&mut text, verb);
        options(&mut text, verb);
        for inner in verb.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
            let _ = write!(text, "\n`{} {}`: {}.\n", page.verb, inner.get_name(), about(inner));
            options(&mut text, inner);
        }
        outcome(&mut text, page);
    }
    text.trim_start().to_owned()
}

fn synopsis(text: &mut String, verb: &Command) {
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    // Not a fenced block: these lines are no commands to copy.
    let forms: Vec<String> = usage.lines().map(|form| format!("`{}`", form.trim())).collect();
    let _ = write!(text, "\n{}\n", forms.join(" or "));
}

fn options(text: &mut String, command: &Command) {
    let shown = |arg: &&clap::Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let arguments: Vec<&clap::Arg> = command.get_arguments().filter(shown).filter(|arg| !arg.is_global_set()).collect();
    if arguments.is_empty() {
        return;
    }
    text.push_str("\n| option | meaning |\n|---|---|\n");
    for arg in arguments {
        let described = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let described = described.replace('\n', " ").replace('|', "\\|");
        let mut described = described.trim_end_matches('.').to_owned();
        let takes_value = arg.get_action().takes_values();
        let defaults: Vec<String> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        if takes_value && !defaults.is_empty() && defaults != [""] {
            let _ = write!(described, "; default `{}`", defaults.join(" "));
        }
        let values: Vec<String> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        if takes_value && !values.is_empty() {
            let _ = write!(described, "; one of `{}`", values.join("`, `"));
        }
        let _ = writeln!(text, "| {} | {described} |", spelled(arg));
    }
}

fn spelled(arg: &clap::Arg) -> String {
    let values: Vec<String> = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let value = if arg.get_action().takes_values() { format!(" {}", values.join(" ")) } else { String::new() };
    let value = value.replace('|', "\\|");
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}{value}`"),
        (None, Some(long)) => format!("`--{long}{value}`"),
        (Some(short), None) => format!("`-{short}{value}`"),
        (None, None) => format!("`{}`", value.trim()),
    }
}

fn outcome(text: &mut String, page: &Page) {
    text.push_str("\n```console\n");
    for (what, command) in page.examples {
        let _ = write!(text, "# {what}\n$ {command}\n");
    }
    let labels: Vec<String> = page.statuses.iter().map(|status| status.label()).collect();
    let _ = write!(text, "```\n\nExit status: {}.\n", labels.join(", "));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{manuals, reference};

    #[test]
    fn manual_pages_have_examples_and_statuses_and_refer_only_to_pages_that_exist() {
        let pages = manuals(crate::command()).expect("rendered");
        let names: BTreeSet<String> = pages.iter().map(|page| page.name.clone()).collect();
        assert!(names.contains("flatwater-record.1") && names.contains("flatwater-vm-exec.1"), "{names:?}");
        for page in &pages {
            let text = String::from_utf8(page.text.clone()).expect("UTF-8");
            assert!(text.contains(".SH \"EXIT STATUS\""), "{}", page.name);
            let is_verb = page.name.matches('-').count() <= 1 && !page.name.contains("fetch");
            assert!(!is_verb || text.contains(".SH EXAMPLES"), "{}:\n{text}", page.name);
            let plain = text.replace("\\fB", "").replace("\\fR", "").replace("\\-", "-");
            for (at, _) in plain.match_indices("(1)") {
                let begin = plain[..at].rfind(|c: char| !(c.is_ascii_lowercase() || c == '-')).map_or(0, |at| at + 1);
                let name = format!("{}.1", &plain[begin..at]);
                assert!(names.contains(&name), "{} refers to {name}", page.name);
            }
        }
    }

    #[test]
    fn the_reference_has_each_verb_with_its_options() {
        let text = reference(crate::command());
        for wanted in ["### flatwater record", "`-p`, `--pid PID`", "default `1ms`", "Exit status: 0, 1, 2, 4"] {
            assert!(text.contains(wanted), "{wanted}");
        }
        assert!(!text.contains("`-O`"), "old options are hidden");
    }
}
