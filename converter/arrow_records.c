/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_records.c - any record of traces/records.def as a table: its fields as columns, with times in UTC and strings as names, preceded by
 * the trace, process and rank of the row.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_source.h"
#include "text.h"

enum { TRACE, PID, RANK, OWN }; /* followed by the fields of the record */

struct records {
    struct arrow_source base; /* must be first */
    struct arrow_trace t;
    struct reader_data data;
    const struct trace_record *rec;
    unsigned *which;
    int time; /* index of the first field that is a time, -1: none */
    int open;
    size_t block;
};

static enum arrow_type type_of(enum trace_type t) {
    switch (t) {
    case TRACE_T:
    case TRACE_TUS:
        return ARROW_TIME;
    case TRACE_F:
        return ARROW_REAL;
    case TRACE_STR:
        return ARROW_NAME;
    case TRACE_TXT:
        return ARROW_TEXT;
    case TRACE_BIN:
        return ARROW_BYTES;
    case TRACE_REFS:
    case TRACE_US:
        return ARROW_INTS;
    default:
        return ARROW_INT;
    }
}

static int put_text(struct records *s, struct arrow_column *c, const void *p, size_t n) {
    size_t len;

    if (!reader_allow(s->t.reader, n / 64))
        n = n < 64 ? n : 64;
    char *text = text_utf8(p, n, &len);
    int err = text ? arrow_put_text(c, text, len) : -ENOMEM;

    free(text);
    return err;
}

static int put_field(struct records *s, struct arrow_column *c, unsigned field,
                     const struct trace_value *v) {
    struct trace_value list = v[field];
    uint64_t prev = 0, x;
    int err = 0;

    switch (s->rec->fields[field].type) {
    case TRACE_T:
    case TRACE_TUS:
        return arrow_put(c, clock_utc(&s->t.meta.clock, v[field].u));
    case TRACE_F:
        return arrow_put_real(c, v[field].f);
    case TRACE_TXT:
        return put_text(s, c, v[field].p, v[field].n);
    case TRACE_BIN:
        return arrow_put_text(c, v[field].p, v[field].n);
    case TRACE_STR: {
        size_t n;
        const struct dict *d = v[field].u ? epochs_get(s->t.epochs, s->data.h.epoch) : NULL;
        if (!v[field].u)
            return arrow_put_null(c);
        const char *p = d ? dict_string(d, v[field].u, &n) : NULL;
        return p ? put_text(s, c, p, n) : -ENOMEM;
    }
    case TRACE_REFS:
    case TRACE_US:
        if (reader_allow(s->t.reader, list.n))
            while (!err && trace_list_next(&list, &prev, &x))
                err = arrow_item(c, (int64_t)x);
        return err ? err : arrow_put_list(c);
    default:
        return arrow_put(c, v[field].i);
    }
}

static int put_row(struct records *s, struct arrow_batch *b, const struct trace_value *v) {
    const struct meta *m = &s->t.meta;
    int err = 0;

    for (size_t k = 0; !err && k < b->ncols; k++) {
        struct arrow_column *c = &b->col[k];
        switch (s->which[k]) {
        case TRACE:
            err = arrow_put(c, s->t.id);
            break;
        case PID:
            err = m->has_process ? arrow_put(c, (int64_t)m->pid) : arrow_put_null(c);
            break;
        case RANK:
            err = m->rank >= 0 ? arrow_put(c, m->rank) : arrow_put_null(c);
            break;
        default:
            err = put_field(s, c, s->which[k] - OWN, v);
        }
    }
    b->n += !err;
    return err ? arrow_fail(s->base.notes, err, "%s", strerror(-err)) : 0;
}

static int next(struct arrow_source *base, struct arrow_batch *b) {
    struct records *s = (struct records *)base;
    struct trace_value v[TRACE_MAX_FIELDS];
    const struct probing_request *rq = base->rq;
    struct trace_rows rows;
    int rc, type;

    if (!s->open || s->block >= reader_blocks(s->t.reader)) {
        s->open = 0;
        if ((rc = arrow_trace_next(&s->t, rq, base->notes)) <= 0)
            return rc;
        s->open = 1;
        s->block = 0;
    }
    for (; s->block < reader_blocks(s->t.reader); s->block++)
        if (arrow_trace_wants(&s->t, rq, s->block, s->rec->id))
            break;
    if (s->block == reader_blocks(s->t.reader))
        return 1;
    rc = reader_load(s->t.reader, s->block++, &s->data);
    if (rc == -ENOMEM)
        return arrow_fail(base->notes, rc, "no memory");
    if (rc)
        return 1;
    trace_rows_start(&rows, &s->data.h, s->data.data);
    while ((type = trace_rows_next(&rows, 1ull << s->rec->id, v)) > 0) {
        int64_t ts = s->time < 0 ? 0 : clock_utc(&s->t.meta.clock, v[s->time].u);
        if (s->time >= 0 && (ts < rq->from || ts >= rq->until))
            continue;
        if ((rc = put_row(s, b, v)) != 0)
            return rc;
    }
    if (type < 0)
        reader_damaged(s->t.reader, s->block - 1);
    return 1;
}

static void records_free(struct arrow_source *base) {
    struct records *s = (struct records *)base;

    arrow_trace_close(&s->t);
    reader_data_free(&s->data);
    free(s->which);
    free(s->base.fields);
    free(s);
}

struct arrow_source *arrow_records(const struct probing_request *rq, struct arrow_notes *notes) {
    struct arrow_field all[OWN + TRACE_MAX_FIELDS] = {
        {"trace_id", ARROW_INT, "the trace that it is of"},
        {"pid", ARROW_INT, "process"},
        {"rank", ARROW_INT, "the process's rank; null: it has none"}};
    struct records *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->base = (struct arrow_source){.rq = rq, .notes = notes, .next = next, .free = records_free};
    s->rec = trace_record_by_name(rq->table);
    s->time = -1;
    for (unsigned i = 0; i < s->rec->nfields; i++) {
        const struct trace_field *f = &s->rec->fields[i];
        all[OWN + i] = (struct arrow_field){f->name, type_of(f->type), f->doc};
        if (strcmp(f->name, "pid") == 0 ||
            strcmp(f->name, "rank") == 0) /* fields of process and process_group */
            all[OWN + i].name = *f->name == 'p' ? "own_pid" : "own_rank";
        if (s->time < 0 && all[OWN + i].type == ARROW_TIME)
            s->time = (int)i;
    }
    if (arrow_choose(&s->base, all, OWN + s->rec->nfields, OWN + s->rec->nfields, &s->which) != 0) {
        records_free(&s->base);
        return NULL;
    }
    return &s->base;
}
