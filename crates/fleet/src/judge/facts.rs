//! The compacted rows by host and hour, read once, part by part, for comparisons and the page.

use std::collections::{BTreeMap, BTreeSet};

use arrow::record_batch::RecordBatch;
use flatwater_recording::Cause;
use flatwater_recording::summary::{HourStart, SummaryOrigin, SummaryRow};

use crate::left_out::{LeftOut, Why};
use crate::store::{self, Fleet};
use crate::time::{self, Range};
use crate::{FleetError, compact, input};
use object_store::ObjectStoreExt;

/// Represents all causes that this flatwater does not know.
pub const UNKNOWN_CAUSE: &str = "unknown-cause";
/// Maximum number of programs that a host names. The daemon names at most 64 in an hour.
const AGGRESSORS_OF_HOST_MAX: usize = 1_024;

/// The setup of a machine: kernel, shape, and each setting in the order of `SummaryRow::SETTINGS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Config {
    pub kernel: String,
    pub shape: String,
    pub settings: Vec<String>,
}

/// One hour of one host. There is none if the host pushed nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HourFacts {
    /// Index into `Facts::configs`.
    pub config: u32,
    /// Observed time; 0 if the hour was not observed.
    pub observed_ms: i64,
    /// Stall time by index into `Facts::causes`, ns.
    pub by_cause: BTreeMap<u32, i64>,
    /// Stall time that other programs caused, by index into `Facts::aggressors`, ns.
    pub by_aggressor: BTreeMap<u32, i64>,
}

#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// By hours since the epoch.
    pub hours: BTreeMap<i64, HourFacts>,
    /// The first and last hour of each time since boot.
    boots: BTreeMap<String, (i64, i64)>,
    /// Indices of the programs that the host names.
    aggressors: BTreeSet<u32>,
}

/// A recording in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    pub place: String,
    pub host: String,
    pub hour: i64,
    pub stall_ns: i64,
}

#[derive(Clone, Debug)]
pub struct Facts {
    pub range: Range,
    pub hosts: BTreeMap<String, HostFacts>,
    pub configs: Vec<Config>,
    pub causes: Vec<String>,
    /// Program and cgroup.
    pub aggressors: Vec<(String, String)>,
    /// By the recording's key.
    pub recordings: BTreeMap<String, Kept>,
    pub left_out: LeftOut,
    /// Summaries that are not yet compacted.
    pub waiting: usize,
}

/// The columns that are read.
const COLUMNS: &[&str] = &[
    "host",
    "boot",
    "sequence",
    "origin",
    "hour_start",
    "kernel",
    "shape",
    "cause",
    "aggressor_kind",
    "aggressor",
    "aggressor_cgroup",
    "stall_ns",
    "observed_ms",
    "recording",
];

/// Numbers distinct values in the order in which they occur. More of them than a u32 counts do not fit into memory.
struct Numbered<T> {
    places: BTreeMap<T, u32>,
}

impl<T: Ord + Clone> Numbered<T> {
    fn of(&mut self, value: T) -> u32 {
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        *self.places.entry(value).or_insert(next)
    }

    fn find(&self, value: &T) -> Option<u32> {
        self.places.get(value).copied()
    }

    fn into_list(self) -> Vec<T> {
        let mut all: Vec<(T, u32)> = self.places.into_iter().collect();
        all.sort_by_key(|(_, place)| *place);
        all.into_iter().map(|(value, _)| value).collect()
    }
}

