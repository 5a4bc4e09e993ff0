//! Reads system calls with durations: `strace -T` (also with -f, -t, -tt, -ttt, -r, -y) and `perf trace`.
//!
//! Only calls on files are kept: others may wait for the network or a peer, which is not a stall. A read() without a
//! path is dropped, because most such reads are from sockets and pipes; a write() without a path is kept.

use super::builder::{Builder, Track};
use super::call_trace::op_of;
use super::error::ImportError;
use super::latency_log::PerSecond;
use super::number::{nanos, number};
use super::single_call::single_call;
use super::text::Cursor;
use super::when::{SECOND_NS, When, Zero, clock, epoch};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::{Basis, Cause, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "syscall-trace",
    sentence: "strace -T and perf trace: calls on files with their durations.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Line(&[" ms):"]), Anchor::Common(&[" = "])],
    detect: |cursor| if parse(cursor.next_text()).is_some() { 88 } else { 0 },
    read,
};

/// Minimum duration of a call to keep it individually; all calls are counted.
const SLOW_NS: u64 = 1_000_000;

#[derive(Debug, PartialEq)]
struct Called<'a> {
    when: Option<When>,
    pid: u32,
    thread: &'a str,
    name: &'a str,
    file: Option<&'a str>,
    bytes: Option<u64>,
    ns: u64,
}

fn parse(text: &str) -> Option<Called<'_>> {
    if text.len() > 8192 || !text.contains('(') && !text.contains("resumed>") {
        return None;
    }
    of_strace(text).or_else(|| of_perf(text))
}

/// `12345 10:20:30.123456 fsync(5</data/wal>) = 0 <0.123456>`, `[pid 12] <... fsync resumed>) = 0 <0.1>`.
fn of_strace(text: &str) -> Option<Called<'_>> {
    let (rest, seconds) = text.trim_end().strip_suffix('>')?.rsplit_once('<')?;
    let ns = nanos(number(seconds).filter(|seconds| *seconds >= 0.0)?, 1e9);
    let (call, result) = rest.rsplit_once(" = ")?;
    let mut head = call.trim_start();
    let mut pid = 0;
    if let Some((inner, after)) = head.strip_prefix("[pid").and_then(|rest| rest.split_once(']')) {
        (pid, head) = (inner.trim().parse().ok()?, after.trim_start());
    }
    let mut when = None;
    // The pid (-f with an output file) and one or two times.
    for _ in 0..3 {
        let Some((word, after)) = head.split_once(' ') else { break };
        if let Some(ns) = clock(word).filter(|_| word.matches(':').count() == 2) {
            when = Some(When::new(Zero::Day, ns));
        } else if let Some(found) = epoch(word) {
            when = Some(found);
        } else if let Ok(found) = word.parse::<u32>() {
            pid = found;
        } else if number(word).is_none() {
            break;
        }
        head = after.trim_start();
    }
    let (name, arguments) = match head.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
        Some((name, _)) => (name, ""),
        None => head.split_once('(')?,
    };
    plain(name).then_some(())?;
    let bytes = result.split_whitespace().next().and_then(|value| value.parse::<u64>().ok());
    Some(Called { when, pid, thread: "", name, file: path_of(arguments), bytes, ns })
}

/// `   123.456 ( 0.789 ms): java/1234 fsync(fd: 5</data/wal>) = 0`.
fn of_perf(text: &str) -> Option<Called<'_>> {
    let (before, rest) = text.split_once('(')?;
    let (ms, rest) = rest.split_once(" ms):")?;
    let at_ms = number(before.trim())?;
    let ns = nanos(number(ms.trim()).filter(|ms| *ms >= 0.0)?, 1e6);
    let (who, call) = rest.trim_start().split_once(' ')?;
    let (thread, pid) = who.rsplit_once('/').unwrap_or((who, "0"));
    let (name, arguments) = call.trim_start().split_once('(')?;
    plain(name).then_some(())?;
    let bytes = call.rsplit_once(" = ").and_then(|(_, value)| value.split_whitespace().next()?.parse().ok());
    let when = Some(When::new(Zero::Start, (at_ms * 1e6) as i64));
    Some(Called { when, pid: pid.parse().ok()?, thread, name, file: path_of(arguments), bytes, ns })
}

