//! Collects the rows of one sampled table between two drains, without allocation.
//!
//! Kernel files print the same lines in the same order each time, so a sheet expects the key that followed last time,
//! and searches only if another one comes.

use super::text::same;
use flatwater_recording::schema::{Column, ColumnKey, stored};
use flatwater_recording::{ColumnKind, Entity, Gap, Series, SeriesColumn, Table};

/// Marks a cell without a value. No kernel counter has this value.
const ABSENT: i64 = i64::MIN;
/// The value of a number above 63 bits (`text::Scan::number`), in every unit: a kernel counter that fell below zero. It
/// is not stored.
const BEYOND: i64 = i64::MAX;
/// Limits on columns and entities. Values beyond them are left out, and `Sheet::take_reached` reports the limit.
const COLUMNS_MAX: usize = 4096;
const ENTITIES_MAX: usize = 16_384;

/// A limit of a table that was reached, so that values were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Columns,
    Entities,
}

impl Limit {
    /// The gap that this limit leaves in a table.
    #[must_use]
    pub fn gap(self, table: Table) -> Gap {
        let (what, most) = match self {
            Limit::Columns => ("further columns", COLUMNS_MAX),
            Limit::Entities => ("rows of further entities", ENTITIES_MAX),
        };
        Gap::new(format!("{}: {what}", table.name()), format!("at most {most} are recorded"), "")
    }
}

#[derive(Debug)]
struct Slot {
    /// The file that the key comes from, if several files fill one row.
    from: &'static str,
    key: Box<[u8]>,
    name: String,
    kind: ColumnKind,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    at_ns: u64,
    entity: u16,
    /// Index of the row's first cell; a row has as many cells as there were columns when it was opened.
    start: usize,
}

/// Filled rows; `Sheet::swap` exchanges them for empty ones.
#[derive(Debug, Default)]
pub struct Filled {
    rows: Vec<Row>,
    cells: Vec<i64>,
}

#[derive(Debug)]
pub struct Sheet {
    table: Table,
    entities: Vec<Entity>,
    slots: Vec<Slot>,
    filled: Filled,
    /// Index of the open row, and the range of the row's cells.
    current: usize,
    start: usize,
    end: usize,
    expected: usize,
    expected_entity: usize,
    /// Columns with a value of `BEYOND`, each once.
    beyond: Vec<usize>,
    /// The limits reached so far, each once, and how many of them were returned.
    reached: Vec<Limit>,
    returned: usize,
}

impl Sheet {
    #[must_use]
    pub fn new(table: Table) -> Sheet {
        let filled = Filled::default();
        Sheet {
            table,
            entities: Vec::new(),
            slots: Vec::new(),
            filled,
            current: 0,
            start: 0,
            end: 0,
            expected: 0,
            expected_entity: 0,
            beyond: Vec::new(),
            reached: Vec::new(),
            returned: 0,
        }
    }

    #[must_use]
    pub fn table(&self) -> Table {
        self.table
    }

    /// Opens the row of this time and entity, or reopens it if another file has begun it. If there are too many
    /// entities, no row is open, and values are ignored until the next one is opened.
    pub fn open(&mut self, at_ns: u64, node: Option<u32>, name: &[u8]) {
        self.expected = 0;
        let Some(entity) = self.entity(node, name) else {
            self.reach(Limit::Entities);
            return self.close();
        };
        let of_moment = self.filled.rows.iter().rev().take_while(|row| row.at_ns == at_ns);
        let begun = of_moment.enumerate().find(|(_, row)| row.entity == entity).map(|(back, _)| back);
        if let Some(back) = begun {
            self.current = self.filled.rows.len() - 1 - back;
            (self.start, self.end) = self.bounds().unwrap_or_default();
            return;
        }
        self.current = self.filled.rows.len();
        let start = self.filled.cells.len();
        self.filled.rows.push(Row { at_ns, entity, start });
        self.filled.cells.resize(start + self.slots.len(), ABSENT);
        (self.start, self.end) = (start, self.filled.cells.len());
    }

    fn close(&mut self) {
        self.current = usize::MAX - 1;
        (self.start, self.end) = (0, 0);
    }

