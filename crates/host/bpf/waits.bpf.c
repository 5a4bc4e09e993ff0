/* Finds who made a thread wait: long sleeps of all threads with the thread that ended each, the requests of block
 * devices with their submitters and files, the processes that make inodes dirty, and operations of io_uring and libaio.
 *
 * Only libaio's system calls need hooks on system calls, which are attached only on request. Each program is loaded and
 * attached by itself and may be missing. SPDX-License-Identifier: GPL-2.0 OR MIT */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#ifndef NULL
#define NULL ((void *)0)
#endif
#include "causes.h"
#include "waits.h"
#include "kernel_types.h"
#include "wait_types.h"
#include "latency_class.h"
#include "wait_tasks.h"
#include "wait_workers.h"
#include "wait_sleeps.h"
#include "wait_brackets.h"
#include "wait_requests.h"
#include "wait_async.h"
#include "wait_memory.h"

const volatile struct wait_types wait_types_in_btf = {};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
