//! The only module that changes the machine: settings, cgroups, loop devices, mounts, and the directory with a run's
//! files.
//!
//! Each change is printed, and recorded in a journal on disk, before it is made. All changes are undone, last first,
//! when an `Applied` is restored or dropped (also after errors and signals, which end the run in order), and after kill
//! -9 by `recover` at the next start. A setting that another process has changed in between is left alone, with a
//! message.
//!
//! Settings that the whole machine shares need `--apply`. A cgroup, loop device or mount made for the run affects
//! nothing else and needs no permission.

pub mod cgroup;
pub mod groups;
pub mod knobs;
pub mod lease;
pub mod limit;
mod place;
pub mod preflight;
pub mod restore;
pub mod state;
mod undo;
pub mod volume;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cgroup::Cgroups;
use flatwater_safefs::{Dir, Refusal};
use knobs::Device;
use place::Place;
pub use restore::{Restored, recover, recover_as_successor};
use undo::{Age, Undo, UndoLog};

use flatwater_recording::knob::{self, Knob, KnobPlace};
use flatwater_recording::{EventKind, Setup};

/// Where lines for the user go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("cannot {action} {path}: {source}{}", advice(.source))]
    File { action: &'static str, path: String, source: io::Error },
    #[error("cannot {what}: {why}; {next}")]
    Impossible { what: String, why: String, next: String },
    #[error(transparent)]
    Refused(#[from] Refusal),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (run as root, or omit that setting)",
        io::ErrorKind::NotFound => " (this kernel does not have it)",
        io::ErrorKind::StorageFull => " (free some space, or choose another directory with -d)",
        _ => "",
    }
}

impl SetupError {
    fn file(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> SetupError {
        SetupError::File { action, path: path.as_ref().display().to_string(), source }
    }
}

/// Where and how a setup is applied.
#[derive(Clone, Debug)]
pub struct SetupContext {
    /// The directory in which the run's own directory (and its loop device's image) is created.
    pub dir: PathBuf,
    /// The scenario's name, which becomes part of the names of created files.
    pub name: String,
    /// Permission to change settings that the whole machine shares (`--apply`).
    pub apply: bool,
    /// Keep the run's files.
    pub keep: bool,
}

/// A change of a setting, made or withheld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    /// The value before; `None` if the setting did not exist (a limit of a new cgroup).
    pub old: Option<String>,
    pub new: String,
}

impl Change {
    /// The change as an event of a recording.
    #[must_use]
    pub fn event(&self) -> EventKind {
        let old = knobs::described(&self.key, self.old.as_deref().unwrap_or("none"));
        EventKind::SetupChange {
            key: self.key.clone(),
            old: Some(old.to_string()),
            new: knobs::described(&self.key, &self.new).to_string(),
        }
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.event().fmt(f)
    }
}

/// An applied setup. Dropping it restores everything.
pub struct Applied {
    journal: Option<UndoLog>,
    cgroups: Cgroups,
    device: Option<Device>,
    /// `None` until the directory is made and after everything is undone: an open handle would keep its mount busy.
    work: Option<Dir>,
    work_dir: PathBuf,
    apply: bool,
    changes: Vec<Change>,
    withheld: Vec<Change>,
    /// The files that the user asked to keep, for the last message.
    kept: Option<PathBuf>,
    log: Log,
}

impl std::fmt::Debug for Applied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applied")
            .field("work_dir", &self.work_dir)
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}

