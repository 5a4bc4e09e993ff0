/* Counts what is needed to imitate the calls of a program: sizes, pauses between calls, distances between syncs, files.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_PROFILE_H
#define FLATWATER_PROFILE_H

#include "latency_class.h"
#include "descriptors.h"
#include "file_kinds.h"

enum profile_size {
	PROFILE_GROUPS = 192,
	PROFILE_FILES = 4096,
	PROFILE_PAUSES = 64,  /* classes of pauses and of distances: one per power of two */
	PROFILE_SIZES = 256   /* classes of sizes: eight per power of two */
};

/* Kinds of calls; the order of OperationKind (crates/recording/src/operation.rs). */
enum profile_kind {
	P_READ, P_WRITE, P_FSYNC, P_FDATASYNC, P_SYNCFS, P_CREATE, P_OPEN, P_UNLINK, P_RENAME, P_RESIZE, PROFILE_KINDS
};

/* Roles of processes in `targets`. */
enum role { ROLE_TARGET = 1, ROLE_NEIGHBOUR = 2 };

/* By system call: the kind + 1; 0: not profiled. */
const volatile u8 profile_kind_of[512] = {0};
/* By system call: 1: the offset is argument 3, 2: it is the file's position. */
const volatile u8 profile_offset_of[512] = {0};
const volatile u32 profile_calls = 0;

struct profile_key {
	u32 tgid;   /* 0 for neighbours, whose processes of one name are counted together */
	u32 role, device, unused;
	u64 comm[2];
};

struct profile_op {
	u64 count, bytes, sequential, call_ns, pauses, pause_ns;
	u64 pause[PROFILE_PAUSES];
};

struct profile {
	u64 threads, direct, synced, appended;
	struct profile_op op[PROFILE_KINDS];
	u64 size[2][PROFILE_SIZES];          /* of reads and writes */
	u64 sync_writes[PROFILE_PAUSES];     /* writes of a thread between two of its syncs */
};

struct profile_file_key {
	u64 inode;
	u32 device, tgid, role, unused;
};

struct profile_file {
	u64 reads, writes, syncs, first_bytes, bytes, next;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROFILE_GROUPS);
	__type(key, struct profile_key);
	__type(value, struct profile);
} profiles SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct profile);
} profile_zero SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROFILE_FILES);
	__type(key, struct profile_file_key);
	__type(value, struct profile_file);
} profile_files SEC(".maps");

/* The parents of the processes that were forked last: a process that made a call wait may have ended when its name
 * arrives in user space. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u32);
} parents SEC(".maps");

static __always_inline void add_to(u64 *sum, u64 more)
{
	__sync_fetch_and_add(sum, more);
}

/* One class per power of two from 8 on; 0 below. */
static __always_inline u32 coarse(u64 value)
{
	return (class_of(value) >> 3) & (PROFILE_PAUSES - 1);
}

#define O_APPEND_FLAG 02000
#define O_DSYNC_FLAG 010000
#if defined(__TARGET_ARCH_arm64)
#define O_DIRECT_FLAG 0200000
#else
#define O_DIRECT_FLAG 040000
#endif
/* include/linux/fs.h: FMODE_CREATED, since 4.19. */
#define FMODE_CREATED_FLAG 0x100000

/* At the begin of a call on a file: its identity, flags and offset. */
static __always_inline void profile_file_begins(struct call_state *s, struct file *file)
{
	if (!profile_calls)
		return;
	u32 number = s->number & 511;
	if (!profile_kind_of[number])
		return;
	u64 inode = (u64)BPF_CORE_READ(file, f_inode);
	if (inode != s->profile_address) {
		s->profile_address = inode;
		s->profile_inode = BPF_CORE_READ((struct inode *)inode, i_ino);
		s->profile_device = BPF_CORE_READ((struct inode *)inode, i_sb, s_dev);
		s->profile_bytes = BPF_CORE_READ((struct inode *)inode, i_size);
	}
	s->profile_flags = BPF_CORE_READ(file, f_flags);
	if (profile_offset_of[number] == 2)
		s->profile_offset = BPF_CORE_READ(file, f_pos);
	else
		s->profile_offset = s->arg[3];
}

static __always_inline struct profile *profile_of(struct call_state *s)
{
	struct profile_key key = {};
	key.tgid = s->beside ? 0 : s->tgid;
	key.role = s->beside ? ROLE_NEIGHBOUR : ROLE_TARGET;
	key.device = s->profile_device;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	bool began = key.comm[0] != s->profile_comm[0] || key.comm[1] != s->profile_comm[1];
	struct profile *p = bpf_map_lookup_elem(&profiles, &key);
	if (!p) {
		u32 first = 0;
		struct profile *zero = bpf_map_lookup_elem(&profile_zero, &first);
		if (zero)
			bpf_map_update_elem(&profiles, &key, zero, BPF_NOEXIST);
		p = bpf_map_lookup_elem(&profiles, &key);
		if (!p) {
			count(C_NO_PROFILE);
			return NULL;
		}
	}
	if (began) {
		/* The first call under this name: what came before it is not a pause. */
		s->profile_comm[0] = key.comm[0];
		s->profile_comm[1] = key.comm[1];
		s->profile_end_ns = 0;
		add_to(&p->threads, 1);
	}
	return p;
}

