//! Reads the scheduler's accounts of the target's threads, where no hook can be attached: time on the CPU, time waiting
//! for a CPU (schedstat), page faults, and with CAP_NET_ADMIN the kernel's delay accounting.
//!
//! These show what the threads waited for, but not in which call.

mod delays;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use delays::{Asker, Delays};

use flatwater_recording::schema::{Column, workload};
use flatwater_recording::{Entity, Gap, Series, Table};

/// Whose threads are read.
#[derive(Clone, Debug)]
pub enum Watched {
    /// Processes and the children that they fork.
    Processes(Vec<Root>),
    /// The processes of a cgroup's directory.
    Cgroup(PathBuf),
    /// Threads of this process.
    Threads(Vec<u32>),
}

/// A process that was named by its id.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    pid: u32,
    /// Clock ticks since boot; known from the first listing on.
    begun: Option<u64>,
}

impl Watched {
    #[must_use]
    pub fn processes(pids: &[u32]) -> Watched {
        Watched::Processes(pids.iter().map(|&pid| Root { pid, begun: None }).collect())
    }

    /// Also watches a process that began later.
    pub fn add_process(&mut self, pid: u32) {
        if let Watched::Processes(roots) = self {
            roots.push(Root { pid, begun: None });
        }
    }

    /// Pairs of (the process or thread that gets the row, its threads), and a gap if some cannot be listed.
    pub fn threads(&mut self, proc: &Path) -> (Vec<(u32, Vec<u32>)>, Option<Gap>) {
        let of_process = |pid: u32| (pid, numbers_in(&proc.join(format!("{pid}/task"))));
        match self {
            Watched::Threads(tids) => (tids.iter().map(|&tid| (tid, vec![tid])).collect(), None),
            Watched::Processes(roots) => {
                roots.retain_mut(|root| root.is_same(proc));
                let pids = roots.iter().map(|root| root.pid).collect();
                (with_children(proc, pids).into_iter().map(of_process).collect(), None)
            }
            Watched::Cgroup(directory) => {
                let (pids, gap) = members(&directory.join("cgroup.procs"));
                (pids.into_iter().map(of_process).collect(), gap)
            }
        }
    }
}

impl Root {
    /// False if another process has the id now.
    fn is_same(&mut self, proc: &Path) -> bool {
        let Root { pid, .. } = *self;
        let stat = fs::read_to_string(proc.join(format!("{pid}/task/{pid}/stat"))).unwrap_or_default();
        // starttime, field 22.
        let begun = stat.rsplit_once(')').and_then(|(_, after)| after.split_whitespace().nth(19)?.parse().ok());
        begun.is_none_or(|begun| *self.begun.get_or_insert(begun) == begun)
    }
}

/// The processes that this file lists. A removed cgroup has none, which is not a gap.
fn members(file: &Path) -> (Vec<u32>, Option<Gap>) {
    let gap = |why: String| {
        Gap::new("some processes of the cgroup", format!("{}: {why}", file.display()), "select processes with -p")
    };
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV) => {
            return (Vec::new(), None);
        }
        Err(error) => return (Vec::new(), Some(gap(error.to_string()))),
    };
    let listed: Vec<u32> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    // The kernel lists a process of another PID namespace as 0 (kernel/cgroup/cgroup.c: cgroup_procs_show).
    let pids: Vec<u32> = listed.iter().copied().filter(|pid| *pid != 0).collect();
    let hidden = listed.len() - pids.len();
    let why = (hidden > 0).then(|| gap(format!("{hidden} of {} are in another PID namespace", listed.len())));
    (pids, why)
}

/// The processes and their children. Without CONFIG_PROC_CHILDREN the kernel lists no children.
fn with_children(proc: &Path, mut found: Vec<u32>) -> Vec<u32> {
    let mut known: HashSet<u32> = found.iter().copied().collect();
    let mut at = 0;
    // One more than the limit shows that the limit was reached.
    while let Some(&pid) = found.get(at).filter(|_| found.len() <= PROCESSES_MAX) {
        at += 1;
        for tid in numbers_in(&proc.join(format!("{pid}/task"))) {
            let children = fs::read_to_string(proc.join(format!("{pid}/task/{tid}/children")));
            let children = children.unwrap_or_default();
            found.extend(
                children.split_whitespace().filter_map(|child| child.parse().ok()).filter(|&c| known.insert(c)),
            );
        }
    }
    found
}

/// At most this many processes, with one row each; further processes are a gap.
pub(super) const PROCESSES_MAX: usize = 256;
/// The shortest interval between two readings. The interval is also at least `PERIOD_PER_LOOK` times the duration of a
/// reading, so that reading takes less than one percent of the time.
const PERIOD_NS: u64 = 200_000_000;
const PERIOD_PER_LOOK: u64 = 100;

