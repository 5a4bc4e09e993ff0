//! `flatwater whatif` for users: a grid on a model, refusals, and a machine from a real recording.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn flatwater(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A writer of 40 MB/s for 4 s on a disk of 15 MB/s. It stalls when it reaches the dirty limit.
const SCENARIO: &str = "name = 'burst'\nsentence = 'A burst.'\nduration = '4s'\nthreshold = '5ms'\nkernel = 'linux-6.18'\n\
    [machine]\ncpus = 2\nnodes = ['1GiB']\ndisk = { write_bps = '15MB', iops = 5000 }\n\
    [[workload]]\nuse = 'journal'\nbytes = '8KiB'\ninterval = '200us'\n";

#[test]
fn a_grid_names_the_choice_and_draws_it() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("burst.toml"), SCENARIO).expect("write");
    let sweeps = ["--sweep", "vm.dirty_bytes=16MiB,512MiB", "--sweep", "vm.dirty_background_bytes=8MiB,256MiB"];
    let arguments: Vec<&str> =
        ["whatif", "burst.toml", "--goal", "write.p999", "-o", "map.html"].into_iter().chain(sweeps).collect();
    let ran = flatwater(&arguments, directory.path());
    let (printed, progress) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{progress}");
    assert!(progress.contains("5 of 5 runs"), "{progress}");
    assert!(printed.contains("vm.dirty_bytes (down) and vm.dirty_background_bytes (across)"), "{printed}");
    // The 160 MB of writes fit under a limit of 512 MiB, but not under one of 16 MiB.
    let verdict =
        printed.lines().find(|line| line.starts_with("choose") || line.starts_with("leave")).expect("a choice");
    assert!(!verdict.contains("vm.dirty_bytes=16MiB"), "{printed}");
    for value in ["vm.dirty_bytes=16MiB", "vm.dirty_bytes=512MiB"] {
        assert!(printed.contains(value), "{printed}");
    }
    let page = std::fs::read_to_string(directory.path().join("map.html")).expect("a page");
    assert_eq!(page.matches("<rect").count(), 4, "one cell per combination");
    assert!(page.contains("What to choose") && page.contains("All runs"));
}

/// The writer's last call has not returned when the run ends, and it is the longest.
#[test]
fn a_call_under_way_at_the_end_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let held = "name = 'held'\nsentence = 'A stick fills the dirty limit.'\nduration = '30s'\nkernel = 'linux-2.6.17'\n\
        [machine]\ncpus = 2\nnodes = ['1GiB']\ndisk = { write_bps = '60MB', seek = '8ms', file_system = 'ext2' }\n\
        [[machine.device]]\nname = 'usb'\ndisk = { size = '8GB', write_bps = '2MB', latency = '2ms', file_system = 'ext2' }\n\
        [setup]\n'vm.dirty_ratio' = 10\n'vm.dirty_background_ratio' = 5\n\
        [[workload]]\nuse = 'stream'\nlabel = 'copy'\nrole = 'neighbour'\ndevice = 'usb'\nthreads = 8\ndirection = 'write'\n\
        [[workload]]\nuse = 'stream'\nlabel = 'work'\nrole = 'foreground'\nstart = '10s'\nbytes = '64KiB'\npause = '20ms'\n\
        direction = 'write'\n";
    std::fs::write(directory.path().join("held.toml"), held).expect("write");
    let ask = ["whatif", "held.toml", "--sweep", "vm.dirty_ratio=40,80", "--goal", "write.max", "-o", "map.html"];
    let ran = flatwater(&ask, directory.path());
    let printed = text(&ran.stdout);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let unchanged = printed.lines().find(|line| line.contains("unchanged")).expect("the unchanged machine");
    let mut longest = unchanged.trim_start_matches('*').split_whitespace();
    let value: f64 = longest.next().and_then(|value| value.parse().ok()).expect("a figure");
    assert!(value > 5.0 && longest.next() == Some("s"), "{printed}");
}

#[test]
fn settings_that_the_model_ignores_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for (arguments, wanted) in [
        (["whatif", "journal-2.6.32", "--sweep", "kernel.numa_balancing=0..1"], "does not know kernel.numa_balancing"),
        (["whatif", "sdet-2.2.3", "--sweep", "vm.dirty_ratio=5,40"], "it knows no knob"),
        (["whatif", "journal-2.6.32", "--sweep", "vm.dirty_ratio"], "is not a sweep"),
        (["whatif", "journal-2.6.33", "--sweep", "vm.dirty_ratio=5,40"], "journal-2.6.32"),
    ] {
        let ran = flatwater(&arguments, directory.path());
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}");
        assert!(text(&ran.stderr).contains(wanted), "{arguments:?}: {}", text(&ran.stderr));
    }
}

#[test]
fn a_recording_gives_machine_settings_and_operations() {
    let directory = tempfile::tempdir().expect("a directory");
    let record = ["run", "journal", "-t", "1s", "--set", "journal.bytes=300", "-o", "rec"];
    let ran = flatwater(&record, directory.path());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let ask = ["whatif", "rec", "--sweep", "vm.dirty_ratio=5,40", "--machine", "disk.iops=5000", "-o", "map.html"];
    let ran = flatwater(&ask, directory.path());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let printed = text(&ran.stdout);
    for wanted in ["note: assumed: kernel", "% of memory in use", "unchanged", "vm.dirty_ratio=40"] {
        assert!(printed.contains(wanted), "{wanted} in\n{printed}");
    }
}

/// A copy of the warm machine continues as the machine itself would. The same setting gives the same figures alone and
/// beside other settings.
#[test]
fn each_setting_starts_from_the_same_warm_machine() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("burst.toml"), SCENARIO).expect("write");
    let whatif = |warm: &str, goal: &str, values: &str| {
        let sweep = format!("vm.dirty_bytes={values}");
        let arguments =
            ["whatif", "burst.toml", "-t", "4s", "-o", "a.html", "--warm", warm, "--goal", goal, "--sweep", &sweep];
        flatwater(&arguments, directory.path())
    };
    let run = |values: &str| {
        let ran = whatif("10s", "write.p999", values);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        text(&ran.stdout)
    };
    // The row's figures, without its setting and without the mark of the choice.
    let row = |printed: &str, value: &str| {
        let line = printed
            .lines()
            .find(|line| line.ends_with(value))
            .unwrap_or_else(|| panic!("no row of {value} in {printed}"));
        line.trim_start_matches('*').trim_end_matches(value).trim().to_owned()
    };
    let (both, alone) = (run("16MiB,512MiB"), run("512MiB"));
    let of_512 = row(&both, "vm.dirty_bytes=512MiB");
    assert_eq!(of_512, row(&alone, "vm.dirty_bytes=512MiB"), "{both}\n{alone}");
    assert_ne!(of_512, row(&both, "vm.dirty_bytes=16MiB"), "{both}");
    let failed = whatif("1s", "read.max", "16MiB");
    assert!(text(&failed.stderr).contains("no read was measured"), "{}", text(&failed.stderr));
}
