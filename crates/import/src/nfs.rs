//! Reads the counters of an NFS client's mounts: nfsiostat, /proc/self/mountstats and the tool `mountstats`, nfsstat.
//!
//! A mount is stored as a device. `exe` is the time of an operation from the client's queue to the reply, like iostat's
//! await. Many retransmissions mean trouble with the server or the network.

use std::collections::HashMap;

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::means::{Alone, Mean, Means};
use super::number::{number, rounded};
use super::sar::is_banner;
use super::text::Cursor;
use super::when::stamp;
use super::{FormatKind, Importer, is_of_another};
use crate::anchors::Anchor;
use flatwater_recording::schema::{Column, disks};
use flatwater_recording::{DeviceTrouble, Entity, EventKind, Table};

pub const NFSIOSTAT: Importer = Importer {
    name: "nfsiostat",
    sentence: "nfsiostat: operations of NFS mounts and how long they take.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["rpc bklog", " mounted on ", "retrans"])],
    detect: |cursor| {
        let named = mount(cursor.next_text()).is_some() && (1..4).any(|ahead| has(cursor, ahead, is_backlog));
        if named || is_backlog(cursor.next_text()) || kind(cursor.next_text()).is_some() { 93 } else { 0 }
    },
    read: read_nfsiostat,
};

pub const MOUNTSTATS: Importer = Importer {
    name: "mountstats",
    sentence: "/proc/self/mountstats, mountstats, nfsstat -c: operations of NFS mounts since they were mounted.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&[" mounted on ", "Client rpc stats", "retrans", "per-op statistics"])],
    detect: |cursor| match cursor.next_text().trim() {
        text if text.starts_with("device ") && text.contains(" mounted on ") && text.contains(" with fstype ") => 92,
        text if text.starts_with("Stats for ") && text.contains(" mounted on ") => 92,
        text if is_rpc_header(text) => 92,
        text if text.starts_with("per-op statistics") => 90,
        _ => 0,
    },
    read: read_mountstats,
};

/// Minimum share and number of retransmitted operations to report that the server does not reply in time.
const RESENT_SHARE_MIN: f64 = 0.01;
const RESENT_MIN: f64 = 50.0;

fn has(cursor: &Cursor<'_>, ahead: usize, is: fn(&str) -> bool) -> bool {
    cursor.ahead(ahead).is_some_and(|line| is(line.text))
}

/// The export in `server:/export mounted on /mnt:`.
fn mount(text: &str) -> Option<&str> {
    let (export, place) = text.trim().split_once(" mounted on ")?;
    (export.contains(':') && !export.contains(' ') && place.starts_with('/') && !place.contains(' ')).then_some(export)
}

/// Whether the line is `Timestamp         :02/26/2026 05:20:00`.
fn is_timestamp(text: &str) -> bool {
    let value = text.strip_prefix("Timestamp").and_then(|rest| rest.trim_start().strip_prefix(':'));
    value.is_some_and(|value| stamp(value).is_some())
}

/// Whether the line is the banner above a list of mounts.
fn is_banner_of(cursor: &Cursor<'_>) -> bool {
    is_banner(cursor.next_text()) && (1..5).any(|ahead| has(cursor, ahead, |text| mount(text).is_some()))
}

fn is_backlog(text: &str) -> bool {
    text.contains("rpc bklog")
}

/// `read:   ops/s  kB/s  kB/op  retrans  avg RTT (ms)  avg exe (ms)`: whether the rows are writes, and the text after
/// the label.
fn kind(text: &str) -> Option<(bool, &str)> {
    let text = text.trim_start();
    let (writes, rest) = text
        .strip_prefix("read:")
        .map(|rest| (false, rest))
        .or_else(|| text.strip_prefix("write:").map(|rest| (true, rest)))?;
    (rest.contains("ops/s") && rest.contains("retrans")).then_some((writes, rest))
}

