//! Reads what container tools print about memory: docker stats, and how a container ended (kubectl describe, get -o
//! yaml or json, docker inspect).

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::size;
use super::text::{Cursor, Line};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::cgroup;
use flatwater_recording::{Entity, EventKind, Table};

pub const DOCKER_STATS: Importer = Importer {
    name: "docker-stats",
    sentence: "docker stats, podman stats: memory and limit of each container.",
    kind: FormatKind::Group,
    anchors: &[Anchor::Table(&["MEM USAGE"])],
    detect: |cursor| if is_header(cursor.next_text()) { 94 } else { 0 },
    read: read_stats,
};

pub const CONTAINER_STATE: Importer = Importer {
    name: "container-state",
    sentence: "How containers ended: kubectl describe pod, get -o yaml or json, docker inspect.",
    kind: FormatKind::Unjudged,
    anchors: &[
        Anchor::Table(&[
            "OOMKilled",
            "OOM Killed",
            "Last State",
            "Last Termination State",
            "LastState",
            "Exit Code:",
            "xitCode",
        ]),
        Anchor::Below(&[
            "OOMKilled",
            "OOM Killed",
            "Last State:",
            "Last Termination State:",
            "LastState:",
            "Exit Code:",
            "xitCode",
        ]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if ended(text) => 72,
        text if describes(text) && (1..60).map_while(|ahead| cursor.ahead(ahead)).any(|line| ended(line.text)) => 66,
        _ => 0,
    },
    read: read_state,
};

fn is_header(text: &str) -> bool {
    text.contains("MEM USAGE / LIMIT") && text.contains("CPU %")
}

fn read_stats(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    cursor.take();
    let place = b.snapshot("docker-stats");
    while let Some(line) = cursor.peek().filter(|line| !line.is_blank() && !is_header(line.text)) {
        let Some((name, usage, limit)) = usage(&line) else { break };
        cursor.take();
        let mut cells = vec![(cgroup::USAGE_BYTES, Cell::Gauge(usage))];
        // Without a limit docker prints the machine's memory, which is not charged to a group; 0 means unknown.
        cells.extend((limit > 0).then_some((cgroup::LIMIT_BYTES, Cell::Gauge(limit))));
        if usage > 0 {
            b.row(place, Table::Cgroup, &Entity::named(name), &cells);
        } else {
            b.pass_over();
        }
    }
    b.note("docker stats subtracts inactive_file from the page cache, so usage near the limit is anonymous memory");
    Ok(())
}

/// `1286a6e7a1b3  es01  98.12%  1.999GiB / 2GiB  99.95%  ...`: name, bytes used, limit in bytes.
fn usage<'a>(line: &Line<'a>) -> Option<(&'a str, i64, i64)> {
    let words = line.words();
    let slash = words.iter().position(|word| *word == "/").filter(|at| *at >= 2)?;
    let name = if words.get(1).is_some_and(|word| word.ends_with('%')) { words.first()? } else { words.get(1)? };
    // Docker 1.x printed a blank before the unit: `1.12 GB / 1.928 GB`.
    let (before, after) = (words.get(slash - 1)?, words.get(slash + 1)?);
    let bytes = |value: &str, unit: &str| size(&format!("{value}{unit}"), 1.0);
    if before.bytes().all(|c| c.is_ascii_alphabetic()) {
        return Some((*name, bytes(words.get(slash - 2)?, before)?, bytes(after, words.get(slash + 2)?)?));
    }
    Some((*name, size(before, 1.0)?, size(after, 1.0)?))
}

/// Whether the line says that a container ended, or why.
fn ended(text: &str) -> bool {
    let text = text.trim();
    ["OOMKilled", "OOM Killed"].iter().any(|word| text.contains(word))
        || (text.starts_with("Last State:") || text.starts_with("Last Termination State:"))
            && text.contains("Terminated")
        || ["Exit Code:", "exitCode", "\"ExitCode\""].iter().any(|word| text.contains(word)) && text.contains("137")
        || text.starts_with("LastState:")
}

