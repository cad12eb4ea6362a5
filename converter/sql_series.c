/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_series.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SERIES_VALUE, SERIES_FIRST, SERIES_LAST, SERIES_STEP };
enum { SERIES_HAS_STEP = 4, SERIES_HAS_ALL = 3 };

#define SERIES_MOST INT64_C(9000000000000000) /* values */

struct series {
    sqlite3_vtab_cursor base;
    int real;
    double first, step; /* value n is first + n * step, so that errors do not add up */
    int64_t whole_first, whole_step, n, count;
};

static int series_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                          sqlite3_vtab **out, char **error) {
    (void)aux, (void)argc, (void)argv, (void)error;
    int rc = sqlite3_declare_vtab(
        db, "CREATE TABLE series(value, first HIDDEN, last HIDDEN, step HIDDEN)");
    if (rc == SQLITE_OK && !(*out = sqlite3_malloc(sizeof **out)))
        rc = SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        memset(*out, 0, sizeof **out);
    return rc;
}

static int series_disconnect(sqlite3_vtab *t) {
    sqlite3_free(t);
    return SQLITE_OK;
}

/* Takes the arguments in the order of the columns. Both ends are required, because otherwise the series would never end. */
static int series_best(sqlite3_vtab *t, sqlite3_index_info *info) {
    int at[SERIES_STEP + 1] = {0}, n = 0;

    for (int i = 0; i < info->nConstraint; i++) {
        int column = info->aConstraint[i].iColumn;
        if (column < SERIES_FIRST || info->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ)
            continue;
        if (!info->aConstraint[i].usable)
            return SQLITE_CONSTRAINT;
        at[column] = i + 1;
    }
    for (int column = SERIES_FIRST; column <= SERIES_STEP; column++) {
        if (!at[column])
            continue;
        info->idxNum |= 1 << (column - SERIES_FIRST);
        info->aConstraintUsage[at[column] - 1].argvIndex = ++n;
        info->aConstraintUsage[at[column] - 1].omit = 1;
    }
    if ((info->idxNum & SERIES_HAS_ALL) != SERIES_HAS_ALL) {
        sqlite3_free(t->zErrMsg);
        t->zErrMsg = sqlite3_mprintf("generate_series(first, last[, step])");
        return SQLITE_ERROR;
    }
    info->estimatedCost = info->estimatedRows = 1000;
    return SQLITE_OK;
}

static int series_open(sqlite3_vtab *t, sqlite3_vtab_cursor **out) {
    struct series *s = sqlite3_malloc(sizeof *s);

    (void)t;
    if (!s)
        return SQLITE_NOMEM;
    memset(s, 0, sizeof *s);
    *out = &s->base;
    return SQLITE_OK;
}

static int series_close(sqlite3_vtab_cursor *c) {
    sqlite3_free(c);
    return SQLITE_OK;
}

/* Returns how many whole numbers there are from `first` to `last`. Times in nanoseconds have more digits than a double. */
static int64_t series_whole(int64_t first, int64_t last, int64_t step) {
    if (step > 0 ? last < first : last > first)
        return 0;
    uint64_t apart = step > 0 ? (uint64_t)last - (uint64_t)first : (uint64_t)first - (uint64_t)last,
             each = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return each && apart / each < SERIES_MOST ? (int64_t)(apart / each) + 1 : SERIES_MOST;
}

static int series_filter(sqlite3_vtab_cursor *c, int index, const char *text, int argc,
                         sqlite3_value **v) {
    struct series *s = (struct series *)c;
    int has_step = (index & SERIES_HAS_STEP) != 0;

    (void)text;
    s->n = s->count = s->real = 0;
    for (int i = 0; i < argc; i++) {
        int type = sqlite3_value_numeric_type(v[i]);
        if (type != SQLITE_INTEGER && type != SQLITE_FLOAT)
            return SQLITE_OK; /* a NULL or a text gives no rows */
        s->real |= type == SQLITE_FLOAT;
    }
    double last = sqlite3_value_double(v[1]);
    s->first = sqlite3_value_double(v[0]);
    s->step = has_step ? sqlite3_value_double(v[2]) : 1;
    s->whole_first = sqlite3_value_int64(v[0]);
    s->whole_step = has_step ? sqlite3_value_int64(v[2]) : 1;
    if (s->step == 0) {
        sqlite3_free(c->pVtab->zErrMsg);
        c->pVtab->zErrMsg = sqlite3_mprintf("generate_series: a step of 0 never ends");
        return SQLITE_ERROR;
    }
    if (!s->real) {
        s->count = series_whole(s->whole_first, sqlite3_value_int64(v[1]), s->whole_step);
        return SQLITE_OK;
    }
    double steps = floor((last - s->first) / s->step + 1e-9);
    s->count = !(steps >= 0) ? 0 : steps < (double)SERIES_MOST ? (int64_t)steps + 1 : SERIES_MOST;
    return SQLITE_OK;
}

static int series_next(sqlite3_vtab_cursor *c) {
    ((struct series *)c)->n++;
    return SQLITE_OK;
}

static int series_eof(sqlite3_vtab_cursor *c) {
    const struct series *s = (struct series *)c;

    return s->n >= s->count;
}

static int series_column(sqlite3_vtab_cursor *c, sqlite3_context *ctx, int column) {
    const struct series *s = (struct series *)c;

    if (column != SERIES_VALUE)
        sqlite3_result_null(ctx);
    else if (s->real)
        sqlite3_result_double(ctx, s->first + (double)s->n * s->step);
    else
        /* intermediate results may overflow, but the value does not */
        sqlite3_result_int64(
            ctx, (int64_t)((uint64_t)s->whole_first + (uint64_t)s->n * (uint64_t)s->whole_step));
    return SQLITE_OK;
}

static int series_row(sqlite3_vtab_cursor *c, sqlite3_int64 *out) {
    *out = ((struct series *)c)->n;
    return SQLITE_OK;
}

int sql_series_register(sqlite3 *db) {
    static const sqlite3_module module = {
        .xConnect = series_connect, /* no xCreate: the table exists by its name */
        .xBestIndex = series_best,
        .xDisconnect = series_disconnect,
        .xOpen = series_open,
        .xClose = series_close,
        .xFilter = series_filter,
        .xNext = series_next,
        .xEof = series_eof,
        .xColumn = series_column,
        .xRowid = series_row};
    sqlite3_stmt *st = NULL;
    int there = sqlite3_prepare_v2(db, "SELECT value FROM generate_series(1, 1)", -1, &st, NULL) ==
                SQLITE_OK;

    sqlite3_finalize(st);
    return there ? SQLITE_OK : sqlite3_create_module(db, "generate_series", &module, NULL);
}
