//! The ways of appending, each as a careful programmer would write it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use precursor::{Appender, Mode, Options};

/// A way of appending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Method {
    /// Does nothing: the noise floor of the measurement.
    Nothing,
    /// Stores into private, locked, touched memory of 8 MiB, round and round: the floor for any way that stores.
    Memory,
    /// Reads the clock for 20 us; the result is the longest step between two readings. Shows how long a thread loses
    /// the CPU that makes no system call and touches no memory.
    Spin,
    /// write() to a file opened with O_APPEND.
    Append,
    /// fallocate of 64 MiB at a time, and pwrite().
    Fallocate,
    /// The method of 2012: zeros written ahead, read ahead, pwrite().
    Prefetch,
    /// O_DIRECT pwrite() of the current 4 KiB block, preallocated.
    Direct,
    /// io_uring write with IOSQE_ASYNC; only the submission is timed.
    Uring,
    /// Store into a mapping that a thread populates ahead, without locking.
    Mmap,
    /// Chronicle Queue with its pretoucher, in a Java process, see `chronicle.rs`.
    Chronicle,
    /// A mapping by hand in a Java process, see `java.rs`.
    JavaMap,
    /// The precursor's ring, in a Java process.
    JavaRing,
    /// The precursor's window.
    Window,
    /// The precursor's ring.
    Ring,
}

impl Method {
    pub fn all() -> Vec<Method> {
        use clap::ValueEnum;
        Method::value_variants().to_vec()
    }

    pub fn name(self) -> &'static str {
        match self {
            Method::Nothing => "nothing",
            Method::Memory => "memory",
            Method::Spin => "spin",
            Method::Append => "append",
            Method::Fallocate => "fallocate",
            Method::Prefetch => "prefetch",
            Method::Direct => "direct",
            Method::Uring => "uring",
            Method::Mmap => "mmap",
            Method::Chronicle => "chronicle",
            Method::JavaMap => "java-map",
            Method::JavaRing => "java-ring",
            Method::Window => "window",
            Method::Ring => "ring",
        }
    }

    pub fn open(self, dir: &Path) -> Result<Box<dyn Writer>> {
        let path = dir.join("journal");
        Ok(match self {
            Method::Nothing => Box::new(Nothing),
            Method::Memory => Box::new(Memory::touched()?),
            Method::Spin => Box::new(Spin { longest_ns: 0 }),
            Method::Append => Box::new(Append(OpenOptions::new().append(true).create(true).open(path)?)),
            Method::Fallocate => Box::new(Fallocate { file: File::create(path)?, at: 0, allocated: 0 }),
            Method::Direct => Box::new(Direct::open(&path)?),
            Method::Uring => Box::new(crate::uring::Uring::open(&path)?),
            Method::Mmap => Box::new(Premapped::open(&path)?),
            Method::Chronicle | Method::JavaMap | Method::JavaRing => anyhow::bail!("a JVM is its own process"),
            Method::Prefetch => Box::new(Ours::open(&path, Mode::Prefetch)?),
            Method::Window => Box::new(Ours::open(&path, Mode::Window)?),
            Method::Ring => Box::new(Ours::open(&path, Mode::Ring)?),
        })
    }
}

/// Appends one record at a time.
pub trait Writer {
    fn append(&mut self, record: &[u8]) -> Result<()>;

    /// How often the writer outran its helper or switched to its ring; 0 for ways without such a count.
    fn late(&self) -> u64 {
        0
    }

    /// Duration of the last call, ns, for ways that measure it themselves.
    fn own_ns(&self) -> Option<u64> {
        None
    }
}

struct Spin {
    longest_ns: u64,
}

impl Writer for Spin {
    fn append(&mut self, _: &[u8]) -> Result<()> {
        let begun = Instant::now();
        let (mut last, mut longest) = (begun, Duration::ZERO);
        while last - begun < Duration::from_micros(20) {
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        self.longest_ns = u64::try_from(longest.as_nanos())?;
        Ok(())
    }

    fn own_ns(&self) -> Option<u64> {
        Some(self.longest_ns)
    }
}

struct Nothing;

impl Writer for Nothing {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        std::hint::black_box(record);
        Ok(())
    }
}

struct Memory {
    bytes: Vec<u8>,
    at: usize,
}

impl Memory {
    fn touched() -> Result<Memory> {
        let bytes = vec![1; 8 << 20];
        // SAFETY: mlock does not change memory; the vector owns the range and is never resized.
        let result = unsafe { libc::mlock(bytes.as_ptr().cast(), bytes.len()) };
        if result < 0 { Err(std::io::Error::last_os_error()).context("mlock") } else { Ok(Memory { bytes, at: 0 }) }
    }
}

