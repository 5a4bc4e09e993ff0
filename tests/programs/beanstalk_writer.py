"""beanstalk_writer.py PORT SECONDS OUT: puts a job of 2 KiB every 10 ms, and reserves and deletes one for every second job. Writes when each
was answered and its duration in ms."""

import json
import pathlib
import socket
import sys
import time

port, seconds, out = int(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
connection = socket.create_connection(("127.0.0.1", port), timeout=120)
stream = connection.makefile("rb")


def ask(words, body=None):
    connection.sendall(words + b"\r\n" + (body + b"\r\n" if body is not None else b""))
    answer = stream.readline().split()
    if answer[0] == b"RESERVED":
        stream.read(int(answer[2]) + 2)
    elif answer[0] not in (b"INSERTED", b"DELETED"):
        raise SystemExit(f"{words!r}: {answer!r}")
    return answer


took, number, end = [], 0, time.monotonic() + seconds
while time.monotonic() < end:
    start = time.monotonic()
    ask(b"put 0 0 60 2048", b"x" * 2048)
    if number % 2:
        ask(b"delete " + ask(b"reserve")[1])
    took.append((time.time(), (time.monotonic() - start) * 1e3))
    number += 1
    time.sleep(0.01)
out.write_text(json.dumps(took))
