"""Tables of right answers, the confusion matrix, false alarms and the baseline, from the rows of runs."""

from collections import Counter, defaultdict

import aggressors
from counters import rule

KINDS = {kind.name: kind for kind in aggressors.ALL}
HARM_RATIO, HARM_MS = 2.0, 50.0


# A run does not count if a thread of the stage that only sleeps woke this late (95th percentile), because others saturated the machine.
# A run alone does not count if others wrote this much to the disk below during the run.
LATE_MS_MAX, OTHERS_MIB_MAX = 8.0, 64.0
# The disk below, of a virtual machine, completed nothing for at least this share of the program's longest operation. The program's log
# then shows this hang, whatever the neighbour did. Such runs count, but are listed separately.
STOOD_MS_MIN, STOOD_SHARE_MIN = 100.0, 0.5
# In a run alone, naming processes outside the stage that kept this many CPUs busy is not a false alarm.
OTHERS_CPUS_MIN = 0.5


def disturbed(row):
    others = row.get("others", {})
    written = row["beside"] == "alone" and others.get("mib", 0) > OTHERS_MIB_MAX
    return others.get("late_ms", 0) > LATE_MS_MAX or written


def stood_still(row):
    stood_ms = row.get("others", {}).get("stood_ms", 0)
    return stood_ms >= max(STOOD_MS_MIN, STOOD_SHARE_MIN * row["own"]["worst_ms"])


def outsiders(row):
    """Whether a run alone names only processes outside the stage, while such processes were busy."""
    top = row["findings"][0]["aggressors"]
    outside = all("programs-" not in (one["cgroup"] or "") for one in top)
    return row["beside"] == "alone" and bool(top) and outside and row.get("others", {}).get("cpus", 0) >= OTHERS_CPUS_MIN


def alone_of(rows, program):
    return [row for row in rows if row["program"] == program and row["beside"] == "alone"]


