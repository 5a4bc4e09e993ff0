//! Kills a writing process at random instants and checks every acknowledged byte.
//!
//! The child (`writer`) records what `append` and `sync_to` have acknowledged. After the kill, half of the rounds keep
//! the shared memory: the process died. The other half remove it and damage bytes that were not durable: the machine
//! died, as far as a running machine can show it. (The page cache still has the child's writes, so the test damages
//! what a real crash might lose.)
//!
//! `PRECURSOR_KILLS` sets the rounds per mode: 60 by default, 1000 in the long test.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use precursor::{Evidence, Leftover, Mode, Options, Owner, leftovers, records, recover};

use crate::writer::{APPENDED, COUNT, Case, Chance, Ledger, Living, RECORD, SYNCED, contents, data_files, record};

/// Starts the child, lets it run for a random time after it has opened, and kills it.
fn live_and_die(case: Case, dir: &Path, chance: &mut Chance) {
    let mut living = Living::start(case, dir);
    // One round in eight kills it while it opens or recovers.
    if chance.below(8) != 0 {
        living.opened();
    }
    std::thread::sleep(Duration::from_micros(chance.below(12_000)));
    living.kill();
}

/// Imitates the machine's death: removes the shared memory, and overwrites ranges of the unsynced bytes.
pub fn lose_the_machine(dir: &Path, synced: u64, chance: &mut Chance) {
    for entry in std::fs::read_dir(dir.join("shm")).unwrap().map(|e| e.unwrap()) {
        if entry.file_name() != "ledger" {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let mut base = 0;
    for path in data_files(dir) {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        let from = synced.saturating_sub(base).min(len);
        if from < len && chance.below(2) == 0 {
            let at = from + chance.below(len - from);
            let garbage = [if chance.below(2) == 0 { 0 } else { 0xa5 }; 300];
            let most = usize::try_from(len - at).unwrap().min(garbage.len());
            file.write_all_at(&garbage[..most], at).unwrap();
        }
        base += len;
    }
}

pub fn check_one(case: Case, dir: &Path, ledger: &Ledger, machine_died: bool) {
    let (appended, synced) = (ledger.get(APPENDED), ledger.get(SYNCED));
    let recovered = recover(case.path(dir)).unwrap();
    let bytes = contents(dir);
    let end = bytes.len() as u64;
    let promised = if machine_died { synced } else { appended };
    assert!(end >= promised, "{case:?}: {end} of {promised} promised bytes; {recovered:?}");
    let payloads: Vec<&[u8]> = match case.framed {
        true => records(&bytes).collect(),
        false => bytes.chunks(RECORD).collect(),
    };
    let proven = !machine_died || case.framed;
    let trusted = if proven { payloads.len() } else { usize::try_from(promised).unwrap() / RECORD };
    for (i, payload) in payloads.iter().take(trusted).enumerate() {
        assert!(*payload == record(0, i as u64), "{case:?}: record {i} of {trusted} is wrong; {recovered:?}");
    }
    if !machine_died {
        assert!(matches!(recovered.evidence, Evidence::Live | Evidence::Length), "{case:?}: {recovered:?}");
        // Beyond the acknowledged records, at most the one in flight exists.
        assert!(payloads.len() as u64 <= ledger.get(COUNT) + 1, "{case:?}");
    }
    assert_eq!(recover(case.path(dir)).unwrap().cut_bytes, 0, "recovering twice changes nothing");
}

/// Sets the ledger to the contents of the files, for the next writer on them.
pub fn resume(case: Case, dir: &Path, ledger: &Ledger) {
    let bytes = contents(dir);
    let count = if case.framed { records(&bytes).count() } else { bytes.len() / RECORD };
    ledger.set(COUNT, count as u64);
    ledger.set(APPENDED, bytes.len() as u64);
    ledger.set(SYNCED, bytes.len() as u64);
}

fn kills() -> u64 {
    std::env::var("PRECURSOR_KILLS").ok().and_then(|k| k.parse().ok()).unwrap_or(60)
}

pub fn fresh(case: Case, label: &str) -> (tempfile::TempDir, Ledger) {
    let dir =
        tempfile::Builder::new().prefix(&format!("precursor-crash-{}-{label}-", case.describe())).tempdir().unwrap();
    // The child's shared memory must be on tmpfs; each test has its own directory there.
    let shm = PathBuf::from("/dev/shm").join(dir.path().file_name().unwrap());
    std::fs::create_dir(&shm).unwrap();
    std::os::unix::fs::symlink(&shm, dir.path().join("shm")).unwrap();
    let ledger = Ledger::of(dir.path());
    (dir, ledger)
}

pub fn clean(dir: &tempfile::TempDir) {
    std::fs::remove_dir_all(PathBuf::from("/dev/shm").join(dir.path().file_name().unwrap())).unwrap();
}

fn torture(case: Case) {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15 ^ case.describe().bytes().map(u64::from).sum::<u64>());
    let begun = Instant::now();
    let (mut dir, mut ledger) = fresh(case, "0");
    for round in 0..kills() {
        live_and_die(case, dir.path(), &mut chance);
        let machine_died = round % 2 == 1;
        if machine_died {
            lose_the_machine(dir.path(), ledger.get(SYNCED), &mut chance);
        }
        check_one(case, dir.path(), &ledger, machine_died);
        // Most writers continue the files of the previous one. After damage, and every eighth round, new files are
        // used.
        if machine_died || round % 8 == 6 {
            clean(&dir);
            (dir, ledger) = fresh(case, &round.to_string());
        } else {
            resume(case, dir.path(), &ledger);
        }
    }
    clean(&dir);
    println!("{case:?}: {} kills in {:?}", kills(), begun.elapsed());
}

macro_rules! torture {
    ($($name:ident: $mode:ident $framed:literal $roll:literal;)*) => {
        $(#[test] fn $name() { torture(Case { mode: Mode::$mode, framed: $framed, roll: $roll, ..Case::default() }); })*
    };
}

torture! {
    ring_raw: Ring false false;
    ring_raw_rolled: Ring false true;
    ring_framed_rolled: Ring true true;
    window_raw: Window false false;
    window_framed: Window true false;
    window_framed_rolled: Window true true;
    window_raw_rolled: Window false true;
    prefetch_raw: Prefetch false false;
    prefetch_framed: Prefetch true false;
    prefetch_raw_rolled: Prefetch false true;
    plain_raw: Plain false false;
    plain_framed_rolled: Plain true true;
}

#[test]
fn many_producers() {
    let case = Case { framed: true, many: true, ..Case::default() };
    let mut chance = Chance(7);
    for round in 0..kills() {
        let (dir, ledger) = fresh(case, &round.to_string());
        live_and_die(case, dir.path(), &mut chance);
        recover(case.path(dir.path())).unwrap();
        let bytes = contents(dir.path());
        let mut next = [0u64; 2];
        for payload in records(&bytes) {
            let producer = u64::from_le_bytes(payload[..8].try_into().unwrap());
            let i = &mut next[usize::try_from(producer).unwrap()];
            assert!(payload == record(producer, *i), "producer {producer}, record {i}");
            *i += 1;
        }
        for (producer, found) in next.into_iter().enumerate() {
            let acknowledged = ledger.get(COUNT + producer);
            assert!(
                found == acknowledged || found == acknowledged + 1,
                "round {round}: producer {producer}: {found} found, {acknowledged} acknowledged"
            );
        }
        clean(&dir);
    }
}

/// Kills writers that have opened until one leaves something to recover, and returns that.
fn leave_something(case: Case, dir: &Path, chance: &mut Chance) -> Leftover {
    loop {
        live_and_die(case, dir, chance);
        let left = leftovers(dir.join("shm")).unwrap();
        if let Some(dead) = left.into_iter().find(|l| matches!(l.owner, Owner::Dead(_))) {
            return dead;
        }
    }
}

#[test]
fn shared_memory_of_a_killed_writer_is_found_and_cleared() {
    let case = Case::default();
    let mut chance = Chance(11);
    let (dir, ledger) = fresh(case, "left");
    let shm = dir.path().join("shm");
    let living = Options::new(dir.path().join("living")).mode(Mode::Ring).shm_dir(shm.clone()).open().unwrap();

    let dead = leave_something(case, dir.path(), &mut chance);
    assert_eq!(dead.owner, Owner::Dead(case.path(&dir.path().canonicalize().unwrap())));
    assert!(dead.bytes >= 128 << 10, "{dead:?}");
    let other = Options::new(dir.path().join("other")).mode(Mode::Ring).shm_dir(shm.clone()).open().unwrap();
    assert!(
        other.reasons().iter().any(|r| r.contains("dead writers") && r.contains("--clear")),
        "{:?}",
        other.reasons()
    );
    other.close().unwrap();
    assert_eq!(dead.clear().unwrap().unwrap().evidence, Evidence::Live);
    assert!(contents(dir.path()).len() as u64 >= ledger.get(APPENDED));

    // Without the sidecar, nothing can be recovered any more.
    let dead = leave_something(case, dir.path(), &mut chance);
    std::fs::remove_file(dir.path().join(".log.precursor")).unwrap();
    let orphan = leftovers(&shm).unwrap().into_iter().find(|l| l.files == dead.files).unwrap();
    assert!(matches!(&orphan.owner, Owner::Stale(Some(_))), "{orphan:?}");
    assert_eq!(orphan.clear().unwrap(), None);

    let rest: Vec<Owner> = leftovers(&shm).unwrap().into_iter().map(|l| l.owner).collect();
    assert_eq!(rest, [Owner::Living]);
    living.close().unwrap();
    assert_eq!(leftovers(&shm).unwrap(), []);
    clean(&dir);
}
