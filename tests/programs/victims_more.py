"""More programs, with which no rule was developed: tools that copy and pack, other databases and servers, rarer system calls."""

import json
import os
import pathlib
import subprocess

from stage import MIB, Unavailable, tool
from victims import Fio, Postgres, Victim, listens, summed, wait_until

HERE = pathlib.Path(__file__).parent


class FileOps(Victim):
    """One kind of tests/programs/file_ops.py."""

    needs, kind, module = ("python3",), "", None

    def load(self):
        if self.module and subprocess.run(["/usr/bin/python3", "-c", f"import {self.module}"], capture_output=True).returncode:
            raise Unavailable(f"Python has no {self.module}")
        self.out = self.stage.scratch / "ops.json"
        self.child = self.stage.start(["/usr/bin/python3", HERE / "file_ops.py", self.kind, self.home, self.seconds, self.out],
                                      self.groups(), log=self.log())

    def pids(self):
        return [self.child.pid]

    def own_log(self, window):
        if self.child.wait(90) != 0:
            raise RuntimeError(f"{self.kind}: {self.log().read_text()[-400:]}")
        return summed(json.loads(self.out.read_text()), window)

    def stop(self):
        self.stage.end(self.child)


class SqliteDelete(FileOps):
    name = kind = "sqlite-delete"
    beside = ("fsync-stream", "direct-writer", "device-throttle", "cpu-hog")


class Lmdb(FileOps):
    name = kind = module = "lmdb"
    beside = ("fsync-stream", "tree-copier", "device-throttle")


class Msync(FileOps):
    name = kind = "msync"
    beside = ("dirty-stream", "direct-writer", "device-throttle", "full-cgroup")


class CopyRange(FileOps):
    name = kind = "copy-range"
    beside = ("dirty-stream", "mmap-dirtier", "full-cgroup", "cpu-hog")


class Sendfile(FileOps):
    name = kind = "sendfile"
    beside = ("dirty-stream", "mmap-dirtier", "full-cgroup")


class Truncate(FileOps):
    name = kind = "truncate"
    limit_kib_per_s = 8192
    beside = ("fsync-stream", "tree-copier", "device-throttle")


class Fallocate(FileOps):
    name = kind = "fallocate"
    beside = ("fsync-stream", "direct-writer", "device-throttle")


class Rename(FileOps):
    name = kind = "rename"
    beside = ("dirty-stream", "tree-copier", "device-throttle", "cpu-hog")


class Looped(FileOps):
    """A repeated shell command in a directory with a tree of 400 files of 32 KiB."""

    command = ""
    tree = True

    def prepare(self):
        if self.tree:
            for number in range(400):
                path = self.home / "tree" / f"d{number % 20}" / f"f{number}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(os.urandom(32768))

    def load(self):
        self.out = self.stage.scratch / "looped.json"
        self.child = self.stage.start(["/usr/bin/python3", HERE / "looped.py", self.seconds, self.out, self.command], self.groups(),
                                      log=self.log(), directory=self.home)


class DdDsync(Looped):
    name, tree, command = "dd-dsync", False, "dd if=/dev/zero of=synced bs=8k count=8 oflag=dsync conv=notrunc"
    beside = ("fsync-stream", "tree-copier", "device-throttle", "cpu-hog")


class Rsync(Looped):
    name, needs, command = "rsync", ("rsync",), "rm -rf copy$((n%2)); rsync -a --fsync tree/d0 tree/d1 copy$((n%2))"
    limit_kib_per_s = 1024
    beside = ("fsync-stream", "dirty-stream", "device-throttle")


class Git(Looped):
    """A commit with fsync of every object, and a repack every fourth time."""

    name, needs, limit_kib_per_s = "git", ("git",), 128
    command = ("for i in 1 2 3; do echo $n.$i > tree/d0/f0-$i; done; git add tree/d0 && git -c user.name=a -c user.email=a@b commit -qm $n"
               " && { [ $((n%4)) != 3 ] || git repack -qad; }")
    beside = ("fsync-stream", "direct-writer", "device-throttle")

    def prepare(self):
        super().prepare()
        tool("git", "init", "-q", self.home)
        tool("git", "-C", self.home, "config", "core.fsync", "all")
        tool("git", "-C", self.home, "config", "gc.auto", "0")


class Tar(Looped):
    name, command = "tar", "tar cf pack$((n%2)).tar tree"
    beside = ("dirty-stream", "full-cgroup", "mmap-dirtier")


