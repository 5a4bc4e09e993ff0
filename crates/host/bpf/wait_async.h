/* Operations of io_uring and libaio, from submission to completion. All operations of targets are counted by latency;
 * slow ones are reported. SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAIT_ASYNC_H
#define FLATWATER_WAIT_ASYNC_H

#define NO_ROW 255
/* The row of each io_uring opcode; NO_ROW for opcodes that do not concern a file (sockets, timers, polls). */
const volatile u8 uring_row[64] = {0};

struct async_counts { u64 calls[ASYNC_CLASSES]; };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ASYNC_ROWS);
	__type(key, u32);
	__type(value, struct async_counts);
} async_latencies SEC(".maps");

static __always_inline void count_async(u32 row, u64 ns)
{
	u32 key = row & (ASYNC_ROWS - 1);
	struct async_counts *counts = bpf_map_lookup_elem(&async_latencies, &key);
	if (counts)
		__sync_fetch_and_add(&counts->calls[class_of(ns) & (ASYNC_CLASSES - 1)], 1);
}

static __always_inline struct async_record *begin_record(struct async_operation *o, u64 address, u64 now)
{
	struct async_record *r = bpf_ringbuf_reserve(&wait_records, sizeof(*r), 0);
	if (!r) {
		wait_count(WC_LOST);
		return NULL;
	}
	r->kind = W_ASYNC;
	r->row = o->row;
	r->key = address;
	r->submit_ns = o->submit_ns;
	r->punt_ns = o->punt_ns;
	r->end_ns = now;
	r->bytes = o->bytes;
	r->offset = o->offset;
	r->inode = 0;
	r->result = 0;
	r->tid = o->tid;
	r->tgid = o->tgid;
	r->worker = o->worker;
	r->worker_from_ns = o->worker_from_ns;
	r->worker_last_ns = o->worker_last_ns;
	r->returned_ns = o->returned_ns;
	r->reap_from_ns = r->reap_to_ns = 0;
	r->reap_count = r->unused = 0;
	struct waiter *w = waiter_of(this_task());
	if (w) {
		r->reap_from_ns = w->reap_from_ns;
		r->reap_to_ns = w->reap_to_ns;
		r->reap_count = w->reap_count;
	}
	r->opcode = o->opcode;
	r->inode_device = 0;
	r->hashed = o->hashed;
	r->punted = o->punted;
	r->has_result = 0;
	r->libaio = o->libaio;
	r->comm[0] = r->file[0] = 0;
	return r;
}

