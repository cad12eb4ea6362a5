# SPDX-License-Identifier: Apache-2.0
"""probing export --parquet DIR TRACE...|OUT.db: writes traces, or a database of them, as a Parquet data set for DuckDB, Spark, ClickHouse, Polars, pandas.

    DIR/samples/run=RUN/rank=RANK/RECORDING.parquet     sorted by time, zstd, statistics; run and rank are in the files, too
    DIR/stack_frames/..., DIR/steps/...                 a folder for each table: the views of the database that have one row for each record
    DIR/views.duckdb.sql, .spark.sql, .clickhouse.sql   the other views (backtrace, hot_functions, collectives, ...), over these folders
    DIR/_probing/done.jsonl                             which traces are done: a line for each

A trace that is done and has not grown is not done again; the files of one recording (rotation) are done together. Files that are being written are in DIR/_probing/ until they are complete; files that a
killed export left there are removed by the next export. trace_id identifies a recording, and stack_id the frames of a stack; both are the same in
every export.
"""
import argparse
import json
import os
import re
import sys
import time

from probing import TraceError, _arrow, _columns, _traces, _views
from probing._export_set import DataSet, Refused, places_of

EPILOG = """pyarrow does the writing (pip install pyarrow). Exit code: 0; 1 a trace was damaged or could not be
read (the rest is there); 2 usage; 3 nothing could be written.

  probing export --parquet run1 node*/
  duckdb -c ".read run1/views.duckdb.sql" -c "SELECT func, sum(seconds) FROM samples GROUP BY 1 ORDER BY 2 DESC LIMIT 10"
"""
DERIVED = ("samples", "backtrace", "trigger_stacks")  # views with a row a record that are made of tables here
WINDOW = 1 << 20  # rows that are held to bring them into the order of time


def visible(text):
    """Replaces unprintable characters: a name may hold a line end, or an escape sequence for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def say(text):
    sys.stderr.write("probing-export: %s\n" % visible(text))


class Progress(object):
    def __init__(self, quiet, total):
        self.shown, self.total, self.begun, self.last = not quiet and sys.stderr.isatty(), total, time.monotonic(), 0.0

    def at(self, done, name):
        now = time.monotonic()
        if self.shown and now - self.begun > 1 and now - self.last > 0.2:
            left = (now - self.begun) / max(done, 1) * (self.total - done)
            sys.stderr.write("\rprobing-export: %d of %d traces, about %d s left: %s\033[K" % (done, self.total, left, visible(name)[-60:]))
            self.last = now

    def clear(self):
        if self.last:
            sys.stderr.write("\r\033[K")


# ---- tables ---------------------------------------------------------------------------------------


def plain(table, pa, pc, view=None, replace=(), words=None):
    """Returns the table with the same column types for every trace: names as text, the types of _views, and the columns (name, value, type) of
    `replace` replaced or added. words: the view whose columns' descriptions these have, if it is another one."""
    words = words or view
    columns, fields = [], []
    for field, column in zip(table.schema, table.columns):
        kind = field.type
        if pa.types.is_dictionary(kind):
            column, kind = column.cast(pa.string()), pa.string()
        if kind == pa.timestamp("ns", "UTC"):  # Spark has no finer ones
            if field.name == "timestamp":
                columns.append(column.cast(pa.int64()))
                fields.append(pa.field("ts", pa.int64(), True, {"description": "timestamp to the nanosecond, since 1970"}))
            kind = pa.timestamp("us", "UTC")
            column = column.cast(kind, safe=False)
        want = _views.column_type(view, field.name) if view else None
        if want:
            target = {"int": pa.int64(), "text": pa.string(), "real": pa.float64(), "time": pa.timestamp("us", "UTC")}[want]
            if target != kind:
                if want == "real" and pa.types.is_string(kind):  # 'nan', and values that are no numbers
                    column = pa.chunked_array([pa.array([number(v) for v in column.to_pylist()], target)])
                elif want == "text" and pa.types.is_floating(kind):
                    column = pa.chunked_array([pa.array([None if v is None else repr(v) for v in column.to_pylist()], target)])
                else:
                    column = column.cast(target, safe=False)
                kind = target
        columns.append(column)
        meaning = _columns.MEANINGS.get((words, field.name)) or _columns.MEANINGS.get(field.name) if words else None
        fields.append(pa.field(field.name, kind, True, {"description": meaning} if meaning else field.metadata))
    out = pa.table(columns, schema=pa.schema(fields))
    for name, value, kind in replace:
        column = pa.chunked_array([pa.array([value] * out.num_rows, kind)]) if not isinstance(value, pa.ChunkedArray) else value
        at = out.schema.get_field_index(name)
        field = pa.field(name, column.type, True, out.schema.field(at).metadata if at >= 0 else None)
        out = out.set_column(at, field, column) if at >= 0 else out.append_column(field, column)
    return out


