/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows_arrow.c - writes rows as a stream in Arrow's IPC format (arrow.apache.org/docs/format/Columnar.html, Message.fbs and Schema.fbs there).
 *
 * A message is 0xffffffff, the length of its metadata, the metadata (a FlatBuffer), and a body of buffers, each at a multiple of eight. First
 * comes the schema, then batches of rows, then an end.
 *
 * SQLite gives each value a type, Arrow each column. A column's type follows from its values in the first batch (BATCH rows): int64 if all are
 * integers, double if there are real numbers, utf8 if there is text, binary if there are bytes, and double if all are NULL. A column that would be
 * double is a timestamp (ns, UTC) if it has a name that the views use for times, as where a database is read into Arrow
 * (converter/arrow_sql.c). A later value that does not fit ends the stream with an error that names the column and the CAST that helps.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "../converter/when.h"
#include "../traces/utf8.h"
#include "flatbuf.h"
#include "numbers.h"
#include "rows_format.h"

#define BATCH       8192       /* rows */
#define BATCH_CELLS (1u << 19) /* most cells: with many columns a batch has fewer rows */
#define BATCH_TEXT  (8u << 20) /* bytes of text after which a batch is written */
#define MOST_TEXT   INT32_MAX  /* most bytes of text in a batch: offsets have 32 bits */

/* Constants from Message.fbs and Schema.fbs. */
enum { V5 = 4, HEADER_SCHEMA = 1, HEADER_BATCH = 3 };
enum { TYPE_INT = 2, TYPE_FLOAT = 3, TYPE_BINARY = 4, TYPE_UTF8 = 5, TYPE_TIMESTAMP = 10 };
enum { DOUBLE = 2, NANOSECOND = 3 };

struct cell {
    enum rows_kind kind;
    uint32_t n;
    union {
        int64_t i;
        double f;
        size_t at; /* where its bytes begin in `text` */
    };
};

struct rows_arrow {
    struct cell *cell; /* the batch's cells, row by row */
    unsigned n, most;  /* rows in the batch, and how many it can have */
    char *text;
    size_t ntext, cap;
    enum rows_kind *type; /* by column; NULL: not known yet */
    struct flatbuf b;
    uint8_t *buffer; /* a column's buffer while it is written */
};

/* ---- messages ---- */

static void pad(FILE *f, size_t n) {
    put_bytes(f, "\0\0\0\0\0\0\0", (8 - n % 8) % 8);
}

static int put_message(struct rows *r) {
    const struct flatbuf *b = &r->arrow->b;
    uint32_t begin = UINT32_MAX, n = (uint32_t)((b->n + 7) / 8 * 8);

    if (b->failed)
        return -ENOMEM;
    put_bytes(r->f, (const char *)&begin, sizeof begin);
    put_bytes(r->f, (const char *)&n, sizeof n);
    put_bytes(r->f, (const char *)b->p, b->n);
    pad(r->f, b->n);
    return 0;
}

/* Begins a message with its root table. Returns the place of the offset to its header. */
static size_t begin_message(struct flatbuf *b, int header, int64_t body) {
    size_t at[4];

    flatbuf_reset(b);
    flatbuf_root(
        b, flatbuf_table(
               b, (struct flatbuf_field[]){{2, V5}, {1, header}, {FLATBUF_OFFSET, 0}, {8, body}}, 4,
               at));
    return at[2];
}

/* Returns whether the column is of real numbers that are times. */
static int is_time(const char *name, enum rows_kind kind) {
    return kind == ROWS_REAL && when_is_column(name);
}

static size_t put_type(struct flatbuf *b, const char *name, enum rows_kind kind) {
    size_t at[2];

    if (is_time(name, kind)) {
        size_t type =
            flatbuf_table(b, (struct flatbuf_field[]){{2, NANOSECOND}, {FLATBUF_OFFSET, 0}}, 2, at);
        flatbuf_point(b, at[1], flatbuf_text(b, "UTC"));
        return type;
    }
    if (kind == ROWS_INTEGER)
        return flatbuf_table(b, (struct flatbuf_field[]){{4, 64}, {1, 1}}, 2, NULL);
    if (kind == ROWS_REAL)
        return flatbuf_table(b, (struct flatbuf_field[]){{2, DOUBLE}}, 1, NULL);
    return flatbuf_table(b, NULL, 0, NULL);
}

