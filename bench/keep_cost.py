"""What it takes reclaim to look at a mapped page that was used, and to keep it, on the kernel that runs.

    keep_cost.py [--rounds N] [FOLDER]

A memory cgroup is emptied (memory.force_empty, cgroup v1) of a file's clean pages that this process has mapped and touched, in turns with the
same pages after MADV_COLD has cleared their accessed bits: the first are each scanned twice, kept and then freed, the others freed at once.
The difference of CPU time over the pages that were scanned more is what keeping one takes. The pages are read one by one with
POSIX_FADV_RANDOM, so that each is a folio of its own. Nanoseconds a page; medians of the rounds with their spread. Needs root, cgroup v1
memory and a file system with a page cache in FOLDER (/var/tmp unless said); its file there has no name."""

import argparse
import mmap
import os
import platform
import statistics
import tempfile
import time

PAGE_BYTES = 4096
PAGES = 16384
GROUP = "/sys/fs/cgroup/memory/flatwater-keep-cost"
MADV_COLD = 20


def put(name, text):
    with open(os.path.join(GROUP, name), "w") as file:
        file.write(text)


def counted():
    with open("/proc/vmstat") as file:
        events = dict(line.split() for line in file)
    return int(events["pgscan_file"]), int(events["pgsteal_file"])


def emptied(file, used):
    """Nanoseconds, pages scanned, pages freed."""
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    for page in range(PAGES):
        os.pread(file, PAGE_BYTES, page * PAGE_BYTES)
    with mmap.mmap(file, PAGES * PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        for page in range(PAGES):
            mapping[page * PAGE_BYTES]
        if not used:
            mapping.madvise(MADV_COLD)
        before = counted()
        begin = time.thread_time_ns()
        put("memory.force_empty", "0")
        spent = time.thread_time_ns() - begin
        after = counted()
    return spent, after[0] - before[0], after[1] - before[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("folder", nargs="?", default="/var/tmp")
    given = parser.parse_args()
    os.mkdir(GROUP)
    try:
        put("memory.limit_in_bytes", str(512 << 20))
        put("cgroup.procs", str(os.getpid()))
        with tempfile.TemporaryFile(dir=given.folder) as backing:
            file = backing.fileno()
            for page in range(PAGES):
                os.pwrite(file, bytes(PAGE_BYTES), page * PAGE_BYTES)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
            pairs = [(emptied(file, True), emptied(file, False)) for _ in range(given.rounds)]
    finally:
        with open("/sys/fs/cgroup/memory/cgroup.procs", "w") as root:
            root.write(str(os.getpid()))
        os.rmdir(GROUP)
    kept = [(used[0] - cold[0]) / max(used[1] - cold[1], 1) for used, cold in pairs]
    freed = [cold[0] / max(cold[2], 1) for _, cold in pairs]
    print(f"{PAGES} mapped pages, {platform.release()}, {given.rounds} rounds, ns a page (median; least to most)")
    for name, all_ns in {"kept": kept, "freed": freed}.items():
        print(f"{name:10} {statistics.median(all_ns):7.0f}   {min(all_ns):.0f} to {max(all_ns):.0f}")


if __name__ == "__main__":
    main()
