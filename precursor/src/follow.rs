//! For programs that cannot be changed: follows a foreign writer's position and keeps the next window of its file allocated,
//! populated and locked, from outside.
//!
//! What this can do is less than linking the library: the program still calls `write()`, and its call still meets the journal,
//! the dirty limits and whatever else lies on that path. What it no longer meets is the allocation of blocks and, where the file is
//! longer than its data, of pages.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::ahead::map_file;
use crate::files::Names;
use crate::plan::{Ledger, Mode, Planner, Span, Step, Tuning, Which};
use crate::process::{Descriptor, Stillness, descriptor, points_to, written_elsewhere};
use crate::sys::{self, Mapping, page_bytes};

/// How to follow.
#[derive(Debug, Clone, Copy)]
pub struct FollowOptions {
    /// Most bytes kept warm and locked; the machine's limits are for the caller to apply ([`crate::budget`]).
    pub memory_bytes_max: u64,
    /// Make the file longer than its data, so that pages can be made ready where it grows. Readers then see zeros behind the
    /// data until the writer has closed it and the file is cut. Never done to a file opened with O_APPEND.
    pub extend: bool,
}

/// How far the program's way of writing lets itself be helped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Help {
    /// Blocks and pages.
    Full,
    /// Blocks alone, because of this.
    BlocksOnly(String),
    /// Not at all, because of this.
    None(String),
}

/// Something worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A file is followed, from this position, with this help.
    Following {
        /// The file.
        path: PathBuf,
        /// The program's descriptor.
        fd: u32,
        /// Its position, bytes.
        position: u64,
        /// What can be done.
        help: Help,
    },
    /// The file was cut below what was prepared; preparation begins anew.
    Truncated,
    /// The position has stood still while the process wrote that many bytes (to whatever files): if some of them go to this file,
    /// it uses `pwrite` or a mapping, which have no position to follow.
    Still(u64),
    /// The program has closed the file. If it had been made longer it now has its exact length.
    Closed,
    /// The program has ended.
    Ended,
}

/// Following cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The process cannot be looked into.
    #[error("process {pid}: {source}; it must exist, and belong to you unless you are root")]
    Process {
        /// Which.
        pid: u32,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The path makes no sense.
    #[error("{0}")]
    Path(String),
    /// A system call failed.
    #[error("{what} {path}: {source}", path = .path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// Counters of a follower, bytes unless said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowStats {
    /// The writer's position.
    pub position: u64,
    /// End of the blocks prepared.
    pub allocated: u64,
    /// End of the pages prepared.
    pub warm: u64,
    /// Times the writer was found beyond what was prepared.
    pub late: u64,
    /// The writer's rate, bytes a second.
    pub rate_bytes_per_s: u64,
}

/// Follows one process.
#[derive(Debug)]
pub struct Follower {
    pid: u32,
    names: Names,
    options: FollowOptions,
    target: Option<Target>,
    start: Instant,
    late: u64,
}

#[derive(Debug)]
struct Target {
    fd: u32,
    path: PathBuf,
    file: File,
    map: Mapping,
    help: Help,
    planner: Planner,
    ledger: Ledger,
    extended: bool,
    /// The program's own open file, shared: its position can be read even after the program has closed it.
    shared: Option<File>,
    /// The kernel refused to lock: pages are populated all the same.
    locks: bool,
    stillness: Stillness,
}

impl Follower {
    /// Prepares to follow the file, or the files of a pattern with `{}`, as that process writes them.
    pub fn attach(pid: u32, path: &Path, options: FollowOptions) -> Result<Follower, FollowError> {
        let names = Names::of(path).map_err(FollowError::Path)?;
        std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(|source| FollowError::Process { pid, source })?;
        Ok(Follower { pid, names, options, target: None, start: Instant::now(), late: 0 })
    }

    /// Counters.
    pub fn stats(&self) -> FollowStats {
        self.target.as_ref().map_or(FollowStats { late: self.late, ..FollowStats::default() }, |t| FollowStats {
            position: t.ledger.position,
            allocated: t.ledger.allocated,
            warm: t.ledger.warm,
            late: self.late,
            rate_bytes_per_s: t.planner.pace.rate_bytes_per_s(),
        })
    }

