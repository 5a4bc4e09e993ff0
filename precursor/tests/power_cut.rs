//! The machine dies: what was called durable is on the device, whatever else was not.
//!
//! A writer appends to a file system on a loop device whose image lies on an xfs. At a random instant the image is cloned
//! (FICLONE holds the file's lock, so that the clone is the device as it was at one instant): it has what the file system had
//! handed to its device by then and nothing of the page cache, of the writer or of its shared memory. The clone is then mounted, which replays
//! its journal, and recovered. What a device loses that lies about its cache this cannot show: the loop keeps all that it was handed.
//!
//! `PRECURSOR_CUTS` sets the cuts for each combination: 3 by default. Needs root and xfs; says so where it has neither.

use std::path::Path;
use std::time::Duration;

use precursor::{Mode, records, recover};

#[allow(dead_code, reason = "each test needs a part of it")]
mod volume;
#[allow(dead_code, reason = "each test needs a part of it")]
mod writer;
use volume::{Mounted, said};
use writer::{APPENDED, Case, Chance, Ledger, Living, RECORD, SYNCED, contents, record};

#[test]
fn child() {
    writer::live_if_told();
}

fn cuts() -> u64 {
    std::env::var("PRECURSOR_CUTS").ok().and_then(|k| k.parse().ok()).unwrap_or(3)
}

/// The xfs that clones, and on it the device that is cut.
/// Fields go in this order: the disk before what it lies on.
struct Bench {
    disk: Mounted,
    ground: Mounted,
    home: tempfile::TempDir,
}

impl Bench {
    fn create(make: &[&str]) -> Result<Bench, String> {
        let home = tempfile::tempdir().map_err(|e| e.to_string())?;
        let clones = ["mkfs.xfs", "-q", "-f", "-m", "reflink=1"];
        let ground = Mounted::create(&home.path().join("ground"), 2 << 30, &clones, &home.path().join("g"))?;
        let disk = Mounted::create(&ground.dir.join("disk"), 320 << 20, make, &home.path().join("d"))?;
        Ok(Bench { disk, ground, home })
    }

    /// The device as it is at this instant.
    fn cut(&self) {
        let image = |name: &str| self.ground.dir.join(name).display().to_string();
        said("cp", &["--reflink=always", &image("disk"), &image("cut")]).unwrap();
    }

    fn after_the_cut(&self, make: &[&str]) -> Mounted {
        // The clone has the identity of the disk that is still mounted.
        let options = if make[0] == "mkfs.xfs" { "nouuid" } else { "defaults" };
        Mounted::attach(&self.ground.dir.join("cut"), &self.home.path().join("c"), options).unwrap()
    }
}

/// Lives on the disk until the cut; returns how much of what was appended did not survive it.
fn live_and_lose_power(case: Case, bench: &Bench, make: &[&str], chance: &mut Chance) -> u64 {
    let name = format!("{}-{}", case.describe(), chance.below(u64::MAX));
    let shm = tempfile::Builder::new().prefix("precursor-cut-").tempdir_in("/dev/shm").unwrap();
    let dir = bench.disk.dir.join(&name);
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(shm.path(), dir.join("shm")).unwrap();
    // The folder is the test's own; that it is on the disk is not what is asked.
    said("sync", &["-f", &dir.display().to_string()]).unwrap();
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

/// Every durable byte is there and right; returns how many bytes are there.
fn check(case: Case, dir: &Path, durable: u64) -> u64 {
    let recovered = recover(case.path(dir)).unwrap_or_else(|e| panic!("{case:?}, {durable} bytes durable: {e}"));
    let bytes = contents(dir);
    assert!(bytes.len() as u64 >= durable, "{case:?}: {} of {durable} durable bytes; {recovered:?}", bytes.len());
    let payloads: Vec<&[u8]> = match case.framed {
        true => records(&bytes).collect(),
        false => bytes.chunks(RECORD).take(usize::try_from(durable).unwrap() / RECORD).collect(),
    };
    for (i, payload) in payloads.iter().enumerate() {
        assert!(*payload == record(0, i as u64), "{case:?}: record {i} of {}; {recovered:?}", payloads.len());
    }
    assert_eq!(recover(case.path(dir)).unwrap().cut_bytes, 0, "recovering twice changes nothing");
    bytes.len() as u64
}

fn on(make: &[&str]) {
    let bench = match Bench::create(make) {
        Ok(bench) => bench,
        Err(e) => return eprintln!("SKIPPED: no device whose power can be cut can be made here: {e}"),
    };
    let mut chance = Chance(0x5851_f42d_4c95_7f2d);
    let mut lost = 0;
    for mode in [Mode::Plain, Mode::Prefetch, Mode::Window, Mode::Ring] {
        for (framed, roll) in [(false, false), (true, false), (false, true), (true, true)] {
            for _ in 0..cuts() {
                let case = Case { mode, framed, roll, many: false };
                lost += live_and_lose_power(case, &bench, make, &mut chance);
            }
        }
    }
    println!("{}: {} cuts, {lost} bytes that nobody had called durable were lost", make[0], 16 * cuts());
    assert!(lost > 0, "nothing was ever lost, so the cuts cut nothing");
}

/// One after the other: what another thread of this process starts holds our files open for a moment, and nothing could be
/// unmounted then.
#[test]
fn what_was_durable_survives() {
    on(&["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1"]);
    on(&["mkfs.xfs", "-q", "-f"]);
}
