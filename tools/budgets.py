#!/usr/bin/env python3
"""Prints the project's budgets and the present figures. Counts are taken now; times are from the last `make test` and the last
timed `make demo`, stored in target/. Figures over budget are marked, and make the exit status 1."""

import json
import os
import re
import subprocess
import sys

with open("tests/style-words.txt", encoding="utf-8") as listed:
    WORDS = listed.read().splitlines()
# Written by a program and compared by a test: a whole page, and parts of pages between two comments.
GENERATED = ("docs/causes.md",)
GENERATED_PART = re.compile(r"<!-- (\w+): (?:begin|generated)[^>]*-->.*?<!-- (?:\1: end|end of \1) -->", re.DOTALL)
BINARY = "target/x86_64-unknown-linux-musl/release/flatwater"


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
    try:
        stages = json.loads(text(f"target/{name}-times.json"))
    except (OSError, ValueError):
        return None
    return sum(stage[kind] for stage in (stages if isinstance(stages, list) else [stages])) / 60


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
        ("static binary", os.path.getsize(BINARY) / 1e6 if os.path.exists(BINARY) else None, 16, "MB"),
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
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
