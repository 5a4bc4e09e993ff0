/* Long sleeps, recorded by the wake-up that ends them, so that short sleeps, nearly all, never pay for a stack.
 *
 * Uninterruptible sleeps are recorded for every thread, since a wait chain may lead to any thread. Interruptible ones
 * are recorded only for targets within calls that take a lock: other interruptible sleeps wait for work, not for a
 * disk. With whole_machine they are not recorded at all, since nearly every context switch is one.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAIT_SLEEPS_H
#define FLATWATER_WAIT_SLEEPS_H

struct waiter {
	u64 start_ns;                   /* start of the current sleep; 0: none */
	u64 runnable_ns;                /* start of the current wait for a CPU; 0: none, or not followed */
	u64 lock, lock_since_ns;
	u64 awaited_inode;
	u64 since_ns;                   /* kernel thread: when it was last woken from idle */
	u64 since_request;
	u64 bracket_ns;                 /* start of the outermost open bracket */
	u64 call_key, call_start_ns;    /* the call of the last sleep, and the start of the call's first sleep */
	u64 call_switches;              /* voluntary switches of the thread at the last sleep */
	u64 told_ns;                    /* end of the last reported sleep of that call */
	u64 reap_from_ns, reap_to_ns;   /* the last sleep for completions of io_uring or libaio */
	u32 reap_count, unused;         /* the number of completions that this sleep waited for */
	u32 bracket;                    /* enum bracket; 0 none */
	u32 runnable_in_call;           /* the wait for a CPU began within the call noted last */
	u32 since_by, lock_flags, holder_tid, holder_tgid;
	char since_by_comm[16], holder_comm[16];
};
/* Number of threads where a hash holds these: those that slept long, kernel threads, and threads of targets. */
#define WAITERS_BY_TID 16384
PER_TASK(waiters, waiter, struct waiter, WAITERS_BY_TID)

/* The request that a thread on this CPU completed last: wake-ups by the same thread soon afterwards are caused by it.
 */
struct completion {
	u64 at_ns, task, request;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct completion);
} last_completion SEC(".maps");

#define COMPLETION_NS 5000000

static __always_inline u64 completed_now(struct task_struct *me, u64 now)
{
	u32 zero = 0;
	struct completion *last = bpf_map_lookup_elem(&last_completion, &zero);
	return last && last->task == (u64)me && now - last->at_ns < COMPLETION_NS ? last->request : 0;
}

static __always_inline u32 state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return FIELD(task, __state);
	return BPF_CORE_READ((struct task_struct___before_5_14 *)task, state);
}

/* TASK_UNINTERRUPTIBLE without TASK_NOLOAD: idle kernel threads have both. The bits are those of 4.14 and later. */
static __always_inline bool uninterruptible(u32 state)
{
	return (state & 0x402) == 2;
}

static __always_inline bool takes_lock(struct task_struct *task)
{
	struct task_struct___waits *known = (void *)task;
	if (whole_machine || FIELD(known, flags) & (PF_KTHREAD | PF_IO_WORKER) || !is_target(FIELD(task, tgid)))
		return 0;
	struct pt_regs___waits *regs = regs_of(task);
	return has_call(lock_calls, CALL_OF(regs));
}

/* Notes that a thread sleeps until io_uring or libaio completes an operation. */
static __always_inline void note_reaping(struct task_struct *task, u64 now)
{
	struct task_struct___waits *known = (void *)task;
	if (whole_machine || FIELD(known, flags) & (PF_KTHREAD | PF_IO_WORKER) || !is_target(FIELD(task, tgid)))
		return;
	struct pt_regs___waits *regs = regs_of(task);
	u64 number = CALL_OF(regs);
	if (number != uring_enter_number && number != io_getevents_number && number != io_pgetevents_number)
		return;
	struct waiter *w = waiter_made(task);
	if (!w)
		return;
	w->reap_from_ns = now;
	w->reap_count = number == uring_enter_number ? CALL_ARG2(regs) : CALL_ARG1(regs);
}

