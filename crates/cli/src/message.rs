//! The form of messages: one line, each fact once, without the numbers of the operating system's errors.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::str::FromStr;

use flatwater_recording::printable;

/// The error and its causes in one line. A cause whose text is part of the line already is not repeated.
#[must_use]
pub fn of_error(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        let text = plain(&text);
        if line.is_empty() {
            line.push_str(&text);
        } else if !line.contains(&*text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line
}

/// The text without `(os error 13)`: the words before it say the same.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    printable::without_error_numbers(text)
}

/// Prints a line to standard error. The run continues if the reader is gone (`2>&1 | head`), where `eprintln!` would
/// panic.
///
/// On a terminal the line is wrapped at its width. Elsewhere it stays one line, so that a log has one line a message.
pub fn say(line: std::fmt::Arguments<'_>) {
    let line = line.to_string();
    let line = plain(&line);
    let mut err = std::io::stderr();
    let _ = writeln!(err, "{}", printable::output(&at_width(&line, err.is_terminal().then(terminal_width))));
}

/// The line, wrapped with a hanging indent if it is longer than `width`.
fn at_width(line: &str, width: Option<usize>) -> Cow<'_, str> {
    match width.filter(|width| line.chars().count() > *width) {
        Some(width) => {
            let (lead, text) = line.split_once(": ").filter(|(lead, _)| *lead == "flatwater").unwrap_or(("", line));
            let lead = if lead.is_empty() { String::new() } else { format!("{lead}: ") };
            Cow::Owned(flatwater_report::text::hanging(&lead, text, width).trim_end().to_owned())
        }
        None => Cow::Borrowed(line),
    }
}

/// Columns of the terminal, at most 100: longer lines are hard to read.
pub fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 40).unwrap_or(80).min(100)
}

/// A mistake on the command line, which clap describes in several lines, as one line.
#[must_use]
pub fn of_clap(error: &clap::Error, verb: Option<&str>) -> String {
    let rendered = error.render().to_string();
    let described = rendered.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let parts: Vec<&str> = described.map(str::trim).filter(|line| !line.is_empty()).collect();
    let joined = parts.join(" ").replace(" tip: ", "; ");
    let described = joined.strip_prefix("error: ").unwrap_or(&joined);
    let help = verb.map_or_else(|| "flatwater --help".to_owned(), |verb| format!("flatwater {verb} --help"));
    format!("{}; `{help}` lists the options", plain(described).trim_end_matches('.'))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a whole number from {least} to {most}")]
pub struct NotInRange<T> {
    least: T,
    most: T,
}

/// A parser of whole numbers from `least` to `most`, for clap.
pub fn number<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, NotInRange<T>> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Copy + std::fmt::Display + std::fmt::Debug + Send + Sync + 'static,
{
    move |text| {
        let parsed = text.trim().parse().ok().filter(|value| (least..=most).contains(value));
        parsed.ok_or(NotInRange { least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::{NotInRange, at_width, number, of_error};

    #[test]
    fn causes_are_not_repeated_and_error_numbers_are_left_out() {
        let os = || std::io::Error::from_raw_os_error(13);
        let repeated = anyhow::Error::new(os()).context(format!("cannot open /x: {}", os()));
        assert_eq!(of_error(&repeated), "cannot open /x: Permission denied");
        let plain = anyhow::Error::new(os()).context("cannot open /x");
        assert_eq!(of_error(&plain), "cannot open /x: Permission denied");
    }

    #[test]
    fn a_number_is_refused_with_its_range() {
        let parse = number(1_u32, 100);
        assert_eq!(parse("7"), Ok(7));
        for wrong in ["x", "", "0", "101", "-1", "1.5", "99999999999"] {
            assert_eq!(parse(wrong), Err(NotInRange { least: 1, most: 100 }), "{wrong}");
        }
    }

    #[test]
    fn long_lines_are_wrapped_on_terminals_only() {
        let line = format!("flatwater: {}", "every system call of this machine ".repeat(20));
        assert_eq!(at_width(&line, None), line);
        let wrapped = at_width(&line, Some(80));
        assert!(wrapped.lines().count() > 5 && wrapped.lines().all(|line| line.chars().count() <= 80), "{wrapped}");
        assert!(
            wrapped.lines().skip(1).all(|line| line.starts_with("           every") || line.starts_with("           "))
        );
        assert_eq!(at_width("short", Some(80)), "short");
    }
}
