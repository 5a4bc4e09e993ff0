//! The journal of changes: one record, written and synced, before each change to the machine.
//!
//! Invariant: at any time at which the process may be killed, the records on disk name everything that may have been
//! changed. So a record may describe a change that was not made; undoing it then does nothing. Records are undone last
//! first.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flatwater_safefs::Dir;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::cgroup::{CgroupDir, Throttle};
use super::knobs::KnobFile;
use super::limit::Limit;
use super::place::Place;

/// How long a mkfs of a dead run may still take.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(60);
/// Version 1 named files by any path, so its records are not trusted.
const FORMAT: u32 = 2;
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
const ENDING: &str = ".journal";
/// Suffix of a journal without its head: nothing has been changed yet.
const BEGUN: &str = ".begun";

/// How to undo one change. Names a knob, a cgroup, or a name of flatwater's in a directory, but never an arbitrary
/// path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub enum Undo {
    Knob(KnobUndo),
    /// A device's limit in a throttle file.
    Throttle(Throttle),
    /// A limit of the guard on a cgroup of other programs.
    Limit(Limit),
    /// A cgroup that the run made, with the cgroup that its process came from.
    Cgroup(CgroupDir),
    /// A loop device, identified by its backing file: its number is unknown before it exists.
    Loop {
        image: Place,
    },
    Mount {
        target: Place,
    },
    /// An image file or empty directory of the run.
    Remove {
        place: Place,
    },
    /// A directory of the run with its content.
    RemoveTree {
        place: Place,
    },
}

/// A knob, which is written back only if it still has the value that the run set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobUndo {
    pub key: String,
    /// The file that contains `new`, unless another process has changed it.
    pub file: KnobFile,
    pub new: String,
    /// The value of `file` before, for messages; empty in journals of older versions.
    #[serde(default)]
    pub held: String,
    /// Where `old` is written: another knob's file if the kernel couples two (dirty_ratio and dirty_bytes).
    pub restore_file: KnobFile,
    pub old: String,
    /// Do not check for other changes: the device belongs to the run.
    pub unchecked: bool,
    /// Replaces the previous record of this knob, since the value that the kernel stores is known only after setting
    /// it.
    #[serde(default)]
    pub amends: bool,
}

/// Removes records that a later record of the same knob replaces.
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
    /// After a reboot knobs, mounts, loop devices and cgroups no longer exist.
    boot: String,
}

/// The journal of a running setup. Its file is locked while its owner lives.
#[derive(Debug)]
pub struct UndoLog {
    file: File,
    dir: Dir,
    name: String,
    path: PathBuf,
    records: Vec<Undo>,
}

/// The kernel's id of this boot; empty if it cannot be read.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

