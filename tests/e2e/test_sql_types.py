# SPDX-License-Identifier: Apache-2.0
"""SQL of other engines that SQLite also accepts, but answers differently: casts, times that are compared with texts, days, parameters without
a value. The expected answers were compared with DuckDB's, except for int of 2.5 (truncated, as in DataFusion) and times of day (texts here)."""
import sqlite3

from test_sql_words import ask

# Expressions for which SQLite, for lack of a type, gave true, 0 or a wrong number: each with its value in each of four rows, or in all.
TYPES = (
    ("x::time", ["12:00:00", "19:00:00.5", "02:00:00.25", None]), ("CAST(timestamp AS TIME)", ["12:00:00", "19:00:00.5", "02:00:00.25", None]),
    ("timestamp::time > '12:00'", [0, 1, 0, None]), ("timestamp::time BETWEEN TIME '02:00' AND '12:00:00'", [1, 0, 1, None]),
    ("timestamp::text", ["2026-01-31 12:00:00", "2026-01-31 19:00:00.5", "2026-02-01 02:00:00.25", None]), ("CAST(timestamp::date AS varchar)", ["2026-01-31"] * 2 + ["2026-02-01", None]),
    ("timestamp LIKE '2026-02-01%'", [0, 0, 1, None]), ("timestamp NOT LIKE '2026-02-01%'", [1, 1, 0, None]), ("timestamp IN ('2026-01-31 12:00', '2026-01-31')", [1, 0, 0, None]),
    ("timestamp NOT BETWEEN '2026-01-31' AND '2026-01-31 15:00'", [0, 1, 1, None]), ("date_trunc('day', timestamp) NOT IN ('2026-02-01')", [1, 1, 0, None]),
    ("coalesce(timestamp, '2026-03-01') > '2026-02-15'", [0, 0, 0, 1]), ("timestamp + '1 hour' - timestamp", [3600, 3600, 3600, None]), ("timestamp - '2026-01-31'", [43200, 68400.5, 93600.25, None]),
    ("(timestamp::date + 1)::text", ["2026-02-01"] * 2 + ["2026-02-02", None]), ("timestamp::date - '2026-01-01'::date", [30, 30, 31, None]), ("(timestamp::date - DATE '2026-01-01') * 2", [60, 60, 62, None]),
    ("current_date - 7 + INTERVAL '1 day' = date_trunc('day', now()) - 6 * 86400", 1), ("DATE '2026-03-01' - CAST('2026-02-01' AS date)", 28), ("date_trunc('day', timestamp) - '2026-01-01'", [2592000] * 2 + [2678400, None]),
    ("rank::bool", [0, 1, 1, 1]), ("'true'::boolean + 'no'::bool", 1), ("(rank / 3.0)::decimal(10, 2)", [0, 0.33, 0.67, 1]), ("CAST(2.5 AS NUMERIC(3))", 3), ("rank::string || 'x'", ["0x", "1x", "2x", "3x"]),
    ("rank::double precision / 2", [0, 0.5, 1, 1.5]), ("TRY_CAST(name AS int)", [None, 12, None, None]), ("TRY_CAST(1.5 AS text)", "1.5"), ("'{\"a\": 1}'::json -> 'a'", "1"),
    ("round(1234.5, -2)", 1200), ("round(1234.56, 1)", 1234.6), ("$$it's$$", "it's"), ("rand() < 1", 1), ("random() * 2 < 2", 1), ("random() < 1.5 AND random() >= 0.0", 1), ("typeof(random())", "integer"),
    # what stands for "always" and "never"
    ("timestamp < '9999-12-31'", [1, 1, 1, None]), ("timestamp BETWEEN '0001-01-01' AND '9999-12-31'", [1, 1, 1, None]), ("date_part('year', '9999-12-31')", 9999), ("date_part('year', DATE '0001-01-01')", 1),
    ("to_timestamp('9999-12-31')", 253402214400), ("TRY_CAST('2300-01-01 00:00:00.5' AS timestamp)", 10413792000.5),
    ("(SELECT array_agg(rank)[2] FROM t)", 1), ("(SELECT array_agg(rank)[-1] FROM t)", 3), ("'a::uuid [1]'", "a::uuid [1]"), ("x [b]", [1769860800, 1769886000.5, 1769911200.25, None]),
)


