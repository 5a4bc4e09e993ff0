"""Real programs, each with its own load and its own log of operation times."""

import json
import pathlib
import pwd
import re
import shutil
import socket
import subprocess
import time

from stage import MIB, Unavailable, tool

POSTGRES_BIN = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))


def wait_until(what, seconds, why):
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise RuntimeError(f"{why}: not within {seconds} s")
        time.sleep(0.1)


class Victim:
    """A program under test. Its own log gives `worst_ms`, the longest operation that its client saw; score.felt() judges it."""

    name, needs = "", ()
    # A limit on its I/O that is below what it writes.
    limit_kib_per_s = 256
    # The neighbours that can affect it. A program that never syncs does not feel a slow device; one that syncs feels little else.
    beside = ("fsync-stream", "dirty-stream", "device-throttle", "cpu-hog")
    # The file system that it runs on.
    filesystem = "ext4"

    def __init__(self, stage, seconds):
        for need in self.needs:
            if not shutil.which(need):
                raise Unavailable(f"{need} is not installed")
        self.stage, self.seconds = stage, seconds
        self.home = stage.disk.mount / "victim"
        self.home.mkdir()

    def groups(self):
        group = self.stage.group("memory", "victim")
        group.set("memory.limit_in_bytes", 1024 * MIB)
        return [group, self.stage.group("blkio", "victim"), self.stage.group("cpu", "victim")]

    def log(self):
        return self.stage.scratch / f"{self.name}.log"

    def prepare(self):
        """Creates its data and starts its server."""

    def load(self):
        """Starts its clients; they run for `seconds`."""

    def pids(self):
        raise NotImplementedError

    def own_log(self, window):
        """The program's own figures for the operations that ended in this window: the longest and the 99th percentile in ms, their
        number, and its own complaints. Programs that log no times give figures of the whole run (`whole`)."""
        raise NotImplementedError

    def stop(self):
        """Ends the processes that still run."""


def summed(operations, window):
    """Figures of the (end, ms) pairs that ended in the window."""
    took = sorted(ms for end_s, ms in operations if window[0] <= end_s <= window[1])
    if not took:
        # No operation completed: the one under way took longer than the window.
        took = sorted(ms for end_s, ms in operations if end_s > window[1] and end_s - ms / 1e3 < window[1])
    if not took:
        raise RuntimeError("the program completed no operation while it was recorded")
    return {"worst_ms": took[-1], "p99_ms": took[max(int(len(took) * 0.99) - 1, 0)], "operations": len(took)}


def fio_kinds(text, synchronous=False):
    """fio's own latencies by kind of operation: `clat` for engines whose calls do the work, `lat` for engines that submit. `lat` includes
    the time in the submitting call, like our latencies."""
    job = json.loads(text[text.index("{"):])["jobs"][0]
    figure = "clat_ns" if synchronous else "lat_ns"
    kinds = {"read": job["read"][figure], "write": job["write"][figure], "fsync": job["sync"]["lat_ns"]}
    kinds = {name: kind for name, kind in kinds.items() if kind.get("N")}
    percentile = lambda kind, which: kind.get("percentile", {}).get(which, 0)
    return {name: {"count": kind["N"], "p50_ns": percentile(kind, "50.000000"), "p99_ns": percentile(kind, "99.000000"),
                   "max_ns": kind["max"]} for name, kind in kinds.items()}


