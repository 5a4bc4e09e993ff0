#!/usr/bin/env python3
"""Runs the stages of `make test` in order, then prints the time of each stage and the ten slowest tests.

    tools/test.py            all stages
    tools/test.py STAGE...   only these stages

A failed stage does not stop later ones, except that nothing runs after a failed build. The exit status is 1 if any stage
failed. target/test-times.json keeps the times for `make budgets`.
"""

import glob
import json
import os
import sys
import xml.etree.ElementTree as xml

import timed

CARGO = os.environ.get("CARGO", "cargo")
FLEET = ["--manifest-path", "crates/fleet/Cargo.toml"]
JUNIT = "target/nextest/default/junit.xml"
TIMES = "target/test-times.json"
SLOWEST = 10
# Length of a failed attempt's message in the report.
PANIC_MAX = 600
# clippy-driver is rustc with more lints. As the wrapper of rustc it lints the workspace while it compiles, so `cargo clippy` need
# not compile every dependency a second time.
LINT = {"RUSTC_WORKSPACE_WRAPPER": "clippy-driver", "CLIPPY_ARGS": "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"}

# `cargo fmt` does not follow modules that a macro declares.
CAUSES = ["rustfmt", "--edition", "2024", "--check", *sorted(glob.glob("crates/explain/src/cause/*.rs"))]

STAGES = {
    "format": [[CARGO, "fmt", "--all", "--check"], [CARGO, "fmt", *FLEET, "--check"], CAUSES],
    "licences": [["tools/deny.sh"]],
    "page": [["tools/web.sh"]],
    # Compiles everything once and lints it (see LINT). `make lint` also lints benches and examples.
    "build": [[CARGO, "build", "--workspace", "--bins", "--tests", "--quiet"]],
    # One old and one new kernel for the tests in guests. Their packages are downloaded once.
    "kernels": [["env", "FLATWATER=target/debug/flatwater", "tools/matrix.sh", "fetch", "5.10,7.3"]],
    "tests": [[CARGO, "nextest", "run", "--workspace"]],
    "doctests": [[CARGO, "test", "--workspace", "--doc", "--quiet"]],
}


def run_stage(name):
    """Runs a stage until a command fails. Returns what its commands used, and whether all succeeded."""
    print(f"== {name}", flush=True)
    stage = {"stage": name, "wall_s": 0, "cpu_s": 0, "passed": True}
    for command in STAGES[name]:
        # Only the build's memory is sampled: samples would disturb tests that measure times.
        status, use = timed.run(command, sampled=name == "build")
        stage.update(use, wall_s=stage["wall_s"] + use["wall_s"], cpu_s=stage["cpu_s"] + use["cpu_s"])
        if status != 0:
            stage["passed"] = False
            break
    return stage


def panic(failure):
    """The place and the message of a panic in the text of a failed attempt."""
    lines = "".join(failure.itertext()).splitlines()
    begin = next((at for at, line in enumerate(lines) if "panicked at" in line), 0)
    return " ".join(lines[begin : begin + 2])[:PANIC_MAX]


def tests():
    """(seconds, name, outcome, messages of failed attempts) of each test of the last run, slowest first."""
    found = []
    for suite in xml.parse(JUNIT).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            ended = "failed" if case.find("failure") is not None else "passed"
            if case.find("flakyFailure") is not None:
                ended = "passed when repeated"
            failures = [panic(failure) for failure in case.findall("flakyFailure")]
            found.append((float(case.get("time", 0)), f"{suite.get('name')} {case.get('name')}", ended, failures))
    return sorted(found, reverse=True)


def report(stages):
    print("\nstage        wall     CPU")
    for stage in stages:
        print(f"{stage['stage']:9} {stage['wall_s']:5.0f} s {stage['cpu_s']:5.0f} s{'' if stage['passed'] else '   FAILED'}")
    print(f"{'all':9} {sum(stage['wall_s'] for stage in stages):5.0f} s {sum(stage['cpu_s'] for stage in stages):5.0f} s")
    for stage in stages:
        if timed.memory(stage):
            print(f"memory of the {stage['stage']}: {timed.memory(stage)}")
    if not any(stage["stage"] == "tests" for stage in stages) or not os.path.exists(JUNIT):
        return
    found = tests()
    print(f"\nslowest of {len(found)} tests:")
    for seconds, name, _, _ in found[:SLOWEST]:
        print(f"{seconds:7.1f} s  {name}")
    for _, name, ended, failures in found:
        if ended != "passed":
            print(f"{ended}: {name}")
        for failure in failures:
            print(f"    {failure}")


def main():
    names = sys.argv[1:] or list(STAGES)
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        print(f"test: unknown stage {unknown[0]}; the stages are {', '.join(STAGES)}", file=sys.stderr)
        return 2
    os.environ["PATH"] = f"{os.getcwd()}/target/tools/bin:{os.environ['PATH']}"
    os.environ.update(LINT)
    stages = []
    for name in names:
        stages.append(run_stage(name))
        if name == "build" and not stages[-1]["passed"]:
            break
    report(stages)
    if not sys.argv[1:]:
        with open(TIMES, "w", encoding="utf-8") as file:
            json.dump(stages, file)
    failed = [stage["stage"] for stage in stages if not stage["passed"]]
    print(f"\ntest: failed: {', '.join(failed)}" if failed else "\ntest: all stages passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
