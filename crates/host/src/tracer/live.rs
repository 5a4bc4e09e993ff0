//! The loaded BPF object, with its maps, its counters and the reader of the ring buffer.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use aya::maps::{HashMap, Map, MapData, PerCpuArray, StackTraceMap};
use aya::programs::links::FdLink;
use aya::{Btf, Ebpf};

use super::calls::CallTables;
use super::error::{Refusal, TraceError};
use super::functions;
use super::hooks::{self, Wanted, refused};
use super::layout::{counter, text};
use super::object::{self, Constants};
use super::options::{Level, Targets, TraceOptions, Traced};
use super::profile::{self, Profiles};
use super::records::Records;
use super::slots::SlotMemory;
use super::stacks::{KernelStacks, StackTable};
use super::totals::{Totals, Untimed};
use super::under_way::{self, States};
use super::variant::{self, Means, Variant};
use super::{Shared, lock};
use crate::kallsyms::Kallsyms;
use crate::target::{hierarchy_of, process_of_thread};
use flatwater_recording::{Gap, HookState, HookStatus, LatencyBucket, Losses};

/// The longest time that the reader sleeps if no record arrives.
const IDLE_MS: i64 = 250;

pub struct Live {
    ebpf: Mutex<Option<Ebpf>>,
    /// Hooks on the functions of system calls; these links keep their programs loaded.
    functions: Mutex<Vec<FdLink>>,
    ring: Arc<Mutex<Records>>,
    own_threads: Mutex<HashMap<MapData, u32, u32>>,
    targets: Mutex<HashMap<MapData, u32, u32>>,
    killed: HashMap<MapData, u32, [u8; 16]>,
    /// Kept open even if it cannot be mapped: programs that are loaded later refer to its descriptor.
    slots: MapData,
    shared: bool,
    /// For other programs only; empty if the own threads are traced.
    totals: Mutex<Totals>,
    untimed: Mutex<Untimed>,
    counters: PerCpuArray<MapData, u64>,
    profiles: Profiles,
    /// The states of other programs' threads, for the calls under way at the end of the recording.
    states: Mutex<States>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

fn map(ebpf: &mut Ebpf, name: &str) -> Result<Map, TraceError> {
    ebpf.take_map(name).ok_or_else(|| TraceError::NoMap { name: name.to_owned() })
}

fn refusal_of<E: std::error::Error>(error: E) -> TraceError {
    refused(&error)
}

impl Live {
    pub fn start(
        options: &TraceOptions,
        gaps: &mut Vec<Gap>,
    ) -> Result<(Live, StackTable, Vec<HookStatus>), TraceError> {
        let targets = match &options.traced {
            Traced::Own => None,
            Traced::Others(targets) => Some(targets),
        };
        let cgroup = targets.and_then(|targets| targets.cgroup.as_deref());
        let constants = Constants {
            own_tgid: if targets.is_none() { std::process::id() } else { 0 },
            threshold_ns: options.threshold_ns,
            target_cgroup: cgroup.map(cgroup_id).transpose()?.unwrap_or(0),
            target_hierarchy: cgroup.map(hierarchy).transpose()?.unwrap_or(0),
            profile: options.profile && targets.is_some() && options.level != Level::Sleeps,
        };
        let wanted = Wanted {
            others: targets.is_some(),
            calls: options.level != Level::Sleeps,
            functions: options.level == Level::Files,
            faults: targets.is_some_and(|targets| targets.faults),
            cgroup: cgroup.is_some(),
            hz: options.hz,
        };
        let btf = object::kernel_types()?;
        let without = object::without();
        let levels = Cell::new(0);
        let attempt = |variant: &'static Variant, sleeps: bool| {
            if targets.is_none() && !variant.has(Means::SharedArrays) {
                return Err(TraceError::NoSharedArrays);
            }
            let (mut live, stacks, mut ebpf) = Live::load(variant, &btf, constants)?;
            if let Some(targets) = targets {
                levels.set(live.add_targets(targets)?);
            }
            let mut statuses = hooks::attach(&mut ebpf, &btf, variant, wanted);
            if wanted.others && wanted.calls {
                let (states, status) = states(&mut ebpf, &btf, variant);
                live.states = Mutex::new(states);
                statuses.push(status);
            }
            if wanted.functions {
                // Last, because this slows down calls on files.
                let (links, status) = functions::attach(&mut ebpf, &btf)?;
                live.functions = Mutex::new(links);
                statuses.push(status);
            }
            let none = statuses.iter().all(|status| status.state == HookState::Unavailable);
            if none || (sleeps && !hooks::sees_sleeps(&statuses)) {
                return Err(TraceError::NoHook { why: hooks::first_reason(&statuses) });
            }
            live.ebpf = Mutex::new(Some(ebpf));
            Ok((live, stacks, statuses))
        };
        // Prefer a variant with the hook that sees sleeps; do without the hook only if no variant loads with it.
        let tried = variant::first_accepted(&without, |variant| attempt(variant, true));
        let tried = tried.or_else(|_| variant::first_accepted(&without, |variant| attempt(variant, false)));
        let ((live, stacks, mut statuses), variant, refusals) = tried?;
        // The BTF takes some tens of MB: free it before the symbol names are read, so that both do not add up.
        drop(btf);
        let refusals: Vec<Refusal> = object::unsafe_storage().into_iter().chain(refusals).collect();
        statuses.insert(0, of_variant(variant, &refusals));
        gaps.extend(too_deep(levels.get()));
        let symbols = Kallsyms::read().unwrap_or_else(|why| {
            gaps.push(Gap::new("names of kernel functions", why.to_string(), "run as root"));
            Kallsyms::default()
        });
        Ok((live, StackTable::new(Some(Box::new(stacks)), symbols), statuses))
    }

