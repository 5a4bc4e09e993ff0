"""Records real programs with `record -p`, alone and beside known neighbours, and explains the recordings without knowing the cause.

    programs.py [--flatwater PATH] [--only NAME,..] [--beside NAME,..] [--runs N] [--seconds S] [--out FILE]
                                    with --out, skips runs that the file already contains
    programs.py --table FILE..      prints the tables of earlier results
    programs.py --results FILE..    prints tests/programs/results.csv, from which confidences are counted

The truth is the injected neighbour. The program's own log says whether the program felt it. If the program's longest operation is
under twice the longest of its runs alone, and under 50 ms, the run is listed as not felt and is not judged."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import aggressors
import counters
import latencies
import printed
import victims
import victims_more
import victims_other
from score import aggressor_right, cause_right, felt, named, reliability, results, table
from stage import WITHOUT_CAPABILITIES, Canary, Images, Stage, Unavailable

SETTLE_S = 2
# The program runs this much longer than it is recorded, because a recorder on a busy machine needs a few seconds to start.
MARGIN_S = 4


class TooLong(RuntimeError):
    """A run that did not end in time."""


def bounded(seconds, run):
    """Calls `run`; raises TooLong after `seconds`. The run's stage is removed in any case."""
    def late(*_):
        raise TooLong(f"not finished after {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        return run()
    finally:
        signal.alarm(0)


def begun(out):
    """The wall clock time at which the recording in this directory began; None before that."""
    try:
        clock = json.loads((out / "header.json").read_text())["clock"]
    except (OSError, ValueError, KeyError):
        return None
    return (clock["start_ns"] + clock["wall_offset_ns"]) / 1e9 if clock.get("start_ns") and clock.get("wall_offset_ns") else None


def record(options, victim, out, aggress):
    """Returns the explanation, and the recorded interval. The neighbour starts once the recording has begun, so that the recording and
    the program's log cover the same seconds."""
    # Without capabilities the recorder is a user who owns the program.
    words = [*(WITHOUT_CAPABILITIES if options.without_privileges else []), options.flatwater, "record", "-t", f"{options.seconds}s", "--format", "json", "-o", out]
    for pid in victim.pids():
        words += ["-p", str(pid)]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        recorder = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=said, stderr=complained)
        try:
            until = time.monotonic() + 60
            while begun(out) is None and recorder.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            aggress()
            recorder.wait(options.seconds + 120)
        finally:
            if recorder.poll() is None:
                recorder.kill()
                recorder.wait()
        if recorder.returncode not in (0, 4):
            complained.seek(0)
            raise RuntimeError(f"flatwater record: {complained.read().strip()[-600:]}")
        said.seek(0)
        explained = json.loads(said.read())
    from_s = begun(out)
    return explained, (from_s, from_s + explained["duration_ns"] / 1e9)


def one(options, images, victim_type, aggressor_type, number):
    """One run on a new stage."""
    stage = Stage(images, options.image_mib, aggressor_type.takes_cpus, victim_type.filesystem)
    try:
        recordings = 2 if options.printed else 1
        lasts = recordings * (options.seconds + SETTLE_S + MARGIN_S)
        victim, aggressor = victim_type(stage, lasts), aggressor_type(stage, options.fixed)
        aggressor.prepare(victim)
        victim.prepare()
        # Flush what the preparation wrote, which is not part of the run.
        os.sync()
        victim.load()
        time.sleep(SETTLE_S)
        stage.prefer_its_workers()
        others, canary, below = counters.Others(stage), Canary(), counters.Below(stage.disk.image)
        watch = counters.Watch(stage.disk.device.split("/")[-1], stage.group("memory", "victim").path, set(victim.pids()))
        kept = pathlib.Path(options.keep or stage.scratch) / f"{victim.name}-{aggressor.name}-{number}"
        if kept.exists():
            # Left by a run that failed and has no row.
            shutil.rmtree(kept)
        try:
            explained, window = record(options, victim, kept, lambda: aggressor.start(victim))
        finally:
            watch.stop()
            stood_ms = below.stood_ms()
            load = os.getloadavg()[0]
            disturbed = {**others.so_far(), "late_ms": round(canary.late_ms(), 2), "stood_ms": stood_ms, "load": round(load, 1)}
        tried = tried_fix(options, victim, explained, kept) if options.printed else None
        aggressor.stop()
        own = victim.own_log(window)
        if tried:
            tried |= {"before_ms": own["p99_ms"], "with_ms": victim.own_log(tried.pop("window"))["p99_ms"]}
        victim.stop()
        return {**row(victim, aggressor, number, explained, own, watch), "others": disturbed, "printed": tried}
    finally:
        stage.close()


