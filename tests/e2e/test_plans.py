# SPDX-License-Identifier: Apache-2.0
"""Checks how the views are evaluated, not how long that takes: on a database of thousands of ranks, a plan that sorts or indexes data that it
should not touch turns milliseconds into minutes. EXPLAIN QUERY PLAN shows which plan SQLite uses."""
import json
import re
import sqlite3
import subprocess

import pytest

from conftest import REPO

README = re.compile(r"^    (?:sqlite3 out\.db \")?(SELECT .*?)(?:;|\"\n|\n\n)", re.S | re.M)
BIG = ("sample", "torch_call", "torch_step", "comm", "cpu", "io", "network", "memory_sample", "memory_step", "event", "event_value",
       "span", "variable", "gpu", "module", "collective", "training_log")
SMALL = r"SEARCH (e .*\(kind|n .*\(trace|p .*\(trace|g .*\(trace_id)=\?\)" # indexes of trigger_event and triggers, which have few rows, and of the few of each trace
# that view roles is made of (newer releases of SQLite make more of these)
FEW = r"\b(comm_waits|sample_burst)\b" # indexes that contain only few rows
# Tables with few rows for each trace: metrics of each second, with differences between neighbours; and tables about traces alone.
WINDOWS = {"cpu_utilization", "io_statistics", "network_statistics"}


def sql(path, query, *params):
    with sqlite3.connect(str(path)) as c:
        return c.execute(query, params).fetchall()


@pytest.fixture(scope="module")
def db(build, tmp_path_factory):
    """A small fleet: every table that a training fills has rows."""
    d = tmp_path_factory.mktemp("plans")
    subprocess.run([str(build.root / "tests/fleet/probing-fleet"), "--out", str(d / "f"), "--ranks", "4", "--nodes", "2", "--minutes", "0.2",
                    "--hz", "50"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=240)
    subprocess.run([str(build.root / "bin/probing-convert"), "-q", *map(str, sorted((d / "f").glob("node*"))), str(d / "x.db")],
                   check=True, timeout=240)
    return d / "x.db"


def plan(db, query):
    """Returns the lines of the plan, without what is evaluated once for each row (correlated subqueries) and reads only that row's few
    rows."""
    within, lines = set(), []
    for number, parent, _, line in sql(db, "EXPLAIN QUERY PLAN " + query):
        if parent in within or line.startswith("CORRELATED"):
            within.add(number)
        else:
            lines.append(line)
    return lines


def views(db):
    names = [n for n, in sql(db, "SELECT name FROM sqlite_schema WHERE type = 'view' AND name NOT LIKE '%\\_made' ESCAPE '\\' ORDER BY 1")]
    assert {"backtrace", "samples", "hot_functions", "collectives", "torch_trace", "torch_modules"} <= set(names)
    return names


def columns(db, view):
    return [row[1] for row in sql(db, "PRAGMA table_info(%s)" % view)]


def scans(lines):
    """Returns the big tables that are read from end to end. (Tables that are searched for each row of another one have SEARCH lines.)"""
    return [t for line in lines for t in BIG if re.match(r"SCAN %s\b" % t, line) or re.match(r"SCAN \w+ USING .*\b%s_" % t, line)]


def test_no_view_makes_an_index_of_its_own(db):
    for view in views(db):
        for query in ("SELECT * FROM %s LIMIT 10", "SELECT count(*) FROM %s"):
            bad = [line for line in plan(db, query % view) if "AUTOMATIC" in line and not re.search(SMALL, line)]
            assert not bad, (view, bad)


def test_a_hang_is_found_without_comparing_each_rank_with_each(db):
    """The ranks in a call are found by process around the time of the call, not through an index of all calls that is made for the question, nor
    among the calls of other jobs of that time; a rank is found by its number; and a process's parent is found without a scan of all processes for each."""
    rows = sql(db, "EXPLAIN QUERY PLAN SELECT * FROM hangs_made")
    lines, within = [line for _, _, _, line in rows], {}
    calls = [n for n, line in enumerate(lines) if "INDEX comm_trace (<expr>=? AND ts>? AND ts<?)" in line]
    assert len(calls) == 4 and all(lines[n - 2] == "SEARCH c USING INTEGER PRIMARY KEY (rowid=?)" for n in calls), lines
    assert not [line for line in lines if "INDEX comm_ts (ts" in line], lines
    assert [line for line in lines if re.match(r"SEARCH c USING AUTOMATIC .*rank=\?", line)], lines
    for number, parent, _, line in rows:
        within[number] = line if line.startswith("MATERIALIZE") else within.get(parent)
    of_a_member = [line for number, _, _, line in rows if within[number] == "MATERIALIZE member"]
    assert len(of_a_member) > 2 and "SCAN p" not in of_a_member, of_a_member


def test_the_question_why_it_hangs_grows_with_the_job_and_not_faster(build, run, tmp_path):
    """Where no call is incomplete, where each rank stands is looked at: what that takes is proportional to the number of ranks."""
    run([build.tool("probing"), "ask", "hang", "--sql"], stdout=open(str(tmp_path / "q.sql"), "w"))
    took = []
    for ranks in (20, 80):
        out = tmp_path / str(ranks)
        run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", out, "--nodes", "2", "--minutes", "0.1", "--hz", "20", "--layers", "1",
             "--hang", "3:2", "--ranks", str(ranks)])
        run([build.tool("probing-convert"), "-q", out, tmp_path / "out.db", "-f"])
        steps = []
        with sqlite3.connect(str(tmp_path / "out.db")) as c:
            c.enable_load_extension(True)
            c.load_extension(str(build.lib / "probing"))
            c.executescript("DELETE FROM comm WHERE flags & 1; DELETE FROM hang;"
                            "UPDATE frame SET name = 'init_process_group', file = 'distributed_c10d.py' WHERE name = '<module>'")
            c.set_progress_handler(lambda: steps.append(1), 1000)
            c.executescript((tmp_path / "q.sql").read_text())
            assert c.execute("SELECT count(*) FROM joining").fetchone() == (ranks,)
        took.append(len(steps))
    assert took[1] < 6 * took[0], took


