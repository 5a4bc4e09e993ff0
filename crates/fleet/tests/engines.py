"""Runs every named question of a fleet on other engines, and compares the answers with those of flatwater-fleet.

    make test-fleet-engines FLEET_PYTHON=/path/to/python3
    python3 crates/fleet/tests/engines.py duckdb spark clickhouse --fleet crates/fleet/target/debug/flatwater-fleet
    python3 crates/fleet/tests/engines.py duckdb --fleet flatwater-fleet --place /srv/fleet --from 2026-11-19 --to 2026-11-21

Without --place it generates a fleet of 300 hosts and 48 hours. `flatwater-fleet tables --engine` prints the statements that create the
tables, and `flatwater-fleet questions` the questions. Requires duckdb, pyspark (with Java; it runs as a local cluster of two workers,
each a process) and chdb from PyPI. Exits with status 1 if an answer differs.
"""

import argparse
import atexit
import csv
import datetime
import decimal
import io
import math
import subprocess
import sys
import tempfile
import time


def plain(value):
    """A value in a common form: the engines use different types for whole numbers, times and fractions."""
    if value is None or value == "" or value == "\\N":
        return None
    if isinstance(value, str):
        for read in (int, float, datetime.datetime.fromisoformat):
            try:
                value = read(value)
                break
            except ValueError:
                pass
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None, microsecond=0).isoformat()
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def alike(ours, theirs):
    """Whole numbers and text must be equal. Fractions are rounded to a tenth or a hundredth, and a sum in another order may be
    rounded the other way: they may differ by a tenth."""
    if isinstance(ours, float) or isinstance(theirs, float):
        numbers = all(isinstance(one, (int, float)) for one in (ours, theirs))
        return numbers and math.isclose(ours, theirs, rel_tol=1e-12, abs_tol=0.1000001)
    return ours == theirs


def run(fleet, *arguments):
    done = subprocess.run([fleet, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{fleet} {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def of_csv(text):
    return [tuple(plain(cell) for cell in row) for row in list(csv.reader(io.StringIO(text)))[1:]]


def statements(fleet, place, engine):
    lines = run(fleet, "tables", place, "--engine", engine).split(";\n")
    return [line for line in (line.strip() for line in lines) if line]


def duckdb(fleet, place):
    import duckdb
    connection = duckdb.connect()
    for statement in statements(fleet, place, "duckdb"):
        connection.execute(statement)
    return lambda sql: [tuple(plain(value) for value in row) for row in connection.execute(sql).fetchall()]


def spark(fleet, place):
    from pyspark.sql import SparkSession
    # Two workers of one core, each a separate process.
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.timestampType", "TIMESTAMP_NTZ")
    builder = builder.config("spark.executor.memory", "768m").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    session = builder.getOrCreate()
    atexit.register(session.stop)
    session.sparkContext.setLogLevel("ERROR")
    for statement in statements(fleet, place, "spark"):
        session.sql(statement)
    return lambda sql: [tuple(plain(value) for value in row) for row in session.sql(sql).collect()]


def clickhouse(fleet, place):
    from chdb import session
    connection = session.Session()
    for statement in statements(fleet, place, "clickhouse"):
        connection.query(statement)
    return lambda sql: of_csv(str(connection.query(sql, "CSVWithNames")))


def first_difference(ours, theirs):
    if len(ours) != len(theirs):
        return len(ours), len(theirs)
    rows = (pair for pair in zip(ours, theirs) if len(pair[0]) != len(pair[1]) or not all(map(alike, *pair)))
    return next(rows, None)


def differing(given, place):
    """The number of answers that differ."""
    within = ["--from", given.begin, "--to", given.end]
    names = [line.split()[0] for line in run(given.fleet, "questions").splitlines() if not line.startswith(" ")]
    wrong = 0
    for engine in given.engines:
        ask = {"duckdb": duckdb, "spark": spark, "clickhouse": clickhouse}[engine](given.fleet, place)
        for question in names:
            # In `new`, everything is new since the beginning.
            parameters = {"host": ["host=host-00003"], "new": [f"since={given.begin}"]}.get(question, [])
            ours = of_csv(run(given.fleet, "ask", place, question, *parameters, *within, "--format", "csv"))
            sql = run(given.fleet, "questions", question, *parameters, *within)
            began = time.monotonic()
            try:
                theirs = ask(sql)
            except Exception as error:  # Each engine has its own exceptions.
                wrong += 1
                print(f"{engine:<11} {question:<12} FAILED {str(error)[:600]}", flush=True)
                continue
            pair = first_difference(ours, theirs)
            wrong += pair is not None
            print(f"{engine:<11} {question:<12} {len(ours):>6} rows {'DIFFERENT' if pair else 'equal'}"
                  f" ({time.monotonic() - began:.1f} s)", flush=True)
            if pair:
                print(f"  flatwater-fleet {pair[0]}\n  {engine} {pair[1]}", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="+", choices=["duckdb", "spark", "clickhouse"])
    parser.add_argument("--fleet", default="flatwater-fleet", help="the program")
    parser.add_argument("--place", help="a fleet that is compacted")
    parser.add_argument("--from", dest="begin", default="2026-11-18")
    parser.add_argument("--to", dest="end", default="2026-11-20")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if given.place is None:
            run(given.fleet, "generate", made, "--hosts", "300", "--hours", "48", "--from", given.begin, "--compacted")
            # Add up days: the other engines' sums of hours must equal these.
            run(given.fleet, "compact", made)
        sys.exit(1 if differing(given, given.place or made) else 0)


if __name__ == "__main__":
    main()
