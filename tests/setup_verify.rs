//! The exit statuses of `verify` in real runs: 0 proven better, 3 not proven, 4 proven worse. The change has an obvious
//! effect: the speed of the device. Needs root and a blkio controller.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use needs::{Need, skip};

const SCENARIO: &str = r#"
name = "speed"
sentence = "Writers limited by the speed of their device."
duration = "2s"
judge = "rate"
block = "1500ms"
settle = "500ms"

[setup]
mount.size = "64MiB"
cgroup.write_bps = "4MiB"
bdi.strict_limit = 1
bdi.max_bytes = "2MiB"

[[workload]]
use = "bulk"
writers = 2
file_size = "16MiB"
bytes = "64KiB"
rounds = 0
delay_over = "1s"

[[fix]]
name = "faster"
sentence = "A device ten times as fast."
set = { "cgroup.write_bps" = "40MiB" }
"#;

fn verify(dir: &Path, options: &[&str]) -> (Option<i32>, String, String) {
    let scenario = dir.join("speed.toml");
    std::fs::write(&scenario, SCENARIO).expect("write");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.arg("verify").arg(&scenario).args(["--format", "json", "-d"]).arg(dir).args(options).stdin(Stdio::null());
    let begun = Instant::now();
    let output = command.output().expect("flatwater starts");
    // The documented limit is five minutes; this is far less work.
    assert!(begun.elapsed() < Duration::from_secs(300), "{options:?} took {:?}", begun.elapsed());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_better_fix_is_proven_with_status_0() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "verify", "not root");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (code, output, errors) =
        verify(dir.path(), &["--fix", "faster", "--block", "3s", "--settle", "500ms", "--limit", "120s"]);
    if code == Some(1) && errors.contains("controller") {
        return skip(Need::Loop, "verify", errors);
    }
    assert_eq!((code, output.contains("\"verdict\": \"better\"")), (Some(0), true), "{output}{errors}");
}

#[test]
#[ignore = "make test-verify"]
fn worse_is_status_3_as_not_proven_is() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "verify", "not root");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let slower = ["--with", "cgroup.write_bps=40MiB", "--set", "cgroup.write_bps=4MiB", "--limit", "120s"];
    let (code, message, reported) = verify(dir.path(), &slower);
    assert_eq!((code, message.contains("\"verdict\": \"worse\"")), (Some(3), true), "{message}{reported}");
    // The workload does not read, so a limit on reading changes nothing.
    let (code, message, reported) = verify(dir.path(), &["--set", "cgroup.read_bps=900MiB", "--limit", "30s"]);
    assert_eq!((code, message.contains("\"verdict\": \"not-proven\"")), (Some(3), true), "{message}{reported}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("readable").flatten().map(|one| one.file_name()).collect();
    assert_eq!(left, ["speed.toml"], "files are left");
}

#[test]
fn what_cannot_be_verified_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    for (options, wanted) in [
        (&["--fix", "fastr"][..], "did you mean 'faster'"),
        (&[][..], "nothing to verify"),
        (&["--set", "cgroup.write_bps=4MiB"], "nothing to verify"),
        (&["--set", "vm.swappiness=1"], "--apply"),
        (&["--fix", "faster", "--judge", "p98"], "p99.9"),
    ] {
        let (code, _, reported) = verify(dir.path(), options);
        assert!(code == Some(2) && reported.contains(wanted), "{options:?}: {code:?} {reported}");
    }
}
