//! orphaned-buffers: the buffer cache grows with buffers that can no longer be looked up.

use super::{CauseEntry, CauseId};
use crate::counters::{Point, Track};
use crate::facts::Facts;
use crate::sums::total;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::Cause;
use flatwater_recording::schema::{cpu, meminfo, vmstat};
use flatwater_recording::units::Bytes;

/// Buffers must have grown by this share of memory during the log ...
const GROWTH_SHARE_MIN: f64 = 0.25;
/// ... and free memory must have fallen to this share; otherwise they are a cache that fills.
const FREE_SHARE_MAX: f64 = 0.05;
/// If the page cache grew by more than this share of the buffers' growth, it explains the shortage.
const CACHED_PER_BUFFERS_MAX: f64 = 0.5;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "orphaned-buffers",
    span: None,
    headline: "the buffer cache fills memory with blocks that cannot be looked up again, and needed blocks are read \
        again",
    mechanism: "bforget (fs/buffer.c) in 2.2.0 to 2.2.4 removed a freed metadata buffer from the hash but left it, \
        clean and without a key, on an LRU list instead of the free list. getblk then takes a fresh buffer for each \
        block that a file system reuses: every create and unlink loses one. shrink_mmap (mm/filemap.c) can free such \
        pages, but it takes hot metadata as readily, so inode tables and directories are read again and again. The \
        signature is the same wherever buffers are kept that can no longer be looked up.",
    kernels: "2.2.0 to 2.2.4; fixed in 2.2.5. Later kernels keep buffers inside the page cache; there the same \
        pattern means a leak of buffer heads or a program that reads block devices.",
    in_spans: "",
    in_counters: "buff grows by a large share of memory while cache does not; free falls to the floor; from then on \
        bi (reads) stays up, idle CPU rises and so does the number of blocked threads: work waits for blocks that \
        were in memory before, and are read again.",
    against: "A program that reads a block device or walks a huge tree of files: then bi is high from the start, \
        in step with buff, and few threads are blocked.",
    fix: "Kernels 2.2.0 to 2.2.4: upgrade to 2.2.5 or later. Others: find who holds the buffers (slabtop: \
        buffer_head; /proc/meminfo: Buffers) and drop them (echo 1 > /proc/sys/vm/drop_caches) to see whether they \
        come back.",
    prove: "The same load after an upgrade: buff levels off and bi stays near 0.",
    sources: &[
        "fs/buffer.c: __bforget, getblk, grow_buffers (2.2.1)",
        "mm/filemap.c: shrink_mmap (2.2.1)",
        "Linux 2.2.5: fs/buffer.c: __bforget",
    ],
    find,
};

struct Course {
    buffers: Track,
    grown_bytes: f64,
    memory_bytes: f64,
    free_bytes: f64,
    cached_grown_bytes: f64,
    /// When free memory first was at the floor. Until then nothing had to be evicted.
    full_ns: u64,
}

impl Course {
    /// The points before memory was full; the first third if it was full from the start.
    fn before(&self, track: &Track) -> Track {
        let points: Vec<Point> = track.points.iter().copied().filter(|point| point.at_ns < self.full_ns).collect();
        if points.is_empty() { track.third(false) } else { Track { points } }
    }
}

