# SPDX-License-Identifier: Apache-2.0
"""`probing stacks` merges what every rank did at one time into one tree, on simulated jobs and on a program with known stacks."""
import datetime
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest
from conftest import run_command
from test_console import wait_until


@pytest.fixture(scope="module")
def hung(build, tmp_path_factory):
    out = tmp_path_factory.mktemp("stacks") / "hung"
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", out, "--nodes", 2, "--minutes", 0.3, "--ranks", 16,
                 "--hang", "3:6"])
    run_command([build.tool("probing-convert")] + sorted(out.glob("node*")) + [out / "out.db"])
    return out / "out.db"


def tree(build, run, *args, code=0):
    return json.loads(run([build.tool("probing"), "stacks", "--json"] + list(args), check=code).stdout)


def leaves(node, path=()):
    path = path + (node["frame"],)
    inner = [x for c in node["children"] for x in leaves(c, path)]
    return inner or [(path, node)]


def test_who_does_something_else(build, run, hung):
    root = tree(build, run, "--at", -6, hung)  # all ranks but one wait
    assert root["count"] == 16 and root["ranks"] == "0-15"
    waits = [(path, node) for path, node in leaves(root) if any("all_reduce" in frame for frame in path)]
    (path, node), = [leaf for leaf in leaves(root) if leaf not in waits]
    assert node["ranks"] == "3"
    assert sum(node["count"] for _, node in waits) == 15
    shown = run([build.tool("probing"), "stacks", "--at", -6, hung]).stdout
    assert shown.index("1 rank: 3\n") < shown.index("15 ranks: 0-2,4-15\n") and shown.startswith("16 ranks: 0-15\n")


def test_a_thread_that_ended_in_another_file_of_its_recording(build, run, hung, tmp_path, sql):
    """Of a recording in several files (rotation) the last one may say that a thread is over, and have no sample of it."""
    db = tmp_path / "out.db"
    shutil.copy(str(hung), str(db))
    with sqlite3.connect(str(db)) as c:
        columns = ", ".join(name for _, name, *_ in c.execute("PRAGMA table_info(trace_file)") if name not in ("id", "file", "first_id", "last_id", "program"))
        for rank, end in ((3, 2000000000), (5, 0)):
            trace, = c.execute("SELECT id FROM trace_file WHERE rank = ?", (rank,)).fetchone()
            new = trace + 100
            c.execute("INSERT INTO trace_file(id, file, first_id, last_id, program, %s) SELECT ?1, file || '.2', ?1 << 40, ?1 << 40 | 0xffffffffff, ?2, %s"
                      " FROM trace_file WHERE id = ?2" % (columns, columns), (new, trace))
            c.execute("UPDATE trace_file SET program = id, end_ts = end_ts - 1 WHERE id = ?", (trace,))
            c.execute("INSERT INTO thread SELECT (?1 << 40) + (h.id & 0xffffffffff), ?1, h.tid, h.name, h.ident, h.start_ts, t.end_ts - ?2, 0, 0, 0, h.comm"
                      " FROM trace_file t JOIN thread h ON h.trace = t.id AND h.tid = t.pid WHERE t.id = ?3", (new, end, trace))
    c.close()
    assert tree(build, run, hung)["ranks"] == "0-15" and tree(build, run, db)["ranks"] == "0-2,4-15"