fn read_nfsiostat(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (mut means, mut name) = (Means::default(), "an NFS mount".to_owned());
    let (mut writes, mut begun, mut resent) = (None, false, Resent::default());
    // The line above was `rpc bklog`: operations per second and backlog follow.
    let mut backlog = false;
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        let below_backlog = backlog && !line.is_blank();
        backlog &= line.is_blank();
        if let Some(export) = mount(text) {
            export.clone_into(&mut name);
            begun = false;
        } else if let Some((of_writes, _)) = kind(text) {
            writes = Some(of_writes);
        } else if is_backlog(text) {
            backlog = true;
        } else if line.is_blank() || is_timestamp(text) || is_banner_of(cursor) {
        } else {
            let values = values(text);
            match (writes.take(), values.as_deref()) {
                (Some(of_writes), Some([operations, kib, _, again, _, exe_ms, ..])) => {
                    let columns = if of_writes {
                        [disks::WRITES, disks::WRITE_BYTES, disks::WRITE_NS]
                    } else {
                        [disks::READS, disks::READ_BYTES, disks::READ_NS]
                    };
                    let cells = columns.into_iter().zip([*operations, kib * 1024.0, operations * exe_ms * 1e6]);
                    if let Some(percent) = percentage(text) {
                        resent.add(&name, *again, again * 100.0 / percent);
                    }
                    if !begun && !means.push(Mean { name: name.clone(), cells: Vec::new() }) {
                        break;
                    }
                    begun = true;
                    means.extend_last(&name, cells);
                }
                (None, Some([_, _])) if below_backlog => {}
                _ => break,
            }
        }
        cursor.take();
    }
    let alone = Alone {
        what: "interval of nfsiostat's report",
        why: "there is only one report: its values are means since the mount",
        remedy: "nfsiostat 1 while it is slow",
    };
    means.write(b, "nfsiostat", "nfsiostat", alone);
    resent.report(b);
    Ok(())
}

/// The share of retransmitted operations in `100 (10.0%)`, if it is not 0. The other columns are rates, and the length
/// of the interval is not printed.
fn percentage(text: &str) -> Option<f64> {
    let inner = text.split_once('(')?.1.split_once("%)")?.0;
    number(inner.trim()).filter(|percent| *percent > 0.0)
}

/// The numbers of a line that holds nothing else, without percentages in parentheses.
fn values(text: &str) -> Option<Vec<f64>> {
    let words = text.split_whitespace().filter(|word| !word.starts_with('('));
    let values: Option<Vec<f64>> = words.map(number).collect();
    values.filter(|values| values.len() >= 2)
}

/// Retransmitted and all operations of each mount, in the order of the log.
#[derive(Default)]
struct Resent {
    mounts: Vec<(String, f64, f64)>,
    places: HashMap<String, usize>,
}

impl Resent {
    fn add(&mut self, mount: &str, resent: f64, all: f64) {
        let place = *self.places.entry(mount.to_owned()).or_insert(self.mounts.len());
        if place == self.mounts.len() {
            self.mounts.push((mount.to_owned(), 0.0, 0.0));
        }
        if let Some((_, sum, sum_of_all)) = self.mounts.get_mut(place) {
            (*sum, *sum_of_all) = (*sum + resent, *sum_of_all + all);
        }
    }

    fn report(self, b: &mut Builder) {
        let many = |(_, resent, all): &(String, f64, f64)| *resent >= RESENT_MIN && *resent >= RESENT_SHARE_MIN * all;
        for (mount, resent, all) in self.mounts.into_iter().filter(many) {
            let place = b.snapshot_of("nfsstat", &mount);
            let line =
                format!("nfs: {mount}: {resent:.0} of {all:.0} operations were retransmitted: no answer in time");
            b.event(place, EventKind::Device { trouble: DeviceTrouble::NotResponding, line });
        }
    }
}

fn is_rpc_header(text: &str) -> bool {
    text.starts_with("Client rpc stats")
        || text.starts_with("calls") && text.split_whitespace().nth(1) == Some("retrans")
}

