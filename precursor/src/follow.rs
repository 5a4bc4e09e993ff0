//! Follows the position of another process's writer, and keeps the next part of the file allocated, populated and
//! locked. For programs that cannot be changed.
//!
//! This does less than linking the library. The program still calls `write()`, and the call can still wait for the
//! journal and for dirty throttling. It no longer waits for the allocation of blocks and, if the file is longer than
//! its data, of pages.

use std::fs::{File, OpenOptions};
use std::io::Seek;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::files::{Names, zeros_from};
pub use crate::followed::{Event, FollowError, FollowOptions, FollowStats, Help, Uncut};
use crate::handles::identity;
use crate::helper::map_file;
use crate::mode::Mode;
use crate::plan::{Ledger, Planner, Span, Step, Tuning, Which};
use crate::process::{Descriptor, Stillness, alone, descriptor, points_to, share};
use crate::sys::{self, Mapping, page_bytes};

/// Nap while the file ends at the prepared range and only the program can extend it, ns.
const IDLE_NS: u64 = 5_000_000;

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
    /// The caller allows extending the file; and it was extended.
    extend: bool,
    extended: bool,
    /// A duplicate of the program's descriptor: its position can be read even after the program has closed the file.
    shared: Option<File>,
    /// False once the kernel has refused to lock; pages are still populated.
    locks: bool,
    stillness: Stillness,
}

impl Follower {
    /// Prepares to follow the file, or the files of a pattern with `{}`, that process `pid` writes.
    pub fn attach(pid: u32, path: &Path, options: FollowOptions) -> Result<Follower, FollowError> {
        let names = Names::of(path).map_err(|error| FollowError::Path(error.to_string()))?;
        std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(|source| FollowError::Process { pid, source })?;
        Ok(Follower { pid, names, options, target: None, start: Instant::now(), late: 0 })
    }

    /// Counters of the file that is followed now.
    pub fn stats(&self) -> FollowStats {
        self.target.as_ref().map_or(FollowStats { late: self.late, ..FollowStats::default() }, |t| FollowStats {
            position: t.ledger.position,
            allocated: t.ledger.allocated,
            warm: t.ledger.warm,
            late: self.late,
            rate_bytes_per_s: t.planner.pace.rate_bytes_per_s(),
            helping: !matches!(t.help, Help::None(_)),
        })
    }

    /// Performs one step. Returns how long to sleep before the next call, ns, and an event if there is one.
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
            let event = self.leave()?.map_or(Event::Closed, Event::ClosedUncut);
            return Ok((0, Some(event)));
        };
        let len = target.file.metadata().map_err(io("look at", &target.path))?.len();
        // With `BlocksOnly`, the prepared range is beyond the end of the file, so only a cut below the writer's
        // position is a truncation. A position beyond a cut end is not the end of the data.
        let full = target.help == Help::Full;
        let position = if full { now.position } else { now.position.min(len) };
        let least = if full { target.ledger.warm } else { target.ledger.position };
        if len.next_multiple_of(page_bytes()) < least || !full && len < least {
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

    /// Finds the descriptor through which the process writes one of the files; with several, the file with the highest
    /// number.
    fn find(&mut self) -> Result<Option<Event>, FollowError> {
        let pid = self.pid;
        let listing = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(listing) => listing,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FollowError::Process { pid, source }),
        };
        let mut best: Option<(u64, u32, Descriptor)> = None;
        let files = self.names.present().map_err(io("list", self.names.dir().path()))?;
        for entry in listing.flatten() {
            let Some(fd) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let Ok(link) = std::fs::read_link(entry.path()) else { continue };
            let Some(seq) = files.iter().copied().find(|seq| self.names.path(*seq) == link) else { continue };
            let Some(found) = descriptor(pid, fd).filter(|d| d.flags & 0o3 != 0) else { continue };
            if best.as_ref().is_none_or(|b| seq >= b.0) {
                best = Some((seq, fd, found));
            }
        }
        let Some((seq, fd, found)) = best else { return Ok(None) };
        let path = self.names.path(seq);
        let (file, shared) = own(pid, fd, &self.names, seq).map_err(io("open", &path))?;
        let target = Target::begin_with(pid, fd, (path.clone(), file, shared), found, self.options)?;
        let event = Event::Following { path, fd, position: found.position, help: target.help.clone() };
        self.target = Some(target);
        Ok(Some(event))
    }

    /// Stops following. Returns why a file stays longer than its data, if one does.
    pub fn detach(mut self) -> Result<Option<Uncut>, FollowError> {
        self.leave()
    }

    /// Cuts the file to its data, unless the file is open in another process.
    fn leave(&mut self) -> Result<Option<Uncut>, FollowError> {
        let Some(target) = self.target.take() else { return Ok(None) };
        let Target { path, file, map, shared, extended, ledger, .. } = target;
        let len = |file: &File| file.metadata().map(|m| m.len()).map_err(io("look at", &path));
        if !extended && ledger.allocated <= len(&file)? {
            return Ok(None);
        }
        let position = match shared.filter(|_| extended) {
            Some(mut shared) => Some(shared.stream_position().map_err(io("read the position of", &path))?),
            None => None,
        };
        // The mapping and the shared descriptor keep the file open.
        drop(map);
        if !alone(&file, &path) {
            return Ok(extended.then_some(Uncut::Open(path)));
        }
        let end = match position {
            Some(position) => position,
            None => len(&file)?,
        };
        // `pwrite` and mappings do not move the position; bytes that they wrote beyond it must not be cut.
        if !zeros_from(&file, end).map_err(io("read", &path))? {
            return Ok(Some(Uncut::Elsewhere(path)));
        }
        // Even at the same length, this frees the blocks beyond the end (`fs/ext4/inode.c: ext4_setattr`).
        file.set_len(end).map_err(io("cut", &path))?;
        Ok(None)
    }
}

