//! The daemon's metrics for Prometheus: OpenMetrics text, or protobuf with native histograms if the scraper accepts it.
//!
//! Users choose the names of cgroups and programs, so the number of label values is limited (`label`). Further values
//! are counted as `other`, and another metric counts how often that happened. The series of a value that makes room for
//! another one are dropped.

mod guard;

use flatwater_recording::schema::{writeback, zones};
use flatwater_recording::{Entity, Losses, Series, Table};

use crate::account::Account;
use crate::budget::{Cost, Step};
use crate::cgroup::Hierarchies;
use crate::label::{LabelValues, OTHER, Value};
use crate::registry::{self, About, Count, CountWithExemplar, Encodable, Family, Histogram, Labels, Level, Sum};
use crate::second::{OwnedCall, Second};
use crate::trigger::Silence;

/// All metrics, and their encodings.
#[derive(Debug)]
pub struct Metrics {
    cgroups: LabelValues,
    aggressors: LabelValues,
    devices: LabelValues,
    stall_seconds: Family<Sum>,
    aggressor_seconds: Family<Sum>,
    device_seconds: Family<Sum>,
    stalls: Family<Count>,
    latency: Family<Histogram>,
    overflow: Family<Count>,
    watermark_pages: Family<Level>,
    dirty_bytes: Family<Level>,
    own_share: Family<Level>,
    own_rss: Family<Level>,
    shed: Family<Level>,
    seen: Family<Level>,
    hanging: Family<Level>,
    hanging_seconds: Family<Level>,
    lost: Family<Count>,
    lost_before: u64,
    captures: Family<CountWithExemplar>,
    silenced: Family<Level>,
    skipped: Family<Count>,
    stored_bytes: Family<Level>,
    guard: guard::GuardMetrics,
}

/// The cgroup label of a process that ended before its cgroup was read.
const ENDED: &str = "ended";

const fn about(name: &'static str, unit: Option<&'static str>, help: &'static str) -> About {
    About { name, help, unit }
}

const AGGRESSOR: &str =
    "The part of the stall time that requests, locks or work of another program caused, by that program";
const DEVICE: &str = "Stall time by the block device that the call's requests went to, if one was observed";
const OVERFLOW: &str = "Stalls whose value of this label is counted as 'other' because metrics.label_values is used up";
const DIRTY: &str =
    "Page cache that is dirty or under writeback, and the limits for background writeback and for throttling writers";
const SHED: &str = "1 for each part of the daemon's work that is shed to stay within the budget (docs/watch.md)";

const SECONDS: Option<&str> = Some("seconds");
const BYTES: Option<&str> = Some("bytes");

impl Metrics {
    #[must_use]
    pub fn new(label_values_max: usize) -> Metrics {
        let mut metrics = Metrics {
            cgroups: LabelValues::new(label_values_max),
            aggressors: LabelValues::new(label_values_max),
            devices: LabelValues::new(label_values_max),
            stall_seconds: Family::new(about(
                "stall",
                SECONDS,
                "Stall time of system calls on files over the threshold, by cause",
            )),
            aggressor_seconds: Family::new(about("aggressor_stall", SECONDS, AGGRESSOR)),
            device_seconds: Family::new(about("device_stall", SECONDS, DEVICE)),
            stalls: Family::new(about("stalls", None, "System calls on files that took longer than the threshold")),
            latency: Family::new(about(
                "stall_duration",
                SECONDS,
                "Duration of system calls on files that took longer than the threshold",
            )),
            overflow: Family::new(about("label_overflow", None, OVERFLOW)),
            watermark_pages: Family::new(about(
                "watermark_distance_pages",
                None,
                "Free pages of a zone above this watermark; below zero reclaim runs",
            )),
            dirty_bytes: Family::new(about("page_cache_dirty", BYTES, DIRTY)),
            own_share: Family::new(about(
                "own_cpu_ratio",
                None,
                "CPU time of flatwater itself, as a share of one core",
            )),
            own_rss: Family::single(about("own_rss", BYTES, "Resident memory of flatwater itself")),
            shed: Family::new(about("shed", None, SHED)),
            seen: Family::single(about(
                "calls_seen",
                None,
                "1 while slow calls are observed; 0 means unknown, not quiet",
            )),
            hanging: Family::single(about(
                "hanging_calls",
                None,
                "System calls on files over the threshold that have not returned",
            )),
            hanging_seconds: Family::single(about(
                "hanging_longest",
                SECONDS,
                "Time so far of the longest call that has not returned; 0 if there is none",
            )),
            lost: Family::single(about("events_lost", None, "Events of the hooks that were lost")),
            lost_before: 0,
            captures: Family::new(about(
                "captures",
                None,
                "Recordings started by a trigger; the exemplar names the latest",
            )),
            silenced: Family::new(about(
                "triggers_silenced",
                None,
                "Triggers that fired during their cooldown or above the hourly limit",
            )),
            skipped: Family::new(about("captures_skipped", None, "Recordings that were not made, by reason")),
            stored_bytes: Family::single(about("store", BYTES, "Size of stored recordings")),
            guard: guard::GuardMetrics::new(),
        };
        // Unknown, and not 0, before the first second.
        metrics.hanging.only().set(f64::NAN);
        metrics.hanging_seconds.only().set(f64::NAN);
        metrics
    }

