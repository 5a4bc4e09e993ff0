//! Reads the health of disks and arrays: smartctl's attributes and error log, `nvme smart-log`, and /proc/mdstat. Worn
//! out, failing or rebuilding devices become events; healthy values yield nothing.

use super::builder::Builder;
use super::error::ImportError;
use super::number::{count, leading};
use super::text::Cursor;
use super::{FormatKind, Importer, is_of_another};
use crate::anchors::Anchor;
use flatwater_recording::{DeviceTrouble, EventKind};

pub const SMART: Importer = Importer {
    name: "smart",
    sentence: "smartctl -A and -a, nvme smart-log: attributes and errors of failing disks.",
    kind: FormatKind::DeviceState,
    anchors: &[
        Anchor::Table(&[
            "ATTRIBUTE_NAME",
            "Smart Log for NVME",
            "smartctl ",
            "=== START OF",
            "SMART Error Log",
            "SMART Self-test",
        ]),
        Anchor::Line(&[
            "ATA Error Count:",
            "After command completion",
            "ER ST SC SN",
            "Commands leading to",
            "CR FR SC SN",
            "Test_Description",
            "-- -- -- --",
            "disk power-on lifetime",
            "the error occurred",
        ]),
        Anchor::Common(&["0x", " offline "]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if text.starts_with("ID#") && text.contains("ATTRIBUTE_NAME") => 95,
        text if text.starts_with("Smart Log for NVME device") || text.starts_with("smartctl ") => 95,
        text if text.starts_with("=== START OF") => 90,
        text if attribute(text).is_some() => 84,
        text if error_log(text.trim_start()).is_some() => 84,
        _ => 0,
    },
    read: read_smart,
};

pub const MDSTAT: Importer = Importer {
    name: "mdstat",
    sentence: "/proc/mdstat: arrays that resynchronise, rebuild or lack a disk.",
    kind: FormatKind::DeviceState,
    anchors: &[
        Anchor::Table(&["Personalities :", "resync =", "recovery =", "check =", "reshape ="]),
        Anchor::Common(&["active"]),
    ],
    detect: |cursor| match cursor.next_text().trim() {
        text if text.starts_with("Personalities :") => 95,
        text if is_array(text) => 88,
        text if progress(text).is_some() => 88,
        _ => 0,
    },
    read: read_mdstat,
};

/// Attributes whose raw value counts failed sectors or commands.
const FAILING: &[&str] = &[
    "Reallocated_Sector_Ct",
    "Reported_Uncorrect",
    "Command_Timeout",
    "Current_Pending_Sector",
    "Offline_Uncorrectable",
    "UDMA_CRC_Error_Count",
    "Media_Wearout_Indicator_Failed",
];

/// `197 Current_Pending_Sector 0x0012 100 100 000 Old_age Always - 16`: name, raw value, whether it ever failed.
fn attribute(text: &str) -> Option<(&str, u64, bool)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [id, name, flag, value, worst, threshold, _, _, failed, raw, ..] = words.as_slice() else { return None };
    let numeric = [id, value, worst, threshold].iter().all(|word| count(word).is_some());
    (numeric && flag.starts_with("0x")).then_some(())?;
    Some((*name, leading(raw)?.0, *failed != "-"))
}

/// `media_errors : 812`, `percentage_used : 121%`, `critical_warning : 0x4` of nvme-cli, or smartctl's spelling of
/// them.
fn nvme(text: &str) -> Option<(&'static str, u64)> {
    const KEYS: &[(&str, &str)] = &[
        ("critical_warning", "critical_warning"),
        ("critical warning", "critical_warning"),
        ("media_errors", "media_errors"),
        ("media and data integrity errors", "media_errors"),
        ("percentage_used", "percentage_used"),
        ("percentage used", "percentage_used"),
    ];
    let (key, value) = text.split_once(':')?;
    let key = key.trim().to_ascii_lowercase();
    let known = KEYS.iter().find(|(name, _)| *name == key)?;
    let value = value.trim();
    let value = match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => count(value.trim_end_matches('%'))?.unsigned_abs(),
    };
    Some((known.1, value))
}

