# SPDX-License-Identifier: Apache-2.0
"""probing-convert: the names that users rely on, what it does with bad inputs, and how it ends."""
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"

# The stable names: views and columns may be added (at the end), none may be removed or renamed.
VIEWS = {
    "trace": "id file host boot_id pid ppid rank local_rank world_size command exe python start end records lost clock "
             "complete end_reason duration period clock_uncertainty bytes blocks cwd uid agent how process_start role master finished "
             "signal",
    "samples": "timestamp trace_id pid rank tid thread func file lineno frame_type state gil cpu_seconds count seconds "
               "stack_id sample_id",
    "backtrace": "timestamp trace_id pid tid thread depth func file lineno frame_type module sample_id rank stack_id count "
                 "seconds state gil",
    "threads": "trace_id pid rank tid name ident start end samples running cpu_seconds thread_id comm",
    "hot_functions": "func file self total seconds total_seconds share total_share running cpu_seconds frame_type "
                     "firstline module on_cpu waiting cpu_share python_self python_seconds python_on_cpu",
    "memory_usage": "timestamp memory_mb rss vms shared data swap peak trace_id pid rank",
    "cpu_utilization": "timestamp cpu_percent user_percent system_percent user_seconds system_seconds threads "
                       "voluntary_switches involuntary_switches minor_faults major_faults agent_seconds trace_id pid "
                       "rank",
    "io_statistics": "timestamp read_bytes write_bytes rchar wchar syscr syscw read_rate write_rate rchar_rate "
                     "wchar_rate trace_id pid rank",
    "network_statistics": "timestamp interface rx_bytes tx_bytes rx_packets tx_packets rx_errors tx_errors rx_rate "
                          "tx_rate trace_id pid rank",
    "process": "timestamp trace_id pid ppid uid host boot_id rank local_rank world_size exe command cwd python agent "
               "how start",
    "modules_loaded": "timestamp unloaded trace_id pid path build_id start end bias symbols",
    "config": "timestamp trace_id key value",
    "loss": "trace_id reason count",
    "memory": "timestamp step rss_mb vms_mb gpu_mb gpu_reserved_mb rss vms trace_id pid rank",
    "gpu_metrics": "timestamp rank device gpu_util memory_used_mb memory_total_mb power_w temperature sm_clock_mhz "
                   "process_memory_mb memory_util name uuid trace_id pid",
    "comm_metrics": "timestamp rank group seq op bytes dtype enter exit duration latency_ms src_rank dst_rank host_ms "
                    "complete completion waited backend group_size trace_id pid tid",
    "collectives": "group seq op arrived size complete first_enter last_enter exit skew_ms last_rank shortest_rank "
                   "shortest_ms longest_ms bytes dtype missing",
    "stragglers": "rank collectives came_last share was_shortest imposed_seconds waited_seconds",
    "triggers": "timestamp rank kind detail step tid thread stacks text trigger_id trace_id pid",
    "trigger_stacks": "trigger_id kind rank tid thread is_cause depth func file lineno frame_type state gil stack_id "
                      "trace_id pid",
    "notes": "timestamp trace_id level part text",
}


@pytest.fixture
def tool(build, run):
    """tool(*args, check=...) runs probing-convert."""
    def do(*args, **kw):
        return run([build.tool("probing-convert"), *args], **kw)
    return do


def one_line(text):
    """Checks that the message is one line that names the tool, and returns it."""
    assert text.count("\n") == 1 and text.startswith("probing-convert: "), text
    return text


# ---- names and values ---------------------------------------------------------------------------


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_views(view, convert, sql):
    db = convert(GOLDEN / "basic.zst")
    columns = [row[1] for row in sql(db, "PRAGMA table_info('%s')" % view)]
    wanted = VIEWS[view].split()
    assert columns[:len(wanted)] == wanted
    # each column can be read: an error in a view's definition shows only then
    sql(db, "SELECT * FROM %s" % view)
    assert sql(db, "SELECT type FROM sqlite_schema WHERE name = ?", view) == [("view",)]


