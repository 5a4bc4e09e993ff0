#!/usr/bin/env python3
"""Third-party code in our binaries: its licence texts, or a bill of materials (CycloneDX 1.5, JSON).

    tools/third_party.py licences > THIRD-PARTY-LICENCES.txt
    tools/third_party.py sbom > flatwater.cdx.json

Reads Cargo.lock and the crates' own files, without a network. The same sources give the same bytes.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import uuid

TARGET = "x86_64-unknown-linux-gnu"
# The shipped packages: the command, and the library for C.
ROOTS = ("flatwater", "precursor")
TEXT_FILES = re.compile(r"^(licen[cs]e|copying|copyright|unlicense|notice)", re.IGNORECASE)
TEXT_BYTES_MAX = 256 << 10
# Bundled into report.html by crates/report/web. Packages that only build the bundle are not shipped.
SCRIPTS = ("uplot",)
WEB = "crates/report/web"


def cargo(*arguments):
    command = [os.environ.get("CARGO", "cargo"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def metadata():
    return json.loads(cargo("metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET))


def linked():
    """(name, version) of the linked crates. `cargo metadata` alone would add crates that only tests enable."""
    roots = [part for root in ROOTS for part in ("-p", root)]
    tree = cargo("tree", "--locked", "-e", "normal", "--prefix", "none", "--target", TARGET, *roots)
    words = [line.split(" ") for line in tree.splitlines() if line]
    return {(word[0], word[1].removeprefix("v")) for word in words}


def shipped(meta):
    """The packages linked into shipped binaries with their dependencies, without build scripts and tests; and all packages."""
    nodes = {node["id"]: node for node in meta["resolve"]["nodes"]}
    packages = {package["id"]: package for package in meta["packages"]}
    waiting = [package["id"] for package in meta["packages"] if package["source"] is None and package["name"] in ROOTS]
    if len(waiting) != len(ROOTS):
        sys.exit(f"third_party: {ROOTS} are not all in this workspace")
    edges, known = {}, linked()

    def is_linked(key):
        return (packages[key]["name"], packages[key]["version"]) in known

    while waiting:
        current = waiting.pop()
        if current in edges:
            continue
        below = [
            dependency["pkg"]
            for dependency in nodes[current]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]) and is_linked(dependency["pkg"])
        ]
        edges[current] = sorted(below)
        waiting.extend(below)
    order = sorted(edges, key=lambda key: (packages[key]["name"], packages[key]["version"]))
    return [(packages[key], edges[key]) for key in order], packages


def checksums():
    """SHA-256 of each crate's archive, from Cargo.lock."""
    found, name, version = {}, None, None
    with open("Cargo.lock", encoding="utf-8") as lock:
        for line in lock:
            key, _, value = line.strip().partition(" = ")
            value = value.strip('"')
            if key == "name":
                name = value
            elif key == "version":
                version = value
            elif key == "checksum":
                found[name, version] = value
    return found


def scripts():
    """The versions of SCRIPTS in npm's lock file."""
    with open(f"{WEB}/package-lock.json", encoding="utf-8") as lock:
        packages = json.load(lock)["packages"]
    return [(name, packages[f"node_modules/{name}"]) for name in SCRIPTS]


def texts_in(directory):
    texts = []
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if TEXT_FILES.match(name) and os.path.isfile(path) and os.path.getsize(path) <= TEXT_BYTES_MAX:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read().strip())
    return texts


def standard_text(package):
    """The text for the few crates that name a licence but ship no text: ours, because it is the same licence."""
    licence = package["license"] or ""
    if "Apache-2.0" in licence:
        with open("LICENSE-APACHE", encoding="utf-8") as file:
            return file.read().strip()
    if "MIT" in licence:
        with open("LICENSE-MIT", encoding="utf-8") as file:
            body = file.read().strip()
        holders = ", ".join(package["authors"]) or f"the authors of {package['name']}"
        return re.sub(r"(?m)^Copyright.*$", f"Copyright (c) {holders}", body, count=1)
    sys.exit(f"third_party: {package['name']} {package['version']} ({licence}) ships no licence text: add one here")