impl Applied {
    /// Creates what the setup requests, in this order: volume, work directory, cgroup, knobs. After an error everything
    /// made so far is undone.
    pub fn apply(setup: &Setup, context: &SetupContext, log: Log) -> Result<Applied, SetupError> {
        std::fs::create_dir_all(&context.dir).map_err(|source| SetupError::file("make", &context.dir, source))?;
        // Absolute, because a restore after kill -9 runs in another directory.
        let dir =
            std::fs::canonicalize(&context.dir).map_err(|source| SetupError::file("find", &context.dir, source))?;
        let dir = Dir::open(&dir)?;
        let state = state::directory().map_err(|source| SetupError::file("use the state directory", "", source))?;
        let journal = UndoLog::create(&state).map_err(|source| SetupError::file("write", state.path(), source));
        let mut journal = journal?;
        let name = free_name(&dir, &context.name);
        let made = volume::Spec::of(setup).map(|spec| {
            log(&format!("make {spec} in {}", dir.path().display()));
            volume::make(&dir, &name, &spec, context.keep, &mut journal)
        });
        let volume = match made.transpose() {
            Ok(volume) => volume,
            Err(error) => {
                restore::undo_all(journal, Age::SameBoot, &log);
                return Err(error);
            }
        };
        let (cgroups, apply) = (Cgroups::default(), context.apply);
        let image = dir.path().join(format!("{name}.img"));
        // On a volume, all files go away with the volume.
        let (parent, work_name, device, recorded) = match volume {
            Some(volume) => (volume.work, "work".to_owned(), volume.device, false),
            None => {
                let device = Device::of(dir.path(), false);
                (dir, name, device, !context.keep)
            }
        };
        let work_dir = parent.path().join(&work_name);
        let kept = context.keep.then(|| if image.exists() { image } else { work_dir.clone() });
        let mut applied = Applied {
            journal: Some(journal),
            cgroups,
            device,
            work: None,
            work_dir,
            apply,
            changes: Vec::new(),
            withheld: Vec::new(),
            kept,
            log,
        };
        applied.make_work_dir(parent, &work_name, recorded)?;
        applied.start_afresh()?;
        applied.change(setup)?;
        Ok(applied)
    }

    /// Consumes `parent`: after an error everything is undone next, and an open handle would keep a mount busy.
    fn make_work_dir(&mut self, parent: Dir, name: &str, recorded: bool) -> Result<(), SetupError> {
        if recorded {
            self.record(Undo::RemoveTree { place: Place::new(&parent, name)? })?;
        }
        self.work = Some(parent.make_dir(name)?);
        Ok(())
    }

    /// Resets the limits of a new loop device: the kernel keeps those of an earlier user of this number after the
    /// device was detached.
    fn start_afresh(&mut self) -> Result<(), SetupError> {
        if !self.device.as_ref().is_some_and(|device| device.own) {
            return Ok(());
        }
        for (key, value) in [("bdi.strict_limit", "0"), ("bdi.max_ratio", "100"), ("queue.read_ahead_kb", "128")] {
            let Ok(knob) = knob::find(key) else { continue };
            // A file that this kernel lacks cannot have been changed (bdi/strict_limit exists since 6.2).
            if knobs::file_of(knob, self.device.as_ref()).is_some_and(|file| file.exists()) {
                self.set_file(knob, value, false)?;
            }
        }
        self.changes.clear();
        Ok(())
    }

