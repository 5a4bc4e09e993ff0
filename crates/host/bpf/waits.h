/* The records of the second object, shared by the BPF programs and user space: sleeps with the thread that ended them,
 * device requests, and operations of io_uring and libaio. The Rust mirror is crates/host/src/waits/layout.rs; a test
 * compares it with this object's BTF, field by field. SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAITS_H
#define FLATWATER_WAITS_H

enum wait_size {
	WAIT_FRAMES = 24,      /* frames per stack in a record */
	WAIT_NAME_BYTES = 32,  /* last component of a file's path, truncated */
	AIO_BATCH_MAX = 64,    /* operations followed per io_submit() or io_getevents() */
	ASYNC_ROWS = 8,        /* kinds of io_uring and libaio operations that are counted */
	ASYNC_CLASSES = 512,
	RUNS_KEPT = 64,        /* last switches of a CPU that are kept; a power of two */
	RECLAIMERS_MAX = 1024, /* processes whose reclaim is counted */
	WAIT_FOR_CPU = 255     /* instead of a bracket: the thread was runnable without a CPU */
};

enum wait_record_kind {
	W_SLEEP = 1, W_REQUEST = 2, W_DIRTIER = 3, W_ASYNC = 4, W_RUNNABLE = 5,
	W_UNDER_WAY = 6        /* a sleep that has not ended, sent on request */
};

enum wait_counter {
	WC_LOST,           /* no room in the ring buffer */
	WC_NO_STATE,       /* no storage for a thread */
	WC_REQUESTS_FULL,  /* no room for another request in flight */
	WC_ASYNC_FULL,     /* no room for another operation in flight */
	WC_ASYNC_UNKNOWN,  /* completed, but its submission was not seen */
	WC_AIO_BATCH,      /* batch of more than AIO_BATCH_MAX operations */
	WC_REGISTERS,      /* the saved registers of a thread in read() show that call */
	WC_OTHER_REGISTERS, /* they show another call */
	WAIT_COUNTERS
};

/* Rows of the latency counts. */
enum async_row {
	ROW_URING_READ, ROW_URING_WRITE, ROW_URING_FSYNC, ROW_URING_OTHER, ROW_AIO_READ, ROW_AIO_WRITE, ROW_AIO_FSYNC
};

/* A thread at the time of an event. */
struct wait_task {
	unsigned int tid, tgid;
	int call;                       /* the system call under way; -1: none, or a kernel thread */
	unsigned int flags;             /* PF_* */
	unsigned long long cgroup;      /* kernfs id of the memory controller's cgroup (cgroup_id_of) */
	unsigned long long function;    /* kworker: address of the work function */
	unsigned long long inode;       /* inode number of the system call's descriptor; 0: unknown */
	char comm[16];
	char file[WAIT_NAME_BYTES];
};

/* A long sleep, sent when it ends. An unfinished one (W_UNDER_WAY) ends at the time of the request; its start is 0 if
 * the thread slept before the hooks were attached. */
struct sleep_record {
	unsigned int kind, state;
	unsigned long long start_ns, end_ns;
	struct wait_task sleeper, waker;
	unsigned long long arg[3], ip, sp;     /* of the sleeper's system call, which they identify */
	unsigned long long reads_writes, voluntary_switches;
	unsigned long long call_start_ns;      /* start of the first sleep in the same call; 0 if calls are not detected */
	unsigned long long lock, lock_since_ns;
	unsigned int lock_flags;               /* LCB_F_* */
	unsigned int holder_tid, holder_tgid;
	unsigned int bracket;                  /* 0: a sleep; else an interval: enum bracket or WAIT_FOR_CPU */
	char holder_comm[16];
	unsigned long long awaited_inode;      /* the inode whose writeback was awaited */
	unsigned long long request;            /* sequence of the request whose completion ended the sleep; 0: none */
	unsigned long long waker_request;      /* the same for the completion that woke the idle waker */
	unsigned long long waker_since_ns;     /* waker is a kernel thread: when it was last woken, and by which thread */
	unsigned int waker_by_tid, waker_depth;
	char waker_by_comm[16];
	unsigned long long asynchronous;              /* io-wq worker: address of the worker's io_uring operation */
	unsigned int depth;
	unsigned int target;                   /* whether the sleeper was a target when it woke; it may have ended since */
	unsigned long long frames[WAIT_FRAMES], waker_frames[WAIT_FRAMES];
};

/* A completed request to a block device. */
struct request_record {
	unsigned int kind, device;
	unsigned long long sequence;           /* counts up from 1; with HASH_BY_TID the time of completion */
	unsigned long long insert_ns, issue_ns, done_ns;
	unsigned long long sector, inode, cgroup, function, iocb;
	unsigned int inode_device;             /* of the inode's file system; of a block device's own page, the device */
	unsigned int bytes, flags;
	unsigned int tid, tgid, task_flags;
	unsigned int ahead, ahead_kib, in_flight;
	unsigned int done_tid;                 /* the kernel thread that completed it; 0: interrupt or program */
	unsigned long long data;               /* address of the driver's data behind the request (loop: with its iocb) */
	unsigned long long handed_ns;          /* when done_tid was woken for it, and by which thread */
	unsigned int handed_by, unused;
	char comm[16];
};

/* A process made an inode dirty. */
struct dirtier_record {
	unsigned int kind, inode_device;
	unsigned long long at_ns, inode, cgroup;
	unsigned int tid, tgid;
	char comm[16];
	char file[WAIT_NAME_BYTES];
};

/* A slow operation of io_uring or libaio. */
struct async_record {
	unsigned int kind;
	unsigned int row;                      /* enum async_row */
	unsigned long long key;                /* address of the operation: a sleep's `asynchronous`, a request's `iocb` */
	unsigned long long submit_ns, punt_ns, end_ns;
	unsigned long long bytes, offset, inode;
	long long result;
	unsigned long long worker_from_ns, worker_last_ns; /* io_uring: when the worker was seen in it; 0: not seen */
	unsigned long long returned_ns;        /* libaio: when io_submit() returned */
	unsigned long long reap_from_ns, reap_to_ns; /* last sleep of the thread that collected it, for completions */
	unsigned int reap_count, unused;       /* the number of completions that this sleep waited for */
	unsigned int tid, tgid, worker, opcode;
	unsigned int inode_device;
	unsigned char hashed, punted, has_result, libaio;
	char comm[16];
	char file[WAIT_NAME_BYTES];
};

/* A thread had a CPU from from_ns to to_ns. */
struct run {
	unsigned long long from_ns, to_ns;
	unsigned int tid, tgid;
	char comm[16];
};

/* A thread got a CPU after waiting for it; `run` lists the threads that ran there during the wait, newest first. */
struct runnable_record {
	unsigned int kind, cpu;
	unsigned int tid, tgid;
	unsigned long long start_ns, end_ns;
	unsigned int runs, unused;
	struct run run[RUNS_KEPT];
};

/* What a process has reclaimed so far. */
struct reclaimer {
	unsigned long long pages, calls, cgroup;
	unsigned int tid, unused;
	char comm[16];
};

/* Keeps the types in the object's BTF, where a test of user space compares them. */
struct wait_types {
	enum wait_size size;
	enum wait_record_kind record;
	enum wait_counter counter;
	enum async_row row;
	struct sleep_record sleep_record;
	struct request_record request_record;
	struct dirtier_record dirtier_record;
	struct async_record async_record;
	struct runnable_record runnable_record;
	struct reclaimer reclaimer;
};

#endif
