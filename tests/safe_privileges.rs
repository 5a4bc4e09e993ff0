//! The capabilities of `record` while it watches, the user that it runs a command as, the command's arguments that it
//! stores (S13), and cgroups with equal ids in two hierarchies (S14). Needs root.

use std::collections::BTreeSet;
use std::fs::{create_dir, metadata, read_to_string, remove_dir, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::exploit::{Killed, UNPRIVILEGED_ID, Yard, flatwater, text, within};
use flatwater_recording::{Recording, read};
use needs::{Need, skip};

const LONG: Duration = Duration::from_secs(60);
/// capability.h: BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH.
const WATCHING: u64 = (1 << 39) | (1 << 38) | (1 << 19) | (1 << 2);

fn can_trace(test: &str) -> bool {
    let able = flatwater_host::tracer::measure_hook_cost().is_ok();
    if !able {
        skip(Need::Bpf, test, "no hook on system calls can be attached");
    }
    able
}

/// Permitted, effective and inheritable capabilities and no_new_privs of each thread.
fn rights_of(pid: u32) -> Vec<(String, [u64; 3], bool)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let rights = tasks.filter_map(|task| {
        let status = read_to_string(task.path().join("status")).ok()?;
        let field =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
        let mask = |key| u64::from_str_radix(&field(key)?, 16).ok();
        Some((field("Name:")?, [mask("CapPrm:")?, mask("CapEff:")?, mask("CapInh:")?], field("NoNewPrivs:")? == "1"))
    });
    rights.collect()
}

/// Waits until the command's threads satisfy `enough`, at most 30 s, and returns them.
fn threads_once(child: &Child, enough: impl Fn(&[(String, [u64; 3], bool)]) -> bool) -> Vec<(String, [u64; 3], bool)> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let threads = rights_of(child.id());
        if enough(&threads) || Instant::now() > until {
            return threads;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// S13: fails on 3c238a6, whose threads keep all capabilities of root.
#[test]
fn s13_every_thread_keeps_only_the_capabilities_for_watching() {
    if !can_trace("s13_every_thread_keeps_only_the_capabilities_for_watching") {
        return;
    }
    let yard = Yard::new();
    let out = yard.path().join("out");
    let mut command = flatwater();
    command.args(["record", "--group", &UNPRIVILEGED_ID.to_string(), "-o"]).arg(&out).args(["--format", "json", "--"]);
    // The command itself runs with all capabilities of root.
    command.args(["sh", "-c", "sleep 2; grep CapEff /proc/self/status"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let dropped = |threads: &[(String, [u64; 3], bool)]| {
        threads.len() >= 3 && threads.iter().all(|(_, [permitted, ..], _)| permitted & !WATCHING == 0)
    };
    let threads = threads_once(&child, dropped);
    for (name, [permitted, effective, inheritable], closed) in &threads {
        assert_eq!(
            (*permitted, *effective, *inheritable, *closed),
            (WATCHING, WATCHING, 0, true),
            "{name}: {threads:?}"
        );
    }
    let names: BTreeSet<&str> = threads.iter().map(|(name, ..)| name.as_str()).collect();
    for name in ["fw-signals", "sampler", "flatwater-trace"] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() || output.status.code() == Some(4), "{}", text(&output.stderr));
    let message = text(&output.stdout);
    let own = message.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("the command's rights");
    let own = u64::from_str_radix(own.trim(), 16).expect("a mask");
    assert!(own & (1 << 21) != 0, "a command started by root keeps root's capabilities: {own:x}");
    let recording = read(&out).expect("a recording");
    assert!(recording.header.complete && recording.header.hooks.iter().any(|hook| hook.hook.contains("sys_enter")));
    // The capabilities suffice to share the recording with the group and to write the report at the end.
    for name in ["header.json", "report.html"] {
        let file = metadata(out.join(name)).expect(name);
        assert_eq!((file.gid(), file.permissions().mode() & 0o7777), (UNPRIVILEGED_ID, 0o640), "{name}");
    }
    // Hooks are loaded with all capabilities; refusals at that time have other reasons.
    let later = recording.gaps.iter().filter(|gap| !gap.why.contains("BPF_PROG_LOAD"));
    let denied: Vec<_> = later.filter(|gap| gap.why.contains("ermission") || gap.why.contains("permitted")).collect();
    assert!(denied.is_empty(), "{denied:?}");
}

/// S13: `run` also keeps the capabilities that restoring its setup needs, and restores it.
#[test]
fn s13_run_keeps_the_capabilities_for_restoring() {
    let yard = Yard::new();
    let out = yard.path().join("out");
    let mut command = flatwater();
    command.args(["run", "journal", "-t", "3s", "--set", "mount.file_system=ext4", "--set", "mount.size=512MiB", "-d"]);
    command.arg(yard.path()).arg("-o").arg(&out);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // SYS_MODULE, SYS_RAWIO, SETUID, SETPCAP, NET_RAW, CHOWN.
    let gone: u64 = [16, 17, 7, 8, 13, 0].iter().map(|bit| 1_u64 << bit).sum();
    let dropped = |threads: &[(String, [u64; 3], bool)]| {
        threads.len() >= 3 && threads.iter().all(|(_, [permitted, ..], closed)| permitted & gone == 0 && *closed)
    };
    let threads = threads_once(&child, dropped);
    assert!(dropped(&threads), "{threads:?}");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let left: Vec<_> =
        std::fs::read_dir(yard.path()).expect("readable").flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("journal")), "{left:?}");
    let mounts = read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&yard.path().display().to_string()), "{mounts}");
}

