//! A program that writes through the precursor and records what was acknowledged, for tests that kill it.
//!
//! It is the test binary (`writer::child`), controlled by environment variables. The records are in a small mapped
//! file.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use precursor::{Appender, BackPressure, Durability, Framing, Mode, Options};

pub const RECORD: usize = 220;
const ROLL: u64 = 256 << 10;

/// xorshift64*: good enough to spread the test's choices.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// What the writer does until it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Opens once and appends.
    Appending,
    /// Closes and opens again and again.
    Closing,
    /// A ring that grows under bursts.
    Growing,
    /// A window that is too slow for bursts and fast enough between them.
    Switching,
}

const LIVES: [Life; 4] = [Life::Appending, Life::Closing, Life::Growing, Life::Switching];

#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub mode: Mode,
    pub framed: bool,
    pub roll: bool,
    pub many: bool,
    pub life: Life,
}

impl Default for Case {
    fn default() -> Case {
        Case { mode: Mode::Ring, framed: false, roll: false, many: false, life: Life::Appending }
    }
}

impl Case {
    pub fn describe(self) -> String {
        let flags = (u8::from(self.framed), u8::from(self.roll), u8::from(self.many));
        let life = LIVES.iter().position(|life| *life == self.life).unwrap();
        format!("{}-{}-{}-{}-{life}", self.mode.name(), flags.0, flags.1, flags.2)
    }

    fn parse(text: &str) -> Case {
        let mut parts = text.split('-');
        let mode = Mode::from_name(parts.next().unwrap()).unwrap();
        let mut number = || parts.next().unwrap().parse::<usize>().unwrap();
        let (framed, roll, many) = (number() == 1, number() == 1, number() == 1);
        Case { mode, framed, roll, many, life: LIVES[number()] }
    }

    pub fn path(self, dir: &Path) -> PathBuf {
        dir.join(if self.roll { "log-{}" } else { "log" })
    }

    fn options(self, dir: &Path) -> Options {
        let framing = if self.framed { Framing::Records } else { Framing::None };
        let options = Options::new(self.path(dir)).mode(self.mode).framing(framing).ring_bytes(128 << 10);
        let options = options.window_bytes(64 << 10).shm_dir(dir.join("shm"));
        let options = options.roll_bytes(if self.roll { ROLL } else { 0 });
        match self.life {
            Life::Appending | Life::Closing => options,
            Life::Growing => options.ring_bytes(16 << 10).back_pressure(BackPressure::Grow { bytes_max: 1 << 20 }),
            Life::Switching => options.ring_bytes(128 << 10).memory_bytes_max(512 << 10),
        }
    }
}

/// Record `i` of a producer: numbered, and different from its neighbours in every byte.
pub fn record(producer: u64, i: u64) -> Vec<u8> {
    let mut out = producer.to_le_bytes().to_vec();
    out.extend(i.to_le_bytes());
    out.extend((16..RECORD as u64).map(|k| (i.wrapping_mul(31).wrapping_add(k * 7 + producer)) as u8));
    out
}

/// Words: appended position, synced position, records of producers 0 and 1, and the number of the kind's events and
/// returns.
pub struct Ledger(memmap::Words);

mod memmap {
    use super::{AtomicU64, File};
    use std::os::fd::AsRawFd;

    pub struct Words(*mut AtomicU64);
    // SAFETY: the words are atomics in a shared mapping that is never unmapped.
    unsafe impl Sync for Words {}

    impl Words {
        pub fn of(file: &File) -> Words {
            let both = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the kernel chooses the address; the caller has made the file one page long.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, both, libc::MAP_SHARED, file.as_raw_fd(), 0) };
            assert_ne!(at, libc::MAP_FAILED);
            Words(at.cast())
        }

        pub fn word(&self, i: usize) -> &AtomicU64 {
            assert!(i < 512);
            // SAFETY: `i` is below 512, so the word lies within the page, and it is aligned.
            unsafe { &*self.0.add(i) }
        }
    }
}

impl Ledger {
    pub fn of(dir: &Path) -> Ledger {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("shm/ledger"))
            .unwrap();
        file.set_len(4096).unwrap();
        Ledger(memmap::Words::of(&file))
    }

    pub fn get(&self, i: usize) -> u64 {
        self.0.word(i).load(Ordering::Acquire)
    }

    pub fn raise(&self, i: usize, value: u64) {
        self.0.word(i).fetch_max(value, Ordering::AcqRel);
    }

    pub fn set(&self, i: usize, value: u64) {
        self.0.word(i).store(value, Ordering::Release);
    }
}

pub const APPENDED: usize = 0;
pub const SYNCED: usize = 1;
pub const COUNT: usize = 2;
/// Closes, added rings, or switches from the window to its ring; and returns to the window.
pub const EVENTS: usize = 4;
pub const RETURNS: usize = 5;

