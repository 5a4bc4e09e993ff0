//! Reads Ceph: `ceph osd perf` (commit latency of each OSD), and blocked requests in `ceph -s` and
//! `ceph health detail`.

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::number;
use super::single_call::single_call;
use super::text::Cursor;
use super::when::SECOND_NS;
use super::{FormatKind, Importer, best};
use crate::anchors::Anchor;
use flatwater_recording::schema::{Column, disks};
use flatwater_recording::{Basis, Cause, Entity, OpKind, Table};

pub const OSD_PERF: Importer = Importer {
    name: "ceph-osd-perf",
    sentence: "ceph osd perf: the commit latency of each OSD.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["commit_latency"])],
    detect: |cursor| if is_perf_header(cursor.next_text()) { 94 } else { 0 },
    read: read_perf,
};

pub const HEALTH: Importer = Importer {
    name: "ceph-health",
    sentence: "ceph -s, ceph health detail: blocked requests and slow operations.",
    kind: FormatKind::DeviceState,
    anchors: &[Anchor::Table(&["HEALTH_", "cluster:"]), Anchor::Common(&[" blocked "])],
    detect: |cursor| match cursor.next_text().trim() {
        text if blocked(text).is_some() && !is_logged(text) => 78,
        text if text.starts_with("HEALTH_")
            || text.starts_with("health: HEALTH_")
            || text.starts_with("health HEALTH_") =>
        {
            78
        }
        text if text == "cluster:" && cursor.ahead(1).is_some_and(|line| line.text.trim().starts_with("id:")) => 90,
        _ => 0,
    },
    read: read_health,
};

