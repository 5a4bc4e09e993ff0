//! Who made pages dirty and who allocated memory, interval by interval.

use crate::Task;
use crate::call::named_enum;
use crate::store::flat::{named_cells, table};

table! {
    /// Bytes that a process made dirty in an interval; with `inode`, those of one file.
    Dirtier = "dirtiers" {
        start_ns: u64,
        width_ns: u64,
        /// The process.
        owner: Task,
        /// Null: all files of the process together (the kernel's own count, `write_bytes` of /proc/PID/io).
        inode: Option<u64>,
        /// `major:minor` of the file system that the inode is of.
        device: Option<String>,
        file: Option<String>,
        /// Null where only that it made the inode dirty is known.
        bytes: Option<u64>,
    }
}

table! {
    /// What a process or a memory cgroup took in an interval.
    MemoryUser = "memory_users" {
        start_ns: u64,
        width_ns: u64,
        scope: MemoryScope,
        /// The process; of a cgroup only `cgroup` is set.
        owner: Task,
        /// Pages that it faulted in (of a process), or was charged (of a cgroup, where the kernel counts that).
        allocated_pages: Option<u64>,
        /// Resident at the end of the interval.
        resident_pages: Option<u64>,
        /// Bytes that it had read from devices.
        read_bytes: Option<u64>,
        /// Pages that it had to reclaim itself, since it asked for memory over a limit: what it took of what was short.
        reclaimed_pages: Option<u64>,
        /// How often.
        reclaims: Option<u64>,
        /// True: the whole machine lacked memory; false: a cgroup was at its limit.
        whole_machine: Option<bool>,
    }
}

named_enum! {
    #[derive(Default)]
    MemoryScope {
        #[default]
        Process => "process",
        Cgroup => "cgroup",
    }
}

named_cells!(MemoryScope);
