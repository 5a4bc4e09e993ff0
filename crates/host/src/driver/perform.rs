//! Performs one `Op` as a real call, and times it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use super::append::{AppendMethod, Appenders, PrecursorReport};
use super::files::{Files, OpenFile};
use super::locks::Locks;
use crate::clock::monotonic_ns;
use flatwater_workload::{FileId, LockId, Op};

const PAGE_BYTES: usize = 4096;
const READ_PIECE_BYTES: usize = 1 << 20;
const OWN_PIECE_BYTES: u64 = 64 << 20;

/// Start and length of a call.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub start_ns: u64,
    pub duration_ns: u64,
}

/// Marks for the tracer when this thread is within a measured call: two stores, no system call.
pub trait OpMark {
    fn enter(&mut self, start_ns: u64);
    fn leave(&mut self, end_ns: u64);
}

/// A mark for untraced threads; does nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoMark;

impl OpMark for NoMark {
    fn enter(&mut self, _start_ns: u64) {}
    fn leave(&mut self, _end_ns: u64) {}
}

/// Performs the operations of one thread, with its files and locks, one buffer, and the file used last.
#[derive(Debug)]
pub struct Executor {
    files: Arc<Files>,
    locks: Arc<Locks>,
    buffer: Vec<u8>,
    last: Option<(FileId, Arc<OpenFile>)>,
    held: Vec<(LockId, bool)>,
    /// Memory filled by `Op::ReadKept`.
    kept: Vec<Vec<u8>>,
    /// Memory of `Op::TouchOwn`, as pieces by their index; untouched pages of a piece have no memory yet.
    own: std::collections::BTreeMap<u64, Vec<u8>>,
    appenders: Appenders,
}

impl Executor {
    #[must_use]
    pub fn new(files: Arc<Files>, locks: Arc<Locks>, seed: u64, method: AppendMethod) -> Executor {
        Executor {
            files,
            locks,
            buffer: fill(seed, 2 * PAGE_BYTES),
            last: None,
            held: Vec::new(),
            kept: Vec::new(),
            own: std::collections::BTreeMap::new(),
            appenders: Appenders::new(method),
        }
    }

    /// The open file. Looked up before the clock starts, since the lookup is not part of the call.
    fn file(&mut self, file: FileId) -> io::Result<Arc<OpenFile>> {
        if let Some((known, open)) = &self.last
            && *known == file
        {
            return Ok(open.clone());
        }
        let open = self.files.get(file)?;
        self.last = Some((file, open.clone()));
        Ok(open)
    }

