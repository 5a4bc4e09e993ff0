//! synchronous-read: the call waits for data or metadata from the device.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{Column, cpu, disks, vmstat, workload};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, OpKind, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "synchronous-read",
    span: Some(Cause::SynchronousRead),
    headline: "the call waits for a read from the device: what it needs is not in the page cache",
    mechanism: "A read() or fault that misses the page cache waits in folio_wait_locked (wait_on_page_bit before \
        5.16; mm/filemap.c). A write() may read too: of a partial page that exists on disk and is not cached \
        (block_write_begin, ext4_block_write_begin, iomap_write_begin), and of metadata, extent and bitmap blocks \
        (__wait_on_buffer). Pages that were prefetched but evicted before use look the same: the process that read \
        ahead paid, and the writer pays again.",
    kernels: "All.",
    in_spans: "Measured: a sleep in folio_wait_bit, wait_on_page_bit, __wait_on_buffer or io_schedule below a read \
        path.",
    in_counters: "pgpgin and pgmajfault rise during a workload that only writes; workingset_refault_file (4.20 \
        workingset_refault before) rises: what was evicted is read again.",
    against: "pgpgin does not rise.",
    fix: "For writes: write whole pages, or keep the file's tail locked in memory (mlock the window; `--set \
        precursor=window`). For reads: readahead, more cache, or less of others' cache. Against eviction only a \
        lock or private memory helps.",
    prove: "pgpgin and the share fall together when whole pages are written.",
    sources: &["mm/filemap.c: folio_wait_bit_common", "fs/buffer.c: __block_write_begin_int, __wait_on_buffer"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let Some(sum) = facts.significant(Cause::SynchronousRead) else { return from_disks(facts) };
    let write_ns = sum.by_op_ns.get(&OpKind::Write).copied().unwrap_or(0);
    let mut finding = Finding::from_spans(facts, sum, ENTRY.headline);
    if facts.page_reads_ns > 0 {
        let text = format!(
            "{} were spent waiting for the lock of a page (__filemap_get_folio): a page stays locked until its read \
                ends, and writes also had to read pages themselves, so that most likely a read that another thread or \
                readahead began had the lock",
            Nanos(facts.page_reads_ns)
        );
        finding.evidence.push(Evidence::new(text, facts.page_reads_ns as f64, "ns"));
    }
    if write_ns > sum.lost_ns / 2 {
        finding.headline =
            "write() must read first: a page that it changes partly, or its metadata, is not in the page cache"
                .to_owned();
        finding =
            finding.fix(Fix::knob("keep the pages ahead of the writer locked in memory", knob!("precursor"), "window"));
        finding = finding.fix(Fix::advice("write whole pages (4 KiB, aligned): nothing must then be read first"));
    } else {
        finding = finding
            .fix(Fix::advice("read ahead (readahead, posix_fadvise WILLNEED), or keep the hot part locked (mlock)"));
    }
    Some(finding)
}

/// Minimum share of reads in a busy device's bytes and requests, so that waits there are waits for reads.
const READS_SHARE_MIN: f64 = 0.95;
/// Bounds of the mean queue: a read is under way nearly all the time, but few at once.
const QUEUE_MIN: f64 = 0.5;
const QUEUE_MAX: f64 = 8.0;
/// Minimum mean time per read, ms.
const READ_MS_MIN: f64 = 1.0;
/// Minimum share of CPU time in iowait, or of a program's time waiting for I/O.
const IOWAIT_MIN: f64 = 0.1;
const DELAY_MIN: f64 = 0.5;

/// For logs: a device busy with reads one after another, hardly any writes and little swapping, while some task
/// waits.
fn from_disks(facts: &Facts<'_>) -> Option<Finding> {
    facts.recording.header.import.as_ref().filter(|_| facts.may_infer_place())?;
    let disk = facts.busy_disks().into_iter().find(|disk| disk.lasting())?;
    let mean = |column: Column| facts.rate(column, &disk.device).mean();
    let (reads, writes) = (mean(disks::READS)?, mean(disks::WRITES)?);
    let (bytes, written) = (mean(disks::READ_BYTES)?, mean(disks::WRITE_BYTES)?);
    let only_reads = reads >= READS_SHARE_MIN * (reads + writes) && bytes >= READS_SHARE_MIN * (bytes + written);
    let read_ms = disk.read_await_ms.filter(|ms| *ms >= READ_MS_MIN)?;
    let one_by_one = (QUEUE_MIN..=QUEUE_MAX).contains(&disk.queue);
    let page_bytes = facts.recording.header.machine.page_size_bytes() as f64;
    let swapped = facts.vmstat_rate(vmstat::PSWPIN).mean().unwrap_or(0.0) * page_bytes;
    let waited = waits(facts)?;
    if !only_reads || !one_by_one || swapped >= 0.5 * bytes {
        return None;
    }
    let text = format!(
        "{} does {reads:.0} reads a second, {read_ms:.1} ms each, with {:.1} under way on average, and {writes:.0} \
         writes",
        disk.device, disk.queue
    );
    let headline =
        "a device is busy with a few reads at a time: a program may read block after block and wait for each";
    let finding =
        Finding::inferred(CauseId::SynchronousRead, 0.5, headline).with([Evidence::new(text, read_ms, "ms"), waited]);
    let finding = finding.but([Evidence::statement("a program that copies files reads in the same way, without harm")]);
    let finding = finding.fix(Fix::advice(
        "find the reader (`pidstat -d 1`): an index instead of a scan, more cache, or reading ahead (posix_fadvise \
         WILLNEED)",
    ));
    Some(finding.settle("`pidstat -d 1` and `biosnoop` while it is slow: who reads, and how long each read takes"))
}

