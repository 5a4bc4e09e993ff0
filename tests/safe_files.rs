//! Files that another user can influence: what root writes, removes and trusts there (S3, S4, S5). Each exploit
//! succeeds on 3c238a6 (`FLATWATER_UNDER_TEST=... cargo test -p flatwater safe_files::`). Needs root.

use std::fs::{Permissions, create_dir, metadata, read_dir, rename, set_permissions, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::common::exploit::{UNPRIVILEGED_ID, Yard, flatwater, log_file, text, within};
use needs::as_unprivileged;
use rustix::fs::{CWD, RenameFlags, renameat_with};

const LONG: Duration = Duration::from_secs(60);

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id").trim().to_owned()
}

/// Writes a journal of a dead run, in the format of 3c238a6, that makes root remove `victim`.
fn evil_journal(dir: &Path, victim: &Path) {
    let head = format!("{{\"flatwater_journal\":1,\"pid\":4194303,\"boot\":\"{}\"}}\n", boot_id());
    let record = format!("{{\"undo\":\"remove\",\"path\":\"{}\"}}\n", victim.display());
    write(dir.join("setup-4194303-0.journal"), head + &record).expect("write");
}

/// S3: the directory was checked and its journals opened by path, so a loop that exchanged directories won the race.
#[test]
fn s3_a_journal_of_another_user_is_not_undone() {
    let yard = Yard::new();
    let state = yard.theirs().join("state");
    as_unprivileged(|| create_dir(&state).expect("create"));
    // An earlier `sudo -E` leaves a directory of root in the user's home.
    let (good, evil) = (state.join("flatwater"), state.join("evil"));
    create_dir(&good).expect("create");
    set_permissions(&good, Permissions::from_mode(0o700)).expect("chmod");
    as_unprivileged(|| {
        create_dir(&evil).expect("create");
        evil_journal(&evil, &yard.victim());
    });
    let (done, exchanged) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            as_unprivileged(|| {
                while !done.load(Ordering::Relaxed) {
                    renameat_with(CWD, &good, CWD, &evil, RenameFlags::EXCHANGE).expect("rename");
                    exchanged.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        for _ in 0..300 {
            let mut restore = flatwater();
            restore.arg("restore").env("HOME", yard.theirs()).env("XDG_STATE_HOME", &state);
            within(LONG, &mut restore).expect("restore ends");
            if !yard.victim().exists() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(exchanged.load(Ordering::Relaxed) > 100, "the attack did not run");
    yard.assert_victim_unharmed("restore removed a file named in a planted journal");
}

#[test]
fn s3_a_state_directory_that_others_can_influence_is_not_used() {
    let yard = Yard::new();
    let state = yard.theirs().join("flatwater");
    // The directory belongs to root and is private, but another user owns its parent and may replace it.
    create_dir(&state).expect("create");
    set_permissions(&state, Permissions::from_mode(0o700)).expect("chmod");
    evil_journal(&state, &yard.victim());
    let out = within(LONG, flatwater().arg("restore").env("FLATWATER_STATE", &state)).expect("restore ends");
    yard.assert_victim_unharmed("a journal below another user's directory was undone");
    let message = text(&out.stderr);
    assert!(
        message.contains("not searched for undo journals") && message.contains(&format!("uid {UNPRIVILEGED_ID}")),
        "{message}"
    );
}

/// S4: another user could put links into an empty directory of theirs while root used it for output.
#[test]
fn s4_output_never_goes_into_another_users_directory() {
    let yard = Yard::new();
    let (log, out) = (yard.path().join("vmstat.log"), yard.theirs().join("out"));
    log_file(&log);
    let victim = yard.victim();
    for _ in 0..20 {
        as_unprivileged(|| {
            let _ = std::fs::remove_dir_all(&out);
            create_dir(&out).expect("create");
        });
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                as_unprivileged(|| {
                    // Wait until the command has found the directory empty.
                    while !done.load(Ordering::Relaxed) && !out.join("header.json").exists() {
                        std::hint::spin_loop();
                    }
                    let _ = symlink(&victim, out.join("report.html"));
                });
            });
            within(LONG, flatwater().arg("import").arg(&log).arg("-o").arg(&out)).expect("import ends");
            done.store(true, Ordering::Relaxed);
        });
        yard.assert_victim_unharmed("the report was written through a link in the output directory");
        let _ = std::fs::remove_dir_all(&out);
    }
}

