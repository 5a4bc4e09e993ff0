//! Activity of block devices by device and window: requests, time per request, queue, utilisation.

use super::counters::{Track, lasting};
use super::facts::Facts;
use flatwater_recording::Table;
use flatwater_recording::schema::{Column, disks};
use flatwater_recording::short_sort::ShortSort;

/// One device: means over its busy windows (utilisation of at least 80 %).
#[derive(Clone, Debug, PartialEq)]
pub struct Busy {
    pub device: String,
    pub windows: usize,
    pub of: usize,
    /// Total length of the busy windows, in seconds.
    pub seconds: f64,
    /// Requests completed per second.
    pub requests_per_s: f64,
    /// Mean time from a request's arrival in the block layer to its completion, ms.
    pub await_ms: f64,
    /// As `await_ms` for reads only, if the log distinguishes them.
    pub read_await_ms: Option<f64>,
    pub write_await_ms: Option<f64>,
    /// Mean number of requests in the queue or at the device.
    pub queue: f64,
    pub bytes_per_s: f64,
}

const BUSY_SHARE: f64 = 0.8;

impl Busy {
    /// Whether the device was busy for longer than a moment.
    #[must_use]
    pub fn lasting(&self) -> bool {
        lasting(self.windows, self.of, self.seconds)
    }

    /// Mean time of a request at the device if it serves one at a time, ms.
    #[must_use]
    pub fn service_ms(&self) -> f64 {
        1000.0 / self.requests_per_s.max(1e-9)
    }
}

/// A period in which a device had requests and completed none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standstill {
    pub from_ns: u64,
    pub ns: u64,
    /// Requests outstanding at the end of the period.
    pub in_flight: u64,
}

/// The kernel counts busy time in ticks; a device below this share was idle for a part of the window.
const STANDING_SHARE: f64 = 0.95;

fn at(track: &Track, at_ns: u64) -> Option<f64> {
    track.points.iter().find(|point| point.at_ns == at_ns).map(|point| point.value)
}

