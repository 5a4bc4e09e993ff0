//! device-slow by comparison: a device against its twins, and against its own peak.
//!
//! How slow is slow depends on the device. Twins that share a load (members of an array, disks of one kind) and the
//! device's own peak are references that need no table of models.

use std::collections::HashMap;

use crate::counters::{Point, lasting};
use crate::facts::Facts;
use crate::{Evidence, Finding};
use flatwater_recording::Table;
use flatwater_recording::schema::{Column, disks};

use super::{CauseId, device_slow};

/// Minimum ratio of the time per request to the median of the twins, minimum number of twins, and minimum time, ms.
const TWINS_FACTOR: f64 = 5.0;
const TWINS_MIN: usize = 2;
const AWAIT_MS_MIN: f64 = 20.0;
/// Twins have requests per second within this factor.
const LOAD_FACTOR: f64 = 4.0;
/// Against its own peak while busy: at most this share of the bytes, and at least this many times the time per
/// request.
const OWN_RATE_SHARE_MAX: f64 = 0.2;
const OWN_AWAIT_FACTOR: f64 = 4.0;
const BUSY_SHARE: f64 = 0.8;

/// Means of one device over the whole log.
struct Mean {
    name: String,
    requests_per_s: f64,
    await_ms: f64,
}

/// A finding from either comparison.
#[must_use]
pub fn finding(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer_place() {
        return None;
    }
    let (evidence, confidence) =
        from_twins(facts).map(|found| (found, 0.7)).or_else(|| Some((from_own_peak(facts)?, 0.55)))?;
    let mut finding = Finding::inferred(CauseId::DeviceSlow, confidence, device_slow::ENTRY.headline).with([evidence]);
    finding.fixes.extend(device_slow::fixes());
    Some(finding.settle("fio with one job and iodepth=1 on the idle device, and its own log (smartctl -x)"))
}

fn requests(facts: &Facts<'_>, name: &str) -> Option<(f64, f64)> {
    let mean = |column: Column| facts.rate(column, name).mean();
    let both = |one: Column, other: Column| Some(mean(one)? + mean(other)?);
    let count = mean(disks::REQUESTS).or_else(|| both(disks::READS, disks::WRITES))?;
    let spent_ns = mean(disks::REQUEST_NS).or_else(|| both(disks::READ_NS, disks::WRITE_NS))?;
    Some((count, spent_ns))
}

/// The sum of the known values.
fn known(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(|one, other| one + other)
}

/// The kind of a device, such as `sd` for `sdc` and `sdd`, `nvme` for `nvme0n1` and `nvme1n1`.
fn kind(name: &str) -> &str {
    let letters = name.find(|letter: char| letter.is_ascii_digit()).map_or(name, |at| &name[..at]);
    ["sd", "vd", "xvd", "hd", "dm-", "md", "nvme"].into_iter().find(|kind| letters.starts_with(kind)).unwrap_or(letters)
}

fn from_twins(facts: &Facts<'_>) -> Option<Evidence> {
    let table = facts.recording.table(Table::Disks)?;
    let each = table.entities().iter().filter_map(|entity| {
        let (requests_per_s, spent_ns) = requests(facts, &entity.name)?;
        let await_ms = spent_ns / requests_per_s.max(1e-9) / 1e6;
        (requests_per_s >= 1.0).then(|| Mean { name: entity.name.clone(), requests_per_s, await_ms })
    });
    let each: Vec<Mean> = each.collect();
    let slowest = each.iter().max_by(|a, b| a.await_ms.total_cmp(&b.await_ms))?;
    let comparable = |other: &&Mean| {
        let ratio = other.requests_per_s / slowest.requests_per_s;
        other.name != slowest.name
            && kind(&other.name) == kind(&slowest.name)
            && (1.0 / LOAD_FACTOR..=LOAD_FACTOR).contains(&ratio)
    };
    let mut twins: Vec<f64> = each.iter().filter(comparable).map(|twin| twin.await_ms).collect();
    twins.sort_by(f64::total_cmp);
    let median = *twins.get(twins.len() / 2)?;
    if twins.len() < TWINS_MIN || slowest.await_ms < AWAIT_MS_MIN || slowest.await_ms < TWINS_FACTOR * median {
        return None;
    }
    let text = format!(
        "{} takes {:.0} ms per request where {} of the same kind, with a quarter to four times as many requests, take \
         {median:.0} ms in the median",
        slowest.name,
        slowest.await_ms,
        twins.len()
    );
    Some(Evidence::new(text, slowest.await_ms, "ms"))
}