def test_types_of_other_engines(build, run, tmp_path):
    db = tmp_path / "t.db"
    with sqlite3.connect(str(db)) as c:
        c.execute("CREATE TABLE t(timestamp REAL, rank INTEGER, name TEXT)")
        c.executemany("INSERT INTO t VALUES(?, ?, ?)", [(1769860800, 0, "a"), (1769886000.5, 1, "12"), (1769911200.25, 2, "9x"), (None, 3, "")])
    c.close()
    for expression, want in TYPES:
        rows = ask(build, run, db, "SELECT %s FROM (SELECT *, timestamp AS x FROM t) ORDER BY rank" % expression)[0]
        assert [list(r.values())[0] for r in rows] == (want if isinstance(want, list) else [want] * 4), expression
    # a column is a time if a SELECT makes it of one
    for where, n in (("SELECT max(timestamp) AS m FROM t GROUP BY rank HAVING m > '2026-01-31 15:00'", 2), ("WITH a(r, b) AS (SELECT 1, 2), c AS (SELECT min(timestamp) \"first one\" FROM t)"
                     " SELECT 1 FROM c WHERE \"first one\" < '2026-02-01'", 1), ("SELECT ts FROM (SELECT timestamp ts FROM t) WHERE ts > '2026-01-31 15:00' OR '2026-01-31 11:00' > ts", 2),
                     ("SELECT timestamp - 5 < 0 AS old, name FROM t WHERE old = 'x'", 0), ("SELECT max(timestamp) - min(timestamp) AS span FROM t HAVING span > 5", 1)):
        assert len(ask(build, run, db, where)[0]) == n, where
    for wrong, says in (("SELECT rank::uuid FROM t", "no type uuid to cast to: int, double"), ("SELECT CAST(rank AS foo) FROM t", "no type foo"), ("SELECT 'maybe'::bool", "no truth value"),
                        ("SELECT * FROM t WHERE rank = ?", "parameter ? has no value"), ("SELECT * FROM t WHERE rank = :r", "parameter :r has no value"), ("SELECT timestamp + 'x' FROM t", "no length of time: 'x'"),
                        ("SELECT * FROM t WHERE rank IN [1, 2]", "no lists: [1, 2]"), ("SELECT TRY_CAST(name AS json) FROM t", "TRY_CAST is for numbers, texts, truth values"),
                        ("SELECT date_add(0, '1 month', 1e300)", "longer than all time")):
        assert says in ask(build, run, db, wrong, code=3)[1], wrong


# Questions that SQLite would misunderstand, or reject as a syntax error: the message says what to write.
FOREIGN = (
    ("SELECT * FROM t ANTI JOIN u ON t.rank = u.rank", "ANTI JOIN is not known: write ... WHERE NOT EXISTS"), ("SELECT * FROM t LEFT SEMI JOIN u USING (rank)", "SEMI JOIN is not known: write ... WHERE EXISTS"),
    ("SELECT * FROM t ASOF JOIN u ON t.rank >= u.rank", "ASOF JOIN is not known"), ("SELECT * FROM t POSITIONAL JOIN u", "POSITIONAL JOIN is not known"),
    ("SELECT rank FROM t GROUP BY ROLLUP (rank)", "ROLLUP is not known: write one SELECT"), ("SELECT rank FROM t GROUP BY GROUPING SETS ((rank), ())", "GROUPING SETS is not known"),
    ("SELECT rank FROM t GROUP BY rank WITH ROLLUP", "WITH ROLLUP is not known"), ("PIVOT t ON rank USING sum(x)", "PIVOT is not known: write sum(x) FILTER"), ("SELECT unnest(array_agg(rank)) FROM t", "write json_each(x)"),
    ("SELECT * FROM t TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE is not known"), ("SELECT * FROM t USING SAMPLE 10", "USING SAMPLE is not known"), ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN ANALYZE is not known"),
    ("SELECT name !~* '(a' FROM t", "no regular expression: '(?i)(a': missing closing parenthesis"), ("SELECT regexp_extract_all(name, 'a') FROM t", "write regexp_match()"),
    ("SELECT * FROM t WHERE name SIMILAR TO 'a'", "SIMILAR TO is not known: write LIKE 'a%', or x ~ '^(a|b)$'"), ("SELECT * FROM t WHERE rank > ALL (SELECT 1)", "ALL is not known: write x IN (SELECT ...)"), ("SET TIME ZONE 'UTC'", "times are UTC"),
    ("SELECT 2 ^ 3", "^ is not known: write power(x, y)"), ("SELECT rank ** 2 FROM t", "** is not known: write power(x, y)"), ("SELECT 7 // 2", "// is not known: write x / y"),
    ("SELECT rank FROM t EXCEPT ALL SELECT 1", "EXCEPT ALL is not known"), ("SELECT lag(rank) IGNORE NULLS OVER (ORDER BY rank) FROM t", "IGNORE NULLS is not known"),
    ("SELECT * EXCLUDE (nope) FROM t", "EXCLUDE (nope): a column of that name is not there"), ("SELECT * EXCEPT (rank, name) FROM t", "EXCEPT leaves no column"),
)
# Ways to write a star's columns, each with its equivalent.
STARS = (
    ("SELECT * EXCLUDE (name) FROM t", "SELECT rank FROM t"), ("SELECT * EXCLUDE name FROM t ORDER BY name DESC", "SELECT rank FROM t ORDER BY name DESC"), ("SELECT * EXCEPT (rank) FROM t", "SELECT name FROM t"),
    ("SELECT * REPLACE (max(rank, 1) + 1 AS rank, upper(name) AS name) FROM t", "SELECT max(rank, 1) + 1 AS rank, upper(name) AS name FROM t"), ("SELECT * RENAME (rank AS r) FROM t", "SELECT rank AS r, name FROM t"),
    ("SELECT a.* EXCLUDE (name), b.* EXCLUDE (rank) RENAME (name AS other) FROM t a JOIN t b USING (rank)", "SELECT a.rank, b.name AS other FROM t a JOIN t b USING (rank)"),
    ("WITH a AS (SELECT * EXCLUDE (name) FROM t) SELECT * REPLACE (rank * 2 AS rank) FROM a WHERE rank IN (SELECT * EXCEPT (name) FROM t)", "SELECT rank * 2 AS rank FROM t"),
    ("SELECT * EXCLUDE (name) FROM t QUALIFY row_number() OVER (ORDER BY rank DESC) = 1", "SELECT 2 AS rank"), ("SELECT DISTINCT * EXCLUDE (rank) FROM t ORDER BY 1", "SELECT DISTINCT name FROM t ORDER BY 1"),
    ("SELECT * EXCLUDE (name) FROM t EXCEPT SELECT 1", "SELECT rank FROM t WHERE rank <> 1"), ("SELECT 1 AS semi, 2 AS pivot, 3 AS regexp UNION SELECT * FROM (SELECT 1, 2, 3)", "SELECT 1 AS semi, 2 AS pivot, 3 AS regexp"),
    ("SELECT ~rank, anti.rank FROM t JOIN t anti USING (rank)", "SELECT -1 - rank AS \"~rank\", rank FROM t"),
)


