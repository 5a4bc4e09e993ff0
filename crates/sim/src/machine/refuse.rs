//! Refuses scenarios that the model cannot express, with the missing mechanism.

use crate::fs::file_system;
use crate::kernel;
use crate::kernel::{Profile, Throttle};
use crate::machine::knob_support;
use crate::run::{NEWEST, has_cgroup};
use flatwater_recording::Setup;
use flatwater_workload::scenario::{DiskSpec, Scenario, WorkloadSpec};

/// The mechanisms of a file system that the model lacks.
fn missing_of_file_system(name: &str) -> &'static str {
    match name {
        "xfs" => "the log's reservations, delayed allocation by extents and allocation groups of xfs",
        "btrfs" => "the copy-on-write trees, checksums and transactions of btrfs",
        "ext4" => "the delayed allocation and extents of ext4 in this kernel",
        "ext3" => "the ordered data of ext3 in this kernel",
        "reiserfs" => "the tree and the log of reiserfs in this kernel",
        "tmpfs" => "swap and pages that no disk holds (tmpfs)",
        "nfs" | "nfs4" => "the NFS client and its server",
        "none" | "raw" => "a block device without a file system",
        "f2fs" => "the segments and the cleaner of f2fs",
        _ => "this file system",
    }
}

/// The mechanisms of an I/O scheduler that the model lacks.
fn missing_of_scheduler(name: &str) -> &'static str {
    match name {
        "bfq" => "the budgets and weights of bfq",
        "kyber" => "the latency targets of kyber",
        "anticipatory" | "as" => "the anticipation of reads (as-iosched)",
        "cfq" => "the queues by process of cfq",
        _ => "this I/O scheduler",
    }
}

/// The version that introduced a setting, if this kernel is older.
fn not_yet(key: &str, value: &str, profile: &Profile) -> Option<&'static str> {
    let (has, since) = match key {
        "vm.watermark_scale_factor" => (profile.is_6(), "4.6"),
        // The only allocations of more than a page: kernels with lumpy reclaim (2.6.24 to 2.6.37) have none.
        "thp.enabled" | "thp.defrag" => (profile.is_6() || value == "never", "2.6.38"),
        "queue.wbt_lat_usec" => (profile.is_6() || value == "0", "4.10"),
        // 2.6.24 and 2.6.25 have the shares, but not the knobs.
        "bdi.max_ratio" => (profile.throttle != Throttle::PerCpuRateLimit || value == "100", "2.6.26"),
        "bdi.min_ratio" => (profile.throttle != Throttle::PerCpuRateLimit || value == "0", "2.6.26"),
        "bdi.strict_limit" | "bdi.max_bytes" => (profile.throttle == Throttle::IoLess || value == "0", "3.11"),
        _ => (true, ""),
    };
    (!has).then_some(since)
}

/// The mechanism of a device or its file system that the model lacks; `setups` are its settings, the first those from
/// the start.
fn missing_of_device(disk: &DiskSpec, setups: &[&Setup], profile: &Profile) -> Option<String> {
    let setup = setups.first()?;
    let asked = [disk.file_system.as_deref(), setup.get("mount.file_system")];
    if let Some(name) = asked.into_iter().flatten().find(|name| !profile.file_systems.contains(name)) {
        let known = profile.file_systems.join(", ");
        return Some(format!("{} (file system '{name}'; it has {known})", missing_of_file_system(name)));
    }
    if let Some(option) = file_system::unknown_option(setup) {
        return Some(format!("the mount option '{option}' (mount.options)"));
    }
    if disk.flush_ns.is_some() {
        return Some("the flush of a drive's cache (disk.flush)".to_owned());
    }
    if disk.network_bytes_per_s.is_some() || disk.network_rtt_ns.is_some() {
        return Some("a disk behind a network (disk.network_bps, disk.network_rtt)".to_owned());
    }
    if disk.cache_bytes.is_some() || disk.write_cache.is_some() {
        return Some("the cache in a drive (disk.cache, disk.write_cache)".to_owned());
    }
    if disk.array.is_some() {
        return Some("arrays of drives: md and RAID controllers (disk.array)".to_owned());
    }
    for name in setups.iter().filter_map(|setup| setup.get("queue.scheduler")) {
        if !profile.schedulers.contains(&name) {
            let known = profile.schedulers.join(", ");
            return Some(format!("{} (queue.scheduler '{name}'; it has {known})", missing_of_scheduler(name)));
        }
    }
    let setting = |(key, value): (&str, &str)| {
        if let Some(since) = not_yet(key, value, profile) {
            return Some(format!("{key}, which came with {since}"));
        }
        let mechanism = knob_support::missing_mechanism(profile.name, key, value)?;
        Some(format!("{mechanism} ({key} = {value})"))
    };
    setups.iter().find_map(|setup| setup.iter().find_map(setting))
}

/// Whether a workload syncs.
fn calls_sync(own: &WorkloadSpec) -> bool {
    let given = |name: &str| own.params.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
    let asks = |name: &str, off: &str| given(name).is_some_and(|value| value != off);
    matches!(own.entry.name, "syncs" | "checkpoint")
        || asks("sync", "none")
        || asks("fdatasync_every", "0")
        || asks("fsync", "false")
}

