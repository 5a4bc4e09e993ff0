//! Compaction: merges the inputs of each hour into a few sorted files, each input exactly once.
//!
//! A part is replaced as a whole by one atomic write, and each row carries the summary's name (host, boot, sequence).
//! So a part itself says what it contains: an input is removed only after a part with its rows was written. If an input
//! is still there after a crash, it is recognized and not counted again. No manifest exists that could contradict the
//! files.

pub mod days;
mod merge;
mod read;
mod sorted;

use std::fs::File;
use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use flatwater_recording::summary::HourStart;
use flatwater_safefs::Dir;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;

use crate::left_out::LeftOut;
use crate::store::{Fleet, Hour};
use crate::time::Range;
use crate::{FleetError, store};

pub use sorted::{part_bytes, sorted};

#[derive(Clone, Debug)]
pub struct Options {
    /// Only hours of this range.
    pub range: Option<Range>,
    /// Age above which compacted rows and recordings are removed; inputs never are.
    pub keep: Option<TimeDelta>,
    /// Target number of rows per part; an hour has at most 64 parts, however large they become.
    pub part_rows: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { range: None, keep: None, part_rows: 1_000_000 }
    }
}

const LOCK: &str = "compact.lock";

/// The result of a compaction.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Done {
    pub hours: u64,
    /// Files written.
    pub parts: u64,
    /// Days added up.
    pub days: u64,
    /// Summaries merged, and their rows.
    pub summaries: u64,
    pub rows: u64,
    /// Summaries that a part already contained: pushed twice, or left by a compactor that was killed.
    pub known: u64,
    /// Objects removed because they are older than `keep`.
    pub removed: u64,
    pub seconds: f64,
    #[serde(skip)]
    pub left_out: LeftOut,
}

/// Compacts the summaries that hosts pushed since the last run.
pub async fn compact(fleet: &Fleet, options: &Options) -> Result<Done, FleetError> {
    fleet.require_own()?;
    let _lock = lock(fleet)?;
    let began = Instant::now();
    let mut done = Done::default();
    for hour in fleet.hours("v=1/in/table=summary", options.range).await? {
        merge::hour(fleet, &hour, options.part_rows, &mut done).await?;
        done.hours += 1;
    }
    if let Some(keep) = options.keep {
        done.removed = retain(fleet, Utc::now() - keep).await?;
    }
    let today = store::day(Some(HourStart::of_hours(Utc::now().timestamp().div_euclid(3_600))));
    for day in fleet.days("v=1/table=summary", options.range).await?.into_iter().filter(|day| *day < today) {
        done.days += u64::from(days::day(fleet, &day, &mut done.left_out).await?);
    }
    done.seconds = began.elapsed().as_secs_f64();
    Ok(done)
}

/// Locks a directory, where the second of two writes would succeed. Object stores refuse such a write, so they need no
/// lock.
fn lock(fleet: &Fleet) -> Result<Option<File>, FleetError> {
    let Some(directory) = &fleet.directory else { return Ok(None) };
    let path = directory.join(LOCK);
    let dir = Dir::open(directory)?;
    let file = match dir.write(LOCK) {
        Err(refusal) if refusal.is_missing() => dir.create(LOCK),
        file => file,
    }?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(FleetError::Busy { path }),
        Err(std::fs::TryLockError::Error(error)) => Err(FleetError::File { path, error }),
    }
}

/// Removes days that ended before this time.
async fn retain(fleet: &Fleet, before: DateTime<Utc>) -> Result<u64, FleetError> {
    let first_kept = store::day(Some(HourStart::of_hours(before.timestamp().div_euclid(3_600))));
    let mut removed = 0;
    for below in ["v=1/table=days", "v=1/table=summary", "v=1/recordings"] {
        for day in fleet.store.list_with_delimiter(Some(&fleet.key(below))).await?.common_prefixes {
            let old = day.filename().is_some_and(|name| {
                // Names of days sort by date; `dt=none` has no age.
                name.starts_with("dt=") && name != "dt=none" && name < first_kept.as_str()
            });
            if old {
                let mut objects: Vec<Path> =
                    fleet.store.list(Some(&day)).map_ok(|meta| meta.location).try_collect().await?;
                objects.retain(|object| !fleet.is_beyond_link(object));
                removed += remove(fleet, objects).await?;
            }
        }
    }
    Ok(removed)
}

/// Removes objects; objects that do not exist are ignored.
async fn remove(fleet: &Fleet, objects: Vec<Path>) -> Result<u64, FleetError> {
    let locations = stream::iter(objects).map(Ok).boxed();
    let mut removed = 0;
    let mut deleting = fleet.store.delete_stream(locations);
    while let Some(result) = deleting.next().await {
        match result {
            Ok(_) => removed += 1,
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(removed)
}

/// The hours with inputs that are not yet compacted, and the number of these inputs.
pub async fn waiting(fleet: &Fleet) -> Result<(Vec<Hour>, usize), FleetError> {
    let hours = fleet.hours("v=1/in/table=summary", None).await?;
    let mut inputs = 0;
    for hour in &hours {
        inputs += fleet.list(&format!("v=1/in/table=summary/{}", hour.relative)).await?.len();
    }
    Ok((hours, inputs))
}