static size_t put_field(struct flatbuf *b, const char *name, enum rows_kind kind) {
    size_t at[6];
    int type = kind == ROWS_INTEGER  ? TYPE_INT
               : is_time(name, kind) ? TYPE_TIMESTAMP
               : kind == ROWS_REAL   ? TYPE_FLOAT
               : kind == ROWS_TEXT   ? TYPE_UTF8
                                     : TYPE_BINARY;
    /* name, nullable, type, its table, dictionary, children */
    size_t field = flatbuf_table(b,
                                 (struct flatbuf_field[]){{FLATBUF_OFFSET, 0},
                                                          {1, 1},
                                                          {1, type},
                                                          {FLATBUF_OFFSET, 0},
                                                          {0, 0},
                                                          {FLATBUF_OFFSET, 0}},
                                 6, at);
    flatbuf_point(b, at[0], flatbuf_text(b, name));
    flatbuf_point(b, at[3], put_type(b, name, kind));
    flatbuf_point(b, at[5], flatbuf_vector(b, NULL, 0, 4, 4));
    return field;
}

static int put_schema(struct rows *r) {
    struct rows_arrow *a = r->arrow;
    struct flatbuf *b = &a->b;
    size_t header = begin_message(b, HEADER_SCHEMA, 0), at[2];

    flatbuf_point(b, header,
                  flatbuf_table(b, (struct flatbuf_field[]){{2, 0}, {FLATBUF_OFFSET, 0}}, 2, at));
    size_t fields = flatbuf_vector(b, NULL, r->ncols, 4, 4);
    flatbuf_point(b, at[1], fields);
    for (unsigned i = 0; i < r->ncols; i++)
        flatbuf_point(b, fields + 4 + 4 * i, put_field(b, r->names[i], a->type[i]));
    return put_message(r);
}

/* ---- values ---- */

static int is_text(enum rows_kind kind) {
    return kind == ROWS_TEXT || kind == ROWS_BLOB;
}

static struct cell *cell_of(const struct rows *r, unsigned row, unsigned col) {
    return &r->arrow->cell[(size_t)row * r->ncols + col];
}

static int keep_bytes(struct rows_arrow *a, const char *p, size_t n) {
    if (a->ntext + n > MOST_TEXT)
        return -EFBIG;
    if (a->ntext + n > a->cap) {
        size_t cap = (a->ntext + n) * 2;
        char *more = realloc(a->text, cap);
        if (!more)
            return -ENOMEM;
        a->text = more;
        a->cap = cap;
    }
    if (n)
        memcpy(a->text + a->ntext, p, n);
    a->ntext += n;
    return 0;
}

/* Keeps a text. Bytes that are not UTF-8, which readers refuse, become U+FFFD. */
static int keep_text(struct rows_arrow *a, const char *p, size_t n) {
    int rc = 0;

    while (n && rc == 0) {
        uint32_t c;
        size_t good = 0, len = 1;
        while (good < n && (len = utf8_char((const unsigned char *)p + good, n - good, &c)))
            good += len;
        rc = keep_bytes(a, p, good);
        if (rc == 0 && good < n)
            rc = keep_bytes(a, "\xef\xbf\xbd", 3);
        good += good < n;
        p += good;
        n -= good;
    }
    return rc;
}

static int keep(struct rows_arrow *a, struct cell *c, const struct rows_value *v) {
    size_t at = a->ntext;
    int rc = 0;

    *c = (struct cell){.kind = v->kind};
    if (v->kind == ROWS_INTEGER)
        c->i = v->i;
    else if (v->kind == ROWS_REAL)
        c->f = v->f;
    else if (v->kind == ROWS_TEXT)
        rc = keep_text(a, v->p, v->n);
    else if (v->kind == ROWS_BLOB)
        rc = keep_bytes(a, v->p, v->n);
    if (is_text(v->kind)) {
        c->at = at;
        c->n = (uint32_t)(a->ntext - at);
    }
    return rc;
}

/* Turns a number into text, for a column of text. */
static int number_as_text(struct rows_arrow *a, struct cell *c) {
    char text[40];

    if (c->kind == ROWS_REAL)
        snprintf(text, sizeof text, "%.15g", c->f);
    else
        snprintf(text, sizeof text, "%lld", (long long)c->i);
    return keep(a, c, &(struct rows_value){.kind = ROWS_TEXT, .p = text, .n = strlen(text)});
}

