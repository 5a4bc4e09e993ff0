//! Dirtied and allocated memory by owner and interval.

use crate::Task;
use crate::call::named_enum;
use crate::store::flat::{named_cells, table};

table! {
    /// Bytes that a process dirtied in an interval; with `inode`, those of one file.
    Dirtier = "dirtiers" {
        start_ns: u64,
        width_ns: u64,
        /// The process.
        owner: Task,
        /// Null: all files of the process together (the kernel's own count, `write_bytes` of /proc/PID/io).
        inode: Option<u64>,
        /// `major:minor` of the inode's file system.
        device: Option<String>,
        file: Option<String>,
        /// Null if it is only known that the process dirtied the inode.
        bytes: Option<u64>,
    }
}

table! {
    /// Memory that a process or a memory cgroup allocated in an interval.
    MemoryUser = "memory_users" {
        start_ns: u64,
        width_ns: u64,
        scope: MemoryScope,
        /// The process; for a cgroup only `cgroup` is set.
        owner: Task,
        /// Pages that the process faulted in, or that the cgroup was charged (if the kernel counts charges).
        allocated_pages: Option<u64>,
        /// Resident pages at the end of the interval.
        resident_pages: Option<u64>,
        /// Bytes read from devices on its behalf.
        read_bytes: Option<u64>,
        /// Pages that it reclaimed itself because it allocated over a limit: its share of the shortage.
        reclaimed_pages: Option<u64>,
        /// Number of such reclaims.
        reclaims: Option<u64>,
        /// True: the whole machine was short of memory; false: a cgroup was at its limit.
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
