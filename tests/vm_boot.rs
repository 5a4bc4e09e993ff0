//! A real guest with two nodes, and the errors of booting one. Without QEMU or a kernel the tests are skipped.

use needs::{Need, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

fn flatwater() -> Command {
    Command::new(env!("CARGO_BIN_EXE_flatwater"))
}

fn has_qemu() -> bool {
    let asked = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Whether there are QEMU and a kernel, which is fetched through apt if needed.
fn can_boot() -> bool {
    if !has_qemu() {
        skip(Need::Qemu, "guest", "no qemu-system-x86_64 on the PATH");
        return false;
    }
    let ok = |arguments: &[&str]| flatwater().args(arguments).output().is_ok_and(|output| output.status.success());
    let kernel = ok(&["vm", "kernel"]) || ok(&["vm", "fetch-kernel"]);
    if !kernel {
        skip(Need::Qemu, "guest", "no kernel to boot, and apt cannot fetch one");
    }
    kernel
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The stream's pause. With the scenario's 10 ms kswapd keeps up with a slow guest's stream in one boot of ten, so that
/// almost nothing spills.
const PAUSE: &str = "stream.pause=1ms";

fn run_arguments(out: &Path) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["run", "numa-spill", "--on", "vm", "--format", "json", "-o"].map(String::from).into();
    arguments.push(out.display().to_string());
    arguments
}

/// The common prefix of a run's directories; a number follows.
fn directory_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/var/tmp/flatwater-vm-{pid}-"))
}

fn directories(begins: &Path) -> Vec<PathBuf> {
    let name = begins.file_name().expect("a name").to_string_lossy().into_owned();
    let entries = fs::read_dir("/var/tmp").expect("/var/tmp").flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name));
    ours.map(|entry| entry.path()).collect()
}

fn is_there(begins: &Path) -> bool {
    !directories(begins).is_empty()
}

