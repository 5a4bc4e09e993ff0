"""Measures how long reclaim takes to examine a mapped page that was used and to keep it, on the running kernel.

    keep_cost.py [--rounds N] [FOLDER]

A memory cgroup is emptied (memory.force_empty, cgroup v1) of a file's clean pages, which this process has mapped and touched.
Alternately, MADV_COLD first clears the accessed bits of the same pages. Without it each page is scanned twice: kept, then freed;
with it the page is freed at once. The difference of CPU time, divided by the difference of scanned pages, is the cost of keeping a
page. The pages are read one by one with POSIX_FADV_RANDOM, so that each is a separate folio. ns per page; medians of the rounds,
with their range. Needs root and cgroup v1 memory. Uses an unnamed file in FOLDER (/var/tmp by default), whose file system must
have a page cache."""

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
    """Empties the cgroup; returns CPU time in ns, pages scanned and pages freed."""
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
    """Runs in a new memory cgroup, removed at the end; reuses the cgroup that a killed run left."""
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
