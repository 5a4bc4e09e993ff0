//! Reads `perf sched latency` and `perf sched timehist`: how long runnable tasks waited for a CPU.
//!
//! The longest delay of each task in `latency` becomes a call of that length with the cause run-queue.

use super::builder::Builder;
use super::error::ImportError;
use super::number::{nanos, number};
use super::single_call::single_call;
use super::text::{Cursor, Line};
use super::when::SECOND_NS;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::{Basis, Cause, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "perf-sched",
    sentence: "perf sched latency and perf sched timehist: waits for a CPU, by task.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Table(&["Runtime ms", "sch delay"])],
    detect: |cursor| match cursor.next_text() {
        text if is_latency(text) || is_timehist(text) => 94,
        _ => 0,
    },
    read,
};

fn is_latency(text: &str) -> bool {
    text.contains("Task") && text.contains("Runtime ms") && text.to_ascii_lowercase().contains("delay ms")
}

fn is_timehist(text: &str) -> bool {
    text.contains("task name") && text.contains("sch delay") && text.contains("run time")
}

/// Shorter delays are the cost of a context switch.
const DELAY_NS_MIN: u64 = 1_000;

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let Some(header) = cursor.take() else { return Ok(()) };
    let of_latency = is_latency(header.text);
    let (track, origin) = b.origin("perf-sched");
    let (mut first_ns, mut ordinal) = (None, 0);
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        if text.is_empty() || text.starts_with("---") || text.contains("[tid/pid]") || text.contains("(msec)") {
            if text.is_empty() && ordinal > 0 {
                break;
            }
            cursor.take();
            continue;
        }
        let found = if of_latency { latency_row(text) } else { timehist_row(&line) };
        let Some(delay) = found else {
            // `TOTAL:  |  123.4 ms |  456 |` ends the table. Other lines belong to other formats.
            if text.starts_with("TOTAL:") || text.starts_with("INFO:") {
                cursor.take();
                continue;
            }
            break;
        };
        cursor.take();
        ordinal += 1;
        if delay.ns < DELAY_NS_MIN {
            b.pass_over();
            continue;
        }
        let began = delay.at_ns.map_or(ordinal * SECOND_NS / 1000, |at| at - *first_ns.get_or_insert(at));
        let at = origin.saturating_add(began.max(0)).saturating_sub(i64::try_from(delay.ns).unwrap_or(0)).max(origin);
        b.call((track, at), single_call(delay.pid, delay.task, OpKind::Other, delay.ns, Cause::RunQueue, Basis::Exact));
    }
    if of_latency {
        b.note(
            "perf sched latency prints the longest wait for a CPU of each task; of the other waits only number and mean",
        );
    }
    Ok(())
}

struct Delay<'a> {
    task: &'a str,
    pid: u32,
    ns: u64,
    at_ns: Option<i64>,
}

/// `raftstore-4:82059 | 3568.419 ms | 9713 | avg: 0.025 ms | max: 12.974 ms | max at: 9394868.547878 s`; since Linux
/// 5.12 `max start: ... s | max end: ... s`.
fn latency_row(text: &str) -> Option<Delay<'_>> {
    let mut cells = text.split('|').map(str::trim);
    let (task, pid) = cells.next()?.rsplit_once(':')?;
    // `tidb-ycsb:(63)` has the number of threads with that name instead of a pid.
    let pid = pid.trim_matches(['(', ')']);
    pid.bytes().all(|c| c.is_ascii_digit()).then_some(())?;
    let pid = if text.contains(":(") { 0 } else { pid.parse().ok()? };
    let value = |cell: &str, key: &str, unit: &str| {
        number(cell.strip_prefix(key)?.trim_start_matches(':').trim().strip_suffix(unit)?.trim())
    };
    let cells: Vec<&str> = cells.collect();
    let longest = cells.iter().find_map(|cell| value(cell, "max", "ms"))?;
    let at = ["max at", "max end"].iter().find_map(|key| cells.iter().find_map(|cell| value(cell, key, "s")));
    let at_ns = at.filter(|seconds| seconds.abs() < 4e9).map(|seconds| (seconds * SECOND_NS as f64) as i64);
    Some(Delay { task, pid, ns: nanos(longest.max(0.0), 1e6), at_ns })
}

/// `79371.874569 [0011]  gcc[31949]  0.014  0.000  1.148`: wait, delay and run time in ms.
fn timehist_row<'a>(line: &Line<'a>) -> Option<Delay<'a>> {
    let words = line.words();
    let [time, cpu, middle @ .., _wait, delay, _run] = words.as_slice() else { return None };
    let inner = cpu.strip_prefix('[')?.strip_suffix(']')?;
    inner.bytes().all(|c| c.is_ascii_digit()).then_some(())?;
    let seconds = number(time).filter(|seconds| (0.0..4e9).contains(seconds))?;
    let ms = number(delay).filter(|ms| *ms >= 0.0)?;
    let named = middle.first().copied().unwrap_or("<idle>");
    let (task, ids) = named.split_once('[').unwrap_or((named, ""));
    let pid = ids.trim_end_matches(']').split('/').next().and_then(|id| id.parse().ok()).unwrap_or(0);
    Some(Delay { task, pid, ns: nanos(ms, 1e6), at_ns: Some((seconds * SECOND_NS as f64) as i64) })
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Cause;

    #[test]
    fn longest_delays_are_waits_for_a_cpu() {
        let text = "  Task                  |   Runtime ms  | Switches | Average delay ms | Maximum delay ms | Maximum delay at       |\n\
            \x20 raftstore-4:82059     |   3568.419 ms |     9713 | avg:    0.025 ms | max:   12.974 ms | max at: 9394868.547878 s\n\
            \x20 tidb-ycsb:(63)        |  58661.342 ms |   367843 | avg:    0.028 ms | max:   11.810 ms | max at: 9394867.616867 s\n\
            \x20 TOTAL:                |  62229.761 ms |   377556 |\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let calls: Vec<(&str, u32, u64)> =
            recording.calls.iter().map(|call| (call.thread.as_str(), call.pid, call.duration_ns)).collect();
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert!(calls.contains(&("raftstore-4", 82_059, 12_974_000)), "{calls:?}");
        assert!(calls.contains(&("tidb-ycsb", 0, 11_810_000)), "{calls:?}");
        assert_eq!(recording.calls[0].segments[0].cause, Cause::RunQueue);
    }

    #[test]
    fn timehist_delays_become_calls() {
        let text = "           time    cpu  task name                       wait time  sch delay   run time\n\
            \x20                       [tid/pid]                          (msec)     (msec)     (msec)\n\
            --------------- ------  ------------------------------  ---------  ---------  ---------\n\
            \x20  79371.874569 [0011]  gcc[31949]                          0.014      0.000      1.148\n\
            \x20  79371.874591 [0010]  gcc[31951]                          0.000     45.120      0.024\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        assert_eq!(recording.calls.len(), 1);
        assert_eq!((recording.calls[0].pid, recording.calls[0].duration_ns), (31_951, 45_120_000));
    }
}
