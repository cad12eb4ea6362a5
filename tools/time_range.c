/* SPDX-License-Identifier: Apache-2.0 */
#include "time_range.h"

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "../converter/sql_functions.h"
#include "../converter/tables.h"

#define MOST 100000 /* instructions of SQLite */

/* seconds more than asked for; AT_ONCE: of views whose rows are of one moment */
#define MARGIN  10.0
#define AT_ONCE 1.0

/* The views, and by how many seconds more than asked for is converted: what a row says of the time around it (the step that a call is in, the end of a
 * collective) is then there. The whole of a step or a call is converted where any part of it lies in the range; what else takes longer
 * than the margin is found afterwards, by time_range_is_whole(). */
static const struct view {
    const char *name;
    double margin;
} views[] = {
    {"samples", AT_ONCE},
    {"backtrace", AT_ONCE},
    {"torch_trace", MARGIN},
    {"steps", MARGIN},
    {"comm_metrics", MARGIN},
    {"profiling_data", MARGIN},
    {NULL, 0},
};

struct range {
    double from, until;
    int opened, bounded; /* cursors that were opened, and that were given a lower bound */
    int refused;         /* a bound is no number */
    int long_rows;       /* rows of one of the views take a time */
};

struct table {
    sqlite3_vtab base;
    const struct view *view;
    struct range *range;
    int timestamp; /* number of that column */
};

struct cursor {
    sqlite3_vtab_cursor base;
    int bounded;
};

/* ---- empty tables which note the bounds that they are given ---- */

static int disconnect(sqlite3_vtab *t) {
    sqlite3_free(t);
    return SQLITE_OK;
}

/* argv[2]: the view's name; argv[3]: its columns, in parentheses; argv[4]: which of them is `timestamp` */
static int make(sqlite3 *db, void *ctx, int argc, const char *const *argv, sqlite3_vtab **out,
                char **error) {
    struct table *t = sqlite3_malloc(sizeof *t);
    char *sql = argc == 5 ? sqlite3_mprintf("CREATE TABLE t%s", argv[3]) : NULL;
    int rc = t && sql ? sqlite3_declare_vtab(db, sql) : SQLITE_NOMEM;

    (void)error;
    sqlite3_free(sql);
    if (rc != SQLITE_OK) {
        sqlite3_free(t);
        return rc;
    }
    *t = (struct table){.range = ctx, .view = views, .timestamp = atoi(argv[4])};
    while (t->view->name && strcmp(t->view->name, argv[2]) != 0)
        t->view++;
    *out = &t->base;
    return t->view->name ? SQLITE_OK : SQLITE_ERROR;
}

/* idxStr: for each bound that xFilter gets, whether it is a lower ('>') or an upper one ('<') or both ('=') */
static int best_index(sqlite3_vtab *base, sqlite3_index_info *info) {
    struct table *t = (struct table *)base;
    char kinds[16];
    int n = 0;

    for (int i = 0; i < info->nConstraint && n < (int)sizeof kinds - 1; i++) {
        int op = info->aConstraint[i].op;
        if (!info->aConstraint[i].usable || info->aConstraint[i].iColumn != t->timestamp)
            continue;
        if (op == SQLITE_INDEX_CONSTRAINT_GT || op == SQLITE_INDEX_CONSTRAINT_GE)
            kinds[n] = '>';
        else if (op == SQLITE_INDEX_CONSTRAINT_LT || op == SQLITE_INDEX_CONSTRAINT_LE)
            kinds[n] = '<';
        else if (op == SQLITE_INDEX_CONSTRAINT_EQ)
            kinds[n] = '=';
        else
            continue;
        info->aConstraintUsage[i].argvIndex = ++n;
    }
    kinds[n] = '\0';
    info->idxStr = sqlite3_mprintf("%s", kinds);
    info->needToFreeIdxStr = 1;
    info->estimatedCost = n ? 10 : 1e9;
    return info->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}

static int open_cursor(sqlite3_vtab *t, sqlite3_vtab_cursor **out) {
    struct cursor *c = sqlite3_malloc(sizeof *c);

    if (!c)
        return SQLITE_NOMEM;
    *c = (struct cursor){.bounded = 0};
    ((struct table *)t)->range->opened++;
    *out = &c->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *c) {
    sqlite3_free(c);
    return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *base, int number, const char *kinds, int n,
                  sqlite3_value **v) {
    struct cursor *c = (struct cursor *)base;
    const struct table *t = (const struct table *)base->pVtab;
    struct range *r = t->range;
    double from = -INFINITY, until = INFINITY;

    (void)number;
    for (int i = 0; i < n; i++) {
        int type = sqlite3_value_type(v[i]);
        double at = sqlite3_value_double(v[i]);
        r->refused |= type != SQLITE_INTEGER && type != SQLITE_FLOAT;
        if (kinds[i] != '<' && at > from)
            from = at;
        if (kinds[i] != '>' && at < until)
            until = at;
    }
    until += t->view->margin;
    if (!isfinite(from)) {
        r->refused = 1;
    } else if (!c->bounded) {
        c->bounded = 1;
        r->bounded++;
    }
    r->from = fmin(r->from, from - t->view->margin);
    r->until = fmax(r->until, until);
    r->long_rows |= t->view->margin > AT_ONCE;
    return SQLITE_OK;
}

