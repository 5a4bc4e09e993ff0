"""Measures how long reclaim takes to free an unmapped page, and the part for a written page's buffer_heads, on the running kernel.

    unmapped_cost.py [--rounds N] [FOLDER]

A file's clean pages are dropped (POSIX_FADV_DONTNEED) or reclaimed from a memory cgroup (memory.force_empty, cgroup v1).
Alternately, they were read (no buffer_heads) or written page by page and synced (one buffer_head each). Each page is a separate
folio. `scan` is the difference between reclaiming and dropping a read page; `buffers` is the difference between dropping a written
and a read page. CPU time in ns per page; medians of the rounds, with their range. Needs root and cgroup v1 memory. Uses an unnamed
file in FOLDER (/var/tmp by default), whose file system must have a page cache."""

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
