"""Compares fio's own latencies with those of a recording of its whole run (`record -- fio ...`)."""

import json
import subprocess

import score
import victims

SECONDS = 8
ENGINES = [("psync", ("--fsync=16",)), ("pvsync2", ("--fsync=16",)), ("io_uring", ("--iodepth=4", "--fsync=16")),
           ("libaio", ("--iodepth=4", "--direct=1")), ("psync", ("--rw=randread", "--invalidate=1")),
           ("mmap", ("--rw=randread", "--invalidate=1"))]
# Engines whose calls do the work themselves.
SYNCHRONOUS = {"psync", "pvsync2", "mmap"}


def one(options, stage, engine, more):
    """Yields fio's figures and ours for each kind of operation."""
    home = stage.disk.mount / "victim"
    home.mkdir(exist_ok=True)
    subprocess.run(["dd", "if=/dev/zero", f"of={home}/victim.0.0", "bs=1M", "count=128", "conv=fsync"], check=True, stderr=subprocess.DEVNULL)
    result = stage.scratch / "fio.json"
    fio = ["fio", "--name=victim", f"--directory={home}", "--rw=randwrite", "--bs=8k", "--size=128m", "--fallocate=none", "--overwrite=0",
           f"--runtime={SECONDS}", "--time_based", "--rate_iops=300", "--thread=0", "--output-format=json", f"--output={result}",
           "--lat_percentiles=1", "--clat_percentiles=1", "--percentile_list=50:99:99.9", f"--ioengine={engine}", *more]
    words = [options.flatwater, "record", "--format", "json", "-o", stage.scratch / f"recording-{engine}-{len(more)}", "--", *fio]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    if done.returncode not in (0, 4):
        raise RuntimeError(f"flatwater record: {done.stderr.strip()[-600:]}")
    # fio's own output comes first on standard output.
    explained = json.loads(done.stdout[done.stdout.index('{\n  "flatwater"'):])
    own = victims.fio_kinds(result.read_text(), engine in SYNCHRONOUS)
    lines = [line for line in explained["operations"] if not line.get("thread")]
    for kind, figures in own.items():
        # Reads of a mapped file are faults, not calls, and most reads of a cached page are neither.
        names = ("page-fault",) if engine == "mmap" else score.OURS[kind]
        ours = [line for line in lines if line["name"] in names]
        if ours:
            yield kind, figures, max(ours, key=lambda line: line["count"])


def table(options, stage, rounds):
    """Medians over the rounds of ours / fio's; counts are those of the last round."""
    found = {}
    for _ in range(rounds):
        for engine, more in ENGINES:
            for kind, own, ours in one(options, stage, engine, more):
                found.setdefault((engine, kind), []).append((own, ours))
    lines = ["| engine | operation | p50 us, fio / ours | p99 us | longest us | count | ours / fio's p50, p99, longest |",
             "|---|---|---:|---:|---:|---:|---:|"]
    for (engine, kind), pairs in found.items():
        own, ours = pairs[-1]
        ratios = []
        for key in ("p50_ns", "p99_ns", "max_ns"):
            each = sorted(ours[key] / own[key] for own, ours in pairs if own[key])
            ratios.append(f"{each[len(each) // 2]:.2f}" if each else "-")
        cells = [f"{own[key] / 1e3:.0f} / {ours[key] / 1e3:.0f}" for key in ("p50_ns", "p99_ns", "max_ns")]
        lines.append(f"| {engine} | {kind} | " + " | ".join(cells) + f" | {own['count']} / {ours['count']} | {', '.join(ratios)} |")
    return "\n".join(lines)
