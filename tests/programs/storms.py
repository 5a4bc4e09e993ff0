"""Records programs that fork, start threads and make calls by the thousand: memory stays bounded, and every call is counted or reported
as lost.

    storms.py --flatwater PATH [--only forks,threads,calls] [--level N]

Each load runs in a memory cgroup of 1 GiB. Fails if the recorder uses more than 192 MiB, if the recording cannot be read, or if calls
are missing without a reported loss. Needs root and cc."""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from programs import begun
from stage import Group

RSS_MIB_MAX = 192
SECONDS = 6


def peak_mib(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024
    except (OSError, TypeError):
        return 0.0


def storm(options, kind, group, folder):
    program, data, out = folder / "storm", folder / f"data-{kind}", folder / f"recording-{kind}"
    data.mkdir()
    load = subprocess.Popen([program, kind, str(SECONDS), data], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            preexec_fn=lambda: group.add(0))
    words = [options.flatwater, "record", *(["--level", options.level] if options.level else []), "-p", str(load.pid), "-t", "60s", "--format",
             "json", "-o", out]
    recorder = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while begun(out) is None and recorder.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        started = time.monotonic()
        load.stdin.write("go\n")
        load.stdin.close()
        peak = 0.0
        while load.poll() is None:
            peak = max(peak, peak_mib(recorder.pid))
            time.sleep(0.05)
        took = time.monotonic() - started
        made = int(load.stdout.read())
        # The recorder ends because its target has ended.
        said, complained = recorder.communicate(timeout=120)
    finally:
        for child in (load, recorder):
            if child.poll() is None:
                child.kill()
                child.wait()
    explained = json.loads(said)
    header = json.loads((out / "header.json").read_text())
    kinds = {"forks": "write", "threads": "write", "calls": "read"}
    counted = sum(line["count"] for line in explained["operations"] if line["name"] == kinds[kind] and not line.get("thread"))
    losses = {name: count for name, count in header["losses"].items() if count}
    noted = [note for note in map(str, explained["notes"]) if "lost" in note or "not followed" in note or "state" in note]
    fine = peak <= RSS_MIB_MAX and recorder.returncode in (0, 4) and (counted >= 0.99 * made or bool(losses and noted))
    print(f"{kind}: {made} calls in {took:.1f} s ({made / took:.0f} per second), {counted} counted, recorder's peak {peak:.0f} MiB, "
          f"losses {losses or 'none'}, notes: {noted or 'none'}{'' if fine else '  FAILED'}", flush=True)
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")
    parser.add_argument("--flatwater", default=shutil.which("flatwater"))
    parser.add_argument("--only", type=names, default=["forks", "threads", "calls"])
    parser.add_argument("--level")
    options = parser.parse_args()
    group = Group("memory", "storm")
    try:
        group.set("memory.limit_in_bytes", 1 << 30)
        with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="flatwater-storms-") as folder:
            folder = pathlib.Path(folder)
            source = pathlib.Path(__file__).with_name("storm.c")
            subprocess.run(["cc", "-O2", "-pthread", "-o", folder / "storm", source], check=True)
            fine = [storm(options, kind, group, folder) for kind in options.only]
    finally:
        group.close()
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
