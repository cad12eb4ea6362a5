# SPDX-License-Identifier: Apache-2.0
"""probing-query: formats, inputs and errors. Tables are compared byte for byte."""
import contextlib
import csv
import fcntl
import io
import json
import os
import pathlib
import re
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import termios
import time

import pytest
from test_console import wait_until


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "small.db"
    with sqlite3.connect(str(path)) as c:
        c.executescript("""
            CREATE TABLE t(name TEXT, n INTEGER, x REAL, b BLOB);
            INSERT INTO t VALUES('plain', 1, 0.1, NULL), ('a,"b"', -22, 1763714000.123456, x'00ff'),
              ('', NULL, 1e300, x''), ('zwei' || char(10) || 'Zeilen', 9223372036854775807, 1.0/3, NULL),
              ('h\u00e9llo \u4e16\u754c', 0, 0.0, NULL);
            CREATE VIEW v AS SELECT name FROM t;
        """)
    c.close()
    return path


def query(build, run, *args, check=True, **kw):
    return run([build.tool("probing-query")] + list(args), check=check, **kw)


def test_a_signal_ends_the_wait_for_a_pipe(build):
    """Once, the command went on waiting for the pipe's other end, whatever signal it got."""
    query = subprocess.Popen([str(build.tool("probing-query")), "-", "SELECT 1"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: int(re.search(r"SigCgt:\s*(\w+)", pathlib.Path("/proc/%d/status" % query.pid).read_text()).group(1), 16)
                   >> signal.SIGTERM - 1 & 1)  # from here on a signal is only recorded
        query.send_signal(signal.SIGTERM)
        assert query.wait(240) != 0
    finally:
        query.kill()
        query.communicate()


def test_traces_through_pipes(build, run, record, tmp_path):
    """<(...) of a shell, and a FIFO by name: once, they were opened several times, and were empty the second time. A signal ends the wait
    for a writer."""
    trace, fifo = tmp_path / "t.zst", tmp_path / "fifo"
    record("import time\ntime.sleep(0.3)\n", out=trace)
    os.mkfifo(str(fifo))
    want = run([build.tool("probing-query"), trace, "SELECT count(*) FROM process"]).stdout
    count = "SELECT count(*) FROM process"
    for source in ("<(cat t.zst)", "fifo", "/dev/stdin", "-"):
        writer = "cat t.zst >fifo & " if source == "fifo" else "" if source[0] == "<" else "cat t.zst | "
        done = run(["timeout", "240", "bash", "-c", "%s%s %s '%s'" % (writer, build.tool("probing-query"), source, count)], cwd=str(tmp_path))
        assert done.stdout == want, source
    run(["timeout", "240", "bash", "-c", "%s pack -o packed.zst <(cat t.zst) && %s packed.zst '%s'" % (
        build.tool("probing"), build.tool("probing-query"), count)], cwd=str(tmp_path))
    waits = subprocess.Popen([str(build.tool("probing-query")), str(fifo), "SELECT 1"], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: any(os.path.realpath(fd) == str(fifo) for fd in pathlib.Path("/proc/%d/fd" % waits.pid).iterdir()))
        waits.send_signal(signal.SIGTERM)
        assert waits.wait(240) != 0
    finally:
        waits.kill()
        waits.communicate()


def test_what_has_no_end_is_no_trace(build, run, tmp_path):
    """Once, a device, and a pipe that goes on without a trace, were copied to the disk until somebody stopped the tool, and a hole of
    terabytes was read."""
    query, golden = build.tool("probing-query"), pathlib.Path(__file__).resolve().parents[1] / "golden" / "basic.zst"
    for name in ("/dev/zero", "/dev/urandom", "/dev/full"):
        for words in ([query, name, "SELECT 1"], [build.tool("probing-convert"), name, tmp_path / "o.db"], [build.tool("probing"), "pack", name, "-o", tmp_path / "o.zst"]):
            assert "%s: a device, not a file or a pipe: no trace" % name in run(words, check=3).stderr
    assert "/dev/null: the file is empty" in run([query, "/dev/null", "SELECT 1"], check=3).stderr
    assert "not a trace" in run(["sh", "-c", "tr '\\0' x < /dev/zero | '%s' - 'SELECT 1'" % query], check=3).stderr
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "socket"))
        assert "a socket" in run([query, tmp_path / "socket", "SELECT 1"], check=3).stderr
    want = run([query, golden, "SELECT count(*) FROM samples"]).stdout
    with open(str(tmp_path / "t.zst"), "wb") as f:
        f.truncate(1 << 42)
        f.seek(1 << 42)
        f.write(golden.read_bytes())
    assert run([query, tmp_path / "t.zst", "SELECT count(*) FROM samples"], check=1).stdout == want
    with open(str(tmp_path / "t.zst"), "ab") as f:
        f.truncate(1 << 43)
    assert run([query, tmp_path / "t.zst", "SELECT count(*) FROM samples"], check=1).stdout == want