def licences():
    packages, _ = shipped(metadata())
    users = {}
    for package, _ in packages:
        if package["source"] is None:
            continue
        texts = texts_in(os.path.dirname(package["manifest_path"])) or [standard_text(package)]
        for text in texts:
            users.setdefault(text, []).append(f"{package['name']} {package['version']} ({package['license']})")
    for name, pinned in scripts():
        text = script_text(name)
        users.setdefault(text, []).append(f"{name} {pinned['version']} ({pinned.get('license', 'see the text')}), in report.html")
    out = [
        "flatwater and libprecursor contain the work of others, under these licences. The Rust standard library,",
        "which is linked into both, is under MIT or Apache-2.0 (https://github.com/rust-lang/rust/blob/master/COPYRIGHT).",
    ]
    for text, names in sorted(users.items(), key=lambda entry: entry[1]):
        out += ["", "=" * 100, *names, "-" * 100, text]
    print("\n".join(out))


def script_text(name):
    """The licence text of a script, from node_modules beside the sources or in the build's output."""
    places = [f"{WEB}/node_modules/{name}"]
    for base, directories, _ in os.walk("target"):
        depth = base.count(os.sep)
        if depth >= 6:
            directories.clear()
        if base.endswith(f"out/web/node_modules/{name}") or os.path.isdir(f"{base}/out/web/node_modules/{name}"):
            places.append(base if base.endswith(name) else f"{base}/out/web/node_modules/{name}")
    for place in places:
        texts = texts_in(place) if os.path.isdir(place) else []
        if texts:
            return texts[0]
    sys.exit(f"third_party: the text of {name}'s licence is missing: run npm ci in {WEB}, or build first")


def component(package, checksum):
    name, version = package["name"], package["version"]
    own = package["source"] is None
    made = {
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "purl": reference(package),
        "licenses": [{"expression": package["license"].replace("/", " OR ").replace("  ", " ")}],
    }
    if not own:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def sbom():
    packages, by_id = shipped(metadata())
    sums = checksums()
    with open("Cargo.lock", "rb") as lock, open(f"{WEB}/package-lock.json", "rb") as web:
        content = hashlib.sha256(lock.read() + web.read()).hexdigest()
    components, dependencies = [], []
    for package, below in packages:
        components.append(component(package, sums.get((package["name"], package["version"]))))
        dependencies.append({"ref": reference(package), "dependsOn": [reference(by_id[key]) for key in below]})
    for name, pinned in scripts():
        purl = f"pkg:npm/{name}@{pinned['version']}"
        components.append({
            "type": "library", "bom-ref": purl, "name": name, "version": pinned["version"], "purl": purl,
            "licenses": [{"expression": pinned.get("license", "MIT")}],
        })
    root = next(package for package, _ in packages if package["name"] == ROOTS[0])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # Derived from the locked dependencies, not from the time, so that the bill is reproducible.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": f"flatwater@{root['version']}", "name": "flatwater",
                "version": root["version"], "licenses": [{"expression": root["license"]}],
            },
            "properties": [{"name": "flatwater:target", "value": TARGET}],
        },
        "components": components,
        "dependencies": [
            {"ref": f"flatwater@{root['version']}",
             "dependsOn": [reference(package) for package, _ in packages if package["name"] in ROOTS]
             + [f"pkg:npm/{name}@{pinned['version']}" for name, pinned in scripts()]},
            *dependencies,
        ],
    }
    print(json.dumps(document, indent=1, sort_keys=True))


if __name__ == "__main__":
    what = {"licences": licences, "sbom": sbom}.get(sys.argv[1] if len(sys.argv) == 2 else "")
    if what is None:
        sys.exit(__doc__)
    what()