    /// The part of the buffer for a transfer; it begins at a page, as O_DIRECT needs.
    fn buffer(&mut self, bytes: u64) -> std::ops::Range<usize> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(64 << 20);
        if self.buffer.len() < bytes + PAGE_BYTES {
            self.buffer = fill(self.buffer.len() as u64, bytes + PAGE_BYTES);
        }
        let from = self.buffer.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        from..from + bytes
    }

    fn forget(&mut self, file: FileId) -> Option<Arc<OpenFile>> {
        if self.last.as_ref().is_some_and(|(known, _)| *known == file) {
            self.last = None;
        }
        self.files.take(file)
    }

    /// Performs a timed operation. The actor itself handles sleeps and marks.
    pub fn perform(&mut self, op: Op, mark: &mut impl OpMark) -> io::Result<Timing> {
        match op {
            Op::Append { .. } | Op::Write { .. } | Op::Read { .. } => self.transfer(op, mark),
            Op::ReadKept { file, offset_bytes, bytes } => self.read_kept(file, offset_bytes, bytes, mark),
            Op::DropKept => {
                self.kept.clear();
                self.own.clear();
                timed(mark, || Ok(()))
            }
            Op::TouchOwn { offset_bytes, bytes, write } => self.touch_own(offset_bytes, bytes, write, mark),
            Op::Map { .. } | Op::Touch { .. } | Op::Unmap { .. } => self.memory(op, mark),
            Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Truncate { .. } | Op::Allocate { .. } => {
                self.metadata(op, mark)
            }
            Op::Syncfs => {
                let files = &self.files;
                timed(mark, || files.syncfs())
            }
            Op::Lock { lock, exclusive } => {
                let gate = self.locks.gate(lock);
                self.held.push((lock, exclusive));
                timed(mark, || {
                    gate.lock(exclusive);
                    Ok(())
                })
            }
            Op::Unlock { lock } => self.unlock(lock, mark),
            _ => self.names(op, mark),
        }
    }

    fn transfer(&mut self, op: Op, mark: &mut impl OpMark) -> io::Result<Timing> {
        let (Op::Append { file, bytes } | Op::Write { file, bytes, .. } | Op::Read { file, bytes, .. }) = op else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // Only appends go through the precursor; writes and reads at an offset do not.
        if matches!(op, Op::Append { .. })
            && let Some(timing) = self.append(file, bytes, mark)?
        {
            return Ok(timing);
        }
        let (open, part) = (self.file(file)?, self.buffer(bytes));
        let fd = open.file.as_fd();
        let length = part.len();
        let buffer = &mut self.buffer[part];
        let done = match op {
            Op::Append { .. } => timed_count(mark, || rustix::io::write(fd, buffer))?,
            Op::Write { offset_bytes, .. } => timed_count(mark, || rustix::io::pwrite(fd, buffer, offset_bytes))?,
            // A short read means the end of the file, which a reader may reach.
            Op::Read { offset_bytes, .. } => {
                return timed(mark, || {
                    rustix::io::pread(fd, buffer, offset_bytes).map(|_| ()).map_err(io::Error::from)
                });
            }
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let (timing, written) = done;
        // A short write on a regular file means that the disk (or quota) became full.
        if written < length { Err(io::ErrorKind::StorageFull.into()) } else { Ok(timing) }
    }

    /// Reads into new memory, which is touched for the first time when the kernel copies into it.
    fn read_kept(&mut self, file: FileId, offset_bytes: u64, bytes: u64, mark: &mut impl OpMark) -> io::Result<Timing> {
        let open = self.file(file)?;
        let length = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let timing = timed(mark, || {
            let mut done = 0;
            while done < bytes {
                let from = memory.len();
                // A call moves at most 2 GiB; smaller pieces keep the memory that is zeroed before the copy in the
                // cache.
                memory.resize((from + READ_PIECE_BYTES).min(length), 0);
                let read = rustix::io::pread(open.file.as_fd(), &mut memory[from..], offset_bytes + done)?;
                if read == 0 {
                    break;
                }
                memory.truncate(from + read);
                done += read as u64;
            }
            Ok(())
        })?;
        self.kept.push(memory);
        Ok(timing)
    }

    /// Touches one byte of each page. The kernel maps a page of a zeroed piece only when it is touched.
    fn touch_own(&mut self, offset_bytes: u64, bytes: u64, write: bool, mark: &mut impl OpMark) -> io::Result<Timing> {
        let last = offset_bytes + bytes.max(1) - 1;
        for piece in offset_bytes / OWN_PIECE_BYTES..=last / OWN_PIECE_BYTES {
            self.own.entry(piece).or_insert_with(|| vec![0; OWN_PIECE_BYTES as usize]);
        }
        let own = &mut self.own;
        timed(mark, || {
            for at in in_each_page(offset_bytes, last, rustix::param::page_size() as u64) {
                let piece = own.get_mut(&(at / OWN_PIECE_BYTES)).ok_or(io::ErrorKind::NotFound)?;
                let byte = &mut piece[(at % OWN_PIECE_BYTES) as usize];
                let seen = std::hint::black_box(*byte);
                if write {
                    *byte = seen.wrapping_add(1);
                }
            }
            Ok(())
        })
    }

    /// Appends through the precursor; returns `None` if this actor appends with write().
    fn append(&mut self, file: FileId, bytes: u64, mark: &mut impl OpMark) -> io::Result<Option<Timing>> {
        let part = self.buffer(bytes);
        let Some(appender) = self.appenders.of(file, &self.files.path(file))? else { return Ok(None) };
        let record = &self.buffer[part];
        let append = || appender.append(record).map(|_| ()).map_err(|error| io::Error::other(error.to_string()));
        timed(mark, append).map(Some)
    }

    fn memory(&mut self, op: Op, mark: &mut impl OpMark) -> io::Result<Timing> {
        match op {
            Op::Map { file, bytes } => {
                let open = self.file(file)?;
                timed(mark, || open.map(bytes))
            }
            Op::Touch { file, offset_bytes, bytes, write } => {
                let mapping = self.file(file)?.mapped();
                let mapping = mapping.ok_or_else(|| io::Error::other("touched a file that is not mapped"))?;
                timed(mark, || {
                    mapping.touch(offset_bytes, bytes, write);
                    Ok(())
                })
            }
            Op::Unmap { file } => {
                let open = self.file(file)?;
                timed(mark, || {
                    open.unmap();
                    Ok(())
                })
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn metadata(&mut self, op: Op, mark: &mut impl OpMark) -> io::Result<Timing> {
        let (Op::Fsync { file } | Op::Fdatasync { file } | Op::Truncate { file, .. } | Op::Allocate { file, .. }) = op
        else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        if let (Op::Fsync { .. } | Op::Fdatasync { .. }, Some(appender)) = (op, self.appenders.known(file)) {
            let position = appender.position();
            let sync = || appender.sync_to(position).map(|_| ()).map_err(|error| io::Error::other(error.to_string()));
            return timed(mark, sync);
        }
        let open = self.file(file)?;
        let fd = open.file.as_fd();
        timed(mark, || match op {
            Op::Fsync { .. } => rustix::fs::fsync(fd).map_err(io::Error::from),
            Op::Fdatasync { .. } => rustix::fs::fdatasync(fd).map_err(io::Error::from),
            Op::Truncate { bytes, .. } => rustix::fs::ftruncate(fd, bytes).map_err(io::Error::from),
            Op::Allocate { offset_bytes, bytes, .. } => {
                rustix::fs::fallocate(fd, FallocateFlags::empty(), offset_bytes, bytes).map_err(io::Error::from)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        })
    }

    /// Operations on names, which need no open file.
    fn names(&mut self, op: Op, mark: &mut impl OpMark) -> io::Result<Timing> {
        match op {
            Op::Create { file } => timed(mark, || self.files.create(file).map(|_| ())),
            Op::Open { file, how } => timed(mark, || self.files.open(file, how).map(|_| ())),
            Op::Close { file } => {
                let open = self.forget(file);
                let appenders = &mut self.appenders;
                timed(mark, || {
                    drop(open);
                    appenders.close(file)
                })
            }
            Op::Rename { from, to } => {
                self.last = None;
                timed(mark, || self.files.rename(from, to))
            }
            Op::Unlink { file } => {
                let open = self.forget(file);
                let timing = timed(mark, || self.files.unlink(file));
                drop(open);
                timing
            }
            Op::Stat { file } => timed(mark, || self.files.stat(file)),
            Op::Mkdir { dir } => timed(mark, || self.files.make_directory(dir)),
            Op::Rmdir { dir } => timed(mark, || self.files.remove_directory(dir)),
            Op::List { dir } => timed(mark, || self.files.list(dir)),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn unlock(&mut self, lock: LockId, mark: &mut impl OpMark) -> io::Result<Timing> {
        let held = self.held.iter().rposition(|(known, _)| *known == lock);
        let (_, exclusive) = held
            .map(|place| self.held.swap_remove(place))
            .ok_or_else(|| io::Error::other("unlocked a lock that it does not hold"))?;
        let gate = self.locks.gate(lock);
        timed(mark, || {
            gate.unlock(exclusive);
            Ok(())
        })
    }

    /// Called when the actor ends: releases its locks, for which others would wait forever, and closes the precursor's
    /// files, which truncates them to their exact length.
    pub fn let_go(&mut self) -> (Option<PrecursorReport>, io::Result<()>) {
        for (lock, exclusive) in std::mem::take(&mut self.held) {
            self.locks.gate(lock).unlock(exclusive);
        }
        self.appenders.finish()
    }
}

/// `first`, and the start of each further page up to `last`.
fn in_each_page(first: u64, last: u64, page_bytes: u64) -> impl Iterator<Item = u64> {
    let next = move |at: &u64| (at / page_bytes + 1).checked_mul(page_bytes);
    std::iter::successors(Some(first), next).take_while(move |at| *at <= last)
}

/// Pseudo-random bytes, which file systems and devices cannot compress or deduplicate.
fn fill(seed: u64, bytes: usize) -> Vec<u8> {
    use rand_core::{Rng as _, SeedableRng as _};
    let mut buffer = vec![0; bytes.max(4096)];
    rand_pcg::Pcg64::seed_from_u64(seed).fill_bytes(&mut buffer);
    buffer
}

#[inline]
fn timed(mark: &mut impl OpMark, call: impl FnOnce() -> io::Result<()>) -> io::Result<Timing> {
    let start_ns = monotonic_ns();
    mark.enter(start_ns);
    let done = call();
    let end_ns = monotonic_ns();
    mark.leave(end_ns);
    done.map(|()| Timing { start_ns, duration_ns: end_ns.saturating_sub(start_ns) })
}

#[inline]
fn timed_count(
    mark: &mut impl OpMark,
    call: impl FnOnce() -> rustix::io::Result<usize>,
) -> io::Result<(Timing, usize)> {
    let mut count = 0;
    let timing = timed(mark, || {
        count = call()?;
        Ok(())
    })?;
    Ok((timing, count))
}

#[cfg(test)]
mod tests {
    use super::in_each_page;

    /// A page of 64 KiB was touched sixteen times.
    #[test]
    fn each_page_is_touched_once() {
        let touched = |first, last, page_bytes| in_each_page(first, last, page_bytes).collect::<Vec<_>>();
        assert_eq!(touched(100, 12_288, 4_096), [100, 4_096, 8_192, 12_288]);
        assert_eq!(touched(100, 131_071, 65_536), [100, 65_536]);
        assert_eq!(touched(0, 0, 65_536), [0]);
        assert_eq!(touched(u64::MAX, u64::MAX, 4_096), [u64::MAX]);
    }
}