    /// Creates the maps of a variant; its programs are not loaded yet.
    fn load(variant: &Variant, btf: &Btf, constants: Constants) -> Result<(Live, KernelStacks, Ebpf), TraceError> {
        let mut ebpf = object::load(variant, btf, constants, &CallTables::of_all())?;
        let shared = variant.has(Means::SharedArrays);
        let stacks = KernelStacks {
            first: StackTraceMap::try_from(map(&mut ebpf, "stacks")?).map_err(refusal_of)?,
            second: StackTraceMap::try_from(map(&mut ebpf, "stacks_second")?).map_err(refusal_of)?,
        };
        let live = Live {
            ring: Arc::new(Mutex::new(Records::of(map(&mut ebpf, "records")?)?)),
            own_threads: Mutex::new(HashMap::try_from(map(&mut ebpf, "own_threads")?).map_err(refusal_of)?),
            targets: Mutex::new(HashMap::try_from(map(&mut ebpf, "targets")?).map_err(refusal_of)?),
            killed: HashMap::try_from(map(&mut ebpf, "killed")?).map_err(refusal_of)?,
            slots: match map(&mut ebpf, "own_slots")? {
                Map::Array(data) => data,
                other => return Err(TraceError::NotAnArray { name: "own_slots", found: format!("{other:?}") }),
            },
            shared,
            totals: Mutex::new(Totals::of(map(&mut ebpf, "latencies")?, shared)?),
            untimed: Mutex::new(Untimed::of(map(&mut ebpf, "untimed")?, shared)?),
            counters: PerCpuArray::try_from(map(&mut ebpf, "counters")?).map_err(refusal_of)?,
            profiles: Profiles {
                groups: HashMap::try_from(map(&mut ebpf, "profiles")?).map_err(refusal_of)?,
                files: HashMap::try_from(map(&mut ebpf, "profile_files")?).map_err(refusal_of)?,
                parents: HashMap::try_from(map(&mut ebpf, "parents")?).map_err(refusal_of)?,
            },
            states: Mutex::new(States::Refused),
            ebpf: Mutex::new(None),
            functions: Mutex::new(Vec::new()),
            stop: Arc::new(AtomicBool::new(false)),
            reader: None,
        };
        Ok((live, stacks, ebpf))
    }

