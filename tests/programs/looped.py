"""looped.py SECONDS OUT COMMAND: runs a shell command repeatedly. Writes when each run ended and its duration in ms. $n is the number of
the run."""

import json
import os
import pathlib
import subprocess
import sys
import time

seconds, out, command = float(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
took, number, end = [], 0, time.monotonic() + seconds
while time.monotonic() < end:
    start = time.monotonic()
    done = subprocess.run(["/bin/sh", "-c", command], env={**os.environ, "n": str(number)}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr[-400:]}")
    took.append((time.time(), (time.monotonic() - start) * 1e3))
    number += 1
    time.sleep(0.02)
out.write_text(json.dumps(took))
