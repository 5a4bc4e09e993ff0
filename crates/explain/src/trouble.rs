//! Device trouble in the kernel's log: timeouts, resets, errors, lost paths. A line that names another disk than the
//! one that the calls waited for does not count.

use std::collections::BTreeSet;

use flatwater_recording::{DeviceTrouble, Event, EventKind, Recording};

use super::Evidence;
use super::facts::Facts;

/// At most this many lines are quoted.
const SHOWN: usize = 2;

/// The number of such lines, with the first two quoted; `None` if the log has none.
#[must_use]
pub fn of_devices(facts: &Facts<'_>) -> Option<Evidence> {
    let awaited = awaited(facts.recording);
    let lines = facts.recording.events.iter().filter_map(of_event);
    let lines: Vec<(u64, &str)> = lines.filter(|(_, line)| concerns(line, &awaited)).collect();
    let (at_ns, _) = *lines.first()?;
    let shown: Vec<String> =
        lines.iter().take(SHOWN).map(|(_, line)| line.chars().take(120).collect::<String>()).collect();
    let text = format!("the kernel reports trouble with a device in {} lines: {}", lines.len(), shown.join(" | "));
    Some(Evidence::new(text, lines.len() as f64, "lines").at(at_ns))
}

/// The devices that calls waited for, and the disks below them; empty if they are unknown.
fn awaited(recording: &Recording) -> BTreeSet<&str> {
    let requests = recording.requests.iter();
    let known: BTreeSet<&str> =
        requests.flat_map(|one| [Some(one.device.as_str()), one.below_device.as_deref()]).flatten().collect();
    if known.is_empty() { recording.header.target.device.as_deref().into_iter().collect() } else { known }
}

/// Whether the line may be about one of these devices: it names one, it names no disk (`ata1.00`), or the devices are
/// unknown or made of disks that are not recorded (dm, md).
fn concerns(line: &str, awaited: &BTreeSet<&str>) -> bool {
    let plain = awaited.iter().all(|device| disk(device).is_some());
    let mut named = line.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(disk).peekable();
    let same = |name: &str| {
        awaited.iter().filter_map(|device| disk(device)).any(|device| device == name || controller(device) == name)
    };
    awaited.is_empty() || !plain || named.peek().is_none() || named.any(same)
}

/// The whole disk of a name such as `sda`, `vdb1`, `nvme0n1p2`, or an NVMe controller (`nvme0`); `None` for other
/// words.
fn disk(word: &str) -> Option<&str> {
    let of_kind = |kind: &str| word.strip_prefix(kind).filter(|rest| !rest.is_empty());
    if let Some(rest) = of_kind("nvme") {
        let digits = rest.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'n' | b'p'));
        let whole = word.split_once('p').map_or(word, |(whole, _)| whole);
        return (digits && rest.starts_with(|c: char| c.is_ascii_digit())).then_some(whole);
    }
    // At most this many letters: `sdaa`, but not `hdmi`.
    let kinds = [("sd", 2), ("vd", 2), ("xvd", 2), ("hd", 1)];
    let (letters, letters_max) = kinds.into_iter().find_map(|(kind, max)| Some((of_kind(kind)?, max)))?;
    let letters = letters.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_disk = (1..=letters_max).contains(&letters.len()) && letters.bytes().all(|c| c.is_ascii_lowercase());
    is_disk.then(|| word.trim_end_matches(|c: char| c.is_ascii_digit()))
}

/// The NVMe controller of a disk: `nvme0` of `nvme0n1`.
fn controller(disk: &str) -> &str {
    let end = disk.strip_prefix("nvme").and_then(|rest| rest.find('n')).map(|at| at.saturating_add("nvme".len()));
    end.and_then(|end| disk.get(..end)).unwrap_or(disk)
}

/// Words of lines that do not accuse the device: a file system error may have other reasons, and a full pool needs
/// space.
const NOT_ITS_OWN: &[&str] = &["-fs error", "out-of-data-space"];

/// The line, if it reports trouble of the device itself. An array that resyncs is busy, not broken.
fn of_event(event: &Event) -> Option<(u64, &str)> {
    use DeviceTrouble::{Error, NotResponding, Reset, Timeout};
    match &event.kind {
        EventKind::Device { trouble: Timeout | Reset | Error | NotResponding, line } => {
            (!NOT_ITS_OWN.iter().any(|words| line.contains(words))).then_some((event.at_ns, line.as_str()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::of_devices;
    use crate::facts::Facts;
    use crate::testing::RecordingBuilder;

    #[test]
    fn trouble_of_another_disk_does_not_count() {
        let awaited = |device: &str, line: &str| {
            let builder = RecordingBuilder::new()
                .report(line)
                .edit(|recording| recording.header.target.device = Some(device.into()));
            of_devices(&Facts::of(&builder.done())).is_some()
        };
        let failed = "blk_update_request: I/O error, dev sdb, sector 4711";
        assert!(awaited("sdb", failed) && awaited("sdb1", failed));
        assert!(!awaited("sda", failed) && !awaited("nvme0n1", failed));
        assert!(awaited("dm-0", failed), "its disks are unknown");
        let timeout = "nvme nvme1: I/O 12 QID 3 timeout, aborting";
        assert!(awaited("nvme1n1", timeout) && !awaited("nvme0n1", timeout) && !awaited("sda", timeout));
        assert!(awaited("sda", "ata1.00: hard resetting link"), "no disk is named");
    }

    #[test]
    fn timeouts_are_trouble_and_other_lines_are_not() {
        let builder = RecordingBuilder::new()
            .report("nvme nvme0: I/O 12 QID 3 timeout, aborting")
            .report("ata1.00: hard resetting link");
        let recording = builder.done();
        let evidence = of_devices(&Facts::of(&recording)).expect("two lines");
        assert_eq!(evidence.value, Some(2.0));
        assert!(evidence.text.contains("QID 3 timeout"), "{}", evidence.text);
        let calm = RecordingBuilder::new().report("EXT4-fs (sda1): mounted filesystem with ordered data mode").done();
        assert_eq!(of_devices(&Facts::of(&calm)), None);
        let full = RecordingBuilder::new()
            .report("device-mapper: thin: 253:4: switching pool to out-of-data-space (queue IO) mode");
        assert_eq!(of_devices(&Facts::of(&full.done())), None, "a full pool does not accuse the device");
    }
}
