//! The probe's side of a child process.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::CHILD_VERB;
use super::child::{Command, FAILED, Order, SAMPLE};
use super::plan::Operation;

const POLL: Duration = Duration::from_millis(50);

/// Start and duration of calls by operation, ns.
pub type Samples = Vec<Vec<(u64, u64)>>;

/// Why a child did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    #[error("{0}")]
    Failed(String),
    #[error("it ended; `dmesg` shows whether the kernel killed it for memory")]
    Ended,
    #[error("it did not answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("interrupted")]
    Interrupted,
}

/// A child that ends when it is dropped.
#[derive(Debug)]
pub struct Worker {
    child: process::Child,
    commands: Option<ChildStdin>,
    answers: Receiver<String>,
    samples: Arc<Mutex<Samples>>,
}

impl Worker {
    /// Starts a child in this directory. It is not in the terminal's process group: ^C reaches only the probe, which
    /// ends its children in order.
    pub fn start(order: &Order, directory: &Path) -> std::io::Result<Worker> {
        let mut child = process::Command::new("/proc/self/exe")
            .arg(CHILD_VERB)
            .current_dir(directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut commands = child.stdin.take();
        if let Some(commands) = &mut commands {
            let line = serde_json::to_string(order).map_err(std::io::Error::other)?;
            writeln!(commands, "{line}")?;
        }
        let (send, answers) = channel();
        let samples = Arc::new(Mutex::new(vec![Vec::new(); Operation::ALL.len()]));
        let kept = samples.clone();
        let output = child.stdout.take();
        std::thread::spawn(move || {
            let Some(output) = output else { return };
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(sample) = line.strip_prefix(SAMPLE) {
                    keep(&kept, sample);
                } else if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Worker { child, commands, answers, samples })
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command. The wait for the answer notices a dead child.
    pub fn send(&mut self, command: Command) {
        if let Some(commands) = &mut self.commands
            && let Ok(line) = serde_json::to_string(&command)
        {
            let _ = writeln!(commands, "{line}");
        }
    }

    /// The next answer, within this time.
    pub fn answer(&self, within: Duration, stop: &AtomicBool) -> Result<String, Silence> {
        let until = Instant::now() + within;
        loop {
            match self.answers.recv_timeout(POLL) {
                Ok(line) => match line.strip_prefix(FAILED) {
                    Some(why) => return Err(Silence::Failed(why.to_owned())),
                    None => return Ok(line),
                },
                Err(RecvTimeoutError::Disconnected) => return Err(Silence::Ended),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Err(Silence::Interrupted),
                Err(RecvTimeoutError::Timeout) if Instant::now() > until => return Err(Silence::Late(within)),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Sends a command and waits for its answer.
    pub fn ask(&mut self, command: Command, within: Duration, stop: &AtomicBool) -> Result<String, Silence> {
        self.send(command);
        self.answer(within, stop)
    }

    /// The samples received so far.
    #[must_use]
    pub fn samples(&self) -> Samples {
        std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keep(samples: &Mutex<Samples>, line: &str) {
    let mut numbers = line.split(' ').map_while(|word| word.parse::<u64>().ok());
    let (Some(operation), Some(start_ns), Some(duration_ns)) = (numbers.next(), numbers.next(), numbers.next()) else {
        return;
    };
    let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(calls) = samples.get_mut(usize::try_from(operation).unwrap_or(usize::MAX)) {
        calls.push((start_ns, duration_ns));
    }
}
