//! stable-page: a write waits because the page that it changes is being written and must not change.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "stable-page",
    span: Some(Cause::StablePage),
    headline: "the write waits for its page's writeback: the device needs stable pages (checksums)",
    mechanism: "From 3.0 on a page under writeback must not change, so that checksums stay right: writers waited in \
        wait_on_page_writeback. Since 3.9 wait_for_stable_page (folio_wait_stable since 5.16; mm/page-writeback.c) \
        waits only where the device or file system asks for it: integrity profiles, iSCSI and NVMe/TCP data digests, \
        md RAID 5, btrfs checksums, zram. A small append to a tail page that the flusher is writing then sleeps for a \
        whole disk write.",
    kernels: "3.0 to 3.8 everywhere; since 3.9 only on devices with stable_writes.",
    in_spans: "Measured: a sleep with folio_wait_stable or wait_for_stable_page in its stack.",
    in_counters: "None. /sys/block/DEV/queue/stable_writes is 1; slow calls come at the flusher's interval.",
    against: "queue/stable_writes is 0 and the file system makes no checksums.",
    fix: "Do not rewrite a page that may be under writeback: append whole pages, keep the tail in a buffer \
        (precursor), or lengthen vm.dirty_expire_centisecs so that the flusher finds full pages. Turn the digest off \
        where another layer has one. Kernels 3.0 to 3.8: upgrade.",
    prove: "echo 0 > /sys/block/DEV/queue/stable_writes on a test machine: the waits end.",
    sources: &["mm/page-writeback.c: folio_wait_stable", "block/blk-sysfs.c: stable_writes"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::knob("keep the page being filled out of writeback", knob!("precursor"), "ring"),
        Fix::advice("turn the device's data digest off where another layer already checks the data"),
    ];
    finding::from_spans(facts, Cause::StablePage, ENTRY.headline, fixes)
}
