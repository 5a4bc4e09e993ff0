/* Programs that exist already: system calls and page faults are bracketed by hooks of the whole machine.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_FOREIGN_H
#define FLATWATER_FOREIGN_H

#include "latency.h"
#include "files.h"

static __always_inline bool has_bit(const volatile u64 *set, long number)
{
	return number >= 0 && number < 512 && (set[(number >> 6) & 7] >> (number & 63)) & 1;
}

/* The state of the thread that runs, made if its process is a target. */
static __always_inline struct call_state *of_target(struct task_struct *task)
{
	struct call_state *s = bpf_task_storage_get(&others, task, 0, 0);
	if (s)
		return s;
	u32 tgid = task->tgid;
	if (!bpf_map_lookup_elem(&targets, &tgid))
		return NULL;
	s = bpf_task_storage_get(&others, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!s) {
		count(C_NO_STATE);
		return NULL;
	}
	s->tid = task->pid;
	s->tgid = tgid;
	return s;
}

static __always_inline void end_fault(struct call_state *s)
{
	s->active = 0;
	s->end_ns = s->last_ns;
	if (s->end_ns - s->start_ns < threshold_ns)
		return;
	bpf_get_current_comm(s->comm, sizeof(s->comm));
	s->path[0] = 0;
	s->has_position = 0;
	send(s, R_FAULT);
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
		return; /* closed meanwhile, or another file by now */
	s->position = BPF_CORE_READ(file, f_pos);
	s->has_position = 1;
	name_file(s, file);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long number)
{
	struct task_struct *task = bpf_get_current_task_btf();
	if (!has_bit(wanted_calls, number)) {
		struct call_state *s = bpf_task_storage_get(&others, task, 0, 0);
		if (s) {
			s->after_exit = 0;
			if (s->active == 2)
				end_fault(s);
			count_untimed(number);
		}
		return 0;
	}
	struct call_state *s = of_target(task);
	if (!s)
		return 0;
	if (s->active == 2)
		end_fault(s);
	s->after_exit = 0;
	s->number = number;
	s->arg[0] = ARG0(regs);
	s->arg[1] = ARG1(regs);
	s->arg[2] = ARG2(regs);
	s->arg[3] = ARG3(regs);
	if (!concerns_a_file(s, task))
		return 0;
	begin_call(s, bpf_ktime_get_ns());
	s->after_exit_ns = 0;
	s->active = 1;
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct call_state *s = bpf_task_storage_get(&others, task, 0, 0);
	if (!s || s->active != 1)
		return 0;
	u64 now = bpf_ktime_get_ns();
	s->active = 0;
	s->after_exit = 1;
	s->end_ns = now;
	s->result = result;
	count_latency(s->number, now - s->start_ns);
	if (now - s->start_ns < threshold_ns) {
		s->stretches = 0;
		return 0;
	}
	if (s->depth) {
		count(C_UNBALANCED);
		s->damaged = 1;
	}
	if (now > s->last_ns)
		add_stretch(s, now - s->last_ns, ON_CPU, -1);
	describe_call(s, task);
	send(s, R_CALL);
	return 0;
}

/* There is no tracepoint at the end of a fault: it lasts to the last sleep or bracket seen before user code
 * shows itself again (its next system call, its next fault, a long stretch on the CPU). */
SEC("tp_btf/page_fault_user")
int BPF_PROG(on_page_fault_user, unsigned long address)
{
	struct call_state *s = of_target(bpf_get_current_task_btf());
	if (!s || s->active == 1)
		return 0;
	if (s->active == 2)
		end_fault(s);
	begin_call(s, bpf_ktime_get_ns());
	s->number = -1;
	s->arg[0] = address;
	s->after_exit_ns = 0;
	s->active = 2;
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid, one = 1;
	if (from != to && bpf_map_lookup_elem(&targets, &from))
		bpf_map_update_elem(&targets, &to, &one, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct call_state *s = bpf_task_storage_get(&others, task, 0, 0);
	if (s && s->active == 2)
		end_fault(s);
	u32 tid = task->pid, tgid = task->tgid;
	if (tid == tgid)
		bpf_map_delete_elem(&targets, &tgid);
	return 0;
}

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_cgroup_attach, struct cgroup *to, const char *path, struct task_struct *task)
{
	u32 tgid = task->tgid, one = 1;
	for (int level = 0; level < 8 && to; level++) {
		if (BPF_CORE_READ(to, kn, id) == target_cgroup) {
			bpf_map_update_elem(&targets, &tgid, &one, BPF_ANY);
			return 0;
		}
		struct cgroup_subsys_state *above = BPF_CORE_READ(to, self.parent);
		if (!above)
			return 0;
		to = BPF_CORE_READ(above, cgroup);
	}
	return 0;
}

#endif
