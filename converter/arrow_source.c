/* SPDX-License-Identifier: Apache-2.0 */
#include "arrow_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/hash.h"
#include "../traces/run.h"
#include "arrow_notes.h"
#include "arrow_stop.h"
#include "clock_rows.h"
#include "output.h"
#include "place_rows.h"
#include "source.h"
#include "text.h"

/* ---- the columns that are asked for ---- */

int arrow_choose(struct arrow_source *s, const struct arrow_field *all, size_t n, size_t usual,
                 unsigned **which) {
    const struct probing_request *rq = s->rq;
    size_t count = rq->ncolumns ? rq->ncolumns : usual;

    s->fields = calloc(count, sizeof *s->fields);
    *which = calloc(count, sizeof **which);
    if (!s->fields || !*which)
        return arrow_fail(s->notes, -ENOMEM, "no memory");
    for (size_t i = 0; i < count; i++) {
        size_t k = i;
        if (rq->ncolumns)
            for (k = 0; k < n && strcmp(all[k].name, rq->columns[i]) != 0;)
                k++;
        if (k >= n)
            return arrow_fail(s->notes, -EINVAL, "no column %s in %s", rq->columns[i], rq->table);
        (*which)[i] = (unsigned)k;
        s->fields[i] = all[k];
        s->nfields++;
    }
    return 0;
}

/* ---- the files ---- */

static int interrupted(struct arrow_notes *notes) {
    return arrow_fail(notes, -EINTR, "interrupted");
}

static int holds_one(const char *path) {
    struct reader *r;
    int yes = reader_open(&r, path) == 0 && reader_is_last(r);

    reader_close(r);
    return yes;
}

/* Leaves out copies of a trace, and earlier states of it: the longest one counts. Files with several joined traces stay, since the others
 * would be lost. */
static int leave_out_copies(struct arrow_trace *t, struct arrow_notes *notes) {
    struct keys names;
    size_t n = 0, *best = calloc(t->in.n + 1, sizeof *best);
    uint64_t size, *sizes = calloc(t->in.n + 1, sizeof *sizes);
    char name[RUN_ID], *out = calloc(t->in.n + 1, 1);
    int err = best && sizes && out ? 0 : -ENOMEM;

    keys_init(&names);
    for (size_t i = 0; !err && i < t->in.n; i++) {
        if (arrow_stopped())
            err = interrupted(notes);
        if (err || source_recording(t->in.file[i].path, name, &size) != 0)
            continue;
        int is_new;
        uint32_t id = keys_put(&names, name, strlen(name), &is_new);
        if (!id) {
            err = -ENOMEM;
        } else if (is_new) {
            best[id - 1] = i;
            sizes[id - 1] = size;
        } else {
            size_t loser = size > sizes[id - 1] ? best[id - 1] : i;
            if (!holds_one(t->in.file[loser].path))
                continue;
            out[loser] = 1;
            best[id - 1] = loser == i ? best[id - 1] : i;
            sizes[id - 1] = size > sizes[id - 1] ? size : sizes[id - 1];
            arrow_note(notes, 0, t->in.file[loser].path, "the same recording as %s: counted once",
                       t->in.file[best[id - 1]].path);
        }
    }
    for (size_t i = 0; !err && i < t->in.n; i++) {
        if (out[i])
            free(t->in.file[i].path);
        else
            t->in.file[n++] = t->in.file[i];
    }
    if (!err)
        t->in.n = n;
    keys_free(&names);
    free(best);
    free(sizes);
    free(out);
    return err;
}

static int find_files(struct arrow_trace *t, const struct probing_request *rq,
                      struct arrow_notes *notes) {
    for (size_t i = 0; i < rq->npaths; i++) {
        int err = inputs_add(&t->in, rq->paths[i], rq->flags & PROBING_ALONE ? 0 : INPUTS_SIBLINGS);
        if (err)
            return arrow_fail(notes, err, "cannot open %s: %s", rq->paths[i], inputs_strerror(err));
    }
    return t->in.n > 1 ? leave_out_copies(t, notes) : 0;
}

/* ---- one trace after the other ---- */

static uint64_t mix(uint64_t h, const void *p, size_t n) {
    h = hash_bytes(h, p, n);
    return h ^ h >> 29;
}

int64_t arrow_trace_recording(const struct arrow_trace *t) {
    const struct meta *m = &t->meta;
    const struct reader_block *first = reader_blocks(t->reader) ? reader_block(t->reader, 0) : NULL;
    /* The first block of a later file of a recording (rotation) has no time. */
    uint64_t key[3] = {m->pid, m->process_start,
                       first && first->first_ts ? first->first_ts : m->process_ts};
    uint64_t h = mix(HASH_START, m->host ? m->host : "", m->host ? strlen(m->host) : 0);

    h = mix(h, m->boot_id ? m->boot_id : "", m->boot_id ? strlen(m->boot_id) : 0);
    return (int64_t)(mix(h, key, sizeof key) >> 1);
}

