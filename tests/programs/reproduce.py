"""Records real programs (programs.py), reproduces each recording with `flatwater reproduce --check`, and compares.

    reproduce.py [--flatwater PATH] [--cells A+B,..] [--file-system NAME] [--for SECONDS] --out FILE --keep DIR
                                    one JSON line for each cell; skips cells that FILE has already, and stops after --for
    reproduce.py --again FILE --keep DIR      reproduces the kept recordings again
    reproduce.py --table FILE..     prints the table of docs/reproduce.md"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time

import programs
from stage import Images, Unavailable

# Program and neighbour. What a neighbour does is in aggressors.py.
CELLS = [("fio-pvsync2", "alone"), ("fio-pvsync2", "fsync-stream"), ("sqlite", "alone"), ("sqlite", "fsync-stream"), ("postgresql", "alone"),
         ("postgresql", "fsync-stream"), ("fio-pvsync2", "device-throttle"), ("fio-psync", "alone"), ("fio-psync", "dirty-stream"),
         ("fio-psync", "full-cgroup"), ("postgresql", "dirty-stream"), ("sqlite", "dirty-stream"), ("fio-psync", "cpu-hog"),
         ("postgresql", "cpu-hog"), ("sqlite", "device-throttle"), ("postgresql", "device-throttle"), ("fio-read", "alone"),
         ("fio-read", "cache-reader"), ("postgresql", "direct-writer"), ("sqlite", "tree-copier"), ("postgresql", "tree-copier"),
         ("sqlite", "sync-caller"), ("postgresql", "unlinker"), ("sqlite", "unlinker"), ("sqlite", "direct-writer"), ("postgresql", "sync-caller"),
         ("sqlite", "mmap-dirtier"), ("postgresql", "raw-reader"), ("sqlite", "raw-reader"), ("fio-psync", "lock-holder")]


def reproduced(options, recording, place):
    """The comparison that --check prints, or why there is none."""
    shutil.rmtree(place, ignore_errors=True)
    words = [options.flatwater, "reproduce", recording, "-o", place, "--check", "--format", "json", "-d", place.parent]
    words += ["--file-system", options.file_system] if options.file_system else []
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, 3):
        return {"failed": done.stderr.strip()[-400:]}
    return json.loads(done.stdout)


def cell(options, images, program, beside):
    names = lambda pair: (pair[0].name, pair[1].name)
    matrix = [pair for pair in programs.matrix(options) if names(pair) == (program, beside)]
    if not matrix:
        raise Unavailable(f"{program} is not run beside {beside}")
    victim, aggressor, _ = matrix[0]
    row = programs.bounded(options.bound, lambda: programs.one(options, images, victim, aggressor, 0))
    kept = pathlib.Path(options.keep) / f"{program}-{beside}-0"
    return {"program": program, "beside": beside, "file_system": victim.filesystem, "load": row["others"].get("load"),
            "on": options.file_system or victim.filesystem, **reproduced(options, kept, kept.with_suffix(".reproduced"))}


def ms(ns):
    return "-" if ns is None else f"{ns / 1e6:.2f}"


def table(rows):
    counted = [row for row in rows if "failed" not in row]
    head = ("program", "beside", "cause recorded", "reproduced", "kind recorded", "reproduced", "p99 ms recorded", "reproduced",
            "stall ms/s recorded", "reproduced")
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|---|---|---|---:|---:|---:|---:|"]
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['program']} | {row['beside']} | not reproducible: {row['failed'][-80:]} | | | | | | | |")
            continue
        a, b = row["recorded"], row["reproduced"]
        place = "" if row["on"] == row["file_system"] else f" ({row['file_system']} on {row['on']})"
        lines.append(f"| {row['program']}{place} | {row['beside']} | {a['cause']} | {b['cause']} | {a['aggressor']} | {b['aggressor']} | "
                     f"{ms(a['p99_ns'])} | {ms(b['p99_ns'])} | {ms(a['stall_ns_per_s'])} | {ms(b['stall_ns_per_s'])} |")
    both = sum(row["same_cause"] and row["same_kind"] for row in counted)
    near = sum(row["p99_within_2"] is True for row in counted)
    share = lambda part: f"{part} of {len(rows)} ({100 * part / max(len(rows), 1):.0f} %)"
    lines += ["", f"Same top cause and same kind of aggressor: {share(both)}; p99 within a factor of 2: {share(near)}."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flatwater", default=shutil.which("flatwater"))
    parser.add_argument("--cells", default="", help="program+neighbour, comma-separated; by default all")
    parser.add_argument("--file-system", help="reproduce on this one instead of the recorded one")
    parser.add_argument("--for", dest="seconds_all", type=int, default=10**6, help="begin no cell after this many seconds")
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--bound", type=int, default=120)
    parser.add_argument("--image-mib", type=int, default=2048)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--keep")
    parser.add_argument("--again", type=pathlib.Path)
    parser.add_argument("--table", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    options.fixed, options.runs, options.only, options.beside = False, 1, set(), set()
    read = lambda file: [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if options.table:
        print(table([row for file in options.table for row in read(file)]))
        return 0
    if options.again:
        for row in read(options.again):
            kept = pathlib.Path(options.keep) / f"{row['program']}-{row['beside']}-0"
            fixed = {key: row[key] for key in ("program", "beside", "file_system", "load")}
            found = reproduced(options, kept, kept.with_suffix(".reproduced"))
            print(json.dumps({**fixed, "on": options.file_system or row["file_system"], **found}), flush=True)
        return 0
    done = {(row["program"], row["beside"]) for row in read(options.out)}
    asked = [tuple(one.split("+")) for one in options.cells.split(",") if one] or CELLS
    images, until = Images(), time.monotonic() + options.seconds_all
    try:
        for program, beside in asked:
            if (program, beside) in done or time.monotonic() > until:
                continue
            options.only, options.beside = {program}, {beside}
            try:
                row = cell(options, images, program, beside)
            except (Unavailable, RuntimeError, OSError, subprocess.TimeoutExpired) as why:
                print(f"reproduce: {program} beside {beside}: {why}", file=sys.stderr, flush=True)
                continue
            with open(options.out, "a") as out:
                out.write(json.dumps(row) + "\n")
            print(table([row]), flush=True)
    finally:
        images.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
