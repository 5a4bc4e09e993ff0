//! The machine dies: every byte that was reported as durable must be on the device.
//!
//! A writer appends to a file system on a loop device whose image is on an xfs. At a random instant the image is
//! cloned. (FICLONE holds the file's lock, so the clone is the device at one instant.) The clone has what the file
//! system had given to its device, and nothing of the page cache, the writer or its shared memory. It is mounted, which
//! replays its journal, and recovered. This cannot show what a device with an untruthful cache loses, since the loop
//! device keeps everything that it was given.
//!
//! `PRECURSOR_CUTS` sets the cuts per combination, 3 by default. `PRECURSOR_KINDS` sets the writers of each kind
//! (closing and opening, rolling, growing, many producers, switching between window and ring): 48 by default, 2000 in
//! the long test. Many of these write at a time and share a cut. Needs root and xfs, and is skipped without them.

use std::path::Path;
use std::time::Duration;

use precursor::{Mode, records, recover};

use crate::volume::{Mounted, output_of};
use crate::writer::{APPENDED, COUNT, Case, Chance, EVENTS, Ledger, Life, Living, RECORD, SYNCED, contents, record};

static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn cuts() -> u64 {
    std::env::var("PRECURSOR_CUTS").ok().and_then(|k| k.parse().ok()).unwrap_or(3)
}

/// The xfs that clones, and on it the device that is cut. Fields are dropped in this order: the device before the xfs.
struct Bench {
    disk: Mounted,
    ground: Mounted,
    home: tempfile::TempDir,
}

impl Bench {
    fn create(make: &[&str]) -> Result<Bench, String> {
        let home = tempfile::tempdir().map_err(|e| e.to_string())?;
        let clones = ["mkfs.xfs", "-q", "-f", "-m", "reflink=1"];
        let ground = Mounted::create(&home.path().join("ground"), 24 << 30, &clones, &home.path().join("g"))?;
        let disk = Mounted::create(&ground.dir.join("disk"), 12 << 30, make, &home.path().join("d"))?;
        Ok(Bench { disk, ground, home })
    }

    /// Clones the device as it is at this instant.
    fn cut(&self) {
        let image = |name: &str| self.ground.dir.join(name).display().to_string();
        output_of("cp", &["--reflink=always", &image("disk"), &image("cut")]).unwrap();
    }

    fn after_the_cut(&self, make: &[&str]) -> Mounted {
        // The clone has the same UUID as the device, which is still mounted.
        let options = if make[0] == "mkfs.xfs" { "nouuid" } else { "defaults" };
        Mounted::attach(&self.ground.dir.join("cut"), &self.home.path().join("c"), options).unwrap()
    }
}

/// Runs a writer until the cut. Returns how many appended bytes did not survive it.
fn live_and_lose_power(case: Case, bench: &Bench, make: &[&str], chance: &mut Chance) -> u64 {
    let name = format!("{}-{}", case.describe(), chance.below(u64::MAX));
    let shm = tempfile::Builder::new().prefix("precursor-cut-").tempdir_in("/dev/shm").unwrap();
    let dir = bench.disk.dir.join(&name);
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(shm.path(), dir.join("shm")).unwrap();
    // Syncs the test's own directory, whose durability is not under test.
    output_of("sync", &["-f", &dir.display().to_string()]).unwrap();
    let ledger = Ledger::of(&dir);
    let mut living = Living::start(case, &dir);
    living.opened();
    std::thread::sleep(Duration::from_micros(chance.below(60_000)));
    let (durable, appended) = (ledger.get(SYNCED), ledger.get(APPENDED));
    bench.cut();
    living.kill();
    std::fs::remove_dir_all(shm.path()).unwrap();
    std::fs::create_dir(shm.path()).unwrap();

    let found = {
        let after = bench.after_the_cut(make);
        check(case, &after.dir.join(&name), durable)
    };
    std::fs::remove_file(bench.ground.dir.join("cut")).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    appended.saturating_sub(found)
}

