#!/usr/bin/env python3
"""Measures `flatwater probe` on layouts whose truth is known from how they were built, and against fio.

Usage, as root on a quiet machine: bench/probe.py FLATWATER [LAYOUT...] (without layouts: all). Each result is appended
to target/probe.jsonl; `bench/probe.py --table` prints the table of docs/probe.md from it. A layout takes about a minute.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "target", "probe.jsonl")
MIB = 1 << 20
BLKIO = "/sys/fs/cgroup/blkio"
MEMORY = "/sys/fs/cgroup/memory"


def sh(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout.strip()


class Layout:
    """What a layout makes; undone last first."""

    def __init__(self):
        self.undo = []
        self.base = self.folder("/var/tmp")

    def folder(self, parent):
        path = tempfile.mkdtemp(prefix="flatwater-bench-probe-", dir=parent)
        self.undo.append(lambda: sh("rm", "-r", "--one-file-system", path))
        return path

    def image(self, name, mib, memory=False):
        path = os.path.join(self.folder("/dev/shm") if memory else self.base, f"{name}.img")
        with open(path, "wb") as file:
            file.truncate(mib * MIB)
        return path

    def loop(self, image, *options):
        device = sh("losetup", "-f", "--show", *options, image)
        self.undo.append(lambda: sh("losetup", "-d", device))
        number = open(f"/sys/block/{device.removeprefix('/dev/')}/dev").read().strip()
        for bdi, value in (("strict_limit", "0"), ("max_ratio", "100")):
            with open(f"/sys/class/bdi/{number}/{bdi}", "w") as file:
                file.write(value)
        return device, number

    def mount(self, device, name, *options):
        point = os.path.join(self.base, name)
        os.makedirs(point, exist_ok=True)
        sh("mount", *options, device, point)
        self.undo.append(lambda: sh("umount", point))
        return point

    def disk(self, name, mkfs, mib=1024, options=(), memory=False):
        device, number = self.loop(self.image(name, mib, memory))
        sh(*mkfs, device)
        return self.mount(device, name, *options), number

    def limit(self, file, line, clear):
        with open(file, "w") as out:
            out.write(line)
        def lift():
            with open(file, "w") as out:
                out.write(clear)
        self.undo.append(lift)

    def cgroup(self, *directories):
        for directory in directories:
            os.makedirs(directory, exist_ok=True)
            self.undo.append(lambda directory=directory: os.rmdir(directory))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for step in reversed(self.undo):
            for attempt in range(20):
                try:
                    step()
                    break
                except (OSError, subprocess.CalledProcessError) as why:
                    if attempt == 19:
                        print(f"not undone: {why}", file=sys.stderr)
                    time.sleep(0.25)


EXT4 = ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]


def ext4_ordered(made):
    return {"paths": [made.disk("ordered", EXT4)[0]]}


def ext4_data_journal(made):
    return {"paths": [made.disk("datajournal", EXT4, options=("-o", "data=journal"))[0]]}


def ext4_no_journal(made):
    return {"paths": [made.disk("nojournal", EXT4 + ["-O", "^has_journal"])[0]]}


def xfs(made):
    return {"paths": [made.disk("xfs", ["mkfs.xfs", "-q", "-f"])[0]]}


def btrfs_subvolumes(made):
    point, _ = made.disk("btrfs", ["mkfs.btrfs", "-q", "-f"])
    paths = [os.path.join(point, name) for name in ("victim", "neighbour")]
    for path in paths:
        sh("btrfs", "subvolume", "create", path)
    return {"paths": paths}


def two_file_systems(made):
    # Two loop devices on files of one disk: the probe finds the disk below them.
    return {"paths": [made.disk("two-1", EXT4)[0], made.disk("two-2", EXT4)[0]]}


def two_devices(made):
    one, _ = made.disk("one", EXT4, 600, memory=True)
    other, _ = made.disk("other", EXT4, 600)
    return {"paths": [one, other]}


def io_max(made):
    point, number = made.disk("iomax", EXT4)
    group = f"{BLKIO}/bench-probe"
    made.cgroup(group)
    for what, value in (("write_bps", 4 * MIB), ("write_iops", 400)):
        file = f"{group}/blkio.throttle.{what}_device"
        made.limit(file, f"{number} {value}", f"{number} 0")
    return {"paths": [point], "cgroup": group, "groups": [group]}


def memory_limit(made):
    point, _ = made.disk("memlimit", EXT4, 2048)
    group = f"{MEMORY}/bench-probe"
    made.cgroup(group)
    made.limit(f"{group}/memory.limit_in_bytes", str(32 * MIB), "-1")
    return {"paths": [point], "cgroup": group, "groups": [group]}


def tmpfs(made):
    return {"paths": [made.mount("none", "tmpfs", "-t", "tmpfs", "-o", "size=600m")]}


def overlayfs(made):
    point, _ = made.disk("overlay", EXT4)
    for name in ("lower", "upper", "work"):
        os.mkdir(os.path.join(point, name))
    layers = f"lowerdir={point}/lower,upperdir={point}/upper,workdir={point}/work"
    return {"paths": [made.mount("none", "overlay/merged", "-t", "overlay", "-o", layers)]}


def throttled_device(made):
    point, number = made.disk("throttled", EXT4 + ["-O", "^has_journal"])
    for what, value in (("write_bps", 20 * MIB), ("read_bps", 20 * MIB)):
        made.limit(f"{BLKIO}/blkio.throttle.{what}_device", f"{number} {value}", f"{number} 0")
    return {"paths": [point]}


# Layout, the pair that it was built for, its true mechanisms. A pair without harm has "isolated".
LAYOUTS = [
    (ext4_ordered, ("fsync", "dirty-stream", "same-file-system"), ["shared-journal"]),
    (ext4_data_journal, ("fsync", "dirty-stream", "same-file-system"), ["shared-journal"]),
    (ext4_no_journal, ("fsync", "dirty-stream", "same-file-system"), ["device-queue"]),
    (xfs, ("fsync", "dirty-stream", "same-file-system"), ["device-queue", "shared-journal"]),
    (btrfs_subvolumes, ("fsync", "dirty-stream", "same-file-system"), ["shared-journal", "device-queue"]),
    (two_file_systems, ("fsync", "dirty-stream", "same-device"), ["device-queue"]),
    (two_devices, ("fsync", "dirty-stream", "other-device"), ["isolated"]),
    (io_max, ("fsync", "dirty-stream", "same-file-system"), ["own-limit"]),
    (memory_limit, ("append", "dirty-stream", "same-file-system"), ["own-limit"]),
    (tmpfs, ("fsync", "dirty-stream", "same-file-system"), ["isolated"]),
    (overlayfs, ("fsync", "dirty-stream", "same-file-system"), ["shared-journal"]),
    (throttled_device, ("fsync", "dirty-stream", "same-file-system"), ["device-queue", "own-limit"]),
]


def fio(directory, groups, seconds, *options):
    """Starts fio in these cgroups."""
    join = "".join(f"echo $$ > {group}/cgroup.procs; " for group in groups)
    words = ["fio", "--output-format=json", f"--directory={directory}", "--time_based=1", "--fallocate=none",
             f"--runtime={seconds * 1000:.0f}ms", "--ioengine=psync", "--percentile_list=95", *options]
    return subprocess.Popen(["sh", "-c", join + 'exec "$@"', "sh", *words], stdout=subprocess.PIPE, text=True)


def victim(directory, groups, operation, seconds):
    """The 95th percentile of fio's calls, ns."""
    if operation == "fsync":
        options = ["--name=victim", "--rw=write", "--bs=4k", "--size=2m", "--fsync=1", "--thinktime=3000"]
    else:
        options = ["--name=victim", "--rw=write", "--bs=4k", "--size=2m", "--thinktime=4000", "--unlink_each_loop=1"]
    job = json.loads(fio(directory, groups, seconds, *options).communicate()[0])["jobs"][0]
    return (job["sync"]["lat_ns"] if operation == "fsync" else job["write"]["clat_ns"])["percentile"]["95.000000"]


