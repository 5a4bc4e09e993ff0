"""etcd_writer.py HOST PORT SECONDS OUT: a put every 10 ms through etcd's JSON gateway. Writes when each ended and its duration in ms."""

import http.client
import json
import pathlib
import sys
import time

host, port, seconds, out = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), pathlib.Path(sys.argv[4])
connection = http.client.HTTPConnection(host, port, timeout=60)
body = json.dumps({"key": "a2V5", "value": "eHh4" * 250})
took, end = [], time.monotonic() + seconds
while time.monotonic() < end:
    start = time.monotonic()
    connection.request("POST", "/v3/kv/put", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.read()
    if reply.status == 200:
        took.append((time.time(), (time.monotonic() - start) * 1e3))
    time.sleep(0.01)
out.write_text(json.dumps(took))