impl Writer for Memory {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        if self.at + record.len() > self.bytes.len() {
            self.at = 0;
        }
        self.bytes[self.at..self.at + record.len()].copy_from_slice(record);
        self.at += record.len();
        Ok(())
    }
}

struct Append(File);

impl Writer for Append {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        Ok(self.0.write_all(record)?)
    }
}

const ALLOCATE_BYTES: u64 = 64 << 20;

fn allocate(file: &File, at: u64, len: u64) -> Result<()> {
    // SAFETY: the descriptor is open, and the other arguments are plain numbers.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, i64::try_from(at)?, i64::try_from(len)?) };
    if result < 0 { Err(std::io::Error::last_os_error()).context("fallocate") } else { Ok(()) }
}

struct Fallocate {
    file: File,
    at: u64,
    allocated: u64,
}

impl Writer for Fallocate {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        if self.at + record.len() as u64 > self.allocated {
            allocate(&self.file, self.allocated, ALLOCATE_BYTES)?;
            self.allocated += ALLOCATE_BYTES;
        }
        self.file.write_all_at(record, self.at)?;
        self.at += record.len() as u64;
        Ok(())
    }
}

/// A block aligned for O_DIRECT.
#[repr(C, align(4096))]
struct Block([u8; 4096]);

struct Direct {
    file: File,
    block: Box<Block>,
    at: u64,
    filled: usize,
}

impl Direct {
    fn open(path: &Path) -> Result<Direct> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT).open(path)?;
        allocate(&file, 0, ALLOCATE_BYTES)?;
        Ok(Direct { file, block: Box::new(Block([0; 4096])), at: 0, filled: 0 })
    }
}

impl Writer for Direct {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let room = 4096 - self.filled;
        let (now, later) = record.split_at(record.len().min(room));
        self.block.0[self.filled..self.filled + now.len()].copy_from_slice(now);
        self.filled += now.len();
        self.file.write_all_at(&self.block.0, self.at)?;
        if self.filled == 4096 {
            (self.at, self.filled) = (self.at + 4096, later.len());
            self.block.0[..later.len()].copy_from_slice(later);
        }
        Ok(())
    }
}

const MAP_BYTES: usize = 256 << 20;
const AHEAD_BYTES: u64 = 4 << 20;

/// A mapping that a thread populates 4 MiB ahead, without locking.
struct Premapped {
    base: *mut u8,
    at: u64,
    reported: Arc<AtomicU64>,
}

impl Premapped {
    fn open(path: &Path) -> Result<Premapped> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        allocate(&file, 0, MAP_BYTES as u64)?;
        // SAFETY: the kernel chooses the address of the mapping, which is never unmapped: the process ends with the
        // cell.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                MAP_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        anyhow::ensure!(base != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        let reported = Arc::new(AtomicU64::new(0));
        populate(base as usize, 0, AHEAD_BYTES);
        let (seen, address) = (Arc::clone(&reported), base as usize);
        std::thread::spawn(move || {
            let mut done = AHEAD_BYTES;
            while done < MAP_BYTES as u64 {
                if seen.load(Ordering::Relaxed) + AHEAD_BYTES > done {
                    populate(address, done, 1 << 20);
                    done += 1 << 20;
                } else {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Ok(Premapped { base: base.cast(), at: 0, reported })
    }
}

fn populate(base: usize, at: u64, len: u64) {
    let at = base + at as usize;
    // SAFETY: callers pass ranges inside the mapping; 23 is MADV_POPULATE_WRITE, which changes no contents.
    unsafe { libc::madvise(at as *mut libc::c_void, len as usize, 23) };
}

impl Writer for Premapped {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        anyhow::ensure!(self.at as usize + record.len() <= MAP_BYTES, "the cell is too long for this mapping");
        // SAFETY: the range ends within the mapping, as checked above, and only this thread stores into it.
        unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), self.base.add(self.at as usize), record.len()) };
        self.at += record.len() as u64;
        self.reported.store(self.at, Ordering::Relaxed);
        Ok(())
    }
}

/// The precursor.
struct Ours(Appender);

impl Ours {
    fn open(path: &Path, mode: Mode) -> Result<Ours> {
        let appender = Options::new(path).mode(mode).open()?;
        Ok(Ours(appender))
    }
}

impl Writer for Ours {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.0.append(record)?;
        Ok(())
    }

    fn late(&self) -> u64 {
        let stats = self.0.stats();
        stats.late_windows + stats.waits + stats.fallbacks
    }
}
