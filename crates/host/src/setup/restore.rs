//! Taking changes back: at the end of a run, and after a run that could not.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::undo::{Age, KnobUndo, Undo, UndoLog};
use super::{Log, knobs, state, volume};

/// How long to wait for what the kernel finishes later: a killed process, a busy mount, a loop device.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// What undoing did, for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// `vm.swappiness: 10 -> 60`, `unmounted ...`.
    pub done: Vec<String>,
    /// Left as they are, because somebody else changed them after us.
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

/// Undoes everything in the journal, last first, and removes it if all of it worked.
pub fn undo_all(journal: UndoLog, age: Age, log: &Log) -> Restored {
    undo(journal, age, false, log)
}

fn undo(journal: UndoLog, age: Age, recovering: bool, log: &Log) -> Restored {
    let mut restored = Restored::default();
    for undo in journal.last_first() {
        // A later boot has other values and devices of the same names: only files are still ours.
        let survives_boot = matches!(undo, Undo::Remove { .. } | Undo::RemoveTree { .. });
        if age == Age::SameBoot || survives_boot {
            restored.add(take_back(&undo, recovering, log), log);
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
    let mut all = Restored::default();
    for journal in journals() {
        match UndoLog::adopt(&journal) {
            Ok(None) => {}
            Ok(Some((undo, age))) => {
                log(&format!("an earlier run was killed; restoring what it had changed ({})", journal.display()));
                let restored = self::undo(undo, age, true, log);
                all.done.extend(restored.done);
                all.stepped_back.extend(restored.stepped_back);
                all.failed.extend(restored.failed);
            }
            Err(error) => all.add(Outcome::Failed(format!("cannot read {}: {error}", journal.display())), log),
        }
    }
    all
}

/// Journals in every place that belongs to this user alone.
fn journals() -> Vec<PathBuf> {
    let places = state::candidates().into_iter().filter(|place| state::check_owner(place).is_ok());
    let entries = places.filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "journal")).collect();
    found.sort();
    found
}

fn take_back(undo: &Undo, recovering: bool, log: &Log) -> Outcome {
    match undo {
        Undo::Knob(knob) => take_back_knob(knob),
        Undo::Throttle { file, clear } => match std::fs::write(file, clear) {
            Ok(()) => Outcome::Nothing,
            // The cgroup or the device is gone, and the limit with it.
            Err(error) if is_gone(&error) => Outcome::Nothing,
            Err(error) => Outcome::Failed(format!("cannot lift the limit in {}: {error}", file.display())),
        },
        Undo::Cgroup { dir, origin } => remove_cgroup(dir, origin),
        Undo::Loop { image } => detach(image),
        Undo::Mount { target } => unmount(target, log),
        Undo::Remove { path } => remove(path),
        Undo::RemoveTree { path } => {
            end_our_processes_in(path);
            let outcome = removed(path, retry(|| std::fs::remove_dir_all(path)));
            // At the end of a run that is what everybody expects; after a killed one somebody may look for them.
            if recovering && matches!(outcome, Outcome::Nothing) {
                return Outcome::Done(format!("removed {} and what was in it", path.display()));
            }
            outcome
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ENXIO))
}

fn take_back_knob(knob: &KnobUndo) -> Outcome {
    let KnobUndo { key, file, new, held, restore_file, old, unchecked, amends: _ } = knob;
    let failed = |error: io::Error| Outcome::Failed(format!("cannot restore {key} to {old}: {error}"));
    let current = match knobs::read(file) {
        Ok(current) => current,
        Err(error) if is_gone(&error) => return Outcome::Nothing,
        Err(error) => return failed(error),
    };
    let already = knobs::read(restore_file).is_ok_and(|value| value == *old);
    if already && (current != *new || file == restore_file || old == new) {
        return Outcome::Nothing;
    }
    if current != *new && !unchecked {
        let text = format!(
            "STEPPED BACK from {key}: it is {current}, flatwater had set {new} (before: {old}), so somebody else changed it \
             since; left as it is"
        );
        return Outcome::SteppedBack(text);
    }
    match knobs::write(restore_file, old) {
        // A device that was made for the run goes away too: nobody asks what the kernel remembers of its number.
        Ok(()) if *unchecked => Outcome::Nothing,
        Ok(()) => {
            let before = if held.is_empty() { old } else { held };
            let by =
                if restore_file == file { String::new() } else { format!(", by {} = {old}", name_of(restore_file)) };
            let (from, to) = (knobs::told(key, &current), knobs::told(key, before));
            Outcome::Done(format!("restored {key}: {from} -> {to}{by}"))
        }
        Err(error) => failed(error),
    }
}