def tried_fix(options, victim, explained, kept):
    """Applies the first printed fix beside the running neighbour, and records again; None if no fix has commands."""
    fix = printed.first(explained)
    if fix is None:
        return None
    with printed.applied(fix) as errors:
        time.sleep(SETTLE_S)
        again_at = kept.with_name(kept.name + "-printed")
        shutil.rmtree(again_at, ignore_errors=True)
        _, window = record(options, victim, again_at, lambda: None)
    return {"text": fix["text"], "commands": fix["commands"], "errors": errors, "window": window}


def found(explained):
    return [{"cause": finding["cause"], "confidence": finding.get("confidence"), "lost_ns": finding.get("lost_ns"),
                 "basis": [finding.get("duration_basis"), finding.get("cause_basis")],
                 "aggressors": [{"program": one["program"], "cgroup": one.get("cgroup"), "share": one["share"]}
                                for one in finding.get("aggressors", [])],
                 "answerable": finding.get("answerable")} for finding in explained["findings"]]


def again(options, rows):
    """The same runs, explained again from their kept recordings by this build."""
    for row in rows:
        kept = pathlib.Path(options.keep) / f"{row['program']}-{row['beside']}-{row['run']}"
        done = subprocess.run([options.flatwater, "explain", "--format", "json", kept], capture_output=True, text=True)
        if done.returncode not in (0, 4):
            raise RuntimeError(f"flatwater explain {kept}: {done.stderr.strip()[-300:]}")
        explained = json.loads(done.stdout)
        yield {**row, "findings": found(explained), "conclusion": explained["conclusion"], "lead": explained.get("lead")}


def row(victim, aggressor, number, explained, own, watch):
    """The stored results of a run."""
    by_cpu = aggressor.name == "cpu-hog"
    return {"fixed": aggressor.fix if aggressor.fixed else None, "program": victim.name, "beside": aggressor.name, "run": number,
            "own": own, "findings": found(explained),
            "conclusion": explained["conclusion"], "lead": explained.get("lead"), "slow": explained["slow"]["calls"],
            "operations": [{key: line[key] for key in ("name", "count", "p50_ns", "p99_ns", "max_ns")}
                           for line in explained["operations"] if not line.get("thread")],
            "means": watch.means(), "busiest": watch.busiest(by_cpu), "seconds": explained["duration_ns"] / 1e9}


