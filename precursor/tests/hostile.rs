//! Files that another user puts beside root's: recovery and clearing neither change nor cut anything through them.
//!
//! Needs root: the files are prepared here and put in place by a process of user 65534.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use needs::{UNPRIVILEGED_ID, unprivileged_command};
use precursor::{Evidence, Framing, Leftover, Mode, Options, Owner, Reader, Writer, leftovers, recover};

use crate::forge::{Live, Side, secrets, stem_of, this_boot};

/// Runs a command line as another user. False if it failed.
fn run_unprivileged(line: &str) -> bool {
    let mut shell = unprivileged_command("sh");
    shell.args(["-c", line]).current_dir("/").stderr(std::process::Stdio::null()).status().unwrap().success()
}

/// A directory that everyone may enter, and a second one like /dev/shm: sticky, world-writable, on tmpfs.
struct Scene {
    home: tempfile::TempDir,
    shm: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let open = |dir: &Path, mode| std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
        let home = tempfile::tempdir().unwrap();
        open(home.path(), 0o755);
        let shm = tempfile::Builder::new().prefix("precursor-hostile-").tempdir_in("/dev/shm").unwrap();
        open(shm.path(), 0o1777);
        std::fs::create_dir(home.path().join("public")).unwrap();
        open(&home.path().join("public"), 0o1777);
        Scene { home, shm }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file as the other user, readable by all.
    fn plant(&self, bytes: &[u8], at: &Path) {
        let prepared = self.path("prepared");
        std::fs::write(&prepared, bytes).unwrap();
        std::fs::set_permissions(&prepared, std::fs::Permissions::from_mode(0o644)).unwrap();
        let line = format!("umask 0; cat '{}' > '{}'", prepared.display(), at.display());
        assert!(run_unprivileged(&line), "could not plant {}", at.display());
        assert_eq!(std::fs::metadata(at).unwrap().uid(), UNPRIVILEGED_ID);
    }
}

/// S1: a forged live block, ring and sidecar, and a link in place of the data. Root must not write through the link.
#[test]
fn clearing_leftovers_as_root_writes_nothing_for_others() {
    let scene = Scene::new();
    let target = scene.path("target");
    std::fs::write(&target, b"root's own, and secret").unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
    let data = scene.path("public/data");
    assert!(run_unprivileged(&format!("ln -s '{}' '{}'", target.display(), data.display())));
    let payload = b"* * * * * root sh /tmp/evil\n";
    let (token, id) = (0x0123_4567_89ab_cdef, 0x1111_2222);
    let stem = stem_of(&data, id);
    let (boot, position) = (this_boot(), payload.len() as u64);
    let live = Live { token, boot, data: data.clone(), position, ring_bytes: 4096 };
    let mut ring = payload.to_vec();
    ring.resize(4096, 0);
    scene.plant(&ring, &scene.shm.path().join(format!("{stem}.ring0")));
    scene.plant(&live.bytes(), &scene.shm.path().join(format!("{stem}.live")));
    let side = Side { token, id, boot, shm_dir: scene.shm.path().to_owned() };
    scene.plant(&side.bytes(), &scene.path("public/.data.precursor"));

    let found = leftovers(scene.shm.path()).unwrap();
    assert!(matches!(&found[..], [Leftover { owner: Owner::Foreign(why), .. }] if why.contains("65534")), "{found:?}");
    assert_eq!(found[0].clear().unwrap(), None);
    // Neither recovery nor open by name may follow them.
    let refusal = recover(&data).unwrap_err().to_string();
    assert!(refusal.contains("belongs to user 65534"), "{refusal}");
    let refusal = Options::new(&data).shm_dir(scene.shm.path().to_owned()).open().unwrap_err().to_string();
    assert!(refusal.contains("belongs to user 65534"), "{refusal}");
    std::fs::remove_file(scene.path("public/.data.precursor")).unwrap();
    for mode in [Mode::Plain, Mode::Ring] {
        let refusal = Options::new(&data).mode(mode).open().unwrap_err().to_string();
        assert!(refusal.contains("symbolic link"), "{refusal}");
    }
    assert_eq!(std::fs::read(&target).unwrap(), b"root's own, and secret");
    assert!(found[0].files.iter().all(|file| file.exists()), "files of another user must not be removed");
}

/// A sidecar, a live block and a ring of another user, who claims more records than the file has.
#[test]
fn a_reader_takes_nothing_from_the_shared_memory_of_another_user() {
    let scene = Scene::new();
    let data = scene.path("public/data");
    let mut log = Options::new(&data).mode(Mode::Plain).framing(Framing::Records).open().unwrap();
    log.append(b"the only record").unwrap();
    log.close().unwrap();
    let (token, id, boot) = (0x0123_4567_89ab_cdef, 0x1111_2222, this_boot());
    let stem = stem_of(&data, id);
    let live = Live { token, boot, data: data.clone(), position: 4096, ring_bytes: 4096 };
    scene.plant(&[1; 4096], &scene.shm.path().join(format!("{stem}.ring0")));
    scene.plant(&live.bytes(), &scene.shm.path().join(format!("{stem}.live")));
    let side = Side { token, id, boot, shm_dir: scene.shm.path().to_owned() };
    scene.plant(&side.bytes(), &scene.path("public/.data.precursor"));
    let mut reader = Reader::open(&data).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().bytes, b"the only record");
    assert_eq!(reader.next().unwrap(), None);
    assert_eq!(reader.writer(), Writer::Unknown);
}