def test_the_question_why_it_hangs_asks_of_one_that_died(build, run, tmp_path):
    """What ended the rank that is named is looked up for that rank, and what its collective raised, in those that failed: not in each rank, for each."""
    run([build.tool("probing"), "ask", "hang", "--sql"], stdout=open(str(tmp_path / "q.sql"), "w"))
    took = []
    for ranks in (50, 400):
        out = tmp_path / str(ranks)
        run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", out, "--nodes", "2", "--minutes", "0.1", "--layers", "1", "--kill", "3:2", "--launcher", "1", "--ranks", str(ranks)])
        run([build.tool("probing-convert"), "-q", out, tmp_path / "out.db", "-f"])
        steps = []
        with sqlite3.connect(str(tmp_path / "out.db")) as c:
            c.enable_load_extension(True)
            c.load_extension(str(build.lib / "probing"))
            c.set_progress_handler(lambda: steps.append(1), 100)
            c.executescript((tmp_path / "q.sql").read_text())
            assert c.execute("SELECT count(*), how FROM ended").fetchone() == (1, "killed by signal 9 (SIGKILL)")
        took.append(len(steps))
    assert took[1] < 12 * took[0], took


def test_the_question_why_it_hangs_reads_little_of_who_is_at_work(build, run, tmp_path):
    """Of a job that was killed at work, each main thread's last samples are enough to know that it did not stand still, however many there are."""
    run([build.tool("probing"), "ask", "hang", "--sql"], stdout=open(str(tmp_path / "q.sql"), "w"))
    took = []
    for hz in (20, 80):
        out = tmp_path / str(hz)
        run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", out, "--nodes", "2", "--minutes", "0.1", "--hz", hz, "--layers", "1", "--ranks", "20"])
        run([build.tool("probing-convert"), "-q", out, tmp_path / "out.db", "-f"])
        steps = []
        with sqlite3.connect(str(tmp_path / "out.db")) as c:
            c.enable_load_extension(True)
            c.load_extension(str(build.lib / "probing"))
            c.execute("UPDATE trace_file SET end_reason = 'killed'")
            c.set_progress_handler(lambda: steps.append(1), 100)
            c.executescript((tmp_path / "q.sql").read_text())
            assert c.execute("SELECT count(*) FROM alive").fetchone() == (20,)
        took.append(len(steps))
    assert took[1] < 1.5 * took[0], took


