//! Starts the command of `record -- CMD`: holds it back until the tracer follows it, and runs it as the requested user.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use super::error::HostError;
use super::privileges::User;
use super::session::Session;

/// A started command, stopped before its first instruction until the tracer has added it as a target. If it still runs
/// when the recording ends, it keeps running.
#[derive(Debug)]
pub struct Launched(Child);

impl Launched {
    pub fn start(
        program: &OsString,
        arguments: &[OsString],
        user: Option<&User>,
        session: &mut Session,
    ) -> Result<Launched, HostError> {
        let failed = |source: io::Error| HostError::Command { command: program.to_string_lossy().into_owned(), source };
        let (mut pid_reader, pid_writer) = io::pipe().map_err(failed)?;
        let (go_reader, mut go_writer) = io::pipe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments);
        let (tell_pid, wait_go) = (pid_writer.as_raw_fd(), go_reader.as_raw_fd());
        // SAFETY: between fork and exec the closure only reads, writes and closes descriptors that the child has
        // inherited, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                let pid = rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes();
                let reported = libc::write(tell_pid, pid.as_ptr().cast(), pid.len());
                let mut go = [0_u8; 1];
                let heard = libc::read(wait_go, go.as_mut_ptr().cast(), 1);
                if reported == 4 && heard == 1 { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
            });
        }
        if let Some(user) = user {
            user.become_in(&mut command);
        }
        // `spawn` returns only after the exec, and the exec waits for this function, so `spawn` needs its own thread.
        let spawning = std::thread::spawn(move || {
            let spawned = command.spawn();
            drop((pid_writer, go_reader));
            spawned
        });
        let mut pid = [0_u8; 4];
        if pid_reader.read_exact(&mut pid).is_ok() {
            let pid = i32::from_ne_bytes(pid).cast_unsigned();
            session.add_process(pid)?;
        }
        let _ = go_writer.write_all(&[1]);
        let spawned = spawning.join().unwrap_or_else(|_| Err(io::Error::other("the spawning thread panicked")));
        spawned.map(Launched).map_err(failed)
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}
