/* SPDX-License-Identifier: Apache-2.0 */
#include "overlap.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "since_row.h"

/* ?1, ?2: the first and last of a file's rows from a time on; ?3: that time. For most rows of torch_call only the first condition is evaluated. */
static const char passes_sql[] =
    "SELECT ts, ts + duration, thread FROM torch_call WHERE id BETWEEN ?1 AND ?2 AND stage <> 1 AND stage <> 4 "
    "AND (stage <> 0 OR parent IS NULL AND depth = 0) AND duration IS NOT NULL";
static const char threads_sql[] =
    "SELECT id & 0xffffffffff, tid FROM thread WHERE id BETWEEN ?1 AND ?2";
static const char steps_sql[] =
    "SELECT ts, ts + duration FROM torch_step WHERE id BETWEEN ?1 AND ?2 AND ts >= ?3 AND source < 3 AND duration IS NOT NULL";
static const char calls_sql[] =
    "SELECT ts, duration, host, tid, op, flags & 1 FROM comm WHERE id BETWEEN ?1 AND ?2 AND ts >= ?3 ORDER BY ts";
/* ?4: the trace, ?5: stacks. */
static const char waits_sql[] =
    "SELECT CAST(timestamp * 1e9 AS INTEGER), CAST(seconds * 1e9 AS INTEGER), tid FROM samples WHERE trace_id = ?4 AND sample_id >= ?1 "
    "AND state = 'idle' AND stack_id IN (SELECT value FROM json_each(?5))";

/* The time of a pass or a step, or the time that a sample stands for. tid: thread id, -1 where it is not known. */
struct stretch {
    int64_t from, until, tid;
};

/* A list of stretches, sorted by the member that it is searched by. */
struct stretches {
    struct stretch *v;
    size_t n, cap;
    int64_t longest;
};

/* A trace of the process: one, or, when it has gone on in other files (rotation), several. */
struct file {
    int64_t trace, first, last; /* first, last: its rows */
};

struct sums {
    char *op; /* NULL: calls without one */
    int64_t calls, duration, host, under, waited, stepped;
};

struct overlap {
    sqlite3 *db;
    sqlite3_value *stacks;
    struct file *files;
    size_t nfiles;
    int64_t since;                               /* rows from this time on; INT64_MIN: all */
    struct stretches passes, waits, steps, over; /* over: the passes that lie over a call */
    struct stretches in_step; /* the calls that began within a step; tid: index of the operation */
    int64_t *tids;            /* thread ids, by the thread's number in the present file */
    size_t ntids;
    struct sums *ops;
    size_t nops;
    int64_t stepping; /* sum of all steps' durations, ns */
};

static int64_t number(sqlite3_stmt *st, int column) {
    return sqlite3_column_type(st, column) == SQLITE_NULL ? -1 : sqlite3_column_int64(st, column);
}

/* Runs `row` for each row that a file has of a table. SQLITE_OK or SQLite's code. */
static int each(struct overlap *o, const struct file *f, const char *table, const char *sql,
                int (*row)(struct overlap *, sqlite3_stmt *)) {
    sqlite3_stmt *st = NULL;
    int64_t from = f->first;
    int rc = SQLITE_OK;

    if (o->since > INT64_MIN && strcmp(table, "thread") != 0)
        rc = since_row(o->db, table, f->first, f->last, o->since, &from);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(o->db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_int64(st, 1, from);
        sqlite3_bind_int64(st, 2, f->last);
        if (sqlite3_bind_parameter_count(st) > 2)
            sqlite3_bind_int64(st, 3, o->since);
        if (sqlite3_bind_parameter_count(st) > 3) {
            sqlite3_bind_int64(st, 4, f->trace);
            sqlite3_bind_value(st, 5, o->stacks);
        }
    }
    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW)
        rc = row(o, st);
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* The same for all files of the process, in their order. */
static int each_of_all(struct overlap *o, const char *table, const char *sql,
                       int (*row)(struct overlap *, sqlite3_stmt *)) {
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < o->nfiles; i++)
        rc = each(o, &o->files[i], table, sql, row);
    return rc;
}

