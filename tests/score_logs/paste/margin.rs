//! Markup of mail, Markdown, Jira, HTML and forums around a paste or its lines.

use super::{Files, Paste};

/// Puts a mark before each line and removes trailing spaces.
fn before(paste: &Paste<'_>, mark: &str) -> Option<Files> {
    paste.lines(|_, line| format!("{mark}{line}").trim_end().to_owned())
}

/// Puts text above and below each file.
fn around(paste: &Paste<'_>, above: &str, below: &str) -> Option<Files> {
    paste.texts(|text| format!("{above}{}{below}", text.trim_end_matches('\n')))
}

/// Puts marks at both ends of each line that is not blank.
fn between(paste: &Paste<'_>, open: &str, close: &str) -> Option<Files> {
    paste.written(|_, line| format!("{open}{}{close}", line.trim_end()))
}

pub fn quote(paste: &Paste<'_>) -> Option<Files> {
    before(paste, "> ")
}

pub fn quote_twice(paste: &Paste<'_>) -> Option<Files> {
    before(paste, ">> ")
}

pub fn quote_spaced(paste: &Paste<'_>) -> Option<Files> {
    before(paste, "> > ")
}

pub fn quote_bare(paste: &Paste<'_>) -> Option<Files> {
    before(paste, ">")
}

pub fn quote_bar(paste: &Paste<'_>) -> Option<Files> {
    before(paste, "| ")
}

pub fn indent_2(paste: &Paste<'_>) -> Option<Files> {
    before(paste, "  ")
}

pub fn indent_4(paste: &Paste<'_>) -> Option<Files> {
    before(paste, "    ")
}

pub fn indent_tab(paste: &Paste<'_>) -> Option<Files> {
    before(paste, "\t")
}

pub fn comment(paste: &Paste<'_>) -> Option<Files> {
    before(paste, "# ")
}

pub fn comment_slashes(paste: &Paste<'_>) -> Option<Files> {
    before(paste, "// ")
}

pub fn fence(paste: &Paste<'_>) -> Option<Files> {
    around(paste, "```\n", "\n```\n")
}

pub fn details(paste: &Paste<'_>) -> Option<Files> {
    around(paste, "<details><summary>log</summary>\n\n```console\n", "\n```\n\n</details>\n")
}

pub fn noformat(paste: &Paste<'_>) -> Option<Files> {
    around(paste, "{noformat}\n", "\n{noformat}\n")
}

pub fn jira_code(paste: &Paste<'_>) -> Option<Files> {
    around(paste, "{code:title=messages|borderStyle=solid}\n", "\n{code}\n")
}

pub fn bbcode(paste: &Paste<'_>) -> Option<Files> {
    around(paste, "[code]", "[/code]\n")
}

pub fn pre(paste: &Paste<'_>) -> Option<Files> {
    around(paste, "<pre>", "</pre>\n")
}

pub fn break_tags(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| format!("{line}<br>"))
}

pub fn backticks(paste: &Paste<'_>) -> Option<Files> {
    between(paste, "`", "`")
}

pub fn bold(paste: &Paste<'_>) -> Option<Files> {
    between(paste, "**", "**")
}

pub fn jira_mono(paste: &Paste<'_>) -> Option<Files> {
    between(paste, "{{", "}}")
}

pub fn bullets(paste: &Paste<'_>) -> Option<Files> {
    between(paste, "- ", "")
}
