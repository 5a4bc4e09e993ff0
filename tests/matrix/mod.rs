//! The matrix of kernels. Each boots in QEMU with this build and runs guest.sh. tools/matrix.sh writes the answers to
//! target/kernels.md, and docs/kernels.md has the result. `tools/matrix.sh fetch` fetches the kernels through apt. The
//! short form boots the oldest and the newest fetched kernel and only runs `check`.

mod asked;
mod groups;
mod guard;
mod places;
mod table;

use std::fs;
use std::path::Path;

use self::asked::{Asked, Kernel, Steps};
use needs::{Need, skip};

/// The fetched kernels for which this machine has QEMU and a binary.
fn kernels() -> Vec<Kernel> {
    let there: Vec<Kernel> = asked::listed().into_iter().filter(Kernel::can_boot).collect();
    if there.is_empty() {
        skip(Need::Qemu, "kernels in guests", "no QEMU, no busybox or no kernel (tools/matrix.sh fetch)");
    }
    there
}

/// Checks that must hold on every kernel.
fn judge(asked: &Asked) {
    let name = &asked.kernel.name;
    assert!(asked.failed.is_none(), "{name}: {}", asked.failed.as_deref().unwrap_or_default());
    let check = asked.json("check.json");
    let variant = asked::variant(&check);
    assert!(variant.is_some(), "{name}: no variant of the tracer was accepted: {check}");
    let sights = check["sights"].as_array().unwrap_or_else(|| panic!("{name}: no sights"));
    for cause in flatwater_recording::Cause::ALL.iter().filter(|cause| cause.name() != "unexplained") {
        let listed = sights.iter().any(|sight| sight["cause"] == cause.name());
        assert!(listed, "{name}: check does not list {}", cause.name());
    }
    for sight in sights {
        let (seen, why) = (sight["seen"].as_str().unwrap_or_default(), sight["why"].as_str().unwrap_or_default());
        assert!(seen == "exact" || !why.is_empty(), "{name}: {} is {seen} without a reason", sight["cause"]);
    }
    refused(&check, name);
    for needed in ["direct-reclaim", "memcg-reclaim", "journal-commit", "dirty-throttle", "run-queue", "page-writeback"]
    {
        let seen = sights.iter().find(|sight| sight["cause"] == needed).map(|sight| &sight["seen"]);
        assert_eq!(seen.and_then(|seen| seen.as_str()), Some("exact"), "{name}: {needed}");
    }
}

/// Checks that the kernel accepts the hook of each tracepoint that it has. A refusal means that our structures differ
/// from those of that version: for one wrong field, 5.10 refused the hooks of tasks, of requests and two of memory, and
/// no neighbour had a name.
fn refused(check: &serde_json::Value, kernel: &str) {
    let hooks = check["hooks"].as_array().unwrap_or_else(|| panic!("{kernel}: no hooks"));
    for hook in hooks {
        let name = hook["hook"].as_str().unwrap_or_default();
        // Before 5.19 the arguments of this tracepoint do not include the request (include/trace/events/io_uring.h).
        let known = name == "tp_btf/io_uring_complete" && kernel == "5.10";
        // If the second object is not loaded, a `bpf/` line reports it instead of the hooks.
        let ours = ["tp_btf/", "bpf/", "iter/task (registers)"].iter().any(|start| name.starts_with(start));
        if ours && hook["state"] == "unavailable" && !known {
            let why = hook["reason"].as_str().unwrap_or_default();
            assert!(why.contains("no such tracepoint"), "{kernel}: {name}: {why}");
        }
    }
}

/// Traces the oldest or the newest kernel that can boot here. An emulated guest uses one CPU of this machine
/// (crates/vm/src/one_cpu.rs): the two kernels get different ones, so that both can boot at the same time.
fn oldest_or_newest(is_oldest: bool) {
    let mut there: Vec<Kernel> = asked::listed().into_iter().filter(Kernel::can_boot).collect();
    if there.is_empty() {
        there.extend(asked::any().filter(Kernel::can_boot));
    }
    let own: Vec<&Kernel> = there.iter().filter(|kernel| kernel.is_own_arch()).collect();
    let (Some(oldest), Some(newest)) = (own.first(), own.last()) else {
        return skip(Need::Qemu, "a kernel in a guest", "no QEMU, no static busybox, or no kernel to boot");
    };
    if !is_oldest && oldest.name == newest.name {
        return println!("{} is the oldest and the newest kernel: see the other test", oldest.name);
    }
    let allowed = rustix::thread::sched_getaffinity(None).expect("the CPUs of this thread");
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let cpu = if is_oldest { cpus.next() } else { cpus.next_back() };
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu.expect("a process has a CPU"));
    rustix::thread::sched_setaffinity(None, &one).expect("one of our CPUs");
    judge(&asked::ask(if is_oldest { oldest } else { newest }, Steps::Check));
}

#[test]
fn the_oldest_kernel_is_traced() {
    oldest_or_newest(true);
}

