//! Turns rows into sampled tables: sorts them, merges rows of one moment, and sums rates into counters.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::place::Places;
use super::{Builder, Cell, Row, Track};
use crate::number::rounded;
use flatwater_recording::{ColumnKind, Series, SeriesColumn, Table};

/// Maximum values (rows times columns) of one table. Further rows are dropped, and a gap reports it.
const VALUES_MAX: usize = 32 << 20;

#[derive(Debug)]
struct Claim {
    track: Track,
    first: u64,
    last: u64,
    /// The log prints totals, which are better than sums of rates.
    total: bool,
}

/// Columns that a track must not fill, because another track fills them at the same time.
type Refused = HashSet<(Table, u32, u32, Track)>;

pub fn series(builder: &mut Builder, places: &Places) -> Vec<Series> {
    let refused = refused(builder, places);
    let mut by_table: BTreeMap<Table, Vec<(u64, Row)>> = BTreeMap::new();
    for row in &builder.rows {
        by_table.entry(row.table).or_default().push((places.at_ns(row.track, row.at), *row));
    }
    let mut tables = Vec::new();
    let mut lost = Lost::default();
    for (table, mut rows) in by_table {
        // A stable sort: for one moment and entity the track that was read first wins.
        rows.sort_by_key(|(at_ns, row)| (*at_ns, row.entity));
        tables.push(fill(builder, table, &rows, &refused, &mut lost));
    }
    for table in lost.dropped {
        builder.gap(format!("part of table {table}"), "too many rows and columns to hold", "import a shorter part");
    }
    for ((table, column), count) in lost.beyond {
        builder.gap(format!("{count} values of {table}: {column}"), BEYOND, "");
    }
    for ((table, track), count) in lost.repeated {
        let of = builder.tracks.get(track.0 as usize).map(|info| info.what.clone()).unwrap_or_default();
        let why = "the log has two values for the same time: the first is kept";
        builder.gap(format!("{count} values of {table} from {of}"), why, "put the output of `date` before each");
    }
    tables
}

/// Values of the logs that are not in the tables.
#[derive(Debug, Default)]
struct Lost {
    dropped: Vec<&'static str>,
    /// Number of values near 2^64, by table and column.
    beyond: BTreeMap<(&'static str, String), u64>,
    /// Number of values that differ from another value of the same row, by table and track.
    repeated: BTreeMap<(&'static str, Track), u64>,
}

/// `number::count` and `number::rounded` return this for larger numbers.
const LARGEST: i64 = i64::MAX;
const BEYOND: &str = "values near 2^64 are ignored: a kernel counter that fell below zero looks like this";

fn cells<'a>(builder: &'a Builder, row: &Row) -> &'a [(u32, Cell)] {
    let first = row.first as usize;
    builder.cells.get(first..first + row.count as usize).unwrap_or_default()
}

/// Finds columns that two logs count at the same time (vmstat's bi and sar's pgpgin): their counts must not be added
/// up.
fn refused(builder: &mut Builder, places: &Places) -> Refused {
    let mut claims: HashMap<(Table, u32, u32), HashMap<Track, Claim>> = HashMap::new();
    for row in &builder.rows {
        let at_ns = places.at_ns(row.track, row.at);
        for (column, cell) in cells(builder, row) {
            let total = match cell {
                Cell::Gauge(_) => continue,
                Cell::Counter(_) => true,
                Cell::Rise(_) => false,
            };
            let claims = claims.entry((row.table, row.entity, *column)).or_default();
            let claim = claims.entry(row.track).or_insert(Claim { track: row.track, first: at_ns, last: at_ns, total });
            (claim.first, claim.last) = (claim.first.min(at_ns), claim.last.max(at_ns));
            claim.total |= total;
        }
    }
    let mut refused = Refused::new();
    let mut pairs: HashSet<(Track, Track)> = HashSet::new();
    for ((table, entity, column), claims) in claims {
        let mut claims: Vec<Claim> = claims.into_values().collect();
        claims.sort_by_key(|claim| (!claim.total, claim.track));
        let Some(total) = claims.first().map(|claim| claim.total) else { continue };
        // The tracks that are kept do not overlap: in the order of their first times their last times rise as well.
        let mut kept: BTreeMap<(u64, u64, Track), Track> = BTreeMap::new();
        for claim in claims {
            let before = kept.range(..(claim.last, 0, Track(0))).next_back();
            let overlaps = before.filter(|((_, last, _), _)| claim.first < *last).map(|(_, track)| *track);
            let rival = if claim.total == total { overlaps } else { kept.values().next().copied() };
            match rival {
                Some(known) => {
                    pairs.insert((known, claim.track));
                    refused.insert((table, entity, column, claim.track));
                }
                None => {
                    kept.insert((claim.first, claim.last, claim.track), claim.track);
                }
            }
        }
    }
    let mut pairs: Vec<(Track, Track)> = pairs.into_iter().collect();
    pairs.sort_unstable();
    for (kept, other) in pairs {
        let name =
            |track: Track| builder.tracks.get(track.0 as usize).map(|info| info.what.clone()).unwrap_or_default();
        let (what, why) = (name(other), format!("{} counts the same over the same time and was kept", name(kept)));
        builder.gap(format!("some counters of {what}"), why, "");
    }
    refused
}

