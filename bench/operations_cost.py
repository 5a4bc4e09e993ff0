"""Measures what counting operations for `reproduce` costs: a 220-byte write of the target under `record`, with and without
`--no-operations`, alternately.

    operations_cost.py --flatwater PATH [--rounds N] [--level N]

Prints the median CPU time of a write (level_cost.c) in each case, and the ratio of `record` to `record --no-operations`. Needs root and
cc."""

import argparse
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import level_cost

CASES = {"no recorder": None, "record --no-operations": ["--no-operations"], "record": []}


def recorder(options, more, pid, folder):
    out = folder / f"recording-{time.monotonic_ns()}"
    words = [options.flatwater, "record", "--level", options.level, "-p", str(pid), "-t", "300s", "-o", str(out), *more]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (out / "header.json").exists() or '"start_ns":0' in (out / "header.json").read_text().replace(" ", ""):
        if child.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"flatwater record: {child.stderr.read().strip()[-300:]}")
        time.sleep(0.05)
    time.sleep(0.5)
    return child


def once(options, program, more, folder):
    loop = level_cost.Loop(program, "write", folder)
    tracer = None
    try:
        if more is not None:
            tracer = recorder(options, more, loop.child.pid, folder)
        return loop.run()
    finally:
        if tracer:
            level_cost.end(tracer)
        loop.child.kill()
        loop.child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flatwater", default=shutil.which("flatwater"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--level", default="2")
    options = parser.parse_args()
    seen = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="flatwater-operations-cost-") as folder:
        folder = pathlib.Path(folder)
        program = folder / "level_cost"
        subprocess.run(["cc", "-O2", "-o", program, pathlib.Path(__file__).with_name("level_cost.c")], check=True)
        for _ in range(options.rounds):
            for case, more in CASES.items():
                seen[case].append(once(options, program, more, folder))
    medians = {case: statistics.median(values) for case, values in seen.items()}
    for case, ns in medians.items():
        print(f"{case}: {ns:.0f} ns for each write")
    print(f"record / record --no-operations: {medians['record'] / medians['record --no-operations']:.2f}")


if __name__ == "__main__":
    main()
