//! Whether the recorded machine has what an action changes: its kernel, its cgroup version, its file system, its disk.

use flatwater_recording::knob::{self, Key, KnobPlace};
use flatwater_recording::printable::is_hostile;
use flatwater_recording::{CgroupFile, Controller, ControllerName};

use super::action::{Action, Party, Resource};
use super::place::Place;
use super::step::{Amount, Figure, Group, MOUNT_OPTIONS, MountOption, Step, SysFile};
use crate::facts::Facts;

/// (knob, first kernel with the knob, remedy on earlier kernels)
const CAME: [(Key, [u32; 3], &str); 7] = [
    (knob!("vm.watermark_scale_factor"), [4, 6, 0], "raise vm.min_free_kbytes, from which all watermarks follow"),
    (
        knob!("vm.compaction_proactiveness"),
        [5, 9, 0],
        "write 1 to /proc/sys/vm/compact_memory now and then (since 2.6.35)",
    ),
    (knob!("vm.dirty_bytes"), [2, 6, 29], "lower vm.dirty_ratio, which is a share of memory and no less than 5 %"),
    (knob!("vm.dirty_background_bytes"), [2, 6, 29], "lower vm.dirty_background_ratio, a share of memory"),
    (knob!("queue.wbt_lat_usec"), [4, 10, 0], "a smaller queue.nr_requests, or the deadline scheduler"),
    (knob!("vm.zone_reclaim_mode"), [2, 6, 16], "boot with numa=off, or interleave the memory of large programs"),
    (knob!("vm.vfs_cache_pressure"), [2, 6, 8], "nothing steers that cache before"),
];

/// How the recorded machine performs an action.
pub(super) enum How {
    /// By these changes; empty if no command performs the action.
    Steps(Vec<Step>),
    /// By the fix's text with this suffix: the machine has no such setting.
    Advice(String),
}

/// How the machine performs the action; `None` if it cannot.
pub(super) fn how(action: &Action, place: &Place<'_>) -> Option<How> {
    Some(How::Steps(match action {
        Action::Advice | Action::Change { .. } => Vec::new(),
        Action::Set { key, value } => return set(*key, value, place),
        Action::Limit { party, resource } => limit(party, resource, place).unwrap_or_default(),
        Action::OwnMemory { party } => {
            let moved = place.controller(ControllerName::Memory).and_then(|memory| own_group(memory, party));
            moved.map(|(step, _)| step).into_iter().collect()
        }
    }))
}

fn set(key: Key, value: &str, place: &Place<'_>) -> Option<How> {
    if let Some(remedy) = instead(key, place.facts) {
        return Some(How::Advice(format!(": {remedy}")));
    }
    if key == knob!("queue.scheduler") && !place.offers(value) {
        return None;
    }
    if key == knob!("placement.fifo_priority") && !place.is_scenario() {
        return Some(priority(value, place.threads()));
    }
    Some(How::Steps(step(key, value, place).into_iter().collect()))
}

/// Only a scenario has the key: on another machine the fix is a command for each thread.
fn priority(value: &str, threads: &[u32]) -> How {
    match threads {
        [] => How::Advice(format!(" (chrt --fifo --pid {value} PID)")),
        _ => How::Steps(vec![Step::RealTime { priority: value.to_owned(), threads: threads.to_vec() }]),
    }
}

/// The remedy in place of a knob that the recorded kernel lacks; `None` if it has the knob or is unknown.
fn instead(key: Key, facts: &Facts<'_>) -> Option<String> {
    let (_, [major, minor, patch], instead) = CAME.iter().find(|(known, ..)| *known == key)?;
    if facts.kernel_from([*major, *minor, *patch]) != Some(false) {
        return None;
    }
    let came = if *major < 3 { format!("{major}.{minor}.{patch}") } else { format!("{major}.{minor}") };
    let kernel = facts.recording.header.machine.kernel.as_deref().unwrap_or_default();
    Some(format!("{instead} ({} came with {came}, this is {kernel})", key.name()))
}

