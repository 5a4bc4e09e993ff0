#!/usr/bin/env python3
"""The tests that `make test` omits, in parts.

    tools/long.py all                 every part
    tools/long.py PART...             these parts (docs/development.md lists them with their times)
    tools/long.py --changed MINUTES   the parts whose crates changed today, as far as they fit into MINUTES
"""

import json
import os
import subprocess
import sys
import time

CARGO = os.environ.get("CARGO", "cargo")
PYTHON = os.environ.get("FLEET_PYTHON", "python3")
FLEET = ["--manifest-path", "crates/fleet/Cargo.toml"]
# Shares the crates that `make test` compiled.
SHARED = [*FLEET, "--target-dir", "target"]
FLATWATER = "target/release/flatwater"
TIMES = "target/long-times.json"
# See tools/test.py.
LINT = ["RUSTC_WORKSPACE_WRAPPER=clippy-driver", "CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"]


def ignored(package, pattern, *more):
    """The ignored tests of a package whose names match."""
    chosen = f"package({package}) & test(/{pattern}/) - test(/writes_|make_the_fixture/)"
    return [CARGO, "nextest", "run", "-p", package, "--run-ignored", "only", "--profile", "long", "-E", chosen, *more]


RELEASE = ["make", "--no-print-directory", "build"]
# Part: minutes on two idle cores, what it covers (paths below the root), the commands.
PARTS = {
    "model": (40, ["crates/sim", "crates/workload"], [
        ignored("flatwater", "^sim_"),
        ["env", "FLATWATER_SWARM=2000", CARGO, "nextest", "run", "-p", "flatwater", "--profile", "long", "-E", "test(/^swarm::/)"],
    ]),
    # Lints while it compiles, so that DataFusion is compiled once.
    "fleet": (25, ["crates/fleet", "crates/recording", "crates/explain", "crates/experiment"], [
        ["tools/s3.sh"],
        ["env", *LINT, CARGO, "build", *SHARED, "--bins", "--tests", "--benches", "--quiet"],
        ["env", *LINT, CARGO, "nextest", "run", *SHARED, "--run-ignored", "all", "-E", "all() - test(/^ballista::/)"],
    ]),
    # Every question on DataFusion, without the long tests and the S3 server.
    "fleet-questions": (9, ["crates/fleet"], [
        ["env", *LINT, CARGO, "nextest", "run", *SHARED, "-E", "test(/^(questions|page|bad_input)::/) | test(/^ask::/)"],
    ]),
    # The fleet without DataFusion: pushes, compaction, findings, rollouts and hostile hosts.
    "fleet-hosts": (4, ["crates/fleet", "crates/recording", "crates/explain", "crates/experiment"], [
        [CARGO, "nextest", "run", *SHARED, "--no-default-features"],
    ]),
    "fleet-engines": (45, ["crates/fleet/src/ask"], [
        [CARGO, "clippy", *FLEET, "--all-targets", "--features", "ballista-cluster", "--", "-D", "warnings"],
        [CARGO, "test", *FLEET, "--features", "ballista-cluster", "--lib", "cluster"],
        [CARGO, "test", *FLEET, "--features", "ballista-cluster", "--test", "fleet", "--", "--ignored", "--test-threads", "1", "ballista::"],
        [CARGO, "build", *FLEET],
        [PYTHON, "crates/fleet/tests/engines.py", "duckdb", "spark", "clickhouse", "--fleet", "crates/fleet/target/debug/flatwater-fleet"],
    ]),
    "import": (10, ["crates/import"], [["env", "FLATWATER_LONG=1", CARGO, "nextest", "run", "-p", "flatwater-import", "--profile", "long"]]),
    "kills": (10, ["crates/host/src/setup", "crates/safefs"], [
        ["env", "FLATWATER_KILLS=0..300", CARGO, "nextest", "run", "-p", "flatwater", "--profile", "long", "-E", "test(/^setup_kill9::/)"],
    ]),
    "guard": (28, ["crates/guard", "crates/host/src/setup", "crates/watch/src/guard"], [ignored("flatwater", "^(matrix::the_guard|watch::guard)")]),
    "kernels": (60, ["crates/vm", "crates/host/bpf", "tests/matrix"], [
        RELEASE, ["tools/matrix.sh"], ignored("flatwater", "^(vm_long|vm_cgroup2)"),
    ]),
    "power-cuts": (31, ["precursor"], [
        ["env", "PRECURSOR_MODEL_SECONDS=60", CARGO, "nextest", "run", "-p", "precursor", "--profile", "long", "-E", "test(/^model_/)"],
        ignored("precursor", ""),
    ]),
    "verify": (8, ["crates/experiment", "crates/host"], [ignored("flatwater", "^(setup_verify|record_targets)")]),
    "watch": (75, ["crates/watch", "crates/top"], [ignored("flatwater", "^watch")]),
    "packages": (15, ["packaging", "tools/package.sh", "tools/install.sh"], [RELEASE, ignored("flatwater", "^(packages|supply_chain)")]),
    "cross": (5, ["crates/host", "crates/vm"], [["tools/cross.sh"]]),
    # 10,000 children, 5,000 threads, 200,000 calls per second: memory stays bounded, and lost events are counted.
    "storms": (12, ["crates/host"], [RELEASE, ["python3", "tests/programs/storms.py", "--flatwater", FLATWATER]]),
}


