//! Reads HdrHistogram interval logs: lines of start, length, largest value and a compressed histogram, with tags.

use std::io::Read as _;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::read::ZlibDecoder;

use crate::anchors::Anchor;
use crate::builder::{Builder, Track};
use crate::error::ImportError;
use crate::number::{nanos, number};
use crate::text::{Cursor, Line, Token};
use crate::when::{When, Zero};
use crate::{FormatKind, Importer};
use flatwater_recording::{HIGHEST_NS, LatencyBucket, OpKind, PackedHistogram, histogram};

/// Accepts payloads with and without padding: people cut off the ends of lines.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub const IMPORTER: Importer = Importer {
    name: "hdr-interval-log",
    sentence: "HdrHistogram interval logs (jHiccup's .hlog), version 1.2 and later.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Table(&["#[Histogram log format", "#[Logged with jHiccup", "StartTimestamp", ",HISTF"])],
    detect: |cursor| match cursor.next_text() {
        text if text.starts_with("#[Histogram log format") || text.starts_with("#[Logged with jHiccup") => 98,
        text if text.starts_with("\"StartTimestamp\"") => 98,
        text if text.contains(",HISTF") => 90,
        _ => 0,
    },
    read,
};

/// Maximum size of a decompressed payload; no valid log has larger ones.
const PAYLOAD_BYTES_MAX: u64 = 4 << 20;
const COMPRESSED_COOKIE: u32 = 0x1c84_9304;
const V2_COOKIE: u32 = 0x1c84_9303;

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (mut start_s, mut base_s) = (None, None);
    let mut track: Option<(Track, i64)> = None;
    while let Some(line) = cursor.peek() {
        let text = line.text;
        if text.starts_with('#') {
            let seconds = |rest: &str| number(rest.split_whitespace().next().unwrap_or_default());
            start_s = text.strip_prefix("#[StartTime:").and_then(seconds).or(start_s);
            base_s = text.strip_prefix("#[BaseTime:").and_then(seconds).or(base_s);
        } else if !text.starts_with("\"StartTimestamp") && !line.is_blank() {
            if !text.contains(',') {
                break;
            }
            let place = *track.get_or_insert_with(|| {
                let seconds = base_s.or(start_s).filter(|seconds: &f64| (7.8e8..4.1e9).contains(seconds));
                let zero = seconds.map_or(When::new(Zero::Start, 0), |s| When::new(Zero::Epoch, (s * 1e9) as i64));
                (b.track("hdr-interval-log", zero.zero), zero.ns)
            });
            if let Err(error) = interval(&line, place, b) {
                b.problem(error);
            }
        }
        cursor.take();
    }
    Ok(())
}

/// Reads `Tag=A,0.127,1.007,2.769,HISTFAAA...`.
fn interval(line: &Line<'_>, (track, base): (Track, i64), b: &mut Builder) -> Result<(), ImportError> {
    let tokens: Vec<Token<'_>> =
        line.text.split(',').take(6).map(|text| Token { text: text.trim(), column: line.column_of(text) }).collect();
    let tag = tokens.first().and_then(|token| token.text.strip_prefix("Tag="));
    let fields = tokens.get(usize::from(tag.is_some())..).unwrap_or_default();
    let [start, length, max, payload, ..] = fields else {
        return Err(ImportError::short(line, "start, length, largest value and a histogram"));
    };
    let value = |token: &Token<'_>, what: &str| {
        let value = number(token.text).filter(|value| *value >= 0.0);
        value.ok_or_else(|| ImportError::at(line, *token, format!("{what}, a number")))
    };
    let (start, length, max) =
        (value(start, "the start")?, value(length, "the length")?, value(max, "the largest value")?);
    let counts = BASE64
        .decode(payload.text)
        .ok()
        .and_then(|bytes| decode(&bytes))
        .ok_or_else(|| ImportError::at(line, *payload, "a complete compressed HdrHistogram (V2) in base64"))?;
    // Values have no unit. The printed maximum is in ms by convention, which gives their unit.
    let highest = counts.iter().map(|(value, _)| *value).max().unwrap_or(0) as f64;
    let unit_ns = match highest / max.max(1e-9) {
        ratio if ratio > 3e4 => 1.0,
        ratio if ratio > 30.0 => 1e3,
        _ => 1e6,
    };
    let mut counting = histogram();
    for (value, count) in counts {
        counting.saturating_record_n(nanos(value as f64, unit_ns).clamp(1, HIGHEST_NS), count);
    }
    if counting.is_empty() {
        return Ok(());
    }
    // The start is absolute, or relative to the base time.
    let absolute = start > 7.8e8;
    let at = if absolute { (start * 1e9) as i64 } else { base.saturating_add(nanos(start, 1e9) as i64) };
    let track = if absolute && base == 0 { b.shared_track("hdr-interval-log", Zero::Epoch) } else { track };
    let bucket = LatencyBucket {
        start_ns: 0,
        width_ns: nanos(length, 1e9),
        op: OpKind::Other,
        thread: tag.unwrap_or_default().to_owned(),
        bytes: 0,
        from_start: PackedHistogram::pack(&counting),
        from_due: None,
        worst_from_start_ns: nanos(highest, unit_ns),
        worst_from_due_ns: None,
    };
    b.latency((track, at), bucket);
    Ok(())
}

