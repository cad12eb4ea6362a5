# SPDX-License-Identifier: Apache-2.0
"""Describes the data set of probing.export to SQL engines: types of columns, and scripts that define the views that are not stored."""
import io
import os

# SQLite types values, not columns: what these names are in every view. Others are what their table declares, or real numbers. Without this a column
# would have one type in the file of a trace with values and another where all of them are NULL.
INT = set("""trace_id program pid ppid rank src_rank dst_rank tid step seq depth call row_id parent_id device call_tid stacks trigger_id children_lost
calls cuda_calls count arrived size samples running self total python_self came_last collectives was_shortest last_rank shortest_rank
complete gil outside is_cause recomputed failed signal exit_code nth cause waiting lineno allocated_bytes freed_bytes""".split())
TEXT = set("""file frame_type state group completion source stage role kind detail text thread module phase type func name value level
run job missing dtype op host unit dimension inner user does waiters function_name""".split())
TIME = set("timestamp enter exit started ended finished unloaded process_start first_enter last_enter".split())
EXACT = {("steps", "data"): "real", ("memory_usage", "data"): "int", ("events", "data"): "text", ("training_logs", "data"): "text",
         ("torch_trace", "parent"): "text", ("variables", "at"): "text", ("variables", "number"): "real",
         ("trace", "start"): "time", ("trace", "end"): "time", ("steps", "end"): "time", ("process", "start"): "time",
         ("threads", "start"): "time", ("threads", "end"): "time", ("spans", "end"): "time", ("modules_loaded", "start"): "int",
         ("modules_loaded", "end"): "int", ("threads", "running"): "int", ("threads", "comm"): "text", ("threads", "ident"): "int",
         ("event_values", "value"): "text", ("gpu_metrics", "name"): "text",
         ("training_logs", "epoch"): "real", ("training_logs", "loss"): "real", ("training_logs", "accuracy"): "real", ("training_logs", "lr"): "real",
         ("roles", "index"): "int", ("hangs", "level"): "int", ("hangs", "since"): "real"}
OWN_RANK = ("comm_metrics",)  # their rank is not the process's alone


def column_type(view, name):
    """Returns "int", "text", "real", "time", or None: the type that the column has."""
    return EXACT.get((view, name)) or ("int" if name in INT else "text" if name in TEXT else "time" if name in TIME else None)


# What a view of the database has and these lack: which ranks a group has is in no table that is stored.
LACKING = {"collectives": ("missing",)}
# What they have besides (and every stored table: ts, where there is a timestamp; samples: host), so that they can be asked for one run or rank.
MORE = ("ts", "run", "rank", "host")

