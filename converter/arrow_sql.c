/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_sql.c - the result of a SELECT on a database of probing-convert, as Arrow columns.
 *
 * SQLite gives each value a type, Arrow each column. The first LOOK rows, which are kept until then, decide a column's type: integers, reals
 * (with integers among them), text (with any of these among it) or bytes (when there is a blob among them). When all of these values are
 * NULL, a column that belongs to a table has its declared type. A column with the name of a time in the views is a timestamp when its values
 * are reals or all NULL. When a later value does not fit, the stream ends with an error that names the column: then the SQL needs a CAST.
 */
#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/utf8.h"
#include "arrow_source.h"
#include "arrow_stop.h"
#include "keys.h"
#include "output.h"
#include "overlap.h"
#include "replay.h"
#include "sql_dialect.h"
#include "sql_functions.h"
#include "sql_heads.h"
#include "sql_running.h"
#include "sql_schemas.h"
#include "sql_select.h"
#include "text.h"
#include "when.h"

#define LOOK       8192
#define LOOK_BYTES (16u << 20)
#define STEPS      20000 /* of SQLite's machine between two looks whether it is to stop */

struct cell {
    union {
        int64_t i;
        double f;
        char *p;
    };
    uint32_t n;
    uint8_t type; /* SQLITE_INTEGER ... */
};

struct sql {
    struct arrow_source base; /* must be first */
    sqlite3 *db;
    sqlite3_stmt *st;
    struct cell *cells; /* the first rows, until they are put into a batch */
    size_t rows, put, bytes;
    int done;
    const char **names; /* of the columns */
    char *heads;        /* memory of some of them */
};

static int failed(struct sql *s, const char *doing) {
    int rc = sqlite3_errcode(s->db);

    return arrow_fail(s->base.notes,
                      rc == SQLITE_NOMEM       ? -ENOMEM
                      : rc == SQLITE_INTERRUPT ? -EINTR
                                               : -EINVAL,
                      "%s%s", doing, sqlite3_errmsg(s->db));
}

/* ---- types ---- */

/* Returns 1 when half of the values or more are repetitions: then they are stored as names. */
static int repeats(const struct sql *s, size_t col) {
    struct keys k;
    size_t n = 0;

    keys_init(&k);
    for (size_t r = 0; r < s->rows; r++) {
        const struct cell *c = &s->cells[r * s->base.nfields + col];
        if (c->type != SQLITE_TEXT)
            continue;
        n++;
        keys_put(&k, c->p, c->n, NULL);
    }
    size_t distinct = k.n;
    keys_free(&k);
    return distinct * 2 <= n || n < 64;
}

static enum arrow_type type_of(const struct sql *s, size_t col) {
    unsigned seen = 0;
    const char *name = sqlite3_column_name(s->st, (int)col);
    const char *declared = sqlite3_column_decltype(s->st, (int)col);

    for (size_t r = 0; r < s->rows; r++)
        seen |= 1u << s->cells[r * s->base.nfields + col].type;
    seen &= ~(1u << SQLITE_NULL);
    if (seen & 1u << SQLITE_BLOB)
        return ARROW_BYTES;
    if (seen & 1u << SQLITE_TEXT)
        return repeats(s, col) ? ARROW_NAME : ARROW_TEXT;
    if (seen & 1u << SQLITE_FLOAT)
        return when_is_column(name) ? ARROW_TIME : ARROW_REAL;
    if (seen)
        return ARROW_INT;
    if (declared)
        return strcmp(declared, "TEXT") == 0   ? ARROW_TEXT
               : strcmp(declared, "REAL") == 0 ? ARROW_REAL
                                               : ARROW_INT;
    return when_is_column(name) ? ARROW_TIME : ARROW_REAL;
}

/* ---- values ---- */