def felt(row, rows):
    """Whether the program's log shows harm: twice its usual longest operation alone, or 50 ms if it never took so long alone."""
    if row["beside"] == "alone":
        return True
    alone = [other["own"]["worst_ms"] for other in alone_of(rows, row["program"]) if not stood_still(other)]
    usual = sorted(alone)[len(alone) // 2] if alone else 0.0
    return row["own"]["worst_ms"] >= max(HARM_RATIO * usual, 5.0) or (row["own"]["worst_ms"] >= HARM_MS > usual)


def cause_right(row):
    return row["findings"][0]["cause"] in KINDS[row["beside"]].causes


def named(row):
    """The programs that the top finding names, worst first."""
    return [one["program"] for one in row["findings"][0]["aggressors"]]


def aggressor_right(row):
    kind = KINDS[row["beside"]]
    if not kind.named:
        return not named(row)
    top = row["findings"][0]["aggressors"][:1]
    return any(one["program"] in kind.programs or "aggressor" in (one["cgroup"] or "") for one in top)


def abstained(row):
    return row["findings"][0]["cause"] in ("quiet", "not-observed", "unexplained", "device-wait")


# The class of a finding's evidence, as in crates/explain/src/confidence.rs.
def evidence_class(finding):
    duration, cause = finding.get("basis") or (None, None)
    if finding["cause"] in ("not-enough-to-judge", "not-observed", "unexplained"):
        return "Abstains"
    if finding["cause"] == "quiet":
        return "Quiet"
    if cause == "bracketed" and duration == "measured":
        return "Traced"
    if cause == "by-channel":
        return "Channels"
    return "Stacks" if cause in ("by-stack", "by-elimination") else "Counters"


def counted(rows):
    """The rows that count."""
    return [row for row in rows if not row.get("fixed") and not disturbed(row) and not outsiders(row)]


def results(rows):
    """tests/programs/results.csv: one line per run."""
    every, rows = [row for row in rows if not row.get("fixed")], counted(rows)
    lines = ["program,beside,run,asked,cause,class,cause_right,aggressor_right,named,load"]
    for row in rows:
        top, alone = row["findings"][0], row["beside"] == "alone"
        asked = not alone and felt(row, every)
        right = (int(asked and cause_right(row)), int(not named(row) if alone else asked and aggressor_right(row)))
        who = "+".join(named(row)).replace(",", " ")
        lines.append(f"{row['program']},{row['beside']},{row['run']},{int(asked)},{top['cause']},{evidence_class(top)},{right[0]},{right[1]},"
                     f"{who},{row['others'].get('load', '')}")
    return "\n".join(lines)


def reliability(rows):
    """By class of evidence: the confidence claimed, and how often it was right."""
    every, rows = [row for row in rows if not row.get("fixed")], counted(rows)
    asked = [row for row in rows if row["beside"] != "alone" and felt(row, every)]
    lines = ["| first finding rests on | runs | claimed | right |", "|---|---:|---:|---:|"]
    # Findings from counters alone keep their own confidence.
    for kind in sorted({evidence_class(row["findings"][0]) for row in asked} & {"Traced", "Stacks"}):
        of_kind = [row for row in asked if evidence_class(row["findings"][0]) == kind]
        right = sum(map(cause_right, of_kind))
        claimed = (right + 1) / (len(of_kind) + 2)
        bar = "".join("@" if abs(at / 20 - claimed) < 0.025 and abs(at / 20 - right / len(of_kind)) < 0.025 else
                      "o" if abs(at / 20 - claimed) < 0.025 else "#" if abs(at / 20 - right / len(of_kind)) < 0.025 else " "
                      for at in range(21))
        lines.append(f"| {kind} | {len(of_kind)} | {claimed:.2f} | {right / len(of_kind):.2f} ({right}) `{bar}` |")
    return "\n".join(lines)


def percent(part, whole):
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "-"


OURS = {"write": ("write", "io-uring-write", "aio-write"), "read": ("read", "io-uring-read", "aio-read"),
        "fsync": ("fsync", "io-uring-fsync", "aio-fsync")}


def fixes(rows):
    """Before and after the fix, from the programs' own logs."""
    lines = []
    for row in (row for row in rows if row.get("fixed")):
        same = [other for other in rows if not other.get("fixed") and (other["program"], other["beside"]) == (row["program"], row["beside"])]
        if same:
            own = lambda key: sorted(other["own"][key] for other in same)[len(same) // 2]
            lines.append(f"| {row['program']} | {row['beside']} | {row['fixed']} | {own('p99_ms'):.1f} -> {row['own']['p99_ms']:.1f} | "
                         f"{own('worst_ms'):.0f} -> {row['own']['worst_ms']:.0f} |")
    head = ["", "| program | beside | fix | p99 ms | worst ms |", "|---|---|---|---:|---:|"]
    return head + lines if lines else []


def apart(rows, every, stood):
    """Share of right causes in runs in which the disk below hung, or in the others."""
    asked = [row for row in rows if row["beside"] != "alone" and felt(row, every) and stood_still(row) == stood]
    return percent(sum(map(cause_right, asked)), len(asked))


def table(rows):
    """The result as Markdown."""
    after, rows = fixes(rows), [row for row in rows if not row.get("fixed")]
    # All runs alone show how long operations usually take, even if they named a process.
    every = rows
    whole, rows = len(rows), [row for row in rows if not disturbed(row)]
    foreign = [row for row in rows if outsiders(row)]
    rows = [row for row in rows if not outsiders(row)]
    out = ["| program | beside | runs | felt | cause right | aggressor right | abstained | rule of thumb right |",
           "|---|---|---:|---:|---:|---:|---:|---:|"]
    sums, confusion = Counter(), defaultdict(Counter)
    keys = sorted({(row["program"], row["beside"]) for row in rows}, key=lambda key: (key[0], key[1] != "alone", key[1]))
    for program, beside in keys:
        group = [row for row in rows if (row["program"], row["beside"]) == (program, beside)]
        asked = [row for row in group if felt(row, every)]
        means = [row["means"] for row in alone_of(every, program)]
        if beside == "alone":
            quiet = [row for row in asked if not named(row)]
            out.append(f"| {program} | alone | {len(group)} | | | no process named: {len(quiet)} | | |")
            sums["alone"] += len(asked)
            sums["nobody"] += len(quiet)
            sums["alone_s"] += sum(row["seconds"] for row in group)
            confused = asked
        else:
            right, who = sum(map(cause_right, asked)), sum(map(aggressor_right, asked))
            ruled = sum(rule(row["means"], means)[0] in KINDS[beside].causes for row in asked)
            away = sum(map(abstained, asked))
            out.append(f"| {program} | {beside} | {len(group)} | {len(asked)} | {right} | {who} | {away} | {ruled} |")
            sums["asked"] += len(asked)
            sums["cause"] += right
            sums["rule"] += ruled
            sums["abstained"] += away
            if KINDS[beside].named:
                sums["named"] += len(asked)
                sums["aggressor"] += who
                sums["rule_aggressor"] += sum(row["busiest"] in KINDS[beside].programs for row in asked)
            confused = asked
        for row in confused:
            confusion[beside][row["findings"][0]["cause"]] += 1
    hours = sums["alone_s"] / 3600
    wrong = sums["alone"] - sums["nobody"]
    cpus = sorted(row.get("others", {}).get("cpus", 0) for row in rows)
    head = [f"- {len(rows)} runs; {whole - len(rows) - len(foreign)} more do not count, because others saturated the machine or wrote "
            f"to its disk, and {len(foreign)} alone, because they name busy programs outside the stage",
            f"- others kept {cpus[len(cpus) // 2] if cpus else 0:.1f} CPUs busy in the median run",
            f"- cause right: {percent(sums['cause'], sums['asked'])}; the rule of thumb: {percent(sums['rule'], sums['asked'])}",
            f"- aggressor right: {percent(sums['aggressor'], sums['named'])}; the rule's busiest process: "
            f"{percent(sums['rule_aggressor'], sums['named'])}",
            f"- alone, no process named: {percent(sums['nobody'], sums['alone'])}"
            + (f"; {wrong / hours:.1f} false accusations per hour over {hours * 60:.1f} minutes" if hours else ""),
            f"- the disk below hung for most of the program's longest operation: {apart(rows, every, True)}; the others: "
            f"{apart(rows, every, False)}",
            f"- abstained (quiet, not observed, unexplained, device-wait): {percent(sums['abstained'], sums['asked'])}", ""]
    causes = sorted({cause for row in confusion.values() for cause in row})
    matrix = ["", "Rows: the injected neighbour; columns: the top finding.", "", "| beside | " + " | ".join(causes) + " |",
              "|---|" + "---:|" * len(causes)]
    for beside in sorted(confusion):
        matrix.append(f"| {beside} | " + " | ".join(str(confusion[beside][cause] or "") for cause in causes) + " |")
    return "\n".join(head + out + matrix + after)
