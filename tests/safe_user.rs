//! What a program of another user can do to the root process that records it: `record --user`, user namespaces, bind
//! mounts, and memory declared as a command line. Needs root.

use std::fs::{read_to_string, write};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::exploit::{Killed, UNPRIVILEGED_ID, Yard, flatwater, text, within};
use flatwater_recording::{OpKind, Recording, read};
use needs::{Need, skip};

const LONG: Duration = Duration::from_secs(60);

/// Runs the script as user 65534 under `record --user`. Returns what it printed, and the recording.
fn recorded(yard: &Yard, script: &str) -> (String, Recording) {
    let (printed, out) = (yard.theirs().join("printed"), yard.path().join("out"));
    let mut command = flatwater();
    command
        .args(["record", "--user", &UNPRIVILEGED_ID.to_string(), "-m", "20us", "-o"])
        .arg(&out)
        .args(["--", "sh", "-c"]);
    command.arg(format!("({script}) >{} 2>&1", printed.display())).current_dir(yard.theirs());
    let output = within(LONG, &mut command).expect("it ends");
    let printed = read_to_string(&printed).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let recording = read(&out).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    assert!(recording.header.complete, "{}", text(&output.stderr));
    (printed, recording)
}

#[test]
fn s13_a_command_reaches_neither_its_parent_nor_the_recording() {
    let yard = Yard::new();
    let out = yard.path().join("out");
    let attacks = [
        "kill -9 $PPID".to_owned(),
        "kill -STOP $PPID".to_owned(),
        "ls /proc/$PPID/fd/".to_owned(),
        "cat /proc/$PPID/environ".to_owned(),
        "dd if=/proc/$PPID/mem of=/dev/null bs=1 count=1".to_owned(),
        "ls /proc/$PPID/root/".to_owned(),
        "ls /proc/$PPID/cwd/".to_owned(),
        format!("ls {}", out.display()),
        format!("touch {}/planted", out.display()),
        format!("mv {} {}/moved", out.display(), yard.theirs().display()),
        format!("ln -s /etc/passwd {}/report.html", out.display()),
        "touch /var/lib/flatwater/planted".to_owned(),
        "echo 0 >/proc/$PPID/oom_score_adj".to_owned(),
        "renice -n 19 $PPID".to_owned(),
        "nsenter -t $PPID -m true".to_owned(),
        "prlimit --pid $PPID --fsize=0".to_owned(),
    ];
    let script = attacks.iter().map(|attack| format!("if {attack}; then echo \"REACHED: {attack}\"; fi; "));
    let script: String = script.collect();
    // Of the shell that `record` started, $PPID is flatwater.
    let (printed, recording) = recorded(&yard, &format!("echo parent $(cat /proc/$PPID/comm); {script} echo end"));
    assert!(printed.starts_with("parent flatwater"), "{printed}");
    assert!(printed.ends_with("end\n"), "{printed}");
    assert!(!printed.contains("REACHED"), "{printed}");
    assert!(!out.join("planted").exists() && !out.join("report.html").is_symlink());
    assert!(recording.gaps.iter().all(|gap| !gap.what.contains("end of this recording")), "{:?}", recording.gaps);
    yard.assert_victim_unharmed(&printed);
}