static void forget(struct arrow_trace *t) {
    meta_free(&t->meta);
    epochs_free(t->epochs);
    t->epochs = NULL;
    free(t->run);
    t->run = NULL;
}

static void forget_twice(struct arrow_trace *t) {
    keys_free(&t->twice);
    free(t->best);
    t->best = NULL;
}

/* Notes the damage that reading the trace has shown; blocks that nobody asked for are not read for this. */
static void note_damage(struct arrow_trace *t, struct arrow_notes *notes) {
    uint64_t bad = 0, records = 0, newer = 0, tail, missing = reader_gaps(t->reader, &tail);

    for (size_t i = 0; i < reader_blocks(t->reader); i++) {
        const struct reader_block *b = reader_block(t->reader, i);
        bad += b->state == READER_BAD || b->state == READER_EXCESS;
        records += b->state == READER_BAD || b->state == READER_EXCESS ? b->count : 0;
        newer += b->state == READER_NEWER;
    }
    if (bad)
        arrow_note(notes, -EBADMSG, t->path, "damaged: %llu block%s (%llu records) left out",
                   (unsigned long long)bad, bad == 1 ? "" : "s", (unsigned long long)records);
    if (newer)
        arrow_note(notes, -EPROTONOSUPPORT, t->path, "%llu block%s of a newer version left out",
                   (unsigned long long)newer, newer == 1 ? "" : "s");
    if (missing)
        arrow_note(notes, -EBADMSG, t->path, "damaged: %llu block%s missing",
                   (unsigned long long)missing, missing == 1 ? " is" : "s are");
    if (tail)
        arrow_note(notes, -EBADMSG, t->path,
                   "cut off in its last block (%llu bytes), unless it is being written",
                   (unsigned long long)tail);
}

static int wanted_rank(const struct probing_request *rq, int64_t rank) {
    for (size_t i = 0; i < rq->nranks; i++)
        if (rq->ranks[i] == rank)
            return 1;
    return rq->nranks == 0;
}

/* For a file with several joined traces: finds out which of them are the same recording. Returns 0 or -ENOMEM. */
static int find_twice(struct arrow_trace *t) {
    struct reader *r;
    size_t n = 0, cap = 0;
    uint64_t *size = NULL;
    int more = 1, err = reader_open(&r, t->path);

    if (err) /* for example it is gone; whoever reads it reports that */
        return err == -ENOMEM ? err : 0;
    for (size_t part = 0; !err && more > 0; part++, more = err ? 0 : reader_next(r)) {
        struct meta m;
        struct epochs *es = epochs_new(r);
        char name[META_RECORDING];
        err = es && meta_load(&m, r, es) == 0 ? 0 : -ENOMEM;
        epochs_free(es);
        if (err)
            break;
        meta_recording(&m, name);
        int is_new = 0;
        meta_free(&m);
        uint32_t id = keys_put(&t->twice, name, strlen(name), &is_new);
        if (id > cap) {
            cap = cap * 2 + 16;
            size_t *b = realloc(t->best, cap * sizeof *b);
            t->best = b ? b : t->best;
            uint64_t *s = realloc(size, cap * sizeof *s);
            size = s ? s : size;
            id = b && s ? id : 0;
        }
        err = id ? 0 : -ENOMEM;
        if (err)
            continue;
        if (is_new || reader_size(r) > size[id - 1]) {
            t->best[id - 1] = part;
            size[id - 1] = reader_size(r);
        }
        n += !is_new;
    }
    if (!n)
        keys_free(&t->twice);
    free(size);
    reader_close(r);
    return more < 0 ? -ENOMEM : err;
}

/* Returns 1 when the file has a longer trace of the same recording, which is the one that counts. */
static int is_copy(struct arrow_trace *t, struct arrow_notes *notes) {
    char name[META_RECORDING];

    meta_recording(&t->meta, name);
    uint32_t id = t->twice.n ? keys_find(&t->twice, name, strlen(name)) : 0;
    if (!id || t->best[id - 1] == t->part)
        return 0;
    arrow_note(notes, 0, t->path, "trace %zu in it: the same recording as trace %zu: counted once",
               t->part + 1, t->best[id - 1] + 1);
    return 1;
}

