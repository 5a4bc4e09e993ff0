//! The commands of steps. They are for a root shell; a command that reads a value comes first, and the undo writes that
//! value, printed as `OLD` (`OLD_7` for process or thread 7). What users choose is printed with quotes.

use flatwater_recording::printable::shell_quoted as quoted;
use flatwater_recording::{CgroupFile, ControllerName};

use super::step::{Amount, Figure, Group, MountOption, Step, SysFile};

/// Commands for a root shell of the recorded machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commands {
    pub apply: Vec<String>,
    /// Restores the state before `apply`.
    pub undo: Vec<String>,
}

/// The commands of these steps; they are undone in the reverse order.
pub(super) fn of(steps: &[Step]) -> Commands {
    let each: Vec<Commands> = steps.iter().map(of_step).collect();
    let undo = each.iter().rev().flat_map(|one| one.undo.clone()).collect();
    Commands { apply: each.into_iter().flat_map(|one| one.apply).collect(), undo }
}

fn of_step(step: &Step) -> Commands {
    match step {
        Step::Sysctl { key, value, restore } => {
            let write = |key: &str, value: &str| format!("sysctl -w {}", quoted(&format!("{key}={value}")));
            let apply = write(key.name(), value);
            match restore {
                Some((key, old)) => known(apply, write(key.name(), old)),
                None => read_first(format!("sysctl -n {}", key.name()), apply, write(key.name(), "OLD")),
            }
        }
        Step::File { file, value, old } => of_file(file, value, old.as_deref()),
        Step::RealTime { priority, threads } => real_time(priority, threads),
        Step::Remount { mount_point, options } => remount(&quoted(mount_point), options),
        Step::Cgroup { group, file, value } => of_cgroup(group, file, value),
        Step::Unit { unit, group, file, value } => of_unit(&quoted(unit), group, *file, value),
        Step::Move { pids, to } => moved(pids, to),
    }
}

fn known(apply: String, undo: String) -> Commands {
    Commands { apply: vec![apply], undo: vec![undo] }
}

fn read_first(read: String, apply: String, undo: String) -> Commands {
    Commands { apply: vec![read, apply], undo: vec![undo] }
}

fn of_file(file: &SysFile, value: &str, old: Option<&str>) -> Commands {
    let path = file.path();
    let path = quoted(&path);
    let write = |value: &str| format!("echo {} > {path}", quoted(value));
    match old {
        Some(old) => known(write(value), write(old)),
        // A file with a choice marks the present one: `none [mq-deadline]`.
        None => read_first(format!("sed 's/.*\\[\\(.*\\)\\].*/\\1/' {path}"), write(value), write("OLD")),
    }
}

/// Prints a thread's policy and priority as arguments of chrt.
const POLICY: &str = "sed -n 's/.*SCHED_\\([A-Z]*\\).*/--\\L\\1/p; s/.*priority: //p'";

fn real_time(priority: &str, threads: &[u32]) -> Commands {
    let list: String = threads.iter().map(|tid| format!(" {tid}")).collect();
    let read = format!("for tid in{list}; do echo OLD_$tid: $(LC_ALL=C chrt -p $tid | {POLICY}); done");
    let set = threads.iter().map(|tid| format!("chrt -f -p {priority} {tid}"));
    Commands {
        apply: std::iter::once(read).chain(set).collect(),
        undo: threads.iter().map(|tid| format!("chrt -p OLD_{tid} {tid}")).collect(),
    }
}

fn remount(point: &str, options: &[&MountOption]) -> Commands {
    let present = |option: &&MountOption| {
        let MountOption { present, absent, .. } = option;
        format!("$(findmnt -no OPTIONS -M {point} | tr , '\\n' | grep -xE '{present}' || echo {absent})")
    };
    let names: Vec<&str> = options.iter().map(|option| option.name).collect();
    let present: Vec<String> = options.iter().map(present).collect();
    let clears: String = options.iter().map(|option| option.clears).collect();
    read_first(
        format!("echo {}", present.join(",")),
        format!("mount -o remount,{} {point}", names.join(",")),
        format!("mount -o remount,{clears}OLD {point}"),
    )
}

/// The kernel's number of a disk, within double quotes.
fn number(disk: &str) -> String {
    format!("$(cat /sys/block/{disk}/dev)")
}

