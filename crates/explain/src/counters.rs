//! Reads the sampled tables as rates and levels in windows of about a second, whatever the sampling rate.
//!
//! A missing counter gives an empty `Track`, never zeros, so that finders can distinguish the two.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::sums::total_signed;
use flatwater_recording::schema::{Column, cpu, meminfo, vmstat, zones};
use flatwater_recording::{Entity, Series, Table};

/// Readings closer together than this are merged: at 10 Hz, the rate over one interval says little.
const WINDOW_NS: u64 = 900_000_000;

/// A rate per second over the window, or a level at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub from_ns: u64,
    pub at_ns: u64,
    pub value: f64,
}

/// Rates or levels by time; empty if the column is missing or was read too rarely.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    pub points: Vec<Point>,
}

impl Track {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// The mean, weighted by window length, so that a mean rate is the rise over the time.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let weight = |point: &Point| (point.at_ns.saturating_sub(point.from_ns)).max(1) as f64;
        let total: f64 = self.points.iter().map(weight).sum();
        let sum: f64 = self.points.iter().map(|point| point.value * weight(point)).sum();
        (total > 0.0).then(|| sum / total)
    }

    #[must_use]
    pub fn peak(&self) -> Option<Point> {
        self.points.iter().copied().max_by(|a, b| a.value.total_cmp(&b.value))
    }

    #[must_use]
    pub fn first(&self) -> Option<f64> {
        self.points.first().map(|point| point.value)
    }

    #[must_use]
    pub fn last(&self) -> Option<f64> {
        self.points.last().map(|point| point.value)
    }

    #[must_use]
    pub fn lowest(&self) -> Option<Point> {
        self.points.iter().copied().min_by(|a, b| a.value.total_cmp(&b.value))
    }

    /// Total length of the windows, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.points.iter().map(|point| point.at_ns.saturating_sub(point.from_ns) as f64 / 1e9).sum()
    }

    /// The number of windows at or above the limit.
    #[must_use]
    pub fn over(&self, limit: f64) -> usize {
        self.points.iter().filter(|point| point.value >= limit).count()
    }

    /// As `over`, as a share of all windows; 0 without windows.
    #[must_use]
    pub fn share_over(&self, limit: f64) -> f64 {
        if self.points.is_empty() { 0.0 } else { self.over(limit) as f64 / self.points.len() as f64 }
    }

    /// The first or the last third (at least one window), to compare the two.
    #[must_use]
    pub fn third(&self, last: bool) -> Track {
        let third = self.points.len().div_ceil(3);
        let points = if last { &self.points[self.points.len().saturating_sub(third)..] } else { &self.points[..third] };
        Track { points: points.to_vec() }
    }

    /// Rise from first to last per second, for levels.
    #[must_use]
    pub fn slope_per_s(&self) -> Option<f64> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let seconds = last.at_ns.checked_sub(first.at_ns)? as f64 / 1e9;
        (seconds > 0.0).then(|| (last.value - first.value) / seconds)
    }
}

/// Whether a condition that holds in this many windows is more than momentary: at least three windows, windows of
/// at least 2.7 s in total (sar's ten minutes are a mean already), or all windows of the log (a pasted `iostat -x`
/// has one).
#[must_use]
pub fn lasting(windows: usize, of: usize, seconds: f64) -> bool {
    windows >= 3 || (windows > 0 && seconds >= 2.7) || (windows > 0 && windows == of)
}

/// Rates of page scanning and stealing in one window, pages per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scan {
    pub from_ns: u64,
    pub at_ns: u64,
    /// `None` if the log does not have the counter.
    pub kswapd: Option<f64>,
    pub direct: Option<f64>,
    /// Pages stolen by those whose scans are known; `None` if the log does not say.
    pub steal: Option<f64>,
}

impl Scan {
    /// Pages scanned by those whose scans are known.
    #[must_use]
    pub fn scanned(&self) -> f64 {
        self.kswapd.into_iter().chain(self.direct).sum()
    }

    /// Whether callers scanned at least this many pages per second.
    #[must_use]
    pub fn is_direct(&self, pages_per_s: f64) -> bool {
        self.direct.is_some_and(|direct| direct >= pages_per_s)
    }
}

/// Page scanning and stealing over the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scans {
    pub windows: Vec<Scan>,
}

