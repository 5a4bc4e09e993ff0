/* Which file a call of another program is about, and whether it is one whose calls are timed.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_FILES_H
#define FLATWATER_FILES_H

#include "file_kinds.h"
#include "descriptors.h"

#define CALLS 512 /* system call numbers that are known */

/* Which argument is what, by system call; 0 none, else its index and one. */
const volatile u8 file_arg[CALLS] = {0};   /* the descriptor that the call is about */
const volatile u8 file_arg_2[CALLS] = {0}; /* splice(): the other end; one of the two must be a file */
const volatile u8 path_arg[CALLS] = {0};
/* mmap() is timed only if one of these flags is set: it then reads, or locks, before it returns. */
const volatile u64 map_number = 0;
const volatile u64 map_flags = 0;
/* The descriptor is gone when close() returns. */
const volatile u64 close_number = 0;

/* How often targets made a call that is not timed, by number; in one row, like the latencies. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, SHARED_MEMORY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct row);
} untimed SEC(".maps");

static __always_inline void count_untimed(long number)
{
	u32 key = 0;
	struct row *row = number >= 0 && number < CALLS ? bpf_map_lookup_elem(&untimed, &key) : NULL;
	if (row)
		__sync_fetch_and_add(&row->calls[number & (CALLS - 1)], 1);
}

/* The inode's address tells whether what was learnt at the thread's last call still holds: a descriptor, and the file
 * behind it, are used again at once for something of another kind. */
static __always_inline u8 learn_kind(struct call_state *s, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	if ((u64)inode == s->inode && s->file_kind)
		return s->file_kind;
	s->inode = (u64)inode;
	s->file_kind = inode ? kind_of(inode) : FILE_OTHER;
	return s->file_kind;
}

static __always_inline void name_file(struct call_state *s, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	s->inode_number = BPF_CORE_READ(inode, i_ino);
	s->device = BPF_CORE_READ(inode, i_sb, s_dev);
	bpf_probe_read_kernel_str(s->name, sizeof(s->name), BPF_CORE_READ(file, f_path.dentry, d_name.name));
	s->file_named = 1;
}

/* Whether the call that begins is one on a file. Calls by path are: what they name is known only once it is found. */
static __always_inline bool concerns_a_file(struct call_state *s, struct task_struct *task)
{
	u32 number = s->number;
	s->file_named = 0;
	if (number >= CALLS)
		return 0;
	if (number == map_number)
		return s->arg[3] & map_flags;
	u32 which = file_arg[number];
	if (!which)
		return 1;
	struct file *file = file_at(task, s->arg[(which - 1) & 3]);
	if (!file) {
		count(C_NO_FILE);
		return 0;
	}
	u8 kind = learn_kind(s, file);
	u32 other = file_arg_2[number];
	if (kind == FILE_OTHER && other) {
		file = file_at(task, s->arg[(other - 1) & 3]);
		if (!file)
			return 0;
		kind = learn_kind(s, file);
	}
	if (kind == FILE_OTHER)
		return 0;
	if (number == close_number)
		name_file(s, file);
	return 1;
}

#endif
