//! swap-in: the caller waits for a page that was swapped out.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix, finding, waits};
use flatwater_recording::Cause;
use flatwater_recording::schema::{vmstat, workload};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "swap-in",
    span: Some(Cause::SwapIn),
    headline: "the caller waits for its own memory to come back from swap",
    mechanism: "do_swap_page (mm/memory.c) allocates a page, which may reclaim in turn, and reads it from swap \
        (swap_read_folio) with the caller waiting. The page was swapped out earlier because reclaim took anonymous \
        pages as well as page cache, in proportion to vm.swappiness and to the refaults of each list.",
    kernels: "All with swap.",
    in_spans: "Measured: a sleep below do_swap_page.",
    in_counters: "pswpin rises (si in vmstat).",
    against: "pswpin does not rise. Swap that is used without swapping in holds old pages that are not needed.",
    fix: "mlockall in the latency-critical program; vm.swappiness lower; a memory.swap.max of 0 (v2) for its cgroup; \
        more memory. zswap shortens the wait, but does not remove it.",
    prove: "mlockall in the writer: its swap-ins end while the machine's continue.",
    sources: &["mm/memory.c: do_swap_page", "mm/page_io.c: swap_read_folio"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::advice("lock the program's memory (mlockall with MCL_CURRENT | MCL_FUTURE)"),
        Fix::knob("reclaim page cache before anonymous memory", knob!("vm.swappiness"), "1"),
    ];
    let found = finding::from_spans(facts, Cause::SwapIn, ENTRY.headline, fixes.clone()).or_else(|| {
        let what = "for pages to be read from swap (delay accounting)";
        let waited = waits::finding(facts, CauseId::SwapIn, ENTRY.headline, workload::SWAP_IN_DELAY_NS, what)?;
        Some(Finding { fixes: fixes.clone().into(), ..waited })
    });
    found.or_else(|| from_rate(facts).map(|finding| Finding { fixes: fixes.into(), ..finding }))
}

/// Minimum rate of swapping in, bytes/s, for logs that do not count swapping out (swapin of bcc).
const BYTES_PER_S_MIN: f64 = 4_194_304.0;

fn from_rate(facts: &Facts<'_>) -> Option<Finding> {
    let page_bytes = facts.recording.header.machine.page_size_bytes() as f64;
    let into = facts.vmstat_rate(vmstat::PSWPIN);
    let peak = into.peak().filter(|peak| peak.value * page_bytes >= BYTES_PER_S_MIN)?;
    if !facts.may_infer_place() || !facts.vmstat_rate(vmstat::PSWPOUT).is_empty() {
        return None;
    }
    let text = format!("at most {:.1} MiB/s were swapped in", peak.value * page_bytes / 1_048_576.0);
    let finding = Finding::inferred(CauseId::SwapIn, 0.5, "programs wait for their memory to come back from swap");
    let finding = finding.with([Evidence::new(text, peak.value, "pages/s").at(peak.at_ns)]);
    Some(finding.settle("`vmstat 1`: si with so is a storm, si alone a program that wakes up"))
}