/* Converts the cell to its column's type. Returns 0, -EDOM if the type has no such value, -ENOMEM or -EFBIG. */
static int fit(struct rows_arrow *a, struct cell *c, enum rows_kind type) {
    if (c->kind == ROWS_NULL || c->kind == type)
        return 0;
    if (type == ROWS_REAL && c->kind == ROWS_INTEGER) {
        *c = (struct cell){.kind = ROWS_REAL, .f = (double)c->i};
        return 0;
    }
    if (type == ROWS_INTEGER && c->kind == ROWS_REAL && c->f == trunc(c->f) && fabs(c->f) < 9e18) {
        *c = (struct cell){.kind = ROWS_INTEGER, .i = (int64_t)c->f};
        return 0;
    }
    if (is_text(type) && !is_text(c->kind))
        return number_as_text(a, c);
    return type == ROWS_BLOB && c->kind == ROWS_TEXT ? 0 : -EDOM;
}

static int find_types(struct rows *r) {
    struct rows_arrow *a = r->arrow;

    if (!(a->type = calloc(r->ncols + 1, sizeof *a->type)))
        return -ENOMEM;
    for (unsigned i = 0; i < r->ncols; i++) {
        for (unsigned k = 0; k < a->n; k++)
            if (cell_of(r, k, i)->kind > a->type[i]) /* in order: integer, real, text, bytes */
                a->type[i] = cell_of(r, k, i)->kind;
        if (a->type[i] == ROWS_NULL)
            a->type[i] = ROWS_REAL;
    }
    return 0;
}

static int fit_all(struct rows *r) {
    static const char *const names[] = {"NULL", "integers", "numbers", "text", "bytes"};
    static const char *const casts[] = {"", "INTEGER", "REAL", "TEXT", "BLOB"};
    struct rows_arrow *a = r->arrow;
    int64_t ns;

    for (unsigned k = 0; k < a->n; k++)
        for (unsigned i = 0; i < r->ncols; i++) {
            struct cell *c = cell_of(r, k, i);
            int rc = fit(a, c, a->type[i]);
            if (rc == -EDOM)
                snprintf(r->why, sizeof r->why,
                         "column %.60s began with %s, then came %s: CAST(... AS %s) makes it one "
                         "type",
                         r->names[i], names[a->type[i]], names[c->kind], casts[c->kind]);
            if (rc < 0)
                return rc;
            if (c->kind == ROWS_REAL && is_time(r->names[i], a->type[i]))
                *c = when_seconds(c->f, &ns) == 0
                         ? (struct cell){.kind = ROWS_INTEGER, .i = ns}
                         : (struct cell){.kind = ROWS_NULL}; /* for example infinity */
        }
    return 0;
}

/* ---- a batch ---- */

/* The lengths of a column's buffers: the bits of which values are not NULL, the ends of texts, the values or texts. Also the number of NULLs. */
struct lengths {
    int64_t nulls;
    size_t valid, ends, values;
};

static struct lengths lengths_of(const struct rows *r, unsigned col) {
    const struct rows_arrow *a = r->arrow;
    struct lengths l = {.valid = (a->n + 7) / 8};

    for (unsigned k = 0; k < a->n; k++) {
        const struct cell *c = cell_of(r, k, col);
        l.nulls += c->kind == ROWS_NULL;
        if (is_text(a->type[col]))
            l.values += c->n;
    }
    if (is_text(a->type[col]))
        l.ends = 4 * ((size_t)a->n + 1);
    else
        l.values = 8 * (size_t)a->n;
    return l;
}

static int64_t padded(size_t n) {
    return (int64_t)((n + 7) / 8 * 8);
}

static void put_buffer(struct rows *r, const void *p, size_t n) {
    put_bytes(r->f, p, n);
    pad(r->f, n);
}

static void put_column(struct rows *r, unsigned col, const struct lengths *l) {
    struct rows_arrow *a = r->arrow;

    memset(a->buffer, 0, l->valid);
    for (unsigned k = 0; k < a->n; k++)
        a->buffer[k / 8] =
            (uint8_t)(a->buffer[k / 8] | (cell_of(r, k, col)->kind != ROWS_NULL) << k % 8);
    put_buffer(r, a->buffer, l->valid);
    if (!is_text(a->type[col])) {
        for (unsigned k = 0; k < a->n; k++) { /* NULL is written as 0 */
            const struct cell *c = cell_of(r, k, col);
            memcpy(a->buffer + 8 * (size_t)k, &c->i, 8);
        }
        put_buffer(r, a->buffer, l->values);
        return;
    }
    int32_t end = 0;
    memcpy(a->buffer, &end, 4);
    for (unsigned k = 0; k < a->n; k++) {
        end += (int32_t)cell_of(r, k, col)->n;
        memcpy(a->buffer + 4 * ((size_t)k + 1), &end, 4);
    }
    put_buffer(r, a->buffer, l->ends);
    for (unsigned k = 0; k < a->n; k++)
        if (cell_of(r, k, col)->n)
            put_bytes(r->f, a->text + cell_of(r, k, col)->at, cell_of(r, k, col)->n);
    pad(r->f, l->values);
}

