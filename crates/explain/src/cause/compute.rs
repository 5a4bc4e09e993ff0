//! compute: the call was running on a CPU: copying, searching, encrypting.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "compute",
    span: Some(Cause::Compute),
    headline: "the call was running all the time: it is long, not stalled",
    mechanism: "On-CPU time outside waiting and reclaim: copying bytes, walking extent trees, checksums, encryption, \
        large directories. A write of 16 MiB takes milliseconds without any stall; a small one does not: then sampled \
        stacks (`--format folded`) show the function.",
    kernels: "All.",
    in_spans: "On-CPU, outside every bracket.",
    in_counters: "System time rises with the bytes written.",
    against: "The calls are small (less than a page) and still run for milliseconds: look for interrupts, steal \
        and lock spinning.",
    fix: "Smaller calls; less work per call (do not encrypt or checksum twice); a larger block or folio size.",
    prove: "Duration grows in proportion to the bytes of the call.",
    sources: &["mm/filemap.c: generic_perform_write"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [Fix::advice(
        "find the function with `flatwater report --format folded`; write in smaller calls if they are \
             large",
    )];
    finding::from_spans(facts, Cause::Compute, ENTRY.headline, fixes)
}