/// The change that sets a knob; `None` if the knob is not set on the machine (a run's own cgroup or mount, a code
/// change).
fn step(key: Key, value: &str, place: &Place<'_>) -> Option<Step> {
    let attribute = key.name().split_once('.').map_or(key.name(), |(_, name)| name);
    let file = |file: SysFile| {
        let old = place.setup.get(key.name()).map(str::to_owned);
        Some(Step::File { file, value: value.to_owned(), old })
    };
    match knob::find(key.name()).ok()?.place {
        KnobPlace::Sysctl => Some(sysctl(key, value, place)),
        KnobPlace::HugePages => file(SysFile::HugePages(attribute)),
        KnobPlace::LruGen => file(SysFile::LruGen(attribute)),
        KnobPlace::Queue => file(SysFile::Queue { disk: place.disk.filter(is_device)?.to_owned(), attribute }),
        KnobPlace::Cgroup if key == knob!("cgroup.memory_limit") && !place.is_scenario() => memory_limit(value, place),
        KnobPlace::Mount if key == knob!("mount.options") && !place.is_scenario() => remount(value, place),
        _ => None,
    }
}

/// Writing `vm.dirty_bytes` clears `vm.dirty_ratio`, and likewise for the background limit, so that the undo writes
/// the one that was in force.
fn sysctl(key: Key, value: &str, place: &Place<'_>) -> Step {
    let in_force = |key: Key| Some((key, place.setup.get(key.name())?.to_owned()));
    let ratio = key.name().strip_suffix("_bytes").and_then(|stem| Key::find(&format!("{stem}_ratio")).ok());
    let cleared = ratio.and_then(in_force).filter(|(_, old)| old != "0");
    let own = in_force(key).filter(|(_, old)| old != "0" || !key.name().ends_with("_bytes"));
    Step::Sysctl { key, value: value.to_owned(), restore: own.or(cleared) }
}

fn memory_limit(value: &str, place: &Place<'_>) -> Option<Step> {
    let group = group(place.controller(ControllerName::Memory)?, place.own_cgroup?)?;
    let value = Amount::Figure(Figure::Number(value.parse().ok()?));
    in_group(group, CgroupFile::MemoryMax, value)
}

/// Through the unit if systemd owns the group, else by the file; `None` if the group's version lacks the file.
fn in_group(group: Group, file: CgroupFile, value: Amount) -> Option<Step> {
    let name = file.in_version(group.controller.version)?;
    let unit = unit(&group.path).filter(|_| group.controller.version == 2 && !group.is_new).map(str::to_owned);
    Some(match (unit, value) {
        (Some(unit), Amount::Figure(value)) => Step::Unit { unit, group, file, value },
        (_, value) => Step::Cgroup { group, file: name, value },
    })
}

/// `None` if an option has no known opposite, which the undo needs.
fn remount(options: &str, place: &Place<'_>) -> Option<Step> {
    let storage = place.storage().filter(|storage| !storage.mount_point.contains(is_hostile))?;
    let option = |name: &str| MOUNT_OPTIONS.iter().find(|option| option.name == name);
    let options: Option<Vec<&'static MountOption>> = options.split(',').map(option).collect();
    let mut options = options?;
    options.retain(|option| place.facts.kernel_from(option.since) != Some(false));
    (!options.is_empty()).then(|| Step::Remount { mount_point: storage.mount_point.clone(), options })
}

/// `None` if the machine has no such controller, or if a name in the recording cannot be part of a command.
fn limit(party: &Party, resource: &Resource, place: &Place<'_>) -> Option<Vec<Step>> {
    let name = match resource {
        Resource::WriteRate { .. } => ControllerName::Io,
        Resource::Memory => ControllerName::Memory,
        Resource::Cpu => ControllerName::Cpu,
    };
    let controller = place.controller(name)?;
    let amount = match resource {
        Resource::WriteRate { bytes_per_s, .. } => {
            let disk = place.disk.filter(is_device)?.to_owned();
            Amount::Figure(Figure::Rate { disk, bytes_per_s: *bytes_per_s })
        }
        Resource::Memory => Amount::HalfOfMemory,
        Resource::Cpu if controller.version == 2 => Amount::Figure(Figure::Number(10)),
        Resource::Cpu => Amount::Figure(Figure::Number(100)),
    };
    let file = match (resource, controller.version) {
        (Resource::WriteRate { .. }, _) => CgroupFile::IoMax,
        (Resource::Memory, 2) => CgroupFile::MemoryHigh,
        (Resource::Memory, _) => CgroupFile::MemoryMax,
        (Resource::Cpu, _) => CgroupFile::CpuWeight,
    };
    // In version 1 a recorded path may be that of another hierarchy.
    let is_certain = controller.version == 2 || name == ControllerName::Memory;
    let own = party.own_cgroup().filter(|_| is_certain).and_then(|path| group(controller, path));
    match own {
        Some(group) => Some(vec![in_group(group, file, amount)?]),
        // Pages stay charged to the old cgroup: a new one uses nothing yet.
        None if *resource == Resource::Memory => None,
        None => {
            let (moved, group) = own_group(controller, party)?;
            Some(vec![moved, in_group(group, file, amount)?])
        }
    }
}