@pytest.mark.parametrize("table, view", [("training_log", "training_logs_made"), ("collective", "collectives_made"),
                                         ("straggler", "stragglers_made"), ("hang", "hangs_made"), ("hang", "hangs_late_made")])
def test_what_is_stored_has_the_columns_of_its_view(table, view, convert, sql):
    db = convert(GOLDEN / "basic.zst")
    stored, made = ([row[1] for row in sql(db, "PRAGMA table_info('%s')" % name)] for name in (table, view))
    assert stored == made


def test_stock_sqlite3_reads_it(convert, run):
    if not shutil.which("sqlite3"):
        pytest.skip("no sqlite3 program")
    db = convert(GOLDEN / "basic.zst")
    done = run(["sqlite3", db, "PRAGMA integrity_check; SELECT end, host, rank, complete FROM trace;"])
    lines = done.stdout.splitlines()
    assert lines[0] == "ok" and lines[1].endswith("|node17|3|1")


def test_golden_values(convert, sql):
    db = convert(GOLDEN / "basic.zst")
    row = sql(db, "SELECT host, pid, ppid, uid, rank, local_rank, world_size, command, python, complete, end_reason, "
                  "lost, period FROM trace")[0]
    assert row == ("node17", 4711, 1, 1000, 3, None, 8, "python3 train.py --lr 0.1", "3.11.2", 1, "exit", 0, 0.1)
    # the trace's anchor: monotonic 1000 s was this instant
    assert abs(sql(db, "SELECT timestamp FROM config")[0][0] - 1763713000) < 1e-6
    # all texts are UTF-8, whatever bytes the trace has: otherwise sqlite3 would raise
    for view in VIEWS:
        sql(db, "SELECT * FROM %s" % view)


@pytest.mark.parametrize("name", ["killed", "epochs"])
def test_golden_others(name, convert, sql):
    db = convert(GOLDEN / (name + ".zst"))
    samples = (GOLDEN / (name + ".txt")).read_text().count("\n  sample ")
    assert sql(db, "SELECT count(*) FROM samples") == [(samples,)]
    assert sql(db, "SELECT count(*) FROM samples WHERE func IS NULL AND stack_id IS NOT NULL") == [(0,)]
    lost = dict(sql(db, "SELECT reason, count FROM loss"))
    if name == "killed":
        assert sql(db, "SELECT end_reason, complete FROM trace") == [("killed", 1)]
        assert lost and sum(lost.values()) == sql(db, "SELECT lost FROM trace")[0][0]
        assert sql(db, "SELECT DISTINCT unit FROM loss") == [("records",)]
    else:
        assert sql(db, "SELECT end_reason, complete FROM trace") == [(None, 0)]


def test_backtrace_is_found_by_index(convert, sql):
    """A filter must not read all samples: SQLite's query plan must use the index."""
    db = convert(GOLDEN / "basic.zst")
    for where in ("timestamp BETWEEN 1 AND 2", "sample_id = 5", "trace_id = 1"):
        for view in ("backtrace", "samples"):
            plan = "\n".join(r[3] for r in sql(db, "EXPLAIN QUERY PLAN SELECT * FROM %s WHERE %s" % (view, where)))
            assert "SEARCH s USING" in plan and "SCAN s" not in plan, plan


def test_extension(build, run):
    """The virtual table works in the stock sqlite3."""
    if not shutil.which("sqlite3"):
        pytest.skip("no sqlite3 program")
    script = (".load %s\nCREATE VIRTUAL TABLE temp.s USING probing_trace('%s', 'process');\n"
              "SELECT host, rank FROM s;\n" % (build.lib / "probing", GOLDEN / "basic.zst"))
    done = run(["sqlite3", "-bail", ":memory:"], input=script)
    assert done.stdout == "node17|3\n"


# ---- a real recording ------------------------------------------------------------------------


