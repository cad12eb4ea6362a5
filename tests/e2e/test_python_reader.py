# SPDX-License-Identifier: Apache-2.0
"""probing.open(): traces as tables, without any other library. (With other people's libraries: test_engines.py.)"""
import collections
import json
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = REPO / "tests" / "golden"

PROGRAM = """
import threading, time
def spin(seconds):  # of a processor: on a busy machine its recording gets one, too, before it ends
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(2000))
def sleep():
    done.wait()
done = threading.Event()
t = threading.Thread(target=sleep, name="sleeper \\u00e9")
t.start()
spin(1.5)
done.set()
t.join()
"""


@pytest.fixture
def ask(build, tmp_path):
    """ask(code, *args, python=...): returns what `code` prints as JSON, or stores in `out`."""
    def run(code, *args, python=sys.executable, check=True):
        text = "import json, sys\nsys.path.insert(0, %r)\nimport probing\nout = None\n%s\nprint(json.dumps(out))" % (
            str(build.share / "python"), code)
        done = subprocess.run([python, "-c", text] + [str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=240, cwd=str(tmp_path))
        if not check:
            return done
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)
    return run


ROWS = """
t = probing.open(sys.argv[1])
out = list(t.samples.select("timestamp", "trace_id", "pid", "rank", "tid", "thread", "func", "file", "lineno", "frame_type", "state",
                            "gil", "cpu_seconds", "count", "seconds", "outside").rows())
"""

SQL = """SELECT timestamp, trace_id, pid, rank, tid, thread, func, file, lineno, frame_type, state, gil, cpu_seconds, count, seconds, outside
FROM samples"""


def same(arrow, rows):
    """Compares times. Those of the view are seconds in doubles: equal within half a microsecond."""
    got = sorted(([r[4], r[0] / 1e9] + r[1:] for r in arrow), key=lambda r: r[:2])
    want = sorted(([r[4]] + list(r) for r in rows), key=lambda r: r[:2])
    return len(got) == len(want) and all(abs(g[1] - w[1]) < 1e-6 and g[2:] == w[2:] for g, w in zip(got, want))


@pytest.mark.parametrize("name", ["basic", "epochs", "killed", "damaged"])
def test_samples_of_golden_traces_are_those_of_sqlite(ask, run, build, sql, tmp_path, name):
    db = tmp_path / "out.db"
    run([build.tool("probing-convert"), "-q", GOLDEN / (name + ".zst"), db], check=None)
    assert same(ask(ROWS, GOLDEN / (name + ".zst")), sql(db, SQL))


def test_samples_of_a_recording_are_those_of_sqlite(ask, record, convert, sql):
    trace = record(PROGRAM, hz=100).trace
    db = convert(trace)
    rows = sql(db, SQL)
    assert len(rows) > 50 and same(ask(ROWS, trace), rows)
    # Whole stacks: for each one the same number of seconds.
    want = collections.Counter()
    frames = collections.defaultdict(list)
    for stack, func, lineno in sql(db, "SELECT k.stack, f.name, coalesce(r.line, 0) FROM stack_frame k JOIN frame r ON r.id = k.frame"
                                       " JOIN function f ON f.id = r.function ORDER BY k.stack, k.depth"):
        frames[stack].append((func, lineno))
    for stack, count in sql(db, "SELECT stack_id, sum(count) FROM samples WHERE stack_id IS NOT NULL GROUP BY 1"):
        want[repr(frames[stack])] += count
    got = ask("""
import collections
t = probing.open(sys.argv[1])
stacks = {r[0]: list(zip(r[1], r[2])) for r in t.stacks.select("stack_id", "funcs", "lines").rows()}
sums = collections.Counter()
for stack, count in t.samples.select("stack_id", "count").rows():
    if stack is not None:
        sums[repr(stacks[stack])] += count
out = dict(sums)
""", trace)
    assert got == dict(want)


