//! Reads GC logs of the JVM: unified (`-Xlog:gc*`, 9 and later) and older (`-XX:+PrintGCDetails`).
//!
//! Computing during a collection is not a kernel stall. `[Times: user=0.14 sys=0.01, real=37.70 secs]` shows which
//! pause waited: its real time exceeds the CPU time of all its threads. A high sys time was spent in the kernel. Every
//! pause is counted; a pause that waited is also a slow call.

use super::{duration, time};
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::number;
use crate::single_call::single_call;
use crate::text::Cursor;
use crate::when::{SECOND_NS, When, Zero};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, workload};
use flatwater_recording::{Basis, Cause, DurationBasis, Entity, OpKind, Segment, Table};

pub const IMPORTER: Importer = Importer {
    name: "jvm-gc",
    sentence: "GC logs of the JVM, unified and older; GC overhead lines of Elasticsearch; Cassandra's GCInspector.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Line(&[
        "[Times:",
        " secs",
        "overhead, spent [",
        "threads were stopped",
        "GCInspector",
        "[gc",
        "[GC",
        "[Full GC",
        "[Parallel Time:",
        "[Code Root",
        "[Other:",
        "[Evacuation Failure",
        "[Eden:",
        "[Ext Root",
        "[Update RS",
        "[Scan RS",
        "[Object Copy",
        "[Termination",
        "[Clear CT",
        "[Free CSet",
        "[Ref Proc",
        "[Ref Enq",
        "[Choose CSet",
        "[Redirty",
        "[Humongous",
        "Desired survivor size",
        "- age ",
        "{Heap before GC",
        "garbage-first heap",
        "[CMS-concurrent",
        "[ParNew",
        "CMS-initial-mark",
    ])],
    detect: |cursor| if pause_of(cursor.next_text()).is_some() || is_inside(cursor.next_text()) { 80 } else { 0 },
    read,
};

/// Minimum wait of a pause: shorter ones may be scheduling, or rounding of the three values.
const WAITED_MIN_NS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum GcLine {
    Pause {
        ns: u64,
    },
    /// User, system and real time of the last pause.
    Times {
        user_ns: u64,
        system_ns: u64,
        real_ns: u64,
    },
    /// A server's own message about its JVM, in one line.
    Overhead {
        ns: u64,
    },
    /// The length of a safepoint: it contains the pauses printed above, if any.
    Stopped {
        ns: u64,
    },
}

fn pause_of(text: &str) -> Option<GcLine> {
    if !text.contains("secs") && !text.contains("ms") && !text.contains('s') || text.len() > 4096 {
        return None;
    }
    if let Some(times) = times(text) {
        return Some(times);
    }
    if text.contains("overhead, spent [") {
        return duration::first(text.split_once("spent [")?.1, 0.0).map(|ns| GcLine::Overhead { ns });
    }
    if let Some((_, rest)) = text.split_once("Total time for which application threads were stopped:") {
        return duration::first(rest, 0.0).map(|ns| GcLine::Stopped { ns });
    }
    if text.contains("GCInspector") {
        let rest = text.split_once(" GC in ")?.1;
        return duration::first(rest, 0.0).map(|ns| GcLine::Overhead { ns });
    }
    // Unified: `[12.345s][info][gc] GC(12) Pause Young (Normal) (G1 Evacuation Pause) 24M->4M(256M) 3.456ms`.
    let unified = text.contains("[gc") && text.contains("GC(") && text.contains("Pause ");
    if unified && text.trim_end().ends_with("ms") {
        let last = text.split_whitespace().last()?;
        return duration::first(last, 0.0).map(|ns| GcLine::Pause { ns });
    }
    // Older: `[GC pause (G1 Evacuation Pause) (young), 0.0123 secs]`, `[Full GC ... 1.2 secs]`.
    let older = (text.contains("[GC") || text.contains("[Full GC")) && text.contains(" secs]");
    let before = text.rsplit_once(" secs]")?.0;
    let seconds = number(before.rsplit([' ', ',']).next()?)?;
    older.then(|| GcLine::Pause { ns: crate::number::nanos(seconds.max(0.0), 1e9) })
}

