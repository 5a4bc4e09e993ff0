"""Measures a small write into a cached large folio, by the folio's size, on the running kernel.

    folio_walk.py [--rounds N] [FOLDER]

Since 6.16, ext4 visits all buffer_heads of a folio in write_begin and in write_end, although a small write() touches only one. A
file is written with calls of 64 KiB to 1 MiB, each of which gets its own folio; then pwrite() overwrites 256 bytes at a time, in
order. The slope over the folio's pages, halved, is the cost of one buffer_head. CPU time in ns per call; medians of the rounds,
with their range. Uses an unnamed file in FOLDER (/var/tmp by default), which must be on ext4."""

import argparse
import os
import platform
import statistics
import tempfile
import time

PAGE_BYTES = 4096
FILE_BYTES = 32 << 20
CALLS = 8000
FOLIO_PAGES = [16, 64, 256]
DATA = bytes(range(1, 256)) + b"\0"


def overwrite_ns(folder, pages):
    with tempfile.TemporaryFile(dir=folder) as backing:
        file = backing.fileno()
        for at in range(0, FILE_BYTES, pages * PAGE_BYTES):
            os.pwrite(file, bytes(pages * PAGE_BYTES), at)
        places = [call * 256 for call in range(CALLS)]
        begin = time.thread_time_ns()
        for place in places:
            os.pwrite(file, DATA, place)
        return (time.thread_time_ns() - begin) / CALLS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("folder", nargs="?", default="/var/tmp")
    given = parser.parse_args()
    rounds = [[overwrite_ns(given.folder, pages) for pages in FOLIO_PAGES] for _ in range(given.rounds)]
    slopes = [(own[-1] - own[0]) / (FOLIO_PAGES[-1] - FOLIO_PAGES[0]) / 2 for own in rounds]
    print(f"{CALLS} writes of 256 bytes, {platform.release()}, {given.rounds} rounds, ns (median; least to most)")
    for place, pages in enumerate(FOLIO_PAGES):
        all_ns = [own[place] for own in rounds]
        print(f"folio of {pages:3} pages   {statistics.median(all_ns):7.0f}   {min(all_ns):.0f} to {max(all_ns):.0f}")
    print(f"a buffer_head        {statistics.median(slopes):7.2f}   {min(slopes):.2f} to {max(slopes):.2f}")


if __name__ == "__main__":
    main()