def test_what_sqlite_has_not(build, run, tmp_path):
    db = tmp_path / "t.db"
    with sqlite3.connect(str(db)) as c:
        c.execute("CREATE TABLE t(rank INTEGER, name TEXT)")
        c.executemany("INSERT INTO t VALUES(?, ?)", [(0, "a"), (1, "b"), (2, "a")])
    c.close()
    for wrong, says in FOREIGN:
        assert says in ask(build, run, db, wrong, code=3)[1], wrong
    for words, plain in STARS:
        assert ask(build, run, db, words)[0] == ask(build, run, db, plain)[0], words


def test_numbers_and_times_of_views(build, run, simulated_job):
    """A number in quotes is a number, too, as other engines and forms on web pages write it: not all views declare the types of their
    columns."""
    db = simulated_job("--hang", "3:6") / "out.db"
    for where, plain in (("comm_metrics WHERE rank = '1'", "comm_metrics WHERE rank = 1"), ("comm_metrics c WHERE c.rank IN ('1', '2') AND seq > '5'", "comm_metrics WHERE rank IN (1, 2) AND seq > 5"),
                         ('steps WHERE "step" NOT IN (\'3\', \'4\')', "steps WHERE step NOT IN (3, 4)"), ("stragglers WHERE rank <> '-1'", "stragglers"), ("hangs WHERE rank = '3'", "hangs WHERE rank = 3"),
                         ("comm_metrics WHERE rank::text = '1' AND \"group\" <> '0'", "comm_metrics WHERE rank = 1"), ("hangs WHERE since > '2025-10-09'", "hangs"), ("whereabouts WHERE seen < '2025-10-10'", "whereabouts"),
                         ("hangs WHERE waiters = '5'", "hangs WHERE waiters = '5'")):
        counts = [ask(build, run, db, "SELECT count(*) AS n FROM " + part)[0][0]["n"] for part in (where, plain)]
        assert counts[0] == counts[1] and (counts[0] > 0 or where == plain), (where, counts)


def test_parentheses_within_each_other(build, run, tmp_path):
    """As deep as SQLite itself parses. Parts that are translated may be nested, and their translation does not take longer the deeper they
    are."""
    db = tmp_path / "t.db"
    with sqlite3.connect(str(db)) as c:
        c.execute("CREATE TABLE t(timestamp REAL)")
    c.close()
    (row,), _ = ask(build, run, db, "SELECT %sEXTRACT(year FROM 0)%s AS y" % ("(" * 40, ")" * 40))
    assert row == {"y": 1970}
    for text in ("(" * 99 + "EXTRACT(year FROM 0)" + ")" * 99, "extract(year FROM " * 3000 + "0" + ")" * 3000, "(" * 100):
        (tmp_path / "q.sql").write_text("SELECT " + text)
        assert "more than 99 parentheses lie within each other" in run([build.tool("probing-query"), db, "-f", tmp_path / "q.sql"], check=3).stderr
    part = "1"
    for _ in range(30):
        part = "(SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY m + %s) FROM (SELECT max(timestamp) AS m FROM t))" % part
    (tmp_path / "q.sql").write_text("SELECT " + part)
    assert run([build.tool("probing-query"), db, "-f", tmp_path / "q.sql"], check=None).returncode in (0, 3)
