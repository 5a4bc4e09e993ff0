/* Whether calls on an inode can wait for a disk; used by both objects. SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_FILE_KINDS_H
#define FLATWATER_FILE_KINDS_H

/* What a descriptor refers to. Calls on pipes, sockets, terminals and the kernel's virtual file systems (FILE_OTHER)
 * never wait for a disk and are not timed. */
enum file_kind { FILE_UNKNOWN, FILE_STORED, FILE_MEMORY, FILE_OTHER };

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFDIR 0040000
#define S_IFBLK 0060000
#define S_IFREG 0100000

static __always_inline u8 kind_of(struct inode *inode)
{
	u32 type = BPF_CORE_READ(inode, i_mode) & S_IFMT;
	if (type == S_IFBLK)
		return FILE_STORED;
	if (type != S_IFREG && type != S_IFDIR)
		return FILE_OTHER;
	/* include/uapi/linux/magic.h */
	switch (BPF_CORE_READ(inode, i_sb, s_magic)) {
	case 0x9fa0:     /* proc */
	case 0x62656572: /* sysfs */
	case 0x74726163: /* tracefs */
	case 0x64626720: /* debugfs */
	case 0x73636673: /* securityfs */
	case 0x62656570: /* configfs */
	case 0x27e0eb:   /* cgroup */
	case 0x63677270: /* cgroup2 */
	case 0xcafe4a11: /* bpf */
	case 0x6e736673: /* nsfs */
	case 0x09041934: /* anon_inode */
	case 0x50495045: /* pipefs */
	case 0x534f434b: /* sockfs */
	case 0x1cd1:     /* devpts */
	case 0x19800202: /* mqueue */
		return FILE_OTHER;
	case 0x01021994: /* tmpfs, memfd */
	case 0x858458f6: /* ramfs */
	case 0x958458f6: /* hugetlbfs */
		return FILE_MEMORY;
	}
	return FILE_STORED;
}

#endif
