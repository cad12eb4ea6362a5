# SPDX-License-Identifier: Apache-2.0
"""SQL as people know it from DataFusion (the original's engine) and DuckDB: each answer here was compared with theirs over the same rows. Truth values
are 0 or 1 here, times seconds since 1970, lists JSON texts."""
import sqlite3

import pytest
from test_sql_words import ask

NOON = 1769860800  # 2026-01-31 12:00:00 UTC
ROWS = [(NOON + 60 * i, i % 4, i // 4, ("forward", "backward", "step")[i % 3], ("Net", "Net.first", None, "a,b")[i % 4], None if i == 5 else i / 4) for i in range(12)]


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "t.db"
    with sqlite3.connect(str(path)) as c:
        c.execute("CREATE TABLE t(timestamp REAL, rank INTEGER, step INTEGER, stage TEXT, module TEXT, duration REAL)")
        c.executemany("INSERT INTO t VALUES(?, ?, ?, ?, ?, ?)", ROWS)
        c.execute("CREATE TABLE hosts(rank INTEGER, host TEXT, txt TEXT)")
        c.executemany("INSERT INTO hosts VALUES(?, ?, ?)", [(0, "h1", "1"), (1, "h1", "abc"), (2, "h2", "12"), (7, "h9", None)])
    c.close()
    return path


def values(build, run, db, query):
    rows = [list(r.values()) for r in ask(build, run, db, query)[0]]
    return [r[0] if len(r) == 1 else r for r in rows]


def check_values(build, run, db, wanted):
    """One query for all expressions: a process each would take a minute."""
    query = "SELECT " + ", ".join("%s AS v%d" % (e, i) for i, (e, _) in enumerate(wanted))
    got = values(build, run, db, query)[0]
    for (expression, want), value in zip(wanted, got):
        assert value == (want if not isinstance(want, float) else pytest.approx(want, rel=1e-9)), expression


def test_casts_of_what_is_no_number(build, run, db):
    """SQLite's CAST makes 0 of it; it was an answer, and a wrong one."""
    check_values(build, run, db, (
        ("'12'::int + ' 12 '::bigint", 24), ("'-3'::int", -3), ("2.7::int", 2), ("NULL::int", None), ("'1.5'::double", 1.5), ("'1e3'::real", 1000.0), ("'1.256'::decimal(10, 2)", 1.26),
        ("'-Infinity'::double < -1e300", 1), ("TRY_CAST('abc' AS int)", None), ("TRY_CAST('12.5' AS int)", None), ("TRY_CAST('x' AS decimal(10, 2))", None), ("TRY_CAST('7' AS bigint)", 7),
        ("TRY_CAST('2026-01-31' AS date)", NOON - 43200), ("TRY_CAST('2026-02-30' AS timestamp)", None), ("TRY_CAST('maybe' AS boolean)", None), ("TRY_CAST('on' AS boolean)", 1),
        ("arrow_cast('5', 'Int64') + arrow_cast(1, 'Float64')", 6.0), ("arrow_typeof(1) || arrow_typeof(1.5) || arrow_typeof('') || arrow_typeof(NULL)", "Int64Float64Utf8Null"),
        ("'2026-01-31 12:00:00+02'::timestamptz", NOON - 7200), ("'2026-01-31 12:00 -0130'::timestamp", NOON + 5400), ("'2026-01-31T12:00z'::timestamp", NOON),
        ("TIME '00:00' || ' ' || TIME '23:59:59.5'", "00:00:00 23:59:59.5")))
    assert values(build, run, db, "SELECT TRY_CAST(txt AS int) FROM hosts ORDER BY rank") == [1, None, 12, None]
    assert values(build, run, db, "SELECT rank FROM hosts WHERE TRY_CAST(txt AS int) = '12'") == [2]
    for wrong, says in (("'abc'::int", "no whole number: 'abc' (TRY_CAST gives NULL)"), ("CAST('12x' AS bigint)", "no whole number: '12x'"), ("'1e3'::int", "no whole number: '1e3'"), ("''::double", "no number: ''"),
                        ("1e20::int", "no whole number: '1.0e+20'"), ("'x'::decimal(10, 2)", "no number: 'x'"), ("'2026-02-30'::date", "no timestamp"), ("'2026-01-31 12:00 +99:00'::timestamp", "no timestamp"),
                        ("TIME '24:00'", "no timestamp"), ("TIME '23:60'", "no timestamp"), ("TIME '23:59:60'", "no timestamp"), ("TIME '12:00x'", "no timestamp"),
                        ("TRY_CAST('x' AS interval)", "TRY_CAST is for numbers, texts, truth values, timestamps and dates"), ("arrow_cast(1, 'Foo')", "arrow_cast: no type 'Foo'"),
                        ("timestamp AT TIME ZONE 'Europe/Berlin' FROM t", "AT TIME ZONE: times are UTC here")):
        assert says in ask(build, run, db, "SELECT " + wrong, code=3)[1], wrong


# Conditions, and how many of the twelve rows fulfil them: a text that SQLite would compare as a text with a number fulfils none, or all.
COUNTS = (
    ("(timestamp) > ('2026-01-31 12:05:00')", 6), ("timestamp IS DISTINCT FROM '2026-01-31 12:00:00'", 11), ("timestamp IS NOT DISTINCT FROM '2026-01-31 12:00:00'", 1), ("timestamp IS '2026-01-31 12:00'", 1),
    ("rank + 0 = '1'", 3), ("abs(rank) = '1'", 3), ("coalesce(rank, 0) = '1'", 3), ("rank * 2 IN ('2', '4')", 6), ("(rank) = '1'", 3), ("rank BETWEEN '1' AND '2'", 6), ("length(stage) = '4'", 4),
    ("hour(timestamp) = '12'", 12), ("rank::int = '1'", 3), ("rank / 2.0 = '0.5'", 3), ("stage || rank = 'step2'", 1), ("substr(stage || rank, 5) = '2'", 1), ("extract(minute FROM timestamp) >= '11'", 1),
    ("timestamp AT TIME ZONE 'UTC' > '2026-01-31 12:05:00'", 6), ("timestamp > '2026-01-31 12:05:00'::timestamp AT TIME ZONE 'UTC'", 6), ("timestamp > '2026-01-31 13:05:00+01'", 6), ("rank > 1_0 / 1_0", 6),
    # texts that are made: SQLite would find each of them greater than any time
    ("timestamp > '2026-01-31' || ' 12:05:00'", 6), ("timestamp > concat('2026-01-31', ' 12:05:00')", 6), ("timestamp > ('2026-01-31' || ' 12:05:00') AND rank = 2", 2),
    ("timestamp > CASE WHEN rank = 2 THEN '2026-01-31 12:05:00' ELSE '2027-01-01' END", 2), ("timestamp > coalesce(nullif(module, module), '2026-01-31 12:05:00')", 6),
    ("timestamp > (SELECT to_char(min(timestamp), 'YYYY-MM-DD HH24:MI:SS') FROM t)", 11), ("timestamp > replace('2026/01/31', '/', '-') + INTERVAL '12 hours 5 minutes'", 6),
    ("timestamp BETWEEN '2026-01-31' || ' 12:00' AND '2026-01-31 12:0' || '5:00' AND rank < 9", 6), ("timestamp NOT BETWEEN upper('2026-01-31 12:00') AND '2026-01-31 12:05:00'", 6),
    ("to_char(timestamp - 1, 'YYYY-MM-DD HH24:MI:SS') < timestamp", 12), ("timestamp > datetime('2026-01-31', '+725 minutes')", 6), ("timestamp::time >= '12:' || '05'", 7),
    # and before the time that they are compared with, and as one of several
    ("'2026-01-31' || ' 12:05:00' < timestamp", 6), ("concat('2026-01-31', ' 12:05:00') < t.timestamp AND rank = 2", 2), ("NOT ('2026-01-31 12' || ':05:00' >= timestamp)", 6),
    ("CASE WHEN rank = 2 THEN '2026-01-31 12:05:00' ELSE '2027-01-01' END < timestamp", 2), ("(SELECT min(to_char(timestamp, 'YYYY-MM-DD HH24:MI:SS')) FROM t) < timestamp", 11),
    ("timestamp IN ('2026-01-31' || ' 12:05:00')", 1), ("timestamp IN ('2026-01-31 12:00', '2026-01-31' || ' 12:05', concat('2026-01-31', ' 12:06:00'), 5)", 3),
    ("timestamp NOT IN ('2026-01-31 12:00', '2026-01-31' || ' 12:05') AND rank < 9", 10), ("timestamp IN (SELECT max(timestamp) FROM t)", 1), ("stage || rank IN ('step' || '2', 'x')", 1),
)


def test_comparisons_with_texts(build, run, db):
    for (where, n), count in zip(COUNTS, values(build, run, db, " UNION ALL ".join("SELECT count(*) AS n FROM t WHERE " + where for where, _ in COUNTS))):
        assert count == n, where
    for query, want in (("SELECT max(timestamp) FILTER (WHERE rank = 1) > '2026-01-31 12:05:00' AS a FROM t", [1]), ("SELECT count(*) AS n FROM (SELECT max(rank) AS r FROM t GROUP BY step) WHERE r > '2'", [3]),
                        ("SELECT count(*) FILTER (WHERE rank > 1) = '6' AS a FROM t", [1]), ("SELECT count(*) OVER () = '12' AS a FROM t LIMIT 1", [1]),
                        ("SELECT lag(timestamp) OVER (ORDER BY timestamp) > '2026-01-31 12:00:00' AS a FROM t ORDER BY timestamp LIMIT 3", [None, 0, 1]),
                        ("SELECT row_number() OVER (ORDER BY timestamp DESC) = '1' AS a FROM t ORDER BY timestamp DESC LIMIT 2", [1, 0]),
                        ("WITH a(r, moment) AS (SELECT rank, timestamp FROM t) SELECT count(*) AS n FROM a WHERE moment > '2026-01-31 12:05:00'", [6]),
                        ("SELECT count(*) AS n FROM (SELECT rank, timestamp FROM t) AS a(r, moment) WHERE moment > '2026-01-31 12:05:00' AND r < '9'", [6])):
        assert values(build, run, db, query) == want, query


def test_times_of_the_calendar(build, run, db):
    check_values(build, run, db, (
        ("TIMESTAMP '2026-01-31 12:00:00' + INTERVAL '1 month' = '2026-02-28 12:00:00'", 1), ("TIMESTAMP '2026-03-31 12:00:00' - INTERVAL 1 MONTH = '2026-02-28 12:00:00'", 1),
        ("DATE '2024-02-29' + INTERVAL '1 year' = '2025-02-28'", 1), ("TIMESTAMP '2026-01-31' + INTERVAL '1 month' + INTERVAL '1 month 2 days' = '2026-03-30'", 1),
        ("INTERVAL '1 month'", 2592000), ("TIMESTAMP '2026-01-31' - INTERVAL '1 month' * 2 = '2025-12-02'", 1), ("INTERVAL '1 second' / 2", 0.5), ("INTERVAL '5 s' / INTERVAL '2 s'", 2.5),
        ("TIMESTAMP '2026-01-31 12:00:00' + INTERVAL '01:30:00' = '2026-01-31 13:30'", 1), ("TIMESTAMP '2026-01-31' + INTERVAL (2 + 3) MINUTE = '2026-01-31 00:05'", 1), ("interval('5 min')", 300),
        ("date_bin(INTERVAL '1 month', TIMESTAMP '2026-01-31 12:10:00') = '2026-01-01'", 1), ("time_bucket('15 minutes', TIMESTAMP '2026-01-31 12:10:00')", NOON), ("time_bucket(INTERVAL '7 days', TIMESTAMP '2026-01-31') = '2026-01-26'", 1),
        ("date_bin(INTERVAL '15 minutes', TIMESTAMP '2026-01-31 12:10:00', TIMESTAMP '2026-01-01 00:05:00') = '2026-01-31 12:05'", 1), ("time_bucket(INTERVAL '1 quarter', TIMESTAMP '2026-05-31') = '2026-04-01'", 1),
        ("date_diff('minute', TIMESTAMP '2026-01-31 12:00:50', TIMESTAMP '2026-01-31 12:10:10')", 10), ("date_sub('minute', TIMESTAMP '2026-01-31 12:00:50', TIMESTAMP '2026-01-31 12:10:10')", 9),
        ("datediff('month', DATE '2026-01-31', DATE '2026-02-02')", 1), ("datesub('month', DATE '2026-01-31', DATE '2026-02-02')", 0), ("date_diff('week', DATE '2026-01-30', DATE '2026-02-02')", 1), ("datediff(DATE '2026-02-02', DATE '2026-01-31')", 2),
        ("date_diff('year', DATE '2026-12-31', DATE '2024-01-01')", -2), ("date_add(DATE '2026-01-31', INTERVAL 1 MONTH) = '2026-02-28'", 1), ("age(TIMESTAMP '2026-01-31 12:10', TIMESTAMP '2026-01-31 12:00')", 600),
        ("make_date(2026, 1, 31)", NOON - 43200), ("make_timestamp(2026, 1, 31, 12, 0, 5.5)", NOON + 5.5), ("last_day(DATE '2024-02-03') = '2024-02-29'", 1), ("dayname(DATE '2026-02-01') || monthname(DATE '2026-02-01')", "SundayFebruary"),
        ("extract(milliseconds FROM TIMESTAMP '2026-01-31 12:00:05.75')", 5750), ("date_part('isodow', DATE '2026-02-01') * 10 + dayofweek(DATE '2026-02-01')", 70), ("epoch_ms(TIMESTAMP '2026-01-31 12:00:05.75')", NOON * 1000 + 5750),
        ("date_trunc('millisecond', TIMESTAMP '2026-01-31 12:00:00.123456')", NOON + .123), ("strftime(TIMESTAMP '2026-01-31 12:10:00', '%H:%M')", "12:10"), ("strftime('%H:%M', TIMESTAMP '2026-01-31 12:10:00')", "12:10"),
        ("today() = current_date", 1), ("to_date('2026-01-31 12:00')", NOON - 43200)))
    for wrong, says in (("make_date(2026, 2, 30)", "no such day"), ("date_bin('1 month 1 day', 0)", "the width must be more than 0 seconds, or whole months"), ("date_diff('eon', 0, 0)", "no such part"), ("date_bin('x', 0)", "no interval")):
        assert says in ask(build, run, db, "SELECT " + wrong, code=3)[1], wrong


def test_functions_of_texts_and_numbers(build, run, db):
    check_values(build, run, db, (
        ("position('b' IN 'abc') + strpos('aéb', 'b')", 5), ("lpad('7', 3, '0') || rpad('é', 3, 'xy') || lpad('hello', 3) || lpad('a', 2)", "007éxyhel a"), ("initcap('hello wORLD-éa b')", "Hello World-éa B"),
        ("left('éabc', 2) || right('abc', 2) || left('abc', -1) || right('abc', -1) || left('a', 9)", "éabcabbca"), ("substring('abc' FROM 2 FOR 1) || substring('abc' FROM 2)", "bbc"),
        ("trim(BOTH 'x' FROM 'xax') || trim(LEADING 'x' FROM 'xax') || trim(TRAILING FROM 'b ') || btrim('xax', 'x')", "aaxba"), ("reverse('aéb') || repeat('ab', 2) || translate('abc', 'abc', 'xé')", "béaababxé"),
        ("overlay('abcdef' PLACING 'xx' FROM 2 FOR 3) || overlay('abc', 'x', 2)", "axxefaxc"), ("ascii('é') + octet_length('é') + bit_length('é') + character_length('é')", 233 + 2 + 16 + 1), ("to_hex(255)", "ff"),
        ("ends_with('abc', 'bc') + suffix('c', 'abc') + prefix('abc', 'a')", 2), ("levenshtein('kitten', 'sitting')", 3), ("concat('a', 1, NULL, 'b') || concat_ws('-', 'a', NULL, 'b')", "a1ba-b"), ("concat_ws(NULL, 'a')", None),
        ("find_in_set('b', 'a,b,c') + find_in_set('x', 'a') + find_in_set('', '')", 2), ("substr_index('a.b.c', '.', 2) || substr_index('a.b.c', '.', -1) || substr_index('a.b', '.', 9)", "a.bca.b"),
        ("cbrt(27)", 3.0), ("gcd(12, -18) + lcm(4, 6) + xor(5, 3) + bit_count(7) + factorial(5)", 6 + 12 + 6 + 3 + 120), ("trunc(-1.777, 2)", -1.77), ("isnan(1.5) + isinf('inf'::double) + isfinite(1)", 2),
        ("nvl2(1, 2, 3) * 10 + nvl2(NULL, 2, 3)", 23), ("if(1 > 2, 'a', 'b')", "b"), ("even(3.2) + even(-3.2) + cot(1)", 0.6420926159343306)))
    query = ("SELECT corr(duration, step), covar_samp(duration, step), covar_pop(duration, step), regr_slope(duration, step), regr_intercept(duration, step), regr_r2(duration, step), regr_count(duration, step),"
             " bit_and(rank), bit_or(rank), bit_xor(rank), count_if(rank > 1), approx_distinct(stage), product(step + 1), geomean(step + 1) FROM t")
    got = values(build, run, db, query)[0]
    assert got == pytest.approx([0.9470033192255471, 0.8, 0.7272727272727273, 1.0, 0.38636363636363646, 0.8968152866242035, 11, 0, 3, 0, 6, 3, 1296, 6 ** (1 / 3)])
    for expression, want in (("mode(stage)", "forward"), ("mode(module)", "Net"), ("mode(rank) FILTER (WHERE step = 1 OR rank = 3)", 3), ("mode(duration)", 0.0), ("mode(NULL)", None), ("mode(rank + 0.0)", 0.0), ("mode(1 << 62)", 1 << 62),
                             ("mode() WITHIN GROUP (ORDER BY rank)", 0), ("mode(timestamp) = '2026-01-31 12:00'", 1)):
        assert values(build, run, db, "SELECT %s AS v FROM t" % expression) == [want], expression
    assert values(build, run, db, "SELECT rank, mode(stage) AS m FROM t GROUP BY rank ORDER BY rank") == [[0, "forward"], [1, "backward"], [2, "step"], [3, "forward"]]
    assert values(build, run, db, "SELECT corr(rank, rank), bit_or(rank), count_if(rank), regr_count(rank, rank) FROM t WHERE rank > 9") == [[None, None, 0, 0]]


def test_clauses(build, run, db):
    for query, want in (("SELECT rank FROM hosts ORDER BY rank OFFSET 2", [2, 7]), ("SELECT CAST       (1 AS json) AS a, 2 AS b, CAST         ('3' AS json) AS c", [["1", 2, "3"]]), ("SELECT rank FROM hosts ORDER BY rank LIMIT ALL OFFSET 3", [7]), ("SELECT rank FROM hosts ORDER BY rank FETCH FIRST 2 ROWS ONLY", [0, 1]),
                        ("SELECT rank FROM hosts ORDER BY rank LIMIT 1 OFFSET 1", [1]), ("WITH hosts AS (SELECT rank FROM hosts WHERE rank > 1) SELECT rank FROM hosts ORDER BY rank", [2, 7]),
                        ("WITH t AS (SELECT rank FROM \"t\"), hosts AS (SELECT h.rank FROM hosts h JOIN t USING (rank)) SELECT DISTINCT rank FROM hosts ORDER BY 1", [0, 1, 2]),
                        ("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) SELECT n FROM c", [1, 2, 3]),
                        ("SELECT y, x FROM (VALUES (1, 'a'), (2, 'b')) AS v(x, y) ORDER BY x", [["a", 1], ["b", 2]]), ("SELECT s.x * 2 AS y FROM generate_series(1, 3) AS s(x)", [2, 4, 6])):
        assert values(build, run, db, query) == want, query
    for cut_off in ("arrow_cast(rank", "arrow_cast(", "position('a' IN", "trim(BOTH", "string_agg(rank ORDER BY", "CAST(rank AS", "left(", "INTERVAL (", "rank AT TIME ZONE"):
        assert ask(build, run, db, "SELECT " + cut_off, code=3)[1].startswith("probing-query: cannot answer: "), cut_off


def test_all_columns(build, run, db):
    for words, plain in (("SELECT rank, count(*) AS n, stage FROM t GROUP BY ALL ORDER BY ALL", "SELECT rank, count(*) AS n, stage FROM t GROUP BY rank, stage ORDER BY 1, 2, 3"),
                         ("SELECT rank % 2 AS p, max(rank, 1) AS m, sum(step) FILTER (WHERE rank > 0) AS s FROM t GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL DESC", "SELECT rank % 2 AS p, max(rank, 1) AS m, sum(step) FILTER (WHERE rank > 0) AS s FROM t GROUP BY 1, 2 ORDER BY 1 DESC, 2 DESC, 3 DESC"),
                         ("SELECT sum(n) AS s FROM (SELECT stage, count(*) AS n, (SELECT max(step) FROM t) AS m FROM t GROUP BY ALL) GROUP BY ALL", "SELECT 12 AS s"),
                         ("WITH a AS (SELECT rank FROM hosts ORDER BY ALL LIMIT 2) SELECT * FROM a ORDER BY ALL DESC NULLS LAST", "SELECT 1 AS rank UNION ALL SELECT 0")):
        assert values(build, run, db, words) == values(build, run, db, plain), words
    for wrong, says in (("SELECT * FROM t GROUP BY ALL", "GROUP BY ALL: name the columns that * stands for"), ("SELECT nope FROM t ORDER BY ALL", "no such column: nope"),
                        ("SELECT * EXCLUDE (rank, rank, nope) FROM t", "EXCLUDE (nope): a column of that name is not there"), ("SELECT * REPLACE (max(rank, 1) AS rank, 2 AS nope) FROM t", "REPLACE (2 AS nope): a column"),
                        ("SELECT * EXCLUDE nope FROM t", "EXCLUDE (nope): a column")):
        assert says in ask(build, run, db, wrong, code=3)[1], wrong


def test_times_of_a_given_form_and_lists(build, run, db):
    check_values(build, run, db, (
        ("to_timestamp('31/01/2026 12:00', '%d/%m/%Y %H:%M')", NOON), ("strptime('31/01/2026 12:00:01.25', '%d/%m/%Y %H:%M:%S.%f')", NOON + 1.25),
        ("to_timestamp('2026-01-31T12:00:01.250', '%Y-%m-%dT%H:%M:%S%.3f')", NOON + 1.25), ("to_timestamp('2026-01-31T12:00:01', '%Y-%m-%dT%H:%M:%S%.f')", NOON + 1),
        ("to_timestamp('2026-01-31 13:00 +0100', '%Y-%m-%d %H:%M %z')", NOON), ("to_date('31/01/2026 12:00', '%d/%m/%Y %H:%M')", NOON - 43200),
        ("to_timestamp('31-01-2026 01:05:00 PM', 'DD-MM-YYYY HH12:MI:SS AM')", NOON + 3900), ("to_timestamp('31/01/2026', '%Y-%m-%d', '%d/%m/%Y')", NOON - 43200),
        ("try_strptime('2026-02-30', '%Y-%m-%d')", None), ("strptime(NULL, '%Y')", None),
        ("make_array(1, 'a')", '[1,"a"]'), ("list_sort(json_array(3, 1, 2))", "[1,2,3]"), ("list_contains(make_array(1, 2), 2)", 1), ("array_length(NULL)", None)))
    for expression, want in (("len(list(step))", 12), ("length(array_agg(DISTINCT stage))", 3), ("length(list(rank ORDER BY step))", 12), ("array_length(array_agg(rank))", 12),
                             ("array_to_string(array_agg(DISTINCT stage ORDER BY stage), ', ')", "backward, forward, step"), ("list_sum(list(step)) = sum(step)", 1),
                             ("list_distinct(list(stage))", '["forward","backward","step"]')):
        assert values(build, run, db, "SELECT %s AS v FROM t" % expression) == [want], expression
    for wrong, said in (("SELECT strptime('x', '%Y')", "no time of the form '%Y': x"), ("SELECT strptime('2026-02-30', '%Y-%m-%d')", "no time of the form"), ("SELECT to_timestamp()", "its format"),
                        ("SUMMARIZE t", "write SELECT count(x)"), ("FROM t", "write SELECT * FROM"), ("SELECT * FROM t PIVOT (count(*) FOR stage IN ('step'))", "FILTER"), ("SELECT list_sort('x')", "JSON")):
        assert said in ask(build, run, db, wrong, code=3)[1], wrong


def test_tables_that_are_functions_where_only_reading_is_allowed(build, run, db):
    """As over HTTP. SQLite asks whether they may be created."""
    for query, n in (("SELECT value FROM json_each('[1, 2]')", 2), ("SELECT value FROM generate_series(1, 3)", 3), ("SELECT rank, count(*) AS n FROM t GROUP BY ALL", 4),
                     ("SELECT array_length(list_sort(list(rank))) AS n FROM t", 1), ("SELECT name FROM pragma_table_info('t')", 6)):
        assert len(ask(build, run, db, query, "--restricted")[0]) == n, query
    for query in ("CREATE TABLE x(a)", "CREATE TEMP TABLE x(a)", "PRAGMA query_only = OFF", "CREATE VIRTUAL TABLE temp.j USING json_each", "DELETE FROM t"):
        assert "not authorized" in ask(build, run, db, query, "--restricted", code=3)[1], query


def test_order_within_aggregates(build, run, db):
    check_values(build, run, db, [("(SELECT %s FROM t)" % e, want) for e, want in (
        ("string_agg(rank, '|' ORDER BY step DESC, rank)", "0|1|2|3|0|1|2|3|0|1|2|3"), ("string_agg(DISTINCT stage, ', ' ORDER BY stage DESC)", "step, forward, backward"), ("string_agg(DISTINCT stage, '-')", "forward-backward-step"),
        ("string_agg(module, ';' ORDER BY module) FILTER (WHERE step = 1)", "Net;Net.first;a,b"), ("string_agg(stage || ';', '' ORDER BY rank, step) FILTER (WHERE rank = 0)", "forward;backward;step;"),
        ("array_agg(rank ORDER BY rank DESC) FILTER (WHERE step = 0)", "[3,2,1,0]"), ("array_agg(DISTINCT module ORDER BY module)", '["Net","Net.first","a,b",null]'), ("list(duration ORDER BY duration NULLS FIRST) FILTER (WHERE step = 1)", "[null,1.0,1.5,1.75]"),
        ("array_agg(duration ORDER BY duration DESC) FILTER (WHERE step = 1)", "[null,1.75,1.5,1.0]"), ("array_agg(module ORDER BY rank)[2]", "Net"),
        ("first_value(rank ORDER BY step DESC, rank DESC)", 3), ("last_value(rank ORDER BY step, rank)", 3), ("nth_value(rank, 2 ORDER BY step DESC, rank)", 1), ("nth_value(rank, 99 ORDER BY step)", None),
        ("first_value(rank)", 0), ("last(step ORDER BY timestamp)", 2), ("string_agg(stage, ',' ORDER BY rank) FILTER (WHERE rank > 9)", None))])
    assert values(build, run, db, "SELECT first_value(rank) OVER (ORDER BY timestamp DESC) AS a, string_agg(stage, ',') OVER (ORDER BY timestamp DESC) AS b FROM t ORDER BY timestamp DESC LIMIT 1") == [[3, "step"]]
    assert "at most four keys" in ask(build, run, db, "SELECT array_agg(rank ORDER BY 1, 2, 3, 4, 5) FROM t", code=3)[1]


def test_functions_in_the_stock_shell(build, run, db):
    done = run(["sqlite3", db, ".load %s" % (build.lib / "probing"), "SELECT ordered('list', 'al', rank, NULL, rank), date_add('2026-01-31', '1 month') = to_timestamp('2026-02-28'), lpad('7', 3, '0'), corr(rank, rank),"
                " date_diff('day', 0, 86400), text_left('abc', 1), concat_ws('-', 1, 2), try_int('x') FROM hosts"])
    assert done.stdout.strip() == "[0,1,2,7]|1|007|1.0|1|a|1-2|"


def test_regular_expressions(build, run, db):
    check_values(build, run, db, (
        ("'abc' ~ '^a'", 1), ("'abc' !~ '^a'", 0), ("'ABC' ~* 'b.$'", 1), ("'ABC' !~* 'b.$'", 0), ("'abc' REGEXP 'b' AND 'abc' RLIKE 'c$' AND NOT 'abc' REGEXP '^b'", 1), ("regexp_like('ABC', 'abc', 'i') + regexp_matches('abc', 'b')", 2),
        ("regexp_full_match('abc', 'ab') * 10 + regexp_full_match('abc', 'a.c|a') + regexp_full_match('abc', 'a|abc')", 2), ("regexp_replace('abcabc', 'b', 'x') || regexp_replace('abcabc', 'b', 'x', 'g')", "axcabcaxcaxc"),
        ("regexp_replace('foo bar', '(\\w+) (\\w+)', '\\2 ${1}')", "bar foo"), ("regexp_replace('aéb', '', '-', 'g')", "-a-é-b-"), ("regexp_extract('step_12', '(\\d+)', 1) || regexp_extract('step', '\\d+') || regexp_extract('ab', 'b')", "12b"),
        ("regexp_match('step_12', '(\\w+)_(\\d+)(x)?')", '["step","12",null]'), ("regexp_match('a\"b', 'a.b')", '["a\\"b"]'), ("regexp_match('step_12', '(\\d+)')[1]", "12"), ("regexp_match('a', 'b')", None),
        ("regexp_count('abcabc', 'b') * 100 + regexp_count('abcabc', 'b', 3) * 10 + regexp_count('ABC', 'b', 1, 'i')", 211), ("NULL ~ 'a'", None), ("~5", -6), ("-~5", 6)))
    assert values(build, run, db, "SELECT count(*) AS n FROM t WHERE module ~ 'first|,' OR regexp_like(module, '^Net$')") == [9]
    assert values(build, run, db, "SELECT h.host ~ r.p AS a FROM hosts h, (VALUES ('1'), ('^h[29]')) AS r(p) ORDER BY h.rank, r.p") == [1, 0, 1, 0, 0, 1, 0, 1]
    for wrong, says in (("'a' ~ '('", "no regular expression: '(': missing closing parenthesis (at byte 1)"), ("regexp_like('a', 'a', 'x')", "the flags of a regular expression are i (ignore case) and g (all)"), ("regexp_extract('a', 'a', 1)", "has no group of that number"),
                        ("'%sb' ~ '^(a+)+$'" % ("a" * 60), "takes too many steps")):
        assert says in ask(build, run, db, "SELECT " + wrong, code=3)[1], wrong


def test_files_of_other_systems(build, run, db, tmp_path):
    """A byte order mark is no part of the first word, and what follows a NUL is not left out silently."""
    query = [build.tool("probing-query"), "--csv", "-f", tmp_path / "q.sql", db]
    (tmp_path / "q.sql").write_bytes(b"\xef\xbb\xbfSHOW TABLES;\r\n-- the end\r\n")
    assert "hosts" in run(query).stdout
    for text in (b"SELECT 1;\0SELECT 2", "SELECT 1".encode("utf-16")):
        (tmp_path / "q.sql").write_bytes(text)
        assert "it has a NUL byte (SQL is a text in UTF-8)" in run(query, check=3).stderr
