//! The library in Java: it builds and passes its tests; and Java and Rust read, recover and lock what the other writes.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use precursor::{
    Evidence, Framing, Mode, OpenError, Options, Owner, ReadError, Reader, RecoverError, Seek, Waiting, Writer,
    leftovers, records, recover,
};

use crate::crash::{check_one, clean, fresh, lose_the_machine, resume};
use crate::failing_device::Overcommitted;
use crate::volume::output_of;
use crate::writer::{APPENDED, COUNT, Case, Chance, Ledger, Living, SYNCED, data_files};

const MODES: [(Mode, &str); 2] = [(Mode::Ring, "RING"), (Mode::Plain, "PLAIN")];
const ROLL: u64 = 64 << 10;

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("java")
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Compiles the library and `Drive`, once for all tests of this build. `None` without a JDK.
fn classes(test: &str) -> Option<PathBuf> {
    if Command::new("javac").arg("-version").output().is_err() {
        needs::skip(needs::Need::Java, test, "apt-get install openjdk-17-jdk-headless");
        return None;
    }
    let mut files = files_below(&home().join("src/main"));
    files.push(home().join("src/test/java/example/flatwater/precursor/Drive.java"));
    let newest = files.iter().map(|f| f.metadata().unwrap().modified().unwrap()).max();
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("java-classes");
    std::fs::create_dir_all(&out).unwrap();
    let done = out.join("done");
    let lock = File::create(out.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    if done.metadata().and_then(|m| m.modified()).ok() < newest {
        let compiled = Command::new("javac").arg("-Xlint:all").arg("-d").arg(&out).args(&files).output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        File::create(done).unwrap().write_all(b"done").unwrap();
    }
    Some(out)
}

fn drive(classes: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("java");
    // A short life: no optimising compiler, and no archive of classes to map.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m", "-cp"]).arg(classes);
    command.arg("example.flatwater.precursor.Drive").args(words);
    command
}

fn printed(classes: &Path, words: &[&str]) -> String {
    let done = drive(classes, words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn payload(i: u64) -> Vec<u8> {
    let mut bytes = i.to_le_bytes().to_vec();
    bytes.resize(8 + (i * 37 % 700) as usize, i as u8);
    bytes
}

fn path(dir: &Path, roll: u64) -> PathBuf {
    dir.join(if roll == 0 { "log" } else { "log-{}" })
}

fn options(dir: &Path, roll: u64, mode: Mode, framing: Framing) -> Options {
    Options::new(path(dir, roll)).mode(mode).framing(framing).roll_bytes(roll).ring_bytes(128 << 10)
}

/// The contents of the files, without the time of each header and its checksum.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |file: PathBuf| {
        let mut bytes = std::fs::read(&file).unwrap();
        if bytes.starts_with(b"prcrsrF2") {
            bytes[40..48].fill(0);
            bytes[60..64].fill(0);
        }
        (file.file_name().unwrap().to_str().unwrap().to_owned(), bytes)
    };
    data_files(dir).into_iter().map(read).collect()
}

#[test]
fn maven_builds_the_library_and_its_tests_pass() {
    let test = "the build of the library in Java";
    if Command::new("mvn").arg("--version").output().is_err() {
        return needs::skip(needs::Need::Java, test, "apt-get install openjdk-17-jdk-headless maven");
    }
    let home = home();
    let mvn = |words: &[&str]| {
        let done = Command::new("mvn").args(["-q", "-B", "-o"]).args(words).current_dir(&home).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    };
    mvn(&["package"]);
    let jar = |kind: &str| home.join(format!("target/precursor-{}{kind}.jar", env!("CARGO_PKG_VERSION")));
    for kind in ["-sources", "-javadoc"] {
        assert!(jar(kind).exists(), "{kind}");
    }
    // The same classes give the same jar.
    let first = std::fs::read(jar("")).unwrap();
    for class in files_below(&home.join("target/classes")) {
        File::options().append(true).open(class).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    }
    mvn(&["-Dmaven.jar.forceCreation=true", "jar:jar"]);
    assert!(std::fs::read(jar("")).unwrap() == first, "the jar depends on the times of the files");
}

#[test]
fn java_and_rust_write_the_same_bytes_and_read_each_others() {
    let Some(classes) = classes("the format in Java") else { return };
    for (mode, name) in MODES {
        for (framing, word) in [(Framing::Records, "records"), (Framing::None, "none")] {
            let (java, rust) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let file = path(java.path(), ROLL);
            let words = |from: &str, to: &str| {
                let (roll, file) = (ROLL.to_string(), file.display().to_string());
                printed(&classes, &["write", &file, name, word, &roll, "/dev/shm", from, to])
            };
            // In turns: each continues what the other has closed.
            words("0", "400");
            let mut log = options(java.path(), ROLL, mode, framing).open().unwrap();
            for i in 400..700 {
                log.append(&payload(i)).unwrap();
            }
            log.close().unwrap();
            let end = words("700", "1000");
            let mut log = options(rust.path(), ROLL, mode, framing).open().unwrap();
            for i in 0..1_000 {
                log.append(&payload(i)).unwrap();
            }
            let rust_end = log.close().unwrap().bytes();
            assert_eq!(end, rust_end.to_string(), "{name} {word}");
            let (java_files, rust_files) = (contents(java.path()), contents(rust.path()));
            assert!(java_files.len() > 3);
            for (ours, theirs) in java_files.iter().zip(&rust_files) {
                assert!(ours == theirs, "{name} {word}: {} differs", ours.0);
            }
            assert_eq!(java_files.len(), rust_files.len());
            if framing == Framing::Records {
                let file = path(rust.path(), ROLL).display().to_string();
                assert_eq!(printed(&classes, &["read", &file, "9999"]), format!("1000 {end} UNKNOWN 0"));
            }
        }
    }
}

#[test]
fn a_reader_in_java_seeks_with_the_index_and_without() {
    let Some(classes) = classes("seeks in Java") else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut log = options(dir.path(), 0, Mode::Ring, Framing::Records).times(true).open().unwrap();
    for i in 0..2_000 {
        log.append(&payload(i)).unwrap();
    }
    log.close().unwrap();
    let (file, index) = (path(dir.path(), 0).display().to_string(), dir.path().join(".log.index"));
    // A writer in Java keeps the same points, in both modes.
    for (_, name) in MODES {
        let theirs = tempfile::tempdir().unwrap();
        let file = path(theirs.path(), 0).display().to_string();
        printed(&classes, &["write", &file, name, "records", "0", "/dev/shm", "0", "2000"]);
        let places = |index: PathBuf| -> Vec<Vec<u8>> {
            std::fs::read(index).unwrap().chunks(32).skip(1).map(|point| point[..16].to_vec()).collect()
        };
        assert_eq!(places(theirs.path().join(".log.index")), places(index.clone()), "{name}");
        let mut reader = Reader::open(&file).unwrap();
        reader.seek(Seek::Number(1_500)).unwrap();
        let cost = reader.seek_cost();
        assert!(cost.points > 0 && cost.refused == 0 && cost.frames < 300, "{name}: {cost:?}");
        assert!(reader.next().unwrap().unwrap().bytes == payload(1_500));
    }
    let seek = || {
        let line = printed(&classes, &["seek", &file, "2000"]);
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        (numbers[0], numbers[1], numbers[2])
    };
    let (frames, points, refused) = seek();
    assert!(frames < 300 && points > 285 && refused == 0, "{frames} {points} {refused}");
    let mut bytes = std::fs::read(&index).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bytes.truncate(bytes.len() - 40);
    bytes.extend([0; 64]);
    std::fs::write(&index, bytes).unwrap();
    assert!(seek().2 > 0);
    std::fs::remove_file(index).unwrap();
    let (frames, points, _) = seek();
    assert!(frames > 1_900 && points == 0, "{frames} {points}");
}

const RECORDS: u64 = 3_000;

/// What a reader in Java prints of records that `append` appends while it follows.
fn followed(classes: &Path, file: &str, mut append: impl FnMut(&[u8]) -> u64) -> String {
    let words = ["follow", file, &RECORDS.to_string()];
    let follower = drive(classes, &words).stdout(Stdio::piped()).spawn().unwrap();
    for i in 0..RECORDS {
        append(&payload(i));
        if i % 10 == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    String::from_utf8(follower.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

#[test]
fn readers_follow_a_writer_in_the_other_language_across_files() {
    let Some(classes) = classes("reading across languages") else { return };
    for mode in [Mode::Ring, Mode::Window, Mode::Plain] {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), ROLL).display().to_string();
        let mut log = options(dir.path(), ROLL, mode, Framing::Records).open().unwrap();
        let seen = followed(&classes, &file, |record| log.append(record).unwrap().bytes());
        assert_eq!(seen, format!("{RECORDS} {} ALIVE 0", log.position().bytes()), "{mode:?}");
        log.close().unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let log = options(dir.path(), ROLL, Mode::Ring, Framing::Records).open_many().unwrap();
    let file = path(dir.path(), ROLL).display().to_string();
    let seen = followed(&classes, &file, |record| log.append(record).unwrap().bytes());
    assert!(seen.starts_with(&format!("{RECORDS} ")) && seen.contains(" ALIVE "), "several producers: {seen}");
    log.close().unwrap();
    for (_, name) in MODES {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), ROLL).display().to_string();
        let mut reader = Reader::open(&file).unwrap();
        for waiting in [Waiting::Asleep, Waiting::Spinning] {
            reader.waiting(waiting);
            reader.seek(Seek::End).unwrap();
            let from = if waiting == Waiting::Asleep { 0 } else { RECORDS };
            let (first, last, roll) = (from.to_string(), (from + RECORDS).to_string(), ROLL.to_string());
            let words = ["write", &file, name, "records", &roll, "/dev/shm", &first, &last];
            let mut writer = drive(&classes, &words).stdout(Stdio::null()).spawn().unwrap();
            for i in from..from + RECORDS {
                let found = reader.next_within(Duration::from_secs(60)).unwrap().expect("Java appends it");
                assert!(found.number == i && found.bytes == payload(i), "{name}: record {i}");
            }
            writer.wait().unwrap();
        }
    }
}

/// Number of records that a reader in Rust finds.
fn count(file: &str) -> Result<u64, ReadError> {
    let mut reader = Reader::open(file).unwrap();
    let mut count = 0;
    while reader.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Number of records that readers in Rust and in Java find; `None` if a header is damaged. Java checks the contents.
fn counted(classes: &Path, file: &str) -> Option<u64> {
    let (found, text) = match count(file) {
        Ok(count) => (Some(count), count.to_string()),
        Err(ReadError::Damaged { offset: 0, .. }) => (None, "Damaged".to_owned()),
        Err(e) => panic!("{e}"),
    };
    assert_eq!(printed(classes, &["count", file]), text, "{file}");
    found
}

/// A reader of a dead writer's records sees each acknowledged one, and none that recovery does not keep. Of the record
/// in flight it depends on the instant of the death whether it was stored, and whether it was published as well.
fn check_seen(seen: u64, kept: u64, ledger: &Ledger) {
    let acknowledged = ledger.get(COUNT);
    assert!((acknowledged..=kept).contains(&seen), "{acknowledged} acknowledged, {seen} read, {kept} kept");
}

/// A JVM killed at random instants, also within `append`. Every third round Java recovers, otherwise Rust.
fn torture(mode: Mode, framed: bool, roll: bool, kills: u64) {
    let case = Case { mode, framed, roll, ..Case::default() };
    let Some(classes) = classes("a killed JVM") else { return };
    let name = MODES.iter().find(|(each, _)| *each == mode).unwrap().1;
    let mut chance = Chance(0x51_7cc1_b727_220a ^ u64::from(framed) ^ u64::from(roll) << 1 ^ kills << 2);
    let (mut dir, mut ledger) = fresh(case, "java0");
    let mut appended = 0;
    for round in 0..kills {
        let (file, shm) = (case.path(dir.path()).display().to_string(), dir.path().join("shm").display().to_string());
        let (words, log) = (if framed { "records" } else { "none" }, format!("{shm}/ledger"));
        let roll = if roll { "262144" } else { "0" };
        let mut living = Living::of(&mut drive(&classes, &["die", &file, name, words, roll, &shm, &log]));
        if chance.below(8) != 0 {
            living.opened();
            // Sometimes long enough for compiled code.
            let most = if chance.below(4) == 0 { 300_000 } else { 12_000 };
            std::thread::sleep(Duration::from_micros(chance.below(most)));
        } else {
            std::thread::sleep(Duration::from_micros(chance.below(500_000)));
        }
        living.kill();
        appended += ledger.get(APPENDED);
        let machine_died = round % 2 == 1;
        if machine_died {
            lose_the_machine(dir.path(), ledger.get(SYNCED), &mut chance);
        }
        // Only a power cut may take records that a reader has read.
        let seen = (framed && !machine_died).then(|| counted(&classes, &file).unwrap());
        let mut recovered = None;
        if round % 3 == 2 {
            let found = printed(&classes, &["recover", &file]);
            let (evidence, len) = found.split_once(' ').unwrap();
            assert!(["LIVE", "FRAMES", "LENGTH", "UNPROVEN"].contains(&evidence), "{case:?}: {found}");
            recovered = Some(len.parse::<u64>().unwrap());
        }
        check_one(case, dir.path(), &ledger, machine_died);
        let len = recover(&file).unwrap().len;
        assert_eq!(recovered.unwrap_or(len), len, "{case:?} {round}: Rust cuts or extends what Java recovered");
        if framed {
            let kept = counted(&classes, &file);
            // Only a header that an open has not yet synced may be lost.
            assert!(kept.is_some() || machine_died && ledger.get(SYNCED) == 0, "{case:?} {round}");
            let kept = kept.unwrap_or(0);
            assert_eq!(kept, records(&crate::writer::contents(dir.path())).count() as u64, "{case:?} {round}");
            if let Some(seen) = seen {
                check_seen(seen, kept, &ledger);
            }
        } else {
            let again = printed(&classes, &["recover", &file]);
            assert_eq!(again, format!("LENGTH {len}"), "{case:?} {round}");
        }
        if machine_died || round % 8 == 6 {
            clean(&dir);
            (dir, ledger) = fresh(case, &format!("java{}", round + 1));
        } else {
            resume(case, dir.path(), &ledger);
        }
    }
    clean(&dir);
    assert!(appended > 0, "{case:?}: no JVM has appended");
}

#[test]
fn a_killed_jvm_loses_no_record_of_a_framed_ring() {
    torture(Mode::Ring, true, true, 8);
}

#[test]
fn a_killed_jvm_loses_no_record_of_an_unframed_ring() {
    torture(Mode::Ring, false, false, 6);
}

#[test]
fn a_killed_jvm_loses_no_record_of_plain_files() {
    torture(Mode::Plain, true, true, 6);
}

#[test]
#[ignore = "6 minutes: make test-power-cuts"]
fn a_jvm_killed_many_times_loses_no_record() {
    for (mode, _) in MODES {
        for (framed, roll) in [(true, true), (true, false), (false, true), (false, false)] {
            torture(mode, framed, roll, 50);
        }
    }
}

/// Java reads what a dead writer in Rust left, then recovers it.
#[test]
fn java_recovers_a_dead_writer_in_rust_and_keeps_what_its_reader_saw() {
    let Some(classes) = classes("recovery in Java") else { return };
    let mut chance = Chance(3);
    for mode in [Mode::Ring, Mode::Window, Mode::Plain] {
        let case = Case { mode, framed: true, roll: true, ..Case::default() };
        let (dir, ledger) = fresh(case, "rust");
        let mut living = Living::start(case, dir.path());
        living.opened();
        std::thread::sleep(Duration::from_micros(5_000 + chance.below(9_000)));
        living.kill();
        let file = case.path(dir.path()).display().to_string();
        let seen = counted(&classes, &file).unwrap();
        let found = printed(&classes, &["recover", &file]);
        assert!(found.starts_with("LIVE "), "{mode:?}: {found}");
        check_seen(seen, counted(&classes, &file).unwrap(), &ledger);
        check_one(case, dir.path(), &ledger, false);
        clean(&dir);
    }
}

#[test]
fn java_names_the_way_for_what_it_cannot_recover() {
    let Some(classes) = classes("recovery in Java") else { return };
    let case = Case { framed: true, many: true, ..Case::default() };
    let (dir, _) = fresh(case, "many");
    let mut living = Living::start(case, dir.path());
    living.opened();
    std::thread::sleep(Duration::from_millis(5));
    living.kill();
    let file = case.path(dir.path()).display().to_string();
    let found = printed(&classes, &["recover", &file]);
    assert!(found.starts_with("Unsupported") && found.contains("flatwater precursor --leftovers --clear"), "{found}");
    assert_eq!(recover(&file).unwrap().evidence, Evidence::Live);
    clean(&dir);
}

#[test]
fn an_appender_excludes_those_in_the_other_language() {
    let Some(classes) = classes("locks across languages") else { return };
    for (mode, name) in MODES {
        let dir = tempfile::tempdir().unwrap();
        let shm = tempfile::tempdir_in("/dev/shm").unwrap();
        let (file, shm_dir) = (path(dir.path(), ROLL), shm.path().display().to_string());
        let (text, roll) = (file.display().to_string(), ROLL.to_string());
        let words = ["hold", &text, name, "records", &roll, &shm_dir];
        let mut living = Living::of(drive(&classes, &words).stdin(Stdio::piped()));
        living.opened();
        // Under its name, and as a single file, which has another sidecar.
        for (other, roll) in [(&file, ROLL), (&dir.path().join("log-00000000"), 0)] {
            let options = Options::new(other).framing(Framing::Records).roll_bytes(roll);
            let refused = options.shm_dir(shm.path().to_path_buf()).open();
            assert!(matches!(refused, Err(OpenError::Busy { .. })), "{name} {}: {refused:?}", other.display());
        }
        assert!(matches!(recover(&file), Err(RecoverError::Busy { .. })), "{name}");
        assert_eq!(Reader::open(&file).unwrap().writer(), Writer::Alive, "{name}");
        assert!(leftovers(shm.path()).unwrap().iter().all(|left| left.owner == Owner::Living), "{name}");
        living.kill();
        assert_eq!(Reader::open(&file).unwrap().writer(), Writer::Dead, "{name}");
        let options = options(dir.path(), ROLL, mode, Framing::Records).shm_dir(shm.path().to_path_buf());
        let mut log = options.open().unwrap();
        log.append(&payload(10)).unwrap();
        for command in ["write", "recover"] {
            let busy = printed(&classes, &[command, &text, name, "records", &roll, &shm_dir, "0", "1"]);
            assert!(busy.starts_with("Busy: another appender"), "{name} {command}: {busy}");
        }
        let single = dir.path().join("log-00000000").display().to_string();
        let busy = printed(&classes, &["write", &single, name, "records", "0", &shm_dir, "0", "1"]);
        assert!(busy.starts_with("Busy: another appender"), "{name}: {busy}");
        assert_eq!(printed(&classes, &["read", &text, "99"]), format!("11 {} ALIVE 0", log.position().bytes()));
        log.close().unwrap();
    }
}

#[test]
fn a_failed_sync_stays_failed_and_its_recovery_is_left_to_rust() {
    let Some(classes) = classes("a failing device in Java") else { return };
    for (_, name) in MODES {
        let volume = match Overcommitted::create() {
            Ok(volume) => volume,
            Err(e) => return needs::skip(needs::Need::Loop, "a failing device in Java", e),
        };
        let file = path(&volume.dir(), 0).display().to_string();
        let failed = printed(&classes, &["sync", &file, name, "records", "0", "/dev/shm"]);
        let durable = failed.strip_prefix("Failed durable ").and_then(|d| d.parse::<u64>().ok());
        let durable = durable.unwrap_or_else(|| panic!("{name}: {failed}"));
        assert!(durable > 0, "{name}");
        volume.repair();
        let refused = printed(&classes, &["recover", &file]);
        assert!(refused.starts_with("Unsupported") && refused.contains("a sync had failed"), "{name}: {refused}");
        let found = recover(&file).unwrap();
        assert!(found.evidence == Evidence::Unproven && found.len >= durable, "{name}: {found:?}");
    }
}

#[test]
fn the_example_is_the_case_studys_writer() {
    let Some(classes) = classes("the example in Java") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (file, example) = (path(dir.path(), 0).display().to_string(), home().join("examples/JournalWriter.java"));
    let done = Command::new("java").arg("-cp").arg(&classes).arg(example).args([&file, "1"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(text.contains("5000 records in "), "{text}");
    assert_eq!(count(&file).unwrap(), 5_000);
}

/// A tmpfs of this size, mounted until dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn of(bytes: u64) -> Small {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        output_of("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &dir.path().display().to_string()]).unwrap();
        Small(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = output_of("umount", &["-l", &self.0.path().display().to_string()]);
    }
}

#[test]
fn full_shared_memory_is_reported_and_leaves_nothing() {
    let Some(classes) = classes("full shared memory in Java") else { return };
    if !rustix::process::geteuid().is_root() {
        return needs::skip(needs::Need::Root, "full shared memory in Java", "it mounts a tmpfs");
    }
    let (dir, shm) = (tempfile::tempdir().unwrap(), Small::of(64 << 10));
    let (file, shm_dir) = (path(dir.path(), 0).display().to_string(), shm.0.path().display().to_string());
    let ring = printed(&classes, &["write", &file, "RING", "records", "0", &shm_dir, "0", "10"]);
    assert!(ring.starts_with("Io: create the ring of") && ring.contains("No space left"), "{ring}");
    assert_eq!(std::fs::read_dir(shm.0.path()).unwrap().count(), 0);
    let auto = printed(&classes, &["write", &file, "auto", "records", "0", &shm_dir, "0", "10"]);
    let read = printed(&classes, &["read", &file, "99"]);
    assert_eq!(read, format!("10 {auto} UNKNOWN 0"));
}

#[test]
fn a_full_disk_stops_appends_and_loses_none() {
    let Some(classes) = classes("a full disk in Java") else { return };
    if !rustix::process::geteuid().is_root() {
        return needs::skip(needs::Need::Root, "a full disk in Java", "it mounts a tmpfs");
    }
    for (_, name) in MODES {
        let disk = Small::of(1 << 20);
        let file = path(disk.0.path(), 0).display().to_string();
        let full = printed(&classes, &["fill", &file, name, "records", "0", "/dev/shm"]);
        assert!(full.starts_with("OutOfSpace"), "{name}: {full}");
        let count: u64 = full.rsplit(' ').next().unwrap().parse().unwrap();
        let mut reader = Reader::open(&file).unwrap();
        for i in 0..count {
            assert!(reader.next().unwrap().expect("appended").bytes == payload(i), "{name}: record {i} of {count}");
        }
        assert!(reader.next().unwrap().is_none());
    }
}
