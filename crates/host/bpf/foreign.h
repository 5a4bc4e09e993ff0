/* Follows programs that already exist: system calls and page faults are bracketed by hooks that run for all programs.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_FOREIGN_H
#define FLATWATER_FOREIGN_H

#include "latency.h"
#include "files.h"

static __always_inline bool has_bit(const volatile u64 *set, long number)
{
	return number >= 0 && number < 512 && (set[(number >> 6) & 7] >> (number & 63)) & 1;
}

/* The state of the running thread; created if its process is a target or a neighbour. */
static __always_inline struct call_state *of_followed(struct task_struct *task)
{
	struct call_state *s = state_of(task);
	if (s && !s->beside)
		return s;
	u32 tgid = FIELD(task, tgid);
	u32 *role = bpf_map_lookup_elem(&targets, &tgid);
	if (!role)
		return NULL;
	if (!s)
		s = state_made(task);
	if (!s) {
		count(C_NO_STATE);
		return NULL;
	}
	s->tid = FIELD(task, pid);
	s->tgid = tgid;
	s->beside = *role == ROLE_NEIGHBOUR;
	return s;
}

static __always_inline struct call_state *of_target(struct task_struct *task)
{
	struct call_state *s = of_followed(task);
	return s && !s->beside ? s : NULL;
}

static __always_inline void end_fault(void *ctx, struct call_state *s)
{
	s->active = IN_USER;
	s->end_ns = s->last_ns;
	if (s->end_ns - s->start_ns < threshold_ns)
		return;
	bpf_get_current_comm(s->comm, sizeof(s->comm));
	s->path[0] = 0;
	s->has_position = 0;
	send(ctx, s, R_FAULT);
}

static __always_inline void describe_call(struct call_state *s, struct task_struct *task)
{
	s->has_position = 0;
	s->path[0] = 0;
	bpf_get_current_comm(s->comm, sizeof(s->comm));
	u32 number = s->number;
	if (number >= CALLS)
		return;
	u32 path = path_arg[number];
	if (path) {
		bpf_probe_read_user_str(s->path, sizeof(s->path), (void *)s->arg[(path - 1) & 3]);
		return;
	}
	u32 which = file_arg[number];
	struct file *file = which ? file_at(task, s->arg[(which - 1) & 3]) : NULL;
	if (!file || (u64)BPF_CORE_READ(file, f_inode) != s->inode)
		return; /* closed, or reopened on another file */
	s->position = BPF_CORE_READ(file, f_pos);
	s->has_position = 1;
	name_file(s, file);
}

/* A target begins a timed call, or a neighbour a profiled one. */
static __always_inline void call_begins(void *ctx, struct call_state *s, struct task_struct *task, struct pt_regs *regs, long number)
{
	if (s->active == IN_FAULT)
		end_fault(ctx, s);
	s->after_exit = 0;
	s->number = number;
	s->arg[0] = FIELD(regs, ARG0);
	s->arg[1] = FIELD(regs, ARG1);
	s->arg[2] = FIELD(regs, ARG2);
	s->arg[3] = FIELD(regs, ARG3);
	if (!concerns_a_file(s, task))
		return;
	if (s->beside) {
		s->start_ns = bpf_ktime_get_ns();
		s->in_profile = 1;
		return;
	}
	begin_call(s, bpf_ktime_get_ns());
	s->after_exit_ns = 0;
	s->active = IN_CALL;
}

static __always_inline void call_ends(void *ctx, struct call_state *s, struct task_struct *task, long result)
{
	u64 now = bpf_ktime_get_ns();
	if (s->in_profile) {
		s->in_profile = 0;
		s->result = result;
		profile_ends(s, task, now);
		return;
	}
	if (s->active != IN_CALL)
		return;
	s->active = IN_USER;
	s->after_exit = 1;
	s->end_ns = now;
	s->result = result;
	if (profile_calls)
		profile_ends(s, task, now);
	count_latency(s->number, now - s->start_ns);
	if (now - s->start_ns < threshold_ns) {
		s->stretches = 0;
		return;
	}
	if (s->depth) {
		count(C_UNBALANCED);
		s->damaged = 1;
	}
	if (now > s->last_ns)
		add_stretch(ctx, s, now - s->last_ns, ON_CPU, -1);
	describe_call(s, task);
	send(ctx, s, R_CALL);
}

HOOK_AT(sys_enter)
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long number)
{
	struct task_struct *task = this_task();
	if (!has_bit(wanted_calls, number)) {
		struct call_state *s = state_of(task);
		if (s) {
			s->after_exit = 0;
			if (s->active == IN_FAULT)
				end_fault(ctx, s);
			if (!s->beside)
				count_untimed(number);
		}
		return 0;
	}
	struct call_state *s = of_followed(task);
	if (s)
		call_begins(ctx, s, task, regs, number);
	return 0;
}

HOOK_AT(sys_exit)
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long result)
{
	struct task_struct *task = this_task();
	struct call_state *s = state_of(task);
	if (s)
		call_ends(ctx, s, task, result);
	return 0;
}

/* The same, as hooks on the functions of the timed system calls, where the kernel allows them: other system calls are
 * not slowed. One program serves all functions, since each has the registers as its argument; it is loaded once for
 * each (tracer/functions.rs). */
#ifndef RAW_TRACEPOINTS
SEC("fentry/__x64_sys_write")
int BPF_PROG(on_call_begin, struct pt_regs *regs)
{
	struct task_struct *task = this_task();
	struct call_state *s = of_followed(task);
	if (s)
		call_begins(ctx, s, task, regs, (long)FIELD(regs, NUMBER));
	return 0;
}

