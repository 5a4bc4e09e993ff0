//! The journal of changes: one record, on disk and synced, before each change to the machine.
//!
//! Invariant: whatever instant the process is killed at, the records on disk name everything that may have
//! been changed. A record may therefore describe a change that never came to be, and undoing it finds nothing
//! to do. Records are undone last first.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// How long a mkfs of a dead run may still take.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(60);

/// How to take one change back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub enum Undo {
    Knob(KnobUndo),
    /// A line `device limit` in a throttle file; `device 0` (v1) or `device KEY=max` (v2) takes it out.
    Throttle {
        file: PathBuf,
        clear: String,
    },
    /// A cgroup directory that we made, with the one that our process came from.
    Cgroup {
        dir: PathBuf,
        origin: PathBuf,
    },
    /// A loop device, known by its backing file: the device's number is not known before it exists.
    Loop {
        image: PathBuf,
    },
    Mount {
        target: PathBuf,
    },
    /// An image file or an empty directory of ours.
    Remove {
        path: PathBuf,
    },
    /// A directory of ours with all that is in it.
    RemoveTree {
        path: PathBuf,
    },
}

/// A knob: written back if it still holds what we set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobUndo {
    pub key: String,
    /// Holds `new` if nobody has changed it after us.
    pub file: PathBuf,
    pub new: String,
    /// What `file` held before us, for people; empty in journals that did not say so.
    #[serde(default)]
    pub held: String,
    /// Where `old` is written: another file where the kernel couples two (dirty_ratio and dirty_bytes).
    pub restore_file: PathBuf,
    pub old: String,
    /// Nobody else can have changed it: a device that is ours.
    pub unchecked: bool,
    /// Stands for the record of this knob before it: what the kernel made of the value is only known once it is set.
    #[serde(default)]
    pub amends: bool,
}

/// Without the records that a later one of the same knob stands for.
fn amended(records: impl Iterator<Item = Undo>) -> Vec<Undo> {
    let mut kept: Vec<Undo> = Vec::new();
    for record in records {
        if let Undo::Knob(knob) = &record
            && knob.amends
        {
            let same = |undo: &Undo| matches!(undo, Undo::Knob(before) if before.key == knob.key);
            if let Some(place) = kept.iter().rposition(same) {
                kept.remove(place);
            }
        }
        kept.push(record);
    }
    kept
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    flatwater_journal: u32,
    pid: u32,
    /// After another boot knobs, mounts, loop devices and cgroups are gone by themselves.
    boot: String,
}

/// The journal of a running setup. Its file is locked for as long as its owner lives.
#[derive(Debug)]
pub struct UndoLog {
    file: File,
    path: PathBuf,
    records: Vec<Undo>,
}

/// The kernel's name for this boot; empty where it cannot be read.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

impl UndoLog {
    pub fn create(state: &Path) -> io::Result<UndoLog> {
        let pid = std::process::id();
        for number in 0..10_000 {
            let path = state.join(format!("setup-{pid}-{number}.journal"));
            let opened = File::options().read(true).append(true).create_new(true).open(&path);
            let file = match opened {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            };
            // Nobody can have found the file in between and taken the lock for longer than a look.
            flock(&file, FlockOperation::LockExclusive)?;
            let mut log = UndoLog { file, path, records: Vec::new() };
            log.line(&Head { flatwater_journal: 1, pid, boot: boot_id() })?;
            // The entry itself must survive too.
            File::open(state)?.sync_all()?;
            return Ok(log);
        }
        Err(io::Error::other(format!("{} is full of journals: run `flatwater restore`", state.display())))
    }

    fn line<T: Serialize>(&mut self, record: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }

    /// Returns when the record is on disk; only then may the change be made.
    pub fn record(&mut self, undo: Undo) -> io::Result<()> {
        self.line(&undo)?;
        self.records.push(undo);
        Ok(())
    }