/// The first mechanism that the scenario needs and the model of this kernel lacks.
#[must_use]
pub fn missing(scenario: &Scenario, profile: &Profile) -> Option<String> {
    let timeline = scenario.timeline.iter().map(|change| &change.set);
    let of_machine: Vec<&Setup> = std::iter::once(&scenario.setup).chain(timeline).collect();
    let several = scenario.devices().count() > 1;
    for (place, (_, disk, setup)) in scenario.devices().enumerate() {
        let own = [setup];
        let setups = if place == 0 { of_machine.as_slice() } else { &own };
        if let Some(why) = missing_of_device(disk, setups, profile) {
            return Some(why);
        }
    }
    if profile.buffer_cache.is_some()
        && let Some(own) = scenario.workloads.iter().find(|own| calls_sync(own))
    {
        return Some(format!("fsync() and sync() of 2.2 (workload '{}')", own.label));
    }
    if several && profile.buffer_cache.is_some() {
        return Some("several devices of 2.2 (machine.device)".to_owned());
    }
    let has_cgroup = has_cgroup(scenario);
    if !has_cgroup && !scenario.machine.cgroup_grows.is_empty() {
        return Some(
            "what processes hold in a memory cgroup without one (machine.cgroup_grows needs cgroup.memory_limit)"
                .to_owned(),
        );
    }
    if has_cgroup && !profile.is_6() {
        return Some("memory cgroups of kernels before 4.8 (cgroup.memory_limit)".to_owned());
    }
    if has_cgroup && several {
        return Some("the writeback of a memory cgroup by device (cgroup.memory_limit with machine.device)".to_owned());
    }
    if scenario.machine.swap_bytes > 0 {
        return Some("swapping (machine.swap)".to_owned());
    }
    None
}

/// Removes the settings of a recorded machine that the model cannot express from its scenario, and returns a note for
/// each: a machine has many settings that its administrator did not choose.
#[must_use]
pub fn leave_out(scenario: &mut Scenario) -> Vec<String> {
    let Some(profile) = kernel::find(scenario.kernel.as_deref().unwrap_or(NEWEST)) else { return Vec::new() };
    let (mut kept, mut left) = (Setup::default(), Vec::new());
    let unknown_options = file_system::unknown_option(&scenario.setup).is_some();
    for (key, value) in scenario.setup.iter() {
        let lacks = knob_support::missing_mechanism(profile.name, key, value).is_some()
            || not_yet(key, value, &profile).is_some()
            || (key == "mount.options" && unknown_options)
            || (key == "queue.scheduler" && !profile.schedulers.contains(&value));
        if lacks {
            left.push(format!("{key}={value}"));
        } else {
            kept.observe(key, value);
        }
    }
    scenario.setup = kept;
    left
}

#[cfg(test)]
mod tests {
    use super::missing;
    use crate::kernel::find;
    use flatwater_workload::scenario::Scenario;

