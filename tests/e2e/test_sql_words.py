# SPDX-License-Identifier: Apache-2.0
"""The functions, schemas and grammar that `probing query` has in addition to SQLite's: the original's, and those of other engines."""
import datetime
import json
import math
import os
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import time

import pytest


def ask(build, run, what, query, *options, code=0):
    done = run([build.tool("probing-query"), "--json"] + list(options) + [what, query], check=code)
    return (json.loads(done.stdout) if code == 0 else None), done.stderr


def test_functions(build, run, tmp_path):
    db = tmp_path / "numbers.db"
    values = [3.5, -1.0, 10.25, 4.0, 4.0, 0.125, 77.0]
    with sqlite3.connect(str(db)) as c:
        c.execute("CREATE TABLE t(x)")
        c.executemany("INSERT INTO t VALUES(?)", [(v,) for v in values] + [(None,), ("text",)])
    c.close()

    def one(expression):
        return list(ask(build, run, db, "SELECT %s AS a FROM t" % expression)[0][0].values())[0]

    assert one("median(x)") == statistics.median(values)
    ordered = sorted(values)
    for p in (0, 10, 50, 95, 100):
        at = p / 100 * (len(values) - 1)
        low, high = ordered[int(at)], ordered[math.ceil(at)]
        assert one("percentile(x, %d)" % p) == pytest.approx(low + (at - int(at)) * (high - low))
        assert one("percentile_cont(x, %g)" % (p / 100)) == pytest.approx(one("percentile(x, %d)" % p))
    assert one("stddev(x)") == pytest.approx(statistics.stdev(values)) and one("var_pop(x)") == pytest.approx(statistics.pvariance(values))
    c = sqlite3.connect(str(db))
    assert c.execute("SELECT count(*) FROM t").fetchone()[0] == len(values) + 2
    c.close()
    # an infinity among them, as a loss can be
    for low, middle, high in ((1, 2, 1e999), (-1e999, 3, 4), (5, 1e999, 1e999)):
        text = ", ".join("(%s)" % ("1e999" if v == 1e999 else "-1e999" if v == -1e999 else v) for v in (high, low, middle))
        assert one("(SELECT median(column1) FROM (VALUES %s))" % text) == middle
    assert one("(SELECT percentile(column1, 100) FROM (VALUES (1), (1e999)))") == math.inf and one("epoch_ns('2026-01-31')") == 1769817600 * 10**9
    assert "more nanoseconds than 64 bits hold" in ask(build, run, db, "SELECT epoch_ns('9999-12-31')", code=3)[1]
    assert one("median(x) FILTER (WHERE x > 1e9)") is None and one("stddev(x) FILTER (WHERE x = 77)") is None
    noon = 1769860800  # 2026-01-31 12:00:00 UTC
    assert one("to_timestamp('2026-01-31 12:00:00')") == one("to_timestamp('2026-01-31T12:00:00Z')") == noon
    assert one("to_timestamp('2026-01-31 12:00:00.250')") == noon + .25 and one("hour(NULL)") is None
    assert one("hour(%d)" % noon) == 12 and one("EXTRACT(minute FROM %d)" % (noon + 754)) == 12
    assert one("date_part('dow', %d)" % noon) == 6 and one("date_trunc('week', %d)" % noon) == noon - 5 * 86400 - 12 * 3600
    assert one("date_trunc('month', '2026-02-28') - date_trunc('year', '2026-02-28')") == 31 * 86400
    assert one("date_bin(INTERVAL 15 MINUTE, %d)" % (noon + 1000)) == noon + 900
    assert one("INTERVAL '1 hour 30 min' + INTERVAL '5' SECOND + interval '2 days'") == 5405 + 2 * 86400
    assert one("'interval ''5 min'''") == "interval '5 min'" and one("'A' ILIKE 'a'") == 1
    assert one("interval('1 hour 30 min') + interval('2s')") == 5402 and one("interval(NULL)") is None
    assert abs(one("now()") - time.time()) < 60  # there is no recording in it, so this is the current time
    for wrong, says in (("INTERVAL '5 parsecs'", "no interval"), ("interval('5')", "no interval"), ("hour('yesterday')", "no timestamp"), ("hour(1769860800000)", "too large"),
                        ("percentile(x, 101)", "0 to 100"), ("date_trunc('eon', 0)", "no such part"), ("date_bin(0, 5)", "more than 0")):
        assert says in ask(build, run, db, "SELECT %s FROM t" % wrong, code=3)[1], wrong


