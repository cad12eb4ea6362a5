/* SPDX-License-Identifier: Apache-2.0 */
#include "vtab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SQLITE_EXTENSION_INIT1
#include <sqlite3.h>
#endif

#include "text.h"

struct vtab {
    sqlite3_vtab base; /* must be first, for SQLite */
    struct reader *reader;
    struct epochs *epochs;
    const struct strips *strips;
    uint64_t lo, hi; /* rows of other times are counted but left out; 0, 0: no limit */
    size_t first;    /* first block that is read */
    sqlite3_int64 rows_before;
    const struct vtab_shared *const
        *shared; /* where reader, epochs and strips come from, anew for each cursor; or NULL */
    int hinted; /* only some records are wanted: types in hints are believed before the block is read, as by reader_want() */
    int owned;  /* reader and epochs must be freed here */
    const struct trace_record *rec;
    int time_col; /* the first time column, -1 if none */
    uint64_t rows;
};

struct cursor {
    sqlite3_vtab_cursor base;
    struct reader_data data;
    struct trace_rows rows;
    struct trace_value v[TRACE_MAX_FIELDS];
    size_t block; /* 1 + the block being read */
    uint64_t lo, hi;
    sqlite3_int64 rowid;
    int eof;
};

/* idxNum: which time bounds argv contains, in this order. */
enum { FROM = 1, UNTIL = 2 };

/* Returns an argument of CREATE VIRTUAL TABLE without its quotes. */
static char *unquote(const char *arg) {
    size_t n = strlen(arg);
    char *out = sqlite3_mprintf("%s", arg);

    if (!out || n < 2 || (arg[0] != '\'' && arg[0] != '"') || arg[n - 1] != arg[0])
        return out;
    char *q = out;
    for (size_t i = 1; i + 1 < n; i++) {
        *q++ = arg[i];
        if (arg[i] == arg[0] && arg[i + 1] == arg[0] && i + 2 < n)
            i++;
    }
    *q = 0;
    return out;
}

static int declare(sqlite3 *db, const struct trace_record *rec) {
    char sql[2048];
    size_t n = 0;

    n += (size_t)snprintf(sql, sizeof sql, "CREATE TABLE x(");
    for (unsigned i = 0; i < rec->nfields; i++) {
        const char *type = "INTEGER";
        switch (rec->fields[i].type) {
        case TRACE_F:
            type = "REAL";
            break;
        case TRACE_STR:
        case TRACE_TXT:
        case TRACE_REFS:
        case TRACE_US:
            type = "TEXT";
            break;
        case TRACE_BIN:
            type = "BLOB";
            break;
        default:
            break;
        }
        n += (size_t)snprintf(sql + n, sizeof sql - n, "\"%s\" %s, ", rec->fields[i].name, type);
    }
    snprintf(sql + n, sizeof sql - n, "epoch INTEGER HIDDEN, block INTEGER HIDDEN)");
    return sqlite3_declare_vtab(db, sql);
}

static int vtab_disconnect(sqlite3_vtab *base) {
    struct vtab *t = (struct vtab *)base;

    if (t->owned) {
        epochs_free(t->epochs);
        reader_close(t->reader);
    }
    sqlite3_free(t);
    return SQLITE_OK;
}

static void take_shared(struct vtab *t) {
    const struct vtab_shared *s = *t->shared;

    t->reader = s->reader;
    t->epochs = s->epochs;
    t->first = s->first;
    t->rows_before = s->rows_before;
    t->hinted = s->types != 0;
    t->strips = STRIPS_TYPES >> t->rec->id & 1 ? s->strips : NULL;
    int is_bounded = s->hi && t->rec->kind == TRACE_KIND_DATA && !(READER_ALWAYS >> t->rec->id & 1);
    t->lo = is_bounded ? s->lo : 0;
    t->hi = is_bounded ? s->hi : 0;
}

