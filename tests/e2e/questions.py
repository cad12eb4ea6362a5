# SPDX-License-Identifier: Apache-2.0
"""Twenty questions in SQL that SQLite, DuckDB, Spark, ClickHouse and Polars all accept, about the views of a database and of a Parquet data set.
Each is (name, SQL); the answers are compared in the order of all columns, numbers to nine digits."""

QUESTIONS = (
    ("traces", "SELECT rank, pid, host, records, lost, clock, complete, end_reason FROM trace"),
    ("runs", "SELECT run, traces, processes, ranks, hosts, command, lost FROM runs"),
    ("samples of each rank", "SELECT rank, count(*) AS n, sum(count) AS ticks, sum(seconds) AS seconds FROM samples GROUP BY rank"),
    ("busy threads", "SELECT rank, thread, sum(cpu_seconds) AS cpu, sum(CASE WHEN state = 'running' THEN count ELSE 0 END) AS running"
                     " FROM samples GROUP BY rank, thread"),
    ("leaf functions", "SELECT func, frame_type, sum(seconds) AS seconds FROM samples WHERE func IS NOT NULL GROUP BY func, frame_type"),
    ("lines of one rank", "SELECT func, lineno, sum(count) AS ticks FROM samples WHERE rank = 1 AND frame_type = 'Python' GROUP BY func, lineno"),
    ("hot functions", "SELECT func, file, self, total, seconds, share, on_cpu, python_self, python_seconds FROM hot_functions WHERE total > 50"),
    ("python's own", "SELECT func, sum(python_seconds) AS seconds FROM hot_functions WHERE frame_type = 'Python' GROUP BY func"),
    ("frames", "SELECT func, frame_type, count(*) AS n, sum(count) AS ticks, max(depth) AS deepest FROM backtrace WHERE rank = 0"
               " GROUP BY func, frame_type"),
    ("who calls all_reduce", "SELECT b.func, sum(b.count) AS ticks FROM backtrace b JOIN backtrace a ON a.sample_id = b.sample_id"
                             " AND a.trace_id = b.trace_id AND a.depth + 1 = b.depth WHERE a.func = 'all_reduce' AND a.rank = 2 AND b.rank = 2"
                             " GROUP BY b.func"),
    ("steps", "SELECT rank, count(*) AS steps, sum(duration) AS duration, sum(forward) AS forward, sum(backward) AS backward,"
              " sum(optimizer) AS optimizer, sum(data) AS data FROM steps WHERE step IS NOT NULL GROUP BY rank"),
    ("slow steps", "SELECT step, max(duration) AS slowest, min(duration) AS fastest FROM steps WHERE step IS NOT NULL GROUP BY step"
                   " HAVING max(duration) > 1.05 * min(duration)"),
    ("modules", "SELECT module, stage, sum(calls) AS calls, sum(seconds) AS seconds FROM torch_modules GROUP BY module, stage"),
    ("calls of a step", "SELECT module, stage, count(*) AS n, avg(duration) AS mean FROM torch_trace WHERE step IS NOT NULL AND module IS NOT NULL"
                        " GROUP BY module, stage"),
    ("memory", "SELECT rank, max(memory_mb) AS most, min(memory_mb) AS least, count(*) AS n FROM memory_usage GROUP BY rank"),
    ("cpu", "SELECT rank, avg(cpu_percent) AS cpu, max(threads) AS threads FROM cpu_utilization GROUP BY rank"),
    ("loss", "SELECT step, count(*) AS ranks, avg(loss) AS loss FROM training_logs WHERE loss IS NOT NULL GROUP BY step"),
    ("collectives", "SELECT run, attempt, op, seq, arrived, size, complete, last_rank, skew_ms, bytes FROM collectives WHERE skew_ms > 5"),
    ("stragglers", "SELECT run, rank, collectives, came_last, was_shortest, imposed_seconds, waited_seconds, others_waited FROM stragglers"),
    ("operations", "SELECT op, completion, count(*) AS n, sum(bytes) AS bytes, sum(waited) AS waited FROM comm_metrics GROUP BY op, completion"),
)


def normal(rows):
    """Returns the rows in sorted order with all values as texts, numbers with nine digits, because engines return Decimal, float or int for
    the same value."""
    def cell(v):
        if v is None or v != v:
            return ""
        if isinstance(v, bool):
            return str(int(v))
        try:
            return "%.9g" % float(v) if not isinstance(v, str) else v
        except (TypeError, ValueError):
            return str(v)
    return sorted([cell(v) for v in row] for row in rows)


def near(a, b, close=0):
    """Returns None if two answers are the same, else what differs. Sums of floats may have been added in another order. `close` is how far
    differences of times may be apart: in a Parquet data set they are made of the views' doubles, which are exact to a quarter of a
    microsecond."""
    if len(a) != len(b):
        return "%d rows, not %d" % (len(b), len(a))
    for x, y in zip(a, b):
        for u, v in zip(x, y):
            if u == v:
                continue
            try:
                if abs(float(u) - float(v)) <= max(close, 1e-5 * max(1, abs(float(u)))):
                    continue
            except ValueError:
                pass
            return "%r, not %r" % (y, x)
    return None
