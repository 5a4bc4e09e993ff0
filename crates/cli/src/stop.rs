//! How signals end a command: the first one in order, the second one at once; both restore what the command changed.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::common::say;
use crate::status::Status;
use flatwater_host::signals::block_endings;

/// What happens on the second signal before the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// Nothing: the command does not change the machine.
    Leave,
    /// Restore what the run changed, as after kill -9.
    Restore,
}

/// Whether a signal has asked the command to end, and which one.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    pub flag: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
}

impl Stop {
    /// The exit status of a command that a signal cut short: 128 plus the signal's number, as in shells.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let signal = self.signal.load(Ordering::SeqCst);
        (signal > 0).then_some(Status::Signal(signal))
    }
}

/// Whether the process was started with this signal ignored, as `nohup` does with SIGHUP.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

/// Handles SIGINT, SIGTERM and SIGHUP: the first one raises the flag, so that the run ends with a summary; the second
/// one ends the process at once. SIGHUP that was ignored at the start stays ignored (`nohup`). SIGINT does not: scripts
/// start their background jobs with SIGINT ignored, and `kill -INT` must end these.
pub fn on_signal(at_once: AtOnce) -> anyhow::Result<Stop> {
    let stop = Stop::default();
    let raised = stop.clone();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP));
    let wanted: Vec<i32> = wanted.collect();
    let mut signals = signal_hook::iterator::Signals::new(wanted).context("cannot watch signals")?;
    std::thread::Builder::new().name("fw-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if raised.flag.swap(true, Ordering::SeqCst) {
                say(format_args!("flatwater: stopping at once; `flatwater explain` can read the recording so far"));
                if at_once == AtOnce::Restore {
                    become_restore(signal);
                }
                std::process::exit(128 + signal);
            }
            raised.signal.store(signal, Ordering::SeqCst);
            say(format_args!("flatwater: ending; a second signal stops at once"));
        }
    })?;
    Ok(stop)
}

/// Executes `flatwater restore`. The exec ends all other threads at once, so that nothing changes any more while it
/// restores, and releases the lock of the journal. Signals are blocked first, because a further one between the exec
/// and the first line of `restore` would leave the machine half restored. Returns only if the exec fails.
fn become_restore(signal: i32) {
    if let Err(error) = block_endings() {
        say(format_args!("flatwater: cannot block signals ({error}): a further signal may interrupt the restoring"));
    }
    let error = Command::new("/proc/self/exe").args(["restore", "--after-signal", &signal.to_string()]).exec();
    say(format_args!("flatwater: cannot restore now ({error}): run `flatwater restore`"));
}
