//! Names the processes, cgroups and devices whose numbers the BPF programs send, and finds who made an inode dirty.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::layout::{DirtierRecord, PF_KTHREAD, RequestRecord, WaitTask};
use crate::clock::monotonic_ns;
use crate::proc;
use crate::target::process_of_thread;
use crate::tracer::layout::text;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{OwnerBasis, RequestOp, Task};

/// The cache of processes is cleared when it reaches this size.
const PROCESSES_MAX: usize = 4_096;
/// At this size the older half of the inodes is dropped; most likely their pages have been written.
const INODES_MAX: usize = 16_384;
/// Read at most this many cgroups to learn their ids.
const GROUPS_MAX: usize = 16_384;
/// Search for an unknown cgroup again after this time.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;
/// Searching takes at most one part in this many of the time.
const LOOKING_PART: u64 = 500;

/// The controller whose cgroup an id belongs to: the memory controller for tasks, the block controller for requests. In
/// version 1 each has its own hierarchy with its own ids, so an id of one is meaningless in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Controller {
    Memory,
    Block,
}

impl Controller {
    const BOTH: [Controller; 2] = [Controller::Memory, Controller::Block];

    /// The root of the controller's hierarchy below the mount point `mounted`.
    fn root(self, mounted: &Path) -> PathBuf {
        let version_1 = mounted.join(match self {
            Controller::Memory => "memory",
            Controller::Block => "blkio",
        });
        let unified = mounted.join("unified");
        // In version 2 a cgroup may have the name of a controller, so check for version 2 first.
        match mounted.join("cgroup.controllers").exists() {
            true => mounted.to_owned(),
            false if version_1.join("cgroup.procs").exists() => version_1,
            false => unified,
        }
    }
}

/// Who made an inode dirty, and the inode's file name.
#[derive(Clone, Debug)]
pub struct Dirtied {
    pub owner: Task,
    pub file: Option<String>,
    pub at_ns: u64,
}

/// Caches of the names found so far.
#[derive(Debug, Default)]
pub struct Identities {
    processes: HashMap<u32, Process>,
    groups: HashMap<(Controller, u64), String>,
    look_again_ns: Option<u64>,
    inodes: HashMap<(u32, u64), Dirtied>,
    devices: HashMap<u32, String>,
}

#[derive(Clone, Debug)]
struct Process {
    name: String,
    cgroup: Option<String>,
}

impl Identities {
    /// A thread, with the cgroup of the kernel's id, or else the one in /proc.
    pub fn task(&mut self, task: &WaitTask, now_ns: u64) -> Task {
        self.thread(task.tid, task.tgid, &text(&task.comm), task.cgroup, now_ns)
    }

    fn thread(&mut self, tid: u32, tgid: u32, comm: &str, group: u64, now_ns: u64) -> Task {
        let of_process = self.process(tgid, comm).cgroup;
        let cgroup = self.group(Controller::Memory, group, now_ns).or(of_process);
        Task::new(tgid, tid, comm).in_cgroup(cgroup)
    }

    /// A thread of which only id, process and name are known.
    pub fn named(&mut self, tid: u32, tgid: u32, comm: &str) -> Task {
        let cgroup = self.process(tgid, comm).cgroup;
        Task::new(tgid, tid, comm).in_cgroup(cgroup)
    }

    /// A thread of which only id and name are known.
    pub fn by_thread(&mut self, tid: u32, comm: &str) -> Task {
        self.named(tid, process_of_thread(tid).unwrap_or(tid), comm)
    }

    /// A whole process. `comm` is the name of one thread, in case the process has ended.
    pub fn owner(&mut self, tid: u32, tgid: u32, comm: &str) -> Task {
        let mut process = self.process(tgid, comm);
        // The main thread's name is the process's name, and newer than the cached one: a shell becomes dd by execve().
        if tid == tgid && process.name != comm {
            comm.clone_into(&mut process.name);
            self.processes.insert(tgid, process.clone());
        }
        Task::new(tgid, 0, process.name).in_cgroup(process.cgroup)
    }