    /// Looks, does one thing, and says how long to sleep before the next call, ns.
    pub fn step(&mut self) -> Result<(u64, Option<Event>), FollowError> {
        const LOOK_NS: u64 = 20_000_000;
        if !Path::new(&format!("/proc/{}/fd", self.pid)).exists() {
            self.leave()?;
            return Ok((0, Some(Event::Ended)));
        }
        let Some(target) = &mut self.target else {
            return Ok(match self.find()? {
                Some(event) => (0, Some(event)),
                None => (LOOK_NS, None),
            });
        };
        let Some(now) = descriptor(self.pid, target.fd).filter(|_| points_to(self.pid, target.fd, &target.path)) else {
            self.leave()?;
            return Ok((0, Some(Event::Closed)));
        };
        let len = target.file.metadata().map_err(io("look at", &target.path))?.len();
        // With blocks alone what is prepared lies beyond the end of the file; only the writer's own end can be cut. A position that
        // is still beyond a cut end is not where the data is.
        let full = target.help == Help::Full;
        let position = if full { now.position } else { now.position.min(len) };
        if len < if full { target.ledger.warm } else { target.ledger.position } {
            target.begin(position);
            return Ok((0, Some(Event::Truncated)));
        }
        if let Some(bytes) = target.stillness.look(self.pid, now.position) {
            return Ok((0, Some(Event::Still(bytes))));
        }
        if matches!(target.help, Help::None(_)) {
            return Ok((LOOK_NS, None));
        }
        if position > target.ledger.warm && target.ledger.position <= target.ledger.warm {
            self.late += u64::from(target.help == Help::Full && target.ledger.warm > 0);
        }
        let now_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let nap_ns = target.perform(position, now_ns)?;
        Ok((nap_ns, None))
    }

    /// Finds the descriptor through which the process writes one of our files; of several, the highest-numbered file.
    fn find(&mut self) -> Result<Option<Event>, FollowError> {
        let pid = self.pid;
        let listing = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(listing) => listing,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FollowError::Process { pid, source }),
        };
        let mut best: Option<(u64, u32, PathBuf, Descriptor)> = None;
        let files = self.names.present().map_err(io("list", self.names.dir()))?;
        for entry in listing.flatten() {
            let Some(fd) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let Ok(link) = std::fs::read_link(entry.path()) else { continue };
            let Some(seq) = files.iter().copied().find(|seq| self.names.path(*seq) == link) else { continue };
            let Some(found) = descriptor(pid, fd).filter(|d| d.flags & 0o3 != 0) else { continue };
            if best.as_ref().is_none_or(|b| seq >= b.0) {
                best = Some((seq, fd, link, found));
            }
        }
        let Some((_, fd, path, found)) = best else { return Ok(None) };
        let target = Target::open(pid, fd, path.clone(), found, self.options)?;
        let event = Event::Following { path, fd, position: found.position, help: target.help.clone() };
        self.target = Some(target);
        Ok(Some(event))
    }

    /// Stops following. Returns the file that had to be left longer than its data because it is still being written.
    pub fn detach(mut self) -> Result<Option<PathBuf>, FollowError> {
        self.leave()
    }

    /// Cuts a file that was made longer, if nobody writes it any more.
    fn leave(&mut self) -> Result<Option<PathBuf>, FollowError> {
        use std::io::Seek;
        let Some(target) = self.target.take() else { return Ok(None) };
        let Some(mut shared) = target.shared.filter(|_| target.extended) else { return Ok(None) };
        // A holder may write at any moment; then zeros behind the data are the lesser evil.
        if written_elsewhere(&target.path) {
            return Ok(Some(target.path));
        }
        let end = shared.stream_position().map_err(io("read the position of", &target.path))?;
        target.file.set_len(end).map_err(io("cut", &target.path))?;
        Ok(None)
    }
}

impl Target {
    fn open(
        pid: u32,
        fd: u32,
        path: PathBuf,
        found: Descriptor,
        options: FollowOptions,
    ) -> Result<Target, FollowError> {
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(io("open", &path))?;
        let len = file.metadata().map_err(io("look at", &path))?.len();
        let shared = share(pid, fd);
        let help = judge(&file, found, len, options.extend && shared.is_some());
        // Address space for a GiB beyond; a longer run is met by attaching anew.
        let bytes = (len.max(found.position) + (1 << 30)).next_multiple_of(page_bytes());
        let map = map_file(&file, usize::try_from(bytes).unwrap_or(usize::MAX / 2)).map_err(io("map", &path))?;
        let tuning = Tuning { allocate_bytes: 16 << 20, ..Tuning::new(Mode::Window, options.memory_bytes_max) };
        let mut target = Target {
            fd,
            path,
            file,
            map,
            help,
            planner: Planner::new(tuning),
            ledger: Ledger::default(),
            extended: false,
            shared,
            locks: true,
            stillness: Stillness::new(pid, found.position),
        };
        target.begin(found.position);
        Ok(target)
    }

