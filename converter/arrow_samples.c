/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_samples.c - the table `samples` of traces: each column is filled from the arrays of arrow_rows.h that it needs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_rows.h"

enum column {
    TIME,
    TRACE,
    PID,
    RANK,
    TID,
    THREAD,
    FUNC,
    FILE_,
    LINE,
    FRAME_TYPE,
    STATE,
    GIL,
    CPU,
    COUNT,
    SECONDS,
    STACK_ID,
    SAMPLE_ID,
    OUTSIDE,
    RUN,
    HOST,
    STACK,
    NCOLUMNS
};

static const struct arrow_field columns[NCOLUMNS] = {
    [TIME] = {"timestamp", ARROW_TIME, "when"},
    [TRACE] = {"trace_id", ARROW_INT, "the trace that it is of"},
    [PID] = {"pid", ARROW_INT, "process"},
    [RANK] = {"rank", ARROW_INT, "the process's rank; null: it has none"},
    [TID] = {"tid", ARROW_INT, "kernel thread id"},
    [THREAD] = {"thread", ARROW_NAME, "name of the thread"},
    [FUNC] = {"func", ARROW_NAME, "innermost function; null: the stack could not be read"},
    [FILE_] = {"file", ARROW_NAME, "its source file, of native code without lines the ELF file"},
    [LINE] = {"lineno", ARROW_INT, "line in it; null: not known"},
    [FRAME_TYPE] = {"frame_type", ARROW_NAME, "Python or Native"},
    [STATE] = {"state", ARROW_NAME, "running: on a CPU or waiting for one; else idle"},
    [GIL] = {"gil", ARROW_FLAG, "1: it held the GIL"},
    [CPU] = {"cpu_seconds", ARROW_REAL, "CPU time since the thread's previous sample, seconds"},
    [COUNT] = {"count", ARROW_INT,
               "ticks of the sampler that it stands for; 0: taken by a trigger"},
    [SECONDS] = {"seconds", ARROW_REAL, "count x sampling period"},
    [STACK_ID] = {"stack_id", ARROW_INT,
                  "by what is on the stack: equal stacks have equal ids; in table stacks"},
    [SAMPLE_ID] = {"sample_id", ARROW_INT, "of this row, in its trace"},
    [OUTSIDE] = {"outside", ARROW_FLAG, "1: read from outside of the thread, Python frames alone"},
    [RUN] = {"run", ARROW_NAME, "the run that its process is of"},
    [HOST] = {"host", ARROW_NAME, "the machine"},
    [STACK] = {"stack", ARROW_NAMES, "all frames as 'function (file:line)', the innermost first"},
};
#define USUAL STACK /* number of columns when the request names none */

struct samples {
    struct arrow_source base; /* must be first */
    struct arrow_rows r;
    unsigned *which;
    int known; /* 1: the dictionaries of the columns are set */
    /* Names of the current trace, as indices. */
    int32_t *thread_names; /* indexed by thread; + 1; 0: not looked up */
    size_t nthread_names;
    int32_t run, host, states[2], types[2]; /* idle, running; Python, Native */
    uint8_t null[ARROW_ROWS];
};

/* Returns the column if it was requested, else NULL. */
static struct arrow_column *column(struct samples *s, struct arrow_batch *b, unsigned c) {
    for (size_t i = 0; i < b->ncols; i++)
        if (s->which[i] == c)
            return &b->col[i];
    return NULL;
}

static int put_name(struct arrow_column *c, const char *text, int32_t *out) {
    *out = -1;
    return c && text && *text ? arrow_names_put(c->names, text, strlen(text), out) : 0;
}

/* Adds the names that all rows of a trace share. Returns 0 or -ENOMEM. */
static int begin_trace(struct samples *s, struct arrow_batch *b) {
    free(s->thread_names);
    s->thread_names = NULL;
    s->nthread_names = 0;
    return put_name(column(s, b, STATE), "idle", &s->states[0]) ||
                   put_name(column(s, b, STATE), "running", &s->states[1]) ||
                   put_name(column(s, b, FRAME_TYPE), "Python", &s->types[0]) ||
                   put_name(column(s, b, FRAME_TYPE), "Native", &s->types[1]) ||
                   put_name(column(s, b, RUN), s->r.t.run, &s->run) ||
                   put_name(column(s, b, HOST), s->r.t.meta.host, &s->host)
               ? -ENOMEM
               : 0;
}

