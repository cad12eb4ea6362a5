# SPDX-License-Identifier: Apache-2.0
"""Names from untrusted sources - HTML, terminal escapes, control characters, other directions of writing, line ends, very long ones - in every
output: nothing comes out that a terminal or a page would obey, and programs read the exact name."""
import csv
import html.parser
import io
import json
import os
import pty
import re
import select
import shutil
import sqlite3
import subprocess
import sys

import pytest

from chromium import browser, chromium, in_page
from conftest import run_command
from gdb_tools import gdb_command, needs_gdb
from test_cluster import cluster  # noqa: F401
from test_console import wait_until
from test_export import HOSTILE, obeyed
from test_serve import TOKEN, serve  # noqa: F401

# Columns by which rows refer to each other, or on which SQL depends, keep their values.
KEPT = {"boot_id", "clock", "method", "recording", "parts", "frames", "ranks", "build_id", "kind"}


@pytest.fixture(scope="module")
def hostile(build, tmp_path_factory):
    """A database in which all texts, in every table, are names of HOSTILE, except in the columns KEPT."""
    where = tmp_path_factory.mktemp("names")
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", where / "job", "--nodes", "2", "--ranks", "4", "--minutes", "0.3",
                 "--hz", "20", "--hang", "2:14"])
    run_command([build.tool("probing-convert"), "-q", where / "job", where / "plain.db"])
    shutil.copy(str(where / "plain.db"), str(where / "hostile.db"))
    db, n = sqlite3.connect(str(where / "hostile.db")), 0
    first, start, pid = db.execute("SELECT first_id, start_ts, pid FROM trace_file ORDER BY id LIMIT 1").fetchone()
    for i in range(len(HOSTILE)):
        key, ts = first + 10 ** 9 + i, start + i * 10 ** 6
        db.execute("INSERT INTO span VALUES(?, ?, NULL, ?, ?)", (key, ts, pid, "span %d" % i))
        db.execute("INSERT INTO trigger_event VALUES(?, ?, 'exception', ?, -1, NULL, ?, ?)", (key, ts, pid, "detail %d" % i, "text %d" % i))
    for table, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'").fetchall():
        for column in [c[1] for c in db.execute("PRAGMA table_info(%s)" % table) if "TEXT" in c[2].upper() and c[1] not in KEPT]:
            for value, in db.execute("SELECT DISTINCT {1} FROM {0} WHERE {1} IS NOT NULL".format(table, column)).fetchall():
                db.execute("UPDATE {0} SET {1} = CAST(? AS TEXT) WHERE {1} = ?".format(table, column), (sqlite3.Binary(HOSTILE[n % len(HOSTILE)] % n), value))
                n += 1
    db.commit()
    db.close()
    yield where / "hostile.db"
    shutil.rmtree(str(where), ignore_errors=True)


def ask(cmd, codes=(0,), **kw):
    """Returns (stdout, stderr), after checking that they are UTF-8 and have nothing that a terminal obeys."""
    done = subprocess.run([str(c) for c in cmd], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240, **kw)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode in codes, (cmd, done.returncode, err[-2000:])
    for text in (out, err):
        assert not obeyed(text), (cmd, [text[max(0, text.index(c) - 60):][:120] for c in obeyed(text)])
    return out, err


NAMES = "SELECT name, file, module FROM function UNION ALL SELECT name, comm, NULL FROM thread UNION ALL SELECT command, host, cwd FROM trace_file"
PEOPLE = [["query", "--format", f, "DB", NAMES] for f in ("table", "box", "markdown")] + \
    [["ask", "all", "--format", f, "DB"] for f in ("table", "box", "markdown")] + \
    [["query", "--tables", "DB"], ["stacks", "DB"], ["stacks", "--threads", "--native", "DB"], ["flamegraph", "--folded", "DB"],
     ["flamegraph", "DB"], ["flamegraph", "--lines", "--processes", "--idle", "DB"], ["flamegraph", "--diff", "PLAIN", "DB"], ["report", "DB"],
     ["export", "--format", "collapsed", "DB"]] + \
    [["top", "--view", v, "DB"] for v in ("functions", "native", "threads", "modules", "ranks")]