class Fio(Victim):
    """fio with a limited rate and an fsync every 16 writes, measured by fio's own latencies."""

    needs = ("fio",)
    options = ()

    def load(self):
        self.out = self.stage.scratch / "fio.json"
        words = ["fio", "--name=victim", f"--directory={self.home}", "--rw=randwrite", "--bs=8k", "--size=128m", "--fallocate=none", "--overwrite=0",
                 f"--runtime={self.seconds}", "--time_based", "--rate_iops=300", "--thread=0", "--output-format=json",
                 f"--output={self.out}", f"--write_lat_log={self.stage.scratch}/fio", "--log_unix_epoch=1", "--lat_percentiles=1", "--percentile_list=50:99:99.9", *self.options]
        self.child = self.stage.start(words, self.groups())

    def prepare(self):
        # A process in the victim's group writes the file, so that its page cache is charged there.
        file = self.home / "victim.0.0"
        words = ["dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=128", "conv=fsync"]
        self.stage.start(words, self.groups()).wait()

    def pids(self):
        return [self.child.pid]

    def lock_target(self):
        return self.home / "victim.0.0"

    def own_log(self, window):
        self.child.wait(60)
        own = fio_kinds(self.out.read_text())
        if "fsync" not in own:
            # fio's log of operations: end (ms), duration (ns). Syncs are not in it.
            rows = [line.split(",") for line in (self.stage.scratch / "fio_lat.1.log").read_text().splitlines()]
            return {**summed([(int(row[0]) / 1e3, int(row[1]) / 1e6) for row in rows], window), "kinds": own}
        return {"whole": True, "worst_ms": max(kind["max_ns"] for kind in own.values()) / 1e6,
                "p99_ms": max(kind["p99_ns"] for kind in own.values()) / 1e6,
                "operations": sum(kind["count"] for kind in own.values()), "kinds": own}

    def stop(self):
        self.stage.end(self.child)


class FioPsync(Fio):
    """Buffered writes without sync, which only memory, dirty limits, locks and CPUs can delay."""

    name, options = "fio-psync", ("--ioengine=psync",)
    beside = ("dirty-stream", "full-cgroup", "lock-holder", "cpu-hog")


class FioPvsync2(Fio):
    """An fsync every 16 writes."""

    name, options, beside = "fio-pvsync2", ("--ioengine=pvsync2", "--fsync=16"), ("fsync-stream", "device-throttle")


class FioUring(Fio):
    """An fsync every 16 writes, through io_uring."""

    name, options = "fio-io_uring", ("--ioengine=io_uring", "--iodepth=4", "--fsync=16")
    beside = ("fsync-stream", "device-throttle")


class FioLibaio(Fio):
    """Direct I/O: no page cache and no dirty pages."""

    name, options = "fio-libaio", ("--ioengine=libaio", "--iodepth=4", "--direct=1")
    beside = ("fsync-stream", "device-throttle")


class FioMmap(Fio):
    """Writes to a mapped file."""

    name, options, beside = "fio-mmap", ("--ioengine=mmap", "--invalidate=0"), ("full-cgroup", "cache-reader", "cpu-hog")


class FioRead(Fio):
    """Reads of a cached file, which are fast until its pages are evicted."""

    name, options, beside = "fio-read", ("--ioengine=psync", "--rw=randread", "--invalidate=0"), ("cache-reader", "cpu-hog")

    def prepare(self):
        super().prepare()
        self.stage.start(["dd", f"if={self.home}/victim.0.0", "of=/dev/null", "bs=1M"], self.groups()).wait()