# What is made of the stored tables. {q}: the quote of names; the rest is SQL that all of them take.
VIEWS = (
    ("backtrace", "A row per frame of each sample, depth 0 the innermost.", """
SELECT s.timestamp AS timestamp, s.trace_id AS trace_id, s.pid AS pid, s.tid AS tid, s.thread AS thread, k.depth AS depth, k.func AS func,
  k.file AS file, k.lineno AS lineno, k.frame_type AS frame_type, k.module AS module, s.sample_id AS sample_id, s.rank AS rank,
  s.stack_id AS stack_id, s.count * k.{q}first{q} AS count, s.seconds * k.{q}first{q} AS seconds, s.state AS state, s.gil AS gil, s.run AS run
FROM samples s JOIN stack_frames k ON k.stack_id = s.stack_id AND k.trace_id = s.trace_id"""),
    ("hot_functions", "Where the time goes; self: with the function innermost, total: with it anywhere on the stack.", """
WITH ticks AS (
  SELECT trace_id, stack_id, sum(count) AS count, sum(seconds) AS seconds, sum(cpu_seconds) AS cpu_seconds,
    sum(CASE WHEN state = 'running' THEN count ELSE 0 END) AS running,
    sum(CASE WHEN state = 'running' THEN seconds ELSE 0 END) AS on_cpu
  FROM samples GROUP BY trace_id, stack_id
), whole AS (SELECT sum(count) AS count, sum(running) AS running FROM ticks),
sums AS (
  SELECT k.func, CASE WHEN k.frame_type = 'Python' THEN k.file ELSE k.module END AS file, k.frame_type, k.firstline, k.module,
    sum(CASE WHEN k.depth = 0 THEN x.count ELSE 0 END) AS self, sum(x.count) AS total,
    sum(CASE WHEN k.depth = 0 THEN x.seconds ELSE 0 END) AS seconds, sum(x.seconds) AS total_seconds,
    sum(CASE WHEN k.depth = 0 THEN x.running ELSE 0 END) AS running,
    sum(CASE WHEN k.depth = 0 THEN x.cpu_seconds ELSE 0 END) AS cpu_seconds,
    round(sum(CASE WHEN k.depth = 0 THEN x.on_cpu ELSE 0 END), 9) AS on_cpu, -- whole ns: sums in another order differ by less, and equal ones are ordered by self
    sum(x.count * k.leaf) AS leaf, sum(x.seconds * k.leaf) AS leaf_seconds, sum(x.on_cpu * k.leaf) AS leaf_on_cpu
  FROM ticks x JOIN stack_frames k ON k.stack_id = x.stack_id AND k.trace_id = x.trace_id AND k.{q}first{q} = 1
  GROUP BY k.func, CASE WHEN k.frame_type = 'Python' THEN k.file ELSE k.module END, k.frame_type, k.firstline, k.module
)
SELECT s.func AS func, s.file AS file, s.self AS self, s.total AS total, s.seconds AS seconds, s.total_seconds AS total_seconds,
  1.0 * s.self / w.count AS share, 1.0 * s.total / w.count AS total_share, s.running AS running, s.cpu_seconds AS cpu_seconds,
  s.frame_type AS frame_type, s.firstline AS firstline, s.module AS module, s.on_cpu AS on_cpu, s.seconds - s.on_cpu AS waiting,
  CASE WHEN w.running > 0 THEN 1.0 * s.running / w.running END AS cpu_share,
  CASE WHEN s.frame_type = 'Python' THEN s.leaf END AS python_self,
  CASE WHEN s.frame_type = 'Python' THEN s.leaf_seconds END AS python_seconds,
  CASE WHEN s.frame_type = 'Python' THEN s.leaf_on_cpu END AS python_on_cpu
FROM sums s CROSS JOIN whole w
ORDER BY on_cpu DESC, self DESC, total DESC"""),
    ("collectives", "A row per collective over all ranks that came to it (sends and receives, and calls that raised, left out).", """
SELECT g.{q}group{q} AS {q}group{q}, g.seq AS seq, g.op AS op, g.arrived AS arrived, g.size AS size, g.complete AS complete,
  g.first_enter AS first_enter, g.last_enter AS last_enter, g.{q}exit{q} AS {q}exit{q},
  CASE WHEN g.comparable = 1 THEN g.skew_ns / 1e6 END AS skew_ms, CASE WHEN g.comparable = 1 THEN g.last_rank END AS last_rank,
  g.shortest_rank AS shortest_rank, g.shortest_ms AS shortest_ms, g.longest_ms AS longest_ms, g.bytes AS bytes, g.dtype AS dtype,
  g.run AS run, g.attempt AS attempt, g.ts AS ts
FROM (SELECT c.{q}group{q} AS {q}group{q}, c.seq AS seq, c.op AS op, c.run AS run, c.attempt AS attempt,
    count(DISTINCT c.rank) AS arrived, max(c.group_size) AS size,
    count(DISTINCT c.rank) - count(DISTINCT CASE WHEN c.complete = 0 THEN c.rank END) AS complete,
    min(c.enter) AS first_enter, max(c.enter) AS last_enter, max(c.{q}exit{q}) AS {q}exit{q}, max(c.ts) AS ts, max(c.ts) - min(c.ts) AS skew_ns,
    CASE WHEN coalesce(max(c.clock_group), 0) = coalesce(min(c.clock_group), 0) THEN 1 ELSE 0 END AS comparable,
    max(CASE WHEN c.nth_last = 1 THEN c.rank END) AS last_rank,
    max(CASE WHEN c.nth_short = 1 AND c.complete = 1 THEN c.rank END) AS shortest_rank,
    min(c.latency_ms) AS shortest_ms, max(c.latency_ms) AS longest_ms, sum(c.bytes) AS bytes, max(c.dtype) AS dtype
  FROM (SELECT m.*, row_number() OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op ORDER BY m.ts DESC, m.rank DESC) AS nth_last,
          row_number() OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op ORDER BY m.complete DESC, m.waited, m.rank) AS nth_short
        FROM comm_metrics m WHERE m.op NOT IN ('send', 'recv') AND m.completion <> 'raised') c
  GROUP BY c.{q}group{q}, c.seq, c.op, c.run, c.attempt) g"""),
    ("stragglers", "Who slows the others, the one that costs most first: how often a rank came last, and how long the others waited then.", """
SELECT s.rank AS rank, s.collectives AS collectives, s.came_last AS came_last, s.share AS share, s.was_shortest AS was_shortest,
  s.imposed_seconds AS imposed_seconds, s.waited_seconds AS waited_seconds, s.run AS run, coalesce(c.cost, 0.0) AS others_waited
FROM (
  SELECT w.run AS run, w.rank AS rank, count(*) AS collectives, sum(w.was_last) AS came_last, 1.0 * sum(w.was_last) / count(*) AS share,
    sum(w.was_short) AS was_shortest, sum(CASE WHEN w.was_last = 1 THEN w.skew END) AS imposed_seconds, sum(w.waited_for) AS waited_seconds
  FROM (
    SELECT m.run AS run, m.rank AS rank,
      CASE WHEN m.ts = max(m.ts) OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op) THEN 1 ELSE 0 END AS was_last,
      CASE WHEN m.duration = min(m.duration) OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op) THEN 1 ELSE 0 END AS was_short,
      (max(m.ts) OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op)
        - min(m.ts) OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op)) / 1e9 AS skew,
      (max(m.ts) OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op) - m.ts) / 1e9 AS waited_for,
      max(m.clock_group) OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op) AS last_clock,
      min(m.clock_group) OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op) AS first_clock,
      count(*) OVER (PARTITION BY m.run, m.attempt, m.{q}group{q}, m.seq, m.op) AS n
    FROM comm_metrics m WHERE m.op NOT IN ('send', 'recv') AND m.complete = 1 AND m.completion <> 'raised'
  ) w WHERE w.n > 1 AND coalesce(w.last_clock, 0) = coalesce(w.first_clock, 0) GROUP BY w.run, w.rank
) s LEFT JOIN (
  SELECT d.of_run AS of_run, d.last_rank AS last_rank,
    sum(CASE WHEN d.ts <= d.waited_until THEN 0.0 WHEN d.ts - d.waited_until < d.cost THEN 1.0 * (d.ts - d.waited_until) ELSE d.cost END) / 1e9 AS cost
  FROM (
    SELECT e.of_run AS of_run, e.last_rank AS last_rank, e.ts AS ts, e.cost AS cost,
      lag(e.latest) OVER (PARTITION BY e.of_run, e.last_rank ORDER BY e.since, e.ts) AS waited_until
    FROM (
      SELECT f.of_run AS of_run, f.last_rank AS last_rank, f.ts AS ts, f.cost AS cost, f.ts - f.cost AS since,
        max(f.ts) OVER (PARTITION BY f.of_run, f.last_rank ORDER BY f.ts - f.cost, f.ts) AS latest
      FROM (
        SELECT coalesce(o.run, '') AS of_run, o.last_rank AS last_rank, o.ts AS ts,
          1e6 * CASE WHEN o.skew_ms < o.longest_ms - o.shortest_ms THEN o.skew_ms ELSE o.longest_ms - o.shortest_ms END AS cost
        FROM collectives o WHERE o.complete = o.arrived AND o.last_rank = o.shortest_rank AND o.op <> 'barrier'
      ) f
    ) e
  ) d GROUP BY d.of_run, d.last_rank
) c ON c.last_rank = s.rank AND c.of_run = coalesce(s.run, '')
ORDER BY others_waited DESC, imposed_seconds DESC, rank"""),
    ("runs", "The runs, each a program with all that it started.", """
SELECT t.run AS run, count(*) AS traces, sum(CASE WHEN t.nth_of_process = 1 THEN 1 ELSE 0 END) AS processes,
  count(DISTINCT t.rank) AS ranks, count(DISTINCT t.host) AS hosts, min(t.{q}start{q}) AS started,
  max(t.{q}end{q}) AS ended, max(CASE WHEN t.nth_of_run = 1 THEN t.command END) AS command, sum(t.lost) AS lost
FROM (SELECT x.*, row_number() OVER (PARTITION BY x.run ORDER BY x.process_start, x.{q}start{q}) AS nth_of_run,
        row_number() OVER (PARTITION BY x.host, x.pid, x.boot_id, x.process_start, x.run ORDER BY x.{q}start{q}) AS nth_of_process
      FROM trace x) t
GROUP BY t.run"""),
)


