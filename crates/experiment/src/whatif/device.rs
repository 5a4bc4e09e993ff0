//! Estimates the speed of a recording's device from its counters while it was busy.

use flatwater_recording::schema::{Column, disks};
use flatwater_recording::{Entity, Recording, Rows, Table};

/// Least number of requests of a recording, and of an interval between two samples, that say something about the
/// device.
const REQUESTS_MIN: u64 = 20;
const STRETCH_REQUESTS_MIN: u64 = 5;
/// Requests of this mean size or more show the bandwidth, smaller ones the time per request.
const LARGE_BYTES: u64 = 128 << 10;

/// The figures of a device that its counters show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    pub requests: u64,
    /// Mean time of a request over the recording. With a full queue most of this time is waiting.
    pub mean_ns: u64,
    /// Busy time per request in the interval between two samples in which it was shortest. A device serves several
    /// requests at once, the model serves one after the other.
    pub least_ns: u64,
    /// Busy time per request without moving its bytes: the shortest in an interval of small requests, or else the part
    /// of large requests beyond the best rate.
    pub access_ns: u64,
    /// Bytes moved per second of busy time; absent if the mean request was small.
    pub bytes_per_s: Option<u64>,
}

/// No device is assumed to serve more than 100,000 requests per second.
const ACCESS_NS_MIN: u64 = 10_000;

/// Difference of two samples: requests, ns, bytes and busy ns.
type Stretch = [u64; 4];

fn access_ns(stretches: &[Stretch]) -> Option<u64> {
    let bytes_each = |stretch: &&Stretch| stretch[2] / stretch[0].max(1);
    let (large, small): (Vec<&Stretch>, Vec<&Stretch>) =
        stretches.iter().partition(|stretch| bytes_each(stretch) >= LARGE_BYTES);
    let busy_each = |stretch: &&Stretch| stretch[3] / stretch[0].max(1);
    if let Some(least) = small.iter().map(busy_each).filter(|ns| *ns > 0).min() {
        return Some(least.max(ACCESS_NS_MIN));
    }
    let rate = |stretch: &&Stretch| stretch[2] as f64 / stretch[3].max(1) as f64;
    let best = large.iter().map(rate).fold(0.0, f64::max);
    let beyond = |stretch: &&Stretch| busy_each(stretch).saturating_sub((bytes_each(stretch) as f64 / best) as u64);
    large.iter().map(beyond).min().map(|ns| ns.max(ACCESS_NS_MIN))
}

/// Sums over reads and writes at each sample: requests, ns and bytes; and the busy time, ns.
fn samples(rows: &Rows<'_>) -> Vec<[u64; 4]> {
    let both = |columns: [Column; 2]| -> Vec<u64> {
        let mut sums: Vec<u64> = Vec::new();
        for column in columns {
            for (place, (_, value)) in rows.values(column).enumerate() {
                let value = u64::try_from(value).unwrap_or(0);
                match sums.get_mut(place) {
                    Some(sum) => *sum = sum.saturating_add(value),
                    None => sums.push(value),
                }
            }
        }
        sums
    };
    let requests = both([disks::READS, disks::WRITES]);
    let (ns, bytes) = (both([disks::READ_NS, disks::WRITE_NS]), both([disks::READ_BYTES, disks::WRITE_BYTES]));
    let busy: Vec<u64> = rows.values(disks::IO_NS).map(|(_, value)| u64::try_from(value).unwrap_or(0)).collect();
    let at = |values: &[u64], place: usize| values.get(place).copied().unwrap_or(0);
    (0..requests.len()).map(|place| [requests[place], at(&ns, place), at(&bytes, place), at(&busy, place)]).collect()
}

