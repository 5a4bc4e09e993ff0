//! The work of victims and neighbours: this binary as a separate process, for a bounded time.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ACT: &str = "FLATWATER_ACT";

/// One kind of work. Its debug output is passed to the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Appends `bytes` every `every_us` microseconds.
    Append {
        bytes: usize,
        every_us: u64,
    },
    /// Overwrites 64 KiB of an allocated file every 2 ms, so that no blocks are allocated.
    Overwrite,
    /// Appends 220 bytes and syncs, every 5 ms.
    Sync,
    /// Writes 4 MiB to the same place and syncs, every 50 ms.
    BigSync,
    /// Reads 4 KiB at pseudorandom offsets of a file that is kept out of the page cache.
    ColdRead,
    /// Like `ColdRead`, through a mapping.
    ColdTouch,
    /// Writes 64 KiB with O_DIRECT at pseudorandom offsets, on eight threads.
    Direct,
    /// Writes 220 bytes at a time into a preallocated file, while another thread reads it ahead.
    Prefetched,
    /// Writes to a mapped, populated and locked window without syncing.
    Locked,
    /// Streams dirty pages; starts again after 256 MiB.
    Stream,
    /// Reads the file again and again.
    ReadStream,
    /// Touches 128 MiB of anonymous memory again and again: less than the group's limit, because there may be no swap.
    Anonymous,
    /// Writes 32 MiB at a time to the file that the victim appends to.
    Shared,
    /// Creates, renames and unlinks files.
    Churn,
    Spin,
}

impl Act {
    fn word(self) -> String {
        format!("{self:?}")
    }

    fn from_word(word: &str) -> Option<Act> {
        let plain = [
            Act::Overwrite,
            Act::Sync,
            Act::BigSync,
            Act::ColdRead,
            Act::ColdTouch,
            Act::Direct,
            Act::Prefetched,
            Act::Locked,
            Act::Stream,
            Act::ReadStream,
            Act::Anonymous,
            Act::Shared,
            Act::Churn,
            Act::Spin,
        ];
        let numbers: Vec<u64> =
            word.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect();
        match (word.starts_with("Append"), numbers.as_slice()) {
            (true, [bytes, every_us]) => Some(Act::Append { bytes: *bytes as usize, every_us: *every_us }),
            _ => plain.into_iter().find(|act| act.word() == word),
        }
    }
}

/// A working process; killed on drop, and by the kernel if the test dies first.
pub struct Actor(Child);

