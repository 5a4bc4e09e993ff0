#!/usr/bin/env python3
"""Prints the project's budgets and the present figures. Counts are taken now; times are from the last `make test`,
`make test-long`, `make demo` and `make build` from scratch, stored in target/. Figures over budget are marked, and make the exit status 1."""

import json
import os
import re
import subprocess
import sys
import tempfile

import timed

with open("tests/style-words.txt", encoding="utf-8") as listed:
    WORDS = listed.read().splitlines()
# Written by a program and compared by a test: a whole page, and parts of pages between two comments.
GENERATED = ("docs/causes.md",)
GENERATED_PART = re.compile(r"<!-- (\w+): (?:begin|generated)[^>]*-->.*?<!-- (?:\1: end|end of \1) -->", re.DOTALL)
# The static binary of `tools/cross.sh static`, or that of `make build`, which is almost as large.
BINARIES = [
    ("static binary", "target/x86_64-unknown-linux-musl/release/flatwater"),
    ("binary of `make build`, stripped", "target/release/flatwater"),
]


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [path for path in listed.split("\0") if path and os.path.isfile(path)]


def text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def lines(paths):
    return sum(text(path).count("\n") for path in paths)


def words(paths):
    return sum(len(GENERATED_PART.sub("", text(path)).split()) for path in paths)


def listed_words(paths):
    """Number of words from the style guide's list in comments, strings and prose."""
    pattern = re.compile(r"\b(" + "|".join(WORDS) + r")\b", re.IGNORECASE)
    found = 0
    for path in paths:
        content = text(path)
        if path.endswith(".rs"):
            content = "\n".join(re.findall(r'//.*|"(?:[^"\\\n]|\\.)*"', content))
        found += len(pattern.findall(content))
    return found


def minutes(name, kind):
    """Minutes of the last recorded `make NAME`, whose file has a list of stages or a single entry."""
    stages = stored(f"target/{name}-times.json")
    if stages is None:
        return None
    return sum(stage[kind] for stage in (stages if isinstance(stages, list) else [stages])) / 60


def binary():
    """Name and stripped size in MB of the newest build that exists."""
    built = [(name, path) for name, path in BINARIES if os.path.exists(path)]
    if not built:
        return BINARIES[0][0], None
    name, path = max(built, key=lambda one: os.path.getmtime(one[1]))
    with tempfile.NamedTemporaryFile() as stripped:
        subprocess.run(["strip", "-o", stripped.name, path], check=True)
        return name, os.path.getsize(stripped.name) / 1e6


def stored(path):
    try:
        return json.loads(text(path))
    except (OSError, ValueError):
        return None


def print_times():
    """The recorded use of the builds and of the stages of `make test`, and the times of the parts of `make test-long`."""
    builds = [(f"build of `make {name}`", stored(f"target/{name}-times.json")) for name in ("demo", "build")]
    stages = [(f"`make test`, {stage['stage']}", stage) for stage in stored("target/test-times.json") or []]
    for name, use in builds + stages:
        if use is None:
            print(f"{name:38} {'not measured':>12}")
            continue
        more = [f"{use['cpu_s'] / 60:.1f} min CPU", timed.memory(use), "" if use.get("passed", True) else "FAILED"]
        print(f"{name:38} {use['wall_s'] / 60:>12.1f}   min, {', '.join(filter(None, more))}")
    if os.path.isdir("target"):
        size = subprocess.run(["du", "-sm", "target"], check=False, stdout=subprocess.PIPE, text=True).stdout
        print(f"{'size of target/':38} {int(size.split()[0]) / 1024:>12.1f}   GiB")
    for name, part in sorted((stored("target/long-times.json") or {}).items()):
        failed = "" if part["passed"] else ", FAILED"
        print(f"{'`make test-' + name + '`':38} {part['minutes']:>12.1f}   min on {part['day']}{failed}")


def main():
    rust, docs = tracked("*.rs"), tracked("docs/*.md")
    rows = [
        ("build of `make demo`, CPU", minutes("demo", "cpu_s"), 6, "min"),
        ("build of `make demo`, wall", minutes("demo", "wall_s"), 3.5, "min"),
        ("`make test`, wall", minutes("test", "wall_s"), 15, "min"),
        ("Rust lines, tests included", lines(rust), 150_000, ""),
        ("crates/sim, lines", lines(tracked("crates/sim/*.rs")), 18_000, ""),
        ("hand-written words in docs/", words(path for path in docs if path not in GENERATED), 35_000, ""),
        ("words in CHANGELOG.md", words(["CHANGELOG.md"]), 2_500, ""),
        ("words on the style list", listed_words(rust + docs + ["README.md", "ARCHITECTURE.md", "SECURITY.md"]), 0, ""),
        (*binary(), 16, "MB"),
    ]
    over = 0
    for name, value, budget, unit in rows:
        if value is None:
            print(f"{name:38} {'not measured':>12}   budget {budget} {unit}")
            continue
        exceeds = value > budget
        over += exceeds
        shown = f"{value:,.0f}" if isinstance(value, int) else f"{value:,.1f}"
        print(f"{name:38} {shown:>12}   budget {budget:,} {unit}{'   OVER' if exceeds else ''}")
    print_times()
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
