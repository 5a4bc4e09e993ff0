//! The table of lines in which servers report that a sync, a write or a request took long.
//!
//! Each rule names the source file or the message of the program. The duration follows the key. If a program only
//! reports that something takes too long, the duration is the program's threshold, as a lower bound.

use std::sync::LazyLock;

use super::duration;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use flatwater_recording::{DurationBasis, OpKind};

#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The line contains all of these words.
    words: &'static [&'static str],
    length: Length,
    /// Program and thread: the caller in the recording.
    pub thread: &'static str,
    pub op: OpKind,
    /// The kind of file, if the program uses a dedicated file for this.
    pub file: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum Length {
    /// After this key; a number without a unit is in units of this many ns.
    After(&'static str, f64),
    /// At the end of the line, in this unit.
    Last(&'static str),
    /// Not in the line; at least this many ns, by the program's code.
    AtLeast(u64),
    /// No call: only the line is recorded.
    Nothing,
}

const fn took(words: &'static [&'static str], key: &'static str, thread: &'static str, op: OpKind) -> Rule {
    Rule { words, length: Length::After(key, 0.0), thread, op, file: None }
}

const fn millis(words: &'static [&'static str], key: &'static str, thread: &'static str, op: OpKind) -> Rule {
    Rule { words, length: Length::After(key, 1e6), thread, op, file: None }
}

const fn says(words: &'static [&'static str], thread: &'static str) -> Rule {
    Rule { words, length: Length::Nothing, thread, op: OpKind::Other, file: None }
}

const fn in_file(rule: Rule, file: &'static str) -> Rule {
    Rule { file: Some(file), ..rule }
}

