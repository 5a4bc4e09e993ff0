//! Undoes changes at the end of a run, and after a run that was killed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flatwater_safefs::Dir;
use rustix::fs::{Mode, OFlags};

use super::cgroup::{CgroupDir, Throttle};
use super::knobs::KnobFile;
use super::limit::{Lifted, Limit};
use super::place::{NotOurs, Place};
use super::undo::{Age, Heir, KnobUndo, Undo, UndoLog};
use super::{Log, knobs, state, volume};
use crate::proc::mounts;

/// How long to wait for the kernel to finish with a killed process, a busy mount, or a loop device.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// The undone changes, for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Lines such as `restored vm.swappiness: 10 -> 60` or `unmounted ...`.
    pub done: Vec<String>,
    /// Settings left unchanged because another process changed them after the run did.
    pub stepped_back: Vec<String>,
    pub failed: Vec<String>,
}

impl Restored {
    fn add(&mut self, outcome: Outcome, log: &Log) {
        let (list, text) = match outcome {
            Outcome::Nothing => return,
            Outcome::Done(text) => (&mut self.done, text),
            Outcome::SteppedBack(text) => (&mut self.stepped_back, text),
            Outcome::Failed(text) => (&mut self.failed, text),
        };
        log(&text);
        list.push(text);
    }
}

enum Outcome {
    Nothing,
    Done(String),
    SteppedBack(String),
    Failed(String),
}

/// Undoes everything in the journal, last first, and removes the journal if everything worked.
pub fn undo_all(journal: UndoLog, age: Age, log: &Log) -> Restored {
    undo(journal, age, false, log)
}

fn undo(journal: UndoLog, age: Age, recovering: bool, log: &Log) -> Restored {
    let mut restored = Restored::default();
    for undo in journal.last_first() {
        // After a reboot the same names belong to other values and devices; only the files are still the run's.
        let survives_boot = matches!(undo, Undo::Remove { .. } | Undo::RemoveTree { .. });
        if age == Age::SameBoot || survives_boot {
            restored.add(take_back(&undo, age, recovering, log), log);
        }
    }
    let path = journal.path().to_owned();
    if restored.failed.is_empty() {
        if let Err(error) = journal.finish() {
            restored.add(Outcome::Failed(format!("cannot remove {}: {error}", path.display())), log);
        }
    } else {
        log(&format!("not everything could be restored; `flatwater restore` tries again ({})", path.display()));
    }
    restored
}

/// Undoes what dead runs left behind. Called at the start of every command that may change settings.
pub fn recover(log: &Log) -> Restored {
    recover_as(Heir::Stranger, log)
}

/// Like `recover`, for a process that was the run itself before an exec.
pub fn recover_as_successor(log: &Log) -> Restored {
    recover_as(Heir::Successor, log)
}

fn recover_as(heir: Heir, log: &Log) -> Restored {
    let mut all = Restored::default();
    for place in state::candidates() {
        let state = match Dir::trusted(&place) {
            Ok(state) => state,
            Err(refusal) if refusal.is_missing() => continue,
            Err(refusal) => {
                // A user who can write there could make flatwater change settings.
                all.add(Outcome::SteppedBack(format!("not searched for undo journals: {refusal}")), log);
                continue;
            }
        };
        if let Err(error) = UndoLog::remove_begun(&state) {
            let text = format!("cannot remove unfinished journals of killed runs in {}: {error}", place.display());
            all.add(Outcome::Failed(text), log);
        }
        for name in UndoLog::names_in(&state).unwrap_or_default() {
            let shown = place.join(&name);
            match UndoLog::adopt(&state, &name, heir) {
                Ok(None) => {}
                Ok(Some((undo, age))) => {
                    log(&format!("an earlier run was killed; restoring what it had changed ({})", shown.display()));
                    let restored = self::undo(undo, age, true, log);
                    all.done.extend(restored.done);
                    all.stepped_back.extend(restored.stepped_back);
                    all.failed.extend(restored.failed);
                }
                // Its owner has finished and removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => all.add(Outcome::Failed(format!("cannot use {}: {error}", shown.display())), log),
            }
        }
    }
    all
}

