//! Plain tables, whose rows are structs: `table!` declares the struct, its columns, its place in a recording and its
//! lines in docs/recording.md together, so that they cannot differ.
//!
//! A field becomes one column, or several if it is a struct itself (`Task`: `waker_pid`, `waker_tid`, ...). Columns
//! are found by name. A column that is absent or has another type is read as missing, so that older and newer
//! recordings can be opened.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::TableError;
use super::rows::{Allowance, Columns};
use crate::{
    AsyncCall, CpuOwner, Dirtier, Limit, MemoryUser, OperationFiles, Operations, QueueAhead, QueueOwner, Recording,
    Request, ServiceTime, StackId, Task, Wait,
};

/// The columns of a batch, for readers of fields.
#[derive(Clone, Copy)]
pub(crate) struct FlatColumns<'a>(Columns<'a>);

/// A type that a field of a row can have.
pub(crate) trait Cells: Sized + 'static {
    fn fields(name: &'static str) -> Vec<Field>;
    fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef>;
    fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a;

    /// Heap memory of the value, bytes.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// A row of a table.
pub(crate) trait FlatRow: Sized {
    /// Name of the table.
    const NAME: &'static str;
    /// What a row describes, for docs/recording.md.
    const ABOUT: &'static str;
    /// Each field with its meaning.
    const FIELDS: &'static [(&'static str, &'static str)];

    fn schema() -> Schema;
    fn arrays(rows: &[Self]) -> Vec<ArrayRef>;
    fn reader<'a>(columns: FlatColumns<'a>) -> impl Fn(usize) -> Self + 'a;
    fn heap_bytes(&self) -> usize;
}

/// Rows of a table that are being written to a file.
pub(crate) trait FlatRows: Debug {
    fn len(&self) -> usize;
    fn encode(&self, from: usize, count: usize) -> Result<RecordBatch, ArrowError>;
}

impl<R: FlatRow + Debug> FlatRows for Vec<R> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn encode(&self, from: usize, count: usize) -> Result<RecordBatch, ArrowError> {
        self.as_slice().encode(from, count)
    }
}

impl<R: FlatRow + Debug> FlatRows for &[R] {
    fn len(&self) -> usize {
        <[R]>::len(self)
    }

    fn encode(&self, from: usize, count: usize) -> Result<RecordBatch, ArrowError> {
        let rest = self.get(from..).unwrap_or_default();
        RecordBatch::try_new(Arc::new(R::schema()), R::arrays(rest.get(..count).unwrap_or(rest)))
    }
}

fn decode<R: FlatRow>(batch: &RecordBatch, into: &mut Vec<R>, allowance: &Allowance<'_>) -> Result<(), TableError> {
    let reader = R::reader(FlatColumns(Columns::Batch(batch)));
    for row in 0..batch.num_rows() {
        // Texts are bounded by the batch, which is in memory already; the row is charged to the allowance before it is
        // kept.
        let row = reader(row);
        allowance.take(size_of::<R>() + row.heap_bytes())?;
        into.push(row);
    }
    Ok(())
}

macro_rules! flat_tables {
    ($($variant:ident: $row:ident in $field:ident;)*) => {
        /// All plain tables.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum FlatTable { $($variant),* }

        impl FlatTable {
            pub(crate) const ALL: &[FlatTable] = &[$(FlatTable::$variant),*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(FlatTable::$variant => $row::NAME),* }
            }

            /// What a row describes.
            pub(crate) fn about(self) -> &'static str {
                match self { $(FlatTable::$variant => $row::ABOUT),* }
            }

            pub(crate) fn fields(self) -> &'static [(&'static str, &'static str)] {
                match self { $(FlatTable::$variant => $row::FIELDS),* }
            }

            pub(crate) fn schema(self) -> Schema {
                match self { $(FlatTable::$variant => $row::schema()),* }
            }

            /// The rows of this table in a recording in memory.
            pub(crate) fn rows(self, recording: &Recording) -> &dyn FlatRows {
                match self { $(FlatTable::$variant => &recording.$field),* }
            }

            pub(super) fn absorb(
                self,
                batch: &RecordBatch,
                into: &mut Recording,
                allowance: &Allowance<'_>,
            ) -> Result<(), TableError> {
                match self { $(FlatTable::$variant => decode(batch, &mut into.$field, allowance)),* }
            }
        }
    };
}

