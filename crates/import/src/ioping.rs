//! Reads ioping 0.5 to 1.3: the time of each request.

use super::builder::Builder;
use super::error::ImportError;
use super::latency_log::PerSecond;
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
    anchors: &[Anchor::Line(&[": request="])],
    detect: |cursor| if request(cursor.next_text()).is_some() { 93 } else { 0 },
    read,
};

/// `4.0 KiB from /t (ext4 /dev/sda1): request=28 time=186.9 ms`, `4 KiB >>> /t (...): request=1 time=2.1 ms (slow)`:
/// operation and ns; no ns for the warm-up.
fn request(text: &str) -> Option<(OpKind, Option<u64>)> {
    let (before, rest) = text.split_once(": request=")?;
    let time = rest.split_once(" time=")?.1;
    let mut words = time.split_whitespace();
    let value = number(words.next()?)?;
    let unit = match words.next()? {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" | "sec" => 1e9,
        "min" => 60e9,
        _ => return None,
    };
    let op = match () {
        () if before.contains(" >>> ") => OpKind::Write,
        () if before.contains(" <<< ") => OpKind::Read,
        () => OpKind::Other,
    };
    (value >= 0.0).then_some((op, (!rest.contains("(warmup)")).then(|| nanos(value, unit))))
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
    let (mut latency, mut at) = (PerSecond::new(track), origin);
    while let Some(line) = cursor.peek() {
        match request(line.text) {
            Some((op, Some(ns))) => {
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
}