/* Goes on to the next trace in the open file, or in the next file that can be used. */
static int advance(struct arrow_trace *t, struct arrow_notes *notes) {
    int err;

    if (t->reader) {
        /* what could not be read must not count as damaged */
        if ((err = reader_error(t->reader)) != 0)
            return arrow_fail(notes, err, "cannot read %s: %s", t->path, strerror(-err));
        note_damage(t, notes);
        forget(t);
        t->part++;
        if ((err = reader_next(t->reader)) != 0)
            return err;
        forget_twice(t);
        reader_close(t->reader);
        t->reader = NULL;
    }
    while (t->at < t->in.n) {
        if (arrow_stopped())
            return interrupted(notes);
        t->path = t->in.file[t->at++].path;
        t->part = 0;
        if ((err = reader_open(&t->reader, t->path)) == 0)
            return reader_is_last(t->reader) || (err = find_twice(t)) == 0 ? 1 : err;
        t->reader = NULL;
        if (err == -ENOMEM)
            return err;
        arrow_note(notes, err, t->path, "%s", reader_strerror(err));
        if (t->in.n == 1)
            return arrow_fail(notes, err, "%s: %s", t->path, reader_strerror(err));
    }
    if (!t->read)
        return arrow_fail(notes, -ENODATA, "none of the %zu files can be read as a trace (%s)",
                          t->in.n, t->path ? t->path : "");
    return 0;
}

/* Finds the run that it belongs to: as all traces together tell, if that is known, else as the trace itself says. */
static int find_place(struct arrow_trace *t) {
    const char *run = t->meta.job && *t->meta.job ? t->meta.job : t->meta.run;
    int rc =
        t->clocks ? place_rows_find(t->clocks, &t->meta, &t->run, &t->attempt) : SQLITE_NOTFOUND;

    if (rc == SQLITE_NOTFOUND) {
        t->attempt = meta_told(&t->meta);
        t->run = strdup(run ? run : "");
    }
    return t->run ? 0 : -ENOMEM;
}

int arrow_trace_next(struct arrow_trace *t, const struct probing_request *rq,
                     struct arrow_notes *notes) {
    int rc;

    if (!t->started && (rc = find_files(t, rq, notes)) != 0)
        return rc;
    t->started = 1;
    if (rq->clocks && !t->clocks &&
        output_open(rq->clocks, &t->clocks, SQLITE_OPEN_READONLY) != SQLITE_OK)
        return arrow_fail(notes, -EINVAL, "cannot open %s: %s", rq->clocks,
                          sqlite3_errmsg(t->clocks));
    while ((rc = advance(t, notes)) > 0) {
        t->epochs = epochs_new(t->reader);
        if (!t->epochs || meta_load(&t->meta, t->reader, t->epochs) != 0)
            return arrow_fail(notes, -ENOMEM, "no memory");
        if (is_copy(t, notes))
            continue;
        t->id = (int64_t)++t->read;
        char none[META_RECORDING];
        int known = t->clocks ? clock_rows_map(t->clocks, meta_boot(&t->meta, none), &t->meta.clock)
                              : SQLITE_NOTFOUND;
        if (known != SQLITE_OK && known != SQLITE_NOTFOUND)
            return arrow_fail(notes, -EINVAL, "%s: %s", rq->clocks, sqlite3_errstr(known));
        if (rq->flags & PROBING_GLOBAL)
            t->id = arrow_trace_recording(t);
        if ((rc = find_place(t)) != 0)
            return arrow_fail(notes, rc, "no memory");
        if (wanted_rank(rq, t->meta.rank))
            return 1;
    }
    return rc == -ENOMEM ? arrow_fail(notes, rc, "no memory") : rc;
}

void arrow_trace_close(struct arrow_trace *t) {
    forget(t);
    forget_twice(t);
    reader_close(t->reader);
    inputs_free(&t->in);
    sqlite3_close(t->clocks);
    memset(t, 0, sizeof *t);
}

/* The UTC times of a block lie between those of its ends and of the anchors inside it, because the clock may have been set back. */
static int overlaps(struct arrow_trace *t, const struct probing_request *rq,
                    const struct reader_block *b) {
    struct clock_map *m = &t->meta.clock;
    int64_t lo = clock_utc(m, b->first_ts), hi = clock_utc(m, b->last_ts);

    if (lo > hi) {
        int64_t x = lo;
        lo = hi;
        hi = x;
    }
    for (size_t i = 0; i < m->n; i++) {
        if (m->a[i].mono < (int64_t)b->first_ts || m->a[i].mono > (int64_t)b->last_ts)
            continue;
        int64_t before = i ? clock_utc(m, (uint64_t)m->a[i].mono - 1) : m->a[i].real;
        lo = m->a[i].real < lo ? m->a[i].real : before < lo ? before : lo;
        hi = m->a[i].real > hi ? m->a[i].real : before > hi ? before : hi;
    }
    return lo < rq->until && hi >= rq->from;
}

int arrow_trace_wants(struct arrow_trace *t, const struct probing_request *rq, size_t i,
                      unsigned type) {
    const struct reader_block *b = reader_block(t->reader, i);

    if (b->state == READER_BAD || !reader_may_hold(t->reader, i, 1ull << type))
        return 0;
    return (rq->from == INT64_MIN && rq->until == INT64_MAX) || (b->last_ts && overlaps(t, rq, b));
}