fn take_back(undo: &Undo, age: Age, recovering: bool, log: &Log) -> Outcome {
    match undo {
        Undo::Knob(knob) => take_back_knob(knob, &KnobFile::path),
        Undo::Throttle(throttle) => lift(throttle),
        Undo::Limit(limit) => lift_limit(limit),
        Undo::Cgroup(cgroup) => remove_cgroup(cgroup),
        Undo::Loop { image } => detach(&image.path()),
        Undo::Mount { target } => unmount(target, age, log),
        Undo::Remove { place } => remove(place, age),
        Undo::RemoveTree { place } => {
            let outcome = in_place(place, place.open_with_ours(age), |dir| {
                end_our_processes_in(&place.path());
                retry(|| Ok(dir.remove_tree(place.name())?))
            });
            // At the end of a run this is expected; after a killed run a user may look for the files.
            if recovering && matches!(outcome, Outcome::Nothing) {
                return Outcome::Done(format!("removed {} and its content", place.path().display()));
            }
            outcome
        }
    }
}

/// Runs `then` in the directory that a run used, if it is still the same and the name belongs to this user.
fn in_place(place: &Place, opened: Result<Option<Dir>, NotOurs>, then: impl FnOnce(&Dir) -> io::Result<()>) -> Outcome {
    match opened {
        Ok(Some(dir)) => removed(&place.path(), then(&dir)),
        Ok(None) => Outcome::Nothing,
        Err(why) => Outcome::SteppedBack(format!("Not restored: {}: {why}; left unchanged", place.path().display())),
    }
}

fn lift(throttle: &Throttle) -> Outcome {
    // The cgroup or the device is gone, and with it the limit.
    let Some((file, clear)) = throttle.clearing() else { return Outcome::Nothing };
    match std::fs::write(&file, clear) {
        Ok(()) => Outcome::Nothing,
        Err(error) if is_gone(&error) => Outcome::Nothing,
        Err(error) => Outcome::Failed(format!("cannot lift the limit in {}: {error}", file.display())),
    }
}

fn lift_limit(limit: &Limit) -> Outcome {
    match limit.lift() {
        Ok(Lifted::Removed) => Outcome::Done(format!("removed the limit {limit}")),
        Ok(Lifted::Foreign(value)) => {
            Outcome::SteppedBack(format!("Not restored: {limit} was changed by another process; it is {value}"))
        }
        Ok(Lifted::NotSet | Lifted::Gone) => Outcome::Nothing,
        Err(error) => Outcome::Failed(format!("cannot remove the limit {limit}: {error}")),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ENXIO))
}

fn take_back_knob(knob: &KnobUndo, path_of: &dyn Fn(&KnobFile) -> Option<PathBuf>) -> Outcome {
    let KnobUndo { key, file, new, held, restore_file, old, unchecked, amends: _ } = knob;
    let failed = |error: io::Error| Outcome::Failed(format!("cannot restore {key} to {old}: {error}"));
    let (Some(path), Some(restore_path)) = (path_of(file), path_of(restore_file)) else {
        return Outcome::Failed(format!("cannot restore {key}: this version does not know the knob"));
    };
    let current = match knobs::read(&path) {
        Ok(current) => current,
        Err(error) if is_gone(&error) => return Outcome::Nothing,
        Err(error) => return failed(error),
    };
    let already = knobs::read(&restore_path).is_ok_and(|value| value == *old);
    if already && (current != *new || file == restore_file || old == new) {
        return Outcome::Nothing;
    }
    if current != *new && !unchecked {
        let text = format!(
            "Not restored: {key} was changed by another process; it is {current}, flatwater had set {new} (before: \
             {old})"
        );
        return Outcome::SteppedBack(text);
    }
    match knobs::write(&restore_path, old) {
        // A device made for the run is removed as well, so its settings do not matter.
        Ok(()) if *unchecked => Outcome::Nothing,
        Ok(()) => {
            let before = if held.is_empty() { old } else { held };
            let by = if restore_file == file { String::new() } else { format!(", by {} = {old}", restore_file.name()) };
            let (from, to) = (knobs::described(key, &current), knobs::described(key, before));
            Outcome::Done(format!("restored {key}: {from} -> {to}{by}"))
        }
        Err(error) => failed(error),
    }
}