    /// All families, in the order of the text.
    fn families(&self) -> Vec<&dyn Encodable> {
        self.without_guard().into_iter().chain(self.guard.families()).collect()
    }

    fn without_guard(&self) -> [&dyn Encodable; 19] {
        [
            &self.stall_seconds,
            &self.aggressor_seconds,
            &self.device_seconds,
            &self.stalls,
            &self.latency,
            &self.overflow,
            &self.watermark_pages,
            &self.dirty_bytes,
            &self.own_share,
            &self.own_rss,
            &self.shed,
            &self.seen,
            &self.hanging,
            &self.hanging_seconds,
            &self.lost,
            &self.captures,
            &self.silenced,
            &self.skipped,
            &self.stored_bytes,
        ]
    }

    /// The limited value of a label; counts an overflow.
    fn capped(&mut self, label: &'static str, value: &str, account: &Account, now_ns: u64) -> String {
        let values = match label {
            "aggressor" => &mut self.aggressors,
            "device" => &mut self.devices,
            _ => &mut self.cgroups,
        };
        match values.of(value, account, now_ns) {
            Value::Known(value) => value,
            Value::Replaced { value, dropped } => {
                self.drop_series(label, &dropped);
                value
            }
            Value::Other => {
                self.overflow.of(vec![("label", label.to_owned())]).add(1);
                OTHER.to_owned()
            }
        }
    }

    /// Drops the series with this value of the label. A scraper sees them end, as those of a container that is gone.
    fn drop_series(&mut self, label: &'static str, value: &str) {
        for sums in [&mut self.stall_seconds, &mut self.aggressor_seconds, &mut self.device_seconds] {
            sums.drop_series(label, value);
        }
        self.stalls.drop_series(label, value);
    }

    fn call(&mut self, owned: &OwnedCall, now_ns: u64) {
        let name = if owned.owner.name().is_empty() { ENDED } else { owned.owner.name() };
        let cgroup = self.capped("cgroup", name, &owned.account, now_ns);
        let op = owned.call.op.name().to_owned();
        let by_op: Labels = vec![("operation", op.clone()), ("cgroup", cgroup.clone())];
        self.stalls.of(by_op).add(1);
        self.latency.of(vec![("operation", op.clone())]).observe(seconds(owned.call.duration_ns));
        for (cause, ns) in owned.call.by_cause() {
            let labels =
                vec![("cause", cause.name().to_owned()), ("cgroup", cgroup.clone()), ("operation", op.clone())];
            self.stall_seconds.of(labels).add(seconds(ns));
        }
        if let Some(device) = &owned.device {
            let device = self.capped("device", device, &Account::of(device, None), now_ns);
            let labels = vec![("device", device), ("operation", op)];
            self.device_seconds.of(labels).add(seconds(owned.call.duration_ns));
        }
        for share in &owned.aggressors {
            let who = match share.who.name() {
                "" => share.who.program.to_string(),
                name => format!("{} in {name}", share.who.program),
            };
            let account = Account::of(Hierarchies::machine().made_by_root(&share.who.cgroup), None);
            let aggressor = self.capped("aggressor", &who, &account, now_ns);
            let labels = vec![("aggressor", aggressor), ("cgroup", cgroup.clone())];
            self.aggressor_seconds.of(labels).add(seconds(share.ns));
        }
    }