static int vtab_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                        sqlite3_vtab **out, char **msg) {
    const struct vtab_shared *const *shared = aux;
    struct vtab *t = NULL;
    char *path = NULL, *name = NULL;
    int rc = SQLITE_ERROR, err = 0;

    if (argc != 5 && argc != 6) {
        *msg = sqlite3_mprintf("usage: probing_trace('FILE.zst', 'RECORD' [, NUMBER])");
        return SQLITE_ERROR;
    }
    path = unquote(argv[3]);
    name = unquote(argv[4]);
    t = sqlite3_malloc(sizeof *t);
    if (!path || !name || !t) {
        rc = SQLITE_NOMEM;
        goto out;
    }
    memset(t, 0, sizeof *t);
    t->rec = trace_record_by_name(name);
    if (!t->rec) {
        *msg = sqlite3_mprintf("no record is called %s; for example: sample, cpu, memory", name);
        goto out;
    }
    if (shared) {
        t->shared = shared;
        take_shared(t);
    } else {
        t->owned = 1;
        err = reader_open(&t->reader, path);
        for (long i = argc == 6 ? strtol(argv[5], NULL, 10) : 1; !err && i > 1; i--) {
            err = reader_next(t->reader);
            err = err > 0 ? 0 : err ? err : -ENODATA;
        }
        if (!err && !(t->epochs = epochs_new(t->reader)))
            err = -ENOMEM;
        if (err) {
            *msg = sqlite3_mprintf("%s: %s", path, reader_strerror(err));
            rc = err == -ENOMEM ? SQLITE_NOMEM : SQLITE_ERROR;
            goto out;
        }
    }
    t->time_col = -1;
    for (unsigned i = 0; i < t->rec->nfields && t->time_col < 0; i++)
        if (t->rec->fields[i].type == TRACE_T || t->rec->fields[i].type == TRACE_TUS)
            t->time_col = (int)i;
    for (size_t i = 0; i < reader_blocks(t->reader); i++) {
        const struct reader_block *b = reader_block(t->reader, i);
        if (b->types >> t->rec->id & 1)
            t->rows += b->count;
    }
    rc = declare(db, t->rec);
    /* it opens files, so it must not be used by triggers or views of a database from somebody else */
    if (rc == SQLITE_OK)
        sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
out:
    sqlite3_free(path);
    sqlite3_free(name);
    if (rc != SQLITE_OK && t) {
        vtab_disconnect(&t->base);
        t = NULL;
    }
    *out = t ? &t->base : NULL;
    return rc;
}

static int vtab_best_index(sqlite3_vtab *base, sqlite3_index_info *info) {
    struct vtab *t = (struct vtab *)base;
    int from = -1, until = -1, n = 0;

    for (int i = 0; i < info->nConstraint; i++) {
        if (!info->aConstraint[i].usable || info->aConstraint[i].iColumn != t->time_col ||
            t->time_col < 0)
            continue;
        switch (info->aConstraint[i].op) {
        case SQLITE_INDEX_CONSTRAINT_EQ:
            from = until = i;
            break;
        case SQLITE_INDEX_CONSTRAINT_GT:
        case SQLITE_INDEX_CONSTRAINT_GE:
            from = i;
            break;
        case SQLITE_INDEX_CONSTRAINT_LT:
        case SQLITE_INDEX_CONSTRAINT_LE:
            until = i;
            break;
        }
    }
    if (from >= 0 && from == until) { /* one argument serves both */
        info->aConstraintUsage[from].argvIndex = 1;
    } else {
        if (from >= 0)
            info->aConstraintUsage[from].argvIndex = ++n;
        if (until >= 0)
            info->aConstraintUsage[until].argvIndex = ++n;
    }
    info->idxNum = (from >= 0 ? FROM : 0) | (until >= 0 ? UNTIL : 0) | (from == until ? 4 : 0);
    double part = (from >= 0 ? 0.25 : 1) * (until >= 0 ? 0.25 : 1);
    info->estimatedRows = (sqlite3_int64)((double)t->rows * part) + 1;
    info->estimatedCost = (double)info->estimatedRows;
    return SQLITE_OK;
}