/// S13: a daemon runs for months. Even without a unit that limits it, it keeps only the capabilities that attaching
/// hooks again needs, and can attach them again.
#[test]
fn s13_the_daemon_keeps_the_capabilities_for_attaching() {
    if !can_trace("s13_the_daemon_keeps_the_capabilities_for_attaching") {
        return;
    }
    let yard = Yard::new();
    let (config, log) = (yard.path().join("watch.toml"), yard.path().join("log"));
    let configure = |threshold: &str| {
        let (store, socket) = (yard.path().join("store"), yard.path().join("run/watch.sock"));
        let text = format!(
            "threshold = \"{threshold}\"\n[store]\ndirectory = \"{}\"\nkeep_free = 0.0\n[metrics]\nsocket = \"{}\"\n",
            store.display(),
            socket.display()
        );
        write(&config, text).expect("write");
    };
    configure("100ms");
    let mut command = flatwater();
    command.args(["watch", "-c"]).arg(&config).stdout(Stdio::null());
    let file = std::fs::File::create(&log).expect("a log");
    let daemon = Killed(command.stderr(file).spawn().expect("it starts"));
    let message = || read_to_string(&log).unwrap_or_default();
    let ask = |what: &str| {
        let output = flatwater().args(["watch", "-c"]).arg(&config).arg(what).output().expect("flatwater starts");
        output.status.success().then(|| text(&output.stdout))
    };
    let until = Instant::now() + LONG;
    while ask("status").is_none() {
        assert!(Instant::now() < until, "it does not answer: {}", message());
        std::thread::sleep(Duration::from_millis(100));
    }
    // SYS_ADMIN, SYS_RESOURCE and SYSLOG, in addition to those for watching.
    let kept = WATCHING | (1 << 21) | (1 << 24) | (1 << 34);
    let holds = |threads: &[(String, [u64; 3], bool)]| {
        !threads.is_empty()
            && threads.iter().all(|(_, [permitted, effective, inheritable], closed)| {
                permitted & !kept == 0 && effective & !kept == 0 && *inheritable == 0 && *closed
            })
    };
    let threads = threads_once(&daemon.0, holds);
    assert!(holds(&threads), "{threads:?}");
    // A new threshold makes the daemon attach its hooks again. The remaining capabilities suffice.
    configure("200ms");
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("kill");
    let anew = |status: &str| status.contains("200000000") && status.contains("\"calls_seen\":true");
    while !ask("status").is_some_and(|status| anew(&status)) {
        assert!(Instant::now() < until + LONG, "{:?}: {}", ask("status"), message());
        std::thread::sleep(Duration::from_millis(100));
    }
    let sealed = ask("dump").unwrap_or_else(|| panic!("no recording is sealed: {}", message()));
    assert!(sealed.contains("store/flatwater-"), "{sealed}");
    let own_cost = ask("metrics").unwrap_or_default();
    assert!(own_cost.contains("flatwater_calls_seen 1"), "{own_cost}");
    assert!(holds(&rights_of(daemon.0.id())), "{:?}", rights_of(daemon.0.id()));
}