    /// A whole process, with the cgroup that the BPF program read; the process may have ended since.
    pub fn in_group(&mut self, tid: u32, tgid: u32, comm: &str, group: u64, now_ns: u64) -> Task {
        let mut owner = self.owner(tid, tgid, comm);
        owner.cgroup = self.group(Controller::Memory, group, now_ns).or(owner.cgroup);
        owner
    }

    fn process(&mut self, tgid: u32, comm: &str) -> Process {
        if let Some(known) = self.processes.get(&tgid) {
            return known.clone();
        }
        let read = |file: &str| proc::text::read(format!("/proc/{tgid}/{file}")).ok();
        let name = read("comm").map_or_else(|| comm.to_owned(), |name| name.trim_end().to_owned());
        let cgroup = read("cgroup").and_then(|membership| memory_group(&membership));
        // In version 1 an exited process that has not been waited for is in the root cgroup (cgroup_exit,
        // kernel/cgroup/cgroup.c).
        let cgroup = cgroup.filter(|path| path != "/" || !read("stat").is_some_and(|stat| has_exited(&stat)));
        let process = Process { name, cgroup };
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        self.processes.insert(tgid, process.clone());
        process
    }

    /// All cached processes, ordered by id.
    pub fn known_processes(&self) -> impl Iterator<Item = Task> + use<> {
        let task = |(&tgid, process): (&u32, &Process)| {
            Task::new(tgid, 0, process.name.clone()).in_cgroup(process.cgroup.clone())
        };
        let mut all: Vec<Task> = self.processes.iter().filter(|(tgid, _)| **tgid != 0).map(task).collect();
        all.sort_short_by_key(|task| task.pid);
        all.into_iter()
    }

    /// Drops ended processes from the cache, because ids are reused.
    pub fn forget_ended(&mut self) {
        self.processes.retain(|tgid, _| Path::new(&format!("/proc/{tgid}")).exists());
    }

    /// The path of a cgroup, by its kernfs id (the directory's inode number).
    fn group(&mut self, of: Controller, id: u64, now_ns: u64) -> Option<String> {
        if id == 0 {
            return None;
        }
        let due = self.look_again_ns.is_none_or(|at| now_ns >= at);
        if !self.groups.contains_key(&(of, id)) && due {
            let began_ns = monotonic_ns();
            self.look_for_groups(Path::new("/sys/fs/cgroup"));
            let took_ns = monotonic_ns().saturating_sub(began_ns);
            // Bounds the time spent searching if thousands of cgroups come and go.
            self.look_again_ns = Some(now_ns.saturating_add(LOOK_AGAIN_NS.max(took_ns.saturating_mul(LOOKING_PART))));
        }
        self.groups.get(&(of, id)).cloned()
    }

    fn look_for_groups(&mut self, mounted: &Path) {
        if self.groups.len() >= GROUPS_MAX {
            self.groups.clear();
        }
        let roots = Controller::BOTH.map(|controller| (controller, controller.root(mounted)));
        match &roots {
            [(_, one), (_, other)] if one == other => self.look_below(one, &Controller::BOTH),
            _ => roots.iter().for_each(|(controller, root)| self.look_below(root, &[*controller])),
        }
    }

    fn look_below(&mut self, root: &Path, controllers: &[Controller]) {
        let mut waiting = vec![root.to_owned()];
        let mut seen = 0;
        while let Some(directory) = waiting.pop() {
            seen += 1;
            if seen > GROUPS_MAX {
                break;
            }
            if directory.join("cgroup.procs").exists()
                && let (Ok(data), Ok(path)) = (directory.metadata(), directory.strip_prefix(root))
            {
                for &controller in controllers {
                    self.groups.insert((controller, data.ino()), format!("/{}", path.display()));
                }
            }
            let below = fs::read_dir(&directory).into_iter().flatten().flatten();
            let folders = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            waiting.extend(folders.map(|entry| entry.path()));
        }
    }

    pub fn note_dirtier(&mut self, record: &DirtierRecord) {
        if self.inodes.len() >= INODES_MAX {
            let mut times: Vec<u64> = self.inodes.values().map(|dirtied| dirtied.at_ns).collect();
            let (_, &mut middle_ns, _) = times.select_nth_unstable(INODES_MAX / 2);
            self.inodes.retain(|_, dirtied| dirtied.at_ns > middle_ns);
        }
        let comm = text(&record.comm);
        let owner = self.in_group(record.tid, record.tgid, &comm, record.cgroup, record.at_ns);
        let file = Some(text(&record.file)).filter(|name| !name.is_empty());
        let key = (record.inode_device, record.inode);
        self.inodes.insert(key, Dirtied { owner, file, at_ns: record.at_ns });
    }

