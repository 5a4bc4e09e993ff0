//! Compaction: the inputs of each hour become a few sorted files, exactly once each.
//!
//! A part is replaced as a whole, by one write that the store makes atomic, and each row in it carries the name of the summary it
//! is from (host, boot, sequence). So the part itself says what it holds: an input is removed only after a part that has it was
//! written, and one that is still there after a crash is found to be known and is not counted again. There is no manifest that
//! could differ from the files.

pub mod days;
mod merge;
mod read;
mod sorted;

use std::fs::File;
use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use flatwater_recording::HourStart;
use flatwater_safefs::Dir;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;

use crate::aside::Aside;
use crate::store::{Fleet, Hour};
use crate::time::Range;
use crate::{FleetError, store};

pub use sorted::{part_bytes, sorted};

#[derive(Clone, Debug)]
pub struct Options {
    /// Only hours of this range.
    pub range: Option<Range>,
    /// What is older is removed: compacted rows and recordings, never inputs.
    pub keep: Option<TimeDelta>,
    /// Rows that a part should have at most; an hour has 64 parts at the most, whatever comes of that.
    pub part_rows: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { range: None, keep: None, part_rows: 1_000_000 }
    }
}

const LOCK: &str = "compact.lock";

/// What was done.
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
    /// Summaries that a part had already: pushed twice, or left by a compactor that was killed.
    pub known: u64,
    /// Objects removed because they are older than `keep`.
    pub removed: u64,
    pub seconds: f64,
    #[serde(skip)]
    pub aside: Aside,
}

/// Compacts what hosts pushed since the last time.
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
        done.days += u64::from(days::day(fleet, &day, &mut done.aside).await?);
    }
    done.seconds = began.elapsed().as_secs_f64();
    Ok(done)
}

/// In a directory nothing refuses the second of two writes, so that compactors keep each other out; in clouds the write does.
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

/// Removes days that ended before this instant.
async fn retain(fleet: &Fleet, before: DateTime<Utc>) -> Result<u64, FleetError> {
    let first_kept = store::day(Some(HourStart::of_hours(before.timestamp().div_euclid(3_600))));
    let mut removed = 0;
    for below in ["v=1/table=days", "v=1/table=summary", "v=1/recordings"] {
        for day in fleet.store.list_with_delimiter(Some(&fleet.key(below))).await?.common_prefixes {
            let old = day.filename().is_some_and(|name| {
                // Names of days sort as days do; `dt=none` has no age.
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

/// Removes objects; those that are gone already are no fault.
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

/// What waits to be compacted: hours, and summaries in them.
pub async fn waiting(fleet: &Fleet) -> Result<(Vec<Hour>, usize), FleetError> {
    let hours = fleet.hours("v=1/in/table=summary", None).await?;
    let mut inputs = 0;
    for hour in &hours {
        inputs += fleet.list(&format!("v=1/in/table=summary/{}", hour.below)).await?.len();
    }
    Ok((hours, inputs))
}
