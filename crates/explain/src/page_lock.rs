//! Attributes waits for a page's lock in write().
//!
//! A page is locked while it is read in (from ->read_folio or ->readahead until the completion unlocks it:
//! mm/filemap.c: folio_end_read, page_endio before 6.7), and for a moment while writeback maps it or reclaim takes
//! it. A writer that looks up the page sleeps in __filemap_get_folio in each case, so its stack alone cannot tell
//! them apart. If the same writes also find pages that are not in memory and read these themselves, the pages
//! before the writer are being read, and the lock is held by a read that another thread began.

use std::collections::HashSet;

use flatwater_recording::symbol::{base_name, cause_of};
use flatwater_recording::{Cause, OpKind, Recording, StackId};

/// The writes' own reads must take at least this share of their waits for locked pages.
const OWN_READS_SHARE_MIN: f64 = 0.2;

/// Whether the stack waits for the lock of a page that it looked up.
#[must_use]
pub fn is_page_lock<S: AsRef<str>>(frames: &[S]) -> bool {
    const LOOKUPS: [&str; 4] =
        ["__filemap_get_folio", "__filemap_get_folio_mpol", "grab_cache_page_write_begin", "pagecache_get_page"];
    let lookup = frames.iter().position(|frame| LOOKUPS.contains(&base_name(frame.as_ref())));
    // Frames further in may only be ways to sleep: io_schedule, __folio_lock, folio_wait_bit_common.
    let sleeps = |frame: &S| {
        let own = ["__folio_lock", "__lock_page"].iter().any(|lock| base_name(frame.as_ref()).starts_with(lock));
        own || matches!(cause_of(frame.as_ref()), None | Some(Cause::DeviceWait))
    };
    lookup.is_some_and(|at| frames.iter().take(at).all(sleeps))
}

/// The stacks whose waits for a page's lock were waits for a read; empty unless the foreground's writes also read
/// pages themselves.
#[must_use]
pub fn held_by_reads(recording: &Recording) -> HashSet<StackId> {
    let locks: HashSet<StackId> =
        recording.stacks.iter().filter(|stack| is_page_lock(&stack.frames)).map(|stack| stack.id).collect();
    if locks.is_empty() {
        return locks;
    }
    let segments = || {
        let writes = recording.foreground_calls().filter(|call| call.op == OpKind::Write);
        writes.flat_map(|call| &call.segments)
    };
    let waits = segments()
        .filter(|segment| segment.cause == Cause::Lock && segment.stack.is_some_and(|id| locks.contains(&id)));
    let waited: f64 = waits.map(|segment| segment.ns as f64).sum();
    let read: f64 =
        segments().filter(|segment| segment.cause == Cause::SynchronousRead).map(|segment| segment.ns as f64).sum();
    if waited > 0.0 && read >= OWN_READS_SHARE_MIN * waited { locks } else { HashSet::new() }
}

#[cfg(test)]
mod tests {
    use super::is_page_lock;
    use crate::CauseId;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Cause, OpKind};

    const LOCKED: [&str; 6] = [
        "io_schedule",
        "__folio_lock",
        "__filemap_get_folio",
        "ext4_write_begin",
        "generic_perform_write",
        "vfs_write",
    ];

    #[test]
    fn a_page_lock_is_distinguished_from_other_locks() {
        assert!(is_page_lock(&LOCKED));
        assert!(!is_page_lock(&["schedule", "rwsem_down_write_slowpath", "down_write", "ext4_buffered_write_iter"]));
        assert!(!is_page_lock(&["io_schedule", "folio_wait_bit_common", "folio_wait_writeback"]));
    }

    #[test]
    fn a_page_that_others_read_is_a_read_only_if_the_writes_read_too() {
        let locked = || RecordingBuilder::new().slow(OpKind::Write, &[(Cause::Lock, 60.0)]).stack(&LOCKED);
        let names = |builder: RecordingBuilder| {
            builder.explained().findings.iter().map(|finding| finding.cause).collect::<Vec<_>>()
        };
        assert_eq!(names(locked()), [CauseId::Lock]);
        let both = || locked().slow(OpKind::Write, &[(Cause::SynchronousRead, 30.0)]);
        assert_eq!(names(both()), [CauseId::SynchronousRead]);
        // The reads of a neighbour's writes, and reads of read(), show nothing about the pages of these writes.
        let beside = locked().neighbour("dd").slow_by("dd", OpKind::Write, &[(Cause::SynchronousRead, 30.0)]);
        assert!(!names(beside).contains(&CauseId::SynchronousRead));
        let read = locked().slow(OpKind::Read, &[(Cause::SynchronousRead, 30.0)]);
        let of_read = read.explained().findings;
        assert!(
            of_read.iter().all(|finding| !evidence_text(finding).contains("spent waiting for the lock")),
            "{of_read:?}"
        );
        let few = locked().slow(OpKind::Write, &[(Cause::SynchronousRead, 11.0)]).explained().findings;
        assert!(few.iter().all(|finding| !evidence_text(finding).contains("spent waiting for the lock")), "{few:?}");
        let finding = &both().explained().findings[0];
        assert_eq!(finding.lost_ns, Some(90_000_000));
        assert!(evidence_text(finding).contains("60 ms were spent waiting"), "{}", evidence_text(finding));
    }
}
