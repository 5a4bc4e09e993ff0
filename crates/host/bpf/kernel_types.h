/* The fields of kernel structures that the programs read, relocated at load time (CO-RE). A flavour (`___name`) is the
 * same structure in another kernel version. SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_KERNEL_TYPES_H
#define FLATWATER_KERNEL_TYPES_H

#define RELOCATED __attribute__((preserve_access_index))

typedef _Bool bool;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

struct kernfs_node { u64 id; } RELOCATED;
/* Before 5.5 the id is a member of a union. */
union kernfs_node_id { u64 id; } RELOCATED;
struct kernfs_node___before_5_5 { union kernfs_node_id id; } RELOCATED;
struct cgroup;
struct cgroup_subsys_state { struct cgroup *cgroup; struct cgroup_subsys_state *parent; } RELOCATED;
struct cgroup_root { int hierarchy_id; } RELOCATED;
struct cgroup { struct cgroup_subsys_state self; struct kernfs_node *kn; struct cgroup_root *root; } RELOCATED;

struct cfs_bandwidth { u64 throttled_time; } RELOCATED;
struct task_group { struct cfs_bandwidth cfs_bandwidth; struct task_group *parent; } RELOCATED;
struct cfs_rq { int throttle_count; struct task_group *tg; } RELOCATED;
struct sched_entity { struct cfs_rq *cfs_rq; } RELOCATED;

struct super_block { unsigned long s_magic; unsigned int s_dev; } RELOCATED;
struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	unsigned int i_rdev;
	long long i_size;
	struct super_block *i_sb;
} RELOCATED;
struct qstr { const unsigned char *name; } RELOCATED;
struct dentry { struct qstr d_name; } RELOCATED;
struct path { struct dentry *dentry; } RELOCATED;
struct file {
	long long f_pos;
	unsigned int f_flags, f_mode;
	struct inode *f_inode;
	struct path f_path;
} RELOCATED;
struct fdtable { unsigned int max_fds; struct file **fd; } RELOCATED;
struct files_struct { struct fdtable *fdt; } RELOCATED;

struct css_set { struct cgroup *dfl_cgrp; } RELOCATED;

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	unsigned int __state;           /* `state`, a long, before 5.14 */
	struct sched_entity se;
	struct files_struct *files;
	struct css_set *cgroups;        /* absent without CONFIG_CGROUPS */
	char comm[16];
} RELOCATED;
/* The context of an iterator program that runs for each thread. */
struct bpf_iter_meta;
struct bpf_iter__task { struct bpf_iter_meta *meta; struct task_struct *task; };
struct task_struct___before_5_14 { long state; } RELOCATED;
/* 6.18 throttles each task on its way to user space and sets a flag in the task. */
struct task_struct___since_6_18 { bool throttled; } RELOCATED;

#if defined(__TARGET_ARCH_x86)
struct pt_regs { unsigned long di, si, dx, r10, orig_ax; } RELOCATED;
#define NUMBER orig_ax
#define ARG0 di
#define ARG1 si
#define ARG2 dx
#define ARG3 r10
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs { unsigned long long regs[31]; int syscallno; } RELOCATED;
#define NUMBER syscallno
#define ARG0 regs[0]
#define ARG1 regs[1]
#define ARG2 regs[2]
#define ARG3 regs[3]
#else
#error "flatwater's tracer knows the registers of x86 and arm64"
#endif

struct trace_event_raw_balance_dirty_pages {
	unsigned long limit, dirty, wb_setpoint, wb_dirty;
	long pause;
} RELOCATED;
/* Up to about 6.1 the per-device fields are named after the bdi. */
struct trace_event_raw_balance_dirty_pages___bdi { unsigned long bdi_setpoint, bdi_dirty; } RELOCATED;

#endif
