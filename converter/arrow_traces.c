/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_traces.c - the table `traces`: a row for each trace, from its index and its meta records; no other blocks are read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_source.h"

enum {
    ID,
    GLOBAL,
    FILE_,
    PART,
    RUN,
    HOST,
    PID,
    RANK,
    WORLD,
    FIRST,
    LAST,
    BYTES,
    BLOCKS,
    RECORDS,
    END,
    SIZE,
    BOOT,
    ATTEMPT,
    NCOLUMNS
};

static const struct arrow_field columns[NCOLUMNS] = {
    [ID] = {"trace_id", ARROW_INT, "1, 2, ... over what was opened"},
    [GLOBAL] = {"recording", ARROW_INT,
                "by what it is a recording of: the same wherever the file lies"},
    [FILE_] = {"file", ARROW_TEXT, "path"},
    [PART] = {"part", ARROW_INT, "1, 2, ... in the file"},
    [RUN] = {"run", ARROW_NAME, "the run that its process is of"},
    [HOST] = {"host", ARROW_NAME, "the machine"},
    [PID] = {"pid", ARROW_INT, "process"},
    [RANK] = {"rank", ARROW_INT, "null: it has none"},
    [WORLD] = {"world_size", ARROW_INT, "number of ranks; null: not known"},
    [FIRST] = {"first", ARROW_TIME, "earliest time in it, by the hints"},
    [LAST] = {"last", ARROW_TIME, "latest"},
    [BYTES] = {"bytes", ARROW_INT, "of the trace in the file"},
    [BLOCKS] = {"blocks", ARROW_INT, "of all kinds"},
    [RECORDS] = {"records", ARROW_INT, "of all kinds, by the hints"},
    [END] = {"end_reason", ARROW_NAME, "why it ended; null: it did not, the file just stops"},
    [BOOT] = {"boot_id", ARROW_NAME, "the machine's boot: one clock"},
    [ATTEMPT] =
        {"attempt", ARROW_INT,
         "where a launcher starts the ranks again: how often it has; 0 of a file by itself"},
    [SIZE] = {"file_bytes", ARROW_INT, "of the whole file, when it was opened"},
};

struct traces {
    struct arrow_source base; /* must be first */
    struct arrow_trace t;
    unsigned *which;
};

static int put_known(struct arrow_column *c, int known, int64_t v) {
    return known ? arrow_put(c, v) : arrow_put_null(c);
}

static int put_text(struct arrow_column *c, const char *text) {
    return text && *text ? arrow_put_text(c, text, strlen(text)) : arrow_put_null(c);
}

static int put_cell(struct traces *s, struct arrow_column *c, unsigned which) {
    struct arrow_trace *t = &s->t;
    struct meta *m = &t->meta;
    uint64_t first = UINT64_MAX, last = 0, records = 0;

    for (size_t i = 0; i < reader_blocks(t->reader); i++) {
        const struct reader_block *b = reader_block(t->reader, i);
        records += b->count;
        first = b->last_ts && b->first_ts < first ? b->first_ts : first;
        last = b->last_ts > last ? b->last_ts : last;
    }
    switch (which) {
    case ID:
        return arrow_put(c, (int64_t)t->read);
    case GLOBAL:
        return arrow_put(c, arrow_trace_recording(t));
    case FILE_:
        return put_text(c, t->path);
    case PART:
        return arrow_put(c, (int64_t)t->part + 1);
    case RUN:
        return put_text(c, t->run);
    case HOST:
        return put_text(c, m->host);
    case PID:
        return put_known(c, m->has_process, (int64_t)m->pid);
    case RANK:
        return put_known(c, m->rank >= 0, m->rank);
    case WORLD:
        return put_known(c, m->world_size >= 0, m->world_size);
    case FIRST:
        return put_known(c, last != 0, last ? clock_utc(&m->clock, first) : 0);
    case LAST:
        return put_known(c, last != 0, clock_utc(&m->clock, last));
    case BYTES:
        return arrow_put(c, (int64_t)reader_size(t->reader));
    case BLOCKS:
        return arrow_put(c, (int64_t)reader_blocks(t->reader));
    case RECORDS:
        return arrow_put(c, (int64_t)records);
    case BOOT:
        return put_text(c, m->boot_id);
    case ATTEMPT:
        return arrow_put(c, t->attempt);
    case SIZE:
        return arrow_put(c, (int64_t)reader_file_size(t->reader));
    default:
        return put_text(c, m->end_reason);
    }
}

static int next(struct arrow_source *base, struct arrow_batch *b) {
    struct traces *s = (struct traces *)base;
    int rc = arrow_trace_next(&s->t, base->rq, base->notes), err = 0;

    if (rc <= 0)
        return rc;
    for (size_t k = 0; !err && k < b->ncols; k++)
        err = put_cell(s, &b->col[k], s->which[k]);
    b->n += !err;
    return err ? arrow_fail(base->notes, err, "%s", strerror(-err)) : 1;
}

static void traces_free(struct arrow_source *base) {
    struct traces *s = (struct traces *)base;

    arrow_trace_close(&s->t);
    free(s->which);
    free(s->base.fields);
    free(s);
}

struct arrow_source *arrow_traces(const struct probing_request *rq, struct arrow_notes *notes) {
    struct traces *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->base = (struct arrow_source){.rq = rq, .notes = notes, .next = next, .free = traces_free};
    if (arrow_choose(&s->base, columns, NCOLUMNS, NCOLUMNS, &s->which) != 0) {
        traces_free(&s->base);
        return NULL;
    }
    return &s->base;
}