impl UndoLog {
    /// Creates a journal. It gets the name that `recover` looks for only when it is locked and its head is on disk, so
    /// that a starting run is never mistaken for a dead one.
    pub fn create(state: &Dir) -> io::Result<UndoLog> {
        let pid = std::process::id();
        for number in 0..10_000 {
            let name = format!("setup-{pid}-{number}{ENDING}");
            if state.exists(&name) {
                continue;
            }
            let begun = format!("setup-{pid}-{number}{BEGUN}");
            // Left by an earlier process with the same id that died during these lines.
            let _ = state.remove(&begun);
            let file = state.create(&begun)?;
            // A process in another pid namespace does not see this one and may be removing the file: try the next
            // number.
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => continue,
                locked => locked?,
            }
            let path = state.path().join(&name);
            let mut log = UndoLog { file, dir: state.clone(), name, path, records: Vec::new() };
            log.line(&Head { flatwater_journal: FORMAT, pid, boot: boot_id() })?;
            match state.rename(&begun, &log.name) {
                Err(gone) if gone.is_missing() => continue,
                renamed => renamed?,
            }
            // The directory entry must survive as well.
            state.sync()?;
            return Ok(log);
        }
        Err(io::Error::other(format!("{} is full of journals: run `flatwater restore`", state.path().display())))
    }

    fn line<T: Serialize>(&mut self, record: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }

    /// Writes a record; returns when it is on disk. Only then may the change be made.
    pub fn record(&mut self, undo: Undo) -> io::Result<()> {
        self.line(&undo)?;
        self.records.push(undo);
        Ok(())
    }

    /// The records to undo, last change first.
    pub fn last_first(&self) -> Vec<Undo> {
        let mut records = amended(self.records.iter().cloned());
        records.reverse();
        records
    }

    /// The locked file, for a started program that must keep it locked until it ends.
    #[must_use]
    pub fn descriptor(&self) -> std::os::fd::RawFd {
        self.file.as_raw_fd()
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the journal after everything is undone.
    pub fn finish(self) -> io::Result<()> {
        Ok(self.dir.remove(&self.name)?)
    }

    /// The names of the journals in a directory.
    pub fn names_in(state: &Dir) -> io::Result<Vec<String>> {
        let names = state.names()?.into_iter().map(|name| name.to_string_lossy().into_owned());
        Ok(names.filter(|name| name.ends_with(ENDING)).collect())
    }

    /// Removes the files of processes that died before their journal got its name; these had changed nothing.
    pub fn remove_begun(state: &Dir) -> io::Result<()> {
        for name in state.names()? {
            let name = name.to_string_lossy();
            let pid = name.strip_suffix(BEGUN).and_then(|name| name.strip_prefix("setup-")?.split('-').next());
            let lives = |pid: &str| pid.parse::<u32>().is_err() || Path::new("/proc").join(pid).exists();
            if pid.is_none_or(lives) {
                continue;
            }
            let Ok(file) = state.append(&name) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                match state.remove(&name) {
                    Err(gone) if gone.is_missing() => {}
                    removed => removed?,
                }
            }
        }
        Ok(())
    }

    /// Takes over a journal of a dead process; `None` if its owner lives.
    pub fn adopt(state: &Dir, name: &str, heir: Heir) -> io::Result<Option<(UndoLog, Age)>> {
        let mut file = state.append(name)?;
        match lock_of_the_dead(&file, heir)? {
            Lock::Taken => {}
            Lock::OwnerLives => return Ok(None),
            Lock::ProgramRuns => {
                let why = format!(
                    "the run that wrote it is dead, but a program that it started (mkfs, mount, losetup) still runs \
                     after {} s: run `flatwater restore` when it has ended",
                    PROGRAM_PATIENCE.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        // The owner may have finished and removed the file between the open and the lock.
        if file.metadata()?.nlink() == 0 {
            return Ok(None);
        }
        let mut text = String::new();
        Read::by_ref(&mut file).take(JOURNAL_BYTES_MAX).read_to_string(&mut text)?;
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok());
        let head = head.ok_or_else(|| io::Error::other("it has no head, so flatwater did not write it: remove it"))?;
        if head.flatwater_journal != FORMAT {
            let why = format!(
                "it has format {} of another version, and this version undoes format {FORMAT}: use that version's \
                 `restore`, or restore by hand what it lists, then remove it",
                head.flatwater_journal
            );
            return Err(io::Error::other(why));
        }
        let age = if head.boot == boot_id() { Age::SameBoot } else { Age::OlderBoot };
        // An incomplete last line belongs to a change that had not been made.
        let records = lines.map_while(|line| serde_json::from_str(line).ok()).collect();
        let path = state.path().join(name);
        Ok(Some((UndoLog { file, dir: state.clone(), name: name.to_owned(), path, records }, age)))
    }
}

/// The result of waiting for a journal's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Taken,
    OwnerLives,
    /// The owner is dead, but a program that it started has the lock: nothing can be undone yet.
    ProgramRuns,
}

