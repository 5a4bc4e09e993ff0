"""Programs on file systems other than ext4, and other stores."""

import subprocess

from stage import Unavailable
from victims import FioPsync, FioRead, Postgres, Sqlite, listens
from victims_more import FileOps, Rename, Rsync, Served, SqliteDelete, Truncate


class PostgresXfs(Postgres):
    name, filesystem = "postgresql-xfs", "xfs"
    beside = ("fsync-stream", "raw-reader", "freezer", "sync-caller", "trimmer", "puncher")


class SqliteXfs(Sqlite):
    name, filesystem = "sqlite-xfs", "xfs"
    beside = ("fsync-stream", "unlinker", "device-throttle", "freezer")


class RenameXfs(Rename):
    name, filesystem = "rename-xfs", "xfs"
    beside = ("unlinker", "sync-caller", "dirty-stream")


class TruncateXfs(Truncate):
    name, filesystem = "truncate-xfs", "xfs"
    beside = ("fsync-stream", "raw-reader")


class FioXfs(FioPsync):
    name, filesystem = "fio-xfs", "xfs"
    beside = ("lock-holder", "memory-hog", "dirty-stream")


class ReadXfs(FioRead):
    name, filesystem = "fio-read-xfs", "xfs"
    beside = ("cache-dropper", "trimmer")


class SqliteBtrfs(SqliteDelete):
    name, filesystem = "sqlite-btrfs", "btrfs"
    beside = ("snapshots", "fsync-stream", "device-throttle", "scrubber", "trimmer")


class FioBtrfs(FioPsync):
    name, filesystem = "fio-btrfs", "btrfs"
    beside = ("snapshots", "sync-caller", "freezer", "dirty-stream", "scrubber")


class RsyncBtrfs(Rsync):
    name, filesystem = "rsync-btrfs", "btrfs"
    beside = ("snapshots", "raw-reader")


class Xapian(FileOps):
    """One document per commit, as a mail index does."""

    name = kind = module = "xapian"
    beside = ("fsync-stream", "unlinker", "raw-reader", "memory-hog")


class Gdbm(FileOps):
    name, kind, module = "gdbm", "gdbm", "dbm.gnu"
    beside = ("sync-caller", "unlinker", "freezer", "puncher", "trimmer")


class Append(FileOps):
    """A log that is never synced: 4 KiB every 2 ms."""

    name = kind = "append"
    beside = ("freezer", "memory-hog", "unlinker")


class Maildir(FileOps):
    """A delivery: a file of 8 KiB is written and synced in tmp and linked into new, the directory is synced, and the oldest file is removed."""

    name = kind = "maildir"
    beside = ("unlinker", "sync-caller", "raw-reader", "freezer", "tree-copier", "puncher")


class Beanstalk(Served):
    """A queue of jobs whose binlog is synced for each."""

    name, needs = "beanstalkd", ("beanstalkd",)
    limit_kib_per_s = 64
    beside = ("fsync-stream", "unlinker", "raw-reader", "device-throttle")

    def prepare(self):
        self.serve(["beanstalkd", "-l", "127.0.0.1", "-p", "28300", "-b", self.home, "-f", "0", "-s", "1048576"], lambda: listens(28300), self.name)

    def load(self):
        self.write("beanstalk_writer.py", 28300)


class Slapd(Served):
    """Entries added to a directory, each with a commit of LMDB."""

    name, needs = "slapd", ("slapd", "slapadd")
    limit_kib_per_s = 64
    beside = ("fsync-stream", "sync-caller", "device-throttle")

    def prepare(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import ldap"], capture_output=True, check=False).returncode:
            raise Unavailable("Python has no ldap")
        settings, self.socket = self.stage.scratch / "slapd.conf", self.stage.scratch / "ldapi"
        settings.write_text("include /etc/ldap/schema/core.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n"
                            f"pidfile {self.stage.scratch}/slapd.pid\ndatabase mdb\nsuffix dc=a\nrootdn cn=m,dc=a\nrootpw s\nmaxsize 268435456\ndirectory {self.home}\n")
        made = subprocess.run(["slapadd", "-f", settings], input="dn: dc=a\nobjectClass: dcObject\nobjectClass: organization\no: a\ndc: a\n",
                              capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise Unavailable(f"slapadd: {made.stderr[-300:]}")
        self.url = f"ldapi://{str(self.socket).replace('/', '%2F')}"
        self.serve(["slapd", "-d", "0", "-f", settings, "-h", self.url], self.socket.exists, self.name)

    def load(self):
        self.write("ldap_writer.py", self.url)


OTHER = [PostgresXfs, SqliteXfs, RenameXfs, TruncateXfs, FioXfs, ReadXfs, SqliteBtrfs, FioBtrfs, RsyncBtrfs, Xapian, Gdbm, Append, Maildir, Beanstalk, Slapd]