def test_recording(record, convert, sql):
    done = record("""
import time, threading
def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))
def snooze():
    time.sleep(1)
t = threading.Thread(target=snooze)
t.start()
spin(1)
t.join()
""")
    db = convert(done.trace)
    assert sql(db, "SELECT complete, clock, end_reason FROM trace") == [(1, "anchors", "exit")]
    spin = sql(db, "SELECT self, total, total_share FROM hot_functions WHERE func = 'spin'")
    assert spin and spin[0][1] > 20
    # the native frames under spin() are those of its callees: sum() and what it calls
    assert sql(db, "SELECT count(*) FROM backtrace WHERE func = 'snooze' AND frame_type = 'Python'")[0][0] > 0
    rows = sql(db, "SELECT func, frame_type FROM backtrace WHERE sample_id = (SELECT max(sample_id) FROM backtrace "
                   "WHERE func = 'snooze') ORDER BY depth")
    funcs = [r[0] for r in rows]
    assert funcs.index("snooze") < funcs.index("Thread.run" if "Thread.run" in funcs else "run")
    assert not any(f.startswith("_PyEval_EvalFrameDefault") for f, _ in rows)
    assert sql(db, "SELECT count(*) FROM threads WHERE samples > 0")[0][0] == 2
    now = sql(db, "SELECT strftime('%s', 'now') - max(timestamp) FROM samples")[0][0]
    assert -5 < now < 600


def test_killed_process_is_finished_first(build, spawn, tool, sql, tmp_path):
    """A conversion completes the trace of a process that was killed from its live file."""
    trace = tmp_path / "t.zst"
    env = dict(os.environ, LD_PRELOAD=str(build.lib / "libprobing-preload.so"), PROBING_TRACE=str(trace),
               PROBING_SAMPLE_RATE="0.01")
    process = spawn(["/usr/bin/python3", "-c", "print('ready', flush=True)\nwhile True: sum(range(99))"], ready="ready", env=env)
    alive = 0
    while not alive: # still being recorded: whatever it has so far is converted
        time.sleep(0.05)
        done = tool("-f", trace, tmp_path / "alive.db", check=None) # it may hold nothing yet
        if (tmp_path / "alive.db").exists():
            assert "without an end" in done.stderr
            assert sql(tmp_path / "alive.db", "SELECT end_reason, complete FROM trace") == [(None, 0)]
            alive = sql(tmp_path / "alive.db", "SELECT count(*) FROM samples")[0][0]
    process.send_signal(signal.SIGKILL)
    process.wait(240)
    tool(trace, tmp_path / "dead.db")
    assert sql(tmp_path / "dead.db", "SELECT end_reason, complete FROM trace") == [("killed", 1)]
    assert sql(tmp_path / "dead.db", "SELECT count(*) FROM samples")[0][0] >= alive
    assert not list((tmp_path / "run").glob("*.live"))


# ---- inputs --------------------------------------------------------------------------------------


def test_stdin_and_pipe(build, tool, run, sql, tmp_path):
    with open(GOLDEN / "basic.zst", "rb") as f:
        subprocess.run([build.tool("probing-convert"), "-q", "-", str(tmp_path / "a.db")], stdin=f, check=True, timeout=240)
    cat = "cat %s | %s -q - %s" % (GOLDEN / "basic.zst", build.tool("probing-convert"), tmp_path / "b.db")
    run(["sh", "-c", cat])
    for name in ("a.db", "b.db"):
        assert sql(tmp_path / name, "SELECT file, host, complete FROM trace") == [("-", "node17", 1)]


