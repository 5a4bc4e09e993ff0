//! Why a run or a recording on this machine cannot start, or did not end cleanly.

use std::path::PathBuf;

use super::setup::SetupError;
use super::setup::preflight::Misfit;
use flatwater_recording::WriteError;

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{} is not a directory that can be used: {why}; give another with -d", path.display())]
    Directory { path: PathBuf, why: String },
    #[error("{} is on a read-only file system; give another directory with -d", path.display())]
    ReadOnly { path: PathBuf },
    #[error("cannot pin to CPU {cpu}: this process may run on {allowed}; give one of these with --cpu")]
    NoCpu { cpu: u32, allowed: String },
    #[error("cannot start the workload: {0}")]
    Workload(std::io::Error),
    #[error("process {pid} does not exist (any more): give the id of a running process")]
    NoProcess { pid: u32 },
    #[error(
        "{path} is not a cgroup: {why}; give a directory under /sys/fs/cgroup, or the path that /proc/PID/cgroup shows"
    )]
    NoCgroup { path: String, why: String },
    #[error(
        "no process runs {program}: `ps -e -o pid,comm` lists the running programs; give the name of the executable"
    )]
    NoProgram { program: String },
    #[error(transparent)]
    Cgroup(#[from] super::target::CgroupError),
    #[error("cannot read /proc: {0}; it must be mounted to find the processes to watch")]
    NoProc(std::io::Error),
    #[error("cannot follow calls of other programs: {why}")]
    NoTracing { why: super::tracer::TraceError },
    #[error(
        "--level 1 is not available: this kernel allows no hooks on functions ({why}); use --level 2 (as exact, but every \
         system call of the machine takes about {added_ns} ns longer) or --level 0 (no cost per system call; finds calls by their \
         sleeps)"
    )]
    NoFunctions { why: super::tracer::TraceError, added_ns: u64 },
    #[error(transparent)]
    User(#[from] super::privileges::UserError),
    #[error(transparent)]
    Privileges(#[from] super::privileges::PrivilegeError),
    #[error("cannot run '{command}'")]
    Command { command: String, source: std::io::Error },
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("the recording cannot be shared with the group: {why}")]
    Share { why: String },
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Misfit(#[from] Misfit),
    #[error("the run is over, but these could not be restored: {left}; `flatwater restore` tries again")]
    NotRestored { left: String },
}
