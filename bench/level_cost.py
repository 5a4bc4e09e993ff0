"""Measures what recording costs, by level, compared with a similar bpftrace program.

    level_cost.py --flatwater PATH [--rounds N] [--levels 0,1,2] [--only KIND,..]

Five loops (level_cost.c): a system call on no file, a 220-byte write to cached pages, a context switch with its wake-up, a direct
write of 4 KiB, and a 220-byte write through io_uring. Each runs with nothing attached, as the target of a recording and as a
bystander at each level, and under bpftrace, alternately, round after round. Prints medians of two figures: the time of the loop
(CPU time, except for the direct write, so that other programs hardly matter), and the time in BPF programs by the kernel's count
(kernel.bpf_stats_enabled), less that of an empty program, which is measured first. The count is of the whole machine, so run it on
an idle one. Needs root, cc and bpftrace."""

import argparse
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

STATS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
# Kind: number of operations, name of one operation, and a bpftrace program, in which PID is replaced by the target's.
KINDS = {
    "call": (400_000, "getppid()", None),
    "write": (400_000, "a 220-byte write", """
        tracepoint:syscalls:sys_enter_pwrite64 /pid == PID/ { @start[tid] = nsecs; }
        tracepoint:syscalls:sys_exit_pwrite64 /pid == PID && @start[tid]/ { @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }"""),
    "switch": (60_000, "a switch with its wake-up", """
        tracepoint:sched:sched_switch /args->prev_state & 2/ { @start[args->prev_pid] = nsecs; }
        tracepoint:sched:sched_waking /@start[args->pid]/ { @ns = hist(nsecs - @start[args->pid]); delete(@start[args->pid]); }"""),
    "io": (3_000, "a direct write of 4 KiB", """
        tracepoint:block:block_rq_insert { @insert[args->dev, args->sector] = nsecs; }
        tracepoint:block:block_rq_issue { @start[args->dev, args->sector] = nsecs; @who[args->dev, args->sector] = comm; }
        tracepoint:block:block_rq_complete /@start[args->dev, args->sector]/ {
            @ns[@who[args->dev, args->sector]] = hist(nsecs - @start[args->dev, args->sector]);
            delete(@start[args->dev, args->sector]); delete(@who[args->dev, args->sector]); delete(@insert[args->dev, args->sector]); }"""),
    "uring": (200_000, "a 220-byte write through io_uring", """
        tracepoint:io_uring:io_uring_submit_req { @start[args->req] = nsecs; }
        tracepoint:io_uring:io_uring_complete /@start[args->req]/ { @ns = hist(nsecs - @start[args->req]); delete(@start[args->req]); }"""),
}


# An empty program on each call of the first loop, to measure the kernel's accounting.
EMPTY = "tracepoint:syscalls:sys_enter_getppid { }"


class Loop:
    def __init__(self, program, kind, folder):
        self.kind, self.count = kind, KINDS[kind][0]
        words = [program, kind, str(self.count), str(folder / "loop")]
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self):
        out, _ = self.child.communicate("go\n", timeout=300)
        return float(out)


def in_programs(pid):
    """ns in the BPF programs that a process has open, and their number of runs."""
    ns = runs = 0
    for entry in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = entry.read_text()
        except OSError:
            continue
        took, ran = re.search(r"run_time_ns:\s*(\d+)", text), re.search(r"run_cnt:\s*(\d+)", text)
        # A link shows its program's tag but no times; at level 1 only links are open.
        if took and ran:
            ns += int(took[1])
            runs += int(ran[1])
    return ns, runs


def empty_ns(program, folder):
    """ns of one run of an empty program, by the kernel's count."""
    loop = Loop(program, "call", folder)
    tracer = bpftrace(EMPTY, loop.child.pid)
    try:
        before = in_programs(tracer.pid)
        loop.run()
        after = in_programs(tracer.pid)
    finally:
        end(tracer)
    ns, runs = after[0] - before[0], after[1] - before[1]
    if runs < loop.count:
        raise RuntimeError(f"the empty program ran {runs} times in {loop.count} calls, so the cost of the accounting is unknown")
    return ns / runs


def measured(loop, tracer, empty):
    """ns per operation of the loop, and of the BPF programs."""
    if tracer is None:
        return loop.run(), 0.0
    before = in_programs(tracer.pid)
    ns = loop.run()
    after = in_programs(tracer.pid)
    return ns, (after[0] - before[0] - empty * (after[1] - before[1])) / loop.count