static __always_inline int submitted(struct io_kiocb *request)
{
	u64 who = bpf_get_current_pid_tgid();
	u32 tgid = who >> 32, opcode = BPF_CORE_READ(request, opcode);
	u8 row = uring_row[opcode & 63];
	if (row == NO_ROW || !is_target(tgid))
		return 0;
	struct async_key key = { .address = (u64)request };
	struct async_operation new = { .submit_ns = bpf_ktime_get_ns(), .tid = who, .tgid = tgid, .opcode = opcode, .row = row };
	if (bpf_map_update_elem(&async_operations, &key, &new, BPF_ANY))
		wait_count(WC_ASYNC_FULL);
	return 0;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(wait_uring_submit, struct io_kiocb *request)
{
	return submitted(request);
}

/* The tracepoint's name before 6.4. */
SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(wait_uring_submit_old, struct io_kiocb *request)
{
	return submitted(request);
}

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(wait_uring_punt, struct io_kiocb *request, int hashed)
{
	struct async_key key = { .address = (u64)request };
	struct async_operation *o = bpf_map_lookup_elem(&async_operations, &key);
	if (!o)
		return 0;
	o->punt_ns = bpf_ktime_get_ns();
	o->punted = 1;
	o->hashed = hashed != 0;
	return 0;
}

/* Operations on pipes, sockets and the like never wait for a disk. */
static __always_inline bool stored(struct file *file)
{
	u32 type = BPF_CORE_READ(file, f_inode, i_mode) & 0170000;
	return type == 0100000 || type == 0040000 || type == 0060000;
}

/* The types of the arguments changed between 6.1 and 6.18; the request is always the second argument. */
SEC("tp_btf/io_uring_complete")
int wait_uring_complete(u64 *ctx)
{
	struct async_key key = { .address = ctx[1] };
	struct async_operation *o = bpf_map_lookup_elem(&async_operations, &key);
	if (!o)
		return 0;
	u64 now = bpf_ktime_get_ns();
	/* A worker that performed the operation without a context switch is seen here only. */
	note_worker(this_task(), now);
	struct io_kiocb *request = (void *)key.address;
	struct file *file = BPF_CORE_READ(request, file);
	if (!file || stored(file)) {
		count_async(o->row, now - o->submit_ns);
		if (now - o->submit_ns >= async_ns_min) {
			struct async_record *r = begin_record(o, key.address, now);
			if (r) {
				r->result = BPF_CORE_READ(request, cqe.res);
				r->has_result = 1;
				if (file)
					r->inode_device = name_of_file(file, r->file, &r->inode);
				bpf_get_current_comm(r->comm, sizeof(r->comm));
				bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
			}
		}
	}
	bpf_map_delete_elem(&async_operations, &key);
	return 0;
}

/* The fields of include/uapi/linux/aio_abi.h that are read. */
struct user_iocb {
	u64 data;
	u32 key, flags;
	u16 opcode;
	u16 priority;
	u32 fd;
	u64 buffer, bytes;
	s64 offset;
};
struct user_event {
	u64 data, address;
	s64 result, result_2;
};

static __always_inline void aio_submit(struct task_struct *task, u64 count, u64 list)
{
	u64 now = bpf_ktime_get_ns();
	u32 tgid = FIELD(task, tgid);
	if (count > AIO_BATCH_MAX)
		wait_count(WC_AIO_BATCH);
	for (u32 i = 0; i < AIO_BATCH_MAX && i < count; i++) {
		struct async_key key = { .tgid = tgid };
		struct user_iocb iocb;
		if (bpf_probe_read_user(&key.address, sizeof(u64), (void *)(list + i * 8)) ||
		    bpf_probe_read_user(&iocb, sizeof(iocb), (void *)key.address))
			return;
		/* PREAD 0, PWRITE 1, FSYNC 2, FDSYNC 3, POLL 5, NOOP 6, PREADV 7, PWRITEV 8 */
		u32 opcode = iocb.opcode;
		u8 row = opcode == 0 || opcode == 7   ? ROW_AIO_READ
			 : opcode == 1 || opcode == 8 ? ROW_AIO_WRITE
			 : opcode == 2 || opcode == 3 ? ROW_AIO_FSYNC
						      : NO_ROW;
		if (row == NO_ROW)
			continue;
		struct async_operation new = {
			.submit_ns = now, .tid = FIELD(task, pid), .tgid = tgid, .opcode = opcode, .fd = iocb.fd, .row = row,
			.libaio = 1, .bytes = iocb.bytes, .offset = iocb.offset,
		};
		if (bpf_map_update_elem(&async_operations, &key, &new, BPF_ANY))
			wait_count(WC_ASYNC_FULL);
	}
}

static __always_inline void aio_complete(struct task_struct *task, long count, u64 events)
{
	u64 now = bpf_ktime_get_ns();
	if (count > AIO_BATCH_MAX)
		wait_count(WC_AIO_BATCH);
	for (u32 i = 0; i < AIO_BATCH_MAX && i < count; i++) {
		struct user_event event;
		if (bpf_probe_read_user(&event, sizeof(event), (void *)(events + i * sizeof(event))))
			return;
		struct async_key key = { .address = event.address, .tgid = FIELD(task, tgid) };
		struct async_operation *o = bpf_map_lookup_elem(&async_operations, &key);
		if (!o) {
			wait_count(WC_ASYNC_UNKNOWN);
			continue;
		}
		count_async(o->row, now - o->submit_ns);
		if (now - o->submit_ns >= async_ns_min) {
			struct async_record *r = begin_record(o, key.address, now);
			if (r) {
				struct file *file = file_at(task, o->fd);
				r->result = event.result;
				r->has_result = 1;
				if (file)
					r->inode_device = name_of_file(file, r->file, &r->inode);
				bpf_get_current_comm(r->comm, sizeof(r->comm));
				bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
			}
		}
		bpf_map_delete_elem(&async_operations, &key);
	}
}

/* io_submit() returned: notes it for the operations that it accepted. */
static __always_inline void aio_returned(struct task_struct *task, long count, u64 list)
{
	u64 now = bpf_ktime_get_ns();
	for (u32 i = 0; i < AIO_BATCH_MAX && i < count; i++) {
		struct async_key key = { .tgid = FIELD(task, tgid) };
		if (bpf_probe_read_user(&key.address, sizeof(u64), (void *)(list + i * 8)))
			return;
		struct async_operation *o = bpf_map_lookup_elem(&async_operations, &key);
		if (o)
			o->returned_ns = now;
	}
}

/* libaio has no tracepoints: its operations are those that the program passes to io_submit() and gets back. */
SEC("tp_btf/sys_enter")
int BPF_PROG(wait_aio_enter, struct pt_regs *regs, long number)
{
	if (number != io_submit_number)
		return 0;
	struct task_struct *task = this_task();
	if (is_target(FIELD(task, tgid)))
		aio_submit(task, FIELD(regs, ARG1), FIELD(regs, ARG2));
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(wait_aio_exit, struct pt_regs *regs, long result)
{
	long number = CALL_OF((struct pt_regs___waits *)regs);
	if ((number != io_submit_number && number != io_getevents_number && number != io_pgetevents_number) || result <= 0)
		return 0;
	struct task_struct *task = this_task();
	if (!is_target(FIELD(task, tgid)))
		return 0;
	if (number == io_submit_number)
		aio_returned(task, result, FIELD(regs, ARG2));
	else
		aio_complete(task, result, FIELD(regs, ARG3));
	return 0;
}

#endif
