//! Reads Redis' INFO: what its persistence has done since the start, and is doing now.
//!
//! `aof_delayed_fsync` counts the write() calls that Redis made although a background fsync had been running for two
//! seconds (src/aof.c, flushAppendOnlyFile): each is a sync of at least that length. `latest_fork_usec` is the duration
//! of the last fork(), during which the server does not respond.

use crate::anchors::Anchor;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::number::count;
use crate::single_call::single_call;
use crate::text::Cursor;
use crate::{FormatKind, Importer};
use flatwater_recording::{Basis, Cause, DurationBasis, EventKind, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "redis-info",
    sentence: "Redis INFO (Valkey, KeyDB): delayed and pending syncs, running and failed saves, the last fork.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Line(&[
        "redis_version",
        "valkey_version",
        "rdb_",
        "aof_",
        "latest_fork_usec",
        "# Server",
        "# Clients",
        "# Memory",
        "# Persistence",
        "# Stats",
        "# Replication",
        "# CPU",
        "# Commandstats",
        "# Errorstats",
        "# Latencystats",
        "# Modules",
        "# Cluster",
        "# Keyspace",
        "# Keysizes",
    ])],
    detect: |cursor| match cursor.next_text().trim() {
        text if pair(text).is_some_and(|(key, _)| KNOWN.contains(&key)) => 90,
        text if is_head(text) && cursor.ahead(1).is_some_and(|line| pair(line.text.trim()).is_some()) => 88,
        _ => 0,
    },
    read,
};

/// Keys that no other program prints.
const KNOWN: &[&str] = &[
    "redis_version",
    "valkey_version",
    "rdb_changes_since_last_save",
    "rdb_bgsave_in_progress",
    "rdb_last_bgsave_status",
    "aof_enabled",
    "aof_rewrite_in_progress",
    "aof_last_bgrewrite_status",
    "aof_last_write_status",
    "aof_pending_bio_fsync",
    "aof_delayed_fsync",
    "latest_fork_usec",
];

/// Whether the line is the title of a section of INFO, such as `# Persistence`.
fn is_head(text: &str) -> bool {
    const HEADS: &[&str] = &[
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Commandstats",
        "Errorstats",
        "Latencystats",
        "Modules",
        "Cluster",
        "Keyspace",
        "Keysizes",
    ];
    text.strip_prefix("# ").is_some_and(|head| HEADS.contains(&head))
}

/// Key and value of `aof_delayed_fsync:13`, without a remark after the value.
fn pair(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.split_once(':')?;
    let plain = key.len() > 2 && key.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
    let value = value.split(['#', ' ', '\t']).next().unwrap_or_default();
    plain.then_some((key, value))
}

/// Maximum calls from the delayed syncs of one INFO: more add no information.
const DELAYED_MAX: i64 = 16;
/// Time for which flushAppendOnlyFile() waits for a running sync.
const DELAYED_NS: u64 = 2_000_000_000;

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("redis-info");
    let call = |b: &mut Builder, thread: &str, op: OpKind, ns: u64, basis: DurationBasis| {
        let mut call = single_call(0, thread, op, ns, Cause::Unexplained, Basis::Exact);
        call.segments.iter_mut().for_each(|segment| segment.duration_basis = basis);
        b.call(place, call);
    };
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        if text.is_empty() || is_head(text) {
            cursor.take();
            continue;
        }
        let Some((key, value)) = pair(text) else { break };
        cursor.take();
        match (key, count(value).unwrap_or(0)) {
            ("aof_delayed_fsync", times) if times > 0 => {
                for _ in 0..times.min(DELAYED_MAX) {
                    call(b, "redis bio_aof", OpKind::Fdatasync, DELAYED_NS, DurationBasis::Inferred);
                }
                b.event(place, EventKind::report(format!("Redis wrote {times} times while a sync took over 2 s")));
                b.note("aof_delayed_fsync counts since Redis started: a second reading shows whether it grows");
            }
            ("latest_fork_usec", us) if us > 0 => {
                call(b, "redis fork", OpKind::Other, us.unsigned_abs().saturating_mul(1000), DurationBasis::Measured);
            }
            ("aof_pending_bio_fsync" | "rdb_bgsave_in_progress" | "aof_rewrite_in_progress", now) if now > 0 => {
                b.event(place, EventKind::report(format!("Redis {key}:{now}")));
            }
            ("aof_last_write_status" | "aof_last_bgrewrite_status" | "rdb_last_bgsave_status", _) if value == "err" => {
                b.event(place, EventKind::report(format!("Redis {key}:err")));
            }
            _ => b.pass_over(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::OpKind;

    #[test]
    fn delayed_syncs_and_forks_are_calls() {
        let text = "# Persistence\nloading:0\nrdb_bgsave_in_progress:1\naof_enabled:1\naof_pending_bio_fsync:1\n\
            aof_delayed_fsync:3 # since the start\n\n# Stats\nlatest_fork_usec:981432\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let calls: Vec<(OpKind, u64)> = recording.calls.iter().map(|call| (call.op, call.duration_ns)).collect();
        assert_eq!(calls.iter().filter(|call| **call == (OpKind::Fdatasync, 2_000_000_000)).count(), 3);
        assert!(calls.contains(&(OpKind::Other, 981_432_000)), "{calls:?}");
        assert_eq!(recording.events.len(), 3, "{:?}", recording.events);
        let summary = recording.header.import.expect("a summary");
        assert_eq!(summary.lines, summary.understood, "{:?}", summary.not_understood);
    }
}
