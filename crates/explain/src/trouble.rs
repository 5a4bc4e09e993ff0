//! Device trouble in the kernel's log: timeouts, resets, errors, lost paths.

use flatwater_recording::{DeviceTrouble, Event, EventKind};

use super::Evidence;
use super::facts::Facts;

/// At most this many lines are quoted.
const SHOWN: usize = 2;

/// The number of such lines, with the first two quoted; `None` if the log has none.
#[must_use]
pub fn of_devices(facts: &Facts<'_>) -> Option<Evidence> {
    let lines: Vec<(u64, &str)> = facts.recording.events.iter().filter_map(of_event).collect();
    let (at_ns, _) = *lines.first()?;
    let shown: Vec<String> =
        lines.iter().take(SHOWN).map(|(_, line)| line.chars().take(120).collect::<String>()).collect();
    let text = format!("the kernel reports trouble with a device in {} lines: {}", lines.len(), shown.join(" | "));
    Some(Evidence::new(text, lines.len() as f64, "lines").at(at_ns))
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
    use crate::testing::Made;

    #[test]
    fn timeouts_are_trouble_and_other_lines_are_not() {
        let made =
            Made::new().report("nvme nvme0: I/O 12 QID 3 timeout, aborting").report("ata1.00: hard resetting link");
        let recording = made.done();
        let evidence = of_devices(&Facts::of(&recording)).expect("two lines");
        assert_eq!(evidence.value, Some(2.0));
        assert!(evidence.text.contains("QID 3 timeout"), "{}", evidence.text);
        let calm = Made::new().report("EXT4-fs (sda1): mounted filesystem with ordered data mode").done();
        assert_eq!(of_devices(&Facts::of(&calm)), None);
        let full =
            Made::new().report("device-mapper: thin: 253:4: switching pool to out-of-data-space (queue IO) mode");
        assert_eq!(of_devices(&Facts::of(&full.done())), None, "a full pool does not accuse the device");
    }
}
