/* The maps of the second object, and what it reads of a thread. SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAIT_TASKS_H
#define FLATWATER_WAIT_TASKS_H

#include "file_kinds.h"
#include "descriptors.h"
#include "variant.h"

/* Set by user space before the object is loaded. */
const volatile u64 sleep_ns_min = 500000;  /* shorter sleeps are not reported */
const volatile u32 whole_machine = 0;      /* follow every process, without a table of targets */
const volatile u64 async_ns_min = 1000000; /* faster operations are only counted */
/* If not 0, calls are found by their sleeps, and a call that has lasted this long is reported even if each sleep was
 * short. */
const volatile u64 call_ns_min = 0;
const volatile u8 call_path_arg[512] = {0}; /* index + 1 of a system call's path argument; 0: none */
const volatile u8 call_file_arg[512] = {0}; /* index + 1 of a system call's descriptor argument; 0: none */
const volatile u64 file_calls[8] = {0};    /* the timed system calls */
const volatile u64 lock_calls[8] = {0};    /* system calls whose interruptible sleeps are reported: flock, fcntl, futex */
const volatile u64 registers_end = 16384;  /* end of the saved registers, from the start of a thread's kernel stack */
const volatile u64 read_number = 0;        /* the system call read() */
const volatile u64 direct_end = 0;         /* address of iomap_dio_bio_end_io: the end of direct I/O */
const volatile u64 aio_end = 0;            /* address of aio_complete_rw: the end of libaio's reads and writes */

#define PF_KTHREAD 0x200000
#define PF_WQ_WORKER 0x20
#define PF_IO_WORKER 0x10

struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 1 << 22); } wait_records SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WAIT_COUNTERS);
	__type(key, u32);
	__type(value, u64);
} wait_counters SEC(".maps");
/* Processes whose operations and locks are followed, by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, u32);
} wait_targets SEC(".maps");

static __always_inline void wait_count(u32 which)
{
	u64 *value = bpf_map_lookup_elem(&wait_counters, &which);
	if (value)
		*value += 1;
}

static __always_inline bool is_target(u32 tgid)
{
	return whole_machine || bpf_map_lookup_elem(&wait_targets, &tgid) != NULL;
}

/* The entry of a table of calls; 0 for a number that is out of range. The asm keeps the compiler from dropping the
 * mask, because the verifier of 6.1 does not derive the bound from the comparison. */
static __always_inline u32 of_call(const volatile u8 *table, long number)
{
	u64 place = number;
	if (place >= 512)
		return 0;
	asm volatile("" : "+r"(place));
	return table[place & 511];
}

static __always_inline bool has_call(const volatile u64 *set, long number)
{
	return number >= 0 && number < 512 && (set[(number >> 6) & 7] >> (number & 63)) & 1;
}

enum cgroup_subsys_id { memory_cgrp_id };

/* The id of the task's cgroup of the memory controller, which exists in both versions; else of the version 2 cgroup.
 */
static __always_inline u64 cgroup_id_of(struct task_struct *task)
{
	struct css_set___waits *set = BPF_CORE_READ((struct task_struct___waits *)task, cgroups);
	struct cgroup *group = NULL;
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id)) {
		u64 index = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
		struct cgroup_subsys_state *css = NULL;
		bpf_probe_read_kernel(&css, sizeof(css), (void *)set + bpf_core_field_offset(struct css_set___waits, subsys) + index * 8);
		if (css)
			group = BPF_CORE_READ(css, cgroup);
	}
	if (!group)
		group = BPF_CORE_READ(set, dfl_cgrp);
	return BPF_CORE_READ(group, kn, id);
}

static __always_inline u32 name_of_file(struct file *file, char *name, u64 *inode_number)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	*inode_number = BPF_CORE_READ(inode, i_ino);
	bpf_probe_read_kernel_str(name, WAIT_NAME_BYTES, BPF_CORE_READ(file, f_path.dentry, d_name.name));
	return BPF_CORE_READ(inode, i_sb, s_dev);
}

/* The registers with which a thread entered the kernel, at the top of the kernel stack. The helper exists since 5.15.
 */
static __always_inline struct pt_regs___waits *regs_of(struct task_struct *task)
{
#ifdef HASH_BY_TID
	u64 stack = (u64)BPF_CORE_READ((struct task_struct___waits *)task, stack);
	return (void *)(stack + registers_end - bpf_core_type_size(struct pt_regs));
#else
	return (void *)bpf_task_pt_regs(task);
#endif
}

static __always_inline void copy_comm(char *into, struct task_struct *task)
{
#ifdef HASH_BY_TID
	bpf_probe_read_kernel_str(into, 16, ((struct task_struct___waits *)task)->comm);
#else
	u64 *from = (u64 *)task->comm, *to = (u64 *)into;
	to[0] = from[0];
	to[1] = from[1];
#endif
}

/* `place` is the argument's index + 1, as in the tables of calls. */
static __always_inline u64 argument_at(struct pt_regs___waits *regs, u32 place)
{
	return place == 1 ? CALL_ARG0(regs) : place == 2 ? CALL_ARG1(regs) : CALL_ARG2(regs);
}

/* Not inlined: needed twice per record. */
static __noinline int describe_task(struct task_struct *task, struct wait_task *into)
{
	if (!task || !into)
		return 0;
	struct task_struct___waits *known = (void *)task;
	into->tid = BPF_CORE_READ(known, pid);
	into->tgid = BPF_CORE_READ(known, tgid);
	into->flags = BPF_CORE_READ(known, flags);
	into->cgroup = cgroup_id_of(task);
	into->call = -1;
	into->function = into->inode = 0;
	into->file[0] = 0;
	bpf_probe_read_kernel_str(into->comm, sizeof(into->comm), known->comm);
	if (into->flags & PF_WQ_WORKER) {
		struct kthread *thread = KTHREAD_OF(known, BPF_CORE_READ);
		struct worker *worker = BPF_CORE_READ(thread, data);
		into->function = (u64)BPF_CORE_READ(worker, current_func);
	}
	if (into->flags & (PF_KTHREAD | PF_IO_WORKER))
		return 0;
	struct pt_regs___waits *regs = regs_of(task);
	long number = CALL_OF(regs);
	into->call = number;
	u32 which = of_call(call_file_arg, number);
	if (which) {
		struct file *file = file_at(task, argument_at(regs, which));
		if (file)
			name_of_file(file, into->file, &into->inode);
	}
	return 0;
}

#endif
