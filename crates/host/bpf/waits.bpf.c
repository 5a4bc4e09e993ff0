/* Who made a thread wait: long sleeps of the whole machine with the thread that ended each, the requests of block
 * devices with their submitters and files, who makes inodes dirty, and the operations of io_uring and libaio.
 *
 * Nothing here is hooked into system calls but libaio's four, and those only where they are asked for. Every program is
 * loaded and attached by itself and may be missing. SPDX-License-Identifier: GPL-2.0 OR MIT */
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
#include "wait_sleeps.h"
#include "wait_brackets.h"
#include "wait_requests.h"
#include "wait_async.h"
#include "wait_memory.h"

const volatile struct wait_types wait_types_in_btf = {};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
