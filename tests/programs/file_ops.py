"""file_ops.py KIND DIRECTORY SECONDS OUT: times one file operation after another. Writes when each ended and its duration in ms. Each kind
uses the file system in a different way."""

import json
import mmap
import os
import pathlib
import sqlite3
import sys
import time

MIB = 1 << 20


def sqlite_delete(home):
    """A commit with a rollback journal: two files are synced, and one is unlinked."""
    connection = sqlite3.connect(home / "app.db", isolation_level=None, timeout=60)
    connection.execute("pragma journal_mode=delete")
    connection.execute("pragma synchronous=full")
    connection.execute("create table if not exists t (id integer primary key, v text)")
    return 0.01, lambda _: connection.execute("insert into t (v) values (?)", ("x" * 1000,))


def lmdb_commit(home):
    import lmdb
    environment = lmdb.open(str(home / "lmdb"), map_size=256 * MIB)

    def commit(number):
        with environment.begin(write=True) as transaction:
            transaction.put(b"%08d" % (number % 5000), b"x" * 2000)
    return 0.005, commit


def msync(home):
    """Writes to a mapped file, 64 KiB at a time, with msync."""
    with open(home / "mapped", "wb") as file:
        file.write(bytes(32 * MIB))
        os.fsync(file.fileno())
    handle = os.open(home / "mapped", os.O_RDWR)
    mapped = mmap.mmap(handle, 32 * MIB)

    def store(number):
        at = number * 65536 % (32 * MIB)
        mapped[at:at + 65536] = b"%d" % (number % 10) * 65536
        mapped.flush(at, 65536)
    return 0.02, store


def copy_range(home):
    """copy_file_range() within the page cache, 1 MiB at a time."""
    (home / "from").write_bytes(os.urandom(8 * MIB))
    source, sink = os.open(home / "from", os.O_RDONLY), os.open(home / "to", os.O_RDWR | os.O_CREAT)

    def copy(number):
        os.copy_file_range(source, sink, MIB, number % 8 * MIB, number % 128 * MIB)
    return 0.03, copy


def sendfile(home):
    """sendfile() from a cached file to another, 256 KiB at a time."""
    (home / "from").write_bytes(os.urandom(8 * MIB))
    source, sink = os.open(home / "from", os.O_RDONLY), os.open(home / "to", os.O_RDWR | os.O_CREAT)

    def send(number):
        os.lseek(sink, number % 256 * 262144, os.SEEK_SET)
        os.sendfile(sink, source, number % 32 * 262144, 262144)
    return 0.01, send


def truncate(home):
    """Creates, syncs, truncates and removes a file of 8 MiB."""
    data = bytes(8 * MIB)

    def make(number):
        path = home / f"large-{number % 4}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        os.write(handle, data)
        os.fsync(handle)
        os.ftruncate(handle, 0)
        os.close(handle)
        path.unlink()
    return 0.1, make


def fallocate(home):
    """Allocates 4 MiB, writes a block into it, and syncs."""
    handle = os.open(home / "log", os.O_RDWR | os.O_CREAT)

    def extend(number):
        at = number % 64 * 4 * MIB
        if number % 64 == 0:
            os.ftruncate(handle, 0)
        os.posix_fallocate(handle, at, 4 * MIB)
        os.pwrite(handle, b"x" * 8192, at)
        os.fdatasync(handle)
    return 0.02, extend


def rename(home):
    """Saves like a careful editor: writes a new file, syncs it, renames it over the old one, and syncs the directory."""
    directory = os.open(home, os.O_RDONLY)

    def save(number):
        handle = os.open(home / "new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(handle, b"%d" % (number % 10) * 20_000)
        os.fsync(handle)
        os.close(handle)
        os.rename(home / "new", home / "saved")
        os.fsync(directory)
    return 0.02, save


def xapian(home):
    import xapian as store
    index = store.WritableDatabase(str(home / "index"), store.DB_CREATE_OR_OPEN)

    def add(number):
        document = store.Document()
        document.set_data("x" * 2000)
        for word in range(40):
            document.add_term(f"w{(number * 31 + word * 97) % 5000}")
        index.add_document(document)
        index.commit()
    return 0.02, add


def gdbm(home):
    import dbm.gnu as store
    base = store.open(str(home / "base"), "c")

    def put(number):
        base[b"%08d" % (number % 5000)] = b"x" * 1000
        base.sync()
    return 0.01, put


def append(home):
    handle = os.open(home / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return 0.002, lambda number: os.write(handle, b"%d" % (number % 10) * 4096)


def maildir(home):
    for name in ("tmp", "new"):
        (home / name).mkdir()
    new = os.open(home / "new", os.O_RDONLY)

    def deliver(number):
        path = home / "tmp" / f"{number}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(handle, b"%d" % (number % 10) * 8192)
        os.fsync(handle)
        os.close(handle)
        os.link(path, home / "new" / f"{number}")
        path.unlink()
        os.fsync(new)
        if number >= 200:
            oldest = home / "new" / f"{number - 200}"
            oldest.read_bytes()
            oldest.unlink()
    return 0.02, deliver


def main():
    kind, home, seconds, out = sys.argv[1], pathlib.Path(sys.argv[2]), float(sys.argv[3]), pathlib.Path(sys.argv[4])
    pause, operation = {"sqlite-delete": sqlite_delete, "lmdb": lmdb_commit, "msync": msync, "copy-range": copy_range, "sendfile": sendfile,
                        "truncate": truncate, "fallocate": fallocate, "rename": rename, "xapian": xapian, "gdbm": gdbm,
                        "append": append, "maildir": maildir}[kind](home)
    took, number, end = [], 0, time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        operation(number)
        took.append((time.time(), (time.monotonic() - start) * 1e3))
        number += 1
        time.sleep(pause)
    out.write_text(json.dumps(took))


main()
