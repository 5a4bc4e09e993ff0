/* Who ran on a CPU while a target's thread waited for it. Each CPU remembers its last switches, which costs a switch a few
 * stores; only a target's thread that waited long has them told. SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAIT_RUNS_H
#define FLATWATER_WAIT_RUNS_H

struct cpu_runs {
	u64 since_ns;                   /* of the thread that has the CPU now; 0 not known */
	u64 count;
	struct run run[RUNS_KEPT];
};
/* By CPU; user space sets how many there are. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_runs);
} cpu_runs SEC(".maps");

static __always_inline void tell_runs(struct cpu_runs *runs, struct task_struct *task, u64 start, u64 now, u32 cpu)
{
	struct runnable_record *r = bpf_ringbuf_reserve(&wait_records, sizeof(*r), 0);
	if (!r) {
		wait_count(WC_LOST);
		return;
	}
	r->kind = W_RUNNABLE;
	r->cpu = cpu;
	r->tid = FIELD(task, pid);
	r->tgid = FIELD(task, tgid);
	r->start_ns = start;
	r->end_ns = now;
	r->unused = 0;
	u32 found = 0;
	for (u32 i = 0; i < RUNS_KEPT; i++) {
		struct run *from = &runs->run[(runs->count - 1 - i) & (RUNS_KEPT - 1)];
		if (from->to_ns <= start)
			break;
		r->run[i] = *from;
		found = i + 1;
	}
	r->runs = found;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

static __always_inline bool is_program(struct task_struct *task)
{
	return FIELD(task, pid) && !(FIELD((struct task_struct___waits *)task, flags) & PF_KTHREAD);
}

/* Whether `next` cannot have waited long: it was queued while `prev` had the CPU, and `prev` had it briefly. Both are of the
 * scheduler's own clock, which is not ours. Spares nearly every switch a search for the process. */
static __always_inline bool waited_briefly(struct task_struct *prev, struct task_struct *next, u64 prev_ran_ns)
{
	struct task_struct___waits *had = (void *)prev, *gets = (void *)next;
	if (prev_ran_ns >= sleep_ns_min || !bpf_core_field_exists(gets->sched_info.last_queued))
		return 0;
	return FIELD(gets, sched_info.last_queued) > FIELD(had, sched_info.last_arrival);
}

/* `prev_runnable`: it was preempted, or gave the CPU up, and waits for one from now on. */
static __always_inline void switch_runs(struct task_struct *prev, struct task_struct *next, bool prev_runnable, u64 now)
{
	/* Where every process is followed, every switch would pay for it. */
	if (whole_machine)
		return;
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_runs *runs = bpf_map_lookup_elem(&cpu_runs, &cpu);
	if (!runs)
		return;
	u32 tid = FIELD(prev, pid);
	u64 prev_ran_ns = now - runs->since_ns;
	if (tid && runs->since_ns) {
		struct run *run = &runs->run[runs->count & (RUNS_KEPT - 1)];
		run->from_ns = runs->since_ns;
		run->to_ns = now;
		run->tid = tid;
		run->tgid = FIELD(prev, tgid);
		copy_comm(run->comm, prev);
		runs->count++;
	}
	runs->since_ns = now;
	if (prev_runnable && is_program(prev) && is_target(FIELD(prev, tgid))) {
		struct waiter *w = waiter_made(prev);
		if (w)
			w->runnable_ns = now;
	}
	if (!is_program(next) || waited_briefly(prev, next, prev_ran_ns) || !is_target(FIELD(next, tgid)))
		return;
	struct waiter *w = waiter_of(next);
	if (!w || !w->runnable_ns)
		return;
	u64 start = w->runnable_ns;
	w->runnable_ns = 0;
	if (now > start && now - start >= sleep_ns_min)
		tell_runs(runs, next, start, now, cpu);
}

#endif
