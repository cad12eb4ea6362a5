# SPDX-License-Identifier: Apache-2.0
"""Helpers of the agent's tests: they run a program under LD_PRELOAD, as a user would by hand, and read the raw records of its traces."""
import glob
import os
import pathlib
import sqlite3
import subprocess
import time

import pytest
from conftest import PYTHONS, each_python

# For tests in which the Python version hardly matters: @FEW runs them with a few versions, passed as `interpreter`.
SOME = [p for p in PYTHONS if p.version[:2] in [(3, 8), (3, 11), (3, 13)]] or PYTHONS[:1]
FEW = pytest.mark.parametrize("interpreter", each_python(SOME))


class Agent:
    def __init__(self, build, tmp_path):
        self.build = build
        self.tmp = tmp_path
        self.trace = tmp_path / "trace.zst"
        self.run_dir = pathlib.Path(os.environ["PROBING_RUN_DIR"])

    def env(self, **settings):
        env = dict(os.environ, LD_PRELOAD=str(self.build.lib / "libprobing-preload.so"), PROBING_TRACE=str(self.trace))
        env.update({k: str(v) for k, v in settings.items()})
        return env

    def script(self, text, name="script.py"):
        path = self.tmp / name
        path.write_text(text)
        return path

    def traces(self):
        """Returns all traces of the run, the main process's first."""
        return sorted(map(str, self.tmp.glob("*.zst"))) + sorted(glob.glob(str(self.tmp / "*.zst.d" / "*.zst")))

    def lives(self):
        return sorted(map(str, self.run_dir.glob("*.live")))

    def rows(self, trace, record):
        """Returns the trace's records of one type as dictionaries, read with the SQLite extension."""
        db = sqlite3.connect(":memory:")
        try:
            db.enable_load_extension(True)
        except AttributeError:
            pytest.skip("this sqlite3 module loads no extensions")
        db.load_extension(str(self.build.lib / "probing"))
        name = str(trace).replace("'", "''")
        db.execute("CREATE VIRTUAL TABLE temp.t USING probing_trace('%s', '%s')" % (name, record))
        cursor = db.execute("SELECT * FROM t")
        names = [d[0] for d in cursor.description]
        rows = [dict(zip(names, row)) for row in cursor.fetchall()]
        db.close()
        return rows

    def wait_for(self, trace, record, many, process=None):
        """Waits until a trace that matches the pattern `trace` holds at least `many` records of this type, and returns how many it holds.
        Fails if `process` ends before that."""
        while True:
            assert process is None or process.poll() is None, process.stderr.read()
            for live in self.lives():
                self.mail(live, "flush")
            for path in glob.glob(str(trace)):
                try:
                    n = len(self.rows(path, record))
                except sqlite3.Error:  # the file has no complete block yet
                    n = 0
                if n >= many:
                    return n
            time.sleep(0.05)

    def check_whole(self, trace, reason):
        """Checks that the trace is closed: zstd accepts it, and its only `end` record has this reason. Returns its last process record."""
        subprocess.run(["zstd", "-tq", str(trace)], check=True)
        ends = self.rows(trace, "end")
        assert [e["reason"] for e in ends] == [reason]
        # If another process closed the trace, it could not read this process's clocks any more, so the second `clock` record is missing.
        assert len(self.rows(trace, "clock")) >= (1 if reason in ("exec", "killed") else 2)
        process = self.rows(trace, "process")[-1]
        assert process["pid"] > 0 and process["start_ts"] <= process["ts"]
        return process

    def mail(self, live, kind, text="", timeout_ms=100000):
        """Sends one request to the mailbox. Returns (status, reply), or (None, an error text) if that failed."""
        done = subprocess.run([str(self.build.root / "tests/programs/mailbox"), str(live), kind, text, str(timeout_ms)],
                              stdout=subprocess.PIPE, timeout=240, universal_newlines=True)
        first, _, rest = done.stdout.partition("\n")
        return (int(first), rest[:-1]) if done.returncode == 0 else (None, first)


@pytest.fixture
def agent(build, tmp_path):
    return Agent(build, tmp_path)