/// Evidence that some task waits for I/O.
fn waits(facts: &Facts<'_>) -> Option<Evidence> {
    let wait = facts.cpu_share(cpu::IOWAIT_NS).mean().filter(|share| *share >= IOWAIT_MIN);
    let waited = wait.map(|share| {
        Evidence::new(format!("CPUs waited for I/O {:.0} % of the time", share * 100.0), share * 100.0, "%")
    });
    let table = facts.recording.table(Table::Workload);
    let delayed = table.into_iter().flat_map(|table| table.entities()).find_map(|entity| {
        let share = facts.rate(workload::IO_DELAY_NS, &entity.name).mean()? / 1e9;
        let text = format!("{} waited for I/O {:.0} % of the time", entity.name, share * 100.0);
        (share >= DELAY_MIN).then(|| Evidence::new(text, share * 100.0, "%"))
    });
    let blocked = facts.blocked().mean().filter(|blocked| *blocked >= 1.0);
    waited.or(delayed).or_else(|| {
        blocked
            .map(|blocked| Evidence::new(format!("{blocked:.1} threads were blocked on average"), blocked, "threads"))
    })
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Cause, Entity, OpKind, Source, Table};

    /// A busy device with this many reads and writes a second, 10 ms each, and this much iowait.
    fn busy(reads: i64, writes: i64, wait_percent: i64) -> RecordingBuilder {
        let columns = [
            ("io_ns", rising(980_000_000, 5)),
            ("reads", rising(reads, 5)),
            ("writes", rising(writes, 5)),
            ("read_ns", rising(reads * 10_000_000, 5)),
            ("write_ns", rising(writes * 10_000_000, 5)),
            ("read_bytes", rising(reads * 65_536, 5)),
            ("write_bytes", rising(writes * 65_536, 5)),
            ("queue_ns", rising((reads + writes) * 10_000_000, 5)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        let (wait, idle) = (rising(wait_percent * 10_000_000, 5), rising((100 - wait_percent) * 10_000_000, 5));
        let builder = RecordingBuilder::new().counters(Table::Disks, &Entity::named("sda"), &columns);
        let builder = builder.counters(Table::Cpu, &Entity::named("all"), &[("iowait_ns", &wait), ("idle_ns", &idle)]);
        builder.edit(|recording| {
            recording.header.source = Source::Import;
            recording.header.import = Some(Default::default());
        })
    }

    #[test]
    fn a_device_busy_with_awaited_reads_is_named() {
        let finding = busy(120, 1, 40).found(&ENTRY).expect("120 reads a second");
        assert!(
            finding.weight < 0.6 && evidence_text(&finding).contains("10.0 ms each"),
            "{}",
            evidence_text(&finding)
        );
        assert!(finding.headline.contains("may read"), "several programs look the same: {}", finding.headline);
        assert!(busy(120, 1, 3).found(&ENTRY).is_none(), "no task waits");
        assert!(busy(60, 60, 40).found(&ENTRY).is_none(), "as many writes");
        assert!(busy(2_000, 0, 40).found(&ENTRY).is_none(), "many reads at once");
    }

    #[test]
    fn a_write_that_reads_differs_from_a_read() {
        let write = RecordingBuilder::new()
            .slow(OpKind::Write, &[(Cause::SynchronousRead, 20.0)])
            .found(&ENTRY)
            .expect("20 ms");
        let read =
            RecordingBuilder::new().slow(OpKind::Read, &[(Cause::SynchronousRead, 20.0)]).found(&ENTRY).expect("20 ms");
        assert!(write.headline.starts_with("write() must read first"));
        assert_eq!(read.headline, ENTRY.headline);
    }

    #[test]
    fn a_few_short_reads_are_nothing() {
        assert!(RecordingBuilder::new().slow(OpKind::Read, &[(Cause::SynchronousRead, 1.2)]).found(&ENTRY).is_none());
    }
}
