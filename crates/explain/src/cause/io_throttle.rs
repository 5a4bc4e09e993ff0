//! io-throttle: a limit on a cgroup's I/O held the request back before the device saw it.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{Column, cgroup, disks};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Rows, Source, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "io-throttle",
    span: None,
    headline: "a limit on the cgroup's I/O held the requests back before the device saw them",
    mechanism: "blk-throttle (block/blk-throttle.c) holds a bio whose cgroup is over its bytes or requests a second \
        in a separate queue, and a timer dispatches it when the budget allows (blk_throtl_dispatch_work_fn). The \
        request is inserted into the device's queue only then, so that iostat shows a fast device with a short queue. \
        On version 1 (blkio.throttle.*) the flusher's writes count for the root: only direct I/O, reads and what \
        fsync submits are held. On version 2 (io.max) writeback counts for the cgroup that dirtied the page.",
    kernels: "2.6.37 (version 1), 4.5 (version 2); CONFIG_BLK_DEV_THROTTLING.",
    in_spans: "page-writeback, journal-commit, synchronous-read or device-wait, of which the awaited request was \
        inserted late by the throttle's work function.",
    in_counters: "None in /proc/diskstats. The rates in the cgroup's io.stat are at its limit. Where blk-iocost or \
        blk-iolatency holds it back io.stat says so itself: cost.wait and cost.indelay rise, use_delay is above 0.",
    against: "The requests were inserted at once and waited in the device's queue (device-queue-starved).",
    fix: "Raise or remove the limit for what must be fast: io.max, or blkio.throttle.write_bps_device, \
        write_iops_device and their read counterparts.",
    prove: "Remove the limit while it is slow: the latencies fall at once.",
    sources: &["block/blk-throttle.c: blk_throtl_dispatch_work_fn", "Documentation/admin-guide/cgroup-v2.rst: io.max"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    of_requests(facts).or_else(|| of_controller(facts)).or_else(|| at_limit(facts))
}

/// A rate between these shares of a limit is at the limit: blk-throttle lets bursts through and rounds to slices of
/// time.
const AT_LIMIT_MIN: f64 = 0.85;
const AT_LIMIT_MAX: f64 = 1.1;

/// The limits, the counters of a device and of a cgroup's io.stat that each bounds, and the verb.
const BOUNDED: &[(Column, Column, Column, &str)] = &[
    (cgroup::IO_MAX_WRITE_BYTES, disks::WRITE_BYTES, cgroup::IO_WRITE_BYTES, "written"),
    (cgroup::IO_MAX_READ_BYTES, disks::READ_BYTES, cgroup::IO_READ_BYTES, "read"),
    (cgroup::IO_MAX_WRITES, disks::WRITES, cgroup::IO_WRITES, "written"),
    (cgroup::IO_MAX_READS, disks::READS, cgroup::IO_READS, "read"),
];

/// A finding if rates in the log stay at a limit that the log shows as well.
fn at_limit(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer() || facts.recording.header.source != Source::Import {
        return None;
    }
    let table = facts.recording.table(Table::Cgroup)?;
    let evidence = table.by_entity().find_map(|(entity, rows)| {
        BOUNDED.iter().find_map(|(limit, of_device, of_group, verb)| {
            let limit = (*limit, rows.last(*limit)? as f64);
            let rates = [*of_device, *of_group].into_iter().flat_map(|column| {
                let series = facts.recording.table(column.table);
                let names = series.map(|series| series.entities().to_vec()).unwrap_or_default();
                names.into_iter().map(move |name| (column, name.name))
            });
            rates.into_iter().find_map(|(column, name)| stays_at(facts, limit, (column, &name), verb, &entity.name))
        })
    })?;
    let headline = "the rate stays at the limit that the log shows for the cgroup's I/O: requests wait for the limit, \
        not for the device";
    let mut finding = Finding::inferred(CauseId::IoThrottle, 0.7, headline).with([evidence]);
    finding.evidence.extend(facts.pressed("io").map(|pressed| pressed.evidence("I/O")));
    let finding = finding.fix(Fix::advice("raise or remove the limit on this cgroup's I/O"));
    Some(finding.settle("remove the limit for a minute while it is slow: the rate rises and the waits end"))
}

/// The evidence that a rate stays at a limit in most windows.
fn stays_at(
    facts: &Facts<'_>,
    (column, limit): (Column, f64),
    (counter, name): (Column, &str),
    verb: &str,
    group: &str,
) -> Option<Evidence> {
    let rate = facts.rate(counter, name);
    let at = rate.points.iter().filter(|point| (AT_LIMIT_MIN..=AT_LIMIT_MAX).contains(&(point.value / limit.max(1.0))));
    let windows = at.count();
    // Most windows, so that a passing rate is not a limit.
    if windows == 0 || windows.saturating_mul(4) < rate.len().saturating_mul(3) {
        return None;
    }
    let mean = rate.mean()?;
    let bytes = column.name.ends_with("bytes");
    let shown = |value: f64| {
        if bytes { format!("{}/s", Bytes(value.max(0.0) as u64)) } else { format!("{value:.0} requests/s") }
    };
    let text = format!("{} were {verb} by {name}, and the limit of {group} is {}", shown(mean), shown(limit));
    Some(Evidence::new(text, mean, if bytes { "bytes/s" } else { "requests/s" }))
}

/// Minimum time held back: per second of recording, as a sum over requests; or, for a single reading, in total and
/// at least as long as the time at the device.
const HELD_PER_S_MIN: f64 = 0.05;
const HELD_NS_MIN: i64 = 1_000_000_000;

