/* Records where the time of a slow call goes: brackets, sleeps with their kernel stacks, and waits for a CPU.
 *
 * Each program is loaded and attached by itself and may be missing. The times still add up, since time without a
 * bracket stays in the stretch around it. SPDX-License-Identifier: GPL-2.0 OR MIT */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#ifndef NULL
#define NULL ((void *)0)
#endif
#include "slow_calls.h"
#include "kernel_types.h"
#include "variant.h"
#include "state.h"
#include "foreign.h"

const volatile struct enums enums_in_btf = {};

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline bool runnable(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return FIELD(task, __state) == 0;
	struct task_struct___before_5_14 *old = (void *)task;
	return BPF_CORE_READ(old, state) == 0;
}

/* Whether the thread sleeps uninterruptibly: for the kernel's own purposes, not for an event of user space. */
static __always_inline bool uninterruptible(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return FIELD(task, __state) & 2;
	struct task_struct___before_5_14 *old = (void *)task;
	return BPF_CORE_READ(old, state) & 2;
}

/* NULL without CONFIG_FAIR_GROUP_SCHED: then cgroups have no run queue of their own, and no quota. */
static __always_inline struct cfs_rq *queue_of(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->se.cfs_rq))
		return NULL;
	return BPF_CORE_READ(task, se.cfs_rq);
}

static __always_inline bool throttled(struct task_struct *task)
{
	struct task_struct___since_6_18 *new = (void *)task;
	if (bpf_core_field_exists(new->throttled) && BPF_CORE_READ(new, throttled))
		return 1;
	struct cfs_rq *queue = queue_of(task);
	if (queue && bpf_core_field_exists(queue->throttle_count))
		return BPF_CORE_READ(queue, throttle_count) > 0;
	return 0;
}

/* How long the task's groups have been throttled so far. The kernel adds up all CPUs, so an increase is an upper bound
 * of what one thread may have lost, not the loss itself. */
static __always_inline u64 throttled_total(struct task_struct *task)
{
	struct cfs_rq *queue = queue_of(task);
	if (!queue || !bpf_core_field_exists(queue->tg))
		return 0;
	struct task_group *group = BPF_CORE_READ(queue, tg);
	u64 total = 0;
	for (int level = 0; level < 4 && group; level++) {
		if (bpf_core_field_exists(group->cfs_bandwidth.throttled_time))
			total += BPF_CORE_READ(group, cfs_bandwidth.throttled_time);
		group = BPF_CORE_READ(group, parent);
	}
	return total;
}

static __always_inline void leaves_cpu(void *ctx, struct task_struct *task, struct call_state *s, bool preempt, u64 now)
{
	bool waits = preempt || runnable(task);
	if (s->active == IN_FAULT && s->depth == 0 && now - s->last_ns > FAULT_OVER_NS) {
		end_fault(ctx, s);
		return;
	}
	close_stretch(ctx, s, now, ON_CPU, -1);
	s->wake_ns = 0;
	s->sleep_stack = -1;
	s->throttled_ns = throttled_total(task);
	if (waits) {
		s->off = throttled(task) ? THROTTLED : PREEMPTED;
		/* Only the stack shows whether a page fault was still under way. */
		if (s->active == IN_FAULT)
			s->sleep_stack = take_stack(ctx);
	} else {
		s->off = ASLEEP;
		s->sleep_stack = take_stack(ctx);
	}
}

/* Closes a wait for a CPU; the part that the group's quota may explain becomes a separate stretch. */
static __always_inline void close_wait(void *ctx, struct call_state *s, u64 now, u64 quota_ns, u32 kind, int stack)
{
	u64 from = s->last_ns;
	if (quota_ns && now > from)
		close_stretch(ctx, s, quota_ns < now - from ? from + quota_ns : now, THROTTLED_LATER, stack);
	close_stretch(ctx, s, now, kind, stack);
}

static __always_inline void gets_cpu(void *ctx, struct task_struct *task, struct call_state *s, u64 now)
{
	u32 off = s->off;
	int stack = s->sleep_stack;
	s->off = 0;
	if (off == THROTTLED) {
		close_stretch(ctx, s, now, THROTTLED, stack);
		return;
	}
	u64 total = throttled_total(task);
	u64 quota_ns = total > s->throttled_ns ? total - s->throttled_ns : 0;
	if (off == PREEMPTED) {
		close_wait(ctx, s, now, quota_ns, PREEMPTED, stack);
		return;
	}
	u64 woken = s->wake_ns;
	if (woken < s->last_ns || woken > now)
		woken = now;
	close_stretch(ctx, s, woken, ASLEEP, stack);
	close_wait(ctx, s, now, quota_ns, WOKEN, -1);
}

/* Follows sleeps between the return of a call and user code: a thread over memory.high is made to wait there,
 * uninterruptibly. User space finds from the stack whether it was this wait. */
static __always_inline void after_exit_switch(void *ctx, struct task_struct *prev, struct task_struct *next, bool preempt)
{
	struct call_state *s = state_of(prev);
	if (s && s->after_exit && s->active == IN_USER && !preempt && uninterruptible(prev)) {
		s->last_ns = bpf_ktime_get_ns();
		s->sleep_stack = take_stack(ctx);
		s->off = ASLEEP;
	}
	s = state_of(next);
	if (s && s->after_exit && s->active == IN_USER && s->off == ASLEEP) {
		s->off = 0;
		s->after_exit_ns = bpf_ktime_get_ns() - s->last_ns;
		if (s->after_exit_ns < threshold_ns)
			return;
		if (s->end_ns - s->start_ns < threshold_ns)
			describe_call(s, next);
		s->stretches = 0;
		send(ctx, s, R_AFTER_EXIT);
	}
}