/// Takes the lock if the journal's owner is dead. A mkfs or mount that the owner started may still run and have the
/// lock: undoing now would miss what it is about to make, so this waits for it.
fn lock_of_the_dead(file: &File, heir: Heir) -> io::Result<Lock> {
    let until = Instant::now() + PROGRAM_PATIENCE;
    loop {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(Lock::Taken);
        }
        let mut head = [0; 4096];
        let length = file.read_at(&mut head, 0)?;
        let text = String::from_utf8_lossy(head.get(..length).unwrap_or_default());
        let owner = text.lines().next().and_then(|line| serde_json::from_str::<Head>(line).ok());
        let lives = owner.is_none_or(|head| {
            let ourselves = heir == Heir::Successor && head.pid == std::process::id();
            !ourselves && Path::new("/proc").join(head.pid.to_string()).exists()
        });
        if lives {
            return Ok(Lock::OwnerLives);
        }
        if Instant::now() > until {
            return Ok(Lock::ProgramRuns);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Which process takes over a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    Stranger,
    /// The process that wrote the journal, after an exec: it has the same id, but the writer is gone.
    Successor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    SameBoot,
    OlderBoot,
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flatwater_safefs::Dir;

    use super::{Age, Heir, KnobUndo, Undo, UndoLog, amended};
    use crate::setup::knobs::KnobFile;
    use crate::setup::place::Place;

    #[test]
    fn a_journal_is_adopted_after_its_owner_is_gone_without_a_torn_line() {
        let place = tempfile::tempdir().expect("a directory");
        let state = Dir::open_own(place.path()).expect("ours");
        let mut log = UndoLog::create(&state).expect("a journal");
        let name = log.name.clone();
        let at = |name| Place::new(&state, name).expect("a place");
        let mount = Undo::Mount { target: at("flatwater-x") };
        let remove = Undo::Remove { place: at("flatwater-y") };
        log.record(mount.clone()).expect("recorded");
        log.record(remove.clone()).expect("recorded");
        assert!(UndoLog::adopt(&state, &name, Heir::Stranger).expect("readable").is_none(), "its owner lives");
        log.file.write_all(b"{\"undo\":\"mou").expect("torn");
        drop(log);
        let (adopted, age) =
            UndoLog::adopt(&state, &name, Heir::Stranger).expect("readable").expect("its owner has ended");
        assert_eq!(age, Age::SameBoot);
        assert_eq!(adopted.last_first(), [remove, mount]);
        adopted.finish().expect("removed");
        assert!(!state.exists(&name));
    }

    /// S18: between creating a journal's name and locking it, another run's `recover` could adopt the journal, find
    /// nothing to undo, and remove it; its owner went on writing to an unlinked file.
    #[test]
    fn no_journal_of_a_starting_run_is_adopted() {
        let place = tempfile::tempdir().expect("a directory");
        let state = Dir::open_own(place.path()).expect("ours");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for name in UndoLog::names_in(&state).expect("listed") {
                        if let Ok(Some((stolen, _))) = UndoLog::adopt(&state, &name, Heir::Stranger) {
                            // What recover does with an empty journal.
                            stolen.finish().expect("removed");
                        }
                    }
                }
            });
            for _ in 0..300 {
                let log = UndoLog::create(&state).expect("a journal");
                assert!(state.exists(&log.name), "it was adopted as a dead run's");
                log.finish().expect("removed");
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    /// From CI: a kill 5 ms after the start left `setup-PID-0.begun` forever.
    #[test]
    fn files_of_a_process_that_died_before_naming_its_journal_are_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let state = Dir::open_own(place.path()).expect("ours");
        let ours = format!("setup-{}-0.begun", std::process::id());
        // No process id is above the kernel's PID_MAX_LIMIT (include/linux/threads.h).
        let (dead, named_by_hand) = ("setup-4194305-3.begun", "setup-notes-0.begun");
        for name in [dead, &ours, named_by_hand, "notes.begun"] {
            drop(state.create(name).expect("made"));
        }
        let held = state.create("setup-4194306-0.begun").expect("made");
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("locked");
        UndoLog::remove_begun(&state).expect("looked through");
        assert!(!state.exists(dead));
        for kept in [ours.as_str(), named_by_hand, "notes.begun", "setup-4194306-0.begun"] {
            assert!(state.exists(kept), "{kept} must be kept");
        }
    }

    #[test]
    fn a_journal_that_names_paths_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let state = Dir::open_own(place.path()).expect("ours");
        let old = format!("{{\"flatwater_journal\":1,\"pid\":1,\"boot\":\"{}\"}}\n", super::boot_id());
        let record = "{\"undo\":\"remove\",\"path\":\"/etc/passwd\"}\n";
        let mut file = state.create("setup-1-0.journal").expect("made");
        file.write_all((old + record).as_bytes()).expect("written");
        drop(file);
        let why = UndoLog::adopt(&state, "setup-1-0.journal", Heir::Stranger).expect_err("refused").to_string();
        assert!(why.contains("format 1"), "{why}");
    }

    #[test]
    fn an_amendment_replaces_only_the_last_record_of_the_same_knob() {
        let knob = |key: &str, new: &str, old: &str, amends| {
            let (file, held) = (KnobFile::of("vm.swappiness", None), String::new());
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
