/* Requests of all block devices from insertion to completion, and the processes that make inodes dirty.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAIT_REQUESTS_H
#define FLATWATER_WAIT_REQUESTS_H

/* What is known only when the request begins; the other fields of the record are read when it ends. An unfinished
 * request is reported from this state alone. */
struct request_state {
	u64 insert_ns, issue_ns, function, sector;
	u32 tid, tgid, task_flags, bytes;
	u32 ahead, ahead_kib, in_flight, device;
	u32 flags, unused;
	char comm[16];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct request_state);
} requests SEC(".maps");
/* Requests queued and in flight, and their size, by the number of the request queue. A queue keeps its small number as
 * long as it exists. Queues whose numbers are equal modulo DEVICE_LOADS are added up. */
struct device_load {
	u64 queued, in_flight, kib;
};
#define DEVICE_LOADS 1024
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DEVICE_LOADS);
	__type(key, u32);
	__type(value, struct device_load);
} device_loads SEC(".maps");
/* The process that made an inode dirty last; reported again only when it changes. */
struct dirtier_key {
	u64 inode;
	u32 tgid, unused;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct dirtier_key);
} last_dirtiers SEC(".maps");
u64 next_request = 0;

static __always_inline struct device_load *load_of(struct request *request)
{
	u32 queue = CHAIN(request, q, id) & (DEVICE_LOADS - 1);
	return bpf_map_lookup_elem(&device_loads, &queue);
}

static __always_inline u32 device_of(struct request *request)
{
	struct gendisk *disk;
	if (bpf_core_field_exists(request->q->disk))
		disk = CHAIN(request, q, disk);
	else
		disk = BPF_CORE_READ((struct request___before_5_17 *)request, rq_disk);
	if (!disk)
		return 0;
#ifndef HASH_BY_TID
	/* Direct loads, where the verifier knows the type: a helper would cost 20 to 40 ns each. */
	if (bpf_core_field_exists(request->q->disk))
		return (u32)disk->major << 20 | disk->first_minor;
#endif
	return (u32)BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
}

static __always_inline struct page *head_page_of(struct bio_vec *vector)
{
	struct page *page = FIELD(vector, bv_page);
	struct page___info *informed = (void *)page;
	u64 head;
	if (bpf_core_field_exists(informed->compound_info))
		head = BPF_CORE_READ(informed, compound_info);
	else
		head = BPF_CORE_READ(page, compound_head);
	if (!(head & 1))
		return page;
	/* The verifier allows no mask on a pointer of known type, so a helper reads it as a number. */
	if (head >= HEAD_MASK_MIN)
		return (void *)((u64)BPF_CORE_READ(vector, bv_page) & head);
	return (void *)(head - 1);
}

/* The inode of the first bio: that of the bio's page or of the direct I/O. Anonymous pages have none. Pointers of known type
 * are dereferenced directly; untyped pointers, or those with flags in their low bits, are read through a helper. */
static __always_inline struct inode *inode_of(struct bio *bio, u64 *iocb)
{
	struct bio_vec *vector = FIELD(bio, bi_io_vec);
	if (!vector || !FIELD(bio, bi_iter.bi_size))
		return NULL;
	if (direct_end && (u64)FIELD(bio, bi_end_io) == direct_end) {
		struct iomap_dio *direct = FIELD(bio, bi_private);
		struct kiocb *control = BPF_CORE_READ(direct, iocb);
		/* A libaio operation is known by the address of the program's iocb. */
		bool libaio = aio_end && (u64)BPF_CORE_READ(control, ki_complete) == aio_end;
		*iocb = libaio ? BPF_CORE_READ((struct aio_kiocb *)control, ki_res.obj) : (u64)control;
		return BPF_CORE_READ(control, ki_filp, f_inode);
	}
	struct page *page = head_page_of(vector);
	u64 mapping = (u64)BPF_CORE_READ(page, mapping);
	if (!mapping || mapping & 3)
		return NULL;
	return BPF_CORE_READ((struct address_space *)mapping, host);
}