class Postgres(Victim):
    """pgbench's update transactions, four clients at 100 per second. Its log has the latency of each."""

    name = "postgresql"

    def prepare(self):
        if not POSTGRES_BIN:
            raise Unavailable("PostgreSQL is not installed")
        self.bin, self.data = POSTGRES_BIN[-1], self.home / "data"
        user = pwd.getpwnam("postgres")
        shutil.chown(self.home, user.pw_uid, user.pw_gid)
        self.run = self.stage.scratch / "run"
        self.run.mkdir()
        shutil.chown(self.run, user.pw_uid, user.pw_gid)
        tool("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", self.bin / "initdb", "-D", self.data,
             "-A", "trust", "--no-sync")
        (self.data / "postgresql.auto.conf").write_text(
            "listen_addresses = ''\nshared_buffers = 32MB\nlog_checkpoints = on\ncheckpoint_timeout = 30s\n"
            f"unix_socket_directories = '{self.run}'\n")
        self.log().touch()
        self.server = self.stage.start([self.bin / "postgres", "-D", self.data], self.groups(), "postgres", self.log(), "/")
        wait_until(lambda: self.client("pg_isready").returncode == 0, 30, "PostgreSQL did not start")
        made = self.client("pgbench", "-i", "-q", "-s", "10")
        if made.returncode != 0:
            raise RuntimeError(f"pgbench -i: {made.stderr}")

    def client(self, program, *words):
        return subprocess.run([self.bin / program, "-h", self.run, "-U", "postgres", *words] +
                              (["postgres"] if program == "pgbench" else []), capture_output=True, text=True)

    def load(self):
        words = [self.bin / "pgbench", "-h", self.run, "-U", "postgres", "-n", "-c", "4", "-R", "100", "-T",
                 str(self.seconds), "-l", f"--log-prefix={self.stage.scratch}/pgbench", "postgres"]
        self.bench = self.stage.start(words, log=self.stage.scratch / "pgbench.out")

    def pids(self):
        return [self.server.pid]

    def own_log(self, window):
        self.bench.wait(60)
        # Fields: client, transaction, latency in us, script, epoch s, epoch us, lag in us.
        rows = [line.split() for file in self.stage.scratch.glob("pgbench.[0-9]*") for line in file.read_text().splitlines()]
        took = [(int(row[4]) + int(row[5]) / 1e6, (int(row[2]) - int(row[6] if len(row) > 6 else 0)) / 1e3) for row in rows]
        return summed(took, window)

    def stop(self):
        self.stage.end(self.bench)
        self.stage.end(self.server, 3)


class Redis(Victim):
    """Append-only file synced every second, about 400 sets of 2 KiB per second. The writer times the replies."""

    name, needs = "redis", ("redis-server", "redis-cli")
    beside = ("fsync-stream", "dirty-stream", "full-cgroup", "device-throttle", "cpu-hog")

    def prepare(self):
        self.socket = self.stage.scratch / "redis.sock"
        words = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.home, "--appendonly", "yes",
                 "--appendfsync", "everysec", "--save", "", "--maxmemory", "256mb", "--auto-aof-rewrite-percentage", "0"]
        self.server = self.stage.start(words, self.groups(), log=self.log())
        wait_until(lambda: subprocess.run(["redis-cli", "-s", self.socket, "ping"], capture_output=True).stdout == b"PONG\n",
                   20, "Redis did not start")

    def load(self):
        writer = pathlib.Path(__file__).with_name("redis_writer.py")
        self.out = self.stage.scratch / "redis.json"
        self.bench = self.stage.start(["python3", writer, self.socket, self.seconds, self.out])

    def pids(self):
        return [self.server.pid]

    def own_log(self, window):
        self.bench.wait(90)
        said = summed(json.loads(self.out.read_text()), window)
        said["complaints"] = len(re.findall("Asynchronous AOF fsync is taking too long", self.log().read_text()))
        return said

    def stop(self):
        self.stage.end(self.bench)
        self.stage.end(self.server)


class Sqlite(Victim):
    """One commit every 5 ms to a database with a write-ahead log and synchronous=FULL. The writer times its commits."""

    name, needs = "sqlite", ("python3",)

    def load(self):
        writer = pathlib.Path(__file__).with_name("sqlite_writer.py")
        self.out = self.stage.scratch / "sqlite.json"
        self.child = self.stage.start(["python3", writer, self.home / "app.db", self.seconds, self.out], self.groups())

    def pids(self):
        return [self.child.pid]

    def own_log(self, window):
        self.child.wait(60)
        return summed(json.loads(self.out.read_text()), window)

    def stop(self):
        self.stage.end(self.child)


