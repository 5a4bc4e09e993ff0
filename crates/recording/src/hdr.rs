//! Compact latency histograms.
//!
//! The counting form of an HDR histogram with this crate's range is an array of 270 KB; an hour of one-second buckets
//! in that form would fill a machine's memory. Recordings therefore use its HDR "V2" encoding (zigzag LEB128 counts,
//! runs of zeros as one negative number), usually a few hundred bytes, in memory and on disk. Other HDR libraries can
//! read these bytes.

use std::fmt;

use hdrhistogram::Histogram;

use super::latency::{HIGHEST_NS, histogram};

/// Start of the V2 encoding: HDR's cookie base with the word-size nibble, which every writer sets to 1.
const COOKIE: u32 = 0x1c84_9313;
const HEADER_BYTES: usize = 40;
const DIGITS: u32 = 3;
/// Three digits need 2048 sub-buckets; each further power of two adds the upper half of these.
const SUB_BITS: u32 = 11;
const HALF: u64 = 1 << (SUB_BITS - 1);

/// Latencies of one time bucket, in ns with three significant digits.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PackedHistogram {
    count: u64,
    /// The encoded counts only; `to_v2_bytes` prepends the header.
    counts: Vec<u8>,
}

/// Why bytes are not a histogram in this crate's format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an HDR V2 histogram from 1 ns to 1 hour with 3 digits: {0}")]
pub struct HistogramError(&'static str);

impl fmt::Debug for PackedHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedHistogram {{ count: {}, highest_ns: {} }}", self.count, self.highest_ns())
    }
}

impl PackedHistogram {
    /// Packs a histogram. A histogram with another range or precision is converted; values over an hour count as an
    /// hour.
    #[must_use]
    pub fn pack(counting: &Histogram<u64>) -> PackedHistogram {
        let mut packed = PackedHistogram::default();
        let mut next = 0;
        let mut last: Option<(u64, u64)> = None;
        for step in counting.iter_recorded() {
            let index = index_of(step.value_iterated_to().min(HIGHEST_NS));
            let count = step.count_at_value();
            match &mut last {
                Some((known, sum)) if *known == index => *sum = sum.saturating_add(count),
                _ => {
                    packed.put(&mut next, last.replace((index, count)));
                }
            }
        }
        packed.put(&mut next, last);
        packed
    }

