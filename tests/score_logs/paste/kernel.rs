//! Prefixes of kernel messages, and formats of kernel stacks.

use super::{Files, Paste};

/// Changes logs that consist of kernel lines only and do not have a host or date yet.
fn lines(paste: &Paste<'_>, change: impl Fn(usize, Option<&str>, &str) -> String) -> Option<Files> {
    let kernels = ["kernel-log", "proc-stack", "frames"];
    if !paste.log.formats.iter().all(|format| kernels.contains(&format.as_str())) {
        return None;
    }
    let bare = |line: &str| {
        let line = line.trim_start();
        // `dmesg -T` prints the date.
        let dated = line.strip_prefix('[').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
        line.is_empty() || line.starts_with('[') && !dated || !logged(line) && !dated
    };
    if !paste.files.iter().all(|(_, text)| text.lines().all(bare)) {
        return None;
    }
    paste.written(|at, line| {
        let (time, message) = timed(line);
        change(at, time, message)
    })
}

/// Whether the line already has a collector's or kernel's prefix.
fn logged(line: &str) -> bool {
    let day = line.len() > 15 && line.as_bytes()[3] == b' ' && line[..15].matches(':').count() == 2;
    let iso = line.len() > 19 && line.starts_with("20") && line.as_bytes()[4] == b'-';
    let clock = line.len() > 8 && line.as_bytes()[2] == b':' && line.as_bytes()[5] == b':';
    let kernels = line.starts_with("kern ") || line.contains("kernel: ") || line.contains(",-;");
    let level = line.starts_with('<') && line.as_bytes().get(2).is_some_and(|c| *c == b'>');
    day || iso || clock || kernels || level || line.starts_with(['>', '|', '#', '$'])
}

/// Splits `[   12.345678] m` into the time since boot and the message.
fn timed(line: &str) -> (Option<&str>, &str) {
    let inner = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once(']'));
    match inner {
        Some((time, message)) if time.trim().parse::<f64>().is_ok() && time.contains('.') => {
            (Some(time.trim()), message.strip_prefix(' ').unwrap_or(message))
        }
        _ => (None, line),
    }
}

/// The line's time, or a made-up one.
fn time_of(at: usize, time: Option<&str>) -> String {
    time.map_or_else(|| format!("1234.{:06}", 567 + at), str::to_owned)
}

fn stamp(time: Option<&str>) -> String {
    time.map_or_else(String::new, |time| format!("[{time:>12}] "))
}

pub fn journald(paste: &Paste<'_>) -> Option<Files> {
    lines(paste, |_, time, message| format!("Nov 21 08:00:01 db1 kernel: {}{message}", stamp(time)))
}

pub fn journald_iso(paste: &Paste<'_>) -> Option<Files> {
    lines(paste, |at, time, message| {
        format!("2026-11-21T08:00:01.{:06}+00:00 db1 kernel: {}{message}", 123_456 + at, stamp(time))
    })
}

pub fn levels(paste: &Paste<'_>) -> Option<Files> {
    lines(paste, |at, time, message| format!("<4>[{:>12}] {message}", time_of(at, time)))
}

pub fn decoded(paste: &Paste<'_>) -> Option<Files> {
    lines(paste, |at, time, message| format!("kern  :warn  : [{:>12}] {message}", time_of(at, time)))
}

pub fn human(paste: &Paste<'_>) -> Option<Files> {
    lines(paste, |_, _, message| format!("[Sat Nov 21 08:00:01 2026] {message}"))
}

pub fn untimed(paste: &Paste<'_>) -> Option<Files> {
    lines(paste, |_, _, message| message.to_owned())
}

pub fn records(paste: &Paste<'_>) -> Option<Files> {
    lines(paste, |at, time, message| {
        let seconds: f64 = time_of(at, time).parse().expect("a time");
        format!("4,{},{:.0},-;{message}", 1000 + at, seconds * 1e6)
    })
}

pub fn caller(paste: &Paste<'_>) -> Option<Files> {
    lines(paste, |at, time, message| format!("[{:>12}][ T1234] {message}", time_of(at, time)))
}

/// Replaces each `[<address>]` of at least 8 hexadecimal digits by `change(address)`.
fn addresses(paste: &Paste<'_>, change: impl Fn(&str) -> String) -> Option<Files> {
    paste.lines(|_, line| {
        let mut out = String::new();
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("[<") {
            let Some((inner, behind)) = after.split_once(">]") else { break };
            out.push_str(before);
            if inner.len() >= 8 && inner.bytes().all(|c| c.is_ascii_hexdigit()) {
                out.push_str(&change(inner));
            } else {
                out.push_str(&format!("[<{inner}>]"));
            }
            rest = behind;
        }
        out + rest
    })
}

pub fn short_addresses(paste: &Paste<'_>) -> Option<Files> {
    // Registers and task pointers become 32 bits wide as well.
    let short = addresses(paste, |inner| format!("[<c{}>]", &inner[inner.len() - 7..]))?;
    let files = Paste { files: &short, log: paste.log, decided: paste.decided };
    let all = files.lines(|_, line| {
        let words = line.split(' ').map(|word| match word {
            word if word.len() == 16 && word.starts_with("ffff") && word.bytes().all(|c| c.is_ascii_hexdigit()) => {
                format!("d{}", &word[9..])
            }
            word => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    });
    all.or(Some(short))
}

pub fn arm_addresses(paste: &Paste<'_>) -> Option<Files> {
    addresses(paste, |inner| format!("[<ffff8000{}>]", &inner[inner.len() - 8..]))
}

pub fn hidden_addresses(paste: &Paste<'_>) -> Option<Files> {
    addresses(paste, |_| "[<0>]".to_owned())
}

pub fn no_addresses(paste: &Paste<'_>) -> Option<Files> {
    addresses(paste, |_| String::new())
}

/// Applies `change` to the function names in `name+0x1/0x2`.
fn functions(paste: &Paste<'_>, change: impl Fn(&str) -> String) -> Option<Files> {
    paste.lines(|_, line| {
        let words = line.split(' ').map(|word| match word.split_once("+0x") {
            Some((name, offset)) if plain(name) && offset.contains("/0x") => format!("{}+0x{offset}", change(name)),
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    })
}

fn plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

pub fn suffixes(paste: &Paste<'_>) -> Option<Files> {
    functions(paste, |name| format!("{name}.isra.0"))
}

pub fn dots(paste: &Paste<'_>) -> Option<Files> {
    functions(paste, |name| format!(".{name}"))
}
