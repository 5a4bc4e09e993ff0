"""The baseline: the counter that deviates most from its value in runs alone, read as the cause that people associate with it.

It has no data about calls, threads or requests. It blames the process with the most I/O or CPU time."""

import os
import pathlib
import threading
import time

# Counter: the cause that people associate with it.
MEANING = {
    "allocstall": "direct-reclaim", "pgscan_direct": "memcg-reclaim", "nr_dirty": "dirty-throttle",
    "workingset_refault_file": "synchronous-read", "disk_write_ns": "device-slow", "disk_queue_ns": "device-queue-starved",
    "disk_flush_ns": "page-writeback", "procs_running": "run-queue", "procs_blocked": "device-slow",
    "failcnt": "memcg-reclaim",
}


def read(device, group):
    """The present values of all counters."""
    values = {}
    for line in pathlib.Path("/proc/vmstat").read_text().splitlines():
        name, value = line.split()
        base = "allocstall" if name.startswith("allocstall") else name
        if base in MEANING:
            values[base] = values.get(base, 0) + int(value)
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        if line.startswith("procs_"):
            values[line.split()[0]] = int(line.split()[1])
    stat = pathlib.Path(f"/sys/block/{device}/stat").read_text().split()
    values["disk_write_ns"], values["disk_queue_ns"] = int(stat[7]), int(stat[10])
    values["disk_flush_ns"] = int(stat[16]) if len(stat) > 16 else 0
    values["failcnt"] = int((group / "memory.failcnt").read_text())
    return values


LEVELS = {"nr_dirty", "procs_running", "procs_blocked"}


def io_of_processes(own):
    """Bytes written and read, and CPU ticks, of each process outside the target."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            pid = int(entry.name)
            if pid in own:
                continue
            name = (entry / "comm").read_text(errors="replace").strip()
            io = dict(line.split(": ") for line in (entry / "io").read_text().splitlines())
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            found[pid] = (name, int(io["write_bytes"]) + int(io["read_bytes"]), int(fields[11]) + int(fields[12]))
        except (OSError, KeyError, ValueError, IndexError):
            continue
    return found


def machine():
    """CPU seconds of user space and kernel, and MiB written to all physical disks."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system = (int(field) for field in fields[:3])
    written = 0
    for disk in pathlib.Path("/sys/block").iterdir():
        if not disk.name.startswith(("loop", "ram", "zram", "dm-", "md")):
            written += int((disk / "stat").read_text().split()[6]) * 512
    return (user + nice + system) / os.sysconf("SC_CLK_TCK"), written / 2**20


def written_mib(devices):
    return sum(int(pathlib.Path(f"/sys/block/{device}/stat").read_text().split()[6]) * 512 for device in devices) / 2**20


class Others:
    """The load of the rest of the machine during a run, to tell whether the run was about the injected neighbour."""

    def __init__(self, stage):
        self.stage = stage
        self.began = self.now()

    def now(self):
        busy_s, mib = machine()
        disks = [disk.device.split("/")[-1] for disk in (self.stage.disk, self.stage.second) if disk]
        return time.monotonic(), busy_s - self.stage.cpu_seconds(), mib - written_mib(disks)

    def so_far(self):
        """CPUs kept busy and MiB written by others."""
        (from_s, from_cpu, from_mib), (to_s, to_cpu, to_mib) = self.began, self.now()
        return {"cpus": round(max(to_cpu - from_cpu, 0) / max(to_s - from_s, 0.1), 2), "mib": round(max(to_mib - from_mib, 0), 1)}


class Below(threading.Thread):
    """How long at a time the disk below the stage's loop device had requests but completed none, from its counters, sampled fifty times
    a second. If the disk of a virtual machine hangs, no process on this machine is to blame."""

    def __init__(self, image):
        super().__init__(daemon=True)
        device = os.stat(image).st_dev
        self.stat = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        self.longest_s, self.ended = 0.0, threading.Event()
        self.start()

    def now(self):
        """Requests completed, and requests in flight."""
        fields = [int(field) for field in self.stat.read_text().split()]
        return fields[0] + fields[4] + (fields[11] if len(fields) > 11 else 0), fields[8]

    def run(self):
        done, in_flight = self.now()
        since = time.monotonic()
        while not self.ended.wait(0.02):
            (done_now, in_flight_now), now = self.now(), time.monotonic()
            if done_now != done or in_flight == 0 or in_flight_now == 0:
                since = now
            self.longest_s = max(self.longest_s, now - since)
            done, in_flight = done_now, in_flight_now

    def stood_ms(self):
        self.ended.set()
        self.join()
        return round(self.longest_s * 1e3)


class Watch(threading.Thread):
    """Samples counters ten times a second until it is stopped, and processes every two seconds, because reading all of /proc takes
    100 ms of CPU time that the program would lack."""

    PROCESSES_EVERY = 20

    def __init__(self, device, group, own):
        super().__init__(daemon=True)
        self.device, self.group, self.own, self.ended = device, group, own, threading.Event()
        self.samples, self.names = [], {}
        self.start()

    def run(self):
        while not self.ended.wait(0.1):
            if len(self.samples) % self.PROCESSES_EVERY == 0:
                self.look_at_processes()
            self.samples.append((time.monotonic(), read(self.device, self.group)))

    def look_at_processes(self):
        for pid, (name, size, ticks) in io_of_processes(self.own).items():
            first = self.names.setdefault(pid, (name, size, ticks, size, ticks))
            self.names[pid] = (*first[:3], size, ticks)

    def stop(self):
        self.ended.set()
        self.join()
        self.look_at_processes()

    def means(self):
        """The mean of each level, and the rise per second of each counter."""
        (from_s, first), (to_s, last) = self.samples[0], self.samples[-1]
        seconds = max(to_s - from_s, 0.1)
        mean = {}
        for name in MEANING:
            if name in LEVELS:
                mean[name] = sum(sample.get(name, 0) for _, sample in self.samples) / len(self.samples)
            else:
                mean[name] = (last.get(name, 0) - first.get(name, 0)) / seconds
        return mean

    def busiest(self, by_cpu):
        """The name with the most I/O, or CPU time."""
        sums = {}
        for name, size, ticks, size_now, ticks_now in self.names.values():
            sums[name] = sums.get(name, 0) + (ticks_now - ticks if by_cpu else size_now - size)
        return max(sums, key=sums.get) if sums and max(sums.values()) > 0 else None


def rule(means, alone):
    """The cause of the counter that rose most over its value alone, if it rose at least threefold; otherwise quiet."""
    def ratio(name):
        return (means[name] + 1) / (max((run[name] for run in alone), default=0) + 1)
    worst = max(means, key=ratio)
    return (MEANING[worst], worst) if ratio(worst) >= 3 else ("quiet", None)