    /// Adds one second.
    pub fn add(&mut self, second: &Second) {
        for owned in &second.calls {
            self.call(owned, second.end_ns);
        }
        let longest_ns = second.under_way.iter().map(|owned| owned.call.duration_ns).max().unwrap_or(0);
        // If calls under way cannot be observed, their number is unknown, not 0.
        let seen = |level: f64| if second.hangs_seen { level } else { f64::NAN };
        self.hanging.only().set(seen(second.under_way.len() as f64));
        self.hanging_seconds.only().set(seen(longest_ns as f64 / 1e9));
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
                self.watermark_pages.of(labels).set((free - pages) as f64);
            }
        }
    }

    fn dirty(&mut self, table: &Series) {
        // The row of the whole machine; rows of a backing device have its number.
        let Some(rows) = table.rows_of(&Entity::named("")) else { return };
        for (what, column) in [
            ("dirty", writeback::DIRTY_BYTES),
            ("writeback", writeback::WRITEBACK_BYTES),
            ("limit", writeback::DIRTY_THRESHOLD_BYTES),
            ("background-limit", writeback::BACKGROUND_THRESHOLD_BYTES),
        ] {
            if let Some(bytes) = rows.last(column) {
                self.dirty_bytes.of(vec![("state", what.to_owned())]).set(bytes as f64);
            }
        }
    }

    pub fn own(&mut self, cost: Cost, step: Step, seen: bool, losses: &Losses) {
        self.own_share.of(vec![("part", "process".to_owned())]).set(cost.process_share);
        self.own_share.of(vec![("part", "answers".to_owned())]).set(cost.answers_share);
        if let Some(hooks) = cost.hooks_share {
            self.own_share.of(vec![("part", "hooks".to_owned())]).set(hooks);
        }
        self.own_rss.only().set(cost.rss_bytes as f64);
        for each in Step::ALL.into_iter().filter(|each| *each != Step::Nothing) {
            let gone = if each <= step { 1.0 } else { 0.0 };
            self.shed.of(vec![("step", each.to_string())]).set(gone);
        }
        self.seen.only().set(if seen { 1.0 } else { 0.0 });
        self.lost.only().add(losses.lost.saturating_sub(self.lost_before));
        self.lost_before = self.lost_before.max(losses.lost);
    }

    pub fn captured(&mut self, trigger: &str, recording: &str) {
        let counter = self.captures.of(vec![("trigger", trigger.to_owned())]);
        counter.add(vec![("recording", short(recording))]);
    }

    pub fn skipped(&mut self, why: &'static str) {
        self.skipped.of(vec![("reason", why.to_owned())]).add(1);
    }

    pub fn silenced(&mut self, all: &std::collections::BTreeMap<Silence, u64>) {
        for (silence, count) in all {
            let reason = match silence {
                Silence::Cooldown => "cooldown",
                Silence::HourlyLimit => "hourly-limit",
                Silence::Accounts => "accounts",
            };
            self.silenced.of(vec![("reason", reason.to_owned())]).set(*count as f64);
        }
    }

    pub fn guard(&mut self, tally: &crate::guard::Tally) {
        self.guard.set(tally);
    }

    pub fn stored(&mut self, bytes: u64) {
        self.stored_bytes.only().set(bytes as f64);
    }

    /// OpenMetrics 1.0 text.
    #[must_use]
    pub fn text(&self) -> String {
        registry::openmetrics(&self.families())
    }

    /// Prometheus' text format 0.0.4, without exemplars and units.
    #[must_use]
    pub fn plain(&self) -> String {
        registry::plain(&self.families())
    }

    /// Prometheus' protobuf format, with native histograms.
    #[must_use]
    pub fn protobuf(&self) -> Vec<u8> {
        registry::protobuf(&self.families())
    }
}