/// A run locks its directory while it uses it, and a stale one while it removes it.
fn is_locked(directory: &Path) -> bool {
    fs::File::open(directory).is_ok_and(|dir| flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// The number of QEMU processes whose command line names this directory.
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
    let output = flatwater().args(run_arguments(&out)).args(["--set", PAUSE]).output().expect("runs");
    assert!(output.status.success(), "{}", output_text(&output));
    let recording = flatwater_recording::read(&out).expect("a recording");
    assert!(recording.header.time_distorted || output_text(&output).contains("under kvm"));
    let nodes = recording.table(flatwater_recording::Table::Nodes).expect("nodes were sampled");
    assert_eq!(nodes.entities().len(), 2);
    let misses: i64 = nodes.by_entity().filter_map(|(_, rows)| rows.rise("numa_miss")).sum();
    assert!(misses > 0, "no page came from the other node");
    // A hook must not create task storage if the kernel would allocate it under the hook's locks (docs/tracing.md).
    let kernel = recording.header.machine.kernel.as_deref().unwrap_or_default();
    let allocates = ["5.", "6.0.", "6.1.", "6.2.", "6.3."].iter().any(|old| kernel.starts_with(old));
    let variant = |name: &str| recording.header.hooks.iter().any(|status| status.hook == name);
    let is_built = !output_text(&output).contains("built without its kernel tracer");
    assert!(!allocates || (variant("bpf/hash") == is_built && !variant("bpf/task_storage")), "{kernel}");
    let explained = flatwater_explain::explain(&recording);
    assert!(
        explained.findings.iter().any(|finding| finding.cause == flatwater_explain::CauseId::RemoteSpill),
        "{:?}",
        explained.findings
    );
}

/// Runs a scenario that must fail, and returns its standard error. Checks that nothing is left.
fn failed(scratch: &Path, more: &[&str]) -> String {
    failed_run("numa-spill", scratch, more)
}

fn failed_run(scenario: &str, scratch: &Path, more: &[&str]) -> String {
    let arguments = run_arguments(&scratch.join("rec"));
    let arguments = arguments.iter().map(|word| if word == "numa-spill" { scenario } else { word });
    let child = flatwater().args(arguments).args(more).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.expect("starts");
    let left = directory_of(child.id());
    let output = child.wait_with_output().expect("ends");
    assert!(!output.status.success(), "{}", output_text(&output));
    assert!(!is_there(&left) && guests_in(&left) == 0, "{} is left", left.display());
    output_text(&output)
}

#[test]
fn a_garbage_kernel_is_refused_with_qemus_message() {
    if !has_qemu() {
        skip(Need::Qemu, "guest", "no qemu-system-x86_64 on the PATH");
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let kernel = scratch.path().join("vmlinuz-garbage");
    fs::write(&kernel, [0xa5; 1 << 16]).expect("write");
    let words = failed(scratch.path(), &["--kernel", &kernel.display().to_string()]);
    assert!(words.contains("ended before it was done (qemu"), "{words}");
    assert!(words.contains("garbage did not boot"), "{words}");
    assert!(words.contains("vm fetch-kernel"), "what to do next: {words}");
}

const LOADED_AT: u32 = 0x0010_0000;
/// Offsets of the text and of bytes that stay 0 in the image.
const TEXT_AT: u32 = 1024;
const ZEROS_AT: u32 = 4096;

/// A multiboot image with this code and text. Its header uses the a.out kludge to give the addresses.
fn kernel_of(code: &[u8], text: &str) -> Vec<u8> {
    let (magic, flags) = (0x1bad_b002_u32, 0x0001_0000_u32);
    let entry = LOADED_AT + 32;
    let words = [magic, flags, magic.wrapping_add(flags).wrapping_neg(), LOADED_AT, LOADED_AT, 0, 0, entry];
    let mut image: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    image.extend(code);
    image.resize(TEXT_AT as usize, 0);
    image.extend(text.as_bytes());
    image.resize(8192, 0);
    image
}

/// Halts with interrupts off.
fn kernel_that_hangs() -> Vec<u8> {
    kernel_of(&[0xfa, 0xf4, 0xeb, 0xfc], "") // cli; hlt; jmp to itself
}

/// Writes the text to the first serial port, then triple-faults: an exception without an IDT resets the machine.
fn kernel_that_says(text: &str) -> Vec<u8> {
    let mut code = vec![0xfa, 0xbe]; // cli; mov esi, text
    code.extend((LOADED_AT + TEXT_AT).to_le_bytes());
    code.extend([0x66, 0xba, 0xf8, 0x03]); // mov dx, 0x3f8
    code.extend([0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb, 0xf8]); // lodsb; test al, al; jz +3; out dx, al; jmp -8
    code.extend([0x0f, 0x01, 0x1d]); // lidt of six zeros
    code.extend((LOADED_AT + ZEROS_AT).to_le_bytes());
    code.push(0xcc); // int3
    kernel_of(&code, text)
}

#[test]
fn a_panic_is_named_and_the_last_lines_of_the_console_are_shown() {
    if !has_qemu() {
        skip(Need::Qemu, "guest", "no qemu-system-x86_64 on the PATH");
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let kernel = scratch.path().join("vmlinuz-panics");
    let text = "[1.0] about to fail\n[1.1] Kernel panic - not syncing: nothing works\n";
    fs::write(&kernel, kernel_that_says(text)).expect("write");
    let words = failed(scratch.path(), &["--kernel", &kernel.display().to_string()]);
    assert!(words.contains("ended before it was done (its kernel panicked"), "{words}");
    assert!(words.contains("about to fail") && words.contains("nothing works"), "{words}");
}

#[test]
fn a_guest_that_runs_out_of_memory_is_reported() {
    if !can_boot() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    // The reserve is as large as the machine, so the next allocation fails and init is the only process to kill.
    let words = failed(scratch.path(), &["--set", "vm.min_free_kbytes=230000"]);
    assert!(words.contains("ran out of memory"), "{words}");
    assert!(words.contains("the last lines of the console") && words.contains("Kernel panic"), "{words}");
}

#[test]
fn a_missing_module_is_named() {
    if !can_boot() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let found = flatwater().args(["vm", "kernel"]).output().expect("runs");
    let image = String::from_utf8_lossy(&found.stdout).lines().find_map(|line| {
        let path = line.strip_prefix("image")?.trim();
        Some(path.to_owned())
    });
    // A copy of the kernel elsewhere has no modules, and the scenario needs xfs.
    let kernel = scratch.path().join("vmlinuz-0.0.0-alone");
    fs::copy(image.expect("an image is named"), &kernel).expect("copy");
    let scenario = scratch.path().join("xfs.toml");
    let text = include_str!("../scenarios/numa-spill.toml").replace("\"ext4\"", "\"xfs\"");
    fs::write(&scenario, text).expect("write");
    let kernel = kernel.display().to_string();
    let words = failed_run(&scenario.display().to_string(), scratch.path(), &["--kernel", &kernel]);
    assert!(words.contains("module xfs is not under lib/modules/0.0.0-alone"), "{words}");
}

#[test]
fn a_silent_guest_is_ended() {
    if !has_qemu() {
        skip(Need::Qemu, "guest", "no qemu-system-x86_64 on the PATH");
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let kernel = scratch.path().join("vmlinuz-hangs");
    fs::write(&kernel, kernel_that_hangs()).expect("write");
    let words = failed(scratch.path(), &["--kernel", &kernel.display().to_string(), "--patience", "6s"]);
    assert!(words.contains("was silent for 3 s and was ended"), "half of the patience is for the boot: {words}");
    assert!(words.contains("hangs did not boot") && words.contains("vm fetch-kernel"), "what to do next: {words}");
}

/// Refuses an arm64 image (arch/arm64/kernel/head.S: magic at 0x38) without a flatwater for arm64, before booting.
#[test]
fn a_kernel_of_another_architecture_is_named_with_what_it_needs() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let kernel = scratch.path().join("vmlinuz-arm64");
    let mut image = vec![0_u8; 4096];
    let (own, other, mark): (_, _, (usize, &[u8])) = match cfg!(target_arch = "aarch64") {
        true => ("aarch64", "x86_64", (0x202, b"HdrS")),
        false => ("x86_64", "aarch64", (0x38, b"ARM\x64")),
    };
    image[mark.0..mark.0 + mark.1.len()].copy_from_slice(mark.1);
    fs::write(&kernel, image).expect("write");
    let words = failed(scratch.path(), &["--kernel", &kernel.display().to_string()]);
    assert!(words.contains(&format!("is a kernel for {other}, and this flatwater is for {own}")), "{words}");
    assert!(words.contains("--init") && words.contains("cargo build"), "what to do next: {words}");
}

#[test]
fn missing_qemu_and_missing_kernel_are_reported() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let kernel = scratch.path().join("kernel");
    fs::write(&kernel, b"any").expect("write");
    let without = flatwater()
        .args(run_arguments(&scratch.path().join("a")))
        .arg("--kernel")
        .arg(&kernel)
        .env("PATH", scratch.path())
        .output()
        .expect("runs");
    assert!(!without.status.success());
    assert!(output_text(&without).contains("qemu-system-x86"), "{}", output_text(&without));
    let absent = flatwater()
        .args(run_arguments(&scratch.path().join("b")))
        .args(["--kernel", "/nonexistent/vmlinuz"])
        .output()
        .expect("runs");
    assert!(!absent.status.success());
    assert!(output_text(&absent).contains("/nonexistent/vmlinuz"), "{}", output_text(&absent));
}

#[test]
fn a_killed_run_leaves_no_guest_and_the_next_run_cleans_up() {
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
    assert!(is_there(&left), "a killed run cannot clean up after itself");
    // Cleaning up comes first, even in a run that then fails.
    let next = flatwater()
        .args(run_arguments(&scratch.path().join("next")))
        .args(["--kernel", "/nonexistent/vmlinuz"])
        .output()
        .expect("runs");
    assert!(!next.status.success());
    // A run of another test may be removing the directory; the next run then leaves that to it. Any other directory is
    // gone when the next run ends.
    assert!(
        wait_until(|| !directories(&left).iter().any(|directory| is_locked(directory))),
        "{} stays locked",
        left.display()
    );
    assert!(!is_there(&left), "{} is still there", left.display());
}