    fn scenario(kernel: &str, disk: &str, setup: &str) -> (Scenario, crate::kernel::Profile) {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nkernel = '{kernel}'\n[machine]\nnodes = ['1GiB']\ndisk = {{ {disk} }}\n\
             [setup]\n{setup}\n[[workload]]\nuse = 'journal'\n"
        );
        (Scenario::parse("x", &text).expect("parses"), find(kernel).expect("a profile"))
    }

    #[test]
    fn what_the_model_has_not_is_named_and_what_it_has_runs() {
        for (kernel, disk, setup, wanted) in [
            ("linux-6.1", "file_system = 'ext3'", "", "ext3"),
            ("linux-2.6.17", "file_system = 'nfs'", "", "NFS"),
            ("linux-6.1", "network_bps = '1GB'", "", "network"),
            ("linux-6.1", "", "'mount.options' = 'noac'", "noac"),
            ("linux-6.18", "", "'mount.file_system' = 'btrfs'", "btrfs"),
            ("linux-2.6.17", "file_system = 'ext4'", "", "ext4"),
            ("linux-6.1", "array = { level = 'raid0', drives = 2 }", "", "arrays"),
            ("linux-6.1", "", "'mount.options' = 'noatime,discard'", "discard"),
            ("linux-6.1", "latency = '80us', flush = '2ms'", "", "disk.flush"),
            ("linux-6.1", "", "'mount.options' = 'barrier=0'", "barrier=0"),
            ("linux-6.1", "", "'cgroup.memory_high' = '64MiB'", "memory.high"),
            ("linux-2.6.32", "", "'queue.wbt_lat_usec' = 75000", "4.10"),
            ("linux-2.6.32", "", "'vm.watermark_scale_factor' = 200", "4.6"),
            ("linux-2.6.32", "", "'thp.enabled' = 'always'", "2.6.38"),
            ("linux-2.6.17", "", "'thp.defrag' = 'madvise'", "2.6.38"),
            ("linux-6.18", "", "'vm.compaction_proactiveness' = 20", "compaction"),
            ("linux-6.1", "", "'lru_gen.enabled' = '1'", "multi-gen LRU"),
            ("linux-6.1", "", "'queue.scheduler' = 'kyber'", "kyber"),
            ("linux-2.6.32", "", "'queue.scheduler' = 'cfq'", "cfq"),
            ("linux-6.1", "", "'queue.scheduler' = 'bfq'", "bfq"),
            ("linux-2.6.32", "", "'cgroup.memory_limit' = '64MiB'", "cgroup"),
            ("linux-2.6.20-x86_64", "", "'bdi.max_ratio' = 10", "2.6.26"),
        ] {
            let (scenario, profile) = scenario(kernel, disk, setup);
            let why = missing(&scenario, &profile).unwrap_or_else(|| panic!("{kernel} {disk} {setup} was taken"));
            assert!(why.contains(wanted), "{why}");
        }
        for (kernel, disk, setup) in [
            ("linux-6.1", "file_system = 'ext4'", "'queue.scheduler' = 'none'"),
            ("linux-6.1", "", "'queue.wbt_lat_usec' = 75000\n'kernel.numa_balancing' = 0"),
            ("linux-2.6.20-x86_64", "file_system = 'reiserfs'", ""),
        ] {
            let (scenario, profile) = scenario(kernel, disk, setup);
            assert_eq!(missing(&scenario, &profile), None, "{kernel} {disk} {setup}");
        }
    }

    #[test]
    fn of_several_devices_each_is_looked_at_and_none_is_beside_a_cgroup_or_on_2_2() {
        let of = |kernel: &str, device: &str, setup: &str| {
            let (mut scenario, profile) = scenario(kernel, "", setup);
            let with = format!("{}[[machine.device]]\nname = 'usb'\n{device}\n", scenario.text);
            scenario = Scenario::parse("x", &with).expect("parses");
            missing(&scenario, &profile)
        };
        for (kernel, device, setup, wanted) in [
            ("linux-6.1", "disk = { file_system = 'btrfs' }", "", "btrfs"),
            ("linux-6.1", "set = { 'mount.options' = 'discard' }", "", "discard"),
            ("linux-2.6.20-x86_64", "set = { bdi.max_ratio = 5 }", "", "2.6.26"),
            ("linux-6.1", "set = { queue.scheduler = 'cfq' }", "", "cfq"),
            ("linux-6.1", "", "'cgroup.memory_limit' = '64MiB'", "by device"),
            ("linux-2.2.5", "", "", "several devices"),
        ] {
            let why = of(kernel, device, setup).unwrap_or_else(|| panic!("{kernel} {device} {setup} was taken"));
            assert!(why.contains(wanted), "{why}");
        }
        let device = "disk = { file_system = 'ext2', write_bps = '4MB' }\nset = { bdi.max_ratio = 5 }";
        assert_eq!(of("linux-2.6.32", device, ""), None);
    }

    #[test]
    fn what_a_cgroups_processes_hold_is_nothing_without_a_cgroup() {
        for (setup, refused) in [("", true), ("'cgroup.memory_limit' = '64MiB'", false)] {
            let (mut scenario, profile) = scenario("linux-6.1", "", setup);
            scenario.set("machine.cgroup_grows=0s:8MiB").expect("a step");
            assert_eq!(
                missing(&scenario, &profile).is_some_and(|why| why.contains("cgroup_grows")),
                refused,
                "{setup}"
            );
        }
    }

    #[test]
    fn what_2_2_would_have_to_sync_is_refused() {
        let why = |kernel: &str, workload: &str| {
            let (mut scenario, profile) = scenario(kernel, "", "");
            scenario = Scenario::parse("x", &format!("{}{workload}", scenario.text)).expect("parses");
            missing(&scenario, &profile)
        };
        for workload in
            ["fdatasync_every = 10", "[[workload]]\nuse = 'syncs'", "[[workload]]\nuse = 'access'\nsync = 'fsync'"]
        {
            assert!(
                why("linux-2.2.5", workload).is_some_and(|why| why.contains("fsync() and sync() of 2.2")),
                "{workload}"
            );
            assert_eq!(why("linux-2.6.32", workload), None);
        }
        assert_eq!(why("linux-2.2.5", "fdatasync_every = 0"), None);
    }

    #[test]
    fn unsupported_settings_of_a_recorded_machine_are_left_out_and_listed() {
        let (mut scenario, profile) =
            scenario("linux-6.1", "", "'vm.dirty_ratio' = 5\n'kernel.numa_balancing' = 1\n'queue.scheduler' = 'bfq'");
        scenario.setup.observe("lru_gen.min_ttl_ms", "1000");
        assert!(missing(&scenario, &profile).is_some());
        assert_eq!(
            super::leave_out(&mut scenario),
            ["kernel.numa_balancing=1", "lru_gen.min_ttl_ms=1000", "queue.scheduler=bfq"]
        );
        assert_eq!((missing(&scenario, &profile), scenario.setup.get("vm.dirty_ratio")), (None, Some("5")));
    }
}
