"""Known neighbours. Each lists the right answers, which follow from what it does, not from what flatwater reports."""

import os
import subprocess

from stage import Unavailable, thaw

# Neighbours affect only the groups and the disk of their stage.
SH = "/bin/sh"
# The causes of a writer that waits for its data to reach the disk, whatever the obstacle. A queue kept full by the neighbour has no
# free request, so that cause is right as well.
SYNC_WAITS = {"journal-commit", "page-writeback", "device-queue-starved", "lock", "journal-buffer", "request-queue"}


class Aggressor:
    """`causes`: the right top findings. `named`: whether a process is to blame, rather than a limit or nothing."""

    name, causes, named = "alone", set(), False
    # The change of `--fixed`: the fix that a report proposes, in the words of docs/recipes.
    fix = ""
    # Whether it runs only if it is named on the command line.
    optional = False
    # Whether it competes for CPUs, so that the stage must not outweigh it: see Stage.
    takes_cpus = False

    def __init__(self, stage, fixed=False):
        self.stage, self.fixed, self.children = stage, fixed, []

    def prepare(self, victim):
        """Runs before the victim starts."""

    def start(self, victim):
        """Runs while the victim runs."""

    def stop(self):
        for child in self.children:
            self.stage.end(child)

    def groups(self):
        groups = [self.stage.group("memory", "aggressor"), self.stage.group("cpu", "aggressor")]
        return [*groups, self.stage.group("blkio", "aggressor")] if self.fixed else groups

    def bound_io(self, mib_per_s):
        for what in ("write_bps", "read_bps"):
            knob = f"blkio.throttle.{what}_device"
            self.stage.group("blkio", "aggressor").set(knob, f"{self.stage.disk.number} {mib_per_s << 20}")

    def shell(self, script, groups=None):
        directory = self.stage.disk.mount / "aggressor"
        directory.mkdir(exist_ok=True)
        child = self.stage.start([SH, "-c", script], groups if groups is not None else self.groups(), directory=directory)
        self.children.append(child)
        return child


class FsyncStream(Aggressor):
    """Three writers that repeatedly write 32 MiB and fsync, like a backup."""

    name, causes, named = "fsync-stream", SYNC_WAITS, True
    programs = {"dd"}
    fix = "the neighbour writes to another file system on the same disk"

    def start(self, victim):
        directory = (self.stage.second_disk() if self.fixed else self.stage.disk).mount
        for number in range(3):
            self.shell(f"cd {directory}; while :; do dd if=/dev/zero of=s{number} bs=1M count=32 conv=notrunc,fsync 2>/dev/null; done")


class BoundFsyncStream(FsyncStream):
    """Like FsyncStream, with the obvious fix: a limit on its I/O. It does not help within one journal."""

    name, optional = "fsync-stream-limit", True
    fix = "blkio.throttle.write_bps_device of the neighbour's cgroup: 4 MiB/s"

    def start(self, victim):
        if self.fixed:
            self.bound_io(4)
        for number in range(3):
            self.shell(f"while :; do dd if=/dev/zero of=s{number} bs=1M count=32 conv=notrunc,fsync 2>/dev/null; done")


class DirtyStream(Aggressor):
    """Two writers that dirty pages as fast as possible, on a device limited to 24 MiB of dirty pages."""

    name, causes, named = "dirty-stream", {"dirty-throttle"} | SYNC_WAITS, True
    programs = {"dd"}
    fix = "the neighbour writes with O_DIRECT, limited to 4 MiB/s by its cgroup"

    def start(self, victim):
        self.stage.disk.bound_dirty(24)
        if self.fixed:
            self.bound_io(4)
        direct = "oflag=direct" if self.fixed else ""
        for number in range(2):
            self.shell(f"while :; do dd if=/dev/zero of=d{number} bs=256k count=2048 conv=notrunc {direct} 2>/dev/null; done")

    def stop(self):
        super().stop()
        self.stage.disk.bound_dirty(None)


class FullCgroup(Aggressor):
    """A writer in the victim's memory cgroup that fills it to its limit with dirty pages."""

    name, named = "full-cgroup", True
    causes = {"memcg-reclaim", "reclaim-throttle", "cgroup-limit-cache"}
    programs = {"dd"}
    fix = "the neighbour gets a separate memory cgroup of 128 MiB"

    def start(self, victim):
        group = self.stage.group("memory", "victim")
        used = int((group.path / "memory.usage_in_bytes").read_text())
        group.set("memory.limit_in_bytes", max(used + (48 << 20), 128 << 20))
        if self.fixed:
            group = self.stage.group("memory", "aggressor")
            group.set("memory.limit_in_bytes", 128 << 20)
        self.shell("while :; do dd if=/dev/zero of=c bs=256k count=2048 conv=notrunc 2>/dev/null; done", [group])


