//! What the daemon counts, for Prometheus: OpenMetrics text, or protobuf with native histograms where it is asked for.
//!
//! Label values come from other people's cgroups and programs, so their number is capped: what is beyond is counted
//! under `other`, and how much that was is a metric itself.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{prometheus_protobuf, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use flatwater_recording::schema::{writeback, zones};
use flatwater_recording::{Entity, Losses, Series, Table};

use crate::budget::{Cost, Step};
use crate::second::{OwnedCall, Second};
use crate::trigger::Silence;

type Labels = Vec<(&'static str, String)>;
type Seconds = Counter<f64, AtomicU64>;
type Level = Gauge<f64, AtomicU64>;

/// Everything that is counted, and how it is printed.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    cgroups: Capped,
    aggressors: Capped,
    devices: Capped,
    stall_seconds: Family<Labels, Seconds>,
    aggressor_seconds: Family<Labels, Seconds>,
    device_seconds: Family<Labels, Seconds>,
    stalls: Family<Labels, Counter>,
    latency: Family<Labels, Histogram, fn() -> Histogram>,
    overflow: Family<Labels, Counter>,
    watermark_pages: Family<Labels, Level>,
    dirty_bytes: Family<Labels, Level>,
    own_share: Family<Labels, Level>,
    own_rss: Level,
    shed: Family<Labels, Level>,
    seen: Level,
    hanging: Level,
    hanging_seconds: Level,
    lost: Counter,
    lost_before: u64,
    captures: Family<Labels, CounterWithExemplar<Labels>>,
    silenced: Family<Labels, Level>,
    skipped: Family<Labels, Counter>,
    kept_bytes: Level,
}

/// Values of one label, up to a number.
#[derive(Debug)]
struct Capped {
    known: BTreeSet<String>,
    max: usize,
}

const OTHER: &str = "other";
/// Of one label. Those of systemd and of Kubernetes have less.
const VALUE_CHARS_MAX: usize = 200;
/// Of a process that had ended before its cgroup could be asked for.
const ENDED: &str = "ended";

impl Capped {
    fn new(max: usize) -> Capped {
        Capped { known: BTreeSet::new(), max }
    }

    /// The value, or `other` where there are too many; and whether that was so.
    fn of(&mut self, value: &str) -> (String, bool) {
        // The name of a control group is its maker's choice, and as long as he likes: each is in many rows of every answer.
        let value = match value.char_indices().nth(VALUE_CHARS_MAX) {
            Some((at, _)) => &format!("{}...", &value[..at]),
            None => value,
        };
        if self.known.contains(value) {
            return (value.to_owned(), false);
        }
        if self.known.len() >= self.max {
            return (OTHER.to_owned(), true);
        }
        self.known.insert(value.to_owned());
        (value.to_owned(), false)
    }
}

/// From a millisecond to two minutes, each twice the one before.
fn latency_histogram() -> Histogram {
    let native = NativeHistogramConfig::new(1.1).max_buckets(160);
    Histogram::new_classic_and_native(exponential_buckets(0.001, 2.0, 18), native)
}

