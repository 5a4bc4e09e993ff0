#!/usr/bin/env python3
"""Runs a build. Stores its times and its memory for `make budgets` if it built from scratch.

    tools/timed.py NAME TARGET_FOLDER COMMAND...
"""

import json
import os
import subprocess
import sys
import threading
import time

SAMPLE_S = 0.5
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_mib(root):
    """Resident memory of a process and its descendants. Counts a shared page once per process."""
    children, pages = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # The process has ended.
        children.setdefault(int(fields[1]), []).append(int(name))
        pages[int(name)] = int(fields[21])
    total, pending = 0, [root]
    while pending:
        pid = pending.pop()
        total += pages.get(pid, 0)
        pending += children.get(pid, [])
    return total * PAGE_BYTES // 2**20


def run(command, sampled=True):
    """Runs a command. Returns the exit status and what the command used: wall and CPU seconds, the peak memory of the largest
    process and, if `sampled`, of all processes together."""
    begin, ended, samples = time.monotonic(), threading.Event(), [0]
    process = subprocess.Popen(command)

    def sample():
        while not ended.wait(SAMPLE_S):
            samples[0] = max(samples[0], resident_mib(process.pid))

    if sampled:
        threading.Thread(target=sample, daemon=True).start()
    _, status, used = os.wait4(process.pid, 0)
    ended.set()
    process.returncode = os.waitstatus_to_exitcode(status)
    use = {
        "wall_s": round(time.monotonic() - begin, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "process_mib": used.ru_maxrss // 1024,
    }
    if sampled:
        use["all_mib"] = max(samples[0], use["process_mib"])
    return process.returncode, use


def memory(use):
    """The peak memory of `run`'s result as text; empty if it was not measured."""
    if "all_mib" not in use:
        return ""
    return f"{use['process_mib'] / 1024:.1f} GiB in the largest process, {use['all_mib'] / 1024:.1f} GiB in all"


def main():
    name, folder, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    is_fresh = not os.path.exists(folder)
    status, use = run(command)
    if status == 0 and is_fresh:
        with open(f"target/{name}-times.json", "w", encoding="utf-8") as file:
            json.dump(use, file)
    return status


if __name__ == "__main__":
    sys.exit(main())