    #[cold]
    fn reach(&mut self, limit: Limit) {
        if !self.reached.contains(&limit) {
            self.reached.push(limit);
        }
    }

    /// Returns the limits that were reached since the last call, each once.
    pub fn take_reached(&mut self) -> Vec<Limit> {
        let new = self.reached.get(self.returned..).unwrap_or_default().to_vec();
        self.returned = self.reached.len();
        new
    }

    /// The range of the open row's cells.
    fn bounds(&self) -> Option<(usize, usize)> {
        let start = self.filled.rows.get(self.current)?.start;
        let end = self.filled.rows.get(self.current + 1).map_or(self.filled.cells.len(), |next| next.start);
        Some((start, end))
    }

    fn entity(&mut self, node: Option<u32>, name: &[u8]) -> Option<u16> {
        let is = |entity: &Entity| entity.node == node && same(entity.name.as_bytes(), name);
        let found = match self.entities.get(self.expected_entity) {
            Some(entity) if is(entity) => Some(self.expected_entity),
            _ => self.entities.iter().position(is),
        };
        if found.is_none() {
            if self.entities.len() >= ENTITIES_MAX {
                return None;
            }
            self.entities.push(Entity { node, name: super::text::name_of(name) });
        }
        let place = found.unwrap_or(self.entities.len() - 1);
        self.expected_entity = place + 1;
        u16::try_from(place).ok()
    }

    /// The key that most likely comes next; callers compare it with their text instead of parsing a word.
    #[inline]
    #[must_use]
    pub fn expected(&self, from: &'static str) -> Option<&[u8]> {
        self.slots.get(self.expected).filter(|slot| same(slot.from.as_bytes(), from.as_bytes())).map(|slot| &*slot.key)
    }

    /// Sets the value of the key that `expected` returned.
    #[inline]
    pub fn put_expected(&mut self, value: Option<i64>) {
        self.set(self.expected, value);
    }

    /// Sets the value of a schema column in the open row.
    pub fn put_column(&mut self, from: &'static str, column: Column, value: Option<i64>) {
        debug_assert!(column.table == self.table, "{column} is not of {:?}", self.table);
        self.put(from, column.name.as_bytes(), value);
    }

    /// Sets a value in the open row, under the schema's name for this kernel key.
    pub fn put(&mut self, from: &'static str, key: &[u8], value: Option<i64>) {
        let table = self.table;
        self.put_as(from, key, value, |name| stored(table, name));
    }

    /// Sets a value in the open row; `describe` names the column if it is new.
    pub fn put_as(
        &mut self,
        from: &'static str,
        key: &[u8],
        value: Option<i64>,
        describe: impl FnOnce(&str) -> (String, ColumnKind),
    ) {
        let is = |slot: &Slot| same(slot.from.as_bytes(), from.as_bytes()) && same(&slot.key, key);
        let found = match self.slots.get(self.expected) {
            Some(slot) if is(slot) => Some(self.expected),
            _ => self.slots.iter().position(is),
        };
        let Some(place) = found.or_else(|| self.add(from, key, describe)) else { return };
        self.set(place, value);
    }

    fn add(
        &mut self,
        from: &'static str,
        key: &[u8],
        describe: impl FnOnce(&str) -> (String, ColumnKind),
    ) -> Option<usize> {
        if self.slots.len() >= COLUMNS_MAX {
            self.reach(Limit::Columns);
            return None;
        }
        let (name, kind) = describe(&super::text::name_of(key));
        self.slots.push(Slot { from, key: key.into(), name, kind });
        Some(self.slots.len() - 1)
    }

    #[inline]
    fn set(&mut self, place: usize, value: Option<i64>) {
        self.expected = place + 1;
        let Some(value) = value else { return };
        if value == BEYOND {
            self.note_beyond(place);
            return;
        }
        let at = self.start + place;
        if at >= self.end && !self.widen(at + 1) {
            return;
        }
        if let Some(cell) = self.filled.cells.get_mut(at) {
            *cell = value;
        }
    }

