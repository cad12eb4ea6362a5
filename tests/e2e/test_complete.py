# SPDX-License-Identifier: Apache-2.0
"""A trace is complete in itself: it contains the names of native code."""
import http.server
import os
import signal
import subprocess
import threading
import time

import pytest

import format_reader
from complete_helpers import convert_alone, same_stacks, symbol_blocks, tools_alone, without_symbols
from record_until import record_until  # noqa: F401

TRAIN = """
import torch, time
m = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
o = torch.optim.Adam(m.parameters())
for i in range(400):
    l = torch.nn.functional.cross_entropy(m(torch.randn(128, 64)), torch.randint(0, 8, (128,)))
    o.zero_grad(); l.backward(); o.step()
"""

LIBRARY = """
int deep(volatile int *n) { while (*n > 0) --*n; return *n; }
static inline __attribute__((always_inline)) int between(volatile int *n) { return deep(n) + 1; }
int entry(int count) { volatile int n = count; return between(&n); }
"""

CALLS = """
import ctypes, os, sys
lib = ctypes.CDLL(sys.argv[1])
print("up", flush=True)
while not os.path.exists(sys.argv[-1]):
    lib.entry(10000000)
"""
NAMES = {"deep", "entry", "between"}


def make_library(tmp_path, name="libwork.so", more=""):
    source, library = tmp_path / "work.c", tmp_path / name
    source.write_text(more + LIBRARY)
    subprocess.run(["cc", "-g", "-O2", "-fno-inline-small-functions", "-shared", "-fPIC", "-o", library, source, "-Wl,--build-id"],
                   check=True, timeout=240)
    return library


def names_of(sql, db, module="libwork.so"):
    return {r[0] for r in sql(db, "SELECT name FROM function WHERE module LIKE '%" + module + "'")}


@pytest.fixture
def record_calls(record_until, sql):  # noqa: F811
    """Records CALLS, or a script that begins with it, until each function of the library has samples."""
    return lambda library, script=CALLS, **kw: record_until(lambda db: NAMES <= names_of(sql, db), script, library, **kw)


@pytest.mark.pythons(torch=True, count=1)
def test_torch_converted_where_only_the_tools_are(build, record, convert, python, sql, run, tmp_path):
    trace = record(TRAIN, python=python, hz=200).trace
    run(["zstd", "-tq", trace])
    assert os.stat(str(trace)).st_mode & 0o777 == 0o600
    here = convert(without_symbols(trace, tmp_path / "bare.zst"))
    root = tools_alone(build, tmp_path / "root")
    alone = convert_alone(root, trace)
    same_stacks(here, alone)
    named = sql(alone, "SELECT count(*) FROM function WHERE module LIKE '%libtorch%' AND name NOT LIKE '%+0x%'")[0][0]
    assert named > 10
    # and without the symbols in the trace there would be no such names
    bare = convert_alone(root, tmp_path / "bare.zst")
    assert sql(bare, "SELECT count(*) FROM function WHERE module LIKE '%libtorch%' AND name NOT LIKE '%+0x%'")[0][0] == 0


def test_a_library_that_was_replaced(record_calls, convert, sql, tmp_path):
    library = make_library(tmp_path)
    trace = record_calls(library).trace
    before = convert(trace)
    assert NAMES <= names_of(sql, before)
    make_library(tmp_path, more="int other(void) { return 1; }\n" * 1)
    after = convert(trace)
    same_stacks(before, after)
    lines = sql(after, "SELECT DISTINCT f.name, r.line FROM frame r JOIN function f ON f.id = r.function "
                       "WHERE f.name IN ('between', 'entry') AND r.file LIKE '%work.c'")
    assert ("between", 3) in lines and ("entry", 4) in lines


