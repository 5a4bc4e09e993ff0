/* A program that does nothing: what the kernel counts for it is what counting costs (src/bpf_stats.rs). It is attached
 * nowhere. SPDX-License-Identifier: GPL-2.0 OR MIT */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("raw_tp/sched_switch")
int empty(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