const RULES: &[Rule] = &[
    // etcd server/storage/wal/wal.go: until 3.3 as text, then key=value or JSON.
    in_file(took(&["wal: sync duration of "], "duration of ", "etcd wal", OpKind::Fdatasync), "wal"),
    in_file(took(&["slow fdatasync", "took"], "took", "etcd wal", OpKind::Fdatasync), "wal"),
    // etcd server/etcdserver/util.go
    took(&["apply request took too long", "took"], "\"took\":", "etcd apply", OpKind::Other),
    took(&["apply request took too long", "took"], "took:", "etcd apply", OpKind::Other),
    took(&["range request", "took too long ("], "took too long (", "etcd request", OpKind::Other),
    took(&["request \"", "took too long ("], "took too long (", "etcd request", OpKind::Other),
    took(&["apply entries took too long ["], "too long [", "etcd apply", OpKind::Other),
    took(&["etcdserver", "trace[", "duration:"], "duration:", "etcd request", OpKind::Other),
    says(&["failed to send out heartbeat on time"], "etcd"),
    says(&["leader failed to send out heartbeat"], "etcd"),
    // ZooKeeper: FileTxnLog.java
    in_file(millis(&["fsync-ing the write ahead log", "took "], "took ", "zookeeper SyncThread", OpKind::Fsync), "log"),
    // Kafka: UnifiedLog.scala rolls under a lock. The work of LogCleaner and others does not block clients.
    millis(&["Rolled new log segment at offset", " in "], " in ", "kafka log roll", OpKind::Other),
    millis(&["log segment", "Flushed", " in "], " in ", "kafka flush", OpKind::Fsync),
    // RocketMQ: store/src/main/java/org/apache/rocketmq/store/CommitLog.java
    millis(&["putMessage in lock cost time(ms)="], "cost time(ms)=", "rocketmq commit log", OpKind::Write),
    // Redis: aof.c writes after two seconds although the fsync is still running.
    Rule {
        words: &["Asynchronous AOF fsync is taking too long"],
        length: Length::AtLeast(2_000_000_000),
        thread: "redis bio_aof",
        op: OpKind::Fdatasync,
        file: Some("appendonly.aof"),
    },
    // MySQL, MariaDB: storage/innobase/buf/buf0flu.cc
    millis(&["page_cleaner: 1000ms intended loop took "], "loop took ", "InnoDB page_cleaner", OpKind::Write),
    millis(&["Page cleaner took ", "to flush "], "took ", "InnoDB page_cleaner", OpKind::Write),
    took(&["--Thread ", "has waited at ", " for "], " for ", "InnoDB thread", OpKind::Other),
    took(&["has waited at", "seconds the semaphore"], " for ", "InnoDB thread", OpKind::Other),
    says(&["InnoDB: ", "long semaphore wait"], "InnoDB"),
    took(&["InnoDB: Long wait (", "seconds"], "(", "InnoDB thread", OpKind::Other),
    took(&["A long wait (", "was observed"], "(", "InnoDB thread", OpKind::Other),
    // MongoDB: JSON since 4.4, text before.
    millis(&["\"msg\":\"Slow query\"", "\"durationMillis\":"], "\"durationMillis\":", "mongod", OpKind::Other),
    millis(&["flushing mmaps took "], "took ", "mongod flush", OpKind::Msync),
    millis(&["serverStatus was very slow", "at end: "], "at end: ", "mongod", OpKind::Other),
    millis(&["serverStatus was very slow", "\"at end\":"], "\"at end\":", "mongod", OpKind::Other),
    Rule {
        words: &[" COMMAND ", " command ", "ms"],
        length: Length::Last("ms"),
        thread: "mongod",
        op: OpKind::Other,
        file: None,
    },
    Rule {
        words: &[" WRITE ", " locks:{", "ms"],
        length: Length::Last("ms"),
        thread: "mongod",
        op: OpKind::Other,
        file: None,
    },
    // Elasticsearch, OpenSearch: GatewayMetaState, FsHealthService, MasterService, ClusterApplierService, SyncedFlush.
    took(&["writing cluster state took ["], "took [", "elasticsearch cluster state", OpKind::Fsync),
    took(&["writing full cluster state took ["], "took [", "elasticsearch cluster state", OpKind::Fsync),
    took(&["health check of [", "took ["], "took [", "elasticsearch fs health", OpKind::Fsync),
    took(&["cluster state", "took [", "which is over ["], "took [", "elasticsearch cluster state", OpKind::Other),
    took(&["took [", "which is above the warn threshold"], "took [", "elasticsearch", OpKind::Other),
    // PostgreSQL: log_min_duration_statement, auto_explain.
    took(&["LOG:", "duration: ", " ms", "COMMIT"], "duration: ", "postgres commit", OpKind::Other),
    took(&["LOG:", "duration: ", " ms"], "duration: ", "postgres", OpKind::Other),
    says(&["using stale statistics instead of current ones"], "postgres"),
    // RocksDB db/column_family.cc
    says(&["Stalling writes because"], "rocksdb"),
    says(&["Stopping writes because"], "rocksdb"),
    // Cassandra: AbstractCommitLogService.java, GCInspector.java
    took(
        &["commit log syncs over the past", "average duration of "],
        "average duration of ",
        "cassandra commit log",
        OpKind::Fsync,
    ),
    // HBase: AbstractFSWAL.java; HDFS: BlockReceiver.java, DFSOutputStream
    millis(&["Slow sync cost: "], "cost: ", "hbase wal", OpKind::Fsync),
    millis(&["Slow flushOrSync took "], "took ", "hdfs BlockReceiver", OpKind::Fsync),
    millis(&["Slow BlockReceiver write data to disk cost:"], "cost:", "hdfs BlockReceiver", OpKind::Write),
    millis(&["Slow manageWriterOsCache took "], "took ", "hdfs BlockReceiver", OpKind::SyncFileRange),
    // CockroachDB, Pebble: pkg/storage/pebble.go
    took(&["disk slowness detected: ", "ongoing for "], "ongoing for ", "pebble", OpKind::Fsync),
    took(&["disk stall detected", " for "], " for ", "pebble", OpKind::Fsync),
    took(&["disk stall detected: unable to write", "within "], "within ", "pebble", OpKind::Fsync),
    // Ceph: OSD and BlueStore.
    took(&["slow ops, oldest one blocked for "], "blocked for ", "ceph osd", OpKind::Other),
    took(&["slow operation observed for ", "latency = "], "latency = ", "bluestore", OpKind::Fdatasync),
    took(&["slow requests", "oldest blocked for > "], "blocked for > ", "ceph osd", OpKind::Other),
    // Consul, Nomad, Vault: hashicorp/raft
    took(&["raft: failed to contact", "time="], "time=", "raft", OpKind::Other),
    // nats-server, TiKV, Scylla
    took(&["[WARN]", "slow", "fsync", "took"], "took", "server", OpKind::Fsync),
    took(&["Reactor stalled for "], "stalled for ", "seastar reactor", OpKind::Other),
    // Oracle: trace file of the log writer.
    took(&["log write elapsed time "], "elapsed time ", "oracle lgwr", OpKind::Write),
    // SQL Server: states the number of requests, not their duration; the threshold is 15 s.
    Rule {
        words: &["occurrence(s) of I/O requests taking longer than"],
        length: Length::AtLeast(15_000_000_000),
        thread: "sqlservr",
        op: OpKind::Other,
        file: None,
    },
    // Dovecot: mail-transaction-log.c
    took(&["transaction log file", " was locked for "], "locked for ", "dovecot", OpKind::Other),
    took(&["Transaction log file", " was locked for "], "locked for ", "dovecot", OpKind::Other),
    // Programs that detect by their own clock that they did not run: corosync, keepalived, ctdb; Elasticsearch's
    // ThreadPool, Hadoop's JvmPauseMonitor, HikariCP's housekeeper.
    took(&["main process was not scheduled for "], "scheduled for ", "corosync", OpKind::Other),
    took(&["thread timer expired ", " seconds ago"], "expired ", "keepalived", OpKind::Other),
    took(&["Handling event took ", " seconds"], "took ", "ctdbd", OpKind::Other),
    took(&["timer thread slept for ["], "slept for [", "elasticsearch timer", OpKind::Other),
    took(&["Detected pause in JVM or host machine", "pause of approximately "], "approximately ", "jvm", OpKind::Other),
    took(&["starvation or clock leap detected", "delta="], "delta=", "jvm", OpKind::Other),
    // Other programs that print the duration of an fsync.
    took(&["fsync took "], "fsync took ", "server", OpKind::Fsync),
    took(&["fdatasync took "], "fdatasync took ", "server", OpKind::Fdatasync),
    took(&["sync took "], "sync took ", "server", OpKind::Fsync),
    took(&["fsync", " took "], " took ", "server", OpKind::Fsync),
];

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statement {
    Took { ns: u64, basis: DurationBasis },
    Reported,
}