flat_tables! {
    Waits: Wait in waits;
    Requests: Request in requests;
    QueueAhead: QueueAhead in queue_ahead;
    QueueOwners: QueueOwner in queue_owners;
    Dirtiers: Dirtier in dirtiers;
    MemoryUsers: MemoryUser in memory_users;
    CpuOwners: CpuOwner in cpu_owners;
    AsyncCalls: AsyncCall in async_calls;
    Operations: Operations in operations;
    OperationFiles: OperationFiles in operation_files;
    Limits: Limit in limits;
    ServiceTimes: ServiceTime in service_times;
}

macro_rules! table {
    ($(#[doc = $about:literal])* $row:ident = $name:literal {
        $($(#[doc = $doc:literal])* $field:ident: $type:ty,)*
    }) => {
        $(#[doc = $about])*
        ///
        /// More fields will be added: construct with `..Default::default()`.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs, reason = "fields without a text have the same meaning as in a call")]
        pub struct $row { $($(#[doc = $doc])* pub $field: $type),* }

        impl $crate::store::flat::FlatRow for $row {
            const NAME: &'static str = $name;
            const ABOUT: &'static str = concat!($($about),*);
            const FIELDS: &'static [(&'static str, &'static str)] = &[$((stringify!($field), concat!($($doc),*))),*];

            fn schema() -> arrow_schema::Schema {
                let mut fields = Vec::new();
                $(fields.extend(<$type as $crate::store::flat::Cells>::fields(stringify!($field)));)*
                arrow_schema::Schema::new(fields)
            }

            fn arrays(rows: &[Self]) -> Vec<arrow_array::ArrayRef> {
                let mut arrays = Vec::new();
                $(arrays.extend(<$type as $crate::store::flat::Cells>::arrays(rows.iter().map(|row| &row.$field)));)*
                arrays
            }

            fn reader<'a>(columns: $crate::store::flat::FlatColumns<'a>) -> impl Fn(usize) -> Self + 'a {
                $(let $field = <$type as $crate::store::flat::Cells>::reader(columns, stringify!($field));)*
                move |row| $row { $($field: $field(row)),* }
            }

            fn heap_bytes(&self) -> usize {
                0 $(+ $crate::store::flat::Cells::heap_bytes(&self.$field))*
            }
        }
    };
}
pub(crate) use table;

/// Numbers, and numbers that may be missing.
macro_rules! number_cells {
    ($type:ty, $array:ident, $data:ident, $column:ident) => {
        impl Cells for $type {
            fn fields(name: &'static str) -> Vec<Field> {
                vec![Field::new(name, DataType::$data, false)]
            }

            fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef> {
                vec![Arc::new($array::from_iter_values(cells.copied()))]
            }

            fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a {
                let column = columns.0.$column(name);
                move |row| column.or_default(row)
            }
        }

        impl Cells for Option<$type> {
            fn fields(name: &'static str) -> Vec<Field> {
                vec![Field::new(name, DataType::$data, true)]
            }

            fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef> {
                vec![Arc::new(cells.copied().collect::<$array>())]
            }

            fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a {
                let column = columns.0.$column(name);
                move |row| column.get(row)
            }
        }
    };
}
number_cells!(u32, UInt32Array, UInt32, u32);
number_cells!(u64, UInt64Array, UInt64, u64);
number_cells!(i64, Int64Array, Int64, i64);

impl Cells for Option<StackId> {
    fn fields(name: &'static str) -> Vec<Field> {
        <Option<u32>>::fields(name)
    }

    fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef> {
        vec![Arc::new(cells.map(|stack| stack.map(|stack| stack.0)).collect::<UInt32Array>())]
    }

    fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a {
        let number = <Option<u32>>::reader(columns, name);
        move |row| number(row).map(StackId)
    }
}

impl Cells for Option<bool> {
    fn fields(name: &'static str) -> Vec<Field> {
        vec![Field::new(name, DataType::Boolean, true)]
    }

    fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef> {
        vec![Arc::new(cells.copied().collect::<BooleanArray>())]
    }

    fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a {
        let column = columns.0.flag(name);
        move |row| column.get(row)
    }
}

impl Cells for String {
    fn fields(name: &'static str) -> Vec<Field> {
        vec![Field::new(name, DataType::Utf8, false)]
    }

    fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef> {
        vec![Arc::new(StringArray::from_iter_values(cells))]
    }

    fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a {
        let column = columns.0.text(name);
        move |row| column.or_empty(row).to_owned()
    }

    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

impl Cells for Option<String> {
    fn fields(name: &'static str) -> Vec<Field> {
        vec![Field::new(name, DataType::Utf8, true)]
    }

    fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef> {
        vec![Arc::new(cells.map(Option::as_deref).collect::<StringArray>())]
    }

    fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a {
        let column = columns.0.text(name);
        move |row| column.get(row).map(str::to_owned)
    }

    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, String::len)
    }
}

/// Cells of a named enum, stored by name. A name from a newer flatwater is read as the default.
macro_rules! named_cells {
    ($($noun:ident),*) => {
        $(impl $crate::store::flat::Cells for $noun {
            fn fields(name: &'static str) -> Vec<arrow_schema::Field> {
                String::fields(name)
            }

            fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<arrow_array::ArrayRef> {
                let names = arrow_array::StringArray::from_iter_values(cells.map(|cell| cell.name()));
                vec![std::sync::Arc::new(names)]
            }

            fn reader<'a>(
                columns: $crate::store::flat::FlatColumns<'a>,
                name: &'static str,
            ) -> impl Fn(usize) -> Self + 'a {
                columns.named(name, |name| $noun::from_name(name).unwrap_or_default())
            }
        })*
    };
}
pub(crate) use named_cells;

impl<'a> FlatColumns<'a> {
    #[cfg(any(test, feature = "arrow-59"))]
    pub(crate) fn of_batch(batch: &'a RecordBatch) -> FlatColumns<'a> {
        FlatColumns(Columns::Batch(batch))
    }

    pub(crate) fn micros(self, name: &str) -> impl Fn(usize) -> Option<i64> + 'a {
        let column = self.0.micros(name);
        move |row| column.get(row)
    }

    pub(crate) fn named<T>(self, name: &'static str, of: fn(&str) -> T) -> impl Fn(usize) -> T + 'a
    where
        T: 'static,
    {
        let column = self.0.text(name);
        move |row| of(column.or_empty(row))
    }
}

pub(crate) const TASK_FIELDS: [&str; 4] = ["pid", "tid", "name", "cgroup"];

/// The columns of a task: `waker_pid`, `waker_tid`, `waker_name`, `waker_cgroup`. All are null without a task.
fn task_fields(name: &str) -> Vec<Field> {
    let column = |part: &str| format!("{name}_{part}");
    let [pid, tid, comm, cgroup] = TASK_FIELDS.map(column);
    vec![
        Field::new(pid, DataType::UInt32, true),
        Field::new(tid, DataType::UInt32, true),
        Field::new(comm, DataType::Utf8, true),
        Field::new(cgroup, DataType::Utf8, true),
    ]
}

fn task_arrays<'a>(tasks: impl Iterator<Item = Option<&'a Task>> + Clone) -> Vec<ArrayRef> {
    vec![
        Arc::new(tasks.clone().map(|task| task.map(|task| task.pid)).collect::<UInt32Array>()),
        Arc::new(tasks.clone().map(|task| task.map(|task| task.tid)).collect::<UInt32Array>()),
        Arc::new(tasks.clone().map(|task| task.map(|task| task.name.as_str())).collect::<StringArray>()),
        Arc::new(tasks.map(|task| task.and_then(|task| task.cgroup.as_deref())).collect::<StringArray>()),
    ]
}

impl Cells for Option<Task> {
    fn fields(name: &'static str) -> Vec<Field> {
        task_fields(name)
    }

    fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef> {
        task_arrays(cells.map(Option::as_ref))
    }

    fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a {
        let [pid, tid, comm, cgroup] = TASK_FIELDS.map(|part| format!("{name}_{part}"));
        let (pid, tid) = (columns.0.u32(&pid), columns.0.u32(&tid));
        let (comm, cgroup) = (columns.0.text(&comm), columns.0.text(&cgroup));
        move |row| {
            let task = |pid| Task {
                pid,
                tid: tid.or_default(row),
                name: comm.or_empty(row).to_owned(),
                cgroup: cgroup.get(row).map(str::to_owned),
            };
            pid.get(row).map(task)
        }
    }

    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, Cells::heap_bytes)
    }
}

impl Cells for Task {
    fn fields(name: &'static str) -> Vec<Field> {
        task_fields(name)
    }

    fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef> {
        task_arrays(cells.map(Some))
    }

    fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a {
        let task = <Option<Task>>::reader(columns, name);
        move |row| task(row).unwrap_or_default()
    }

    fn heap_bytes(&self) -> usize {
        self.name.len() + self.cgroup.as_ref().map_or(0, String::len)
    }
}
