//! device-wait: the call waits for the device, and the reason was not observed.

use super::{CauseEntry, device_slow};
use crate::facts::Facts;
use crate::server::Server;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "device-wait",
    span: Some(Cause::DeviceWait),
    headline: "the call waits for the device; why that takes so long was not observed",
    mechanism: "A thread that sleeps in io_schedule (kernel/sched/core.c) waits for a request, and so do the waiters \
        of a buffer (__wait_on_buffer, fs/buffer.c), of a page's bit (folio_wait_bit_common, mm/filemap.c) and of a \
        bio (submit_bio_wait, block/bio.c). The stack ends the same way for a read, for a write under way, for a \
        request that still waits in the queue behind another process's, and for a device that is slow. Only the \
        interval between issue and completion of the awaited request distinguishes a slow device from a long queue.",
    kernels: "All.",
    in_spans: "A sleep whose stack shows only how it waits (io_schedule, __wait_on_buffer, folio_wait_bit_common, \
        submit_bio_wait, the wait of a network file system), and no function that shows what for. Its length is \
        measured; the reason is not known.",
    in_counters: "None: /proc/diskstats shows a slow device (device-slow) or a long queue \
        (device-queue-starved).",
    against: "The device answers in its usual time, and its queue is short.",
    fix: "None before the reason is known. A long queue is fixed at the process that fills it, a slow device by a \
        faster one.",
    prove: "`iostat -x 1` while it is slow: a long await with aqu-sz near 1 is the device, a large aqu-sz is the \
        queue; or block:block_rq_issue and block:block_rq_complete of the awaited request. On a network file system \
        the client's own counts (nfsiostat: RTT against execution time), and the same recording on the server.",
    sources: &[
        "kernel/sched/core.c: io_schedule",
        "fs/buffer.c: __wait_on_buffer",
        "mm/filemap.c: folio_wait_bit_common",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let sum = facts.significant(Cause::DeviceWait)?;
    let mut finding = Finding::from_spans(facts, sum, ENTRY.headline);
    // The length is measured. That the device was slow, and not its queue or a read, is not.
    finding.weight = finding.weight.min(0.7);
    if let Some(server) = Server::awaited(facts, Cause::DeviceWait) {
        finding.headline =
            format!("the call waits for {}; why the answer takes so long was not observed", server.name());
        let against = "the network, the server and its disk all look like this from the client";
        return Some(finding.but([Evidence::statement(against)]).settle(server.settle()));
    }
    finding = match device_slow::slow_disk(facts) {
        Some(evidence) => finding.with([evidence]).fix(Fix::advice(
            "if the calls waited for this device, it was slow itself: see device-slow, and test the idle device with \
             fio at queue depth 1",
        )),
        None => finding.but([Evidence::statement(
            "the interval from issue to completion of the requests was not recorded: a slow device, a long queue and \
             a read by another thread all look like this",
        )]),
    };
    Some(finding.settle(
        "`iostat -x 1` while it is slow (await against aqu-sz), or `perf trace -e 'block:block_rq_*'` on the device",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::cause::{device_slow, synchronous_read};
    use crate::testing::{RecordingBuilder, rising};
    use flatwater_recording::symbol::meaning;
    use flatwater_recording::{CauseBasis, DurationBasis, Entity, OpKind, Table};

    /// A slow write whose time was spent in this stack.
    fn asleep_in(frames: &[&str]) -> RecordingBuilder {
        let known = meaning(frames).expect("a known frame");
        let builder = RecordingBuilder::new().slow(OpKind::Write, &[(known.cause, 40.0)]).stack(frames);
        builder.edit(|recording| recording.calls[0].segments[0].cause_basis = CauseBasis::Stack)
    }

    #[test]
    fn an_unknown_sleep_for_io_accuses_neither_the_device_nor_a_read() {
        for frames in [
            &["schedule", "io_schedule", "some_file_system_wait", "vfs_write"][..],
            &["schedule", "io_schedule", "__wait_on_buffer", "some_file_system_write", "vfs_write"],
            &["schedule", "submit_bio_wait", "some_driver_flush", "vfs_write"],
        ] {
            let finding = asleep_in(frames).found(&ENTRY).unwrap_or_else(|| panic!("{frames:?}"));
            assert_eq!(finding.duration_basis, DurationBasis::Measured);
            assert_eq!(finding.cause_basis, CauseBasis::Stack);
            assert!(finding.weight <= 0.7 && !finding.against.is_empty(), "{finding:?}");
            assert!(asleep_in(frames).found(&device_slow::ENTRY).is_none(), "{frames:?}");
            assert!(asleep_in(frames).found(&synchronous_read::ENTRY).is_none(), "{frames:?}");
        }
    }

    #[test]
    fn a_slow_device_may_be_another_one() {
        let columns = [
            ("reads", rising(20, 8)),
            ("writes", rising(0, 8)),
            ("read_ns", rising(20 * 120_000_000, 8)),
            ("write_ns", rising(0, 8)),
            ("io_ns", rising(980_000_000, 8)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        let frames = ["schedule", "io_schedule", "some_file_system_wait", "vfs_write"];
        let finding = asleep_in(&frames).counters(Table::Disks, &Entity::named("sda"), &columns).found(&ENTRY);
        let finding = finding.expect("40 ms");
        assert!(finding.fixes.iter().any(|fix| fix.text.starts_with("if the calls waited for this device")));
    }

    #[test]
    fn a_wait_below_a_read_is_a_read() {
        let frames = ["io_schedule", "__wait_on_buffer", "__bread_gfp", "ext4_write_begin", "vfs_write"];
        assert!(asleep_in(&frames).found(&synchronous_read::ENTRY).is_some());
        assert!(asleep_in(&frames).found(&ENTRY).is_none());
    }
}