/// OpenMetrics allows 128 characters for all labels of an exemplar together.
fn short(name: &str) -> String {
    name.chars().take(100).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::Metrics;
    use crate::aggressor::Share;
    use crate::label::OTHER;
    use crate::owner::Owner;
    use crate::registry::{self, decoded};
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
    fn a_call_under_way_is_a_gauge_and_not_yet_a_stall() {
        let mut metrics = Metrics::new(10);
        let mut hanging = second(["/db".to_owned()].into_iter());
        hanging.under_way = std::mem::take(&mut hanging.calls);
        hanging.hangs_seen = true;
        metrics.add(&hanging);
        let text = metrics.text();
        assert!(text.contains("flatwater_hanging_calls 1.0"), "{text}");
        assert!(text.contains("flatwater_hanging_longest_seconds 0.25"), "{text}");
        assert!(!text.contains("cgroup=\"/db\""), "it is counted when it returns: {text}");
        metrics.add(&Second { hangs_seen: true, ..Second::default() });
        assert!(metrics.text().contains("flatwater_hanging_calls 0.0"));
    }

    #[test]
    fn calls_under_way_that_the_kernel_cannot_show_are_nan() {
        let mut metrics = Metrics::new(10);
        assert!(metrics.text().contains("flatwater_hanging_calls NaN"), "there was no second yet: {}", metrics.text());
        metrics.add(&Second { hangs_seen: true, ..Second::default() });
        // From here on the iterator over threads fails.
        metrics.add(&Second::default());
        let text = metrics.text();
        assert!(text.contains("flatwater_hanging_calls NaN"), "{text}");
        assert!(text.contains("flatwater_hanging_longest_seconds NaN"), "{text}");
    }

    #[test]
    fn cgroups_beyond_the_limit_are_counted_as_other() {
        let mut metrics = Metrics::new(10);
        metrics.add(&second((0..5_000).map(|at| format!("/pod{at}"))));
        let text = metrics.text();
        assert!(text.contains(&format!("cgroup=\"{OTHER}\"")), "{text}");
        assert!(text.contains("flatwater_label_overflow_total{label=\"cgroup\"} 4990"), "{text}");
        assert!(text.len() < 64 << 10, "{}", text.len());
    }

    #[test]
    fn s9_one_users_groups_leave_label_values_for_others() {
        let mut metrics = Metrics::new(8);
        let his = (0..1_000).map(|at| format!("/user.slice/user-1000.slice/session-1.scope/{at}"));
        metrics.add(&second(his.chain(["/system.slice/postgresql.service".to_owned()])));
        let text = metrics.text();
        assert!(text.contains("cgroup=\"/system.slice/postgresql.service\""), "{text}");
        assert!(text.contains("flatwater_label_overflow_total{label=\"cgroup\"} 998"), "{text}");
    }

    /// Fails on 5d310ca9, where the first containers kept their label values for ever.
    #[test]
    fn containers_that_come_and_go_are_named_and_leave_no_series() {
        let mut metrics = Metrics::new(8);
        for hour in 0..50_u64 {
            let new = second((0..2).map(|at| format!("/pod{hour}-{at}")));
            metrics.add(&Second { end_ns: hour * 3_600_000_000_000, ..new });
        }
        let text = metrics.text();
        assert!(text.contains("cgroup=\"/pod49-1\"") && !text.contains("cgroup=\"/pod0-0\""), "{text}");
        assert!(!text.contains("label_overflow_total{"), "{text}");
        let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!((series("flatwater_stalls_total"), series("flatwater_stall_seconds_total")), (8, 8), "{text}");
    }

    #[test]
    fn stall_time_is_counted_by_aggressor_and_device() {
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

    /// A user can nest control groups to paths of 4 KiB, and each label is in hundreds of lines.
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
        let mut metrics = Metrics::new(10);
        metrics.add(&second(["a} 5 # {b".to_owned()].into_iter()));
        let line = "flatwater_stalls_total{operation=\"write\",cgroup=\"a} 5 # {b\"} 1\n";
        assert!(metrics.plain().contains(line), "{}", metrics.plain());
    }

    #[test]
    fn the_exemplar_names_the_recording() {
        let mut metrics = Metrics::new(10);
        metrics.captured("stall", "flatwater-20261122-113340-stall");
        let text = metrics.text();
        assert!(text.contains("recording=\"flatwater-20261122-113340-stall\""), "{text}");
        assert!(!metrics.protobuf().is_empty());
        let plain = metrics.plain();
        assert!(plain.contains("flatwater_captures_total{trigger=\"stall\"} 1\n") && !plain.contains("# {"), "{plain}");
    }

    /// prometheus-client 0.25.2 wrote `fixtures`; only the help texts were changed since. It does not order the series
    /// of a family.
    #[test]
    fn text_and_protobuf_equal_those_of_prometheus_client() {
        let metrics = sample();
        let sorted = |text: &str| {
            let lines = text.lines().filter(|line| !line.contains("part=\"answers\""));
            let mut lines: Vec<String> = lines.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(
            sorted(&registry::openmetrics(&metrics.without_guard())),
            sorted(include_str!("fixtures/metrics.txt"))
        );
        let expected =
            include_str!("fixtures/metrics.txt").replace(" # {recording=\"flatwater-20261122-113340-stall\"} 1.0", "");
        let expected = sorted(&expected).into_iter().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT"));
        assert_eq!(sorted(&registry::plain(&metrics.without_guard())), expected.collect::<Vec<_>>());
        let (ours, theirs) =
            (decoded(&registry::protobuf(&metrics.without_guard())), decoded(include_bytes!("fixtures/metrics.pb")));
        assert_eq!(ours, theirs);
    }

    /// Metrics of every family, with labels that need escapes.
    fn sample() -> Metrics {
        use flatwater_recording::schema::{writeback, zones};
        use flatwater_recording::{Entity, Losses, Series, Table};
        let mut metrics = Metrics::new(3);
        let owner = |cgroup: &str| Owner { cgroup: cgroup.into(), program: "dd".into(), ..Owner::default() };
        let mut calls: Vec<OwnedCall> = Vec::new();
        for (at, ns) in
            [0, 1, 999_999, 1_000_000, 5_300_000, 250_000_000, 7_100_000_000, 400_000_000_000].into_iter().enumerate()
        {
            let who = Share { who: owner(&format!("/jobs{at}")), ns: ns / 2 };
            calls.push(OwnedCall {
                device: Some("vda".into()),
                aggressors: vec![who],
                ..OwnedCall::new(call(0, ns), owner(["/db", "/a\"b\\c\nd"][at % 2]))
            });
        }
        let mut zone = Series::new(Table::Zones);
        let entity = Entity { node: Some(0), ..Entity::named("Normal") };
        zone.record(
            0,
            &entity,
            &[
                (zones::FREE, Some(500)),
                (zones::MIN, Some(100)),
                (zones::LOW, Some(700)),
                (zones::HIGH, Some(5_000_000_000)),
            ],
        );
        let mut dirty = Series::new(Table::Writeback);
        dirty.record(0, &Entity::named(""), &[(writeback::DIRTY_BYTES, Some(123_456_789_012))]);
        metrics.add(&Second { calls, hangs_seen: true, series: vec![zone, dirty], ..Second::default() });
        let cost = crate::budget::Cost {
            process_share: 0.001_234_5,
            hooks_share: Some(1e-9),
            answers_share: 0.0,
            rss_bytes: 40 << 20,
        };
        metrics.own(cost, crate::budget::Step::ShortStalls, true, &Losses { lost: 7, ..Losses::default() });
        metrics.captured("stall", "flatwater-20261122-113340-stall");
        metrics.skipped("disk");
        let silenced = [(crate::trigger::Silence::Cooldown, 3), (crate::trigger::Silence::HourlyLimit, 2)];
        metrics.silenced(&silenced.into_iter().collect());
        metrics.stored(1 << 31);
        metrics
    }
}