/// Repeats until the attempt succeeds, fails with another error, or `PATIENCE` is over.
fn retry(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if Instant::now() < until && may_pass(&error) => std::thread::sleep(POLL),
            other => return other,
        }
    }
}

fn may_pass(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty)
}

fn removed(path: &Path, result: io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Nothing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Nothing,
        Err(error) => Outcome::Failed(format!("cannot remove {}: {error}", path.display())),
    }
}

fn remove(place: &Place, age: Age) -> Outcome {
    in_place(place, place.open_with_ours(age), |dir| {
        let is_dir = rustix::fs::FileType::from_raw_mode(dir.stat(place.name())?.st_mode).is_dir();
        if is_dir { retry(|| Ok(dir.remove_dir(place.name())?)) } else { Ok(dir.remove(place.name())?) }
    })
}

fn remove_cgroup(cgroup: &CgroupDir) -> Outcome {
    let Some((dir, origin)) = cgroup.paths() else {
        return Outcome::Failed("cannot remove a cgroup: the journal does not name one that flatwater made".to_owned());
    };
    let own = rustix::process::geteuid().as_raw();
    let emptied = retry(|| {
        // Below the handle: who controls the cgroup above can replace this one, also while its members are moved.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::open(&dir, flags, Mode::empty())?;
        let owner = rustix::fs::fstat(&held)?.st_uid;
        if owner != own {
            return Err(io::Error::other(NotOurs::Owner { path: dir.clone(), owner }));
        }
        let members = rustix::fs::openat(&held, "cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let Ok(members) = members.map_err(io::Error::from).and_then(|file| io::read_to_string(File::from(file))) else {
            return Ok(());
        };
        for pid in members.lines() {
            if is_ours(pid) && pid.parse() != Ok(std::process::id()) {
                kill(pid);
            } else {
                // This process at the end of a run, or a foreign process that was moved here: back to the original
                // cgroup.
                let _ = std::fs::write(origin.join("cgroup.procs"), pid);
            }
        }
        std::fs::remove_dir(&dir)
    });
    match emptied {
        Err(error) if error.get_ref().is_some_and(|why| why.is::<NotOurs>()) => {
            Outcome::SteppedBack(format!("Not removed: {error}; left unchanged"))
        }
        emptied => removed(&dir, emptied),
    }
}

fn detach(image: &Path) -> Outcome {
    let mut last = None;
    let until = Instant::now() + PATIENCE;
    loop {
        let loops = volume::loops_of(image);
        if loops.is_empty() {
            return last.map_or(Outcome::Nothing, Outcome::Done);
        }
        for name in &loops {
            last = Some(match volume::detach(name) {
                Ok(()) => format!("detached {name}, which also removes its limits"),
                Err(error) => format!("{name}: {error}"),
            });
        }
        if Instant::now() > until {
            return Outcome::Failed(format!("{} is still in use ({})", loops.join(", "), last.unwrap_or_default()));
        }
        std::thread::sleep(POLL);
    }
}

fn is_mounted(target: &Path) -> bool {
    mounts::read().unwrap_or_default().iter().any(|mount| mount.point == target)
}

fn unmount(place: &Place, age: Age, log: &Log) -> Outcome {
    let target = place.path();
    if !is_mounted(&target) {
        return Outcome::Nothing;
    }
    let dir = match place.open(age) {
        Ok(Some(dir)) => dir,
        Ok(None) => return Outcome::Nothing,
        Err(why) => {
            return Outcome::SteppedBack(format!("Not restored: {}: {why}; left mounted", target.display()));
        }
    };
    // Below the handle and without following a link, so that only what was mounted there is unmounted.
    let held = dir.proc_path().join(place.name());
    let result = retry(|| {
        let result = rustix::mount::unmount(&held, rustix::mount::UnmountFlags::NOFOLLOW).map_err(io::Error::from);
        if result.is_err() {
            end_our_processes_in(&target);
        }
        result
    });
    match result {
        Ok(()) => Outcome::Done(format!("unmounted {}", target.display())),
        Err(error) => {
            log(&format!("{} is busy ({error}): detaching it lazily", target.display()));
            let flags = rustix::mount::UnmountFlags::NOFOLLOW | rustix::mount::UnmountFlags::DETACH;
            match rustix::mount::unmount(&held, flags) {
                Ok(()) => Outcome::Done(format!("unmounted {} lazily", target.display())),
                Err(error) => Outcome::Failed(format!("cannot unmount {}: {error}", target.display())),
            }
        }
    }
}

