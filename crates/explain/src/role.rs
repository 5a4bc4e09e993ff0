//! Tells request threads, which clients wait for, from background threads.
//!
//! One table; the first matching rule wins. A thread without a rule is judged by its place in its process: the
//! first thread is a request thread, the role of others is unknown.

use serde::Serialize;
use wildmatch::WildMatch;

/// Whether clients wait while the thread waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Role {
    /// Clients wait for it.
    Request,
    /// Neither the table nor its place in the process tells.
    #[default]
    Unknown,
    /// It works ahead of or behind requests, and no client waits for it directly.
    Background,
}

impl Role {
    pub const ALL: &[Role] = &[Role::Request, Role::Unknown, Role::Background];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Request => "request",
            Role::Unknown => "unknown",
            Role::Background => "background",
        }
    }
}

/// An entry of the table about one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub role: Role,
    /// A label for threads whose own name says little; otherwise empty.
    pub label: &'static str,
    pub why: &'static str,
}

/// `programs` and `threads` are patterns with `*` and `?`. `threads` is matched with the thread's name, and with the
/// process's title without the program's name (`postgres: checkpointer` -> `checkpointer`).
struct Rule {
    programs: &'static [&'static str],
    threads: &'static [&'static str],
    known: Known,
}

const fn rule(
    programs: &'static [&'static str],
    threads: &'static [&'static str],
    role: Role,
    label: &'static str,
    why: &'static str,
) -> Rule {
    Rule { programs, threads, known: Known { role, label, why } }
}

use Role::{Background, Request};

const POSTGRES: &[&str] = &["postgres", "postmaster"];
const REDIS: &[&str] = &["redis-server", "valkey-server", "keydb-server"];
const MYSQL: &[&str] = &["mariadbd", "mysqld"];
const JAVA: &[&str] = &["java"];
const ANY: &[&str] = &["*"];

const RULES: &[Rule] = &[
    // Kernel threads, in logs and machine-wide recordings.
    rule(
        ANY,
        &["jbd2/*", "kworker/*", "kswapd*", "kcompactd*", "khugepaged", "xfsaild/*"],
        Background,
        "",
        "a thread of the kernel",
    ),
    // src/backend/utils/misc/ps_status.c sets the titles, preceded by `CLUSTER_NAME: ` if a cluster name is set.
    // Backends come first, because their titles contain names that users chose.
    rule(POSTGRES, &["* * *[local]*", "* * *(*)*"], Request, "backend", "serves one client"),
    rule(
        POSTGRES,
        &["*checkpointer*"],
        Background,
        "checkpointer",
        "writes and syncs dirty buffers on a schedule; backends wait for it only through locks and the device",
    ),
    rule(
        POSTGRES,
        &["*background writer*", "*bgwriter*"],
        Background,
        "background writer",
        "writes buffers ahead of need",
    ),
    rule(
        POSTGRES,
        &["*walwriter*", "*wal writer*"],
        Background,
        "walwriter",
        "flushes WAL of asynchronous commits; a synchronous commit flushes its own",
    ),
    rule(POSTGRES, &["*autovacuum*"], Background, "autovacuum", "vacuums on its own schedule"),
    rule(
        POSTGRES,
        &["*archiver*", "*logger*", "*stats collector*", "*logical replication launcher*"],
        Background,
        "",
        "no query waits for it",
    ),
    rule(
        POSTGRES,
        &["*walsender*", "*walreceiver*", "*startup*"],
        Request,
        "",
        "a synchronous commit, or the start of the server, waits for it",
    ),
    rule(POSTGRES, &["postgres"], Request, "backend", "serves one client"),
    // Thread names from src/bio.c and src/networking.c.
    rule(REDIS, &["bio_*"], Background, "", "syncs, closes and frees on behalf of the main thread"),
    rule(REDIS, &["jemalloc_bg_thd"], Background, "", "returns memory"),
    rule(REDIS, &["io_thd_*"], Request, "", "reads from and replies to clients"),
    rule(
        MYSQL,
        &["ib_*_flush*", "ib_pg_flush*", "ib_*_purge*", "ib_srv_*", "ib_clone*", "ib_buf_*", "ib_dict_*"],
        Background,
        "",
        "an InnoDB thread that cleans, purges or keeps statistics",
    ),
    rule(MYSQL, &["ib_log_*"], Request, "", "commits wait for the redo log"),
    rule(MYSQL, &["ib_io_*", "ib_aio*"], Background, "", "completes reads and writes that InnoDB handed over"),
    // Thread names from util/threadpool_imp.cc.
    rule(
        ANY,
        &["rocksdb:low*", "rocksdb:high*", "rocksdb:bot*"],
        Background,
        "",
        "flushes and compacts; writers wait for it only when RocksDB stalls them",
    ),
    rule(&["mongod"], &["WTCheck*", "WTEvict*", "WTOplog*", "Checkpointer"], Background, "", "WiredTiger's own thread"),
    rule(&["mongod"], &["WTJourn*", "JournalFlusher"], Request, "", "writes with j:true wait for it"),
    // While these threads work at a safepoint, every thread of the JVM stops.
    rule(
        JAVA,
        &["VM Thread", "GC Thread*", "G1 *", "G1 Main*", "ZGC*", "Z*Thread*"],
        Request,
        "",
        "Java threads are stopped while it works at a safepoint",
    ),
    rule(
        JAVA,
        &["C1 Compiler*", "C2 Compiler*", "Sweeper*", "VM Periodic*", "Service Thread", "Signal Disp*"],
        Background,
        "",
        "a helper of the JVM",
    ),
    rule(
        JAVA,
        &["kafka-log-clean*", "kafka-scheduler*", "log-cleaner*", "scheduled-*"],
        Background,
        "",
        "retention, compaction and flushes on a schedule",
    ),
    rule(
        JAVA,
        &["Lucene Merge*", "*[flush]*", "*[refresh]*", "*[force_merge]*", "*[management]*"],
        Background,
        "",
        "merges, flushes or refreshes an index",
    ),
];

