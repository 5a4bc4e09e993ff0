//! Performs the runs of a what-if that continue from one warm machine, each in a forked copy of this process.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};

use super::search::{measure, with_settings};
use super::{Goal, Tried, WhatifError};
use flatwater_recording::Recording;
use flatwater_workload::scenario::Scenario;

type Settings = Vec<(&'static str, String)>;

/// A running copy, and the pipe on which it answers.
struct Copy {
    number: usize,
    pid: Pid,
    pipe: File,
}

/// The answer of a copy before it ends.
#[derive(Serialize, Deserialize)]
enum Answer {
    Performed(Tried),
    Failed { why: String },
}

/// As `search`, for a `perform` that changes the state it runs on (a warm machine): each call runs in a forked copy of
/// the process, at most `jobs` at a time. Call it only while the process has a single thread.
pub fn search_copies<E: std::fmt::Display>(
    scenario: &Scenario,
    settings: &[Settings],
    goal: Goal,
    jobs: usize,
    perform: &dyn Fn(&Scenario) -> Result<Recording, E>,
    progress: &dyn Fn(usize),
) -> Result<Vec<Tried>, WhatifError> {
    let run = |number: usize, set: &Settings| {
        let changed = with_settings(scenario, set)?;
        let recording = perform(&changed).map_err(|error| WhatifError::Run { number, why: error.to_string() })?;
        measure(&recording, set, goal)
    };
    let mut running: Vec<Copy> = Vec::new();
    let mut tried: Vec<Option<Tried>> = settings.iter().map(|_| None).collect();
    let mut failed = None;
    let mut next = settings.iter().enumerate();
    let mut done = 0;
    loop {
        while running.len() < jobs.max(1) && failed.is_none() {
            let Some((number, set)) = next.next() else { break };
            match copy(|| run(number, set)) {
                Ok((pid, pipe)) => running.push(Copy { number, pid, pipe: File::from(pipe) }),
                Err(error) => failed = Some(WhatifError::Copy { why: error.to_string() }),
            }
        }
        if running.is_empty() {
            break;
        }
        let Some((number, ended)) = ended(&mut running) else { continue };
        match ended {
            Answer::Performed(one) => {
                tried[number] = Some(Tried { settings: settings[number].clone(), ..one });
                done += 1;
                progress(done);
            }
            Answer::Failed { why } => failed = failed.or(Some(WhatifError::Run { number, why })),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(tried.into_iter().flatten().collect()),
    }
}

/// Waits until one of the copies answers or ends, and removes it from `running`; `None` after a signal.
fn ended(running: &mut Vec<Copy>) -> Option<(usize, Answer)> {
    let mut polled: Vec<PollFd<'_>> = running.iter().map(|copy| PollFd::new(&copy.pipe, PollFlags::IN)).collect();
    let asked = poll(&mut polled, None);
    let ready = polled.iter().position(|one| !one.revents().is_empty());
    drop(polled);
    let mut copy = running.swap_remove(match (ready, asked) {
        (Some(place), _) => place,
        // A signal arrived: the caller calls again.
        (None, Ok(_) | Err(Errno::INTR)) => return None,
        (None, Err(_)) => 0,
    });
    let mut text = String::new();
    let read = copy.pipe.read_to_string(&mut text);
    let _ = waitpid(Some(copy.pid), WaitOptions::empty());
    let answer = match (read, serde_json::from_str(&text)) {
        (Ok(_), Ok(answer)) => answer,
        (Ok(_), Err(_)) => {
            Answer::Failed { why: "the copy of the machine ended without a result (out of memory?)".to_owned() }
        }
        (Err(error), _) => Answer::Failed { why: error.to_string() },
    };
    Some((copy.number, answer))
}

/// Forks. The copy calls `run`, writes its answer to the pipe and exits.
fn copy(run: impl FnOnce() -> Result<Tried, WhatifError>) -> std::io::Result<(Pid, OwnedFd)> {
    let (from, to) = rustix::pipe::pipe()?;
    // SAFETY: the caller has a single thread, so the copy cannot inherit a lock of a thread that it does not have. The
    // copy leaves through _exit, so that it neither flushes nor drops anything of the parent a second time.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            drop(from);
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            let answer = match ran {
                Ok(Ok(tried)) => Answer::Performed(tried),
                Ok(Err(error)) => Answer::Failed { why: error.to_string() },
                Err(_) => Answer::Failed { why: "it panicked; this is a bug".to_owned() },
            };
            let text = serde_json::to_string(&answer).unwrap_or_default();
            let wrote = File::from(to).write_all(text.as_bytes());
            // SAFETY: _exit ends this process at once and touches no memory.
            unsafe { libc::_exit(i32::from(wrote.is_err())) }
        }
        pid => Ok((Pid::from_raw(pid).ok_or_else(std::io::Error::last_os_error)?, from)),
    }
}