/// Parses `[Times: user=0.14 sys=0.01, real=37.70 secs]` and unified `User=0.14s Sys=0.01s Real=37.70s`.
fn times(text: &str) -> Option<GcLine> {
    let value = |keys: [&str; 2]| {
        let rest = keys.iter().find_map(|key| text.split_once(key)).map(|(_, rest)| rest)?;
        let digits = rest.split(|c: char| !(c.is_ascii_digit() || c == '.')).next()?;
        number(digits).map(|seconds| crate::number::nanos(seconds, 1e9))
    };
    let (user_ns, system_ns) = (value(["user=", "User="])?, value(["sys=", "Sys="])?);
    Some(GcLine::Times { user_ns, system_ns, real_ns: value(["real=", "Real="])? })
}

/// Whether this is another line of a collection.
fn is_inside(text: &str) -> bool {
    let text = text.trim_start();
    let begins = [
        "[Parallel Time:",
        "[Code Root",
        "[Other:",
        "[Evacuation Failure",
        "[Eden:",
        "[GC Worker",
        "[Ext Root",
        "[Update RS",
        "[Scan RS",
        "[Object Copy",
        "[Termination",
        "[Clear CT",
        "[Free CSet",
        "[Ref Proc",
        "[Ref Enq",
        "[Choose CSet",
        "[Redirty",
        "[Humongous",
        "Desired survivor size",
        "- age ",
        "{Heap before GC",
        " garbage-first heap",
    ];
    begins.iter().any(|start| text.starts_with(start))
        || text.contains("[CMS-concurrent")
        || text.contains("[gc,")
        || text.contains("[gc ") && text.contains("GC(")
        || text.contains("[GC (")
        || text.contains("[GC ") && text.contains("[ParNew")
        || text.contains("[ParNew:")
        || text.contains("CMS-initial-mark")
}

#[derive(Default)]
struct Totals {
    /// Duration of the last pause, whose times follow; 0 if there is none.
    open_ns: u64,
    /// A pause was counted since the last safepoint.
    counted: bool,
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut totals = Totals::default();
    let mut at: Option<(When, i64)> = None;
    while let Some(line) = cursor.peek() {
        let found = pause_of(line.text);
        // The continuation of a ParNew record: `: 1102035K->13267K(1219328K), 0.0266830 secs] ...`.
        if found.is_none()
            && !is_inside(line.text)
            && !(at.is_some() && (line.is_blank() || line.text.starts_with(": ")))
        {
            break;
        }
        cursor.take();
        let when = time::of_line(line.text).or_else(|| uptime(line.text)).or(b.context().moment);
        let now = match (when, at) {
            (Some(when), _) => (when, 0),
            (None, Some((when, ordinal))) => (When::new(when.zero, when.ns), ordinal + 1),
            (None, None) => (When::new(Zero::Start, 0), 0),
        };
        at = Some(now);
        let Some(found) = found else {
            if !line.is_blank() {
                b.pass_over();
            }
            continue;
        };
        let track = b.shared_track("jvm-gc", now.0.zero);
        let place = (track, now.0.ns.saturating_add(now.1.saturating_mul(SECOND_NS / 1000)));
        tell(found, place, &mut totals, b);
    }
    Ok(())
}

/// Parses seconds since the JVM started: `506146.808: [GC pause`, `[12.345s][info][gc]`.
fn uptime(text: &str) -> Option<When> {
    let text = text.trim_start().trim_start_matches('[');
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (seconds, rest) = text.split_at_checked(end)?;
    (seconds.contains('.') && rest.starts_with([':', 's'])).then_some(())?;
    Some(When::new(Zero::Start, (number(seconds)? * SECOND_NS as f64) as i64))
}

