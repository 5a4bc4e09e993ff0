/* Counts who takes memory at a limit. A thread that allocates over the limit reclaims about as many pages itself, so
 * the pages that a process had to reclaim are those that it took. Without reclaim no hook runs.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_WAIT_MEMORY_H
#define FLATWATER_WAIT_MEMORY_H

struct reclaimer_key {
	u32 tgid, whole_machine;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, RECLAIMERS_MAX);
	__type(key, struct reclaimer_key);
	__type(value, struct reclaimer);
} reclaimers SEC(".maps");

static __always_inline int reclaimed(u64 pages, u32 whole_machine)
{
	struct task_struct *me = this_task();
	if (FIELD((struct task_struct___waits *)me, flags) & PF_KTHREAD)
		return 0;
	struct reclaimer_key key = { .tgid = FIELD(me, tgid), .whole_machine = whole_machine };
	struct reclaimer *known = bpf_map_lookup_elem(&reclaimers, &key);
	if (!known) {
		struct reclaimer new = { .tid = FIELD(me, pid), .cgroup = cgroup_id_of(me) };
		copy_comm(new.comm, me);
		bpf_map_update_elem(&reclaimers, &key, &new, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&reclaimers, &key);
		if (!known)
			return 0;
	}
	__sync_fetch_and_add(&known->pages, pages);
	__sync_fetch_and_add(&known->calls, 1);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(wait_memcg_reclaim, unsigned long pages)
{
	return reclaimed(pages, 0);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(wait_direct_reclaim, unsigned long pages)
{
	return reclaimed(pages, 1);
}

#endif