    fn record(&mut self, undo: Undo) -> Result<(), SetupError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let path = journal.path().to_owned();
        journal.record(undo).map_err(|source| SetupError::file("write", path, source))
    }

    /// Sets these knobs, at the start or during a run (a scenario's timeline). Returns the changes, for `events` of the
    /// recording.
    pub fn change(&mut self, set: &Setup) -> Result<Vec<Change>, SetupError> {
        let before = self.changes.len();
        for (key, value) in set.iter() {
            let Ok(knob) = knob::find(key) else { continue };
            match knob.place {
                KnobPlace::Sysctl | KnobPlace::HugePages | KnobPlace::LruGen | KnobPlace::Queue | KnobPlace::Bdi => {
                    self.set_file(knob, value, true)?;
                }
                KnobPlace::Cgroup => self.set_cgroup(knob, value)?,
                // Volumes are made at the start; the driver handles placement and the precursor, the simulator its
                // model.
                KnobPlace::Mount | KnobPlace::Placement | KnobPlace::Precursor | KnobPlace::NoFile => {}
            }
        }
        Ok(self.changes.get(before..).unwrap_or_default().to_vec())
    }

    fn set_file(&mut self, knob: &'static Knob, value: &str, say: bool) -> Result<(), SetupError> {
        let Some(file) = knobs::file_of(knob, self.device.as_ref()) else {
            return Err(SetupError::Impossible {
                what: format!("set {}", knob.key),
                why: format!("{} is not on a block device", self.work_dir.display()),
                next: "choose another directory with -d, or give the scenario its own volume (mount.size)".to_owned(),
            });
        };
        let undo = knobs::undo_of(knob, &file, value, self.device.as_ref())
            .map_err(|source| SetupError::file("read", &file, source))?;
        let current = knobs::read(&file).map_err(|source| SetupError::file("read", &file, source))?;
        let change = Change { key: knob.key.to_owned(), old: Some(current.clone()), new: value.to_owned() };
        if current == value {
            return Ok(());
        }
        if !self.apply && !undo.unchecked {
            (self.log)(&format!("not set: {change} (needs --apply, since the whole machine shares it)"));
            self.withheld.push(change);
            return Ok(());
        }
        if say {
            let whose = if undo.unchecked { " (of the volume)" } else { "" };
            (self.log)(&format!("set {change}{whose}"));
        }
        self.record(Undo::Knob(undo.clone()))?;
        knobs::write(&file, value).map_err(|source| SetupError::file("write", &file, source))?;
        let amended = knobs::amendment(&undo).map_err(|source| SetupError::file("read", &file, source))?;
        if let Some(amended) = amended {
            if say && amended.file.path().as_ref() == Some(&file) {
                (self.log)(&format!("the kernel changed {1}={value} to {0}", amended.new, knob.key));
            }
            self.record(Undo::Knob(amended))?;
        }
        self.changes.push(change);
        Ok(())
    }

    fn set_cgroup(&mut self, knob: &'static Knob, value: &str) -> Result<(), SetupError> {
        let before = self.changes.iter().rev().find(|change| change.key == knob.key).map(|change| change.new.clone());
        let change = Change { key: knob.key.to_owned(), old: before, new: value.to_owned() };
        (self.log)(&format!("set {change}"));
        let Some(journal) = &mut self.journal else { return Ok(()) };
        if knob.key.ends_with("_bps") || knob.key.ends_with("_iops") {
            let device = self.device.as_ref().filter(|device| device.own).ok_or_else(|| SetupError::Impossible {
                what: format!("set {}", knob.key),
                why: "a device that others use would be throttled for them too".to_owned(),
                next: "give the scenario its own device with mount.file_system and mount.size".to_owned(),
            })?;
            self.cgroups.throttle(knob.key, value, &device.number, journal)?;
        } else {
            self.cgroups.set(knob.key, value, journal)?;
        }
        self.changes.push(change);
        Ok(())
    }

    /// The directory with the run's files, for messages.
    #[must_use]
    pub fn work_dir(&self) -> &Path {
        &self.work_dir
    }

    /// The open handle of that directory; files are opened below it.
    pub fn work(&self) -> Result<&Dir, SetupError> {
        self.work.as_ref().ok_or_else(|| SetupError::file("open", &self.work_dir, io::ErrorKind::NotFound.into()))
    }

    /// The device under the run's files, as `7:3` and `loop3`.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// The files to which the workload's process writes its id before it begins. In v1 the memory of all threads of a
    /// process is charged to the main thread's cgroup (mm/memcontrol.c: mem_cgroup_from_task of mm->owner), so
    /// threads cannot be moved one by one.
    #[must_use]
    pub fn cgroup_procs(&self) -> Vec<PathBuf> {
        self.cgroups.procs()
    }

    /// Moves this process into the run's cgroups.
    pub fn enter(&self) -> Result<(), SetupError> {
        for file in self.cgroup_procs() {
            let own = std::process::id().to_string();
            std::fs::write(&file, own).map_err(|source| SetupError::file("enter", &file, source))?;
        }
        Ok(())
    }

    /// The memory cgroup made for the run.
    #[must_use]
    pub fn memory_cgroup(&self) -> Option<&Path> {
        self.cgroups.memory()
    }

    /// All changes made so far, in order.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The changes that need `--apply`.
    #[must_use]
    pub fn withheld(&self) -> &[Change] {
        &self.withheld
    }

    /// Undoes everything and returns the outcome.
    pub fn restore(mut self) -> Restored {
        let restored = self.undo();
        if let Some(kept) = &self.kept {
            let image = kept.extension().is_some_and(|end| end == "img");
            let how = if image { " (the volume's image: mount -o loop)" } else { "" };
            (self.log)(&format!("kept {}{how}", kept.display()));
        }
        restored
    }

    fn undo(&mut self) -> Restored {
        let Some(journal) = self.journal.take() else { return Restored::default() };
        self.work = None;
        restore::undo_all(journal, Age::SameBoot, &self.log)
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

/// A name that is not used in the directory.
fn free_name(dir: &Dir, scenario: &str) -> String {
    let clean: String = scenario.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(40).collect();
    let pid = std::process::id();
    let taken = |name: &String| ["", ".mnt", ".img"].iter().any(|end| dir.exists(&format!("{name}{end}")));
    let mut names = (0..u32::MAX).map(|number| format!("flatwater-{clean}-{pid}-{number}"));
    names.find(|name| !taken(name)).unwrap_or_else(|| format!("flatwater-{clean}-{pid}"))
}