class CacheReader(Aggressor):
    """A reader in the victim's memory cgroup that evicts the victim's pages and keeps the disk busy."""

    name, named = "cache-reader", True
    causes = {"synchronous-read", "memcg-reclaim", "page-fault", "reclaim-throttle", "device-queue-starved", "cgroup-limit-cache"}
    programs = {"dd"}
    fix = "the neighbour gets a separate memory cgroup of 64 MiB"

    def prepare(self, victim):
        file = self.stage.disk.mount / "aggressor-big"
        with open(file, "wb") as big:
            for _ in range(768):
                big.write(os.urandom(1 << 20))
            # Drop it from the cache, so that its pages are charged to the reader and not to this process.
            big.flush()
            os.fsync(big.fileno())
            os.posix_fadvise(big.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def start(self, victim):
        group = self.stage.group("memory", "victim")
        used = int((group.path / "memory.usage_in_bytes").read_text())
        group.set("memory.limit_in_bytes", max(used // 2 + (32 << 20), 96 << 20))
        if self.fixed:
            group = self.stage.group("memory", "aggressor")
            group.set("memory.limit_in_bytes", 64 << 20)
        for _ in range(2):
            self.shell("while :; do dd if=../aggressor-big of=/dev/null bs=1M 2>/dev/null; done", [group])


class Throttle(Aggressor):
    """A blkio limit on the victim that is below what it writes; no process is to blame."""

    name, causes, named = "device-throttle", {"io-throttle"}, False
    fix = "the limit is raised to 64 MiB/s"

    def start(self, victim):
        group = self.stage.group("blkio", "victim")
        limit = 64 << 20 if self.fixed else victim.limit_kib_per_s << 10
        group.set("blkio.throttle.write_bps_device", f"{self.stage.disk.number} {limit}")
        group.set("blkio.throttle.read_bps_device", f"{self.stage.disk.number} {limit}")

    def stop(self):
        super().stop()
        group = self.stage.group("blkio", "victim")
        group.set("blkio.throttle.write_bps_device", f"{self.stage.disk.number} 0")
        group.set("blkio.throttle.read_bps_device", f"{self.stage.disk.number} 0")


class LockHolder(Aggressor):
    """A writer that writes 32 MiB at a time to the victim's file, and holds the inode lock during each write."""

    name, causes, named = "lock-holder", {"lock"}, True
    programs = {"dd"}
    fix = "the neighbour writes to another file"

    def start(self, victim):
        target = "own-file" if self.fixed else victim.lock_target()
        self.shell(f"while :; do dd if=/dev/zero of={target} bs=32M count=1 seek=4 conv=notrunc 2>/dev/null; done")


class CpuHog(Aggressor):
    """Eight threads that only compute, on two CPUs."""

    name, causes, named = "cpu-hog", {"run-queue", "cpu-contention"}, True
    programs = {"sh"}
    takes_cpus = True
    fix = "cpu.shares of the neighbour's cgroup: 2"

    def start(self, victim):
        # The fix is a separate group. Without it the hog shares the victim's, as on a host without CPU limits.
        group = self.stage.group("cpu", "aggressor" if self.fixed else "victim")
        if self.fixed:
            group.set("cpu.shares", 2)
        for _ in range(8):
            self.shell("while :; do :; done", [self.stage.group("memory", "aggressor"), group])


class DirectWriter(Aggressor):
    """fio with sixteen direct writes of 512 KiB in flight: no page cache, no journal, only the device's queue."""

    name, named = "direct-writer", True
    causes = SYNC_WAITS | {"synchronous-read"}
    programs = {"fio"}
    fix = "the neighbour's queue depth is 1"

    def start(self, victim):
        depth = 1 if self.fixed else 16
        self.shell(f"exec fio --name=n --filename=direct --size=256m --ioengine=libaio --direct=1 --rw=randwrite --bs=512k --iodepth={depth} "
                   "--time_based --runtime=120 --thread=0")


class TreeCopier(Aggressor):
    """Copies a tree, syncs the file system and removes the copy: data, metadata and the journal."""

    name, causes, named = "tree-copier", {"dirty-throttle"} | SYNC_WAITS, True
    programs = {"cp", "sync", "rm"}
    fix = "the neighbour copies to another file system on the same disk"

    def prepare(self, victim):
        for number in range(600):
            file = self.stage.disk.mount / "aggressor-tree" / f"d{number % 30}" / f"f{number}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(os.urandom(256 << 10))

    def start(self, victim):
        directory = (self.stage.second_disk() if self.fixed else self.stage.disk).mount
        for number in range(2):
            copy = f"{directory}/copied-{number}"
            self.shell(f"while :; do cp -r ../aggressor-tree {copy}; sync -f {copy}; rm -rf {copy}; done")


class MmapDirtier(Aggressor):
    """Two processes that write to mapped files, on a device limited to 24 MiB of dirty pages."""

    name, causes, named = "mmap-dirtier", {"dirty-throttle"} | SYNC_WAITS, True
    programs = {"python3", "python3.11"}
    fix = "the neighbour's files are on another file system"

    def start(self, victim):
        disk = self.stage.second_disk() if self.fixed else self.stage.disk
        self.stage.disk.bound_dirty(24)
        store = ("import mmap,os; f=os.open('%s/mapped-%d',os.O_RDWR|os.O_CREAT); os.ftruncate(f,256<<20); m=mmap.mmap(f,256<<20); d=bytes(1<<20)\n"
                 "while True:\n for at in range(256): m[at<<20:(at+1)<<20]=d")
        for number in range(2):
            self.shell(f"exec /usr/bin/python3 -c \"{store % (disk.mount, number)}\"")

    def stop(self):
        super().stop()
        self.stage.disk.bound_dirty(None)


class Freezer(Aggressor):
    """Repeatedly freezes the file system for half a second, as for snapshots."""

    name, causes, named = "freezer", {"fs-freeze"}, True
    programs = {"fsfreeze"}
    fix = "one snapshot every five seconds, frozen for 50 ms"

    def start(self, victim):
        frozen_s, thawed_s = (0.05, 5) if self.fixed else (0.5, 0.5)
        self.shell(f"cd /; while :; do fsfreeze -f {self.stage.disk.mount}; sleep {frozen_s}; fsfreeze -u {self.stage.disk.mount}; sleep {thawed_s}; done")

    def stop(self):
        super().stop()
        # It may have been killed while the file system was frozen.
        thaw(self.stage.disk.mount)


class Unlinker(Aggressor):
    """Creates and removes three thousand small files: only metadata."""

    name, causes, named = "unlinker", {"journal-full", "block-allocation"} | SYNC_WAITS, True
    programs = {"python3", "python3.11", "rm", "sh"}
    fix = "the neighbour's files are on another file system on the same disk"

    def start(self, victim):
        directory = (self.stage.second_disk() if self.fixed else self.stage.disk).mount
        make = "import os\nfor n in range(3000):\n f=os.open(f'%s/n{n}',os.O_CREAT|os.O_WRONLY); os.write(f,bytes(500)); os.close(f)"
        for number in range(2):
            many = f"{directory}/many-{number}"
            self.shell(f"while :; do mkdir -p {many}; /usr/bin/python3 -c \"{make % many}\"; sync -f {many}; rm -rf {many}; done")


class SyncCaller(Aggressor):
    """Writes little and syncs the whole file system ten times a second."""

    name, causes, named = "sync-caller", SYNC_WAITS, True
    programs = {"sync", "dd", "sh"}
    fix = "the neighbour syncs once in ten seconds"

    def start(self, victim):
        pause_s = 10 if self.fixed else 0.1
        self.shell(f"while :; do dd if=/dev/zero of=y bs=1M count=8 conv=notrunc 2>/dev/null; sync -f y; sleep {pause_s}; done")


class RawReader(Aggressor):
    """Reads the block device directly, past the file system, like a backup of images."""

    name, named = "raw-reader", True
    causes = SYNC_WAITS | {"synchronous-read"}
    programs = {"dd"}
    fix = "the neighbour's cgroup limits it to reading 8 MiB/s"

    def start(self, victim):
        if self.fixed:
            self.bound_io(8)
        for number in range(4):
            self.shell(f"while :; do dd if={self.stage.disk.device} of=/dev/null bs=4M skip={number * 100} iflag=direct 2>/dev/null; done")


class MemoryHog(Aggressor):
    """Anonymous memory in the victim's cgroup, rewritten again and again, which leaves little for the page cache."""

    name, named = "memory-hog", True
    causes = {"memcg-reclaim", "reclaim-throttle", "synchronous-read", "page-fault", "cgroup-limit-cache"}
    programs = {"python3", "python3.11"}
    fix = "the neighbour gets a separate memory cgroup of 256 MiB"

    def start(self, victim):
        group = self.stage.group("memory", "victim")
        used = int((group.path / "memory.usage_in_bytes").read_text())
        hog = 96 << 20
        group.set("memory.limit_in_bytes", max(used, 64 << 20) + (64 << 20))
        if self.fixed:
            group = self.stage.group("memory", "aggressor")
            group.set("memory.limit_in_bytes", 256 << 20)
        take = (f"import time\nwhile True:\n m=bytearray({hog})\n for at in range(0,{hog},4096): m[at]=1\n time.sleep(0.05)")
        # The OOM killer should choose this process, not the program.
        self.shell(f"echo 1000 >/proc/self/oom_score_adj; exec /usr/bin/python3 -c \"{take}\"", [group])


class Snapshots(Aggressor):
    """Creates and deletes snapshots of a btrfs subvolume, each with a commit of the whole file system."""

    name, causes, named = "snapshots", {"block-allocation"} | SYNC_WAITS, True
    programs = {"btrfs", "btrfs-cleaner", "btrfs-transaction", "btrfs-transacti", "dd", "sh"}
    fix = "one snapshot every ten seconds"

    def prepare(self, victim):
        if self.stage.disk.filesystem != "btrfs":
            raise Unavailable("snapshots need btrfs")

    def start(self, victim):
        pause_s = 10 if self.fixed else 0
        mount = self.stage.disk.mount
        self.shell(f"cd {mount}; while :; do dd if=/dev/zero of=z bs=1M count=16 conv=notrunc 2>/dev/null; btrfs -q subvolume snapshot . snapshot; sync -f .; "
                   f"btrfs -q subvolume delete -c snapshot; sleep {pause_s}; done")


class CacheDropper(Aggressor):
    """Drops the page cache of the whole machine every half second, in the belief that this frees memory."""

    name, causes, named = "cache-dropper", {"cache-dropped", "synchronous-read", "page-fault"}, True
    programs = {"sh"}
    fix = "once in ten seconds"

    def start(self, victim):
        pause_s = 10 if self.fixed else 0.5
        self.shell(f"while :; do echo 3 >/proc/sys/vm/drop_caches; sleep {pause_s}; done")


class Puncher(Aggressor):
    """Two files of 256 MiB whose blocks are allocated, punched out in small pieces and allocated again: extents and bitmaps, no data."""

    name, causes, named = "puncher", {"journal-full", "block-allocation"} | SYNC_WAITS, True
    programs = {"python3", "python3.11"}
    fix = "the neighbour's files are on another file system on the same disk"

    def start(self, victim):
        directory = (self.stage.second_disk() if self.fixed else self.stage.disk).mount
        punch = ("import ctypes,os\nlibc=ctypes.CDLL(None)\nf=os.open('%s/punched-%d',os.O_RDWR|os.O_CREAT)\n"
                 "call=lambda mode,at,n: libc.fallocate64(f,mode,ctypes.c_int64(at),ctypes.c_int64(n))\n"
                 "while True:\n call(0,0,256<<20)\n for at in range(0,256<<20,16384): call(3,at,8192)\n os.fsync(f)")
        for number in range(2):
            self.shell(f"exec /usr/bin/python3 -c \"{punch % (directory, number)}\"")


class Trimmer(Aggressor):
    """Repeatedly writes and removes a file, and discards the free space."""

    name, named = "trimmer", True
    causes = SYNC_WAITS | {"synchronous-read", "device-slow"}
    programs = {"fstrim", "dd", "rm", "sync", "sh"}
    fix = "the free space is discarded once in ten seconds"

    def start(self, victim):
        pause_s = 10 if self.fixed else 0
        self.shell(f"while :; do dd if=/dev/zero of=trimmed bs=1M count=64 2>/dev/null; rm trimmed; sync -f .; fstrim {self.stage.disk.mount}; sleep {pause_s}; done")


class Scrubber(Aggressor):
    """btrfs reads and checks all its data."""

    name, named = "scrubber", True
    causes = SYNC_WAITS | {"synchronous-read"}
    programs = {"btrfs", "sh"}
    fix = "a scrub every ten seconds, limited to 16 MiB/s"

    def prepare(self, victim):
        if self.stage.disk.filesystem != "btrfs":
            raise Unavailable("scrubs need btrfs")
        with open(self.stage.disk.mount / "aggressor-scrubbed", "wb") as file:
            for _ in range(512):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())

    def start(self, victim):
        mount = self.stage.disk.mount
        if self.fixed:
            self.shell(f"cd /; btrfs scrub limit -d 1 -l 16m {mount}; while :; do btrfs -q scrub start -B {mount}; sleep 10; done")
        else:
            self.shell(f"cd /; while :; do btrfs -q scrub start -B -c 1 {mount}; done")

    def stop(self):
        super().stop()
        # The kernel's scrub continues without the process.
        subprocess.run(["btrfs", "-q", "scrub", "cancel", self.stage.disk.mount], capture_output=True, check=False)


class Alone(Aggressor):
    """No neighbour. A finding is allowed, because the disk is not fast, but it must not name a process."""


ALL = [Alone, FsyncStream, BoundFsyncStream, DirtyStream, FullCgroup, CacheReader, Throttle, LockHolder, CpuHog, DirectWriter, TreeCopier, MmapDirtier,
       Freezer, Unlinker, SyncCaller, RawReader, MemoryHog, Snapshots, CacheDropper, Puncher, Trimmer, Scrubber]