class Engine(object):
    """An engine's words. source: what a stored table's view is made of, with the folder and the table; escapes: of a quote in a text."""

    def __init__(self, name, quote, temporary, source, escapes):
        self.name, self.quote, self.create, self.source, self.escapes = name, quote, "CREATE OR REPLACE %sVIEW" % temporary, source, escapes

    def stored(self, folder, table):
        for plain, escaped in self.escapes:
            folder = folder.replace(plain, escaped)
        return "%s %s %s;" % (self.create, table, self.source % (folder, table))

    def made(self, name, sql):
        return "%s %s AS%s;" % (self.create, name, sql)


BACKSLASHES = (("\\", "\\\\"), ("'", "\\'"))
DuckDB = Engine("duckdb", '"', "", "AS SELECT * FROM read_parquet('%s/%s/*/*/*.parquet', hive_partitioning = true, "
                "hive_types = {'run': VARCHAR, 'rank': BIGINT})", (("'", "''"),))
Spark = Engine("spark", "`", "TEMPORARY ", "USING parquet OPTIONS (path '%s/%s')", BACKSLASHES)
ClickHouse = Engine("clickhouse", '"', "", "AS SELECT * FROM file('%s/%s/*/*/*.parquet', Parquet)", BACKSLASHES)
ENGINES = (DuckDB, Spark, ClickHouse)


def script(engine, folder, tables):
    """[statement]"""
    out = [engine.stored(folder, t) for t in tables]
    return out + [engine.made(name, sql.replace("{q}", engine.quote)) for name, _, sql in VIEWS
                  if all(t in tables for t in ("samples", "stack_frames", "comm_metrics", "trace") if " %s " % t in sql)]


def tables(folder):
    return sorted(n for n in os.listdir(folder) if not n.startswith(("_", ".")) and os.path.isdir(os.path.join(folder, n)))


def write_scripts(folder):
    folder = os.path.abspath(folder)
    about = dict((name, text) for name, text, _ in VIEWS)
    for engine in ENGINES:
        lines = ["-- SPDX-License-Identifier: Apache-2.0", "-- The data set of probing export as views. Moved? Change the path."]
        for statement in script(engine, folder, tables(folder)):
            for name in about:
                if "VIEW %s AS" % name in statement:
                    lines.append("-- " + about[name])
            lines.append(statement)
        path = os.path.join(folder, "views.%s.sql" % engine.name)
        with io.open(path + ".tmp", "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
        os.replace(path + ".tmp", path)
