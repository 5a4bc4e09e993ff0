"""http_writer.py PORT METHOD PATH BODY_BYTES PAUSE_S SECONDS OUT: one request after another over one connection. Writes when each was
answered and its duration in ms. The body is a line of InfluxDB's protocol."""

import http.client
import json
import pathlib
import sys
import time

port, method, path, size, pause, seconds = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6])
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
took, number, end = [], 0, time.monotonic() + seconds
while time.monotonic() < end:
    start = time.monotonic()
    body = f"load,host=h{number % 50} text=\"{'x' * size}\",value={number}\n" if size else None
    connection.request(method, path, body)
    reply = connection.getresponse()
    reply.read()
    if reply.status >= 300:
        raise SystemExit(f"{path}: {reply.status} {reply.reason}")
    took.append((time.time(), (time.monotonic() - start) * 1e3))
    number += 1
    time.sleep(pause)
pathlib.Path(sys.argv[7]).write_text(json.dumps(took))