fn of_cgroup(group: &Group, file: &str, value: &Amount) -> Commands {
    let version = group.controller.version;
    let path = format!("{}/{file}", group.directory());
    let path = quoted(&path);
    let (read, new, old) = match value {
        Amount::Figure(Figure::Number(number)) => (format!("cat {path}"), number.to_string(), "OLD".to_owned()),
        Amount::HalfOfMemory => {
            let usage = if version == 2 { "memory.current" } else { "memory.usage_in_bytes" };
            let usage = format!("{}/{usage}", group.directory());
            (format!("cat {path}"), format!("$(($(cat {}) / 2))", quoted(&usage)), "OLD".to_owned())
        }
        Amount::Figure(Figure::Rate { disk, bytes_per_s }) => {
            let rate = |value: &str| match version {
                2 => format!("\"{} wbps={value}\"", number(disk)),
                _ => format!("\"{} {value}\"", number(disk)),
            };
            let read = match version {
                2 => rate_in_force(disk, path.as_ref(), "[^ ]*", "max"),
                _ => format!("sed -n \"s/^{} //p\" {path} | grep . || echo 0", number(disk)),
            };
            (read, rate(&bytes_per_s.to_string()), rate("OLD"))
        }
    };
    let write = |value: &str| format!("echo {value} > {path}");
    match group.is_new {
        true => Commands { apply: vec![write(&new)], undo: Vec::new() },
        false => read_first(read, write(&new), write(&old)),
    }
}

/// Prints the limit on writes to a disk in a file of version 2: a word that matches `value`, or else `unlimited`.
fn rate_in_force(disk: &str, path: &str, value: &str, unlimited: &str) -> String {
    let disk = number(disk);
    format!("sed -n \"s/^{disk} .*wbps=\\({value}\\).*/\\1/p\" {path} | grep . || echo {unlimited}")
}

fn of_unit(unit: &str, group: &Group, file: CgroupFile, value: &Figure) -> Commands {
    let property = file.unit_property();
    let path = format!("{}/{}", group.directory(), file.name());
    let path = quoted(&path);
    let (read, value, old) = match value {
        // `show` prints a limit as set-property takes it, and no weight that was never set.
        Figure::Number(number) if file == CgroupFile::CpuWeight => {
            (format!("cat {path}"), number.to_string(), "OLD".to_owned())
        }
        Figure::Number(number) => {
            (format!("systemctl show -p {property} --value {unit}"), number.to_string(), "OLD".to_owned())
        }
        Figure::Rate { disk, bytes_per_s } => {
            // The file prints `max`, which the property does not accept.
            let read = rate_in_force(disk, path.as_ref(), "[0-9]*", "infinity");
            (read, format!("/dev/{disk} {bytes_per_s}"), format!("/dev/{disk} OLD"))
        }
    };
    let set =
        |value: &str| format!("systemctl set-property --runtime {unit} {}", quoted(&format!("{property}={value}")));
    read_first(read, set(&value), set(&old))
}

/// Moves processes into a new cgroup. The undo returns each to the cgroup that it came from; processes that they started
/// since then go to the first one's.
fn moved(pids: &[u32], to: &Group) -> Commands {
    let mount = to.controller.mount_point.trim_end_matches('/');
    let (version, name) = (to.controller.version, to.controller.name);
    let directory = to.directory();
    let new = quoted(&directory);
    let mut commands = Commands { apply: vec![format!("mkdir {new}")], undo: Vec::new() };
    if version == 2 {
        let enable = format!("{mount}/cgroup.subtree_control");
        commands.apply.push(format!("echo +{} > {}", name.in_version(2), quoted(&enable)));
    }
    let list: String = pids.iter().map(|pid| format!(" {pid}")).collect();
    // The path as a word of the shell: any user can give a cgroup of their own a name that is a command.
    let read = format!(
        "sed -n \"s/'/'\\\\\\\\''/g; s/^{}\\(.*\\)/OLD_$pid: '\\1'/p\" /proc/$pid/cgroup",
        field(name, version)
    );
    commands.apply.push(format!("for pid in{list}; do {read}; done"));
    commands.apply.push(format!("for pid in{list}; do echo $pid > {new}/cgroup.procs; done"));
    let back = quoted(mount);
    let each = pids.iter().map(|pid| format!("echo {pid} > {back}OLD_{pid}/cgroup.procs"));
    commands.undo.extend(each);
    let started = pids.first().map(|first| {
        format!("for pid in $(cat {new}/cgroup.procs); do echo $pid > {back}OLD_{first}/cgroup.procs; done")
    });
    commands.undo.extend(started);
    commands.undo.push(format!("rmdir {new}"));
    commands
}

/// What precedes a process's path in /proc/PID/cgroup, as a regular expression.
pub(super) fn field(name: ControllerName, version: u32) -> String {
    match version {
        2 => "0::".to_owned(),
        _ => format!("[^:]*:[^:]*\\b{}\\b[^:]*:", name.in_version(1)),
    }
}
