//! Reads `fio --output-format=json` and json+: a histogram per job and direction, complete with json+, from percentiles
//! otherwise.

use serde_json::Value;

use super::Counting;
use crate::anchors::Anchor;
use crate::builder::{Builder, Track};
use crate::error::ImportError;
use crate::json;
use crate::number::nanos;
use crate::text::Cursor;
use crate::when::{When, Zero};
use crate::{FormatKind, Importer};
use flatwater_recording::OpKind;
use flatwater_recording::short_sort::ShortSort;

pub const IMPORTER: Importer = Importer {
    name: "fio-json",
    sentence: "fio --output-format=json or json+, fio 2 and 3.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Start("{")],
    detect: |cursor| json::detect(cursor, "\"fio version\""),
    read,
};

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let document = json::read(cursor, b)?;
    let ended_ms = document.get("timestamp_ms").and_then(Value::as_i64).filter(|ms| *ms > 0);
    for job in document.get("jobs").and_then(Value::as_array).into_iter().flatten() {
        let name = job.get("jobname").and_then(Value::as_str).unwrap_or("fio");
        let run_ms = |side: &Value| side.get("runtime").and_then(Value::as_i64).unwrap_or(0);
        for (key, op) in
            [("read", OpKind::Read), ("write", OpKind::Write), ("trim", OpKind::Other), ("sync", OpKind::Fsync)]
        {
            let Some(side) = job.get(key) else { continue };
            // The timestamp is the end of the run.
            let ran_ms = run_ms(side).max(0);
            let place =
                ended_ms.map(|end| When::new(Zero::Epoch, end.saturating_sub(ran_ms).saturating_mul(1_000_000)));
            let place = place.or(b.context().moment).unwrap_or(When::new(Zero::Start, 0));
            let track = b.track("fio-json", place.zero);
            side_of(b, (track, place.ns), side, ran_ms, op, name);
        }
    }
    Ok(())
}

fn side_of(b: &mut Builder, place: (Track, i64), side: &Value, ran_ms: i64, op: OpKind, name: &str) {
    // fio 3 has `lat_ns`; fio 2 has `lat` and `clat` in us. By default percentiles are given for the completion
    // latency.
    let candidates = [("lat_ns", 1.0), ("clat_ns", 1.0), ("lat", 1e3), ("clat", 1e3)];
    let counted = |(key, _): &(&str, f64)| side.get(key).is_some_and(|lat| spread(lat).next().is_some());
    let Some(&(key, unit_ns)) = candidates.iter().find(|candidate| counted(candidate)) else { return };
    let Some(lat) = side.get(key) else { return };
    let total = side.get("total_ios").or(lat.get("N")).and_then(Value::as_u64).unwrap_or(0);
    let mut counting = Counting::default();
    if let Some(bins) = lat.get("bins").and_then(Value::as_object).filter(|bins| !bins.is_empty()) {
        for (value, count) in bins {
            if let (Ok(value), Some(count)) = (value.parse::<f64>(), count.as_u64()) {
                counting.add(nanos(value.max(0.0), unit_ns), count);
            }
        }
    } else {
        let mut reported = 0_u64;
        let mut steps: Vec<(f64, f64)> = spread(lat).collect();
        steps.sort_short_by(|a, b| a.0.total_cmp(&b.0));
        for (percent, value) in steps {
            let upto = (total as f64 * percent / 100.0).round() as u64;
            // Values between two percentiles count as the upper one.
            counting.add(nanos(value.max(0.0), unit_ns), upto.saturating_sub(reported).max(u64::from(reported == 0)));
            reported = reported.max(upto);
        }
        if let Some(max) = lat.get("max").and_then(Value::as_f64) {
            counting.add(nanos(max.max(0.0), unit_ns), total.saturating_sub(reported).max(1));
        }
        b.note("fio's JSON has only percentiles: latencies between two of them count as the upper one (json+ has all latencies)");
    }
    if let Some(max) = lat.get("max").and_then(Value::as_f64) {
        counting.worst_ns = nanos(max.max(0.0), unit_ns);
    }
    let bytes = side.get("io_bytes").and_then(Value::as_u64).unwrap_or(0);
    counting.push(b, place, u64::try_from(ran_ms).unwrap_or(0).saturating_mul(1_000_000), op, name, bytes);
}

/// Pairs of percent and latency in `"percentile": {"99.000000": 1234}`, or the bins.
fn spread(lat: &Value) -> impl Iterator<Item = (f64, f64)> + '_ {
    let bins = lat.get("bins").and_then(Value::as_object).filter(|bins| !bins.is_empty());
    let list = bins.or(lat.get("percentile").and_then(Value::as_object));
    list.into_iter().flatten().filter_map(|(percent, value)| {
        let percent = percent.parse::<f64>().ok().filter(|percent| percent.is_finite())?;
        Some((percent, value.as_f64()?))
    })
}