/// Whether the process runs this program: a workload's process that outlived its run.
fn is_ours(pid: &str) -> bool {
    let exe = |pid: &str| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    pid.bytes().all(|byte| byte.is_ascii_digit()) && exe(pid).is_some() && exe(pid) == exe("self")
}

fn kill(pid: &str) {
    let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Kills processes of this program, other than this one, that have a file open under `dir`.
fn end_our_processes_in(dir: &Path) {
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    let own = std::process::id().to_string();
    for pid in processes.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        if pid == own || !is_ours(&pid) {
            continue;
        }
        let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let holds = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|path| path.starts_with(dir));
        if open.flatten().any(holds) {
            kill(&pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Outcome, is_mounted, take_back_knob};
    use crate::setup::knobs::KnobFile;
    use crate::setup::undo::KnobUndo;

    fn knob(dir: &Path, held: &str) -> KnobUndo {
        std::fs::write(dir.join("swappiness"), held).expect("written");
        let file = KnobFile::of("vm.swappiness", None);
        let (new, old) = ("10".to_owned(), "60".to_owned());
        KnobUndo {
            key: "vm.swappiness".into(),
            file: file.clone(),
            new,
            held: old.clone(),
            restore_file: file,
            old,
            unchecked: false,
            amends: false,
        }
    }

    /// Maps knobs to files of the same names in a directory of the test.
    fn in_dir(dir: &Path) -> impl Fn(&KnobFile) -> Option<PathBuf> {
        let dir = dir.to_owned();
        move |file| Some(dir.join(file.name()))
    }

    /// S8: fails on 9232d20c, which left such a mount and its loop device forever.
    #[test]
    fn s8_a_mount_is_found_with_any_characters_in_its_path() {
        use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
        let place = tempfile::tempdir().expect("a directory");
        for name in ["plain", "a\\b", "a\\040b", "tab\there", "line\nend", "a b", "#"] {
            let target = place.path().join(name);
            std::fs::create_dir(&target).expect("made");
            assert!(!is_mounted(&target), "{name:?}");
            mount("none", &target, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).expect("mounted, as root");
            let found = is_mounted(&target);
            unmount(&target, UnmountFlags::DETACH).expect("unmounted");
            assert!(found, "{name:?}");
            assert!(!is_mounted(&target), "{name:?}");
        }
    }

    #[test]
    fn a_knob_is_restored_only_if_it_still_has_the_value_that_was_set() {
        let dir = tempfile::tempdir().expect("a directory");
        let held = || std::fs::read_to_string(dir.path().join("swappiness")).expect("readable");
        assert!(matches!(take_back_knob(&knob(dir.path(), "10\n"), &in_dir(dir.path())), Outcome::Done(_)));
        assert_eq!(held(), "60");
        assert!(
            matches!(take_back_knob(&knob(dir.path(), "60\n"), &in_dir(dir.path())), Outcome::Nothing),
            "it had not been set yet"
        );
        assert!(matches!(take_back_knob(&knob(dir.path(), "33\n"), &in_dir(dir.path())), Outcome::SteppedBack(_)));
        assert_eq!(held(), "33\n");
    }

    #[test]
    fn a_coupled_knob_is_restored_through_the_other_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut undo = knob(dir.path(), "10\n");
        undo.restore_file = KnobFile::of("vm.dirty_ratio", None);
        undo.old = "20".to_owned();
        let ratio = dir.path().join("dirty_ratio");
        std::fs::write(&ratio, "0\n").expect("written");
        assert!(matches!(take_back_knob(&undo, &in_dir(dir.path())), Outcome::Done(_)));
        assert_eq!(std::fs::read_to_string(&ratio).expect("readable"), "20");
        std::fs::write(dir.path().join("swappiness"), "0\n").expect("what the kernel does");
        assert!(matches!(take_back_knob(&undo, &in_dir(dir.path())), Outcome::Nothing), "twice is the same as once");
    }
}