    fn begin(&mut self, position: u64) {
        let from = position / page_bytes() * page_bytes();
        let window = self.planner.tuning().window_bytes;
        let behind = position / window * window;
        self.ledger = Ledger {
            position,
            flushed: position,
            allocated: from,
            warm: from,
            written_back: behind,
            released: behind,
            ..Ledger::default()
        };
    }

    fn perform(&mut self, position: u64, now_ns: u64) -> Result<u64, FollowError> {
        // A position that went back is a writer that seeks; what lies behind stays as it is.
        self.ledger.position = position.max(self.ledger.released);
        self.planner.pace.on_position(now_ns, self.ledger.position);
        let step = self.planner.next(now_ns, &self.ledger);
        let full = self.help == Help::Full;
        match step {
            Step::Nap(ns) => return Ok(ns),
            Step::Allocate(Which::Current, span) => self.allocate(span, full)?,
            Step::Warm(Which::Current, span) => {
                if full {
                    self.warm(span)?;
                }
                self.ledger.warm = span.end();
            }
            Step::Refresh(span) if full => {
                self.map.populate_write(span.at as usize, span.len as usize).map_err(io("refresh", &self.path))?;
            }
            // Write-back is the program's own affair: it may rely on the kernel's timing.
            Step::WriteBack(span) => self.ledger.written_back = span.end(),
            Step::Release(span) => {
                if full && self.locks {
                    self.map.unlock(span.at as usize, span.len as usize).map_err(io("unlock", &self.path))?;
                }
                self.ledger.released = span.end();
            }
            Step::Refresh(_) | Step::Flush(_) | Step::Allocate(..) | Step::Warm(..) => {}
        }
        Ok(0)
    }

    fn allocate(&mut self, span: Span, full: bool) -> Result<(), FollowError> {
        let len = self.file.metadata().map_err(io("look at", &self.path))?.len();
        let beyond = span.end() > len;
        sys::allocate(&self.file, span.at, span.len, !full).map_err(io("allocate", &self.path))?;
        self.extended |= full && beyond;
        self.ledger.allocated = span.end();
        Ok(())
    }

    fn warm(&mut self, span: Span) -> Result<(), FollowError> {
        let begun = Instant::now();
        let (at, len) = (span.at as usize, span.len as usize);
        if self.locks {
            self.locks = self.map.lock_on_fault(at, len).is_ok();
        }
        self.map.populate_write(at, len).map_err(io("populate", &self.path))?;
        self.planner.pace.on_warmed(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Ok(())
    }
}

fn judge(file: &File, found: Descriptor, len: u64, extend: bool) -> Help {
    let is = |flag: i32| found.flags & flag.unsigned_abs() != 0;
    let regular = file.metadata().is_ok_and(|m| m.mode() & libc::S_IFMT == libc::S_IFREG);
    if !regular {
        return Help::None("it is not a regular file".to_owned());
    }
    if is(libc::O_DIRECT) {
        return Help::None(
            "it is written with O_DIRECT, past the page cache: there is nothing to prepare but blocks".to_owned(),
        );
    }
    if is(libc::O_APPEND) {
        let why = "it is opened with O_APPEND: a longer file would move its end, so pages beyond cannot be made ready";
        return Help::BlocksOnly(why.to_owned());
    }
    // A page of slack: the file's last page may be there without any preallocation.
    if len > found.position + page_bytes() || extend {
        return Help::Full;
    }
    let why =
        "the file ends where the writer is: pages beyond the end exist only in a longer file (allow it with --extend)";
    Help::BlocksOnly(why.to_owned())
}

/// A descriptor for the program's open file itself, not merely for the same path.
fn share(pid: u32, fd: u32) -> Option<File> {
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let process = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    Some(File::from(pidfd_getfd(process, i32::try_from(fd).ok()?, PidfdGetfdFlags::empty()).ok()?))
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> FollowError {
    let path = path.to_owned();
    move |source| FollowError::Io { what, path, source }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