/// Checks that every durable byte is in the files. Returns the number of bytes in them.
fn check(case: Case, dir: &Path, durable: u64) -> u64 {
    let recovered = recover(case.path(dir)).unwrap_or_else(|e| panic!("{case:?}, {durable} bytes durable: {e}"));
    let bytes = contents(dir);
    assert!(bytes.len() as u64 >= durable, "{case:?}: {} of {durable} durable bytes; {recovered:?}", bytes.len());
    let payloads: Vec<&[u8]> = match case.framed {
        true => records(&bytes).collect(),
        false => bytes.chunks(RECORD).take(usize::try_from(durable).unwrap() / RECORD).collect(),
    };
    let mut next = [0; 2];
    for (i, payload) in payloads.iter().enumerate() {
        let producer = if case.many { usize::from(payload[0]) } else { 0 };
        let expected = record(producer as u64, next[producer]);
        assert!(*payload == expected, "{case:?}: record {i} of {}; {recovered:?}", payloads.len());
        next[producer] += 1;
    }
    assert_eq!(recover(case.path(dir)).unwrap().cut_bytes, 0, "recovering twice changes nothing");
    bytes.len() as u64
}

fn on(make: &[&str]) {
    let bench = match Bench::create(make) {
        Ok(bench) => bench,
        Err(e) => return needs::skip(needs::Need::Loop, "power_cut", e),
    };
    let mut chance = Chance(0x5851_f42d_4c95_7f2d);
    let mut lost = 0;
    for mode in [Mode::Plain, Mode::Prefetch, Mode::Window, Mode::Ring] {
        for (framed, roll) in [(false, false), (true, false), (false, true), (true, true)] {
            for _ in 0..cuts() {
                let case = Case { mode, framed, roll, ..Case::default() };
                lost += live_and_lose_power(case, &bench, make, &mut chance);
            }
        }
    }
    println!("{}: {} cuts, {lost} bytes lost that were not durable", make[0], 16 * cuts());
    assert!(lost > 0, "no byte was ever lost, so the cuts had no effect");
}

/// Tests of this module run one after the other: a process that another thread starts holds files open for a moment,
/// and the file system could not be unmounted then.
#[test]
fn durable_bytes_survive_a_power_cut() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    on(&["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1"]);
    on(&["mkfs.xfs", "-q", "-f"]);
}

/// The kinds of writers, with the number of writers of each case, out of four for a kind.
const KINDS: [(&str, u64, Case); 8] = {
    const fn case(mode: Mode, framed: bool, roll: bool, many: bool, life: Life) -> Case {
        Case { mode, framed, roll, many, life }
    }
    [
        ("closing window", 1, case(Mode::Window, false, false, false, Life::Closing)),
        ("closing rolled window", 1, case(Mode::Window, false, true, false, Life::Closing)),
        ("closing prefetch", 1, case(Mode::Prefetch, false, false, false, Life::Closing)),
        ("closing rolled ring", 1, case(Mode::Ring, true, true, false, Life::Closing)),
        ("rolling ring", 4, case(Mode::Ring, true, true, false, Life::Appending)),
        ("growing ring", 4, case(Mode::Ring, true, false, false, Life::Growing)),
        ("many producers", 4, case(Mode::Ring, true, false, true, Life::Appending)),
        ("window and ring", 4, case(Mode::Window, false, false, false, Life::Switching)),
    ]
};
/// Groups of four writers of each kind per cut. With more, the writers would run longer, until the last has started,
/// than the saved cuts take.
const BESIDE: u64 = 1;

struct Writer {
    kind: usize,
    case: Case,
    name: String,
    shm: tempfile::TempDir,
    ledger: Ledger,
    living: Living,
}

impl Writer {
    /// Creates the writer's directories. The caller syncs them before any writer starts.
    fn prepare(disk: &Path, name: &str) -> tempfile::TempDir {
        let shm = tempfile::Builder::new().prefix("precursor-cut-").tempdir_in("/dev/shm").unwrap();
        std::fs::create_dir(disk.join(name)).unwrap();
        std::os::unix::fs::symlink(shm.path(), disk.join(name).join("shm")).unwrap();
        shm
    }
}