static int keep_row(struct sql *s) {
    struct cell *row = &s->cells[s->rows * s->base.nfields];

    for (size_t i = 0; i < s->base.nfields; i++) {
        row[i] = (struct cell){.type = (uint8_t)sqlite3_column_type(s->st, (int)i)};
        if (row[i].type == SQLITE_INTEGER) {
            row[i].i = sqlite3_column_int64(s->st, (int)i);
        } else if (row[i].type == SQLITE_FLOAT) {
            row[i].f = sqlite3_column_double(s->st, (int)i);
        } else if (row[i].type != SQLITE_NULL) {
            const void *p = sqlite3_column_blob(s->st, (int)i);
            row[i].n = (uint32_t)sqlite3_column_bytes(s->st, (int)i);
            if (!(row[i].p = malloc((size_t)row[i].n + 1)))
                return -ENOMEM;
            if (row[i].n)
                memcpy(row[i].p, p, row[i].n);
            s->bytes += row[i].n;
        }
    }
    s->rows++;
    return 0;
}

static int put_number(struct arrow_column *c, struct cell v) {
    double f = v.type == SQLITE_FLOAT ? v.f : (double)v.i;
    char text[40];
    int64_t ns;

    switch (c->type) {
    case ARROW_REAL:
        return arrow_put_real(c, f);
    case ARROW_TIME:
        return when_seconds(f, &ns) == 0 ? arrow_put(c, ns) : arrow_put_null(c);
    case ARROW_NAME:
    case ARROW_TEXT:
        if (v.type == SQLITE_FLOAT)
            sqlite3_snprintf(sizeof text, text, "%!.15g", v.f);
        else
            sqlite3_snprintf(sizeof text, text, "%lld", (long long)v.i);
        return arrow_put_text(c, text, strlen(text));
    case ARROW_INT:
        if (v.type == SQLITE_INTEGER)
            return arrow_put(c, v.i);
        return fabs(f) < 9e18 && f == trunc(f) ? arrow_put(c, (int64_t)f) : -EDOM;
    default:
        return -EDOM;
    }
}

/* Puts text as it has to be in Arrow, UTF-8: a CAST makes text of any bytes. */
static int put_text(struct arrow_column *c, const char *p, size_t n) {
    size_t at = 0, len = 1;
    uint32_t ch;

    for (; at < n && len; at += len)
        len = utf8_char(p + at, n - at, &ch);
    if (len)
        return arrow_put_text(c, p, n);
    char *text = text_utf8(p, n, &len);
    int err = text ? arrow_put_text(c, text, len) : -ENOMEM;
    free(text);
    return err;
}

static int put(struct sql *s, struct arrow_column *c, size_t col, struct cell v) {
    int err = -EDOM;

    if (v.type == SQLITE_NULL)
        err = arrow_put_null(c);
    else if (v.type == SQLITE_INTEGER || v.type == SQLITE_FLOAT)
        err = put_number(c, v);
    else if (c->type == ARROW_BYTES)
        err = arrow_put_text(c, v.p, v.n);
    else if (v.type == SQLITE_TEXT && (c->type == ARROW_TEXT || c->type == ARROW_NAME))
        err = put_text(c, v.p, v.n);
    if (err == -EDOM) {
        const char *name = sqlite3_column_name(s->st, (int)col);
        return arrow_fail(
            s->base.notes, -EINVAL,
            "column %s is not of one type: begun with %s, then came a%s; CAST(%s AS %s) decides",
            name,
            c->type == ARROW_INT     ? "integers"
            : c->type == ARROW_BYTES ? "bytes"
                                     : "numbers",
            v.type == SQLITE_FLOAT  ? " real number"
            : v.type == SQLITE_TEXT ? " text"
                                    : " value of bytes",
            name, v.type == SQLITE_FLOAT ? "REAL" : "TEXT");
    }
    return err ? arrow_fail(s->base.notes, err, "%s", strerror(-err)) : 0;
}

/* Makes one step of the statement. */
static int step(struct sql *s) {
    int rc = sqlite3_step(s->st);

    s->done = rc != SQLITE_ROW;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : failed(s, "");
}