def test_directory_and_siblings(tool, sql, tmp_path):
    run_dir = tmp_path / "job"
    (run_dir / "t.zst.d").mkdir(parents=True)
    shutil.copy(GOLDEN / "basic.zst", run_dir / "t.zst")
    shutil.copy(GOLDEN / "killed.zst", run_dir / "t.zst.d" / "node-12.zst")
    (run_dir / "notes.txt").write_text("not a trace")
    os.symlink("t.zst", str(run_dir / "same.zst"))

    def files(db):
        return [pathlib.Path(r[0]).name for r in sql(db, "SELECT file FROM trace ORDER BY id")]

    tool(run_dir / "t.zst", tmp_path / "both.db")
    assert files(tmp_path / "both.db") == ["t.zst", "node-12.zst"]
    tool("--alone", run_dir / "t.zst", tmp_path / "only.db")
    assert files(tmp_path / "only.db") == ["t.zst"]
    tool(run_dir, run_dir / "t.zst.d", run_dir / "t.zst", tmp_path / "all.db")
    assert files(tmp_path / "all.db") == ["same.zst", "node-12.zst"]  # t.zst is the same file under another name, and is taken once
    # ids of different traces do not overlap
    rows = sql(tmp_path / "all.db", "SELECT trace_id, sample_id >> 40, count(*), count(DISTINCT sample_id) "
                                    "FROM samples GROUP BY 1, 2")
    assert len(rows) == 2 and all(a == b and c == d for a, b, c, d in rows)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "without traces" in tool(empty, tmp_path / "no.db", check=3).stderr


# ---- bad inputs ----------------------------------------------------------------------------------


