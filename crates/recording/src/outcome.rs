//! What a workload reports of itself, beside latencies: the table that tells its own story.

use serde::{Deserialize, Serialize};

/// Ends up under `"workload"` in the JSON explanation, and as a table in text and HTML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "kebab-case")]
pub enum WorkloadOutcome {
    Bulk(BulkOutcome),
    Checkpoint(CheckpointOutcome),
    Sdet(SdetOutcome),
    Maildir(MaildirOutcome),
    Graphdb(GraphdbOutcome),
    Journal(JournalOutcome),
}

/// Ten writers and how evenly they were treated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BulkOutcome {
    pub threshold_ns: u64,
    pub delays: Vec<BulkDelay>,
    pub delay_ns_max: u64,
    pub writers: Vec<BulkWriter>,
    /// Jain's index, 1 is perfectly fair: (sum x)^2 / (n sum x^2).
    pub fairness_throughput: Option<f64>,
    pub fairness_delay: Option<f64>,
    /// When, and /proc/meminfo-like levels in bytes: before, during (at the worst), after.
    pub memory: Vec<MemoryMoment>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BulkDelay {
    pub pid: u32,
    pub at_ns: u64,
    pub delay_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BulkWriter {
    pub pid: u32,
    pub bytes: u64,
    pub elapsed_ns: u64,
    pub delay_ns_max: u64,
    pub delay_ns_total: u64,
    pub delays: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryMoment {
    pub moment: String,
    pub at_ns: u64,
    pub free_bytes: Option<u64>,
    pub buffers_bytes: Option<u64>,
    pub cached_bytes: Option<u64>,
    pub dirty_bytes: Option<u64>,
    pub writeback_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointOutcome {
    pub checkpoints: Vec<CheckpointRow>,
}

/// One checkpoint, as databases print it: time waiting for threads apart from time flushing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRow {
    pub at_ns: u64,
    pub critical_ns: u64,
    pub flush_ns: u64,
    pub bytes: u64,
    /// The thread that left its critical section last, and the call it was in; absent if nobody was waited for.
    pub waited_for_thread: Option<String>,
    pub waited_for_call: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SdetOutcome {
    pub scripts: u32,
    pub runs: Vec<SdetRun>,
    /// Change of throughput per run, percent of the first, least squares over runs; absent below 3 runs.
    pub trend_percent_per_run: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SdetRun {
    pub run: u32,
    pub elapsed_ns: u64,
    pub scripts_per_hour: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MaildirOutcome {
    /// At the end; absent where the kernel does not tell.
    pub inodes: Option<u64>,
    pub dentries: Option<u64>,
    pub cached_bytes: Option<u64>,
    pub deliveries: u64,
    pub reads: u64,
    /// Mean service time of a stat that found its inode cached, and of one that did not; absent if none was seen.
    pub stat_hit_ns: Option<u64>,
    pub stat_miss_ns: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphdbOutcome {
    pub reads: u64,
    pub read_bytes: u64,
    pub remaps: u64,
    pub read_ns_max: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalOutcome {
    pub appends: u64,
    pub bytes: u64,
    /// Empty where nobody asked for the precursor.
    pub precursor_mode: String,
    pub late_windows: u64,
    pub waits: u64,
    /// Between two records of one writer; 0 where it is not known (what follows is absent in older recordings).
    #[serde(default)]
    pub interval_ns: u64,
    #[serde(default)]
    pub writers: Vec<JournalWriter>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalWriter {
    pub thread: String,
    pub tid: u32,
    pub appends: u64,
    pub bytes: u64,
    /// Files begun: one, and one for each roll-over.
    pub files: u64,
    pub append_ns_max: u64,
    /// Records that were written only after the next one was due.
    pub behind: u64,
    /// Longest time from when a record was due to when it was written.
    pub behind_ns_max: u64,
    pub syncs: u64,
    pub sync_ns_total: u64,
    pub sync_ns_max: u64,
}
