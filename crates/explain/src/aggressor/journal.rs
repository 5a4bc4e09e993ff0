//! Tells whose changes a journal's commit writes: where a file system writes much metadata, by the processes that
//! changed its inodes.

use std::collections::{BTreeMap, HashMap};

use super::charge::Stake;
use super::links::{Links, is_kernel, most};
use crate::sums::add_to;
use flatwater_recording::{OpKind, QueueOwner, Recording, RequestOp, Task};

/// Metadata written per second up to which the owners of the changes do not matter, since a commit costs its writes
/// and flushes in any case. Chosen, not measured.
const USUAL_BYTES_PER_S: f64 = 1024.0 * 1024.0;
/// A commit also writes changes made before it began.
const BEFORE_NS: u64 = 1_000_000_000;
/// Calls of the target that change an inode each time. The kernel reports only inodes changed by other processes.
const CHANGES: &[OpKind] = &[
    OpKind::Fsync,
    OpKind::Fdatasync,
    OpKind::Fallocate,
    OpKind::Truncate,
    OpKind::Create,
    OpKind::Rename,
    OpKind::Unlink,
    OpKind::Mkdir,
    OpKind::Link,
    OpKind::Symlink,
    OpKind::UringFsync,
    OpKind::AioFsync,
];

/// Inode changes and metadata writes, by interval.
#[derive(Debug, Default)]
pub struct Journals<'a> {
    intervals: BTreeMap<u64, Interval<'a>>,
    width_ns_max: u64,
}

#[derive(Debug, Default)]
struct Interval<'a> {
    width_ns: u64,
    /// Inodes that each program of a cgroup changed, with one of the program's processes.
    inodes: HashMap<(&'a str, Option<&'a str>), (&'a Task, u64)>,
    /// Changes by calls of the target.
    own: u64,
    /// Bytes of metadata that each device wrote.
    metadata: HashMap<&'a str, u64>,
}

/// What commits wrote in an interval.
#[derive(Clone, Debug)]
pub struct Content<'a> {
    /// Stake of the metadata written beyond the usual rate, 0 to 1.
    pub beyond_usual: f64,
    /// Inodes changed by each process outside the target.
    pub others: Vec<Stake<'a>>,
    pub own: u64,
}

impl<'a> Journals<'a> {
    #[must_use]
    pub fn of(recording: &'a Recording, is_own: impl Fn(&Task) -> bool) -> Journals<'a> {
        let mut journals = Journals::default();
        for row in recording.dirtiers.iter().filter(|row| row.inode.is_some() && !is_kernel(&row.owner)) {
            let interval = journals.interval(row.start_ns, row.width_ns);
            if is_own(&row.owner) {
                add_to(&mut interval.own, 1);
                continue;
            }
            let who = (row.owner.name.as_str(), row.owner.cgroup.as_deref());
            add_to(&mut interval.inodes.entry(who).or_insert((&row.owner, 0)).1, 1);
        }
        if journals.intervals.is_empty() {
            return journals;
        }
        for row in recording.queue_owners.iter().filter(|row| is_metadata(row)) {
            let written = journals.interval(row.start_ns, row.width_ns).metadata.entry(&row.device).or_default();
            *written = written.saturating_add(row.bytes);
        }
        for bucket in recording.latency.iter().filter(|bucket| CHANGES.contains(&bucket.op)) {
            // Intervals of both tables end together, except the last one: assign by the middle.
            let middle_ns = bucket.start_ns.saturating_add(bucket.width_ns / 2);
            if let Some((_, interval)) = journals.intervals.range_mut(..=middle_ns).next_back() {
                interval.own = interval.own.saturating_add(bucket.from_start.count());
            }
        }
        journals
    }

    fn interval(&mut self, start_ns: u64, width_ns: u64) -> &mut Interval<'a> {
        self.width_ns_max = self.width_ns_max.max(width_ns);
        let interval = self.intervals.entry(start_ns).or_default();
        interval.width_ns = interval.width_ns.max(width_ns);
        interval
    }

    /// What this device's journal wrote in an interval; `None` if that was no more than usual, or if no process is
    /// known to have changed inodes.
    #[must_use]
    pub fn content(&self, links: &Links<'_>, device: &str, (from_ns, to_ns): (u64, u64)) -> Option<Content<'a>> {
        let from_ns = from_ns.saturating_sub(BEFORE_NS);
        let first_ns = from_ns.saturating_sub(self.width_ns_max);
        let (mut bytes, mut ns) = (0_u64, 0_u64);
        let mut content = Content { beyond_usual: 0.0, others: Vec::new(), own: 0 };
        let mut inodes: HashMap<(&str, Option<&str>), (&Task, u64)> = HashMap::new();
        for (start_ns, interval) in self.intervals.range(first_ns..to_ns.max(first_ns)) {
            if !links.spend(interval.inodes.len().saturating_add(1)) {
                break;
            }
            if start_ns.saturating_add(interval.width_ns) <= from_ns {
                continue;
            }
            ns = ns.saturating_add(interval.width_ns);
            bytes = bytes.saturating_add(interval.metadata.get(device).copied().unwrap_or(0));
            content.own = content.own.saturating_add(interval.own);
            for (who, (task, count)) in &interval.inodes {
                let sum = &mut inodes.entry(*who).or_insert((task, 0)).1;
                *sum = sum.saturating_add(*count);
            }
        }
        content.others = most(inodes.into_values().map(|(task, count)| (task, count, None)).collect());
        let per_s = bytes as f64 / (ns.max(1) as f64 / 1e9);
        content.beyond_usual = ((per_s - USUAL_BYTES_PER_S) / per_s.max(1.0)).max(0.0);
        (content.beyond_usual > 0.0 && !content.others.is_empty()).then_some(content)
    }
}

/// Whether these are writes by kernel threads to no file's pages: a journal's, or a file system's own blocks.
fn is_metadata(row: &QueueOwner) -> bool {
    let of_kernel = row.owner.as_ref().is_none_or(|owner| is_kernel(owner) || owner.is_only_a_cgroup());
    row.op == RequestOp::Write && row.inode.is_none() && of_kernel
}
