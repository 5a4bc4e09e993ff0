/* Waits for a CPU, and the threads that had the CPU at that time. Each CPU keeps its last switches, which costs a few
 * stores per switch. They are sent only for a thread that waited long: a target's, one within a call on files, or a
 * kernel thread that serves devices and journals, where it is known only later which call waited for it.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAIT_RUNS_H
#define FLATWATER_WAIT_RUNS_H

struct cpu_runs {
	u64 since_ns;                   /* since when the current thread has the CPU; 0: unknown */
	u64 count;
	struct run run[RUNS_KEPT];
};
/* One entry per CPU; user space sets the number. */
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

/* The number of threads with the same `pid & (WAITING_PLACES - 1)` that wait for a CPU. If it is 0, a switch need not
 * look up the thread's waiter. */
#define WAITING_PLACES 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAITING_PLACES);
	__type(key, u32);
	__type(value, u64);
} waiting SEC(".maps");

static __always_inline u64 *waiting_at(struct task_struct *task)
{
	u32 place = FIELD(task, pid) & (WAITING_PLACES - 1);
	return bpf_map_lookup_elem(&waiting, &place);
}

/* `in_call`: the wait is within the call that note_call() noted last. */
static __always_inline void begins_to_wait(struct waiter *w, struct task_struct *task, bool in_call, u64 now)
{
	u64 *count = waiting_at(task);
	if (count && !w->runnable_ns)
		__sync_fetch_and_add(count, 1);
	w->runnable_ns = now;
	w->runnable_in_call = in_call;
}

/* Whether the thread's call is on a file: calls on pipes and sockets wait for a CPU as well, but are not timed. */
static __always_inline bool is_on_file(struct task_struct *task)
{
	struct pt_regs___waits *regs = regs_of(task);
	long number = CALL_OF(regs);
	u32 which = of_call(call_file_arg, number);
	if (!which)
		return 1;
	struct file *file = file_at(task, argument_at(regs, which));
	struct inode *inode = file ? BPF_CORE_READ(file, f_inode) : NULL;
	return inode && kind_of(inode) != FILE_OTHER;
}

/* Reports a wait for a CPU as part of a call, for the calls that are found by their sleeps. */
static __always_inline void tell_runnable(struct waiter *w, struct task_struct *task, u64 start, u64 now)
{
	struct sleep_record *r = begin_sleep(task, w, start, now);
	if (!r)
		return;
	r->bracket = WAIT_FOR_CPU;
	long bytes = bpf_get_task_stack(task, r->frames, sizeof(r->frames), 0);
	r->depth = bytes > 0 ? (u32)bytes / 8 : 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* The thread was preempted or yielded the CPU, and waits for a CPU from now on. */
static __always_inline void loses_cpu(struct task_struct *task, u64 now)
{
	if (!is_program(task)) {
		/* With whole_machine, waits of kernel threads are not followed, to keep switches cheap. */
		struct waiter *k = whole_machine || !FIELD(task, pid) ? NULL : waiter_of(task);
		if (k)
			begins_to_wait(k, task, 0, now);
		return;
	}
	bool in_call = call_ns_min && has_call(file_calls, CALL_OF(regs_of(task)));
	if (whole_machine ? !in_call : !is_target(FIELD(task, tgid)))
		return;
	struct waiter *w = waiter_made(task);
	if (!w)
		return;
	if (in_call)
		note_call(w, task, now);
	begins_to_wait(w, task, in_call, now);
}

static __always_inline void gets_cpu(struct cpu_runs *runs, struct task_struct *task, u64 now, u32 cpu)
{
	u64 *count = waiting_at(task);
	if (!count || !*count)
		return;
	struct waiter *w = waiter_of(task);
	if (!w || !w->runnable_ns)
		return;
	u64 start = w->runnable_ns;
	bool in_call = w->runnable_in_call;
	w->runnable_ns = 0;
	__sync_fetch_and_add(count, -1);
	if (now <= start)
		return;
	bool told = call_ns_min && in_call && worth_telling(w, start, now);
	if (told && !is_on_file(task))
		return;
	if (now - start >= sleep_ns_min)
		tell_runs(runs, task, start, now, cpu);
	if (told)
		tell_runnable(w, task, start, now);
}

/* `prev_runnable`: prev waits for a CPU from now on. */
static __always_inline void switch_runs(struct task_struct *prev, struct task_struct *next, bool prev_runnable, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_runs *runs = bpf_map_lookup_elem(&cpu_runs, &cpu);
	if (!runs)
		return;
	u32 tid = FIELD(prev, pid);
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
	if (prev_runnable)
		loses_cpu(prev, now);
	gets_cpu(runs, next, now, cpu);
}

#endif
