//! Reading columns that may be absent, null or of another type than ours.

use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, BinaryArray, BooleanArray, ListArray, PrimitiveArray, RecordBatch, StringArray, StructArray};

/// Columns by name: of a batch, or the fields of a struct.
#[derive(Clone, Copy)]
pub(super) enum Columns<'a> {
    Batch(&'a RecordBatch),
    Struct(&'a StructArray),
}

impl<'a> Columns<'a> {
    fn typed<A: Array + 'static>(self, name: &str) -> Option<&'a A> {
        let column = match self {
            Columns::Batch(batch) => batch.column_by_name(name),
            Columns::Struct(fields) => fields.column_by_name(name),
        };
        column?.as_any().downcast_ref::<A>()
    }

    pub(super) fn u64(self, name: &str) -> Numbers<'a, UInt64Type> {
        Numbers(self.typed(name))
    }

    pub(super) fn u32(self, name: &str) -> Numbers<'a, UInt32Type> {
        Numbers(self.typed(name))
    }

    pub(super) fn flag(self, name: &str) -> Flags<'a> {
        Flags(self.typed(name))
    }

    pub(super) fn text(self, name: &str) -> Texts<'a> {
        Texts(self.typed(name))
    }

    pub(super) fn bytes(self, name: &str) -> Bytes<'a> {
        Bytes(self.typed(name))
    }

    pub(super) fn list(self, name: &str) -> Option<&'a ListArray> {
        self.typed(name)
    }
}

fn present<A: Array>(array: Option<&A>, row: usize) -> Option<&A> {
    array.filter(|array| row < array.len() && array.is_valid(row))
}

pub(super) struct Numbers<'a, T: ArrowPrimitiveType>(Option<&'a PrimitiveArray<T>>);
pub(super) type Int64s<'a> = Numbers<'a, Int64Type>;

impl<'a, T: ArrowPrimitiveType> Numbers<'a, T> {
    pub(super) fn of(array: &'a dyn Array) -> Numbers<'a, T> {
        Numbers(array.as_any().downcast_ref())
    }

    pub(super) fn get(&self, row: usize) -> Option<T::Native> {
        present(self.0, row).map(|array| array.value(row))
    }

    pub(super) fn or_default(&self, row: usize) -> T::Native {
        self.get(row).unwrap_or_default()
    }

    /// Adds this many rows to `into`.
    pub(super) fn extend_into(&self, rows: usize, into: &mut Vec<Option<T::Native>>) {
        match self.0.filter(|array| array.null_count() == 0 && array.len() == rows) {
            Some(whole) => into.extend(whole.values().iter().copied().map(Some)),
            None => into.extend((0..rows).map(|row| self.get(row))),
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Flags<'a>(Option<&'a BooleanArray>);

impl Flags<'_> {
    pub(super) fn get(self, row: usize) -> Option<bool> {
        present(self.0, row).map(|array| array.value(row))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Texts<'a>(Option<&'a StringArray>);

impl<'a> Texts<'a> {
    pub(super) fn of(array: &'a dyn Array) -> Texts<'a> {
        Texts(array.as_any().downcast_ref())
    }

    pub(super) fn get(self, row: usize) -> Option<&'a str> {
        self.0.filter(|array| row < array.len() && array.is_valid(row)).map(|array| array.value(row))
    }

    /// `""` where there is none.
    pub(super) fn or_empty(self, row: usize) -> &'a str {
        self.get(row).unwrap_or_default()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(Option<&'a BinaryArray>);

impl<'a> Bytes<'a> {
    pub(super) fn get(self, row: usize) -> Option<&'a [u8]> {
        self.0.filter(|array| row < array.len() && array.is_valid(row)).map(|array| array.value(row))
    }
}