def test_words_of_other_engines(build, run, tmp_path):
    """What other engines accept gives the same answer here, or an error. A text that is compared with a number, a cast to a time, a name in
    double quotes that does not exist, or a Julian day would otherwise give a wrong answer."""
    db = tmp_path / "times.db"
    noon = 1769860800  # 2026-01-31 12:00:00 UTC
    with sqlite3.connect(str(db)) as c:
        c.execute('CREATE TABLE t(timestamp REAL, "end" REAL, rank INTEGER, name TEXT)')
        c.executemany("INSERT INTO t VALUES(?, ?, ?, ?)", [(noon + 60 * i, noon + 60 * i + 5, i, "2026-01-31 1%d" % i) for i in range(10)])
    c.close()

    def count(where):
        return ask(build, run, db, "SELECT count(*) AS n FROM t WHERE " + where)[0][0]["n"]

    def one(expression):
        return list(ask(build, run, db, "SELECT %s AS a FROM t" % expression)[0][0].values())[0]

    for where in ("timestamp >= '2026-01-31 12:05:00'", "timestamp > '2026-01-31T12:04:59.9Z'", "t.timestamp >= '2026-01-31 12:05'", "'2026-01-31 12:05:00' <= timestamp",
                  "timestamp BETWEEN '2026-01-31 12:05' AND '2026-02-01'", "timestamp BETWEEN '2026-01-31 12:05' AND now()", "timestamp >= TIMESTAMP '2026-01-31 12:05:00'",
                  "timestamp >= CAST('2026-01-31 12:05:00' AS timestamp)", "timestamp >= '2026-01-31 12:05:00'::timestamp", '"end" > \'2026-01-31 13:05:00+01:00\'',
                  "timestamp >= ('2026-01-31 12:04:00'::timestamp with time zone) + '1 min'::interval", "NOT timestamp < '2026-01-31 12:05:00' AND name > '2026'",
                  "date_trunc('minute', timestamp) >= '2026-01-31 12:05:00'", "timestamp - INTERVAL '5 min' >= '2026-01-31 12:00:00'", "datetime(timestamp) >= '2026-01-31 12:05:00'",
                  "strftime('%M', timestamp)::int >= 5", "strftime(timestamp, '%H:%M') >= '12:05'", "extract(minute from timestamp) >= 5", "rank::text >= '5'", "(rank + 0)::int >= 5",
                  "timestamp < current_timestamp AND timestamp > current_timestamp - interval '1000 years' AND rank >= 5", "max(rank, 5)::text IN ('5', '6', '7', '8', '9') AND rank > 4",
                  '"end" - timestamp > 4 AND rank IN (5, 6, 7, 8, 9)', "name >= '2026-01-31 15'", "date(timestamp) = '2026-01-31' AND rank > 4", "greatest(rank, 3) >= 5", "timestamp >= '1769861100'"):
        assert count(where) == 5, where
    assert one("percentile_cont(0.9) WITHIN GROUP (ORDER BY rank)") == one("quantile(rank, 0.9)") == pytest.approx(8.1)
    assert one("percentile_cont(0.9) WITHIN GROUP (ORDER BY rank + 1 DESC)") == pytest.approx(1.9)
    assert one("percentile_disc(0.5) WITHIN GROUP (ORDER BY rank)") == one("quantile_disc(rank, 0.5)") == 4 and one("percentile_disc(rank, 0)") == 0 and one("percentile_disc(rank, 1)") == 9
    assert one("to_timestamp_millis(5000)") == one("from_unixtime(5)") == 5 and one("time_bucket(INTERVAL '10 min', timestamp)") == noon
    assert one("array_agg(rank)") == "[0,1,2,3,4,5,6,7,8,9]" and one("bool_and(rank >= 0)") == 1 and one("bool_or(rank > 9)") == 0
    assert one("string_agg(rank::text, '|')") == "0|1|2|3|4|5|6|7|8|9" and one("'5 min'::interval") == 300 and one("cast(rank AS text)") == "0"
    assert [one("split_part('a/b/c', '/', %d)" % i) for i in (1, 3, -1, 4)] == ["a", "c", "c", ""]
    assert one("starts_with(name, '2026') + contains(name, '-31') + strpos(name, '-')") == 7
    assert one("'x::int, timestamp > ''a'''") == "x::int, timestamp > 'a'"
    for wrong, says in (('SELECT "nope" FROM t', "in single"), ("SELECT * FROM t WHERE timestamp > 'yesterday'", "no timestamp"),
                        ("SHOW CREATE TABLE t", "SHOW TABLES, VIEWS, SCHEMAS"), ("DESCRIBE SELECT 1", "SHOW TABLES, VIEWS, SCHEMAS"), ("SELECT 1::", "unrecognized token")):
        assert says in ask(build, run, db, wrong, code=3)[1], wrong
    assert {"table_schema": "main"} in ask(build, run, db, "SHOW SCHEMAS")[0] and ask(build, run, db, "SHOW VIEWS; ")[0] != []


