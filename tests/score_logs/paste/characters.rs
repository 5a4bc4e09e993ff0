//! Changes of characters by editors, browsers, terminals and locales.

use super::{Files, Paste};

pub fn crlf(paste: &Paste<'_>) -> Option<Files> {
    paste.texts(|text| text.replace("\r\n", "\n").replace('\n', "\r\n"))
}

pub fn trailing(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|at, line| format!("{line}{:1$}", "", 1 + at % 7))
}

pub fn bom(paste: &Paste<'_>) -> Option<Files> {
    paste.texts(|text| format!("\u{feff}{text}"))
}

/// Colours as in `grep --color` and `dmesg -L`: the head and the end of the line.
pub fn ansi(paste: &Paste<'_>) -> Option<Files> {
    paste.written(|_, line| {
        let half = (line.len() / 2..=line.len()).find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        format!("\u{1b}[32m{}\u{1b}[0m\u{1b}[01;31m\u{1b}[K{}\u{1b}[m\u{1b}[K", &line[..half], &line[half..])
    })
}

pub fn nbsp(paste: &Paste<'_>) -> Option<Files> {
    paste.texts(|text| text.replace(' ', "\u{a0}"))
}

pub fn wide_margin(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| {
        let rest = line.trim_start_matches(' ');
        "\u{2003}".repeat((line.len() - rest.len()) / 2) + rest
    })
}

pub fn zero_width(paste: &Paste<'_>) -> Option<Files> {
    paste.written(|_, line| format!("\u{200b}{line}"))
}

/// Columns per tab.
const TAB: usize = 8;

/// Like `unexpand -a`: two or more spaces before a tab stop become a tab.
pub fn unexpand(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| {
        let (mut out, mut blanks, mut column) = (String::new(), 0, 0);
        for c in line.chars() {
            column = if c == '\t' { (column / TAB + 1) * TAB } else { column + 1 };
            match c {
                ' ' => {
                    blanks += 1;
                    if column % TAB == 0 && blanks > 1 {
                        out.push('\t');
                        blanks = 0;
                    }
                }
                c => {
                    out.push_str(&" ".repeat(std::mem::take(&mut blanks)));
                    out.push(c);
                }
            }
        }
        out
    })
}

pub fn expand(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| {
        let (mut out, mut column) = (String::new(), 0);
        for c in line.chars() {
            let width = if c == '\t' { TAB - column % TAB } else { 1 };
            column += width;
            if c == '\t' { out.push_str(&" ".repeat(width)) } else { out.push(c) }
        }
        out
    })
}

pub fn tab_separated(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| {
        let body = line.trim_start_matches(' ');
        let fields: Vec<&str> = body.split("  ").map(|field| field.trim_matches(' ')).collect();
        let fields: Vec<&str> = fields.into_iter().filter(|field| !field.is_empty()).collect();
        format!("{}{}", &line[..line.len() - body.len()], fields.join("\t"))
    })
}

pub fn collapsed(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| line.split_whitespace().collect::<Vec<_>>().join(" "))
}

pub fn entities(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"))
}

pub fn entities_nbsp(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| {
        let escaped = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        escaped.replace("  ", "&nbsp; ")
    })
}

pub fn typographic(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| {
        let plain = line.replace("...", "\u{2026}").replace(" -- ", " \u{2013} ").replace('\'', "\u{2019}");
        let mut out = String::new();
        let mut open = false;
        for c in plain.chars() {
            if c == '"' {
                open = !open;
                out.push(if open { '\u{201c}' } else { '\u{201d}' });
            } else {
                out.push(c);
            }
        }
        out
    })
}

/// Quoted-printable (RFC 2045): lines of at most 76 columns, soft breaks, `=` as =3D.
pub fn printable(paste: &Paste<'_>) -> Option<Files> {
    let files = paste.lines(|_, line| {
        let (mut out, mut column) = (String::new(), 0);
        for c in line.trim_end().chars() {
            let mut bytes = [0; 4];
            let coded: String = match c {
                '=' => "=3D".to_owned(),
                c if c.is_ascii() => c.to_string(),
                c => c.encode_utf8(&mut bytes).bytes().map(|byte| format!("={byte:02X}")).collect(),
            };
            if column + coded.len() > 75 {
                out.push_str("=\n");
                column = 0;
            }
            column += coded.len();
            out.push_str(&coded);
        }
        out
    })?;
    // Without a soft break the encoding cannot be recognized.
    files.iter().any(|(_, text)| text.contains("=\n")).then_some(files)
}

/// Only for tools whose tables follow the locale.
pub fn decimal_comma(paste: &Paste<'_>) -> Option<Files> {
    if !paste.log.formats.iter().all(|format| ["iostat", "sar", "pidstat", "mpstat", "top"].contains(&format.as_str()))
    {
        return None;
    }
    paste.lines(|_, line| {
        let words = line.split(' ').map(|word| match word.split_once('.') {
            Some((whole, part)) if !whole.is_empty() && digits(whole) && !part.is_empty() && digits(part) => {
                format!("{whole},{part}")
            }
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    })
}

fn digits(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_digit())
}

/// Groups the digits of `name: 123456 kB` and `name 123456` for readers.
pub fn thousands(paste: &Paste<'_>) -> Option<Files> {
    if !paste.is_of(&["meminfo", "cgroup", "proc-vmstat", "node-exporter"]) {
        return None;
    }
    paste.lines(|_, line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, figure] | [_, figure, "kB"] if figure.len() > 3 && digits(figure) => {
                line.replacen(figure, &grouped(figure), 1)
            }
            _ => line.to_owned(),
        }
    })
}

fn grouped(figure: &str) -> String {
    let mut out = String::new();
    for (at, c) in figure.chars().enumerate() {
        if at > 0 && (figure.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[test]
fn figures_are_grouped_from_the_right() {
    assert_eq!(grouped("1234567"), "1,234,567");
    assert_eq!(grouped("123456"), "123,456");
}
