//! Hostile guests, and kernels planted where root looks for one (S6, S11, S15). Each test fails on 3c238a6. A script
//! plays QEMU with a hostile guest. Needs root.

use std::fs::{Permissions, create_dir_all, read_to_string, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::exploit::{UNPRIVILEGED_ID, Yard, flatwater, text, within};
use needs::as_unprivileged;

const LONG: Duration = Duration::from_secs(120);

/// A directory with a fake kernel, and a fake QEMU that runs `script`.
struct Stage(Yard);

impl Stage {
    fn new(script: &str) -> Stage {
        let stage = Stage(Yard::new());
        let program = stage.bin().join("qemu-system-x86_64");
        create_dir_all(stage.bin()).expect("create");
        write(&program, format!("#!/bin/sh\n{script}\n")).expect("write");
        set_permissions(&program, Permissions::from_mode(0o755)).expect("chmod");
        write(stage.kernel(), "no kernel").expect("write");
        stage
    }

    fn bin(&self) -> PathBuf {
        self.0.path().join("bin")
    }

    fn kernel(&self) -> PathBuf {
        self.0.path().join("vmlinuz-6.1.0-test")
    }

    fn run(&self) -> Command {
        let mut command = flatwater();
        let path = format!("{}:{}", self.bin().display(), std::env::var("PATH").unwrap_or_default());
        command.env("PATH", path).args(["run", "journal", "--on", "vm", "-t", "1s", "--patience", "15s", "--kernel"]);
        command.arg(self.kernel()).arg("-o").arg(self.0.path().join("out"));
        command
    }
}

/// Runs the command and returns its peak resident memory in bytes; kills it above 1 GiB.
fn children_peak_bytes(mut command: Command) -> (std::process::Output, u64) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    while child.try_wait().expect("a child").is_none() {
        let text = read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
        peak_kib = peak_kib.max(now);
        if peak_kib > 1 << 20 {
            child.kill().expect("kill");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (child.wait_with_output().expect("wait"), peak_kib << 10)
}

/// S6: serial output without a newline was kept as one line: 2.7 GiB after 1.5 s.
#[test]
fn s6_an_endless_line_of_a_guest_does_not_fill_the_hosts_memory() {
    let stage = Stage::new("head -c 500000000 /dev/zero");
    let (ended, peak_bytes) = children_peak_bytes(stage.run());
    assert!(peak_bytes < 300 << 20, "{} MiB: {}", peak_bytes >> 20, text(&ended.stderr));
    assert!(text(&ended.stderr).contains("ended before it was done"), "{}", text(&ended.stderr));
}

/// S6: the console log grew without limit.
#[test]
fn s6_the_console_log_is_bounded() {
    let stage = Stage::new(
        "for word in \"$@\"; do case $word in file:*) console=${word#file:};; esac; done\n\
         head -c 100000000 /dev/urandom | base64 > \"$console\"; echo panic >> \"$console\"; exit 1",
    );
    let ended = within(LONG, &mut stage.run()).expect("the run ends");
    let log = stage.0.path().join("out/console.log").metadata();
    assert!(log.is_ok_and(|meta| meta.len() < 8 << 20), "{}", text(&ended.stderr));
}

/// S12: files for a guest are read into memory, so pipes (which may block) and devices (which may not end) are refused.
#[test]
fn s12_only_regular_files_are_given_to_a_guest() {
    let stage = Stage::new("exit 1");
    let pipe = stage.0.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts");
    assert!(made.success());
    for (given, word) in [(pipe.as_path(), "a named pipe"), (Path::new("/dev/zero"), "a device")] {
        for option in ["--with", "--init"] {
            let mut command = flatwater();
            let value =
                if option == "--with" { format!("{}=/file", given.display()) } else { given.display().to_string() };
            command.args(["vm", "exec", option, &value, "--kernel"]).arg(stage.kernel());
            command.arg("-o").arg(stage.0.path().join("out")).args(["--", "true"]);
            let path = format!("{}:{}", stage.bin().display(), std::env::var("PATH").unwrap_or_default());
            let ended = within(LONG, command.env("PATH", path)).expect("it ends");
            assert_eq!(ended.status.code(), Some(1), "{}", text(&ended.stderr));
            assert!(text(&ended.stderr).contains(word), "{option} {}: {}", given.display(), text(&ended.stderr));
            let _ = std::fs::remove_dir_all(stage.0.path().join("out"));
        }
    }
}

/// S6: QEMU ran as root, without a sandbox, and inherited open descriptors.
#[test]
fn s6_qemu_runs_unprivileged_in_its_sandbox() {
    let stage = Stage::new(
        "here=$(dirname \"$0\")/../theirs; id -u > $here/uid; id -G > $here/groups; echo \"$@\" > $here/arguments\n\
         grep -E 'NoNewPrivs|CapEff|CapPrm' /proc/self/status > $here/status; exit 1",
    );
    within(LONG, &mut stage.run()).expect("the run ends");
    let reported = |name: &str| read_to_string(stage.0.theirs().join(name)).unwrap_or_default();
    assert_eq!(reported("uid").trim(), UNPRIVILEGED_ID.to_string(), "the uid of QEMU");
    assert!(reported("groups").split_whitespace().all(|group| group != "0"), "{}", reported("groups"));
    assert!(reported("arguments").contains("-sandbox on"), "{}", reported("arguments"));
    let status = reported("status");
    assert!(status.contains("NoNewPrivs:\t1") && !status.contains("CapEff:\t000001"), "{status}");
}

/// S11: without HOME, root used a kernel from a directory below /var/tmp that any user could create.
#[test]
fn s11_root_boots_no_kernel_that_another_user_planted() {
    let planted = Path::new("/var/tmp/flatwater/kernels/linux-image-9.9/boot");
    assert!(!Path::new("/var/tmp/flatwater").exists(), "/var/tmp/flatwater already exists");
    let _yard = Yard::new();
    as_unprivileged(|| {
        create_dir_all(planted).expect("create");
        write(planted.join("vmlinuz-9.9-cloud"), "evil").expect("write");
    });
    let mut command = flatwater();
    let found = within(LONG, command.args(["vm", "kernel"]).env_remove("HOME").env_remove("XDG_CACHE_HOME"));
    std::fs::remove_dir_all("/var/tmp/flatwater").expect("remove");
    let found = found.expect("it ends");
    assert!(!text(&found.stdout).contains("/var/tmp"), "{}", text(&found.stdout));
}

/// S15: `run --on vm` downloaded a kernel without asking.
#[test]
fn s15_a_kernel_is_fetched_only_on_request() {
    let stage = Stage::new("exit 1");
    let (bin, theirs) = (stage.bin(), stage.0.theirs());
    for program in ["apt-get", "apt-cache"] {
        let script = format!("#!/bin/sh\necho called >> {}/called\nexit 1\n", theirs.display());
        write(bin.join(program), script).expect("write");
        set_permissions(bin.join(program), Permissions::from_mode(0o755)).expect("chmod");
    }
    let home = theirs.join("home");
    as_unprivileged(|| create_dir_all(&home).expect("create"));
    // Run as uid 65534, whose cache is empty, from a directory that this user can reach.
    let copy = bin.join("flatwater");
    std::fs::copy(flatwater().get_program(), &copy).expect("copy");
    let mut command = Command::new(&copy);
    std::os::unix::process::CommandExt::uid(&mut command, UNPRIVILEGED_ID);
    std::os::unix::process::CommandExt::gid(&mut command, UNPRIVILEGED_ID);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    command.args(["run", "journal", "--on", "vm", "-t", "1s", "-o"]).arg(home.join("out")).current_dir(&home);
    command.env("HOME", &home).env_remove("XDG_CACHE_HOME").env("PATH", path).stdin(Stdio::null());
    let ended = within(LONG, &mut command).expect("the run ends");
    if std::fs::read_dir("/boot")
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz-"))
    {
        return assert!(!theirs.join("called").exists(), "apt was called although /boot has a kernel");
    }
    assert!(!theirs.join("called").exists(), "apt was called without a request");
    assert!(text(&ended.stderr).contains("vm fetch-kernel"), "{}", text(&ended.stderr));
}