/// Whether the line is another line of these listings.
fn describes(text: &str) -> bool {
    const KEYS: &[&str] = &[
        "Name",
        "Namespace",
        "Node",
        "Status",
        "State",
        "Started",
        "Finished",
        "Ready",
        "Restart Count",
        "Limits",
        "Requests",
        "Reason",
        "Message",
        "Exit Code",
        "Containers",
        "Container ID",
        "Container Name",
        "Image",
        "Image ID",
        "cpu",
        "memory",
        "Last State",
        "Last Termination State",
        "Labels",
        "IP",
        "Port",
        "Priority",
        "Annotations",
        "Controlled By",
        "Conditions",
        "lastState",
        "terminated",
        "exitCode",
        "reason",
        "startedAt",
        "finishedAt",
        "containerID",
        "restartCount",
        "Environment",
        "Mounts",
        "Image(s)",
        "Host Port",
        "Start Time",
        "LastState",
        "OOMKilled",
        "ExitCode",
    ];
    let text = text.trim().trim_start_matches(['"', '-', '{', ' ']);
    let key = text.split([':', '=']).next().unwrap_or_default().trim_end_matches('"').trim();
    text.contains(':') && KEYS.contains(&key)
}

fn read_state(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("container-state");
    let mut name = String::new();
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        let brace = !text.is_empty() && text.bytes().all(|c| b"{}[],".contains(&c));
        // The name of a container is alone before a colon: `app:`.
        let titled = text.strip_suffix(':').filter(|name| !name.is_empty() && !name.contains(char::is_whitespace));
        if !(ended(text) || describes(text) || brace || titled.is_some()) {
            break;
        }
        cursor.take();
        if let Some(key) = ["Container Name:", "Name:", "\"name\":"].iter().find_map(|key| text.strip_prefix(key)) {
            key.trim().trim_matches([',', '"']).clone_into(&mut name);
        } else if let Some(titled) = titled.filter(|titled| !describes(&format!("{titled}:"))) {
            titled.clone_into(&mut name);
        }
        let killed = text.contains("OOMKilled") || text.contains("OOM Killed");
        // docker inspect prints `"OOMKilled": false` for every other container.
        let denied = text.contains("OOMKilled") && text.contains("false");
        if killed && !denied {
            let whose = if name.is_empty() { "a container".to_owned() } else { format!("container {name}") };
            b.event(place, EventKind::report(format!("Memory cgroup out of memory: {whose} was OOMKilled")));
        } else {
            b.pass_over();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::schema::cgroup;
    use flatwater_recording::{EventKind, Table};

    #[test]
    fn an_oom_killed_container_is_an_event() {
        let text = "Name:         app-5d8\n    State:          Waiting\n      Reason:       CrashLoopBackOff\n    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n    Ready:          False\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let killed = recording
            .events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::OutOfMemory { in_cgroup: true, .. }));
        assert_eq!(killed.count(), 1, "{:?}", recording.events);
        let calm = "    Last State:     Terminated\n      Reason:       Completed\n      Exit Code:    0\n";
        let events = import_texts(&[("f".to_owned(), calm.into())]).map(|imported| imported.recording.events.len());
        assert!(events.is_err() || events.is_ok_and(|events| events == 0));
    }

    #[test]
    fn usage_and_limit_are_read() {
        let text = "CONTAINER ID   NAME      CPU %     MEM USAGE / LIMIT     MEM %     NET I/O           BLOCK I/O         PIDS\n1286a6e7a1b3   es01      98.12%    1.5GiB / 2GiB       75%    1.2GB / 3.1GB     812GB / 12GB      77\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let (_, rows) = recording.table(Table::Cgroup).expect("a table").by_entity().next().expect("a container");
        assert_eq!((rows.last(cgroup::USAGE_BYTES), rows.last(cgroup::LIMIT_BYTES)), (Some(3 << 29), Some(2 << 30)));
    }

    #[test]
    fn a_blank_before_the_unit_is_read_as_docker_before_17_prints_it() {
        let text = "CONTAINER           CPU %               MEM USAGE / LIMIT    MEM %               NET I/O             BLOCK I/O\nfd49d51e1c82        0.00%               1.12 GiB / 2 GiB     58.12%              1.192 kB / 648 B    3.502 MB / 0 B\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let (_, rows) = recording.table(Table::Cgroup).expect("a table").by_entity().next().expect("a container");
        assert_eq!(rows.last(cgroup::LIMIT_BYTES), Some(2 << 30));
    }
}
