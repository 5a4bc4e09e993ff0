//! Counters of /proc/vmstat under the names of all kernel versions. A sum over zones counts as one counter.
//!
//! pgscan_kswapd_normal (to 4.7, by zone) became pgscan_kswapd (4.8, by node). pgsteal_normal (to 3.4, background and
//! direct reclaim together) became pgsteal_kswapd_normal and pgsteal_direct_normal (3.5), then pgsteal_kswapd (4.8).
//! pgscan_direct_throttle counts sleeps, not pages; pgscan_anon and pgsteal_file (5.10) count the same pages a second
//! time.

use super::rows::{Interval, Readings};
use flatwater_recording::schema::{Column, vmstat};
use flatwater_recording::{Rows, Series, SeriesColumn};

/// The counters of reclaimed pages of this kernel. khugepaged and proactive reclaim have separate counters for scanned
/// and for reclaimed pages and are part of neither sum, so that %vmeff compares like with like.
pub fn steals(series: &Series) -> &'static [Column] {
    const SPLIT: &[Column] = &[vmstat::PGSTEAL_KSWAPD, vmstat::PGSTEAL_DIRECT];
    let split = series.columns.iter().any(|column| SPLIT.iter().any(|known| known.covers(&column.name)));
    if split { SPLIT } else { &[vmstat::PGSTEAL] }
}

/// The sum of several counters.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    parts: Vec<Readings>,
}

impl Sum {
    /// The sum of these columns, including those by zone; empty if the kernel has none of them.
    pub fn of(series: &Series, rows: &Rows<'_>, wanted: &[Column]) -> Sum {
        let counted = |column: &&SeriesColumn| wanted.iter().any(|known| known.covers(&column.name));
        let columns = series.columns.iter().filter(counted);
        Sum { parts: columns.map(|column| Readings::of(rows, &column.name)).collect() }
    }

    /// Pages reclaimed by background and direct reclaim.
    pub fn steals(series: &Series, rows: &Rows<'_>) -> Sum {
        Sum::of(series, rows, steals(series))
    }

    /// Rise per second over the row; `None` if none of the counters could be read there.
    pub fn rate(&self, row: Interval) -> Option<f64> {
        let known: Vec<f64> = self.parts.iter().filter_map(|part| part.rate(row)).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }
}

/// Pages stolen per page scanned, percent; 0 if no page was scanned, as sar prints it.
pub fn efficiency_percent(scanned: Option<f64>, direct: Option<f64>, stolen: Option<f64>) -> Option<f64> {
    let scans = match (scanned, direct) {
        (None, None) => return None,
        (kswapd, direct) => kswapd.unwrap_or_default() + direct.unwrap_or_default(),
    };
    let stolen = stolen?;
    Some(if scans > 0.0 { 100.0 * stolen / scans } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::efficiency_percent;

    #[test]
    fn efficiency_needs_steals_and_one_kind_of_scan() {
        assert_eq!(
            efficiency_percent(Some(32_276.31), Some(16_282.73), Some(565.06)).map(|p| (p * 100.0).round()),
            Some(116.0)
        );
        assert_eq!(efficiency_percent(Some(0.0), None, Some(0.0)), Some(0.0));
        assert_eq!(efficiency_percent(None, None, Some(1.0)), None);
        assert_eq!(efficiency_percent(Some(1.0), None, None), None);
    }
}
