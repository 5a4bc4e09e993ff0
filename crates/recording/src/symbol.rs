//! Kernel symbols and the causes that they name.
//!
//! One table serves every source of stacks: flatwater's tracer, a pasted `perf script`, a hung-task report. It spans
//! kernel versions, so a cause lists all names that a function has had. A stack is read from its innermost frame
//! outwards, and the first known frame names the cause, with these exceptions:
//! - A `Sleeps` frame only shows that the thread waits for I/O, a `Waits` frame only the kind of object (a buffer, a
//!   page). A known outer frame of a higher rank is more specific and wins.
//! - A `Refines` frame is a wrapper with a single purpose. It wins over the functions that it calls.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Cause;
use super::cause::{Rank, Symbols};

/// The cause that a stack shows, and the frame that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning<'a> {
    /// The cause that the function indicates.
    pub cause: Cause,
    /// The function that decided.
    pub frame: &'a str,
}

/// The C name of a symbol: `ext4_da_write_begin` for `ext4_da_write_begin.isra.0+0x1c/0x200 [ext4]`. Compilers and
/// printers add the rest.
#[must_use]
pub fn base_name(symbol: &str) -> &str {
    let name = symbol.split_whitespace().next().unwrap_or("");
    let name = name.split_once('+').map_or(name, |(name, _)| name);
    // `.constprop.0`, `.isra.0`, `.cold`, `.part.0`, `.llvm.123`: C names contain no dots.
    let dot = name.find('.').filter(|&at| at > 0);
    dot.map_or(name, |at| &name[..at])
}

/// All rules: lists of functions of a cause with the same rank.
fn rules() -> impl Iterator<Item = (Cause, &'static Symbols)> {
    Cause::ALL.iter().flat_map(|&cause| cause.spec().symbols.iter().map(move |symbols| (cause, symbols)))
}

fn names(symbol: &str, name: &str) -> bool {
    match symbol.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => symbol == name,
    }
}

/// A rule with its position. The first rule that matches a function counts.
type Placed = (usize, Cause, &'static Symbols);

/// Index of the rules by name, because a long log looks up millions of frames.
struct Index {
    whole: HashMap<&'static str, Placed>,
    beginnings: Vec<(&'static str, Placed)>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { whole: HashMap::new(), beginnings: Vec::new() };
    for (place, (cause, symbols)) in rules().enumerate() {
        for symbol in symbols.names {
            match symbol.strip_suffix('*') {
                Some(beginning) => index.beginnings.push((beginning, (place, cause, symbols))),
                None => _ = index.whole.entry(*symbol).or_insert((place, cause, symbols)),
            }
        }
    }
    index
});

fn rule_of(name: &str, asleep: bool) -> Option<(Cause, Rank)> {
    let beginnings = INDEX.beginnings.iter().filter(|(beginning, _)| name.starts_with(beginning)).map(|(_, rule)| rule);
    let first = INDEX.whole.get(name).into_iter().chain(beginnings).min_by_key(|(place, _, _)| *place);
    first.filter(|(_, _, symbols)| asleep || !symbols.asleep).map(|(_, cause, symbols)| (*cause, symbols.rank))
}

/// Sleeping primitives. The frame directly outside of them is where the thread waits.
const SLEEPS: &[&str] = &[
    "__schedule*",
    "schedule*",
    "freezable_schedule*",
    "io_schedule*",
    "preempt_schedule*",
    "__switch_to*",
    "context_switch",
    "wait_for_completion*",
    "wait_for_common*",
    "__wait_for_common",
    "do_wait_for_common",
    "__wait_on_bit*",
    "out_of_line_wait_on_bit*",
    "bit_wait*",
    "wait_on_bit*",
    "wait_woken",
    "congestion_wait",
    "blk_congestion_wait",
    "msleep*",
    "sleep_on*",
    "interruptible_sleep_on*",
    "cv_wait_common",
    "__cv_wait*",
    "__cv_timedwait*",
    "closure_sync*",
    "__closure_sync*",
];

fn sleeps(name: &str) -> bool {
    SLEEPS.iter().any(|symbol| names(symbol, name))
}

/// Functions in which a reader of a percpu semaphore sleeps (kernel/locking/percpu-rwsem.c). Writers to a frozen file
/// system are such readers.
const PERCPU_READ: &[&str] = &["percpu_rwsem_wait", "__percpu_down_read", "percpu_down_read"];

/// Readers of percpu semaphores that are not about freezing: the threadgroup lock, CPU and memory hotplug, lists of
/// file locks, uprobes, and the journal mode of an inode.
const OTHER_READERS: &[&str] = &[
    "copy_process*",
    "exit_signals",
    "de_thread",
    "cgroup_*",
    "cpus_read_lock",
    "get_online_*",
    "uprobe_*",
    "dup_mmap",
    "flock_lock_inode*",
    "posix_lock_inode*",
    "flock_lock_file*",
    "__posix_lock_file*",
    "locks_remove_*",
    "__break_lease",
    "generic_setlease",
    "fcntl_setlease",
    "ext4_writepages",
    "kmem_cache_*",
];

fn reads_other(outside: Option<&str>) -> bool {
    outside.is_some_and(|name| OTHER_READERS.iter().any(|symbol| names(symbol, name)))
}

/// The cause that one function names by itself, without its callers.
#[must_use]
pub fn cause_of(symbol: &str) -> Option<Cause> {
    rule_of(base_name(symbol), false).map(|(cause, _)| cause)
}

/// The cause that a stack (innermost frame first) shows; `None` if no frame is known.
#[must_use]
pub fn meaning<S: AsRef<str>>(frames: &[S]) -> Option<Meaning<'_>> {
    meaning_inside(frames, None)
}

