//! Knobs that are files: their paths, their values, and how to set and restore them.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::undo::KnobUndo;
use flatwater_recording::knob::{KNOBS, Knob, KnobKind, KnobPlace};
use flatwater_recording::units::Bytes;
use flatwater_recording::{Gap, Setup};

/// The block device under the scenario's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `7:3`.
    pub number: String,
    /// `loop3`.
    pub name: String,
    /// Whether this is a loop device made for this run, which no other program uses.
    pub own: bool,
}

impl Device {
    /// The device of this directory's file system; `None` if it has none (tmpfs, overlay, btrfs).
    #[must_use]
    pub fn of(dir: &Path, own: bool) -> Option<Device> {
        Device::numbered(rustix::fs::stat(dir).ok()?.st_dev, own)
    }

    /// The device with this number (`st_dev`, `st_rdev`); `None` if there is none.
    #[must_use]
    pub fn numbered(number: u64, own: bool) -> Option<Device> {
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let link = std::fs::canonicalize(Path::new("/sys/dev/block").join(&number)).ok()?;
        // Queue and bdi belong to the whole disk, not to the partition.
        let disk = if link.join("partition").exists() { link.parent()?.to_owned() } else { link };
        let number = std::fs::read_to_string(disk.join("dev")).ok()?.trim().to_owned();
        let name = disk.file_name()?.to_string_lossy().into_owned();
        Some(Device { number, name, own })
    }
}

/// The file of a knob; `None` for knobs that are not files of the running kernel.
#[must_use]
pub fn file_of(knob: &Knob, device: Option<&Device>) -> Option<PathBuf> {
    let tail = knob.key.split_once('.').map_or(knob.key, |(_, tail)| tail);
    match knob.place {
        KnobPlace::Sysctl => Some(Path::new("/proc/sys").join(knob.key.replace('.', "/"))),
        KnobPlace::HugePages => Some(Path::new("/sys/kernel/mm/transparent_hugepage").join(tail)),
        KnobPlace::LruGen => Some(Path::new("/sys/kernel/mm/lru_gen").join(tail)),
        KnobPlace::Queue => Some(Path::new("/sys/dev/block").join(&device?.number).join("queue").join(tail)),
        KnobPlace::Bdi => Some(Path::new("/sys/class/bdi").join(&device?.number).join(tail)),
        KnobPlace::Cgroup | KnobPlace::Mount | KnobPlace::Placement | KnobPlace::Precursor | KnobPlace::NoFile => None,
    }
}

/// A knob's file, identified by the knob, so that a journal can name only files of this list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobFile {
    key: String,
    /// The device number, such as `7:3`, for knobs of a device.
    #[serde(default)]
    device: Option<String>,
    /// The neighbouring file with the knob's value in parts per million.
    #[serde(default)]
    fine: bool,
}

impl KnobFile {
    #[must_use]
    pub fn of(key: &str, device: Option<&Device>) -> KnobFile {
        KnobFile { key: key.to_owned(), device: device.map(|device| device.number.clone()), fine: false }
    }

    /// `None` if the knob is unknown or has no file, or if the device number is malformed.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let device = match &self.device {
            None => None,
            Some(device) => {
                let (major, minor) = device.split_once(':')?;
                let device = Device { number: device.clone(), name: String::new(), own: false };
                (number(major) && number(minor)).then_some(device)
            }
        };
        let file = file_of(flatwater_recording::knob::find(&self.key).ok()?, device.as_ref())?;
        if self.fine { fine_of(&self.key).map(|name| file.with_file_name(name)) } else { Some(file) }
    }

    /// The file name, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        let path = self.path().unwrap_or_default();
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

fn fine_of(key: &str) -> Option<&'static str> {
    match key {
        "bdi.max_bytes" | "bdi.max_ratio" => Some("max_ratio_fine"),
        "bdi.min_ratio" => Some("min_ratio_fine"),
        _ => None,
    }
}

/// Reads the value of a knob's file, in the form in which it can be written: the selected word of `a [b] c`, tabs as
/// spaces.
pub fn read(file: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(file)?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    Ok(chosen.unwrap_or(&text).split_whitespace().collect::<Vec<_>>().join(" "))
}

pub fn write(file: &Path, value: &str) -> io::Result<()> {
    // A single write(), because sysfs takes each write as a complete value.
    std::fs::write(file, value)
}

/// Reads every knob on this machine, for the recording's header. A knob that this kernel does not have is absent; one
/// that exists but cannot be read becomes a gap.
#[must_use]
pub fn observe(device: Option<&Device>) -> (Setup, Vec<Gap>) {
    let (mut setup, mut gaps) = (Setup::default(), Vec::new());
    for knob in KNOBS {
        let Some(file) = file_of(knob, device) else { continue };
        match read(&file) {
            Ok(value) => setup.observe(knob.key, &value),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => gaps.push(Gap::new(knob.key, format!("{}: {error}", file.display()), "run as root")),
        }
    }
    (setup, gaps)
}

/// Pairs of knobs of which the kernel uses only one: setting one clears the other, and 0 cannot be written to the one
/// in bytes (mm/page-writeback.c: dirty_bytes_handler, dirty_bytes_min is two pages).
const COUPLED: &[(&str, &str)] =
    &[("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_background_bytes", "vm.dirty_background_ratio")];

