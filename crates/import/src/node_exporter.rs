//! Reads the Prometheus text of node_exporter: memory, vmstat, CPU, disks, pressure, NUMA, buddy, slab.

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::{number, rounded};
use super::text::{Cursor, Line};
use super::when::epoch;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::{cpu, disks, pressure, slabs};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "node-exporter",
    sentence: "Metrics of node_exporter, one scrape or several.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&["# HELP ", "# TYPE ", "node_"]),
        Anchor::Line(&["promhttp_"]),
        Anchor::Common(&["go_", "process_"]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if text.starts_with("# HELP ") || text.starts_with("# TYPE ") => 90,
        text if text.starts_with("node_") && text.contains(' ') => 90,
        text if text.starts_with("go_") || text.starts_with("process_") || text.starts_with("promhttp_") => 60,
        _ => 0,
    },
    read,
};

/// `node_disk_io_time_seconds_total{device="sda"} 12.5 1795249195000`.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    value: f64,
    at: Option<i64>,
}

fn parse(text: &str) -> Option<Sample<'_>> {
    let (name, labels, rest) = match text.split_once('{') {
        Some((name, rest)) => {
            let (labels, rest) = rest.rsplit_once('}')?;
            (name, labels, rest)
        }
        None => {
            let (name, rest) = text.split_once(' ')?;
            (name, "", rest)
        }
    };
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let mut words = rest.split_whitespace();
    let value = words.next().and_then(number).filter(|_| plain)?;
    let at = words.next().and_then(epoch).map(|when| when.ns);
    // Label values with a comma are cut; no label that is used here has one.
    let labels = labels.split(',').filter_map(|label| label.split_once('='));
    let labels = labels.map(|(key, value)| (key.trim(), value.trim().trim_matches('"'))).collect();
    Some(Sample { name, labels, value, at })
}

impl Sample<'_> {
    fn label(&self, key: &str) -> &str {
        self.labels.iter().find(|(known, _)| *known == key).map_or("", |(_, value)| value)
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("node-exporter");
    let mut first: Option<(String, String)> = None;
    while let Some(line) = cursor.peek() {
        if line.is_blank() || line.text.starts_with('#') {
            cursor.take();
            continue;
        }
        // `latency_log::prometheus` reads histograms.
        if line.text.contains("_seconds_bucket{") {
            break;
        }
        let Some(sample) = parse(line.text) else {
            if looks_like_metric(&line) {
                cursor.take();
                b.problem(ImportError::line(&line, "NAME{LABELS} NUMBER"));
                continue;
            }
            break;
        };
        let key = (sample.name.to_owned(), format!("{:?}", sample.labels));
        // A repeated first metric begins the next scrape.
        if first.as_ref() == Some(&key) {
            break;
        }
        first.get_or_insert(key);
        cursor.take();
        if let Some((table, entity, column, cell)) = meaning(&sample) {
            let place = match sample.at {
                Some(at) => (b.shared_track("node-exporter-timed", super::when::Zero::Epoch), at),
                None => place,
            };
            b.row(place, table, &entity, &[(column, cell)]);
        }
        if sample.name == "node_uname_info" {
            let release = sample.label("release").to_owned();
            b.machine.kernel.get_or_insert(release);
        }
    }
    Ok(())
}

fn looks_like_metric(line: &Line<'_>) -> bool {
    ["node_", "go_", "process_", "promhttp_"].iter().any(|prefix| line.text.starts_with(prefix))
}