static int at_end(sqlite3_vtab_cursor *c) {
    (void)c;
    return 1;
}

static int next(sqlite3_vtab_cursor *c) {
    (void)c;
    return SQLITE_OK;
}

static int column(sqlite3_vtab_cursor *c, sqlite3_context *ctx, int i) {
    (void)c, (void)i;
    sqlite3_result_null(ctx);
    return SQLITE_OK;
}

static int row_id(sqlite3_vtab_cursor *c, sqlite3_int64 *id) {
    (void)c;
    *id = 0;
    return SQLITE_OK;
}

static const sqlite3_module module = {.xCreate = make,
                                      .xConnect = make,
                                      .xBestIndex = best_index,
                                      .xDisconnect = disconnect,
                                      .xDestroy = disconnect,
                                      .xOpen = open_cursor,
                                      .xClose = close_cursor,
                                      .xFilter = filter,
                                      .xNext = next,
                                      .xEof = at_end,
                                      .xColumn = column,
                                      .xRowid = row_id};

/* ---- the text, run on them ---- */

static void now(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const double *at = sqlite3_user_data(ctx);

    (void)n, (void)v;
    sqlite3_result_double(ctx, *at);
}

/* Makes a table for each view in `db`, and again as python.NAME. `shape` is a database with the views. */
static int make_tables(sqlite3 *db, sqlite3 *shape) {
    static const char sql[] =
        "SELECT group_concat('\"' || name || '\"'), max(iif(name = 'timestamp', cid, NULL))"
        " FROM pragma_table_info(?)";
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(shape, sql, -1, &st, NULL);

    for (const struct view *v = views; rc == SQLITE_OK && v->name; v++) {
        sqlite3_bind_text(st, 1, v->name, -1, SQLITE_STATIC);
        if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 1) != SQLITE_NULL) {
            char *make_them =
                sqlite3_mprintf("CREATE VIRTUAL TABLE main.%s USING bounds((%s), %d);"
                                "CREATE VIRTUAL TABLE python.%s USING bounds((%s), %d)",
                                v->name, sqlite3_column_text(st, 0), sqlite3_column_int(st, 1),
                                v->name, sqlite3_column_text(st, 0), sqlite3_column_int(st, 1));
            rc = make_them ? sqlite3_exec(db, make_them, NULL, NULL, NULL) : SQLITE_NOMEM;
            sqlite3_free(make_them);
        }
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Returns how many tables the program of a statement opens, -1 when that cannot be told. */
static int count_opens(sqlite3 *db, const char *statement) {
    char *sql = sqlite3_mprintf("EXPLAIN %s", statement);
    sqlite3_stmt *st = NULL;
    int n = 0, rc = sql ? sqlite3_prepare_v2(db, sql, -1, &st, NULL) : SQLITE_NOMEM;

    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        n += strcmp((const char *)sqlite3_column_text(st, 1), "VOpen") == 0;
    sqlite3_finalize(st);
    sqlite3_free(sql);
    return rc == SQLITE_OK ? n : -1;
}

/* Runs the text. Returns 1 when each table that it reads was given a lower bound. A table of a part of the text that is not run without rows (the inner
 * one of a join) is not opened, or given no bound. */
static int run(sqlite3 *db, const char *sql, struct range *r) {
    int opens = 0, rc = SQLITE_OK;

    r->from = INFINITY;
    r->until = -INFINITY;
    r->opened = r->bounded = r->refused = r->long_rows = 0;
    while (rc == SQLITE_OK && *sql) {
        sqlite3_stmt *st = NULL;
        rc = sqlite3_prepare_v2(db, sql, -1, &st, &sql);
        if (rc == SQLITE_OK && st) {
            int n = sqlite3_stmt_readonly(st) && !sqlite3_stmt_isexplain(st)
                        ? count_opens(db, sqlite3_sql(st))
                        : -1;
            opens += n;
            if (n <= 0) /* changes something, or reads another table */
                rc = SQLITE_ERROR;
            for (int step = SQLITE_ROW; rc == SQLITE_OK && step != SQLITE_DONE;) {
                step = sqlite3_step(st);
                if (step != SQLITE_ROW && step != SQLITE_DONE)
                    rc = step;
            }
        }
        sqlite3_finalize(st);
    }
    return rc == SQLITE_OK && opens > 0 && r->opened == opens && r->bounded == opens &&
           !r->refused && isfinite(r->from);
}

