//! Commands of fixes on machines with either cgroup version.

use super::action::{Action, Party, Resource};
use super::place::Place;
use super::{Commands, Fix};
use crate::facts::Facts;
use crate::testing::RecordingBuilder;
use flatwater_recording::{Cause, Controller, ControllerName, OpKind, Recording, Storage};

fn controllers(version: u32) -> Vec<Controller> {
    let mount = |name: ControllerName| match version {
        1 => format!("/sys/fs/cgroup/{}", name.in_version(1)),
        _ => "/sys/fs/cgroup".to_owned(),
    };
    ControllerName::ALL.into_iter().map(|name| Controller::new(name, version, mount(name))).collect()
}

/// A recording of threads 41 and 42 on a machine with this cgroup version and these settings.
fn machine(version: u32, pairs: &[(&str, &str)]) -> Recording {
    let made = RecordingBuilder::new().slow(OpKind::Write, &[(Cause::RunQueue, 20.0)]);
    let made = made.slow(OpKind::Write, &[(Cause::RunQueue, 10.0)]);
    let made = pairs.iter().fold(made, |made, (key, value)| made.knob(key, value));
    made.edit(|recording| {
        recording.calls[0].tid = 41;
        recording.calls[1].tid = 42;
        let mut storage = Storage::new("/srv/pg data", "ext4");
        storage.disk = Some("vda".to_owned());
        storage.schedulers = vec!["none".to_owned(), "mq-deadline".to_owned()];
        recording.header.target.storage = Some(storage);
        recording.header.machine.controllers = controllers(version);
    })
    .done()
}

fn try_at(fix: Fix, recording: &Recording) -> Option<Fix> {
    let facts = Facts::of(recording);
    let mut place = Place::of(&facts);
    place.own_cgroup = Some("/system.slice/postgresql.service");
    fix.at(&place)
}

fn at(fix: Fix, recording: &Recording) -> Commands {
    try_at(fix, recording).expect("the machine can do it").commands()
}

#[test]
fn a_sysctl_is_undone_by_the_value_in_force() {
    let machine = machine(2, &[("vm.swappiness", "60")]);
    let fix = at(Fix::knob("less", knob!("vm.swappiness"), "1"), &machine);
    assert_eq!(
        (fix.apply, fix.undo),
        (vec!["sysctl -w vm.swappiness=1".into()], vec!["sysctl -w vm.swappiness=60".into()])
    );
}

#[test]
fn an_unknown_value_is_read_before_it_is_changed() {
    let fix = at(Fix::knob("less", knob!("vm.swappiness"), "1"), &machine(2, &[]));
    assert_eq!(fix.apply, ["sysctl -n vm.swappiness", "sysctl -w vm.swappiness=1"]);
    assert_eq!(fix.undo, ["sysctl -w vm.swappiness=OLD"]);
}

/// Writing the limit in bytes clears the one in percent (mm/page-writeback.c: dirty_bytes_handler).
#[test]
fn a_limit_in_bytes_is_undone_by_the_ratio_that_it_cleared() {
    let machine = machine(2, &[("vm.dirty_background_bytes", "0"), ("vm.dirty_background_ratio", "10")]);
    let fix = at(Fix::knob("early", knob!("vm.dirty_background_bytes"), "16MiB"), &machine);
    assert_eq!(fix.apply, ["sysctl -w vm.dirty_background_bytes=16777216"]);
    assert_eq!(fix.undo, ["sysctl -w vm.dirty_background_ratio=10"]);
}

#[test]
fn a_scheduler_that_the_queue_lacks_is_not_proposed() {
    let machine = machine(2, &[("queue.scheduler", "none")]);
    assert!(try_at(Fix::knob("turns", knob!("queue.scheduler"), "bfq"), &machine).is_none());
    let fix = at(Fix::knob("reads first", knob!("queue.scheduler"), "mq-deadline"), &machine);
    assert_eq!(fix.apply, ["echo mq-deadline > /sys/block/vda/queue/scheduler"]);
    assert_eq!(fix.undo, ["echo none > /sys/block/vda/queue/scheduler"]);
}

