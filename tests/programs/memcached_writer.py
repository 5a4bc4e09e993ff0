"""memcached_writer.py SOCKET SECONDS OUT: a set and a get of 16 KiB every 2 ms, over more keys than fit into its memory. Writes when
each pair ended and its duration in ms."""

import json
import pathlib
import socket
import sys
import time

path, seconds, out = sys.argv[1], float(sys.argv[2]), pathlib.Path(sys.argv[3])
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
stream = connection.makefile("rb")
KEYS, VALUE = 8000, b"x" * 16384


def put(number):
    connection.sendall(b"set k%d 0 0 %d\r\n%s\r\n" % (number % KEYS, len(VALUE), VALUE))
    stream.readline()


def get(number):
    connection.sendall(b"get k%d\r\n" % (number % KEYS))
    while not stream.readline().startswith(b"END"):
        pass


for number in range(KEYS):
    put(number)
took, number, end = [], 0, time.monotonic() + seconds
while time.monotonic() < end:
    start = time.monotonic()
    put(number)
    get(number * 7919)
    took.append((time.time(), (time.monotonic() - start) * 1e3))
    number += 1
    time.sleep(0.002)
out.write_text(json.dumps(took))