def test_ranges_and_ranks(ask, tmp_path):
    trace = GOLDEN / "basic.zst"
    out = ask("""
t = probing.open(sys.argv[1])
all = [r[0] for r in t.samples.select("timestamp").rows()]
half = sorted(all)[len(all) // 2]
parts = [t.samples.range(None, half / 1e9), t.samples.range(half / 1e9), t.samples.range(0, 1), t.samples.rank(3), t.samples.rank(4, [5])]
out = [len(all), [len(list(p.rows())) for p in parts], len(list(t.cpu.range(0, 1).rows())), len(list(t.cpu.rows()))]
""", trace)
    n, (before, behind, none, mine, others), no_cpu, cpu = out
    assert before + behind == n and 0 < before < n
    assert (none, mine, others, no_cpu) == (0, n, 0, 0) and cpu > 0


def test_a_database_of_another_version(ask, convert, tmp_path):
    """It is opened, and what that means is said when it is opened, before anything is asked."""
    db = convert(GOLDEN / "basic.zst", out=tmp_path / "old.db")
    code = """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    t = probing.open(sys.argv[1])
    out = [[str(w.message) for w in said], t.problems, [w.filename for w in said], len(list(t.trace.rows()))]
"""
    assert ask(code, db) == [[], [], [], 1]
    with sqlite3.connect(str(db)) as c:
        ours, = c.execute("PRAGMA user_version").fetchone()
        c.execute("PRAGMA user_version = 3")
    c.close()
    text = "%s: made by an older version of probing (its tables are version 3, these %d): names may differ; convert its traces anew" % (db, ours)
    assert ask(code, db) == [[text], [text], ["<string>"], 1]