class Copy(Looped):
    name, command = "cp", "cp -r --reflink=never tree copy-$((n%3)) && sync copy-$((n%3))/d0/f0 && rm -rf copy-$((n%3))"
    beside = ("fsync-stream", "dirty-stream", "full-cgroup")


class Dpkg(Looped):
    """dpkg unpacks and configures a generated package in a separate root; it syncs each file."""

    name, needs, limit_kib_per_s = "dpkg", ("dpkg", "dpkg-deb"), 256
    command = "dpkg --root=root --force-not-root --force-architecture --log=/dev/null -i app.deb"
    beside = ("fsync-stream", "tree-copier", "device-throttle")

    def prepare(self):
        made = self.home / "app"
        (made / "DEBIAN").mkdir(parents=True)
        (made / "DEBIAN" / "control").write_text("Package: app\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: a\n")
        (made / "opt").mkdir()
        for number in range(20):
            (made / "opt" / f"f{number}").write_bytes(os.urandom(8192))
        tool("dpkg-deb", "-Znone", "--build", made, self.home / "app.deb")
        database = self.home / "root" / "var" / "lib" / "dpkg"
        (database / "updates").mkdir(parents=True)
        (database / "info").mkdir()
        (database / "status").write_text("")


class FioSqpoll(Fio):
    """Direct writes submitted by a kernel thread, with registered files and buffers."""

    name = "fio-sqpoll"
    options = ("--ioengine=io_uring", "--iodepth=4", "--sqthread_poll=1", "--registerfiles=1", "--fixedbufs=1", "--direct=1")
    beside = ("fsync-stream", "direct-writer", "device-throttle")


class FioFsync32(Fio):
    """Larger buffered writes, with a sync every 32."""

    name, options = "fio-fsync32", ("--ioengine=sync", "--bs=64k", "--fsync=32", "--rate_iops=100")
    limit_kib_per_s = 2048
    beside = ("fsync-stream", "tree-copier", "device-throttle", "full-cgroup")


class FioDirectRead(Fio):
    """Direct reads, as by a database with its own cache."""

    name, options = "fio-direct-read", ("--ioengine=libaio", "--rw=randread", "--direct=1", "--iodepth=2")
    beside = ("direct-writer", "dirty-stream", "device-throttle")


class PostgresVacuum(Postgres):
    """Small WAL, so that checkpoints and full-page writes are frequent, and autovacuum every second."""

    name = "postgresql-wal"
    beside = ("fsync-stream", "tree-copier", "device-throttle", "full-cgroup")

    def prepare(self):
        super().prepare()
        settings = "wal_compression = off\nmax_wal_size = 32MB\nautovacuum_naptime = 1s\nautovacuum_vacuum_threshold = 10\n"
        with open(self.data / "postgresql.auto.conf", "a") as file:
            file.write(settings + "autovacuum_vacuum_scale_factor = 0.001\n")
        tool("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", self.bin / "pg_ctl", "reload", "-D", self.data)


class Served(Victim):
    """A server, and a writer that times its answers."""

    def serve(self, words, ready, what, **more):
        self.server = self.stage.start(words, self.groups(), log=self.log(), **more)
        wait_until(ready, 60, f"{what} did not start: {self.log()}")

    def write(self, script, *words):
        self.out = self.stage.scratch / "writer.json"
        self.bench = self.stage.start(["/usr/bin/python3", HERE / script, *words, self.seconds, self.out], log=self.stage.scratch / "writer.log")

    def pids(self):
        return [self.server.pid]

    def own_log(self, window):
        if self.bench.wait(90) != 0:
            raise RuntimeError(f"{self.name}: {(self.stage.scratch / 'writer.log').read_text()[-400:]}")
        return summed(json.loads(self.out.read_text()), window)

    def stop(self):
        self.stage.end(self.bench)
        self.stage.end(self.server)


