"""Measures what a jbd2 handle adds to a write to a cached page, on the running kernel.

    handle_cost.py [--rounds N]

Up to 5.14, ext4_da_write_begin starts a handle for each page of a write and ext4_da_write_end stops it; later kernels do so only
on a file system that is mounted with nodelalloc (ext4_write_begin). So the same overwrite (level_cost.c: 220 bytes, blocks
allocated, size unchanged) is timed on one file system, mounted in both ways alternately; the difference is the handle. CPU time on
one CPU; medians of the rounds, with their range. Needs root, cc, a loop device and mkfs.ext4. If it is killed, the mount and the
loop device that it prints at the start remain."""

import argparse
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

COUNT = 400_000
IMAGE_BYTES = 256 << 20


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def one(program, device, where, option):
    run("mount", "-t", "ext4", "-o", f"{option},noatime", device, where)
    try:
        child = subprocess.run([program, "write", str(COUNT), str(where / "loop")], input="go\n", check=True,
                               capture_output=True, text=True, timeout=120)
        return float(child.stdout)
    finally:
        run("umount", where)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    times = {"delalloc": [], "nodelalloc": []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program, image, where = folder / "level_cost", folder / "image", folder / "mount"
        run("cc", "-O2", "-o", program, pathlib.Path(__file__).with_name("level_cost.c"))
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        run("mkfs.ext4", "-q", "-F", image)
        where.mkdir()
        device = run("losetup", "-f", "--show", image).strip()
        print(f"handle_cost: {device} on {where}", file=sys.stderr)
        try:
            backing = pathlib.Path("/sys/block", pathlib.Path(device).name, "loop/backing_file").read_text().strip()
            assert backing == str(image), f"{device} is backed by {backing}, not by the new image"
            for _ in range(rounds):
                for option, found in times.items():
                    found.append(one(program, device, where, option))
        finally:
            run("losetup", "-d", device)
    print(f"a 220-byte overwrite of a cached page, ext4, {platform.release()}, {rounds} rounds of {COUNT}, ns (median; least to most)")
    for option, found in times.items():
        print(f"  {option:<11} {statistics.median(found):7.0f}  {min(found):7.0f} to {max(found):7.0f}")
    apart = [with_handle - without for without, with_handle in zip(*times.values())]
    print(f"  the handle  {statistics.median(apart):7.0f}  {min(apart):7.0f} to {max(apart):7.0f}")


if __name__ == "__main__":
    main()
