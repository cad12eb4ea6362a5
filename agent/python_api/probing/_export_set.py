# SPDX-License-Identifier: Apache-2.0
"""The folder of a data set (export.py says what is in it), and which traces are done in it."""
import errno
import glob
import io
import json
import os
import shutil
import sqlite3
import tempfile
import urllib.parse

from probing import _arrow

STATE = "_probing"
MAGIC = b"PAR1"  # the last bytes of a Parquet file


class Refused(Exception):
    """Nothing can be written; the text says why."""


class DataSet(object):
    """The folder of a data set, with its list of the traces that are done."""

    def __init__(self, path, kind):
        self.path, self.state = path, os.path.join(path, STATE)
        self.list = os.path.join(self.state, "done.jsonl")
        if os.path.exists(path) and not os.path.isdir(path):
            raise Refused("%s is a file: name a folder" % path)
        if os.path.isdir(path) and os.listdir(path) and not os.path.isdir(self.state):
            raise Refused("%s is not empty, and no data set of probing export: name another folder" % path)
        os.makedirs(self.state, exist_ok=True)
        self.keep_kind(kind)
        self.done, self.empty = {}, {}  # empty: schemas of tables that had no rows
        with io.open(self.list, "a+", encoding="utf-8") as f:
            f.seek(0)
            line = "\n"
            for line in f:
                try:
                    entry = json.loads(line)
                    self.done[entry["recording"]] = entry
                except (ValueError, KeyError, TypeError):
                    continue  # cut off by a full disk: that trace is done again
            if not line.endswith("\n"):
                f.write("\n")  # else the next line would become a part of it
        with self.locked("folders.lock"):  # no other export may take our folder, which is not locked yet, for one that was left
            self.cleared = sum(self.clear(n) for n in os.listdir(self.state) if n.startswith("tmp-"))
            self.temp = tempfile.mkdtemp(prefix="tmp-", dir=self.state)
            self.alive = self.locked(os.path.join(os.path.basename(self.temp), "lock"))

    def keep_kind(self, kind):
        """Refuses a folder that was made from the other kind of source: ids from traces and ids from a database differ."""
        path = os.path.join(self.state, "made-of")
        with io.open(path, "a+", encoding="utf-8") as f:
            f.seek(0)
            before = f.read().strip()
            if not before:
                f.write(kind + "\n")
        if before not in ("", kind):
            raise Refused("%s was made of %s, this is %s: name another folder" % (self.path, before, kind))

    def locked(self, name, wait=True):
        """Returns an open file in _probing/ that is locked until it is closed. The system closes it when the process ends, on whatever machine."""
        import fcntl
        f = io.open(os.path.join(self.state, name), "a")
        try:
            fcntl.flock(f, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BaseException:
            f.close()
            raise
        return f

    def clear(self, name):
        """Removes what an export that has ended was writing."""
        try:
            with self.locked(os.path.join(name, "lock"), wait=False):
                shutil.rmtree(os.path.join(self.state, name), ignore_errors=True)
        except OSError:
            return 0  # it is being written, or is another user's
        return 1

    def align(self, paths, alone):
        """Returns the path of the database with the clocks of all machines whose traces are in the folder or come now; machines that are in it keep
        their time."""
        out = os.path.join(self.state, "clocks.db")
        with self.locked("clocks.db.lock"):
            _arrow.align(paths, _arrow.ALONE if alone else 0, out)
        return out

    def file(self, table, run, rank, name):
        """Returns the path of a file relative to the folder, with run= and rank= as Hive writes them."""
        none = "__HIVE_DEFAULT_PARTITION__"
        return os.path.join(table, "run=" + (urllib.parse.quote(run, safe="") if run else none),
                            "rank=" + (str(rank) if rank is not None else none), name + ".parquet")

    def finish(self, entry, files):
        """Puts the files of a trace in place, then adds the trace to the list of those that are done. Before that it adds a line with all files that
        may be there meanwhile: if the export is killed, the next one removes those that it does not make again, under another run."""
        old = set(self.done.get(entry["recording"], {}).get("files", ()))
        if old != set(files):
            self.append(dict(entry, bytes=None, files=sorted(old.union(files))))
        for name in files:
            to = os.path.join(self.path, name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            os.replace(os.path.join(self.temp, name), to)
        for name in old - set(files):
            try:
                os.unlink(os.path.join(self.path, name))
            except OSError:
                pass
        self.append(dict(entry, files=files))

    def append(self, entry):
        line = (json.dumps(entry) + "\n").encode()
        with io.open(self.list, "ab", 0) as f:  # one write: several exports may append
            if f.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.list)
        self.done[entry["recording"]] = entry

    def is_whole(self, entry):
        """Returns whether the files of a trace that was done still exist and end as Parquet files do: when a copy breaks off, or a machine stops,
        a part of a file is left."""
        try:
            for name in entry["files"]:
                with io.open(os.path.join(self.path, name), "rb") as f:
                    f.seek(-len(MAGIC), os.SEEK_END)
                    if f.read() != MAGIC:
                        return False
        except (OSError, KeyError, TypeError):
            return False
        return True

    def moved(self, named):
        """Returns how many of the traces that are done and are not in `named` now belong to another run or attempt than before
        (converter/place_rows.h)."""
        path = os.path.join(self.state, "clocks.db")
        left = {e["file"]: places_of(e)[0] for e in self.done.values() if e["file"] not in named}
        if not left or not os.path.exists(path):
            return 0
        clocks = sqlite3.connect(path)
        try:
            return sum(left[file] != [run, attempt] for file, run, attempt in clocks.execute("SELECT file, run, attempt FROM trace_file") if file in left)
        finally:
            clocks.close()

    def finish_empty(self, pq):
        """Writes an empty file for each table that has none, so that every engine finds the table."""
        for table, schema in self.empty.items():
            if not glob.glob(os.path.join(glob.escape(os.path.join(self.path, table)), "*", "*", "*.parquet")):
                to = os.path.join(self.path, self.file(table, None, None, "empty"))
                os.makedirs(os.path.dirname(to), exist_ok=True)
                temp = os.path.join(self.temp, "empty.parquet")
                pq.write_table(schema.empty_table(), temp)
                os.replace(temp, to)

    def close(self):
        shutil.rmtree(self.temp, ignore_errors=True)
        self.alive.close()


def places_of(entry):
    """Returns [[run, attempt]] of the traces of a file that is done."""
    return entry.get("places") or [[entry.get("run"), 0]]