/// Recognizes a line of smartctl's error log or self-test log, and returns whether it reports an error of the disk.
fn error_log(text: &str) -> Option<bool> {
    const HEADS: &[&str] = &[
        "SMART Error Log Version",
        "ATA Error Count:",
        "After command completion occurred",
        "ER ST SC SN CL CH DH",
        "Commands leading to the command that caused the error",
        "CR FR SC SN CL CH DH DC",
        "SMART Self-test log",
        "Num  Test_Description",
        "-- -- -- -- -- -- --",
    ];
    if text.starts_with("Error ") && text.contains(" occurred at disk power-on lifetime") {
        return Some(true);
    }
    if text.starts_with("When the command that caused the error occurred") {
        return Some(false);
    }
    if text.starts_with("# ") && text.contains(" offline ") && text.contains("Completed") {
        return Some(text.contains("read failure") || text.contains("servo/seek failure"));
    }
    HEADS.iter().any(|head| text.starts_with(head)).then_some(false)
}

/// Whether the line is `Device Model:     ST3000DM001`, `temperature   : 71 C` or `SMART support is: Enabled`.
fn is_key_value(text: &str) -> bool {
    let Some((key, value)) = text.split_once(':') else { return false };
    let words = key.split_whitespace().count();
    let named = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.bytes().all(|c| c.is_ascii_alphanumeric() || b" \t_-/().,&".contains(&c));
    // Both tools align the values with blanks.
    let aligned = key.ends_with([' ', '\t']) || value.starts_with("  ") || value.starts_with('\t');
    let known = ["SMART ", "Local Time is", "Warning:", "Device Model", "Serial Number", "Model ", "User Capacity"];
    named && words <= 8 && (aligned || known.iter().any(|start| text.starts_with(start)))
}

/// Whether the line shows registers: `40 51 08 39 e0 24 e0`, or a preceding command,
/// `c8 00 08 39 e0 24 e0 00  08:20:28.000  READ DMA`.
fn is_registers(text: &str) -> bool {
    let words = text.split_whitespace().take_while(|word| word.len() == 2 && u8::from_str_radix(word, 16).is_ok());
    words.count() >= 7
}

fn read_smart(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("smart");
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        let trouble = match (attribute(text), nvme(text)) {
            (Some((name, raw, failed)), _) => failed || raw > 0 && FAILING.contains(&name),
            (_, Some(("percentage_used", value))) => value >= 100,
            (_, Some((_, value))) => value > 0,
            (None, None) if error_log(text) == Some(true) => true,
            (None, None) => text.contains("FAILED!") || text.contains("FAILING_NOW"),
        };
        // smartctl and nvme print `key: value` and section titles; any other line ends the listing.
        let own = attribute(text).is_some()
            || nvme(text).is_some()
            || error_log(text).is_some()
            || is_registers(text)
            || text.starts_with("ID#")
            || text.starts_with("===")
            || text.starts_with("smartctl ")
            || text.starts_with("Smart Log for NVME device")
            || text.starts_with("Copyright (C)")
            || is_key_value(text);
        if !(own || trouble || line.is_blank()) || is_of_another(cursor, &SMART) {
            break;
        }
        cursor.take();
        if trouble {
            let line = format!("SMART: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
            b.event(place, EventKind::Device { trouble: DeviceTrouble::Error, line });
        } else if !line.is_blank() {
            b.pass_over();
        }
    }
    Ok(())
}

/// `md0 : active raid5 sdd1[3] sdc1[2]`.
fn is_array(text: &str) -> bool {
    text.starts_with("md") && text.split_whitespace().nth(1) == Some(":") && text.contains("active")
}

/// `[=>....]  resync =  8.1% (79292800/976759936) finish=412.1min speed=36290K/sec`: the kind of rebuild.
fn progress(text: &str) -> Option<&'static str> {
    let kinds = ["resync", "recovery", "check", "reshape"];
    let kind = kinds.iter().find(|kind| text.contains(&format!("{kind} =")))?;
    (text.contains("finish=") || text.contains("speed=")).then_some(kind)
}