#[test]
fn the_newest_kernel_is_traced() {
    oldest_or_newest(false);
}

/// Tests the tracer's variants for older kernels by disabling the features that those kernels lack.
#[test]
fn each_variant_of_the_tracer_sees_the_same_program() {
    let place = tempfile::tempdir().expect("a directory");
    let all = [
        "none",
        "task-storage",
        "task-storage,ring-buffer,typed-tracepoints",
        "task-storage,ring-buffer,typed-tracepoints,shared-arrays",
    ];
    for (without, expected) in all.into_iter().zip(["task_storage", "hash", "raw", "raw_unshared"]) {
        let flatwater = |arguments: &[&str]| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flatwater"));
            command.args(arguments).env("FLATWATER_TRACER_WITHOUT", without).current_dir(place.path());
            let output = command.output().expect("runs");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            serde_json::from_slice::<serde_json::Value>(&output.stdout)
                .unwrap_or_else(|error| panic!("{error}: {errors}"))
        };
        let Some((variant, _)) = asked::variant(&flatwater(&["check", "--format", "json"])) else {
            return skip(Need::Bpf, "the tracer's variants", "no hook can be attached");
        };
        if without == "none" && variant != expected {
            return skip(Need::Bpf, "the tracer's variants", "this kernel itself is old");
        }
        assert_eq!(variant, expected, "without {without}");
        let script = "exec dd if=/dev/zero of=x bs=4k count=60 oflag=sync status=none";
        let out = format!("rec-{variant}");
        let explained = flatwater(&["record", "-m", "10us", "--format", "json", "-o", &out, "--", "sh", "-c", script]);
        let operations = explained["operations"].as_array().expect("operations");
        let writes = operations.iter().find(|operation| operation["name"] == "write").expect("it wrote");
        assert!(writes["count"].as_u64() >= Some(60), "{variant}: {writes}");
        assert!(explained["slow"]["calls"].as_u64() >= Some(60), "{variant}: {}", explained["slow"]);
        // Each sync write waits for the device. Only sleeps with their stacks give that time a cause.
        assert!(explained["slow"]["named_share"].as_f64() >= Some(0.9), "{variant}: {}", explained["slow"]);
        let recording = flatwater_recording::read(&place.path().join(&out)).expect("a recording");
        assert_eq!(recording.header.losses.lost, 0, "{variant}");
        assert!(recording.calls.iter().all(|call| call.tiles()), "{variant}");
    }
}

/// 6.1 refused the scheduler's hook of level 0. A minute of slow syncs was then reported as timed, but none was
/// recorded.
#[test]
fn level_0_without_its_hook_has_not_observed_anything() {
    let place = tempfile::tempdir().expect("a directory");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.args(["record", "--level", "0", "--format", "json", "-o", "rec", "--"]);
    command.args(["dd", "if=/dev/zero", "of=x", "bs=4k", "count=20", "oflag=sync", "status=none"]);
    command.env("FLATWATER_TRACER_WITHOUT", "task-storage,ring-buffer,typed-tracepoints").current_dir(place.path());
    let output = command.output().expect("runs");
    let explained: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an explanation");
    let observed = explained["observed"].as_array().expect("`observed`");
    let timed = observed.iter().filter(|access| access["timed"] == true).count();
    assert!(!observed.is_empty() && timed == 0, "{observed:?}");
    assert_eq!(explained["findings"][0]["cause"], "not-observed", "{}", explained["findings"]);
}

#[test]
fn a_file_without_btf_is_refused_with_the_command_that_makes_one() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flatwater"));
    let output = command.args(["check", "--btf", "/etc/passwd"]).output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && errors.contains("/etc/passwd") && errors.contains("pahole"), "{errors}");
}

/// Runs flatwater in a mount namespace where /sys/kernel/btf is empty.
fn without_types(place: &Path, arguments: &[&str]) -> serde_json::Value {
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"", "sh"]);
    let output =
        command.arg(env!("CARGO_BIN_EXE_flatwater")).args(arguments).current_dir(place).output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

