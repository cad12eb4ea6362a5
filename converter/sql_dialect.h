/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_dialect.h - translates SQL as other engines know it into the SQL of SQLite.
 *
 *     char *sql, why[SQL_DIALECT_WHY];
 *     int err = sql_dialect("SELECT now() - INTERVAL '5 min'", &sql, why);   // "SELECT now() - (300.0)"
 *     ... free(sql);
 *
 *     INTERVAL '1 hour 30 min', INTERVAL '5' MINUTE, INTERVAL 5 MINUTE    seconds (a month is 30 days, a year 365, where it is not added to a time)
 *     EXTRACT(hour FROM ts)                   date_part('hour', ts)
 *     timestamp > '2026-01-31 12:00', BETWEEN '...' AND '...'     to_timestamp('...'), where a string is compared with a column of times (when.h)
 *     the same in IN (...), NOT BETWEEN and coalesce(...), and for a name that the text gives to a time (max(timestamp) AS m ... HAVING m > '...')
 *     TIMESTAMP '2026-01-31', CAST(x AS TIMESTAMP), x::timestamp  to_timestamp(x)        x::int     CAST(as_int(x) AS INTEGER) (sql_types.h)
 *     x::date, x::time, x::boolean, x::decimal(10, 2), x::json, timestamp::text, timestamp LIKE '2026-%'    functions that give what other engines give
 *     x::date + 1, x::date - y::date          in days        timestamp + '1 hour'     in seconds
 *     CURRENT_TIMESTAMP                       now()
 *     $$text$$, array_agg(x)[1], round(x, -2), random() < 0.1     'text', the list's first element, x in hundreds, a tenth of the rows
 *     datetime(timestamp), strftime('%H', timestamp)      the same with 'unixepoch': SQLite takes such a number for days
 *     percentile_cont(0.9) WITHIN GROUP (ORDER BY x)      percentile_cont(x, 0.9)
 *     a ILIKE b                               a LIKE b (which ignores the case of ASCII letters)
 *     string_agg, strpos, char_length, variance, nvl      group_concat, instr, length, var_samp, ifnull
 *     array_agg, list, bool_and, every, bool_or           json_group_array (a text), min, min, max
 *     len(list(x)), make_array(1, 2)          array_length(list(x)), json_array(1, 2)
 *     timestamp > a || b, > to_char(...), > (SELECT ...)  to_timestamp(...) around what may be a text (sql_operand.h)
 *     SHOW TABLES | VIEWS | SCHEMAS | ALL | COLUMNS FROM t, DESCRIBE t (DESC t)     a SELECT on information_schema
 *
 *     ts + INTERVAL '1 month'                 date_add(ts, '1 month', +1): a month of the calendar
 *     x ~ p, x !~ p, x ~* p                   x REGEXP p, x NOT REGEXP p, x REGEXP '(?i)' || p (converter/sql_regex.h)
 *     and what sql_grammar.h and sql_cte.h say
 *
 * QUALIFY and DISTINCT ON stay in the text for sql_select.h, * EXCLUDE for sql_star.h, GROUP BY ALL for sql_all.h. The syntax that sql_foreign.h knows is refused. Everything else,
 * comments and quoted names among it, stays as it is: SQLite finds the errors in it.
 * The functions are in converter/sql_functions.h, information_schema in converter/sql_schemas.h.
 */
#ifndef PROBING_CONVERTER_SQL_DIALECT_H
#define PROBING_CONVERTER_SQL_DIALECT_H

#define SQL_DIALECT_WHY 200

/* The text may hold any number of statements. *out: malloc'ed. Returns 0, -ENOMEM, or -EINVAL (such as for an unknown type) with a sentence in `why`. */
int sql_dialect(const char *sql, char **out, char why[SQL_DIALECT_WHY]);

#endif