/* Returns the index of the name, -1: none, or -2: no memory. */
static int32_t thread_name(struct samples *s, struct arrow_column *c, uint32_t thread) {
    const struct threads *all = &s->r.t.meta.threads;
    size_t n = all->n;

    if (thread >= s->nthread_names) {
        int32_t *p = realloc(s->thread_names, (n + 64) * sizeof *p);
        if (!p)
            return -2;
        memset(p + s->nthread_names, 0, (n + 64 - s->nthread_names) * sizeof *p);
        s->thread_names = p;
        s->nthread_names = n + 64;
    }
    int32_t *known = &s->thread_names[thread];
    if (!*known) {
        const char *text = threads_text(all, all->t[thread].name);
        int32_t i = -1;
        if (text && arrow_names_put(c->names, text, strlen(text), &i) != 0)
            return -2;
        *known = i < 0 ? -1 : i + 1;
    }
    return *known < 0 ? -1 : *known - 1;
}

static int put_stack(struct samples *s, struct arrow_column *c, uint32_t site) {
    uint32_t parent;
    int err = 0;

    for (; !err && site; site = parent) {
        const struct arrow_frame *f =
            arrow_stacks_frame(&s->r.stacks, callsites_site_of(&s->r.stacks.sites, site, &parent));
        err = f ? arrow_item(c, f->text) : -ENOMEM;
    }
    return err ? err : arrow_put_list(c);
}

static int put_stack_lists(struct samples *s, struct arrow_column *c) {
    int err = 0;

    for (size_t i = 0; !err && i < s->r.n; i++)
        err = s->r.site[i] ? put_stack(s, c, s->r.site[i]) : arrow_put_null(c);
    return err;
}

/* Sets each new row i of the column to `v`. */
#define EACH(type, v)                                                                              \
    do {                                                                                           \
        type *to = arrow_end(c);                                                                   \
        for (size_t i = 0; i < n; i++)                                                             \
            to[i] = (type)(v);                                                                     \
    } while (0)
/* Does the same, and makes the rows null for which `is_null` is true. */
#define EACH_OR_NULL(type, v, is_null)                                                             \
    do {                                                                                           \
        EACH(type, v);                                                                             \
        for (size_t i = 0; i < n; i++)                                                             \
            s->null[i] = (is_null);                                                                \
        err = arrow_nulls(c, c->n, s->null, n);                                                    \
    } while (0)
/* Sets all new rows to one value of the trace, or to null. */
#define ALL(type, v, is_null)                                                                      \
    do {                                                                                           \
        const type value = (type)(v);                                                              \
        EACH(type, value);                                                                         \
        if (is_null) {                                                                             \
            memset(s->null, 1, n);                                                                 \
            err = arrow_nulls(c, c->n, s->null, n);                                                \
        }                                                                                          \
    } while (0)
#define LEAF s->r.stacks.frames[s->r.frame[i]] /* entry 0: no frame */