def test_one_of_the_values(build, run, tmp_path):
    """greatest and least ignore NULL (SQLite's max(a, b) does not); and the value that belongs to the largest value of another column."""
    db = tmp_path / "few.db"
    with sqlite3.connect(str(db)) as c:
        c.execute("CREATE TABLE t(a, b)")
        c.executemany("INSERT INTO t VALUES(?, ?)", [(1, 5.0), (2, None), ("x", 7), (None, -3), (4, 7)])
    c.close()

    def one(expression):
        return list(ask(build, run, db, "SELECT %s AS a FROM t" % expression)[0][0].values())

    assert one("greatest(1, NULL, 3)") == one("least(3, NULL, 7)") == [3] and one("greatest(NULL, NULL)") == [None]
    assert one("greatest(2, 'b', 'a')") == ["b"] and one("least('b', x'00', 2.5)") == [2.5] and one("greatest(9007199254740993, 9007199254740992)") == [9007199254740993]
    assert one("arg_max(a, b)") == one("max_by(a, b)") == ["x"] and one("arg_min(a, b)") == [None] and one("first(b)") == [5.0] and one("last(b)") == [7]
    assert one("arg_max(a, b) FILTER (WHERE b > 99)") == [None] and one("nvl(NULL, 2)") == [2] and one("every(b > 0)") == [0]
    assert one("approx_percentile(b, 0.5)") == one("median(b)")


