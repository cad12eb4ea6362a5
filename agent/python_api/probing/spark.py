# SPDX-License-Identifier: Apache-2.0
"""A Python data source for Spark 4 that reads traces; the executors convert them.

    import probing.spark
    probing.spark.register(spark)
    spark.read.format("probing").load("traces/*.zst")                              # table samples
    spark.read.format("probing").option("table", "steps").load("traces")           # any view with one row for each record, or stack_frames
    spark.read.format("probing").option("table", "problems").load("traces")        # what was damaged or could not be read: file, line
    probing.spark.views(spark, "traces")                                           # all of them, and backtrace, hot_functions, ... as temporary views

Times are aligned as in a database: the driver reads what is needed for that (each trace's index, and the collectives if there are several
machines), and sends to each executor the clocks of the traces that it reads. With option align=false each trace's times follow from its own anchors.

If a trace is larger than option splitBytes (64 MB), a partition is a part of its time; else it is a trace, or several traces of one machine, up to
splitBytes in all, where each counts OPEN bytes more than its size. Filters on rank and timestamp are pushed down to the reader (pyspark 4.1 and
later): files of other ranks are not opened, and blocks of other times are not decompressed. If several files hold the same recording, the longest
one counts; the driver finds out which that is, and says so on stderr. A damaged trace yields the rows that it has, a file that is no trace yields
none; neither ends the job, and table `problems` lists both. A file that an executor does not find ends the job. Every executor reads the files by
path (a shared file system); it needs this package with its library and, for the views, its program. Columns are those of `probing export`.
"""
import contextlib
import glob
import os
import shutil
import sqlite3
import sys
import tempfile
import warnings
import zlib

try:
    import pyarrow  # noqa: F401
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ImportError as missing:
    raise ImportError("probing.spark needs pyspark 4 and pyarrow (%s): pip install 'pyspark>=4' pyarrow" % missing) from missing

from probing import TraceError, _arrow, _traces, _views, export

SPLIT = 64 << 20
OPEN = 4 << 20  # what beginning with a file costs, in bytes read: Spark's own spark.sql.files.openCostInBytes


if not (os.environ.get("JAVA_HOME") or os.environ.get("SPARK_REMOTE") or shutil.which("java")):
    warnings.warn("Spark needs Java, and there is none: apt-get install openjdk-17-jre-headless, or set JAVA_HOME", stacklevel=2)


def register(spark):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # without it Spark refuses a reader that can take filters
    spark.dataSource.register(Probing)


def files_of(path):
    """Returns the traces that a path means: a file, a directory (with those below it), a pattern, or several of these separated by commas."""
    found = {}
    for part in path.split(","):
        names = [part] if os.path.exists(part) else sorted(glob.glob(part))
        if not names:
            raise FileNotFoundError(2, "no file matches", part)
        for name in names:
            if os.path.isdir(name):
                found.update((p, 1) for p in traces_below(name))
            else:
                found[name] = 1
    if not found:
        raise FileNotFoundError(2, "no trace (*.zst) there", path)
    return list(dict.fromkeys(os.path.abspath(p) for p in found))  # executors have folders of their own


def traces_below(folder):
    """Returns the same files of a directory as probing-convert takes (converter/inputs.h)."""
    found = []

    def unread(error):
        sys.stderr.write("probing: %s: %s\n" % (export.in_utf8(error.filename), error.strerror))

    for at, folders, names in os.walk(folder, onerror=unread):
        folders[:] = [f for f in folders if not f.startswith(".") and ".zst.old" not in f]
        paths = [os.path.join(at, n) for n in names if n.endswith(".zst") and len(n) > 4 and not n.startswith(".")]
        found += filter(os.path.isfile, paths)
    return sorted(found)


def infos_of(traces):
    table = traces.table("traces")
    return [dict(zip(table.columns, row)) for row in table.rows()]


def copies_of(infos):
    """Returns {file: {recording: the other file in which it counts}} for {file: its rows of table traces}. If several files hold a recording, the
    longest counts, as in probing-convert."""
    best = {}
    for file, rows in infos.items():
        for i in rows:
            if i["pid"] is not None and i["bytes"] > best.get(i["recording"], (None, -1))[1]:  # else nobody knows whose it is
                best[i["recording"]] = (file, i["bytes"])
    found = {file: {i["recording"]: best[i["recording"]][0] for i in rows if i["recording"] in best} for file, rows in infos.items()}
    return {file: {r: other for r, other in of.items() if other != file} for file, of in found.items()}