fn meaning(sample: &Sample<'_>) -> Option<(Table, Entity, String, Cell)> {
    let name = sample.name.strip_prefix("node_")?;
    let count = |scale: f64| Cell::Counter(rounded(sample.value * scale));
    let level = || Cell::Gauge(rounded(sample.value));
    let all = || Entity::named("all");
    if let Some(rest) = name.strip_prefix("memory_numa_") {
        let node = sample.label("node").parse().ok()?;
        let column = rest.strip_suffix("_total").unwrap_or(rest);
        let cell = if rest.ends_with("_total") { count(1.0) } else { level() };
        return Some((Table::Nodes, Entity::on_node(node, ""), column.to_owned(), cell));
    }
    if let Some(rest) = name.strip_prefix("memory_") {
        // `Active_anon_bytes` is the kernel's `Active(anon)`.
        let column = match rest.split_once('_') {
            Some((list @ ("Active" | "Inactive"), kind @ ("anon_bytes" | "file_bytes"))) => {
                format!("{list}({})_bytes", kind.trim_end_matches("_bytes"))
            }
            _ => rest.to_owned(),
        };
        return Some((Table::Meminfo, Entity::default(), column, level()));
    }
    if let Some(rest) = name.strip_prefix("vmstat_") {
        return Some((Table::Vmstat, Entity::default(), rest.to_owned(), level()));
    }
    if let Some(rest) = name.strip_prefix("pressure_") {
        let (resource, kind) = rest.strip_suffix("_seconds_total")?.split_once('_')?;
        let column = if kind == "waiting" { pressure::SOME_TOTAL_US } else { pressure::FULL_TOTAL_US };
        return Some((Table::Pressure, Entity::named(resource), column.name.to_owned(), count(1e6)));
    }
    if let Some(rest) = name.strip_prefix("disk_") {
        return disk(sample, rest);
    }
    let (table, entity, column, cell) = match name {
        "cpu_seconds_total" => {
            let entity = Entity::named(&format!("cpu{}", sample.label("cpu")));
            return Some((Table::Cpu, entity, format!("{}_ns", sample.label("mode")), count(1e9)));
        }
        "procs_running" => (Table::Cpu, all(), cpu::PROCS_RUNNING.name, level()),
        "procs_blocked" => (Table::Cpu, all(), cpu::PROCS_BLOCKED.name, level()),
        "context_switches_total" => (Table::Cpu, all(), cpu::CTXT.name, count(1.0)),
        "intr_total" => (Table::Cpu, all(), cpu::INTR.name, count(1.0)),
        "forks_total" => (Table::Cpu, all(), cpu::PROCESSES.name, count(1.0)),
        "load1" => (Table::Cpu, all(), cpu::LOAD1_CENTI.name, Cell::Gauge(rounded(sample.value * 100.0))),
        "buddyinfo_blocks" => {
            let entity = Entity::on_node(sample.label("node").parse().ok()?, sample.label("zone"));
            return Some((
                Table::Buddy,
                entity,
                format!("order_{}", sample.label("size").parse::<u8>().ok()?),
                level(),
            ));
        }
        _ => match name.strip_prefix("slabinfo_") {
            Some("active_objects") => {
                (Table::Slabs, Entity::named(sample.label("slab")), slabs::ACTIVE_OBJS.name, level())
            }
            Some("objects") => (Table::Slabs, Entity::named(sample.label("slab")), slabs::NUM_OBJS.name, level()),
            Some("object_size_bytes") => {
                (Table::Slabs, Entity::named(sample.label("slab")), slabs::OBJSIZE_BYTES.name, level())
            }
            _ => return None,
        },
    };
    Some((table, entity, column.to_owned(), cell))
}

fn disk(sample: &Sample<'_>, rest: &str) -> Option<(Table, Entity, String, Cell)> {
    let count = |scale: f64| Cell::Counter(rounded(sample.value * scale));
    let (column, cell) = match rest {
        "reads_completed_total" => (disks::READS, count(1.0)),
        "writes_completed_total" => (disks::WRITES, count(1.0)),
        "read_bytes_total" => (disks::READ_BYTES, count(1.0)),
        "written_bytes_total" => (disks::WRITE_BYTES, count(1.0)),
        "read_time_seconds_total" => (disks::READ_NS, count(1e9)),
        "write_time_seconds_total" => (disks::WRITE_NS, count(1e9)),
        "io_time_seconds_total" => (disks::IO_NS, count(1e9)),
        "io_time_weighted_seconds_total" => (disks::QUEUE_NS, count(1e9)),
        "io_now" => (disks::IN_FLIGHT, Cell::Gauge(rounded(sample.value))),
        _ => return None,
    };
    Some((Table::Disks, Entity::named(sample.label("device")), column.name.to_owned(), cell))
}