def number(value):
    try:
        return None if value is None else float(value)
    except ValueError:
        return None


def sorted_batches(stream, pa, pc):
    """Yields (table, how many of its rows came too late to be sorted): the stream sorted by time within a window of WINDOW rows."""
    held, rows, last = [], 0, None
    for batch in stream:
        held.append(batch)
        rows += batch.num_rows
        if rows < 2 * WINDOW:
            continue
        table = pa.Table.from_batches(held).sort_by("timestamp")
        out, rest = table.slice(0, rows - WINDOW), table.slice(rows - WINDOW)
        late = pc.sum(pc.less(out["timestamp"], last)).as_py() if last is not None else 0
        last = out["timestamp"][out.num_rows - 1]
        yield out, late or 0
        held, rows = rest.to_batches(), rest.num_rows
    if held and not rows:
        yield pa.Table.from_batches(held), 0  # its columns are of use
    if rows:
        table = pa.Table.from_batches(held).sort_by("timestamp")
        yield table, (pc.sum(pc.less(table["timestamp"], last)).as_py() or 0) if last is not None else 0


class Writer(object):
    """One Parquet file, which is created when the first rows are written."""

    def __init__(self, path, pq):
        self.path, self.pq, self.writer, self.rows = path, pq, None, 0

    def write(self, table):
        if self.writer is None:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self.writer = self.pq.ParquetWriter(self.path, table.schema, compression="zstd", write_statistics=True, version="2.6")
        self.writer.write_table(table, row_group_size=1 << 17)
        self.rows += table.num_rows

    def close(self):
        if self.writer is not None:
            self.writer.close()
        return self.rows


def stack_frames(stacks, pa, pc):
    """Returns a table with a row for each frame of each stack."""
    depth = stacks["depth"].combine_chunks()
    parent = pc.list_parent_indices(stacks["funcs"].combine_chunks())
    flat = {n: pc.list_flatten(stacks[n].combine_chunks()) for n in ("funcs", "files", "lines", "types", "modules", "firstlines", "firsts")}
    begins = pc.subtract(pc.cumulative_sum(depth), depth)
    at = pc.subtract(pa.array(range(len(parent)), pa.int64()), pc.take(begins, parent))

    def text(name):
        column = flat[name]
        return pc.cast(column, pa.string())

    def known(column, nothing):
        return pc.if_else(pc.equal(column, nothing), pa.scalar(None, column.type), column)
    leaf = pc.fill_null(pc.equal(pc.take(stacks["leaf"].combine_chunks(), parent), at), False)
    return pa.table({"stack_id": pc.take(stacks["stack_id"].combine_chunks(), parent), "depth": at, "func": text("funcs"),
                     "file": known(text("files"), ""), "lineno": known(flat["lines"], 0), "frame_type": text("types"),
                     "module": known(text("modules"), ""), "firstline": known(flat["firstlines"], 0), "first": flat["firsts"],
                     "leaf": leaf.cast(pa.int64())})


class OfTraces(object):
    """The tables of one trace of a file. joined: (what all files of its recording were opened as, number of the trace there), where the recording goes on
    in several files (rotation); what was in progress when it went on is then in one of them alone."""

    def __init__(self, traces, info, pa, pc, joined=None):
        self.traces, self.info, self.pa, self.pc, self.joined = traces, info, pa, pc, joined

    def samples(self):
        table = self.traces.table("samples")
        table._request["flags"] = self.traces._flags | _arrow.GLOBAL
        reader = self.pa.RecordBatchReader.from_stream(table)
        yield self.pa.RecordBatch.from_pylist([], schema=reader.schema)  # there may be no other
        for batch in reader:
            part = self.pa.Table.from_batches([batch])
            yield from part.filter(self.pc.equal(part["trace_id"], self.info["recording"])).to_batches()

    def frames(self):
        return stack_frames(self.pa.table(self.traces.table("stacks")).combine_chunks(), self.pa, self.pc)

    def view(self, name):
        if self.joined:
            return self.pa.table(self.joined[0].sql('SELECT * FROM "%s" WHERE %s = %d' % (name, "id" if name == "trace" else "trace_id", self.joined[1])))
        table = self.pa.table(self.traces[name])
        return table.filter(self.pc.equal(table["id" if name == "trace" else "trace_id"], self.info["trace_id"]))


