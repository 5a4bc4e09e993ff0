//! Reads ioping 0.5 to 1.3: the time of each request.

use super::builder::Builder;
use super::error::ImportError;
use super::latency_log::{Extremes, PerSecond};
use super::number::{nanos, number};
use super::text::Cursor;
use super::when::SECOND_NS;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::OpKind;

pub const IMPORTER: Importer = Importer {
    name: "ioping",
    sentence: "ioping: the time of each request.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Line(&[": request=", "ioping statistics"])],
    detect: |cursor| match cursor.next_text() {
        text if request(text).is_some() => 93,
        text if text.starts_with("---") && text.contains("ioping statistics") => 90,
        _ => 0,
    },
    read,
};

/// `4.0 KiB from /t (ext4 /dev/sda1): request=28 time=186.9 ms`, `4 KiB >>> /t (...): request=1 time=2.1 ms (slow)`:
/// operation and ns; no ns for the warm-up.
fn request(text: &str) -> Option<(OpKind, Option<u64>)> {
    let (before, rest) = text.split_once(": request=")?;
    let time = rest.split_once(" time=")?.1;
    let ns = duration(time)?;
    let op = match () {
        () if before.contains(" >>> ") => OpKind::Write,
        () if before.contains(" <<< ") => OpKind::Read,
        () => OpKind::Other,
    };
    Some((op, (!rest.contains("(warmup)")).then_some(ns)))
}

/// `143.8 ms`, and words behind it.
fn duration(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let value = number(words.next()?).filter(|value| *value >= 0.0)?;
    let unit = match words.next()? {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" | "sec" => 1e9,
        "min" => 60e9,
        _ => return None,
    };
    Some(nanos(value, unit))
}

/// The number of requests in `9 requests completed in 1.41 s, 36 KiB written, ...`, and whether they wrote.
fn completed(text: &str) -> Option<(u64, OpKind)> {
    let count = text.split_once(" requests completed in ")?.0.trim().parse().ok().filter(|count| *count > 0)?;
    let op = match () {
        () if text.contains(" written") => OpKind::Write,
        () if text.contains(" read") => OpKind::Read,
        () => OpKind::Other,
    };
    Some((count, op))
}

/// `min/avg/max/mdev = 81.2 ms / 156.6 ms / 310.4 ms / 66.1 ms`; before 0.8 with one unit at the end.
fn extremes(text: &str, count: u64) -> Option<Extremes> {
    let values = text.strip_prefix("min/avg/max/mdev = ")?;
    let unit = values.split_whitespace().last()?;
    let each = |value: &str| duration(value).or_else(|| duration(&format!("{value} {unit}")));
    let all: Vec<u64> = values.split('/').map(|value| each(value.trim())).collect::<Option<_>>()?;
    let [min_ns, mean_ns, max_ns, _] = all[..] else { return None };
    Some(Extremes { count, mean_ns, max_ns, min_ns })
}

/// Whether this is a line of the summary below the requests.
fn is_summary(text: &str) -> bool {
    text.starts_with("min/avg/max/mdev")
        || text.starts_with("---") && text.contains("ioping statistics")
        || text.contains(" requests completed in ")
        || text.starts_with("generated ") && text.contains(" requests in ")
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (track, origin) = b.origin("ioping");
    let (mut latency, mut at, mut timed) = (PerSecond::new(track), origin, false);
    let mut requests = None;
    while let Some(line) = cursor.peek() {
        requests = completed(line.text).or(requests);
        let summed = requests.filter(|_| !timed).and_then(|(count, op)| Some((extremes(line.text, count)?, op)));
        if let Some((all, op)) = summed {
            all.counting().push(b, (track, origin), 0, op, "ioping", 0);
            cursor.take();
            continue;
        }
        match request(line.text) {
            Some((op, Some(ns))) => {
                timed = true;
                latency.add(b, at.div_euclid(SECOND_NS), "ioping", op, ns, 0);
                // ioping waits a second between two requests, or until the last one is done.
                at = at.saturating_add(SECOND_NS.max(i64::try_from(ns).unwrap_or(i64::MAX)));
            }
            Some((_, None)) => b.pass_over(),
            None if is_summary(line.text) => b.pass_over(),
            None if line.is_blank() => {}
            None => break,
        }
        cursor.take();
    }
    latency.flush(b);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::request;
    use crate::import_texts;
    use flatwater_recording::OpKind;

    #[test]
    fn requests_of_all_versions_parse() {
        let ns = |text: &str| request(text).expect(text);
        assert_eq!(ns("4.0 KiB from /t/1m (zfs t): request=31 time=1.5 min"), (OpKind::Other, Some(90_000_000_000)));
        assert_eq!(ns("4096 bytes from . (ext4 /dev/sda1): request=2 time=0.2 ms"), (OpKind::Other, Some(200_000)));
        assert_eq!(
            ns("4 KiB >>> . (xfs /dev/vda1 99.9 GiB): request=7 time=812.0 ms (slow)"),
            (OpKind::Write, Some(812_000_000))
        );
        assert_eq!(ns("4 KiB <<< . (xfs /dev/vda1): request=1 time=3.1 us (warmup)"), (OpKind::Read, None));
        assert_eq!(request("4 KiB from ."), None);
    }

    #[test]
    fn a_summary_without_its_requests_gives_number_mean_and_extremes() {
        let longest = |text: &str| {
            let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
            let each = recording.latency.iter();
            each.map(|bucket| (bucket.op, bucket.from_start.count(), bucket.worst_from_start_ns)).collect::<Vec<_>>()
        };
        let new = "--- /db (ext4 /dev/sda1) ioping statistics ---\n9 requests completed in 1.41 s, 36 KiB written, 6 iops, \
                   25.5 KiB/s\ngenerated 10 requests in 9.02 s, 40 KiB, 1 iops, 4.43 KiB/s\n\
                   min/avg/max/mdev = 81.2 ms / 156.6 ms / 310.4 ms / 66.1 ms\n";
        assert_eq!(longest(new), [(OpKind::Write, 9, 310_400_000)]);
        let old = "--- . (ext4 /dev/sda1) ioping statistics ---\n10 requests completed in 9012.1 ms, 1290 iops, \
                   5.0 mb/s\nmin/avg/max/mdev = 0.7/0.8/12.9/0.1 ms\n";
        assert_eq!(longest(old), [(OpKind::Other, 10, 12_900_000)]);
        let whole = format!("4 KiB <<< . (ext4 /dev/sda1): request=1 time=84.2 ms\n\n{new}");
        assert_eq!(longest(&whole), [(OpKind::Read, 1, 84_200_000)], "each request once");
    }
}