impl Target {
    fn begin_with(
        pid: u32,
        fd: u32,
        (path, file, shared): (PathBuf, File, Option<File>),
        found: Descriptor,
        options: FollowOptions,
    ) -> Result<Target, FollowError> {
        let len = file.metadata().map_err(io("look at", &path))?.len();
        let extend = options.extend && shared.is_some();
        let help = judge(&file, found, len, extend);
        // Maps 1 GiB of address space beyond the end; for a longer run, attach again.
        let bytes = (len.max(found.position) + (1 << 30)).next_multiple_of(page_bytes());
        let map = map_file(&file, usize::try_from(bytes).unwrap_or(usize::MAX / 2)).map_err(io("map", &path))?;
        let tuning =
            Tuning { allocate_bytes: 16 << 20, ..Tuning::new(Mode::Window, options.memory_bytes_max, page_bytes()) };
        let mut target = Target {
            fd,
            path,
            file,
            map,
            help,
            planner: Planner::new(tuning),
            ledger: Ledger::default(),
            extend,
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
        let window_start = position / window * window;
        self.ledger = Ledger {
            position,
            flushed: position,
            allocated: from,
            warm: from,
            written_back: window_start,
            released: window_start,
            ..Ledger::default()
        };
    }

    fn perform(&mut self, position: u64, now_ns: u64) -> Result<u64, FollowError> {
        // After a seek backwards: what was released stays released.
        self.ledger.position = position.max(self.ledger.released);
        self.planner.pace.on_position(now_ns, self.ledger.position);
        let step = self.planner.next(now_ns, &self.ledger);
        let full = self.help == Help::Full;
        match step {
            Step::Nap(ns) => return Ok(ns),
            Step::Allocate(Which::Current, span) => self.allocate(span, full)?,
            Step::Warm(Which::Current, span) => {
                let Some(span) = self.within(span, full)? else { return Ok(IDLE_NS) };
                if full {
                    self.warm(span)?;
                }
                self.ledger.warm = span.end();
            }
            Step::Refresh(span) if full => {
                self.map.populate_write(span.at as usize, span.len as usize).map_err(io("refresh", &self.path))?;
            }
            // Write-back is left to the kernel, since the program may rely on its timing.
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

    /// The part of `span` that can be warmed now: pages exist only up to the end of the file, which only `extend`
    /// moves.
    fn within(&self, span: Span, full: bool) -> Result<Option<Span>, FollowError> {
        let len = self.file.metadata().map_err(io("look at", &self.path))?.len();
        let end = if full { span.end().min(len.next_multiple_of(page_bytes())) } else { span.end() };
        Ok(end.checked_sub(span.at).filter(|len| *len > 0).map(|len| Span { at: span.at, len }))
    }

    fn allocate(&mut self, span: Span, full: bool) -> Result<(), FollowError> {
        let len = self.file.metadata().map_err(io("look at", &self.path))?.len();
        let beyond = span.end() > len;
        let longer = full && beyond && self.extend;
        sys::allocate(&self.file, span.at, span.len, !longer).map_err(io("allocate", &self.path))?;
        self.extended |= longer;
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

/// Opens the file that the program has open, and duplicates the program's descriptor if the kernel allows it. Goes
/// through the descriptor where possible, since another user may have replaced the path with a link to another file.
fn own(pid: u32, fd: u32, names: &Names, seq: u64) -> std::io::Result<(File, Option<File>)> {
    let (shared, named) = (share(pid, fd), names.dir().stat(&names.name(seq))?);
    let file = match &shared {
        Some(shared) => {
            OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", shared.as_raw_fd()))?
        }
        None => names.dir().any(&names.name(seq))?.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))?,
    };
    let opened = identity(&file)?;
    let theirs = std::fs::metadata(format!("/proc/{pid}/fd/{fd}")).map(|m| (m.dev(), m.ino()))?;
    if named.map(|entry| entry.identity) != Some(opened) || theirs != opened {
        return Err(std::io::Error::other("its name now refers to another file than the one the process writes"));
    }
    Ok((file, shared))
}

fn judge(file: &File, found: Descriptor, len: u64, extend: bool) -> Help {
    let is = |flag: i32| found.flags & flag.unsigned_abs() != 0;
    let regular = file.metadata().is_ok_and(|m| m.mode() & libc::S_IFMT == libc::S_IFREG);
    if !regular {
        return Help::None("it is not a regular file".to_owned());
    }
    if is(libc::O_DIRECT) {
        return Help::None(
            "it is written with O_DIRECT, which bypasses the page cache: there are no pages to prepare".to_owned(),
        );
    }
    if is(libc::O_APPEND) {
        let why = "it is opened with O_APPEND: a longer file would move the end, so pages beyond it cannot be prepared";
        return Help::BlocksOnly(why.to_owned());
    }
    // One page of tolerance: the file's last page may exist without preallocation.
    if len > found.position + page_bytes() || extend {
        return Help::Full;
    }
    let why = "the file ends at the writer's position: pages beyond the end exist only in a longer file (allow it with --extend)";
    Help::BlocksOnly(why.to_owned())
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> FollowError {
    let path = path.to_owned();
    move |source| FollowError::Io { what, path, source }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