    /// What is to be undone, last change first.
    pub fn last_first(&self) -> Vec<Undo> {
        let mut records = amended(self.records.iter().cloned());
        records.reverse();
        records
    }

    /// The locked journal, for a program that we start to keep it locked until that program has ended too.
    #[must_use]
    pub fn descriptor(&self) -> std::os::fd::RawFd {
        self.file.as_raw_fd()
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything is undone: the journal goes.
    pub fn finish(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }

    /// A journal that a dead process left; `None` while its owner lives.
    pub fn adopt(path: &Path) -> io::Result<Option<(UndoLog, Age)>> {
        let mut file = File::options().read(true).append(true).open(path)?;
        if !lock_of_the_dead(&file)? {
            return Ok(None);
        }
        // Its owner may have finished and removed it between our open and our lock.
        if !path.exists() {
            return Ok(None);
        }
        let mut text = String::new();
        Read::by_ref(&mut file).take(64 << 20).read_to_string(&mut text)?;
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok());
        // Not even the head was on disk: then nothing had been changed.
        let age =
            head.map_or(Age::SameBoot, |head| if head.boot == boot_id() { Age::SameBoot } else { Age::OlderBoot });
        // A torn last line is a change that had not been made.
        let records = lines.map_while(|line| serde_json::from_str(line).ok()).collect();
        Ok(Some((UndoLog { file, path: path.to_owned(), records }, age)))
    }
}

/// Takes the lock if the journal's owner is dead. A mkfs or mount that it had started may go on for a moment and
/// holds the lock too: undoing beside it would miss what it is about to make, so it is waited for.
fn lock_of_the_dead(file: &File) -> io::Result<bool> {
    let until = Instant::now() + PROGRAM_PATIENCE;
    loop {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(true);
        }
        let mut head = [0; 4096];
        let length = file.read_at(&mut head, 0)?;
        let text = String::from_utf8_lossy(head.get(..length).unwrap_or_default());
        let owner = text.lines().next().and_then(|line| serde_json::from_str::<Head>(line).ok());
        let lives = owner.is_none_or(|head| Path::new("/proc").join(head.pid.to_string()).exists());
        if lives || Instant::now() > until {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    SameBoot,
    OlderBoot,
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::{Age, KnobUndo, Undo, UndoLog, amended};

    #[test]
    fn a_journal_is_adopted_only_after_its_owner_is_gone_and_without_a_torn_line() {
        let state = tempfile::tempdir().expect("a directory");
        let mut log = UndoLog::create(state.path()).expect("a journal");
        let path = log.path().to_owned();
        let mount = Undo::Mount { target: PathBuf::from("/x") };
        let remove = Undo::Remove { path: PathBuf::from("/y") };
        log.record(mount.clone()).expect("recorded");
        log.record(remove.clone()).expect("recorded");
        assert!(UndoLog::adopt(&path).expect("readable").is_none(), "its owner lives");
        log.file.write_all(b"{\"undo\":\"mou").expect("torn");
        drop(log);
        let (adopted, age) = UndoLog::adopt(&path).expect("readable").expect("nobody's");
        assert_eq!(age, Age::SameBoot);
        assert_eq!(adopted.last_first(), [remove, mount]);
        adopted.finish().expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn an_amendment_stands_for_the_last_record_of_its_knob_only() {
        let knob = |key: &str, new: &str, old: &str, amends| {
            let (file, held) = (PathBuf::from("/k"), String::new());
            let (key, new, old, restore_file) = (key.to_owned(), new.to_owned(), old.to_owned(), file.clone());
            Undo::Knob(KnobUndo { key, file, new, held, restore_file, old, unchecked: false, amends })
        };
        let records = [
            knob("a", "10", "60", false),
            knob("b", "1", "0", false),
            knob("a", "3", "10", false),
            knob("a", "4", "10", true),
        ];
        let left = amended(records.iter().cloned());
        assert_eq!(left, [records[0].clone(), records[1].clone(), records[3].clone()]);
    }
}
