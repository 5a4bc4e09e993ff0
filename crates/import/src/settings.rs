//! Reads kernel settings as people paste them (sysctl, files of /proc/sys and /sys), and uname. Output of df, mount,
//! lsblk and lscpu is passed over, so that it is not reported as not understood.

use super::builder::Builder;
use super::error::ImportError;
use super::number::size;
use super::text::Cursor;
use super::{FormatKind, Importer, best};
use crate::anchors::Anchor;
use flatwater_recording::knob;

pub const IMPORTER: Importer = Importer {
    name: "settings",
    sentence: "sysctl, files of /proc/sys and transparent_hugepage, uname; df, mount, lsblk and lscpu are passed over.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&["Filesystem ", "MOUNTPOINT", "MAJ:MIN", "Architecture:"]),
        Anchor::Line(&["vm.", "/proc/sys/", "transparent_hugepage", "GNU/Linux"]),
        Anchor::Common(&["kernel.", "fs.", "net.", "dev.", "abi.", " SMP", " type ", "rw"]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if setting(text).is_some() || release(text).is_some() => 75,
        text if listing(text).is_some() || is_mount(text) => 70,
        _ => 0,
    },
    read,
};

/// `vm.dirty_ratio = 20`, `/proc/sys/vm/dirty_ratio:20`, `/sys/kernel/mm/transparent_hugepage/enabled:always [never]`.
fn setting(text: &str) -> Option<(String, &str)> {
    let text = text.trim();
    let text = text.split(" #").next().unwrap_or(text).trim_end();
    if text.starts_with('/') {
        let (path, value) = text.split_once([':', '=', ' '])?;
        return Some((key_of(path)?, value.trim())).filter(|(_, value)| !value.is_empty());
    }
    let (key, value) = text.split_once(['=', ':'])?;
    let key = key.trim().trim_start_matches("sysctl ").trim_start_matches("-w ").trim();
    let known = ["vm.", "kernel.", "fs.", "net.", "dev.", "abi."].iter().any(|start| key.starts_with(start));
    let plain = key.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-/".contains(&c));
    (known && plain && !value.trim().is_empty()).then(|| (key.to_owned(), value.trim().trim_matches('"')))
}

/// The key of a setting's file.
fn key_of(path: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix("/proc/sys/") {
        return Some(rest.replace('/', "."));
    }
    let name = path.strip_prefix("/sys/kernel/mm/transparent_hugepage/")?;
    Some(format!("thp.{name}"))
}

/// `always [madvise] never` -> `madvise`.
fn chosen(value: &str) -> &str {
    value.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(value, |(inner, _)| inner)
}

fn observe(key: &str, value: &str, b: &mut Builder) {
    if knob::find(key).is_ok() {
        b.setup.observe(key, chosen(value));
    } else {
        b.pass_over();
    }
}

/// Reads the value of a setting's file that the last command printed (`cat /proc/sys/vm/swappiness`). Returns whether
/// the line was such a value.
pub fn by_command(text: &str, b: &mut Builder) -> bool {
    let path = b
        .context()
        .command
        .as_deref()
        .and_then(|command| command.split_whitespace().find(|word| word.starts_with('/')));
    let Some(key) = path.and_then(key_of) else { return false };
    let value = text.trim();
    let plain = value.len() <= 120 && is_value(value);
    if plain {
        observe(&key, value, b);
        // The file has only one line.
        b.context_mut().command = None;
    }
    plain
}

/// Whether the text is `60`, `4096 87380 6291456` or `always [madvise] never`.
fn is_value(text: &str) -> bool {
    let word = |word: &str| {
        let inner = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(word);
        !inner.is_empty() && inner.bytes().all(|c| c.is_ascii_alphabetic() || matches!(c, b'_' | b'+' | b'-'))
    };
    let chosen = text.split_whitespace().filter(|word| word.starts_with('[')).count() == 1;
    let mut words = text.split_whitespace();
    words.clone().all(|word| word.parse::<i64>().is_ok()) && words.next().is_some()
        || chosen && text.split_whitespace().all(word)
}

/// `Linux db1 5.4.0-42-generic #46-Ubuntu SMP Fri ... x86_64 GNU/Linux` -> the release.
fn release(text: &str) -> Option<&str> {
    let mut words = text.trim().strip_prefix("Linux ")?.split_whitespace();
    let (first, second) = (words.next()?, words.next()?);
    let is_release = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && word.matches('.').count() >= 1;
    let build = text.contains(" #") && (text.contains("SMP") || text.contains("GNU/Linux"));
    build.then_some(if is_release(first) { first } else { second }).filter(|word| is_release(word))
}

