"""sqlite_writer.py DATABASE SECONDS OUT: a commit every 5 ms. Writes when each ended and its duration in ms."""

import json
import pathlib
import sqlite3
import sys
import time

database, seconds, out = sys.argv[1], float(sys.argv[2]), pathlib.Path(sys.argv[3])
connection = sqlite3.connect(database, isolation_level=None, timeout=60)
connection.execute("pragma journal_mode=wal")
connection.execute("pragma synchronous=full")
connection.execute("create table if not exists t (id integer primary key, v text)")
took, end = [], time.monotonic() + seconds
while time.monotonic() < end:
    start = time.monotonic()
    connection.execute("insert into t (v) values (?)", ("x" * 1000,))
    took.append((time.time(), (time.monotonic() - start) * 1e3))
    time.sleep(0.005)
out.write_text(json.dumps(took))