static int put_column(struct samples *s, struct arrow_column *c, unsigned which) {
    const struct meta *m = &s->r.t.meta;
    size_t n = s->r.n;
    int err = which == STACK ? put_stack_lists(s, c) : arrow_reserve(c, n);

    if (err || which == STACK)
        return err;
    switch ((enum column)which) {
    case TIME:
        memcpy(arrow_end(c), s->r.ts, n * sizeof *s->r.ts);
        break;
    case TRACE:
        ALL(int64_t, s->r.t.id, 0);
        break;
    case PID:
        ALL(int64_t, m->pid, !m->has_process);
        break;
    case RANK:
        ALL(int64_t, m->rank, m->rank < 0);
        break;
    case TID:
        memcpy(arrow_end(c), s->r.tid, n * sizeof *s->r.tid);
        break;
    case THREAD:
        EACH(int32_t, thread_name(s, c, s->r.thread[i]));
        for (size_t i = 0; i < n; i++) {
            int32_t name = ((const int32_t *)arrow_end(c))[i];
            s->null[i] = name < 0;
            err = name == -2 ? -ENOMEM : err;
        }
        err = err ? err : arrow_nulls(c, c->n, s->null, n);
        break;
    case FUNC:
        EACH_OR_NULL(int32_t, LEAF.func, !s->r.frame[i]);
        break;
    case FILE_:
        EACH_OR_NULL(int32_t, LEAF.file, !s->r.frame[i] || LEAF.file < 0);
        break;
    case LINE:
        EACH_OR_NULL(int64_t, LEAF.line, !LEAF.line);
        break;
    case FRAME_TYPE:
        EACH_OR_NULL(int32_t, s->types[LEAF.native], !s->r.frame[i]);
        break;
    case STATE:
        EACH(int32_t, s->states[s->r.flags[i] & 1]);
        break;
    case GIL:
        EACH(int8_t, s->r.flags[i] >> 1 & 1);
        break;
    case CPU:
        EACH(double, (double)(int64_t)s->r.cpu[i] / 1e6);
        break;
    case COUNT:
        memcpy(arrow_end(c), s->r.count, n * sizeof *s->r.count);
        break;
    case SECONDS:
        if (m->nperiods == 1) {
            double period = (double)m->periods[0].ns;
            EACH(double, (double)(int64_t)s->r.count[i] * period / 1e9);
        } else {
            EACH(double,
                 (double)(int64_t)s->r.count[i] * (double)meta_period_at(m, s->r.mono[i]) / 1e9);
            if (!m->nperiods)
                ALL(double, 0, 1);
        }
        break;
    case STACK_ID:
        EACH_OR_NULL(int64_t, s->r.stack_id[i], !s->r.frame[i]);
        break;
    case SAMPLE_ID:
        memcpy(arrow_end(c), s->r.id, n * sizeof *s->r.id);
        break;
    case OUTSIDE:
        EACH(int8_t, s->r.flags[i] >> 2 & 1);
        break;
    case RUN:
        ALL(int32_t, s->run, s->run < 0);
        break;
    case HOST:
        ALL(int32_t, s->host, s->host < 0);
        break;
    case STACK:
    case NCOLUMNS:
        break;
    }
    c->n += n;
    return err;
}

static int put_samples(struct samples *s, struct arrow_batch *b) {
    for (size_t k = 0; k < b->ncols; k++) {
        int err = put_column(s, &b->col[k], s->which[k]);
        if (err)
            return arrow_fail(s->base.notes, err, "%s", strerror(-err));
    }
    b->n += s->r.n;
    return 0;
}

static int next(struct arrow_source *base, struct arrow_batch *b) {
    struct samples *s = (struct samples *)base;
    int rc;

    for (size_t i = 0; !s->known && i < b->ncols; i++) {
        struct arrow_names **to = s->which[i] == FUNC    ? &s->r.stacks.func
                                  : s->which[i] == FILE_ ? &s->r.stacks.file
                                  : s->which[i] == STACK ? &s->r.stacks.text
                                                         : NULL;
        if (to)
            *to = b->col[i].names;
    }
    s->known = 1;
    if ((rc = arrow_rows_next(&s->r)) <= 0)
        return rc;
    if (s->r.begun && begin_trace(s, b) != 0)
        return arrow_fail(base->notes, -ENOMEM, "no memory");
    return s->r.n && (rc = put_samples(s, b)) ? rc : 1;
}

static void samples_free(struct arrow_source *base) {
    struct samples *s = (struct samples *)base;

    arrow_rows_free(&s->r);
    free(s->thread_names);
    free(s->which);
    free(s->base.fields);
    free(s);
}

struct arrow_source *arrow_samples(const struct probing_request *rq, struct arrow_notes *notes) {
    struct samples *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->base = (struct arrow_source){.rq = rq, .notes = notes, .next = next, .free = samples_free};
    arrow_rows_init(&s->r, rq, notes);
    if (arrow_choose(&s->base, columns, NCOLUMNS, USUAL, &s->which) != 0) {
        samples_free(&s->base);
        return NULL;
    }
    for (size_t i = 0; i < s->base.nfields; i++) {
        unsigned c = s->which[i];
        s->r.threads |= c == THREAD;
        s->r.ids |= c == STACK_ID;
        s->r.sites |=
            c == FUNC || c == FILE_ || c == LINE || c == FRAME_TYPE || c == STACK_ID || c == STACK;
    }
    return &s->base;
}