fn course(facts: &Facts<'_>) -> Option<Course> {
    let [buffers, cached, free] = [meminfo::BUFFERS_BYTES, meminfo::CACHED_BYTES, meminfo::MEM_FREE_BYTES]
        .map(|column| facts.meminfo_level(column));
    let memory_bytes = facts.memory_bytes()?;
    let grown_bytes = buffers.peak()?.value - buffers.first()?;
    let cached_grown_bytes = cached.third(true).mean()? - cached.first()?;
    let free_bytes = free.third(true).mean()?;
    let floor = free.points.iter().find(|point| point.value <= FREE_SHARE_MAX * memory_bytes);
    let full_ns = floor.map_or(0, |point| point.at_ns);
    Some(Course { buffers, grown_bytes, memory_bytes, free_bytes, cached_grown_bytes, full_ns })
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let course = course(facts).filter(|_| facts.may_infer())?;
    let filled = course.grown_bytes >= GROWTH_SHARE_MIN * course.memory_bytes
        && course.free_bytes <= FREE_SHARE_MAX * course.memory_bytes
        && course.cached_grown_bytes <= CACHED_PER_BUFFERS_MAX * course.grown_bytes;
    let [blocked, idle] = [facts.blocked(), facts.cpu_share(cpu::IDLE_NS)];
    let (blocked_early, blocked_late) = (course.before(&blocked).mean()?, blocked.third(true).mean()?);
    let (reads_early, reads_late) = {
        let reads = facts.vmstat_rate(vmstat::PGPGIN);
        (course.before(&reads).mean()?, reads.third(true).mean()?)
    };
    // Full memory alone is a working cache. Threads that wait for reads while CPUs are idle are not.
    let waiting = blocked_late >= 5.0 && blocked_late >= 3.0 * blocked_early && reads_late >= 50.0;
    if !filled || !waiting {
        return None;
    }
    let modern = facts.kernel_from([2, 2, 5]) == Some(true);
    let idle_late = idle.third(true).mean().unwrap_or(0.0);
    let confidence = if modern { 0.5 } else { 0.75 } + if idle_late > 0.3 { 0.1 } else { 0.0 };
    let evidence = [
        Evidence::new(
            format!(
                "buffers grew from {} to {}, {:.0} % of the memory that the log shows; the page cache changed by \
                    {:+.0} MiB",
                Bytes(course.buffers.first()? as u64),
                Bytes(course.buffers.peak()?.value as u64),
                100.0 * course.grown_bytes / course.memory_bytes,
                course.cached_grown_bytes / 1_048_576.0
            ),
            course.grown_bytes,
            "bytes",
        ),
        Evidence::new(
            format!("free memory is down to {} at the end", Bytes(course.free_bytes as u64)),
            course.free_bytes,
            "bytes",
        ),
        Evidence::new(
            format!(
                "reads at the end: {reads_late:.0} KiB/s (while memory had room {reads_early:.0}), although memory \
                    holds ever more buffers"
            ),
            reads_late,
            "KiB/s",
        ),
        Evidence::new(
            format!(
                "threads blocked: {blocked_early:.0} -> {blocked_late:.0} while {:.0} % of CPU time idles",
                idle_late * 100.0
            ),
            blocked_late,
            "threads",
        ),
    ];
    let fix = if modern {
        "find who holds the buffers: slabtop (buffer_head) and /proc/meminfo"
    } else {
        "upgrade to 2.2.5 or later, where bforget puts the buffer on the free list"
    };
    let mut finding =
        Finding::inferred(CauseId::OrphanedBuffers, confidence, ENTRY.headline).with(evidence).fix(Fix::advice(fix));
    if facts.kernel_from([2, 2, 5]) == Some(false) {
        finding.lost_ns = behind_it(facts);
    }
    Some(finding.settle(
        "uname -r: 2.2.0 to 2.2.4 have the bug; elsewhere compare Buffers in /proc/meminfo before and \
     after the load has ended",
    ))
}

/// The time of a kernel with the bug: reading blocks again, reclaim, and the locks held during these.
fn behind_it(facts: &Facts<'_>) -> Option<u64> {
    let consequences = [Cause::SynchronousRead, Cause::DirectReclaim, Cause::Lock, Cause::PageWriteback];
    let lost_ns = total(facts.sums().filter(|sum| consequences.contains(&sum.cause)).map(|sum| sum.lost_ns));
    (lost_ns > 0).then_some(lost_ns)
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, Table};

    const MB: i64 = 1 << 20;

    fn machine(
        buffers: [i64; 6],
        cached: [i64; 6],
        free: [i64; 6],
        blocked: [i64; 6],
        reads_per_s: i64,
    ) -> RecordingBuilder {
        let mb = |levels: [i64; 6]| levels.map(|level| level * MB);
        let levels: [(&str, &[i64]); 3] =
            [("Buffers_bytes", &mb(buffers)), ("Cached_bytes", &mb(cached)), ("MemFree_bytes", &mb(free))];
        let builder = RecordingBuilder::new().gauges(Table::Meminfo, &Entity::default(), &levels);
        let reads = rising(reads_per_s, 7);
        let builder = builder.counters(Table::Vmstat, &Entity::default(), &[("pgpgin", &reads)]);
        builder.gauges(Table::Cpu, &Entity::named("all"), &[("procs_blocked", &blocked)])
    }

    #[test]
    fn buffers_that_displace_everything_are_named() {
        let builder = machine(
            [70, 150, 250, 330, 380, 380],
            [10, 40, 45, 44, 42, 42],
            [400, 300, 190, 100, 4, 3],
            [0, 1, 4, 90, 110, 100],
            400,
        );
        let finding = builder.kernel("2.2.3").found(&ENTRY).expect("orphans");
        assert!(evidence_text(&finding).contains("70 MiB to 380 MiB"), "{}", evidence_text(&finding));
    }

    #[test]
    fn a_cache_that_fills_or_a_busy_machine_is_not() {
        let filling = machine(
            [70, 150, 250, 330, 380, 380],
            [10, 40, 45, 44, 42, 42],
            [400, 300, 190, 100, 4, 3],
            [0, 1, 1, 0, 1, 1],
            90_000,
        );
        assert!(filling.found(&ENTRY).is_none(), "a reader of a block device: few threads are blocked");
        let steady = machine(
            [74, 89, 90, 92, 92, 92],
            [8, 30, 50, 50, 52, 52],
            [410, 330, 300, 300, 290, 300],
            [0, 3, 1, 0, 7, 2],
            20,
        );
        assert!(steady.found(&ENTRY).is_none());
    }
}