impl Facts<'_> {
    /// Devices that were busy, most busy windows first.
    #[must_use]
    pub fn busy_disks(&self) -> Vec<Busy> {
        let Some(series) = self.recording.table(Table::Disks) else { return Vec::new() };
        let mut found: Vec<Busy> = series.entities().iter().filter_map(|entity| self.busy(&entity.name)).collect();
        found.sort_short_by(|a, b| b.windows.cmp(&a.windows).then(b.await_ms.total_cmp(&a.await_ms)));
        found
    }

    /// The longest period in which this device completed nothing while it was busy, by its counters.
    #[must_use]
    pub fn standstill(&self, device: &str) -> Option<Standstill> {
        let kinds = [disks::REQUESTS, disks::READS, disks::WRITES, disks::DISCARDS, disks::FLUSHES];
        let done: Vec<Track> =
            kinds.iter().map(|column| self.rate(*column, device)).filter(|track| !track.is_empty()).collect();
        let in_flight = self.level(disks::IN_FLIGHT, device);
        let level = |at_ns: u64| at(&in_flight, at_ns).unwrap_or(0.0) as u64;
        let (mut longest, mut now): (Option<Standstill>, Option<Standstill>) = (None, None);
        for window in self.rate(disks::IO_NS, device).points {
            // A kind of request without a reading in this window may have completed some.
            let idle = |track: &Track| at(track, window.at_ns) == Some(0.0);
            let stalled = window.value >= STANDING_SHARE * 1e9 && !done.is_empty() && done.iter().all(idle);
            now = stalled.then(|| {
                let from_ns = now.map_or(window.from_ns, |before| before.from_ns);
                Standstill { from_ns, ns: window.at_ns.saturating_sub(from_ns), in_flight: level(window.at_ns) }
            });
            longest = [longest, now].into_iter().flatten().max_by_key(|one| (one.ns, std::cmp::Reverse(one.from_ns)));
        }
        longest
    }

    fn busy(&self, device: &str) -> Option<Busy> {
        let track = |column: Column| self.rate(column, device);
        let busy_ns = track(disks::IO_NS);
        let busy: Vec<_> = busy_ns.points.iter().filter(|point| point.value >= BUSY_SHARE * 1e9).collect();
        let windows: Vec<u64> = busy.iter().map(|point| point.at_ns).collect();
        let mean = |column: Column| {
            let track = track(column);
            let values: Vec<f64> = windows.iter().filter_map(|&window| at(&track, window)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let (reads, writes) = (mean(disks::READS), mean(disks::WRITES));
        let requests_per_s = mean(disks::REQUESTS).or_else(|| Some(reads? + writes?))?;
        let (read_ns, write_ns) = (mean(disks::READ_NS), mean(disks::WRITE_NS));
        let request_ns = mean(disks::REQUEST_NS).or_else(|| Some(read_ns? + write_ns?))?;
        let each =
            |ns: Option<f64>, count: Option<f64>| ns.zip(count).filter(|(_, n)| *n > 0.0).map(|(ns, n)| ns / n / 1e6);
        Some(Busy {
            device: device.to_owned(),
            windows: windows.len(),
            of: busy_ns.len(),
            seconds: busy.iter().map(|point| point.at_ns.saturating_sub(point.from_ns) as f64 / 1e9).sum(),
            requests_per_s,
            await_ms: each(Some(request_ns), Some(requests_per_s))?,
            read_await_ms: each(read_ns, reads),
            write_await_ms: each(write_ns, writes),
            queue: mean(disks::QUEUE_NS).unwrap_or(request_ns) / 1e9,
            bytes_per_s: mean(disks::READ_BYTES).unwrap_or(0.0) + mean(disks::WRITE_BYTES).unwrap_or(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::Facts;
    use crate::testing::{RecordingBuilder, rising};
    use flatwater_recording::schema::disks;
    use flatwater_recording::{Entity, Table};

    #[test]
    fn a_device_that_completes_nothing_while_it_has_requests_is_stalled() {
        let shown = |writes: &[i64], io_ms: &[i64]| {
            let io_ns: Vec<i64> = io_ms.iter().map(|ms| ms * 1_000_000).collect();
            let reads = vec![7; writes.len()];
            let columns: [(&str, &[i64]); 3] =
                [(disks::WRITES.name, writes), (disks::READS.name, &reads), (disks::IO_NS.name, &io_ns)];
            let in_flight = vec![23; writes.len()];
            let builder = RecordingBuilder::new().counters(Table::Disks, &Entity::named("vda"), &columns);
            builder.gauges(Table::Disks, &Entity::named("vda"), &[(disks::IN_FLIGHT.name, &in_flight)]).done()
        };
        let stood = shown(&[0, 80, 80, 80, 80, 300], &[0, 1_000, 2_000, 3_000, 4_000, 5_000]);
        let found = Facts::of(&stood).standstill("vda").expect("three windows of a second");
        assert_eq!((found.ns, found.in_flight), (3_000_000_000, 23));
        let idle = shown(&[0, 80, 80, 80, 300], &[0, 1_000, 1_000, 1_010, 2_000]);
        assert_eq!(Facts::of(&idle).standstill("vda"), None, "it had nothing to do");
        assert_eq!(Facts::of(&stood).standstill("sda"), None);
    }

    #[test]
    fn the_recorded_queue_is_used() {
        // 100 requests a second take 10 ms each by the sum of their times; the kernel counted a queue of 7.
        let columns = [
            (disks::IO_NS, rising(1_000_000_000, 10)),
            (disks::REQUESTS, rising(100, 10)),
            (disks::REQUEST_NS, rising(1_000_000_000, 10)),
            (disks::QUEUE_NS, rising(7_000_000_000, 10)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(column, values)| (column.name, &values[..])).collect();
        let recording = RecordingBuilder::new().counters(Table::Disks, &Entity::named("sda"), &columns).done();
        let busy = Facts::of(&recording).busy_disks();
        assert_eq!(busy.iter().map(|disk| (disk.queue, disk.await_ms)).collect::<Vec<_>>(), [(7.0, 10.0)]);
    }
}