def changed_paths():
    """Paths that changed since the newest commit that is at least 12 hours older than HEAD: today's work."""
    def git(*arguments):
        return subprocess.run(["git", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    newest = int(git("log", "-1", "--format=%ct"))
    base = git("rev-list", "-1", f"--before={newest - 12 * 3600}", "HEAD")
    return git("diff", "--name-only", base, "HEAD").splitlines() if base else []


def chosen_parts(words):
    if words == ["all"]:
        return list(PARTS)
    if words[:1] != ["--changed"]:
        return words
    minutes_left, paths, chosen = float(words[1]), changed_paths(), []
    # DataFusion first: no stage of `make test` compiles it.
    for name, (minutes, covers, _) in sorted(PARTS.items(), key=lambda part: (part[0] != "fleet-questions", part[1][0])):
        if not any(path.startswith(cover) for path in paths for cover in covers):
            continue
        if minutes <= minutes_left:
            minutes_left -= minutes
            chosen.append(name)
        else:
            print(f"long: this change touches {', '.join(covers)}: run `make test-{name}` ({minutes} min), which does not fit here")
    return chosen


def record(name, minutes, passed):
    """Stores the time of a part for `make budgets`."""
    try:
        with open(TIMES, encoding="utf-8") as file:
            parts = json.load(file)
    except (OSError, ValueError):
        parts = {}
    parts[name] = {"minutes": round(minutes, 1), "passed": passed, "day": time.strftime("%Y-%m-%d")}
    with open(TIMES, "w", encoding="utf-8") as file:
        json.dump(parts, file)


def main():
    words = sys.argv[1:]
    if not words or (words[0] == "--changed" and len(words) != 2):
        sys.exit(__doc__)
    names = chosen_parts(words)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"long: unknown part {unknown[0]}; the parts are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    os.environ["PATH"] = f"{os.getcwd()}/target/tools/bin:{os.environ['PATH']}"
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        begin = time.monotonic()
        # Each command runs, so that one failure does not hide the next.
        if not all([subprocess.run(command, check=False).returncode == 0 for command in PARTS[name][2]]):
            failed.append(name)
        minutes = (time.monotonic() - begin) / 60
        print(f"== {name}: {minutes:.1f} min", flush=True)
        record(name, minutes, name not in failed)
    print(f"long: failed: {', '.join(failed)}" if failed else "long: all parts passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
