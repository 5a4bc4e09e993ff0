/* Reclaim and compaction that a thread does itself. It alternates between running and sleeping, so that its sleeps
 * alone would show only a small part. Only the outermost bracket is reported, and only if it is long enough.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAIT_BRACKETS_H
#define FLATWATER_WAIT_BRACKETS_H

static __always_inline int bracket_begins(u32 bracket)
{
	struct task_struct *me = this_task();
	if (FIELD((struct task_struct___waits *)me, flags) & PF_KTHREAD)
		return 0;
	struct waiter *w = waiter_made(me);
	/* A bracket of the same kind is open: its end was missed, because the tracepoint was attached within it. */
	if (!w || (w->bracket && w->bracket != bracket))
		return 0;
	w->bracket = bracket;
	w->bracket_ns = bpf_ktime_get_ns();
	note_call(w, me, w->bracket_ns);
	return 0;
}

static __always_inline int bracket_ends(void *ctx, u32 bracket)
{
	struct task_struct *me = this_task();
	struct waiter *w = waiter_of(me);
	if (!w || w->bracket != bracket)
		return 0;
	u64 now = bpf_ktime_get_ns(), start = w->bracket_ns;
	w->bracket = 0;
	if (!worth_telling(w, start, now))
		return 0;
	struct sleep_record *r = begin_sleep(me, w, start, now);
	if (!r)
		return 0;
	r->bracket = bracket;
	long bytes = bpf_get_stack(ctx, r->frames, sizeof(r->frames), 0);
	r->depth = bytes > 0 ? (u32)bytes / 8 : 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

#define WAIT_BRACKET(begin, end, bracket)                                                                              \
	SEC("tp_btf/" #begin) int wait_##begin(void *ctx) { return bracket_begins(bracket); }                          \
	SEC("tp_btf/" #end) int wait_##end(void *ctx) { return bracket_ends(ctx, bracket); }

/* Only the brackets that the specs mark as seldom: each may contain dozens of shrinker brackets, most of them
 * microseconds long. */
EACH_SELDOM_BRACKET(WAIT_BRACKET)

#endif
