"""What it takes reclaim to look at a mapped page that was used, and to keep it, on the kernel that runs.

    keep_cost.py [--rounds N] [FOLDER]

A memory cgroup is emptied (memory.force_empty, cgroup v1) of a file's clean pages that this process has mapped and touched, in turns with the
same pages after MADV_COLD has cleared their accessed bits: the first are each scanned twice, kept and then freed, the others freed at once.
The difference of CPU time over the pages that were scanned more is what keeping one takes. The pages are read one by one with
POSIX_FADV_RANDOM, so that each is a folio of its own. Nanoseconds a page; medians of the rounds with their spread. Needs root, cgroup v1
memory and a file system with a page cache in FOLDER (/var/tmp unless said); its file there has no name."""

import contextlib
import mmap
import os
import signal
import sys
import time

from pages import PAGE_BYTES, options, show, written

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


@contextlib.contextmanager
def in_group():
    """In a memory cgroup of its own, which goes at the end; one that a killed run left is taken over."""
    with open("/proc/self/cgroup") as file:
        own = next(line.strip().split(":", 2)[2] for line in file if ":memory:" in line)
    os.makedirs(GROUP, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("keep_cost: ended by SIGTERM"))
    try:
        put("memory.limit_in_bytes", str(512 << 20))
        put("cgroup.procs", str(os.getpid()))
        yield
    finally:
        with open(f"/sys/fs/cgroup/memory{own}/cgroup.procs", "w") as before:
            before.write(str(os.getpid()))
        os.rmdir(GROUP)


def main():
    given = options(__doc__, rounds=15)
    with in_group(), written(given.folder, PAGES) as file:
        pairs = [(emptied(file, True), emptied(file, False)) for _ in range(given.rounds)]
    kept = [(used[0] - cold[0]) / max(used[1] - cold[1], 1) for used, cold in pairs]
    freed = [cold[0] / max(cold[2], 1) for _, cold in pairs]
    show(f"{PAGES} mapped pages", given.rounds, "ns a page", {"kept": kept, "freed": freed})


if __name__ == "__main__":
    main()