#[test]
fn a_policy_is_read_before_it_is_changed() {
    let fix = at(Fix::knob("first", knob!("placement.fifo_priority"), "10"), &machine(2, &[]));
    let [read, set @ ..] = fix.apply.as_slice() else { panic!("{fix:?}") };
    assert!(read.starts_with("for tid in 41 42; do echo OLD_$tid: $(LC_ALL=C chrt -p $tid | "), "{read}");
    assert_eq!(set, ["chrt -f -p 10 41", "chrt -f -p 10 42"]);
    assert_eq!(fix.undo, ["chrt -p OLD_41 41", "chrt -p OLD_42 42"]);
}

/// T6: the key of a scenario was printed, which no command takes.
#[test]
fn without_known_threads_the_priority_is_a_command_for_any_thread() {
    let mut without_calls = machine(2, &[]);
    without_calls.calls.clear();
    let fix = try_at(Fix::knob("first", knob!("placement.fifo_priority"), "10"), &without_calls).expect("advice");
    assert_eq!((&*fix.text, fix.setting()), ("first (chrt --fifo --pid 10 PID)", None));
}

#[test]
fn mount_options_are_read_before_they_are_changed() {
    let fix = at(Fix::knob("lazy", knob!("mount.options"), "lazytime,noatime"), &machine(2, &[]));
    let [read, set] = fix.apply.as_slice() else { panic!("{fix:?}") };
    assert!(read.contains("findmnt -no OPTIONS -M '/srv/pg data'") && read.contains("|| echo strictatime"), "{read}");
    assert_eq!(set, "mount -o remount,lazytime,noatime '/srv/pg data'");
    assert_eq!(fix.undo, ["mount -o remount,atime,OLD '/srv/pg data'"]);
}

#[test]
fn an_option_that_the_kernel_lacks_is_left_out() {
    let mut old = machine(1, &[]);
    old.header.machine.kernel = Some("3.10.0-1160.el7".to_owned());
    let fix = at(Fix::knob("lazy", knob!("mount.options"), "lazytime,noatime"), &old);
    assert_eq!(fix.apply[1], "mount -o remount,noatime '/srv/pg data'");
}

#[test]
fn a_units_limit_goes_through_systemd_in_version_2_and_through_the_file_in_version_1() {
    let fix = |version| at(Fix::knob("raise", knob!("cgroup.memory_limit"), "768MiB"), &machine(version, &[]));
    let set = "systemctl set-property --runtime postgresql.service MemoryMax=";
    let read = "systemctl show -p MemoryMax --value postgresql.service";
    assert_eq!(fix(2).apply, [read.to_owned(), format!("{set}805306368")]);
    assert_eq!(fix(2).undo, [format!("{set}OLD")]);
    let file = "/sys/fs/cgroup/memory/system.slice/postgresql.service/memory.limit_in_bytes";
    assert_eq!(fix(1).apply, [format!("cat {file}"), format!("echo 805306368 > {file}")]);
}

fn dd(pids: &[u32], cgroup: Option<&str>) -> Party {
    Party {
        program: "dd".to_owned(),
        pids: pids.to_vec(),
        cgroup: cgroup.map(str::to_owned),
        shares_cgroup: cgroup == Some("/shared"),
    }
}

fn rate() -> Resource {
    Resource::WriteRate { disk: Some("vda".to_owned()), bytes_per_s: 4 << 20 }
}

fn limited(resource: Resource, cgroup: Option<&str>, version: u32) -> Commands {
    at(Fix::against(Action::Limit { party: dd(&[812, 813], cgroup), resource }), &machine(version, &[]))
}