def neighbour(directory, groups, load, seat, in_flight, seconds):
    if load == "dirty-stream":
        # As the probe's neighbour: new blocks in each pass, and as much under writeback all the time. Each of four jobs
        # waits for a quarter.
        blocks = max(in_flight // 4 // (256 << 10), 1)
        options = ["--name=neighbour", "--rw=write", "--bs=256k", f"--size={seat['dirty_bytes_max'] // 4}", "--rate=128m",
                   "--numjobs=4", "--group_reporting=1", "--unlink_each_loop=1", "--create_on_open=1",
                   f"--sync_file_range=wait_before,write,wait_after:{blocks}"]
    else:
        options = ["--name=neighbour", "--rw=read", "--bs=256k", f"--size={seat['cache_bytes_max']}", "--rate=512m",
                   "--invalidate=1"]
    return fio(directory, groups, seconds, *options)


def with_fio(made, pair, plan, seconds=1.5, rounds=4):
    """The median over rounds of the victim's 95th percentile beside fio's neighbour over those alone before and after."""
    operation, load, relation = pair
    seat = next(seat for seat in plan["neighbours"] if seat["where"] == relation)
    groups = made.get("groups", [])

    def alone():
        for path in {made["paths"][0], seat["path"]}:
            sh("sync", "-f", path)
        return victim(made["paths"][0], groups, operation, seconds)

    alones, ratios = [alone()], []
    for _ in range(rounds):
        other = neighbour(seat["path"], groups, load, seat, seat["in_flight_bytes"] or 0, seconds + 2)
        time.sleep(1)
        beside = victim(made["paths"][0], groups, operation, seconds)
        other.communicate()
        alones.append(alone())
        ratios.append(2 * beside / max(alones[-2] + alones[-1], 1))
    return statistics.median(ratios), sorted(ratios), alones


def measure(flatwater, build, pair, truth):
    with Layout() as layout:
        made = build(layout)
        words = [flatwater, "probe", *made["paths"], "-t", "20s", "--neighbour", pair[1], "--format", "json"]
        if "cgroup" in made:
            words += ["--cgroup", made["cgroup"]]
        ran = subprocess.run(words, capture_output=True, text=True)
        if ran.returncode not in (0, 3, 10):
            raise SystemExit(f"{build.__name__}: {ran.stderr}")
        report = json.loads(ran.stdout)
        found = next(one for one in report["pairs"]
                     if (one["operation"], one["neighbour"], one["where"]) == pair)
        real, fio_ratios, fio_alone = with_fio(made, pair, report["plan"])
        ratio = found.get("ratio") or {}
        return {
            "layout": build.__name__, "pair": pair, "truth": truth, "verdict": found["verdict"], "why": found.get("why"),
            "mechanism": (found.get("mechanism") or {}).get("name", ""), "share": (found.get("mechanism") or {}).get("share"),
            "ratio": ratio.get("value"), "low": ratio.get("low"), "high": ratio.get("high"), "fio": real,
            "fio_ratios": fio_ratios, "fio_alone_ns": fio_alone,
            "alone_ns": found.get("alone_ns"), "beside_ns": found.get("beside_ns"), "rounds": found.get("rounds"),
            "isolated": [(one["operation"], one["neighbour"], one["where"]) for one in report["pairs"]
                         if one["verdict"] == "isolated"],
            "notes": report["notes"],
        }


def is_right(row):
    if row["truth"] == ["isolated"]:
        return row["verdict"] in ("isolated", "not-proven")
    return row["mechanism"] in row["truth"]


def table():
    rows = {}
    with open(RESULTS) as file:
        for line in file:
            row = json.loads(line)
            rows[row["layout"]] = row
    print("| layout | call beside | verdict | mechanism | truth | probe | fio |")
    print("|---|---|---|---|---|---:|---:|")
    right = near = wrong = 0
    for build, _, _ in LAYOUTS:
        row = rows.get(build.__name__)
        if not row:
            continue
        right += is_right(row)
        wrong += row["verdict"] == "isolated" and row["truth"] != ["isolated"]
        factor = row["ratio"] / row["fio"] if row["ratio"] else 0
        near += 0.5 <= factor <= 2
        probed = f"{row['ratio']:.1f} ({row['low']:.1f} to {row['high']:.1f})" if row["low"] else "-"
        call = f"{row['pair'][0]}, {row['pair'][1]}"
        print(f"| {row['layout'].replace('_', ' ')} | {call} | {row['verdict']} | {row['mechanism'] or '-'} "
              f"| {' or '.join(row['truth'])} | {probed} | {row['fio']:.1f} |")
    print(f"\nmechanism right in {right} of {len(rows)}, wrong \"isolated\": {wrong}, "
          f"ratio within a factor of 2 of fio in {near}")


def main():
    if sys.argv[1:] == ["--table"]:
        return table()
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    wanted = sys.argv[2:]
    for build, pair, truth in LAYOUTS:
        if wanted and build.__name__ not in wanted:
            continue
        row = measure(sys.argv[1], build, pair, truth)
        with open(RESULTS, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{row['layout']}: {row['verdict']} {row['mechanism']} {row['share']} "
              f"ratio {row['ratio']} ({row['low']} to {row['high']}), fio {row['fio_ratios']}, {row['rounds']} rounds", flush=True)


if __name__ == "__main__":
    main()