@pytest.mark.parametrize("when", ["afterwards", "while it is recorded"])
def test_a_library_without_a_build_id_that_was_replaced(record, convert, sql, tmp_path, when):
    """Nothing but the time tells that the file is another one now: no name is better than a wrong one. The same file, unchanged, is used."""
    def library(text):
        (tmp_path / "l.c").write_text(text)
        subprocess.run(["cc", "-O1", "-fno-inline", "-shared", "-fPIC", "-Wl,--build-id=none", "-o", tmp_path / "l.new", tmp_path / "l.c"], check=True, timeout=240)
        os.utime(str(tmp_path / "l.new"), (1e9, 1e9))  # as packages keep it
        return tmp_path / "l.new"

    right = library("int right(volatile int *n) { while (*n > 0) --*n; return *n; }\nint entry(int c) { volatile int n = c; return right(&n) + 1; }\n")
    right.rename(tmp_path / "libold.so")
    wrong = library("int wrong(volatile int *n) { while (*n > 0) --*n; return *n; }\nint false(int c) { volatile int n = c; return wrong(&n) + 1; }\n")
    script = """
import ctypes, os, sys, time
lib = ctypes.CDLL(sys.argv[1] + "/libold.so")
def run():
    end = time.thread_time() + 0.4
    while time.thread_time() < end:
        lib.entry(1000000)
run()
if len(sys.argv) > 2:
    time.sleep(0.1)
    os.rename(sys.argv[2], sys.argv[1] + "/libold.so")
    run()
"""
    if when == "afterwards":
        trace = record(script, tmp_path, hz=200, options=["--no-symbols"]).trace
        assert "right" in names_of(sql, convert(trace), "libold.so")
        wrong.rename(tmp_path / "libold.so")
    else:
        trace = record(script, tmp_path, wrong, hz=200).trace
    found = names_of(sql, convert(trace), "libold.so%")  # its path may end in "(deleted)"
    assert found and not {"wrong", "false"} & found, found


def test_not_wanted(record_calls, tmp_path, convert, sql):
    library = make_library(tmp_path)
    trace = record_calls(library, options=["--no-symbols"]).trace
    assert symbol_blocks(trace) == []
    assert "deep" in names_of(sql, convert(trace)) # found in the file, which is here


@pytest.mark.parametrize("options", [[], ["--no-symbols"]], ids=["named", "bare"])
def test_what_a_trace_needed_is_its_own(record_calls, tmp_path, convert, sql, options):
    """A library that another trace of the same conversion has called is not needed by a trace that only mapped it."""
    library = make_library(tmp_path)
    script = CALLS + ("import glob, time\nif not os.fork():\n"
                      "    while not glob.glob('%s/%d-*.live' % (os.environ['PROBING_RUN_DIR'], os.getpid())): time.sleep(.01)\n    os._exit(0)\nos.wait()\n")
    trace = record_calls(library, script, options=options).trace
    child, = tmp_path.glob(trace.name + ".d/*.zst")
    db = convert(trace)
    query = "SELECT m.symbols, t.how FROM module m JOIN trace_file t ON t.id = m.id >> 40 WHERE m.path LIKE '%/libwork.so' ORDER BY t.id"
    assert sql(db, query) == [(1, "preload"), (None, "fork")]
    assert sql(convert(child), query) == [(None, "fork")]


def is_alive(pid):
    """Returns whether any thread of the process is still alive: the first may be a zombie while others wait for a processor."""
    try:
        states = [open("/proc/%d/task/%s/stat" % (pid, tid)).read().rsplit(")", 1)[1].split()[0]
                  for tid in os.listdir("/proc/%d/task" % pid)]
    except OSError: # one of the threads is gone: look again, if any is left
        return os.path.exists("/proc/%d/task" % pid)
    return set(states) - {"Z", "X"} or len(states) > 1


