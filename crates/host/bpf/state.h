/* The state of a thread's call: finding it, adding stretches to it, sending it. SPDX-License-Identifier: GPL-2.0 OR MIT
 */
#ifndef FLATWATER_STATE_H
#define FLATWATER_STATE_H

/* Set by user space before the object is loaded. */
const volatile u32 own_tgid = 0;          /* not 0: trace only threads of this process, which time themselves */
const volatile u64 threshold_ns = 1000000;
/* A call younger than this has no stack sampled: nearly every call ends earlier, and a stack costs a few us. */
const volatile u64 sample_after_ns = 100000;
const volatile u64 wanted_calls[8] = {0}; /* the timed system calls, one bit each */
const volatile u32 target_hierarchy = 0;  /* number of target_cgroup's hierarchy; 0 is v2 */
const volatile u64 target_cgroup = 0;     /* threads moved into this cgroup (kernfs id) become targets */

#define EFAULT 14

/* Shorter stretches on the CPU are joined to the next one. Otherwise fast shrinkers would fill a call with thousands of
 * indistinguishable stretches. */
#define GRAIN_NS 500
/* User code after a page fault has no tracepoint: after this long on the CPU, the fault must be over. */
#define FAULT_OVER_NS 2000000

#ifdef PERF_BUFFER
struct { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __type(key, u32); __type(value, u32); } records SEC(".maps");
#else
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 1 << 22); } records SEC(".maps");
#endif
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");
/* Two tables: an id is a hash cut to the table's size, so two stacks that collide in one table rarely collide in both.
 */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 8192);
	__uint(key_size, sizeof(u32));
	__uint(value_size, STACK_FRAMES * sizeof(u64));
} stacks SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(u32));
	__uint(value_size, STACK_FRAMES * sizeof(u64));
} stacks_second SEC(".maps");
/* Processes whose calls are timed, by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, u32);
} targets SEC(".maps");
/* Targets that ended by SIGKILL, with their names: a process that the kernel's log names as killed may be one of them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, char[16]);
} killed SEC(".maps");
/* Number of threads of targets where a hash holds their states, 2 KiB each. Further threads are counted (C_NO_STATE).
 */
#define THREADS_BY_TID 4096
/* The state of a thread; absent if the thread is not a target's or has made no call yet. */
PER_TASK(others, state, struct call_state, THREADS_BY_TID)
/* flatwater's own threads: tid to slot, and the slots, which user space maps. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OWN_SLOTS);
	__type(key, u32);
	__type(value, u32);
} own_threads SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, SHARED_MEMORY);
	__uint(max_entries, OWN_SLOTS);
	__type(key, u32);
	__type(value, struct call_state);
} own_slots SEC(".maps");

static __always_inline void count(u32 which)
{
	u64 *value = bpf_map_lookup_elem(&counters, &which);
	if (value)
		*value += 1;
}

static __always_inline void begin_call(struct call_state *s, u64 now)
{
	s->start_ns = s->last_ns = now;
	s->stretches = s->pieces = 0;
	s->depth = s->off = s->busy = s->damaged = s->after_exit = 0;
	s->bracket[0] = B_NONE;
	s->dirty.pauses = 0;
}

/* The thread's state if it is within a call, else NULL. */
static __always_inline struct call_state *under_way(struct task_struct *task)
{
	if (own_tgid) {
		if (FIELD(task, tgid) != own_tgid)
			return NULL;
		u32 tid = FIELD(task, pid);
		u32 *slot = bpf_map_lookup_elem(&own_threads, &tid);
		if (!slot)
			return NULL;
		struct call_state *s = bpf_map_lookup_elem(&own_slots, slot);
		if (!s)
			return NULL;
		u64 start = *(volatile u64 *)&s->op_start_ns;
		if (!start)
			return NULL;
		if (start != s->start_ns)
			begin_call(s, start);
		return s;
	}
	struct call_state *s = state_of(task);
	return s && s->active != IN_USER ? s : NULL;
}

static __always_inline long put_record(void *ctx, void *from, u64 bytes)
{
#ifdef PERF_BUFFER
	return bpf_perf_event_output(ctx, &records, BPF_F_CURRENT_CPU, from, bytes);
#else
	return bpf_ringbuf_output(&records, from, bytes, 0);
#endif
}

static __always_inline void send(void *ctx, struct call_state *s, u8 record)
{
	s->record = record;
	u32 held = s->stretches;
	if (held > STRETCHES)
		held = STRETCHES;
	u64 bytes = __builtin_offsetof(struct call_state, stretch) + held * sizeof(struct stretch);
	if (bytes > sizeof(*s))
		return;
	if (put_record(ctx, s, bytes)) {
		count(C_LOST);
		s->damaged = 1;
	}
	s->pieces++;
	s->stretches = 0;
}