/// `osd  commit_latency(ms)  apply_latency(ms)`; before Luminous `osd fs_commit_latency(ms) fs_apply_latency(ms)`.
fn is_perf_header(text: &str) -> bool {
    if !text.trim_start().starts_with("osd") {
        return false;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    matches!(words.as_slice(), ["osd", commit, apply] if commit.contains("commit_latency(ms)") && apply.contains("apply_latency(ms)"))
}

fn read_perf(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    cursor.take();
    let (track, at) = b.snapshot("ceph-osd-perf");
    while let Some(line) = cursor.peek().filter(|line| !line.is_blank()) {
        let words = line.words();
        let [osd, commit, apply] = words.as_slice() else { break };
        let (Ok(osd), Some(commit), Some(apply)) = (osd.parse::<u32>(), number(commit), number(apply)) else { break };
        cursor.take();
        // A mean without a count: one write with this duration.
        let ms = commit.max(apply).clamp(0.0, 1e9);
        let entity = Entity::named(&format!("osd.{osd}"));
        let zeros: [(Column, Cell); 2] = [(disks::WRITES, Cell::Rise(0.0)), (disks::WRITE_NS, Cell::Rise(0.0))];
        b.row((track, at.saturating_sub(SECOND_NS)), Table::Disks, &entity, &zeros);
        let cells: [(Column, Cell); 2] = [(disks::WRITES, Cell::Rise(1.0)), (disks::WRITE_NS, Cell::Rise(ms * 1e6))];
        b.row((track, at), Table::Disks, &entity, &cells);
    }
    b.gap(
        "the number of writes of each OSD",
        "ceph osd perf prints only mean times; each counts as one write",
        "iostat -x 1 on the hosts",
    );
    Ok(())
}

/// `256 slow ops, oldest one blocked for 3285 sec`, `24 ops are blocked > 32.768 sec on osd.15`,
/// `150 requests are blocked > 32 sec`, `17 slow metadata IOs are blocked > 30 secs, oldest blocked for 3065 secs`: the
/// duration in ns, and the slow daemon.
fn blocked(text: &str) -> Option<(u64, &str)> {
    if !text.contains(" blocked ") {
        return None;
    }
    let keys = ["oldest one blocked for ", "oldest blocked for > ", "oldest blocked for ", "are blocked > "];
    let key = keys.iter().find(|key| text.contains(**key))?;
    let seconds = text.split_once(key)?.1.split_whitespace().next().and_then(number)?;
    let who = text.split([' ', ',', '[', ']']).find(|word| word.starts_with("osd.") || word.starts_with("mds."));
    Some(((seconds.clamp(0.0, 1e9) * 1e9) as u64, who.unwrap_or("ceph")))
}

/// Whether this is a line of a daemon's log. The importer of application logs reads those, with their times.
fn is_logged(text: &str) -> bool {
    text.contains("cluster [") || text.starts_with("20") && text.contains(':') && text.contains(" log_channel")
}

/// Beginnings of the lines of `ceph -s` and `ceph health detail`.
const SECTIONS: &[&str] = &[
    "cluster:",
    "id:",
    "health",
    "HEALTH_",
    "services:",
    "mon:",
    "mgr:",
    "osd:",
    "mds:",
    "rgw:",
    "data:",
    "pools:",
    "volumes:",
    "objects:",
    "usage:",
    "pgs:",
    "io:",
    "client:",
    "recovery:",
    "monmap",
    "osdmap",
    "pgmap",
    "fsmap",
    "election epoch",
    "flags",
    "client io",
    "recovery io",
    "[WRN]",
    "[ERR]",
    "pg ",
    "osd.",
    "mds.",
    "cluster ",
    "SLOW_OPS",
    "REQUEST_SLOW",
    "OSD_",
    "PG_",
    "MDS_",
    "BLUESTORE_",
    "progress:",
    "cache:",
    "rbd-mirror:",
    "mon ",
    "noout",
    "mon.",
];

fn read_health(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("ceph-health");
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        let reported = blocked(text);
        let counts = text.starts_with(|c: char| c.is_ascii_digit())
            && ["active", "used", "pgs", "osds", "slow", "stale", "peering"].iter().any(|word| text.contains(word));
        let counts = counts && best(cursor).is_none();
        if !(reported.is_some() || line.is_blank() || counts || SECTIONS.iter().any(|key| text.starts_with(key))) {
            break;
        }
        cursor.take();
        match reported {
            // The request is still under way: the time is its minimum, and the cause is unknown.
            Some((ns, who)) => {
                let call = single_call(0, who, OpKind::Other, ns, Cause::Unexplained, Basis::Inferred);
                b.call((place.0, place.1.saturating_sub(i64::try_from(ns).unwrap_or(0))), call);
            }
            None if line.is_blank() => {}
            None => b.pass_over(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::blocked;
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::disks;

    #[test]
    fn blocked_requests_of_all_versions_are_recognized() {
        assert_eq!(blocked("24 ops are blocked > 32.768 sec on osd.15"), Some((32_768_000_000, "osd.15")));
        assert_eq!(
            blocked("2 slow ops, oldest one blocked for 77757 sec, daemons [osd.1,osd.2] have slow ops."),
            Some((77_757_000_000_000, "osd.1"))
        );
        assert_eq!(blocked("31 active+clean"), None);
    }

    #[test]
    fn a_status_and_a_latency_table_are_both_read() {
        let text = "  cluster:\n    id:     40b9\n    health: HEALTH_WARN\n            2 slow ops, oldest one blocked for 77 sec, osd.1 has slow ops\n\n  services:\n    mon: 3 daemons, quorum a,b,c (age 22h)\n    osd: 3 osds: 3 up (since 21h), 3 in (since 22h)\n\n  data:\n    pools:   2 pools, 33 pgs\n    pgs:     31 active+clean\n             2  active+clean+laggy\n\nosd  commit_latency(ms)  apply_latency(ms)\n  2                 954                954\n  0                   3                  3\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        assert_eq!(recording.calls.len(), 1);
        let table = recording.table(Table::Disks).expect("disks");
        let (_, rows) = table.by_entity().find(|(entity, _)| entity.name == "osd.2").expect("osd.2");
        assert_eq!(rows.rise(disks::WRITE_NS), Some(954_000_000));
        let read = recording.header.import.expect("a log");
        assert_eq!(read.understood, read.lines, "{read:?}");
    }
}