#[test]
fn s13_a_command_in_its_own_namespaces_is_recorded_and_gains_nothing() {
    let test = "s13_a_command_in_its_own_namespaces_is_recorded_and_gains_nothing";
    let mut able = Command::new("unshare");
    able.args(["-Urmp", "--fork", "true"]).uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID).current_dir("/");
    if !able.status().is_ok_and(|status| status.success()) {
        return skip(Need::Root, test, "this kernel gives no user namespaces to users");
    }
    let yard = Yard::new();
    // Root within its own user, mount and pid namespace: its process ids are not those of /proc outside.
    let inner = "id -u; mkdir -p m b; mount -t tmpfs x m; mount --bind /etc b; cat b/shadow; mount --bind m b; \
                 mount --bind /var/lib m; touch m/flatwater/planted; \
                 dd if=/dev/zero of=inside bs=4k count=3 conv=fsync oflag=sync; echo end";
    let script = format!("unshare -Urmp --fork sh -c '{inner}'");
    let (printed, recording) = recorded(&yard, &script);
    assert!(printed.starts_with("0\n") && printed.contains("\nend\n"), "it was root in the namespace: {printed}");
    assert!(printed.contains("Permission denied") && !printed.contains("root:"), "{printed}");
    assert!(!Path::new("/var/lib/flatwater/planted").exists());
    let theirs = yard.theirs().display().to_string();
    assert!(!read_to_string("/proc/self/mountinfo").expect("mounts").contains(&theirs), "a mount outside");
    yard.assert_victim_unharmed(&printed);
    if flatwater_host::tracer::measure_hook_cost().is_err() {
        return skip(Need::Bpf, test, "no hook on system calls can be attached");
    }
    // Its calls are counted, and named with process ids of the outside.
    assert!(recording.latency.iter().any(|bucket| bucket.op == OpKind::Fsync), "no fsync was counted");
    let dd = recording.calls.iter().find(|call| call.thread.as_str() == "dd").expect("a call of dd");
    assert!(dd.pid > 10, "a process id of the inner namespace: {}", dd.pid);
}

/// Declares a gigabyte of zeroes to be the command line, as any process may.
const LONG_COMMAND_LINE: &str = r#"
#include <linux/prctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void)
{
	size_t bytes = 1ul << 30;
	char *zeroes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char line[4096], *word;
	unsigned long field[64] = {0};
	FILE *stat = fopen("/proc/self/stat", "r");
	int at = 3;
	if (!stat || !fgets(line, sizeof(line), stat))
		return 1;
	for (word = strtok(strrchr(line, ')') + 2, " "); word && at < 64; word = strtok(NULL, " "))
		field[at++] = strtoul(word, NULL, 10);
	struct prctl_mm_map map = {
		.start_code = field[26], .end_code = field[27], .start_stack = field[28], .start_data = field[45],
		.end_data = field[46], .start_brk = field[47], .brk = (uint64_t)sbrk(0), .arg_start = (uint64_t)zeroes,
		.arg_end = (uint64_t)zeroes + bytes, .env_start = field[50], .env_end = field[51], .exe_fd = (uint32_t)-1,
	};
	if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0))
		return 2;
	puts("declared");
	fflush(stdout);
	sleep(60);
	return 0;
}
"#;

/// flatwater read the command line of each process that it follows, and of each process when the daemon starts, as a
/// whole: a user could fill root's memory.
#[test]
fn a_gigabyte_of_command_line_does_not_fill_roots_memory() {
    let yard = Yard::new();
    let (source, program) = (yard.path().join("long.c"), yard.path().join("long"));
    write(&source, LONG_COMMAND_LINE).expect("written");
    let built = Command::new("cc").arg("-o").arg(&program).arg(&source).output().expect("cc");
    assert!(built.status.success(), "{}", text(&built.stderr));
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let mut victim = Command::new(&program);
    victim.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID).current_dir("/").stdout(Stdio::piped());
    let mut victim = Killed(victim.spawn().expect("it starts"));
    let mut declared = [0_u8; 9];
    if victim.0.stdout.take().expect("piped").read_exact(&mut declared).is_err() {
        return skip(Need::Root, "a_gigabyte_of_command_line", "this kernel lacks PR_SET_MM_MAP");
    }
    let pid = victim.0.id().to_string();
    let mut command = flatwater();
    command.args(["record", "-t", "2s", "-p", &pid, "-o"]).arg(yard.path().join("out"));
    let mut recorder = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
    let mut most_kib = 0;
    while recorder.0.try_wait().expect("a child").is_none() {
        let status = read_to_string(format!("/proc/{}/status", recorder.0.id())).unwrap_or_default();
        let peak =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        most_kib = most_kib.max(peak.unwrap_or(0_u64));
        std::thread::sleep(Duration::from_millis(5));
    }
    let recording = read(&yard.path().join("out")).expect("a recording");
    assert!(recording.header.complete);
    assert!(most_kib > 0 && most_kib < 800 << 10, "root's process took {most_kib} KiB");
}
