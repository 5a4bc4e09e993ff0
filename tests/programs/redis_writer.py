"""redis_writer.py SOCKET SECONDS OUT: a SET of 2 KiB every 2 ms. Writes when each reply arrived and its duration in ms."""

import json
import pathlib
import socket
import sys
import time

path, seconds, out = sys.argv[1], float(sys.argv[2]), pathlib.Path(sys.argv[3])
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
took, number, begin = [], 0, time.monotonic()
while time.monotonic() - begin < seconds:
    key, value = f"k{number % 20000}", "x" * 2048
    start = time.monotonic()
    connection.sendall(f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n$2048\r\n{value}\r\n".encode())
    reply = b""
    while not reply.endswith(b"\r\n"):
        reply += connection.recv(64)
    if not reply.startswith(b"+OK"):
        raise SystemExit(f"Redis answered {reply!r}")
    took.append((time.time(), (time.monotonic() - start) * 1e3))
    number += 1
    time.sleep(0.002)
out.write_text(json.dumps(took))