def test_bad_files(tool, tmp_path):
    basic = (GOLDEN / "basic.zst").read_bytes()
    bad = {"empty": (b"", "is empty"), "text": (b"hello, this is no trace\n" * 10, "not a trace"),
           "png": (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a trace"), "short": (basic[:100], "cut off within its first"),
           "zeros": (bytes(5000), "not a trace")}
    if shutil.which("zstd"):
        packed = subprocess.run(["zstd", "-c"], input=b"something else" * 100, stdout=subprocess.PIPE, check=True).stdout
        bad["zstd"] = (packed, "not a trace")
    for name, (content, message) in bad.items():
        path = tmp_path / name
        path.write_bytes(content)
        done = tool(path, tmp_path / "x.db", check=3)
        assert message in done.stderr and str(path) in done.stderr, done.stderr
        assert done.stderr.count("\n") == 2  # one line says what is wrong with the file, the other that nothing was written
        assert not (tmp_path / "x.db").exists()
        # beside a good input: that one is converted
        done = tool("-q", path, GOLDEN / "basic.zst", tmp_path / (name + ".db"), check=1)
        assert message in one_line(done.stderr)
    # The user did not name this file: its process was killed as it began, and its parent has counted it.
    shutil.copy(str(GOLDEN / "basic.zst"), str(tmp_path / "t.zst"))
    (tmp_path / "t.zst.d").mkdir()
    (tmp_path / "t.zst.d" / "host-1.zst").write_bytes(b"")
    assert "had only begun" in one_line(tool("-q", tmp_path / "t.zst", tmp_path / "t.db").stderr)
    missing = tool(tmp_path / "missing.zst", tmp_path / "x.db", check=3)
    assert "No such file" in missing.stderr


def test_newer_version(tool, run, tmp_path):
    if not shutil.which("zstd"):
        pytest.skip("no zstd program")
    content = run(["zstd", "-dc", GOLDEN / "basic.zst"], binary=True).stdout
    end = content.index(b"\x89PRB\r\n\x1a\n", 8)  # the first block, changed to say version 2
    (tmp_path / "block").write_bytes(content[:8] + b"\x02\x00" + content[10:end])
    run(["zstd", "-q", tmp_path / "block", "-o", tmp_path / "new.zst"])
    done = tool(tmp_path / "new.zst", tmp_path / "x.db", check=3)
    assert "newer version" in done.stderr.splitlines()[0]


def test_truncated_and_damaged(tool, sql, tmp_path):
    basic = (GOLDEN / "basic.zst").read_bytes()
    cut = tmp_path / "cut.zst"
    cut.write_bytes(basic[:len(basic) * 3 // 4])
    done = tool("-q", cut, tmp_path / "cut.db", check=1)
    assert "truncated" in one_line(done.stderr)
    assert sql(tmp_path / "cut.db", "SELECT complete, records > 0 FROM trace") == [(0, 1)]
    assert dict(sql(tmp_path / "cut.db", "SELECT reason, count FROM loss"))["cut_off_bytes"] > 0

    done = tool("-q", GOLDEN / "damaged.zst", tmp_path / "damaged.db", check=1)
    assert "damaged" in one_line(done.stderr) and "1 damaged block" in done.stderr
    loss = dict(sql(tmp_path / "damaged.db", "SELECT reason, count FROM loss"))
    assert loss["damaged_blocks"] == 1 and loss["cut_off_bytes"] == 100
    units = dict(sql(tmp_path / "damaged.db", "SELECT reason, unit FROM loss"))
    assert (units["damaged_blocks"], units["cut_off_bytes"]) == ("blocks", "bytes")
    assert sql(tmp_path / "damaged.db", "SELECT lost FROM trace") == sql(tmp_path / "damaged.db", "SELECT sum(count) FROM loss WHERE unit = 'records'")
    assert sql(tmp_path / "damaged.db", "SELECT host FROM trace") == [("node17",)]


def test_later_writers(tool, sql, tmp_path):
    done = tool("-q", GOLDEN / "future.zst", tmp_path / "f.db")
    assert done.stderr == ""
    loss = dict(sql(tmp_path / "f.db", "SELECT reason, count FROM loss"))
    assert loss["unknown_blocks"] == 2
    assert sql(tmp_path / "f.db", "SELECT end_reason FROM trace") == [("exit",)]


# ---- the output ----------------------------------------------------------------------------------


def test_a_database_names_its_schema(tool, tmp_path):
    db = tmp_path / "x.db"
    db.touch()  # an empty file may be replaced
    tool("-f", GOLDEN / "basic.zst", db)
    with sqlite3.connect(str(db)) as c:
        assert c.execute("PRAGMA application_id").fetchone() == (0x50524244,)
        assert c.execute("PRAGMA user_version").fetchone()[0] >= 1


def test_tables_without_rows_take_little_of_a_small_database(tool, tmp_path):
    tool(GOLDEN / "basic.zst", tmp_path / "small.db")  # 92 records
    tool("--append", GOLDEN / "basic.zst", tmp_path / "grows.db")
    size = {n: (tmp_path / n).stat().st_size for n in ("small.db", "grows.db")}
    assert size["small.db"] < 192 << 10
    assert size["small.db"] < size["grows.db"]  # a database made by --append may become large


def test_json_has_no_infinity(tool, tmp_path):
    db = tmp_path / "x.db"
    tool(GOLDEN / "basic.zst", db)
    values = {"up": float("inf"), "down": float("-inf"), "nan": "nan", "text": "a\"\u00e9", "half": 0.5, "int": 7, "none": None}
    with sqlite3.connect(str(db)) as c:
        first, = c.execute("SELECT first_id FROM trace_file").fetchone()
        c.execute("INSERT INTO event(id, ts, step, name) VALUES(?, 1, 1, 'e')", (first + 1,))
        for i, (key, value) in enumerate(values.items()):
            c.execute("INSERT INTO event_value VALUES(?, ?, ?, ?)", (first + i + 1, first + 1, key, value))
            c.execute("INSERT INTO variable(id, ts, step, func, name, value) VALUES(?, 1, 1, 'f', ?, ?)", (first + i + 1, key, value))
        for view in ("events", "training_logs_made"):
            (valid, data), = c.execute("SELECT json_valid(data), data FROM " + view)
            assert valid == 1 and {k.partition("@")[0]: v for k, v in json.loads(data).items()} == values
            assert c.execute("SELECT sum(json_extract(data, '$.half')) FROM " + view).fetchone() == (0.5,)


# ---- the command line ----------------------------------------------------------------------------


def test_command_line(tool, tmp_path):
    for args in ([], ["only-one"], ["--nonsense", "a", "b"]):
        one_line(tool(*args, check=2).stderr)
    assert tool("--help").stdout.startswith("usage: probing-convert")
    done = tool("--json", "-q", GOLDEN / "basic.zst", tmp_path / "x.db")
    summary = json.loads(done.stdout)
    assert done.stderr == "" and summary["traces"] == 1 and summary["damaged"] == 0
    done = tool(GOLDEN / "basic.zst", tmp_path / "y.db")
    assert done.stdout == "" and "1 trace" in one_line(done.stderr)


@pytest.mark.parametrize("ignored", [True, False])
def test_a_hangup(build, tmp_path, ignored):
    """Under nohup a conversion goes on when the terminal is closed; otherwise it ends and leaves no files."""
    trace = pathlib.Path(__file__).resolve().parents[1] / "fleet" / "training.zst" # a trace with samples, because signals are looked for between blocks of samples
    out = tmp_path / "h.db"
    process = subprocess.Popen([build.tool("probing-convert"), "-q", "-", out], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL))
    try:
        data = trace.read_bytes()
        process.stdin.write(data[:100])
        process.stdin.flush()
        end = time.monotonic() + 600
        while not caught(process.pid) >> (signal.SIGINT - 1) & 1: # until its handlers are set
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGHUP)
        try:
            process.stdin.write(data[100:])
            process.stdin.close()
        except BrokenPipeError: # it ended before it was given the rest
            assert not ignored
        assert process.wait(240) == (0 if ignored else 3)
        assert out.exists() == ignored
    finally:
        process.kill()
        process.wait()


def caught(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(next(line.split()[1] for line in f if line.startswith("SigCgt")), 16)


def test_files_that_cannot_be_read_take_no_others_with_them(build, run, sql, tmp_path):
    """Whatever files lie between the traces, all traces are converted, with any number of threads."""
    many = tmp_path / "many"
    many.mkdir()
    trace = pathlib.Path(__file__).resolve().parents[1] / "fleet" / "training.zst"
    for i in range(60):
        (many / ("%02d.zst" % i)).write_bytes(b"" if i % 3 else b"not a trace")
    shutil.copy(trace, many / "31a.zst")
    shutil.copy(sorted(GOLDEN.glob("*.zst"))[0], many / "59a.zst")
    wanted = None
    for threads in (1, 2, 3, 8):
        run([build.tool("probing-convert"), "-q", "-f", "--threads", str(threads), many, tmp_path / "out.db"], check=1)
        found = sql(tmp_path / "out.db", "SELECT file, records FROM trace ORDER BY 1"), sql(tmp_path / "out.db", "SELECT count(*), sum(count) FROM sample")
        wanted = wanted or found
        assert len(found[0]) == 2 and found == wanted


def test_a_read_that_fails_is_said_in_the_system_s_words(tool, tmp_path):
    """Here a file of sysfs, whose size is a page and which cannot be read; it stands for a stale NFS handle or a damaged file system."""
    path = "/sys/class/net/lo/speed"
    try:
        with open(path, "rb") as f:
            f.read()
        pytest.skip("%s can be read" % path)
    except OSError as error:
        why = error.strerror
    assert "%s: %s" % (path, why) in tool(path, tmp_path / "out.db", check=3).stderr


def test_names_that_look_like_uris(build, run, sql, tmp_path, monkeypatch):
    """A file's name is a name: SQLite may be built to take one that begins with file: for more."""
    monkeypatch.chdir(tmp_path)
    name = "file:x?mode=ro#y.db"
    run([build.tool("probing-convert"), "-q", GOLDEN / "basic.zst", name])
    run([build.tool("probing-convert"), "-q", "--append", GOLDEN / "basic.zst", name])
    assert sorted(os.listdir(".")) == [name, "run"]
    for table in ("samples", "python.samples"):
        assert "44" in run([build.tool("probing"), "query", name, "SELECT count(*) FROM " + table]).stdout
    code = "import sys; sys.path.insert(0, sys.argv[1]); import probing; print(list(probing.open(sys.argv[2]).sql('SELECT count(*) FROM samples').rows()))"
    assert "44" in run(["/usr/bin/python3", "-c", code, build.share / "python", name]).stdout
    run([build.tool("probing-convert"), "-q", "--clocks", name, GOLDEN / "basic.zst", "second.db"])
