"""Applies the first fix of a report that has commands, as printed, and undoes it."""

import contextlib
import re
import subprocess
import sys

# p99 with the fix / p99 without it, for a fix that helps and one that harms.
HELPS, HARMS = 0.8, 1.2


def first(explained):
    """The fix with the lowest number among those with commands; None if no fix has commands."""
    fixes = [fix for finding in explained["findings"] for part in (finding, *finding.get("stages", [])) for fix in part.get("fixes", [])]
    return min((fix for fix in fixes if fix.get("commands")), key=lambda fix: fix["number"], default=None)


SECONDS_MAX = 20


def shell(line, seconds=SECONDS_MAX):
    """Output of the command, and why it failed; empty if it succeeded."""
    try:
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "", f"not finished after {seconds} s"
    why = done.stderr.strip() or f"exit status {done.returncode}"
    return done.stdout.strip(), why if done.returncode else ""


@contextlib.contextmanager
def applied(fix, run=shell):
    """Applies the fix, yields the errors of the commands, and undoes the fix with the values that the commands printed.

    Every command of the undo runs, whatever fails before. The errors of the undo are printed, and appended to the
    yielded list.
    """
    printed, errors = [], []

    def perform(line, failed):
        out, error = run(line)
        if error:
            errors.append(f"{failed}: {line}: {error}")
        return out

    try:
        for line in fix["commands"]:
            printed.append(perform(line, "not applied"))
        yield errors
    finally:
        values = dict(re.findall(r"^(OLD_\d+): *(.*)$", "\n".join(printed), re.MULTILINE))
        for line in fix.get("undo", []):
            for name, value in sorted(values.items(), reverse=True):
                line = line.replace(name, value)
            perform(line.replace("OLD", printed[0] if printed else ""), "not undone")
        for error in errors:
            print(f"printed: {error}", file=sys.stderr)


def table(rows):
    """p99 of each program's own operations before and with the fix, and how many fixes helped or harmed."""
    tried = [row["printed"] | {"cell": f"{row['program']} beside {row['beside']}"} for row in rows if row.get("printed")]
    lines = ["| cell | fix | p99 ms before | with it | ratio |", "|---|---|---:|---:|---:|"]
    ratios = []
    for row in tried:
        failed = "; " + row["errors"][0] if row["errors"] else ""
        ratio = row["with_ms"] / row["before_ms"] if row["before_ms"] else float("nan")
        ratios.append(ratio)
        lines.append(f"| {row['cell']} | {row['text']}{failed} | {row['before_ms']:.1f} | {row['with_ms']:.1f} | {ratio:.2f} |")
    helped, harmed = sum(ratio <= HELPS for ratio in ratios), sum(ratio > HARMS for ratio in ratios)
    return "\n".join([*lines, "", f"of {len(ratios)} fixes {helped} improved p99 by 20 %, {harmed} made it worse by 20 %"])