def flatwater(options, level, pid, folder):
    out = folder / f"recording-{time.monotonic_ns()}"
    words = [options.flatwater, "record", "--level", level, "-p", str(pid), "-t", "300s", "-o", out]
    child = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (out / "header.json").exists() or '"start_ns":0' in (out / "header.json").read_text().replace(" ", ""):
        if child.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"flatwater record --level {level}: {child.stderr.read().strip()[-300:]}")
        time.sleep(0.05)
    time.sleep(0.5)
    return child


def bpftrace(script, pid):
    # If tracefs is not mounted, bpftrace gets a private mount.
    shell = 'test -d /sys/kernel/tracing/events || mount -t tracefs nodev /sys/kernel/tracing; exec bpftrace -e "$0"'
    child = subprocess.Popen(["unshare", "-m", "sh", "-c", shell, script.replace("PID", str(pid))], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    said = []
    # Skips warnings, such as that bpftrace may not raise its limit of locked memory.
    while not said or not said[-1].startswith("Attach"):
        said.append(child.stdout.readline())
        if not said[-1]:
            child.wait()
            raise RuntimeError(f"bpftrace: {' '.join(said).strip()[-300:]}")
    # bpftrace prints this before it attaches.
    time.sleep(1.5)
    return child


def end(child):
    child.send_signal(signal.SIGINT)
    try:
        child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()


def once(options, program, kind, how, folder):
    loop = Loop(program, kind, folder)
    other = subprocess.Popen(["sleep", "600"])
    tracer = None
    try:
        if how == "bpftrace":
            tracer = bpftrace(KINDS[kind][2], loop.child.pid)
        elif how != "none":
            level, whom = how.split()
            tracer = flatwater(options, level, loop.child.pid if whom == "target" else other.pid, folder)
        return measured(loop, tracer, options.empty_ns)
    finally:
        if tracer:
            end(tracer)
        for child in (loop.child, other):
            child.kill()
            child.wait()


def rounds(options, program, kind, hows, folder, refused):
    """ns of each recorder, measured alternately; `refused` gets the reasons of those that failed."""
    seen = {}
    for _ in range(options.rounds):
        for how in hows:
            if (kind, how) in refused or (how == "bpftrace" and not KINDS[kind][2]):
                continue
            try:
                seen.setdefault(how, []).append(once(options, program, kind, how, folder))
            except RuntimeError as why:
                refused[kind, how] = str(why)
    return seen


def rows(kind, seen):
    """The table's rows of one operation: medians, and what is added to the loop with nothing attached."""
    base = statistics.median(ns for ns, _ in seen["none"])
    lines = []
    for how, values in seen.items():
        ns, inside = (statistics.median(column) for column in zip(*values))
        name = {"none": "nothing", "bpftrace": "bpftrace"}.get(how) or "level {}, {}".format(*how.split())
        lines.append(f"| {KINDS[kind][1]} | {name} | {ns:.0f} | {ns - base:+.0f} | {inside:.0f} |")
    return "\n".join(lines)


def main():
    # On SIGTERM, the `finally` below restores the setting.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")
    parser.add_argument("--flatwater", default=shutil.which("flatwater"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--levels", type=names, default=["0", "1", "2"])
    parser.add_argument("--only", type=names, default=list(KINDS))
    options = parser.parse_args()
    hows = ["none", *(f"{level} {whom}" for level in options.levels for whom in ("target", "bystander")), "bpftrace"]
    before = STATS.read_text()
    refused = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="flatwater-level-cost-") as folder:
        folder = pathlib.Path(folder)
        program = folder / "loops"
        subprocess.run(["cc", "-O2", "-o", program, pathlib.Path(__file__).with_name("level_cost.c")], check=True)
        STATS.write_text("1")
        try:
            options.empty_ns = empty_ns(program, folder)
            print(f"kernel {platform.release()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, medians of {options.rounds} "
                  f"interleaved rounds; taken off each run of a program: {options.empty_ns:.0f} ns\n")
            print("| operation | recorded by | ns | added | in BPF programs |")
            print("|---|---|---:|---:|---:|", flush=True)
            for kind in options.only:
                print(rows(kind, rounds(options, program, kind, hows, folder, refused)), flush=True)
        finally:
            STATS.write_text(before)
    for (kind, how), why in refused.items():
        print(f"level_cost: {kind}, {how}: {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