/// Like `meaning`, inside an open bracket such as memcg-reclaim: the bracket's own frame and the frames outside the
/// bracket belong to the caller and are ignored.
#[must_use]
pub fn meaning_inside<S: AsRef<str>>(frames: &[S], bracket: Option<Cause>) -> Option<Meaning<'_>> {
    let mut best: Option<(Rank, Meaning<'_>)> = None;
    let inner = frames.iter().take_while(|frame| sleeps(base_name(frame.as_ref()))).count();
    for (at, frame) in frames.iter().enumerate() {
        let frame = base_name(frame.as_ref());
        let Some((mut cause, rank)) = rule_of(frame, inner > 0 && at <= inner) else { continue };
        if cause == Cause::FsFreeze && PERCPU_READ.contains(&frame) {
            let mut outside = frames[at..].iter().map(|frame| base_name(frame.as_ref()));
            if reads_other(outside.find(|name| !PERCPU_READ.contains(name))) {
                cause = Cause::Lock;
            }
        }
        if Some(cause) == bracket {
            break;
        }
        if best.is_none_or(|(so_far, _)| rank > so_far) {
            best = Some((rank, Meaning { cause, frame }));
        }
    }
    // `Unexplained` marks a wait function that is not a cause.
    best.map(|(_, meaning)| meaning).filter(|meaning| meaning.cause != Cause::Unexplained)
}