static int vtab_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out) {
    struct vtab *t = (struct vtab *)base;
    struct cursor *c = calloc(1, sizeof *c);

    if (!c)
        return SQLITE_NOMEM;
    if (t->shared)
        take_shared(t);
    *out = &c->base;
    return SQLITE_OK;
}

static int vtab_close(sqlite3_vtab_cursor *base) {
    struct cursor *c = (struct cursor *)base;

    reader_data_free(&c->data);
    free(c);
    return SQLITE_OK;
}

/* Moves on to the next row of the record type. */
static int vtab_next(sqlite3_vtab_cursor *base) {
    struct cursor *c = (struct cursor *)base;
    struct vtab *t = (struct vtab *)base->pVtab;
    const uint64_t want = 1ull << t->rec->id;
    int bounded = c->lo > 0 || c->hi < UINT64_MAX;

    for (;;) {
        if (c->block) {
            int type = trace_rows_next(&c->rows, want, c->v);
            if (type > 0) {
                c->rowid++;
                if (t->hi && t->time_col >= 0 &&
                    (c->v[t->time_col].u < t->lo || c->v[t->time_col].u > t->hi))
                    continue;
                return SQLITE_OK;
            }
            if (type < 0)
                reader_damaged(t->reader, c->block - 1);
        }
        const struct reader_block *b;
        do {
            if (c->block >= reader_blocks(t->reader)) {
                c->eof = 1;
                return SQLITE_OK;
            }
            b = reader_block(t->reader, c->block++);
            /* otherwise an unchecked hint is believed about times only */
        } while (((t->hinted || b->state != READER_UNREAD) &&
                  !reader_may_hold(t->reader, c->block - 1, want)) ||
                 b->state == READER_BAD ||
                 (b->last_ts ? b->first_ts > c->hi || b->last_ts < c->lo : bounded));
        const uint8_t *rows;
        if (t->strips && strips_rows(t->strips, c->block - 1, &c->data.h, &rows)) {
            trace_rows_start(&c->rows, &c->data.h, rows);
            continue;
        }
        int err = reader_load(t->reader, c->block - 1, &c->data);
        if (err == -ENOMEM)
            return SQLITE_NOMEM;
        if (err) {
            c->rows.p = c->rows.end;
            continue;
        }
        trace_rows_start(&c->rows, &c->data.h, c->data.data);
    }
}

/* Returns a bound as a time. A bound that is not a number does not restrict anything. */
static uint64_t bound(sqlite3_value *v, int upper) {
    double d = sqlite3_value_double(v);

    if (sqlite3_value_type(v) == SQLITE_INTEGER) {
        sqlite3_int64 i = sqlite3_value_int64(v);
        return i < 0 ? 0 : (uint64_t)i;
    }
    if (sqlite3_value_type(v) != SQLITE_FLOAT || d != d)
        return upper ? UINT64_MAX : 0;
    if (d <= 0)
        return 0;
    return d >= 9e18 ? (upper ? UINT64_MAX : (uint64_t)9e18) : (uint64_t)d + (upper ? 1 : 0);
}

static int vtab_filter(sqlite3_vtab_cursor *base, int idx, const char *str, int argc,
                       sqlite3_value **argv) {
    struct cursor *c = (struct cursor *)base;
    const struct vtab *t = (struct vtab *)base->pVtab;
    int i = 0;

    (void)str;
    c->block = t->first;
    c->eof = 0;
    c->rowid = t->rows_before;
    c->lo = 0;
    c->hi = UINT64_MAX;
    if (idx & FROM && i < argc)
        c->lo = bound(argv[i++], 0);
    if (idx & UNTIL && (idx & 4 ? 1 : i < argc))
        c->hi = bound(argv[idx & 4 ? 0 : i], 1);
    return vtab_next(base);
}