    fn put(&mut self, next: &mut u64, entry: Option<(u64, u64)>) {
        let Some((index, count)) = entry else { return };
        if index > *next {
            put_varint(&mut self.counts, zigzag(-((index - *next) as i64)));
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        put_varint(&mut self.counts, zigzag(count));
        self.count = self.count.saturating_add(count as u64);
        *next = index + 1;
    }

    /// Number of recorded values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether it has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Highest recorded latency, rounded up within three digits; 0 if the histogram is empty.
    #[must_use]
    pub fn highest_ns(&self) -> u64 {
        self.steps().last().map_or(0, |(_, highest_ns, _)| highest_ns)
    }

    /// (lowest ns, highest ns, count) of each latency class with a count, in ascending order.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        Counts { bytes: &self.counts, index: 0 }.map_while(Result::ok).map(|(index, count)| {
            let (lowest_ns, width_ns) = class_of(index);
            (lowest_ns, lowest_ns + width_ns - 1, count)
        })
    }

    /// The counting form, which can compute percentiles.
    #[must_use]
    pub fn unpack(&self) -> Histogram<u64> {
        let mut counting = histogram();
        self.add_to(&mut counting);
        counting
    }

    /// Adds the counts to the histogram `sum`, up to a total of `u64::MAX`, beyond which its percentiles would overflow.
    pub fn add_to(&self, sum: &mut Histogram<u64>) {
        for (lowest_ns, _, count) in self.steps() {
            let room = u64::MAX.saturating_sub(sum.len());
            sum.saturating_record_n(lowest_ns, count.min(room));
        }
    }

    /// The sum of both, in packed form.
    #[must_use]
    pub fn plus(&self, other: &PackedHistogram) -> PackedHistogram {
        let classes = |one: &PackedHistogram| -> Vec<(u64, u64)> {
            one.steps().map(|(lowest_ns, _, count)| (index_of(lowest_ns), count)).collect()
        };
        let mut all = [classes(self), classes(other)].concat();
        // Both runs are ascending already: the stable sort detects and merges them.
        all.sort();
        let (mut sum, mut next) = (PackedHistogram::default(), 0);
        for same in all.chunk_by(|one, other| one.0 == other.0) {
            let count = same.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
            sum.put(&mut next, same.first().map(|(index, _)| (*index, count)));
        }
        sum
    }

    /// The sum of all these histograms, in counting form.
    #[must_use]
    pub fn merged<'a>(all: impl IntoIterator<Item = &'a PackedHistogram>) -> Histogram<u64> {
        let mut sum = histogram();
        for one in all {
            one.add_to(&mut sum);
        }
        sum
    }

    /// The histogram in HdrHistogram's format V2.
    #[must_use]
    pub fn to_v2_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.counts.len());
        bytes.extend(COOKIE.to_be_bytes());
        bytes.extend((self.counts.len() as u32).to_be_bytes());
        bytes.extend(0_u32.to_be_bytes()); // normalising offset: unused by all writers
        bytes.extend(DIGITS.to_be_bytes());
        bytes.extend(1_u64.to_be_bytes());
        bytes.extend(HIGHEST_NS.to_be_bytes());
        bytes.extend(1.0_f64.to_be_bytes()); // integer to double ratio
        bytes.extend(&self.counts);
        bytes
    }

    /// Decodes untrusted bytes: checks everything, and allocates nothing large.
    pub fn from_v2_bytes(bytes: &[u8]) -> Result<PackedHistogram, HistogramError> {
        let (header, counts) = bytes.split_at_checked(HEADER_BYTES).ok_or(HistogramError("too short"))?;
        let expected = PackedHistogram { count: 0, counts: counts.to_vec() }.to_v2_bytes();
        if header.get(4..8) != expected.get(4..8) {
            return Err(HistogramError("the length differs from the header"));
        }
        if Some(header) != expected.get(..HEADER_BYTES) {
            return Err(HistogramError("another range or precision"));
        }
        let mut total = 0_u64;
        for step in (Counts { bytes: counts, index: 0 }) {
            let (_, count) = step?;
            total = total.checked_add(count).ok_or(HistogramError("more counts than 64 bits hold"))?;
        }
        Ok(PackedHistogram { count: total, counts: counts.to_vec() })
    }
}

impl From<&Histogram<u64>> for PackedHistogram {
    fn from(counting: &Histogram<u64>) -> PackedHistogram {
        PackedHistogram::pack(counting)
    }
}

/// Sums many histograms class by class.
#[derive(Clone, Debug)]
pub struct ClassSums {
    counts: Vec<u64>,
    /// Indexes of the counts that are not 0.
    seen: Vec<usize>,
}

impl Default for ClassSums {
    fn default() -> ClassSums {
        ClassSums { counts: vec![0; index_of(HIGHEST_NS) as usize + 1], seen: Vec::new() }
    }
}

impl ClassSums {
    /// Adds `count` latencies of `ns`; latencies over an hour count as an hour.
    #[inline]
    pub fn count(&mut self, ns: u64, count: u64) {
        let index = index_of(ns.min(HIGHEST_NS)) as usize;
        let Some(sum) = self.counts.get_mut(index).filter(|_| count > 0) else { return };
        if *sum == 0 {
            self.seen.push(index);
        }
        *sum = sum.saturating_add(count);
    }

    /// Returns (highest ns, count) of each class with a count, in ascending order, and resets the sums to 0.
    pub fn take(&mut self) -> Vec<(u64, u64)> {
        self.seen.sort_unstable();
        let seen = self.seen.drain(..).map(|index| {
            let (lowest_ns, width_ns) = class_of(index as u64);
            (lowest_ns + width_ns - 1, std::mem::take(&mut self.counts[index]))
        });
        seen.collect()
    }
}

/// Iterates over encoded counts: (index of the class, count), without zeros.
struct Counts<'a> {
    bytes: &'a [u8],
    index: u64,
}

impl Iterator for Counts<'_> {
    type Item = Result<(u64, u64), HistogramError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while !self.bytes.is_empty() {
            let Some(number) = take_varint(&mut self.bytes).map(unzigzag) else {
                self.bytes = &[];
                return Some(Err(HistogramError("a count is cut off")));
            };
            let index = self.index;
            self.index = index.saturating_add(if number < 0 { number.unsigned_abs() } else { 1 });
            if self.index > index_of(HIGHEST_NS) + 1 {
                self.bytes = &[];
                return Some(Err(HistogramError("more classes than the range has")));
            }
            if number > 0 {
                return Some(Ok((index, number as u64)));
            }
        }
        None
    }
}