/// Counters of one thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    cpu_ns: u64,
    run_delay_ns: u64,
    minor_faults: u64,
    major_faults: u64,
    delays: Option<Delays>,
}

/// Reads the accounts of a target's threads.
#[derive(Debug)]
pub struct Tasks {
    watched: Watched,
    root: PathBuf,
    asker: Option<Asker>,
    /// Counts of each thread at the last reading: the sums must not fall when a thread ends.
    last: HashMap<u32, Counts>,
    sums: BTreeMap<u32, (String, Counts)>,
    due_ns: u64,
    /// What was not read.
    gaps: GapsOnce,
}

impl Tasks {
    /// Returns the reader, and a gap if delay accounting is not available.
    #[must_use]
    pub fn watch(watched: Watched) -> (Option<Tasks>, Vec<Gap>) {
        let (asker, gap) = match Asker::new() {
            Ok(asker) => (Some(asker), None),
            Err(why) => (None, Some(Gap::new(delays::WHAT, why.to_string(), delays::REMEDY))),
        };
        (Some(Tasks::at(watched, Path::new("/"), asker)), gap.into_iter().collect())
    }

    fn at(watched: Watched, root: &Path, asker: Option<Asker>) -> Tasks {
        let root = root.join("proc");
        Tasks {
            watched,
            root,
            asker,
            last: HashMap::new(),
            sums: BTreeMap::new(),
            due_ns: 0,
            gaps: GapsOnce::default(),
        }
    }

    /// Updates the list of own threads, which start during the run.
    pub fn follow_threads(&mut self, threads: impl FnOnce() -> Vec<u32>) {
        if let Watched::Threads(tids) = &mut self.watched {
            *tids = threads();
        }
    }

    pub fn add_process(&mut self, pid: u32) {
        self.watched.add_process(pid);
    }

    /// One row per process (per thread for own threads), if the next reading is due.
    pub fn sample(&mut self, at_ns: u64, now_ns: impl Fn() -> u64) -> Option<Series> {
        if at_ns < self.due_ns {
            return None;
        }
        let mut series = Series::new(Table::Workload);
        let (threads, unlisted) = self.watched.threads(&self.root);
        self.gaps.extend(unlisted);
        for (owner, tids) in threads {
            self.add(owner, &tids);
        }
        for (owner, (name, counts)) in &self.sums {
            series.record(at_ns, &Entity::named(&format!("{name}({owner})")), &columns(counts));
        }
        if series.is_empty() {
            return None;
        }
        let look_ns = now_ns().saturating_sub(at_ns);
        self.due_ns = at_ns + PERIOD_NS.max(look_ns.saturating_mul(PERIOD_PER_LOOK));
        Some(series)
    }

    /// The processes that are not read; each gap once.
    pub fn missing(&mut self) -> Vec<Gap> {
        self.gaps.take()
    }

    fn add(&mut self, owner: u32, tids: &[u32]) {
        if !self.sums.contains_key(&owner) && self.sums.len() >= PROCESSES_MAX {
            let why = format!("the accounts of at most {PROCESSES_MAX} processes are read");
            self.gaps.extend([Gap::new("accounts of further processes", why, "select fewer processes")]);
            return;
        }
        for &tid in tids {
            let Some((name, now)) = self.counts(owner, tid) else { continue };
            let before = self.last.insert(tid, now).unwrap_or_default();
            let (known, sum) = self.sums.entry(owner).or_default();
            if known.is_empty() || tid == owner {
                *known = name;
            }
            *sum = sum.plus(&now.minus(&before));
        }
    }

    fn counts(&self, owner: u32, tid: u32) -> Option<(String, Counts)> {
        let owner = if matches!(self.watched, Watched::Threads(_)) { "self".to_owned() } else { owner.to_string() };
        let place = self.root.join(owner).join("task").join(tid.to_string());
        let stat = fs::read_to_string(place.join("stat")).ok()?;
        let (name, minor_faults, major_faults) = of_stat(&stat)?;
        let schedstat = fs::read_to_string(place.join("schedstat")).ok()?;
        let Scheduled { cpu_ns, run_delay_ns } = Scheduled::parse(&schedstat)?;
        let delays = self.asker.as_ref().and_then(|asker| asker.delays_of(tid));
        Some((name.to_owned(), Counts { cpu_ns, run_delay_ns, minor_faults, major_faults, delays }))
    }
}

/// Gaps that are found again and again, each returned once.
#[derive(Debug, Default)]
pub(super) struct GapsOnce {
    new: Vec<Gap>,
    known: HashSet<String>,
}