/// Runs writers of every kind, cuts their power at once, and checks each. Adds to the events of each kind; returns the
/// lost bytes.
fn cut_them_all(bench: &Bench, make: &[&str], chance: &mut Chance, events: &mut [u64]) -> u64 {
    let disk = &bench.disk.dir;
    let each = KINDS.iter().enumerate().flat_map(|(kind, (_, quarters, case))| {
        (0..BESIDE * quarters).map(move |number| (kind, *case, format!("{}-{number}", case.describe())))
    });
    let prepared: Vec<_> = each.map(|(kind, case, name)| (kind, case, Writer::prepare(disk, &name), name)).collect();
    output_of("sync", &["-f", &disk.display().to_string()]).unwrap();
    let start = |(kind, case, shm, name): (usize, Case, tempfile::TempDir, String)| {
        let dir = disk.join(&name);
        let ledger = Ledger::of(&dir);
        let living = Living::start(case, &dir);
        Writer { kind, case, name, shm, ledger, living }
    };
    let mut writers: Vec<Writer> = prepared.into_iter().map(start).collect();
    writers.iter_mut().for_each(|writer| writer.living.opened());
    std::thread::sleep(Duration::from_micros(chance.below(400_000)));
    let durable: Vec<u64> = writers.iter().map(|writer| writer.ledger.get(SYNCED)).collect();
    bench.cut();
    let appended: Vec<u64> = writers.iter().map(|writer| writer.ledger.get(APPENDED)).collect();
    for writer in &writers {
        events[writer.kind] += writer.ledger.get(if writer.case.many { COUNT } else { EVENTS });
    }
    let names: Vec<(Case, String)> = writers
        .into_iter()
        .map(|writer| {
            writer.living.kill();
            for file in std::fs::read_dir(writer.shm.path()).unwrap() {
                std::fs::remove_file(file.unwrap().path()).unwrap();
            }
            (writer.case, writer.name)
        })
        .collect();
    let mut lost = 0;
    {
        let after = bench.after_the_cut(make);
        for (i, (case, name)) in names.iter().enumerate() {
            lost += appended[i].saturating_sub(check(*case, &after.dir.join(name), durable[i]));
        }
    }
    std::fs::remove_file(bench.ground.dir.join("cut")).unwrap();
    for (_, name) in names {
        std::fs::remove_dir_all(bench.disk.dir.join(name)).unwrap();
    }
    lost
}

fn of_every_kind(writers: u64) {
    let ext4 = &["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1"][..];
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let began = std::time::Instant::now();
    let (mut events, mut lost) = ([0; KINDS.len()], 0);
    // Half of the writers on each file system.
    for (make, half) in [(ext4, writers.div_ceil(2)), (&["mkfs.xfs", "-q", "-f"][..], writers / 2)] {
        let bench = match Bench::create(make) {
            Ok(bench) => bench,
            Err(e) => return needs::skip(needs::Need::Loop, "power_cut", e),
        };
        let cuts = half.div_ceil(4 * BESIDE);
        for cut in 1..=cuts {
            lost += cut_them_all(&bench, make, &mut chance, &mut events);
            // Printed after each cut, for a long run that is interrupted.
            println!(
                "{:?} {}: {cut} of {cuts} cuts, {} writers of each kind",
                began.elapsed(),
                make[0],
                cut * 4 * BESIDE
            );
        }
    }
    println!("{writers} writers of each kind; bytes lost that were not durable: {lost}");
    for ((kind, _, case), events) in KINDS.iter().zip(events) {
        println!("  {kind}: {events} events");
        assert!(events > 0 || case.life == Life::Appending, "{kind}: the event to be cut never happened");
    }
    assert!(lost > 0, "no byte was ever lost, so the cuts had no effect");
}

/// One after the other with the test above, for the same reason, which `--test-threads` alone does not ensure.
#[test]
fn every_kind_survives_a_power_cut() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    of_every_kind(std::env::var("PRECURSOR_KINDS").ok().and_then(|n| n.parse().ok()).unwrap_or(24));
}

#[test]
#[ignore = "two thousand writers of each kind take ten minutes, and an hour on a busy machine"]
fn every_kind_survives_two_thousand_power_cuts() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    of_every_kind(2000);
}