/// The rule for a thread of this name in a process that runs this program.
#[must_use]
pub fn known(program: &str, title: Option<&str>, thread: &str) -> Option<Known> {
    let own_title = title.map(|title| title.split_once(": ").map_or(title, |(_, rest)| rest));
    let matches = |patterns: &[&str], text: &str| patterns.iter().any(|pattern| WildMatch::new(pattern).matches(text));
    // The title says more than the name: every process of PostgreSQL is named `postgres`.
    let texts = own_title.into_iter().chain([thread]);
    texts.into_iter().find_map(|text| {
        RULES.iter().find(|rule| matches(rule.programs, program) && matches(rule.threads, text)).map(|rule| rule.known)
    })
}

/// The role of a thread without a rule.
#[must_use]
pub fn by_place(is_first_thread: bool) -> Known {
    let (role, why) = match is_first_thread {
        true => (Role::Request, "the process's first thread"),
        false => (Role::Unknown, "the table has no entry for this thread"),
    };
    Known { role, label: "", why }
}

#[cfg(test)]
mod tests {
    use super::{Role, by_place, known};

    #[test]
    fn threads_of_known_programs_have_their_roles() {
        for (program, title, thread, role) in [
            ("redis-server", Some("redis-server *:6379"), "bio_aof", Role::Background),
            ("redis-server", None, "io_thd_1", Role::Request),
            ("postgres", Some("postgres: 16/main: checkpointer"), "postgres", Role::Background),
            ("postgres", Some("postgres: autovacuum worker bench"), "postgres", Role::Background),
            ("postgres", Some("postgres: alice bench [local] UPDATE"), "postgres", Role::Request),
            ("postgres", Some("postgres: bob logger 127.0.0.1(4242) idle"), "postgres", Role::Request),
            ("postgres", None, "postgres", Role::Request),
            ("db_bench", None, "rocksdb:low", Role::Background),
            ("java", None, "GC Thread#0", Role::Request),
            ("java", None, "kafka-scheduler", Role::Background),
            ("java", None, "elasticsearch[n1][flush][T#2]", Role::Background),
        ] {
            let known = known(program, title, thread).unwrap_or_else(|| panic!("{program} {title:?} {thread}"));
            assert_eq!(known.role, role, "{program} {title:?} {thread}");
            assert!(!known.why.is_empty());
        }
        assert_eq!(known("redis-server", Some("redis-server *:6379"), "redis-server"), None);
        assert_eq!((by_place(true).role, by_place(false).role), (Role::Request, Role::Unknown));
    }
}
