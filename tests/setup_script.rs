//! tools/setup.sh on incomplete machines: one sentence names what is missing and the command that installs it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// A fake machine: a PATH with links to real commands and with scripts.
struct Machine {
    bin: tempfile::TempDir,
}

/// The commands that the script itself runs.
const TOOLS: &[&str] = &["awk", "bash", "cat", "dirname", "env", "head", "id", "ls", "readlink", "sort", "timeout"];
/// The programs that the script checks for, apart from Rust and packaged files.
const PROGRAMS: &[&str] = &["cc", "clang", "llvm-strip", "npm", "node", "make", "objcopy", "python3", "gzip"];

impl Machine {
    fn new() -> Machine {
        let machine = Machine { bin: tempfile::tempdir().expect("a directory") };
        for tool in TOOLS {
            let real =
                ["/usr/bin", "/bin"].iter().map(|folder| Path::new(folder).join(tool)).find(|path| path.exists());
            symlink(real.unwrap_or_else(|| panic!("no {tool}")), machine.bin.path().join(tool)).expect("symlink");
        }
        for program in PROGRAMS {
            machine.script(program, "exit 0");
        }
        machine.script("rustc", "echo 'rustc 1.95.0 (59807616e 2026-04-14)'");
        machine.script("cargo", "exit 0");
        machine.script("df", "printf 'Filesystem 1M-blocks Used Available\\nx 100000 1 90000\\n'");
        machine
    }

    fn script(&self, name: &str, body: &str) -> &Machine {
        let path = self.bin.path().join(name);
        fs::write(&path, format!("#!/bin/bash\n{body}\n")).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        self
    }

    fn without(&self, name: &str) -> &Machine {
        fs::remove_file(self.bin.path().join(name)).expect("remove");
        self
    }

    /// Runs the script and returns its single line of output.
    fn refusal(&self, want: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new("/bin/bash");
        command.arg("tools/setup.sh").arg(want).current_dir(root).env("PATH", self.bin.path());
        let output = command.output().expect("bash runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert_eq!(text.trim_end().lines().count(), 1, "one sentence: {text}");
        text
    }
}

#[test]
fn without_a_toolchain_it_names_rustup() {
    let machine = Machine::new();
    machine.without("cargo");
    let text = machine.refusal("build");
    assert!(text.contains("no Rust toolchain") && text.contains("https://rustup.rs"), "{text}");
}

#[test]
fn an_old_toolchain_is_named_with_the_command_that_updates_it() {
    let machine = Machine::new();
    machine.script("rustc", "echo 'rustc 1.75.0 (82e1608df 2023-12-21)'");
    let text = machine.refusal("build");
    assert!(text.contains("Rust 1.75.0 is too old") && text.contains("rustup update stable"), "{text}");
}

#[test]
fn a_full_disk_is_named_with_what_is_free_and_what_is_needed() {
    let machine = Machine::new();
    machine.script("df", "printf 'Filesystem 1M-blocks Used Available\\nx 100000 99999 7\\n'");
    let text = machine.refusal("test");
    assert!(text.contains("7 MiB free") && text.contains("ln -sn DIR target"), "{text}");
}

#[test]
fn without_a_network_it_names_cargo_fetch() {
    let machine = Machine::new();
    machine.script("cargo", "exit 101");
    let text = machine.refusal("build");
    assert!(text.contains("crates.io does not answer") && text.contains("cargo fetch"), "{text}");
}

#[test]
fn a_user_without_root_gets_the_command_that_installs_what_is_missing() {
    let machine = Machine::new();
    machine.without("clang").without("id").script("apt-get", "exit 0").script("id", "echo 1000");
    let text = machine.refusal("build");
    assert!(text.contains("sudo apt-get install") && text.contains(" clang"), "{text}");
}

#[test]
fn without_apt_the_missing_packages_are_named() {
    let machine = Machine::new();
    machine.without("clang");
    let text = machine.refusal("test");
    assert!(text.contains("qemu-system-x86") && text.contains("clang"), "{text}");
}
