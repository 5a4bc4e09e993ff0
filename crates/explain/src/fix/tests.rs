//! Commands of fixes on machines with either cgroup version.

use super::place::Place;
use super::{Fix, Limit, Resource};
use flatwater_recording::{Controller, ControllerName, Setup, Storage};

fn setup(pairs: &[(&str, &str)]) -> Setup {
    let mut setup = Setup::default();
    pairs.iter().for_each(|(key, value)| setup.observe(key, value));
    setup
}

fn controllers(version: u32) -> Vec<Controller> {
    let mount = |name: ControllerName| match version {
        1 => format!("/sys/fs/cgroup/{}", name.in_version(1)),
        _ => "/sys/fs/cgroup".to_owned(),
    };
    ControllerName::ALL.into_iter().map(|name| Controller::new(name, version, mount(name))).collect()
}

struct Machine {
    setup: Setup,
    controllers: Vec<Controller>,
    storage: Storage,
}

impl Machine {
    fn new(version: u32, pairs: &[(&str, &str)]) -> Machine {
        let mut storage = Storage::new("/srv/pg data", "ext4");
        storage.disk = Some("vda".to_owned());
        storage.schedulers = vec!["none".to_owned(), "mq-deadline".to_owned()];
        Machine { setup: setup(pairs), controllers: controllers(version), storage }
    }

    fn place(&self) -> Place<'_> {
        Place {
            setup: self.setup.clone(),
            controllers: &self.controllers,
            storage: Some(&self.storage),
            disk: self.storage.disk.as_deref(),
            threads: vec![41, 42],
            own_cgroup: Some("/system.slice/postgresql.service"),
            is_scenario: false,
        }
    }
}

fn at(fix: Fix, machine: &Machine) -> Fix {
    fix.at(&machine.place()).expect("the machine can do it")
}

#[test]
fn a_sysctl_is_undone_by_the_value_in_force() {
    let machine = Machine::new(2, &[("vm.swappiness", "60")]);
    let fix = at(Fix::knob("less", knob!("vm.swappiness"), "1"), &machine);
    assert_eq!(
        (fix.commands, fix.undo),
        (vec!["sysctl -w vm.swappiness=1".into()], vec!["sysctl -w vm.swappiness=60".into()])
    );
}

#[test]
fn an_unknown_value_is_read_before_it_is_changed() {
    let fix = at(Fix::knob("less", knob!("vm.swappiness"), "1"), &Machine::new(2, &[]));
    assert_eq!(fix.commands, ["sysctl vm.swappiness", "sysctl -w vm.swappiness=1"]);
    assert_eq!(fix.undo, ["sysctl -w vm.swappiness=OLD"]);
}

/// Writing the limit in bytes clears the one in percent (mm/page-writeback.c: dirty_bytes_handler).
#[test]
fn a_limit_in_bytes_is_undone_by_the_ratio_that_it_cleared() {
    let machine = Machine::new(2, &[("vm.dirty_background_bytes", "0"), ("vm.dirty_background_ratio", "10")]);
    let fix = at(Fix::knob("early", knob!("vm.dirty_background_bytes"), "16MiB"), &machine);
    assert_eq!(fix.commands, ["sysctl -w vm.dirty_background_bytes=16777216"]);
    assert_eq!(fix.undo, ["sysctl -w vm.dirty_background_ratio=10"]);
}

#[test]
fn a_scheduler_that_the_queue_lacks_is_not_proposed() {
    let machine = Machine::new(2, &[("queue.scheduler", "none")]);
    assert!(Fix::knob("turns", knob!("queue.scheduler"), "bfq").at(&machine.place()).is_none());
    let fix = at(Fix::knob("reads first", knob!("queue.scheduler"), "mq-deadline"), &machine);
    assert_eq!(fix.commands, ["echo mq-deadline > /sys/block/vda/queue/scheduler"]);
    assert_eq!(fix.undo, ["echo none > /sys/block/vda/queue/scheduler"]);
}

#[test]
fn a_priority_names_the_threads_that_waited() {
    let fix = at(Fix::knob("first", knob!("placement.fifo_priority"), "10"), &Machine::new(2, &[]));
    assert_eq!(fix.commands, ["chrt -f -p 10 41", "chrt -f -p 10 42"]);
    assert_eq!(fix.undo, ["chrt -o -p 0 41", "chrt -o -p 0 42"]);
}

