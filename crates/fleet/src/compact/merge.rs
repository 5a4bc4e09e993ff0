//! Merges the inputs and the parts of one hour into new parts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use flatwater_recording::summary::SummaryRow;
use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};

use super::read::{Counted, Name, as_now, chunks, host_bytes, names, read_chunk};
use super::{Done, remove, sorted};
use crate::FleetError;
use crate::input::{self, Refused};
use crate::left_out::Why;
use crate::store::{Fleet, Hour, PARTS_MAX, SHARDS, host_of_key};

/// Assumed rows of a host's hour, before any is read.
const ROWS_GUESSED: u64 = 12;
/// Maximum summaries of a host in one hour, and their size, as files and as rows. There is one for each start of the
/// daemon and each recording.
const HOST_SUMMARIES_MAX: usize = 256;
pub(super) const HOST_BYTES_MAX: u64 = 64 << 20;

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
    for input in limited(inputs, done) {
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

/// The inputs without those of a host that pushed too many. They stay in the store.
fn limited(inputs: Vec<ObjectMeta>, done: &mut Done) -> Vec<ObjectMeta> {
    let mut by_host: HashMap<String, (usize, u64)> = HashMap::new();
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept = Vec::with_capacity(inputs.len());
    for input in inputs {
        let host = host_of_key(&input.location);
        let (count, bytes) = by_host.entry(host.clone()).or_default();
        (*count, *bytes) = (*count + 1, bytes.saturating_add(input.size));
        if *count > HOST_SUMMARIES_MAX || *bytes > HOST_BYTES_MAX {
            *left_out.entry(host).or_default() += 1;
        } else {
            kept.push(input);
        }
    }
    for (host, count) in left_out {
        let most = HOST_BYTES_MAX >> 20;
        let exactly = format!("{count} summaries beyond the first {HOST_SUMMARIES_MAX}, or {most} MiB, of an hour");
        done.left_out.put(Why::Excess, host, exactly);
    }
    kept
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

/// Summaries on their way into a part.
#[derive(Default)]
struct Merging {
    known: HashSet<Name>,
    by_host: HashMap<String, Load>,
    /// Rows of the part and of new inputs.
    batches: Vec<RecordBatch>,
    merged: u64,
    /// Inputs that the part will contain.
    finished: Vec<Path>,
    /// Inputs with a known name.
    again: Vec<(Path, Name, RecordBatch)>,
}

/// The rows of one host in a part.
#[derive(Default)]
struct Load {
    summaries: usize,
    bytes: u64,
}

impl Merging {
    fn with_part(batches: Vec<RecordBatch>) -> Result<Merging, FleetError> {
        let mut merging = Merging::default();
        for batch in &batches {
            names(batch, |name| _ = merging.known.insert(name))?;
            host_bytes(batch, |host, bytes| match merging.by_host.get_mut(host) {
                Some(load) => load.bytes = load.bytes.saturating_add(bytes),
                None => _ = merging.by_host.insert(host.to_owned(), Load { summaries: 0, bytes }),
            })?;
        }
        for (host, ..) in &merging.known {
            merging.by_host.entry(host.clone()).or_default().summaries += 1;
        }
        merging.batches = batches;
        Ok(merging)
    }

    /// Whether the summary is new; otherwise the reason not to merge it.
    fn is_new(&mut self, name: &Name, rows: &RecordBatch) -> Result<bool, Refused> {
        if self.known.contains(name) {
            return Ok(false);
        }
        let mut more = 0_u64;
        host_bytes(rows, |_, bytes| more = more.saturating_add(bytes))
            .map_err(|error| Refused { why: Why::Damaged, exactly: error.to_string() })?;
        let load = self.by_host.entry(name.0.clone()).or_default();
        let bytes = load.bytes.saturating_add(more);
        if load.summaries >= HOST_SUMMARIES_MAX || bytes > HOST_BYTES_MAX {
            let most = HOST_BYTES_MAX >> 20;
            let exactly = format!("{}: more than {HOST_SUMMARIES_MAX} summaries or {most} MiB of an hour", name.0);
            return Err(Refused { why: Why::Excess, exactly });
        }
        (load.summaries, load.bytes) = (load.summaries + 1, bytes);
        Ok(self.known.insert(name.clone()))
    }

    /// Adds the rows of new summaries, in runs as long as possible: mostly a whole chunk.
    fn chunk(&mut self, fleet: &Fleet, rows: &RecordBatch, inputs: Vec<(ObjectMeta, Counted)>, done: &mut Done) {
        let (mut from, mut to) = (0, 0);
        for (meta, read) in inputs {
            let (name, count) = match read {
                Ok(read) => read,
                Err(Refused { why, exactly }) => {
                    done.left_out.put(why, fleet.relative(&meta.location), exactly);
                    continue;
                }
            };
            match self.is_new(&name, &rows.slice(to, count)) {
                Ok(true) => {
                    self.finished.push(meta.location);
                    self.merged += 1;
                    to += count;
                    continue;
                }
                Ok(false) => self.again.push((meta.location, name, rows.slice(to, count))),
                Err(Refused { why, exactly }) => done.left_out.put(why, fleet.relative(&meta.location), exactly),
            }
            self.batches.push(rows.slice(from, to - from));
            (from, to) = (to + count, to + count);
        }
        self.batches.push(rows.slice(from, to - from));
    }

    /// Finishes inputs that were merged before. An input with the name of another summary is named, and stays.
    fn finish_known(&mut self, fleet: &Fleet, done: &mut Done) {
        if self.again.is_empty() {
            return;
        }
        let again: HashSet<&Name> = self.again.iter().map(|(_, name, _)| name).collect();
        let merged = fingerprints(&self.batches, &again);
        for (location, name, rows) in &self.again {
            let own = fingerprints(std::slice::from_ref(rows), &HashSet::from([name]));
            if own.get(name) == merged.get(name) {
                self.finished.push(location.clone());
                done.known += 1;
            } else {
                let exactly = "another summary with this host, time since boot and sequence was merged before";
                done.left_out.put(Why::Contradicts, fleet.relative(location), exactly);
            }
        }
    }
}

/// A checksum of each summary's rows, whatever their order, without the columns that a push fills in.
fn fingerprints(batches: &[RecordBatch], names: &HashSet<&Name>) -> HashMap<Name, u64> {
    let mut found: HashMap<Name, u64> = HashMap::new();
    for row in batches.iter().flat_map(SummaryRow::decode) {
        let name = (row.host.clone(), row.boot.clone(), row.sequence);
        if names.contains(&name) {
            let row = SummaryRow { clock_error_s: None, recording: None, ..row };
            let mut hasher = DefaultHasher::new();
            format!("{row:?}").hash(&mut hasher);
            let sum = found.entry(name).or_default();
            *sum = sum.wrapping_add(hasher.finish());
        }
    }
    found
}

async fn one_part(
    fleet: &Fleet,
    key: Path,
    part: Option<&ObjectMeta>,
    inputs: Vec<ObjectMeta>,
    done: &mut Done,
) -> Result<(), FleetError> {
    let mut merging = Merging::default();
    if let Some(part) = part {
        let bytes = fleet.store.get(&part.location).await?.bytes().await?;
        match tokio::task::block_in_place(|| input::batches_of_any_size(bytes)) {
            Ok(read) => merging = tokio::task::block_in_place(|| Merging::with_part(read))?,
            // The part may be repairable, so do not overwrite it. Its inputs stay.
            Err(Refused { why, exactly }) => {
                done.left_out.put(why, fleet.relative(&part.location), exactly);
                return Ok(());
            }
        }
    }
    let before = merging.batches.len();
    let schema = SummaryRow::schema();
    let at_a_time = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reading = stream::iter(chunks(inputs)).map(|chunk| read_chunk(fleet, &schema, chunk)).buffered(at_a_time);
    while let Some(chunk) = reading.next().await {
        let (rows, inputs) = chunk?;
        merging.chunk(fleet, &rows, inputs, done);
    }
    drop(reading);
    tokio::task::block_in_place(|| merging.finish_known(fleet, done));
    if merging.merged > 0 {
        let rows: usize = merging.batches.iter().skip(before).map(RecordBatch::num_rows).sum();
        let bytes = tokio::task::block_in_place(|| {
            let all = concat_batches(&schema, &as_now(&merging.batches, &schema)?)?;
            sorted::part_bytes(&sorted::sorted(&all)?)
        })?;
        replace(fleet, &key, part, bytes).await?;
        done.parts += 1;
        done.summaries += merging.merged;
        done.rows += rows as u64;
    }
    // Only now: the stored part contains all of these inputs.
    remove(fleet, merging.finished).await?;
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