def test_no_view_takes_long_to_plan(db):
    """SQLite expands a name in a WITH again at each place where it is used, together with everything that it is made of, so these
    expansions multiply: for hangs_made it once looked up 346,192 columns, which took two seconds in each conversion of a job that was
    killed. SQLite's authorizer counts the columns here."""
    for view in [n for n, in sql(db, "SELECT name FROM sqlite_schema WHERE type = 'view'")]:
        looked_up = []
        with sqlite3.connect(str(db)) as c:
            c.set_authorizer(lambda action, *of: looked_up.append(action) or sqlite3.SQLITE_OK)
            c.execute("EXPLAIN SELECT * FROM " + view).fetchone()
        count = looked_up.count(sqlite3.SQLITE_READ)
        assert count < 135000, (view, count)


def test_the_first_rows_need_no_others(db):
    """Big tables are not sorted before the first row is returned."""
    for view in set(views(db)) - WINDOWS:
        lines = plan(db, "SELECT * FROM %s LIMIT 10" % view)
        sorts = [line for line in lines if "TEMP B-TREE" in line]
        big = [line for line in lines if re.match(r"(SCAN|SEARCH) [a-z]\b", line) and not re.search(FEW, line)]
        if sorts and any(table_of(db, view, line) in BIG for line in big):
            pytest.fail("%s: %s" % (view, lines))


def table_of(db, view, line):
    """Returns the table to which a plan's line refers by an alias, found in the view's text."""
    text, = [t for t, in sql(db, "SELECT sql FROM sqlite_schema WHERE name = ?", view)]
    alias = line.split()[1]
    found = re.search(r"\b(\w+) (?:AS )?%s\b" % re.escape(alias), text)
    return found.group(1) if found else alias


def test_a_rank_and_a_time_search_the_ranks_rows_alone(db):
    """A condition on rank restricts the rows to those of that rank's trace: by their range of ids, before anything is joined to them."""
    for view in views(db):
        names = columns(db, view)
        if "rank" not in names or "timestamp" not in names or view in WINDOWS:
            continue
        lines = plan(db, "SELECT * FROM %s WHERE rank = 1 AND timestamp BETWEEN 1 AND 2" % view)
        assert not [line for line in lines if "AUTOMATIC" in line and not re.search(SMALL, line)], (view, lines)
        for line in lines:
            if line.startswith("SCAN "):
                assert table_of(db, view, line) not in set(BIG) - {"training_log", "collective"}, (view, lines)


def test_sums_over_calls_look_nothing_up_that_they_do_not_ask_for(db):
    """Four of the six tables that torch_trace is made of are needed only for columns that few questions name."""
    for query in ("SELECT count(*), sum(duration) FROM torch_trace", "SELECT module, stage, sum(duration) FROM torch_trace GROUP BY 1, 2"):
        lines = [line for _, _, _, line in sql(db, "EXPLAIN QUERY PLAN " + query)]
        assert len([line for line in lines if re.match("(SCAN|SEARCH) ", line)]) <= 4, lines
    asked, = sql(db, "SELECT count(*), count(parent), count(cuda_duration), count(allocated), count(device) FROM torch_trace")
    parents, = sql(db, "SELECT count(*), count(parent) FROM torch_call WHERE stage < 2")
    assert asked == parents + (0, 0, 0) and parents[1] > 0


