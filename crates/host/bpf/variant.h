/* Macros for the differences between the variants of our BPF objects, since kernels differ in what they allow BPF
 * programs. build.rs compiles the object once for each set of these switches (crates/host/build.rs: VARIANTS), and user
 * space uses the first variant that the kernel accepts.
 *
 *     HASH_BY_TID       a hash keyed by thread id instead of task storage (available to tracing programs since 5.12; safe
 *                       to create from any hook since 6.4)
 *     PERF_BUFFER       a perf buffer per CPU instead of the ring buffer (5.8)
 *     RAW_TRACEPOINTS   raw tracepoints, whose arguments are plain numbers to the verifier, instead of typed ones (5.5);
 *                       no fentry either
 *     NO_SHARED_MEMORY  arrays that user space cannot map (mapping needs 5.5)
 *
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_VARIANT_H
#define FLATWATER_VARIANT_H

#ifdef RAW_TRACEPOINTS
#define HOOK_AT(tracepoint) SEC("raw_tp/" #tracepoint)
#else
#define HOOK_AT(tracepoint) SEC("tp_btf/" #tracepoint)
#endif

/* bpf_get_current_task_btf() came with task storage. Memory behind the pointer that the older helper returns, or that a
 * raw tracepoint passes, must be read through a helper. */
#ifdef HASH_BY_TID
#define FIELD(pointer, field) BPF_CORE_READ(pointer, field)
#define CHAIN(pointer, ...) BPF_CORE_READ(pointer, __VA_ARGS__)
#define this_task() ((struct task_struct *)bpf_get_current_task())
#else
#define FIELD(pointer, field) ((pointer)->field)
#define CHAIN(pointer, ...) ___arrow(pointer, __VA_ARGS__)
#define this_task() bpf_get_current_task_btf()
#endif

/* One zeroed value per thread. NAME_of(task) finds it or returns NULL, NAME_made(task) creates it if it does not exist,
 * NAME_ended(task) is called when the thread exits. Hash entries are preallocated, since a hook may run where the
 * kernel must not allocate. A new entry is copied from MAP_zero, because a value may be too large for a BPF program's
 * stack. */
#ifdef HASH_BY_TID
#define PER_TASK(map, name, value_type, threads)                                                                       \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(max_entries, threads);                                                                          \
		__type(key, u32);                                                                                      \
		__type(value, value_type);                                                                             \
	} map SEC(".maps");                                                                                            \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, 1);                                                                                \
		__type(key, u32);                                                                                      \
		__type(value, value_type);                                                                             \
	} map##_zero SEC(".maps");                                                                                     \
	static __always_inline value_type *name##_of(struct task_struct *task)                                         \
	{                                                                                                              \
		u32 tid = FIELD(task, pid);                                                                            \
		return bpf_map_lookup_elem(&map, &tid);                                                                \
	}                                                                                                              \
	static __always_inline value_type *name##_made(struct task_struct *task)                                       \
	{                                                                                                              \
		value_type *known = name##_of(task);                                                                   \
		if (known)                                                                                             \
			return known;                                                                                  \
		u32 first = 0, tid = FIELD(task, pid);                                                                 \
		value_type *zero = bpf_map_lookup_elem(&map##_zero, &first);                                           \
		if (zero)                                                                                              \
			bpf_map_update_elem(&map, &tid, zero, BPF_ANY);                                                \
		return bpf_map_lookup_elem(&map, &tid);                                                                \
	}                                                                                                              \
	static __always_inline void name##_ended(struct task_struct *task)                                             \
	{                                                                                                              \
		u32 tid = FIELD(task, pid);                                                                            \
		bpf_map_delete_elem(&map, &tid);                                                                       \
	}
#else
/* The kernel frees task storage together with its task. */
#define PER_TASK(map, name, value_type, threads)                                                                       \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_TASK_STORAGE);                                                               \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__type(key, int);                                                                                      \
		__type(value, value_type);                                                                             \
	} map SEC(".maps");                                                                                            \
	static __always_inline value_type *name##_of(struct task_struct *task)                                         \
	{                                                                                                              \
		return bpf_task_storage_get(&map, task, 0, 0);                                                         \
	}                                                                                                              \
	static __always_inline value_type *name##_made(struct task_struct *task)                                       \
	{                                                                                                              \
		return bpf_task_storage_get(&map, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);                            \
	}                                                                                                              \
	static __always_inline void name##_ended(struct task_struct *task)                                             \
	{                                                                                                              \
	}
#endif

#ifdef NO_SHARED_MEMORY
#define SHARED_MEMORY 0
#else
#define SHARED_MEMORY BPF_F_MMAPABLE
#endif

#endif
