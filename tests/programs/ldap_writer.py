"""ldap_writer.py URL SECONDS OUT: adds an entry every 10 ms. Writes when each was answered and its duration in ms."""

import json
import pathlib
import sys
import time

import ldap

url, seconds, out = sys.argv[1], float(sys.argv[2]), pathlib.Path(sys.argv[3])
directory = ldap.initialize(url)
directory.simple_bind_s("cn=m,dc=a", "s")
took, number, end = [], 0, time.monotonic() + seconds
while time.monotonic() < end:
    start = time.monotonic()
    entry = [("objectClass", [b"person"]), ("cn", [b"p%d" % number]), ("sn", [b"x" * 500])]
    directory.add_s(f"cn=p{number},dc=a", entry)
    took.append((time.time(), (time.monotonic() - start) * 1e3))
    number += 1
    time.sleep(0.01)
out.write_text(json.dumps(took))