SEC("fexit/__x64_sys_write")
int BPF_PROG(on_call_end, struct pt_regs *regs, long result)
{
	struct task_struct *task = this_task();
	struct call_state *s = state_of(task);
	if (s)
		call_ends(ctx, s, task, result);
	return 0;
}
#endif

/* There is no tracepoint at the end of a fault. If its count (on_fault_end) cannot be hooked either, the fault lasts up
 * to the last sleep or bracket before user code is seen to run (its next system call, its next fault, or a long time on
 * the CPU). */
HOOK_AT(page_fault_user)
int BPF_PROG(on_page_fault_user, unsigned long address)
{
	struct call_state *s = of_target(this_task());
	if (!s || s->active == IN_CALL)
		return 0;
	if (s->active == IN_FAULT)
		end_fault(ctx, s);
	begin_call(s, bpf_ktime_get_ns());
	s->number = -1;
	s->arg[0] = address;
	s->after_exit_ns = 0;
	s->active = IN_FAULT;
	return 0;
}

/* The kernel counts a fault as minor or major when it has handled the fault (mm/memory.c: mm_account_fault, since 5.9):
 * the exact end of the fault. */
SEC("perf_event")
int on_fault_end(void *ctx)
{
	struct call_state *s = state_of(this_task());
	if (!s || s->active != IN_FAULT || s->busy)
		return 0;
	u64 now = bpf_ktime_get_ns();
	s->active = IN_USER;
	s->end_ns = now;
	count_latency(-1, now - s->start_ns);
	if (now - s->start_ns < threshold_ns) {
		s->stretches = 0;
		return 0;
	}
	if (now > s->last_ns)
		add_stretch(ctx, s, now - s->last_ns, ON_CPU, -1);
	bpf_get_current_comm(s->comm, sizeof(s->comm));
	s->path[0] = 0;
	s->has_position = 0;
	send(ctx, s, R_FAULT_WHOLE);
	return 0;
}

/* Sends the threads that are within a call, or wait on its way out. Runs once for each thread of the machine when user
 * space reads the iterator (5.8), after the hooks are detached, when the states no longer change. In the variants with
 * a hash, user space reads the hash instead. */
#ifndef HASH_BY_TID
SEC("iter/task")
int under_way_now(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	if (!task)
		return 0;
	struct call_state *s = state_of(task);
	if (s && (s->active != IN_USER || (s->after_exit && s->off == ASLEEP)))
		send(ctx, s, R_UNDER_WAY);
	return 0;
}
#endif

static __always_inline u64 kernfs_id(struct cgroup *group)
{
	struct kernfs_node *node = BPF_CORE_READ(group, kn);
	if (bpf_core_field_exists(node->id))
		return BPF_CORE_READ(node, id);
	struct kernfs_node___before_5_5 *old = (void *)node;
	return BPF_CORE_READ(old, id.id);
}

/* Whether a cgroup is the target or lies at most seven levels below it, enough for a pod's path. In version 1 each
 * hierarchy has its own ids: an equal id in another hierarchy is another cgroup. */
static __always_inline bool in_target_cgroup(struct cgroup *group)
{
	if ((u32)BPF_CORE_READ(group, root, hierarchy_id) != target_hierarchy)
		return 0;
	for (int level = 0; level < 8 && group; level++) {
		if (kernfs_id(group) == target_cgroup)
			return 1;
		struct cgroup_subsys_state *above = BPF_CORE_READ(group, self.parent);
		if (!above)
			return 0;
		group = BPF_CORE_READ(above, cgroup);
	}
	return 0;
}

HOOK_AT(sched_process_fork)
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = FIELD(parent, tgid), to = FIELD(child, tgid), one = ROLE_TARGET;
	if (from == to)
		return 0;
	if (profile_calls)
		bpf_map_update_elem(&parents, &to, &from, BPF_ANY);
	u32 *role = bpf_map_lookup_elem(&targets, &from);
	if (role && *role == ROLE_NEIGHBOUR)
		one = ROLE_NEIGHBOUR;
	/* CLONE_INTO_CGROUP (5.7) puts a child into another cgroup of version 2 than its parent's without
	 * cgroup_attach_task, and the parent need not be a target. */
	if (role ||
	    (target_cgroup && in_target_cgroup(BPF_CORE_READ(child, cgroups, dfl_cgrp))))
		bpf_map_update_elem(&targets, &to, &one, BPF_ANY);
	return 0;
}

#define SIGKILL 9

HOOK_AT(sched_process_exit)
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct call_state *s = state_of(task);
	if (s && s->active == IN_FAULT)
		end_fault(ctx, s);
	state_ended(task);
	u32 tid = FIELD(task, pid), tgid = FIELD(task, tgid);
	if (tid != tgid)
		return 0;
	u32 *role = bpf_map_lookup_elem(&targets, &tgid);
	if ((FIELD(task, exit_code) & 0x7f) == SIGKILL && role && *role == ROLE_TARGET) {
		char name[16] = {};
		bpf_get_current_comm(name, sizeof(name));
		bpf_map_update_elem(&killed, &tgid, name, BPF_ANY);
	}
	bpf_map_delete_elem(&targets, &tgid);
	return 0;
}

HOOK_AT(cgroup_attach_task)
int BPF_PROG(on_cgroup_attach, struct cgroup *to, const char *path, struct task_struct *task)
{
	u32 tgid = FIELD(task, tgid), one = ROLE_TARGET;
	if (in_target_cgroup(to))
		bpf_map_update_elem(&targets, &tgid, &one, BPF_ANY);
	return 0;
}

#endif