def matrix(options, done=frozenset()):
    """Each program beside each aggressor that can affect it. They take turns, so that changes of the machine affect all alike."""
    wanted = lambda names, name: not names or name in names
    for number in range(options.runs):
        for victim in victims.ALL + victims_more.MORE + victims_other.OTHER:
            for aggressor in aggressors.ALL:
                asked = wanted(options.only, victim.name) and wanted(options.beside, aggressor.name)
                able = aggressor.name.removesuffix("-limit") in ("alone", *victim.beside)
                able &= (victim.name, aggressor.name, number) not in done
                if asked and able and not (aggressor.optional and aggressor.name not in options.beside):
                    yield victim, aggressor, number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: set(filter(None, text.split(",")))
    parser.add_argument("--flatwater", default=shutil.which("flatwater"))
    parser.add_argument("--only", type=names, default=set())
    parser.add_argument("--beside", type=names, default=set())
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--bound", type=int, default=180, help="seconds after which a run has failed")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--keep", help="directory for the recordings")
    parser.add_argument("--fixed", action="store_true", help="apply each neighbour's fix, to see whether it is still felt")
    parser.add_argument("--printed", action="store_true", help="apply the first printed fix, and measure the program's p99 again")
    parser.add_argument("--short", action="store_true",
                        help="fail unless each pair was felt and judged correctly in one of --runs attempts")
    parser.add_argument("--image-mib", type=int, default=2048, help="size of the file system of the programs")
    parser.add_argument("--latencies", action="store_true", help="compare fio's own latencies with ours, in --runs rounds")
    parser.add_argument("--table", nargs="+", type=pathlib.Path)
    parser.add_argument("--without-privileges", action="store_true", help="record without any capability, as a normal user would")
    parser.add_argument("--again", nargs="+", type=pathlib.Path, help="explain the runs of earlier results again from their recordings in --keep")
    parser.add_argument("--results", nargs="+", type=pathlib.Path, help="print results.csv from earlier results, and their reliability")
    options = parser.parse_args()
    Stage.without_capabilities = options.without_privileges
    if options.again:
        for judged in again(options, [json.loads(line) for file in options.again for line in file.read_text().splitlines()]):
            print(json.dumps(judged))
        return 0
    read = lambda files: [json.loads(line) for file in files for line in file.read_text().splitlines()]
    if options.table:
        print(table(read(options.table)))
        return 0
    if options.results:
        print(results(read(options.results)))
        print(reliability(read(options.results)), file=sys.stderr)
        return 0
    # On SIGTERM, remove the stage first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    images = Images()
    try:
        if options.latencies:
            stage = Stage(images, options.image_mib)
            try:
                print(latencies.table(options, stage, options.runs))
            finally:
                stage.close()
            return 0
        return perform(options, images)
    finally:
        images.close()


def perform(options, images):
    rows, missing, failed = [], set(), 0
    if options.out and options.out.exists():
        rows = [json.loads(line) for line in options.out.read_text().splitlines()]
    done = {(row["program"], row["beside"], row["run"]) for row in rows if bool(row["fixed"]) == options.fixed}
    for victim, aggressor, number in matrix(options, done):
        if victim.name in missing or (options.short and passed(rows, victim.name, aggressor.name)):
            continue
        try:
            result = bounded(options.bound, lambda: one(options, images, victim, aggressor, number))
        except Unavailable as why:
            print(f"programs: SKIPPED {victim.name}: {why}", file=sys.stderr)
            missing.add(victim.name)
            continue
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as why:
            print(f"programs: {victim.name} beside {aggressor.name}: the run failed: {why}", file=sys.stderr)
            failed += 1
            continue
        rows.append(result)
        if options.out:
            with open(options.out, "a") as out:
                out.write(json.dumps(result) + "\n")
        top = result["findings"][0]
        print(f"{victim.name} beside {aggressor.name}: worst {result['own']['worst_ms']:.0f} ms by its own log; {result['slow']} "
              f"slow calls, {top['cause']}, {[one['program'] for one in top['aggressors']]}, others {result['others']}", flush=True)
    print(printed.table(rows) if options.printed else table(rows))
    if failed:
        print(f"programs: {failed} runs failed and are not in the table", file=sys.stderr)
    if options.short:
        asked = {(victim.name, aggressor.name) for victim, aggressor, _ in matrix(options)}
        open_cells = sorted(cell for cell in asked if not passed(rows, *cell))
        for program, beside in open_cells:
            print(f"programs: {program} beside {beside}: no run was both felt and judged correctly", file=sys.stderr)
        return 1 if open_cells or not asked else 0
    return 0


def passed(rows, program, beside):
    """Whether a run of this pair was felt by the program and judged correctly; alone, whether one named no process."""
    of_cell = [row for row in rows if (row["program"], row["beside"]) == (program, beside)]
    if beside == "alone":
        return any(not named(row) for row in of_cell)
    return any(felt(row, rows) and cause_right(row) and aggressor_right(row) for row in of_cell)


if __name__ == "__main__":
    sys.exit(main())
