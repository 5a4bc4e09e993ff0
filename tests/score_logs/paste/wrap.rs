//! Lines wrapped by a mail program or a terminal.

use super::{Files, Paste};

/// Breaks lines at the last space before a column. A longer word gets its own line.
fn at(paste: &Paste<'_>, columns: usize) -> Option<Files> {
    paste.lines(|_, line| wrapped(line, columns))
}

fn wrapped(line: &str, columns: usize) -> String {
    let (mut out, mut rest) = (String::new(), line.trim_end());
    while let Some((over, _)) = rest.char_indices().nth(columns) {
        let margin = rest.len() - rest.trim_start().len();
        let blank = rest[..over].rfind(' ').filter(|&at| at > margin);
        let Some(cut) = blank.or_else(|| rest[over..].find(' ').map(|at| over + at)) else { break };
        out.push_str(rest[..cut].trim_end());
        out.push('\n');
        rest = rest[cut..].trim_start();
    }
    out + rest
}

pub fn at_72(paste: &Paste<'_>) -> Option<Files> {
    at(paste, 72)
}

pub fn at_76(paste: &Paste<'_>) -> Option<Files> {
    at(paste, 76)
}

pub fn at_78(paste: &Paste<'_>) -> Option<Files> {
    at(paste, 78)
}

/// A copy from an 80-column terminal whose program draws its lines itself, so that they break within words.
pub fn terminal(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| {
        let letters: Vec<char> = line.chars().collect();
        let rows: Vec<String> = letters.chunks(80).map(|row| row.iter().collect()).collect();
        rows.join("\n")
    })
}

#[test]
fn words_are_whole_and_none_is_lost() {
    assert_eq!(wrapped("aa bb cc", 6), "aa bb\ncc");
    assert_eq!(wrapped("  aaaaaaaa bb", 5), "  aaaaaaaa\nbb");
    assert_eq!(wrapped("aaaaaaaa", 5), "aaaaaaaa");
}
