/* Kernel structures that only the second object reads, in addition to kernel_types.h. SPDX-License-Identifier: GPL-2.0
 * OR MIT */
#ifndef FLATWATER_WAIT_TYPES_H
#define FLATWATER_WAIT_TYPES_H

struct kthread { void *data; } RELOCATED;
struct worker { void *current_func; } RELOCATED;
struct io_wq_work;
struct io_worker { struct io_wq_work *cur_work; } RELOCATED;
struct task_io_accounting { u64 syscr, syscw; } RELOCATED;
struct css_set___waits { struct cgroup *dfl_cgrp; struct cgroup_subsys_state *subsys[16]; } RELOCATED;
struct task_struct___waits {
	int pid, tgid;
	unsigned int __state, flags;
	unsigned long nvcsw, min_flt, maj_flt;
	void *worker_private;
	void *stack;
	struct task_io_accounting ioac;
	struct css_set___waits *cgroups;
	char comm[16];
} RELOCATED;

/* Before 5.17 (kernel/kthread.c, fs/io-wq.c) a kernel thread's struct kthread is at `set_child_tid`. The structure of
 * an io_uring worker is at `pf_io_worker`, before 5.12 at its kthread's data. */
struct task_struct___before_5_17 { int *set_child_tid; void *pf_io_worker; } RELOCATED;
/* `read` is FIELD or BPF_CORE_READ. */
#define KTHREAD_OF(task, read) ({ \
	struct task_struct___waits *_now = (void *)(task); \
	struct task_struct___before_5_17 *_before = (void *)(task); \
	struct kthread *_thread; \
	if (bpf_core_field_exists(_now->worker_private)) \
		_thread = read(_now, worker_private); \
	else \
		_thread = (void *)read(_before, set_child_tid); \
	_thread; \
})

struct hlist_node { struct hlist_node *next; } RELOCATED;
struct hlist_head { struct hlist_node *first; } RELOCATED;
struct inode___waits { struct hlist_head i_dentry; } RELOCATED;
union dentry_links { struct hlist_node d_alias; } RELOCATED;
struct dentry___waits { union dentry_links d_u; } RELOCATED;
struct dentry___unnamed { struct hlist_node d_alias; } RELOCATED; /* in 7.3 the union is anonymous */

struct address_space { struct inode *host; } RELOCATED;
struct page { unsigned long compound_head; struct address_space *mapping; } RELOCATED;
/* In 7.3 a tail page has the lowest bit set, and in the other bits its head's address or, where all heads are aligned,
 * a mask for its own address (_compound_head, include/linux/page-flags.h). A mask is higher than the address of any
 * struct page. */
struct page___info { unsigned long compound_info; } RELOCATED;
#define HEAD_MASK_MIN 0xffffffff00000000ULL
struct folio;
struct gendisk { int major, first_minor; } RELOCATED;
struct request_queue { int id; struct gendisk *disk; } RELOCATED; /* disk: since 5.15 */
struct bvec_iter { unsigned int bi_size; } RELOCATED;
struct bio_vec { struct page *bv_page; } RELOCATED;
struct blkcg { struct cgroup_subsys_state css; } RELOCATED;
struct blkcg_gq { struct blkcg *blkcg; } RELOCATED;
struct bio {
	struct bvec_iter bi_iter;
	void *bi_end_io;
	void *bi_private;
	struct blkcg_gq *bi_blkg;
	struct bio_vec *bi_io_vec;
} RELOCATED;
struct kiocb { struct file *ki_filp; void *ki_complete; } RELOCATED;
struct io_event { u64 obj; } RELOCATED;
struct aio_kiocb { struct io_event ki_res; } RELOCATED;
struct iomap_dio { struct kiocb *iocb; } RELOCATED;
struct request {
	struct request_queue *q;
	unsigned int cmd_flags, __data_len;
	u64 __sector;
	struct bio *bio;
} RELOCATED;
/* In 5.16 the disk moved from the request to its queue. */
struct request___before_5_17 { struct gendisk *rq_disk; } RELOCATED;