/// Track, time and entity of the last value of each column.
#[derive(Debug, Default)]
struct LastValues(HashMap<u32, (Track, u64, u32)>);

impl LastValues {
    /// Remembers a value. Returns whether the last value of the column was for the same row of the same track.
    fn repeats(&mut self, row: &Row, at_ns: u64, column: u32) -> bool {
        let place = (row.track, at_ns, row.entity);
        self.0.insert(column, place) == Some(place)
    }
}

/// Name, kind and values of a column that is filled row by row.
type Filling = (String, ColumnKind, Vec<Option<i64>>);

/// The columns of the rows in the order of their appearance, and their places by the builder's number.
fn columns_of(builder: &Builder, rows: &[(u64, Row)]) -> (Vec<Filling>, HashMap<u32, usize>) {
    let (mut columns, mut place_of): (Vec<Filling>, HashMap<u32, usize>) = Default::default();
    for (column, cell) in rows.iter().flat_map(|(_, row)| cells(builder, row)) {
        let next = columns.len();
        if *place_of.entry(*column).or_insert(next) == next {
            let name = builder.column_names.get(*column as usize).cloned().unwrap_or_default();
            let kind = if matches!(cell, Cell::Gauge(_)) { ColumnKind::Gauge } else { ColumnKind::Counter };
            columns.push((name, kind, Vec::new()));
        }
    }
    (columns, place_of)
}

fn fill(builder: &Builder, table: Table, rows: &[(u64, Row)], refused: &Refused, lost: &mut Lost) -> Series {
    let (mut entities, mut at_moment, mut owners) = (Vec::new(), Vec::new(), Vec::new());
    let (mut columns, place_of) = columns_of(builder, rows);
    let rows_max = VALUES_MAX / columns.len().max(1);
    let mut entity_of: HashMap<u32, u16> = HashMap::new();
    let mut last = LastValues::default();
    let mut sums: HashMap<(u32, u32), f64> = HashMap::new();
    for (at_ns, row) in rows {
        let Ok(next) = u16::try_from(entities.len()) else { continue };
        let known = entity_of.get(&row.entity).copied();
        if at_moment.len() >= rows_max || (known.is_none() && next == u16::MAX) {
            lost.dropped.push(table.name());
            break;
        }
        let entity = known.unwrap_or_else(|| {
            entity_of.insert(row.entity, next);
            entities.push(builder.entity_list.get(row.entity as usize).cloned().unwrap_or_default());
            next
        });
        if at_moment.last() != Some(at_ns) || owners.last() != Some(&entity) {
            at_moment.push(*at_ns);
            owners.push(entity);
        }
        let length = at_moment.len();
        for (column, cell) in cells(builder, row) {
            if refused.contains(&(table, row.entity, *column, row.track)) {
                continue;
            }
            let Some((.., values)) = place_of.get(column).and_then(|&place| columns.get_mut(place)) else { continue };
            values.resize(length, None);
            let Some(value) = values.last_mut() else { continue };
            if last.repeats(row, *at_ns, *column)
                && let (Some(first), Cell::Gauge(given) | Cell::Counter(given)) = (*value, cell)
                && first != *given
            {
                *lost.repeated.entry((table.name(), row.track)).or_default() += 1;
            }
            let read = match cell {
                Cell::Gauge(given) | Cell::Counter(given) => value.unwrap_or(*given),
                Cell::Rise(rise) => {
                    let sum = sums.entry((row.entity, *column)).or_insert(0.0);
                    let next = *sum + rise.max(0.0);
                    // An impossible increase does not spoil the values after it.
                    if next < LARGEST as f64 {
                        *sum = next;
                    }
                    rounded(next)
                }
            };
            if read == LARGEST {
                let name = builder.column_names.get(*column as usize).cloned().unwrap_or_default();
                *lost.beyond.entry((table.name(), name)).or_default() += 1;
            } else {
                *value = Some(read);
            }
        }
    }
    let length = at_moment.len();
    let columns = columns.into_iter().filter(|(.., values)| values.iter().any(Option::is_some));
    let columns = columns.map(|(name, kind, mut values)| {
        values.resize(length, None);
        SeriesColumn::new(name, kind, values)
    });
    Series::from_parts(table, entities, at_moment, owners, columns.collect())
}