    /// Who made this inode dirty, and its file's name.
    #[must_use]
    pub fn dirtied(&self, device: u32, inode: u64) -> Option<&Dirtied> {
        self.inodes.get(&(device, inode)).filter(|_| inode != 0)
    }

    pub fn dirtied_since(&self, since_ns: u64) -> impl Iterator<Item = (&(u32, u64), &Dirtied)> {
        self.inodes.iter().filter(move |(_, dirtied)| dirtied.at_ns >= since_ns)
    }

    /// The owner of a request. A thread's own reads, direct writes, and writes within its fsync belong to the thread. A
    /// request that a kernel thread submits belongs to the process that made the inode dirty, or else to the cgroup
    /// that the kernel charges.
    pub fn owner_of(&mut self, record: &RequestRecord) -> (Option<Task>, OwnerBasis) {
        if record.task_flags & PF_KTHREAD == 0 {
            return (Some(self.owner(record.tid, record.tgid, &text(&record.comm))), OwnerBasis::Submitter);
        }
        if let Some(dirtied) = self.dirtied(record.inode_device, record.inode) {
            return (Some(dirtied.owner.clone()), OwnerBasis::Dirtier);
        }
        match self.group(Controller::Block, record.cgroup, record.done_ns).filter(|path| path != "/") {
            Some(path) => (Some(Task::default().in_cgroup(Some(path))), OwnerBasis::Cgroup),
            None => (None, OwnerBasis::Unknown),
        }
    }

    /// The name (such as `vda`) of a device number `major << 20 | minor`.
    pub fn device(&mut self, number: u32) -> String {
        let name = || {
            let numbers = format!("{}:{}", number >> 20, number & 0xf_ffff);
            let link = fs::read_link(format!("/sys/dev/block/{numbers}")).ok();
            link.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned())).unwrap_or(numbers)
        };
        self.devices.entry(number).or_insert_with(name).clone()
    }
}

/// Whether /proc/PID/stat shows a zombie or dead process. The state follows the name, which may contain any character.
fn has_exited(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("Z" | "X" | "x"))
}

/// The cgroup of the memory controller in /proc/PID/cgroup; in version 2 the only cgroup.
fn memory_group(membership: &str) -> Option<String> {
    let mut unified = None;
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        match (parts.next()?, parts.next()?) {
            (controllers, path) if controllers.split(',').any(|name| name == "memory") => return Some(path.to_owned()),
            ("", path) => unified = Some(path.to_owned()),
            _ => {}
        }
    }
    unified
}

