/* What the tracer's two sides share: the layout of a thread's state and of the records it emits.
 * Rust's mirror is crates/host/src/tracer/layout.rs; a test holds it against this object's BTF, field by field.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_SLOW_CALLS_H
#define FLATWATER_SLOW_CALLS_H

/* enum bracket, EACH_BRACKET and EACH_FUNCTION: made by build.rs from the causes' specs, in cargo's OUT_DIR. */
#include "causes.h"

enum size {
	STRETCHES = 64,    /* held per thread before a batch of the call is sent ahead; a power of two: it is used as a mask */
	DEPTH = 16,        /* nested brackets followed; a power of two */
	OWN_SLOTS = 256,   /* threads of our own that may be timed at once */
	PATH_BYTES = 128,
	NAME_BYTES = 48,
	STACK_FRAMES = 40
};

enum stack_table { STACK_SECOND = 0x40000000 }; /* this stack id is in the second table, see take_stack() */

enum stretch_kind {
	ON_CPU = 0,
	SAMPLED = 1,        /* on the CPU up to the moment of a sample, whose stack it carries */
	ASLEEP = 2,
	WOKEN = 3,          /* runnable after a wake-up, not yet running */
	PREEMPTED = 4,      /* runnable, another thread ran */
	THROTTLED = 5,      /* seen to be throttled by the CPU controller when it left the CPU */
	THROTTLED_LATER = 6 /* the group's throttled time rose by this much while the thread waited to run */
};

enum record_kind {
	R_PIECE = 1,       /* the first intervals of a call that is still running */
	R_CALL = 2,        /* a finished slow system call */
	R_FAULT = 3,       /* a page fault of user code that was slow */
	R_AFTER_EXIT = 4,  /* a sleep between the return of the call and user code */
	R_FAULT_WHOLE = 5, /* a slow page fault whose end was seen */
	R_UNDER_WAY = 6    /* a call that has not ended, asked for when the recording does */
};

enum counter { C_LOST, C_TOO_DEEP, C_NO_STATE, C_UNBALANCED, C_STACK_ERROR, C_BUSY, C_SAMPLES, C_NO_FILE, COUNTERS };

/* Keeps the enums in the object's type information, where a test of user space compares them. */
struct enums {
	enum size size;
	enum stack_table stack_table;
	enum stretch_kind stretch_kind;
	enum bracket bracket;
	enum record_kind record_kind;
	enum counter counter;
};

struct stretch {
	unsigned long long ns;
	int stack;                /* negative: none */
	unsigned char kind;
	unsigned char bracket;
	unsigned short count;     /* how many were joined, saturating */
};

struct dirty_numbers {
	unsigned long long at_ns;
	long long pause_ms;       /* as the tracepoint gives it; may be negative */
	unsigned long long dirty_pages, limit_pages, wb_dirty_pages, wb_setpoint_pages;
	unsigned long long pauses; /* in this call */
};

/* One thread's call under way. For our own threads it is in memory shared with user space, which writes
 * `op_start_ns` and reads the rest once it has cleared it; for others in task storage. */
struct call_state {
	unsigned long long op_start_ns; /* ours only: 0 between operations */
	unsigned long long start_ns;    /* the call that all below belongs to */
	unsigned long long last_ns;     /* the intervals reach to here */
	unsigned long long end_ns;
	unsigned long long wake_ns;
	unsigned long long throttled_ns; /* the group's total when the thread left the CPU */
	unsigned long long arg[4];
	long long result;
	unsigned long long position;    /* file position after the call */
	unsigned long long after_exit_ns;
	unsigned long long lock[DEPTH];
	unsigned long long inode;       /* address of the inode that the call's descriptor was open on; others only */
	unsigned long long inode_number;
	unsigned long long device;      /* of the inode's file system, as the kernel encodes it */
	struct dirty_numbers dirty;
	unsigned int tid, tgid;
	int number;
	int sleep_stack;
	unsigned int stretches;
	unsigned int pieces;            /* sent ahead of this record */
	unsigned char record;           /* enum record_kind */
	unsigned char active;           /* others only: 0 no call, 1 system call, 2 page fault */
	unsigned char off;              /* 0 on the CPU, else the kind of the current interval */
	unsigned char busy;
	unsigned char depth;
	unsigned char after_exit;       /* the call has returned, user code has not been seen yet */
	unsigned char damaged;
	unsigned char has_position;
	unsigned char bracket[DEPTH];
	char comm[16];
	unsigned char file_kind;        /* enum file_kind, of `inode` */
	unsigned char file_named;       /* `name` is of this call */
	unsigned char unused[6];
	char path[PATH_BYTES];
	char name[NAME_BYTES];          /* the last part of the file's path, cut */
	struct stretch stretch[STRETCHES];
};

#endif