class Nginx(Served):
    """An access log that is written for every request."""

    name, needs = "nginx", ("nginx",)
    beside = ("dirty-stream", "full-cgroup", "cpu-hog")

    def prepare(self):
        settings = self.stage.scratch / "nginx.conf"
        settings.write_text(
            f"daemon off;\nworker_processes 1;\nuser root;\npid {self.stage.scratch}/nginx.pid;\nerror_log {self.stage.scratch}/nginx-error.log;\n"
            "events { worker_connections 64; }\nhttp { keepalive_requests 1000000;\n"
            f"log_format long '$remote_addr $time_iso8601 $request $status {'x' * 1500}';\naccess_log {self.home}/access.log long;\n"
            "server { listen 127.0.0.1:28080; location / { return 200 'ok'; } } }\n")
        self.serve(["nginx", "-c", settings], lambda: listens(28080), "nginx")

    def load(self):
        self.write("http_writer.py", 28080, "GET", "/", 0, 0.001)


class Influx(Served):
    """A line every 10 ms into its write-ahead log, which it syncs."""

    name, needs = "influxdb", ("influxd",)
    limit_kib_per_s = 64
    beside = ("fsync-stream", "tree-copier", "device-throttle", "cpu-hog")

    def prepare(self):
        settings = self.stage.scratch / "influx.conf"
        settings.write_text(
            f"reporting-disabled = true\nbind-address = \"127.0.0.1:28088\"\n[meta]\ndir = \"{self.home}/meta\"\n[data]\ndir = \"{self.home}/data\"\n"
            f"wal-dir = \"{self.home}/wal\"\n[http]\nbind-address = \"127.0.0.1:28086\"\nlog-enabled = false\n[monitor]\nstore-enabled = false\n")
        self.serve(["influxd", "-config", settings], lambda: listens(28086), "influxd", environment={"HOME": str(self.stage.scratch)})
        tool("/usr/bin/python3", HERE / "http_writer.py", 28086, "POST", "/query?q=create+database+app", 0, 0.3, 0.1, self.stage.scratch / "made.json")

    def load(self):
        self.write("http_writer.py", 28086, "POST", "/write?db=app", 1000, 0.01)


class Memcached(Served):
    """External storage: values that do not fit into its 64 MiB of memory go to a file and are read back from it."""

    name, needs = "memcached", ("memcached",)
    limit_kib_per_s = 2048
    beside = ("fsync-stream", "direct-writer", "device-throttle")

    def prepare(self):
        self.socket = self.stage.scratch / "memcached.sock"
        words = ["memcached", "-u", "root", "-m", "64", "-s", self.socket, "-o", f"ext_path={self.home}/ext:512m,ext_wbuf_size=4,ext_item_age=0,ext_threads=2"]
        self.serve(words, self.socket.exists, "memcached")

    def load(self):
        self.write("memcached_writer.py", self.socket)


class Rabbit(Served):
    """Durable messages, each confirmed once it is on disk."""

    name, needs = "rabbitmq", ("rabbitmq-server", "erl", "epmd")
    limit_kib_per_s = 64
    beside = ("fsync-stream", "dirty-stream", "device-throttle")

    def groups(self):
        groups = super().groups()
        groups[0].set("memory.limit_in_bytes", 1536 * MIB)
        return groups

    def prepare(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import pika"], capture_output=True).returncode:
            raise Unavailable("Python has no pika")
        environment = {"RABBITMQ_MNESIA_BASE": str(self.home / "mnesia"), "RABBITMQ_LOG_BASE": str(self.stage.scratch), "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                       "RABBITMQ_NODE_PORT": "25671", "RABBITMQ_NODENAME": "flatwater@localhost", "RABBITMQ_DIST_PORT": "25670", "HOME": str(self.stage.scratch),
                       "RABBITMQ_PID_FILE": str(self.stage.scratch / "rabbit.pid"), "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_ENABLED_PLUGINS_FILE": "/dev/null",
                       "ERL_EPMD_PORT": "24369"}
        # Erlang's epmd. The server would start it as a daemon that outlives the run.
        self.directory = self.stage.start(["epmd", "-address", "127.0.0.1", "-port", "24369"])
        wait_until(lambda: listens(24369), 10, "epmd did not start")
        self.serve(["/usr/lib/rabbitmq/bin/rabbitmq-server"], lambda: listens(25671), "rabbitmq", environment=environment)

    def load(self):
        self.write("rabbit_writer.py", 25671)

    def stop(self):
        super().stop()
        self.stage.end(self.directory)


MORE = [SqliteDelete, Lmdb, Msync, CopyRange, Sendfile, Truncate, Fallocate, Rename, DdDsync, Rsync, Git, Tar, Copy, Dpkg, FioSqpoll, FioFsync32,
        FioDirectRead, PostgresVacuum, Nginx, Influx, Memcached, Rabbit]