def test_a_pipe_that_nobody_writes(build, tmp_path):
    """The tool waits for it, and says so."""
    os.mkfifo(str(tmp_path / "fifo"))
    waits = subprocess.Popen([str(build.tool("probing-query")), str(tmp_path / "fifo"), "SELECT 1"], stderr=subprocess.PIPE, universal_newlines=True)
    try:
        assert "nothing has come through it yet" in waits.stderr.readline()
        waits.send_signal(signal.SIGTERM)
        assert waits.wait(240) != 0
    finally:
        waits.kill()
        waits.communicate()


def test_table(build, run, db):
    out = query(build, run, db, "SELECT name, n, x, b FROM t")
    assert out.stdout == (
        "name                            n                  x  b\n"
        "------------  -------------------  -----------------  --------\n"
        "plain                           1                0.1  \n"
        "a,\"b\"                         -22  1763714000.123456  \\x00\\xff\n"
        "                                              1e+300  \n"
        "zwei\\nZeilen  9223372036854775807           0.333333  \n"
        "h\u00e9llo \u4e16\u754c                      0                0.0  \n")
    assert out.stderr == ""


def test_csv(build, run, db):
    out = query(build, run, "--format", "csv", db, "SELECT name, n, x, b FROM t", binary=True).stdout
    assert out.endswith(b"\r\n") and out.count(b"\r\n") == 6
    rows = list(csv.reader(io.StringIO(out.decode(), newline="")))
    assert rows[0] == ["name", "n", "x", "b"]
    assert rows[1] == ["plain", "1", "0.1", ""]
    assert rows[2] == ['a,"b"', "-22", "1763714000.123456", "00ff"]
    assert rows[4][0] == "zwei\nZeilen" and float(rows[4][2]) == 1 / 3
    assert out.split(b"\r\n")[3] == b'"",,1e+300,', "NULL and an empty text differ"
    assert query(build, run, "--csv", db, "SELECT name, n, x, b FROM t", binary=True).stdout == out


def test_json(build, run, db):
    out = query(build, run, "-f", "json", db, "SELECT name, n, x, b, n AS name FROM t").stdout
    rows = json.loads(out)
    assert len(rows) == 5
    assert rows[1] == {"name": 'a,"b"', "n": -22, "x": 1763714000.123456, "b": "00ff", "name:2": -22}
    assert rows[3]["name"] == "zwei\nZeilen" and rows[3]["x"] == 1 / 3 and rows[3]["n"] == 2 ** 63 - 1
    assert rows[2]["n"] is None and rows[2]["name"] == ""
    assert query(build, run, "--json", db, "SELECT name, n, x, b, n AS name FROM t").stdout == out


def test_bytes_that_are_no_text(build, run, db):
    sql = "SELECT CAST(x'41ff1b5b42' AS TEXT) AS a"
    assert json.loads(query(build, run, "-f", "json", db, sql).stdout) == [{"a": "A\ufffd\x1b[B"}]
    shown = query(build, run, db, sql).stdout.splitlines()[2]
    assert shown == "A\\xff\\x1b[B", "nothing reaches the terminal raw"


