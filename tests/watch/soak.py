"""Runs the daemon for hours in real time, in any number of steps, and checks that its memory is flat and no recording is lost.

    soak.py --flatwater PATH --hours H --out FILE.csv     one step; appends its rows to FILE
    soak.py --summary FILE.csv                            a summary of all steps

The daemon runs with the default configuration except for a small store (so that retention is always at work), a lower threshold of the
stall trigger (so that the machine's normal load triggers it) and more recordings per hour. Every ten minutes a recording is requested
as well. Each sealed recording is opened; one that cannot be opened is lost. Needs root; ends the processes that it started."""

import argparse
import csv
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

FIELDS = ["step", "wall_s", "step_s", "rss_mib", "held_mib", "own_cpu_s", "recordings", "lost", "dumps_refused", "events_lost", "shed"]
CONFIGURATION = """[store]
directory = "{store}"
size = "64MiB"
captures_per_hour = 60
cooldown = "1min"
[metrics]
socket = "{socket}"
[[trigger]]
name = "stall"
stall = "100ms"
"""


class Daemon:
    def __init__(self, flatwater, directory):
        self.flatwater = flatwater
        self.store = directory / "store"
        self.store.mkdir(mode=0o700)
        self.configuration = directory / "watch.toml"
        self.configuration.write_text(CONFIGURATION.format(store=self.store, socket=directory / "socket"))
        self.log = open(directory / "log", "w+")
        self.process = subprocess.Popen([flatwater, "watch", "-c", str(self.configuration)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log)
        self.opened, self.lost, self.refused = set(), 0, 0

    def ask(self, *words):
        return subprocess.run([self.flatwater, "watch", "-c", str(self.configuration), *words], capture_output=True, text=True, timeout=120, check=False)

    def open_sealed(self):
        """Opens each sealed recording once. A recording being written, or removed by retention in the meantime, is not lost."""
        for header in self.store.glob("*/header.json"):
            try:
                complete = json.loads(header.read_text()).get("complete")
            except (OSError, ValueError):
                continue
            if complete and header.parent.name not in self.opened:
                self.opened.add(header.parent.name)
                explained = subprocess.run([self.flatwater, "explain", str(header.parent)], capture_output=True, text=True, timeout=300, check=False)
                if explained.returncode not in (0, 4) and header.exists():
                    self.lost += 1
                    print(f"lost: {header.parent}: {explained.stderr.strip()[-300:]}", flush=True)

    def row(self):
        if self.process.poll() is not None:
            self.log.seek(0)
            raise SystemExit(f"the daemon ended with {self.process.returncode}: {self.log.read().strip()[-600:]}")
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        resident_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        said = json.loads(self.ask("status").stdout)
        lost = [line for line in self.ask("metrics").stdout.splitlines() if line.startswith("flatwater_events_lost_total")]
        return {
            "rss_mib": round(resident_kib / 1024, 1),
            "held_mib": round(said["held_bytes"] / 2**20, 2),
            "own_cpu_s": (int(stat[11]) + int(stat[12])) / 100,
            "recordings": len(self.opened),
            "lost": self.lost,
            "dumps_refused": self.refused,
            "events_lost": lost[0].split()[-1] if lost else "",
            "shed": said["shed"],
        }


def rows_of(path):
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def step(options):
    before = rows_of(options.out)
    number = 1 + max((int(row["step"]) for row in before), default=0)
    with tempfile.TemporaryDirectory(prefix="flatwater-soak-") as directory, open(options.out, "a", newline="") as file:
        sheet = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if not before:
            sheet.writeheader()
        daemon = Daemon(options.flatwater, pathlib.Path(directory))
        began, minute = time.monotonic(), 0
        try:
            while time.monotonic() - began < options.hours * 3600:
                minute += 1
                time.sleep(max(0.0, began + 60 * minute - time.monotonic()))
                if minute % 10 == 0:
                    daemon.refused += daemon.ask("dump").returncode != 0
                daemon.open_sealed()
                sheet.writerow({"step": number, "wall_s": int(time.time()), "step_s": int(time.monotonic() - began), **daemon.row()})
                file.flush()
        except KeyboardInterrupt:
            pass
        finally:
            if daemon.process.poll() is None:
                daemon.process.send_signal(signal.SIGTERM)
            try:
                daemon.process.wait(60)
            except subprocess.TimeoutExpired:
                daemon.process.kill()
                print("the daemon did not end within a minute of SIGTERM", flush=True)


def summary(path):
    rows = rows_of(path)
    if not rows:
        raise SystemExit(f"{path}: no rows; run a step first")
    print("| step | minutes | recordings | lost | RSS first, median, last, most (MiB) | slope of the last half, MiB per hour | CPU of the process |")
    print("|---:|---:|---:|---:|---|---:|---:|")
    for number in sorted({int(row["step"]) for row in rows}):
        mine = [row for row in rows if int(row["step"]) == number]
        rss = [float(row["rss_mib"]) for row in mine]
        # The second half, when the look-back is full: the slope of a linear regression.
        half = mine[len(mine) // 2 :]
        slope = "-"
        if len(half) > 2:
            slope = f"{statistics.linear_regression([int(row['step_s']) / 3600 for row in half], [float(row['rss_mib']) for row in half]).slope:+.1f}"
        last = mine[-1]
        print(
            f"| {number} | {int(last['step_s']) // 60} | {last['recordings']} | {last['lost']} | {rss[0]:.0f}, {statistics.median(rss):.0f}, {rss[-1]:.0f}, {max(rss):.0f} "
            f"| {slope} | {100 * float(last['own_cpu_s']) / int(last['step_s']):.2f} % |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flatwater", default="target/release/flatwater")
    parser.add_argument("--hours", type=float, default=8)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("target/soak.csv"))
    parser.add_argument("--summary", type=pathlib.Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    summary(options.summary) if options.summary else step(options)


if __name__ == "__main__":
    main()