fn read_mountstats(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("mountstats");
    let (mut name, mut below, mut resent) = ("an NFS mount".to_owned(), false, Resent::default());
    let mut totals: Vec<(Column, f64)> = Vec::new();
    let (mut of, mut operations, mut counts_below) = (None, 0.0, false);
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        if let Some(export) = text.strip_prefix("device ").or_else(|| text.strip_prefix("Stats for ")) {
            write_totals(b, place, &name, &mut totals);
            export.split(" mounted on ").next().unwrap_or(export).clone_into(&mut name);
        } else if is_rpc_header(text) {
            below = !text.starts_with("Client");
        } else if let (true, Some([calls, again, ..])) = (below, values(text).as_deref()) {
            resent.add("all mounts", *again, *calls);
            below = false;
        } else if let Some((kind, counts)) = of_operation(text) {
            of = Some(kind);
            match counts.as_slice() {
                // operations, sent, timeouts, bytes sent, bytes received, queue, round trip, total; times in ms.
                [all, sent, _, out, into, _, _, whole_ms, ..] => {
                    resent.add(&name, (sent - all).max(0.0), *all);
                    add(&mut totals, kind, *all, if kind == Kind::Read { *into } else { *out }, whole_ms * 1e6);
                }
                _ if counts.is_empty() => {}
                _ => break,
            }
        } else if let Some((all, again)) = text.split_once(" ops (").zip(text.split_once(" retrans")) {
            operations = number(all.0).unwrap_or(0.0);
            let again = again.0.rsplit(char::is_whitespace).next().and_then(number).unwrap_or(0.0);
            resent.add(&name, again, operations);
        } else if let (Some(kind), Some(ms)) = (of, after(text, "total execute time:")) {
            add(&mut totals, kind, operations, 0.0, ms * 1e6 * operations);
        } else if is_names(text) && has(cursor, 1, is_counts) {
            counts_below = true;
        } else if counts_below && is_counts(text) {
            counts_below = false;
        } else if !(line.is_blank() || is_own(text)) || is_of_another(cursor, &MOUNTSTATS) {
            break;
        }
        cursor.take();
    }
    write_totals(b, place, &name, &mut totals);
    resent.report(b);
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Other,
}

/// `WRITE: 1200 1200 0 83886080 172800 120 40000 40250`, or only the name.
fn of_operation(text: &str) -> Option<(Kind, Vec<f64>)> {
    let (name, rest) = text.split_once(':')?;
    OPERATIONS.contains(&name).then_some(())?;
    let kind = match name {
        "READ" => Kind::Read,
        "WRITE" | "COMMIT" => Kind::Write,
        _ => Kind::Other,
    };
    let counts: Option<Vec<f64>> = rest.split_whitespace().map(number).collect();
    Some((kind, counts?))
}