/// The function that took the lock: the first frame outside the lock's own functions.
#[must_use]
pub fn lock_taker<S: AsRef<str>>(frames: &[S]) -> Option<&str> {
    let is_lock = |frame: &S| cause_of(frame.as_ref()) == Some(Cause::Lock);
    let first = frames.iter().position(is_lock)?;
    frames.iter().skip(first).find(|frame| !is_lock(frame)).map(|frame| base_name(frame.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::{base_name, cause_of, lock_taker, meaning, meaning_inside, names, rules};
    use crate::Cause;

    #[test]
    fn base_name_removes_suffixes_of_compilers_and_printers() {
        for symbol in
            ["shrink_slab", "shrink_slab+0x12/0x80", "shrink_slab.constprop.0", "shrink_slab.isra.0.cold [ext4]"]
        {
            assert_eq!(base_name(symbol), "shrink_slab");
            assert_eq!(cause_of(symbol), Some(Cause::Shrinker));
        }
        assert_eq!(base_name(""), "");
        assert_eq!(base_name(".text"), ".text");
    }

    /// The index gives the same result as a search through the rules in order.
    #[test]
    fn the_first_rule_for_a_function_counts() {
        let walked = |name: &str| {
            let mut all = rules().filter(|(_, symbols)| symbols.names.iter().any(|symbol| names(symbol, name)));
            all.next().map(|(cause, symbols)| (cause, symbols.rank))
        };
        let named = rules().flat_map(|(_, symbols)| symbols.names).map(|symbol| symbol.trim_end_matches('*'));
        let mut asked = 0;
        for name in named.flat_map(|name| [name.to_owned(), format!("{name}_locked"), name[1..].to_owned()]) {
            assert_eq!(super::rule_of(&name, true), walked(&name), "{name}");
            asked += 1;
        }
        assert!(asked > 3_000, "{asked}");
    }

    #[test]
    fn the_innermost_known_frame_names_the_cause() {
        let stack = ["schedule", "jbd2_log_wait_commit", "ext4_sync_file", "do_fsync"];
        let known = meaning(&stack).expect("a known frame");
        assert_eq!((known.cause, known.frame), (Cause::JournalCommit, "jbd2_log_wait_commit"));
        assert_eq!(meaning(&["schedule", "do_nanosleep"]), None);
    }

    #[test]
    fn throttles_show_reclaim_and_outer_frames_refine_a_mempool_wait() {
        let cause = |frames: &[&str]| meaning(frames).map(|known| known.cause);
        let swaps =
            ["io_schedule_timeout", "mempool_alloc", "bio_alloc_bioset", "shrink_page_list", "try_to_free_pages"];
        assert_eq!(cause(&swaps), Some(Cause::DirectReclaim));
        assert_eq!(cause(&["mempool_alloc", "bio_alloc_bioset", "kcryptd_crypt"]), Some(Cause::PageAllocation));
        assert_eq!(cause(&["shrink_lruvec", "try_to_free_mem_cgroup_pages"]), Some(Cause::MemcgReclaim));
        let throttled = ["io_schedule_timeout", "congestion_wait", "throttle_vm_writeout", "shrink_zone"];
        assert_eq!(cause(&throttled), Some(Cause::ReclaimThrottle));
    }

    #[test]
    fn functions_of_compaction_shrinkers_and_userfaultfd_have_causes() {
        for (symbol, cause) in [
            ("isolate_migratepages_range", Cause::Compaction),
            ("split_map_pages", Cause::Compaction),
            ("bch2_btree_key_cache_scan", Cause::Shrinker),
            ("super_cache_count", Cause::Shrinker),
            ("rt_spin_lock_slowlock_locked", Cause::Lock),
        ] {
            assert_eq!(cause_of(symbol), Some(cause), "{symbol}");
        }
        let waits = ["schedule", "handle_userfault", "hugetlb_no_page", "hugetlb_fault", "handle_mm_fault"];
        assert_eq!(meaning(&waits).map(|known| known.cause), Some(Cause::PageFault));
    }

    #[test]
    fn a_generic_wait_yields_to_a_more_specific_outer_frame() {
        let bitmap = ["io_schedule", "bit_wait_io", "__wait_on_buffer", "ext4_wait_block_bitmap", "ext4_mb_init_cache"];
        assert_eq!(meaning(&bitmap).map(|known| known.cause), Some(Cause::BlockAllocation));
        let bare = ["io_schedule", "__wait_on_buffer", "some_file_system"];
        assert_eq!(meaning(&bare).map(|known| known.cause), Some(Cause::DeviceWait));
        let stable = ["io_schedule", "folio_wait_bit_common", "folio_wait_writeback", "folio_wait_stable"];
        assert_eq!(meaning(&stable).map(|known| known.cause), Some(Cause::StablePage));
    }

    #[test]
    fn waiting_for_a_commit_to_free_log_space_is_journal_full() {
        let stack = ["schedule", "jbd2_log_wait_commit", "jbd2_log_do_checkpoint", "__jbd2_log_wait_for_space"];
        assert_eq!(meaning(&stack).map(|known| known.cause), Some(Cause::JournalFull));
        let older = ["schedule", "start_this_handle", "jbd2_journal_start", "ext4_journal_start_sb"];
        assert_eq!(meaning(&older).map(|known| known.cause), Some(Cause::JournalCommit));
    }

    #[test]
    fn stacks_of_injected_stalls_name_their_cause() {
        let kernels = [include_str!("../tests/stacks/6.12.txt"), include_str!("../tests/stacks/6.18.txt")];
        let golden = kernels.into_iter().flat_map(str::lines).filter(|line| !line.starts_with('#'));
        let mut seen = std::collections::BTreeSet::new();
        for line in golden {
            let parts: Vec<&str> = line.split(" | ").collect();
            let [file_system, cause, frames] = parts[..] else { panic!("{line}") };
            let frames: Vec<&str> = frames.split(" < ").collect();
            assert_eq!(meaning(&frames).map(|known| known.cause.name()), Some(cause), "{line}");
            seen.insert(file_system);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["btrfs", "ext4", "nfs", "xfs", "zram"]);
    }

    #[test]
    fn call_chains_from_kernel_sources_name_their_cause() {
        let lines = include_str!("../tests/stacks/by_system.txt").lines().filter(|line| !line.starts_with('#'));
        let wrong: Vec<String> = lines
            .filter_map(|line| {
                let parts: Vec<&str> = line.split(" | ").collect();
                let [_, cause, frames] = parts[..] else { panic!("{line}") };
                let frames: Vec<&str> = frames.split(" < ").collect();
                let named = meaning(&frames).map_or("-", |known| known.cause.name());
                (named != cause).then(|| format!("{named} of {line}"))
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn the_search_stops_at_the_bracket() {
        let stack = ["schedule", "shrink_lruvec", "try_to_free_mem_cgroup_pages", "balance_dirty_pages"];
        assert_eq!(meaning_inside(&stack, Some(Cause::MemcgReclaim)), None);
        let throttled = ["schedule_timeout", "reclaim_throttle", "shrink_node", "try_to_free_pages"];
        let known = meaning_inside(&throttled, Some(Cause::DirectReclaim)).expect("inside");
        assert_eq!(known.cause, Cause::ReclaimThrottle);
    }

    #[test]
    fn the_taker_of_a_lock_is_the_frame_outside_it() {
        let stack = ["schedule", "rwsem_down_write_slowpath", "down_write", "ext4_buffered_write_iter", "vfs_write"];
        assert_eq!(lock_taker(&stack), Some("ext4_buffered_write_iter"));
        assert_eq!(lock_taker(&["schedule", "vfs_write"]), None);
    }

    #[test]
    fn each_symbol_names_one_cause() {
        let all: Vec<&str> = rules().flat_map(|(_, symbols)| symbols.names.iter().copied()).collect();
        for symbol in &all {
            let by: Vec<&&str> = all.iter().filter(|other| names(other, symbol.trim_end_matches('*'))).collect();
            assert_eq!(by.len(), 1, "{symbol} is named by {by:?}");
        }
    }
}