/// The operation in the low eight bits of a request's flags (include/linux/blk_types.h: enum req_op).
#[must_use]
pub fn operation(flags: u32) -> RequestOp {
    match flags & 0xff {
        0 => RequestOp::Read,
        1 => RequestOp::Write,
        2 => RequestOp::Flush,
        3 | 5 => RequestOp::Discard,
        _ => RequestOp::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::{Controller, INODES_MAX, Identities, has_exited, memory_group, operation};
    use crate::waits::layout::{DirtierRecord, PF_KTHREAD, RequestRecord};
    use flatwater_recording::{OwnerBasis, RequestOp};

    fn comm(name: &str) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    #[test]
    fn the_cgroup_of_the_memory_controller_is_preferred() {
        let both = "9:name=systemd:/a\n4:cpu,memory:/jobs/backup\n0::/b\n";
        assert_eq!(memory_group(both).as_deref(), Some("/jobs/backup"));
        assert_eq!(memory_group("0::/user.slice\n").as_deref(), Some("/user.slice"));
        assert_eq!(memory_group("nonsense"), None);
    }

    fn made(groups: &[&str]) -> tempfile::TempDir {
        let mounted = tempfile::tempdir().expect("a directory");
        for group in groups {
            let group = mounted.path().join(group);
            std::fs::create_dir_all(&group).expect("a group");
            std::fs::write(group.join("cgroup.procs"), "").expect("its processes");
        }
        mounted
    }

    #[test]
    fn version_1_ids_belong_to_their_controllers_hierarchy() {
        let mounted = made(&["memory", "memory/jobs", "blkio", "blkio/backup", "cpu/other"]);
        let mut known = Identities::default();
        known.look_for_groups(mounted.path());
        let found = |of: Controller| {
            let mut paths: Vec<_> =
                known.groups.iter().filter(|((one, _), _)| *one == of).map(|(_, path)| path.as_str()).collect();
            paths.sort_unstable();
            paths
        };
        assert_eq!((found(Controller::Memory), found(Controller::Block)), (vec!["/", "/jobs"], vec!["/", "/backup"]));
    }

    #[test]
    fn a_version_2_cgroup_may_be_named_memory() {
        let mounted = made(&["memory", "jobs"]);
        std::fs::write(mounted.path().join("cgroup.controllers"), "io memory").expect("version 2");
        let mut known = Identities::default();
        known.look_for_groups(mounted.path());
        for of in Controller::BOTH {
            let mut paths: Vec<_> =
                known.groups.iter().filter(|((one, _), _)| *one == of).map(|(_, path)| path.as_str()).collect();
            paths.sort_unstable();
            assert_eq!(paths, ["/jobs", "/memory"]);
        }
    }

    #[test]
    fn the_root_cgroup_of_an_exited_process_is_ignored() {
        let states =
            [("812 (dd) Z 1 812", true), ("812 (a) Z) S 1", false), ("812 (dd) X 1", true), ("812 (dd", false)];
        for (stat, exited) in states {
            assert_eq!(has_exited(stat), exited, "{stat}");
        }
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let stat = format!("/proc/{}/stat", child.id());
        while !std::fs::read_to_string(&stat).is_ok_and(|stat| has_exited(&stat)) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let path = Identities::default().process(child.id(), "true").cgroup;
        child.wait().expect("it has ended");
        assert_ne!(path.as_deref(), Some("/"));
    }

    #[test]
    fn the_flushers_write_belongs_to_the_dirtier_of_the_inode() {
        let mut known = Identities::default();
        let dirtier =
            DirtierRecord { inode: 7, inode_device: 3, tgid: u32::MAX, comm: comm("dd"), ..DirtierRecord::default() };
        known.note_dirtier(&dirtier);
        let flusher = RequestRecord { inode: 7, inode_device: 3, task_flags: PF_KTHREAD, ..RequestRecord::default() };
        let (owner, basis) = known.owner_of(&flusher);
        assert_eq!((owner.expect("an owner").name.as_str(), basis), ("dd", OwnerBasis::Dirtier));
        let journal = RequestRecord { inode: 8, ..flusher };
        assert_eq!(known.owner_of(&journal), (None, OwnerBasis::Unknown));
        let reader = RequestRecord { task_flags: 0, tgid: u32::MAX - 1, comm: comm("fio"), ..flusher };
        let (owner, basis) = known.owner_of(&reader);
        assert_eq!((owner.expect("an owner").name.as_str(), basis), ("fio", OwnerBasis::Submitter));
    }

    #[test]
    fn the_newer_half_of_the_inodes_is_kept() {
        let mut known = Identities::default();
        for inode in 1..=INODES_MAX as u64 + 1 {
            let record =
                DirtierRecord { inode, inode_device: 3, at_ns: inode, tgid: u32::MAX, ..DirtierRecord::default() };
            known.note_dirtier(&DirtierRecord { comm: comm("dd"), ..record });
        }
        assert!(
            known.dirtied(3, INODES_MAX as u64 + 1).is_some() && known.dirtied(3, INODES_MAX as u64 * 3 / 4).is_some()
        );
        assert!(known.dirtied(3, 1).is_none());
        assert!(known.inodes.len() <= INODES_MAX);
    }

    #[test]
    fn the_operation_is_in_the_low_bits() {
        assert_eq!(operation(0x800 | 1), RequestOp::Write);
        assert_eq!(operation(3), RequestOp::Discard);
        assert_eq!(operation(34), RequestOp::Other);
    }
}