/// Whether a disk is missing: `[4/3] [UUU_]`.
fn is_degraded(text: &str) -> bool {
    let members = text.rsplit('[').next().and_then(|rest| rest.strip_suffix(']'));
    members.is_some_and(|members| members.contains('_') && members.bytes().all(|c| c == b'U' || c == b'_'))
}

fn read_mdstat(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("mdstat");
    let mut array = String::new();
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        let known = text.starts_with("Personalities :")
            || text.starts_with("unused devices:")
            || leading(text).is_some_and(|(_, rest)| rest.starts_with(" blocks"))
            || text.starts_with("bitmap:")
            || is_array(text)
            || progress(text).is_some();
        if !(known || line.is_blank()) {
            break;
        }
        cursor.take();
        if is_array(text) {
            text.split_whitespace().next().unwrap_or_default().clone_into(&mut array);
        }
        if let Some(kind) = progress(text) {
            let line = format!("md: {kind} of RAID array {array}: {text}");
            b.event(place, EventKind::Device { trouble: DeviceTrouble::Array, line });
        } else if is_degraded(text) {
            let line = format!("md: {array} lacks a disk: {text}");
            b.event(place, EventKind::Device { trouble: DeviceTrouble::Array, line });
        } else if !line.is_blank() {
            b.pass_over();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{is_degraded, nvme};
    use crate::import_texts;
    use flatwater_recording::{DeviceTrouble, EventKind};

    fn troubles(text: &str) -> Vec<DeviceTrouble> {
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let of = |kind: &EventKind| match kind {
            EventKind::Device { trouble, .. } => Some(*trouble),
            _ => None,
        };
        recording.events.iter().filter_map(|event| of(&event.kind)).collect()
    }

    #[test]
    fn failing_attributes_are_trouble_and_healthy_ones_are_not() {
        let text = "ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE\n\
            \x20 5 Reallocated_Sector_Ct   0x0033   098   098   036    Pre-fail  Always       -       88\n\
            \x20 9 Power_On_Hours          0x0032   098   098   000    Old_age   Always       -       9123\n\
            197 Current_Pending_Sector  0x0012   100   100   000    Old_age   Always       -       16\n\
            199 UDMA_CRC_Error_Count    0x003e   200   200   000    Old_age   Always       -       0\n";
        assert_eq!(troubles(text), [DeviceTrouble::Error, DeviceTrouble::Error]);
        assert_eq!(nvme("media_errors\t\t: 812"), Some(("media_errors", 812)));
        assert_eq!(nvme("Critical Warning:                   0x04"), Some(("critical_warning", 4)));
        assert_eq!(nvme("temperature : 71 C"), None);
    }

    #[test]
    fn errors_in_the_logs_of_the_disk_are_trouble() {
        let text = "Error 12 occurred at disk power-on lifetime: 1711 hours (71 days + 7 hours)\n\
            \n  After command completion occurred, registers were:\n  ER ST SC SN CL CH DH\n  -- -- -- -- -- -- --\n\
            \x20 40 51 00 18 2a 0b 01  Error: UNC at LBA = 0x010b2a18 = 17508888\n\n\
            SMART Self-test log structure revision number 1\n\
            Num  Test_Description    Status                  Remaining  LifeTime(hours)  LBA_of_first_error\n\
            # 1  Extended offline    Completed: read failure       90%      1712         17508888\n\
            # 2  Short offline       Completed without error       00%      1600         -\n";
        assert_eq!(troubles(text), [DeviceTrouble::Error, DeviceTrouble::Error]);
    }

    #[test]
    fn a_resync_and_a_missing_disk_are_events() {
        let text = "Personalities : [raid1] [raid6] [raid5] [raid4]\nmd0 : active raid5 sdd1[3] sdc1[2] sdb1[1]\n      2930279808 blocks level 5, 64k chunk, algorithm 2 [4/3] [UUU_]\n      [=>...................]  resync =  8.1% (79292800/976759936) finish=412.1min speed=36290K/sec\n\nunused devices: <none>\n";
        assert_eq!(troubles(text), [DeviceTrouble::Array, DeviceTrouble::Array]);
        assert!(is_degraded("[4/3] [UUU_]") && !is_degraded("[4/4] [UUUU]"));
    }
}
