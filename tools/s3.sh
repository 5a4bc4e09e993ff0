#!/usr/bin/env bash
# Installs an S3 server for tests (moto, from PyPI) with its dependencies into target/s3. Tests start it on loopback with
#   PYTHONPATH=target/s3 python3 -m moto.server -H 127.0.0.1 -p PORT
# Prints nothing if it is already installed. Without PyPI its tests are skipped with a message.
set -euo pipefail
place=target/s3
[ -e "$place/moto/server.py" ] && exit 0
mkdir -p target
rm -rf "$place.new"
if ! python3 -m pip install --quiet --disable-pip-version-check --no-input --only-binary :all: --root-user-action ignore \
    --target "$place.new" 'moto[s3]==5.2.5' flask==3.1.3 flask-cors==6.0.5 2>"$place.log"; then
    echo "setup: no S3 server for tests (target/s3.log says why): tests of the fleet over S3 are skipped" >&2
    exit 0
fi
rm -rf "$place" && mv "$place.new" "$place"