impl Metrics {
    #[must_use]
    pub fn new(label_values_max: usize) -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("flatwater"),
            cgroups: Capped::new(label_values_max),
            aggressors: Capped::new(label_values_max),
            devices: Capped::new(label_values_max),
            stall_seconds: Family::default(),
            aggressor_seconds: Family::default(),
            device_seconds: Family::default(),
            stalls: Family::default(),
            latency: Family::new_with_constructor(latency_histogram),
            overflow: Family::default(),
            watermark_pages: Family::default(),
            dirty_bytes: Family::default(),
            own_share: Family::default(),
            own_rss: Level::default(),
            shed: Family::default(),
            seen: Level::default(),
            hanging: Level::default(),
            hanging_seconds: Level::default(),
            lost: Counter::default(),
            lost_before: 0,
            captures: Family::default(),
            silenced: Family::default(),
            skipped: Family::default(),
            kept_bytes: Level::default(),
        };
        // Until somebody has looked.
        metrics.hanging.set(f64::NAN);
        metrics.hanging_seconds.set(f64::NAN);
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let Metrics { registry, .. } = self;
        let stall = "Stall time of system calls on files over the threshold, by cause";
        registry.register_with_unit("stall", stall, Unit::Seconds, self.stall_seconds.clone());
        let by = "The part of that time that somebody else's requests, locks or work made them wait, by who that was";
        registry.register_with_unit("aggressor_stall", by, Unit::Seconds, self.aggressor_seconds.clone());
        let device = "The same time by the block device that the call's requests went to, where one was seen";
        registry.register_with_unit("device_stall", device, Unit::Seconds, self.device_seconds.clone());
        registry.register("stalls", "System calls on files that took longer than the threshold", self.stalls.clone());
        let latency = "How long those system calls took, from call to return";
        registry.register_with_unit("stall_duration", latency, Unit::Seconds, self.latency.clone());
        let overflow =
            "Stalls of which this label is counted as 'other', since metrics.label_values others were seen before";
        registry.register("label_overflow", overflow, self.overflow.clone());
        let marks = "Free pages of a zone above this watermark; below zero reclaim runs";
        registry.register("watermark_distance_pages", marks, self.watermark_pages.clone());
        let dirty = "Dirty and written-back page cache, and the limits at which writers are paused";
        registry.register_with_unit("page_cache_dirty", dirty, Unit::Bytes, self.dirty_bytes.clone());
        let own = "CPU time that flatwater itself takes, as a share of one core";
        registry.register("own_cpu_ratio", own, self.own_share.clone());
        registry.register_with_unit(
            "own_rss",
            "Resident memory of flatwater itself",
            Unit::Bytes,
            self.own_rss.clone(),
        );
        let shed = "1 for each part of the work that is shed to stay within the budget (docs/watch.md)";
        registry.register("shed", shed, self.shed.clone());
        registry.register("calls_seen", "1 while slow calls are seen at all; 0 is a gap, not quiet", self.seen.clone());
        let hanging = "System calls on files over the threshold that have not ended";
        registry.register("hanging_calls", hanging, self.hanging.clone());
        let longest = "How long the longest of them has taken so far; 0 where none is";
        registry.register_with_unit("hanging_longest", longest, Unit::Seconds, self.hanging_seconds.clone());
        registry.register("events_lost", "Events of the hooks that did not reach the recording", self.lost.clone());
        let captures = "Recordings that a trigger set off; the exemplar names the last";
        registry.register("captures", captures, self.captures.clone());
        let silenced = "Triggers that fired during their cooldown, or over the limit for an hour";
        registry.register("triggers_silenced", silenced, self.silenced.clone());
        let skipped = "Recordings that were not made, by the reason";
        registry.register("captures_skipped", skipped, self.skipped.clone());
        let kept = "Recordings that are kept";
        registry.register_with_unit("store", kept, Unit::Bytes, self.kept_bytes.clone());
    }

    /// The value of a label, capped; what is beyond is counted.
    fn capped(&mut self, label: &'static str, value: &str) -> String {
        let values = match label {
            "aggressor" => &mut self.aggressors,
            "device" => &mut self.devices,
            _ => &mut self.cgroups,
        };
        let (value, other) = values.of(value);
        if other {
            self.overflow.get_or_create(&vec![("label", label.to_owned())]).inc();
        }
        value
    }

    fn call(&mut self, owned: &OwnedCall) {
        let name = if owned.owner.name().is_empty() { ENDED } else { owned.owner.name() };
        let cgroup = self.capped("cgroup", name);
        let op = owned.call.op.name().to_owned();
        let by_op: Labels = vec![("operation", op.clone()), ("cgroup", cgroup.clone())];
        self.stalls.get_or_create(&by_op).inc();
        self.latency.get_or_create(&vec![("operation", op.clone())]).observe(seconds(owned.call.duration_ns));
        for (cause, ns) in owned.call.by_cause() {
            let labels =
                vec![("cause", cause.name().to_owned()), ("cgroup", cgroup.clone()), ("operation", op.clone())];
            self.stall_seconds.get_or_create(&labels).inc_by(seconds(ns));
        }
        if let Some(device) = &owned.device {
            let device = self.capped("device", device);
            let labels = vec![("device", device), ("operation", op)];
            self.device_seconds.get_or_create(&labels).inc_by(seconds(owned.call.duration_ns));
        }
        for share in &owned.aggressors {
            let who = match share.who.name() {
                "" => share.who.program.to_string(),
                name => format!("{} in {name}", share.who.program),
            };
            let labels = vec![("aggressor", self.capped("aggressor", &who)), ("cgroup", cgroup.clone())];
            self.aggressor_seconds.get_or_create(&labels).inc_by(seconds(share.ns));
        }
    }

    /// Takes one second in.
    pub fn add(&mut self, second: &Second) {
        for owned in &second.calls {
            self.call(owned);
        }
        let longest_ns = second.under_way.iter().map(|owned| owned.call.duration_ns).max().unwrap_or(0);
        // None seen where none can be seen is no zero.
        let seen = |level: f64| if second.hangs_seen { level } else { f64::NAN };
        self.hanging.set(seen(second.under_way.len() as f64));
        self.hanging_seconds.set(seen(longest_ns as f64 / 1e9));
        for series in &second.series {
            match series.table {
                Table::Zones => self.watermarks(series),
                Table::Writeback => self.dirty(series),
                _ => {}
            }
        }
    }

    fn watermarks(&mut self, zones_table: &Series) {
        for (entity, rows) in zones_table.by_entity() {
            let Some(free) = rows.last(zones::FREE) else { continue };
            for (mark, column) in [("min", zones::MIN), ("low", zones::LOW), ("high", zones::HIGH)] {
                let Some(pages) = rows.last(column) else { continue };
                let node = entity.node.map_or_else(String::new, |node| node.to_string());
                let labels = vec![("node", node), ("zone", entity.name.clone()), ("mark", mark.to_owned())];
                self.watermark_pages.get_or_create(&labels).set((free - pages) as f64);
            }
        }
    }

    fn dirty(&mut self, table: &Series) {
        // The machine's own rows; those of each backing device have its number.
        let Some(rows) = table.rows_of(&Entity::named("")) else { return };
        for (what, column) in [
            ("dirty", writeback::DIRTY_BYTES),
            ("writeback", writeback::WRITEBACK_BYTES),
            ("limit", writeback::DIRTY_THRESHOLD_BYTES),
            ("background-limit", writeback::BACKGROUND_THRESHOLD_BYTES),
        ] {
            if let Some(bytes) = rows.last(column) {
                self.dirty_bytes.get_or_create(&vec![("state", what.to_owned())]).set(bytes as f64);
            }
        }
    }

    pub fn own(&mut self, cost: Cost, step: Step, seen: bool, losses: &Losses) {
        self.own_share.get_or_create(&vec![("part", "process".to_owned())]).set(cost.process_share);
        if let Some(hooks) = cost.hooks_share {
            self.own_share.get_or_create(&vec![("part", "hooks".to_owned())]).set(hooks);
        }
        self.own_rss.set(cost.rss_bytes as f64);
        for each in Step::ALL.into_iter().filter(|each| *each != Step::Nothing) {
            let gone = if each <= step { 1.0 } else { 0.0 };
            self.shed.get_or_create(&vec![("step", each.to_string())]).set(gone);
        }
        self.seen.set(if seen { 1.0 } else { 0.0 });
        self.lost.inc_by(losses.lost.saturating_sub(self.lost_before));
        self.lost_before = self.lost_before.max(losses.lost);
    }

    pub fn captured(&mut self, trigger: &str, recording: &str) {
        let counter = self.captures.get_or_create(&vec![("trigger", trigger.to_owned())]);
        counter.inc_by(1, Some(vec![("recording", short(recording))]), None);
    }

    pub fn skipped(&mut self, why: &'static str) {
        self.skipped.get_or_create(&vec![("reason", why.to_owned())]).inc();
    }

    pub fn silenced(&mut self, all: &std::collections::BTreeMap<Silence, u64>) {
        for (silence, count) in all {
            let reason = match silence {
                Silence::Cooldown => "cooldown",
                Silence::HourlyLimit => "hourly-limit",
            };
            self.silenced.get_or_create(&vec![("reason", reason.to_owned())]).set(*count as f64);
        }
    }

    pub fn kept(&mut self, bytes: u64) {
        self.kept_bytes.set(bytes as f64);
    }

    /// OpenMetrics 1.0 text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    /// Prometheus' text 0.0.4: without what only OpenMetrics knows.
    #[must_use]
    pub fn plain(&self) -> String {
        let mut out = String::new();
        for line in self.text().lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
            out.push_str(without_exemplar(line));
            out.push('\n');
        }
        out
    }

    /// Prometheus' protobuf, with native histograms; `None` where it cannot be encoded, which is not the same as empty.
    #[must_use]
    pub fn protobuf(&self) -> Option<Vec<u8>> {
        prometheus_protobuf::encode_to_vec(&self.registry).ok()
    }
}