    #[cold]
    fn note_beyond(&mut self, place: usize) {
        if !self.beyond.contains(&place) {
            self.beyond.push(place);
        }
    }

    /// Removes and returns the names of columns with values near 2^64.
    pub fn take_beyond(&mut self) -> Vec<String> {
        let places = std::mem::take(&mut self.beyond);
        places.into_iter().filter_map(|place| self.slots.get(place).map(|slot| slot.name.clone())).collect()
    }

    /// Adds cells to the open row, which was opened before this column was known; `false` if no row is open.
    #[cold]
    fn widen(&mut self, to: usize) -> bool {
        if self.filled.rows.get(self.current).is_none() {
            return false;
        }
        let more = to - self.end;
        self.filled.cells.splice(self.end..self.end, std::iter::repeat_n(ABSENT, more));
        for later in self.filled.rows.iter_mut().skip(self.current + 1) {
            later.start += more;
        }
        self.end = to;
        true
    }

    /// The value of this column in the open row.
    #[must_use]
    pub fn value(&self, column: impl ColumnKey) -> Option<i64> {
        let place = self.slots.iter().position(|slot| slot.name == column.name())?;
        self.filled.cells.get(self.start..self.end)?.get(place).copied().filter(|&value| value != ABSENT)
    }

    /// Removes the open row, if it is the last one.
    pub fn withdraw(&mut self) {
        if self.current + 1 == self.filled.rows.len()
            && let Some(row) = self.filled.rows.pop()
        {
            self.filled.cells.truncate(row.start);
        }
        self.close();
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.filled.rows.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled.rows.is_empty()
    }

    /// Exchanges the filled rows for an empty set, whose memory is reused.
    pub fn swap(&mut self, empty: &mut Filled) {
        empty.rows.clear();
        empty.cells.clear();
        (self.current, self.start, self.end) = (0, 0, 0);
        std::mem::swap(&mut self.filled, empty);
    }

    /// Reserves memory for this many times the present rows.
    pub fn reserve(&mut self, spare: &mut Filled, times: usize) {
        let (rows, cells) = (self.filled.rows.len() * times, self.filled.cells.len() * times);
        for filled in [&mut self.filled, spare] {
            filled.rows.reserve(rows);
            filled.cells.reserve(cells);
        }
    }