static void free_cells(struct sql *s) {
    for (size_t i = 0; i < s->rows * s->base.nfields; i++)
        if (s->cells[i].type == SQLITE_TEXT || s->cells[i].type == SQLITE_BLOB)
            free(s->cells[i].p);
    free(s->cells);
    s->cells = NULL;
    s->rows = 0;
}

static int put_kept(struct sql *s, struct arrow_batch *b) {
    int err = 0;

    for (size_t r = 0; !err && r < s->rows; r++, b->n += !err)
        for (size_t i = 0; !err && i < b->ncols; i++)
            err = put(s, &b->col[i], i, s->cells[r * b->ncols + i]);
    free_cells(s);
    return err;
}

static int next(struct arrow_source *base, struct arrow_batch *b) {
    struct sql *s = (struct sql *)base;
    int err = 0;

    if (s->cells)
        return (err = put_kept(s, b)) ? err : 1;
    for (int n = 0; n < 256 && !s->done; n++) {
        if ((err = step(s)) != 0)
            return err;
        for (size_t i = 0; i < b->ncols && !s->done; i++) {
            struct cell v = {.type = (uint8_t)sqlite3_column_type(s->st, (int)i)};
            if (v.type == SQLITE_INTEGER) {
                v.i = sqlite3_column_int64(s->st, (int)i);
            } else if (v.type == SQLITE_FLOAT) {
                v.f = sqlite3_column_double(s->st, (int)i);
            } else if (v.type != SQLITE_NULL) {
                v.p = (char *)(uintptr_t)sqlite3_column_blob(s->st, (int)i);
                v.n = (uint32_t)sqlite3_column_bytes(s->st, (int)i);
            }
            if ((err = put(s, &b->col[i], i, v)) != 0)
                return err;
        }
        b->n += !s->done;
    }
    return !s->done;
}

/* ---- opening ---- */

static int stopped(void *ctx) {
    (void)ctx;
    return arrow_stopped();
}

static int pragma(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st = NULL;
    int value = -1;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        value = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return value;
}

/* Adds the functions and the names that the loadable extension has. */
static int add_words(sqlite3 *db, const char *sql) {
    int rc = sql_functions_register(db);

    if (rc == SQLITE_OK)
        rc = overlap_register(db);
    if (rc == SQLITE_OK)
        rc = replay_register(db);
    if (rc == SQLITE_OK)
        rc = sql_running_register(db);
    return rc == SQLITE_OK ? sql_schemas_attach(db, sql) : rc;
}

static int open_database(struct sql *s, const char *path, const char *sql) {
    const int how = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
    struct arrow_notes *notes = s->base.notes;

    if (output_open(path, &s->db, how) != SQLITE_OK ||
        sqlite3_exec(s->db, "SELECT 1 FROM sqlite_master", NULL, NULL, NULL) != SQLITE_OK)
        return arrow_fail(notes, -EINVAL, "cannot open %s: %s", path, output_why(s->db));
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_progress_handler(s->db, STEPS, stopped, NULL);
    if (pragma(s->db, "PRAGMA application_id") != OUTPUT_APPLICATION_ID)
        return arrow_fail(notes, -EINVAL, "%s is a database, but not one of probing-convert", path);
    int version = pragma(s->db, "PRAGMA user_version");
    if (version != OUTPUT_SCHEMA_VERSION)
        arrow_note(
            notes, 0, path,
            "made by %s version of probing (its tables are version %d, these %d): names may differ; convert its traces anew%s",
            version > OUTPUT_SCHEMA_VERSION ? "a newer" : "an older", version,
            OUTPUT_SCHEMA_VERSION, version > OUTPUT_SCHEMA_VERSION ? ", or use that version" : "");
    /* python.memory is then the same as memory, as in probing query. Reading the schema a second time takes as long as all else that a short question needs, so it
     * is done only for a text that may mean it. */
    char *attach =
        sql_schemas_may_name(sql, "python") ? sqlite3_mprintf("ATTACH %Q AS python", path) : NULL;
    if (attach)
        sqlite3_exec(s->db, attach, NULL, NULL, NULL);
    sqlite3_free(attach);
    if (add_words(s->db, sql) != SQLITE_OK)
        return arrow_fail(notes, -EINVAL, "cannot open %s: %s", path, sqlite3_errmsg(s->db));
    return 0;
}