/// Operations of NFS 3 and 4, as mountstats prints them (fs/nfs/nfs3xdr.c, fs/nfs/nfs4xdr.c).
const OPERATIONS: &[&str] = &[
    "NULL",
    "READ",
    "WRITE",
    "COMMIT",
    "OPEN",
    "OPEN_CONFIRM",
    "OPEN_NOATTR",
    "OPEN_DOWNGRADE",
    "CLOSE",
    "SETATTR",
    "FSINFO",
    "FSSTAT",
    "RENEW",
    "SETCLIENTID",
    "SETCLIENTID_CONFIRM",
    "LOCK",
    "LOCKT",
    "LOCKU",
    "ACCESS",
    "GETATTR",
    "LOOKUP",
    "LOOKUPP",
    "LOOKUP_ROOT",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "CREATE",
    "MKDIR",
    "RMDIR",
    "MKNOD",
    "PATHCONF",
    "STATFS",
    "READLINK",
    "READDIR",
    "READDIRPLUS",
    "SERVER_CAPS",
    "DELEGRETURN",
    "GETACL",
    "SETACL",
    "FS_LOCATIONS",
    "RELEASE_LOCKOWNER",
    "SECINFO",
    "SECINFO_NO_NAME",
    "FSID_PRESENT",
    "EXCHANGE_ID",
    "CREATE_SESSION",
    "DESTROY_SESSION",
    "DESTROY_CLIENTID",
    "SEQUENCE",
    "GET_LEASE_TIME",
    "RECLAIM_COMPLETE",
    "LAYOUTGET",
    "GETDEVICEINFO",
    "GETDEVICELIST",
    "LAYOUTCOMMIT",
    "LAYOUTRETURN",
    "LAYOUTSTATS",
    "LAYOUTERROR",
    "TEST_STATEID",
    "FREE_STATEID",
    "BIND_CONN_TO_SESSION",
    "SEEK",
    "ALLOCATE",
    "DEALLOCATE",
    "CLONE",
    "COPY",
    "COPY_NOTIFY",
    "OFFLOAD_CANCEL",
    "OFFLOAD_STATUS",
    "GETXATTR",
    "SETXATTR",
    "LISTXATTRS",
    "REMOVEXATTR",
    "READ_PLUS",
    "ZERO_RANGE",
];

fn add(totals: &mut Vec<(Column, f64)>, kind: Kind, operations: f64, bytes: f64, ns: f64) {
    let columns = match kind {
        Kind::Read => [disks::READS, disks::READ_BYTES, disks::READ_NS],
        Kind::Write => [disks::WRITES, disks::WRITE_BYTES, disks::WRITE_NS],
        Kind::Other => return,
    };
    for (column, value) in columns.into_iter().zip([operations, bytes, ns]) {
        match totals.iter_mut().find(|(known, _)| *known == column) {
            Some((_, total)) => *total += value,
            None => totals.push((column, value)),
        }
    }
}

/// Writes the totals since the mount.
fn write_totals(b: &mut Builder, place: (super::builder::Track, i64), name: &str, totals: &mut Vec<(Column, f64)>) {
    let cells: Vec<(Column, Cell)> =
        totals.drain(..).map(|(column, value)| (column, Cell::Counter(rounded(value)))).collect();
    if !cells.is_empty() {
        b.totals(place, Table::Disks, &Entity::named(name), &cells, "nfsiostat 1");
    }
}

fn after(text: &str, key: &str) -> Option<f64> {
    text.split_once(key)?.1.split_whitespace().next().and_then(number)
}

/// Whether this is another line of these listings.
fn is_own(text: &str) -> bool {
    const KEYS: &[&str] = &[
        "opts:",
        "age:",
        "caps:",
        "nfsv4:",
        "sec:",
        "events:",
        "bytes:",
        "xprt:",
        "fsc:",
        "impl_id:",
        "RPC iostats version",
        "per-op statistics",
        "NFS mount options:",
        "NFS mount age:",
        "NFS server capabilities:",
        "NFSv4 capability flags:",
        "NFS security flavor:",
        "NFS byte counts:",
        "NFS capability flags:",
        "RPC statistics:",
        "Client nfs v",
        "Client packet stats",
        "Server rpc stats",
        "Server nfs v",
        "Server packet stats",
    ];
    KEYS.iter().any(|key| text.starts_with(key))
        || [
            "avg bytes sent per op",
            "backlog wait",
            "applications read",
            "applications wrote",
            "client read",
            "client wrote",
            "RPC requests sent",
            "average backlog queue",
            "via normal read",
            "via normal write",
        ]
        .iter()
        .any(|word| text.contains(word) && text.contains(|c: char| c.is_ascii_digit()))
}