#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub rule: &'static Rule,
    pub statement: Statement,
}

/// Finds all words of `words` in one pass over a line.
static FIRST: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(words()).ok());

/// The longest word of each rule: a line without any of them matches no rule.
pub fn words() -> Vec<&'static str> {
    RULES.iter().filter_map(|rule| rule.words.iter().max_by_key(|word| word.len()).copied()).collect()
}

#[must_use]
pub fn matching(text: &str) -> Option<Found> {
    if text.len() < 20 || text.len() > 8192 {
        return None;
    }
    // Patterns are numbered like rules: only rules whose longest word is in the line are checked.
    let mut matched = u128::MAX;
    if let Some(first) = FIRST.as_ref() {
        matched = first
            .find_overlapping_iter(text)
            .fold(0, |matched, found| matched | 1 << found.pattern().as_usize().min(127));
    }
    if matched == 0 {
        return None;
    }
    RULES.iter().enumerate().find_map(|(number, rule)| {
        let asked = matched & (1 << number.min(127)) != 0;
        (asked && rule.words.iter().all(|word| text.contains(word))).then_some(())?;
        Some(Found { rule, statement: rule.length.of(text)? })
    })
}

impl Length {
    fn of(self, text: &str) -> Option<Statement> {
        let took = |ns| Statement::Took { ns, basis: DurationBasis::Measured };
        match self {
            Length::After(key, bare_ns) => duration::first(text.split_once(key)?.1, bare_ns).map(took),
            Length::Last(unit) => {
                let number = text.trim_end().strip_suffix(unit)?.rsplit(' ').next()?;
                number.parse::<u64>().ok().map(|value| took(value.saturating_mul(1_000_000)))
            }
            Length::AtLeast(ns) => Some(Statement::Took { ns, basis: DurationBasis::Inferred }),
            Length::Nothing => Some(Statement::Reported),
        }
    }
}