fn partner(key: &str) -> Option<&'static str> {
    COUPLED.iter().find_map(|&(a, b)| if a == key { Some(b) } else { (b == key).then_some(a) })
}

/// How to undo setting `knob` from its current value to `new`.
pub fn undo_of(knob: &Knob, file: &Path, new: &str, device: Option<&Device>) -> io::Result<KnobUndo> {
    let own = device.is_some_and(|device| device.own) && matches!(knob.place, KnobPlace::Queue | KnobPlace::Bdi);
    let current = read(file)?;
    let mut undo = KnobUndo {
        key: knob.key.to_owned(),
        file: KnobFile::of(knob.key, device),
        new: new.to_owned(),
        held: current.clone(),
        restore_file: KnobFile::of(knob.key, device),
        old: current,
        unchecked: own,
        amends: false,
    };
    let partner = partner(knob.key).filter(|_| undo.old == "0");
    let coupled = partner.and_then(|key| flatwater_recording::knob::find(key).ok());
    if let Some((knob, file)) = coupled.and_then(|knob| Some((knob, file_of(knob, device)?))) {
        undo.old = read(&file)?;
        undo.restore_file = KnobFile::of(knob.key, device);
    }
    // The kernel keeps this limit as a share of the dirty limit (mm/page-writeback.c: bdi_set_max_bytes, 6.2).
    // max_bytes reads back differently whenever memory changes, and max_ratio is rounded; parts per million are exact.
    if let Some(file) = fine_of(knob.key).map(|name| file.with_file_name(name)).filter(|file| file.exists()) {
        undo.old = read(&file)?;
        undo.restore_file = KnobFile { fine: true, ..KnobFile::of(knob.key, device) };
    }
    Ok(undo)
}

/// The journal's amendment after a knob was set, if the kernel stored another value: it rounds some (nr_requests),
/// completes others (lowmem_reserve_ratio), and keeps max_bytes as a share of the dirty limit. Without it, the kernel's
/// rounding would look like another process's change.
pub fn amendment(undo: &KnobUndo) -> io::Result<Option<KnobUndo>> {
    // If the share is restored, the share also shows whether another process changed it.
    let by_share = undo.restore_file != undo.file && undo.key.starts_with("bdi.");
    let file = if by_share { &undo.restore_file } else { &undo.file };
    let holds = read(&file.path().ok_or(io::ErrorKind::NotFound)?)?;
    let differs = by_share || holds != undo.new;
    Ok(differs.then(|| KnobUndo { file: file.clone(), new: holds, amends: true, ..undo.clone() }))
}

/// A value for messages: sizes with units, others as the kernel prints them.
#[must_use]
pub fn described(key: &str, value: &str) -> String {
    let size = flatwater_recording::knob::find(key).ok().filter(|knob| matches!(knob.kind, KnobKind::Size { .. }));
    match (size, value.parse::<u64>()) {
        (Some(_), Ok(bytes)) if bytes > 0 => Bytes(bytes).to_string(),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{KnobFile, file_of, read, undo_of};
    use flatwater_recording::knob::find;

    #[test]
    fn the_selected_word_is_the_value_and_tabs_are_spaces() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("knob");
        for (held, value) in
            [("none [mq-deadline] bfq\n", "mq-deadline"), ("256\t256\t32\n", "256 256 32"), ("7\n", "7")]
        {
            std::fs::write(&file, held).expect("written");
            assert_eq!(read(&file).expect("readable"), value);
        }
    }

    #[test]
    fn a_limit_in_bytes_is_undone_through_the_ratio_that_it_replaced() {
        let knob = find("vm.dirty_bytes").expect("a knob");
        let file = file_of(knob, None).expect("a sysctl");
        if std::fs::read_to_string(&file).is_ok_and(|held| held.trim() == "0") {
            let undo = undo_of(knob, &file, "8388608", None).expect("readable");
            assert_eq!(undo.restore_file.name(), "dirty_ratio", "{undo:?}");
            assert_ne!(undo.old, "0");
        }
    }

    #[test]
    fn a_journal_can_name_only_files_of_knobs() {
        let file = |key: &str, device: Option<&str>, fine| {
            KnobFile { key: key.into(), device: device.map(str::to_owned), fine }.path()
        };
        assert_eq!(file("vm.swappiness", None, false), Some("/proc/sys/vm/swappiness".into()));
        assert_eq!(file("bdi.max_bytes", Some("7:3"), true), Some("/sys/class/bdi/7:3/max_ratio_fine".into()));
        for (key, device, fine) in [
            ("vm.no_such_knob", None, false),
            ("vm.../../../etc/passwd", None, false),
            ("queue.nr_requests", None, false),
            ("queue.nr_requests", Some("7:3/../../../../etc"), false),
            ("queue.nr_requests", Some("7"), false),
            ("vm.swappiness", None, true),
        ] {
            assert_eq!(file(key, device, fine), None, "{key} {device:?}");
        }
    }

    #[test]
    fn knobs_of_a_device_have_no_file_without_one() {
        assert_eq!(file_of(find("queue.nr_requests").expect("a knob"), None), None);
        assert_eq!(file_of(find("cgroup.memory_limit").expect("a knob"), None), None);
    }
}