impl GapsOnce {
    pub(super) fn extend(&mut self, gaps: impl IntoIterator<Item = Gap>) {
        self.new.extend(gaps.into_iter().filter(|gap| self.known.insert(gap.what.clone())));
    }

    pub(super) fn take(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.new)
    }
}

/// Time of a thread on a CPU, and waiting for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    pub cpu_ns: u64,
    pub run_delay_ns: u64,
}

impl Scheduled {
    /// Parses `/proc/PID/task/TID/schedstat`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Scheduled> {
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        Some(Scheduled { cpu_ns: numbers.next()?, run_delay_ns: numbers.next()? })
    }
}

/// Parses name, minor and major faults: fields 2, 10 and 12 in proc(5). The name may contain any character, even `)`
/// and spaces.
pub(super) fn of_stat(text: &str) -> Option<(&str, u64, u64)> {
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = after.split_whitespace().skip(7);
    let minor = fields.next()?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some((name, minor, major))
}

fn numbers_in(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

impl Counts {
    fn with(&self, other: &Counts, of: fn(u64, u64) -> u64) -> Counts {
        let delays = self.delays.map(|ours| ours.with(&other.delays.unwrap_or_default(), of));
        Counts {
            cpu_ns: of(self.cpu_ns, other.cpu_ns),
            run_delay_ns: of(self.run_delay_ns, other.run_delay_ns),
            minor_faults: of(self.minor_faults, other.minor_faults),
            major_faults: of(self.major_faults, other.major_faults),
            delays,
        }
    }

    fn minus(&self, before: &Counts) -> Counts {
        // A thread id may have been reused by a thread that started from 0.
        self.with(before, u64::saturating_sub)
    }

    fn plus(&self, more: &Counts) -> Counts {
        let delays = self.delays.or(more.delays.map(|_| Delays::default()));
        Counts { delays, ..*self }.with(more, u64::saturating_add)
    }
}

fn columns(counts: &Counts) -> Vec<(Column, Option<i64>)> {
    let cell = |column: Column, value: u64| (column, i64::try_from(value).ok());
    let mut cells = vec![
        cell(workload::CPU_NS, counts.cpu_ns),
        cell(workload::RUN_DELAY_NS, counts.run_delay_ns),
        cell(workload::MINOR_FAULTS, counts.minor_faults),
        cell(workload::MAJOR_FAULTS, counts.major_faults),
    ];
    cells.extend(counts.delays.iter().flat_map(Delays::columns).map(|(column, ns)| cell(column, ns)));
    cells
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{PERIOD_NS, PROCESSES_MAX, Tasks, Watched, of_stat};
    use flatwater_recording::{Entity, Series};

    fn thread(root: &Path, pid: u32, tid: u32, children: &str, schedstat: &str) {
        let place = root.join(format!("proc/{pid}/task/{tid}"));
        fs::create_dir_all(&place).expect("made");
        let stat = format!("{tid} (a) b) S 1 1 1 0 -1 4194560 300 0 20 0 5 6 0 0 20 0 1 0 100 0 0\n");
        for (file, text) in [("stat", stat.as_str()), ("schedstat", schedstat), ("children", children)] {
            fs::write(place.join(file), text).expect("written");
        }
    }

    fn last(series: &Series, name: &str, column: &str) -> Option<i64> {
        series.rows_of(&Entity::named(name))?.last(column)
    }

    #[test]
    fn sums_do_not_fall_when_a_thread_ends_and_children_are_found() {
        let place = tempfile::tempdir().expect("a directory");
        thread(place.path(), 7, 7, "9 \n", "1000 50 3\n");
        thread(place.path(), 7, 8, "\n", "500 20 3\n");
        thread(place.path(), 9, 9, "7 \n", "10 1 1\n");
        let mut tasks = Tasks::at(Watched::processes(&[7]), place.path(), None);
        let first = tasks.sample(1, || 1).expect("due");
        assert_eq!((last(&first, "a) b(7)", "run_delay_ns"), last(&first, "a) b(9)", "cpu_ns")), (Some(70), Some(10)));
        assert_eq!(last(&first, "a) b(7)", "major_faults"), Some(40));
        assert!(first.column("block_io_delay_ns").is_none(), "no delay accounting");
        assert!(tasks.sample(2, || 2).is_none(), "not due");
        fs::remove_dir_all(place.path().join("proc/7/task/8")).expect("it ended");
        thread(place.path(), 7, 7, "\n", "1100 60 3\n");
        let second = tasks.sample(1 + PERIOD_NS, || 1 + PERIOD_NS).expect("due");
        assert_eq!(
            (last(&second, "a) b(7)", "cpu_ns"), last(&second, "a) b(7)", "run_delay_ns")),
            (Some(1600), Some(80))
        );
    }

    #[test]
    fn a_slow_reading_postpones_the_next_one() {
        let place = tempfile::tempdir().expect("a directory");
        thread(place.path(), 7, 7, "\n", "1000 50 3\n");
        let mut tasks = Tasks::at(Watched::processes(&[7]), place.path(), None);
        assert!(tasks.sample(0, || 10_000_000).is_some());
        assert!(tasks.sample(999_999_999, || 999_999_999).is_none());
        assert!(tasks.sample(1_000_000_000, || 1_000_000_000).is_some());
    }

    /// H7: further processes were left out silently.
    #[test]
    fn processes_beyond_the_limit_are_a_gap() {
        let place = tempfile::tempdir().expect("a directory");
        let last = PROCESSES_MAX as u32;
        for pid in 1..=last + 1 {
            // Each process is the parent of the next one.
            thread(place.path(), pid, pid, &format!("{}\n", pid + 1), "1000 50 3\n");
        }
        thread(place.path(), last, last, "\n", "1000 50 3\n");
        let mut tasks = Tasks::at(Watched::processes(&[1]), place.path(), None);
        assert_eq!(tasks.sample(1, || 1).expect("due").len(), PROCESSES_MAX);
        assert!(tasks.missing().is_empty(), "exactly as many as the limit");
        thread(place.path(), last, last, &format!("{}\n", last + 1), "1000 50 3\n");
        assert_eq!(tasks.sample(1 + PERIOD_NS, || 1 + PERIOD_NS).expect("due").len(), PROCESSES_MAX);
        assert_eq!(tasks.missing().first().expect("one more").what, "accounts of further processes");
        tasks.sample(1 + 2 * PERIOD_NS, || 1 + 2 * PERIOD_NS).expect("due");
        assert!(tasks.missing().is_empty(), "reported once");
    }

    /// A process that began later and got the id of one that has ended was taken for it.
    #[test]
    fn a_process_with_a_reused_id_is_not_watched() {
        let place = tempfile::tempdir().expect("a directory");
        for pid in [7, 9] {
            thread(place.path(), pid, pid, "\n", "1000 50 3\n");
        }
        let mut watched = Watched::processes(&[7, 9]);
        let pids = |watched: &mut Watched| -> Vec<u32> {
            watched.threads(&place.path().join("proc")).0.into_iter().map(|(pid, _)| pid).collect()
        };
        assert_eq!(pids(&mut watched), [7, 9]);
        let stat = place.path().join("proc/9/task/9/stat");
        let other = fs::read_to_string(&stat).expect("readable").replace(" 100 ", " 101 ");
        fs::write(&stat, other).expect("written");
        assert_eq!(pids(&mut watched), [7]);
    }

    /// A threaded cgroup refuses with EOPNOTSUPP to list its processes, and the target seemed to have none.
    #[test]
    fn processes_that_a_cgroup_does_not_list_are_a_gap() {
        let place = tempfile::tempdir().expect("a directory");
        thread(place.path(), 7, 7, "\n", "1000 50 3\n");
        let (group, file) = (place.path().join("group"), place.path().join("group/cgroup.procs"));
        let mut tasks = Tasks::at(Watched::Cgroup(group), place.path(), None);
        assert!(tasks.sample(1, || 1).is_none());
        assert!(tasks.missing().is_empty(), "the cgroup is gone");
        fs::create_dir_all(&file).expect("it cannot be read as a file");
        assert!(tasks.sample(1, || 1).is_none());
        let gap = tasks.missing().remove(0);
        assert!(gap.why.contains("cgroup.procs: Is a directory"), "{gap:?}");
        fs::remove_dir(&file).expect("removed");
        fs::write(&file, "0\n7\n0\n").expect("written");
        let mut tasks = Tasks::at(tasks.watched, place.path(), None);
        assert_eq!(tasks.sample(1, || 1).expect("the visible one").len(), 1);
        let gap = tasks.missing().remove(0);
        assert!(gap.why.contains("2 of 3 are in another PID namespace"), "{gap:?}");
    }

    #[test]
    fn a_malformed_stat_is_ignored() {
        assert_eq!(of_stat(""), None);
        assert_eq!(of_stat("7 (x"), None);
        assert_eq!(of_stat("7 (x) S 1 2"), None);
    }

    #[test]
    fn own_threads_are_read() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let mut tasks = Tasks::at(Watched::Threads(vec![tid]), Path::new("/"), None);
        let Some(series) = tasks.sample(1, || 1) else {
            assert!(!Path::new("/proc/self/schedstat").exists(), "an own thread has a row");
            return;
        };
        assert_eq!(series.len(), 1);
    }
}