def test_series(build, run, tmp_path):
    db = tmp_path / "none.db"
    with sqlite3.connect(str(db)) as c:
        c.execute("CREATE TABLE t(a)")
    c.close()

    def series(arguments):
        return [r["value"] for r in ask(build, run, db, "SELECT value FROM generate_series(%s)" % arguments)[0]]

    assert series("1, 3") == [1, 2, 3] and series("5, -5, -5") == [5, 0, -5] and series("3, 1") == [] and series("1, NULL") == [] and series("1, 'x'") == []
    assert series("0, 1, 0.1") == pytest.approx([i / 10 for i in range(11)]) and series("1, 1e15) LIMIT (2") == [1, 2]
    assert series("-9000000000000000000, 9000000000000000000, 6000000000000000000") == [-9 * 10**18, -3 * 10**18, 3 * 10**18, 9 * 10**18]
    assert series("(SELECT 2), 3") == [2, 3]
    now = 1769860800123456789  # nanoseconds: a double has steps of 256 there
    assert series("%d, %d" % (now, now + 3)) == [now, now + 1, now + 2, now + 3] and series("%d, %d" % (now, now - 1)) == []
    assert series("%d, %d, -1" % (now, now - 2)) == [now, now - 1, now - 2]
    assert series("-9223372036854775808, 9223372036854775807, 9223372036854775807") == [-2**63, -1, 2**63 - 2]
    assert series("9223372036854775807, -9223372036854775808, -9223372036854775808") == [2**63 - 1, -1]
    rows = ask(build, run, db, "SELECT a.value AS x, b.value AS y FROM generate_series(1, 2) a, generate_series(a.value, 2) b")[0]
    assert [tuple(r.values()) for r in rows] == [(1, 1), (1, 2), (2, 2)]
    for wrong, says in (("1, 2, 0", "a step of 0 never ends"), ("1", "generate_series(first, last[, step])")):
        assert says in ask(build, run, db, "SELECT * FROM generate_series(%s)" % wrong, code=3)[1]


def test_times_as_texts(build, run, tmp_path):
    """to_char() with formats of strftime, as DataFusion takes them, and with PostgreSQL's patterns."""
    db = tmp_path / "some.db"
    with sqlite3.connect(str(db)) as c:
        c.execute("CREATE TABLE t(x)")
    c.close()
    at = datetime.datetime(2026, 2, 3, 16, 5, 6, 26490, datetime.timezone.utc)  # a Tuesday

    def one(expression, **kw):
        said = ask(build, run, db, "SELECT %s AS a" % expression, **kw)
        return said[1] if kw else list(said[0][0].values())[0]

    def text(form, when="'2026-02-03 16:05:06.026490'"):
        return one("to_char(%s, '%s')" % (when, form))

    same = "%Y-%m-%d %H:%M:%S|%a %A %b %B %h %e %I %p %j %U %W %V %G %u %w %C %y %D %F %R %T %c %x %X %r %k %l %s %Z %z %t%n%%"
    for day in (0, 1, 27, 333, 334, 1000):
        then = at + datetime.timedelta(days=day)
        assert text(same, "%d" % then.timestamp()) == then.strftime(same)
    assert text("%f %.f %3f %.6f %9f") == "026490000 .026490 026 .026490 026490000" and text("%S%.f", "5") == "05"
    assert text("%-d|%_m|%-H|%P|%:z|%v") == "3| 2|16|pm|+00:00| 3-Feb-2026" and text("%+") == "2026-02-03T16:05:06.026490+00:00"
    for pattern, want in (("YYYY-MM-DD HH24:MI:SS", "2026-02-03 16:05:06"), ("YYYY-MM-DDTHH24:MI:SS.MS TZ", "2026-02-03T16:05:06.026 UTC"), ("yy/mm/dd hh12:mi:ss.us pm", "26/02/03 04:05:06.026490 pm"),
                          ("Day, DD Month YYYY", "Tuesday  , 03 February  2026"), ("FMDay, FMDD FMMONTH Mon DY", "Tuesday, 3 FEBRUARY Feb TUE"), ("DDD D ID Q WW W IW IYYY", "034 3 2 1 05 1 06 2026"),
                          ("J SSSS FF2 OF AM", "2461075 57906 02 +00 PM"), ('"Week" IW, YYYY', "Week 06, 2026")):
        assert text(pattern) == want
    assert text("%F %T%.f", "-0.25") == "1969-12-31 23:59:59.750" and one("to_char(NULL, 'YYYY')") is None and one("to_char(5, NULL)") is None
    assert one("date_format(to_timestamp('2026-02-03'), '%d.%m.')") == "03.02." and one("to_char('2026-02-03'::timestamp + INTERVAL '1 day', 'DD') = '04'") == 1
    for wrong in ("%Q", "%", "%5f", "999", ""):
        assert "no format of a time: %s" % wrong in one("to_char(5, '%s')" % wrong, code=3), wrong


