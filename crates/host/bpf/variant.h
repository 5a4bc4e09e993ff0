/* What kernels allow BPF programs differs; this is all that differs in our source. build.rs compiles the object once for
 * each set of these switches (crates/host/build.rs: VARIANTS), and user space takes the first that the kernel accepts.
 *
 *   HASH_BY_TID       a hash by thread id in place of task storage (tracing programs have that since 5.12)
 *   PERF_BUFFER       a perf buffer per CPU in place of the ring buffer (5.8)
 *   RAW_TRACEPOINTS   raw tracepoints, whose arguments are plain numbers to the verifier, in place of those with the
 *                     types of the kernel's own BTF (5.5); no fentry either
 *   NO_SHARED_MEMORY  arrays that user space cannot map (5.5)
 *
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_VARIANT_H
#define FLATWATER_VARIANT_H

#ifdef RAW_TRACEPOINTS
#define HOOK_AT(tracepoint) SEC("raw_tp/" #tracepoint)
#else
#define HOOK_AT(tracepoint) SEC("tp_btf/" #tracepoint)
#endif

/* bpf_get_current_task_btf() came with task storage. What the older helper returns, and what a raw tracepoint hands
 * over, may only be read through a helper. */
#ifdef HASH_BY_TID
#define FIELD(pointer, field) BPF_CORE_READ(pointer, field)
#define CHAIN(pointer, ...) BPF_CORE_READ(pointer, __VA_ARGS__)
#define this_task() ((struct task_struct *)bpf_get_current_task())
#else
#define FIELD(pointer, field) ((pointer)->field)
#define CHAIN(pointer, ...) ___arrow(pointer, __VA_ARGS__)
#define this_task() bpf_get_current_task_btf()
#endif

/* Entries of that hash: threads of targets at once, 2 KiB each. Those beyond it are counted (C_NO_STATE). */
#define THREADS_BY_TID 4096

#ifdef NO_SHARED_MEMORY
#define SHARED_MEMORY 0
#else
#define SHARED_MEMORY BPF_F_MMAPABLE
#endif

#endif