def test_moments_and_threads(build, run, hung, sql):
    first = sql(hung, "SELECT min(start) FROM trace")[0][0]
    early = tree(build, run, "--at", "%.3f" % (first + 3), hung)
    assert early["ranks"] == "0-15" and not any("waited" in node and node["waited"] > 3 for _, node in leaves(early))
    with_native = tree(build, run, "--native", "--at", -6, hung)
    assert any(".so" in frame for path, _ in leaves(with_native) for frame in path)
    threads = tree(build, run, "--threads", "--at", -6, hung)
    assert [c["frame"] for c in threads["children"]] == ["main thread"]
    done = run([build.tool("probing"), "stacks", "--at", "1999-01-01", hung], check=1)
    assert re.search(r"no samples then: 16 processes were recorded from 2025-10-09 [0-9:]+ to 2025-10-09 ", done.stderr) and done.stdout == ""
    at = datetime.datetime.fromtimestamp(round(first + 3, 3), datetime.timezone.utc)  # the same moment, written differently
    for same in (at.strftime("%Y-%m-%d %H:%M:%S.%f"), at.strftime("%H:%M:%S.%f"), "+3s"):
        assert tree(build, run, "--at", same, hung)["children"] == early["children"], same
    assert tree(build, run, "--at", "-6s", hung)["children"] == tree(build, run, "--at", "-0.1min", hung)["children"]
    for wrong, says in ((["--at", "teatime"], "no time"), (["--at", "25:00"], "no time"), (["--at", "12:61:00"], "no time"), (["--at", "5", "--trigger", "1"], "not both"), (["--trigger", "99"], "no trigger 99"), (["--run", "99"], "no run 99")):
        done = run([build.tool("probing"), "stacks"] + wrong + [hung], check=3 if "99" in wrong else 2)
        assert says in done.stderr, done.stderr


def test_many_ranks_do_not_fill_the_screen(build, run, tmp_path):
    """A branch of 64 ranks in 33 ranges."""
    run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "f", "--nodes", 1, "--minutes", 0.05, "--ranks", 96, "--hang", "0:0"])
    run([build.tool("probing-convert"), tmp_path / "f", tmp_path / "out.db"])
    with sqlite3.connect(str(tmp_path / "out.db")) as db:  # all wait in one place, but every third rank in another
        stacks = [i for i, in db.execute("SELECT DISTINCT stack_id FROM samples WHERE stack_id IS NOT NULL LIMIT 2")]
        db.execute("UPDATE sample SET stack = iif((SELECT rank FROM trace_file t WHERE t.id = sample.id >> 40) % 3 = 1, ?, ?)", stacks)
    branches = [node for _, node in leaves(tree(build, run, tmp_path / "out.db"))]
    assert sorted(node["count"] for node in branches) == [32, 64] and all(len(node["ranks"].split(",")) > 20 for node in branches)
    shown = run([build.tool("probing"), "stacks", tmp_path / "out.db"]).stdout
    assert "64 ranks: 0,2,3,5,6,8,9," in shown and re.search(r"32 ranks: (\d+,){19}\d+ and 12 more\n", shown), shown
    assert max(map(len, shown.splitlines())) < 200


def test_a_thread_without_python_frames(build, run, hung, tmp_path):
    """As that of a process that ends: it has samples, and is shown."""
    shutil.copy(str(hung), str(tmp_path / "out.db"))
    with sqlite3.connect(str(tmp_path / "out.db")) as db:
        db.execute("UPDATE function SET type = 1")  # native
    assert [(path[1:], node["ranks"]) for path, node in leaves(tree(build, run, tmp_path / "out.db"))] == [(("(no Python frames: see --native)",), "0-15")]
    assert "(no " not in run([build.tool("probing"), "stacks", "--native", tmp_path / "out.db"]).stdout