/// S4: the owner of the parent moves and replaces a directory that root has made.
#[test]
fn s4_output_stays_in_the_opened_directory_after_a_swap() {
    let yard = Yard::new();
    let (log, out, away) = (yard.path().join("vmstat.log"), yard.theirs().join("out"), yard.theirs().join("away"));
    log_file(&log);
    let victim = yard.victim();
    let mut swaps = 0;
    for _ in 0..40 {
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                as_unprivileged(|| {
                    while !out.exists() {
                        if done.load(Ordering::Relaxed) {
                            return;
                        }
                        std::hint::spin_loop();
                    }
                    // By now the directory was found empty or is refused; both are correct.
                    std::thread::sleep(Duration::from_micros(500));
                    if rename(&out, &away).is_ok() {
                        create_dir(&out).expect("the user's directory");
                        for name in ["report.html", "header.tmp", "header.json.tmp", "sealed.tmp", "cpu.parquet.tmp"] {
                            let _ = symlink(&victim, out.join(name));
                        }
                    }
                });
            });
            within(LONG, flatwater().arg("import").arg(&log).arg("-o").arg(&out)).expect("import ends");
            done.store(true, Ordering::Relaxed);
        });
        yard.assert_victim_unharmed("root wrote through a link in a directory that replaced its own");
        if away.exists() {
            swaps += 1;
            assert_eq!(metadata(&away).expect("readable").uid(), 0);
            if swaps == 1 {
                let names: Vec<_> =
                    read_dir(&away).expect("readable").flatten().map(|entry| entry.file_name()).collect();
                assert!(
                    names.iter().any(|name| name == "header.json"),
                    "all output is in the moved directory: {names:?}"
                );
            }
        }
        let _ = std::fs::remove_dir_all(&out);
        let _ = std::fs::remove_dir_all(&away);
    }
    assert!(swaps >= 5, "the directory was replaced only {swaps} times: the attack did not run");
}

/// S4: the output directory is a symbolic link.
#[test]
fn s4_a_link_is_not_an_output_directory() {
    let yard = Yard::new();
    let (log, mine, out) = (yard.path().join("vmstat.log"), yard.path().join("mine"), yard.theirs().join("out"));
    log_file(&log);
    create_dir(&mine).expect("create");
    as_unprivileged(|| symlink(&mine, &out).expect("symlink"));
    let done = within(LONG, flatwater().arg("import").arg(&log).arg("-o").arg(&out)).expect("import ends");
    assert!(!done.status.success(), "root filled a directory that another user chose");
    assert_eq!(read_dir(&mine).expect("readable").count(), 0);
    assert!(text(&done.stderr).contains("symbolic link"), "{}", text(&done.stderr));
}

/// S5: recordings contain names from private directories, arguments and slabinfo, and were readable by all users.
#[test]
fn s5_a_recording_is_private_unless_shared() {
    let yard = Yard::new();
    let log = yard.path().join("vmstat.log");
    log_file(&log);
    let mode = |path: &Path| metadata(path).expect("readable").permissions().mode() & 0o7777;
    let out = yard.path().join("private");
    let import = within(LONG, flatwater().arg("import").arg(&log).arg("-o").arg(&out)).expect("import ends");
    // Not enough to judge: averages exclude no short stall.
    assert_eq!(import.status.code(), Some(4), "{}", text(&import.stderr));
    assert_eq!(mode(&out), 0o700);
    let mut files = 0;
    for entry in read_dir(&out).expect("readable").flatten() {
        files += 1;
        assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
    }
    assert!(files >= 3, "{files} files");
    let shared = yard.path().join("shared");
    let mut run = flatwater();
    run.args(["run", "journal-2.6.32", "--on", "sim", "-t", "1s", "--group", &UNPRIVILEGED_ID.to_string(), "-o"])
        .arg(&shared);
    let ran = within(LONG, &mut run).expect("run ends");
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert_eq!((mode(&shared), metadata(&shared).expect("readable").gid()), (0o2750, UNPRIVILEGED_ID));
    for entry in read_dir(&shared).expect("readable").flatten() {
        assert_eq!(mode(&entry.path()), 0o640, "{}", entry.path().display());
    }
    as_unprivileged(|| flatwater_recording::read(&shared).expect("the group can read it"));
}

/// S4: the directory of a run's own files is moved away and replaced by one of another user that contains links.
#[test]
fn s4_workload_files_are_opened_below_the_directory_that_the_run_made() {
    let yard = Yard::new();
    let (theirs, victim) = (yard.theirs(), yard.victim());
    let done = AtomicBool::new(false);
    let swapped = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            as_unprivileged(|| {
                while !done.load(Ordering::Relaxed) {
                    let entries = read_dir(&theirs).expect("the user's directory").flatten();
                    let made = entries.map(|entry| entry.path()).find(|path| {
                        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("flatwater-"))
                    });
                    if let Some(made) = made {
                        rename(&made, theirs.join("away")).expect("rename");
                        create_dir(&made).expect("the user's directory");
                        for file in ["journal-0.0", "journal-0", "stream-0", "journal-0.1"] {
                            symlink(&victim, made.join(file)).expect("write");
                        }
                        swapped.store(true, Ordering::Relaxed);
                        return;
                    }
                    std::hint::spin_loop();
                }
            });
        });
        let mut run = flatwater();
        run.args(["run", "journal", "-t", "2s", "-d"]).arg(&theirs).arg("-o").arg(yard.path().join("out"));
        within(LONG, &mut run).expect("run ends");
        done.store(true, Ordering::Relaxed);
    });
    assert!(swapped.load(Ordering::Relaxed), "the attack did not run");
    yard.assert_victim_unharmed("a workload wrote through a link");
    // The run must not remove the replacement, and must have created nothing in it.
    let left = read_dir(&theirs)
        .expect("readable")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("flatwater-"));
    for entry in left {
        assert_eq!(entry.metadata().expect("readable").uid(), UNPRIVILEGED_ID);
    }
}
