//! One hour: its inputs and its parts, into its parts.

use std::collections::{BTreeMap, HashSet};

use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use flatwater_recording::SummaryRow;
use flatwater_recording::summary;
use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};

use super::{Done, remove, sorted};
use crate::FleetError;
use crate::aside::Why;
use crate::input::{self, Refused};
use crate::store::{Fleet, Hour, PARTS_MAX, SHARDS, name_of};

/// Inputs that are fetched at a time.
const FETCHED: usize = 32;
/// Before anything is read: about so many rows has a host's hour.
const ROWS_GUESSED: u64 = 12;

/// The name of a summary, as rows have it.
type Name = (String, Option<String>, i64);

pub(super) async fn hour(fleet: &Fleet, hour: &Hour, part_rows: u64, done: &mut Done) -> Result<(), FleetError> {
    let inputs = fleet.list(&format!("v=1/in/table=summary/{}", hour.below)).await?;
    let parts = fleet.list(&format!("v=1/table=summary/{}", hour.below)).await?;
    let parts: BTreeMap<(u32, u32), ObjectMeta> =
        parts.into_iter().filter_map(|meta| Some((part_of(meta.location.filename()?)?, meta))).collect();
    // An hour keeps the number of parts that it began with: late arrivals do not move rows between files.
    let wanted = (inputs.len() as u64).saturating_mul(ROWS_GUESSED) / part_rows.max(1) + 1;
    let fresh = u32::try_from(wanted).unwrap_or(PARTS_MAX).min(PARTS_MAX).next_power_of_two();
    let of = parts.keys().next().map_or(fresh, |(_, of)| *of);
    let mut by_part: BTreeMap<u32, Vec<ObjectMeta>> = BTreeMap::new();
    for input in inputs {
        match shard(&input.location) {
            Some(shard) => by_part.entry(shard * of / SHARDS).or_default().push(input),
            None => done.aside.put(Why::Damaged, fleet.below(&input.location), "its key is none of flatwater's"),
        }
    }
    for (part, inputs) in by_part {
        let key = fleet.key(&format!("v=1/table=summary/{}/part-{part:02}-of-{of:02}.parquet", hour.below));
        one_part(fleet, key, parts.get(&(part, of)), inputs, done).await?;
    }
    Ok(())
}

/// `part-03-of-16.parquet`.
fn part_of(name: &str) -> Option<(u32, u32)> {
    let (part, of) = name.strip_prefix("part-")?.strip_suffix(".parquet")?.split_once("-of-")?;
    let (part, of) = (part.parse().ok()?, of.parse().ok()?);
    ((1..=PARTS_MAX).contains(&of) && part < of).then_some((part, of))
}

fn shard(key: &Path) -> Option<u32> {
    let text = key.parts().rev().nth(1)?;
    text.as_ref().strip_prefix("shard=")?.parse().ok().filter(|shard| *shard < SHARDS)
}

async fn one_part(
    fleet: &Fleet,
    key: Path,
    part: Option<&ObjectMeta>,
    inputs: Vec<ObjectMeta>,
    done: &mut Done,
) -> Result<(), FleetError> {
    let mut known: HashSet<Name> = HashSet::new();
    let mut batches = Vec::new();
    if let Some(part) = part {
        let bytes = fleet.store.get(&part.location).await?.bytes().await?;
        match tokio::task::block_in_place(|| input::batches_of_any_size(bytes)) {
            Ok(read) => batches = read,
            // Its rows may be mended; to write over it would end that. Its inputs wait.
            Err(Refused { why, exactly }) => {
                done.aside.put(why, fleet.below(&part.location), exactly);
                return Ok(());
            }
        }
        known.extend(batches.iter().flat_map(names));
    }
    let before = batches.len();
    let (mut merged, mut finished) = (0, Vec::new());
    let mut fetching = stream::iter(inputs).map(|meta| fetch(fleet, meta)).buffer_unordered(FETCHED);
    while let Some(fetched) = fetching.next().await {
        let (meta, read) = fetched?;
        match read {
            Err(Refused { why, exactly }) => done.aside.put(why, fleet.below(&meta.location), exactly),
            Ok((name, _)) if !known.insert(name.clone()) => {
                done.known += 1;
                finished.push(meta.location);
            }
            Ok((_, rows)) => {
                merged += 1;
                finished.push(meta.location);
                batches.extend(rows);
            }
        }
    }
    if merged > 0 {
        let schema = summary::schema();
        let rows: usize = batches.iter().skip(before).map(RecordBatch::num_rows).sum();
        let batches = batches.iter().map(as_now).collect::<Result<Vec<_>, FleetError>>()?;
        let bytes = tokio::task::block_in_place(|| {
            let all = concat_batches(&schema, &batches)?;
            sorted::part_bytes(&sorted::sorted(&all)?)
        })?;
        replace(fleet, &key, part, bytes).await?;
        done.parts += 1;
        done.summaries += merged;
        done.rows += rows as u64;
    }
    // Only now: all of these are in the part that the store has.
    remove(fleet, finished).await?;
    Ok(())
}