/// The writer, in a process that [`Living::start`] starts. Without its environment, this test checks nothing.
#[test]
fn child() {
    let Ok(case) = std::env::var("PRECURSOR_CHILD") else { return };
    let dir = PathBuf::from(std::env::var_os("PRECURSOR_DIR").unwrap());
    let case = Case::parse(&case);
    let ledger = Ledger::of(&dir);
    if case.many { many_child(case, &dir, &ledger) } else { one_child(case, &dir, &ledger) }
}

fn one_child(case: Case, dir: &Path, ledger: &Ledger) {
    let durability = if case.roll { Durability::Every(Duration::from_millis(3)) } else { Durability::OnSync };
    let mut i = ledger.get(COUNT);
    loop {
        let mut log = case.options(dir).durability(durability).open().unwrap();
        println!("open");
        // Endless, except where closing is under test: then runs of every length, including 0.
        let until = if case.life == Life::Closing { i + i * 7 % 300 } else { u64::MAX };
        while i < until {
            append(&mut log, ledger, &mut i);
            pause(case, i, &log, ledger);
        }
        ledger.set(SYNCED, log.close().unwrap().bytes());
        ledger.set(EVENTS, ledger.get(EVENTS) + 1);
        // Append a record, or it would be the same close again.
        let mut log = case.options(dir).durability(durability).open().unwrap();
        append(&mut log, ledger, &mut i);
    }
}

fn append(log: &mut Appender, ledger: &Ledger, i: &mut u64) {
    let position = log.append(&record(0, *i)).unwrap();
    *i += 1;
    ledger.set(COUNT, *i);
    ledger.set(APPENDED, position.bytes());
    if i.is_multiple_of(700) {
        ledger.set(SYNCED, log.sync_to(position).unwrap().bytes());
    }
}

/// Bursts and pauses, different for each kind.
fn pause(case: Case, i: u64, log: &Appender, ledger: &Ledger) {
    match case.life {
        Life::Appending | Life::Closing if i.is_multiple_of(64) => std::thread::sleep(Duration::from_micros(50)),
        Life::Growing if i.is_multiple_of(512) => {
            ledger.set(EVENTS, log.stats().grown);
            std::thread::sleep(Duration::from_millis(1));
        }
        // Recorded during the burst, since the writer may be killed before the burst ends.
        Life::Switching if i % 6000 < 5000 && i.is_multiple_of(64) => ledger.set(EVENTS, log.stats().fallbacks),
        Life::Switching if i % 6000 >= 5000 => {
            let stats = log.stats();
            if stats.fallbacks > ledger.get(RETURNS) && stats.flusher_lag_bytes == 0 && i % 6000 > 5900 {
                ledger.set(RETURNS, stats.fallbacks);
            }
            ledger.set(EVENTS, stats.fallbacks);
            std::thread::sleep(Duration::from_micros(300));
        }
        _ => {}
    }
}

fn many_child(case: Case, dir: &Path, ledger: &Ledger) {
    let log = case.options(dir).open_many().unwrap();
    println!("open");
    std::thread::scope(|scope| {
        for producer in 0..2u64 {
            let log = log.clone();
            scope.spawn(move || {
                let count = COUNT + producer as usize;
                loop {
                    let i = ledger.get(count);
                    let position = log.append(&record(producer, i)).unwrap();
                    ledger.set(count, i + 1);
                    if i.is_multiple_of(700) {
                        let durable = log.sync_to(position).unwrap().bytes();
                        ledger.raise(SYNCED, durable);
                    }
                }
            });
        }
    });
}

/// A running writer. `opened` returns once it has opened its files.
pub struct Living {
    child: Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Living {
    pub fn start(case: Case, dir: &Path) -> Living {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "writer::child", "--nocapture", "--test-threads=1"])
            .env("PRECURSOR_CHILD", case.describe())
            .env("PRECURSOR_DIR", dir);
        Living::of(&mut command)
    }

    /// Starts a program that prints "open" once it has opened its files.
    pub fn of(command: &mut Command) -> Living {
        use std::io::BufRead;
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        Living { child, lines }
    }

    pub fn opened(&mut self) {
        while self.lines.next().is_some_and(|l| !l.unwrap().contains("open")) {}
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// If a test fails before it kills the writer, the writer must not fill the disk.
impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn data_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.file_name().unwrap().to_str().is_some_and(|n| n.starts_with("log") && !n.ends_with(".torn")));
    files.sort();
    files
}

pub fn contents(dir: &Path) -> Vec<u8> {
    data_files(dir).iter().flat_map(|p| std::fs::read(p).unwrap()).collect()
}
