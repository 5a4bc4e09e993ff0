//! The neighbour: one thread that loads its directory while it is asked to.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use flatwater_host::clock::{monotonic_ns, sleep_ns};
use flatwater_safefs::Dir;

use super::dirty;
use super::files::{self, BLOCK, CHUNK};
use super::{Command, DONE, DirtyLimit, FAILED, READY, answer, next};
use crate::plan::{Limits, Load, RATE_MAX, SYNC_BYTES};
use crate::work::Work;

/// Small files that exist at the same time.
const SMALL_FILES: u64 = 256;
/// The dirty pages are read once in this many written bytes.
const LOOK_BYTES: u64 = 4 << 20;

pub fn serve(limits: Limits, own: Option<DirtyLimit>) -> io::Result<()> {
    let dir = Dir::open(Path::new(".")).map_err(io::Error::other)?;
    let cache = files::nameless(&dir, "cache")?;
    files::fill(&cache, limits.cache_bytes, u64::from(std::process::id()))?;
    files::forget(&cache, 0, limits.cache_bytes);
    let mut worker = Worker {
        limits,
        own,
        stream: files::nameless(&dir, "stream")?,
        log: files::nameless(&dir, "log")?,
        cache,
        dir,
        chunk: vec![0; CHUNK],
        at: 0,
        counted: 0,
        begun_ns: 0,
        work: Work::default(),
    };
    files::scramble(&mut worker.chunk, u64::from(std::process::id()));
    let (send, receive) = channel();
    let commands = Arc::new(send);
    std::thread::spawn(move || {
        while let Some(command) = next() {
            if commands.send(command).is_err() {
                return;
            }
        }
        std::process::exit(1);
    });
    answer(READY);
    while let Ok(command) = receive.recv() {
        let Command::Begin(load) = command else { continue };
        answer(DONE);
        let ended = worker.load(load, &receive).and_then(|()| worker.discard());
        match ended {
            Ok(()) => answer(&format!("{DONE} {}", serde_json::to_string(&worker.work)?)),
            Err(error) => answer(&format!("{FAILED}{error}")),
        }
    }
    Ok(())
}

struct Worker {
    limits: Limits,
    /// The limit of the cgroup.
    own: Option<DirtyLimit>,
    dir: Dir,
    stream: File,
    log: File,
    cache: File,
    chunk: Vec<u8>,
    /// The next byte of the current load's file.
    at: u64,
    /// Small files created so far.
    counted: u64,
    begun_ns: u64,
    /// Since the load began.
    work: Work,
}

impl Worker {
    /// Performs the load until the next command.
    fn load(&mut self, load: Load, commands: &Receiver<Command>) -> io::Result<()> {
        (self.at, self.work, self.begun_ns) = (0, Work::default(), monotonic_ns());
        while commands.try_recv() == Err(TryRecvError::Empty) {
            let done = match load {
                Load::Dirty => self.write_on(),
                Load::Fsync => self.write_and_sync(),
                Load::SmallFiles => self.make_and_remove(),
                Load::Cache => self.read_on(),
            };
            match done {
                // Other programs filled the disk: the load continues within what is left.
                Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                    self.discard()?
                }
                done => done?,
            }
            self.work.operations += 1;
            self.work.pass_bytes = self.work.pass_bytes.max(self.at);
            self.keep_rate();
        }
        self.work.ns = monotonic_ns() - self.begun_ns;
        Ok(())
    }

    fn write_on(&mut self) -> io::Result<()> {
        if self.at + CHUNK as u64 > self.limits.dirty_bytes {
            self.stream.set_len(0)?;
            self.at = 0;
        }
        self.stream.write_all_at(&self.chunk, self.at)?;
        self.at += CHUNK as u64;
        self.work.bytes += CHUNK as u64;
        if !self.work.dirty_limit && self.at.is_multiple_of(LOOK_BYTES) {
            self.work.dirty_limit = dirty::is_limit_reached(self.own.as_ref());
        }
        let Some(window) = self.limits.in_flight_bytes else { return Ok(()) };
        let part = (window / 4).max(CHUNK as u64) / CHUNK as u64 * CHUNK as u64;
        if self.at.is_multiple_of(part) {
            // As the kernel's flusher would, once the dirty pages exceed its limit.
            writeback(files::start_writeback(&self.stream, self.at - part, part, false))?;
            if let Some(old) = self.at.checked_sub(4 * part) {
                writeback(files::start_writeback(&self.stream, old, part, true))?;
            }
        }
        Ok(())
    }

    fn write_and_sync(&mut self) -> io::Result<()> {
        if self.at >= SYNC_BYTES {
            self.log.set_len(0)?;
            self.at = 0;
        }
        self.log.write_all_at(self.chunk.get(..BLOCK).unwrap_or_default(), self.at)?;
        self.at += BLOCK as u64;
        self.work.bytes += BLOCK as u64;
        self.log.sync_all()
    }

    fn make_and_remove(&mut self) -> io::Result<()> {
        if let Some(old) = self.counted.checked_sub(SMALL_FILES) {
            self.dir.remove(&small(old)).map_err(io::Error::other)?;
        }
        let name = small(self.counted);
        self.counted += 1;
        let mut file = self.dir.create(&name).map_err(io::Error::other)?;
        self.work.bytes += BLOCK as u64;
        file.write_all(self.chunk.get(..BLOCK).unwrap_or_default())
    }

    fn read_on(&mut self) -> io::Result<()> {
        if self.at + CHUNK as u64 > self.limits.cache_bytes {
            // Each pass reads from the device again.
            files::forget(&self.cache, 0, self.limits.cache_bytes);
            self.at = 0;
        }
        self.cache.read_exact_at(&mut self.chunk, self.at)?;
        self.at += CHUNK as u64;
        self.work.bytes += CHUNK as u64;
        Ok(())
    }

    /// Sleeps if the load exceeds the rate.
    fn keep_rate(&mut self) {
        let due_ns = self.begun_ns + (u128::from(self.work.bytes) * 1_000_000_000 / u128::from(RATE_MAX)) as u64;
        let now_ns = monotonic_ns();
        // Shorter sleeps would cost more than they give back.
        if due_ns > now_ns + 1_000_000 {
            sleep_ns((due_ns - now_ns).min(20_000_000));
            self.work.held_ns += monotonic_ns() - now_ns;
        }
    }

    /// Drops all data, so that nothing is left to be written back in the pause.
    fn discard(&mut self) -> io::Result<()> {
        self.stream.set_len(0)?;
        self.log.set_len(0)?;
        let first = self.counted.saturating_sub(SMALL_FILES);
        for number in first..self.counted {
            match self.dir.remove(&small(number)) {
                Err(gone) if gone.is_missing() => {}
                removed => removed.map_err(io::Error::other)?,
            }
        }
        (self.at, self.counted) = (0, 0);
        Ok(())
    }
}

fn small(number: u64) -> String {
    format!("small-{}-{number}", std::process::id())
}

/// A file system without writeback, such as tmpfs, refuses to start one.
fn writeback(started: io::Result<()>) -> io::Result<()> {
    match started {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESPIPE | libc::EINVAL | libc::ENOSYS)) => Ok(()),
        started => started,
    }
}
