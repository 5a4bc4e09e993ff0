//! Reading columns that may be absent, null or of another type than ours.

use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, BinaryArray, BooleanArray, DictionaryArray, ListArray, PrimitiveArray, RecordBatch, StringArray, StructArray,
};

/// Columns by name: of a batch, or the fields of a struct.
#[derive(Clone, Copy)]
pub(super) enum Columns<'a> {
    Batch(&'a RecordBatch),
    Struct(&'a StructArray),
}

impl<'a> Columns<'a> {
    fn any(self, name: &str) -> Option<&'a dyn Array> {
        let column = match self {
            Columns::Batch(batch) => batch.column_by_name(name),
            Columns::Struct(fields) => fields.column_by_name(name),
        };
        Some(column?.as_ref())
    }

    fn typed<A: Array + 'static>(self, name: &str) -> Option<&'a A> {
        self.any(name)?.as_any().downcast_ref::<A>()
    }

    pub(super) fn u64(self, name: &str) -> Numbers<'a, UInt64Type> {
        Numbers::new(self.typed(name))
    }

    pub(super) fn u32(self, name: &str) -> Numbers<'a, UInt32Type> {
        Numbers::new(self.typed(name))
    }

    pub(super) fn flag(self, name: &str) -> Flags<'a> {
        Flags(self.typed(name))
    }

    pub(super) fn text(self, name: &str) -> Texts<'a> {
        self.any(name).map_or(Texts::None, Texts::of)
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

pub(super) struct Numbers<'a, T: ArrowPrimitiveType> {
    array: Option<&'a PrimitiveArray<T>>,
    /// All values, where none is null: most columns, and asked for millions of times.
    whole: &'a [T::Native],
}
pub(super) type Int64s<'a> = Numbers<'a, Int64Type>;

impl<'a, T: ArrowPrimitiveType> Numbers<'a, T> {
    fn new(array: Option<&'a PrimitiveArray<T>>) -> Numbers<'a, T> {
        let whole = array.filter(|array| array.null_count() == 0).map_or(&[][..], |array| array.values());
        Numbers { array, whole }
    }

    pub(super) fn of(array: &'a dyn Array) -> Numbers<'a, T> {
        Numbers::new(array.as_any().downcast_ref())
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<T::Native> {
        match self.whole.get(row) {
            Some(value) => Some(*value),
            None => present(self.array, row).map(|array| array.value(row)),
        }
    }

    pub(super) fn or_default(&self, row: usize) -> T::Native {
        self.get(row).unwrap_or_default()
    }

    /// Adds this many rows to `into`.
    pub(super) fn extend_into(&self, rows: usize, into: &mut Vec<Option<T::Native>>) {
        if self.whole.len() == rows {
            into.extend(self.whole.iter().copied().map(Some));
        } else {
            into.extend((0..rows).map(|row| self.get(row)));
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.array.is_some()
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
pub(super) enum Texts<'a> {
    None,
    Plain(&'a StringArray),
    /// Numbers of words, and the words.
    Coded(&'a PrimitiveArray<Int32Type>, &'a StringArray),
}

impl<'a> Texts<'a> {
    pub(super) fn of(array: &'a dyn Array) -> Texts<'a> {
        if let Some(plain) = array.as_any().downcast_ref() {
            return Texts::Plain(plain);
        }
        let coded = array.as_any().downcast_ref::<DictionaryArray<Int32Type>>();
        let words = coded.and_then(|coded| Some((coded.keys(), coded.values().as_any().downcast_ref()?)));
        words.map_or(Texts::None, |(keys, words)| Texts::Coded(keys, words))
    }

    pub(super) fn get(self, row: usize) -> Option<&'a str> {
        let (array, row) = match self {
            Texts::None => return None,
            Texts::Plain(array) => (array, row),
            Texts::Coded(keys, words) => (words, word_of(keys, row)?),
        };
        present(Some(array), row).map(|array| array.value(row))
    }

    /// `""` where there is none.
    pub(super) fn or_empty(self, row: usize) -> &'a str {
        self.get(row).unwrap_or_default()
    }
}

fn word_of(keys: &PrimitiveArray<Int32Type>, row: usize) -> Option<usize> {
    usize::try_from(present(Some(keys), row)?.value(row)).ok()
}

/// What the words of a column stand for; each word is looked up once where they are numbered.
pub(super) struct Meanings<'a, T> {
    texts: Texts<'a>,
    of: fn(&str) -> T,
    known: Vec<T>,
}

impl<'a, T: Copy> Meanings<'a, T> {
    pub(super) fn new(texts: Texts<'a>, of: fn(&str) -> T) -> Meanings<'a, T> {
        let known = match texts {
            Texts::Coded(_, words) => words.iter().map(|word| of(word.unwrap_or_default())).collect(),
            Texts::None | Texts::Plain(_) => Vec::new(),
        };
        Meanings { texts, of, known }
    }

    /// What stands there, or what an absent word stands for.
    #[inline]
    pub(super) fn get(&self, row: usize) -> T {
        let known = match self.texts {
            Texts::Coded(keys, _) => word_of(keys, row).and_then(|word| self.known.get(word).copied()),
            Texts::None | Texts::Plain(_) => None,
        };
        known.unwrap_or_else(|| (self.of)(self.texts.or_empty(row)))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(Option<&'a BinaryArray>);

impl<'a> Bytes<'a> {
    pub(super) fn get(self, row: usize) -> Option<&'a [u8]> {
        self.0.filter(|array| row < array.len() && array.is_valid(row)).map(|array| array.value(row))
    }
}
