//! Limits on cgroups of other programs: reads, sets and lifts one setting of cgroup v2.
//!
//! A limit is set only if the setting has the kernel's default, so that the default is its undo. It is lifted only if
//! the setting still has the value that was set. Each write is verified by reading the file again.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flatwater_guard::{Action, Device, GroupPath, Reading, Refusal, Setting};
use flatwater_safefs::{Dir, Refusal as Unsafe};
use serde::{Deserialize, Serialize};

use super::cgroup::is_cgroup;
use crate::proc::mounts;

/// A limit, as a journal names it: a group below the cgroup mount, and one of the guard's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Limit(pub Action);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} = {}", self.0.setting.file().name(), self.0.group, self.0.setting.text())
    }
}

/// Why a limit could not be set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    #[error("the group was removed")]
    Gone,
    #[error("the setting has the value {0}, which the guard did not set")]
    Foreign(String),
    #[error("the kernel shows {shown} after {wanted} was written")]
    NotInForce { wanted: String, shown: String },
    #[error("this machine has no cgroup v2 with controllers")]
    NoCgroup2,
    #[error(transparent)]
    Path(#[from] Unsafe),
    #[error(transparent)]
    File(#[from] io::Error),
}

/// What lifting a limit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lifted {
    Removed,
    /// The setting has its default.
    NotSet,
    /// Another process has set this value, which stays.
    Foreign(String),
    /// The group or the device was removed, and with it the limit.
    Gone,
}

/// The controllers of the guard's settings.
const CONTROLLERS: &[&str] = &["io", "memory", "cpu"];

/// The mount of cgroup v2, if it has one of these controllers. Others may be in version 1.
fn mount(wanted: &[&str]) -> Option<PathBuf> {
    let mounts = mounts::read().ok()?;
    let mut points = mounts.into_iter().filter(|mount| mount.kind == "cgroup2").map(|mount| mount.point);
    points.find(|point| {
        let controllers = std::fs::read_to_string(point.join("cgroup.controllers"));
        controllers.is_ok_and(|text| text.split_whitespace().any(|one| wanted.contains(&one)))
    })
}

/// The directory of a group, by handle: no other user controls a part of the path.
pub fn open(group: &GroupPath) -> Result<Dir, LimitError> {
    open_below(&mount(CONTROLLERS).ok_or(LimitError::NoCgroup2)?, group)
}