struct io_cqe { u64 user_data; s32 res; } RELOCATED;
struct io_wq_work { int cancel_seq; } RELOCATED;
struct io_kiocb { struct file *file; u8 opcode; struct io_cqe cqe; struct io_wq_work work; } RELOCATED;

typedef struct { long counter; } atomic_long_t;
struct mutex { atomic_long_t owner; } RELOCATED;
struct rw_semaphore { atomic_long_t owner; } RELOCATED;
/* With PREEMPT_RT both lock types contain these. */
struct rt_mutex_base { struct task_struct *owner; } RELOCATED;
struct rwbase_rt { struct rt_mutex_base rtmutex; } RELOCATED;

#if defined(__TARGET_ARCH_x86)
struct pt_regs___waits {
	unsigned long di, si, dx, orig_ax, ip, sp, bx, bp, cx, r8, r9, r10, r12, r13, r14, r15;
} RELOCATED;
#ifdef HASH_BY_TID
/* Each value needs a helper, so only the registers of a call's arguments. */
#define KEY_OF(r)                                                                                                      \
	(BPF_CORE_READ(r, orig_ax) * 31 + CALL_ARG0(r) * 37 + CALL_ARG1(r) * 41 + CALL_ARG2(r) * 43 + CALL_IP(r) * 47 + CALL_SP(r))
#else
/* Plain loads, since the verifier knows the type: all registers in which a loop of the program may count. The kernel
 * does not change them during a call. */
#define KEY_OF(r)                                                                                                      \
	((r)->orig_ax * 31 + (r)->di * 37 + (r)->si * 41 + (r)->dx * 43 + (r)->ip * 47 + (r)->sp + (r)->bx * 53 +      \
	 (r)->bp * 59 + (r)->cx * 61 + (r)->r8 * 67 + (r)->r9 * 71 + (r)->r10 * 73 + (r)->r12 * 79 + (r)->r13 * 83 +   \
	 (r)->r14 * 89 + (r)->r15 * 97)
#endif
#define CALL_OF(r) ((long)BPF_CORE_READ(r, orig_ax))
#define CALL_ARG0(r) BPF_CORE_READ(r, di)
#define CALL_ARG1(r) BPF_CORE_READ(r, si)
#define CALL_ARG2(r) BPF_CORE_READ(r, dx)
#define CALL_IP(r) BPF_CORE_READ(r, ip)
#define CALL_SP(r) BPF_CORE_READ(r, sp)
#else
struct pt_regs___waits { unsigned long long regs[31], sp, pc; int syscallno; u64 orig_x0; } RELOCATED;
#ifdef HASH_BY_TID
#define KEY_OF(r)                                                                                                      \
	((u64)CALL_OF(r) * 31 + CALL_ARG0(r) * 37 + CALL_ARG1(r) * 41 + CALL_ARG2(r) * 43 + CALL_IP(r) * 47 + CALL_SP(r))
#else
#define KEY_OF(r)                                                                                                      \
	((u64)(r)->syscallno * 31 + (r)->orig_x0 * 37 + (r)->regs[1] * 41 + (r)->regs[2] * 43 + (r)->pc * 47 + (r)->sp +      \
	 (r)->regs[3] * 53 + (r)->regs[8] * 59 + (r)->regs[9] * 61 + (r)->regs[19] * 67 + (r)->regs[20] * 71 +         \
	 (r)->regs[21] * 73 + (r)->regs[22] * 79 + (r)->regs[23] * 83 + (r)->regs[24] * 89 + (r)->regs[25] * 97)
#endif
#define CALL_OF(r) ((long)BPF_CORE_READ(r, syscallno))
#define CALL_ARG0(r) BPF_CORE_READ(r, orig_x0)
#define CALL_ARG1(r) BPF_CORE_READ(r, regs[1])
#define CALL_ARG2(r) BPF_CORE_READ(r, regs[2])
#define CALL_IP(r) BPF_CORE_READ(r, pc)
#define CALL_SP(r) BPF_CORE_READ(r, sp)
#endif

#endif
