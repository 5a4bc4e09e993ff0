#!/usr/bin/env python3
"""Builds an OCI image (image-spec 1.1: a tar of an image layout) from a tree, without a daemon and without a network.

The single layer has the command, its default configuration and licences. If the command is linked dynamically, it also has the
shared libraries that the loader finds here, with their copyright files. `podman load -i`, `skopeo copy oci-archive:` and
`ctr image import` accept the image. The same input and SOURCE_DATE_EPOCH give the same bytes."""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import time

WHEN = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
# The parts of the tree in the image: no man pages, completions or units.
KEPT = ("usr/bin/flatwater", "etc/flatwater/", "usr/share/doc/flatwater/")


def libraries(binary):
    """The paths that the loader uses, with their real paths; empty for a static binary."""
    run = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
    found = {}
    for line in run.stdout.splitlines():
        match = re.search(r"(?:=> )?(/\S+) \(0x", line)
        if match:
            found[match[1]] = os.path.realpath(match[1])
    return found


def copyright_of(library):
    """Debian's copyright file of the package that contains the library."""
    # The package may list the path from before /lib became a link to /usr/lib.
    for name in (library, library.removeprefix("/usr")):
        run = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False)
        path = f"/usr/share/doc/{run.stdout.split(':')[0]}/copyright"
        if run.returncode == 0 and os.path.exists(path):
            return path
    return None


def entries(tree):
    """The files of the layer: name in the layer -> (path here, mode)."""
    wanted = {}
    for folder, _, files in os.walk(tree):
        for file in files:
            path = os.path.join(folder, file)
            name = os.path.relpath(path, tree)
            if name.startswith(KEPT):
                wanted[name] = (path, 0o755 if name.startswith("usr/bin/") else 0o644)
    for asked, real in libraries(os.path.join(tree, "usr/bin/flatwater")).items():
        wanted[asked.lstrip("/")] = (real, 0o755)
        licence = copyright_of(real)
        if licence:
            wanted[licence.lstrip("/")] = (os.path.realpath(licence), 0o644)
    return wanted


def member(name, size, mode, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type, info.mtime = size, mode, kind, WHEN
    return info


def layer(tree):
    """The uncompressed tar of the layer."""
    wanted = entries(tree)
    folders = {"var/lib/flatwater": 0o700, "run/flatwater": 0o700, "tmp": 0o1777}
    for name in list(wanted) + list(folders):
        above = os.path.dirname(name)
        while above:
            folders.setdefault(above, 0o755)
            above = os.path.dirname(above)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(folders):
            tar.addfile(member(name, 0, folders[name], tarfile.DIRTYPE))
        for name in sorted(wanted):
            path, mode = wanted[name]
            with open(path, "rb") as file:
                data = file.read()
            tar.addfile(member(name, len(data), mode), io.BytesIO(data))
    return buffer.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--tree", "--version", "--architecture", "--out"):
        parser.add_argument(option, required=True)
    args = parser.parse_args()
    blobs = {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def as_json(value):
        return json.dumps(value, indent=1, sort_keys=True).encode()

    plain = layer(args.tree)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=9) as file:
        file.write(plain)
    layer_blob = blob(packed.getvalue(), "layer.v1.tar+gzip")
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(WHEN))
    labels = {
        "org.opencontainers.image.title": "flatwater",
        "org.opencontainers.image.version": args.version,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.description": "Finds stalled file writes and their causes",
    }
    config = blob(as_json({
        "created": created,
        "architecture": args.architecture,
        "os": "linux",
        "config": {
            "User": "0:0",
            "Entrypoint": ["/usr/bin/flatwater"],
            "Cmd": ["watch"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": "/",
            "Volumes": {"/var/lib/flatwater": {}},
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created": created, "created_by": "tools/oci.py"}],
    }), "config.v1+json")
    manifest = blob(as_json({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer_blob],
        "annotations": labels,
    }), "manifest.v1+json")
    manifest["annotations"] = {"org.opencontainers.image.ref.name": args.version}
    manifest["platform"] = {"architecture": args.architecture, "os": "linux"}
    index = as_json({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest],
    })
    with tarfile.open(args.out, "w", format=tarfile.PAX_FORMAT) as tar:
        files = {"oci-layout": as_json({"imageLayoutVersion": "1.0.0"}), "index.json": index}
        files.update({f"blobs/sha256/{digest}": data for digest, data in blobs.items()})
        for folder in ("blobs", "blobs/sha256"):
            tar.addfile(member(folder, 0, 0o755, tarfile.DIRTYPE))
        for name in sorted(files):
            tar.addfile(member(name, len(files[name]), 0o644), io.BytesIO(files[name]))


main()
