//! Imports millions of mutated logs, and reports the slowest import, the largest memory use and any panic. The inputs
//! are the files under tests/golden/import: cut, doubled, spliced with each other, with words, digits and bytes
//! changed. Unlike `fuzz/fuzz_targets/import.rs` it needs no nightly compiler, and is not guided by coverage.
//!
//! `cargo run -p flatwater-import --example hammer -- EXECUTIONS [SEED]`

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flatwater_import::import_texts;

/// The system's allocator, which also counts allocated bytes.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed to the system's allocator with the same arguments; only counters change.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of alloc.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of dealloc.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// xorshift64*: the same seed gives the same mutations.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }
}

const LENGTH_MAX: usize = 4096;
const WORDS: &[&str] = &[
    "-1",
    "0",
    "99999999999999999999",
    "1e308",
    "NaN",
    ":",
    "|",
    "[<",
    ">]",
    "\0",
    "+0x1/0x2",
    "%",
    "...",
    "\u{1f980}",
    "\n\n",
    "{",
    "> ",
];

fn mutate(inputs: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let pick = |dice: &mut Dice| inputs.get(dice.below(inputs.len())).map_or(&[][..], Vec::as_slice);
    let base = pick(dice);
    // A window of a large input keeps each execution short.
    let from = if base.len() > LENGTH_MAX { dice.below(base.len() - LENGTH_MAX) } else { 0 };
    let mut bytes: Vec<u8> = base.iter().skip(from).take(1 + dice.below(LENGTH_MAX)).copied().collect();
    for _ in 0..1 + dice.below(6) {
        let at = dice.below(bytes.len() + 1);
        match dice.below(7) {
            0 => bytes.truncate(at),
            1 => {
                let other = pick(dice);
                let from = dice.below(other.len());
                let piece: Vec<u8> = other.iter().skip(from).take(dice.below(512)).copied().collect();
                bytes.splice(at..at, piece);
            }
            2 => {
                let word = WORDS.get(dice.below(WORDS.len())).copied().unwrap_or_default();
                bytes.splice(at..at, word.bytes());
            }
            3 => {
                let end = (at + dice.below(32)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + dice.below(200)).min(bytes.len());
                let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let value = dice.below(256) as u8;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = if dice.below(2) == 0 { value } else { b'0' + value % 10 };
                }
            }
        }
    }
    bytes
}

fn inputs() -> Vec<Vec<u8>> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/import"));
    let folders = std::fs::read_dir(root).expect("the golden folder").flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let mut paths: Vec<PathBuf> = files.map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_none_or(|extension| extension != "expected"));
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("an input")).collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (executions, seed) = (arguments.next().unwrap_or(100_000), arguments.next().unwrap_or(1));
    let (inputs, mut dice, began) = (inputs(), Dice(seed | 1), Instant::now());
    let (mut slowest, mut largest, mut understood) = (Duration::ZERO, 0, 0_u64);
    for execution in 0..executions {
        let bytes = mutate(&inputs, &mut dice);
        let kept = bytes.clone();
        MOST.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
        let (held, start) = (HELD.load(Ordering::Relaxed), Instant::now());
        let result = std::panic::catch_unwind(|| import_texts(&[("input".to_owned(), bytes)]));
        let (took, most) = (start.elapsed(), MOST.load(Ordering::Relaxed).saturating_sub(held));
        let Ok(result) = result else {
            std::fs::write("hammer-panic.txt", &kept).expect("written");
            println!("panic at execution {execution} of seed {seed}: input in hammer-panic.txt");
            std::process::exit(1);
        };
        understood += u64::from(result.is_ok());
        if took > slowest {
            slowest = took;
            std::fs::write(std::env::temp_dir().join("hammer-slowest.txt"), &kept).expect("written");
        }
        largest = largest.max(most);
        if execution % 1_000_000 == 999_999 {
            println!("{} executions, slowest {slowest:?}, largest {} KiB", execution + 1, largest >> 10);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{executions} executions in {seconds:.0} s, {understood} read; slowest {slowest:?}, largest {} KiB, no panic",
        largest >> 10
    );
}
