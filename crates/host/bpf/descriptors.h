/* Finds the file of a thread's descriptor; used by both objects. SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_DESCRIPTORS_H
#define FLATWATER_DESCRIPTORS_H

/* NULL if no file is open under that number. */
static __always_inline struct file *file_at(struct task_struct *task, u64 argument)
{
	u32 fd = argument;
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	if (!table || fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	struct file **place = BPF_CORE_READ(table, fd);
	struct file *file = NULL;
	bpf_probe_read_kernel(&file, sizeof(file), place + fd);
	return file;
}

#endif
