"""Measures how much longer reclaiming a mapped page takes than dropping an unmapped one, on the running kernel.

    reclaim_cost.py [--rounds N] [FOLDER]

Alternately, MADV_PAGEOUT of a file's clean pages that one process has mapped and touched (since 5.4: isolation, the walk over the
mappings of the page, try_to_unmap, and removal from the page cache), and POSIX_FADV_DONTNEED of the same pages unmapped. The pages
are read one by one with POSIX_FADV_RANDOM, so that each is a separate folio. CPU time in ns per page; medians of the rounds, with
their range. Uses an unnamed file in FOLDER (/var/tmp by default), whose file system must have a page cache."""

import mmap
import os
import time

from pages import PAGE_BYTES, options, show, written

PAGES = 4096
MADV_PAGEOUT = 21


def read_alone(file):
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    for page in range(PAGES):
        os.pread(file, PAGE_BYTES, page * PAGE_BYTES)


def dropped(file):
    read_alone(file)
    begin = time.thread_time_ns()
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return (time.thread_time_ns() - begin) / PAGES


def paged_out(file):
    read_alone(file)
    with mmap.mmap(file, PAGES * PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        mapping.madvise(mmap.MADV_RANDOM)
        for page in range(PAGES):
            mapping[page * PAGE_BYTES]
        begin = time.thread_time_ns()
        mapping.madvise(MADV_PAGEOUT)
        return (time.thread_time_ns() - begin) / PAGES


def main():
    given = options(__doc__, rounds=25)
    with written(given.folder, PAGES) as file:
        pairs = [(dropped(file), paged_out(file)) for _ in range(given.rounds)]
    figures = {"dropped": [one for one, _ in pairs], "paged out": [one for _, one in pairs]}
    figures["difference"] = [out - drop for drop, out in pairs]
    show(f"{PAGES} clean pages", given.rounds, "ns a page", figures)


if __name__ == "__main__":
    main()
