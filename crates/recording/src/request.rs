//! Requests to block devices, and whose they are: what a slow call waited for, and what was ahead of it in the queue.

use crate::Task;
use crate::call::named_enum;
use crate::store::flat::{named_cells, table};

table! {
    /// A request to a block device that a sleep of a wait chain waited for.
    Request = "requests" {
        /// As `waits` and `queue_ahead` refer to it; counts up from 1.
        id: u64,
        /// `vda`.
        device: String,
        op: RequestOp,
        /// Somebody waits for it (REQ_SYNC).
        sync: Option<bool>,
        sector: u64,
        bytes: u64,
        /// When the device's queue took it.
        insert_ns: u64,
        /// When the driver got it; null if that was not seen. Queued time is from `insert_ns` to here.
        issue_ns: Option<u64>,
        /// When the device had done it, or the recording's end (`still_under_way`). Device time is from `issue_ns` to here.
        complete_ns: u64,
        /// Held back by a limit of its cgroup (blkio, io.max) before it was inserted. That wait is not part of the request: it is
        /// the sleep until `insert_ns`.
        throttled: Option<bool>,
        /// The thread that handed it to the block layer; of a write from the page cache the flusher.
        submitter: Task,
        /// Whose request it is; null where nobody is known.
        owner: Option<Task>,
        owner_basis: OwnerBasis,
        /// Inode of the file that it is a part of; null for a file system's own blocks, flushes and discards.
        inode: Option<u64>,
        /// Last part of that file's name.
        file: Option<String>,
        /// Number of the file system that the data belongs to, as in /proc/self/mountinfo (`259:1`); of a block device's own pages,
        /// a journal's among them, that of the block device. Null where the request has no page of a file, and in recordings of
        /// earlier versions.
        file_system: Option<String>,
        /// Requests of this device that were queued or in flight when it was inserted.
        ahead: u32,
        /// The same, in bytes.
        ahead_bytes: u64,
        /// Requests that were inserted after it, and completed before it.
        overtaken_by: u32,
        /// Since when it was waited for, where that was before its insertion: until then the queue was full, or whoever was to
        /// submit it waited for others. What is ahead of it counts from here.
        awaited_ns: Option<u64>,
        /// Of its time at the device: how long threads of the kernel that serve this device, or complete its requests, waited for a
        /// CPU (a loop device's worker, a softirq's thread); `cpu_owners` says who had it. Null where none of them was seen.
        server_waited_ns: Option<u64>,
        /// Of a loop device's request: the disk below, which the loop device asked for the same data. Null where nothing below was
        /// seen, of other devices, and in recordings of earlier versions.
        below_device: Option<String>,
        /// For how long that disk had requests that were made of this one, from their insertion to their completion.
        below_ns: Option<u64>,
        /// The device had not completed it when the recording ended. A request like this may be one that no recorded wait is
        /// for. Null in recordings of earlier versions, which have none.
        still_under_way: Option<bool>,
    }
}

table! {
    /// What was ahead of an awaited request in the device's queue, by owner: requests that were queued or in flight when it was
    /// inserted, or were issued before it; and what was at the device beside it.
    QueueAhead = "queue_ahead" {
        /// The request that waited.
        request: u64,
        /// Whose requests these are; null where nobody is known.
        owner: Option<Task>,
        owner_basis: OwnerBasis,
        op: RequestOp,
        inode: Option<u64>,
        file: Option<String>,
        /// Number of their file system, as in `requests`.
        file_system: Option<String>,
        requests: u64,
        bytes: u64,
        /// How long the device worked on them while the request waited: intervals of requests in flight side by side are
        /// divided among them, the awaited one included, by their bytes and a fixed part each, so that the sum over owners is at
        /// most the wait.
        device_ns: u64,
        /// Of a flush: these bytes were in the device's cache, written since the flush before it. Its time is divided among
        /// their owners.
        in_cache: Option<bool>,
        /// Issued after the request that waited, and at the device together with it. Null in recordings of earlier versions, which
        /// have none of these.
        beside: Option<bool>,
    }
}

table! {
    /// A device's requests that completed in an interval, by owner, file and kind.
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
        /// Time from insertion to issue, of all of them together.
        queue_ns: u64,
        /// Time from issue to completion, of all of them together.
        device_ns: u64,
    }
}

named_enum! {
    /// What a request does.
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
    /// How it is known whose a request is.
    #[derive(Default)]
    OwnerBasis {
        /// The thread that submitted it is its owner: a read, direct I/O, or a write within fsync.
        Submitter => "submitter",
        /// The flusher submitted it; the owner made the inode dirty.
        Dirtier => "dirtier",
        /// Only the cgroup that the kernel charges is known.
        Cgroup => "cgroup",
        /// A kernel thread on behalf of many (the journal), or nobody is known.
        #[default]
        Unknown => "unknown",
    }
}

named_cells!(RequestOp, OwnerBasis);
