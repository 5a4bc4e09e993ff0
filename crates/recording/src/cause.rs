//! The causes that a stretch of a call can carry. What each means, how it is proven and mended stands in
//! `explain/cause/<name>.rs`; this is only the closed list of names that recordings may hold, so that a
//! tracer, a simulator and an importer cannot spell one thing three ways.

use serde::{Deserialize, Serialize};

macro_rules! causes {
    ($($variant:ident => $name:literal),* $(,)?) => {
        /// Why a thread was not making progress, or what it was busy with, during a part of a call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Cause { $($variant),* }

        impl Cause {
            pub const ALL: &[Cause] = &[$(Cause::$variant),*];

            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Cause::$variant => $name),* }
            }

            #[must_use]
            pub fn from_name(name: &str) -> Option<Cause> {
                match name { $($name => Some(Cause::$variant),)* _ => None }
            }
        }
    };
}

causes! {
    DirectReclaim => "direct-reclaim",
    MemcgReclaim => "memcg-reclaim",
    NodeReclaim => "node-reclaim",
    ReclaimThrottle => "reclaim-throttle",
    Compaction => "compaction",
    Shrinker => "shrinker",
    DirtyThrottle => "dirty-throttle",
    JournalCommit => "journal-commit",
    JournalBuffer => "journal-buffer",
    JournalFull => "journal-full",
    PageWriteback => "page-writeback",
    StablePage => "stable-page",
    BlockAllocation => "block-allocation",
    SynchronousRead => "synchronous-read",
    RequestQueue => "request-queue",
    DeviceSlow => "device-slow",
    Lock => "lock",
    SlabRefill => "slab-refill",
    PageAllocation => "page-allocation",
    PageFault => "page-fault",
    SwapIn => "swap-in",
    MemcgOverHigh => "memcg-over-high",
    FsFreeze => "fs-freeze",
    CpuQuota => "cpu-quota",
    RunQueue => "run-queue",
    Steal => "steal",
    Interrupt => "interrupt",
    Compute => "compute",
    Unexplained => "unexplained",
}
