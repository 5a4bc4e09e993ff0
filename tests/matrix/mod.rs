//! The matrix of kernels: each boots in QEMU with this build and is asked what it shows (guest.sh), and docs/kernels.md is
//! what came back. `tools/matrix.sh fetch` takes the kernels through apt; the short form boots the oldest and the newest
//! of those that are there and only asks for `check`.

mod asked;
mod groups;
mod places;
mod table;

use std::fs;
use std::path::Path;

use self::asked::{Asked, Kernel, Steps};
use needs::{Need, skip};

/// Relative to this package's folder.
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernels.md");

/// Kernels that can be booted here: fetched, with a binary that runs on them.
fn kernels() -> Vec<Kernel> {
    let there: Vec<Kernel> = asked::listed().into_iter().filter(Kernel::can_boot).collect();
    if there.is_empty() {
        skip(Need::Qemu, "kernels in guests", "no QEMU, no busybox or no kernel (tools/matrix.sh fetch)");
    }
    there
}

/// What must hold on each kernel, whatever it is.
fn judge(asked: &Asked) {
    let name = &asked.kernel.name;
    assert!(asked.failed.is_none(), "{name}: {}", asked.failed.as_deref().unwrap_or_default());
    let check = asked.json("check.json");
    let variant = asked::variant(&check);
    assert!(variant.is_some(), "{name}: no variant of the tracer was accepted: {check}");
    let sights = check["sights"].as_array().unwrap_or_else(|| panic!("{name}: no sights"));
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

/// A tracepoint that a kernel has is taken: else a structure of that version has other fields than ours say. 5.10 refused the
/// hooks of tasks, requests and two of memory for one field, and no neighbour had a name there.
fn refused(check: &serde_json::Value, kernel: &str) {
    let hooks = check["hooks"].as_array().unwrap_or_else(|| panic!("{kernel}: no hooks"));
    for hook in hooks {
        let name = hook["hook"].as_str().unwrap_or_default();
        // Before 5.19 its arguments name no request (include/trace/events/io_uring.h).
        let known = name == "tp_btf/io_uring_complete" && kernel == "5.10";
        // The second object stands for its hooks where it is given up as a whole.
        let ours = name.starts_with("tp_btf/") || name.starts_with("bpf/");
        if ours && hook["state"] == "unavailable" && !known {
            let why = hook["reason"].as_str().unwrap_or_default();
            assert!(why.contains("no such tracepoint"), "{kernel}: {name}: {why}");
        }
    }
}

#[test]
fn the_oldest_and_the_newest_kernel_are_traced() {
    let mut there: Vec<Kernel> = asked::listed().into_iter().filter(Kernel::can_boot).collect();
    if there.is_empty() {
        there.extend(asked::any().filter(Kernel::can_boot));
    }
    let own: Vec<&Kernel> = there.iter().filter(|kernel| kernel.is_own_arch()).collect();
    let Some((first, others)) = own.split_first() else {
        return skip(Need::Qemu, "a kernel in a guest", "no QEMU, no static busybox, or no kernel to boot");
    };
    for kernel in std::iter::once(first).chain(others.last()) {
        judge(&asked::ask(kernel, Steps::Check));
    }
}

/// What older kernels get, on this one: the means that they lack count as refused.
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
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            serde_json::from_slice::<serde_json::Value>(&output.stdout)
                .unwrap_or_else(|error| panic!("{error}: {told}"))
        };
        let Some((variant, _)) = asked::variant(&flatwater(&["check", "-O", "json"])) else {
            return skip(Need::Bpf, "the tracer's variants", "no hook can be attached");
        };
        if without == "none" && variant != expected {
            return skip(Need::Bpf, "the tracer's variants", "this kernel is an old one itself");
        }
        assert_eq!(variant, expected, "without {without}");
        let script = "exec dd if=/dev/zero of=x bs=4k count=200 oflag=sync status=none";
        let out = format!("rec-{variant}");
        let told = flatwater(&["record", "-m", "10us", "-O", "json", "-o", &out, "--", "sh", "-c", script]);
        let operations = told["operations"].as_array().expect("operations");
        let writes = operations.iter().find(|operation| operation["name"] == "write").expect("it wrote");
        assert!(writes["count"].as_u64() >= Some(200), "{variant}: {writes}");
        assert!(told["slow"]["calls"].as_u64() >= Some(200), "{variant}: {}", told["slow"]);
        // Each sync write waits for the device: without sleeps and their stacks it would have no name.
        assert!(told["slow"]["named_share"].as_f64() >= Some(0.9), "{variant}: {}", told["slow"]);
        let recording = flatwater_recording::read(&place.path().join(&out)).expect("a recording");
        assert_eq!(recording.header.losses.lost, 0, "{variant}");
        assert!(recording.calls.iter().all(|call| call.tiles()), "{variant}");
    }
}