/// Index of the class that contains `value`.
fn index_of(value: u64) -> u64 {
    let bucket = u64::from(64 - SUB_BITS - (value | (2 * HALF - 1)).leading_zeros());
    (bucket << (SUB_BITS - 1)) + (value >> bucket)
}

/// (lowest value, width) of the class with this index.
fn class_of(index: u64) -> (u64, u64) {
    let bucket = (index >> (SUB_BITS - 1)).saturating_sub(1);
    ((index - (bucket << (SUB_BITS - 1))) << bucket, 1 << bucket)
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// HDR's LEB128: seven bits per byte, but a ninth byte carries eight.
fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    for _ in 0..8 {
        if number < 0x80 {
            bytes.push(number as u8);
            return;
        }
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    // Fast path for nearly all numbers: small counts, and short runs of zeros.
    if let Some((&byte @ 0..0x80, rest)) = bytes.split_first() {
        *bytes = rest;
        return Some(u64::from(byte));
    }
    take_long_varint(bytes)
}

fn take_long_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..9 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = if place == 8 { byte } else { byte & 0x7f };
        number |= u64::from(bits) << (7 * place);
        if place == 8 || byte < 0x80 {
            return Some(number);
        }
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
    use proptest::prelude::{any, prop, proptest};

    use super::{ClassSums, HIGHEST_NS, PackedHistogram, histogram};

    proptest! {
        #[test]
        fn the_encoding_matches_the_hdr_library(values in prop::collection::vec((1..=HIGHEST_NS, 1_u64..1 << 40), 0..60)) {
            let mut counting = histogram();
            for (value, count) in values {
                counting.record_n(value >> (count % 40), count).expect("within bounds");
            }
            let packed = PackedHistogram::pack(&counting);
            let mut theirs = Vec::new();
            V2Serializer::new().serialize(&counting, &mut theirs).expect("into memory");
            let ours = packed.to_v2_bytes();
            assert_eq!(Deserializer::new().deserialize::<u64, _>(&mut ours.as_slice()).expect("they read ours"), counting);
            assert_eq!(PackedHistogram::from_v2_bytes(&theirs).map(|read| read.unpack()), Ok(packed.unpack()));
            assert_eq!(packed.unpack(), counting);
            assert_eq!(packed.count(), counting.len());
            assert_eq!(packed.highest_ns(), counting.max());
        }

        #[test]
        fn hostile_bytes_are_refused_or_harmless(tail in prop::collection::vec(any::<u8>(), 0..200), with_header: bool) {
            let mut bytes = PackedHistogram { count: 0, counts: tail }.to_v2_bytes();
            if !with_header {
                bytes.drain(..40);
            }
            if let Ok(read) = PackedHistogram::from_v2_bytes(&bytes) {
                assert!(read.unpack().max() <= HIGHEST_NS * 2);
            }
        }
    }

    proptest! {
        #[test]
        fn class_sums_match_the_hdr_library(values in prop::collection::vec((1..=HIGHEST_NS, 1_u64..1000), 0..60)) {
            let (mut theirs, mut ours) = (histogram(), ClassSums::default());
            for (value, count) in values {
                let value = (value >> (count % 40)).max(1);
                theirs.record_n(value, count).expect("within bounds");
                ours.count(value, count);
            }
            let steps: Vec<(u64, u64)> = PackedHistogram::pack(&theirs).steps().map(|(_, highest, n)| (highest, n)).collect();
            assert_eq!(ours.take(), steps);
            assert!(ours.take().is_empty());
        }
    }

    #[test]
    fn merging_counts_every_latency_once() {
        let mut one = histogram();
        one.record_n(1_000, 3).expect("in range");
        let mut other = histogram();
        other.record_n(41_200_000, 1).expect("in range");
        let both = PackedHistogram::merged([&PackedHistogram::pack(&one), &PackedHistogram::pack(&other)]);
        assert_eq!(both.len(), 4);
        assert_eq!(both.value_at_quantile(0.5), 1_000);
        assert!(both.equivalent(both.max(), 41_200_000));
    }
}
