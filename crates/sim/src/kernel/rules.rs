//! Rules in which kernels differ: how they read and map ahead, share CPUs, queue requests, and sync.

/// What a fault reads around a page that is not in memory, unless faults have had to read far more often than not (mm/filemap.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAround {
    /// Up to 2.6.30: misses are held against hits (filemap_nopage).
    Counted,
    /// 2.6.31 to 2.6.39: a fault right behind the last one is read ahead of, as a read() is (do_sync_mmap_readahead).
    InOrder,
    /// 3.0 and later: the last quarter begins with a mark.
    Marked,
}

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

/// What sync() waits for while it goes over the files that are still dirty after they were all written once (fs/fs-writeback.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncRule {
    /// Up to 3.10: each file's pages, and where the file system has it so a commit for each.
    ByFile,
    /// 3.11, 3.12 and 3.14: only such a commit.
    CommitsByFile,
    /// 3.13: the same, for what was dirty when it was called.
    SinceCall,
    /// 3.15 and later: nothing, before all are written.
    Together,
}

/// Whether CFQ keeps the disk idle for the next request of who has written for an fsync (REQ_NOIDLE, cfq_completed_request).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncWrites {
    /// Up to 2.6.32.
    #[default]
    NotWaitedFor,
    /// 2.6.33 to 2.6.36: as for who reads.
    WaitedFor,
    /// 2.6.37 and later: they share a slice with those that seek.
    AmongSeekers,
}

/// How many requests of one queue CFQ lets the device have at once (block/cfq-iosched.c: cfq_may_dispatch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CfqDepth {
    /// Up to 2.6.21: any number.
    #[default]
    Any,
    /// 2.6.22 to 2.6.31: the quantum, of the only busy queue four times that.
    FourfoldAlone,
    /// 2.6.32: the same, nobody who will be waited for beside writes, and of writes no more than one for each reader's slice since somebody's request was done.
    SinceSync,
    /// 2.6.33: of the only busy queue any number, and of writes no more than one for each such slice since somebody's request was late.
    SinceLateSync,
    /// 2.6.34 and later: twice the quantum for most of a slice.
    Twice,
}

/// What the request queue has of later kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueRule {
    /// CFQ waits for nobody who seeks once a device had more than 4 requests ("cfq-iosched: Detect hardware queueing", 2.6.17; from
    /// 2.6.28 on the device is judged anew all the time).
    pub cfq_lets_go: bool,
    /// A request that somebody waits for ends the slice of those that nobody does (cfq_should_preempt, 2.6.22 and later).
    pub cfq_preempts: bool,
    /// CFQ's slices are cut where many queues are busy (2.6.33: "cfq-iosched: adapt slice to number of processes doing I/O").
    pub cfq_scales: bool,
    pub sync_writes: SyncWrites,
    pub cfq_depth: CfqDepth,
    /// CFQ reckons in ticks of the clock (4.7 and before).
    pub cfq_ticks: bool,
    /// A flush of the device's cache is a barrier: what is queued goes before it, all of it, and nothing with it (block/blk-barrier.c, up to
    /// 2.6.36). Later it goes past what is queued (block/blk-flush.c).
    pub drains: bool,
    /// A flusher holds its requests back over many files (blk_start_plug in writeback_sb_inodes' callers, 4.3 and later; from 2.6.39 on
    /// over one file, whose pages are one request anyhow).
    pub plugs: bool,
    /// Writeback can be throttled by the latency of reads (block/blk-wbt.c, 4.10 and later).
    pub has_wbt: bool,
    /// A queue without a scheduler, or with one of blk-mq's own, is blk-mq's (nvme, 3.19 and later).
    pub has_multi_queue: bool,
    /// Every queue is: requests are tags (5.0 and later), and writeback is throttled unasked, as Debian's kernels are configured
    /// (CONFIG_BLK_WBT_MQ).
    pub multi_queue: bool,
    /// mq-deadline keeps a quarter of its tags for reads (6.9 and later).
    pub keeps_tags: bool,
}

impl QueueRule {
    /// The rule of a queue with this scheduler: up to 4.20 its name says whether the driver has gone over to blk-mq, as nvme
    /// has; `none` of an older kernel is noop.
    #[must_use]
    pub fn of(self, scheduler: &str) -> QueueRule {
        let by_name = self.has_multi_queue && matches!(scheduler, "none" | "mq-deadline" | "bfq" | "kyber");
        let multi_queue = self.multi_queue || by_name;
        QueueRule { multi_queue, ..self }
    }
}