def tables_of(files, name, start, end, ranks, clocks=None, without=()):
    """Yields Arrow tables of traces, as probing export writes them; raises TraceError. Only for samples may there be several files: modules that they
    share are then looked up once. without: recordings that count in another file."""
    import pyarrow as pa
    import pyarrow.compute as pc
    traces = _traces.open(files, alone=True, clocks=clocks, align=clocks is not None)
    if name == "samples":
        table = traces.table("samples")
        table._request.update(start=start, end=end, ranks=ranks, flags=_arrow.ALONE | _arrow.GLOBAL)
        for batch in pa.RecordBatchReader.from_stream(table):
            table = pa.Table.from_batches([batch])
            if without:
                table = table.filter(pc.invert(pc.is_in(table["trace_id"], pa.array(without, pa.int64()))))
            yield export.plain(table, pa, pc)
        return
    for info in infos_of(traces):
        if (ranks and info["rank"] not in ranks) or info["recording"] in without:
            continue
        source = export.OfTraces(traces, info, pa, pc)
        yield (export.frames_of_trace(source, info, pa, pc) if name == "stack_frames" else
               export.of_view(source.view(name), name, info, pa, pc))


def problems_of(file):
    """Reads the whole file; returns lines about its problems."""
    traces = _traces.open(file, alone=True)
    for _ in traces.samples.select("timestamp").rows():
        pass
    for info in infos_of(traces):
        if info["end_reason"] is None:
            return traces.problems + ["no end: cut off, still recorded, or killed"]
    return traces.problems


