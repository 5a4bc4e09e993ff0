//! Reads fio's normal output, versions 2 and 3: percentiles of the latencies of each direction and of fsyncs.

use super::Counting;
use crate::anchors::Anchor;
use crate::builder::{Builder, Track};
use crate::error::ImportError;
use crate::number::{leading, nanos, number, size};
use crate::text::Cursor;
use crate::when::{When, Zero, stamp};
use crate::{FormatKind, Importer};
use flatwater_recording::OpKind;
use flatwater_recording::short_sort::ShortSort;

pub const IMPORTER: Importer = Importer {
    name: "fio-text",
    sentence: "fio's normal output, fio 2 and 3.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Table(&[": (g", "fio-", "ioengine="]), Anchor::Line(&["iops=", "IOPS=", "fsync/fdatasync"])],
    detect: |cursor| match cursor.next_text() {
        text if job(text).is_some() || direction(text).is_some() => 92,
        text if text.starts_with("fio-") || text.contains("rw=") && text.contains("ioengine=") => 90,
        _ => 0,
    },
    read,
};

/// Name and end of `randwrite: (groupid=0, jobs=1): err= 0: pid=1234: Sun Nov 22 10:20:30 2026`.
fn job(text: &str) -> Option<(&str, Option<When>)> {
    let (name, rest) = text.split_once(": (g")?;
    let (_, rest) = rest.split_once("pid=")?;
    let ended = rest.split_once(": ").and_then(|(_, time)| stamp(time));
    Some((name.trim(), ended))
}

/// One direction of a job.
struct Side {
    op: OpKind,
    operations: f64,
    bytes: u64,
    ran_ms: u64,
    /// Mean latency, ns.
    mean_ns: Option<f64>,
    worst_ns: Option<f64>,
    steps: Vec<(f64, f64)>,
}

/// Parses `  write: IOPS=1234, BW=5MiB/s (5MB/s)(100MiB/20001msec)`,
/// `  write: io=102400KB, bw=5120.0KB/s, iops=1280, runt= 20000msec` or `  fsync/fdatasync/sync_file_range:`.
fn direction(text: &str) -> Option<Side> {
    let (name, rest) = text.trim_start().split_once(':')?;
    let op = match name.trim() {
        "read" => OpKind::Read,
        "write" => OpKind::Write,
        "trim" => OpKind::Other,
        "fsync/fdatasync/sync_file_range" => OpKind::Fsync,
        _ => return None,
    };
    let lower = rest.to_ascii_lowercase();
    let after = |key: &str| lower.split_once(key).map(|(_, rest)| rest.trim_start());
    let ran_ms = after("runt=").and_then(leading).or_else(|| {
        let (before, _) = lower.split_once("msec)")?;
        leading(before.rsplit('/').next()?)
    });
    let ran_ms = ran_ms.map_or(0, |(ms, _)| ms);
    let rate = after("iops=").and_then(|rest| size(rest.split([',', ' ']).next()?, 1.0));
    if op != OpKind::Fsync && rate.is_none() {
        return None;
    }
    let bytes = after("io=")
        .and_then(|rest| size(rest.split(',').next()?.trim(), 1.0))
        .and_then(|bytes| u64::try_from(bytes).ok());
    // The k in IOPS=12.3k is 1000.
    let thousands =
        after("iops=").and_then(|rest| rest.split([',', ' ']).next()).is_some_and(|word| word.ends_with('k'));
    let rate = rate.map_or(0.0, |rate| rate as f64 * if thousands { 1000.0 / 1024.0 } else { 1.0 });
    let operations = rate * ran_ms as f64 / 1000.0;
    Some(Side { op, operations, bytes: bytes.unwrap_or(0), ran_ms, mean_ns: None, worst_ns: None, steps: Vec::new() })
}

/// ns per unit of `clat (usec)` or `sync percentiles (nsec)`.
fn unit_ns(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once('(')?;
    Some(match rest.split(')').next()? {
        "nsec" => 1.0,
        "usec" => 1e3,
        "msec" => 1e6,
        "sec" => 1e9,
        _ => return None,
    })
}

impl Side {
    /// Reads a line below the direction. Returns false if the line does not belong to it.
    fn line(&mut self, text: &str, percentile_ns: &mut Option<f64>) -> bool {
        let text = text.trim();
        if text.contains(" percentiles (") {
            *percentile_ns = unit_ns(text);
            return true;
        }
        if let (Some(rest), Some(unit)) = (text.strip_prefix('|'), *percentile_ns) {
            for step in rest.split(',') {
                let Some((percent, value)) = step.split_once("th=[") else { continue };
                let value = value.trim_matches([']', ' ']);
                let (value, factor) = value.strip_suffix('k').map_or((value, 1.0), |value| (value, 1000.0));
                if let (Some(percent), Some(value)) = (number(percent.trim()), number(value.trim())) {
                    self.steps.push((percent, value * factor * unit));
                }
            }
            return true;
        }
        let own = ["clat (", "lat (", "slat (", "sync ("].iter().any(|start| text.starts_with(start));
        if !own || !text.contains("min=") {
            return ["bw (", "iops        :", "lat (", "bw  (", "iops "].iter().any(|start| text.starts_with(start));
        }
        let value = |key: &str| {
            let rest = text.split_once(key)?.1.trim_start();
            let word = rest.split(',').next()?.trim();
            let (word, factor) = word.strip_suffix('k').map_or((word, 1.0), |word| (word, 1000.0));
            Some(number(word)? * factor * unit_ns(text)?)
        };
        if !text.starts_with("slat") {
            let worst = value("max=").unwrap_or(0.0).max(self.worst_ns.unwrap_or(0.0));
            self.worst_ns = (worst > 0.0).then_some(worst).or(self.worst_ns);
            self.mean_ns = value("avg=").or(self.mean_ns);
        }
        true
    }

    fn push(mut self, (track, end): (Track, i64), name: &str, b: &mut Builder) {
        let Some(worst_ns) = self.worst_ns else { return };
        let operations = (self.operations.clamp(0.0, 1e12) as u64).max(1);
        let mut counting = Counting::default();
        let mut counted = 0_u64;
        self.steps.sort_short_by(|one, other| one.0.total_cmp(&other.0));
        for (percent, ns) in &self.steps {
            let upto = (operations as f64 * percent / 100.0).floor() as u64;
            // Values between two percentiles count as the upper one.
            counting.add(nanos(ns.max(0.0), 1.0), upto.saturating_sub(counted));
            counted = counted.max(upto);
        }
        if self.steps.is_empty() {
            counted = operations.saturating_sub(1);
            counting.add(nanos(self.mean_ns.unwrap_or(worst_ns).max(0.0), 1.0), counted);
        }
        counting.add(nanos(worst_ns.max(0.0), 1.0), operations.saturating_sub(counted).max(1));
        b.note("fio's output has only percentiles: latencies between two of them count as the upper one");
        let width = i64::try_from(self.ran_ms).unwrap_or(0).saturating_mul(1_000_000);
        counting.push(b, (track, end.saturating_sub(width)), width.unsigned_abs(), self.op, name, self.bytes);
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut name = "fio".to_owned();
    let mut ended = b.context().moment.unwrap_or(When::new(Zero::Start, 0));
    let (mut side, mut unit): (Option<Side>, Option<f64>) = (None, None);
    let flush = |side: &mut Option<Side>, ended: When, name: &str, b: &mut Builder| {
        if let Some(side) = side.take() {
            let track = b.shared_track("fio-text", ended.zero);
            side.push((track, ended.ns), name, b);
        }
    };
    while let Some(line) = cursor.peek() {
        let text = line.text;
        if let Some((job, when)) = job(text) {
            flush(&mut side, ended, &name, b);
            job.clone_into(&mut name);
            ended = when.unwrap_or(ended);
        } else if let Some(found) = direction(text) {
            // The fsyncs of a job are assumed to be as many as its writes, and to run as long.
            let before = side.as_ref().map(|side| (side.operations, side.ran_ms));
            flush(&mut side, ended, &name, b);
            let mut found = found;
            if found.op == OpKind::Fsync {
                (found.operations, found.ran_ms) = before.unwrap_or((1.0, 0));
            }
            (side, unit) = (Some(found), None);
        } else if !side.as_mut().is_some_and(|side| side.line(text, &mut unit)) {
            if !(is_inside(text) || line.is_blank()) {
                break;
            }
            if !line.is_blank() {
                b.pass_over();
            }
        }
        cursor.take();
    }
    flush(&mut side, ended, &name, b);
    Ok(())
}

/// Whether this is another line of fio's output.
fn is_inside(text: &str) -> bool {
    let text = text.trim();
    let begins = [
        "cpu ",
        "IO depths",
        "submit ",
        "complete ",
        "issued ",
        "latency ",
        "Run status",
        "READ:",
        "WRITE:",
        "TRIM:",
        "Disk stats",
        "Starting ",
        "fio-",
        "Jobs:",
        "lat (",
        "...",
    ];
    begins.iter().any(|start| text.starts_with(start))
        || text.contains("ioengine=") && text.contains("rw=")
        || text.contains("ios=") && text.contains("util=")
        || text.contains("Laying out IO file")
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::OpKind;

    #[test]
    fn outputs_of_fio_2_and_3_are_read() {
        let three = "w: (groupid=0, jobs=1): err= 0: pid=12: Sun Nov 22 10:20:30 2026\n  write: IOPS=100, BW=400KiB/s (410kB/s)(4000KiB/10000msec); 0 zone resets\n    clat (usec): min=1, max=90000, avg=50.0, stdev=1.0\n    clat percentiles (usec):\n     |  1.00th=[    5], 50.00th=[   10], 99.00th=[  400], 99.99th=[80000]\n  fsync/fdatasync/sync_file_range:\n    sync (msec): min=1, max=80, avg=5.0, stdev=1.0\n";
        let two = "w: (groupid=0, jobs=1): err= 0: pid=12: Sun Nov 22 10:20:30 2026\n  write: io=4000KB, bw=400KB/s, iops=100, runt= 10000msec\n    clat (usec): min=1, max=90000, avg=50.0, stdev=1.0\n";
        for (text, kinds) in [(three, 2), (two, 1)] {
            let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
            assert_eq!(recording.latency.len(), kinds, "{text}");
            let writes = recording.latency.iter().find(|row| row.op == OpKind::Write).expect("writes");
            assert_eq!((writes.from_start.unpack().len(), writes.worst_from_start_ns), (1000, 90_000_000));
        }
    }
}
