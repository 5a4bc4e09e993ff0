"""Shared by the programs that time mapped pages: options, a file whose pages are separate folios, and the output of figures."""

import argparse
import contextlib
import os
import platform
import statistics
import tempfile

PAGE_BYTES = 4096


def options(doc, rounds):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("folder", nargs="?", default="/var/tmp")
    return parser.parse_args()


@contextlib.contextmanager
def written(folder, pages):
    """Descriptor of an unnamed file of `pages` pages on the disk, without readahead."""
    with tempfile.TemporaryFile(dir=folder) as backing:
        file = backing.fileno()
        for page in range(pages):
            os.pwrite(file, bytes(PAGE_BYTES), page * PAGE_BYTES)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        yield file


def show(what, rounds, unit, figures):
    print(f"{what}, {platform.release()}, {rounds} rounds, {unit} (median; least to most)")
    width = max(map(len, figures)) + 1
    for name, all_ns in figures.items():
        print(f"{name:{width}} {statistics.median(all_ns):7.0f}   {min(all_ns):.0f} to {max(all_ns):.0f}")
