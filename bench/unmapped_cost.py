"""What it takes reclaim to free a page that nobody has mapped, and what of that the buffer_heads of a written page are, on the kernel that runs.

    unmapped_cost.py [--rounds N] [FOLDER]

A file's clean pages, in turns read from it (no buffer_heads) and written to it page by page and synced (one buffer_head each), are dropped
(POSIX_FADV_DONTNEED) or reclaimed from a memory cgroup (memory.force_empty, cgroup v1). Each is a folio of its own. `scan` is what
reclaiming a read page takes beyond dropping it, `buffers` what dropping a written one takes beyond dropping a read one. CPU time in nanoseconds a
page; medians of the rounds with their spread. Needs root, cgroup v1 memory and a file system with a page cache in FOLDER (/var/tmp unless
said); its file there has no name."""

import os
import time

from keep_cost import counted, in_group, put
from pages import PAGE_BYTES, options, show, written

PAGES = 8192


def read(file):
    for page in range(PAGES):
        os.pread(file, PAGE_BYTES, page * PAGE_BYTES)


def write(file):
    for page in range(PAGES):
        os.pwrite(file, bytes(PAGE_BYTES), page * PAGE_BYTES)
    os.fsync(file)


def dropped(file, fill):
    fill(file)
    begin = time.thread_time_ns()
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return (time.thread_time_ns() - begin) / PAGES


def reclaimed(file, fill):
    fill(file)
    before = counted()[1]
    begin = time.thread_time_ns()
    put("memory.force_empty", "0")
    spent = time.thread_time_ns() - begin
    freed = counted()[1] - before
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return spent / max(freed, 1)


def main():
    given = options(__doc__, rounds=15)
    with in_group(), written(given.folder, PAGES) as file:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        rounds = [[of(file, fill) for fill in (read, write) for of in (dropped, reclaimed)] for _ in range(given.rounds)]
    names = ["read, dropped", "read, reclaimed", "written, dropped", "written, reclaimed"]
    figures = {name: [one[place] for one in rounds] for place, name in enumerate(names)}
    figures["scan"] = [one[1] - one[0] for one in rounds]
    figures["buffers"] = [one[2] - one[0] for one in rounds]
    show(f"{PAGES} clean pages", given.rounds, "ns a page", figures)


if __name__ == "__main__":
    main()
