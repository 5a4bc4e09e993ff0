//! completion-work: the device had done an asynchronous operation, and the kernel had not completed it.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "completion-work",
    span: Some(Cause::CompletionWork),
    headline: "the device had done asynchronous direct I/O, and the kernel had not completed the operation",
    mechanism: "A direct write to unwritten extents or beyond the end of the file is completed by a worker of the kernel \
        (ext4-rsv-conversion, xfs-conv, dio): it starts a transaction and converts the extents, and with O_DSYNC it syncs \
        as well. The worker waits for a CPU and for the journal like any thread.",
    kernels: "All with direct I/O of io_uring or libaio.",
    in_spans: "From the completion of the operation's last request to the completion of the operation, while its thread \
        slept for one completion: by elimination.",
    in_counters: "None: no counter of the kernel shows it.",
    against: "The thread waited for several completions, or did not sleep for any: then it is completion-wait.",
    fix: "Write over blocks that were written before (preallocate with zeros, not with fallocate alone), keep CPUs free \
        for the kernel's workers.",
    prove: "Write the file once with zeros and repeat: the time falls to zero.",
    sources: &[
        "fs/ext4/page-io.c: ext4_end_io_rsv_work",
        "fs/xfs/xfs_aops.c: xfs_end_io",
        "fs/iomap/direct-io.c: iomap_dio_complete_work",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::advice("fill the file with zeros once, so that no write has to convert unwritten extents"),
        Fix::advice("keep a CPU free for the kernel's workers (cpuset, a lower weight for busy programs)"),
    ];
    finding::from_spans(facts, Cause::CompletionWork, ENTRY.headline, fixes)
}
