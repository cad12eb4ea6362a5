# SPDX-License-Identifier: Apache-2.0
"""Reads a database of probing-convert for probing.export: trace by trace, by SQL. Ids of stacks and samples are those of the database."""
import hashlib

# What SQLite types value by value.
TYPES = {"lineno": "int64", "stack_id": "int64", "sample_id": "int64", "cpu_seconds": "float64", "seconds": "float64", "depth": "int64",
         "firstline": "int64", "first": "int64", "leaf": "int64", "module": "string", "func": "string", "file": "string"}

SAMPLES = """SELECT x.ts AS ts, s.* FROM samples s CROSS JOIN sample x ON x.id = s.sample_id WHERE s.trace_id = %d"""
FRAMES = """
SELECT k.stack AS stack_id, k.depth, f.name AS func, coalesce(r.file, f.file, f.module) AS file, r.line AS lineno,
  CASE f.type WHEN 0 THEN 'Python' ELSE 'Native' END AS frame_type, f.module, nullif(f.firstline, 0) AS firstline, k.first, coalesce(k.leaf, 0) AS leaf
FROM (SELECT DISTINCT x.stack FROM trace_file t CROSS JOIN sample x ON x.id BETWEEN t.first_id AND t.last_id WHERE t.id = %d AND x.stack IS NOT NULL) d
CROSS JOIN stack_frame k ON k.stack = d.stack CROSS JOIN frame r ON r.id = k.frame CROSS JOIN function f ON f.id = r.function"""


def infos_of(database):
    """Returns [{trace_id, recording, run, rank, host, file, file_bytes, attempt, program, end_reason, first}] of the database's traces.
    first: the recording of the file that `program` is the number of."""
    program, = next(database.sql("SELECT iif(count(*), 'program', 'NULL') FROM pragma_table_info('trace_file') WHERE name = 'program'").rows())  # not before version 12
    rows = database.sql("SELECT id, coalesce(recording, 'trace ' || id), run, rank, host, bytes, attempt, %s, end_reason FROM trace_file" % program).rows()
    infos = [{"trace_id": i, "recording": int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1, "run": run, "rank": rank,
              "host": host, "file": "%s, trace %d" % (database.paths[0], i), "file_bytes": size, "attempt": attempt,
              "program": program, "end_reason": reason} for i, name, run, rank, host, size, attempt, program, reason in rows]
    numbers = {i["trace_id"]: i["recording"] for i in infos}
    for info in infos:
        info["first"] = numbers.get(info["program"], info["recording"])
    return infos


def typed(table, pa):
    for i, field in enumerate(table.schema):
        want = TYPES.get(field.name)
        if want and str(field.type) != want:
            kind = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}[want]
            table = table.set_column(i, pa.field(field.name, kind), table.column(i).cast(kind))
    return table


class Source(object):
    """One trace of a database."""

    def __init__(self, database, info, pa):
        self.database, self.info, self.pa = database, info, pa

    def samples(self):
        """Yields batches, with times to the nanosecond."""
        pa = self.pa
        for batch in pa.RecordBatchReader.from_stream(self.database.sql(SAMPLES % self.info["trace_id"])):
            table = typed(pa.Table.from_batches([batch]), pa)
            times = table.column("ts").cast(pa.timestamp("ns", "UTC"))
            table = table.drop_columns(["ts"])
            table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", times)
            ids = pa.array([self.info["recording"]] * table.num_rows, pa.int64())
            table = table.set_column(table.schema.get_field_index("trace_id"), "trace_id", ids)
            for name in ("run", "host"):
                table = table.append_column(name, pa.array([self.info[name]] * table.num_rows, pa.string()))
            yield from table.to_batches()

    def frames(self):
        return typed(self.pa.table(self.database.sql(FRAMES % self.info["trace_id"])), self.pa)

    def view(self, name):
        local = "id" if name == "trace" else "trace_id"
        return self.pa.table(self.database.sql('SELECT * FROM "%s" WHERE %s = %d' % (name, local, self.info["trace_id"])))
