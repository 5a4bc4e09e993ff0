#!/usr/bin/env python3
"""Runs `cargo test` to its end and says in one table what failed and what took longest.

Those that only compute (MODEL) are as many at once as there are CPUs; then all others, as many at once as the caller says.

Some tests make real stalls on the machine that they run on, and somebody else's burst of I/O or CPU can spoil one. What
fails of those (MACHINE) is run once more, alone: what passes then is listed as UNSTEADY, what fails again fails the run.
Nothing else is repeated: a race, a lost byte or a wrong figure that shows once is a fault. Nor is anything where many fail.

usage: tools/test.py TEST_THREADS [cargo test's arguments...]
"""

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

REPEATED_AT_MOST = 8
# Targets, as cargo names them, whose tests need the machine to stall, or not to, at their bidding.
MACHINE = {
    ("flatwater", name)
    for name in ("ground_truth", "host_scenarios", "matrix", "record_targets", "sampler", "setup_verify", "tracing_foreign", "tracing_own",
                 "vm_boot", "vm_cgroup2", "watch")
} | {("flatwater-host", "waits")}
# Targets that only compute, the longest first: nothing else on the machine changes their outcome, nor do they change it. With package and
# directory; no other package has a target of such a name.
CLI = ("flatwater", "crates/cli")
MODEL = {"predict": CLI, "sim_mail": CLI, "golden": ("flatwater-import", "crates/import"), "sim_graphdb": CLI, "sim_sdet": CLI,
         "model_many": ("precursor", "precursor"), "score_logs": CLI, "swarm": CLI, "sim_journal": CLI, "sim_numa": CLI, "sim_cgroup": CLI,
         "sim_cases": CLI, "sim_devices": CLI, "sim_constants": CLI, "whatif": CLI}
SLOWEST = 12
BUILT = re.compile(r"^\s+Executable (unittests )?(\S+) \((.+)\)$")

RUNNING = re.compile(r"^\s+(?:Running|Doc-tests)\s+(.+?)(?:\s+\(.*\))?$")
FAILED = re.compile(r"^test (.+?) \.\.\. FAILED$")
# Said by the harness after a binary's tests; output that is not captured may stand before "FAILED" on a test's own line.
LISTED = re.compile(r"^    (\S.*)$")
RERUN = re.compile(r"to rerun pass `([^`]+)`")
PASSED = re.compile(r"^test result: ok\. (\d+) passed")


def lines(run):
    """What it says, line by line, passed on."""
    for line in run.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        yield line.rstrip("\n")


def watch(command):
    """Runs it, passes its output on; returns status, [(target, [tests])] that failed, [(seconds, binary)], tests passed."""
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    failed, tests, times, listing, passed = [], [], [], False, 0
    binary, since = None, time.monotonic()
    for line in lines(run):
        if found := RUNNING.match(line):
            if binary:
                times.append((time.monotonic() - since, binary))
            binary, since, tests, listing = found[1], time.monotonic(), [], False
        elif found := FAILED.match(line):
            tests.append(found[1])
        elif line == "failures:":
            listing = True
        elif listing and (found := LISTED.match(line)):
            tests.append(found[1])
        elif line and not line.startswith(" "):
            listing = False
        if found := PASSED.match(line):
            passed += int(found[1])
        if found := RERUN.search(line):
            failed.append((found[1].split(), sorted(set(tests))))
            tests = []
    if binary:
        times.append((time.monotonic() - since, binary))
    return run.wait(), failed, times, passed


def build(command):
    """Builds all tests; returns status and what can be run of integration tests: {target: path}."""
    run = subprocess.Popen(command + ["--no-run"], env=dict(os.environ, CARGO_TERM_COLOR="never"), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, errors="replace")
    targets = {}
    for line in lines(run):
        if (found := BUILT.match(line)) and not found[1]:
            targets[os.path.basename(found[3]).rsplit("-", 1)[0]] = os.path.abspath(found[3])
    return run.wait(), targets


def model(targets):
    """Runs those that only compute, several at once; returns what failed as `watch` does."""

    def one(name):
        directory = os.path.abspath(MODEL[name][1])
        begun = time.monotonic()
        run = subprocess.run([targets[name], "--test-threads", "1"], cwd=directory, env=dict(os.environ, CARGO_MANIFEST_DIR=directory),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return name, run.returncode, run.stdout, time.monotonic() - begun

    status, failed, times = 0, [], []
    with ThreadPoolExecutor(os.cpu_count()) as at_once:
        for name, code, output, seconds in at_once.map(one, [name for name in MODEL if name in targets]):
            print(f"     Running {name} (several at once)\n{output}", flush=True)
            times.append((seconds, name))
            if code != 0:
                status = code
                tests = [found[1] for found in map(FAILED.match, output.splitlines()) if found]
                failed.append((["-p", MODEL[name][0], "--test", name], sorted(set(tests))))
    return status, failed, times


def others(targets):
    """What `cargo test` is told to run besides."""
    names = sorted(set(targets) - set(MODEL))
    return ["--lib", "--bins"] + [word for name in names for word in ("--test", name)]


def is_of_the_machine(target):
    """Of `-p PACKAGE --test NAME`."""
    return len(target) == 4 and target[0::2] == ["-p", "--test"] and (target[1], target[3]) in MACHINE


def again(cargo, target, tests):
    """Whether these tests of a target pass alone; all of them where no name is known (it crashed)."""
    ran = 0
    for test in tests or [None]:
        only = ["--exact", test] if test and "--doc" not in target else []
        command = cargo + ["test"] + target + ["--", "--test-threads", "1"] + only
        print("test: once more, alone:", " ".join(command), flush=True)
        status, _, _, passed = watch(command)
        if status != 0:
            return False
        ran += passed
    # A name that was no test's (a line of somebody's output) runs nothing, which is no pass.
    return ran > 0


def main():
    threads, more = sys.argv[1], sys.argv[2:]
    cargo = [os.environ.get("CARGO", "cargo")]
    status, targets = build(cargo + ["test"] + more)
    if status != 0:
        print("test: a test could not be built: see above")
        return status
    if not targets:
        # Without their names the integration tests would be left out, and what is left would pass.
        print("test: no integration test among what cargo built: its lines `Executable ... (PATH)` are not as BUILT in tools/test.py has them")
        return 1
    status, failed, times = model(targets)
    for selection in (others(targets), ["--doc"]):
        own = watch(cargo + ["test", "--no-fail-fast"] + more + selection + ["--", "--test-threads", threads])
        status, failed, times = status or own[0], failed + own[1], times + own[2]
    print("test: slowest:", ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(times, reverse=True)[:SLOWEST]))
    if status == 0:
        return 0
    count = sum(max(1, len(tests)) for _, tests in failed)
    if count == 0 or count > REPEATED_AT_MOST:
        print(f"test: {count} failed" if count else "test: cargo failed before a test did: see above")
        for target, tests in failed:
            print("test: FAILED", " ".join(target), *tests)
        return status
    verdicts = [(target, tests, is_of_the_machine(target) and again(cargo, target, tests)) for target, tests in failed]
    for target, tests, passed in verdicts:
        word = "UNSTEADY (failed, then passed alone)" if passed else "FAILED"
        print(f"test: {word}:", " ".join(target), *tests)
    return 0 if all(passed for _, _, passed in verdicts) else status


if __name__ == "__main__":
    sys.exit(main())