/// A finding from the counters of the I/O controllers in io.stat.
fn of_controller(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer() {
        return None;
    }
    let table = facts.recording.table(Table::Cgroup)?;
    let throttled = table.by_entity().filter_map(|(entity, rows)| held_back(facts, &entity.name, &rows));
    let (confidence, evidence) = throttled.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let headline = "an I/O controller (blk-iocost, blk-iolatency) held the cgroup back";
    let finding = Finding::inferred(CauseId::IoThrottle, confidence, headline).with([evidence]);
    let finding = finding.fix(Fix::advice("give the cgroup more: io.weight or io.cost.qos; io.latency of the others"));
    Some(finding.settle("read the cgroup's io.stat and io.pressure twice, a minute apart, while it is slow"))
}

/// (confidence, evidence) of one cgroup's counters.
fn held_back(facts: &Facts<'_>, name: &str, rows: &Rows<'_>) -> Option<(f64, Evidence)> {
    let name = if name.is_empty() { "the cgroup" } else { name };
    let most = |each: &dyn Fn(Column) -> Option<i64>| {
        let waited = each(cgroup::IO_COST_WAIT_NS).map(|ns| (ns, "requests waited for the controller"));
        let delayed = each(cgroup::IO_COST_INDELAY_NS).map(|ns| (ns, "tasks were delayed"));
        waited.into_iter().chain(delayed).max_by_key(|(ns, _)| *ns).filter(|(ns, _)| *ns > 0)
    };
    if let Some((ns, what)) = most(&|column| rows.rise(column)) {
        let share = ns as f64 / facts.duration_ns.max(1) as f64;
        let text = format!("{name}: {what} for {} together while it was recorded", Nanos(ns.unsigned_abs()));
        return (share >= HELD_PER_S_MIN).then(|| (0.6_f64, Evidence::new(text, ns as f64, "ns")));
    }
    if let Some(delay) = rows.last(cgroup::IO_USE_DELAY).filter(|delay| *delay > 0) {
        let text = format!("{name}: its tasks are delayed for the sake of other cgroups (use_delay {delay})");
        return Some((0.4, Evidence::new(text, delay as f64, "")));
    }
    let (ns, what) = most(&|column| rows.last(column))?;
    let used = rows.last(cgroup::IO_COST_USAGE_NS);
    let at_device = used.map(|used| format!("; its requests cost {} of device time", Nanos(used.unsigned_abs())));
    let text = format!(
        "{name}: {what} for {} together since the cgroup was created{}",
        Nanos(ns.unsigned_abs()),
        at_device.unwrap_or_default()
    );
    (ns >= HELD_NS_MIN && used.is_none_or(|used| ns >= used)).then(|| (0.4, Evidence::new(text, ns as f64, "ns")))
}

fn of_requests(facts: &Facts<'_>) -> Option<Finding> {
    let time = facts.charges.device_time();
    let mut finding = Finding::from_requests(facts, CauseId::IoThrottle, time.limit_ns, ENTRY.headline)?;
    let after_ns = time.queued_ns.saturating_add(time.device_ns).saturating_add(time.flush_ns);
    let text = format!("once dispatched, the same requests took {} in the queue and at the device", Nanos(after_ns));
    finding.evidence.push(Evidence::new(text, after_ns as f64, "ns"));
    // Other processes at the device were not what these requests waited for.
    finding.aggressors.clear();
    Some(finding.fix(Fix::advice(
        "raise or remove the limit on this cgroup's I/O: io.max, or blkio.throttle.{read,write}_{bps,iops}_device on \
         version 1",
    )))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn writes_at_a_limit_of_the_log_are_throttled_and_slower_writes_are_not() {
        let paste = |mib: i64| {
            let limit: [(&str, &[i64]); 1] = [("io_max_write_bytes", &[10 << 20])];
            let written: Vec<i64> = (0..6).map(|second| (second * mib) << 20).collect();
            let builder = RecordingBuilder::new().gauges(Table::Cgroup, &Entity::named("/jobs on 8:0"), &limit);
            builder
                .counters(Table::Disks, &Entity::named("sda"), &[("write_bytes", &written)])
                .edit(|recording| recording.header.source = flatwater_recording::Source::Import)
        };
        let finding = paste(10).found(&ENTRY).expect("at the limit");
        assert!(evidence_text(&finding).contains("10 MiB/s were written by sda"), "{}", evidence_text(&finding));
        for mib in [5, 20] {
            assert!(paste(mib).found(&ENTRY).is_none(), "{mib}");
        }
    }

    fn group(columns: &[(&str, &[i64])]) -> RecordingBuilder {
        RecordingBuilder::new().counters(Table::Cgroup, &Entity::named("/db"), columns)
    }

    #[test]
    fn io_stat_of_a_controller_gives_a_finding() {
        assert!(group(&[("io_cost_wait_ns", &[0, 4_000_000_000])]).found(&ENTRY).is_some());
        assert!(group(&[("io_cost_wait_ns", &[0, 1_000_000])]).found(&ENTRY).is_none(), "a millisecond of seconds");
        let once = |used: i64| group(&[("io_cost_wait_ns", &[9_000_000_000]), ("io_cost_usage_ns", &[used])]);
        assert!(once(2_000_000_000).found(&ENTRY).is_some());
        assert!(once(90_000_000_000).found(&ENTRY).is_none(), "ten times as long at the device");
        let delayed = group(&[("io_cost_indelay_ns", &[9_000_000_000])]).found(&ENTRY).expect("9 s");
        assert!(
            evidence_text(&delayed).contains("tasks were delayed for 9 s"),
            "not requests: {}",
            evidence_text(&delayed)
        );
        assert!(
            !evidence_text(&delayed).contains("of device time"),
            "the usage is not in the log: {}",
            evidence_text(&delayed)
        );
        assert!(group(&[("io_write_bytes", &[1 << 40])]).found(&ENTRY).is_none(), "bytes do not show waiting");
    }
}