fn open_below(mount: &Path, group: &GroupPath) -> Result<Dir, LimitError> {
    let path = mount.join(group.as_str().trim_start_matches('/'));
    match Dir::trusted(&path) {
        // A mount over the group's directory would be another file system.
        Ok(dir) if is_cgroup(&dir.proc_path()) => Ok(dir),
        Ok(_) => Err(LimitError::Gone),
        Err(refusal) if refusal.is_missing() => Err(LimitError::Gone),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Whether only root controls the group: its directory, each directory above, and the file that lists its processes.
#[must_use]
pub fn is_trusted(group: &GroupPath) -> bool {
    let Ok(dir) = open(group) else { return false };
    dir.stat("cgroup.procs").is_ok_and(|stat| stat.st_uid == 0 && stat.st_mode & 0o022 == 0)
}

fn text(dir: &Dir, file: &str) -> Result<String, LimitError> {
    const BYTES_MAX: u64 = 64 << 10;
    let mut text = String::new();
    let opened = match dir.read(file) {
        Err(refusal) if refusal.is_missing() => return Err(LimitError::Gone),
        opened => opened?,
    };
    match opened.take(BYTES_MAX).read_to_string(&mut text) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(LimitError::Gone),
        read => Ok(read.map(|_| text)?),
    }
}

fn write(dir: &Dir, file: &str, text: &str) -> Result<(), LimitError> {
    let mut opened = match dir.write(file) {
        Err(refusal) if refusal.is_missing() => return Err(LimitError::Gone),
        opened => opened?,
    };
    match opened.write_all(text.as_bytes()) {
        // The group was removed (ENODEV), or the device that io.max names (ENODEV, ENXIO).
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => Err(LimitError::Gone),
        written => Ok(written?),
    }
}

/// The text of a setting's file, or why the setting cannot be changed.
pub fn knob_text(group: &GroupPath, file: &str) -> Result<String, Refusal> {
    let controller = file.split('.').next().unwrap_or_default();
    let mount = mount(&[controller]).ok_or(Refusal::CgroupV1)?;
    let dir = open_below(&mount, group).map_err(|error| match error {
        LimitError::Gone => Refusal::GroupUnknown,
        LimitError::Path(_) => Refusal::GroupNotTrusted,
        _ => Refusal::KnobUnreadable,
    })?;
    let read_only =
        rustix::fs::statvfs(&mount).is_ok_and(|stat| stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    match text(&dir, file) {
        Ok(_) if read_only => Err(Refusal::ReadOnly),
        Ok(text) => Ok(text),
        Err(LimitError::Gone) => Err(Refusal::NoController),
        Err(_) => Err(Refusal::KnobUnreadable),
    }
}

/// Whether io.weight has an effect on this device: only where io.cost is enabled for it (block/blk-iocost.c). Elsewhere
/// the file exists and does nothing.
#[must_use]
pub fn has_io_cost(device: Device) -> bool {
    let qos = mount(&["io"]).and_then(|mount| std::fs::read_to_string(mount.join("io.cost.qos")).ok());
    qos.is_some_and(|text| io_cost_is_enabled(&text, device))
}

/// Lines such as `254:0 enable=1 ctrl=auto rpct=0.00 ...`.
fn io_cost_is_enabled(text: &str, device: Device) -> bool {
    let number = device.to_string();
    let mut lines = text.lines().map(str::split_whitespace);
    lines.any(|mut fields| fields.next() == Some(&number) && fields.any(|field| field == "enable=1"))
}

impl Limit {
    fn setting(&self) -> Setting {
        self.0.setting
    }

    fn value(&self, dir: &Dir) -> Result<String, LimitError> {
        let text = text(dir, self.setting().file().name())?;
        self.setting().value_in(&text).ok_or_else(|| io::Error::other("the file has an unknown format").into())
    }

    /// Whether the setting has its default, so that the limit may be set.
    pub fn check_free(&self) -> Result<(), LimitError> {
        let value = self.value(&open(&self.0.group)?)?;
        if value == self.setting().default_value() { Ok(()) } else { Err(LimitError::Foreign(value)) }
    }

    /// Sets the limit, and reads it again. The caller has journalled it.
    pub fn set(&self) -> Result<(), LimitError> {
        self.check_free()?;
        let dir = open(&self.0.group)?;
        write(&dir, self.setting().file().name(), &self.setting().text())?;
        let (wanted, shown) = (self.setting().value(), self.value(&dir)?);
        if shown == wanted { Ok(()) } else { Err(LimitError::NotInForce { wanted, shown }) }
    }

    /// The present value.
    #[must_use]
    pub fn read(&self) -> Reading {
        match open(&self.0.group).and_then(|dir| self.value(&dir)) {
            Ok(value) => Reading::Value(value),
            Err(LimitError::Gone) => Reading::Gone,
            Err(_) => Reading::Missing,
        }
    }

    /// Removes the limit if the setting still has its value.
    pub fn lift(&self) -> Result<Lifted, LimitError> {
        let lifted = open(&self.0.group).and_then(|dir| {
            let value = self.value(&dir)?;
            if value == self.setting().default_value() {
                return Ok(Lifted::NotSet);
            }
            if value != self.setting().value() {
                return Ok(Lifted::Foreign(value));
            }
            write(&dir, self.setting().file().name(), &self.setting().default_text())?;
            let (wanted, shown) = (self.setting().default_value(), self.value(&dir)?);
            if shown == wanted { Ok(Lifted::Removed) } else { Err(LimitError::NotInForce { wanted, shown }) }
        });
        match lifted {
            Err(LimitError::Gone | LimitError::NoCgroup2) => Ok(Lifted::Gone),
            lifted => lifted,
        }
    }
}

#[cfg(test)]
mod tests {
    use flatwater_guard::{Action, GroupPath, Reading, Setting};

    use super::{Lifted, Limit, LimitError, open_below};

    #[test]
    fn a_directory_outside_cgroups_is_not_opened() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(place.path().join("jobs")).expect("made");
        let group = GroupPath::new("/jobs").expect("a group");
        assert!(matches!(open_below(place.path(), &group), Err(LimitError::Gone | LimitError::Path(_))));
        let absent = GroupPath::new("/absent").expect("a group");
        assert!(matches!(open_below(std::path::Path::new("/sys/fs/cgroup"), &absent), Err(LimitError::Gone)));
    }

    #[test]
    fn a_limit_on_a_group_that_does_not_exist_is_gone() {
        let group = GroupPath::new("/flatwater-absent/x").expect("a group");
        let limit = Limit(Action { group, setting: Setting::CpuWeight { weight: 10 } });
        assert!(matches!(limit.lift(), Ok(Lifted::Gone)));
        assert!(matches!(limit.read(), Reading::Gone | Reading::Missing));
        assert!(limit.set().is_err());
    }

    #[test]
    fn a_controller_of_version_1_is_refused_by_name() {
        let group = GroupPath::new("/flatwater-absent/x").expect("a group");
        for (controller, file) in [("io", "io.max"), ("memory", "memory.high"), ("cpu", "cpu.max")] {
            let why = super::knob_text(&group, file).expect_err("no such group");
            let expected = match super::mount(&[controller]) {
                Some(_) => flatwater_guard::Refusal::GroupUnknown,
                None => flatwater_guard::Refusal::CgroupV1,
            };
            assert_eq!(why, expected, "{file}");
        }
    }

    #[test]
    fn a_weight_has_an_effect_only_where_io_cost_is_enabled() {
        let text = "8:0 enable=0 ctrl=auto rpct=0.00\n254:16 enable=1 ctrl=user\n";
        let of = |major, minor| super::io_cost_is_enabled(text, flatwater_guard::Device { major, minor });
        assert!(of(254, 16) && !of(8, 0) && !of(8, 16));
    }

    #[test]
    fn a_journal_names_a_group_and_a_setting_and_never_a_path() {
        let text = r#"{"group":"/jobs","setting":{"cpu-weight":{"weight":10}}}"#;
        assert!(serde_json::from_str::<Limit>(text).is_ok());
        for group in ["/../etc", "etc", "/", "/a/../../b"] {
            let text = text.replace("/jobs", group);
            assert!(serde_json::from_str::<Limit>(&text).is_err(), "{text}");
        }
    }
}
