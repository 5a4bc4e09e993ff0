//! Parses a line with one event, as perf, trace-cmd or ftrace print it.

use crate::number::number;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    pub task: &'a str,
    pub tid: u32,
    pub at_ns: i64,
    /// Name without the subsystem.
    pub name: &'a str,
    pub fields: &'a str,
}

impl<'a> Event<'a> {
    /// The value of `key=value` in the fields.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&'a str> {
        let words = self.fields.split([' ', ',']).filter(|word| !word.is_empty());
        words.filter_map(|word| word.split_once('=')).find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    #[must_use]
    pub fn number(&self, key: &str) -> Option<f64> {
        number(self.field(key)?).filter(|value| *value >= 0.0)
    }
}

/// perf: `java  3238 [001] 12345.678901: vmscan:mm_vmscan_direct_reclaim_begin: order=0`, also `3238/3240`.
/// trace-cmd, ftrace: `java-3238 [001] d..1. 12345.678901: mm_vmscan_direct_reclaim_begin: order=0`.
#[must_use]
pub fn parse(text: &str) -> Option<Event<'_>> {
    let text = text.trim_start();
    // The CPU in brackets separates thread and time; perf without -a omits it.
    let (who, rest) = match text.split_once(" [") {
        Some((who, rest)) if rest.split_once(']').is_some_and(|(cpu, _)| cpu.trim().parse::<u32>().is_ok()) => {
            (who, rest.split_once(']')?.1)
        }
        _ => {
            let colon = text.find(": ")?;
            let time = text.get(..colon)?.rfind(char::is_whitespace)?;
            text.split_at_checked(time)?
        }
    };
    let (time, rest) = rest.split_once(": ")?;
    let time = time.split_whitespace().last()?;
    let seconds = number(time).filter(|seconds| time.contains('.') && (0.0..9e9).contains(seconds))?;
    let (name, fields) = rest.trim_start().split_once(':').filter(|(name, _)| !name.contains(' '))?;
    // `vmscan:mm_vmscan_...: fields`: no blank follows the colon of the subsystem.
    let (name, fields) = match fields.split_once(':') {
        Some((inner, rest)) if !fields.starts_with(' ') && !inner.contains(' ') => (inner, rest),
        _ => (name, fields),
    };
    let (task, tid) = thread(who.trim())?;
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain.then_some(Event { task, tid, at_ns: (seconds * 1e9).round() as i64, name, fields: fields.trim() })
}

/// Parses `java 3238`, `java 3238/3240`, `my-app-512` and `my app-512 (500)`.
fn thread(who: &str) -> Option<(&str, u32)> {
    let who = who.strip_suffix(')').and_then(|who| who.rsplit_once(" (")).map_or(who, |(who, _)| who.trim());
    let (task, tid) = match who.rsplit_once(char::is_whitespace) {
        Some((task, tid)) if tid.split('/').all(|part| part.parse::<u32>().is_ok()) => (task, tid.rsplit('/').next()?),
        _ => who.rsplit_once('-')?,
    };
    Some((task.trim(), tid.trim().parse().ok()?))
}

/// Whether the line is a frame below an event: `ffffffff8128f4b0 shrink_slab+0x120 ([kernel.kallsyms])`,
/// ` => shrink_slab`.
#[must_use]
pub fn is_stack(text: &str) -> bool {
    let text = text.trim_start();
    let first = text.split_whitespace().next().unwrap_or_default();
    text.starts_with("=> ")
        || text.starts_with("<stack trace")
        || (first.len() >= 8 && first.chars().all(|c| c.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn events_of_perf_trace_cmd_and_ftrace_parse() {
        for text in [
            "my app  3238/3240 [001] 12345.678901: vmscan:mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_KERNEL",
            "  my app-3240  [001] 12345.678901: mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_KERNEL",
            "  my app-3240    (3238) [001] d..2. 12345.678901: mm_vmscan_direct_reclaim_begin: order=0",
            "my app  3240 12345.678901: vmscan:mm_vmscan_direct_reclaim_begin: order=0",
        ] {
            let event = parse(text).expect(text);
            assert_eq!((event.task, event.tid, event.at_ns), ("my app", 3240, 12_345_678_901_000), "{text}");
            assert_eq!((event.name, event.field("order")), ("mm_vmscan_direct_reclaim_begin", Some("0")), "{text}");
        }
        for text in ["", "a: b: c", "[  12.345] usb 1-1: new device: x", "java 1 [x] 1.0: a: b"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