@pytest.mark.parametrize("args", PEOPLE, ids=lambda a: "-".join(a[:-1])[:40])
def test_for_people(build, hostile, args):
    out, _ = ask([build.tool("probing")] + [{"DB": hostile, "PLAIN": hostile.parent / "plain.db"}.get(a, a) for a in args])
    assert len(out) > 80
    if args[0] in ("flamegraph", "report") and "--folded" not in args:
        assert out.count("<script") == (2 if args[0] == "report" else 1) and "<img" not in out
    if "markdown" in args:  # no name is HTML, or ends its table cell
        rows = [line for line in out.splitlines() if line.startswith("|")]
        assert "<" not in out and rows and all(line.endswith("|") for line in rows)
    if args[:2] == ["query", "--format"]:  # each row is one line, and each name is in it
        assert all(word in out for word in ("\\x1b]0;x\\x07", "\\n", "n" * 3000, "onerror=alert(1)", "\\xff\\xfe", "\\xc2\\x9b31m"))


@pytest.mark.parametrize("args", [["query", "--json", "DB", NAMES], ["query", "--format", "jsonl", "DB", NAMES], ["ask", "all", "--json", "DB"],
                                  ["stacks", "--json", "DB"], ["stacks", "--flat", "DB"], ["top", "--json", "DB"]] +
                         [["export", "--format", f, "DB"] for f in ("chrome", "speedscope", "firefox", "jsonl")], ids=lambda a: "-".join(a[:-1])[:40])
def test_json(build, hostile, sql, args):
    """The JSON has nothing that a terminal obeys, and its reader gets the names."""
    out, _ = ask([build.tool("probing")] + [hostile if a == "DB" else a for a in args])
    rows = [json.loads(line) for line in out.splitlines()] if "jsonl" in args else json.loads(out)
    if args[0] == "query":
        db = sqlite3.connect(str(hostile))
        db.text_factory = bytes
        names = {n[0].decode(errors="replace") for n in db.execute(NAMES) if n[0]}
        # each byte that is not UTF-8 is one U+FFFD
        assert {re.sub("\ufffd+", "\ufffd", r["name"]) for r in rows if r["name"]} == {re.sub("\ufffd+", "\ufffd", n) for n in names}
        db.close()


def read_terminal(cmd, key=None, **kw):
    """Returns what a terminal gets. `key` is pressed once something has appeared."""
    main, side = pty.openpty()
    process = subprocess.Popen([str(c) for c in cmd], stdin=side, stdout=side, stderr=side, **kw)
    os.close(side)
    got = b""
    try:
        while select.select([main], [], [], 240)[0]:
            data = os.read(main, 65536)
            if not data:
                break
            got += data
            if key and b"functions" in got:
                os.write(main, key)
                key = None
    except OSError:  # the other side has closed it
        pass
    os.close(main)
    assert process.wait(timeout=240) == 0
    return got.decode()


def test_csv(build, hostile):
    """Into a pipe CSV writes the exact bytes, for which it has no other notation; on a terminal, visible characters."""
    cmd = [build.tool("probing-query"), "--csv", hostile, NAMES]
    db = sqlite3.connect(str(hostile))
    db.text_factory = bytes
    rows = [[c or b"" for c in row] for row in db.execute(NAMES)]
    db.close()
    out = subprocess.run(cmd, stdout=subprocess.PIPE, check=True, timeout=240).stdout.decode("latin-1")
    assert [[c.encode("latin-1") for c in row] for row in list(csv.reader(io.StringIO(out, newline="")))[1:]] == rows
    shown = read_terminal(cmd).replace("\r", "")  # line ends of the terminal, and ours at the end of a row
    assert not obeyed(shown) and "\\x1b]0;x\\x07" in shown and len(list(csv.reader(io.StringIO(shown)))) == len(rows) + 1