    /// Converts rows that were swapped out to a table, without columns that have no value.
    #[must_use]
    pub fn series(&self, filled: &Filled) -> Series {
        let ends = filled.rows.iter().skip(1).map(|row| row.start).chain([filled.cells.len()]);
        let rows: Vec<&[i64]> = filled
            .rows
            .iter()
            .zip(ends)
            .map(|(row, end)| filled.cells.get(row.start..end).unwrap_or_default())
            .collect();
        let column = |(place, slot): (usize, &Slot)| {
            let cell = |row: &&[i64]| row.get(place).copied().filter(|&value| value != ABSENT);
            let values: Vec<Option<i64>> = rows.iter().map(cell).collect();
            let seen = values.iter().any(Option::is_some);
            seen.then(|| SeriesColumn::new(slot.name.clone(), slot.kind, values))
        };
        Series::from_parts(
            self.table,
            self.entities.clone(),
            filled.rows.iter().map(|row| row.at_ns).collect(),
            filled.rows.iter().map(|row| row.entity).collect(),
            self.slots.iter().enumerate().filter_map(column).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS_MAX, ENTITIES_MAX, Filled, Limit, Sheet};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn a_row_can_be_filled_from_several_files() {
        let mut sheet = Sheet::new(Table::Nodes);
        for at_ns in [10, 20] {
            for node in [0_u8, 1, 2] {
                sheet.open(at_ns, Some(u32::from(node)), b"");
                sheet.put("a", b"first", Some(i64::from(node)));
            }
            for node in [0_u8, 1, 2] {
                sheet.open(at_ns, Some(u32::from(node)), b"");
                sheet.put("b", b"second", Some(10 + i64::from(node)));
            }
        }
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        assert_eq!(series.len(), 6);
        for node in 0..3 {
            let rows = series.rows_of(&Entity::on_node(node, "")).expect("rows");
            let (first, second) = (i64::from(node), 10 + i64::from(node));
            assert_eq!(rows.values("first").collect::<Vec<_>>(), [(10, first), (20, first)]);
            assert_eq!(rows.values("second").collect::<Vec<_>>(), [(10, second), (20, second)]);
        }
    }

    /// S17: these values were clamped to 2^63 - 1, and a report explained "8589934592 GiB dirty".
    #[test]
    fn a_value_near_2_to_the_64_is_ignored_and_its_column_reported() {
        let mut sheet = Sheet::new(Table::Meminfo);
        sheet.open(1, None, b"");
        crate::proc::meminfo::read(b"Dirty: 18446744073709551611 kB\nMemFree: 8 kB\nSlab: 7 kB\n", "", &mut sheet);
        sheet.open(2, None, b"");
        crate::proc::meminfo::read(b"Dirty: 18014398509481984 kB\nMemFree: 8 kB\nSlab: 7 kB\n", "", &mut sheet);
        assert_eq!(sheet.take_beyond(), ["Dirty_bytes"]);
        assert_eq!(sheet.take_beyond(), [""; 0]);
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        assert!(series.column("Dirty_bytes").is_none());
        let free = series.column("MemFree_bytes").map(|column| column.values().iter().collect::<Vec<_>>());
        assert_eq!(free, Some(vec![Some(8192), Some(8192)]));
    }

    /// H7: the values of further entities were written into the row of the last one.
    #[test]
    fn entities_beyond_the_limit_are_left_out_and_reported() {
        let mut sheet = Sheet::new(Table::Slabs);
        sheet.entities = (1..ENTITIES_MAX).map(|slab| Entity::named(&format!("slab{slab}"))).collect();
        for (name, pages) in [("last", 7), ("one more", 8)] {
            sheet.open(1, None, name.as_bytes());
            sheet.put("", b"pages", Some(pages));
        }
        // The row of an entity that found no room is not there to be removed.
        sheet.withdraw();
        assert_eq!((sheet.len(), sheet.take_reached()), (1, vec![Limit::Entities]));
        sheet.open(2, None, b"one more");
        sheet.put("", b"pages", Some(9));
        assert_eq!((sheet.len(), sheet.take_reached()), (1, Vec::new()), "reported once");
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        let last = series.rows_of(&Entity::named("last")).expect("a row");
        assert_eq!(last.values("pages").collect::<Vec<_>>(), [(1, 7)]);
    }

    #[test]
    fn columns_beyond_the_limit_are_left_out_and_reported() {
        let mut sheet = Sheet::new(Table::Vmstat);
        sheet.open(1, None, b"");
        for column in 0..=COLUMNS_MAX {
            sheet.put("", format!("counter{column}").as_bytes(), Some(column as i64));
        }
        assert_eq!((sheet.take_reached(), sheet.take_reached()), (vec![Limit::Columns], Vec::new()));
        assert_eq!(sheet.value(format!("counter{}", COLUMNS_MAX - 1).as_str()), Some(COLUMNS_MAX as i64 - 1));
        let gap = Limit::Columns.gap(sheet.table());
        assert_eq!((gap.what.as_str(), gap.why.as_str()), ("vmstat: further columns", "at most 4096 are recorded"));
    }

    #[test]
    fn unread_values_are_null_and_a_withdrawn_row_is_gone() {
        let mut sheet = Sheet::new(Table::Vmstat);
        sheet.open(1, None, b"");
        sheet.put("", b"there", Some(1));
        sheet.put("", b"unreadable", None);
        sheet.open(2, None, b"");
        sheet.put("", b"late", Some(3));
        sheet.open(3, None, b"");
        sheet.withdraw();
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        assert_eq!(series.at_ns(), [1, 2]);
        let values = |name: &str| series.column(name).map(|column| column.values().iter().collect::<Vec<_>>());
        assert_eq!(values("there"), Some(vec![Some(1), None]));
        assert_eq!(values("late"), Some(vec![None, Some(3)]));
        assert_eq!(values("unreadable"), None);
    }
}
