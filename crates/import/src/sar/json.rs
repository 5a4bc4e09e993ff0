//! Reads `sadf -j`, the same reports as text of `sar` with an interval in each reading, and `iostat -o JSON` and
//! `mpstat -o JSON`, whose readings have no date.

use std::collections::HashSet;

use serde_json::Value;

use super::columns::{Report, normal};
use super::sample::{Interval, push};
use crate::anchors::Anchor;
use crate::builder::{Builder, Track};
use crate::error::ImportError;
use crate::json;
use crate::text::Cursor;
use crate::when::{DAY_NS, SECOND_NS, Zero, clock, date};
use crate::{FormatKind, Importer};
use flatwater_recording::{Entity, EventKind};

pub const IMPORTER: Importer = Importer {
    name: "sadf-json",
    sentence: "sadf -j of sysstat 10 to 12; iostat -o JSON, mpstat -o JSON.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Start("{")],
    detect: |cursor| json::detect(cursor, "\"sysstat\""),
    read,
};

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let document = json::read(cursor, b)?;
    let hosts = document.pointer("/sysstat/hosts").and_then(Value::as_array);
    for host in hosts.into_iter().flatten() {
        let text = |key: &str| host.get(key).and_then(Value::as_str).map(str::to_owned);
        b.machine.hostname = b.machine.hostname.take().or(text("nodename"));
        b.machine.kernel = b.machine.kernel.take().or(text("release"));
        let cpus = host.get("number-of-cpus").and_then(Value::as_u64).and_then(|cpus| u32::try_from(cpus).ok());
        b.machine.cpus = b.machine.cpus.or(cpus);
        let track = b.track("sadf-json", Zero::Epoch);
        for restart in host.get("restarts").and_then(Value::as_array).into_iter().flatten() {
            if let Some(at) = restart.get("boot").and_then(instant) {
                b.event((track, at), EventKind::Report("the machine was restarted".to_owned()));
            }
        }
        let mut seen: HashSet<(Report, String)> = HashSet::new();
        let mut before: Option<i64> = None;
        undated(host, b);
        for reading in host.get("statistics").and_then(Value::as_array).into_iter().flatten() {
            let Some(stamp) = reading.get("timestamp") else { continue };
            let Some(at) = instant(stamp) else { continue };
            let interval =
                stamp.get("interval").and_then(Value::as_i64).map(|seconds| seconds.saturating_mul(SECOND_NS));
            // The interval is in whole seconds; the difference between the times is more precise.
            let exact = before.map(|before| at.saturating_sub(before)).filter(|step| *step > 0);
            let from = at.saturating_sub(exact.or(interval).unwrap_or(0));
            reports(reading, b, track, (from, at), &mut seen);
            before = Some(at);
        }
    }
    Ok(())
}

/// Reads readings without a date, of iostat and mpstat. They are assumed to be one second apart; the first of several
/// is a mean since boot and is skipped.
fn undated(host: &Value, b: &mut Builder) {
    let readings: Vec<&Value> = host.get("statistics").and_then(Value::as_array).into_iter().flatten().collect();
    let dated = |reading: &&Value| reading.get("timestamp").and_then(instant).is_some();
    if readings.is_empty() || readings.iter().any(dated) {
        return;
    }
    let why =
        "the readings have no date: one second between them is assumed, and the first of several is a mean since boot";
    b.gap("interval of the JSON's readings", why, "sadf -j of the same file");
    let (track, mut seen) = (b.track("sadf-json", Zero::Start), HashSet::new());
    for (at, reading) in readings.iter().enumerate().skip(usize::from(readings.len() > 1)) {
        let from = i64::try_from(at).unwrap_or(i64::MAX / SECOND_NS - 1) * SECOND_NS;
        reports(reading, b, track, (from, from + SECOND_NS), &mut seen);
    }
}

/// Parses `{"date": "2026-11-21", "time": "08:30:52", "utc": 1}`.
fn instant(stamp: &Value) -> Option<i64> {
    let day = stamp.get("date").and_then(Value::as_str).and_then(date)?;
    Some(day * DAY_NS + clock(stamp.get("time")?.as_str()?)?)
}

