//! Results of workloads other than latencies.

use serde::{Deserialize, Serialize};

/// `"workload"` in the JSON explanation, and a table in text and HTML.
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

/// Delays of concurrent writers, and how fair they were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BulkOutcome {
    pub threshold_ns: u64,
    pub delays: Vec<BulkDelay>,
    pub delay_ns_max: u64,
    pub writers: Vec<BulkWriter>,
    /// Jain's index, 1 is perfectly fair: (sum x)^2 / (n sum x^2).
    pub fairness_throughput: Option<f64>,
    pub fairness_delay: Option<f64>,
    /// Memory levels in bytes, as in /proc/meminfo: before, during (at the worst point) and after the run.
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

/// One checkpoint, as databases log it: the wait for threads, and the flush.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRow {
    pub at_ns: u64,
    pub critical_ns: u64,
    pub flush_ns: u64,
    pub bytes: u64,
    /// The thread that left its critical section last, and its call; absent if the checkpoint waited for no thread.
    pub waited_for_thread: Option<String>,
    pub waited_for_call: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SdetOutcome {
    pub scripts: u32,
    pub runs: Vec<SdetRun>,
    /// Least-squares trend of throughput in percent of the first run, per run; absent with fewer than 3 runs.
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
    /// Number at the end; absent if the kernel does not report it.
    pub inodes: Option<u64>,
    pub dentries: Option<u64>,
    pub cached_bytes: Option<u64>,
    pub deliveries: u64,
    pub reads: u64,
    /// Mean service time of stat calls whose inode was cached, and of those whose inode was not; absent if there were
    /// none.
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
    /// Empty if the precursor was not used.
    pub precursor_mode: String,
    pub late_windows: u64,
    pub waits: u64,
    /// Time between two records of one writer; 0 if unknown (older recordings lack this field and the next).
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
    /// Files begun: one, plus one for each roll-over.
    pub files: u64,
    pub append_ns_max: u64,
    /// Records that were written after the next one was due.
    pub behind: u64,
    /// Longest delay of a record after its due time.
    pub behind_ns_max: u64,
    pub syncs: u64,
    pub sync_ns_total: u64,
    pub sync_ns_max: u64,
}