    /// Starts the thread that empties the ring buffer.
    pub fn read_ring(&mut self, shared: Arc<Mutex<Shared>>) {
        let (ring, stop) = (self.ring.clone(), self.stop.clone());
        let reader = std::thread::Builder::new().name("flatwater-trace".to_owned()).spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                wait_readable(&ring);
                pump(&ring, &shared);
                lock(&shared).assembler.tick();
            }
        });
        // Without the thread, `pump` on demand still empties the ring buffer, only later.
        self.reader = reader.ok();
    }

    /// Processes all records that the BPF programs have sent so far.
    pub fn pump(&self, shared: &Mutex<Shared>) {
        pump(&self.ring, shared);
    }

    /// Reads the calls that have not ended; returns a gap if that failed. Call it once, after the hooks are detached.
    pub fn take_under_way(&self, shared: &Mutex<Shared>) -> Option<Gap> {
        let (states, gap) = lock(&self.states).read();
        self.pump(shared);
        lock(shared).assembler.under_way.extend(states);
        gap
    }

    pub fn slot_memory(&self) -> std::io::Result<SlotMemory> {
        if !self.shared {
            return Err(std::io::Error::other("this kernel cannot share an array with user space (5.5)"));
        }
        SlotMemory::shared(self.slots.fd().as_fd())
    }

    /// Traces this thread's operations from now on. An error is only logged, since the thread is timed even so.
    pub fn adopt(&self, tid: u32, slot: u32) {
        if let Err(error) = lock(&self.own_threads).insert(tid, slot, 0) {
            tracing::warn!("thread {tid} cannot be traced: {error}");
        }
    }

    pub fn add_target(&self, pid: u32) -> Result<(), TraceError> {
        let pid = process_of_thread(pid).unwrap_or(pid);
        lock(&self.targets).insert(pid, profile::role::ROLE_TARGET, 0).map_err(refusal_of)
    }

    /// Counts the calls of a process that is not a target, and of later children.
    pub fn add_neighbour(&self, pid: u32) -> Result<(), TraceError> {
        let mut targets = lock(&self.targets);
        if targets.get(&pid, 0).is_ok() {
            return Ok(());
        }
        targets.insert(pid, profile::role::ROLE_NEIGHBOUR, 0).map_err(refusal_of)
    }

    /// The parent of a process that was forked while the hooks were attached, even if the process has ended.
    pub fn parent_of(&self, pid: u32) -> Option<u32> {
        self.profiles.parents.get(&pid, 0).ok()
    }

    /// The counts for imitation, and the number of calls that found no room.
    pub fn profiles(&self) -> (&Profiles, u64) {
        let full = self.counters.get(&counter::NO_PROFILE, 0).map_or(0, |values| values.iter().sum());
        (&self.profiles, full)
    }

    /// The targets followed now.
    pub fn target_pids(&self) -> Vec<u32> {
        let roles = lock(&self.targets);
        roles.iter().flatten().filter(|(_, role)| *role == profile::role::ROLE_TARGET).map(|(pid, _)| pid).collect()
    }

    /// Followed processes that SIGKILL ended, with their names.
    pub fn killed(&self) -> Vec<(u32, String)> {
        self.killed.iter().flatten().map(|(pid, name)| (pid, text(&name))).collect()
    }

    /// Returns the number of levels of cgroups below the targets' one.
    fn add_targets(&self, targets: &Targets) -> Result<u32, TraceError> {
        let mut pids = targets.pids.clone();
        let levels = targets.cgroup.as_ref().map(|path| collect_pids(path, &mut pids, 0)).transpose()?;
        pids.iter().try_for_each(|&pid| self.add_target(pid))?;
        Ok(levels.unwrap_or(0))
    }

    /// Latencies of all calls that ended since the last call.
    pub fn latencies(&self, start_ns: u64, end_ns: u64) -> Vec<LatencyBucket> {
        lock(&self.totals).since_last(start_ns, end_ns)
    }

    /// File system calls of targets that are not timed, with their number.
    pub fn untimed(&self) -> Vec<(&'static str, u64)> {
        lock(&self.untimed).counts()
    }

    pub fn losses(&self) -> Losses {
        let sum = |which: u32| self.counters.get(&which, 0).map_or(0, |values| values.iter().sum());
        Losses {
            lost: sum(counter::LOST) + lock(&self.ring).lost(),
            too_deep: sum(counter::TOO_DEEP),
            stack_errors: sum(counter::STACK_ERROR),
            unbalanced: sum(counter::UNBALANCED),
            no_state: sum(counter::NO_STATE),
            ..Losses::default()
        }
    }

    /// Detaches all hooks and ends the reader; the maps stay readable.
    pub fn stop(&mut self) {
        lock(&self.functions).clear();
        drop(lock(&self.ebpf).take());
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take()
            && reader.join().is_err()
        {
            tracing::warn!("the reader of the tracer's ring buffer panicked");
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop();
    }
}

fn pump(ring: &Mutex<Records>, shared: &Mutex<Shared>) {
    let mut ring = lock(ring);
    let mut shared = lock(shared);
    let Shared { assembler, stacks } = &mut *shared;
    ring.drain(|record| assembler.take_in(record, stacks));
}

fn wait_readable(ring: &Mutex<Records>) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    // Polls copies of the descriptors, so that the lock is free for other readers.
    let Ok(descriptors) = lock(ring).descriptors() else {
        std::thread::sleep(std::time::Duration::from_millis(IDLE_MS as u64));
        return;
    };
    let timeout = Timespec { tv_sec: 0, tv_nsec: IDLE_MS * 1_000_000 };
    let mut waiting: Vec<PollFd<'_>> = descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let _ = poll(&mut waiting, Some(&timeout));
}