static __always_inline void begin_request(struct request *request, bool issued)
{
	struct task_struct *me = this_task();
	struct task_struct___waits *known = (void *)me;
	u64 key = (u64)request;
	struct request_state r;
	r.insert_ns = bpf_ktime_get_ns();
	r.issue_ns = issued ? r.insert_ns : 0;
	r.bytes = FIELD(request, __data_len);
	r.tid = FIELD(known, pid);
	r.tgid = FIELD(known, tgid);
	r.task_flags = FIELD(known, flags);
	r.function = 0;
	r.ahead = r.ahead_kib = r.in_flight = r.unused = 0;
	/* Needed for a request that never completes, which is reported from this state alone. */
	r.device = device_of(request);
	r.flags = FIELD(request, cmd_flags);
	r.sector = FIELD(request, __sector);
	copy_comm(r.comm, me);
	if (r.task_flags & PF_WQ_WORKER) {
		struct kthread *thread = KTHREAD_OF(known, FIELD);
		struct worker *worker = BPF_CORE_READ(thread, data);
		r.function = (u64)BPF_CORE_READ(worker, current_func);
	}
	struct device_load *load = load_of(request);
	if (load) {
		r.ahead = load->queued + load->in_flight;
		r.ahead_kib = load->kib;
		r.in_flight = load->in_flight;
	}
	/* The update fails if the driver requeued the request, which then keeps its state, or if the map is full. */
	if (bpf_map_update_elem(&requests, &key, &r, BPF_NOEXIST)) {
		if (!bpf_map_lookup_elem(&requests, &key))
			wait_count(WC_REQUESTS_FULL);
		return;
	}
	if (load) {
		__sync_fetch_and_add(issued ? &load->in_flight : &load->queued, 1);
		__sync_fetch_and_add(&load->kib, r.bytes >> 10);
	}
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(wait_request_insert, struct request *request)
{
	begin_request(request, 0);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(wait_request_issue, struct request *request)
{
	u64 key = (u64)request;
	struct request_state *r = bpf_map_lookup_elem(&requests, &key);
	if (!r) {
		begin_request(request, 1);
		return 0;
	}
	if (r->issue_ns)
		return 0; /* requeued by the driver */
	r->issue_ns = bpf_ktime_get_ns();
	u32 bytes = FIELD(request, __data_len); /* merges may have enlarged it */
	struct device_load *load = load_of(request);
	if (load) {
		__sync_fetch_and_add(&load->queued, -1);
		r->in_flight = load->in_flight;
		__sync_fetch_and_add(&load->in_flight, 1);
		if (bytes != r->bytes)
			__sync_fetch_and_add(&load->kib, (u64)(bytes >> 10) - (r->bytes >> 10));
	}
	r->bytes = bytes;
	return 0;
}

static __always_inline void leave_device(struct request *request, struct request_state *r)
{
	struct device_load *load = load_of(request);
	if (!load)
		return;
	__sync_fetch_and_add(r->issue_ns ? &load->in_flight : &load->queued, -1);
	__sync_fetch_and_add(&load->kib, -(u64)(r->bytes >> 10));
}

/* Merged into a request that was queued before. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(wait_request_merge, struct request *request)
{
	u64 key = (u64)request;
	struct request_state *r = bpf_map_lookup_elem(&requests, &key);
	if (!r)
		return 0;
	leave_device(request, r);
	bpf_map_delete_elem(&requests, &key);
	return 0;
}

static __always_inline void describe_bio(struct request_record *r, struct request *request)
{
	r->cgroup = r->inode = r->iocb = 0;
	r->inode_device = 0;
	struct bio *bio = FIELD(request, bio);
	if (!bio)
		return;
	if (bpf_core_field_exists(bio->bi_blkg)) {
		struct blkcg_gq *group = FIELD(bio, bi_blkg);
		if (group)
			r->cgroup = CHAIN(group, blkcg, css.cgroup, kn, id);
	}
	struct inode *inode = inode_of(bio, &r->iocb);
	if (!inode)
		return;
	u32 device = BPF_CORE_READ(inode, i_sb, s_dev);
	/* A block device's own page (of a journal, or of a file system's metadata) belongs to no file; record the block
	 * device. */
	if (!(device >> 20) && (BPF_CORE_READ(inode, i_mode) & 0170000) == 0060000)
		device = BPF_CORE_READ(inode, i_rdev);
	else
		r->inode = BPF_CORE_READ(inode, i_ino);
	r->inode_device = device;
}

static __always_inline u64 next_sequence(u64 now)
{
#ifdef HASH_BY_TID
	return now; /* an atomic that returns a value needs 5.12 */
#else
	return __sync_fetch_and_add(&next_request, 1) + 1;
#endif
}

/* The kernel thread that completes a request, and the thread that woke it: ksoftirqd, for example, was woken by the
 * worker that did the I/O. An interrupt, or a softirq right after it, does not run in a thread. */
static __always_inline void describe_completion(struct request_record *r)
{
	struct task_struct *me = this_task();
	struct task_struct___waits *known = (void *)me;
	r->done_tid = r->handed_by = r->unused = 0;
	r->handed_ns = 0;
	if (!(FIELD(known, flags) & PF_KTHREAD))
		return;
	r->done_tid = FIELD(known, pid);
	struct waiter *k = waiter_of(me);
	if (!k)
		return;
	r->handed_ns = k->since_ns;
	r->handed_by = k->since_by;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(wait_request_complete, struct request *request, int error, unsigned int bytes)
{
	u64 key = (u64)request;
	u32 zero = 0;
	struct request_state *s = bpf_map_lookup_elem(&requests, &key);
	if (!s || bytes < FIELD(request, __data_len))
		return 0;
	u64 now = bpf_ktime_get_ns(), sequence = next_sequence(now);
	leave_device(request, s);
	struct completion *last = bpf_map_lookup_elem(&last_completion, &zero);
	if (last) {
		last->at_ns = now;
		last->task = (u64)this_task();
		last->request = sequence;
	}
	/* User space polls often enough: waking it for each request would cost more than the record. */
	struct request_record *r = bpf_ringbuf_reserve(&wait_records, sizeof(*r), 0);
	if (r) {
		r->kind = W_REQUEST;
		r->device = s->device;
		r->sequence = sequence;
		r->insert_ns = s->insert_ns;
		r->issue_ns = s->issue_ns;
		r->done_ns = now;
		r->sector = FIELD(request, __sector);
		r->function = s->function;
		r->bytes = s->bytes;
		r->flags = FIELD(request, cmd_flags);
		r->tid = s->tid;
		r->tgid = s->tgid;
		r->task_flags = s->task_flags;
		r->ahead = s->ahead;
		r->ahead_kib = s->ahead_kib;
		r->in_flight = s->in_flight;
		describe_completion(r);
		r->data = key + bpf_core_type_size(struct request);
		__builtin_memcpy(r->comm, s->comm, sizeof(r->comm));
		describe_bio(r, request);
		bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	} else {
		wait_count(WC_LOST);
	}
	bpf_map_delete_elem(&requests, &key);
	return 0;
}

/* Runs once for each inode that joins the list of dirty inodes, not once per page. The flusher puts inodes back on the
 * list; this does not make it a dirtier. */
SEC("tp_btf/writeback_dirty_inode_enqueue")
int BPF_PROG(wait_dirty_inode, struct inode *inode)
{
	struct task_struct *me = this_task();
	struct task_struct___waits *known = (void *)me;
	if ((FIELD(inode, i_mode) & 0170000) == 0060000 || FIELD(known, flags) & PF_KTHREAD)
		return 0;
	u64 key = (u64)inode, number = FIELD(inode, i_ino);
	struct dirtier_key *before = bpf_map_lookup_elem(&last_dirtiers, &key);
	struct dirtier_key now = { .inode = number, .tgid = FIELD(known, tgid) };
	if (before && before->inode == number && before->tgid == now.tgid)
		return 0;
	bpf_map_update_elem(&last_dirtiers, &key, &now, BPF_ANY);
	struct dirtier_record *r = bpf_ringbuf_reserve(&wait_records, sizeof(*r), 0);
	if (!r) {
		wait_count(WC_LOST);
		return 0;
	}
	r->kind = W_DIRTIER;
	r->inode_device = BPF_CORE_READ(inode, i_sb, s_dev);
	r->at_ns = bpf_ktime_get_ns();
	r->inode = number;
	r->cgroup = cgroup_id_of(me);
	r->tid = FIELD(known, pid);
	r->tgid = FIELD(known, tgid);
	bpf_get_current_comm(r->comm, sizeof(r->comm));
	r->file[0] = 0;
	struct hlist_node *first = BPF_CORE_READ((struct inode___waits *)inode, i_dentry.first);
	if (first) {
		struct dentry___unnamed *entry = (void *)first;
		if (bpf_core_field_exists(struct dentry___waits, d_u))
			entry = (void *)first - bpf_core_field_offset(struct dentry___waits, d_u.d_alias);
		else
			entry = (void *)first - bpf_core_field_offset(struct dentry___unnamed, d_alias);
		bpf_probe_read_kernel_str(r->file, sizeof(r->file), BPF_CORE_READ((struct dentry *)entry, d_name.name));
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