impl Facts {
    /// Reads the compacted hours of the range. Files that cannot be read are left out; a range without hours is an
    /// error.
    pub async fn read(fleet: &Fleet, range: Range) -> Result<Facts, FleetError> {
        let mut reading = Reading {
            facts: Facts {
                range,
                hosts: BTreeMap::new(),
                configs: Vec::new(),
                causes: Vec::new(),
                aggressors: Vec::new(),
                recordings: BTreeMap::new(),
                left_out: LeftOut::default(),
                waiting: compact::waiting(fleet).await?.1,
            },
            configs: Numbered { places: BTreeMap::new() },
            causes: Numbered { places: BTreeMap::new() },
            aggressors: Numbered { places: BTreeMap::new() },
        };
        let mut parts = 0;
        for hour in fleet.hours("v=1/table=summary", Some(range)).await? {
            for part in fleet.list(&format!("v=1/table=summary/{}", hour.relative)).await? {
                parts += 1;
                let bytes = fleet.store.get(&part.location).await?.bytes().await?;
                let read = tokio::task::block_in_place(|| {
                    input::batches_of_any_size(bytes)
                        .map(|batches| batches.iter().for_each(|batch| reading.batch(batch)))
                });
                if let Err(refused) = read {
                    reading.facts.left_out.put(refused.why, fleet.relative(&part.location), refused.exactly);
                }
            }
        }
        if parts == 0 {
            return Err(FleetError::NothingThere { from: time::sql(range.from), to: time::sql(range.to) });
        }
        let Reading { mut facts, configs, causes, aggressors } = reading;
        (facts.configs, facts.causes, facts.aggressors) =
            (configs.into_list(), causes.into_list(), aggressors.into_list());
        facts.leave_out_twins();
        facts.limit_hours();
        Ok(facts)
    }

    /// Limits each hour of a host to what an hour can have. Two summaries of the same hour, of the daemon and of a
    /// recording, count with their mean.
    fn limit_hours(&mut self) {
        for (name, host) in &mut self.hosts {
            let limited = host.hours.values_mut().map(|hour| usize::from(hour.limit())).sum::<usize>();
            if limited > 0 {
                let exactly = format!("{limited} hours with more than an hour of observed time, or of 65,536 threads");
                self.left_out.put_also(Why::Excess, name, &exactly);
            }
        }
    }

    /// Leaves out hostnames that two machines share, because the machines cannot be distinguished. After a reboot,
    /// times since boot follow each other; on two machines they overlap.
    fn leave_out_twins(&mut self) {
        let twins: BTreeSet<String> =
            self.hosts.iter().filter(|(_, host)| host.overlaps()).map(|(name, _)| name.clone()).collect();
        for twin in twins {
            let machines = self.hosts.remove(&twin).map_or(0, |host| host.boots.len());
            self.left_out.put(Why::TwoOfOneName, twin, format!("{machines} times since boot that overlap"));
        }
    }

    #[must_use]
    pub fn config(&self, hour: &HourFacts) -> Option<&Config> {
        self.configs.get(hour.config as usize)
    }
}

impl HourFacts {
    /// Scales the hour down to the limits; returns whether it exceeded them.
    fn limit(&mut self) -> bool {
        let observed = (input::HOUR_MS as f64 / self.observed_ms as f64).min(1.0);
        let stall_ns: f64 = self.by_cause.values().map(|ns| *ns as f64).sum();
        let factor = observed.min(input::STALL_NS_MAX as f64 / stall_ns.max(1.0));
        if factor == 1.0 {
            return false;
        }
        self.observed_ms = self.observed_ms.min(input::HOUR_MS);
        for ns in self.by_cause.values_mut().chain(self.by_aggressor.values_mut()) {
            *ns = (*ns as f64 * factor) as i64;
        }
        true
    }
}

impl HostFacts {
    fn overlaps(&self) -> bool {
        let mut spans: Vec<(i64, i64)> = self.boots.values().copied().collect();
        spans.sort_unstable();
        let mut until = i64::MIN;
        spans.iter().any(|(first, last)| {
            let overlaps = *first < until;
            until = until.max(*last);
            overlaps
        })
    }
}

struct Reading {
    facts: Facts,
    configs: Numbered<Config>,
    causes: Numbered<String>,
    aggressors: Numbered<(String, String)>,
}

impl Reading {
    fn batch(&mut self, batch: &RecordBatch) {
        let schema = batch.schema();
        let wanted = COLUMNS.iter().chain(SummaryRow::SETTINGS).filter_map(|name| schema.index_of(name).ok());
        let Ok(thin) = batch.project(&wanted.collect::<Vec<_>>()) else { return };
        for row in SummaryRow::decode(&thin) {
            self.row(row);
        }
    }

