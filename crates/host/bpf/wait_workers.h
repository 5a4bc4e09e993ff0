/* The operations of io_uring and libaio under way, and the io_uring workers that perform them. io_uring has no
 * tracepoint for the start and the end of a worker's work: the worker is seen in its operation at each context switch,
 * and when it completes the operation.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAIT_WORKERS_H
#define FLATWATER_WAIT_WORKERS_H

/* System calls of io_uring and libaio. */
const volatile u64 uring_enter_number = 0, io_submit_number = 0, io_getevents_number = 0, io_pgetevents_number = 0;

/* An operation under way. */
struct async_operation {
	u64 submit_ns, punt_ns, bytes, offset;
	u64 worker_from_ns, worker_last_ns; /* first and last time at which the worker was seen in it; 0: not seen */
	u64 returned_ns;                    /* libaio: when io_submit() returned */
	u32 tid, tgid, opcode, fd;
	u8 row, hashed, punted, libaio;
	u32 worker;                         /* thread id; 0: not seen */
};
/* The key of an operation: for libaio the process and the address of the program's iocb, for io_uring the address of
 * the kernel's request. */
struct async_key {
	u64 address;
	u64 tgid;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct async_key);
	__type(value, struct async_operation);
} async_operations SEC(".maps");

static __always_inline struct io_worker *io_worker_of(struct task_struct___waits *task)
{
	struct task_struct___before_5_17 *before = (void *)task;
	if (bpf_core_field_exists(task->worker_private))
		return BPF_CORE_READ(task, worker_private);
	if (bpf_core_field_exists(before->pf_io_worker))
		return BPF_CORE_READ(before, pf_io_worker);
	struct kthread *thread = KTHREAD_OF(task, BPF_CORE_READ);
	return BPF_CORE_READ(thread, data);
}

/* The io_uring operation that a worker performs now; 0: none. */
static __always_inline u64 operation_of(struct task_struct___waits *task)
{
	struct io_worker *worker = io_worker_of(task);
	struct io_wq_work *work = BPF_CORE_READ(worker, cur_work);
	return work ? (u64)work - bpf_core_field_offset(struct io_kiocb, work) : 0;
}

static __always_inline struct async_operation *worked_on(struct task_struct *task)
{
	struct task_struct___waits *known = (void *)task;
	if (whole_machine || !(FIELD(known, flags) & PF_IO_WORKER))
		return NULL;
	struct async_key key = { .address = operation_of(known) };
	return key.address ? bpf_map_lookup_elem(&async_operations, &key) : NULL;
}

static __always_inline void note_worker(struct task_struct *task, u64 now)
{
	struct async_operation *o = worked_on(task);
	if (!o)
		return;
	if (!o->worker) {
		o->worker = FIELD(task, pid);
		o->worker_from_ns = now;
	}
	o->worker_last_ns = now;
}

/* Whether the sleep belongs to an operation that may become slow: such an operation may consist of many short sleeps.
 */
static __always_inline bool in_long_operation(struct task_struct *task, u64 start, u64 now)
{
	struct async_operation *o = now - start < sleep_ns_min / 64 ? NULL : worked_on(task);
	return o && now - o->submit_ns >= sleep_ns_min / 4;
}

#endif