/* Adds the files that a query gives by a number. The last column is what they have in common, copied to *program. */
static int find(struct overlap *o, const char *sql, int64_t number, int64_t *program) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(o->db, sql, -1, &st, NULL);

    if (rc == SQLITE_OK)
        sqlite3_bind_int64(st, 1, number);
    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct file *more = realloc(o->files, (o->nfiles + 1) * sizeof *more);
        rc = more ? SQLITE_OK : SQLITE_NOMEM;
        if (!more)
            break;
        o->files = more;
        more[o->nfiles++] = (struct file){sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
                                          sqlite3_column_int64(st, 2)};
        *program = sqlite3_column_int64(st, 3);
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Finds the files of the process that the trace is of. */
static int find_files(struct overlap *o, int64_t trace) {
    int64_t program = 0;
    int rc = find(o, "SELECT id, first_id, last_id, program FROM trace_file WHERE id = ?1", trace,
                  &program);

    if (rc != SQLITE_OK || !program)
        return rc;
    o->nfiles = 0;
    return find(o,
                "SELECT id, first_id, last_id, program FROM trace_file WHERE program = ?1 "
                "ORDER BY coalesce(finish_ts, end_ts), id",
                program, &program);
}

static int add(struct stretches *s, int64_t from, int64_t until, int64_t tid) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4096;
        struct stretch *v = realloc(s->v, cap * sizeof *v);
        if (!v)
            return SQLITE_NOMEM;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (struct stretch){from, until, tid};
    if (until - from > s->longest)
        s->longest = until - from;
    return SQLITE_OK;
}