/* Writes a bound that was `a` when now() was `now_a`, and `b` when it was `now_b`. Returns 0 when it depends on now() in another way than by a distance. */
static int bound(double a, double b, double now_a, double now_b, struct when *out) {
    const double same = 1e-3; /* seconds; less than each margin */
    double seconds;

    if (fabs(a - b) < same) {
        out->from = WHEN_UTC;
        seconds = a;
    } else if (fabs((now_a - a) - (now_b - b)) < same) {
        out->from = WHEN_BEFORE_LAST;
        seconds = now_a - a;
    } else {
        return 0;
    }
    return when_seconds(seconds, &out->ns) == 0 &&
           (out->from != WHEN_BEFORE_LAST || out->ns >= 0 || (out->ns = 0, 1));
}

/* Ends a text that does not end by itself. Without rows, others take some hundreds of SQLite's instructions. */
static int stop(void *unused) {
    (void)unused;
    return 1;
}

int time_range_of(const char *sql, struct when *since, struct when *until) {
    /* Two times, not a whole number of minutes, hours, days or weeks apart: what rounds now() rounds these differently. */
    double at, first = 1.7e9, second = 1.7e9 + 86400 * 400.37 + 1234.5;
    sqlite3 *db = NULL, *shape = NULL;
    struct when from = {.from = WHEN_NOT}, to = {.from = WHEN_NOT};
    struct range r, other;
    int found = 0, rc = sqlite3_open(":memory:", &shape);

    if (rc == SQLITE_OK)
        rc = tables_make_live(shape, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_open(":memory:", &db);
    if (rc == SQLITE_OK)
        rc = sqlite3_create_module(db, "bounds", &module, &r);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "ATTACH ':memory:' AS python", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = make_tables(db, shape);
    if (rc == SQLITE_OK)
        rc = sql_functions_register(db);
    if (rc == SQLITE_OK)
        rc = sqlite3_create_function(db, "now", 0, SQLITE_UTF8 | SQLITE_DETERMINISTIC, &at, now,
                                     NULL, NULL);
    if (rc == SQLITE_OK)
        sqlite3_progress_handler(db, MOST, stop, NULL);
    at = first;
    if (rc == SQLITE_OK && run(db, sql, &r)) {
        other = r;
        at = second;
        found = run(db, sql, &r) && bound(other.from, r.from, first, second, &from) &&
                (!isfinite(r.until) || !isfinite(other.until) ||
                 bound(other.until, r.until, first, second, &to));
    }
    if (found) {
        *since = from;
        *until = to;
    }
    sqlite3_close(db);
    sqlite3_close(shape);
    /* A distance from the end of the traces is a time in nanoseconds only when they have been read. */
    if (found && r.long_rows && until->from == WHEN_BEFORE_LAST)
        until->from = WHEN_NOT;
    return found && r.long_rows && until->from != WHEN_NOT ? TIME_RANGE_CHECK : found;
}

int time_range_is_whole(sqlite3 *db, const struct when *until) {
    static const char sql[] =
        "WITH later AS (SELECT first_id, last_id, end_ts FROM trace_file WHERE end_ts > ?2)"
        " SELECT NOT EXISTS (SELECT 1 FROM later t CROSS JOIN torch_step s ON s.id BETWEEN first_id AND last_id"
        "   WHERE s.ts <= ?1 AND coalesce(s.ts + s.duration, t.end_ts) > ?2)"
        " AND NOT EXISTS (SELECT 1 FROM later CROSS JOIN torch_call c ON c.id BETWEEN first_id AND last_id"
        "   WHERE c.ts <= ?1 AND c.duration IS NULL)"
        " AND NOT EXISTS (SELECT 1 FROM later CROSS JOIN comm k ON k.id BETWEEN first_id AND last_id"
        "   WHERE k.ts <= ?1 AND (k.flags & 1 OR k.ts + k.duration > ?2))"
        " AND NOT EXISTS (SELECT 1 FROM later CROSS JOIN span p ON p.id BETWEEN first_id AND last_id"
        "   WHERE p.ts <= ?1 AND NOT EXISTS (SELECT 1 FROM span_end e WHERE e.id = p.id))";
    sqlite3_stmt *st = NULL;
    int whole = 0;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK) {
        sqlite3_bind_int64(st, 1, when_add(until->ns, (int64_t)(-MARGIN * 1e9)));
        sqlite3_bind_int64(st, 2, until->ns);
        whole = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0);
    }
    sqlite3_finalize(st);
    return whole;
}