fn reports(
    reading: &Value,
    b: &mut Builder,
    track: Track,
    (from, to): (i64, i64),
    seen: &mut HashSet<(Report, String)>,
) {
    let single = [
        ("paging", Report::Paging),
        ("swap-pages", Report::Swapping),
        ("memory", Report::Memory),
        ("queue", Report::Queue),
        ("process-and-context-switch", Report::Tasks),
        ("kernel", Report::Kernel),
    ];
    let mut found: Vec<(Report, Entity, &Value)> = Vec::new();
    for (key, report) in single {
        let entity = match report {
            Report::Queue | Report::Tasks => Entity::named("all"),
            Report::Kernel => Entity::named("kernel"),
            _ => Entity::default(),
        };
        found.extend(reading.get(key).map(|value| (report, entity, value)));
    }
    let list = |key: &str| reading.get(key).and_then(Value::as_array).into_iter().flatten();
    for cpu in list("cpu-load").chain(list("cpu-load-all")) {
        let name = cpu.get("cpu").and_then(Value::as_str).unwrap_or("all");
        let entity = Entity::named(&if name == "all" { name.to_owned() } else { format!("cpu{name}") });
        found.push((Report::Cpu, entity, cpu));
    }
    found.extend(reading.get("avg-cpu").map(|cpu| (Report::Cpu, Entity::named("all"), cpu)));
    for disk in list("disk") {
        let name = ["disk-device", "disk_device"].into_iter().find_map(|key| disk.get(key));
        let name = name.and_then(Value::as_str).unwrap_or("unnamed");
        found.push((Report::Disk, Entity::named(name), disk));
    }
    for (key, resource) in [("psi-cpu", "cpu"), ("psi-io", "io"), ("psi-mem", "memory")] {
        let value = reading.get("psi").and_then(|psi| psi.get(key));
        found.extend(value.map(|value| (Report::Pressure(resource), Entity::named(resource), value)));
    }
    for (report, entity, value) in found {
        let first = seen.insert((report, entity.name.to_string()));
        let values: Vec<(String, f64)> = value
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((normal(name), value.as_f64()?)))
            .filter(|(name, _)| !doubled(report, name, value))
            .collect();
        let values: Vec<(&str, f64)> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        push(b, track, &Interval { first, from, to }, report, &entity, &values);
    }
}

/// Whether this is the old name of a value that newer versions also print under the new name.
fn doubled(report: Report, name: &str, value: &Value) -> bool {
    let twin = match name {
        "rd_sec" => "rkB",
        "wr_sec" => "wkB",
        "avgqu-sz" => "aqu-sz",
        _ => return false,
    };
    report == Report::Disk && value.get(twin).is_some()
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::disks;

    #[test]
    fn iostat_prints_json_without_dates() {
        let reading = |writes: u32| {
            format!(
                r#"{{"avg-cpu": {{"user": 2.1, "iowait": 45.2, "idle": 52.7}}, "disk": [{{"disk_device": "sda", "r/s": 1.0,
                "w/s": {writes}.0, "rkB/s": 12.0, "wkB/s": 1800.0, "r_await": 80.0, "w_await": 100.0, "aqu-sz": 6.4,
                "util": 99.8}}]}}"#
            )
        };
        let text = format!(
            r#"{{"sysstat": {{"hosts": [{{"nodename": "db1", "statistics": [{}, {}, {}]}}]}}}}"#,
            reading(5),
            reading(40),
            reading(60)
        );
        let recording = import_texts(&[("f".to_owned(), text.into_bytes())]).expect("read").recording;
        let table = recording.table(Table::Disks).expect("disks");
        let (entity, rows) = table.by_entity().next().expect("sda");
        assert_eq!((entity.name.as_str(), rows.rise(disks::WRITES)), ("sda", Some(100)), "the first is since boot");
        assert_eq!(rows.rise(disks::WRITE_NS), Some(10_000_000_000));
    }
}
