# SPDX-License-Identifier: Apache-2.0
"""A question with a range of time in its SQL, to long traces: only that part is converted, and the answer is that of the whole."""
import os
import re
import sqlite3

from live_helpers import cache  # noqa: F401
from test_fleet import fleet  # noqa: F401

RANGES = ("timestamp > now() - interval '3 s'", "timestamp BETWEEN now() - 20 AND now() - 18", "timestamp >= 1760000100 AND timestamp < 1760000101.5")
COLUMNS = {"samples": "timestamp, trace_id, tid, thread, func, file, lineno, state, gil, cpu_seconds, count, seconds",
           "torch_trace": "timestamp, step, module, stage, duration, parent, depth, rank", "steps": "*", "comm_metrics": "*", "profiling_data": "*"}


def test_only_the_range_is_converted(fleet, build, run, cache, tmp_path):  # noqa: F811
    job, _ = fleet("job", "--ranks", 8, "--nodes", 1, "--minutes", 9, "--hz", 150, "--threads", 4)
    assert sum(os.path.getsize(str(p)) for p in job.rglob("*.zst")) > 16 << 20
    whole = tmp_path / "whole.db"
    run([build.tool("probing-convert"), "-q", job, whole])

    def ask(of, sql):
        return sorted(run([build.tool("probing-query"), "--csv", of, sql]).stdout.split("\n")[1:])

    def rows(database, table):
        with sqlite3.connect("file:%s?mode=ro" % database, uri=True) as c:
            return c.execute("SELECT count(*) FROM " + table).fetchone()[0]
    for number, (view, columns) in enumerate(COLUMNS.items()):
        sql = "SELECT %s FROM %s WHERE %s" % (columns, view, RANGES[number % len(RANGES)])
        answer = ask(whole, sql)
        assert len(answer) > 100 and ask(job, sql) == answer, sql
        assert ask(job, sql) == answer, sql  # from the database that is kept
    for view in ("torch_trace", "comm_metrics", "profiling_data"):  # nor what comes after the range
        sql = "SELECT %s FROM %s WHERE %s" % (COLUMNS[view], view, RANGES[2])
        answer = ask(whole, sql)
        assert len(answer) > 10 and ask(job, sql) == answer, sql
    kept = list(cache.glob("*.db"))
    assert len(kept) == len(COLUMNS) + 3
    assert all(rows(k, "sample") < rows(whole, "sample") / 10 and rows(k, "torch_call") < rows(whole, "torch_call") / 6 for k in kept)
    # Names with `python.` need all types of records: still of the range alone, and the database of that is not taken for one of the whole.
    sql = "SELECT count(*) FROM python.torch_trace WHERE " + RANGES[0]
    assert ask(job, sql) == ask(whole, sql)
    for sql in ("SELECT count(*), sum(seconds) FROM samples", "SELECT count(*) FROM samples WHERE timestamp > (SELECT max(timestamp) - 3 FROM samples)"):
        assert ask(job, sql) == ask(whole, sql)
    # Where the whole is kept, the range is read from it.
    n = len(list(cache.glob("*.db")))
    sql = "SELECT count(*) FROM samples WHERE timestamp > now() - 7"
    assert ask(job, sql) == ask(whole, sql) and len(list(cache.glob("*.db"))) == n


def test_what_goes_on_after_the_range(fleet, build, run, cache):  # noqa: F811
    """A rank works for 30 seconds before its collectives: those of a step that begins in the range are long after it."""
    job, _ = fleet("slow", "--ranks", 8, "--nodes", 1, "--minutes", 13, "--hz", 200, "--threads", 4, "--straggler", "3:30000")
    assert sum(os.path.getsize(str(p)) for p in job.rglob("*.zst")) > 16 << 20
    sql = "SELECT step, duration, communication FROM steps WHERE rank = 3 AND timestamp >= 1760000030 AND timestamp < 1760000035"
    part, whole = [run([build.tool("probing-query"), "--csv"] + options + [job, sql]).stdout for options in ([], ["--from", "1760000000"])]
    assert part == whole and re.fullmatch(r"step,duration,communication\r?\n1,30[.]\d+,0[.]00\d+\r?\n", part), part