    fn row(&mut self, row: SummaryRow) {
        let Some(start) = row.hour_start.filter(|start| self.facts.range.has(*start)) else { return };
        self.recording(&row, start);
        if row.origin == SummaryOrigin::Capture {
            return;
        }
        let host = self.facts.hosts.entry(row.host.clone()).or_default();
        let hour = host.hours.entry(start.hours()).or_default();
        let Some(cause) = row.cause else {
            let boot = host.boots.entry(row.boot.clone().unwrap_or_default()).or_insert((start.hours(), start.hours()));
            *boot = (boot.0.min(start.hours()), boot.1.max(start.hours()));
            hour.observed_ms = hour.observed_ms.saturating_add(row.observed_ms.unwrap_or(0));
            hour.config = self.configs.of(config(&row));
            return;
        };
        let stall_ns = row.stall_ns.unwrap_or(0);
        let is_known = Cause::from_name(&cause).is_some();
        if !is_known {
            let exactly = format!("{cause} and perhaps others");
            self.facts.left_out.put_first(Why::UnknownCause, &row.host, exactly);
        }
        add(&mut hour.by_cause, self.causes.of(if is_known { cause } else { UNKNOWN_CAUSE.to_owned() }), stall_ns);
        let (Some("others"), Some(program)) = (row.aggressor_kind.as_deref(), row.aggressor) else { return };
        let who = (program, row.aggressor_cgroup.unwrap_or_default());
        let is_named = self.aggressors.find(&who).is_some_and(|place| host.aggressors.contains(&place));
        if !is_named && host.aggressors.len() >= AGGRESSORS_OF_HOST_MAX {
            let exactly = format!("more than {AGGRESSORS_OF_HOST_MAX} programs; others are not named");
            self.facts.left_out.put_first(Why::Excess, &row.host, exactly);
            return;
        }
        let place = self.aggressors.of(who);
        host.aggressors.insert(place);
        add(&mut hour.by_aggressor, place, stall_ns);
    }

    /// A recording belongs to the host in the summary's name. Compaction refuses others since version 0.3.
    fn recording(&mut self, row: &SummaryRow, start: HourStart) {
        let (Some(place), Some(stall_ns)) = (&row.recording, row.stall_ns) else { return };
        if !store::is_recording_of(place, row) {
            let exactly = format!("it names {place}, which is not its own recording");
            self.facts.left_out.put_first(Why::Damaged, &row.host, exactly);
            return;
        }
        let kept = self.facts.recordings.entry(place.clone()).or_default();
        kept.stall_ns = kept.stall_ns.saturating_add(stall_ns);
        (kept.place, kept.host, kept.hour) = (place.clone(), row.host.clone(), start.hours());
    }
}

fn add(sums: &mut BTreeMap<u32, i64>, place: u32, ns: i64) {
    let sum = sums.entry(place).or_default();
    // `limit_hours` reports such a sum.
    *sum = sum.saturating_add(ns);
}

/// Settings as text, `""` if one was not recorded.
fn config(row: &SummaryRow) -> Config {
    let number = |value: Option<i64>| value.map_or(String::new(), |value| value.to_string());
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    Config {
        kernel: text(&row.kernel),
        shape: row.shape.clone(),
        settings: vec![
            number(row.vm_dirty_ratio),
            number(row.vm_dirty_background_ratio),
            number(row.vm_dirty_bytes),
            number(row.vm_dirty_background_bytes),
            number(row.vm_dirty_expire_centisecs),
            number(row.vm_zone_reclaim_mode),
            number(row.vm_swappiness),
            number(row.vm_min_free_kbytes),
            number(row.vm_watermark_scale_factor),
            number(row.vm_vfs_cache_pressure),
            text(&row.thp_enabled),
            text(&row.thp_defrag),
            text(&row.queue_scheduler),
        ],
    }
}

/// The hour of the day, UTC.
#[must_use]
pub fn of_day(hour: i64) -> usize {
    HourStart::of_hours(hour).civil().3 as usize
}