def export_trace(data, source, views, info, pa, pc, pq):
    """Writes all tables of one trace, which `source` reads. Returns (files, rows of each table, samples that came too late to be sorted)."""
    files, counts, late = [], {}, 0

    def put(table_name, tables):
        writer, name = None, data.file(table_name, info["run"], info["rank"], "%016x" % info["recording"])
        for table in tables:
            if table.num_rows == 0:
                data.empty.setdefault(table_name, table.schema)
                continue
            writer = writer or Writer(os.path.join(data.temp, name), pq)
            writer.write(table)
        if writer:
            counts[table_name] = writer.close()
            files.append(name)

    def samples():
        nonlocal late
        for table, behind in sorted_batches(source.samples(), pa, pc):
            late += behind
            yield plain(table, pa, pc)

    put("samples", samples())
    put("stack_frames", [frames_of_trace(source, info, pa, pc)])
    for view in views:
        put(view, [of_view(source.view(view), view, info, pa, pc)])
    return files, counts, late


def frames_of_trace(source, info, pa, pc):
    return plain(source.frames(), pa, pc, None, (("trace_id", info["recording"], pa.int64()), ("run", info["run"], pa.string()),
                                                 ("rank", info["rank"], pa.int64())), "stack_frame")


def of_view(table, view, info, pa, pc):
    """Returns the rows of a view for one trace (info: its row of table traces), sorted by time, with ids that are the same in every export."""
    local = "id" if view == "trace" else "trace_id"
    part = plain(table, pa, pc, view)
    rank = part["rank"].cast(pa.int64()) if view in _views.OWN_RANK and "rank" in part.column_names else info["rank"]
    first = (("program", info.get("first", info["recording"]), pa.int64()),) if view == "trace" else ()
    part = plain(part, pa, pc, None, first + ((local, info["recording"], pa.int64()), ("run", info["run"], pa.string()), ("rank", rank, pa.int64())))
    return part.sort_by("timestamp") if "timestamp" in part.column_names else part


def per_trace_views(traces):
    """Returns the views with one row for each record, whose rows of a trace do not depend on other traces. hangs_made and the like are left out: they
    have the rows that hangs has stored, and SQLite takes a quarter of a second to compile hangs_made, even only for its columns."""
    rows = traces.sql("SELECT m.name FROM (SELECT name FROM sqlite_master WHERE type = 'view' AND name NOT GLOB '*_made' LIMIT -1) m"
                      " WHERE m.name = 'trace' OR EXISTS (SELECT 1 FROM pragma_table_info(m.name) WHERE name = 'trace_id') ORDER BY m.name").rows()
    return [name for name, in rows if name not in DERIVED]


# ---- the command ----------------------------------------------------------------------------------


def traces_of(paths, alone, clocks):
    """Returns every named trace once, as {file: [rows of table traces]}, and lines about files that cannot be read."""
    traces = _traces.open(*paths, alone=alone, clocks=clocks)
    table = traces.table("traces")
    by_file = {}
    for row in table.rows():
        info = dict(zip(table.columns, row))
        by_file.setdefault(info["file"], []).append(info)
    for infos in by_file.values():
        for i, info in enumerate(infos):
            info["trace_id"] = i + 1
    read = tuple("%s: " % file for file in by_file)  # what is damaged in these is said when they are exported
    return by_file, [line for line in traces.problems if not line.startswith(read)]


def in_utf8(path):
    """Returns a path as the tables have it: bytes that are not UTF-8 are replaced."""
    return re.sub("[\udc80-\udcff]", "\ufffd", path)


