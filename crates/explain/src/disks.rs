//! What block devices did, by device and window: requests, time per request, queue, utilisation.

use super::counters::{Track, lasting};
use super::facts::Facts;
use flatwater_recording::Table;

/// One device over the whole recording, means over its busy windows (utilisation of 80 % and more).
#[derive(Clone, Debug, PartialEq)]
pub struct Busy {
    pub device: String,
    pub windows: usize,
    pub of: usize,
    /// Length of the busy windows together.
    pub seconds: f64,
    /// Requests completed per second.
    pub requests_per_s: f64,
    /// Mean time from a request's arrival in the block layer to its completion, ms.
    pub await_ms: f64,
    /// The same for reads alone, where the log has them apart.
    pub read_await_ms: Option<f64>,
    pub write_await_ms: Option<f64>,
    /// Mean number of requests in the queue or at the device.
    pub queue: f64,
    pub bytes_per_s: f64,
}

const BUSY_SHARE: f64 = 0.8;

impl Busy {
    /// Busy for longer than a moment.
    #[must_use]
    pub fn lasting(&self) -> bool {
        lasting(self.windows, self.of, self.seconds)
    }

    /// Device time per request, if it does one after another: what each would take without a queue.
    #[must_use]
    pub fn service_ms(&self) -> f64 {
        1000.0 / self.requests_per_s.max(1e-9)
    }
}

fn at(track: &Track, at_ns: u64) -> Option<f64> {
    track.points.iter().find(|point| point.at_ns == at_ns).map(|point| point.value)
}

impl Facts<'_> {
    /// Devices that were busy, the one with the most busy windows first.
    #[must_use]
    pub fn busy_disks(&self) -> Vec<Busy> {
        let Some(series) = self.recording.table(Table::Disks) else { return Vec::new() };
        let mut found: Vec<Busy> = series.entities.iter().filter_map(|entity| self.busy(&entity.name)).collect();
        found.sort_by(|a, b| b.windows.cmp(&a.windows).then(b.await_ms.total_cmp(&a.await_ms)));
        found
    }

    fn busy(&self, device: &str) -> Option<Busy> {
        let track = |column: &str| self.rate(Table::Disks, device, column);
        let busy_ns = track("io_ns");
        let busy: Vec<_> = busy_ns.points.iter().filter(|point| point.value >= BUSY_SHARE * 1e9).collect();
        let windows: Vec<u64> = busy.iter().map(|point| point.at_ns).collect();
        let mean = |column: &str| {
            let track = track(column);
            let values: Vec<f64> = windows.iter().filter_map(|&window| at(&track, window)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let (reads, writes) = (mean("reads"), mean("writes"));
        let requests_per_s = mean("requests").or_else(|| Some(reads? + writes?))?;
        let (read_ns, write_ns) = (mean("read_ns"), mean("write_ns"));
        let request_ns = mean("request_ns").or_else(|| Some(read_ns? + write_ns?))?;
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
            queue: mean("weighted_io_ns").unwrap_or(request_ns) / 1e9,
            bytes_per_s: mean("read_bytes").unwrap_or(0.0) + mean("write_bytes").unwrap_or(0.0),
        })
    }
}
