#!/usr/bin/env python3
"""Runs a build. Stores its wall and CPU time for `make budgets` if it built from scratch.

    tools/timed.py NAME TARGET_FOLDER COMMAND...
"""

import json
import os
import resource
import subprocess
import sys
import time


def main():
    name, folder, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    is_fresh, begin = not os.path.exists(folder), time.monotonic()
    status = subprocess.run(command, check=False).returncode
    if status == 0 and is_fresh:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        times = {"wall_s": round(time.monotonic() - begin, 1), "cpu_s": round(usage.ru_utime + usage.ru_stime, 1)}
        with open(f"target/{name}-times.json", "w", encoding="utf-8") as file:
            json.dump(times, file)
    return status


if __name__ == "__main__":
    sys.exit(main())