type Read = Result<(Name, Vec<RecordBatch>), Refused>;

async fn fetch(fleet: &Fleet, meta: ObjectMeta) -> Result<(ObjectMeta, Read), FleetError> {
    if meta.size > input::BYTES_MAX {
        let refused = Refused { why: Why::Damaged, exactly: format!("{} bytes", meta.size) };
        return Ok((meta, Err(refused)));
    }
    let bytes = fleet.store.get(&meta.location).await?.bytes().await?;
    let decoding = tokio::spawn(async move {
        let read = checked(&meta, bytes);
        (meta, read)
    });
    decoding.await.map_err(|error| FleetError::Encode(error.to_string()))
}

fn checked(meta: &ObjectMeta, bytes: Bytes) -> Read {
    let damaged = |exactly: String| Refused { why: Why::Damaged, exactly };
    let batches = input::batches(bytes)?;
    let first = batches.iter().find(|batch| batch.num_rows() > 0);
    let row = first.and_then(|batch| summary::from_batch(&batch.slice(0, 1)).pop());
    let row: SummaryRow = row.ok_or_else(|| damaged("it has no rows".to_owned()))?;
    let all: HashSet<Name> = batches.iter().flat_map(names).collect();
    let named = meta.location.filename().unwrap_or_default();
    if all.len() != 1 || named != format!("{}.parquet", name_of(&row)) {
        return Err(damaged("its rows are of another summary than its key".to_owned()));
    }
    batches.iter().try_for_each(input::check_measures)?;
    input::check_clock(&row, meta.last_modified)?;
    Ok(((row.host, row.boot, row.sequence), batches))
}

/// The summaries that a batch has rows of.
fn names(batch: &RecordBatch) -> HashSet<Name> {
    let wanted: Vec<usize> =
        ["host", "boot", "sequence"].iter().filter_map(|name| batch.schema().index_of(name).ok()).collect();
    let Ok(thin) = batch.project(&wanted) else { return HashSet::new() };
    summary::from_batch(&thin).into_iter().map(|row| (row.host, row.boot, row.sequence)).collect()
}

/// A batch with the columns of today: an older flatwater had fewer.
fn as_now(batch: &RecordBatch) -> Result<RecordBatch, FleetError> {
    let schema = summary::schema();
    let alike = batch.schema().fields() == schema.fields();
    if alike {
        Ok(RecordBatch::try_new(schema, batch.columns().to_vec())?)
    } else {
        Ok(SummaryRow::encode(&summary::from_batch(batch))?)
    }
}

/// Puts the part in the place of the one that was read, and of no other.
async fn replace(fleet: &Fleet, key: &Path, was: Option<&ObjectMeta>, bytes: Vec<u8>) -> Result<(), FleetError> {
    let mode = match was {
        None => PutMode::Create,
        // A directory has no versions; its lock keeps others out.
        Some(_) if fleet.directory.is_some() => PutMode::Overwrite,
        Some(was) => PutMode::Update(UpdateVersion { e_tag: was.e_tag.clone(), version: was.version.clone() }),
    };
    let options = PutOptions { mode, ..PutOptions::default() };
    match fleet.store.put_opts(key, PutPayload::from(bytes), options).await {
        Ok(_) => durable(fleet, key),
        Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
            Err(FleetError::Raced { key: fleet.below(key) })
        }
        Err(error) => Err(error.into()),
    }
}

/// In a directory: on the disk before its inputs go.
pub(super) fn durable(fleet: &Fleet, key: &Path) -> Result<(), FleetError> {
    let Some(directory) = &fleet.directory else { return Ok(()) };
    let path = directory.join(key.as_ref());
    let folder = path.parent().unwrap_or(directory);
    for path in [&path, folder] {
        std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(FleetError::file(path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::part_of;

    #[test]
    fn only_names_of_parts_are_parts() {
        assert_eq!(part_of("part-03-of-16.parquet"), Some((3, 16)));
        for name in ["part-16-of-16.parquet", "part-0-of-128.parquet", "part-x-of-2.parquet", "x.parquet"] {
            assert_eq!(part_of(name), None, "{name}");
        }
    }
}