def odd_names(paths):
    """Returns {path as the tables have it: [real paths]} for the files whose real paths are not UTF-8."""
    found = {}
    for top in paths:
        for path in [top] + [os.path.join(folder, n) for of in (top, top + ".d") for folder, _, names in os.walk(of) for n in names]:
            said = in_utf8(path)
            if said != path and path not in found.setdefault(said, []):
                found[said].append(path)
    return found


def units_of(by_file):
    """Returns [[file]]: files that belong together, because a recording goes on in them (rotation), and every other file by itself."""
    def recordings(file):
        return [i.get("program") or file if "program" in i else (i["host"], i["boot_id"], i["pid"]) for i in by_file[file]]
    rotated = {key for file, infos in by_file.items() for key, i in zip(recordings(file), infos) if i["end_reason"] == "rotated"}
    units = {}
    for file in sorted(by_file):
        units.setdefault(next((k for k in recordings(file) if k in rotated), file), []).append(file)
    return list(units.values())


def named(file, info):
    """Returns the name of a trace in view trace."""
    return file if info["trace_id"] == 1 else "%s#%d" % (file, info["trace_id"])


def sources(opened, data, paths, alone, pa, pc):
    """Returns ({file: [infos]}, problems, open), where open(file, unit) returns (the objects with its problems, views, source), and source(info) the
    tables; unit: the file and those that belong to it."""
    if opened._is_database:
        from probing import _export_db
        views = per_trace_views(opened)
        infos = _export_db.infos_of(opened)
        return {i["file"]: [i] for i in infos}, [], lambda file, unit: ([opened], views, lambda info: _export_db.Source(opened, info, pa))
    clocks, odd = data.align(paths, alone), odd_names(opened.paths)
    views = []  # the same of every trace: the schema is that of this version's databases
    joined = {}  # of the unit in hand: its files -> (all of them, {name in view trace: number}, {name: that of the file that its program is the number of})
    by_file, problems = traces_of(paths, alone, clocks)
    recordings = {named(file, info): info["recording"] for file, infos in by_file.items() for info in infos}

    def real(file):
        names = odd.get(file, [file])
        if len(names) > 1:
            raise TraceError("%d files have this name, but for bytes that are no UTF-8: rename all but one" % len(names))
        return names[0]

    def join(unit):
        if tuple(unit) not in joined:
            joined.clear()
            traces = _traces.open(*[real(file) for file in unit], alone=True, clocks=clocks)
            names = {number: name for number, name in traces.sql("SELECT id, file FROM trace").rows()}
            programs = {name: names[program] for name, program in traces.sql("SELECT file, program FROM trace").rows()}
            joined[tuple(unit)] = traces, {name: number for number, name in names.items()}, programs
        return joined[tuple(unit)]

    def open_file(file, unit):
        traces = _traces.open(real(file), alone=True, clocks=clocks)
        several, numbers, programs = join(unit) if len(unit) > 1 else (None, {}, {})
        views[:] = views or per_trace_views(several or traces)

        def source(info):
            number = numbers.get(named(file, info))
            info["first"] = recordings.get(programs.get(named(file, info)), info["recording"])
            return OfTraces(traces, info, pa, pc, (several, number) if number else None)
        return [traces] + [several] * (several is not None and file == unit[0]), views, source
    return by_file, problems, open_file


