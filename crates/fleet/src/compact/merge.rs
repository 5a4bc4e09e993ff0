//! Merges the inputs and the parts of one hour into new parts.

use std::collections::{BTreeMap, HashSet};

use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use flatwater_recording::summary;
use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};

use super::read::{Name, as_now, chunks, names, read_chunk};
use super::{Done, remove, sorted};
use crate::FleetError;
use crate::input::{self, Refused};
use crate::left_out::Why;
use crate::store::{Fleet, Hour, PARTS_MAX, SHARDS};

/// Assumed rows of a host's hour, before any is read.
const ROWS_GUESSED: u64 = 12;

pub(super) async fn hour(fleet: &Fleet, hour: &Hour, part_rows: u64, done: &mut Done) -> Result<(), FleetError> {
    let inputs = fleet.list(&format!("v=1/in/table=summary/{}", hour.relative)).await?;
    let parts = fleet.list(&format!("v=1/table=summary/{}", hour.relative)).await?;
    let parts: BTreeMap<(u32, u32), ObjectMeta> =
        parts.into_iter().filter_map(|meta| Some((part_of(meta.location.filename()?)?, meta))).collect();
    // An hour keeps its number of parts, so that late arrivals do not move rows between files.
    let wanted = (inputs.len() as u64).saturating_mul(ROWS_GUESSED) / part_rows.max(1) + 1;
    let fresh = u32::try_from(wanted).unwrap_or(PARTS_MAX).min(PARTS_MAX).next_power_of_two();
    let of = parts.keys().next().map_or(fresh, |(_, of)| *of);
    let mut by_part: BTreeMap<u32, Vec<ObjectMeta>> = BTreeMap::new();
    for input in inputs {
        match shard(&input.location) {
            Some(shard) => by_part.entry(shard * of / SHARDS).or_default().push(input),
            None => done.left_out.put(
                Why::Damaged,
                fleet.relative(&input.location),
                "its key does not have flatwater's form",
            ),
        }
    }
    for (part, inputs) in by_part {
        let key = fleet.key(&format!("v=1/table=summary/{}/part-{part:02}-of-{of:02}.parquet", hour.relative));
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
            // The part may be repairable, so do not overwrite it. Its inputs stay.
            Err(Refused { why, exactly }) => {
                done.left_out.put(why, fleet.relative(&part.location), exactly);
                return Ok(());
            }
        }
        for batch in &batches {
            names(batch, |name| _ = known.insert(name))?;
        }
    }
    let before = batches.len();
    let schema = summary::schema();
    let (mut merged, mut finished) = (0, Vec::new());
    let at_a_time = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reading = stream::iter(chunks(inputs)).map(|chunk| read_chunk(fleet, &schema, chunk)).buffered(at_a_time);
    while let Some(chunk) = reading.next().await {
        let (rows, inputs) = chunk?;
        // Copy rows of new summaries in runs as long as possible, mostly a whole chunk.
        let (mut from, mut to) = (0, 0);
        for (meta, read) in inputs {
            match read {
                Err(Refused { why, exactly }) => done.left_out.put(why, fleet.relative(&meta.location), exactly),
                Ok((name, count)) => {
                    finished.push(meta.location);
                    if known.insert(name) {
                        merged += 1;
                        to += count;
                    } else {
                        done.known += 1;
                        batches.push(rows.slice(from, to - from));
                        (from, to) = (to + count, to + count);
                    }
                }
            }
        }
        batches.push(rows.slice(from, to - from));
    }
    drop(reading);
    if merged > 0 {
        let rows: usize = batches.iter().skip(before).map(RecordBatch::num_rows).sum();
        let bytes = tokio::task::block_in_place(|| {
            let all = concat_batches(&schema, &as_now(&batches, &schema)?)?;
            sorted::part_bytes(&sorted::sorted(&all)?)
        })?;
        replace(fleet, &key, part, bytes).await?;
        done.parts += 1;
        done.summaries += merged;
        done.rows += rows as u64;
    }
    // Only now: the stored part contains all of these inputs.
    remove(fleet, finished).await?;
    Ok(())
}

/// Writes the part, unless another compactor changed it since it was read.
async fn replace(fleet: &Fleet, key: &Path, was: Option<&ObjectMeta>, bytes: Vec<u8>) -> Result<(), FleetError> {
    let mode = match was {
        None => PutMode::Create,
        // A directory has no versions; its lock keeps other compactors out.
        Some(_) if fleet.directory.is_some() => PutMode::Overwrite,
        Some(was) => PutMode::Update(UpdateVersion { e_tag: was.e_tag.clone(), version: was.version.clone() }),
    };
    let options = PutOptions { mode, ..PutOptions::default() };
    match fleet.store.put_opts(key, PutPayload::from(bytes), options).await {
        Ok(_) => durable(fleet, key),
        Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
            Err(FleetError::Raced { key: fleet.relative(key) })
        }
        Err(error) => Err(error.into()),
    }
}

/// In a directory, syncs the file before its inputs are removed.
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
    fn only_valid_names_are_parts() {
        assert_eq!(part_of("part-03-of-16.parquet"), Some((3, 16)));
        for name in ["part-16-of-16.parquet", "part-0-of-128.parquet", "part-x-of-2.parquet", "x.parquet"] {
            assert_eq!(part_of(name), None, "{name}");
        }
    }
}