class RocksDb(Victim):
    """db_bench, fillrandom with a synced log. Its histogram has the longest write."""

    name, needs = "rocksdb", ("db_bench",)

    def load(self):
        words = ["db_bench", "--benchmarks=fillrandom", f"--db={self.home}", "--sync=1", "--value_size=1024",
                 "--benchmark_write_rate_limit=400000", f"--duration={self.seconds}", "--num=100000000", "--histogram=1",
                 "--write_buffer_size=4194304"]
        self.child = self.stage.start(words, self.groups(), log=self.log())

    def pids(self):
        return [self.child.pid]

    def own_log(self, window):
        self.child.wait(90)
        text = self.log().read_text()
        found = re.search(r"Count: (\d+).*?Max: ([\d.]+).*?P99: ([\d.]+)", text, re.S)
        if not found:
            raise RuntimeError(f"db_bench printed no histogram: {text[-400:]}")
        return {"whole": True, "worst_ms": float(found[2]) / 1e3, "p99_ms": float(found[3]) / 1e3, "operations": int(found[1])}

    def stop(self):
        self.stage.end(self.child)


class Etcd(Victim):
    """etcd with a loop of puts. etcd itself logs slow syncs."""

    name, needs = "etcd", ("etcd", "etcdctl")

    def prepare(self):
        words = ["etcd", "--data-dir", self.home / "data", "--listen-client-urls", "http://127.0.0.1:22379",
                 "--advertise-client-urls", "http://127.0.0.1:22379", "--listen-peer-urls", "http://127.0.0.1:22380",
                 "--initial-advertise-peer-urls", "http://127.0.0.1:22380", "--initial-cluster",
                 "default=http://127.0.0.1:22380"]
        self.server = self.stage.start(words, self.groups(), log=self.log())
        wait_until(lambda: self.control("endpoint", "health").returncode == 0, 30, "etcd did not start")

    def control(self, *words):
        return subprocess.run(["etcdctl", "--endpoints=http://127.0.0.1:22379", "--command-timeout=60s", *words],
                              capture_output=True, text=True, env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"})

    def load(self):
        writer = pathlib.Path(__file__).with_name("etcd_writer.py")
        self.out = self.stage.scratch / "etcd.json"
        self.bench = self.stage.start(["python3", writer, "127.0.0.1", "22379", self.seconds, self.out])

    def pids(self):
        return [self.server.pid]

    def own_log(self, window):
        self.bench.wait(90)
        said = summed(json.loads(self.out.read_text()), window)
        said["complaints"] = len(re.findall("slow fdatasync|took too long", self.log().read_text()))
        return said

    def stop(self):
        self.stage.end(self.bench)
        self.stage.end(self.server)


class MariaDb(Victim):
    """MariaDB with one commit after another, each synced (innodb_flush_log_at_trx_commit=1)."""

    name, needs = "mariadb", ("mariadbd", "mariadb", "mariadb-install-db")
    limit_kib_per_s = 48

    def prepare(self):
        user = pwd.getpwnam("mysql")
        shutil.chown(self.home, user.pw_uid, user.pw_gid)
        self.data, self.socket = self.home / "data", self.home / "s"
        tool("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={self.data}", "--auth-root-authentication-method=normal")
        words = ["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={self.data}", f"--socket={self.socket}",
                 "--skip-networking", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"]
        self.server = self.stage.start(words, self.groups(), log=self.log())
        wait_until(lambda: self.query("select 1").returncode == 0, 40, "MariaDB did not start")
        self.query("create database app; create table app.t (id int auto_increment primary key, v varchar(500))")

    def query(self, text):
        return subprocess.run(["mariadb", "--no-defaults", f"--socket={self.socket}", "-u", "root", "-e", text],
                              capture_output=True, text=True)

    def load(self):
        # The server's own clock before and after the commit.
        statement = ("set @begin = sysdate(6); insert into app.t (v) values (repeat('x', 400)); "
                     "select unix_timestamp(sysdate(6)), timestampdiff(microsecond, @begin, sysdate(6));")
        script = (f"end=$(($(date +%s)+{self.seconds})); while [ $(date +%s) -lt $end ]; do echo \"{statement}\"; sleep 0.01; "
                  f"done | mariadb --no-defaults --unbuffered -N --socket={self.socket} -u root")
        self.bench = self.stage.start(["/bin/sh", "-c", script], log=self.stage.scratch / "maria.out")

    def pids(self):
        return [self.server.pid]

    def own_log(self, window):
        self.bench.wait(90)
        lines = [line.split() for line in (self.stage.scratch / "maria.out").read_text().splitlines()]
        return summed([(float(line[0]), int(line[1]) / 1e3) for line in lines if len(line) == 2], window)

    def stop(self):
        self.stage.end(self.bench)
        self.stage.end(self.server)


class JavaMapped(Victim):
    """A Java program that writes to a mapped file and forces it ten times a second; it times both."""

    name, needs = "java-mapped", ("java", "javac")
    beside = ("fsync-stream", "dirty-stream", "full-cgroup")

    def prepare(self):
        tool("javac", "-d", self.stage.scratch, pathlib.Path(__file__).with_name("MappedWriter.java"))

    def load(self):
        self.out = self.stage.scratch / "java.json"
        words = ["java", "-Xmx64m", "-XX:+UseSerialGC", "-cp", self.stage.scratch, "MappedWriter", self.home / "mapped", self.seconds, self.out]
        self.child = self.stage.start(words, self.groups(), log=self.log())

    def pids(self):
        return [self.child.pid]

    def own_log(self, window):
        self.child.wait(90)
        return summed(json.loads(self.out.read_text()), window)

    def stop(self):
        self.stage.end(self.child)


def listens(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


class Kafka(Victim):
    """One broker that syncs its log every 100 messages. The producer times the acknowledgements. Maven downloads the jars once."""

    name, needs = "kafka", ("java", "mvn")
    beside = ("fsync-stream", "dirty-stream", "full-cgroup", "device-throttle")
    jars = pathlib.Path("/var/tmp/flatwater-programs-kafka")

    def prepare(self):
        if not any(self.jars.glob("kafka_*.jar")):
            pom = pathlib.Path(__file__).with_name("kafka-pom.xml")
            try:
                tool("mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={self.jars}")
            except RuntimeError as why:
                raise Unavailable(f"cannot download Kafka's jars: {why}") from why
        self.java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{self.jars}/*"]
        settings = self.stage.scratch / "kafka.properties"
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:29093\n"
            "listeners=PLAINTEXT://127.0.0.1:29092,CONTROLLER://127.0.0.1:29093\ncontroller.listener.names=CONTROLLER\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:29092\nlog.dirs={self.home}/logs\nlog.flush.interval.messages=100\n"
            "offsets.topic.replication.factor=1\nnum.network.threads=1\nnum.io.threads=2\nlog.segment.bytes=16777216\n")
        tool("javac", "-cp", f"{self.jars}/*", "-d", self.stage.scratch, pathlib.Path(__file__).with_name("KafkaWriter.java"))
        identity = "flatwaterprograms00000"
        tool(*self.java, "kafka.tools.StorageTool", "format", "-t", identity, "-c", settings)
        self.server = self.stage.start([*self.java, "kafka.Kafka", settings], self.groups(), log=self.log())
        wait_until(lambda: listens(29092), 120, "Kafka did not start")

        self.writer("1", self.stage.scratch / "warm.json").wait(60)

    def writer(self, seconds, out):
        words = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", f"{self.stage.scratch}:{self.jars}/*", "KafkaWriter", "127.0.0.1:29092", seconds, out]
        return self.stage.start(words, log=self.stage.scratch / "producer.out")

    def load(self):
        self.out = self.stage.scratch / "kafka.json"
        self.bench = self.writer(self.seconds, self.out)

    def pids(self):
        return [self.server.pid]

    def own_log(self, window):
        self.bench.wait(120)
        return summed(json.loads(self.out.read_text()), window)

    def stop(self):
        self.stage.end(self.bench)
        self.stage.end(self.server)


ALL = [FioPsync, FioRead, FioPvsync2, FioUring, FioLibaio, FioMmap, Postgres, Redis, Sqlite, RocksDb, Etcd, MariaDb, JavaMapped, Kafka]