# Statements with QUALIFY or DISTINCT ON, each with an equivalent that has neither.
CHOSEN = (
    ("SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY rank ORDER BY timestamp DESC) = 1 ORDER BY rank",
     "SELECT * FROM t WHERE timestamp > 1769860808 ORDER BY rank"),
    ("SELECT rank, seconds, row_number() OVER (PARTITION BY rank ORDER BY seconds DESC) AS n FROM t QUALIFY n <= 2 ORDER BY rank, n DESC LIMIT 3",
     "SELECT * FROM (SELECT rank, seconds, row_number() OVER (PARTITION BY rank ORDER BY seconds DESC) AS n FROM t) WHERE n <= 2 ORDER BY rank, n DESC LIMIT 3"),
    ("SELECT DISTINCT ON (rank) * FROM t ORDER BY rank, timestamp DESC", "SELECT * FROM t WHERE timestamp > 1769860808 ORDER BY rank"),
    ("SELECT DISTINCT ON (1, name) rank r, name, max(seconds, 2) s FROM t WHERE seconds > 1 ORDER BY 1 DESC, name, s DESC",
     "SELECT rank r, name, max(max(seconds), 2) s FROM t WHERE seconds > 1 GROUP BY 1, 2 ORDER BY 1 DESC, 2"),
    ("SELECT rank, sum(seconds) AS s FROM t GROUP BY rank HAVING count(*) > 1 QUALIFY rank() OVER (ORDER BY sum(seconds) DESC) = 1",
     "SELECT rank, sum(seconds) AS s FROM t GROUP BY rank ORDER BY s DESC LIMIT 1"),
    ("WITH a AS (SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY rank ORDER BY timestamp) = 1), b AS (SELECT * FROM a WHERE rank > 0)"
     " SELECT rank, name FROM b QUALIFY row_number() OVER (ORDER BY rank) = 1 ORDER BY 1", "SELECT rank, name FROM t WHERE timestamp = 1769860801"),
    ("SELECT count(*) AS n FROM (SELECT DISTINCT ON (name) name, rank FROM t ORDER BY name, rank DESC)", "SELECT 2 AS n"),
    ("SELECT 7 AS rank UNION ALL SELECT rank FROM t QUALIFY row_number() OVER (ORDER BY timestamp DESC) = 1 ORDER BY 1 LIMIT 1", "SELECT 2 AS rank"),
    ("SELECT rank FROM t QUALIFY row_number() OVER (ORDER BY timestamp DESC) = 1 UNION ALL SELECT 7 ORDER BY 1 DESC", "SELECT 7 AS rank UNION ALL SELECT 2"),
    ("SELECT DISTINCT name FROM t QUALIFY row_number() OVER (PARTITION BY rank ORDER BY timestamp) < 3 ORDER BY name", "SELECT DISTINCT name FROM t ORDER BY 1"),
    ("SELECT rank, seconds FROM t WINDOW w AS (PARTITION BY rank) QUALIFY sum(seconds) OVER w > 20 ORDER BY seconds, rank", "SELECT rank, seconds FROM t WHERE rank ORDER BY 2, 1"),
    ("SELECT rank, seconds FROM t QUALIFY sum(seconds) OVER w > 20 WINDOW w AS (PARTITION BY rank) ORDER BY seconds, rank", "SELECT rank, seconds FROM t WHERE rank ORDER BY 2, 1"),
    ("SELECT name IS DISTINCT FROM 'n1' AS x, rank FROM t QUALIFY row_number() OVER (PARTITION BY name IS DISTINCT FROM 'n1' ORDER BY timestamp) = 1 ORDER BY 1",
     "SELECT 0 AS x, 1 AS rank UNION ALL SELECT 1, 0"),
    ("SELECT a.rank AS \"twice \"\"it\"\"\", b.seconds * 2 FROM t a JOIN t b USING (timestamp) QUALIFY \"twice \"\"it\"\"\" = 2 AND b.seconds > 5 ORDER BY b.seconds DESC -- end",
     "SELECT rank AS \"twice \"\"it\"\"\", seconds * 2 AS \"b.seconds * 2\" FROM t WHERE rank = 2 AND seconds > 5 ORDER BY seconds DESC"),
    ("SELECT rank FROM t WHERE timestamp > '2026-01-31 12:00:03' QUALIFY row_number() OVER (ORDER BY timestamp) = 1; SELECT DISTINCT ON (name) name FROM t ORDER BY name LIMIT 1",
     "SELECT 1 AS rank; SELECT 'n0' AS name"),
)