/// How to read the states of threads: from the hash, or with an iterator over all threads.
fn states(ebpf: &mut Ebpf, btf: &Btf, variant: &Variant) -> (States, HookStatus) {
    const SERVES: &str = "calls (not ended when the recording is)";
    if variant.has(Means::TaskStorage) {
        let iterator = under_way::iterator(ebpf, btf, "under_way_now");
        let status = under_way::status("iter/task", SERVES, &iterator);
        return (iterator.map_or(States::Refused, States::Threads), status);
    }
    let hash = map(ebpf, "others").and_then(|map| HashMap::try_from(map).map_err(refusal_of));
    let status = under_way::status("map/others", SERVES, &hash);
    (hash.map_or(States::Refused, States::Hash), status)
}

/// The status that names the variant in use and the variants that the kernel refused.
fn of_variant(variant: &Variant, refusals: &[Refusal]) -> HookStatus {
    let reported: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    let refused = if reported.is_empty() { String::new() } else { format!(" (refused: {})", reported.join("; ")) };
    let reason = format!("{}{refused}", variant.describe());
    HookStatus::new(format!("bpf/{}", variant.name), Vec::new(), HookState::Exact, reason)
}

fn of_cgroup<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> TraceError {
    let path = path.to_owned();
    move |error| TraceError::Cgroup { path, why: error.to_string() }
}

/// A cgroup's kernfs id: the inode number of the directory.
fn cgroup_id(path: &Path) -> Result<u64, TraceError> {
    let data = std::fs::metadata(path).map_err(of_cgroup(path))?;
    Ok(data.ino())
}

/// The hierarchy in which the cgroup's id is valid.
fn hierarchy(path: &Path) -> Result<u32, TraceError> {
    hierarchy_of(path).map_err(of_cgroup(path))
}

/// Read the processes of cgroups down to this many levels below the target.
const LEVELS_MAX: u32 = 16;
/// The BPF programs follow processes that move into a cgroup down to this many levels below the target
/// (bpf/foreign.h: in_target_cgroup).
const LEVELS_FOLLOWED: u32 = 7;

/// Adds the processes of a cgroup, which lies `level` levels below the target, and of the cgroups below it. Returns the
/// deepest level that has a cgroup, at most `LEVELS_MAX + 1`.
fn collect_pids(path: &Path, pids: &mut Vec<u32>, level: u32) -> Result<u32, TraceError> {
    if level > LEVELS_MAX {
        return Ok(level);
    }
    let file = path.join("cgroup.procs");
    let text = std::fs::read_to_string(&file).map_err(of_cgroup(&file))?;
    pids.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
    let below = std::fs::read_dir(path).map_err(of_cgroup(path))?;
    let mut deepest = level;
    for entry in below.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // The cgroup may be removed during the walk; its processes have moved elsewhere by then.
            deepest = deepest.max(collect_pids(&entry.path(), pids, level + 1).unwrap_or(level));
        }
    }
    Ok(deepest)
}

/// Gaps if cgroups lie so deep below the target that their processes are not followed.
fn too_deep(levels: u32) -> Vec<Gap> {
    let gap = |limit: u32, which: &str| {
        let what = format!("calls of processes {which} cgroups more than {limit} levels below the target");
        Gap::new(what, "they lie too deep", "give a cgroup further below with --cgroup")
    };
    let unread = (levels > LEVELS_MAX).then(|| gap(LEVELS_MAX, "in"));
    let unfollowed = (levels > LEVELS_FOLLOWED).then(|| gap(LEVELS_FOLLOWED, "that move into"));
    unread.into_iter().chain(unfollowed).collect()
}

#[cfg(test)]
mod tests {
    use super::{LEVELS_FOLLOWED, LEVELS_MAX, collect_pids, too_deep};

    /// H7: the processes of deeper cgroups were left out silently.
    #[test]
    fn cgroups_too_deep_below_the_target_are_a_gap() {
        let root = tempfile::tempdir().expect("a directory");
        let mut place = root.path().to_owned();
        let mut gaps = Vec::new();
        for level in 0..=LEVELS_MAX + 1 {
            std::fs::create_dir_all(&place).expect("made");
            std::fs::write(place.join("cgroup.procs"), format!("{}\n", 100 + level)).expect("written");
            let mut pids = Vec::new();
            assert_eq!(collect_pids(root.path(), &mut pids, 0), Ok(level));
            assert_eq!(pids.len() as u32, level.min(LEVELS_MAX) + 1);
            gaps.push(too_deep(level).len());
            place.push("below");
        }
        let (all, some) = (LEVELS_FOLLOWED as usize + 1, (LEVELS_MAX - LEVELS_FOLLOWED) as usize);
        assert_eq!(gaps, [vec![0; all], vec![1; some], vec![2]].concat());
    }
}