/* Distinguishes calls with the same arguments but different paths: a program that walks a tree reuses one buffer. */
static __always_inline u64 path_key(struct pt_regs___waits *regs, long number)
{
	u32 which = of_call(call_path_arg, number);
	u64 words[8] = {}, key = 0;
	if (!which)
		return 0;
	bpf_probe_read_user_str(words, sizeof(words), (void *)argument_at(regs, which));
	for (int i = 0; i < 8; i++)
		key = key * 31 + words[i];
	return key;
}

/* Called when the current thread is about to sleep or enters reclaim: is it in the same call as at its last sleep? Then
 * its registers are equal, it has finished no read or write (or page fault) in between, and it has not slept elsewhere.
 */
static __always_inline void note_call(struct waiter *w, struct task_struct *task, u64 now)
{
	struct task_struct___waits *known = (void *)task;
	if (!call_ns_min || FIELD(known, flags) & (PF_KTHREAD | PF_IO_WORKER))
		return;
	struct pt_regs___waits *regs = regs_of(task);
	long number = CALL_OF(regs);
	u64 finished = number < 0 ? FIELD(known, min_flt) + FIELD(known, maj_flt)
				  : FIELD(known, ioac.syscr) + FIELD(known, ioac.syscw);
	u64 key = KEY_OF(regs) + finished * 101 + path_key(regs, number);
	u64 switches = FIELD(known, nvcsw), between = switches - w->call_switches;
	w->call_switches = switches;
	if (key == w->call_key && between <= 1)
		return;
	w->call_key = key;
	w->call_start_ns = w->told_ns = now;
}

/* Whether a sleep or bracket that ends now is reported. */
static __always_inline bool worth_telling(struct waiter *w, u64 start, u64 now)
{
	if (now - start < sleep_ns_min &&
	    (!w->call_start_ns || now - w->call_start_ns < call_ns_min || now - w->told_ns < sleep_ns_min))
		return 0;
	w->told_ns = now;
	return 1;
}

static __always_inline void fill_sleeper(struct sleep_record *r, struct task_struct *task, struct waiter *w)
{
	struct task_struct___waits *known = (void *)task;
	describe_task(task, &r->sleeper);
	r->arg[0] = r->arg[1] = r->arg[2] = r->ip = r->sp = r->asynchronous = 0;
	r->reads_writes = FIELD(known, ioac.syscr) + FIELD(known, ioac.syscw);
	r->voluntary_switches = FIELD(known, nvcsw);
	if (!(r->sleeper.flags & (PF_KTHREAD | PF_IO_WORKER))) {
		struct pt_regs___waits *regs = regs_of(task);
		r->arg[0] = CALL_ARG0(regs);
		r->arg[1] = CALL_ARG1(regs);
		r->arg[2] = CALL_ARG2(regs);
		r->ip = CALL_IP(regs);
		r->sp = CALL_SP(regs);
	} else if (r->sleeper.flags & PF_IO_WORKER) {
		r->asynchronous = operation_of(known);
	}
	r->call_start_ns = w->call_start_ns;
	r->target = is_target(r->sleeper.tgid);
	r->lock = w->lock;
	r->lock_since_ns = w->lock_since_ns;
	r->lock_flags = w->lock_flags;
	r->holder_tid = w->holder_tid;
	r->holder_tgid = w->holder_tgid;
	__builtin_memcpy(r->holder_comm, w->holder_comm, sizeof(r->holder_comm));
	r->awaited_inode = w->awaited_inode;
}

/* Begins a record of what `task` did from `start` to `now`, without the waker; the caller completes and submits it.
 * NULL if the ring buffer is full, which is counted. */
static __always_inline struct sleep_record *begin_sleep(struct task_struct *task, struct waiter *w, u64 start, u64 now)
{
	struct sleep_record *r = bpf_ringbuf_reserve(&wait_records, sizeof(*r), 0);
	if (!r) {
		wait_count(WC_LOST);
		return NULL;
	}
	r->kind = W_SLEEP;
	r->state = r->bracket = 0;
	r->start_ns = start;
	r->end_ns = now;
	fill_sleeper(r, task, w);
	__builtin_memset(&r->waker, 0, sizeof(r->waker));
	r->request = r->waker_request = r->waker_since_ns = 0;
	r->waker_by_tid = r->waker_depth = 0;
	r->waker_by_comm[0] = 0;
	return r;
}