/// Whether this is a line of some server's log: it contains a time near its beginning, or a level.
#[must_use]
pub fn is_logged(text: &str) -> bool {
    let levels = [
        "INFO",
        "WARN",
        "ERROR",
        "DEBUG",
        "LOG:",
        "STATEMENT:",
        "DETAIL:",
        "\"level\":",
        "[Note]",
        "[Warning]",
        "InnoDB:",
    ];
    super::time::of_line(text).is_some() || levels.iter().any(|level| text.contains(level))
}

#[cfg(test)]
mod tests {
    use super::{Statement, matching};
    use flatwater_recording::OpKind;

    #[test]
    fn messages_of_servers_about_slow_disks_match_their_rules() {
        for (line, op, ms) in [
            ("2026-11-22 10:20:30.1 W | wal: sync duration of 1.5s, expected less than 1s", OpKind::Fdatasync, 1500),
            (
                "{\"level\":\"warn\",\"msg\":\"slow fdatasync\",\"took\":\"1.5s\",\"expected-duration\":\"1s\"}",
                OpKind::Fdatasync,
                1500,
            ),
            ("WARN fsync-ing the write ahead log in SyncThread:2 took 3932ms which will", OpKind::Fsync, 3932),
            (
                "1:M 22 Nov 2026 10:20:30.0 * Asynchronous AOF fsync is taking too long (disk is busy?).",
                OpKind::Fdatasync,
                2000,
            ),
            ("[Note] InnoDB: page_cleaner: 1000ms intended loop took 5223ms. The settings", OpKind::Write, 5223),
            (
                "[WARN ][o.e.g.x] [n] writing cluster state took [12340ms] which is above the warn threshold of [10s]",
                OpKind::Fsync,
                12340,
            ),
            ("LOG:  duration: 1234.000 ms  statement: COMMIT", OpKind::Other, 1234),
            ("INFO [sync.2] wal.FSHLog: Slow sync cost: 250 ms, current pipeline", OpKind::Fsync, 250),
            ("disk slowness detected: sync on file x (0 bytes) has been ongoing for 20.0s", OpKind::Fsync, 20000),
            ("mongod.1[12]: [DataFileSync] flushing mmaps took 15000ms  for 9 files", OpKind::Msync, 15000),
            ("2026-11-22T10:20:30 I COMMAND  [conn1] command a.b command: insert 812ms", OpKind::Other, 812),
            ("Warning: log write elapsed time 1540ms, size 12KB", OpKind::Write, 1540),
            (
                "spid4s SQL Server has encountered 3 occurrence(s) of I/O requests taking longer than 15 seconds to",
                OpKind::Other,
                15_000,
            ),
            (
                "imap(a): Warning: Transaction log file /m/x.log was locked for 31 seconds (mailbox)",
                OpKind::Other,
                31_000,
            ),
            (
                "corosync[7]: [MAIN  ] Corosync main process was not scheduled for 4250.5 ms (threshold",
                OpKind::Other,
                4250,
            ),
            ("Keepalived_vrrp[9]: A thread timer expired 3.250000 seconds ago", OpKind::Other, 3250),
            (
                "[WARN ][o.e.t.ThreadPool] [n] timer thread slept for [5.1s/5100ms] on absolute clock",
                OpKind::Other,
                5100,
            ),
            (
                "WARN util.JvmPauseMonitor: Detected pause in JVM or host machine (eg GC): pause of approximately 2200ms",
                OpKind::Other,
                2200,
            ),
            (
                "HikariPool-1 - Thread starvation or clock leap detected (housekeeper delta=1m1s500ms).",
                OpKind::Other,
                61_500,
            ),
        ] {
            let found = matching(line).unwrap_or_else(|| panic!("nothing: {line}"));
            let Statement::Took { ns, .. } = found.statement else { panic!("no duration: {line}") };
            assert_eq!((found.rule.op, ns / 1_000_000), (op, ms), "{line}");
        }
        for line in
            ["he took 5 apples for lunch today", "INFO Processing ruok command from /127.0.0.1:44088", "sync; echo 3"]
        {
            assert!(matching(line).is_none(), "{line}");
        }
    }
}