fn tell(found: GcLine, place: (crate::builder::Track, i64), totals: &mut Totals, b: &mut Builder) {
    let rise = |ns: u64| Cell::Rise(ns as f64);
    let mut cells: Vec<(Column, Cell)> = Vec::new();
    match found {
        GcLine::Pause { ns } => {
            cells.extend([(workload::GC_PAUSES, Cell::Rise(1.0)), (workload::GC_PAUSE_NS, rise(ns))]);
            (totals.open_ns, totals.counted) = (ns, true);
        }
        GcLine::Stopped { .. } if totals.counted => {
            totals.counted = false;
            b.pass_over();
        }
        GcLine::Stopped { ns } | GcLine::Overhead { ns } => {
            cells.extend([(workload::GC_PAUSES, Cell::Rise(1.0)), (workload::GC_PAUSE_NS, rise(ns))])
        }
        GcLine::Times { user_ns, system_ns, real_ns } => {
            if totals.open_ns == 0 {
                cells.extend([(workload::GC_PAUSES, Cell::Rise(1.0)), (workload::GC_PAUSE_NS, rise(real_ns))]);
            }
            (totals.open_ns, totals.counted) = (0, true);
            cells.extend([(workload::GC_USER_NS, rise(user_ns)), (workload::GC_SYSTEM_NS, rise(system_ns))]);
            let waited_ns = real_ns.saturating_sub(user_ns.saturating_add(system_ns));
            if waited_ns >= WAITED_MIN_NS {
                b.call((place.0, place.1), waiting_pause(real_ns, waited_ns));
            }
        }
    }
    b.row(place, Table::Workload, &Entity::named("jvm gc"), &cells);
}

/// A pause that was longer than the CPU time of all its threads: it waited for at least the difference.
fn waiting_pause(real_ns: u64, waited_ns: u64) -> flatwater_recording::Call {
    let mut call = single_call(0, "jvm gc", OpKind::Other, real_ns, Cause::Unexplained, Basis::Exact);
    let busy_ns = real_ns - waited_ns;
    let cause = |cause| flatwater_recording::CauseBasis::of_basis(Basis::Inferred, cause);
    call.segments =
        vec![Segment::new(0, waited_ns, Cause::Unexplained, DurationBasis::Inferred, cause(Cause::Unexplained))];
    if busy_ns > 0 {
        call.segments.push(Segment::new(
            waited_ns,
            busy_ns,
            Cause::Compute,
            DurationBasis::Inferred,
            cause(Cause::Compute),
        ));
    }
    call
}

#[cfg(test)]
mod tests {
    use super::{GcLine, pause_of};

    #[test]
    fn pauses_and_times_of_both_log_formats_parse() {
        for (line, expected) in [
            ("506146.808: [GC pause (G1 Evacuation Pause) (mixed), 8.5 secs]", GcLine::Pause { ns: 8_500_000_000 }),
            ("[12.3s][info][gc] GC(12) Pause Young (Normal) 24M->4M(256M) 3.5ms", GcLine::Pause { ns: 3_500_000 }),
            (
                "[12.3s][info][gc,cpu] GC(12) User=0.14s Sys=0.01s Real=37.70s",
                GcLine::Times { user_ns: 140_000_000, system_ns: 10_000_000, real_ns: 37_700_000_000 },
            ),
            (
                ": 1K->1K(1K), 0.02 secs] 1K->1K(1K), 0.07 secs] [Times: user=0.14 sys=0.01, real=37.70 secs]",
                GcLine::Times { user_ns: 140_000_000, system_ns: 10_000_000, real_ns: 37_700_000_000 },
            ),
            (
                "[INFO ][o.e.m.j.JvmGcMonitorService] [n] [gc][3433] overhead, spent [593ms] collecting in the last [1.2s]",
                GcLine::Overhead { ns: 593_000_000 },
            ),
        ] {
            assert_eq!(pause_of(line), Some(expected), "{line}");
        }
        assert_eq!(pause_of("took 5 secs to start"), None);
    }
}