fn be_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The highest value and the count of each class that is not empty.
fn decode(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    // The second nibble of a cookie is the word size, which V2 does not use.
    let cookie = |bytes: &[u8]| be_u32(bytes, 0).map(|cookie| cookie & !0xf0);
    let plain = match cookie(bytes)? {
        COMPRESSED_COOKIE => {
            let mut plain = Vec::new();
            ZlibDecoder::new(bytes.get(8..)?).take(PAYLOAD_BYTES_MAX).read_to_end(&mut plain).ok()?;
            plain
        }
        _ => bytes.to_vec(),
    };
    if cookie(&plain)? != V2_COOKIE {
        return None;
    }
    let length = be_u32(&plain, 4)? as usize;
    let digits = be_u32(&plain, 12).filter(|digits| *digits <= 5)?;
    let lowest = u64::from_be_bytes(plain.get(16..24)?.try_into().ok()?).max(1);
    // HdrHistogram: the smallest power of two with this precision.
    let largest_single = 2 * 10_u64.pow(digits);
    let magnitude = 64 - (largest_single - 1).leading_zeros();
    let unit = 63 - lowest.leading_zeros();
    let half = 1_u64 << (magnitude - 1);
    let mut counts = Vec::new();
    let mut payload = plain.get(40..40_usize.checked_add(length)?)?;
    let mut index = 0_u64;
    while !payload.is_empty() {
        let (value, rest) = zigzag(payload)?;
        payload = rest;
        if value < 0 {
            index = index.checked_add(value.unsigned_abs())?;
            continue;
        }
        if value > 0 {
            let bucket = (index / half).saturating_sub(1);
            let sub = if index < 2 * half { index } else { index % half + half };
            let shift = bucket.checked_add(u64::from(unit)).filter(|shift| *shift < 52)?;
            let low = sub.checked_shl(u32::try_from(shift).ok()?)?;
            counts.push((low.saturating_add((1 << shift) - 1), u64::try_from(value).ok()?));
        }
        index = index.checked_add(1)?;
    }
    Some(counts)
}

/// Decodes HDR's LEB128: seven bits per byte, the ninth byte has eight; then zig-zag.
fn zigzag(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().enumerate().take(9) {
        let shift = 7 * place as u32;
        if place == 8 {
            value |= u64::from(*byte) << shift;
        } else {
            value |= u64::from(byte & 0x7f) << shift;
        }
        if place == 8 || byte & 0x80 == 0 {
            let signed = (value >> 1) as i64 ^ -((value & 1) as i64);
            return Some((signed, bytes.get(place + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer, V2Serializer};

    use super::decode;

    /// Compares with HdrHistogram's own writer, for several ranges and precisions.
    #[test]
    fn payloads_of_hdrhistograms_own_writer_are_decoded() {
        for (lowest, highest, digits) in [(1, 3_600_000_000_000, 3), (1, 1000, 2), (1000, 60_000_000_000, 2)] {
            let mut written = Histogram::<u64>::new_with_bounds(lowest, highest, digits).expect("bounds");
            for value in [1, 2, 900, 901, 70_000, 5_000_000, 41_200_000] {
                written.saturating_record_n(value, value % 7 + 1);
            }
            for compressed in [true, false] {
                let mut bytes = Vec::new();
                let done = match compressed {
                    true => V2DeflateSerializer::new().serialize(&written, &mut bytes).is_ok(),
                    false => V2Serializer::new().serialize(&written, &mut bytes).is_ok(),
                };
                assert!(done);
                let read = decode(&bytes).expect("a histogram");
                let expected: Vec<(u64, u64)> =
                    written.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
                assert_eq!(read, expected, "{lowest} {highest} {digits} {compressed}");
            }
        }
        assert!(decode(&[]).is_none() && decode(&[0xff; 64]).is_none());
    }
}
