//! Reads histograms in Prometheus text: `etcd_disk_wal_fsync_duration_seconds_bucket{le="0.008"} 3190`.

use std::collections::BTreeMap;

use super::Counting;
use crate::anchors::Anchor;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::number::{nanos, number};
use crate::text::Cursor;
use crate::{FormatKind, Importer};
use flatwater_recording::OpKind;
use flatwater_recording::short_sort::ShortSort;

pub const IMPORTER: Importer = Importer {
    name: "prometheus-histogram",
    sentence: "Histograms of seconds in Prometheus text, such as etcd's wal_fsync and backend_commit.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Table(&["_seconds_bucket{"])],
    detect: |cursor| if bucket(cursor.next_text()).is_some() { 90 } else { 0 },
    read,
};

/// Name with the other labels, upper bound in seconds, and cumulative count.
fn bucket(text: &str) -> Option<(String, f64, u64)> {
    let (name, rest) = text.trim().split_once("_seconds_bucket{")?;
    let (labels, value) = rest.rsplit_once('}')?;
    let mut upper = None;
    let mut others = Vec::new();
    for label in labels.split(',').filter(|label| !label.is_empty()) {
        match label.trim().strip_prefix("le=") {
            Some(le) => {
                let le = le.trim_matches('"');
                upper = Some(if le == "+Inf" { f64::INFINITY } else { number(le)? });
            }
            None => others.push(label.trim()),
        }
    }
    let count = number(value.split_whitespace().next()?)?.clamp(0.0, 1e15) as u64;
    let name = if others.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", others.join(",")) };
    Some((name, upper?, count))
}

fn op_of(name: &str) -> OpKind {
    match name {
        name if name.contains("fdatasync") => OpKind::Fdatasync,
        name if name.contains("sync") || name.contains("commit") || name.contains("flush") => OpKind::Fsync,
        name if name.contains("write") => OpKind::Write,
        _ => OpKind::Other,
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut histograms: BTreeMap<String, Vec<(f64, u64)>> = BTreeMap::new();
    while let Some(line) = cursor.peek() {
        match bucket(line.text) {
            Some((name, upper, count)) => {
                let steps = histograms.entry(name).or_default();
                // A repeated bucket begins the next scrape.
                if steps.iter().any(|(known, _)| *known == upper) {
                    break;
                }
                steps.push((upper, count));
            }
            None if line.text.starts_with("# ")
                || line.text.contains("_seconds_sum")
                || line.text.contains("_seconds_count") => {}
            None => break,
        }
        cursor.take();
    }
    for (name, mut steps) in histograms {
        steps.sort_short_by(|one, other| one.0.total_cmp(&other.0));
        let mut counting = Counting::default();
        let (mut reported, mut last) = (0, 0.0);
        for (upper, count) in steps {
            // Values above the last bound count as twice that bound.
            let at = if upper.is_finite() { upper } else { last * 2.0 };
            if count > reported {
                counting.add(nanos(at.max(0.0), 1e9), count - reported);
            }
            (reported, last) = (reported.max(count), at);
        }
        let place = b.snapshot_of("prometheus-histogram", &name);
        counting.push(b, place, 0, op_of(&name), &name, 0);
    }
    b.note("latencies from Prometheus histograms are rounded up to the upper bound of their bucket");
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::OpKind;

    #[test]
    fn cumulative_buckets_become_a_histogram() {
        let text = "# TYPE etcd_disk_wal_fsync_duration_seconds histogram\netcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.001\"} 10\netcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.128\"} 14\netcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"} 15\netcd_disk_wal_fsync_duration_seconds_sum 1.5\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let row = recording.latency.first().expect("a histogram");
        assert_eq!((row.op, row.from_start.unpack().len(), row.worst_from_start_ns), (OpKind::Fsync, 15, 256_000_000));
    }
}