impl Scans {
    /// `None` if a window does not have this value.
    fn total(&self, of: impl Fn(&Scan) -> Option<f64>) -> Option<f64> {
        let seconds = |scan: &Scan| scan.at_ns.saturating_sub(scan.from_ns) as f64 / 1e9;
        self.windows.iter().map(|scan| Some(of(scan)? * seconds(scan))).sum()
    }

    /// Pages scanned by allocating tasks; `None` if the counter is missing.
    #[must_use]
    pub fn direct(&self) -> Option<f64> {
        self.total(|scan| scan.direct)
    }

    /// Pages scanned by kswapd; `None` if the counter is missing.
    #[must_use]
    pub fn kswapd(&self) -> Option<f64> {
        self.total(|scan| scan.kswapd)
    }

    /// sar's %vmeff: pages stolen per 100 scanned; `None` if nothing was scanned or steals are unknown.
    #[must_use]
    pub fn efficiency_percent(&self) -> Option<f64> {
        let scanned = self.total(|scan| Some(scan.scanned()))?;
        let stolen = self.total(|scan| scan.steal)?;
        (scanned > 0.0).then(|| 100.0 * stolen / scanned)
    }

    /// The window in which callers scanned most, with their pages per second.
    #[must_use]
    pub fn peak_direct(&self) -> Option<(Scan, f64)> {
        let known = self.windows.iter().filter_map(|scan| Some((*scan, scan.direct?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.total(|_| Some(1.0)).unwrap_or(0.0)
    }
}

impl Facts<'_> {
    /// Rates of a counter, per second, by window.
    #[must_use]
    pub fn rate(&self, column: Column, entity: &str) -> Track {
        let Some(series) = self.recording.table(column.table) else { return Track::default() };
        rates(&sums(series, &Entity::named(entity), |name| name == column.name))
    }

    /// Levels of a gauge, at most one per window.
    #[must_use]
    pub fn level(&self, column: Column, entity: &str) -> Track {
        let Some(series) = self.recording.table(column.table) else { return Track::default() };
        levels(&sums(series, &Entity::named(entity), |name| name == column.name))
    }

    /// Rates of a counter of /proc/vmstat; the sum over zones if the kernel counts by zone.
    #[must_use]
    pub fn vmstat_rate(&self, column: Column) -> Track {
        let Some(series) = self.recording.table(column.table) else { return Track::default() };
        rates(&sums(series, &Entity::default(), |name| column.covers(name)))
    }

    /// The last known value of a /proc/meminfo line, bytes.
    #[must_use]
    pub fn meminfo(&self, column: Column) -> Option<i64> {
        self.recording.table(Table::Meminfo)?.rows_of(&Entity::default())?.last(column)
    }

    #[must_use]
    pub fn meminfo_level(&self, column: Column) -> Track {
        self.level(column, "")
    }

    /// The machine's memory in bytes: from the header, from meminfo, or else a lower bound from the levels and
    /// zones in the log.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<f64> {
        let header = self.recording.header.machine.memory_bytes.map(|bytes| bytes as f64);
        header
            .or_else(|| self.meminfo(meminfo::MEM_TOTAL_BYTES).map(|bytes| bytes as f64))
            .or_else(|| {
                let parts = [meminfo::MEM_FREE_BYTES, meminfo::BUFFERS_BYTES, meminfo::CACHED_BYTES];
                let parts = parts.map(|column| self.meminfo_level(column).first());
                let sum: f64 = parts.into_iter().flatten().sum();
                (sum > 0.0).then_some(sum)
            })
            .or_else(|| self.zones_bytes())
    }

    /// The size of all zones, for logs in which a kernel report is the only source of the memory size.
    fn zones_bytes(&self) -> Option<f64> {
        let each = self.recording.table(Table::Zones)?.by_entity();
        let sizes = each.filter_map(|(_, rows)| rows.last(zones::MANAGED).or_else(|| rows.last(zones::PRESENT)));
        let all = total_signed(sizes);
        let page_bytes = self.recording.header.machine.page_size_bytes() as f64;
        (all > 0).then_some(all as f64 * page_bytes)
    }

    /// Share of all CPU time in this column (idle, iowait, steal), 0 to 1.
    #[must_use]
    pub fn cpu_share(&self, column: Column) -> Track {
        self.cpu_share_of(column, &Entity::named("all"))
    }

    /// As `cpu_share`, of one CPU.
    #[must_use]
    pub fn cpu_share_of(&self, column: Column, of: &Entity) -> Track {
        let Some(series) = self.recording.table(Table::Cpu) else { return Track::default() };
        // Guest time is included in user time (Documentation/filesystems/proc.rst) and must not count twice.
        let guests = [cpu::GUEST_NS.name, cpu::GUEST_NICE_NS.name];
        let is_time = |name: &str| name.ends_with("_ns") && !guests.contains(&name);
        let total = rates(&sums(series, of, is_time));
        let part = rates(&sums(series, of, |name| name == column.name));
        let by_end: BTreeMap<u64, f64> = total.points.iter().map(|point| (point.at_ns, point.value)).collect();
        let share = |point: &Point| {
            let whole = by_end.get(&point.at_ns).copied().filter(|whole| *whole > 0.0)?;
            Some(Point { value: point.value / whole, ..*point })
        };
        Track { points: part.points.iter().filter_map(share).collect() }
    }

    /// Threads in uninterruptible sleep (`b` in vmstat).
    #[must_use]
    pub fn blocked(&self) -> Track {
        self.level(cpu::PROCS_BLOCKED, "all")
    }

    /// Threads running or runnable (`r` in vmstat).
    #[must_use]
    pub fn runnable(&self) -> Track {
        self.level(cpu::PROCS_RUNNING, "all")
    }

    /// Page scanning by window; `None` if the scan counters are missing.
    #[must_use]
    pub fn scans(&self) -> Option<Scans> {
        let series = self.recording.table(Table::Vmstat)?;
        let none = Entity::default();
        let direct = rates(&sums(series, &none, |name| vmstat::PGSCAN_DIRECT.covers(name)));
        let kswapd = rates(&sums(series, &none, |name| vmstat::PGSCAN_KSWAPD.covers(name)));
        if direct.is_empty() && kswapd.is_empty() {
            return None;
        }
        let (of_direct, of_kswapd) = (!direct.is_empty(), !kswapd.is_empty());
        let steal = rates(&sums(series, &none, |name| is_steal(name, of_direct, of_kswapd)));
        let at = |track: &Track| -> BTreeMap<u64, f64> { track.points.iter().map(|p| (p.at_ns, p.value)).collect() };
        let (direct_at, kswapd_at, steal_at) = (at(&direct), at(&kswapd), at(&steal));
        let base = if direct.is_empty() { &kswapd } else { &direct };
        let window = |point: &Point| Scan {
            from_ns: point.from_ns,
            at_ns: point.at_ns,
            kswapd: kswapd_at.get(&point.at_ns).copied(),
            direct: direct_at.get(&point.at_ns).copied(),
            steal: steal_at.get(&point.at_ns).copied(),
        };
        Some(Scans { windows: base.points.iter().map(window).collect() })
    }
}

/// Whether the column counts pages stolen by those whose scans are known. Kernels before 3.4 count kswapd and callers
/// together in pgsteal_ZONE; their kswapd_steal is part of that and must not be added.
fn is_steal(name: &str, of_direct: bool, of_kswapd: bool) -> bool {
    let both = of_direct && of_kswapd && vmstat::PGSTEAL.covers(name);
    both || of_direct && vmstat::PGSTEAL_DIRECT.covers(name) || of_kswapd && vmstat::PGSTEAL_KSWAPD.covers(name)
}

/// The sum of all matching columns by time. A reading counts only if every column was read.
fn sums(series: &Series, entity: &Entity, wanted: impl Fn(&str) -> bool) -> Vec<(u64, f64)> {
    let Some(rows) = series.rows_of(entity) else { return Vec::new() };
    // Column by column, so that one column at a time is in memory. Each entry has a time, a sum, and the number of
    // columns in it.
    let (mut sums, mut columns) = (Vec::<(u64, f64, usize)>::new(), 0_usize);
    for column in series.columns.iter().filter(|column| wanted(&column.name)) {
        let readings: Vec<(u64, Option<i64>)> = rows.readings(column).collect();
        // A column that only other entities use must not void the sum.
        if readings.iter().all(|(_, value)| value.is_none()) {
            continue;
        }
        if columns == 0 {
            sums = readings.iter().map(|(at_ns, _)| (*at_ns, 0.0, 0)).collect();
        }
        columns = columns.saturating_add(1);
        for (sum, (_, value)) in sums.iter_mut().zip(readings) {
            if let Some(value) = value {
                sum.1 += value as f64;
                sum.2 = sum.2.saturating_add(1);
            }
        }
    }
    sums.into_iter().filter(|(.., counted)| *counted == columns).map(|(at_ns, sum, _)| (at_ns, sum)).collect()
}

fn rates(readings: &[(u64, f64)]) -> Track {
    let mut points = Vec::new();
    let mut before: Option<(u64, f64)> = None;
    for (place, &(at_ns, value)) in readings.iter().enumerate() {
        let Some((from_ns, from)) = before else {
            before = Some((at_ns, value));
            continue;
        };
        let is_last = place.saturating_add(1) == readings.len();
        let window_ns = at_ns.saturating_sub(from_ns);
        if window_ns < WINDOW_NS && !(is_last && points.is_empty()) {
            continue;
        }
        // A counter that fell was reset (reboot, cgroup recreated), so the window has no rate.
        if window_ns > 0 && value >= from {
            points.push(Point { from_ns, at_ns, value: (value - from) * 1e9 / window_ns as f64 });
        }
        before = Some((at_ns, value));
    }
    Track { points }
}

fn levels(readings: &[(u64, f64)]) -> Track {
    let mut points: Vec<Point> = Vec::new();
    for &(at_ns, value) in readings {
        let from_ns = points.last().map_or(at_ns, |point| point.at_ns);
        if points.is_empty() || at_ns.saturating_sub(from_ns) >= WINDOW_NS {
            points.push(Point { from_ns, at_ns, value });
        }
    }
    Track { points }
}

#[cfg(test)]
mod tests {
    use crate::facts::Facts;
    use crate::testing::{RecordingBuilder, rising};
    use flatwater_recording::schema::{cpu, vmstat};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn old_and_new_names_of_the_scan_counters_mean_the_same() {
        let none = Entity::default();
        let new = [
            ("pgscan_direct", rising(40, 4)),
            ("pgscan_direct_throttle", rising(9, 4)),
            ("pgscan_kswapd", rising(0, 4)),
            ("pgsteal_direct", rising(10, 4)),
        ];
        let old = [
            ("pgscan_direct_normal", rising(30, 4)),
            ("pgscan_direct_dma32", rising(10, 4)),
            ("pgscan_kswapd_normal", rising(0, 4)),
            ("pgsteal_normal", rising(10, 4)),
        ];
        for named in [new, old] {
            let columns: Vec<(&str, &[i64])> = named.iter().map(|(name, values)| (*name, values.as_slice())).collect();
            let recording = RecordingBuilder::new().counters(Table::Vmstat, &none, &columns).done();
            let scans = Facts::of(&recording).scans().expect("scan counters");
            assert_eq!(
                (scans.direct(), scans.kswapd(), scans.efficiency_percent()),
                (Some(120.0), Some(0.0), Some(25.0))
            );
        }
    }