def test_several_traces_and_copies(ask, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for name in ("basic", "epochs"):
        shutil.copy(str(GOLDEN / (name + ".zst")), str(folder))
    shutil.copy(str(GOLDEN / "basic.zst"), str(folder / "copy.zst"))
    (folder / "no\ntrace.zst").write_bytes(b"nonsense" * 100)
    code = """
t = probing.open(sys.argv[1])
out = [sorted({r[0] for r in t.samples.select("trace_id").rows()}), t.problems]
"""
    ids, problems = ask(code, folder)
    assert ids == [1, 2]
    assert len(problems) == 2 and any("counted once" in p for p in problems) and any("no?trace.zst" in p for p in problems)
    assert ask(code, folder / "*s.zst")[0] == [1]


@pytest.mark.parametrize("what, word", [("nothing.zst", "No such file"), ("text.zst", "not a"), ("empty.zst", "empty"),
                                        ("folder", "no trace")])
def test_what_is_no_trace(ask, tmp_path, what, word):
    (tmp_path / "text.zst").write_text("hello, world\n" * 100)
    (tmp_path / "empty.zst").write_text("")
    (tmp_path / "folder").mkdir()
    done = ask("""
try:
    list(probing.open(sys.argv[1]).samples.rows())
    out = "read"
except (probing.TraceError, FileNotFoundError) as error:
    out = str(error)
""", tmp_path / what)
    assert word in done


def test_wrong_questions_are_refused_by_name(ask):
    out = ask("""
t = probing.open(sys.argv[1])
out = []
for wrong in (lambda: list(t.samples.select("nonsense").rows()), lambda: t.samples.range("yesterday"), lambda: t.nonsense,
              lambda: probing.open(), lambda: probing.open(sys.argv[1], nonsense=1)):
    try:
        wrong()
        out.append("taken")
    except Exception as error:
        out.append(type(error).__name__ + ": " + str(error))
""", GOLDEN / "basic.zst")
    for text, name, word in zip(out, ("TraceError", "TraceError", "AttributeError", "TraceError", "TypeError"),
                                ("nonsense", "yesterday", "nonsense", "name a trace", "nonsense")):
        assert text.startswith(name) and word in text


@pytest.mark.slow
def test_cut_traces_are_read_or_refused(ask, tmp_path):
    """Traces cut at any length, and with bytes changed anywhere: rows or a TraceError, and the process survives."""
    out = ask("""
import os
data = open(sys.argv[1], "rb").read()
read = refused = 0
path = "cut.zst"
def attempt(bytes):
    global read, refused
    with open(path, "wb") as f:
        f.write(bytes)
    try:
        t = probing.open(path)
        for table in (t.samples.select("func", "stack", "timestamp"), t.stacks, t.cpu, t.process):
            list(table.rows())
        read += 1
    except probing.TraceError:
        refused += 1
for n in range(0, len(data), 53):
    attempt(data[:n])
for i in range(0, len(data), 47):
    attempt(data[:i] + bytes([data[i] ^ 0x55]) + data[i + 1:])
out = [read, refused]
""", GOLDEN / "basic.zst")
    assert out[0] > 25 and out[1] > 1, out


def test_what_was_cut_off_or_cut_out_is_listed(ask, tmp_path):
    data = (GOLDEN / "complete.zst").read_bytes()
    begins = [m.start() for m in re.finditer(b"\x5d\x2a\x4d\x18\x3c\x00\x00\x00PRBh", data)]
    assert len(begins) > 3
    (tmp_path / "end.zst").write_bytes(data[:begins[-1] + 100])
    (tmp_path / "middle.zst").write_bytes(data[:begins[-2]] + data[begins[-1]:])
    out = ask("""
for name in ("end.zst", "middle.zst", sys.argv[1]):
    t = probing.open(name)
    list(t.samples.rows())
    out = (out or []) + [t.problems]
""", GOLDEN / "complete.zst")
    assert [len(problems) for problems in out] == [1, 1, 0], out
    assert "end.zst: cut off in its last block (" in out[0][0] and "middle.zst: damaged: 1 block is missing" in out[1][0]


PIPE = """
import os, subprocess, threading
threading.Timer(200, lambda: os._exit(7)).start()  # waits for a writer that does not come
os.mkfifo("pipe")
def through(path):
    subprocess.Popen(["sh", "-c", 'exec cat -- "$0" > pipe', path])
    return probing.open("pipe")
first, again = through(sys.argv[1]), through(sys.argv[2])
out = [[len(list(t.samples.rows())), list(t.sql("SELECT count(*), (SELECT group_concat(pid) FROM trace) FROM samples").rows())[0]] for t in (first, again)]
subprocess.Popen(["sh", "-c", "exec yes no trace > pipe"], stderr=subprocess.DEVNULL)
try:
    probing.open("pipe")
except probing.TraceError as error:
    out.append(str(error))
folders = [os.path.dirname(os.path.dirname(t.paths[0])) for t in (first, again)]
del first, again
out.append([os.path.exists(f) for f in folders])
print(json.dumps(out), flush=True)
os._exit(0)
"""


def test_a_pipe_is_read_each_time_it_is_opened(ask, convert, sql):
    """What comes through it comes once: tables and views are of it, and the next trace that comes is another one."""
    done = ask(PIPE, GOLDEN / "basic.zst", GOLDEN / "epochs.zst", check=False)
    assert done.returncode == 0, done.stderr
    first, again, said, left = json.loads(done.stdout)
    for got, name in ((first, "basic"), (again, "epochs")):
        want = sql(convert(GOLDEN / (name + ".zst")), "SELECT count(*), (SELECT group_concat(pid) FROM trace) FROM samples")[0]
        assert got == [want[0], list(want)]
    assert "pipe" in said and "not a trace" in said and left == [False, False]


STOP = """
import os, signal, threading, time
t = probing.open(sys.argv[1]) if sys.argv[2] != "pipe" else None
n = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < "
rows = t.sql(n + "20000").rows() if t else None  # more than are read to find the types: then no row comes any more
what = {"pipe": lambda: probing.open("pipe"), "sql": lambda: t.sql(n + "2"), "rows": lambda: list(rows)}[sys.argv[2]]
if sys.argv[2] == "pipe":
    os.mkfifo("pipe")
class Own(Exception):
    pass
def handle(*_):
    raise Own("mine")
if sys.argv[3] == "own":
    signal.signal(signal.SIGINT, handle)
told = []
signal.signal(signal.SIGALRM, lambda *_: told.append(1))
def send():
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGALRM)  # a handler that raises nothing ends nothing
    while not told:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(200, lambda: os._exit(7)).start()
try:
    try:
        threading.Thread(target=send).start()
        what()
        out = "done"
    except probing.TraceError:
        time.sleep(1)
except (KeyboardInterrupt, Own) as error:
    out = [type(error).__name__, len(told)]
print(json.dumps(out), flush=True)
os._exit(0)
"""


@pytest.mark.pythons()
def test_ctrl_c_ends_what_would_not_end(ask, python):
    """A pipe nobody writes to, a question without an end: what the handler of the signal raises is raised, as anywhere in Python."""
    for what, how in (("pipe", "default"), ("sql", "default"), ("rows", "own")):
        done = ask(STOP, GOLDEN / "basic.zst", what, how, python=python.path, check=False)
        assert done.returncode == 0, (what, done.stderr)
        assert json.loads(done.stdout.splitlines()[-1]) == ["Own" if how == "own" else "KeyboardInterrupt", 1], what


def test_what_is_out_of_range(ask):
    """A time that 64 bits do not hold, a rank that no trace can have, a list without ranks: not the rows of all."""
    out = ask("""
t = probing.open(iter([sys.argv[1]]))
n = lambda x: len(list(x.rows()))
s, v = t.samples, t.sql("SELECT rank, timestamp FROM samples")
out = [[n(x.range("9999-12-31")), n(x.range(None, "0001-01-01")), n(x.range("0001-01-01", "9999-12-31")), n(x.rank(2 ** 64 + 3)), n(x.rank([])),
        n(x.rank("3")), n(x.batch(2 ** 32))] for x in (s, v)]
for wrong in (lambda: s.select([]), lambda: s.select("pid\\0x").columns, lambda: t.sql("SELECT 1\\0, 2"), lambda: t.sql("SELECT '\\udcff'")):
    try:
        out.append(wrong())
    except probing.TraceError as error:
        out.append("TraceError")
out.append([list(r) for r in t.sql("SELECT CAST(x'41ff42' AS TEXT)").rows()])
""", GOLDEN / "basic.zst")
    assert out[:2] == [[0, 0, 44, 0, 0, 44, 44]] * 2
    assert out[2:6] == ["TraceError"] * 4 and out[6] == [["A\ufffdB"]]


def test_importing_loads_nothing_of_it(ask):
    out = ask('out = sorted(m for m in sys.modules if m in ("ctypes", "probing._arrow", "probing._traces", "datetime"))')
    assert out == []


@pytest.mark.pythons()
def test_every_python(ask, python):
    out = ask("""
t = probing.open(sys.argv[1])
s = t.samples.select("timestamp", "func", "stack").range("2020-01-01")
capsule = s.__arrow_c_stream__()
schema = s.__arrow_c_schema__()
out = [len(list(s.rows())), type(capsule).__name__, type(schema).__name__]
""", GOLDEN / "basic.zst", python=python.path)
    assert out == [44, "PyCapsule", "PyCapsule"]


def test_questions_in_sql(ask, convert, tmp_path):
    """About traces, which are converted once, and about a database, with the same answers; the temporary database is deleted with its
    object."""
    code = """
import os
t = probing.open(sys.argv[1])
q = t.sql("SELECT thread, sum(count) AS n, max(timestamp) AS timestamp FROM samples GROUP BY 1 ORDER BY 1;")
view = t.samples if t.database == sys.argv[1] else t.table("cpu")
out = [[list(r) for r in q.rows()], [f.type for f in q.fields], t.views, t.hot_functions.columns[:2],
       list(t.cpu_utilization.rank(3).range(None, "2100-01-01").select("pid").rows(1)), list(t.threads.rank(4).rows())]
made = t.database
del t, q, view
out.append(made == sys.argv[1] or not os.path.exists(made))
"""
    trace = GOLDEN / "basic.zst"
    a, b = ask(code, trace), ask(code, convert(trace))
    assert a == b and len(a[0]) == 2 and a[1] == ["dictionary<string>", "int64", "timestamp[ns, UTC]"]
    explained = {part.split("\n")[0] for part in (REPO / "converter" / "SCHEMA.md").read_text().split("## Tables")[0].split("\n### ")[1:]}
    assert set(a[2]) == explained and a[3] == ["func", "file"] and a[4] == [[4711]] and a[5] == [] and a[6]


def test_a_table_of_a_trace_converts_nothing(ask, convert):
    out = ask("""
t = probing.open(sys.argv[1])
from probing import _traces
_traces._run = None
views = set(probing.open(sys.argv[2]).views)
out = [[n for n in t.tables if n in views and n not in _traces.VIEWS_TOO and n not in ("samples",)], len(list(t.cpu.rows())), len(list(t.traces.rows()))]
""", GOLDEN / "basic.zst", convert(GOLDEN / "basic.zst"))
    assert out == [[], 4, 1]


def test_what_sql_is_refused(ask, convert, tmp_path):
    import sqlite3
    other = tmp_path / "other.db"
    connection = sqlite3.connect(str(other))
    connection.execute("CREATE TABLE x(y)")
    connection.commit()
    connection.close()
    out = ask("""
out = []
t = probing.open(sys.argv[1])
for text in ("DELETE FROM sample", "SELECT nonsense", "", "SELECT 1; SELECT 2", "ATTACH 'x.db' AS x", "SELECT * FROM nowhere"):
    try:
        t.sql(text)
        out.append("taken")
    except probing.TraceError as error:
        out.append(str(error))
mixed = t.sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT CASE WHEN i < 19000 THEN i ELSE 'x' END AS v FROM n")
try:
    list(mixed.rows())
    out.append("read")
except probing.TraceError as error:
    out.append(str(error))
try:
    probing.open(sys.argv[2])
    out.append("opened")
except probing.TraceError as error:
    out.append(str(error))
""", convert(GOLDEN / "basic.zst"), other)
    words = ("SELECT is needed", "no such column", "SELECT is needed", "one statement", "SELECT is needed", "no such table", "CAST(v AS TEXT)",
             "not one of probing-convert")
    assert len(out) == len(words) and all(w in o for w, o in zip(words, out)), out


def test_notebooks(ask, record, tmp_path):
    """Names that contain markup are shown, not obeyed; a picture is an SVG in a frame of its own, and a file of the owner's alone."""
    trace = record('import threading, time\nt = threading.Thread(target=time.sleep, args=(0.5,), name="<script>alert(1)</script>")\n'
                   't.start()\nt.join()\n', hz=100).trace
    out = ask("""
t = probing.open(sys.argv[1])
picture = t.flamegraph("--python")
picture.save(sys.argv[2])
out = [t.threads._repr_html_(), t._repr_html_(), picture.svg, picture._repr_html_(), t.sql("SELECT NULL AS n, x'00' AS b, 1e300 AS big")._repr_html_()]
""", trace, tmp_path / "p.svg")
    table, overview, svg, frame, odd = out
    assert "&lt;script&gt;alert(1)" in table and "<script>" not in table and "<table>" in table
    assert "samples" in overview and svg.lstrip().startswith("<") and "<svg" in svg
    assert frame.startswith("<iframe") and "<svg" not in frame and "&lt;svg" in frame
    assert "<i>null</i>" in odd
    assert (tmp_path / "p.svg").read_text() == svg and (tmp_path / "p.svg").stat().st_mode & 0o777 == 0o600


def test_sql_that_ends_in_a_comment(ask):
    assert ask("""
t = probing.open(sys.argv[1])
out = list(t.sql("SELECT 1 AS a, 2 AS b -- both").select("b").rows())
""", GOLDEN / "basic.zst") == [[2]]


def test_clocks_of_several_machines(ask, build, run, sql, tmp_path):
    """Machines a second apart: traces that are read directly have the database's times, to the nanosecond; so does a single trace, by that
    database's clocks."""
    run([build.root / "tests/fleet/probing-fleet", "--quiet", "--out", tmp_path / "f", "--ranks", "4", "--nodes", "2", "--minutes", "0.2", "--hz", "20",
         "--offset", "1"])
    nodes = sorted(str(p) for p in (tmp_path / "f").glob("node*"))
    db = tmp_path / "out.db"
    run([build.tool("probing-convert"), "-q"] + nodes + [db])
    want = sql(db, "SELECT t.rank, x.ts FROM trace_file t JOIN sample x ON x.id BETWEEN t.first_id AND t.last_id ORDER BY 1, 2")
    out = ask("""
import glob, os
nodes, db = sys.argv[1:3], sys.argv[3]
def times(t):
    return sorted(list(r) for r in t.samples.select("rank", "timestamp").rows())
t = probing.open(*nodes)
own = probing.open(*nodes, align=False)
one = probing.open(glob.glob(os.path.join(nodes[1], "*.zst"))[0], clocks=db)
c = one.sql("SELECT t.rank, min(timestamp), clock FROM samples JOIN trace_file t ON t.id = trace_id")
import tempfile
again, tempfile.tempdir = probing.open(*nodes), "/nowhere"
try:
    times(again)
except OSError:
    tempfile.tempdir = None
out = [times(t), times(own), times(one), [r[1:3] for r in t.clocks.rows()], [list(r) for r in c.rows()], times(again)]
""", nodes[0], nodes[1], db)
    aligned, own, one, clocks, views, again = out
    assert again == aligned  # although the first attempt failed: there was no temporary folder
    assert [tuple(r) for r in aligned] == [tuple(r) for r in want] and len(want) > 300
    assert max(abs(a[1] - o[1]) for a, o in zip(aligned, own)) > 10 ** 7
    assert one == [r for r in aligned if r[0] == one[0][0]]
    assert [c[1] for c in clocks] == ["collectives"] * 2
    first = min(r[1] for r in one)
    assert abs(views[0][1] * 1e9 - first) < 1000 and views[0][0] == one[0][0] and views[0][2] == "collectives"
    said = run([build.tool("probing-convert"), "-q", "--clocks", GOLDEN / "basic.zst", nodes[0], tmp_path / "x.db"], check=3).stderr
    assert "holds no alignment" in said and not (tmp_path / "x.db").exists()


def test_pickled_for_another_process(ask, run, build, tmp_path):
    """multiprocessing, joblib and Dask hand objects to their workers by pickle: each opens the same file again, wherever it works."""
    shutil.copy(str(GOLDEN / "basic.zst"), str(tmp_path / "t.zst"))
    run([build.tool("probing-convert"), tmp_path / "t.zst", tmp_path / "t.db"])
    for name in ("t.zst", "t.db"):
        same_rows, refused = ask("""
import io, os, pickle
t = probing.open(sys.argv[1])
one = t.samples.select("tid", "func").range(0)
text = pickle.dumps([one, t.sql("SELECT count(*) AS n FROM samples"), t])
want = [list(one.rows()), list(t.sql("SELECT count(*) AS n FROM samples").rows()), list(t.samples.rows())]
os.chdir("/")
again = pickle.loads(text)
out = [[list(x.rows()) for x in (again[0], again[1], again[2].samples)] == want and len(want[0]) > 0, ""]
os.mkfifo(sys.argv[2])
if not os.fork():
    with io.open(sys.argv[2], "wb") as f:
        f.write(io.open(sys.argv[3], "rb").read())
    os._exit(0)
try:
    pickle.dumps(probing.open(sys.argv[2]))
except TypeError as e:
    out[1] = str(e)
os.unlink(sys.argv[2])
""", name, str(tmp_path / "pipe"), str(tmp_path / "t.zst"))
        assert same_rows and "it came through a pipe" in refused
