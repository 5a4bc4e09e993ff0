"""rabbit_writer.py PORT SECONDS OUT: a durable message every 10 ms, each confirmed. Writes when each was confirmed and its duration in ms."""

import json
import pathlib
import sys
import time

import pika

port, seconds, out = int(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
channel = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).channel()
channel.queue_declare("app", durable=True)
channel.confirm_delivery()
durable = pika.BasicProperties(delivery_mode=2)
took, end = [], time.monotonic() + seconds
while time.monotonic() < end:
    start = time.monotonic()
    channel.basic_publish("", "app", b"x" * 4000, durable)
    took.append((time.time(), (time.monotonic() - start) * 1e3))
    time.sleep(0.01)
out.write_text(json.dumps(took))
