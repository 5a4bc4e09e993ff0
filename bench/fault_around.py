"""Measures a page fault on a mapped file, and each further entry that it maps, on the running kernel.

    fault_around.py [--rounds N] [FOLDER]

Since 3.15, a read fault also maps the cached pages of the aligned 64 KiB around its page (fault_around_bytes). One page of each
such block is touched, alternately with only that page cached and with the whole block cached. The difference, divided by the
fifteen further entries, is the cost of an entry; the rest is the cost of the fault. CPU time in ns, less the time of touching the
same pages again; medians of the rounds, with their range. Uses an unnamed file in FOLDER (/var/tmp by default), whose file system
must have a page cache."""

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
    """CPU time of a fault with `pages` pages of each block cached."""
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