def test_a_frame_is_one_look_up(db):
    """Everything about a frame is in its row: views of samples, and of the frames of each, look up its function nowhere else."""
    for view in ("backtrace", "trigger_stacks", "stack_text"):
        lines = [line for _, _, _, line in sql(db, "EXPLAIN QUERY PLAN SELECT * FROM " + view)]
        assert [line for line in lines if line.startswith("SEARCH r ")] and not [line for line in lines if line.startswith("SEARCH f ")], (view, lines)
    assert sql(db, """SELECT count(*) FROM frame r JOIN function f ON f.id = r.function
        WHERE r.name <> f.name OR r.type <> f.type OR r.module IS NOT f.module OR f.type = 0 AND r.file IS NOT f.file""") == [(0,)]
    assert {kind for kind, in sql(db, "SELECT DISTINCT frame_type FROM backtrace")} == {"Python", "Native"}


def test_a_samples_innermost_frame_stands_with_its_stack(db):
    """When it was looked up separately, that took a quarter of the time of a sum over all samples."""
    lines = [line for _, _, _, line in sql(db, "EXPLAIN QUERY PLAN SELECT * FROM samples")]
    assert [line for line in lines if line.startswith("SEARCH k ")] and not [line for line in lines if line.startswith("SEARCH r ")], lines
    assert sql(db, """SELECT count(*) FROM stack k LEFT JOIN frame r ON r.id = k.frame
        WHERE k.name IS NOT r.name OR k.type IS NOT r.type OR k.line IS NOT r.line OR k.file IS NOT coalesce(r.file, r.module)""") == [(0,)]
    assert {kind for kind, in sql(db, "SELECT DISTINCT frame_type FROM samples")} >= {"Python", "Native"}
    of_frames, = sql(db, "SELECT count(*), count(file), count(lineno) FROM backtrace WHERE depth = 0")
    assert of_frames == sql(db, "SELECT count(func), count(file), count(lineno) FROM samples")[0]


def test_what_took_how_long_is_named_by_one_look_up(db):
    """Names of operations are stored. When they were composed for every row, that took a fifth of the time of a sum over all rows."""
    lines = [line for _, _, _, line in sql(db, "EXPLAIN QUERY PLAN SELECT operation_name, sum(duration_ms) FROM profiling_data GROUP BY 1")]
    assert [line for line in lines if line.startswith("SEARCH m ")] and not [line for line in lines if "LEFT-JOIN" in line], lines
    named = {name: n for name, n in sql(db, "SELECT operation_name, count(*) FROM profiling_data GROUP BY 1")}
    said = {name: n for name, n in sql(db, """SELECT CASE c.stage WHEN 0 THEN m.name || ' forward' WHEN 1 THEN m.name || ' backward'
        WHEN 2 THEN 'backward pass' WHEN 3 THEN 'optimizer step' ELSE 'data loading' END, count(*) FROM torch_call c
        LEFT JOIN torch_module m ON m.id = (c.id >> 40 << 40) + c.module WHERE c.duration IS NOT NULL GROUP BY 1
        UNION ALL SELECT op, count(*) FROM comm WHERE NOT flags & 1 GROUP BY 1
        UNION ALL SELECT s.name, count(*) FROM span s JOIN span_end e ON e.id = s.id GROUP BY 1""")}
    assert named == said and {"backward pass", "optimizer step", "data loading"} <= set(named)
    # One row for each stage of a module, of which only the name is read.
    code = sql(db, "EXPLAIN SELECT operation_name, sum(duration_ms) FROM profiling_data GROUP BY 1")
    root, = sql(db, "SELECT rootpage FROM sqlite_schema WHERE name = 'torch_module'")[0]
    cursor, = {p1 for _, op, p1, p2, *_ in code if op == "OpenRead" and p2 == root}
    assert [p2 for _, op, p1, p2, *_ in code if op == "Column" and p1 == cursor] == [1]


