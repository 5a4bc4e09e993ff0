//! Sets up the stage of a recipe and takes it down, also after an error.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::groups::{CpuGroup, MemoryGroup};
use crate::common::loopdisk::LoopDisk;
use crate::common::{Scratch, tool};
use crate::ground_truth::act::{Act, Actor, forget};
use crate::ground_truth::recipe::{Disk, Recipe};

/// A stage that was set up. Its fields are dropped in this order.
pub struct Set {
    pub neighbours: Vec<Actor>,
    freezer: Option<Freezer>,
    memory: Option<MemoryGroup>,
    cpu: Option<CpuGroup>,
    limit_bytes: u64,
    disk: Option<LoopDisk>,
    scratch: Scratch,
}

/// Freezes a file system for 150 ms twice a second; thaws it on drop.
struct Freezer {
    stop: Arc<AtomicBool>,
    mount: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Freezer {
    fn start(mount: &Path) -> Freezer {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, place) = (stop.clone(), mount.display().to_string());
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                let frozen = tool("fsfreeze", &["-f", &place]);
                std::thread::sleep(Duration::from_millis(150));
                if frozen.is_ok() {
                    let _ = tool("fsfreeze", &["-u", &place]);
                }
                std::thread::sleep(Duration::from_millis(350));
            }
        });
        Freezer { stop, mount: mount.to_owned(), thread: Some(thread) }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
        let _ = tool("fsfreeze", &["-u", &self.mount.display().to_string()]);
    }
}

impl Set {
    /// Sets up the stage. The neighbours wait until `begin`.
    pub fn up(recipe: &Recipe, time: Duration) -> Result<Set, String> {
        let stage = recipe.stage;
        let scratch = Scratch::new("stage");
        let disk = disk(stage.disk)?;
        let place = disk.as_ref().map_or_else(|| scratch.path().to_owned(), |disk| disk.path().to_owned());
        if stage.file_mib > 0 {
            fill(&place.join("data"), stage.file_mib, matches!(recipe.victim, Act::Overwrite | Act::Prefetched))?;
        }
        throttle(stage.disk, disk.as_ref())?;
        let memory = (stage.memory_mib > 0).then(|| MemoryGroup::new(stage.memory_mib << 20)).transpose()?;
        let cpu = (stage.cpu_percent > 0).then(|| CpuGroup::new(stage.cpu_percent)).transpose()?;
        let mut set = Set {
            neighbours: Vec::new(),
            freezer: None,
            memory,
            cpu,
            limit_bytes: stage.memory_mib << 20,
            disk,
            scratch,
        };
        for (number, act) in recipe.neighbours.iter().enumerate() {
            // Neighbours that use the victim's file or compete for its directory share the path.
            let fights = *act == Act::Churn && recipe.right.contains(&"lock");
            let shares = matches!(act, Act::ReadStream | Act::Shared) || fights;
            let file = set.path().join(if shares { "data".to_owned() } else { format!("other{number}") });
            let actor = Actor::start(*act, &file, time, false);
            set.enter(actor.pid())?;
            set.neighbours.push(actor);
        }
        if stage.freeze {
            set.freezer = Some(Freezer::start(set.path().as_path()));
        }
        Ok(set)
    }

    /// Starts the neighbours, and waits until the memory group is 90 % full or its usage stops growing, at most 15 s.
    pub fn begin(&mut self) {
        self.neighbours.iter_mut().for_each(Actor::release);
        let Some(group) = &self.memory else { return };
        let usage = group.path().join(if group.is_v2() { "memory.current" } else { "memory.usage_in_bytes" });
        let (mut before, mut unchanged) = (0, 0);
        for _ in 0..150 {
            let text = std::fs::read_to_string(&usage).unwrap_or_default();
            let bytes = text.trim().parse::<u64>().unwrap_or(0);
            unchanged = if bytes > before { 0 } else { unchanged + 1 };
            if bytes >= self.limit_bytes / 10 * 9 || (bytes > 1 << 20 && unchanged >= 15) {
                return;
            }
            before = before.max(bytes);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn path(&self) -> PathBuf {
        self.disk.as_ref().map_or_else(|| self.scratch.path().to_owned(), |disk| disk.path().to_owned())
    }

    /// The directory for recordings, which is never on the stage's disk.
    pub fn outside(&self) -> &Path {
        self.scratch.path()
    }

    /// Moves a process into the stage's groups.
    pub fn enter(&self, pid: u32) -> Result<(), String> {
        self.memory.as_ref().map_or(Ok(()), |group| group.add(pid))?;
        self.cpu.as_ref().map_or(Ok(()), |group| group.add(pid))
    }
}

fn disk(disk: Disk) -> Result<Option<LoopDisk>, String> {
    let name = "disk";
    Ok(Some(match disk {
        Disk::Host => return Ok(None),
        Disk::Ext4SmallJournal => LoopDisk::made(name, 512, "mkfs.ext4", &["-q", "-F", "-b", "4096", "-J", "size=4"])?,
        Disk::Xfs => LoopDisk::made(name, 512, "mkfs.xfs", &["-q", "-f"])?,
        Disk::Ext4 | Disk::FewDirty | Disk::Slow | Disk::ShortQueue => LoopDisk::ext4(name, 768)?,
    }))
}

fn throttle(kind: Disk, disk: Option<&LoopDisk>) -> Result<(), String> {
    let Some(disk) = disk else { return Ok(()) };
    match kind {
        Disk::FewDirty => {
            disk.bound_dirty(4 << 20)?;
            disk.slow_writes(8 << 20)
        }
        Disk::Slow => {
            disk.limit("read_iops", 25)?;
            disk.limit("write_iops", 50)
        }
        Disk::ShortQueue => {
            disk.queue("nr_requests", "4")?;
            disk.queue("scheduler", "none").or(Ok(()))
        }
        _ => Ok(()),
    }
}

/// Writes the victim's file. `cold` drops it from the cache, where it is charged to our own cgroup, so that a victim
/// that overwrites it is charged for its pages.
fn fill(path: &Path, mib: u64, cold: bool) -> Result<(), String> {
    use std::io::Write;
    let mut file = std::fs::File::create(path).map_err(|error| error.to_string())?;
    for _ in 0..mib {
        file.write_all(&[5; 1 << 20]).map_err(|error| error.to_string())?;
    }
    file.sync_all().map_err(|error| error.to_string())?;
    if cold {
        forget(&file);
    }
    Ok(())
}