/// S2: after a restart the token is known to anyone who could read the sidecar, and the shared memory is empty.
#[test]
fn a_forged_live_block_cuts_no_durable_byte_after_a_restart() {
    let scene = Scene::new();
    let data = scene.path("journal");
    let shm = scene.shm.path().to_owned();
    let mut log = Options::new(&data).mode(Mode::Window).shm_dir(shm.clone()).open().unwrap();
    for _ in 0..1300 {
        log.append(&[7; 1000]).unwrap();
    }
    let durable = log.sync_to(log.position()).unwrap().bytes();
    let sidecar = scene.path(".journal.precursor");
    let saved = std::fs::read(&sidecar).unwrap();
    assert!(!run_unprivileged(&format!("cat '{}' > /dev/null", sidecar.display())), "others can read the sidecar");
    let journal = std::fs::read(&data).unwrap();
    log.close().unwrap();
    // After a restart: data and sidecar exist, and the shared memory is empty.
    std::fs::write(&data, &journal).unwrap();
    std::fs::write(&sidecar, &saved).unwrap();
    std::fs::set_permissions(&sidecar, std::fs::Permissions::from_mode(0o600)).unwrap();
    // Even with the right token, a block of another user is not trusted; nor is root's own block of another boot, or
    // one that ends before the journalled durable position.
    let (token, id, boot) = secrets(&saved);
    assert_eq!(boot, this_boot());
    let live = Live { token, boot, data: data.clone(), position: 24, ring_bytes: 0 };
    let at = shm.join(format!("{}.live", stem_of(&data, id)));
    scene.plant(&live.bytes(), &at);

    let found = recover(&data).unwrap();
    let bytes = std::fs::read(&data).unwrap();
    assert!(bytes.len() as u64 >= durable, "{} of {durable} durable bytes are left; {found:?}", bytes.len());
    assert!(bytes.iter().take(durable as usize).all(|b| *b == 7));
    assert_eq!(found.evidence, Evidence::Journalled);
    assert!(at.exists(), "a file of another user must not be removed");
    std::fs::remove_file(&at).unwrap();

    let restore = || {
        std::fs::write(&data, &journal).unwrap();
        std::fs::write(&sidecar, &saved).unwrap();
        std::fs::set_permissions(&sidecar, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    restore();
    std::fs::write(&at, live.bytes()).unwrap();
    std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).unwrap();
    let refusal = recover(&data).unwrap_err().to_string();
    assert!(refusal.contains("ends before the journalled durable position"), "{refusal}");
    assert_eq!(std::fs::metadata(&data).unwrap().len(), journal.len() as u64, "nothing was changed");
    std::fs::write(&at, Live { boot: boot ^ 1, ..live }.bytes()).unwrap();
    assert_eq!(recover(&data).unwrap().evidence, Evidence::Journalled);
    assert_eq!(std::fs::metadata(&data).unwrap().len(), durable);
}

/// Links, pipes, hard links and files of others in place of each file that the library opens.
#[test]
fn only_files_of_this_user_are_opened() {
    let scene = Scene::new();
    let shm = scene.shm.path().to_owned();
    let open = |name: &str| Options::new(scene.path(name)).mode(Mode::Ring).shm_dir(shm.clone()).open();
    let refused = |name: &str, word: &str| {
        let refusal = open(name).unwrap_err().to_string();
        assert!(refusal.contains(word), "{name}: {refusal}");
        let refusal = recover(scene.path(name)).unwrap_err().to_string();
        assert!(refusal.contains(word), "{name}: {refusal}");
    };
    let target = scene.path("target");
    std::fs::write(&target, b"untouched").unwrap();
    let made = |name: &str| scene.path(name);
    std::os::unix::fs::symlink(&target, made(".a.precursor")).unwrap();
    refused("a", "symbolic link");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        made(".b.precursor"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    refused("b", "not a regular file");
    std::fs::hard_link(&target, made(".c.precursor")).unwrap();
    refused("c", "2 hard links");
    std::fs::remove_file(made(".c.precursor")).unwrap();
    std::fs::write(made(".d.precursor"), b"").unwrap();
    std::fs::set_permissions(made(".d.precursor"), std::fs::Permissions::from_mode(0o666)).unwrap();
    refused("d", "others may write");
    std::fs::create_dir(made("e")).unwrap();
    refused("e", "not a regular file");
    std::fs::write(made("f"), b"his").unwrap();
    std::os::unix::fs::chown(made("f"), Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).unwrap();
    refused("f", "belongs to user 65534");
    assert_eq!(std::fs::read(&target).unwrap(), b"untouched");
    assert_eq!(std::fs::read(made("f")).unwrap(), b"his");
}

/// Only its owner can read the shared memory, and its names are random, so that other users cannot create them first.
#[test]
fn only_the_owner_can_read_the_librarys_files() {
    let scene = Scene::new();
    let data = scene.path("log");
    let mut log = Options::new(&data).mode(Mode::Ring).shm_dir(scene.shm.path().to_owned()).open().unwrap();
    log.append(b"secret").unwrap();
    let mut made: Vec<PathBuf> = std::fs::read_dir(scene.shm.path()).unwrap().map(|e| e.unwrap().path()).collect();
    made.push(scene.path(".log.precursor"));
    assert_eq!(made.len(), 3, "{made:?}");
    for file in &made {
        assert_eq!(std::fs::metadata(file).unwrap().mode() & 0o777, 0o600, "{}", file.display());
        assert!(!run_unprivileged(&format!("cat '{}' > /dev/null", file.display())));
    }
    let names = |made: &[PathBuf]| -> Vec<PathBuf> { made[..2].to_vec() };
    let first = names(&made);
    log.close().unwrap();
    let log = Options::new(&data).mode(Mode::Ring).shm_dir(scene.shm.path().to_owned()).open().unwrap();
    let second: Vec<PathBuf> = std::fs::read_dir(scene.shm.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(first.iter().all(|name| !second.contains(name)), "{first:?} {second:?}");
    log.close().unwrap();
}