static __always_inline struct profile_file *profile_file_of(struct call_state *s)
{
	struct profile_file_key key = {};
	key.inode = s->profile_inode;
	key.device = s->profile_device;
	key.tgid = s->beside ? 0 : s->tgid;
	key.role = s->beside ? ROLE_NEIGHBOUR : ROLE_TARGET;
	struct profile_file *f = bpf_map_lookup_elem(&profile_files, &key);
	if (f)
		return f;
	struct profile_file new = {};
	new.first_bytes = new.bytes = s->profile_bytes;
	bpf_map_update_elem(&profile_files, &key, &new, BPF_NOEXIST);
	f = bpf_map_lookup_elem(&profile_files, &key);
	if (!f)
		count(C_NO_PROFILE);
	return f;
}

/* The file that open() returned; P_OPEN, P_CREATE, or PROFILE_KINDS if it is on no file system that stores files. */
static __always_inline u32 profile_opened(struct call_state *s, struct task_struct *task, long fd)
{
	struct file *file = file_at(task, fd);
	struct inode *inode = file ? BPF_CORE_READ(file, f_inode) : NULL;
	if (!inode || kind_of(inode) == FILE_OTHER || (BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFREG)
		return PROFILE_KINDS;
	s->profile_address = (u64)inode;
	s->profile_inode = BPF_CORE_READ(inode, i_ino);
	s->profile_device = BPF_CORE_READ(inode, i_sb, s_dev);
	s->profile_bytes = BPF_CORE_READ(inode, i_size);
	bool creates = BPF_CORE_READ(file, f_mode) & FMODE_CREATED_FLAG;
	return creates ? P_CREATE : P_OPEN;
}

static __always_inline void profile_transfer(struct call_state *s, struct profile *p, u32 kind, u64 bytes)
{
	struct profile_op *op = &p->op[kind];
	add_to(&op->bytes, bytes);
	u32 class = class_of(bytes);
	add_to(&p->size[kind & 1][class < PROFILE_SIZES ? class & (PROFILE_SIZES - 1) : PROFILE_SIZES - 1], 1);
	if (s->profile_flags & O_DIRECT_FLAG)
		add_to(&p->direct, 1);
	if (kind == P_WRITE && (s->profile_flags & O_DSYNC_FLAG))
		add_to(&p->synced, 1);
	if (kind == P_WRITE && (s->profile_flags & O_APPEND_FLAG))
		add_to(&p->appended, 1);
	if (kind == P_WRITE)
		s->profile_writes++;
	struct profile_file *f = profile_file_of(s);
	if (!f)
		return;
	u64 from = s->profile_offset;
	if (kind == P_WRITE && (s->profile_flags & O_APPEND_FLAG))
		from = f->bytes;
	if (f->next == from)
		add_to(&op->sequential, 1);
	f->next = from + bytes;
	if (from + bytes > f->bytes)
		f->bytes = from + bytes;
	add_to(kind == P_WRITE ? &f->writes : &f->reads, 1);
}

/* At the end of a call, for targets and for neighbours. Not inlined: called from several hooks. */
static __noinline int profile_ends(struct call_state *s, struct task_struct *task, u64 now)
{
	if (!s)
		return 0;
	u32 kind = profile_kind_of[s->number & 511];
	long result = s->result;
	if (!kind || result < 0)
		return 0;
	kind--;
	if (kind == P_OPEN)
		kind = profile_opened(s, task, result);
	if (kind >= PROFILE_KINDS)
		return 0;
	struct profile *p = profile_of(s);
	if (!p)
		return 0;
	struct profile_op *op = &p->op[kind];
	add_to(&op->count, 1);
	add_to(&op->call_ns, now - s->start_ns);
	if (s->profile_end_ns && s->start_ns >= s->profile_end_ns) {
		u64 pause = s->start_ns - s->profile_end_ns;
		add_to(&op->pauses, 1);
		add_to(&op->pause_ns, pause);
		add_to(&op->pause[coarse(pause)], 1);
	}
	s->profile_end_ns = now;
	if (kind <= P_WRITE) {
		profile_transfer(s, p, kind, result);
	} else if (kind <= P_SYNCFS) {
		add_to(&p->sync_writes[coarse((u64)s->profile_writes << 3)], 1);
		s->profile_writes = 0;
		struct profile_file *f = kind < P_SYNCFS ? profile_file_of(s) : NULL;
		if (f)
			add_to(&f->syncs, 1);
	}
	return 0;
}

#endif