/// Windows in which a busy device moved a fraction of the bytes that it moved in the best window, with much longer
/// times per request.
fn from_own_peak(facts: &Facts<'_>) -> Option<Evidence> {
    let table = facts.recording.table(Table::Disks)?;
    table.entities().iter().find_map(|entity| {
        let rate = |column: Column| facts.rate(column, &entity.name);
        let columns = [
            disks::REQUESTS,
            disks::READS,
            disks::WRITES,
            disks::REQUEST_NS,
            disks::READ_NS,
            disks::WRITE_NS,
            disks::READ_BYTES,
            disks::WRITE_BYTES,
        ];
        let by_time = |column: Column| -> HashMap<u64, f64> {
            rate(column).points.iter().rev().map(|point| (point.at_ns, point.value)).collect()
        };
        let values = columns.map(by_time);
        let window = |point: &Point| {
            let at = |place: usize| values.get(place).and_then(|of| of.get(&point.at_ns)).copied();
            // A log may have the sum beside its parts (await with r_await and w_await).
            let sum = |whole: usize, reads: usize, writes: usize| at(whole).or_else(|| Some(at(reads)? + at(writes)?));
            let (count, spent, bytes) = (sum(0, 1, 2)?, sum(3, 4, 5)?, known(at(6), at(7))?);
            (count > 0.0).then(|| (*point, bytes, spent / count / 1e6))
        };
        let busy = rate(disks::IO_NS);
        let windows: Vec<(Point, f64, f64)> =
            busy.points.iter().filter(|point| point.value >= BUSY_SHARE * 1e9).filter_map(window).collect();
        let (_, peak, peak_ms) = *windows.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let slow = |(_, bytes, ms): &&(Point, f64, f64)| {
            *bytes <= OWN_RATE_SHARE_MAX * peak && *ms >= OWN_AWAIT_FACTOR * peak_ms && *ms >= AWAIT_MS_MIN
        };
        let slow: Vec<&(Point, f64, f64)> = windows.iter().filter(slow).collect();
        let seconds = slow.iter().map(|(point, ..)| point.at_ns.saturating_sub(point.from_ns) as f64 / 1e9).sum();
        let worst = slow.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
        // At least two windows; otherwise the peak may be the exception.
        (slow.len() >= 2 && lasting(slow.len(), busy.len(), seconds)).then(|| {
            let text = format!(
                "{} was busy in {} windows with at most {:.0} % of the peak rate of {:.1} MiB/s, {:.0} ms per request \
                    against {peak_ms:.0} ms at the peak",
                entity.name,
                slow.len(),
                OWN_RATE_SHARE_MAX * 100.0,
                peak / 1_048_576.0,
                worst.2
            );
            Evidence::new(text, worst.2, "ms").at(worst.0.at_ns)
        })
    })
}