/// A new cgroup, and the step that moves the party there.
fn own_group(controller: &Controller, party: &Party) -> Option<(Step, Group)> {
    let first = party.pids.first()?;
    let group = Group { is_new: true, ..group(controller, &format!("/flatwater-limited-{first}"))? };
    Some((Step::Move { pids: party.pids.clone(), to: group.clone() }, group))
}

/// The group, if a command can contain its path. A cgroup outside the reader's namespace begins with `/..`
/// (cgroup_namespaces(7)).
fn group(controller: &Controller, path: &str) -> Option<Group> {
    let is_usable = path != "/" && !path.contains(is_hostile) && path.split('/').all(|part| part != "..");
    let mounted = !controller.mount_point.is_empty() && !controller.mount_point.contains(is_hostile);
    (is_usable && mounted).then(|| Group { controller: controller.clone(), path: path.to_owned(), is_new: false })
}

/// The unit of the system's systemd that owns a cgroup. Below a service or a scope others create groups: the owner of a
/// delegated one can give a group the name of any unit, or of an option.
fn unit(path: &str) -> Option<&str> {
    let (above, name) = path.rsplit_once('/')?;
    let is_slice = |part: &str| part.ends_with(".slice");
    let is_unit = is_slice(name) || name.ends_with(".service") || name.ends_with(".scope");
    let is_systems = above.split('/').skip(1).all(is_slice);
    (is_unit && is_systems && !name.starts_with('-')).then_some(name)
}

/// Whether a command can contain the name of a block device without quotes.
fn is_device(name: &&str) -> bool {
    !name.is_empty() && !name.starts_with('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-!".contains(c))
}

#[cfg(test)]
mod tests {
    use crate::facts::Facts;
    use crate::fix::{Fix, Place};
    use crate::testing::RecordingBuilder;
    use flatwater_recording::Recording;

    fn at(fix: Fix, recording: &Recording) -> Fix {
        let facts = Facts::of(recording);
        fix.at(&Place::of(&facts)).expect("the machine can do it")
    }

    #[test]
    fn only_groups_that_systemd_made_name_a_unit() {
        for unit in ["/system.slice/db.service", "/user.slice/user-7.slice/session-1.scope", "/machine.slice"] {
            assert_eq!(super::unit(unit), unit.rsplit('/').next(), "{unit}");
        }
        let theirs = "/user.slice/user-7.slice/user@7.service";
        for path in
            [&format!("{theirs}/db.service"), &format!("{theirs}/app.slice/db.service"), "/x.slice/--host=x.service"]
        {
            assert_eq!(super::unit(path), None, "{path}");
        }
    }

    #[test]
    fn a_knob_that_the_kernel_lacks_is_replaced() {
        let fix = || Fix::knob("start kswapd earlier", knob!("vm.watermark_scale_factor"), "200");
        let old = RecordingBuilder::new().kernel("2.6.32-431.el6.x86_64").done();
        let reported = at(fix(), &old);
        assert_eq!(reported.setting(), None);
        assert!(
            reported.text.contains("min_free_kbytes") && reported.text.contains("came with 4.6"),
            "{}",
            reported.text
        );
        let new = at(fix(), &RecordingBuilder::new().done());
        assert_eq!((&new.text, &new.action), (&fix().text, &fix().action));
    }

    #[test]
    fn an_unknown_kernel_is_not_treated_as_old() {
        let unknown = RecordingBuilder::new().edit(|recording| recording.header.machine.kernel = None).done();
        let fix = Fix::knob("write back early", knob!("vm.dirty_background_bytes"), "16MiB");
        assert_eq!(at(fix.clone(), &unknown).action, fix.action);
    }
}