/// S13: fails on 3c238a6, where the command runs as root and --user is unknown.
#[test]
fn s13_a_command_runs_as_the_user_and_inherits_nothing() {
    let yard = Yard::new();
    let file = yard.theirs().join("output");
    let script = format!(
        "(id -u; id -g; id -G; cat /proc/self/status; ls -l /proc/self/fd; env; cat {}) >{} 2>&1",
        yard.victim().display(),
        file.display()
    );
    let id = |arguments: &[&str]| {
        let output = Command::new("id").args(arguments).output().expect("id");
        text(&output.stdout).trim().to_owned()
    };
    let user = id(&["-nu", &UNPRIVILEGED_ID.to_string()]);
    // An inherited open descriptor, and a secret in root's environment.
    let mut command = Command::new("sh");
    let inner = flatwater();
    command.args(["-c", "exec 9<\"$1\"; shift; exec \"$@\"", "sh"]).arg(yard.victim()).arg(inner.get_program());
    command.args(["record", "--user", &user, "-o"]).arg(yard.path().join("out")).args(["--", "sh", "-c", &script]);
    command.env("SECRET_OF_ROOT", "s3cret").env("XDG_RUNTIME_DIR", "/run/user/0").stdin(Stdio::null());
    let output = within(LONG, &mut command).expect("it ends");
    let printed = read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let ids = id(&["-G", &user]);
    let mut lines = printed.lines();
    let mut next = || lines.next().unwrap_or_default().to_owned();
    assert_eq!((next(), next(), next()), (UNPRIVILEGED_ID.to_string(), UNPRIVILEGED_ID.to_string(), ids));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(printed.contains(&format!("{set}:\t0000000000000000")), "{set}: {printed}");
    }
    assert!(
        printed.contains(&format!("USER={user}\n"))
            && printed.contains(&format!("LOGNAME={user}\n"))
            && printed.contains("HOME="),
        "{printed}"
    );
    assert!(!printed.contains("s3cret") && !printed.contains("/run/user/0"), "root's environment: {printed}");
    assert!(printed.contains("Permission denied") && !printed.contains("root's own"), "{printed}");
    let descriptors: Vec<&str> = printed.lines().filter(|line| line.contains(" -> ")).collect();
    assert!(descriptors.len() <= 4 && !printed.contains(&format!("-> {}", yard.victim().display())), "{descriptors:?}");
}

#[test]
fn s13_an_impossible_user_is_refused() {
    let yard = Yard::new();
    let refused = |command: &mut Command| {
        let out = yard.path().join("refused");
        let output = within(LONG, command.arg("-o").arg(&out).args(["--", "true"])).expect("it ends");
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(!out.exists(), "a refused command made a directory");
        text(&output.stderr)
    };
    let unknown = refused(flatwater().args(["record", "--user", "no-such-user"]));
    assert!(unknown.contains("unknown user 'no-such-user'") && unknown.contains("getent passwd"), "{unknown}");
    let mut unprivileged = flatwater();
    unprivileged.args(["record", "--user", "root"]).uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID).current_dir("/");
    let denied = refused(&mut unprivileged);
    assert!(denied.contains("only root"), "{denied}");
}