/// Observes the target's device; `None` if the recording shows too few requests.
pub(super) fn seen(recording: &Recording) -> Option<Observed> {
    let device = recording.header.target.device.as_deref()?;
    let rows = recording.table(Table::Disks)?.rows_of(&Entity::named(device))?;
    let samples = samples(&rows);
    let rise = |from: &[u64; 4], to: &[u64; 4]| -> [u64; 4] {
        let mut rise = [0; 4];
        (0..4).for_each(|place| rise[place] = to[place].saturating_sub(from[place]));
        rise
    };
    let [requests, ns, bytes, busy_ns] = rise(samples.first()?, samples.last()?);
    if requests < REQUESTS_MIN {
        return None;
    }
    let stretches = samples.windows(2).map(|pair| rise(&pair[0], &pair[1]));
    let enough: Vec<Stretch> = stretches.filter(|[requests, ..]| *requests >= STRETCH_REQUESTS_MIN).collect();
    let busy_each = enough.iter().map(|[requests, .., busy_ns]| busy_ns / requests).filter(|ns| *ns > 0);
    let mean_ns = ns / requests;
    let is_large = busy_ns > 0 && bytes / requests >= LARGE_BYTES;
    let rate = || (u128::from(bytes) * 1_000_000_000 / u128::from(busy_ns)) as u64;
    let least_ns = busy_each.min().unwrap_or(mean_ns).min(mean_ns);
    Some(Observed {
        requests,
        mean_ns,
        least_ns,
        access_ns: access_ns(&enough).unwrap_or(least_ns).min(least_ns),
        bytes_per_s: is_large.then(rate),
    })
}

#[cfg(test)]
mod tests {
    use super::{Observed, seen};
    use flatwater_recording::{ColumnKind, Entity, Recording, Series, Table};

    fn recorded(rows: &[[i64; 4]]) -> Recording {
        let mut recording = Recording::default();
        recording.header.target.device = Some("vda".to_owned());
        let mut disks = Series::new(Table::Disks);
        for (at, [writes, ns, bytes, busy]) in (0..).zip(rows) {
            let counter = |name, value: &i64| (name, ColumnKind::Counter, Some(*value));
            let values = [
                counter("writes", writes),
                counter("write_ns", ns),
                counter("write_bytes", bytes),
                counter("io_ns", busy),
            ];
            disks.push(at * 100_000_000, &Entity::named("vda"), &values);
        }
        recording.series.push(disks);
        recording
    }

    #[test]
    fn large_requests_show_only_the_bandwidth() {
        // Ten requests of 1 MiB that take 1 ms each, then 90 that wait 30 ms for each other; the device is busy for 0.1
        // s.
        let rows = [[0, 0, 0, 0], [10, 10_000_000, 10 << 20, 10_000_000], [100, 2_710_000_000, 100 << 20, 100_000_000]];
        let found = seen(&recorded(&rows)).expect("100 requests");
        assert_eq!((found.requests, found.least_ns, found.mean_ns), (100, 1_000_000, 27_100_000));
        assert_eq!(found.bytes_per_s, Some(1000 << 20));
        // Large requests do not show more than the time to move their bytes: the least access time is assumed.
        assert_eq!(found.access_ns, 10_000);
        // Twenty more of 4 KiB, each 90 us.
        let small = [rows[0], rows[1], rows[2], [120, 2_712_000_000, (100 << 20) + 81_920, 101_800_000]];
        assert_eq!(seen(&recorded(&small)).expect("120 requests").access_ns, 90_000);
    }

    #[test]
    fn small_requests_show_no_bandwidth_and_few_requests_show_nothing() {
        let rows = [[0, 0, 0, 0], [100, 20_000_000, 409_600, 10_000_000]];
        let wanted =
            Observed { requests: 100, mean_ns: 200_000, least_ns: 100_000, access_ns: 100_000, bytes_per_s: None };
        assert_eq!(seen(&recorded(&rows)), Some(wanted));
        assert_eq!(seen(&recorded(&[[0, 0, 0, 0], [10, 20_000_000, 409_600, 10_000_000]])), None);
    }
}