def test_qualify_and_distinct_on(build, run, tmp_path):
    db = tmp_path / "t.db"
    with sqlite3.connect(str(db)) as c:
        c.execute("CREATE TABLE t(timestamp REAL, rank INTEGER, name TEXT, seconds REAL)")
        c.executemany("INSERT INTO t VALUES(?, ?, ?, ?)", [(1769860800 + i, i % 3, "n%d" % (i % 2), (i * 7) % 10) for i in range(12)])
    c.close()

    def rows(query):
        return run([build.tool("probing-query"), "--box", db, query]).stdout
    for words, plain in CHOSEN:
        assert rows(words) == rows(plain), words
    for wrong, says in (("SELECT * FROM t QUALIFY nope = 1", "no such column: nope"), ("SELECT DISTINCT ON (2) * FROM t", "name the column that is meant by 2"),
                        ("SELECT DISTINCT ON (rank) rank FROM t QUALIFY row_number() OVER () = 1", "leave out one of them"), ("SELECT * FROM nowhere QUALIFY 1", "no such table: nowhere")):
        assert says in ask(build, run, db, wrong, code=3)[1], wrong


def test_formats_files_and_time_limit(build, run, tmp_path):
    db = tmp_path / "a.db"
    with sqlite3.connect(str(db)) as c:
        c.executescript("CREATE TABLE t(name TEXT, n); INSERT INTO t VALUES('a|b', 1), ('<script>', 22)")
    c.close()
    query = [build.tool("probing-query")]
    assert run(query + ["--markdown", db, "SELECT * FROM t"]).stdout == (
        "| name        |  n |\n| ----------- | -- |\n| a\\|b        |  1 |\n| &lt;script> | 22 |\n")
    assert run(query + ["--box", db, "SELECT * FROM t"]).stdout == (
        "┌──────────┬────┐\n│ name     │  n │\n├──────────┼────┤\n│ a|b      │  1 │\n│ <script> │ 22 │\n└──────────┴────┘\n")
    (tmp_path / "q.sql").write_text("-- the sum; of all\nSELECT sum(n) AS s\nFROM t; /* end */\n")
    assert run(query + ["--csv", "-f", tmp_path / "q.sql", db]).stdout.split() == ["s", "23"]
    assert "cannot read" in run(query + ["-f", tmp_path / "none.sql", db], check=3).stderr
    endless = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c) SELECT count(*) FROM c"
    done = run(query + ["--timeout", "0.3", db, endless], check=3)
    assert "longer than --timeout 0.3 s" in done.stderr and done.stdout == ""


def test_a_name_with_a_schema_makes_the_columns_that_are_read(run, build):
    """All columns of a view would take as long as the whole view: for some of python.torch_trace other tables are searched, once for each
    of millions of rows."""
    def ask(query, **kw):
        said = run(["sqlite3", ":memory:", ".load %s" % (build.lib / "probing"), "CREATE VIRTUAL TABLE temp.t USING probing_name("
                    "'SELECT value AS a, json(value) AS \"b b\", 3 AS c FROM json_each(''[\"wrong\"]'')')", query], **kw)
        return said.stdout.strip() or said.stderr.strip()
    assert ask("SELECT c, a FROM t") == "3|wrong"
    assert ask("SELECT count(*) FROM t WHERE c > 2") == "1"
    assert "malformed JSON" in ask("SELECT * FROM t", check=1)  # the message of its SELECT


