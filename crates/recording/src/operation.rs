//! The data to imitate the recorded programs: their operations, their files, the limits of the machine, and the service
//! times of devices.

use crate::call::named_enum;
use crate::store::flat::{named_cells, table};

named_enum! {
    /// Kind of operations that are imitated alike.
    #[derive(Default)]
    OperationKind {
        Read => "read",
        Write => "write",
        Fsync => "fsync",
        Fdatasync => "fdatasync",
        Syncfs => "syncfs",
        Create => "create",
        #[default]
        Open => "open",
        Unlink => "unlink",
        Rename => "rename",
        Resize => "resize",
    }
}

named_enum! {
    /// Part of a group in the recording.
    #[derive(Default)]
    GroupRole {
        /// Its calls are timed.
        #[default]
        Target => "target",
        /// Made the target's calls wait: a candidate for an aggressor.
        Neighbour => "neighbour",
    }
}

named_cells!(OperationKind, GroupRole);

table! {
    /// The operations of one kind of one group of threads: those of a process with the same name, on one file system.
    /// Sums over the recording; for a neighbour since it was noticed.
    Operations = "operations" {
        role: GroupRole,
        /// Null for neighbours, whose processes of one name are counted together.
        pid: Option<u32>,
        /// The threads' name.
        thread: String,
        /// Number of the file system, as in /proc/self/mountinfo (`259:1`).
        file_system: String,
        op: OperationKind,
        /// Successful calls.
        count: u64,
        /// Bytes moved; of reads and writes.
        bytes: u64,
        /// Reads or writes that began where the group's previous one on the same file ended.
        sequential: u64,
        /// Time within these calls, summed.
        call_ns: u64,
        /// Pauses before these calls: from the end of the thread's previous operation. A thread's first operation has
        /// none.
        pauses: u64,
        pause_ns: u64,
        /// Histogram of those pauses in ns: `LOWEST:COUNT` for each class, a power of two wide.
        pause_classes: String,
        /// Histogram of the bytes of reads and writes: `LOWEST:COUNT` for each class, at most an eighth of the lowest
        /// value wide.
        size_classes: String,
        /// Histogram of the number of writes of a thread between two syncs, in the row of the writes.
        sync_classes: String,
        /// Threads of the group, counted when they made their first operation under this name.
        threads: u64,
        /// Transfers of the group with O_DIRECT; the same in each row of the group, as the next two.
        direct: u64,
        /// Writes with O_SYNC or O_DSYNC.
        synced: u64,
        /// Writes with O_APPEND.
        appended: u64,
    }
}

table! {
    /// The files that one process used (for neighbours: all neighbours together), summed by their use.
    OperationFiles = "operation_files" {
        role: GroupRole,
        /// Null for neighbours.
        pid: Option<u32>,
        file_system: String,
        /// Number of files of which the following holds.
        files: u64,
        /// Whether they were written.
        written: Option<bool>,
        /// Whether they were synced.
        synced: Option<bool>,
        /// Whether the target and a neighbour both used them.
        shared: Option<bool>,
        reads: u64,
        writes: u64,
        syncs: u64,
        /// Size of all of them when first used.
        first_bytes: u64,
        /// Size of all of them at the end.
        bytes: u64,
        /// Size of the largest.
        largest_bytes: u64,
    }
}

table! {
    /// A limit or property of the machine that a reproduction needs, at the start and at the end of the recording.
    Limit = "limits" {
        /// `file_system`, `mount_options`, `device`, `capacity`, `room` (bytes); the knobs' names for others.
        name: String,
        /// Number of the file system that it belongs to; empty for those of the target's cgroups and of the machine.
        file_system: String,
        /// Null if it could not be read; see `gaps`.
        at_start: Option<String>,
        at_end: Option<String>,
    }
}

table! {
    /// Requests of a device by kind and size, over the recording.
    ServiceTime = "service_times" {
        /// `vda`.
        device: String,
        op: crate::RequestOp,
        /// Requests of at least this size, and below twice this size.
        from_bytes: u64,
        requests: u64,
        bytes: u64,
        /// Time from insertion to issue, summed.
        queue_ns: u64,
        /// Time from issue to completion, summed.
        device_ns: u64,
    }
}

/// Everything above, of one recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imitation {
    /// What each group of threads did.
    pub operations: Vec<Operations>,
    /// The files that they used.
    pub files: Vec<OperationFiles>,
    /// The limits of the machine and of the groups' cgroups.
    pub limits: Vec<Limit>,
    /// How long the devices took.
    pub service_times: Vec<ServiceTime>,
}

/// Most classes that are read from the text of a histogram; the writer has at most 256.
const CLASSES_MAX: usize = 512;

/// Writes a histogram as `LOWEST:COUNT` words; classes without a count are left out.
#[must_use]
pub fn classes_text(classes: impl IntoIterator<Item = (u64, u64)>) -> String {
    let words = classes.into_iter().filter(|(_, count)| *count > 0);
    words.map(|(lowest, count)| format!("{lowest}:{count}")).collect::<Vec<_>>().join(" ")
}

/// Reads the text of a histogram: lowest value and count of each class. Words of another form are skipped, and further
/// classes than `CLASSES_MAX` are not read.
#[must_use]
pub fn classes_of(text: &str) -> Vec<(u64, u64)> {
    let class = |word: &str| {
        let (lowest, count) = word.split_once(':')?;
        Some((lowest.parse().ok()?, count.parse().ok()?))
    };
    text.split_ascii_whitespace().take(CLASSES_MAX).filter_map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::{classes_of, classes_text};

    #[test]
    fn a_histogram_survives_its_text_and_bad_words_are_skipped() {
        let classes = [(0, 3), (4_096, 0), (1 << 63, u64::MAX)];
        let text = classes_text(classes);
        assert_eq!(text, format!("0:3 {}:{}", 1_u64 << 63, u64::MAX));
        assert_eq!(classes_of(&text), [classes[0], classes[2]]);
        assert_eq!(classes_of("x 1 2: :3 -1:4 5:6 99999999999999999999:1"), [(5, 6)]);
        assert_eq!(classes_of(&"1:1 ".repeat(100_000)).len(), 512, "bounded");
    }
}