static __always_inline void fill_waker(struct sleep_record *r, struct task_struct *me, u64 now)
{
	describe_task(me, &r->waker);
	r->request = completed_now(me, now);
	if (!(r->waker.flags & PF_KTHREAD))
		return;
	struct waiter *k = waiter_of(me);
	if (!k)
		return;
	r->waker_since_ns = k->since_ns;
	r->waker_by_tid = k->since_by;
	__builtin_memcpy(r->waker_by_comm, k->since_by_comm, sizeof(r->waker_by_comm));
	r->waker_request = k->since_request;
}

#include "wait_runs.h"

SEC("tp_btf/sched_switch")
int BPF_PROG(wait_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns();
	u32 state = preempt ? 0 : state_of(prev);
	switch_runs(prev, next, !state, now);
	note_worker(prev, now);
	note_worker(next, now);
	if (state & 1)
		note_reaping(prev, now);
	if (!state || (!uninterruptible(state) && (!(state & 1) || !takes_lock(prev))))
		return 0;
	struct waiter *w = waiter_made(prev);
	if (!w) {
		wait_count(WC_NO_STATE);
		return 0;
	}
	w->start_ns = now;
	note_call(w, prev, now);
	return 0;
}

/* Notes which thread gave work to an idle kernel thread. */
static __always_inline void note_work(struct task_struct *task)
{
	struct waiter *w = waiter_made(task);
	if (!w)
		return;
	struct task_struct *me = this_task();
	w->since_ns = bpf_ktime_get_ns();
	w->since_by = FIELD(me, pid);
	w->since_request = completed_now(me, w->since_ns);
	bpf_get_current_comm(w->since_by_comm, sizeof(w->since_by_comm));
	if (!whole_machine)
		begins_to_wait(w, task, 0, w->since_ns);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(wait_waking, struct task_struct *task)
{
	u32 state = state_of(task);
	struct task_struct___waits *known = (void *)task;
	struct waiter *w;
	if (FIELD(known, flags) & PF_KTHREAD) {
		if (!uninterruptible(state)) {
			note_work(task);
			return 0;
		}
		w = waiter_of(task);
		if (w && !whole_machine)
			begins_to_wait(w, task, 0, bpf_ktime_get_ns());
	} else {
		/* Nearly every wake-up ends an interruptible sleep: with whole_machine these must cost no more than
		 * this check. */
		if (whole_machine && !uninterruptible(state))
			return 0;
		bool target = !whole_machine && is_target(FIELD(task, tgid));
		w = target ? waiter_made(task) : waiter_of(task);
		if (w && w->reap_from_ns > w->reap_to_ns)
			w->reap_to_ns = bpf_ktime_get_ns();
		if (w && (target || w->start_ns))
			begins_to_wait(w, task, w->start_ns != 0, bpf_ktime_get_ns());
		if (!uninterruptible(state) && !(state & 1))
			return 0;
	}
	if (!w || !w->start_ns)
		return 0;
	u64 now = bpf_ktime_get_ns(), start = w->start_ns;
	w->start_ns = 0;
	if (!worth_telling(w, start, now) && !in_long_operation(task, start, now))
		return 0;
	struct sleep_record *r = begin_sleep(task, w, start, now);
	if (!r)
		return 0;
	r->state = state;
	fill_waker(r, this_task(), now);
	w->awaited_inode = 0;
	long bytes = bpf_get_task_stack(task, r->frames, sizeof(r->frames), 0);
	r->depth = bytes > 0 ? (u32)bytes / 8 : 0;
	bytes = bpf_get_stack(ctx, r->waker_frames, sizeof(r->waker_frames), 0);
	r->waker_depth = bytes > 0 ? (u32)bytes / 8 : 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Mutexes (LCB_F_MUTEX 32) and rwsems (READ 2, WRITE 4; not SPIN 1, PERCPU 16) store their holder in a word whose low
 * three bits are flags (kernel/locking/mutex.c, rwsem.c). With PREEMPT_RT all of these, and sleeping spinlocks, have
 * LCB_F_RT (8), and the event has the address of the rt_mutex or rwbase inside (rtmutex.c, rwbase_rt.c); otherwise
 * LCB_F_RT is a lock of futexes and drivers. */
static __always_inline u64 owner_of(void *lock, unsigned int flags)
{
	if (bpf_core_type_exists(struct rwbase_rt)) {
		if (flags & (2 | 4))
			return (u64)BPF_CORE_READ((struct rwbase_rt *)lock, rtmutex.owner);
		return (u64)BPF_CORE_READ((struct rt_mutex_base *)lock, owner);
	}
	return flags & 32 ? BPF_CORE_READ((struct mutex *)lock, owner.counter)
			  : BPF_CORE_READ((struct rw_semaphore *)lock, owner.counter);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(wait_contention_begin, void *lock, unsigned int flags)
{
	u32 other = bpf_core_type_exists(struct rwbase_rt) ? 16 : 8 | 16;
	if (!flags || (flags & other) || ((flags & 1) && !(flags & 32)))
		return 0;
	struct waiter *w = waiter_made(this_task());
	if (!w || w->lock == (u64)lock)
		return 0;
	struct task_struct *holder = (void *)(owner_of(lock, flags) & ~7ull);
	w->lock = (u64)lock;
	w->lock_since_ns = bpf_ktime_get_ns();
	w->lock_flags = flags;
	w->holder_tid = w->holder_tgid = 0;
	w->holder_comm[0] = 0;
	if (!holder)
		return 0;
	w->holder_tid = BPF_CORE_READ(holder, pid);
	w->holder_tgid = BPF_CORE_READ(holder, tgid);
	bpf_probe_read_kernel_str(w->holder_comm, sizeof(w->holder_comm), holder->comm);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(wait_contention_end, void *lock)
{
	struct waiter *w = waiter_of(this_task());
	if (w && w->lock == (u64)lock)
		w->lock = 0;
	return 0;
}

SEC("tp_btf/folio_wait_writeback")
int BPF_PROG(wait_writeback, struct folio *folio, struct address_space *mapping)
{
	if (!mapping)
		return 0;
	struct waiter *w = waiter_made(this_task());
	if (w)
		w->awaited_inode = BPF_CORE_READ(mapping, host, i_ino);
	return 0;
}

/* Sends unfinished sleeps: of every thread those that would be reported, since a wait chain may lead to any thread; of
 * targets also those that began before the hooks were attached. Runs once for each thread when user space reads the
 * iterator. */
SEC("iter/task")
int wait_under_way(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	if (!task)
		return 0;
	u32 state = state_of(task);
	struct waiter *w = waiter_of(task);
	u64 now = bpf_ktime_get_ns(), start = w ? w->start_ns : 0;
	if (!uninterruptible(state) && (!(state & 1) || !start))
		return 0;
	if (start ? now - start < sleep_ns_min : whole_machine || !is_target(FIELD(task, tgid)))
		return 0;
	if (!w)
		w = waiter_made(task);
	if (!w) {
		wait_count(WC_NO_STATE);
		return 0;
	}
	struct sleep_record *r = begin_sleep(task, w, start, now);
	if (!r)
		return 0;
	r->kind = W_UNDER_WAY;
	r->state = state;
	long bytes = bpf_get_task_stack(task, r->frames, sizeof(r->frames), 0);
	r->depth = bytes > 0 ? (u32)bytes / 8 : 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The thread that reads the iterator is in read(): do its saved registers show that call? */
SEC("iter/task")
int wait_registers(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	if (task && FIELD(task, pid) == (u32)bpf_get_current_pid_tgid())
		wait_count(CALL_OF(regs_of(task)) == read_number ? WC_REGISTERS : WC_OTHER_REGISTERS);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(wait_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = FIELD(parent, tgid), to = FIELD(child, tgid), one = 1;
	if (from != to && is_target(from))
		bpf_map_update_elem(&wait_targets, &to, &one, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(wait_exit, struct task_struct *task)
{
	u32 tgid = FIELD(task, tgid), tid = FIELD(task, pid);
	if (tid == tgid)
		bpf_map_delete_elem(&wait_targets, &tgid);
	waiter_ended(task);
	return 0;
}

#endif