#[test]
fn a_kernel_without_btf_is_traced_with_btf_from_a_file() {
    let place = tempfile::tempdir().expect("a directory");
    let types = place.path().join("vmlinux.btf");
    let copied = fs::copy("/sys/kernel/btf/vmlinux", &types);
    if copied.is_err() || !rustix::process::geteuid().is_root() {
        return skip(Need::Bpf, "a kernel without BTF", "this kernel has no BTF, or we are not root");
    }
    let types = types.to_str().expect("a UTF-8 path");
    let bare = without_types(place.path(), &["check", "--format", "json"]);
    let seen = |check: &serde_json::Value, cause: &str| {
        let sights = check["sights"].as_array().expect("sights").clone();
        sights.into_iter().find(|sight| sight["cause"] == cause).expect("each cause has a line")
    };
    let commit = seen(&bare, "journal-commit");
    assert_eq!(commit["seen"], "absent");
    assert!(commit["why"].as_str().is_some_and(|why| why.contains("CONFIG_DEBUG_INFO_BTF")), "{commit}");
    let remedies = bare["obstacles"].to_string();
    assert!(remedies.contains("--btf FILE") && remedies.contains("pahole"), "{remedies}");

    let given = without_types(place.path(), &["check", "--btf", types, "--format", "json"]);
    if asked::variant(&given).is_none() {
        return skip(Need::Bpf, "BTF from a file", "no hook can be attached");
    }
    assert_eq!(seen(&given, "journal-commit")["seen"], "exact");
    let writes = ["dd", "if=/dev/zero", "of=x", "bs=4k", "count=100", "oflag=sync", "status=none"];
    let record = ["record", "--btf", types, "-m", "10us", "--format", "json", "-o", "rec", "--"];
    let explained = without_types(place.path(), &[&record[..], &writes[..]].concat());
    assert!(explained["slow"]["calls"].as_u64() >= Some(100), "{}", explained["slow"]);
    assert!(explained["slow"]["named_share"].as_f64() >= Some(0.9), "{}", explained["slow"]);
}

/// The whole matrix: about two minutes per kernel under emulation.
#[test]
#[ignore = "boots every kernel: tools/matrix.sh"]
fn every_kernel_names_the_same_stalls() {
    // FLATWATER_MATRIX lists the kernels that run more than `check`.
    let wanted = std::env::var("FLATWATER_MATRIX").unwrap_or_default();
    let ask = |kernel: &Kernel| asked::ask(kernel, Steps::wanted(kernel, &wanted));
    let all: Vec<Asked> = kernels().iter().map(ask).collect();
    if all.is_empty() {
        return;
    }
    let others: Vec<Kernel> = asked::listed().into_iter().filter(|kernel| !kernel.can_boot()).collect();
    let text = table::document(&all, &others);
    crate::common::write_result("kernels.md", &text);
    let wrong: Vec<String> = all.iter().flat_map(Asked::wrong).collect();
    assert!(!text.contains("unknown"), "a cell says unknown");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    all.iter().for_each(judge);
}

/// One kernel on xfs, btrfs and ext4; the ext4 guest also has the devices, NFS and cgroups. Three to eight minutes per
/// boot under emulation. FLATWATER_PLACES names another kernel, FLATWATER_PLACES_ON the file systems (separated by
/// commas), FLATWATER_PLACES_STEPS the steps of places.sh (separated by spaces).
#[test]
#[ignore = "boots three guests"]
fn stalls_of_file_systems_devices_and_pods_are_named() {
    let name = std::env::var("FLATWATER_PLACES").unwrap_or_else(|_| "6.12".to_owned());
    let file_systems = std::env::var("FLATWATER_PLACES_ON").unwrap_or_else(|_| "xfs,btrfs,ext4".to_owned());
    let there = kernels();
    let Some(kernel) = there.iter().find(|kernel| kernel.name == name).or(there.first()) else { return };
    let steps = std::env::var("FLATWATER_PLACES_STEPS").unwrap_or_default();
    let wrong = places::ask(kernel, &file_systems.split(',').collect::<Vec<_>>(), &steps);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The scenarios that use a cgroup, on cgroup v2, and on both versions if the kernel has them (FLATWATER_PLACES=6.1).
/// About ten minutes under emulation.
#[test]
#[ignore = "boots a guest"]
fn the_scenarios_with_a_cgroup_run_on_version_2() {
    let name = std::env::var("FLATWATER_PLACES").unwrap_or_else(|_| "6.12".to_owned());
    let there = kernels();
    let Some(kernel) = there.iter().find(|kernel| kernel.name == name).or(there.first()) else { return };
    let wrong = groups::ask(kernel);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The guard on cgroup v2: a neighbour is limited, the victim gains, and no limit outlives the daemon. Ten minutes per
/// kernel under emulation. FLATWATER_PLACES names one kernel.
#[test]
#[ignore = "boots guests"]
fn the_guard_limits_a_neighbour_and_every_limit_ends() {
    let name = std::env::var("FLATWATER_PLACES").unwrap_or_default();
    let wanted = |kernel: &Kernel| match name.as_str() {
        "" => ["6.1", "6.12"].contains(&kernel.name.as_str()),
        name => kernel.name == name,
    };
    let chosen: Vec<Kernel> = kernels().into_iter().filter(wanted).collect();
    if chosen.is_empty() {
        return skip(Need::Qemu, "the guard in guests", "the kernel was not fetched (tools/matrix.sh fetch)");
    }
    let wrong: Vec<String> = chosen.iter().flat_map(guard::ask).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn docs_name_every_kernel_of_the_matrix() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernels.md")).expect("docs/kernels.md");
    let words: Vec<&str> = page.split(char::is_whitespace).collect();
    for kernel in asked::listed() {
        assert!(words.contains(&kernel.name.as_str()), "docs/kernels.md does not name {}", kernel.name);
    }
}
