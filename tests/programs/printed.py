"""Applies the first fix of a report that has commands, as printed, and undoes it."""

import contextlib
import re
import subprocess

# p99 with the fix / p99 without it, for a fix that helps and one that harms.
HELPS, HARMS = 0.8, 1.2


def first(explained):
    """The fix with the lowest number among those with commands; None if no fix has commands."""
    fixes = [fix for finding in explained["findings"] for part in (finding, *finding.get("stages", [])) for fix in part.get("fixes", [])]
    return min((fix for fix in fixes if fix.get("commands")), key=lambda fix: fix["number"], default=None)


def shell(line):
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20)
    return done.stdout.strip(), done.stderr.strip() if done.returncode else ""


@contextlib.contextmanager
def applied(fix):
    """Applies the fix, yields the errors of the commands, and undoes the fix with the values that the commands printed."""
    printed, errors = [], []
    try:
        for line in fix["commands"]:
            out, error = shell(line)
            printed.append(out)
            errors += [f"{line}: {error}"] if error else []
        yield errors
    finally:
        values = dict(re.findall(r"^(OLD_\d+): *(.*)$", "\n".join(printed), re.MULTILINE))
        for line in fix.get("undo", []):
            for name, value in sorted(values.items(), reverse=True):
                line = line.replace(name, value)
            shell(line.replace("OLD", printed[0] if printed else ""))


def table(rows):
    """p99 of each program's own operations before and with the fix, and how many fixes helped or harmed."""
    tried = [row["printed"] | {"cell": f"{row['program']} beside {row['beside']}"} for row in rows if row.get("printed")]
    lines = ["| cell | fix | p99 ms before | with it | ratio |", "|---|---|---:|---:|---:|"]
    ratios = []
    for row in tried:
        failed = "; not applied: " + row["errors"][0] if row["errors"] else ""
        ratio = row["with_ms"] / row["before_ms"] if row["before_ms"] else float("nan")
        ratios.append(ratio)
        lines.append(f"| {row['cell']} | {row['text']}{failed} | {row['before_ms']:.1f} | {row['with_ms']:.1f} | {ratio:.2f} |")
    helped, harmed = sum(ratio <= HELPS for ratio in ratios), sum(ratio > HARMS for ratio in ratios)
    return "\n".join([*lines, "", f"of {len(ratios)} fixes {helped} improved p99 by 20 %, {harmed} made it worse by 20 %"])
