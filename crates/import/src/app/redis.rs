//! Reads latency reports of redis-cli: `--latency-history`, `LATENCY LATEST`, `LATENCY DOCTOR`.

use crate::anchors::{Anchor, DIGITS};
use crate::builder::Builder;
use crate::error::ImportError;
use crate::latency_log::Counting;
use crate::number::{leading, number};
use crate::single_call::single_call;
use crate::text::Cursor;
use crate::when::SECOND_NS;
use crate::{FormatKind, Importer};
use flatwater_recording::{Basis, Cause, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "redis-latency",
    sentence: "redis-cli --latency-history and the events of LATENCY LATEST and LATENCY DOCTOR.",
    kind: FormatKind::TimedCalls,
    anchors: &[Anchor::Line(&["avg:", "latency spikes (average"]), Anchor::Start(DIGITS)],
    detect: |cursor| {
        if history(cursor.next_text()).is_some() || event(cursor).is_some() || doctor(cursor.next_text()).is_some() {
            90
        } else {
            0
        }
    },
    read,
};

/// `min: 0, max: 35, avg: 0.18 (1447 samples) -- 15.00 seconds range`.
struct History {
    max_ms: f64,
    mean_ms: f64,
    samples: u64,
    seconds: f64,
}

fn history(text: &str) -> Option<History> {
    let after = |key: &str| text.split_once(key).map(|(_, rest)| rest.trim_start());
    let value = |key: &str| number(after(key)?.split([',', ' ']).next()?).filter(|value| *value >= 0.0);
    let samples = leading(after("avg:")?.split_once('(')?.1)?.0;
    let seconds = after("--").and_then(|rest| number(rest.split(' ').next()?)).unwrap_or(1.0);
    Some(History { max_ms: value("max:")?, mean_ms: value("avg:")?, samples, seconds })
}

/// The quoted name of an event after its position (`1) 1) "aof-write"`), and the three integers below it: time, latest
/// and worst ms.
fn event<'a>(cursor: &Cursor<'a>) -> Option<(&'a str, [i64; 3])> {
    let text = cursor.next_text().trim();
    let name = text.split_once('"')?.1.strip_suffix('"')?;
    text.split_once(')')?.0.parse::<u32>().ok()?;
    let integer = |ahead: usize| {
        let line = cursor.ahead(ahead)?;
        line.text.split_once("(integer)")?.1.trim().parse::<i64>().ok()
    };
    Some((name, [integer(1)?, integer(2)?, integer(3)?]))
}

/// Parses
/// `1. aof-write: 3 latency spikes (average 123ms, mean deviation 4ms, period 5.00 sec). Worst all time event 250ms.`
/// as name and worst ms.
fn doctor(text: &str) -> Option<(&str, u64)> {
    let (name, rest) = text.trim().split_once(". ")?.1.split_once(": ")?;
    rest.contains("latency spikes (average").then_some(())?;
    Some((name, leading(rest.split_once("Worst all time event ")?.1)?.0))
}

fn op_of(event: &str) -> OpKind {
    match event {
        "aof-fsync-always" => OpKind::Fdatasync,
        name if name.starts_with("aof-write") => OpKind::Write,
        _ => OpKind::Other,
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (track, mut at) = b.origin("redis-latency");
    while let Some(line) = cursor.peek() {
        if let Some(History { max_ms, mean_ms, samples, seconds }) = history(line.text) {
            let mut counting = Counting::default();
            counting.add((mean_ms * 1e6) as u64, samples.saturating_sub(1));
            counting.add((max_ms * 1e6) as u64, 1);
            let width = (seconds.clamp(0.0, 1e6) * SECOND_NS as f64) as i64;
            counting.push(b, (track, at), width.unsigned_abs(), OpKind::Other, "redis-cli ping", 0);
            at = at.saturating_add(width);
            b.note("redis-cli prints only the mean and the maximum of all pings; the other pings count as the mean");
            cursor.take();
        } else if let Some((name, [seconds, _, worst_ms])) = event(cursor) {
            let ns = u64::try_from(worst_ms).unwrap_or(0).saturating_mul(1_000_000);
            let call = single_call(0, &format!("redis {name}"), op_of(name), ns, Cause::Unexplained, Basis::Exact);
            let track = b.shared_track("redis-latency-events", crate::when::Zero::Epoch);
            b.call((track, seconds.clamp(0, 1 << 33).saturating_mul(SECOND_NS)), call);
            cursor.take_lines(4);
        } else if let Some((name, worst_ms)) = doctor(line.text) {
            let ns = worst_ms.saturating_mul(1_000_000);
            b.call(
                (track, at),
                single_call(0, &format!("redis {name}"), op_of(name), ns, Cause::Unexplained, Basis::Exact),
            );
            cursor.take();
        } else if line.is_blank() {
            cursor.take();
        } else {
            break;
        }
    }
    Ok(())
}
