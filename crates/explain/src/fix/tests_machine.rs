//! Performs the commands of fixes on this machine, and then the undo: the state must be as before. They need root, loop
//! devices and cgroups.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use flatwater_recording::{Controller, ControllerName, Recording, Storage};
use needs::{Need, skip};

use super::action::{Action, Party, Resource};
use super::place::Place;
use super::{Commands, Fix};
use crate::facts::Facts;
use crate::testing::RecordingBuilder;

fn shell(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("sh starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Performs the commands, and returns those of the undo with the values that were printed.
fn perform(commands: &Commands) -> Vec<String> {
    let printed: Vec<String> = commands.apply.iter().map(|line| shell(line)).collect();
    let named = |line: &str| line.strip_prefix("OLD_").and_then(|rest| rest.split_once(':')).map(own);
    let olds: BTreeMap<String, String> = printed.iter().flat_map(|text| text.lines()).filter_map(named).collect();
    let with_values = |line: &String| {
        // Longer ids first: OLD_81 is the beginning of OLD_812.
        let line = olds.iter().rev().fold(line.clone(), |line, (id, old)| line.replace(&format!("OLD_{id}"), old));
        line.replace("OLD", &printed[0])
    };
    commands.undo.iter().map(with_values).collect()
}

fn own((id, old): (&str, &str)) -> (String, String) {
    (id.to_owned(), old.trim().to_owned())
}

fn commands(fix: Fix, recording: &Recording, own_cgroup: Option<&str>) -> Commands {
    let facts = Facts::of(recording);
    let mut place = Place::of(&facts);
    place.own_cgroup = own_cgroup;
    fix.at(&place).expect("the machine can do it").commands()
}

/// A child that ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep starts"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Commands that run when the test ends.
struct Cleanup(Vec<String>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for line in self.0.iter().rev() {
            let _ = Command::new("sh").args(["-c", line]).stderr(Stdio::null()).status();
        }
    }
}

#[test]
fn a_threads_policy_returns_to_what_it_was() {
    if !is_root() {
        return skip(Need::Root, "fix", "not root");
    }
    let sleeper = Sleeper::new();
    let tid = sleeper.0.id();
    shell(&format!("chrt -p --batch 0 {tid}"));
    let before = shell(&format!("chrt -p {tid}"));
    let made = RecordingBuilder::new().slow(flatwater_recording::OpKind::Write, &[]);
    let recording = made.edit(|recording| recording.calls[0].tid = tid).done();
    let undo = perform(&commands(Fix::knob("first", knob!("placement.fifo_priority"), "1"), &recording, None));
    assert!(shell(&format!("chrt -p {tid}")).contains("SCHED_FIFO"));
    undo.iter().for_each(|line| drop(shell(line)));
    assert_eq!(shell(&format!("chrt -p {tid}")), before);
}

fn is_root() -> bool {
    shell("id -u") == "0"
}

#[test]
fn mount_options_return_to_what_they_were() {
    if !is_root() {
        return skip(Need::Root, "fix", "not root");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().join("a mount");
    std::fs::create_dir(&at).expect("made");
    let (image, point) = (directory.path().join("image").display().to_string(), at.display().to_string());
    let mut cleanup = Cleanup(Vec::new());
    shell(&format!("truncate -s 16M {image} && mkfs.ext4 -q {image}"));
    let device = shell(&format!("losetup -f --show {image}"));
    cleanup.0.push(format!("losetup -d {device}"));
    let made = RecordingBuilder::new();
    let storage = Storage::new(&point, "ext4");
    let recording = made.edit(|recording| recording.header.target.storage = Some(storage)).done();
    for options in ["relatime", "strictatime", "noatime,lazytime", "lazytime,nodiratime"] {
        shell(&format!("mount -o {options} {device} '{point}'"));
        cleanup.0.push(format!("umount '{point}'"));
        let options = || shell(&format!("findmnt -no OPTIONS -M '{point}'"));
        let before = options();
        let undo = perform(&commands(Fix::knob("lazy", knob!("mount.options"), "lazytime,noatime"), &recording, None));
        assert!(options().contains("noatime") && options().contains("lazytime"));
        undo.iter().for_each(|line| drop(shell(line)));
        assert_eq!(options(), before);
        shell(&cleanup.0.pop().expect("it is mounted"));
    }
}

/// The controllers of this machine, and the directory of each hierarchy.
fn controllers() -> Vec<Controller> {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("readable");
    let fields: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
    let find = |name: ControllerName| {
        let in_1 =
            |mount: &&Vec<&str>| mount[2] == "cgroup" && mount[3].split(',').any(|one| one == name.in_version(1));
        let in_2 = |mount: &&Vec<&str>| {
            let list = std::fs::read_to_string(Path::new(mount[1]).join("cgroup.controllers")).unwrap_or_default();
            mount[2] == "cgroup2" && list.split_whitespace().any(|one| one == name.in_version(2))
        };
        let of = |version: u32, mount: &Vec<&str>| Controller::new(name, version, mount[1]);
        let first = fields.iter().find(in_1).map(|mount| of(1, mount));
        first.or_else(|| fields.iter().find(in_2).map(|mount| of(2, mount)))
    };
    ControllerName::ALL.into_iter().filter_map(find).collect()
}

fn group_of(pid: u32, controller: &Controller) -> String {
    let field = super::commands::field(controller.name, controller.version);
    shell(&format!("sed -n 's/^{field}//p' /proc/{pid}/cgroup"))
}

#[test]
fn moved_processes_return_to_their_own_groups() {
    let here = controllers();
    let Some(cpu) = here.iter().find(|one| one.name == ControllerName::Cpu).filter(|_| is_root()) else {
        return skip(Need::Cpucg, "fix", "no cpu controller, or not root");
    };
    let sleepers = [Sleeper::new(), Sleeper::new()];
    let pids = sleepers.each_ref().map(|one| one.0.id());
    let mut cleanup = Cleanup(Vec::new());
    // Any user names the cgroups below a delegated one.
    let trap = tempfile::tempdir().expect("a directory");
    let hostile =
        format!("$(cd {0}; touch a)`cd {0}; touch b`'; \"; * a  b\\t", trap.path().display()).replace('/', "$P");
    for (pid, last) in pids.iter().zip(["0", &hostile]) {
        let group = PathBuf::from(&cpu.mount_point).join(format!("flatwater-fix-{}-{last}", std::process::id()));
        let path = flatwater_recording::printable::shell_quoted(group.to_str().expect("UTF-8")).into_owned();
        shell(&format!("mkdir {path} && echo {pid} > {path}/cgroup.procs"));
        let root = &cpu.mount_point;
        let empty = format!("for p in $(cat {path}/cgroup.procs); do echo $p > {root}/cgroup.procs; done");
        cleanup.0.extend([format!("rmdir {path}"), empty]);
    }
    let before = pids.map(|pid| group_of(pid, cpu));
    assert_ne!(before[0], before[1]);
    let recording =
        RecordingBuilder::new().edit(|recording| recording.header.machine.controllers = here.clone()).done();
    let party = Party { program: "sleep".to_owned(), pids: pids.to_vec(), cgroup: None, shares_cgroup: false };
    let fix = Fix::against(Action::Limit { party, resource: Resource::Cpu });
    let undo = perform(&commands(fix, &recording, None));
    let limited = format!("/flatwater-limited-{}", pids[0]);
    assert_eq!(pids.map(|pid| group_of(pid, cpu)), [limited.clone(), limited.clone()]);
    undo.iter().for_each(|line| drop(shell(line)));
    assert_eq!(pids.map(|pid| group_of(pid, cpu)), before);
    assert!(!Path::new(&format!("{}{limited}", cpu.mount_point)).exists());
    assert_eq!(std::fs::read_dir(trap.path()).expect("readable").count(), 0, "a name was executed");
}

#[test]
fn a_memory_limit_returns_to_what_it_was() {
    let here = controllers();
    let Some(memory) = here.iter().find(|one| one.name == ControllerName::Memory).filter(|_| is_root()) else {
        return skip(Need::Memcg, "fix", "no memory controller, or not root");
    };
    let path = format!("/flatwater-fix-memory-{}", std::process::id());
    let directory = format!("{}{path}", memory.mount_point);
    shell(&format!("mkdir {directory}"));
    let _cleanup = Cleanup(vec![format!("rmdir {directory}")]);
    let file = if memory.version == 2 { "memory.high" } else { "memory.limit_in_bytes" };
    shell(&format!("echo 67108864 > {directory}/{file}"));
    let recording =
        RecordingBuilder::new().edit(|recording| recording.header.machine.controllers = here.clone()).done();
    let party = Party { program: "dd".to_owned(), pids: vec![1], cgroup: Some(path), shares_cgroup: false };
    let fix = Fix::against(Action::Limit { party, resource: Resource::Memory });
    let undo = perform(&commands(fix, &recording, None));
    assert_ne!(shell(&format!("cat {directory}/{file}")), "67108864");
    undo.iter().for_each(|line| drop(shell(line)));
    assert_eq!(shell(&format!("cat {directory}/{file}")), "67108864");
}
