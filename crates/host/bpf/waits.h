/* What the second object's two sides share: sleeps with who ended them, device requests, io_uring and libaio operations.
 * Rust's mirror is crates/host/src/waits/layout.rs; a test holds it against this object's BTF, field by field.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAITS_H
#define FLATWATER_WAITS_H

enum wait_size {
	WAIT_FRAMES = 24,      /* of each stack in a record */
	WAIT_NAME_BYTES = 32,  /* last part of a file's name, cut */
	AIO_BATCH_MAX = 64,    /* operations of one io_submit() or io_getevents() that are followed */
	ASYNC_ROWS = 8,        /* kinds of io_uring and libaio operations that are counted apart */
	ASYNC_CLASSES = 512,
	RUNS_KEPT = 64,        /* switches of a CPU that are remembered, a power of two */
	RECLAIMERS_MAX = 1024, /* processes whose reclaim is counted */
	WAIT_FOR_CPU = 255     /* in the place of a bracket: the thread was runnable, and had no CPU */
};

enum wait_record_kind {
	W_SLEEP = 1, W_REQUEST = 2, W_DIRTIER = 3, W_ASYNC = 4, W_RUNNABLE = 5,
	W_UNDER_WAY = 6        /* a sleep that has not ended, asked for when the recording does */
};

enum wait_counter {
	WC_LOST,           /* no room in the ring */
	WC_NO_STATE,       /* no storage for a thread */
	WC_REQUESTS_FULL,  /* more requests in flight than are followed */
	WC_ASYNC_FULL,     /* more operations in flight than are followed */
	WC_ASYNC_UNKNOWN,  /* completed, and its submission was not seen */
	WC_AIO_BATCH,      /* beyond AIO_BATCH_MAX of one call */
	WAIT_COUNTERS
};

/* Rows of the latency counts. */
enum async_row {
	ROW_URING_READ, ROW_URING_WRITE, ROW_URING_FSYNC, ROW_URING_OTHER, ROW_AIO_READ, ROW_AIO_WRITE, ROW_AIO_FSYNC
};

/* A thread at the moment of an event. */
struct wait_task {
	unsigned int tid, tgid;
	int call;                       /* system call that it is in; -1: none, or a kernel thread */
	unsigned int flags;             /* PF_* */
	unsigned long long cgroup;      /* kernfs id in the hierarchy that is followed */
	unsigned long long function;    /* of a kworker: address of the work's function */
	unsigned long long inode;       /* number of the inode that the system call's descriptor is open on; 0 unknown */
	char comm[16];
	char file[WAIT_NAME_BYTES];
};

/* A sleep that was long enough, told when it ended. One that has not (W_UNDER_WAY) reaches to the moment at which it was asked
 * for, and its start is 0 where the thread slept already when the hooks came. */
struct sleep_record {
	unsigned int kind, state;
	unsigned long long start_ns, end_ns;
	struct wait_task sleeper, waker;
	unsigned long long arg[3], ip, sp;     /* of the sleeper's system call: which call it is, without a hook at its start */
	unsigned long long reads_writes, voluntary_switches;
	unsigned long long call_start_ns;      /* the first sleep of the call that this one is of; 0 where calls are not told apart */
	unsigned long long lock, lock_since_ns;
	unsigned int lock_flags;               /* LCB_F_* */
	unsigned int holder_tid, holder_tgid;
	unsigned int bracket;                  /* enum bracket, or WAIT_FOR_CPU: no sleep but an interval of that; 0 a sleep */
	char holder_comm[16];
	unsigned long long awaited_inode;      /* whose writeback was waited for */
	unsigned long long request;            /* the sequence number of the request whose completion ended the sleep; 0 none */
	unsigned long long waker_request;      /* the same, of the completion that woke the waker from idleness */
	unsigned long long waker_since_ns;     /* a kernel thread: when it was last woken, and by whom */
	unsigned int waker_by_tid, waker_depth;
	char waker_by_comm[16];
	unsigned long long asynchronous;              /* an io-wq worker: the io_uring operation that it works on */
	unsigned int depth;
	unsigned int target;                   /* the sleeper was one when it woke: it may have ended since */
	unsigned long long frames[WAIT_FRAMES], waker_frames[WAIT_FRAMES];
};

/* A finished request to a block device. */
struct request_record {
	unsigned int kind, device;
	unsigned long long sequence;           /* counts up from 1 */
	unsigned long long insert_ns, issue_ns, done_ns;
	unsigned long long sector, inode, cgroup, function, iocb;
	unsigned int inode_device;             /* of its file system; of a block device's own page that device */
	unsigned int bytes, flags;
	unsigned int tid, tgid, task_flags;
	unsigned int ahead, ahead_kib, in_flight;
	unsigned int done_tid;                 /* the kernel thread that completed it; 0 an interrupt, or a program's */
	unsigned long long data;               /* address of the driver's data behind the request, where a loop device has its iocb */
	unsigned long long handed_ns;          /* when that thread was woken for it, and by whom */
	unsigned int handed_by, unused;
	char comm[16];
};

/* Somebody made an inode dirty. */
struct dirtier_record {
	unsigned int kind, inode_device;
	unsigned long long at_ns, inode, cgroup;
	unsigned int tid, tgid;
	char comm[16];
	char file[WAIT_NAME_BYTES];
};

/* An operation of io_uring or libaio that was slow. */
struct async_record {
	unsigned int kind;
	unsigned int row;                      /* enum async_row */
	unsigned long long key;                /* address of the request: as `asynchronous` of a sleep and `iocb` of a request */
	unsigned long long submit_ns, punt_ns, end_ns;
	unsigned long long bytes, offset, inode;
	long long result;
	unsigned int tid, tgid, worker, opcode;
	unsigned int inode_device;
	unsigned char hashed, punted, has_result, libaio;
	char comm[16];
	char file[WAIT_NAME_BYTES];
};

/* A thread had a CPU until then. */
struct run {
	unsigned long long from_ns, to_ns;
	unsigned int tid, tgid;
	char comm[16];
};

/* A thread got a CPU after it had waited for one: who ran there meanwhile, the newest first. */
struct runnable_record {
	unsigned int kind, cpu;
	unsigned int tid, tgid;
	unsigned long long start_ns, end_ns;
	unsigned int runs, unused;
	struct run run[RUNS_KEPT];
};

/* What a process had to reclaim so far. */
struct reclaimer {
	unsigned long long pages, calls, cgroup;
	unsigned int tid, unused;
	char comm[16];
};

/* Keeps the types in the object's type information, where a test of user space compares them. */
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