    #[test]
    fn scans_of_kswapd_that_the_log_lacks_are_not_zero() {
        let shown = |stolen: &str| {
            let columns: [(&str, &[i64]); 2] = [("pgscan_direct", &[0, 40, 80]), (stolen, &[0, 10, 20])];
            let recording = RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &columns).done();
            let scans = Facts::of(&recording).scans().expect("one counter");
            (scans.direct(), scans.kswapd(), scans.efficiency_percent())
        };
        assert_eq!(shown("pgsteal_direct"), (Some(80.0), None, Some(25.0)));
        assert_eq!(shown("pgsteal"), (Some(80.0), None, None), "kswapd's steals are in it, and its scans are not");
    }

    #[test]
    fn a_missing_counter_is_not_zero_and_a_reset_has_no_rate() {
        let builder = RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &[("pswpin", &[5, 9, 2, 4])]);
        let recording = builder.done();
        let facts = Facts::of(&recording);
        assert!(facts.scans().is_none() && facts.vmstat_rate(vmstat::PSWPOUT).is_empty());
        let rates: Vec<f64> = facts.vmstat_rate(vmstat::PSWPIN).points.iter().map(|point| point.value).collect();
        assert_eq!(rates, [4.0, 2.0]);
    }

    #[test]
    fn shares_of_processor_time_sum_over_all_columns() {
        let columns: [(&str, &[i64]); 3] = [("user_ns", &[0, 25]), ("idle_ns", &[0, 70]), ("steal_ns", &[0, 5])];
        let recording = RecordingBuilder::new().counters(Table::Cpu, &Entity::named("all"), &columns).done();
        assert_eq!(Facts::of(&recording).cpu_share(cpu::STEAL_NS).mean(), Some(0.05));
    }
}
