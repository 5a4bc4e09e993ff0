//! A real guest of two nodes, and the ways in which booting one can fail. What cannot run here says so: `skipped:`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn flatwater() -> Command {
    Command::new(env!("CARGO_BIN_EXE_flatwater"))
}

fn has_qemu() -> bool {
    let asked = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// There is QEMU and a kernel, the latter fetched through apt where need be.
fn can_boot() -> bool {
    if !has_qemu() {
        eprintln!("skipped: no qemu-system-x86_64 on the PATH");
        return false;
    }
    let ok = |arguments: &[&str]| flatwater().args(arguments).output().is_ok_and(|output| output.status.success());
    let kernel = ok(&["vm", "kernel"]) || ok(&["vm", "fetch-kernel"]);
    if !kernel {
        eprintln!("skipped: no kernel to boot, and apt fetches none");
    }
    kernel
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn run_arguments(out: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = ["run", "numa-spill", "--on", "vm", "-O", "json", "-o"].map(String::from).into();
    arguments.push(out.display().to_string());
    arguments
}

fn directory_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/var/tmp/flatwater-vm-{pid}"))
}

/// QEMUs whose command line names this directory.
fn guests_in(directory: &Path) -> usize {
    let name = directory.display().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(b"qemu") && String::from_utf8_lossy(line).contains(&name)).count()
}

fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let patience = Instant::now() + Duration::from_secs(120);
    while Instant::now() < patience {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

#[test]
fn two_nodes_boot_and_the_spill_is_explained() {
    if !can_boot() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let out = scratch.path().join("rec");
    let output = flatwater().args(run_arguments(&out)).output().expect("runs");
    assert!(output.status.success(), "{}", said(&output));
    let recording = flatwater::recording::read(&out).expect("a recording was handed back");
    assert!(recording.header.time_distorted || said(&output).contains("under kvm"));
    let nodes = recording.table(flatwater::recording::Table::Nodes).expect("nodes were sampled");
    assert_eq!(nodes.entities.len(), 2);
    let misses: i64 = nodes.by_entity().filter_map(|(_, rows)| rows.rise("numa_miss")).sum();
    assert!(misses > 0, "no page came from the other node");
    let explained = flatwater::explain::explain(&recording);
    assert!(explained.findings.iter().any(|finding| finding.cause == "remote-spill"), "{:?}", explained.findings);
}

/// Of a run that must fail: its words. Nothing of it may be left.
fn failed(scratch: &Path, more: &[&str]) -> String {
    let arguments = run_arguments(&scratch.join("rec"));
    let child = flatwater().args(arguments).args(more).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.expect("starts");
    let left = directory_of(child.id());
    let output = child.wait_with_output().expect("ends");
    assert!(!output.status.success(), "{}", said(&output));
    assert!(!left.exists() && guests_in(&left) == 0, "{} is left", left.display());
    said(&output)
}

#[test]
fn a_kernel_of_garbage_is_refused_with_qemus_words() {
    if !has_qemu() {
        eprintln!("skipped: no qemu-system-x86_64 on the PATH");
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let kernel = scratch.path().join("vmlinuz-garbage");
    fs::write(&kernel, [0xa5; 1 << 16]).expect("written");
    let words = failed(scratch.path(), &["--kernel", &kernel.display().to_string()]);
    assert!(words.contains("ended before it was done") && words.contains("qemu-system-x86_64:"), "{words}");
}

/// A multiboot image (the a.out kludge of its header names the addresses) that halts with interrupts off.
fn kernel_that_hangs() -> Vec<u8> {
    const LOADED_AT: u32 = 0x0010_0000;
    let (magic, flags) = (0x1bad_b002_u32, 0x0001_0000_u32);
    let entry = LOADED_AT + 32;
    let words = [magic, flags, magic.wrapping_add(flags).wrapping_neg(), LOADED_AT, LOADED_AT, 0, 0, entry];
    let mut image: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    image.extend([0xfa, 0xf4, 0xeb, 0xfc]); // cli; hlt; jmp to itself
    image.resize(8192, 0);
    image
}

#[test]
fn a_guest_that_says_nothing_is_ended() {
    if !has_qemu() {
        eprintln!("skipped: no qemu-system-x86_64 on the PATH");
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let kernel = scratch.path().join("vmlinuz-hangs");
    fs::write(&kernel, kernel_that_hangs()).expect("written");
    let words = failed(scratch.path(), &["--kernel", &kernel.display().to_string(), "--patience", "3s"]);
    assert!(words.contains("was silent for 3 s and was ended"), "{words}");
}

#[test]
fn no_qemu_and_no_kernel_are_said() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let kernel = scratch.path().join("kernel");
    fs::write(&kernel, b"any").expect("written");
    let without = flatwater()
        .args(run_arguments(&scratch.path().join("a")))
        .arg("--kernel")
        .arg(&kernel)
        .env("PATH", scratch.path())
        .output()
        .expect("runs");
    assert!(!without.status.success());
    assert!(said(&without).contains("qemu-system-x86"), "{}", said(&without));
    let absent = flatwater()
        .args(run_arguments(&scratch.path().join("b")))
        .args(["--kernel", "/nonexistent/vmlinuz"])
        .output()
        .expect("runs");
    assert!(!absent.status.success());
    assert!(said(&absent).contains("/nonexistent/vmlinuz"), "{}", said(&absent));
}

#[test]
fn a_killed_run_leaves_no_guest_and_the_next_start_clears_up() {
    if !can_boot() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let arguments = run_arguments(&scratch.path().join("rec"));
    let mut run = flatwater().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let left = directory_of(run.id());
    let booted = wait_until(|| guests_in(&left) > 0);
    run.kill().expect("SIGKILL");
    run.wait().expect("ends");
    assert!(booted, "no guest was started");
    assert!(wait_until(|| guests_in(&left) == 0), "the guest outlived its run");
    assert!(left.exists(), "a killed run cannot clear up itself");
    // Clearing up comes first, so that a run that then fails does it too.
    let next = flatwater()
        .args(run_arguments(&scratch.path().join("next")))
        .args(["--kernel", "/nonexistent/vmlinuz"])
        .output()
        .expect("runs");
    assert!(!next.status.success());
    assert!(!left.exists(), "{} is still there", left.display());
}
