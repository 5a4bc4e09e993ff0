/* An empty program: the time that the kernel counts for it is the cost of counting (src/bpf_stats.rs). It is never
 * attached. SPDX-License-Identifier: GPL-2.0 OR MIT */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("raw_tp/sched_switch")
int empty(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