fn name_of(file: &Path) -> String {
    file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Repeats until it works, it cannot work, or patience ends.
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

fn remove(path: &Path) -> Outcome {
    let is_dir = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    removed(path, if is_dir { retry(|| std::fs::remove_dir(path)) } else { std::fs::remove_file(path) })
}

fn remove_cgroup(dir: &Path, origin: &Path) -> Outcome {
    let procs = dir.join("cgroup.procs");
    let emptied = retry(|| {
        let Ok(members) = std::fs::read_to_string(&procs) else { return Ok(()) };
        for pid in members.lines() {
            if is_ours(pid) && pid.parse() != Ok(std::process::id()) {
                kill(pid);
            } else {
                // Ourselves at the end of a run, or somebody who was put there: back to where we came from.
                let _ = std::fs::write(origin.join("cgroup.procs"), pid);
            }
        }
        std::fs::remove_dir(dir)
    });
    removed(dir, emptied)
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
                Ok(()) => format!("detached {name}, and with it the limits that were set on it"),
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
    let target = target.display().to_string().replace(' ', "\\040");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(target.as_str()))
}

fn unmount(target: &Path, log: &Log) -> Outcome {
    if !is_mounted(target) {
        return Outcome::Nothing;
    }
    let flags = rustix::mount::UnmountFlags::empty();
    let result = retry(|| {
        let result = rustix::mount::unmount(target, flags).map_err(io::Error::from);
        if result.is_err() {
            end_our_processes_in(target);
        }
        result
    });
    match result {
        Ok(()) => Outcome::Done(format!("unmounted {}", target.display())),
        Err(error) => {
            log(&format!("{} is busy ({error}): detaching it lazily", target.display()));
            match rustix::mount::unmount(target, rustix::mount::UnmountFlags::DETACH) {
                Ok(()) => Outcome::Done(format!("unmounted {} lazily", target.display())),
                Err(error) => Outcome::Failed(format!("cannot unmount {}: {error}", target.display())),
            }
        }
    }
}

/// Runs our own program: a workload's process that outlived the run that started it.
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

/// Ends processes of ours, other than this one, that hold something open under `dir`.
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

    use super::{Outcome, take_back_knob};
    use crate::setup::undo::KnobUndo;

    fn knob(dir: &Path, held: &str) -> KnobUndo {
        let file: PathBuf = dir.join("knob");
        std::fs::write(&file, held).expect("written");
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

    #[test]
    fn a_knob_is_written_back_only_if_it_still_holds_what_we_set() {
        let dir = tempfile::tempdir().expect("a directory");
        let held = || std::fs::read_to_string(dir.path().join("knob")).expect("readable");
        assert!(matches!(take_back_knob(&knob(dir.path(), "10\n")), Outcome::Done(_)));
        assert_eq!(held(), "60");
        assert!(matches!(take_back_knob(&knob(dir.path(), "60\n")), Outcome::Nothing), "it had not been set yet");
        assert!(matches!(take_back_knob(&knob(dir.path(), "33\n")), Outcome::SteppedBack(_)));
        assert_eq!(held(), "33\n");
    }

    #[test]
    fn the_coupled_file_is_written_where_the_kernel_clears_one_by_the_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut undo = knob(dir.path(), "10\n");
        undo.restore_file = dir.path().join("ratio");
        undo.old = "20".to_owned();
        std::fs::write(&undo.restore_file, "0\n").expect("written");
        assert!(matches!(take_back_knob(&undo), Outcome::Done(_)));
        assert_eq!(std::fs::read_to_string(&undo.restore_file).expect("readable"), "20");
        std::fs::write(&undo.file, "0\n").expect("what the kernel does");
        assert!(matches!(take_back_knob(&undo), Outcome::Nothing), "twice is the same as once");
    }
}
