/* Finds the file of a call of another program, and whether calls on this file are timed. SPDX-License-Identifier:
 * GPL-2.0 OR MIT */
#ifndef FLATWATER_FILES_H
#define FLATWATER_FILES_H

#include "file_kinds.h"
#include "descriptors.h"
#include "profile.h"

#define CALLS 512 /* size of tables indexed by system call number */

/* Tables by system call: the index + 1 of an argument; 0: none. */
const volatile u8 file_arg[CALLS] = {0};   /* the descriptor of the call's file */
const volatile u8 file_arg_2[CALLS] = {0}; /* splice(): the other end; one of both must be a file */
const volatile u8 path_arg[CALLS] = {0};
/* mmap() is timed only with one of these flags, with which it reads or locks before it returns. */
const volatile u64 map_number = 0;
const volatile u64 map_flags = 0;
/* close() is named at its begin, because its descriptor is gone when it returns. */
const volatile u64 close_number = 0;

/* Number of calls of targets that are not timed, by system call number; one row, as for the latencies. */
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

/* The inode's address shows whether the kind found at the thread's last call is still valid: a descriptor, and the
 * struct file behind it, can be reused at once for another kind of file. */
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

/* Whether the call that begins is on a file. Calls with a path count, because the kind of file is not known before the
 * lookup. */
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
	profile_file_begins(s, file);
	if (number == close_number)
		name_file(s, file);
	return 1;
}

#endif
