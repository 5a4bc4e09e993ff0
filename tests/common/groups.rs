//! Temporary control groups, v1 or v2, removed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The directory of a controller's groups, and whether it is cgroup v2.
fn place(controller: &str) -> Result<(PathBuf, bool), String> {
    let v1 = Path::new("/sys/fs/cgroup").join(controller);
    if v1.join("tasks").exists() {
        return Ok((v1, false));
    }
    let v2 = PathBuf::from("/sys/fs/cgroup");
    let offered = fs::read_to_string(v2.join("cgroup.controllers")).unwrap_or_default();
    if !offered.split_whitespace().any(|name| name == controller) {
        return Err(format!("no {controller} controller in cgroup v1 or v2"));
    }
    let control = v2.join("cgroup.subtree_control");
    fs::write(&control, format!("+{controller}")).map_err(|error| format!("{}: {error}", control.display()))?;
    Ok((v2, true))
}

struct Group {
    path: PathBuf,
    root: PathBuf,
}

impl Group {
    fn make(root: PathBuf) -> Result<Group, String> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("flatwater-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Group { path, root })
    }

    fn set(&self, knob: &str, value: &str) -> Result<(), String> {
        let path = self.path.join(knob);
        fs::write(&path, value).map_err(|error| format!("{} = {value}: {error}", path.display()))
    }

    fn add(&self, pid: u32) -> Result<(), String> {
        self.set("cgroup.procs", &pid.to_string())
    }

    fn remove(&self, pid: u32) {
        let _ = fs::write(self.root.join("cgroup.procs"), pid.to_string());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for pid in fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(self.root.join("cgroup.procs"), pid);
        }
        // rmdir fails until the kernel has released a process that has just exited.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("{} could not be removed", self.path.display());
    }
}

/// A memory cgroup with a limit.
pub struct MemoryGroup {
    group: Group,
    v2: bool,
}

impl MemoryGroup {
    pub fn new(limit_bytes: u64) -> Result<MemoryGroup, String> {
        let (root, v2) = place("memory")?;
        let group = Group::make(root)?;
        let knob = if v2 { "memory.max" } else { "memory.limit_in_bytes" };
        group.set(knob, &limit_bytes.to_string())?;
        Ok(MemoryGroup { group, v2 })
    }

    pub fn add(&self, pid: u32) -> Result<(), String> {
        self.group.add(pid)
    }

    pub fn remove(&self, pid: u32) {
        self.group.remove(pid);
    }

    pub fn path(&self) -> &Path {
        &self.group.path
    }

    pub fn is_v2(&self) -> bool {
        self.v2
    }
}

/// A CPU cgroup with a quota of `percent` of one CPU, in periods of 100 ms.
pub struct CpuGroup(Group);

impl CpuGroup {
    pub fn new(percent: u32) -> Result<CpuGroup, String> {
        let (root, v2) = place("cpu")?;
        let group = Group::make(root)?;
        if v2 {
            group.set("cpu.max", &format!("{} 100000", percent * 1000))?;
        } else {
            group.set("cpu.cfs_period_us", "100000")?;
            group.set("cpu.cfs_quota_us", &(percent * 1000).to_string())?;
        }
        Ok(CpuGroup(group))
    }

    pub fn add(&self, pid: u32) -> Result<(), String> {
        self.0.add(pid)
    }

    pub fn remove(&self, pid: u32) {
        self.0.remove(pid);
    }

    /// Time for which the quota kept the group from running, ns.
    pub fn throttled_ns(&self) -> u64 {
        let text = fs::read_to_string(self.0.path.join("cpu.stat")).unwrap_or_default();
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().parse::<u64>().ok())
        };
        // cgroup v1 counts ns, v2 us.
        number("throttled_time ").or_else(|| number("throttled_usec ").map(|us| us * 1_000)).unwrap_or(0)
    }
}