/// S13: fails on 3c238a6, which stores the arguments unchanged.
#[test]
fn s13_secrets_in_arguments_are_neither_stored_nor_printed() {
    let yard = Yard::new();
    let (hidden, kept) = (yard.path().join("hidden"), yard.path().join("kept"));
    let command = [
        "--",
        "env",
        "PGPASSWORD=s3cret1",
        "sh",
        "-c",
        ": postgres://me:s3cret2@db",
        "--token",
        "s3cret3",
        "--key=s3cret4",
        "plain5",
    ];
    for (out, more) in [(&hidden, &[][..]), (&kept, &["--keep-arguments"])] {
        let output =
            within(LONG, flatwater().arg("record").args(more).arg("-o").arg(out).args(command)).expect("it ends");
        let mut shown = text(&output.stdout) + &text(&output.stderr);
        for format in ["json", "text"] {
            let report = flatwater().arg("report").arg(out).args(["--format", format]).output().expect("report starts");
            shown += &text(&report.stdout);
        }
        let recording = read(out).expect("a recording");
        let stored = format!("{:?} {:?} {:?}", recording.header, recording.events, recording.gaps);
        let is_hidden = out == &hidden;
        for what in [&shown, &stored] {
            assert_eq!(what.contains("s3cret"), !is_hidden, "{}", out.display());
            assert!(what.contains("plain5"), "{what}");
        }
        assert_eq!(stored.contains("PGPASSWORD=[redacted]"), is_hidden);
    }
}

/// A directory of a v1 hierarchy, removed on drop.
struct Group(PathBuf);

impl Group {
    fn make(hierarchy: &str, name: &str) -> Option<Group> {
        let path = Path::new("/sys/fs/cgroup").join(hierarchy).join(name);
        create_dir(&path).ok().map(|()| Group(path))
    }

    fn id(&self) -> u64 {
        metadata(&self.0).expect("a group").ino()
    }

    fn enter(&self, pid: u32) {
        write(self.0.join("cgroup.procs"), pid.to_string()).expect("write");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Makes two groups with the same id in two hierarchies. Ids are counted per hierarchy, so the lower one is recreated
/// until they are equal.
fn twins() -> Option<(Group, Group)> {
    let mut count = 0;
    let mut make = |hierarchy: &str| {
        count += 1;
        Group::make(hierarchy, &format!("flatwater-s14-{}-{count}", std::process::id()))
    };
    for (first, second) in [("freezer", "pids"), ("memory", "pids"), ("memory", "freezer"), ("devices", "freezer")] {
        let (Some(mut a), Some(mut b)) = (make(first), make(second)) else { continue };
        for _ in 0..20_000 {
            if a.id() == b.id() {
                return Some((a, b));
            }
            if a.id() < b.id() {
                a = make(first)?;
            } else {
                b = make(second)?;
            }
        }
    }
    None
}

fn writer(directory: &Path) -> Child {
    // Bounded, so that it ends even if the test fails early.
    let script = "i=0; while [ $i -lt 3000 ]; do echo x >>file; i=$((i+1)); sleep 0.01; done";
    Command::new("sh").args(["-c", script]).current_dir(directory).stdin(Stdio::null()).spawn().expect("sh")
}

fn counted(recording: &Recording) -> u64 {
    recording.latency.iter().map(|bucket| bucket.from_start.count()).sum()
}

/// S14: fails on 3c238a6, which counts a process that joins a group with the same id in another hierarchy as part of
/// the target.
#[test]
fn s14_a_group_of_another_hierarchy_is_another_group() {
    let test = "s14_a_group_of_another_hierarchy_is_another_group";
    if !can_trace(test) {
        return;
    }
    let Some((target, twin)) = twins() else {
        skip(Need::Memcg, test, "no two v1 hierarchies with groups of equal id");
        return;
    };
    let yard = Yard::new();
    let mut observed = [0, 0];
    for (entered, count) in [&twin, &target].into_iter().zip(&mut observed) {
        let out = yard.path().join(entered.0.parent().and_then(Path::file_name).expect("a hierarchy"));
        let mut command = flatwater();
        command.arg("record").arg("--cgroup").arg(&target.0).args(["-t", "3s", "-o"]).arg(&out);
        let recorder = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut writing = writer(yard.path());
        // The process must enter after the hooks are attached, because they only see it enter.
        threads_once(&recorder, |threads| threads.iter().any(|(name, ..)| name == "sampler"));
        std::thread::sleep(Duration::from_millis(300));
        entered.enter(writing.id());
        recorder.wait_with_output().expect("it ends");
        writing.kill().expect("kill");
        writing.wait().expect("wait");
        *count = counted(&read(&out).expect("a recording"));
    }
    let [in_twin, in_target] = observed;
    assert_eq!(in_twin, 0, "a process of {} was watched for {}", twin.0.display(), target.0.display());
    assert!(in_target > 20, "{in_target}");
}