/// 6.1 refused the scheduler's hook as level 0 asks for it: a minute of slow syncs was "timed", and not one was seen.
#[test]
fn level_0_without_its_hook_has_not_observed_anything() {
    let place = tempfile::tempdir().expect("a directory");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.args(["record", "--level", "0", "-O", "json", "-o", "rec", "--"]);
    command.args(["dd", "if=/dev/zero", "of=x", "bs=4k", "count=20", "oflag=sync", "status=none"]);
    command.env("FLATWATER_TRACER_WITHOUT", "task-storage,ring-buffer,typed-tracepoints").current_dir(place.path());
    let output = command.output().expect("runs");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an explanation");
    let observed = told["observed"].as_array().expect("what was observed");
    let timed = observed.iter().filter(|access| access["timed"] == true).count();
    assert!(!observed.is_empty() && timed == 0, "{observed:?}");
    assert_eq!(told["findings"][0]["cause"], "not-observed", "{}", told["findings"]);
}

#[test]
fn a_file_that_holds_no_types_is_refused_with_what_makes_one() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flatwater"));
    let output = command.args(["check", "--btf", "/etc/passwd"]).output().expect("runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("/etc/passwd") && told.contains("pahole"), "{told}");
}

/// Runs flatwater where /sys/kernel/btf is empty, in a mount namespace of its own.
fn without_types(place: &Path, arguments: &[&str]) -> serde_json::Value {
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"", "sh"]);
    let output =
        command.arg(env!("CARGO_BIN_EXE_flatwater")).args(arguments).current_dir(place).output().expect("runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}"))
}

#[test]
fn a_kernel_without_types_of_its_own_is_traced_with_those_of_a_file() {
    let place = tempfile::tempdir().expect("a directory");
    let types = place.path().join("vmlinux.btf");
    let copied = fs::copy("/sys/kernel/btf/vmlinux", &types);
    if copied.is_err() || !rustix::process::geteuid().is_root() {
        return skip(Need::Bpf, "a kernel without types", "this kernel has none itself, or we are not root");
    }
    let types = types.to_str().expect("a path of ours");
    let bare = without_types(place.path(), &["check", "-O", "json"]);
    let seen = |check: &serde_json::Value, cause: &str| {
        let sights = check["sights"].as_array().expect("sights").clone();
        sights.into_iter().find(|sight| sight["cause"] == cause).expect("each cause has a line")
    };
    let commit = seen(&bare, "journal-commit");
    assert_eq!(commit["seen"], "absent");
    assert!(commit["why"].as_str().is_some_and(|why| why.contains("CONFIG_DEBUG_INFO_BTF")), "{commit}");
    let remedies = bare["obstacles"].to_string();
    assert!(remedies.contains("--btf FILE") && remedies.contains("pahole"), "{remedies}");

    let given = without_types(place.path(), &["check", "--btf", types, "-O", "json"]);
    if asked::variant(&given).is_none() {
        return skip(Need::Bpf, "types from a file", "no hook can be attached");
    }
    assert_eq!(seen(&given, "journal-commit")["seen"], "exact");
    let writes = ["dd", "if=/dev/zero", "of=x", "bs=4k", "count=100", "oflag=sync", "status=none"];
    let record = ["record", "--btf", types, "-m", "10us", "-O", "json", "-o", "rec", "--"];
    let told = without_types(place.path(), &[&record[..], &writes[..]].concat());
    assert!(told["slow"]["calls"].as_u64() >= Some(100), "{}", told["slow"]);
    assert!(told["slow"]["named_share"].as_f64() >= Some(0.9), "{}", told["slow"]);
}

