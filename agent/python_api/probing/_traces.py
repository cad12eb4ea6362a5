# SPDX-License-Identifier: Apache-2.0
"""probing.open(): traces and databases as tables. README, "From Python"."""
import glob
import io
import os
import stat
import warnings

from probing import TraceError, _arrow, _remote

_SECOND = 10 ** 9
_PART = 1 << 20
_NO_END = 64 << 20  # bytes of a pipe in which no trace begins (converter/source.c)
_HINT = b"\x5d\x2a\x4d\x18\x3c\0\0\0PRBh"  # what each block of a trace begins with
_ZSTD = b"\x28\xb5\x2f\xfd"


def _ns(when, name):
    """Returns ns since 1970, UTC, of a number (seconds since 1970), a datetime (without a zone: UTC), a numpy or pandas time, or an ISO 8601 text."""
    import datetime
    if isinstance(when, str):
        import re
        m = re.match(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s*(Z|[+-]\d\d:?\d\d)?$", when.strip())
        if not m:
            raise TraceError("%s: %r is no time (2026-11-22T13:00:00, seconds since 1970, or a datetime)" % (name, when))
        try:
            at = datetime.datetime(*[int(g or 0) for g in m.groups()[:6]])
        except ValueError as error:
            raise TraceError("%s: %r: %s" % (name, when, error)) from None
        ns = int((m.group(7) or "0").ljust(9, "0"))
        zone = m.group(8) or "Z"
        shift = 0 if zone == "Z" else int(zone[0] + "1") * (int(zone[1:3]) * 60 + int(zone[-2:]))
        since = at - datetime.datetime(1970, 1, 1) - datetime.timedelta(minutes=shift)
        return (since.days * 86400 + since.seconds) * _SECOND + ns
    if type(when).__module__.split(".")[0] in ("numpy", "pandas") and not isinstance(when, (int, float)):
        if hasattr(when, "value"):  # pandas.Timestamp
            return int(getattr(when, "as_unit", lambda _: when)("ns").value)
        if str(getattr(when, "dtype", "")).startswith("datetime64"):
            return int(when.astype("datetime64[ns]").astype("int64"))
        return _ns(when.item(), name)
    if isinstance(when, datetime.datetime):
        at = when if when.tzinfo else when.replace(tzinfo=datetime.timezone.utc)
        since = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        return ((since.days * 86400 + since.seconds) * 1000000 + since.microseconds) * 1000
    if isinstance(when, (int, float)) and not isinstance(when, bool) and abs(when) < 9e9:
        return int(when) * _SECOND + int(round(when % 1 * 1e9)) if when >= 0 else int(when * 1e9)
    raise TraceError("%s: %r is no time (seconds since 1970, a datetime, or a text in ISO 8601)" % (name, when))


def _within(ns):
    """Returns a time as 64 bits hold it, from 1677 to 2262; FIRST and LAST themselves mean that there is no limit."""
    return max(_arrow.FIRST + 1, min(ns, _arrow.LAST - 1))


_NO_RANK = -2  # no trace has it, and -1 is of those that say none
VIEWS_TOO = ("children", "config", "memory", "process")  # records and views by one name: the view is meant


class Table(object):
    """A table to be read: nothing is read until rows are asked for. select(), range() and rank() return a narrower table, for which less is read.

    Every library that takes Arrow streams takes it: pyarrow.table(t), polars.DataFrame(t) (Polars 1.3), duckdb.sql("SELECT ... FROM t"), nanoarrow.ArrayStream(t),
    pandas.DataFrame.from_arrow(t) (pandas 3); t.pandas() and t.rows() need no Arrow library.
    """

    def __init__(self, owner, name, sql=None, **request):
        self._owner, self.name, self._sql, self._request = owner, name, sql, request

    def _narrower(self, **more):
        return Table(self._owner, self.name, self._sql, **dict(self._request, **more))

    def _stream(self, rows=True):
        if self._sql is None:
            return dict({"flags": self._owner._flags, "clocks": self._owner._aligned() if rows else None}, paths=self._owner.paths, table=self.name,
                        **self._request)
        asked = self._request
        where = ["%s IN (%s)" % (_quote("rank"), ", ".join(map(str, asked["ranks"])))] if asked.get("ranks") else []
        for key, sign in (("start", ">="), ("end", "<")):
            if asked.get(key) not in (None, _arrow.FIRST, _arrow.LAST):
                where.append("%s %s %.9f" % (_quote("timestamp"), sign, asked[key] / _SECOND))
        sql = self._sql
        if where or asked.get("columns"):
            sql = "SELECT %s FROM (%s\n)%s" % (  # it may end in a comment
                ", ".join(map(_quote, asked.get("columns") or ())) or "*", sql.strip().rstrip(";"),
                                            " WHERE " + " AND ".join(where) if where else "")
        return {"paths": [self._owner.database], "sql": sql, "batch": asked.get("batch", 0)}

    # ---- less of it

    def select(self, *columns):
        """Returns the table with these columns alone, in this order; what only other columns need is not decoded."""
        names = [c for given in columns for c in ([given] if isinstance(given, str) else given)]
        if not names:
            raise TraceError("select(): name a column of %s" % self.name)
        return self._narrower(columns=names)

    def range(self, start=None, end=None):
        """Returns the table with start <= time < end alone: seconds since 1970, datetimes (without a zone: UTC) or texts (ISO 8601). Blocks
        outside of that time are not read."""
        return self._narrower(start=_arrow.FIRST if start is None else _within(_ns(start, "start")),
                              end=_arrow.LAST if end is None else _within(_ns(end, "end")))

    def rank(self, *ranks):
        """Returns the table with the rows of these ranks alone; other traces are not read."""
        wanted = [int(r) for given in ranks for r in ([given] if isinstance(given, str) or not hasattr(given, "__iter__") else given)]
        return self._narrower(ranks=[r for r in wanted if 0 <= r <= _arrow.LAST] or [_NO_RANK])  # none at all: no rows

    def batch(self, rows):
        """Returns the table with Arrow batches of about this many rows (a block of the trace is not divided)."""
        return self._narrower(batch=max(1, min(int(rows), (1 << 32) - 1)))

    # ---- read

    def __arrow_c_stream__(self, requested_schema=None):
        capsule, notes = _arrow.stream_capsule(**self._stream())
        self._owner._keep(notes)
        return capsule

    def __arrow_c_schema__(self):
        return _arrow.schema_capsule(**self._stream(rows=False))

    @property
    def fields(self):
        """The columns, each with .name, .type and .description."""
        with _arrow.Reader(**self._stream(rows=False)) as reader:
            return reader.fields

    @property
    def columns(self):
        return [f.name for f in self.fields]

    def rows(self, limit=None):
        """Returns an iterator over the rows as tuples; times are ns since 1970 (int)."""
        import itertools
        request = self._stream()
        if limit is not None:
            request["batch"] = max(1, min(limit, request.get("batch") or 1 << 16))
        return itertools.islice(_arrow.rows(self._owner._keep, **request), limit)

    def pandas(self):
        """Returns a DataFrame; needs pandas and numpy only."""
        return _arrow.frame(self._owner._keep, **self._stream())

    def __repr__(self):
        return "<probing %s of %s: %s>" % (self.name, self._owner, ", ".join(self.columns))

    def _repr_html_(self):
        from probing import _html
        return _html.table(self.name, self.fields, list(self.rows(_html.ROWS + 1)))


def _quote(name):
    return '"%s"' % name.replace('"', '""')


def _tool():
    """Returns the path of the program `probing`, which comes with the library."""
    import shutil
    import sys
    library = os.path.realpath(next((p for p in _arrow.places() if os.path.exists(p)), ""))
    for place in (os.environ.get("PROBING_TOOL"), os.path.join(os.path.dirname(library), "..", "..", "bin", "probing"),
                  os.path.join(sys.prefix, "bin", "probing"), shutil.which("probing")):
        if place and os.access(place, os.X_OK):
            return os.path.abspath(place)
    raise TraceError("the program `probing` is needed for that, and is not found (make install, or pip install)")


def _run(arguments, what, copies=()):
    """Runs the program. Returns (what it wrote, its lines about problems), in which the copies [(path, name)] are called by their names."""
    import subprocess
    done = subprocess.run([_tool()] + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    words = done.stderr.decode("utf-8", "replace").strip()
    for path, name in copies:
        words = words.replace(path, name)
    said = words.splitlines()
    if done.returncode not in (0, 1):
        raise TraceError("%s: %s" % (what, said[-1] if said else "exit code %d" % done.returncode))
    return done.stdout, said


class Picture(object):
    """An SVG picture, which notebooks show; .svg is its text, save(path) writes it."""

    def __init__(self, svg):
        self.svg = svg

    def save(self, path):
        """Writes the picture to a file, which is the owner's alone if it is a new one, as traces are."""
        with io.open(os.fspath(path), "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
            f.write(self.svg)

    def _repr_html_(self):  # in a frame of its own: the picture's script and names stay in it
        import html
        return '<iframe style="width:100%%;height:640px;border:0" sandbox="allow-scripts" srcdoc="%s"></iframe>' % html.escape(self.svg, True)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/html": self._repr_html_(), "image/svg+xml": self.svg}


class Traces(object):
    """What probing.open() returns: tables by name, as attributes or items; sql(), flamegraph().

    samples, stacks and the records (.tables) are read from the traces themselves. The views (.views) and sql() are read from a database: the one
    that was opened, or else a temporary one into which the program `probing` converts the traces once.

    Times of several machines' traces are aligned as in a database (.clocks says how), before the first rows are read; the times of a file that is
    opened alone follow from its own clock anchors.
    """

    def __init__(self, paths, flags, clocks=None, align=True, remote=(), database=None):
        self.remote = list(remote)  # _remote.File: .url, .size, .fetched, .requests
        self._clocks, self._align, self._given, self._folder = clocks, align and not clocks, clocks, None
        self.paths, self._flags, self._notes, self._said = paths, flags, [], []
        self._database, self._views = database, None
        self._is_database, self._opened = database is not None, None

    def _keep(self, notes):
        self._notes = self._notes[-99:] + [notes]

    def __reduce__(self):
        """Pickled, for another process of this machine (multiprocessing, joblib, Dask): it is opened there again."""
        if self._opened is None:
            raise TypeError("it cannot be opened again in another process: it came through a pipe, or was made from other traces")
        return _open_again, self._opened

    def _temporary(self, name):
        """Returns a path in a folder that is removed with this object."""
        if self._folder is None:
            import shutil
            import tempfile
            import weakref
            self._folder = tempfile.mkdtemp(prefix="probing-")
            weakref.finalize(self, shutil.rmtree, self._folder, True)
        return os.path.join(self._folder, name)

    def _pipe(self, path):
        """Copies what comes through a pipe, since it comes once, and several readers need it. Returns the copy's path."""
        copy = os.path.join(self._temporary("pipe%d" % len(os.listdir(self._temporary("")))), os.path.basename(path))
        os.mkdir(os.path.dirname(copy))
        with io.open(path, "rb") as source, io.open(copy, "wb") as to:  # waits for a writer; Ctrl-C ends that
            seen, size, part = b"", 0, source.read(_PART)
            while part:
                try:
                    to.write(part)
                    to.flush()
                except OSError as error:
                    raise TraceError("%s: cannot be copied to %s: %s" % (path, self._folder, error.strerror)) from None
                size += len(part)
                if seen is not None:
                    seen = None if _HINT in seen + part or size == len(part) and part.startswith(_ZSTD) else part[-len(_HINT):]
                if seen is not None and size > _NO_END:
                    break  # no trace, and it may have no end
                part = source.read(_PART)
        return copy

    def _copy(self, file, i):
        """Copies a whole remote file for the program, since views are made from all of it. Returns the copy's path."""
        import shutil
        path = self._temporary("%d.zst" % i)
        with file.fs.open(file.path, "rb") as source, io.open(path, "wb") as to:
            shutil.copyfileobj(source, to, 1 << 20)
        file.fetched += file.size
        return path

    def _aligned(self):
        """Returns the path of a database with the alignment of clocks, or None."""
        if self._align and not self._is_database:
            alone = len(self.paths) == 1 and (self.remote or os.path.isfile(self.paths[0])) and (self._flags & _arrow.ALONE or not os.path.isdir(self.paths[0] + ".d"))
            if not alone:
                out = self._temporary("clocks.db")
                _arrow.align(self.paths, self._flags, out)
                self._clocks = out
            self._align = False  # not before: when it fails, the next read tries again
        return self._clocks

    @property
    def clocks(self):
        """How the clock of each machine was aligned: the view clock_alignment."""
        if self._is_database:
            return self["clock_alignment"]
        return Table(Traces(self.paths, 0, database=self._aligned() or self.database), "clock_alignment", "SELECT * FROM clock_alignment")

    @property
    def problems(self):
        """Lines about data that was damaged or passed over in what was read until now."""
        seen = dict.fromkeys(self._said)
        for notes in self._notes:
            seen.update(dict.fromkeys(notes.lines()))
        return list(seen)

    @property
    def database(self):
        """Path of the database. If traces were opened, it is made at the first use and removed with this object."""
        if self._database is None:
            out = self._temporary("traces.db")
            options = ["--alone"] if self._flags & _arrow.ALONE else []
            options += ["--clocks", self._given] if self._given else []
            copies = [(self._copy(f, i), f.url) for i, f in enumerate(self.remote)]
            paths = [p for p in self.paths if not any(p == url for _, url in copies)] + [copy for copy, _ in copies]
            said = _run(["convert", "-q"] + options + [os.path.join(".", p) if p.startswith("-") else p for p in paths] + [out], "cannot convert", copies)
            self._said += said[1]
            self._database = out
        return self._database

    def sql(self, text):
        """Returns the rows of a SELECT over the views and tables of the database (converter/SCHEMA.md), as a table. It takes the words that
        `probing query` takes (man probing-query): timestamp > now() - INTERVAL '5 min', > '2026-01-31 12:00', QUALIFY, SHOW TABLES."""
        if not isinstance(text, str):
            raise TypeError("sql(): a str, and not %s" % type(text).__name__)
        table = Table(self, "sql", text)
        table.columns  # what is wrong with it is said here
        return table

    @property
    def tables(self):
        """Names of the tables that are read from the traces themselves; for a database, the names of its tables."""
        if self._is_database:
            return [r[0] for r in self._master("table")]
        return list(_arrow.tables())

    @property
    def views(self):
        if self._views is None:
            self._views = [name for name, in self._master("view") if not name.endswith("_made")]  # those fill the tables of the views without it
        return self._views

    def _master(self, kind):
        return list(Table(self, "sql", "SELECT name FROM sqlite_master WHERE type = '%s' AND name NOT LIKE 'sqlite_%%' ORDER BY name" % kind).rows())

    def table(self, name):
        """Returns a table by its name. For traces these are samples, stacks and the records as they are, without conversion."""
        if name in self.tables:
            return Table(self, name, "SELECT * FROM %s" % _quote(name) if self._is_database else None)
        raise TraceError("no table %s (there are %s)" % (name, ", ".join(self.tables)))

    def __getitem__(self, name):
        """Returns samples or stacks of the traces, else the view of this name, else the table of this name."""
        if not self._is_database and name in self.tables and name not in VIEWS_TOO:  # then nothing need be converted
            return Table(self, name)
        if name in self.views:
            return Table(self, name, "SELECT * FROM %s" % _quote(name))
        if name in self.tables:
            return self.table(name)
        raise KeyError(name)

    def __getattr__(self, name):
        if not name.startswith("_") and not hasattr(type(self), name):
            try:
                return self[name]
            except KeyError:
                pass
        raise AttributeError("no table %s (.tables and .views list them)" % name)

    def __dir__(self):
        return sorted(set(super().__dir__()) | set(self.tables) | set(self._views or ()))

    def flamegraph(self, *options):
        """Returns a picture of where the time goes; options are those of `probing flamegraph`."""
        # The program opens no URLs, and of paths it would take the .d directories, too, and align their clocks itself.
        source = [self.database] if self._database or self.remote or self._flags or self._given else self.paths
        return Picture(_run(["flamegraph"] + list(options) + source, "cannot draw")[0].decode("utf-8", "replace"))

    def __str__(self):
        return self.paths[0] if len(self.paths) == 1 else "%d files" % len(self.paths)

    def __repr__(self):
        return "probing.open(%s)" % ", ".join(map(repr, self.paths[:3])) + (" and %d more" % (len(self.paths) - 3) if len(self.paths) > 3 else "")

    def _repr_html_(self):
        from probing import _html
        return _html.overview(self)


def _open_again(paths, options):
    return open(*paths, **options)


def open(*paths, **options):
    """Opens traces, directories of them, patterns (*.zst), or a database of probing-convert.

    alone=True: do not open the traces of the other processes of a run (FILE.d) with a trace.
    align=False: compute each trace's times from its own clock anchors. clocks=DATABASE: use the clock alignment of that database.
    Traces on object stores and web servers (s3://bucket/run/*.zst, https://...) are read by ranges, through fsspec, which gets
    storage_options={...}; .remote lists what was fetched. A database of another version is opened with a warning, as its names may differ."""
    alone, align, clocks = options.pop("alone", False), options.pop("align", True), options.pop("clocks", None)
    storage, remote = options.pop("storage_options", {}), []
    if options:
        raise TypeError("probing.open(): no option %s" % ", ".join(options))
    found = []
    for given in paths:
        for path in given if hasattr(given, "__iter__") and not isinstance(given, (str, bytes, os.PathLike)) else [given]:
            path = os.fspath(path)
            path = os.fsdecode(path)
            if "\0" in path:
                raise TraceError("a path cannot hold a NUL byte")
            if "://" in path and _remote.is_remote(path):
                remote += _remote.find(path, storage)
                continue
            matches = sorted(glob.glob(path)) if not os.path.exists(path) and glob.has_magic(path) else [path]
            if not matches:
                raise FileNotFoundError(2, "no file matches", path)
            found += matches
    if not found and not remote:
        raise TraceError("probing.open(): name a trace, a directory of traces or a database")
    traces = Traces(found + [f.url for f in remote], _arrow.ALONE if alone else 0, clocks, align, remote)
    pipes = {p: traces._pipe(p) for p in found if stat.S_ISFIFO(os.stat(p).st_mode)}
    found = [pipes.get(p, p) for p in found]
    traces.paths[:len(found)] = found
    database = [p for p in found if os.path.isfile(p) and _arrow.is_database(p)]
    if database and len(traces.paths) > 1:
        raise TraceError("%s is a database: it is opened alone (convert the traces together for one over all)" % database[0])
    traces._is_database, traces._database = bool(database), database[0] if database else None
    again = dict(alone=alone, align=align, clocks=clocks and os.path.abspath(clocks), storage_options=storage)
    traces._opened = None if pipes else ([os.path.abspath(p) for p in found] + [f.url for f in remote], again)
    with _arrow.Reader(**Table(traces, "samples", "SELECT 1" if database else None)._stream(rows=False)) as reader:  # what is neither is said here
        if database:
            traces._keep(reader.notes)
    for line in traces.problems:  # the database is of another version
        warnings.warn(line, stacklevel=3)
    return traces
