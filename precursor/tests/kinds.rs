//! Kills a writer while it closes and opens, rolls, grows its ring, switches between window and ring, or has many
//! producers.
//!
//! Several writers run at a time, since each mostly waits. `PRECURSOR_KINDS` sets the kills of each kind: 100 by
//! default, 2000 in the long test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use precursor::{Mode, records, recover};

use crate::writer::{
    APPENDED, COUNT, Case, Chance, EVENTS, Ledger, Life, Living, RECORD, RETURNS, contents, data_files, record,
};

/// Typical time of starting the test binary, opening and recovering, us.
const OPENING_US: u64 = 30_000;
/// Number of writers that run at a time.
const BESIDE: u64 = 8;

/// A directory for data and one for shared memory, both removed on drop.
struct Home {
    dir: tempfile::TempDir,
    shm: PathBuf,
}

impl Home {
    fn new(case: Case) -> Home {
        let dir = tempfile::Builder::new().prefix(&format!("precursor-kind-{}-", case.describe())).tempdir().unwrap();
        let shm = PathBuf::from("/dev/shm").join(dir.path().file_name().unwrap());
        std::fs::create_dir(&shm).unwrap();
        std::os::unix::fs::symlink(&shm, dir.path().join("shm")).unwrap();
        Home { dir, shm }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.shm);
    }
}

/// Checks that every accepted byte is in the files.
fn check(case: Case, dir: &Path, ledger: &Ledger) {
    let recovered = recover(case.path(dir)).unwrap_or_else(|e| panic!("{case:?}: {e}"));
    let bytes = contents(dir);
    let payloads: Vec<&[u8]> = match case.framed {
        true => records(&bytes).collect(),
        false => bytes.chunks(RECORD).collect(),
    };
    let mut next = [0u64; 2];
    for payload in &payloads {
        let producer = if case.many { usize::from(payload[0]) } else { 0 };
        assert!(
            *payload == record(producer as u64, next[producer]),
            "{case:?}: record {}; {recovered:?}",
            next[producer]
        );
        next[producer] += 1;
    }
    for (producer, found) in next.into_iter().enumerate().take(1 + usize::from(case.many)) {
        let acknowledged = ledger.get(COUNT + producer);
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "{case:?}: {found} records of {acknowledged} accepted; {recovered:?}"
        );
    }
    assert!(case.many || bytes.len() as u64 >= ledger.get(APPENDED), "{case:?}: {recovered:?}");
    if !case.many {
        // The next writer continues with the records in the file, of which one may have been in flight.
        ledger.set(COUNT, next[0]);
        ledger.set(APPENDED, bytes.len() as u64);
    }
    assert_eq!(recover(case.path(dir)).unwrap().cut_bytes, 0, "recovering twice changes nothing");
}

#[derive(Default)]
struct Seen {
    events: AtomicU64,
    returns: AtomicU64,
    files: AtomicU64,
    /// Number of directories in which writers ran one after the other.
    homes: AtomicU64,
}

/// Longest life of a writer, even if it has appended too little: a disk may be stuck.
const LIFE_MAX: Duration = Duration::from_secs(5);