def test_modules_lie_in_the_order_of_their_calls(db):
    """The row after the last one is found at once, any other by a search: forward calls go from the first module to the last, backward
    calls go back."""
    for trace, in sql(db, "SELECT id FROM trace_file ORDER BY 1 LIMIT 3"):
        names = [name for name, in sql(db, "SELECT operation FROM torch_module WHERE id >> 40 = %d AND type IS NOT NULL ORDER BY id" % trace)]
        forward = [name[:-8] for name in names if name.endswith(" forward")]
        assert len(forward) > 3 and names == [name + " forward" for name in forward] + [name + " backward" for name in reversed(forward)]


def test_sums_over_collectives_and_steps_look_nothing_up_that_they_do_not_ask_for(db):
    """The ranks of a group, and the GPU's part of a step, are needed only for columns that few questions name: joining them took two thirds
    of the time of a sum."""
    for view, most in (("comm_metrics", 3), ("steps", 2)):
        lines = plan(db, "SELECT count(*), sum(duration) FROM %s" % view)
        assert len([line for line in lines if re.match("(SCAN|SEARCH) ", line)]) <= most, lines
    # They are what the joins give.
    joined = """FROM comm c JOIN trace_file t ON t.id = c.id >> 40 LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg
        LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank LEFT JOIN group_rank s ON s.list = g.list AND s.idx = c.src
        LEFT JOIN group_rank d ON d.list = g.list AND d.idx = c.dst"""
    said = """SELECT coalesce(t.rank, o.rank, g.rank), coalesce(s.rank, c.src, CASE WHEN c.op = 'send' THEN g.rank END),
        coalesce(d.rank, c.dst, CASE WHEN c.op = 'recv' THEN g.rank END), c.op %s ORDER BY c.id""" % joined
    with sqlite3.connect(str(db)) as c:  # add messages: from processes that do not know their rank, and to ranks that nobody knows
        c.execute("UPDATE comm SET op = 'send', dst = seq % 5 WHERE seq % 3 = 0")
        c.execute("UPDATE comm SET op = 'recv', src = 1 WHERE seq % 3 = 1")
        for what in ("SELECT 1", "UPDATE trace_file SET rank = NULL WHERE id = 2", "UPDATE group_rank SET rank = rank + 7", "DELETE FROM group_rank WHERE idx = 1"):
            c.execute(what)
            rows = c.execute("SELECT rank, src_rank, dst_rank, op FROM comm_metrics").fetchall()
            assert rows == c.execute(said).fetchall() and {op for *_, op in rows} >= {"send", "recv", "all_reduce"}, what
        c.rollback()


def test_a_step_looks_at_its_own_ranks_collectives(db):
    """It does not read those of all ranks at that time, which would be quadratic in the number of ranks."""
    lines = [line for _, _, _, line in sql(db, "EXPLAIN QUERY PLAN SELECT communication FROM steps") if re.search(r"\bcomm_", line)]
    # the second: of a step that goes on in another file (rotation), those in the other files
    assert len(lines) == 2 and all("USING COVERING INDEX comm_trace (<expr>=? AND ts>? AND ts<?)" in line for line in lines), lines


def test_hot_functions_reads_no_sample(db):
    tables = " ".join(plan(db, "SELECT * FROM hot_functions"))
    assert "json_each" not in tables and not scans(tables.splitlines())
    assert sql(db, "SELECT count(*) FROM hot_functions")[0][0] > 10


def test_collectives_are_what_their_calls_say(db):
    """The same as from looking at the calls of each collective one after the other."""
    calls = {}
    for call in sql(db, """SELECT "group", seq, op, rank, CAST(round(enter * 1e6) AS INTEGER), latency_ms, complete FROM comm_metrics
            WHERE op NOT IN ('send', 'recv') AND completion <> 'raised'"""):
        calls.setdefault(call[:3], []).append(call[3:])
    rows = sql(db, """SELECT "group", seq, op, arrived, complete, last_rank, shortest_rank, shortest_ms, longest_ms, skew_ms FROM collectives""")
    assert sorted(row[:3] for row in rows) == sorted(calls)
    for group, seq, op, arrived, complete, last, shortest, least, most, skew in rows:
        of = calls[group, seq, op]
        done = [(ms, rank) for rank, _, ms, complete_here in of if complete_here]
        assert (arrived, complete) == (len({rank for rank, *_ in of}), len(done))
        came = {rank: us for rank, us, *_ in of}
        assert came[last] == max(came.values()) and skew == pytest.approx((max(came.values()) - min(came.values())) / 1e3, abs=2e-3)
        assert (min(done)[0], max(done)[0]) == (least, most) and (least, shortest) in done