@pytest.mark.parametrize("form, empty", [("table", "a\n-\n"), ("csv", "a\r\n"), ("json", "[]\n")])
def test_no_rows(build, run, db, form, empty):
    out = query(build, run, "-f", form, db, "SELECT 1 AS a WHERE 0", binary=True)
    assert out.stdout.decode() == empty
    assert out.stderr == b"probing-query: no rows\n"


@pytest.mark.parametrize("table, sql, said", [
    ("training_logs", "SELECT loss FROM training_logs", "training_logs is made of recorded variables: probing-record --exprs loss@train"),
    ("spans", "SELECT count(*) FROM Spans GROUP BY name", "spans are those of probing.span()")])
def test_what_empty_tables_are_made_of(build, run, tmp_path, table, sql, said):
    db = tmp_path / "made.db"
    with contextlib.closing(sqlite3.connect(db)) as c:
        c.execute("CREATE TABLE %s(name, loss)" % table)
    assert query(build, run, db, sql).stderr == "probing-query: no rows: %s\n" % said
    with contextlib.closing(sqlite3.connect(db)) as c, c:
        c.execute("INSERT INTO %s VALUES ('a', 1)" % table)
    assert query(build, run, db, sql + " LIMIT 0").stderr == "probing-query: no rows\n"


def test_many_rows_in_order(build, run, db):
    sql = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 5000) SELECT i, 'x' || i AS s FROM c"
    lines = query(build, run, db, sql).stdout.splitlines()
    assert [line.split() for line in lines[2:]] == [[str(i), "x%d" % i] for i in range(1, 5001)]
    assert len(json.loads(query(build, run, "-f", "json", db, sql).stdout)) == 5000


def test_sql_from_stdin_and_several_statements(build, run, db):
    out = query(build, run, db, "-", input="-- two\nSELECT 1 AS a; SELECT 2 AS b;\n").stdout
    assert out == "a\n-\n1\n\nb\n-\n2\n"
    refused = query(build, run, "-f", "csv", db, "-", input="SELECT 1; SELECT 2", check=2)
    assert "room for one result" in refused.stderr


def test_read_only(build, run, db):
    before = db.read_bytes()
    for sql in ("DELETE FROM t", "CREATE TABLE u(a)", "PRAGMA user_version = 5"):
        assert "readonly" in query(build, run, db, sql, check=3).stderr.replace("read-only", "readonly")
    assert db.read_bytes() == before
    golden = pathlib.Path(__file__).resolve().parents[1] / "golden" / "basic.zst"
    for options in ([], ["--no-cache"]):  # a trace's own database, kept and not
        assert "readonly" in query(build, run, *(options + [golden, "DELETE FROM sample"]), check=3).stderr
        assert query(build, run, *(options + [golden, "CREATE TEMP TABLE u AS SELECT 7 AS a; SELECT a FROM u"])).stdout.split()[-1] == "7"


def test_a_database_of_another_version(build, run, record, convert):
    out = convert(record("pass\n").trace)
    for version, says in ((1, "an older"), (99, "a newer")):
        with sqlite3.connect(str(out)) as c:
            c.execute("PRAGMA user_version = %d" % version)
        c.close()
        done = query(build, run, "-f", "csv", out, "SELECT count(*) AS n FROM trace")
        assert done.stdout == "n\n1\n" and "was made by %s probing-convert" % says in done.stderr