/// The group may already have a limit or a weight, which the undo must restore.
#[test]
fn a_limit_is_read_before_it_is_changed() {
    let fix = limited(rate(), Some("/jobs/backup"), 2);
    let file = "/sys/fs/cgroup/jobs/backup/io.max";
    let number = "$(cat /sys/block/vda/dev)";
    let read = format!("sed -n \"s/^{number} .*wbps=\\([^ ]*\\).*/\\1/p\" {file} | grep . || echo max");
    assert_eq!(fix.apply, [read, format!("echo \"{number} wbps=4194304\" > {file}")]);
    assert_eq!(fix.undo, [format!("echo \"{number} wbps=OLD\" > {file}")]);

    let fix = limited(Resource::Cpu, Some("/jobs/backup"), 2);
    let file = "/sys/fs/cgroup/jobs/backup/cpu.weight";
    assert_eq!(fix.apply, [format!("cat {file}"), format!("echo 10 > {file}")]);
    assert_eq!(fix.undo, [format!("echo OLD > {file}")]);

    let fix = limited(Resource::Memory, Some("/jobs/backup"), 1);
    let directory = "/sys/fs/cgroup/memory/jobs/backup";
    let file = format!("{directory}/memory.limit_in_bytes");
    let half = format!("echo $(($(cat {directory}/memory.usage_in_bytes) / 2)) > {file}");
    assert_eq!(fix.apply, [format!("cat {file}"), half]);
    assert_eq!(fix.undo, [format!("echo OLD > {file}")]);
}

#[test]
fn the_limit_of_a_unit_is_restored_as_well() {
    let fix = limited(rate(), Some("/system.slice/backup.service"), 2);
    assert!(fix.apply[0].ends_with("/system.slice/backup.service/io.max | grep . || echo infinity"), "{fix:?}");
    let set = "systemctl set-property --runtime backup.service 'IOWriteBandwidthMax=/dev/vda ";
    assert_eq!((&fix.apply[1], &fix.undo[0]), (&format!("{set}4194304'"), &format!("{set}OLD'")));
}

/// In version 1 each controller has its own hierarchy, and the recorded path may be that of another one.
#[test]
fn an_aggressor_without_a_separate_cgroup_is_moved_to_a_new_one_and_back() {
    for (fix, directory, limit) in [
        (limited(rate(), Some("/jobs"), 1), "/sys/fs/cgroup/blkio", "blkio.throttle.write_bps_device"),
        (limited(Resource::Cpu, Some("/shared"), 2), "/sys/fs/cgroup", "cpu.weight"),
        (limited(Resource::Cpu, None, 2), "/sys/fs/cgroup", "cpu.weight"),
    ] {
        let new = format!("{directory}/flatwater-limited-812");
        assert!(fix.apply.iter().any(|line| line.contains("for pid in 812 813; do sed -n ")), "{fix:?}");
        assert!(fix.apply.last().is_some_and(|line| line.ends_with(&format!("{new}/{limit}"))), "{fix:?}");
        let back = ["812", "813"].map(|pid| format!("echo {pid} > {directory}OLD_{pid}/cgroup.procs"));
        assert_eq!(fix.undo[..2], back, "each returns to its own group");
        assert_eq!(fix.undo.last(), Some(&format!("rmdir {new}")));
        assert!(!fix.undo.iter().any(|line| line.contains(limit)), "the group is removed with its limit: {fix:?}");
    }
}

#[test]
fn a_name_that_a_command_cannot_contain_gives_no_command() {
    for path in ["/../../etc", "/jobs/a\nreboot", "/"] {
        let fix = Fix::against(Action::Limit { party: dd(&[], Some(path)), resource: rate() });
        assert_eq!(at(fix, &machine(2, &[])).apply, Vec::<String>::new(), "{path}");
    }
    let quoted = limited(rate(), Some("/jobs/$(reboot)"), 2);
    assert!(quoted.apply[1].ends_with("'/sys/fs/cgroup/jobs/$(reboot)/io.max'"), "{quoted:?}");
    let mut hostile = machine(2, &[]);
    hostile.header.target.storage.as_mut().expect("a file system").disk = Some("vda/dev); reboot; (".to_owned());
    let fix = Fix::against(Action::Limit { party: dd(&[812], Some("/jobs")), resource: rate() });
    assert_eq!(at(fix, &hostile), Commands::default());
}

#[test]
fn memory_of_an_aggressor_in_the_targets_cgroup_is_separated_and_not_limited() {
    let fix = at(Fix::against(Action::OwnMemory { party: dd(&[812, 813], Some("/shared")) }), &machine(2, &[]));
    assert!(fix.apply.iter().any(|line| line.contains("for pid in 812 813;")), "{fix:?}");
    assert!(!fix.apply.iter().any(|line| line.contains("memory.high")), "{fix:?}");
}