static int by_from(const void *a, const void *b) {
    const struct stretch *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static int by_until(const void *a, const void *b) {
    const struct stretch *x = a, *y = b;
    return (x->until > y->until) - (x->until < y->until);
}

/* Sorts the list if it is not in order yet: rows come nearly in order. */
static void sort(struct stretches *s, int (*by)(const void *, const void *)) {
    for (size_t i = 1; i < s->n; i++) {
        if (by(&s->v[i - 1], &s->v[i]) > 0) {
            qsort(s->v, s->n, sizeof *s->v, by);
            return;
        }
    }
}

/* Returns the index of the first stretch that begins at `from` or later. */
static size_t first_from(const struct stretches *s, int64_t from) {
    size_t lo = 0;

    for (size_t hi = s->n; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->v[mid].from < from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Returns the index of the first stretch that ends later than `ts`. */
static size_t first_after(const struct stretches *s, int64_t ts) {
    size_t lo = 0;

    for (size_t hi = s->n; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->v[mid].until <= ts)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* ---- what there is ---- */

static int add_tid(struct overlap *o, sqlite3_stmt *st) {
    size_t i = (size_t)sqlite3_column_int64(st, 0);

    if (i >= o->ntids) { /* rows come in the order of the numbers, which have hardly any gaps */
        size_t n = i + 64;
        int64_t *tids = i < 1 << 24 ? realloc(o->tids, n * sizeof *tids) : NULL;
        if (!tids)
            return SQLITE_NOMEM;
        for (size_t k = o->ntids; k < n; k++)
            tids[k] = -1;
        o->tids = tids;
        o->ntids = n;
    }
    o->tids[i] = number(st, 1);
    return SQLITE_OK;
}

static int add_pass(struct overlap *o, sqlite3_stmt *st) {
    uint64_t thread = (uint64_t)sqlite3_column_int64(st, 2);

    return add(&o->passes, sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
               thread < o->ntids ? o->tids[thread] : -1);
}

static int add_step(struct overlap *o, sqlite3_stmt *st) {
    int64_t from = sqlite3_column_int64(st, 0), until = sqlite3_column_int64(st, 1);

    o->stepping += until - from;
    return add(&o->steps, from, until, -1);
}

/* Adds an idle sample if its thread is in a pass at that time; other idle samples say nothing here. */
static int add_wait(struct overlap *o, sqlite3_stmt *st) {
    int64_t ts = sqlite3_column_int64(st, 0), tid = number(st, 2);
    const struct stretches *p = &o->passes;

    for (size_t i = first_after(p, ts); i < p->n && p->v[i].until <= ts + p->longest; i++) {
        if (p->v[i].from <= ts && p->v[i].tid == tid)
            return add(&o->waits, ts, ts + sqlite3_column_int64(st, 1), tid);
    }
    return SQLITE_OK;
}

/* ---- the calls ---- */

static struct sums *sums_of(struct overlap *o, const char *op) {
    for (size_t i = 0; i < o->nops; i++) {
        const char *has = o->ops[i].op;
        if (op && has ? strcmp(op, has) == 0 : op == has)
            return &o->ops[i];
    }
    struct sums *more = realloc(o->ops, (o->nops + 1) * sizeof *more);
    char *copy = more && op ? strdup(op) : NULL;
    if (more)
        o->ops = more;
    if (!more || (op && !copy))
        return NULL;
    more[o->nops] = (struct sums){.op = copy};
    return &more[o->nops++];
}

/* Finds the parts of passes that lie over a call; those of its own thread from its return on. */
static int add_over(struct overlap *o, int64_t from, int64_t until, int64_t tid, int64_t host) {
    const struct stretches *p = &o->passes;
    int rc = SQLITE_OK;

    o->over.n = 0;
    for (size_t i = first_after(p, from);
         rc == SQLITE_OK && i < p->n && p->v[i].until < until + p->longest; i++) {
        int64_t begin = p->v[i].tid == tid ? from + host : from,
                end = p->v[i].until < until ? p->v[i].until : until;
        if (p->v[i].from > begin)
            begin = p->v[i].from;
        if (begin < end)
            rc = add(&o->over, begin, end, -1);
    }
    return rc;
}

/* Returns how long the stretches are together, where several lie over each other once. Sorts them. */
static int64_t together(struct stretches *s) {
    int64_t sum = 0, end = INT64_MIN;

    sort(s, by_from);
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].until > end) {
            sum += s->v[i].until - (s->v[i].from > end ? s->v[i].from : end);
            end = s->v[i].until;
        }
    }
    return sum;
}

static int is_waiting(const struct stretches *waits, const struct stretch *at, int64_t tid) {
    for (size_t i = first_from(waits, at->from - waits->longest);
         i < waits->n && waits->v[i].from < at->until; i++) {
        if (waits->v[i].tid == tid && waits->v[i].until > at->from)
            return 1;
    }
    return 0;
}

/* Returns how much of a wait is time in which nobody computes: nothing if another thread is in a pass, and neither waits nor is inside the call (tid,
 * until `inside`). If others wait, too, it is this one's share of that time. */
static int64_t in_vain(const struct overlap *o, const struct stretch *w, int64_t tid,
                       int64_t inside) {
    const struct stretches *p = &o->passes;
    int64_t waiting[16] = {w->tid};
    size_t n = 1;

    for (size_t i = first_after(p, w->from); i < p->n && p->v[i].until <= w->from + p->longest;
         i++) {
        int64_t other = p->v[i].tid;
        size_t k = 0;
        if (p->v[i].from > w->from || (other == tid && w->from < inside))
            continue;
        while (k < n && waiting[k] != other)
            k++;
        if (k < n)
            continue;
        if (!is_waiting(&o->waits, w, other))
            return 0;
        if (n < sizeof waiting / sizeof *waiting)
            waiting[n++] = other;
    }
    return (w->until - w->from) / (int64_t)n;
}

static int add_call(struct overlap *o, sqlite3_stmt *st) {
    int64_t from = sqlite3_column_int64(st, 0), duration = sqlite3_column_int64(st, 1),
            host = sqlite3_column_int64(st, 2), tid = number(st, 3), until = from + duration;
    struct sums *s = sums_of(o, (const char *)sqlite3_column_text(st, 4));
    const struct stretches *w = &o->waits, *steps = &o->steps;
    size_t i = first_after(steps, from);

    if (!s || (i < steps->n && steps->v[i].from <= from &&
               add(&o->in_step, from, until, s - o->ops) != SQLITE_OK))
        return SQLITE_NOMEM;
    if (sqlite3_column_int(st, 5))
        return SQLITE_OK;
    s->calls++;
    s->duration += duration;
    s->host += host;
    if (add_over(o, from, until, tid, host) != SQLITE_OK)
        return SQLITE_NOMEM;
    s->under += together(&o->over);
    for (i = first_from(w, from); i < w->n && w->v[i].from < until; i++) {
        if (w->v[i].tid != tid || w->v[i].from >= from + host)
            s->waited += in_vain(o, &w->v[i], tid, from + host);
    }
    return SQLITE_OK;
}

/* Adds up the time of the calls that began within a step. */
static void add_stepped(struct overlap *o) {
    int64_t end = INT64_MIN;

    sort(&o->in_step, by_from); /* a call that goes on in another file has its row there */
    for (size_t i = 0; i < o->in_step.n; i++) {
        const struct stretch *c = &o->in_step.v[i];
        if (c->until > end) {
            o->ops[c->tid].stepped += c->until - (c->from > end ? c->from : end);
            end = c->until;
        }
    }
}

static int measure(struct overlap *o, int64_t trace) {
    int rc = find_files(o, trace);

    for (size_t i = 0; rc == SQLITE_OK && i < o->nfiles; i++) {
        o->ntids = 0;
        rc = each(o, &o->files[i], "thread", threads_sql, add_tid);
        if (rc == SQLITE_OK)
            rc = each(o, &o->files[i], "torch_call", passes_sql, add_pass);
    }
    sort(&o->passes, by_until);
    if (rc == SQLITE_OK)
        rc = each_of_all(o, "sample", waits_sql, add_wait);
    sort(&o->waits, by_from);
    if (rc == SQLITE_OK)
        rc = each_of_all(o, "torch_step", steps_sql, add_step);
    sort(&o->steps, by_until);
    if (rc == SQLITE_OK)
        rc = each_of_all(o, "comm", calls_sql, add_call);
    add_stepped(o);
    return rc;
}

static void put_name(FILE *f, const char *name) {
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        fprintf(f, *p < ' ' || *p == '"' || *p == '\\' ? "\\u%04x" : "%c", *p);
    fputc('"', f);
}

static int put(const struct overlap *o, char **text, size_t *n) {
    FILE *f = open_memstream(text, n);

    if (!f)
        return SQLITE_NOMEM;
    fputc('[', f);
    for (size_t i = 0; i < o->nops; i++) {
        const struct sums *s = &o->ops[i];
        fputs(i ? ",{\"op\":" : "{\"op\":", f);
        if (s->op)
            put_name(f, s->op);
        else
            fputs("null", f);
        fprintf(f,
                ",\"calls\":%lld,\"duration\":%lld,\"host\":%lld,\"under\":%lld,\"waited\":%lld,"
                "\"stepped\":%lld,"
                "\"steps\":%lld,\"waits\":%zu}",
                (long long)s->calls, (long long)s->duration, (long long)s->host,
                (long long)s->under, (long long)s->waited, (long long)s->stepped,
                (long long)o->stepping, o->waits.n);
    }
    fputc(']', f);
    return fclose(f) == 0 ? SQLITE_OK : SQLITE_NOMEM;
}

static void overlap(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    struct overlap o = {.db = sqlite3_context_db_handle(ctx),
                        .stacks = argv[1],
                        .since = sqlite3_value_type(argv[2]) == SQLITE_NULL
                                     ? INT64_MIN
                                     : sqlite3_value_int64(argv[2])};
    char *text = NULL;
    size_t n = 0;

    (void)argc;
    if (sqlite3_value_type(argv[0]) == SQLITE_NULL)
        return;
    int rc = measure(&o, sqlite3_value_int64(argv[0]));
    if (rc == SQLITE_OK)
        rc = put(&o, &text, &n);
    if (rc == SQLITE_OK)
        sqlite3_result_text64(ctx, text, n, SQLITE_TRANSIENT, SQLITE_UTF8);
    else
        sqlite3_result_error_code(ctx, rc);
    free(text);
    for (size_t i = 0; i < o.nops; i++)
        free(o.ops[i].op);
    free(o.ops);
    free(o.files);
    free(o.tids);
    free(o.in_step.v);
    free(o.passes.v);
    free(o.waits.v);
    free(o.steps.v);
    free(o.over.v);
}

int overlap_register(sqlite3 *db) {
    return sqlite3_create_function_v2(db, "overlap", 3, SQLITE_UTF8, NULL, overlap, NULL, NULL,
                                      NULL);
}