def export(folder, paths, alone=False, quiet=False):
    """Exports traces or a database into the folder. Returns {"traces": done now, "unchanged": done before, "failed", "damaged", "rows": {table: n},
    "bytes", "late"}."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    opened = _traces.open(*paths, alone=alone)  # what is none of ours is said before a folder is made
    paths = opened.paths  # a pipe cannot be read again
    data = DataSet(folder, "a database" if opened._is_database else "traces")
    progress = None
    try:
        by_file, problems, open_file = sources(opened, data, paths, alone, pa, pc)
        for line in problems:
            say(line)
        result = {"traces": 0, "unchanged": 0, "failed": len(problems), "damaged": 0, "rows": {}, "bytes": 0, "late": 0}
        progress = Progress(quiet, len(by_file))
        if data.cleared and not quiet:
            say("%s: an export did not end; what it was writing is removed, its trace is done again" % folder)
        def is_done(file):
            infos = by_file[file]
            before = data.done.get(infos[0]["recording"])
            if not before or before["bytes"] != infos[0]["file_bytes"]:
                return False
            same = places_of(before) == [[i["run"], i["attempt"]] for i in infos]
            if same and data.is_whole(before):
                return True
            progress.clear()
            say("%s: %s: it is done again" % (file, "of what was made of it in %s a part is missing" % folder if same else
                                              "it is of another run, or attempt of it, since others came"))
            return False

        at = 0
        for file, unit in [(file, unit) for unit in units_of(by_file) for file in unit]:
            infos = by_file[file]
            progress.at(at, file)
            at += 1
            if file == unit[0]:
                todo = [f for f in unit if not is_done(f)]
            if not todo:
                result["unchanged"] += len(infos)
                continue
            files, rows, late = [], {}, 0
            try:
                opened_now, views, source = open_file(file, unit)
                for info in infos:
                    more, counts, behind = export_trace(data, source(info), views, info, pa, pc, pq)
                    files += more
                    late += behind
                    for table, n in counts.items():
                        rows[table] = rows.get(table, 0) + n
            except (TraceError, FileNotFoundError) as error:  # the latter: it is gone meanwhile
                progress.clear()
                say("%s: %s" % (file, getattr(error, "strerror", None) or error))
                result["failed"] += 1
                continue
            lines = list(dict.fromkeys(line for one in opened_now for line in one.problems))
            for line in lines:
                progress.clear()
                say(line)
            result["damaged"] += bool(lines)
            result["traces"] += len(infos)
            result["late"] += late
            for table, n in rows.items():
                result["rows"][table] = result["rows"].get(table, 0) + n
            result["bytes"] += sum(os.path.getsize(os.path.join(data.temp, f)) for f in files)
            data.finish({"recording": infos[0]["recording"], "file": file, "bytes": infos[0]["file_bytes"], "rows": rows, "late": late,
                         "run": infos[0]["run"], "rank": infos[0]["rank"], "places": [[i["run"], i["attempt"]] for i in infos]}, files)
        moved = data.moved(by_file)
        if moved:
            progress.clear()
            say("%s: %d traces that are there, and were not named now, are of another run, or attempt of it, since these came: name them, too"
                % (folder, moved))
        data.finish_empty(pq)
        _views.write_scripts(folder)
    finally:
        if progress:
            progress.clear()
        data.close()
    return result


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="probing-export", description="Traces as a Parquet data set: one folder a table, by run and rank.",
                                     usage="probing-export --parquet DIR [OPTION...] TRACE...|OUT.db", epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parquet", metavar="DIR", required=True, help="the folder; what is there already is not done again")
    parser.add_argument("--alone", action="store_true", help="the named files alone, without their .d directories")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary line, no progress")
    parser.add_argument("trace", nargs="+", metavar="TRACE", help="traces, directories of them, or one database of probing-convert")
    args = parser.parse_args(arguments)
    try:
        import pyarrow.parquet  # noqa
    except ImportError as error:
        say("pyarrow is needed, and %s has none (%s): %s -m pip install pyarrow, or PROBING_PYTHON=python that has it"
            % (sys.executable, error, sys.executable))
        return 3
    if not hasattr(pyarrow.RecordBatchReader, "from_stream"):
        say("pyarrow 15 or later is needed, and %s has %s: %s -m pip install -U pyarrow, or PROBING_PYTHON=python that has it"
            % (sys.executable, pyarrow.__version__, sys.executable))
        return 3
    begun = time.monotonic()
    try:
        result = export(args.parquet, args.trace, args.alone, args.quiet)
    except FileNotFoundError as error:
        say("%s: %s" % (error.filename, error.strerror) if error.filename else error.strerror)
        return 3
    except (TraceError, Refused, OSError) as error:
        say("cannot export: %s" % error)
        return 3
    except KeyboardInterrupt:
        return 130
    if args.json:
        print(json.dumps(result))
    if not args.quiet:
        say("%s: %d trace%s, %d unchanged, %s rows, %.1f MiB, in %.1f s"
            % (args.parquet, result["traces"], "" if result["traces"] == 1 else "s", result["unchanged"],
               format(sum(result["rows"].values()), ","), result["bytes"] / 2.0 ** 20, time.monotonic() - begun))
    return 1 if result["failed"] or result["damaged"] else 0


if __name__ == "__main__":
    sys.exit(main())