def test_top_draws_no_escapes_but_its_own(build, hostile):
    shown = read_terminal([build.tool("probing"), "top", hostile], key=b"q", env=dict(os.environ, TERM="xterm", LINES="60", COLUMNS="120"))
    assert "\x1b]0;x" not in shown and not obeyed(shown) - {"\x1b", "\r"}
    assert set(re.findall(r"\x1b[^a-zA-Z]*[a-zA-Z]", shown)) and not re.findall(r"\x1b[^\[]", shown)


def test_messages(build, hostile, tmp_path):
    """Messages repeat names of files and words of the command line."""
    name = "no\x1b]0;x\x07\nprobing: all is well\x9b31m\u202e"
    probing = build.tool("probing")
    for args, codes in ((["query", name + ".db", "SELECT 1"], (3,)), (["convert", name + ".zst", "out.db"], (3,)), (["flamegraph", "--" + name, "x"], (2,)),
                        ([name], (2,)), (["query", hostile, 'SELECT * FROM "%s"' % name], (2, 3)), (["top", name], (3,)), (["report", name], (3,)),
                        (["serve", "-l", "127.0.0.1:0", name], (3,)), (["cluster", "nodes", "--nodes", "127.0.0.1:1," + name], (1, 2, 3)),
                        (["flamegraph", "-o", name + "/x.svg", hostile], (3,)), (["export", "-o", name, hostile], (2,))):
        _, err = ask([probing] + args, codes, env=dict(os.environ, PROBING_TOKEN=TOKEN), cwd=str(tmp_path))
        assert err and "\nprobing: all is well" not in err


# ---- a process that runs ----

LIVE = r'''
import ctypes, threading, time
NAMES = ["a\nb", "\x1b]0;x\x07", "\x9b31m", "\u202egnp.exe", "</script><img src=x onerror=alert(1)>", "n" * 3000, "\x7f\x08", "\ufeffx\u2028", "a;b c", "| a | `b`", '"q\\']
def named(name, file):
    code = compile("def f(k):\n  return k()", "x", "exec").co_consts[0]
    more = {"co_qualname": name} if hasattr(code, "co_qualname") else {}
    return type(named)(code.replace(co_name=name, co_filename=file, **more), {})
def inner():
    while True: time.sleep(.01)
def call(f, k): return lambda: f(k)
f = inner
for i, name in enumerate(NAMES):
    f = call(named(name, "/x/" + NAMES[(i + 3) % len(NAMES)] + ".py"), f)
threading.Thread(target=f, name="t\x1b[31m</script>\u202e\n", daemon=True).start()
ctypes.CDLL(None).prctl(15, b"c\x1b[31m\n<b>")
print("up", flush=True)
f()
'''
EVIL = "d\x1b[31m\n\u202e\x9b<img src=x onerror=alert(1)>"


@pytest.fixture
def live(build, spawn, tmp_path):
    """Returns the pid of a recorded process that has such a name, folder and argument."""
    folder = tmp_path / EVIL
    folder.mkdir()
    (folder / "live.py").write_text(LIVE)
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "100", "-o", "t%s.zst" % EVIL, sys.executable, "live.py", "arg" + EVIL], ready="up", cwd=str(folder))
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    cmd = [build.tool("probing"), str(pid), "query", "--csv", "SELECT count(*) > 3 FROM samples"]
    wait_until(lambda: subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=240).stdout.endswith(b"1\r\n"))
    return pid


