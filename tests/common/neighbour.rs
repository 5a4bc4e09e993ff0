//! Processes that load the machine beside the measured one: this test binary again, with a task in its environment.
//! They run for a bounded time. Dropping a [`Neighbour`] kills the process, and so does the kernel if the test dies
//! first.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TASK: &str = "FLATWATER_NEIGHBOUR";

/// The work of a neighbour.
#[derive(Clone, Debug)]
pub enum Task {
    /// Streams dirty pages to a file in writes of 256 KiB; rewinds after 256 MiB.
    Stream(PathBuf),
    /// Repeatedly appends 4 KiB and calls fsync.
    Sync(PathBuf),
    /// Burns CPU.
    Spin,
    /// Appends 220 bytes every 200 us.
    Journal(PathBuf),
    /// Appends 220 bytes and calls fdatasync, every 5 ms.
    SyncedJournal(PathBuf),
    /// Drops a file from the page cache, maps it and reads a byte of each MiB, once.
    MapRead(PathBuf),
}

impl Task {
    fn words(&self) -> (&'static str, &Path) {
        match self {
            Task::Stream(path) => ("stream", path),
            Task::Sync(path) => ("sync", path),
            Task::Spin => ("spin", Path::new("")),
            Task::Journal(path) => ("journal", path),
            Task::SyncedJournal(path) => ("synced-journal", path),
            Task::MapRead(path) => ("map-read", path),
        }
    }

    fn from_words(name: &str, path: &str) -> Option<Task> {
        let path = PathBuf::from(path);
        Some(match name {
            "stream" => Task::Stream(path),
            "sync" => Task::Sync(path),
            "spin" => Task::Spin,
            "journal" => Task::Journal(path),
            "synced-journal" => Task::SyncedJournal(path),
            "map-read" => Task::MapRead(path),
            _ => return None,
        })
    }
}

/// A running neighbour.
pub struct Neighbour(Child);

impl Neighbour {
    /// Starts this binary's test `neighbour_process`. The process waits for `release`, so that it can be moved into
    /// a group first.
    pub fn start(task: &Task, time: Duration) -> Neighbour {
        let (name, path) = task.words();
        let mut command = Command::new(std::env::current_exe().expect("our own binary"));
        command.args(["--exact", "common::neighbour::neighbour_process", "--nocapture", "--test-threads=1"]);
        command.env(TASK, format!("{name}|{}|{}", time.as_millis(), path.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // SAFETY: prctl(PR_SET_PDEATHSIG) is a plain system call, safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command.spawn().expect("our own binary starts");
        // If all pages of a full group are under writeback, the OOM killer chooses a victim: prefer this
        // process.
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", child.id()), "1000");
        Neighbour(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn release(&mut self) {
        let _ = self.0.stdin.as_mut().expect("a pipe").write_all(b"go\n");
    }

    pub fn started(task: &Task, time: Duration) -> Neighbour {
        let mut neighbour = Neighbour::start(task, time);
        neighbour.release();
        neighbour
    }

    pub fn wait(mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Performs the task in the environment and exits; returns at once if there is none, as in a normal run of the tests.
pub fn run_if_asked() {
    let Ok(asked) = std::env::var(TASK) else { return };
    let mut words = asked.splitn(3, '|');
    let (name, ms, path) = (words.next(), words.next(), words.next());
    let task = Task::from_words(name.unwrap_or(""), path.unwrap_or("")).expect("a task that start() wrote");
    let ms = ms.and_then(|ms| ms.parse().ok()).expect("a time that start() wrote");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the line that release() writes");
    let end = Instant::now() + Duration::from_millis(ms);
    perform(&task, end);
    // Exit, so that this process does not run the other tests.
    std::process::exit(0);
}

fn append_to(path: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(path).expect("the neighbour's file")
}

fn perform(task: &Task, end: Instant) {
    match task {
        Task::Stream(path) => stream(path, end),
        Task::Sync(path) => {
            let mut file = append_to(path);
            while Instant::now() < end {
                let _ = file.write_all(&[7; 4096]);
                let _ = file.sync_all();
            }
        }
        Task::MapRead(path) => map_read(path),
        Task::Spin => while Instant::now() < end {},
        Task::Journal(path) => {
            let mut file = append_to(path);
            paced(end, Duration::from_micros(200), || drop(file.write_all(&[b'j'; 220])));
        }
        Task::SyncedJournal(path) => {
            let mut file = append_to(path);
            paced(end, Duration::from_millis(5), || {
                drop(file.write_all(&[b'j'; 220]));
                drop(file.sync_data());
            });
        }
    }
}

fn map_read(path: &Path) {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let file = File::open(path).expect("the file to read");
    let bytes = file.metadata().expect("its size").len() as usize;
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    // SAFETY: a new private mapping of a file that only this test uses; reads stay within its length.
    let sum = unsafe {
        let base = mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, &file, 0).expect("mmap");
        let touched = (0..bytes).step_by(1 << 20).map(|at| u64::from(base.cast::<u8>().add(at).read_volatile()));
        let sum: u64 = touched.sum();
        munmap(base, bytes).expect("munmap");
        sum
    };
    std::hint::black_box(sum);
}

fn stream(path: &Path, end: Instant) {
    let mut file = File::create(path).expect("the neighbour's file");
    let block = vec![42_u8; 256 << 10];
    let mut written = 0_usize;
    while Instant::now() < end {
        let _ = file.write_all(&block);
        written += block.len();
        if written >= 256 << 20 {
            written = 0;
            let _ = file.rewind();
        }
    }
}

/// Runs the operation once per period, open loop: a late operation does not delay the schedule.
fn paced(end: Instant, period: Duration, mut operation: impl FnMut()) {
    let mut due = Instant::now();
    while due < end {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        operation();
        due += period;
    }
}

/// The entry point of the process that a [`Neighbour`] starts. Passes at once without the variable.
#[test]
fn neighbour_process() {
    run_if_asked();
}