def test_a_collectives_calls_are_sorted_once(db):
    """Window functions, each with an order of its own, took a seventh of the time of converting to these two tables."""
    for view, most in (("collectives_made", 2), ("stragglers_made", 5)):  # two of the five sort collectives, not their calls
        lines = [line for _, _, _, line in sql(db, "EXPLAIN QUERY PLAN SELECT * FROM " + view)]
        assert len([line for line in lines if " c USING INTEGER PRIMARY KEY" in line]) == 1
        assert len([line for line in lines if re.search("TEMP B-TREE FOR (GROUP|ORDER) BY", line)]) <= most, (view, lines)


def test_without_gpu_times_no_call_is_looked_at_for_them(db):
    """The sums by module include GPU times: even if there are none, all calls of all ranks were once read in vain."""
    text = (REPO / "converter/schema/90_after_load.sql").read_text()
    update, = re.findall(r"UPDATE torch_module_total .*?;", text, re.S)
    steps = []
    with sqlite3.connect(str(db)) as c:
        c.set_progress_handler(lambda: steps.append(1), 100)
        c.execute(update)
        c.rollback()
    calls, = sql(db, "SELECT count(*) FROM torch_call")[0]
    assert calls > 1000 and 100 * len(steps) < calls


def test_what_is_stored_is_what_it_was_made_of(db):
    for view in ("collectives", "stragglers", "training_logs"):
        stored, made = (sorted(map(repr, sql(db, "SELECT * FROM " + v))) for v in (view, view + "_made"))
        assert stored == made and stored, view
    # sums by function and by module, made of the rows themselves
    assert sql(db, "SELECT sum(self) FROM hot_functions") == sql(db, "SELECT sum(count) FROM samples WHERE func IS NOT NULL")
    totals = dict(sql(db, "SELECT func || coalesce(file, '') || coalesce(firstline, 0), total FROM hot_functions"))
    rows = dict(sql(db, """SELECT f.name || coalesce(f.file, f.module, '') || coalesce(f.firstline, 0), sum(s.count) FROM sample s
        JOIN stack_frame k ON k.stack = s.stack AND k.first JOIN frame r ON r.id = k.frame JOIN function f ON f.id = r.function GROUP BY f.id"""))
    assert totals == rows
    assert sql(db, "SELECT sum(total) FROM function_total WHERE trace") == sql(db, "SELECT sum(total) FROM function_total WHERE NOT trace")
    seconds, = sql(db, "SELECT sum(seconds), sum(calls), sum(self_seconds) FROM torch_modules")
    calls, = sql(db, """SELECT sum(c.duration) / 1e9, count(*), (sum(c.duration) - sum(CASE WHEN p.duration IS NOT NULL THEN c.duration END)) / 1e9
        FROM torch_call c LEFT JOIN torch_call p ON p.id = c.id - c.parent WHERE c.stage < 2""")
    assert seconds == pytest.approx(calls)


def test_every_question_of_the_readme_runs_without_an_index_of_its_own(db):
    text = (REPO / "README.md").read_text()
    queries = [q for q in README.findall(text) if " FROM " in q]
    assert len(queries) > 15
    for query in queries:
        bad = [line for line in plan(db, query) if "AUTOMATIC" in line and not re.search(SMALL, line)]
        assert not bad, (query, bad)


