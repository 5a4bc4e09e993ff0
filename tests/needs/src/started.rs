//! A program that a test starts. It is killed at the end of the test, together with its children.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

/// The leader of a new process group; the group is killed on drop.
#[derive(Debug)]
pub struct Started(Child);

impl Started {
    /// Starts this shell script in this directory, without input or output.
    ///
    /// # Panics
    /// If sh cannot be started.
    #[must_use]
    pub fn shell(script: &str, directory: &Path) -> Started {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(directory).process_group(0);
        Started(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sh starts"))
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}