static int prepare(struct sql *s, const char *sql) {
    struct arrow_notes *notes = s->base.notes;
    const char *rest = NULL;

    if (sqlite3_prepare_v2(s->db, sql, -1, &s->st, &rest) != SQLITE_OK)
        return failed(s, "");
    if (!s->st || sqlite3_column_count(s->st) == 0 || !sqlite3_stmt_readonly(s->st))
        return arrow_fail(notes, -EINVAL, "a SELECT is needed: the database is only read");
    while (rest &&
           (*rest == ';' || *rest == ' ' || *rest == '\n' || *rest == '\t' || *rest == '\r'))
        rest++;
    if (rest && *rest && strncmp(rest, "--", 2) != 0)
        return arrow_fail(notes, -EINVAL, "one statement at a time: %.60s", rest);
    return 0;
}

/* Opens the database, and prepares the text, which may be in any dialect that `probing query` takes: who moves a query from there into a
 * notebook gets the same rows. (SQLite alone finds no row in `timestamp > '2026-01-31'`, and no error either.) */
static int start(struct sql *s, const char *path, const char *sql) {
    char *text = NULL, *plain = NULL, why[SQL_DIALECT_WHY] = "no memory";
    int err = sql_dialect(sql, &text, why), opened;

    if (err)
        return arrow_fail(s->base.notes, err, "%s", why);
    if ((opened = err = open_database(s, path, text)) == 0 &&
        (err = sql_select(s->db, text, &plain, why)) == 0)
        err = prepare(s, plain ? plain : text);
    else if (!opened)
        err = arrow_fail(s->base.notes, err, "%s", why);
    free(plain);
    free(text);
    return err;
}

/* Reads the first rows, and makes the fields from them. */
static int find_columns(struct sql *s) {
    int n = sqlite3_column_count(s->st), err = 0;

    s->base.fields = calloc((size_t)n, sizeof *s->base.fields);
    s->cells = calloc((size_t)n * LOOK, sizeof *s->cells);
    s->names = calloc((size_t)n, sizeof *s->names);
    if (!s->base.fields || !s->cells || !s->names)
        return arrow_fail(s->base.notes, -ENOMEM, "no memory");
    s->base.nfields = (size_t)n;
    while (!err && !s->done && s->rows < LOOK && s->bytes < LOOK_BYTES)
        if ((err = step(s)) == 0 && !s->done && (err = keep_row(s)) != 0)
            arrow_fail(s->base.notes, err, "no memory");
    for (int i = 0; i < n; i++)
        s->names[i] = sqlite3_column_name(s->st, i);
    if (!err && (err = sql_heads(s->base.rq->sql, s->names, n, &s->heads)) != 0)
        arrow_fail(s->base.notes, err, "no memory");
    for (size_t i = 0; !err && i < s->base.nfields; i++)
        s->base.fields[i] = (struct arrow_field){s->names[i], type_of(s, i), NULL};
    return err;
}

static void sql_free(struct arrow_source *base) {
    struct sql *s = (struct sql *)base;

    free_cells(s);
    sqlite3_finalize(s->st);
    sqlite3_close_v2(s->db);
    free(s->names);
    free(s->heads);
    free(s->base.fields);
    free(s);
}

struct arrow_source *arrow_sql(const struct probing_request *rq, struct arrow_notes *notes) {
    struct sql *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->base = (struct arrow_source){.rq = rq, .notes = notes, .next = next, .free = sql_free};
    if (start(s, rq->paths[0], rq->sql) != 0 || find_columns(s) != 0) {
        sql_free(&s->base);
        return NULL;
    }
    return &s->base;
}