static int put_columns(struct rows *r, const struct lengths *l, size_t nbuffers) {
    struct rows_arrow *a = r->arrow;
    struct flatbuf *b = &a->b;
    int64_t(*node)[2] = calloc(r->ncols + 1, sizeof *node);
    int64_t(*buffer)[2] = calloc(nbuffers + 1, sizeof *buffer), at = 0;
    size_t n = 0, place[3];
    int rc = node && buffer ? 0 : -ENOMEM;

    for (unsigned i = 0; rc == 0 && i < r->ncols; i++) {
        const size_t lengths[] = {l[i].valid, l[i].ends, l[i].values};
        node[i][0] = a->n;
        node[i][1] = l[i].nulls;
        for (int k = 0; k < 3; k++) {
            if (k == 1 && !is_text(a->type[i]))
                continue;
            buffer[n][0] = at;
            buffer[n++][1] = (int64_t)lengths[k];
            at += padded(lengths[k]);
        }
    }
    if (rc == 0) {
        size_t header = begin_message(b, HEADER_BATCH, at);
        flatbuf_point(
            b, header,
            flatbuf_table(
                b, (struct flatbuf_field[]){{8, a->n}, {FLATBUF_OFFSET, 0}, {FLATBUF_OFFSET, 0}}, 3,
                place));
        flatbuf_point(b, place[1], flatbuf_vector(b, node, r->ncols, sizeof *node, 8));
        flatbuf_point(b, place[2], flatbuf_vector(b, buffer, n, sizeof *buffer, 8));
        rc = put_message(r);
    }
    for (unsigned i = 0; rc == 0 && i < r->ncols; i++)
        put_column(r, i, &l[i]);
    free(node);
    free(buffer);
    return rc;
}

static int flush_batch(struct rows *r) {
    struct rows_arrow *a = r->arrow;
    struct lengths *l = calloc(r->ncols + 1, sizeof *l);
    size_t nbuffers = 0;
    int rc = l ? 0 : -ENOMEM;

    if (rc == 0 && !a->type && (rc = find_types(r)) == 0)
        rc = put_schema(r);
    if (rc == 0)
        rc = fit_all(r);
    for (unsigned i = 0; rc == 0 && i < r->ncols; i++) {
        l[i] = lengths_of(r, i);
        nbuffers += is_text(a->type[i]) ? 3 : 2;
    }
    if (rc == 0 && a->n)
        rc = put_columns(r, l, nbuffers);
    free(l);
    a->n = 0;
    a->ntext = 0;
    return rc;
}

/* ---- the format ---- */

static int begin(struct rows *r) {
    struct rows_arrow *a = r->arrow = calloc(1, sizeof *a);

    if (!a)
        return -ENOMEM;
    a->most = r->ncols && BATCH_CELLS / r->ncols < BATCH ? BATCH_CELLS / r->ncols : BATCH;
    a->cell = calloc((size_t)a->most * r->ncols + 1, sizeof *a->cell);
    a->buffer = malloc(8 * ((size_t)a->most + 1));
    return a->cell && a->buffer ? 0 : -ENOMEM;
}

static int row(struct rows *r, const struct rows_value *v) {
    struct rows_arrow *a = r->arrow;

    for (unsigned i = 0; i < r->ncols; i++) {
        int rc = keep(a, cell_of(r, a->n, i), &v[i]);
        if (rc < 0)
            return rc;
    }
    return ++a->n == a->most || a->ntext > BATCH_TEXT ? flush_batch(r) : 0;
}

static int end(struct rows *r) {
    static const char over[] = {'\xff', '\xff', '\xff', '\xff', 0, 0, 0, 0};
    int rc = flush_batch(r);

    if (rc == 0)
        put_bytes(r->f, over, sizeof over);
    return rc;
}

static void forget(struct rows *r) {
    struct rows_arrow *a = r->arrow;

    if (!a)
        return;
    free(a->cell);
    free(a->text);
    free(a->type);
    free(a->buffer);
    flatbuf_free(&a->b);
    free(a);
    r->arrow = NULL;
}

const struct rows_format rows_arrow = {"arrow", 1, begin, row, end, forget};