@pytest.mark.limit(400)
def test_a_live_process(build, live):
    t = [build.tool("probing"), "-t", live]
    assert len(ask([build.tool("probing"), "list"])[0].splitlines()) == 3  # its name makes no line of its own
    for args in (["status"], ["config"], ["backtrace"], ["backtrace", "--locals"], ["backtrace", "--stop", "--native"], ["backtrace", "--folded"],
                 ["query", "SELECT DISTINCT func, file FROM samples"], ["memory"], ["flamegraph", "--folded"], ["flamegraph"], ["top"], ["top", "--view", "threads"]):
        ask(t + args)
    for args in (["status", "--json"], ["backtrace", "--json"], ["backtrace", "--json", "--locals"], ["query", "--json", "SELECT command, cwd, file FROM trace"]):
        json.loads(ask(t + args)[0])
    json.loads(ask([build.tool("probing"), "list", "--json"])[0])
    threads = json.loads(ask(t + ["backtrace", "--json", "--python"])[0])["threads"]
    names = {f["func"] for th in threads for f in th["frames"]}
    assert {"a\nb", "\x1b]0;x\x07", "\x9b31m", "\u202egnp.exe", "\ufeffx\u2028"} <= names  # programs get them unchanged
    for args in (["stacks", "--threads", live], ["ask", "all", live], ["report", live]):
        ask([build.tool("probing")] + args)
    ask(t + ["stop"])


@needs_gdb
def test_gdb(build, live):
    ask(gdb_command(build, live, "probing-backtrace", "probing-backtrace --locals", "probing status"), (0,), env=dict(os.environ, TERM="dumb"))


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.names, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


@browser
@pytest.mark.limit(300)
def test_rest_remote_and_cluster(serve, cluster, build, live, run, tmp_path):  # noqa: F811
    """By HTTP, as JSON that no terminal obeys; the same from the commands that ask the server; and on the page."""
    server = serve()
    for path in ("/api/v1/recordings", "/api/v1/traces", "/api/v1/info", "/api/v1/stacks", "/api/v1/stacks?flat=1", "/api/v1/processes/%d/backtrace" % live,
                 "/api/v1/query?format=json&sql=SELECT+command,cwd,file+FROM+trace", "/api/v1/query?format=json&sql=SELECT+'%1b%c2%9b%e2%80%ae'+FROM+nosuch"):
        status, headers, body = server.ask(path)
        text = body.decode()
        assert not obeyed(text) and headers["content-type"] == "application/json", (path, status, text[:500])
        json.loads(text)
    env = dict(os.environ, PROBING_TOKEN=TOKEN, PROBING_CLUSTER=str(tmp_path / "attached"))
    for args in (["list"], ["backtrace", live], ["top", live], ["query", live, "SELECT command, cwd, file FROM trace"], ["flamegraph", live, "--folded"]):
        ask([build.tool("probing"), "-t", server.where] + args, env=env)
    for args in (["query", "SELECT DISTINCT func, file FROM samples"], ["query", "--markdown", "SELECT DISTINCT func, file FROM samples"],
                 ["query", "--json", "SELECT DISTINCT func, file FROM samples"], ["stacks"], ["stacks", "--threads", "--flat"], ["nodes"]):
        ask([build.tool("probing"), "cluster"] + args + ["--nodes", server.where], env=env)
    dom, said = chromium(tmp_path, "--dump-dom", "http://%s/?token=%s#pid=%d" % (server.where, TOKEN, live))
    assert not said, said
    tags = Tags()
    tags.feed(dom)
    assert "1 recording," in dom and "img" not in tags.names and not {a for a in tags.attributes if a.startswith("on")}


@browser
def test_report_in_a_browser(build, hostile, tmp_path):
    (tmp_path / "report.html").write_text(ask([build.tool("probing"), "report", hostile])[0])
    out, said = in_page(tmp_path, tmp_path / "report.html", """document.querySelectorAll("button.sql, summary").forEach((b) => b.click());
      await new Promise((r) => setTimeout(r, 500));
      return {scripts: document.scripts.length, images: document.images.length, outside: performance.getEntriesByType("resource").length,
        wide: document.documentElement.scrollWidth > innerWidth ? [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
          .map((e) => [e.tagName, e.className, e.parentElement.className, e.textContent.slice(0, 40)]).slice(0, 20) : []};""")
    assert not said and out == {"scripts": 3, "images": 0, "outside": 0, "wide": []}