class Clocks(object):
    """The clocks of the traces' machines, aligned by the driver, and the run of each trace: a small database for each boot, which is sent with
    the parts of that boot's traces."""

    def __init__(self, files):
        self.of_boot = {}
        with tempfile.TemporaryDirectory(prefix="probing-") as folder:
            path = os.path.join(folder, "clocks.db")
            _arrow.align(files, _arrow.ALONE, path)
            whole = sqlite3.connect(path)
            schema = [r[0] for r in whole.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name IN ('clock_boot', 'clock_knot')")]
            schema += ["CREATE TABLE trace_file(recording TEXT PRIMARY KEY, run TEXT, attempt INTEGER)"]  # converter/place_rows.h
            for boot in whole.execute("SELECT * FROM clock_boot").fetchall():
                one = sqlite3.connect(os.path.join(folder, "one.db"))
                for statement in schema:
                    one.execute(statement)
                one.execute("INSERT INTO clock_boot VALUES(%s)" % ", ".join("?" * len(boot)), boot)
                one.executemany("INSERT INTO clock_knot VALUES(?, ?, ?)", whole.execute("SELECT * FROM clock_knot WHERE boot = ?", boot[:1]))
                one.executemany("INSERT OR IGNORE INTO trace_file VALUES(?, ?, ?)",
                                whole.execute("SELECT recording, run, attempt FROM trace_file WHERE boot_id = ?", boot[1:2]))
                one.commit()
                one.close()
                with open(os.path.join(folder, "one.db"), "rb") as f:
                    self.of_boot[boot[1]] = zlib.compress(f.read())
                os.unlink(os.path.join(folder, "one.db"))
            whole.close()

    def of(self, infos):
        boots = {i["boot_id"] for i in infos}
        return self.of_boot.get(boots.pop()) if len(boots) == 1 else None


@contextlib.contextmanager
def clock_file(packed):
    """Yields the path of an unpacked database of Clocks, or None."""
    if packed is None:
        yield None
        return
    with tempfile.NamedTemporaryFile(prefix="probing-", suffix=".db") as f:
        f.write(zlib.decompress(packed))
        f.flush()
        yield f.name


class Part(InputPartition):
    """Files and their time for one task. without: recordings in its one file that count in another file; lines: {file: an additional line about it for
    table problems}."""

    def __init__(self, files, start=_arrow.FIRST, end=_arrow.LAST, clocks=None, without=()):
        super().__init__(files)
        self.files, self.start, self.end, self.clocks, self.without, self.lines = files, start, end, clocks, list(without), {}


class Reader(DataSourceReader):
    def __init__(self, options, schema):
        self.path, self.table = options["path"], options.get("table", "samples")
        self.split = int(options.get("splitbytes", options.get("splitBytes", SPLIT)))
        self.align = options.get("align", "true").lower() != "false" and self.table != "problems"
        self.schema, self.ranks, self.start, self.end = schema, None, _arrow.FIRST, _arrow.LAST

    def pushFilters(self, filters):
        """Takes the filters by which files or blocks can be skipped; Spark applies all filters to the rows again."""
        for f in filters:
            kind, column = type(f).__name__, ".".join(getattr(f, "attribute", ()))
            if column == "rank" and kind in ("EqualTo", "In"):
                ranks = [f.value] if kind == "EqualTo" else list(f.value)
                self.ranks = [r for r in ranks if self.ranks is None or r in self.ranks]
            elif column == "timestamp" and kind in ("GreaterThan", "GreaterThanOrEqual"):
                self.start = max(self.start, _traces._ns(f.value, column))
            elif column == "timestamp" and kind in ("LessThan", "LessThanOrEqual"):
                self.end = min(self.end, _traces._ns(f.value, column) + (1000 if kind == "LessThanOrEqual" else 0))
            elif column == "timestamp" and kind == "EqualTo":
                self.start, self.end = _traces._ns(f.value, column), _traces._ns(f.value, column) + 1000
            yield f

    def partitions(self):
        parts, room = [], 0
        files = files_of(self.path)
        all_infos = {file: self._infos(file) for file in files}
        clocks = Clocks(files) if self.align and sum(map(len, all_infos.values())) > 1 else None
        copies = copies_of(all_infos)
        lines = {file: "the same recording as %s: counted once" % ", ".join(sorted(set(of.values()))) for file, of in copies.items() if of}
        for file, line in lines.items() if self.table != "problems" else ():
            sys.stderr.write("probing: %s: %s\n" % (export.in_utf8(file), export.in_utf8(line)))
        for file in files:
            size = os.path.getsize(file)
            n = -(-size // self.split) if self.table == "samples" else 1
            without = copies.get(file, {}) if self.table != "problems" else {}
            infos = [i for i in all_infos[file] if i["recording"] not in without]
            if without and not infos:
                continue
            if infos and self.ranks is not None and not any(i["rank"] in self.ranks for i in infos):
                continue
            own = clocks.of(infos) if clocks else None
            times = [] if n < 2 else [t for i in infos for t in (i["first"], i["last"]) if t is not None]
            if times:
                cuts = [min(times) + (max(times) - min(times)) * i // n for i in range(1, n)]
                for start, end in zip([_arrow.FIRST] + cuts, cuts + [_arrow.LAST]):
                    if start < self.end and end > self.start:
                        parts.append(Part([file], max(start, self.start), min(end, self.end), own, without))
                room = 0
            elif without:
                parts.append(Part([file], self.start, self.end, own, without))
                room = 0
            elif room >= size + OPEN and parts[-1].clocks == own:
                parts[-1].files.append(file)
                room -= size + OPEN
            else:
                parts.append(Part([file], self.start, self.end, own))
                room = self.split - size - OPEN
        for part in parts:
            part.lines = {f: lines[f] for f in part.files if f in lines}
        return parts

    @staticmethod
    def _infos(file):
        try:
            return infos_of(_traces.open(file, alone=True))
        except (TraceError, OSError):
            return []

    def read(self, part):
        import pyarrow as pa
        os.environ["PROBING"] = "0"
        names = [f.name for f in self.schema.fields]
        if self.table == "problems":
            for file in part.files:
                try:
                    lines = problems_of(file)
                except (TraceError, OSError) as error:
                    lines = [str(error)]
                lines = [part.lines[f] for f in (file,) if f in part.lines] + lines
                lines = [[export.in_utf8(file), export.in_utf8(line)] for line in lines]
                yield pa.RecordBatch.from_arrays([pa.array([r[i] for r in lines], pa.string()) for i in (0, 1)], ["file", "line"])
            return
        if self.ranks is not None and not self.ranks:
            return
        with clock_file(part.clocks) as clocks:
            for files in [part.files] if self.table == "samples" else [[f] for f in part.files]:
                try:
                    for table in tables_of(files, self.table, part.start, part.end, self.ranks or (), clocks, part.without):
                        yield from table.select(names).to_batches(max_chunksize=1 << 16)
                except TraceError as error:  # a file that is not there ends the job: all of them may be missing on this executor
                    sys.stderr.write("probing: %s: %s\n" % (", ".join(files), error))


class Probing(DataSource):
    @classmethod
    def name(cls):
        return "probing"

    def schema(self):
        from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType, ByteType
        table = self.options.get("table", "samples")
        if table == "problems":
            return StructType([StructField("file", StringType()), StructField("line", StringType())])
        error = None
        for file in files_of(self.options["path"]):
            try:
                first = next(iter(tables_of(file, table, _arrow.FIRST, _arrow.LAST, ())), None)
            except TraceError as why:
                error = why
                continue
            if first is not None:
                kinds = {"int64": LongType, "int8": ByteType, "double": DoubleType, "string": StringType, "timestamp[us, tz=UTC]": TimestampType}
                return StructType([StructField(f.name, kinds[str(f.type)]()) for f in first.schema])
        raise TraceError("no trace there has table %s%s" % (table, ": %s" % error if error else ""))

    def reader(self, schema):
        return Reader(self.options, schema)


def views(spark, path):
    """Makes temporary views of all tables, and of backtrace, hot_functions, collectives, stragglers and runs; returns the tables' names."""
    first = _traces.open(files_of(path)[0], alone=True)
    names = ["samples", "stack_frames"] + export.per_trace_views(first)
    for name in names:
        spark.read.format("probing").option("table", name).load(path).createOrReplaceTempView(name)
    for statement in _views.script(_views.Spark, "", names)[len(names):]:
        spark.sql(statement.rstrip(";"))
    return names