def test_columns_are_named_as_typed(build, run, convert):
    """A column without AS has the text that was typed for a name, not what became of it for SQLite."""
    db = convert(pathlib.Path(__file__).resolve().parents[1] / "golden" / "basic.zst")
    texts = (("-- x\n; SELECT 7::text, string_agg('x', ',' ORDER BY 1), 1 AS \"a\"\"b\", 2 \"c\"\"d\", count(*) -- ;", ["7::text", "string_agg('x', ',' ORDER BY 1)", 'a"b', 'c"d', "count(*)"]),
             ("WITH a AS (SELECT 1::int AS one) SELECT one, a.one + 1::int, one two, a.one FROM a", ["one", "a.one + 1::int", "two", "one"]),
             ("SELECT 1::int UNION SELECT 2", ["1::int"]), ("EXPLAIN QUERY PLAN SELECT 1::int, 2, 3, 4", ["id", "parent", "notused", "detail"]),
             ("SELECT *, 1::int AS x FROM (SELECT 2 AS two)", ["two", "x"]), ("SELECT DISTINCT ON (1) 5::int", ["5::int"]), ("VALUES (1::int)", ["column1"]),
             ("SELECT timestamp AT TIME ZONE 'UTC' FROM samples LIMIT 1", ["timestamp"]), ("SELECT 3::int AS a, $$b; c$$ AS d", ["a", "d"]))
    out = run([build.tool("probing-query"), "--markdown", db, "; ".join(text + "\n" for text, _ in texts)]).stdout
    heads = [part.split("\n")[0] for part in out.split("\n\n")]
    assert [[name.strip() for name in head.strip("|\n").split(" | ")] for head in heads] == [names for _, names in texts]


def test_in_the_python_reader(build, convert, sql):
    """In a notebook a query means what it means in `probing query`: a text compared with a time is one, and what other engines write is known."""
    db = convert(pathlib.Path(__file__).resolve().parents[1] / "golden" / "basic.zst")
    same = (("SELECT count(*) FROM samples WHERE timestamp > '2020-01-01'", "SELECT count(*) FROM samples"),
            ("SELECT count(*) FROM samples WHERE timestamp > now() - INTERVAL '1 day'", "SELECT count(*) FROM samples"),
            ("SELECT sum(count)::int AS n FROM samples", "SELECT sum(count) FROM samples"),
            ("SELECT DISTINCT ON (tid) tid, count FROM samples ORDER BY tid, timestamp DESC", "SELECT tid, count FROM samples GROUP BY tid HAVING timestamp = max(timestamp) ORDER BY 1"),
            ("SELECT tid, sum(count) AS n FROM samples GROUP BY ALL ORDER BY ALL", "SELECT tid, sum(count) FROM samples GROUP BY 1 ORDER BY 1, 2"),
            ("SELECT * EXCLUDE (ident, start_ts, end_ts, cpu_us) FROM thread", "SELECT id, trace, tid, name, samples, running, comm FROM thread"))
    code = """
import json, sys, probing
t = probing.open(sys.argv[1])
out = [[list(r) for r in t.sql(text).rows()] for text in json.loads(sys.argv[2])]
try:
    t.sql("SELECT count(*)::nothing FROM samples")
except probing.TraceError as error:
    out.append(str(error))
out.append(["samples" in str(list(t.sql("SHOW TABLES").rows())), t.sql("DESCRIBE samples").columns[0]])
print(json.dumps(out))
"""
    done = subprocess.run([sys.executable, "-c", code, str(db), json.dumps([dialect for dialect, _ in same])], stdout=subprocess.PIPE, check=True,
                          env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    out = json.loads(done.stdout.decode())
    assert out.pop() == [True, "column_name"] and "no type nothing" in out.pop()
    assert out == [[list(row) for row in sql(db, plain)] for _, plain in same]
    assert out[0][0][0] > 0