static int vtab_eof(sqlite3_vtab_cursor *base) {
    return ((struct cursor *)base)->eof;
}

static void result_text(struct vtab *t, sqlite3_context *ctx, const void *p, size_t n) {
    size_t len;
    if (!reader_allow(t->reader, n / 64))
        n = n < 64 ? n : 64;
    char *text = text_utf8(p, n, &len);

    if (text)
        sqlite3_result_text64(ctx, text, len, free, SQLITE_UTF8);
    else
        sqlite3_result_error_nomem(ctx);
}

/* Writes x in decimal, and returns the place after it. Each of 10,000 ranks lists them all: sprintf() took half the time of reading such a job. */
static char *put_number(char *p, uint64_t x) {
    char digits[20];
    int n = 0;

    do
        digits[n++] = (char)('0' + x % 10);
    while (x /= 10);
    while (n)
        *p++ = digits[--n];
    return p;
}

/* Writes [1,2,3]: unsigned 64-bit numbers in decimal, which cannot be negative. */
static void result_list(sqlite3_context *ctx, struct trace_value v) {
    char *json = malloc((size_t)v.n * 21 + 3), *p = json;
    uint64_t prev = 0, x;

    if (!json) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    *p++ = '[';
    while (trace_list_next(&v, &prev, &x)) {
        if (p[-1] != '[')
            *p++ = ',';
        p = put_number(p, x);
    }
    *p++ = ']';
    *p = 0;
    sqlite3_result_text64(ctx, json, (sqlite3_uint64)(p - json), free, SQLITE_UTF8);
}

static int vtab_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int col) {
    struct cursor *c = (struct cursor *)base;
    struct vtab *t = (struct vtab *)base->pVtab;
    const struct reader_block *b = reader_block(t->reader, c->block - 1);

    if (col < 0 || col >= t->rec->nfields) {
        sqlite3_result_int64(ctx, col == t->rec->nfields ? b->epoch : (sqlite3_int64)c->block - 1);
        return SQLITE_OK;
    }
    const struct trace_value *v = &c->v[col];
    switch (t->rec->fields[col].type) {
    case TRACE_F:
        sqlite3_result_double(ctx, v->f);
        break;
    case TRACE_TXT:
        result_text(t, ctx, v->p, v->n);
        break;
    case TRACE_BIN:
        sqlite3_result_blob64(ctx, v->n ? (const void *)v->p : "", v->n, SQLITE_TRANSIENT);
        break;
    case TRACE_REFS:
    case TRACE_US:
        if (reader_allow(t->reader, v->n))
            result_list(ctx, *v);
        break;
    case TRACE_STR: {
        size_t n;
        const struct dict *d = v->u ? epochs_get(t->epochs, b->epoch) : NULL;
        const char *p = d ? dict_string(d, v->u, &n) : NULL;
        if (p)
            result_text(t, ctx, p, n);
        else if (v->u)
            return SQLITE_NOMEM;
        break; /* id 0 stands for no string: NULL */
    }
    default:
        sqlite3_result_int64(ctx, (sqlite3_int64)v->u);
    }
    return SQLITE_OK;
}

static int vtab_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid) {
    *rowid = ((struct cursor *)base)->rowid;
    return SQLITE_OK;
}

static sqlite3_module module = {
    .iVersion = 0,
    .xCreate = vtab_connect,
    .xConnect = vtab_connect,
    .xBestIndex = vtab_best_index,
    .xDisconnect = vtab_disconnect,
    .xDestroy = vtab_disconnect,
    .xOpen = vtab_open,
    .xClose = vtab_close,
    .xFilter = vtab_filter,
    .xNext = vtab_next,
    .xEof = vtab_eof,
    .xColumn = vtab_column,
    .xRowid = vtab_rowid,
};

int vtab_register(sqlite3 *db, const struct vtab_shared *const *shared) {
    return sqlite3_create_module_v2(db, "probing_trace", &module, (void *)shared, NULL);
}
