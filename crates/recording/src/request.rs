//! Requests to block devices and their owners: the requests that slow calls waited for, and those ahead of them in the
//! queue.

use crate::Task;
use crate::call::named_enum;
use crate::store::flat::{named_cells, table};

table! {
    /// A request to a block device that a sleep of a wait chain waited for.
    Request = "requests" {
        /// Number of the request, from 1; `waits` and `queue_ahead` refer to it.
        id: u64,
        /// `vda`.
        device: String,
        op: RequestOp,
        /// A task waits for the request (REQ_SYNC).
        sync: Option<bool>,
        sector: u64,
        bytes: u64,
        /// When the request entered the device's queue.
        insert_ns: u64,
        /// When the driver received the request; null if not observed. The time from `insert_ns` to `issue_ns` is
        /// queued time.
        issue_ns: Option<u64>,
        /// When the device completed the request, or the end of the recording (`still_under_way`). The time from
        /// `issue_ns` to here is device time.
        complete_ns: u64,
        /// Delayed by its cgroup's limit (blkio, io.max) before it was inserted. The delay is not part of the
        /// request: it is the sleep until `insert_ns`.
        throttled: Option<bool>,
        /// The thread that submitted the request to the block layer; for writeback of the page cache this is the
        /// flusher.
        submitter: Task,
        /// The owner of the request; null if unknown.
        owner: Option<Task>,
        owner_basis: OwnerBasis,
        /// Inode of the request's file; null for a file system's own blocks, flushes and discards.
        inode: Option<u64>,
        /// Last component of the file's path.
        file: Option<String>,
        /// Number of the file system of the data, as in /proc/self/mountinfo (`259:1`); for pages of a block device,
        /// including a journal's, the number of the block device. Null if the request has no page of a file, and in
        /// recordings of earlier versions.
        file_system: Option<String>,
        /// Requests of this device that were queued or in flight when this one was inserted.
        ahead: u32,
        /// The same in bytes.
        ahead_bytes: u64,
        /// Requests that were inserted after this one and completed before it.
        overtaken_by: u32,
        /// When the wait for the request began, if before its insertion: until then the queue was full, or the
        /// submitter waited for other requests. The requests ahead of this one count from here.
        awaited_ns: Option<u64>,
        /// Part of the device time in which kernel threads that serve this device or complete its requests (a loop
        /// device's worker, a softirq's thread) waited for a CPU; `cpu_owners` names the tasks that ran. Null if no
        /// such thread was observed.
        server_waited_ns: Option<u64>,
        /// For a request of a loop device: the disk below, from which the loop device requested the same data. Null if
        /// nothing below was observed, for other devices, and in recordings of earlier versions.
        below_device: Option<String>,
        /// Time in which that disk had requests that were made for this one, from insertion to completion.
        below_ns: Option<u64>,
        /// The device had not completed the request when the recording ended. Possibly no recorded wait refers to such
        /// a request. Null in recordings of earlier versions, which lack such requests.
        still_under_way: Option<bool>,
    }
}

table! {
    /// The requests ahead of an awaited request in the device's queue, by owner: those queued or in flight when it was
    /// inserted, those issued before it, and those at the device together with it.
    QueueAhead = "queue_ahead" {
        /// The awaited request.
        request: u64,
        /// The owner of these requests; null if unknown.
        owner: Option<Task>,
        owner_basis: OwnerBasis,
        op: RequestOp,
        inode: Option<u64>,
        file: Option<String>,
        /// Number of their file system, as in `requests`.
        file_system: Option<String>,
        requests: u64,
        bytes: u64,
        /// Time that the device worked on these requests during the wait. Time with several requests in flight is
        /// divided among them, including the awaited one, by their bytes plus a fixed part each, so the sum over
        /// owners is at most the wait.
        device_ns: u64,
        /// For a flush: these bytes were in the device's cache, written since the previous flush. The flush's time is
        /// divided among their owners.
        in_cache: Option<bool>,
        /// Issued after the awaited request, and at the device together with it. Null in recordings of earlier
        /// versions, which lack such rows.
        beside: Option<bool>,
    }
}

table! {
    /// The requests of a device that completed in an interval, by owner, file and kind.
    QueueOwner = "queue_owners" {
        start_ns: u64,
        width_ns: u64,
        device: String,
        owner: Option<Task>,
        owner_basis: OwnerBasis,
        op: RequestOp,
        inode: Option<u64>,
        file: Option<String>,
        requests: u64,
        bytes: u64,
        /// Time from insertion to issue, summed over the requests.
        queue_ns: u64,
        /// Time from issue to completion, summed over the requests.
        device_ns: u64,
    }
}

named_enum! {
    /// The operation of a request.
    #[derive(Default)]
    RequestOp {
        Read => "read",
        Write => "write",
        Flush => "flush",
        Discard => "discard",
        #[default]
        Other => "other",
    }
}

named_enum! {
    /// How the owner of a request is known.
    #[derive(Default)]
    OwnerBasis {
        /// The submitting thread is the owner: a read, direct I/O, or a write within fsync.
        Submitter => "submitter",
        /// The flusher submitted the request; the owner dirtied the inode.
        Dirtier => "dirtier",
        /// Only the cgroup that the kernel charges is known.
        Cgroup => "cgroup",
        /// Submitted by a kernel thread for many tasks (the journal), or the owner is unknown.
        #[default]
        Unknown => "unknown",
    }
}

named_cells!(RequestOp, OwnerBasis);
