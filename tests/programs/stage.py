"""The stage of a run: a file system on a loop device, memory and I/O groups, and child processes that end with this one."""

import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

PR_SET_PDEATHSIG = 1
SYS_SCHED_SETATTR = 314
SLICE_NS = 100_000
LIBC = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20


def short_slices():
    """Shortens this thread's time slice, so that it gets the CPU soon after it wakes instead of after another thread's slice of 3 ms.
    Needs 6.12; older kernels ignore it."""
    attributes = struct.pack("<IIQiIQQQ", 48, 0, 0, 0, 0, SLICE_NS, 0, 0)
    LIBC.syscall(SYS_SCHED_SETATTR, 0, attributes, 0)


@contextlib.contextmanager
def undisturbed():
    """Defers SIGTERM and SIGALRM until the block is done."""
    asked = []
    before = {one: signal.signal(one, lambda number, _: asked.append(number)) for one in (signal.SIGTERM, signal.SIGALRM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if signal.SIGTERM in asked:
        sys.exit(1)


WITHOUT_CAPABILITIES = ["setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"]


class Unavailable(Exception):
    """A requirement of the run that this machine does not meet."""


def tool(*words):
    """Runs a tool and returns its standard output; the error contains its messages."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Group:
    """A group of one v1 controller, removed with its content."""

    def __init__(self, controller, name, above=None):
        root = pathlib.Path("/sys/fs/cgroup") / controller
        if not (root / "cgroup.procs").exists():
            raise Unavailable(f"no cgroup v1 {controller} controller")
        self.root, self.path = root, (above.path if above else root) / f"programs-{os.getpid()}-{name}"
        self.path.mkdir()

    def set(self, knob, value):
        (self.path / knob).write_text(str(value))

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def close(self):
        for _ in range(100):
            for pid in (self.path / "cgroup.procs").read_text().split():
                try:
                    (self.root / "cgroup.procs").write_text(pid)
                except OSError:
                    pass
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.path} could not be removed")


class Images:
    """Files for loop devices, written once and reused by all runs. Writes to them then change no extents of the file system below, so
    its journal is not involved."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="flatwater-programs-images-", dir="/var/tmp"))

    def get(self, name, mib):
        image = self.directory / name
        if not image.exists():
            tool("dd", "if=/dev/zero", f"of={image}", "bs=1M", f"count={mib}", "oflag=direct")
        return image

    def close(self):
        shutil.rmtree(self.directory)


# The mkfs of each file system, without deferred initialization.
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
        "xfs": ("mkfs.xfs", "-q", "-f", "-K"), "btrfs": ("mkfs.btrfs", "-q", "-f", "-K")}


class Disk:
    """A file system on a loop device on a file with direct I/O. Because it bypasses the page cache below, a flush of the device does not
    write the neighbours' data."""

    def __init__(self, directory, image, filesystem="ext4"):
        if not shutil.which(MAKE[filesystem][0]):
            raise Unavailable(f"{MAKE[filesystem][0]} is not installed")
        self.directory = pathlib.Path(directory)
        self.image, self.filesystem = image, filesystem
        self.mount = self.directory / "mnt"
        self.mount.mkdir()
        self.device = tool("losetup", "-f", "--show", "--direct-io=on", self.image).strip()
        self.mounted = False
        try:
            behind = tool("losetup", "-n", "-O", "BACK-FILE", self.device).strip()
            if behind != str(self.image):
                raise RuntimeError(f"{self.device} is backed by {behind}: not touched")
            self.number = pathlib.Path(f"/sys/block/{self.device.split('/')[-1]}/dev").read_text().strip()
            self.bound_dirty(None)
            tool(*MAKE[filesystem], self.device)
            tool("mount", self.device, self.mount)
            self.mounted = True
        except BaseException:
            self.close()
            raise

    def bound_dirty(self, mib):
        """Limits the device's dirty memory to `mib`; None removes the limit."""
        bdi = pathlib.Path(f"/sys/class/bdi/{self.number}")
        (bdi / "strict_limit").write_text("0" if mib is None else "1")
        if mib is None:
            (bdi / "max_ratio").write_text("100")
        else:
            (bdi / "max_bytes").write_text(str(mib * MIB))

    def close(self):
        if self.mounted:
            # A failed run may have left it frozen.
            thaw(self.mount)
            self.bound_dirty(None)
            # A process killed in a sync only exits when the sync is done.
            for patience in range(60):
                try:
                    tool("umount", self.mount)
                    break
                except RuntimeError:
                    if patience == 59:
                        raise
                    time.sleep(0.5)
        tool("losetup", "-d", self.device)


def thaw(mount):
    """Thaws a file system that a killed process left frozen; does nothing if it is not frozen."""
    subprocess.run(["fsfreeze", "-u", mount], stderr=subprocess.DEVNULL, check=False)


class Canary:
    """A process of the stage that repeatedly sleeps 5 ms. It wakes late if others keep the CPUs busy."""

    SCRIPT = """
import signal, time
late, ended = [], []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
while not ended:
    due = time.monotonic() + 0.005
    time.sleep(0.005)
    late.append(time.monotonic() - due)
late.sort()
print(late[int(len(late) * 0.95)] * 1e3 if late else 0.0)
"""

    def __init__(self):
        self.child = subprocess.Popen(["python3", "-c", self.SCRIPT], stdout=subprocess.PIPE, text=True)

    def late_ms(self):
        """The 95th percentile of the delay, ms."""
        self.child.send_signal(signal.SIGTERM)
        return float(self.child.communicate(timeout=20)[0] or 0.0)


class Stage:
    """Everything that a run creates on the machine; `close` removes all of it.

    The stage, including this process, has many times the CPU weight of other threads, and the kernel threads that do its I/O get a
    real-time priority. Otherwise each of their wake-ups on a busy machine would wait for another thread's slice of 3 ms, whatever
    their weight, and the run would be about the other load instead of the injected neighbour.
    If the neighbour competes for CPUs, the stage has eight times the usual weight, and the kernel threads keep their priority,
    because their delay is part of the neighbour's effect. Within the stage all weights are the usual ones."""

    CPU_SHARES, CPU_SHARES_OF_HOGS = 32_768, 8_192
    # Kernel threads of loop devices, writeback, completions and journals.
    WORKERS = re.compile(r"^(kworker/|ksoftirqd/|jbd2/loop|xfsaild/loop|btrfs-|loop\d)")

    def __init__(self, images, mib=2048, takes_cpus=False, filesystem="ext4"):
        if os.geteuid() != 0:
            raise Unavailable("root is needed")
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="flatwater-programs-", dir="/var/tmp"))
        self.scratch.chmod(0o711)
        self.images = images
        self.groups, self.children, self.disk, self.second = {}, [], None, None
        self.cpu = self.accounted = self.preferring = None
        self.takes_cpus, self.preferred, self.closed = takes_cpus, {}, threading.Event()
        try:
            self.cpu = Group("cpu", "stage")
            self.cpu.set("cpu.shares", self.CPU_SHARES_OF_HOGS if takes_cpus else self.CPU_SHARES)
            self.accounted = Group("cpuacct", "stage")
            for group in (self.group("cpu", "watcher"), self.accounted):
                group.add(os.getpid())
            self.disk = Disk(self.scratch, images.get("first", mib), filesystem)
        except BaseException:
            self.close()
            raise

    def group(self, controller, name):
        key = (controller, name)
        if key not in self.groups:
            self.groups[key] = Group(controller, name, self.cpu if controller == "cpu" else None)
        return self.groups[key]

    def cpu_seconds(self):
        """CPU time of the whole stage so far."""
        return int((self.accounted.path / "cpuacct.usage").read_text()) / 1e9

    def second_disk(self):
        """Another file system on the same disk below."""
        if self.second is None:
            directory = self.scratch / "second"
            directory.mkdir()
            self.second = Disk(directory, self.images.get("second", 1024))
        return self.second

    # A recorder without capabilities cannot read a program that has capabilities, so programs start without them as well.
    without_capabilities = False

    def start(self, words, groups=(), user=None, log=None, directory=None, environment=None):
        """Starts a program in these groups; it dies with this process."""
        before = os.getpid()

        def first():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != before:
                os._exit(1)
            for group in groups:
                group.add(os.getpid())
            if not self.takes_cpus:
                short_slices()

        if user:
            # Only root may join the groups, so change the user afterwards. That clears the death signal, so set it again.
            words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--pdeathsig=KILL", *words]
        if self.without_capabilities:
            words = [*WITHOUT_CAPABILITIES, *words]
        out = open(log, "ab") if log else subprocess.DEVNULL
        child = subprocess.Popen([str(word) for word in words], preexec_fn=first, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT if log else subprocess.DEVNULL, cwd=directory,
                                 env={**os.environ, **(environment or {})}, start_new_session=True)
        self.children.append(child)
        return child

    def prefer_its_workers(self):
        """Raises the priority of the kernel threads until the stage is closed, also of new ones, which a busy kernel keeps starting."""
        if not self.takes_cpus:
            self.preferring = threading.Thread(target=self.prefer, daemon=True)
            self.preferring.start()

    def prefer(self):
        known = set()
        while not self.closed.wait(0.1):
            there = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}
            for pid in there - known:
                try:
                    worker = self.WORKERS.match(pathlib.Path(f"/proc/{pid}/comm").read_text(errors="replace"))
                    if worker and os.sched_getscheduler(pid) == os.SCHED_OTHER:
                        self.preferred[pid] = worker[0]
                        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
                except OSError:
                    continue
            known = there

    def usual_weights(self):
        self.closed.set()
        if self.preferring:
            self.preferring.join()
        for pid, name in self.preferred.items():
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text(errors="replace").startswith(name):
                    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
            except OSError:
                continue
        self.preferred = {}

    def end(self, child, sig=signal.SIGTERM, patience_s=20):
        """Ends a child and all its descendants in its process group."""
        if child.poll() is None:
            try:
                os.kill(child.pid, sig)
                child.wait(patience_s)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        if child in self.children:
            self.children.remove(child)

    def close(self):
        with undisturbed():
            self.usual_weights()
            for child in list(self.children):
                self.end(child, signal.SIGKILL)
            for group in [*self.groups.values(), self.cpu, self.accounted]:
                if group:
                    group.close()
            for disk in filter(None, (self.disk, self.second)):
                disk.close()
            shutil.rmtree(self.scratch)