/// Waits until the writer has appended this many more records. Records, not time, so that writers on a busy machine get
/// as far as on an idle one: with random times, a thousand writers under a load of 100 hardly filled a file.
fn live_for(records: u64, ledger: &Ledger) {
    let appended = || ledger.get(COUNT) + ledger.get(COUNT + 1);
    let (until, begun) = (appended() + records, Instant::now());
    while appended() < until && begun.elapsed() < LIFE_MAX {
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// Runs and kills writers one after the other: a few on the same files, then on new ones.
fn lives(case: Case, kills: u64, records: u64, seed: u64, seen: &Seen) {
    let mut chance = Chance(seed);
    let mut done = 0;
    while done < kills {
        let home = Home::new(case);
        let ledger = Ledger::of(home.dir.path());
        for _ in 0..if case.many { 1 } else { 5.min(kills - done) } {
            let mut living = Living::start(case, home.dir.path());
            // One in eight is killed while it opens or recovers.
            if chance.below(8) == 0 {
                std::thread::sleep(Duration::from_micros(chance.below(OPENING_US)));
            } else {
                living.opened();
                live_for(chance.below(records), &ledger);
                std::thread::sleep(Duration::from_micros(chance.below(200)));
            }
            living.kill();
            seen.events.fetch_add(ledger.get(EVENTS), Ordering::Relaxed);
            seen.returns.fetch_add(ledger.get(RETURNS), Ordering::Relaxed);
            ledger.set(EVENTS, 0);
            ledger.set(RETURNS, 0);
            check(case, home.dir.path(), &ledger);
            done += 1;
        }
        seen.files.fetch_add(data_files(home.dir.path()).len() as u64, Ordering::Relaxed);
        seen.homes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Kills `kills` writers, each after at most `records` appends.
fn kill(case: Case, kills: u64, records: u64) -> Seen {
    let seen = Seen::default();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for place in 0..BESIDE {
            let seen = &seen;
            scope.spawn(move || lives(case, kills.div_ceil(BESIDE), records, 0x9e37_79b9 + 77 * place, seen));
        }
    });
    let (events, returns) = (seen.events.load(Ordering::Relaxed), seen.returns.load(Ordering::Relaxed));
    let (files, homes) = (seen.files.load(Ordering::Relaxed), seen.homes.load(Ordering::Relaxed));
    let took = begun.elapsed();
    println!("{case:?}: {kills} kills in {took:?}, {events} events, {returns} returns, {files} files of {homes} homes");
    seen
}

fn kills() -> u64 {
    std::env::var("PRECURSOR_KINDS").ok().and_then(|k| k.parse().ok()).unwrap_or(100)
}

fn closing(kills: u64) {
    let cases = [
        (Mode::Window, false, false),
        (Mode::Window, false, true),
        (Mode::Ring, true, true),
        (Mode::Prefetch, false, false),
    ];
    for (mode, framed, roll) in cases {
        let case = Case { mode, framed, roll, life: Life::Closing, ..Case::default() };
        let seen = kill(case, kills.div_ceil(4), 600);
        assert!(seen.events.load(Ordering::Relaxed) > 0, "no writer ever closed");
    }
}

fn growing(kills: u64) {
    let seen = kill(Case { life: Life::Growing, ..Case::default() }, kills, 6_000);
    assert!(seen.events.load(Ordering::Relaxed) > kills / 40, "hardly any ring grew");
}

fn rolling(kills: u64) {
    for (mode, framed) in [(Mode::Ring, true), (Mode::Window, false)] {
        let seen = kill(Case { mode, framed, roll: true, ..Case::default() }, kills.div_ceil(2), 3_000);
        // About 1200 records fill a file, and five writers on the same files append 6000 on average.
        let (files, homes) = (seen.files.load(Ordering::Relaxed), seen.homes.load(Ordering::Relaxed));
        assert!(files > 2 * homes, "hardly any file was rolled: {files} files of {homes} writers");
    }
}

fn many(kills: u64) {
    kill(Case { framed: true, many: true, ..Case::default() }, kills, 4_000);
}

/// Returning to the window takes 250 ms of fast writes, so these writers run longer: 6000 records are a burst and a
/// pause.
fn switching(kills: u64) {
    let seen = kill(Case { mode: Mode::Window, life: Life::Switching, ..Case::default() }, kills, 14_000);
    assert!(seen.events.load(Ordering::Relaxed) > kills / 20, "the window was hardly ever left");
    assert!(seen.returns.load(Ordering::Relaxed) > 0, "the window was never entered again");
}

macro_rules! each {
    ($($name:ident $long:ident: $work:ident;)*) => {
        $(
            #[test]
            fn $name() {
                $work(kills());
            }

            #[test]
            #[ignore = "two thousand kills of each kind take minutes"]
            fn $long() {
                $work(2000);
            }
        )*
    };
}

each! {
    killed_while_it_closes_and_opens killed_two_thousand_times_while_it_closes_and_opens: closing;
    killed_while_it_rolls killed_two_thousand_times_while_it_rolls: rolling;
    killed_while_its_ring_grows killed_two_thousand_times_while_its_ring_grows: growing;
    killed_with_many_producers killed_two_thousand_times_with_many_producers: many;
    killed_between_window_and_ring killed_two_thousand_times_between_window_and_ring: switching;
}
