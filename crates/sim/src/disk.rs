//! The device under the queue: how long it takes for a request.
//!
//! Models: bandwidth by direction, a seek that grows with the root of the distance and a part of a turn on disks with an arm, a
//! least time for each request on flash. Leaves out: NCQ, the device's own cache.

use super::block::Request;

/// Rates and times of the device.
#[derive(Clone, Copy, Debug)]
pub struct DiskModel {
    pub read_bytes_per_s: u64,
    pub write_bytes_per_s: u64,
    pub seek_ns: u64,
    pub rotation_ns: u64,
    /// Per request, where there is no arm.
    pub access_ns: u64,
    pub pages: u64,
    /// No elevator: writes are served in the order in which they came (6.x: nvme's `none`).
    pub in_order: bool,
}

impl DiskModel {
    /// A request that begins `away` pages from where the last one ended; `random` is the part of a turn to wait.
    pub fn service_ns(&self, request: &Request, away: u64, random: f64) -> u64 {
        let rate = if request.write { self.write_bytes_per_s } else { self.read_bytes_per_s };
        let transfer = u64::from(request.pages) * 4096 * 1_000_000_000 / rate.max(1);
        if self.seek_ns == 0 {
            return transfer.max(self.access_ns);
        }
        if away == 0 {
            return transfer;
        }
        // Seek time grows with the root of the distance; the mean over random pairs is the given mean.
        let far = (away as f64 / self.pages.max(1) as f64).min(1.0).sqrt();
        let seek = self.seek_ns as f64 * (0.2 + 1.5 * far);
        transfer + seek as u64 + (self.rotation_ns as f64 * random) as u64
    }
}
