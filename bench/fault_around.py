"""What a fault on a mapped file takes, and what each entry that it makes besides, on the kernel that runs.

    fault_around.py [--rounds N] [FOLDER]

A read fault of 3.15 and later maps what is cached of the aligned 64 KiB around its page (fault_around_bytes). One page of each such block
is touched: of a file of which only that page is cached, and of one that is cached whole, in turns. The difference, over the fifteen
entries more, is an entry; the rest is the fault. CPU time in nanoseconds, less what touching the same pages again takes; medians of the
rounds with their spread. Needs a file system with a page cache in FOLDER (/var/tmp unless said); its file there has no name."""

import mmap
import os
import time

from pages import PAGE_BYTES, options, show, written

BLOCK_PAGES = 16
BLOCKS = 1024
PAGES = BLOCKS * BLOCK_PAGES


def touches(mapping):
    begin = time.thread_time_ns()
    for at in range(0, PAGES * PAGE_BYTES, BLOCK_PAGES * PAGE_BYTES):
        mapping[at]
    return time.thread_time_ns() - begin


def fault_ns(file, pages):
    """Of `pages` of each block cached."""
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    for page in range(PAGES):
        if page % BLOCK_PAGES < pages:
            os.pread(file, PAGE_BYTES, page * PAGE_BYTES)
    with mmap.mmap(file, PAGES * PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        first, again = touches(mapping), touches(mapping)
    return (first - again) / BLOCKS


def main():
    given = options(__doc__, rounds=15)
    with written(given.folder, PAGES) as file:
        pairs = [(fault_ns(file, 1), fault_ns(file, BLOCK_PAGES)) for _ in range(given.rounds)]
    entries = [(whole - alone) / (BLOCK_PAGES - 1) for alone, whole in pairs]
    figures = {
        "fault, one entry": [alone for alone, _ in pairs],
        "fault, 16 entries": [whole for _, whole in pairs],
        "an entry": entries,
        "fault without": [alone - entry for (alone, _), entry in zip(pairs, entries)],
    }
    show(f"{BLOCKS} faults", given.rounds, "ns", figures)


if __name__ == "__main__":
    main()