/// Lists that are passed over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listing {
    FileSystems,
    Disks,
    Processors,
}

impl Listing {
    fn has(self, text: &str) -> bool {
        let words: Vec<&str> = text.split_whitespace().collect();
        match self {
            // `/dev/sda1  20G  10G  9.5G  52% /`; long names of devices are on a line of their own.
            Listing::FileSystems => match words.as_slice() {
                [device] => device.starts_with('/') || device.contains([':', '-']),
                _ => words.iter().any(|word| word.ends_with('%') || *word == "-") && text.contains(" /"),
            },
            Listing::Disks => {
                const KINDS: &[&str] = &["disk", "part", "lvm", "crypt", "loop", "rom", "mpath", "dm"];
                let is_kind = |word: &&str| KINDS.contains(word) || word.starts_with("raid");
                let is_size = |word: &&str| size(word, 1.0).is_some();
                words.len() >= 3 && (words.iter().any(is_kind) || words.iter().skip(1).any(is_size))
            }
            Listing::Processors => text.split_once(':').is_some_and(|(key, value)| {
                value.starts_with("  ") && key.bytes().all(|c| c.is_ascii_alphanumeric() || b" ()-_/".contains(&c))
            }),
        }
    }
}

/// The list of file systems, disks or CPUs whose header this is.
fn listing(text: &str) -> Option<Listing> {
    let text = text.trim_start();
    if text.starts_with("Filesystem ") && text.contains("Mounted on") {
        return Some(Listing::FileSystems);
    }
    if text.starts_with("NAME ") && (text.contains("MOUNTPOINT") || text.contains("MAJ:MIN")) {
        return Some(Listing::Disks);
    }
    (text.starts_with("Architecture:") && text.contains("x86_64")).then_some(Listing::Processors)
}

/// `/dev/sda1 on / type ext4 (rw,relatime)`, `/dev/sda1 / ext4 rw,relatime 0 0`.
fn is_mount(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    matches!(words.as_slice(), [_, "on", at, "type", _, options] if at.starts_with('/') && options.starts_with('('))
        || matches!(words.as_slice(), [_, at, _, options, "0", "0" | "1" | "2"] if at.starts_with('/') && options.contains("rw"))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut current: Option<Listing> = None;
    while let Some(line) = cursor.peek() {
        let text = line.text;
        if let Some((key, value)) = setting(text) {
            observe(&key, value, b);
        } else if let Some(version) = release(text) {
            b.machine.kernel.get_or_insert_with(|| version.to_owned());
        } else if let Some(found) = listing(text) {
            current = Some(found);
            b.pass_over();
        } else if is_mount(text) || current.is_some_and(|listing| listing.has(text)) && best(cursor).is_none() {
            b.pass_over();
        } else {
            break;
        }
        cursor.take();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{is_mount, release, setting};
    use crate::import_texts;

    #[test]
    fn settings_of_all_forms_parse() {
        for text in
            ["vm.dirty_ratio = 20", "vm.dirty_ratio=20 # ours", "  vm.dirty_ratio: 20", "/proc/sys/vm/dirty_ratio:20"]
        {
            assert_eq!(setting(text), Some(("vm.dirty_ratio".to_owned(), "20")), "{text}");
        }
        assert_eq!(setting("Dirty: 20 kB"), None);
        assert_eq!(
            release("Linux db1 5.4.0-42-generic #46-Ubuntu SMP Fri Jul 10 x86_64 GNU/Linux"),
            Some("5.4.0-42-generic")
        );
        assert!(is_mount("/dev/sda1 on / type ext4 (rw,relatime)") && !is_mount("a on b"));
    }

    #[test]
    fn a_value_below_a_cat_command_is_a_setting() {
        let text = "# cat /proc/sys/vm/swappiness\n60\n# cat /sys/kernel/mm/transparent_hugepage/enabled\nalways [madvise] never\nvm.dirty_ratio = 20\n";
        let setup = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording.header.setup;
        assert_eq!((setup.get("vm.swappiness"), setup.get("thp.enabled")), (Some("60"), Some("madvise")));
        assert_eq!(setup.get("vm.dirty_ratio"), Some("20"));
    }
}
