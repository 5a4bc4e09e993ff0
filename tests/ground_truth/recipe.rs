//! The recipes: for each known cause the stage, the victim, its neighbours, and the right answers.

use crate::ground_truth::act::Act;

/// The environment of the victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    pub disk: Disk,
    /// Limit of the memory cgroup for victim and neighbours; 0 means no group.
    pub memory_mib: u64,
    /// Quota of the CPU cgroup in percent of one CPU; 0 means no group.
    pub cpu_percent: u32,
    /// Whether the file system is frozen for 150 ms, twice a second.
    pub freeze: bool,
    /// Initial size of the victim's file.
    pub file_mib: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disk {
    /// The disk of the build.
    #[default]
    Host,
    Ext4,
    /// ext4 with the smallest possible journal, 1024 blocks.
    Ext4SmallJournal,
    Xfs,
    /// ext4 with at most 4 MiB of dirty pages, written at 8 MiB/s.
    FewDirty,
    /// ext4 with 25 reads and 50 writes per second.
    Slow,
    /// ext4 on a queue of 4 requests.
    ShortQueue,
}

#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Never shown to the program under test.
    pub name: &'static str,
    pub stage: Stage,
    pub victim: Act,
    pub neighbours: &'static [Act],
    /// The right answers; `quiet` for the controls.
    pub right: &'static [&'static str],
    /// Whether the victim gets a real-time priority, so that other programs do not count.
    pub realtime: bool,
    /// Whether calls of a foreign process can show the stall.
    pub foreign: bool,
    /// Parameters of our journal workload that cause the same stall; `None` if it cannot.
    pub own: Option<&'static str>,
}

const HOST: Stage = Stage { disk: Disk::Host, memory_mib: 0, cpu_percent: 0, freeze: false, file_mib: 0 };
const APPEND: Act = Act::Append { bytes: 220, every_us: 200 };
const APPEND_MUCH: Act = Act::Append { bytes: 64 << 10, every_us: 2000 };
/// One page per millisecond: half the speed of the disk of `FewDirty`, so that the dirty limits apply.
const APPEND_PAGES: Act = Act::Append { bytes: 4 << 10, every_us: 1000 };
const JOURNAL_PAGES: Option<&str> = Some("bytes = \"4KiB\"\ninterval = \"1ms\"");
/// Needs more CPU time than its share beside neighbours of higher weight.
const JOURNAL_BUSY: Option<&str> = Some("bytes = \"220\"\ninterval = \"20us\"");
const JOURNAL: Option<&str> = Some("bytes = \"220\"\ninterval = \"200us\"");
const JOURNAL_MUCH: Option<&str> = Some("bytes = \"64KiB\"\ninterval = \"2ms\"");
const SYNCED: Option<&str> = Some("bytes = \"220\"\ninterval = \"5ms\"\nfdatasync_every = \"1\"");

const fn recipe(
    name: &'static str,
    stage: Stage,
    victim: Act,
    neighbours: &'static [Act],
    right: &'static [&'static str],
) -> Recipe {
    Recipe { name, stage, victim, neighbours, right, realtime: true, foreign: true, own: None }
}

const fn with_own(own: Option<&'static str>, recipe: Recipe) -> Recipe {
    Recipe { own, ..recipe }
}

const fn on(disk: Disk, file_mib: u64) -> Stage {
    Stage { disk, file_mib, ..HOST }
}

const fn within(memory_mib: u64, file_mib: u64) -> Stage {
    Stage { memory_mib, file_mib, ..HOST }
}

pub const RECIPES: &[Recipe] = &[
    with_own(
        JOURNAL_MUCH,
        recipe("memcg-dirty", within(128, 0), APPEND_MUCH, &[Act::Stream], &["memcg-reclaim", "reclaim-throttle"]),
    ),
    with_own(
        JOURNAL_MUCH,
        recipe("memcg-clean", within(64, 384), APPEND_MUCH, &[Act::ReadStream], &["memcg-reclaim", "reclaim-throttle"]),
    ),
    with_own(
        JOURNAL_MUCH,
        recipe(
            "memcg-anonymous",
            within(192, 256),
            Act::Overwrite,
            &[Act::Anonymous],
            &["memcg-reclaim", "reclaim-throttle"],
        ),
    ),
    with_own(
        JOURNAL_PAGES,
        recipe(
            "dirty-limit",
            on(Disk::FewDirty, 0),
            APPEND_PAGES,
            &[Act::Stream, Act::Stream, Act::Stream],
            &["dirty-throttle"],
        ),
    ),
    with_own(SYNCED, recipe("jbd2-commit", on(Disk::Ext4, 0), Act::Sync, &[Act::Sync, Act::Sync], &["journal-commit"])),
    with_own(SYNCED, recipe("xfs-log", on(Disk::Xfs, 0), Act::Sync, &[Act::Sync, Act::Sync], &["journal-commit"])),
    recipe(
        "journal-full",
        on(Disk::Ext4SmallJournal, 0),
        Act::Churn,
        &[Act::Churn, Act::Churn],
        &["journal-full", "journal-commit", "journal-buffer"],
    ),
    with_own(JOURNAL, recipe("freeze", Stage { freeze: true, ..on(Disk::Ext4, 0) }, APPEND, &[], &["fs-freeze"])),
    recipe("slow-read", on(Disk::Slow, 64), Act::ColdRead, &[], &["synchronous-read", "device-wait"]),
    recipe("cold-map", on(Disk::Slow, 64), Act::ColdTouch, &[], &["page-fault", "synchronous-read", "device-wait"]),
    recipe(
        "slow-sync",
        on(Disk::Slow, 0),
        Act::BigSync,
        &[],
        &["page-writeback", "journal-commit", "device-wait", "request-queue"],
    ),
    recipe("short-queue", on(Disk::ShortQueue, 256), Act::Direct, &[], &["request-queue", "device-wait"]),
    Recipe {
        realtime: false,
        ..with_own(
            JOURNAL_BUSY,
            recipe(
                "cpu-contention",
                on(Disk::Host, 64),
                Act::ColdRead,
                &[Act::Spin; 6],
                &["run-queue", "cpu-contention"],
            ),
        )
    },
    Recipe {
        realtime: false,
        foreign: false,
        ..with_own(
            JOURNAL,
            recipe(
                "cpu-quota",
                Stage { cpu_percent: 20, ..HOST },
                APPEND,
                &[Act::Spin, Act::Spin],
                &["cpu-quota", "run-queue"],
            ),
        )
    },
    recipe("prefetched", within(128, 512), Act::Prefetched, &[Act::Stream], &["synchronous-read", "memcg-reclaim"]),
    recipe("shared-file", on(Disk::Ext4, 0), APPEND, &[Act::Shared], &["lock"]),
    recipe(
        "busy-directory",
        on(Disk::Ext4, 0),
        Act::Churn,
        &[Act::Churn, Act::Churn, Act::Churn],
        &["lock", "journal-commit", "journal-full", "journal-buffer"],
    ),
    recipe("locked-window", within(128, 8), Act::Locked, &[Act::Stream], &["quiet"]),
    with_own(JOURNAL, recipe("nothing", on(Disk::Ext4, 0), APPEND, &[], &["quiet"])),
];

#[test]
fn recipes_are_unique_and_their_causes_exist() {
    let names: std::collections::BTreeSet<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
    assert_eq!(names.len(), RECIPES.len());
    assert!(names.len() >= 15);
    for recipe in RECIPES {
        for cause in recipe.right {
            assert!(flatwater_explain::cause::find(cause).is_some(), "{}: no cause {cause}", recipe.name);
        }
    }
}
