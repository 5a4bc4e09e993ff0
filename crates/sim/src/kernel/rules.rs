//! Rules in which kernels differ: how they read and map ahead, share CPUs, queue requests, and sync.

/// Whether a fault that only reads maps what is cached around its page, too (mm/memory.c: do_fault_around).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAround {
    Never,
    /// 3.15 and later; each page that it finds is one miss less.
    Maps,
    /// 6.10 and later: but for pages that have come back after they were evicted (PG_workingset).
    SparesRefaulted,
}

/// When cached pages before a miss make it part of a sequential stream (mm/readahead.c: try_context_readahead).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextReadahead {
    Never,
    /// 2.6.31 to 3.11.
    AnyHistory,
    /// 3.12 and later.
    MoreThanAsked,
}

/// How CPU time is shared (kernel/sched/fair.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    Cfs,
    /// 6.6 and later.
    Eevdf,
}

/// What the request queue has of later kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueRule {
    /// A flusher holds its requests back over many files (blk_start_plug in writeback_sb_inodes' callers, 4.3 and later; from 2.6.39 on
    /// over one file, whose pages are one request anyhow).
    pub plugs: bool,
    /// Every queue is: requests are tags (5.0 and later), and writeback is throttled unasked, as Debian's kernels are configured
    /// (CONFIG_BLK_WBT_MQ).
    pub multi_queue: bool,
    /// mq-deadline keeps a quarter of its tags for reads (6.9 and later).
    pub keeps_tags: bool,
}
