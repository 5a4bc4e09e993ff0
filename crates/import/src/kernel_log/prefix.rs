//! Splits the prefix off a kernel message.

use crate::number::number;
use crate::when::{DAY_NS, When, Zero, clock, days, iso, month, stamp};

/// A line, split into prefix and message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split<'a> {
    pub when: Option<When>,
    pub message: &'a str,
    /// Only kernel messages have this prefix.
    pub kernel: bool,
}

/// Splits `[  123.456] m`, `<4>[ 123.4] m`, `Nov 21 08:00:01 host kernel: [ 12.3] m`,
/// `2026-11-21T08:00:01+00:00 host kernel: m`, `[Sat Nov 21 08:00:01 2026] m` or `kern  :warn  : [ 123.4] m`.
#[must_use]
pub fn split(text: &str) -> Split<'_> {
    let mut rest = text.trim_start();
    let mut kernel = false;
    if let Some((us, message)) = kmsg(rest) {
        return Split { when: Some(When::new(Zero::Boot, us.saturating_mul(1000))), message, kernel: true };
    }
    if let Some((level, after)) = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'))
        && level.parse::<u16>().is_ok()
    {
        (rest, kernel) = (after.trim_start(), true);
    }
    if let Some(after) = rest.strip_prefix("kern ").and_then(|rest| rest.split_once(" : ").or(rest.split_once(": ["))) {
        // If no blank follows the level, the bracket was part of the separator.
        let inner = after.1.trim_start();
        kernel = true;
        rest =
            if inner.starts_with('[') { inner } else { rest.find('[').and_then(|at| rest.get(at..)).unwrap_or(inner) };
    }
    let mut when = None;
    // Syslog and journald: time and host precede `kernel:`.
    if let Some((before, after)) = rest.split_once("kernel: ")
        && let Some(found) = logged(before)
    {
        (when, rest, kernel) = (Some(found), after, true);
    }
    // rsyslog's short format, and netconsole: the time since boot follows the host.
    if !kernel
        && let Some((before, after)) = rest.split_once(" [")
        && after.split_once(']').is_some_and(|(inner, _)| {
            inner.contains('.') && inner.bytes().all(|c| c.is_ascii_digit() || c == b'.' || c == b' ')
        })
        && before.split_whitespace().count() <= 4
        && let Some(found) = logged(before)
    {
        (when, rest, kernel) = (Some(found), rest.get(before.len() + 1..).unwrap_or_default(), true);
    }
    // `journalctl -o cat` with the identifier, or a line whose date was removed.
    if let Some(after) = rest.strip_prefix("kernel: ") {
        (rest, kernel) = (after, true);
    }
    if let Some((inner, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let inner = inner.trim();
        // `dmesg -H`: the minute when it changes, otherwise the seconds since the last line.
        let since = inner.starts_with('+') && inner.contains('.') && number(inner).is_some();
        let human = minute(inner);
        if since || human.is_some() {
            (when, rest, kernel) = (when.or(human), after.strip_prefix(' ').unwrap_or(after), true);
            return Split { when, message: rest, kernel };
        }
        let boot = number(inner).filter(|seconds| inner.contains('.') && (0.0..4e9).contains(seconds));
        let dated = if boot.is_none() && inner.len() > 14 { stamp(inner) } else { None };
        if boot.is_some() || dated.is_some() {
            let found = boot.map(|seconds| When::new(Zero::Boot, (seconds * 1e9).round() as i64)).or(dated);
            (when, rest, kernel) = (when.or(found), after.strip_prefix(' ').unwrap_or(after), true);
            // printk with caller id: `[  12.3][ T1234] m`.
            if let Some((_, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
                && !rest.starts_with("[<")
            {
                rest = after.trim_start();
            }
        }
    }
    Split { when, message: rest, kernel }
}

/// Parses `Sep11 18:40` or `Sep 1 08:05`.
fn minute(text: &str) -> Option<When> {
    let (name, rest) = text.split_at_checked(3)?;
    let (day, time) = rest.trim_start().split_once(' ')?;
    let ns = days(1972, month(name)?, day.parse().ok()?)? * DAY_NS + clock(time)?;
    (time.len() == 5).then(|| When::new(Zero::Year, ns))
}

/// Parses a record of /dev/kmsg, `6,339,5140900,-;text`: level, sequence, us since boot and flags precede the text.
fn kmsg(text: &str) -> Option<(i64, &str)> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (head, message) = text.split_once(';')?;
    let mut fields = head.split(',');
    let (level, sequence, us) = (fields.next()?, fields.next()?, fields.next()?);
    level.parse::<u16>().ok()?;
    sequence.parse::<u64>().ok()?;
    Some((us.parse().ok()?, message))
}

/// Whether the line is from a syslog, of any program: `Nov 21 08:00:01 db1 sshd[12]: m`.
#[must_use]
pub fn is_logged(text: &str) -> bool {
    text.split_once(": ").is_some_and(|(before, _)| before.len() < 200 && logged(before).is_some())
}

/// The time of a syslog line: `Nov 21 08:00:01 host`, `2026-11-21T08:00:01.123+00:00 host`.
fn logged(before: &str) -> Option<When> {
    let words: Vec<&str> = before.split_whitespace().collect();
    match words.as_slice() {
        [first, ..] if first.len() >= 19 => iso(first),
        // The date was removed.
        [time] | [time, _] if time.matches(':').count() == 2 => Some(When::new(Zero::Day, clock(time)?)),
        [name, day, time, ..] => {
            let day = days(1972, month(name)?, day.parse().ok()?)?;
            Some(When::new(Zero::Year, day * DAY_NS + clock(time)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::split;
    use crate::when::Zero;

    #[test]
    fn all_prefixes_are_split_off() {
        for (text, zero) in [
            ("[  123.456000] INFO: x", Some(Zero::Boot)),
            ("<6>[  123.456000] INFO: x", Some(Zero::Boot)),
            ("[  123.456000][ T1234] INFO: x", Some(Zero::Boot)),
            ("Nov 21 08:00:01 db1 kernel: [  123.456000] INFO: x", Some(Zero::Year)),
            ("Nov 21 08:00:01 db1 kernel: INFO: x", Some(Zero::Year)),
            ("2026-11-21T08:00:01.123+00:00 db1 kernel: INFO: x", Some(Zero::Epoch)),
            ("2026-11-21T08:00:01.123+00:00 db1 [  123.456000] INFO: x", Some(Zero::Epoch)),
            ("Nov 21 08:00:01 db1 [  123.456000] INFO: x", Some(Zero::Year)),
            ("[Sat Nov 21 08:00:01 2026] INFO: x", Some(Zero::Epoch)),
            ("kern  :warn  : [  123.456000] INFO: x", Some(Zero::Boot)),
            ("08:00:01 kernel: INFO: x", Some(Zero::Day)),
            ("kernel: [  123.456000] INFO: x", Some(Zero::Boot)),
            ("6,339,5140900,-;INFO: x", Some(Zero::Boot)),
            ("[Sep11 18:40] INFO: x", Some(Zero::Year)),
            ("[Sep 1 08:05] INFO: x", Some(Zero::Year)),
            ("INFO: x", None),
        ] {
            let found = split(text);
            assert_eq!((found.message, found.when.map(|when| when.zero)), ("INFO: x", zero), "{text}");
            assert_eq!(found.kernel, zero.is_some(), "{text}");
        }
        let since = split("[  +0.000015] INFO: x");
        assert_eq!((since.message, since.when, since.kernel), ("INFO: x", None, true), "no time since boot");
        assert_eq!(split(" [<ffffffff81>] io_schedule+0x73/0xc0").message, "[<ffffffff81>] io_schedule+0x73/0xc0");
    }
}