#[cfg(test)]
mod tests {
    use crate::cause::device_slow::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, Table};

    fn disk(builder: RecordingBuilder, name: &str, per_s: i64, ms: i64, busy_percent: i64) -> RecordingBuilder {
        let columns = [
            ("requests", rising(per_s, 8)),
            ("request_ns", rising(per_s * ms * 1_000_000, 8)),
            ("io_ns", rising(busy_percent * 10_000_000, 8)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        builder.counters(Table::Disks, &Entity::named(name), &columns)
    }

    #[test]
    fn one_member_that_is_much_slower_than_its_twins() {
        let array = |ms: i64| {
            let builder = ["sda", "sdb", "sdd"]
                .into_iter()
                .fold(RecordingBuilder::new(), |builder, name| disk(builder, name, 40, 6, 20));
            disk(builder, "sdc", 38, ms, 60)
        };
        let finding = array(45).found(&ENTRY).expect("45 against 6 ms");
        assert!(
            evidence_text(&finding).contains("sdc takes 45 ms")
                && evidence_text(&finding).contains("3 of the same kind"),
            "{}",
            evidence_text(&finding)
        );
        assert!(array(12).found(&ENTRY).is_none(), "twice is the load");
    }

    #[test]
    fn a_hundred_thousand_windows_are_compared_quickly() {
        let rows = 100_000;
        let builder = disk(RecordingBuilder::new(), "sda", 40, 6, 98);
        let columns = [
            ("requests", rising(40, rows)),
            ("request_ns", rising(6_000_000, rows)),
            ("io_ns", rising(990_000_000, rows)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        let builder = builder.counters(Table::Disks, &Entity::named("sdb"), &columns);
        let begin = needs::cpu_time();
        let _ = builder.found(&ENTRY);
        let spent = needs::cpu_time() - begin;
        assert!(spent.as_secs() < 30, "{spent:?} of CPU time; a quadratic comparison takes minutes");
    }

    /// Windows of (MiB, requests, ms per request) of a busy device, whose log also has reads and writes apart.
    fn with_parts(windows: &[(i64, i64, i64)]) -> RecordingBuilder {
        let sums = |value: fn(&(i64, i64, i64)) -> i64| -> Vec<i64> {
            let mut total = 0;
            let rises = windows.iter().map(|window| {
                total += value(window);
                total
            });
            std::iter::once(0).chain(rises).collect()
        };
        let (bytes, count) = (sums(|window| window.0 << 20), sums(|window| window.1));
        let spent = sums(|window| window.1 * window.2 * 1_000_000);
        let (none, busy) = (vec![0; bytes.len()], rising(980_000_000, bytes.len()));
        let columns: [(&str, &[i64]); 8] = [
            ("write_bytes", &bytes),
            ("requests", &count),
            ("reads", &none),
            ("writes", &count),
            ("request_ns", &spent),
            ("read_ns", &none),
            ("write_ns", &none),
            ("io_ns", &busy),
        ];
        RecordingBuilder::new().counters(Table::Disks, &Entity::named("sda"), &columns)
    }

    #[test]
    fn requests_and_their_parts_are_counted_once() {
        let windows = [(200, 10, 5), (200, 10, 5), (5, 10, 30), (5, 10, 30), (5, 10, 30)];
        let finding = with_parts(&windows).found(&ENTRY).expect("5 MiB/s where it did 200");
        assert!(
            evidence_text(&finding).contains("30 ms per request against 5 ms at the peak"),
            "{}",
            evidence_text(&finding)
        );
    }

    #[test]
    fn a_device_far_below_its_own_peak() {
        let bytes = [0_i64, 200, 400, 600, 605, 610, 615, 620].map(|mib| mib << 20);
        let spent = [0_i64, 1, 2, 3, 9, 15, 21, 27].map(|tenths| tenths * 100_000_000);
        let busy = rising(980_000_000, 8);
        let count = rising(10, 8);
        let columns: [(&str, &[i64]); 4] =
            [("write_bytes", &bytes), ("request_ns", &spent), ("io_ns", &busy), ("requests", &count)];
        let builder = RecordingBuilder::new().counters(Table::Disks, &Entity::named("sda"), &columns);
        let finding = builder.found(&ENTRY).expect("5 MiB/s where it did 200");
        assert!(evidence_text(&finding).contains("of the peak rate"), "{}", evidence_text(&finding));
    }
}