impl Actor {
    /// Starts the process, which works on `file`. It waits for `release`, so that it can be moved into groups first.
    pub fn start(act: Act, file: &Path, time: Duration, realtime: bool) -> Actor {
        let mut command = Command::new(std::env::current_exe().expect("our own binary"));
        command.args(["--exact", "ground_truth::actor", "--nocapture", "--test-threads=1"]);
        command.env(ACT, format!("{}|{}|{}|{}", act.word(), time.as_millis(), u8::from(realtime), file.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: prctl(PR_SET_PDEATHSIG) is a plain system call, safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        Actor(command.spawn().expect("our own binary starts"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn release(&mut self) {
        let _ = self.0.stdin.as_mut().expect("a pipe").write_all(b"go\n");
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Performs the act in the environment and exits; returns at once if there is none, as in a normal run of the tests.
pub fn act_if_asked() {
    let Ok(asked) = std::env::var(ACT) else { return };
    let mut words = asked.splitn(4, '|');
    let act = words.next().and_then(Act::from_word).expect("an act that start() wrote");
    let ms = words.next().and_then(|ms| ms.parse().ok()).expect("a time that start() wrote");
    let realtime = words.next() == Some("1");
    let file = words.next().expect("a path that start() wrote").to_owned();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line from release()");
    if !realtime {
        // A neighbour without CPU time causes no stall, so its priority is raised. Spinning neighbours must outweigh a
        // victim that mostly sleeps, which the scheduler would otherwise run at once. Failure is ignored.
        let nice = if act == Act::Spin { -5 } else { -10 };
        // SAFETY: the arguments are numbers.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    }
    if realtime {
        let priority = libc::sched_param { sched_priority: 10 };
        // SAFETY: the structure outlives the call; failure keeps the normal scheduler.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    }
    perform(act, Path::new(&file), Instant::now() + Duration::from_millis(ms));
    std::process::exit(0);
}

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(path)
        .expect("the actor's file")
}

fn perform(act: Act, path: &Path, end: Instant) {
    match act {
        Act::Append { bytes, every_us } => {
            let (mut file, block) = (open(path, libc::O_APPEND), vec![b'a'; bytes]);
            paced(end, Duration::from_micros(every_us), |_| drop(file.write_all(&block)));
        }
        Act::Overwrite => {
            let (file, block) = (open(path, 0), vec![7; 64 << 10]);
            let blocks = (length(&file) >> 16).max(1);
            paced(end, Duration::from_millis(2), |number| {
                let _ = file.write_all_at(&block, (number % blocks) << 16);
            });
        }
        Act::Sync => {
            let mut file = open(path, libc::O_APPEND);
            paced(end, Duration::from_millis(5), |_| {
                let _ = file.write_all(&[b's'; 220]);
                let _ = file.sync_all();
            });
        }
        Act::BigSync => {
            let (file, block) = (open(path, 0), vec![1; 4 << 20]);
            paced(end, Duration::from_millis(50), |_| {
                let _ = file.write_all_at(&block, 0);
                let _ = file.sync_data();
            });
        }
        Act::ColdRead => cold_read(path, end),
        Act::ColdTouch => cold_touch(path, end),
        Act::Direct => direct(path, end),
        Act::Prefetched => prefetched(path, end),
        Act::Locked => locked(path, end),
        Act::Stream => stream(path, end, 256 << 10, 256 << 20),
        Act::Shared => stream(path, end, 32 << 20, 256 << 20),
        Act::ReadStream => read_stream(path, end),
        Act::Anonymous => anonymous(end),
        Act::Churn => churn(path, end),
        Act::Spin => while Instant::now() < end {},
    }
}

/// Runs `turn` once per period, open loop. A late turn does not delay later ones, but lost turns are not repeated.
fn paced(end: Instant, period: Duration, mut turn: impl FnMut(u64)) {
    let mut due = Instant::now();
    for number in 0.. {
        if due >= end {
            return;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        turn(number);
        due = (due + period).max(Instant::now());
    }
}

/// A block of the file for this turn, without early repetition: the stride is coprime to the number of blocks.
fn place(number: u64, blocks: u64) -> u64 {
    number.wrapping_mul(7_919) % blocks.max(1)
}

fn length(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}

pub fn forget(file: &File) {
    // SAFETY: posix_fadvise takes only a descriptor and numbers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn cold_read(path: &Path, end: Instant) {
    let file = open(path, 0);
    let (blocks, mut block) = (length(&file) / 4096, [0; 4096]);
    paced(end, Duration::from_millis(2), |number| {
        let _ = file.read_exact_at(&mut block, place(number, blocks) * 4096);
        forget(&file);
    });
}

struct Map {
    at: *mut u8,
    bytes: usize,
}

impl Map {
    fn new(file: &File, bytes: usize) -> Map {
        // SAFETY: a new shared mapping of our own file; the result is checked below.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert!(at != libc::MAP_FAILED, "mmap");
        Map { at: at.cast(), bytes }
    }

    fn read(&self, at: usize) -> u8 {
        // SAFETY: within the mapping, which lives as long as self.
        unsafe { self.at.add(at % self.bytes).read_volatile() }
    }

    fn write(&self, at: usize) {
        // SAFETY: as above; no other thread reads these bytes.
        unsafe { self.at.add(at % self.bytes).write_volatile(1) };
    }
}

fn cold_touch(path: &Path, end: Instant) {
    let file = open(path, 0);
    let bytes = length(&file) as usize;
    paced(end, Duration::from_millis(2), |number| {
        let map = Map::new(&file, bytes);
        // SAFETY: our own mapping. MADV_RANDOM disables readahead, so that each touch is one read.
        unsafe { libc::madvise(map.at.cast(), bytes, libc::MADV_RANDOM) };
        let _ = map.read(place(number, bytes as u64 / 4096) as usize * 4096);
        // SAFETY: the mapping from above, which is not used afterwards.
        unsafe { libc::munmap(map.at.cast(), bytes) };
        forget(&file);
    });
}

fn direct(path: &Path, end: Instant) {
    let file = open(path, libc::O_DIRECT);
    let blocks = length(&file) / 65_536;
    let raw = vec![3_u8; 65_536 + 4096];
    let skip = raw.as_ptr().align_offset(4096);
    let block = &raw[skip..skip + 65_536];
    let writers = |from: u64| {
        for number in from.. {
            if Instant::now() >= end || file.write_all_at(block, place(number, blocks) * 65_536).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for from in 0..8 {
            scope.spawn(move || writers(from * 1_000));
        }
    });
}

fn prefetched(path: &Path, end: Instant) {
    const WINDOW: u64 = 64 << 20;
    let file = open(path, 0);
    let size = length(&file);
    let position = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 20];
            let mut ahead = 0;
            while Instant::now() < end {
                let at = position.load(std::sync::atomic::Ordering::Relaxed);
                if ahead < at + WINDOW {
                    let _ = file.read_exact_at(&mut buffer, ahead % size.max(1));
                    ahead += 1 << 20;
                } else {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        paced(end, Duration::from_micros(500), |number| {
            let at = number * 8192;
            let _ = file.write_all_at(&[b'p'; 220], at % size.saturating_sub(4096).max(1));
            position.store(at, std::sync::atomic::Ordering::Relaxed);
        });
    });
}

fn locked(path: &Path, end: Instant) {
    let file = open(path, 0);
    let map = Map::new(&file, 8 << 20);
    // SAFETY: our own mapping; both calls only make its pages resident.
    unsafe {
        libc::madvise(map.at.cast(), map.bytes, libc::MADV_POPULATE_WRITE);
        libc::mlock(map.at.cast(), map.bytes);
    }
    paced(end, Duration::from_micros(200), |number| map.write(number as usize * 220));
}

fn stream(path: &Path, end: Instant, block: usize, around: usize) {
    let (file, block) = (open(path, 0), vec![42; block]);
    let mut at = 0;
    while Instant::now() < end {
        let _ = file.write_all_at(&block, at as u64);
        at = (at + block.len()) % around;
    }
}

fn read_stream(path: &Path, end: Instant) {
    let file = open(path, 0);
    let (size, mut block, mut at) = (length(&file), vec![0; 1 << 20], 0);
    while Instant::now() < end {
        let _ = file.read_exact_at(&mut block, at);
        at = (at + block.len() as u64) % size.max(1);
    }
}

fn anonymous(end: Instant) {
    let mut memory = vec![1_u8; 128 << 20];
    while Instant::now() < end {
        // In pieces with pauses, because it should take memory from the others, not CPU time.
        for piece in memory.chunks_mut(1 << 20) {
            piece.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    std::hint::black_box(&memory);
}

fn churn(path: &Path, end: Instant) {
    let directory = path.with_extension("many");
    let _ = std::fs::create_dir_all(&directory);
    for number in 0_u64.. {
        if Instant::now() >= end {
            return;
        }
        let name = directory.join(format!("n{}", number % 20_000));
        let _ = File::create(&name);
        let _ = std::fs::rename(&name, name.with_extension("r"));
        if number.is_multiple_of(3) {
            let _ = std::fs::remove_file(name.with_extension("r"));
        }
    }
}