#[test]
fn mount_options_apply_to_the_mount_point() {
    let fix = at(Fix::knob("lazy", knob!("mount.options"), "lazytime,noatime"), &Machine::new(2, &[]));
    assert_eq!(fix.commands, ["mount -o remount,lazytime,noatime '/srv/pg data'"]);
    assert_eq!(fix.undo, ["mount -o remount,nolazytime,relatime '/srv/pg data'"]);
}

#[test]
fn a_units_limit_goes_through_systemd_in_version_2_and_through_the_file_in_version_1() {
    let fix = |version| at(Fix::knob("raise", knob!("cgroup.memory_limit"), "768MiB"), &Machine::new(version, &[]));
    assert_eq!(fix(2).commands, ["systemctl set-property --runtime postgresql.service MemoryMax=805306368"]);
    assert_eq!(fix(2).undo, ["systemctl set-property --runtime postgresql.service MemoryMax="]);
    let file = "/sys/fs/cgroup/memory/system.slice/postgresql.service/memory.limit_in_bytes";
    assert_eq!(fix(1).commands, [format!("cat {file}"), format!("echo 805306368 > {file}")]);
}

fn limited(resource: Resource, cgroup: Option<&str>, version: u32) -> Fix {
    let limit = Limit { resource, pids: vec![812, 813], cgroup: cgroup.map(str::to_owned) };
    at(Fix::limit("limit dd", limit), &Machine::new(version, &[]))
}

#[test]
fn an_aggressor_is_limited_in_its_cgroup() {
    let fix = limited(Resource::WriteRate(4 << 20), Some("/jobs/backup"), 2);
    assert_eq!(fix.commands, ["echo \"$(cat /sys/block/vda/dev) wbps=4194304\" > /sys/fs/cgroup/jobs/backup/io.max"]);
    assert_eq!(fix.undo, ["echo \"$(cat /sys/block/vda/dev) wbps=max\" > /sys/fs/cgroup/jobs/backup/io.max"]);
    let memory = limited(Resource::Memory, Some("/jobs/backup"), 1);
    let directory = "/sys/fs/cgroup/memory/jobs/backup";
    let half = format!("echo $(($(cat {directory}/memory.usage_in_bytes) / 2)) > {directory}/memory.limit_in_bytes");
    assert_eq!(memory.commands, [half]);
}

/// In version 1 each controller has its own hierarchy, and the recorded path may be that of another one.
#[test]
fn an_aggressor_without_a_separate_cgroup_is_moved_to_a_new_one() {
    for (fix, limit) in [
        (
            limited(Resource::WriteRate(4 << 20), Some("/jobs"), 1),
            "blkio/flatwater-limited/blkio.throttle.write_bps_device",
        ),
        (limited(Resource::Cpu, None, 2), "flatwater-limited/cpu.weight"),
    ] {
        assert!(fix.commands.iter().any(|line| line.contains("for pid in 812 813;")), "{:?}", fix.commands);
        assert!(fix.commands.last().is_some_and(|line| line.ends_with(limit)), "{:?}", fix.commands);
        assert!(fix.undo.last().is_some_and(|line| line.starts_with("rmdir ")), "{:?}", fix.undo);
    }
}

#[test]
fn a_path_that_a_command_cannot_contain_gives_no_command() {
    for path in ["/../../etc", "/jobs/a\nreboot", "/"] {
        let limit = Limit { resource: Resource::WriteRate(4 << 20), pids: Vec::new(), cgroup: Some(path.to_owned()) };
        assert_eq!(at(Fix::limit("limit dd", limit), &Machine::new(2, &[])).commands, Vec::<String>::new(), "{path}");
    }
    let quoted = limited(Resource::WriteRate(4 << 20), Some("/jobs/$(reboot)"), 2);
    assert!(quoted.commands[0].ends_with("'/sys/fs/cgroup/jobs/$(reboot)/io.max'"), "{:?}", quoted.commands);
}

#[test]
fn memory_of_an_aggressor_in_the_targets_cgroup_is_separated_and_not_limited() {
    let fix = limited(Resource::Memory, None, 2);
    assert!(fix.commands.iter().any(|line| line.contains("for pid in 812 813;")), "{:?}", fix.commands);
    assert!(!fix.commands.iter().any(|line| line.contains("memory.high")), "{:?}", fix.commands);
}