/// OpenMetrics allows 128 characters to all labels of an exemplar together.
fn short(name: &str) -> String {
    name.chars().take(100).collect()
}

/// An exemplar stands behind the value: at the last ` # {` that no label's text holds.
fn without_exemplar(line: &str) -> &str {
    let Some((before, _)) = line.rsplit_once(" # {").filter(|_| !line.starts_with('#')) else { return line };
    let (mut escaped, mut quoted) = (false, false);
    for c in before.chars() {
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    if quoted { line } else { before }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::{Metrics, OTHER};
    use crate::aggressor::Share;
    use crate::owner::Owner;
    use crate::second::{OwnedCall, Second};
    use crate::sight::tests::call;

    fn second(cgroups: impl Iterator<Item = String>) -> Second {
        let calls = cgroups.map(|cgroup| {
            let owner = Owner { cgroup: cgroup.into(), ..Owner::default() };
            OwnedCall::new(call(0, 250_000_000), owner)
        });
        Second { calls: calls.collect(), ..Second::default() }
    }

    #[test]
    fn stall_time_is_counted_by_cause_cgroup_and_operation() {
        let mut metrics = Metrics::new(10);
        metrics.add(&second(["/db".to_owned(), "/db".to_owned()].into_iter()));
        let text = metrics.text();
        let line = "flatwater_stall_seconds_total{cause=\"unexplained\",cgroup=\"/db\",operation=\"write\"} 0.5";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("flatwater_stall_duration_seconds_count{operation=\"write\"} 2"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_call_that_hangs_is_a_level_and_no_stall_yet() {
        let mut metrics = Metrics::new(10);
        let mut hanging = second(["/db".to_owned()].into_iter());
        hanging.under_way = std::mem::take(&mut hanging.calls);
        hanging.hangs_seen = true;
        metrics.add(&hanging);
        let text = metrics.text();
        assert!(text.contains("flatwater_hanging_calls 1.0"), "{text}");
        assert!(text.contains("flatwater_hanging_longest_seconds 0.25"), "{text}");
        assert!(!text.contains("cgroup=\"/db\""), "it is counted when it ends: {text}");
        metrics.add(&Second { hangs_seen: true, ..Second::default() });
        assert!(metrics.text().contains("flatwater_hanging_calls 0.0"));
    }

    #[test]
    fn hangs_that_this_kernel_cannot_show_are_no_zero() {
        let mut metrics = Metrics::new(10);
        assert!(metrics.text().contains("flatwater_hanging_calls NaN"), "nobody has looked yet: {}", metrics.text());
        metrics.add(&Second { hangs_seen: true, ..Second::default() });
        // The iterator over threads fails from here on.
        metrics.add(&Second::default());
        let text = metrics.text();
        assert!(text.contains("flatwater_hanging_calls NaN"), "{text}");
        assert!(text.contains("flatwater_hanging_longest_seconds NaN"), "{text}");
    }

    #[test]
    fn five_thousand_cgroups_are_some_series_and_a_number() {
        let mut metrics = Metrics::new(10);
        metrics.add(&second((0..5_000).map(|at| format!("/pod{at}"))));
        let text = metrics.text();
        assert!(text.contains(&format!("cgroup=\"{OTHER}\"")), "{text}");
        assert!(text.contains("flatwater_label_overflow_total{label=\"cgroup\"} 4990"), "{text}");
        assert!(text.len() < 64 << 10, "{}", text.len());
    }

    #[test]
    fn stall_time_is_counted_by_who_made_it_and_by_device() {
        let mut metrics = Metrics::new(2);
        let by = |at: usize| {
            let who = Owner { cgroup: format!("/jobs{at}").into(), program: "dd".into(), ..Owner::default() };
            vec![Share { who, ns: 125_000_000 }]
        };
        let owner = Owner { cgroup: "/db".into(), ..Owner::default() };
        let calls = (0..5).map(|at| OwnedCall {
            device: Some("vda".into()),
            aggressors: by(at),
            ..OwnedCall::new(call(0, 250_000_000), owner.clone())
        });
        metrics.add(&Second { calls: calls.collect(), ..Second::default() });
        let text = metrics.text();
        for line in [
            "flatwater_device_stall_seconds_total{device=\"vda\",operation=\"write\"} 1.25",
            "flatwater_aggressor_stall_seconds_total{aggressor=\"dd in /jobs0\",cgroup=\"/db\"} 0.125",
            "flatwater_aggressor_stall_seconds_total{aggressor=\"other\",cgroup=\"/db\"} 0.375",
            "flatwater_label_overflow_total{label=\"aggressor\"} 3",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn names_of_others_cannot_break_the_format() {
        let mut metrics = Metrics::new(10);
        metrics.add(&second(["/a\"b\\c\nflatwater_up 1".to_owned()].into_iter()));
        let text = metrics.text();
        assert!(text.contains(r#"cgroup="/a\"b\\c\nflatwater_up 1""#), "{text}");
    }

    /// A user may nest control groups of his to paths of 4 KiB, and each label stands in hundreds of rows.
    #[test]
    fn a_long_name_is_cut() {
        let mut metrics = Metrics::new(10);
        metrics.add(&second(["/ä".repeat(2_000), "/ä".repeat(2_001)].into_iter()));
        let text = metrics.text();
        assert!(text.contains(&format!("cgroup=\"{}...\"", "/ä".repeat(100))), "{text}");
        assert!(!text.contains(&"/ä".repeat(101)), "{text}");
    }

    #[test]
    fn a_label_that_looks_like_an_exemplar_stays_whole() {
        for line in [r#"x_total{cgroup="a} 5 # {b"} 3"#, r#"x_total{cgroup="a\" # {b"} 3"#, "x 1"] {
            assert_eq!(super::without_exemplar(line), line);
        }
        assert_eq!(super::without_exemplar(r#"x_total{a="b"} 1 # {recording="r"} 1.0"#), r#"x_total{a="b"} 1"#);
    }

    #[test]
    fn the_exemplar_names_the_recording() {
        let mut metrics = Metrics::new(10);
        metrics.captured("stall", "flatwater-20261122-113340-stall");
        let text = metrics.text();
        assert!(text.contains("recording=\"flatwater-20261122-113340-stall\""), "{text}");
        assert!(!metrics.protobuf().expect("encoded").is_empty());
        let plain = metrics.plain();
        assert!(plain.contains("flatwater_captures_total{trigger=\"stall\"} 1\n") && !plain.contains("# {"), "{plain}");
    }
}