def test_of_killed_processes(build, spawn, run, convert, sql, tmp_path):
    """probing-record, if it is the parent, adds the names; if it was killed, too, the convert that finishes the trace does."""
    library = make_library(tmp_path)
    script = tmp_path / "calls.py"
    script.write_text(CALLS)
    for recorder_dies in (False, True):
        trace = tmp_path / ("killed%d.zst" % recorder_dies)
        recorder = spawn([build.tool("probing-record"), "-q", "-r", "100", "-o", trace, "python3", script, library, tmp_path / "never"],
                         ready="up", stderr=subprocess.DEVNULL)
        pid = int(run([build.tool("probing"), "list", "--json"]).stdout.split('"pid":')[1].split(",")[0])
        db = tmp_path / ("now%d.db" % recorder_dies)
        while not db.exists() or not NAMES <= names_of(sql, db):
            time.sleep(0.1)
            convert(trace, out=db, options=["-q", "-f"], check=None)  # it may hold nothing yet
        if recorder_dies:
            recorder.kill()
            recorder.wait(240)
        os.kill(pid, signal.SIGKILL)
        if recorder_dies:
            while is_alive(pid):
                time.sleep(0.05)
        else:
            recorder.wait(240)
        first = convert(trace)
        assert symbol_blocks(trace)
        library.rename(tmp_path / "gone.so")
        second = convert(trace)
        (tmp_path / "gone.so").rename(library)
        assert NAMES <= names_of(sql, second)
        same_stacks(first, second)


def test_segments_are_each_complete(record_until, convert, sql, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    library = make_library(tmp_path)
    busy = CALLS.replace("while ", """
import itertools, time
exec("\\n".join("def f%d(n):\\n    return f%d(n - 1) if n else lib.entry(300000)" % (i, (i * 7 + 3) % 1000) for i in range(1000)))
turns = itertools.count()
while """).replace("lib.entry(10000000)", "i = next(turns)\n    globals()['f%d' % (i % 1000)](10 + i % 13)") + """
last = time.thread_time() + 0.5 # in the last segment, too
while time.thread_time() < last:
    lib.entry(300000)
"""
    trace = record_until(lambda db: len(list(tmp_path.glob("until1.zst.d/*.zst"))) > 1, busy, library, hz=1000).trace
    parts = sorted(tmp_path.glob(trace.name + ".d/*.zst")) + [trace]
    assert len(parts) > 1
    library.unlink()
    # On a busy machine a thread's stacks may be read from outside for a second and more, and have no native frames then: perhaps all of a file's.
    shown = [(names_of(sql, db), sql(db, "SELECT count(*) FROM sample WHERE NOT flags & 4")[0][0]) for db in (convert(part, options=["--alone"]) for part in parts)]
    assert all("deep" in names or n < 10 for names, n in shown) and "deep" in set().union(*(names for names, _ in shown)), shown


def test_a_trace_of_an_older_schema(record_calls, tmp_path):
    """The second reader knows only the record types in the trace's own schema rows."""
    library = make_library(tmp_path)
    trace = record_calls(library).trace
    lines = list(format_reader.dump(trace.read_bytes()))
    symbols = [line for line in lines if line.startswith("  symbol ")]
    assert any('"deep"' in line and "work.c" in line for line in symbols)
    assert any('"between"' in line and "flags=1" in line for line in symbols)
    assert not any("damage" in line for line in lines)
    end = max(i for i, line in enumerate(lines) if line.startswith("  end "))
    assert all(i > end for i, line in enumerate(lines) if line.startswith("  symbol "))


def test_debuginfod_if_asked(record_calls, convert, sql, tmp_path, monkeypatch):
    """A library that is gone is fetched by its build-id if the user asks for that, and not otherwise."""
    library = make_library(tmp_path)
    trace = record_calls(library, options=["--no-symbols"]).trace
    notes = subprocess.run(["readelf", "-n", library], stdout=subprocess.PIPE, check=True, timeout=240).stdout.decode()
    wanted = "/buildid/%s/executable" % notes.split("Build ID: ")[1].split()[0]
    content, asked = library.read_bytes(), []
    library.unlink()

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            found = self.path == wanted
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(content) if found else 0))
            self.end_headers()
            if found:
                self.wfile.write(content)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:%d" % server.server_address[1])
        monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
        assert "deep" not in names_of(sql, convert(trace)) and not asked
        fetched = convert(trace, options=["--debuginfod"])
        if not asked:
            pytest.skip("libdebuginfod is not installed, or was built without its client")
        assert NAMES <= names_of(sql, fetched) and wanted in asked
    finally:
        server.shutdown()
        server.server_close()