/// The whole matrix, about two minutes a kernel under emulation.
#[test]
#[ignore = "boots every kernel: tools/matrix.sh"]
fn every_kernel_names_the_same_stalls() {
    // FLATWATER_MATRIX names those that are asked for more than `check`.
    let wanted = std::env::var("FLATWATER_MATRIX").unwrap_or_default();
    let ask = |kernel: &Kernel| asked::ask(kernel, Steps::wanted(kernel, &wanted));
    let all: Vec<Asked> = kernels().iter().map(ask).collect();
    if all.is_empty() {
        return;
    }
    let others: Vec<Kernel> = asked::listed().into_iter().filter(|kernel| !kernel.can_boot()).collect();
    let text = table::document(&all, &others);
    if std::env::var_os("FLATWATER_BLESS").is_some() {
        fs::write(DOCS, &text).expect("docs/kernels.md is written");
    }
    let wrong: Vec<String> = all.iter().flat_map(Asked::wrong).collect();
    assert!(!text.contains("unknown"), "a cell says unknown");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    all.iter().for_each(judge);
}

/// One kernel on each of three file systems, on ext4 with the devices, NFS and cgroups; some three and eight minutes a boot under
/// emulation. FLATWATER_PLACES names another kernel, FLATWATER_PLACES_ON the file systems, FLATWATER_PLACES_STEPS the steps
/// of places.sh, between spaces.
#[test]
#[ignore = "boots three guests"]
fn file_systems_devices_and_pods_name_their_stalls() {
    let name = std::env::var("FLATWATER_PLACES").unwrap_or_else(|_| "6.12".to_owned());
    let file_systems = std::env::var("FLATWATER_PLACES_ON").unwrap_or_else(|_| "xfs,btrfs,ext4".to_owned());
    let there = kernels();
    let Some(kernel) = there.iter().find(|kernel| kernel.name == name).or(there.first()) else { return };
    let steps = std::env::var("FLATWATER_PLACES_STEPS").unwrap_or_default();
    let wrong = places::ask(kernel, &file_systems.split(',').collect::<Vec<_>>(), &steps);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The scenarios that use a cgroup, on version 2; with both versions where the kernel has them (FLATWATER_PLACES=6.1). Some ten
/// minutes under emulation.
#[test]
#[ignore = "boots a guest"]
fn the_scenarios_with_a_cgroup_run_on_version_2() {
    let name = std::env::var("FLATWATER_PLACES").unwrap_or_else(|_| "6.12".to_owned());
    let there = kernels();
    let Some(kernel) = there.iter().find(|kernel| kernel.name == name).or(there.first()) else { return };
    let wrong = groups::ask(kernel);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table is generated: whoever adds a cause generates it again.
#[test]
fn the_documented_matrix_has_every_cause_and_every_kernel() {
    let text = fs::read_to_string(Path::new(DOCS)).expect("docs/kernels.md: tools/matrix.sh writes it");
    for kernel in asked::listed() {
        assert!(text.contains(&kernel.name), "{} is not in docs/kernels.md", kernel.name);
    }
    for cause in flatwater_recording::Cause::ALL {
        let named = cause.name() == "unexplained" || text.contains(&format!("| {} |", cause.name()));
        assert!(named, "{} is not in docs/kernels.md", cause.name());
    }
    assert!(!text.contains("unknown"), "a cell says unknown");
}