@pytest.mark.parametrize("table, command", [("sample", ["stacks", "--threads"]), ("function", ["top", "-n", "1"]), ("function", ["top", "--json"]), ("stack", ["flamegraph"])])
def test_a_database_that_is_damaged_further_on(build, run, hung, tmp_path, table, command):
    """Rows that end because the next one cannot be read are not all: an error."""
    shutil.copy(str(hung), str(tmp_path / "out.db"))
    with sqlite3.connect(str(hung)) as db:
        size, = db.execute("PRAGMA page_size").fetchone()
        try:
            pages = [n for n, in db.execute("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,))]
        except sqlite3.OperationalError:
            pytest.skip("this SQLite has no dbstat")
    with open(str(tmp_path / "out.db"), "r+b") as f:
        f.seek((pages[len(pages) // 2] - 1) * size)
        f.write(b"\xff" * size)
    assert "malformed" in run([build.tool("probing")] + command + [tmp_path / "out.db"], check=3).stderr


PROGRAM = """
import os, threading, time
def inner():
    time.sleep(100)
def other():
    time.sleep(100)
threading.Thread(target=other, name="helper-1", daemon=True).start()
threading.Thread(target=other, name="helper-2", daemon=True).start()
def work():
    inner()
print("ready", flush=True)
work()
"""


def test_of_a_process_and_at_its_trigger(build, run, spawn, tmp_path, convert):
    """Without ranks the numbers are pids. A recording that goes on is named by its pid; also the stacks at the signal that ended it."""
    (tmp_path / "p.py").write_text(PROGRAM)
    process = spawn([build.tool("probing-record"), "-r", "100", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "p.py"], ready="ready")
    pid = int(subprocess.run(["pgrep", "-P", str(process.pid)], stdout=subprocess.PIPE, universal_newlines=True).stdout.split()[0])
    shown = [build.tool("probing"), "stacks", "--threads", pid]
    wait_until(lambda: {"inner", "other"} <= set(re.findall(r"\w+", run(shown, check=None).stdout)))  # there is a sample of each thread
    (path, node), = leaves(tree(build, run, pid))
    assert node["ranks"] == str(pid) and [f.split(" ")[0] for f in path] == ["", "<module>", "work", "inner"]
    assert path[-1].endswith("p.py:4)")
    roles = {c["frame"]: c for c in tree(build, run, "--threads", pid)["children"]}
    assert set(roles) == {"main thread", "thread helper-#"}
    os.kill(pid, signal.SIGTERM)
    process.wait(timeout=240)
    db = convert(tmp_path / "t.zst")
    for named in ("last", "term"):
        (path, node), = leaves(tree(build, run, "--trigger", named, db))
        assert path[-1].endswith("p.py:4)")


def test_of_traces_as_of_their_database(build, run, tmp_path):
    """Of traces the last minute is read; if a rank has no sample in it, everything is."""
    run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "f", "--nodes", 1, "--minutes", 3, "--ranks", 2, "--hz", 1,
         "--step-ms", 1000])
    for cut in (False, True):
        if cut:
            first = min((tmp_path / "f").rglob("*.zst"))
            with first.open("r+b") as f:
                f.truncate(first.stat().st_size * 11 // 20)  # it ends more than a minute before the other
        run([build.tool("probing-convert"), "-q", "--force", tmp_path / "f", tmp_path / "out.db"], check=int(cut))
        for args in ([], ["--at", "-5"]):
            done = run([build.tool("probing"), "stacks", "--json"] + args + [tmp_path / "f"], check=int(cut))
            root = json.loads(done.stdout)
            assert root == tree(build, run, *(args + [tmp_path / "out.db"])) and root["ranks"] == "0,1", cut
            assert done.stderr.count("cut off in its last block") == int(cut)


@pytest.mark.slow
def test_ten_thousand_ranks(build, run, tmp_path):
    run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "f", "--nodes", 20, "--minutes", 0.05, "--ranks", 10000,
         "--hang", "777:1"], timeout=600)
    run([build.tool("probing-convert")] + sorted((tmp_path / "f").glob("node*")) + [tmp_path / "out.db"], timeout=1200)
    root = tree(build, run, "--at", -5, tmp_path / "out.db")
    assert root["ranks"] == "0-9999" and "777" in [node["ranks"] for _, node in leaves(root)]


def test_names_do_not_play_with_the_terminal(build, run, tmp_path):
    """Escapes, also those of one byte (CSI is U+009B), and characters that change the direction of writing are shown as numbers or not at
    all."""
    run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "f", "--ranks", "1", "--nodes", "1", "--minutes", "0.1"])
    run([build.tool("probing-convert"), "-q", tmp_path / "f", tmp_path / "x.db"])
    with sqlite3.connect(str(tmp_path / "x.db")) as db:
        db.execute("UPDATE function SET name = 'be' || char(27) || '[2J' || char(0x9b) || '2J' || char(0x202e) || 'ef' || char(0x2066) || char(10) || name")
    for args in (["stacks"], ["top", "-n", "1"], ["query", "--box"]):
        more = ["SELECT DISTINCT func FROM hot_functions WHERE func LIKE 'be%'"] if "query" in args else []
        said = run([build.tool("probing")] + args + [tmp_path / "x.db"] + more, env=dict(os.environ, LC_ALL="C.UTF-8")).stdout
        assert "be" in said and "[2J" in said and not re.search("[\x1b\x9b\u202e\u2066]", said), (args, said)