@pytest.mark.parametrize("name,before,after", [
    ("60_memory", r"^SEARCH m USING INTEGER PRIMARY KEY", r"TEMP B-TREE|AUTOMATIC"),  # each process's rows are read in place, not copied and sorted
    ("55_last", r"^SCAN final", r"^(SCAN|SEARCH) k\b"),  # the time is checked before a sample's stack is split into frames
    ("15_step", r"^SCAN a\b", r"^(SCAN|SEARCH) k\b")])
def test_questions_of_long_recordings(db, name, before, after):
    """A question's own tables and time limits are used even if there are many rows."""
    class Median:
        def step(self, _):
            pass

        def finalize(self):
            return 1.0
    c = sqlite3.connect(str(db))
    c.create_aggregate("median", 1, Median)
    c.create_function("is_running", -1, lambda *_: 0)
    for statement in re.split(r";(?: --.*)?\n", re.sub(r"(?m)^--.*\n", "", (REPO / "tools" / "questions" / (name + ".sql")).read_text())):
        bound = {k: None for k in ("step", "rank")}
        if "backtrace b" in statement or "memory_sample m" in statement:
            lines = [row[3] for row in c.execute("EXPLAIN QUERY PLAN " + statement, bound)]
            at = [i for i, line in enumerate(lines) if re.search(before, line)]
            assert at, lines
            assert not after or at[0] < min([i for i, line in enumerate(lines) if re.search(after, line)], default=len(lines)), lines
            return
        c.execute(statement, bound).fetchall()
    assert False, "not asked any more"


def test_a_rate_is_looked_up_where_it_is_asked_for(db):
    """Without a window function and without sorting: a sum over counters reads each row once, a rate its row and the one before. (What is within that
    lookup is for the first row of a file that continues another one.)"""
    for view, rate in (("cpu_utilization", "cpu_percent"), ("io_statistics", "read_rate"), ("network_statistics", "rx_rate")):
        for asked, lookups in (("count(timestamp)", 0), ("sum(%s)" % rate, 1)):
            plan = [line for _, parent, _, line in sql(db, "EXPLAIN QUERY PLAN SELECT %s FROM %s" % (asked, view)) if not parent]
            assert not any("TEMP B-TREE" in step or "CO-ROUTINE" in step for step in plan), (view, plan)
            assert sum("CORRELATED" in step for step in plan) == lookups, (view, plan)


def inner_scans(rows):
    """Returns the big tables that are read from end to end for each row of another one: in a SELECT's loops, those that are not the
    outermost."""
    began, bad = set(), []
    for _, parent, _, line in rows:
        if re.match(r"SCAN \w+( USING|$)", line) and parent in began:
            bad.append(line)
        if re.match(r"(SCAN|SEARCH) ", line):
            began.add(parent)
    return bad


def test_a_replay_reads_its_tables_once(db):
    """Once, loads of data were searched for in all calls of modules, once for each rank: half a minute for an hour of 64 ranks."""
    text = (REPO / "converter" / "replay_load.c").read_text()
    literal = r'"(?:[^"\\]|\\.)*"'
    unquote = lambda c: "".join(json.loads(s) for s in re.findall(literal, c))
    first = unquote(re.search(r"#define PROCESSES(.*?)\n\n", text, re.S).group(1))
    queries = [(name, (first if processes else "") + unquote(rest)) for name, processes, rest in
               re.findall(r"static const char (\w+_sql)\[\] =\s*(PROCESSES)?((?:\s*%s)+);" % literal, text)]
    assert {"calls_sql", "loading_sql", "stages_sql"} <= {name for name, _ in queries}
    whole = [line for _, _, _, line in sql(db, "EXPLAIN QUERY PLAN " + dict(queries)["attempt_sql"]) if re.search(r"\bcomm\b", line)]
    assert whole == ["SCAN comm USING COVERING INDEX comm_trace"], "which attempt is the largest is known without the table"
    for name, query in queries:
        big = [line for line in inner_scans(sql(db, "EXPLAIN QUERY PLAN " + query, *[None] * query.count("?")))
               if re.match(r"SCAN (c|k|comm|torch_call)\b", line)]
        assert not big, (name, big)