/// Whether the line is `null         getattr      setattr      lookup` of nfsstat; the counts are on the next line.
fn is_names(text: &str) -> bool {
    const NAMES: &[&str] = &[
        "null",
        "getattr",
        "lookup",
        "write",
        "commit",
        "fsinfo",
        "readdir",
        "open",
        "setclntid",
        "exchange_id",
        "seek",
    ];
    let mut words = text.split_whitespace();
    words.clone().any(|word| NAMES.contains(&word))
        && words.all(|word| word.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'))
}

/// Whether the line is `0         0% 1200     31%`, with or without percentages.
fn is_counts(text: &str) -> bool {
    let mut words = text.split_whitespace();
    !text.trim().is_empty() && words.all(|word| number(word.trim_end_matches('%')).is_some())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::schema::disks;
    use flatwater_recording::{Recording, Table};

    fn read(text: &str) -> Recording {
        import_texts(&[("f".to_owned(), text.into())]).expect("read").recording
    }

    /// Number of writes, and ms per write.
    fn writes(recording: &Recording) -> (i64, i64) {
        let (_, rows) = recording.table(Table::Disks).expect("disks").by_entity().next().expect("a mount");
        let count = rows.rise(disks::WRITES).expect("writes");
        (count, rows.rise(disks::WRITE_NS).expect("time") / count.max(1) / 1_000_000)
    }

    #[test]
    fn old_and_new_reports_are_read() {
        let old = "filer:/vol mounted on /mnt:\n\n   op/s\t\trpc bklog\n  59.00 \t   0.00\nread:             ops/s\t\t   kB/s\t\t  kB/op\t\tretrans\t\tavg RTT (ms)\tavg exe (ms)\n\t\t  0.000 \t  0.000 \t  0.000 \t       0 (0.0%) \t  0.000 \t  0.000\nwrite:            ops/s\t\t   kB/s\t\t  kB/op\t\tretrans\t\tavg RTT (ms)\tavg exe (ms)\n\t\t  40.000 \t 800.000 \t 20.000 \t       0 (0.0%) \t 80.000 \t 400.000\n";
        assert_eq!(writes(&read(old)), (40, 400));
        let new = old
            .replace("avg exe (ms)", "avg exe (ms)  avg queue (ms)  errors")
            .replace("400.000\n", "400.000 320.000 0 (0.0%)\n");
        assert_eq!(writes(&read(&new)), (40, 400));
        // The first of two reports is the mean since the mount.
        let twice = format!("{old}\n{}", old.replace("400.000\n", "10.000\n"));
        assert_eq!(writes(&read(&twice)), (40, 10));
    }

    #[test]
    fn a_table_after_nfsstat_is_read_by_its_importer() {
        let text = "Client rpc stats:\ncalls      retrans    authrefrsh\n29103      12         29110\n\nClient nfs v4:\nnull         read         write        commit\n1         0% 20        0% 300       1% 2         0%\nprocs -----------memory---------- ---swap-- -----io---- -system-- ----cpu----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa\n 2  0 152388 226112  11092 1087072    0    0     1     1    0    1 47 22 27  1\n";
        let recording = read(text);
        assert!(recording.table(Table::Meminfo).is_some());
        let read = recording.header.import.expect("a log");
        assert_eq!(read.not_understood, [], "{read:?}");
    }

    #[test]
    fn totals_and_retransmissions_are_read() {
        let file = "device filer:/vol mounted on /mnt with fstype nfs4 statvers=1.1\n\topts:\trw,vers=4.1\n\tage:\t99\n\tper-op statistics\n\t        NULL: 1 1 0 44 24 0 0 0 0\n\t        READ: 10 10 0 1000 20000 1 50 52 0\n\t       WRITE: 1000 1100 3 83886080 172800 120 40000 40250 0\n";
        let recording = read(file);
        assert_eq!(writes(&recording), (1000, 40));
        assert_eq!(recording.events.len(), 1, "{:?}", recording.events);
        let rpc = "Client rpc stats:\ncalls      retrans    authrefrsh\n29103      12         29110\n";
        assert!(
            import_texts(&[("f".to_owned(), rpc.into())]).map_or(true, |imported| imported.recording.events.is_empty())
        );
        assert_eq!(read(&rpc.replace(" 12 ", " 4012 ")).events.len(), 1);
    }
}
