//! The queue of each device over time, by the owners of the requests.

use std::collections::BTreeMap;

use super::super::payload::{COLOURS, Chart, Figure, Line, Look, Scale, Unit};
use super::Frame;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{QueueOwner, Recording};

/// Owners with a line of their own, limited by the page's colours.
const OWNERS_MAX: usize = COLOURS - 1;

const UNKNOWN: &str = "unknown";
const OTHERS: &str = "others";

fn frame() -> Frame {
    Frame {
        id: "queue",
        title: "Requests at the device, by owner",
        about: "Requests in the queue or at the device, on average over each interval; the flusher's writes belong to \
                the process that dirtied the file.",
        unit: Unit::Count,
        scale: Scale::Linear,
    }
}

/// One chart per device, the busiest first; empty if no requests were recorded.
pub fn charts(recording: &Recording) -> Vec<Chart> {
    let mut by_device: BTreeMap<&str, Vec<&QueueOwner>> = BTreeMap::new();
    for row in &recording.queue_owners {
        by_device.entry(&row.device).or_default().push(row);
    }
    let mut devices: Vec<(&str, Vec<&QueueOwner>)> = by_device.into_iter().collect();
    devices.sort_short_by_key(|(_, rows)| {
        std::cmp::Reverse(rows.iter().map(|row| in_queue_ns(row)).fold(0, u64::saturating_add))
    });
    devices.into_iter().map(|(device, rows)| Chart { choice: device.to_owned(), ..chart(recording, &rows) }).collect()
}

fn in_queue_ns(row: &QueueOwner) -> u64 {
    row.queue_ns.saturating_add(row.device_ns)
}

/// Such as `dd, /jobs/backup`.
fn owner(row: &QueueOwner) -> String {
    match &row.owner {
        None => UNKNOWN.to_owned(),
        Some(task) => match task.cgroup.as_deref().filter(|path| *path != "/") {
            Some(cgroup) => format!("{}, {cgroup}", task.name),
            None => task.name.clone(),
        },
    }
}

fn chart(recording: &Recording, rows: &[&QueueOwner]) -> Chart {
    let start_ns = recording.header.clock.start_ns;
    let instants: Vec<u64> =
        rows.iter().map(|row| row.start_ns).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let mut sums: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let Ok(place) = instants.binary_search(&row.start_ns) else { continue };
        let line = sums.entry(owner(row)).or_insert_with(|| vec![0.0; instants.len()]);
        line[place] += in_queue_ns(row) as f64 / row.width_ns.max(1) as f64;
    }
    let mut lines: Vec<(String, Vec<f64>)> = sums.into_iter().collect();
    lines.sort_short_by(|a, b| b.1.iter().sum::<f64>().total_cmp(&a.1.iter().sum::<f64>()));
    if lines.len() > OWNERS_MAX {
        let mut rest = vec![0.0; instants.len()];
        for (_, line) in lines.split_off(OWNERS_MAX) {
            rest.iter_mut().zip(line).for_each(|(sum, value)| *sum += value);
        }
        lines.push((OTHERS.to_owned(), rest));
    }
    let line = |(place, (name, y)): (usize, (String, Vec<f64>))| Line {
        // Here the index only selects a colour; the unknown owner and the others are grey.
        cause: Some(place).filter(|_| !matches!(name.as_str(), UNKNOWN | OTHERS)),
        name,
        look: Look::Stack,
        right: false,
        y: y.into_iter().map(|value| Some(Figure(value))).collect(),
    };
    Chart {
        t: instants.iter().map(|at_ns| Figure::seconds(at_ns.saturating_sub(start_ns))).collect(),
        lines: lines.into_iter().enumerate().map(line).collect(),
        ..frame().chart()
    }
}