/* Not inlined: called from every hook, and the verifier would check each copy. */
static __noinline int add_stretch(void *ctx, struct call_state *s, u64 ns, u32 kind, int stack)
{
	if (!s)
		return 0;
	u8 bracket = s->bracket[s->depth & (DEPTH - 1)];
	u32 n = s->stretches;
	if (n > 0) {
		struct stretch *before = &s->stretch[(n - 1) & (STRETCHES - 1)];
		if (before->kind == kind && before->bracket == bracket && before->stack == stack && kind != SAMPLED) {
			before->ns += ns;
			if (before->count < 0xffff)
				before->count++;
			return 0;
		}
	}
	if (n >= STRETCHES) {
		send(ctx, s, R_PIECE);
		n = 0;
	}
	struct stretch *new = &s->stretch[n & (STRETCHES - 1)];
	new->ns = ns;
	new->stack = stack;
	new->kind = kind;
	new->bracket = bracket;
	new->count = 1;
	s->stretches = n + 1;
	return 0;
}

/* Adds the time since the last event as a stretch of this kind. */
static __always_inline void close_stretch(void *ctx, struct call_state *s, u64 now, u32 kind, int stack)
{
	u64 last = s->last_ns;
	if (now <= last || (kind == ON_CPU && now - last < GRAIN_NS))
		return;
	s->last_ns = now;
	add_stretch(ctx, s, now - last, kind, stack);
}

static __always_inline int take_stack(void *ctx)
{
	long id = bpf_get_stackid(ctx, &stacks, 0);
	if (id >= 0)
		return id;
	if (id != -EFAULT) {
		id = bpf_get_stackid(ctx, &stacks_second, 0);
		if (id >= 0)
			return id | STACK_SECOND;
	}
	/* A sample of user code has no kernel stack; this is not an error. */
	if (id == -EFAULT)
		return -1;
	count(C_STACK_ERROR);
	return -1;
}

static __always_inline void enter_bracket(void *ctx, struct call_state *s, u32 bracket, u64 lock)
{
	/* The hook of an interrupt may run while another hook changes the state of the same thread. */
	if (s->busy) {
		count(C_BUSY);
		return;
	}
	s->busy = 1;
	close_stretch(ctx, s, bpf_ktime_get_ns(), ON_CPU, -1);
	u32 depth = s->depth;
	if (depth >= DEPTH - 1) {
		count(C_TOO_DEEP);
		s->damaged = 1;
	} else {
		depth++;
		s->depth = depth;
		s->bracket[depth & (DEPTH - 1)] = bracket;
		s->lock[depth & (DEPTH - 1)] = lock;
	}
	s->busy = 0;
}

static __always_inline void leave_bracket(void *ctx, struct call_state *s, u32 bracket)
{
	if (s->busy) {
		count(C_BUSY);
		return;
	}
	s->busy = 1;
	close_stretch(ctx, s, bpf_ktime_get_ns(), ON_CPU, -1);
	u32 depth = s->depth & (DEPTH - 1);
	if (depth > 0 && s->bracket[depth] == bracket) {
		s->depth = depth - 1;
	} else if (depth > 0) {
		count(C_UNBALANCED);
		s->damaged = 1;
		/* The end of an inner bracket was missed. If the bracket below is the one that ends, both are over. */
		if (depth >= 2 && s->bracket[(depth - 1) & (DEPTH - 1)] == bracket)
			s->depth = depth - 2;
	}
	/* At depth 0 the bracket was entered before the call began: nothing to leave. */
	s->busy = 0;
}

/* The end of a page fault is not seen: when an interrupt comes, user code may have run for long. The interrupt's hooks
 * would add all that time to the fault, so they count only where an open bracket shows that the fault is still in the
 * kernel. */
static __always_inline bool may_be_user_code(struct call_state *s, u32 bracket)
{
	return s->active == IN_FAULT && s->depth == 0 && (bracket == B_HARD_IRQ || bracket == B_SOFT_IRQ);
}

static __always_inline int enter_here(void *ctx, u32 bracket)
{
	struct call_state *s = under_way(this_task());
	if (s && !may_be_user_code(s, bracket))
		enter_bracket(ctx, s, bracket, 0);
	return 0;
}

static __always_inline int leave_here(void *ctx, u32 bracket)
{
	struct call_state *s = under_way(this_task());
	if (s && !may_be_user_code(s, bracket))
		leave_bracket(ctx, s, bracket);
	return 0;
}

#endif