fn plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 32
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

/// The path after the first descriptor: `3</data/wal>, ...`.
fn path_of(arguments: &str) -> Option<&str> {
    let (before, rest) = arguments.split_once('<')?;
    let first = !before.contains(',');
    first.then(|| rest.split_once('>').map(|(path, _)| path))?
}

fn is_file_call(call: &Called<'_>, op: OpKind) -> bool {
    let by_path = call.file.map(|path| path.starts_with('/') && !path.starts_with("/dev/pts") && path != "/dev/null");
    match op {
        OpKind::Other | OpKind::Spawn | OpKind::Compute => false,
        OpKind::Read => by_path == Some(true),
        _ => by_path.unwrap_or(true),
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut tracks: Option<(Zero, Track, PerSecond)> = None;
    // The end of the last call, or the first time that the log states.
    let mut at: Option<i64> = None;
    while let Some(line) = cursor.peek() {
        let Some(call) = parse(line.text) else {
            // Unfinished calls, signals and exits.
            let text = line.text.trim_end();
            let of_strace = text.ends_with("<unfinished ...>")
                || text.contains("+++ exited")
                || text.contains("--- SIG")
                || text.starts_with("strace: ")
                || text.ends_with("= ?");
            if of_strace || line.is_blank() {
                if !line.is_blank() {
                    b.pass_over();
                }
                cursor.take();
                continue;
            }
            break;
        };
        cursor.take();
        let when = call.when.or(b.context().moment).unwrap_or(When::new(Zero::Start, 0));
        let (zero, track, latency) = tracks.get_or_insert_with(|| {
            let track = b.shared_track("syscall-trace", when.zero);
            (when.zero, track, PerSecond::new(track))
        });
        let ns = i64::try_from(call.ns).unwrap_or(i64::MAX);
        // strace prints the time at which a call began; without times, each call follows the one before.
        let timed = call.when.is_some() && when.zero == *zero;
        let start = at.filter(|_| !timed).unwrap_or(when.ns);
        at = Some(start.saturating_add(ns));
        let op = op_of(call.name);
        if !is_file_call(&call, op) {
            b.pass_over();
            continue;
        }
        let bytes = call.bytes.filter(|_| matches!(op, OpKind::Read | OpKind::Write));
        latency.add(b, start.div_euclid(SECOND_NS), call.thread, op, call.ns, bytes.unwrap_or(0));
        if call.ns >= SLOW_NS {
            let mut slow = single_call(call.pid, call.thread, op, call.ns, Cause::Unexplained, Basis::Exact);
            (slow.bytes, slow.file) = (bytes, call.file.map(str::to_owned));
            b.call((*track, start), slow);
        }
    }
    if let Some((_, _, mut latency)) = tracks {
        latency.flush(b);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_of_strace_and_perf_parse() {
        for (line, name, pid, us, file) in [
            ("fsync(5)                                = 0 <0.123456>", "fsync", 0, 123_456, None),
            ("12345 10:20:30.123456 fdatasync(5</data/wal>) = 0 <0.001>", "fdatasync", 12_345, 1000, Some("/data/wal")),
            (
                "[pid   77] 1795342830.123456 write(3</data/x>, \"abc\"..., 4096) = 4096 <0.000123>",
                "write",
                77,
                123,
                Some("/data/x"),
            ),
            ("12345 <... fsync resumed>)  = 0 <0.250000>", "fsync", 12_345, 250_000, None),
            ("   123.456 ( 0.789 ms): java/1234 fsync(fd: 5</data/wal>) = 0", "fsync", 1234, 789, Some("/data/wal")),
        ] {
            let call = parse(line).unwrap_or_else(|| panic!("no call: {line}"));
            assert_eq!((call.name, call.pid, call.ns / 1000, call.file), (name, pid, us, file), "{line}");
        }
        for line in ["", "f(x) = y <z>", "[<ffffffff81>] f+0x1/0x2", "A (b) = 1 <0.5>"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