@pytest.mark.parametrize("args, code, says", [
    ([], 2, "a database or a trace is needed"),
    (["DB"], 2, "standard input has no SQL: give it as the last word, or -f FILE"),
    (["select 1", "DB"], 2, "the SQL comes last, and is one: probing query DB|TRACE... \"SQL\""),
    (["-- why\nSELECT 1", "DB"], 2, "the SQL comes last"),
    (["SELECT 1", "1234"], 2, "the SQL comes last"),
    (["DB", "WITH a AS (SELECT 1) SELECT * FROM a", "DB"], 2, "the SQL comes last"),
    (["SHOW TABLES"], 2, "the SQL is of what? probing query DB|TRACE... \"SQL\""),
    (["DB", " ; "], 2, "the SQL is empty"),
    (["--format", "xml", "DB", "SELECT 1"], 2, "choose table, box, markdown, csv, json, jsonl or arrow"),
    (["--nope", "DB", "SELECT 1"], 2, "unknown option '--nope'"),
    (["--format"], 2, "needs a value"),
    (["DB", "DB", "SELECT 1"], 2, "is asked alone"),
    (["/nowhere.db", "SELECT 1"], 3, "cannot open /nowhere.db: No such file"),
    (["DB", "SELECT * FROM nope"], 3, "no such table: nope (probing-query --tables lists the names)"),
    (["DB", "SELEC 1"], 3, 'near "SELEC": syntax error'),
    (["DB", "SELECT abs(-9223372036854775808)"], 3, "integer overflow"),
])
def test_errors(build, run, db, args, code, says):
    done = query(build, run, *[str(db) if a == "DB" else a for a in args], check=code)
    assert says in done.stderr and done.stderr.startswith("probing-query: ") and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_file_that_is_neither(build, run, tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("hello\n" * 100)
    done = query(build, run, other, "SELECT 1", check=3)
    assert "notes.txt" in done.stderr
    assert not list(tmp_path.glob("probing-*"))


def test_full_disk_is_an_error(build, run, db):
    done = run(["sh", "-c", "'%s' '%s' 'SELECT name FROM t' > /dev/full" % (build.tool("probing-query"), db)], check=3)
    assert "cannot write to standard output" in done.stderr


def test_tables(build, run, db):
    out = json.loads(query(build, run, "--tables", "-f", "json", db).stdout)
    assert out == [{"name": "v", "type": "view", "columns": "name"}, {"name": "t", "type": "table", "columns": "name, n, x, b"}]


def test_views_from_which_others_are_stored_are_not_listed(build, run, tmp_path):
    """The view NAME_made; but a table of the recorded program, a view whose name is quoted, is listed whatever its name is."""
    with sqlite3.connect(str(tmp_path / "made.db")) as c:
        c.executescript("CREATE VIEW hangs AS SELECT 1 AS a; CREATE VIEW hangs_made AS SELECT 1 AS a; CREATE VIEW \"cars_made\" AS SELECT 1 AS a;")
    c.close()
    out = json.loads(query(build, run, "--tables", "-f", "json", tmp_path / "made.db").stdout)
    assert [row["name"] for row in out] == ["cars_made", "hangs"]


def test_traces_directly(build, run, record, sql, convert, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    trace = record("import time\nwhile time.process_time() < 0.4: sum(range(999))\n").trace
    question = "SELECT func, self FROM hot_functions WHERE frame_type = 'Python' ORDER BY func"
    rows = json.loads(query(build, run, "-f", "json", trace, question).stdout)
    assert [(r["func"], r["self"]) for r in rows] == sql(convert(trace), question) != []
    names = query(build, run, "--tables", "-f", "csv", trace).stdout
    for name in ("trace", "samples", "backtrace", "threads", "hot_functions", "memory_usage", "cpu_utilization", "io_statistics",
                 "network_statistics", "process", "modules_loaded", "config"):
        assert "\n%s,view," % name in names
    assert not list(tmp_path.glob("probing-*")), "no temporary database is left"
    both = "SELECT (SELECT count(*) FROM samples) > 0 AND (SELECT count(*) FROM samples) = (SELECT count(*) FROM python.samples) AS ok"
    assert json.loads(query(build, run, "-f", "json", trace, both).stdout) == [{"ok": 1}]
    # A torn trace: what is good is answered, and the exit code says that it was not everything.
    torn = tmp_path / "torn.zst"
    torn.write_bytes(trace.read_bytes()[:-200])
    done = query(build, run, "-f", "csv", torn, "SELECT count(*) FROM trace", check=1)
    assert done.stdout.split() == ["count(*)", "1"] and "torn.zst" in done.stderr


def test_interrupted_conversion_leaves_nothing(build, run, record, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    trace = record("pass\n\n").trace
    # With the SQL from standard input the program waits before it converts, so the signal comes early in the conversion, or before it. In
    # both cases no file may be left behind.
    process = subprocess.Popen([build.tool("probing-query"), str(trace), "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.stdin.write(b"SELECT 1")
    process.stdin.close()
    os.kill(process.pid, signal.SIGINT)
    process.wait(timeout=240)
    process.stdout.close()
    process.stderr.close()
    assert process.returncode in (-signal.SIGINT, 0)
    assert not list(tmp_path.glob("probing-*"))


def test_killed_conversion_leaves_nothing(build, run, record, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    os.mkfifo(tmp_path / "never.zst")  # the conversion waits here, after it has begun its database
    trace = record("pass\n").trace
    process = subprocess.Popen([build.tool("probing-query"), str(trace), str(tmp_path / "never.zst"), "SELECT 1"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        fds, deadline = pathlib.Path("/proc/%d/fd" % process.pid), time.monotonic() + 600
        while not any(str(tmp_path / "tmp") in link and link.endswith(" (deleted)") for link in map(os.path.realpath, fds.iterdir())):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert list((tmp_path / "tmp").iterdir()) == []
    # A conversion that is killed just before that leaves an empty file: the next one removes it, and no file of anybody else.
    (tmp_path / "tmp" / "probing.tmp-killed").touch()
    (tmp_path / "tmp" / "probing.tmp-mytext").write_text("mine\n")
    assert query(build, run, "-f", "csv", trace, "SELECT 1 AS a").stdout.split() == ["a", "1"]
    assert [p.name for p in (tmp_path / "tmp").iterdir()] == ["probing.tmp-mytext"]


def test_sql_that_begins_with_a_comment(build, run):
    """The SQL is not taken for an option, wherever it stands; and options are still recognized."""
    golden = pathlib.Path(__file__).resolve().parents[1] / "golden" / "basic.zst"
    tool = build.tool("probing-query")
    for sql in ("-- why\nSELECT 7 AS n", "--why\nSELECT 7 AS n", "--\nSELECT 7 AS n", "-- a=b\nSELECT 7 AS n", "/* x */ SELECT 7 AS n"):
        assert run([tool, golden, sql, "--csv"]).stdout == "n\n7\n", sql
        assert run([tool, "--format=csv", golden, sql]).stdout == "n\n7\n", sql
    assert "unknown option '--no-such'" in run([tool, golden, "--no-such", "SELECT 1"], check=2).stderr
    assert "unknown option" in run([tool, golden, "--no-such=a b", "SELECT 1"], check=2).stderr


def test_a_signal_at_the_prompt_drops_the_statement(build, db, tmp_path):
    """A SIGINT from outside, not from a key: the begun statement is dropped, also while a query runs."""
    from test_record_terminal import Terminal
    terminal = Terminal([build.tool("probing-query"), db], tmp_path, dict(os.environ, HOME=str(tmp_path), TERM="xterm"))
    try:
        terminal.read_until(rb"probing> ")
        terminal.type(b"SELECT 'never',\n")
        terminal.read_until(rb"\.\.\.> ")
        os.kill(terminal.pid, signal.SIGINT)
        terminal.read_until(rb"probing> ")
        terminal.type(b"SELECT 6 * 7 AS answer;\n")
        terminal.read_until(rb"42")
        terminal.type(b"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n;\n")
        terminal.read_until(rb"FROM n;\r*\n")  # the line was accepted: one signal is enough, whether the statement has begun or not
        os.kill(terminal.pid, signal.SIGINT)
        terminal.read_until(rb"interrupted")
        terminal.type(b"SELECT 6 * 8 AS answer;\n")
        terminal.read_until(rb"48")
        terminal.type(b"\\q\n")
        assert terminal.wait() == 0
    finally:
        terminal.close()


ROWS_OF_TWO_SCREENS = b"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) SELECT 'row ' || i AS r FROM n;\n"


# One process, which Ctrl-C ends whenever it comes: a shell may lose the signal while it starts its next command.
SLOW_PAGER = "exec %s -c 'import signal, time; signal.signal(2, signal.SIG_DFL); print(\"paged\", flush=True); time.sleep(1000)'" % sys.executable


@pytest.mark.parametrize("pager", [SLOW_PAGER, "echo paged; false", "no-such-pager", None], ids=["slow", "fails", "missing", "none"])
def test_the_pager(build, db, tmp_path, pager):
    """Who leaves the pager by Ctrl-C has seen enough: only if there is none, or it fails, the rows are shown without it."""
    from test_record_terminal import Terminal
    env = dict(os.environ, HOME=str(tmp_path), TERM="xterm", PAGER=pager or "")
    if not pager:  # none is named, and neither less nor more is installed
        del env["PAGER"]
        env["PATH"] = str(tmp_path)
        pager = ""
    terminal = Terminal([build.tool("probing-query"), db], tmp_path, env)
    try:
        fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("4H", 30, 100, 0, 0))
        terminal.read_until(rb"probing> ")
        terminal.type(ROWS_OF_TWO_SCREENS)
        if "paged" in pager:
            terminal.read_until(rb"paged\r\n")
        if "sleep" in pager:
            terminal.type(b"\x03")
        shown = terminal.read_until(rb"\(60 rows\)")
        assert (b"row 59" in shown) == ("sleep" not in pager), shown
        terminal.type(b"SELECT 6 * 7 AS answer;\n")
        terminal.read_until(rb"42")
        terminal.type(b"\\q\n")
        assert terminal.wait() == 0
    finally:
        terminal.close()


def wait_for_its_wait(pid):
    """Waits until a process of one thread waits for input: it sleeps, and has not been woken for a while."""
    def switches():
        text = pathlib.Path("/proc/%d/status" % pid).read_text()
        return "State:\tS" in text and text[text.index("voluntary_ctxt"):].split("\n")[0]
    deadline, before = time.monotonic() + 240, False
    while not before or switches() != before:
        assert time.monotonic() < deadline
        before = switches()
        time.sleep(0.2)


@pytest.mark.parametrize("when", ["wait:1", "wait:2"] + ["edit:%d" % n for n in range(1, 7)])
def test_a_signal_whenever_it_comes(build, db, tmp_path, when):
    """SIGINT just before the shell waits for a key, or while it sets the terminal to editing and back: the begun statement is dropped."""
    from test_record_terminal import Terminal
    env = dict(os.environ, HOME=str(tmp_path), TERM="xterm", LD_PRELOAD=str(build.root / "tests/programs/interrupt_at"), INTERRUPT_AT=when)
    terminal = Terminal([build.tool("probing-query"), db], tmp_path, env)
    try:
        terminal.read_until(rb"probing> ")
        if when.startswith("wait"):
            wait_for_its_wait(terminal.pid)
        if when == "wait:1":
            terminal.read_until(rb"\^C")
        terminal.type(b"SELECT 'never',\n")
        terminal.read_until(rb"\^C" if when == "wait:2" else rb"(\^C|\.\.\.> )")
        # Alone, or after the begun statement, it is an error, unless the signal comes when the line was just accepted: then the statement
        # does not start.
        terminal.type(b";\n")  # the signal also drops what was typed ahead
        terminal.read_until(rb";\r\n([^\n]*(syntax error|interrupted)\r\n)?probing> ")
        terminal.type(b"SELECT 6 * 7 AS answer;\n")
        terminal.read_until(rb"42")
        terminal.type(b"\\q\n")
        assert terminal.wait() == 0
    finally:
        terminal.close()
