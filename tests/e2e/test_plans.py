# SPDX-License-Identifier: Apache-2.0
"""How the views are walked, not how long it takes: on a database of thousands of ranks a plan that sorts, or indexes anew, what it
should pass by makes minutes of milliseconds. EXPLAIN QUERY PLAN says which it is."""
import re
import sqlite3
import subprocess

import pytest

from conftest import REPO

README = re.compile(r"^    (?:sqlite3 out\.db \")?(SELECT .*?)(?:;|\"\n|\n\n)", re.S | re.M)
BIG = ("sample", "torch_call", "torch_step", "comm", "cpu", "io", "network", "memory_sample", "memory_step", "event", "event_value",
       "span", "variable", "gpu", "module", "collective", "training_log")
SMALL = r"SEARCH (e .*\(kind|n .*\(trace)=\?\)" # indexes of trigger_event, a few rows, and of the one row a trace that view roles begins with
FEW = r"\b(comm_waits|sample_burst)\b" # indexes of those few that have to do with it
# Of few rows a trace: metrics of each second, with differences between neighbours; and what is about traces alone.
WINDOWS = {"cpu_utilization", "io_statistics", "network_statistics"}


def sql(path, query, *params):
    with sqlite3.connect(str(path)) as c:
        return c.execute(query, params).fetchall()


@pytest.fixture(scope="module")
def db(build, tmp_path_factory):
    """A small fleet: every table that training fills has rows."""
    d = tmp_path_factory.mktemp("plans")
    subprocess.run([str(build.root / "tests/fleet/probing-fleet"), "--out", str(d / "f"), "--ranks", "4", "--nodes", "2", "--minutes", "0.2",
                    "--hz", "50"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    subprocess.run([str(build.root / "bin/probing-convert"), "-q", *map(str, sorted((d / "f").glob("node*"))), str(d / "x.db")],
                   check=True, timeout=120)
    return d / "x.db"


def plan(db, query):
    """The lines of the plan; but what is asked once for each row (correlated), and for its few rows."""
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
    """Big tables that are read from end to end. (Those within others' rows say SEARCH.)"""
    return [t for line in lines for t in BIG if re.match(r"SCAN %s\b" % t, line) or re.match(r"SCAN \w+ USING .*\b%s_" % t, line)]


def test_no_view_makes_an_index_of_its_own(db):
    for view in views(db):
        for query in ("SELECT * FROM %s LIMIT 10", "SELECT count(*) FROM %s"):
            bad = [line for line in plan(db, query % view) if "AUTOMATIC" in line and not re.search(SMALL, line)]
            assert not bad, (view, bad)


def test_the_first_rows_need_no_others(db):
    """No sorting of big tables before the first row comes."""
    for view in set(views(db)) - WINDOWS:
        lines = plan(db, "SELECT * FROM %s LIMIT 10" % view)
        sorts = [line for line in lines if "TEMP B-TREE" in line]
        big = [line for line in lines if re.match(r"(SCAN|SEARCH) [a-z]\b", line) and not re.search(FEW, line)]
        if sorts and any(table_of(db, view, line) in BIG for line in big):
            pytest.fail("%s: %s" % (view, lines))


def table_of(db, view, line):
    """The table that a plan's line names by its alias, as the view's text has it."""
    text, = [t for t, in sql(db, "SELECT sql FROM sqlite_schema WHERE name = ?", view)]
    alias = line.split()[1]
    found = re.search(r"\b(\w+) (?:AS )?%s\b" % re.escape(alias), text)
    return found.group(1) if found else alias


def test_a_rank_and_a_time_search_the_ranks_rows_alone(db):
    """A condition on rank leaves the rows of that rank's trace: by their range of ids, before anything is joined to them."""
    for view in views(db):
        names = columns(db, view)
        if "rank" not in names or "timestamp" not in names or view in WINDOWS:
            continue
        lines = plan(db, "SELECT * FROM %s WHERE rank = 1 AND timestamp BETWEEN 1 AND 2" % view)
        assert not [line for line in lines if "AUTOMATIC" in line], (view, lines)
        for line in lines:
            if line.startswith("SCAN "):
                assert table_of(db, view, line) not in set(BIG) - {"training_log", "collective"}, (view, lines)


def test_hot_functions_reads_no_sample(db):
    tables = " ".join(plan(db, "SELECT * FROM hot_functions"))
    assert "json_each" not in tables and not scans(tables.splitlines())
    assert sql(db, "SELECT count(*) FROM hot_functions")[0][0] > 10


def test_what_is_stored_is_what_it_was_made_of(db):
    for view in ("collectives", "stragglers", "training_logs"):
        stored, made = (sorted(map(repr, sql(db, "SELECT * FROM " + v))) for v in (view, view + "_made"))
        assert stored == made and stored, view
    # sums by function and by module: of the rows themselves
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