HOOK_AT(sched_switch)
int BPF_PROG(on_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct call_state *s = under_way(prev);
	if (s) {
		s->busy = 1;
		leaves_cpu(ctx, prev, s, preempt, bpf_ktime_get_ns());
		s->busy = 0;
	}
	s = under_way(next);
	if (s && s->off) {
		s->busy = 1;
		gets_cpu(ctx, next, s, bpf_ktime_get_ns());
		s->busy = 0;
	}
	if (!own_tgid)
		after_exit_switch(ctx, prev, next, preempt);
	return 0;
}

HOOK_AT(sched_wakeup)
int BPF_PROG(on_sched_wakeup, struct task_struct *task)
{
	struct call_state *s = under_way(task);
	if (s && s->off == ASLEEP && !s->wake_ns) {
		s->wake_ns = bpf_ktime_get_ns();
		/* Throttled time of the group during the sleep did not delay the thread. */
		s->throttled_ns = throttled_total(task);
	}
	return 0;
}

#define BRACKET(begin, end, bracket)                                                                                   \
	HOOK_AT(begin) int BPF_PROG(on_##begin) { return enter_here(ctx, bracket); }                                   \
	HOOK_AT(end) int BPF_PROG(on_##end) { return leave_here(ctx, bracket); }

EACH_BRACKET(BRACKET)

/* include/trace/events/lock.h, 5.19: LCB_F_SPIN 1, READ 2, WRITE 4, RT 8, PERCPU 16, MUTEX 32. */
HOOK_AT(contention_begin)
int BPF_PROG(on_contention_begin, void *lock, unsigned int flags)
{
	struct call_state *s = under_way(this_task());
	if (!s)
		return 0;
	u32 depth = s->depth & (DEPTH - 1);
	/* A mutex that first spins and then sleeps has two begin events and one end event. */
	if (depth && s->lock[depth] == (u64)lock)
		return 0;
	u32 bracket = flags & 16 ? B_LOCK_PERCPU : ((flags & 1) && !(flags & 32) ? B_LOCK_SPIN : B_LOCK_SLEEP);
	enter_bracket(ctx, s, bracket, (u64)lock);
	return 0;
}

HOOK_AT(contention_end)
int BPF_PROG(on_contention_end, void *lock)
{
	struct call_state *s = under_way(this_task());
	if (!s)
		return 0;
	u32 depth = s->depth & (DEPTH - 1);
	if (depth && s->lock[depth] == (u64)lock)
		leave_bracket(ctx, s, s->bracket[depth]);
	return 0;
}

SEC("tp/writeback/balance_dirty_pages")
int on_balance_dirty_pages(struct trace_event_raw_balance_dirty_pages *event)
{
	struct call_state *s = under_way(this_task());
	if (!s)
		return 0;
	struct trace_event_raw_balance_dirty_pages___bdi *old = (void *)event;
	s->dirty.at_ns = bpf_ktime_get_ns();
	s->dirty.pauses++;
	s->dirty.pause_ms = BPF_CORE_READ(event, pause);
	s->dirty.dirty_pages = BPF_CORE_READ(event, dirty);
	s->dirty.limit_pages = 0;
	if (bpf_core_field_exists(event->limit))
		s->dirty.limit_pages = BPF_CORE_READ(event, limit);
	s->dirty.wb_dirty_pages = s->dirty.wb_setpoint_pages = 0;
	if (bpf_core_field_exists(event->wb_dirty)) {
		s->dirty.wb_dirty_pages = BPF_CORE_READ(event, wb_dirty);
		s->dirty.wb_setpoint_pages = BPF_CORE_READ(event, wb_setpoint);
	} else if (bpf_core_field_exists(old->bdi_dirty)) {
		s->dirty.wb_dirty_pages = BPF_CORE_READ(old, bdi_dirty);
		s->dirty.wb_setpoint_pages = BPF_CORE_READ(old, bdi_setpoint);
	}
	return 0;
}

SEC("perf_event")
int on_cpu_clock(void *ctx)
{
	struct call_state *s = under_way(this_task());
	if (!s || s->off)
		return 0;
	if (s->busy) {
		count(C_BUSY);
		return 0;
	}
	u64 now = bpf_ktime_get_ns();
	if (now - s->start_ns < sample_after_ns)
		return 0;
	s->busy = 1;
	count(C_SAMPLES);
	close_stretch(ctx, s, now, SAMPLED, take_stack(ctx));
	s->busy = 0;
	return 0;
}

/* Functions without tracepoints, where the kernel allows hooks on functions. */
#ifndef RAW_TRACEPOINTS
#define AROUND(function, bracket)                                                                                      \
	SEC("fentry/" #function) int BPF_PROG(enter_##function) { return enter_here(ctx, bracket); }                   \
	SEC("fexit/" #function) int BPF_PROG(leave_##function) { return leave_here(ctx, bracket); }

EACH_FUNCTION(AROUND)
#endif
