/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_find.c - finds which processes the inputs belong to, and the order of their parts: declared in pack.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack.h"

static void *more(void *list, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return list;
    size_t to = *cap * 2 + 8;
    void *p = realloc(list, to * size);
    if (p)
        *cap = to;
    return p;
}

/* Reads from the `process` records whose trace it is, and the times of these records. Returns their number, 0 if there is none, or -ENOMEM. */
static int identify(struct reader *r, struct pack_process *who, struct pack_part *part) {
    struct trace_value v[TRACE_MAX_FIELDS];
    struct reader_data data = {0};
    struct trace_rows rows;
    size_t cap = 0;
    int found = 0;

    memset(who, 0, sizeof *who);
    who->rank = -1;
    for (size_t i = 0; i < reader_blocks(r); i++) {
        if (!(reader_block(r, i)->types >> TRACE_process & 1) || reader_load(r, i, &data) != 0)
            continue;
        trace_rows_start(&rows, &data.h, data.data);
        while (trace_rows_next(&rows, 1ull << TRACE_process, v) > 0) {
            const struct trace_value *host = &v[TRACE_process_host],
                                     *boot = &v[TRACE_process_boot_id];
            if (v[TRACE_process_rank].i >= 0)
                who->rank = (int32_t)v[TRACE_process_rank].i; /* often only later records have it */
            uint64_t *at = more(part->at, part->said, &cap, sizeof *at);
            if (!at) {
                reader_data_free(&data);
                return -ENOMEM;
            }
            part->at = at;
            at[part->said++] = v[TRACE_process_ts].u;
            if (found++)
                continue;
            part->first = v[TRACE_process_ts].u;
            who->pid = (uint32_t)v[TRACE_process_pid].u;
            snprintf(who->host, sizeof who->host, "%.*s", (int)(host->n < 64 ? host->n : 64),
                     (const char *)host->p);
            snprintf(who->key, sizeof who->key, "%s %.*s %u %llu", who->host,
                     (int)(boot->n < 64 ? boot->n : 64), (const char *)boot->p, who->pid,
                     (unsigned long long)v[TRACE_process_start_ts].u);
        }
    }
    reader_data_free(&data);
    return found;
}

/* Returns the process that the part belongs to, added if it is new. NULL: no memory. */
static struct pack_process *process_of(struct pack *p, const struct pack_process *who) {
    for (size_t i = 0; *who->key && i < p->n; i++)
        if (strcmp(p->process[i].key, who->key) == 0)
            return &p->process[i];
    struct pack_process *list = more(p->process, p->n, &p->cap, sizeof *list);
    if (!list)
        return NULL;
    p->process = list;
    list[p->n] = *who;
    return &list[p->n++];
}

/* Returns whether all of a is in b: b is the same recording, or one that a was joined into. */
static int is_in(const struct pack_part *a, const struct pack_part *b) {
    for (size_t i = 0; i < b->said; i++)
        if (b->at[i] == a->first)
            return a->first != b->first || a->said < b->said ||
                   (a->said == b->said && a->bytes <= b->bytes);
    return 0;
}

/* Keeps each recording once. Returns 1 if the part is in one of the process's others; drops those others that are in it. */
static int is_copy(struct pack *p, struct pack_process *proc, const struct pack_part *part) {
    static const char line[] = "the same recording as another input, or a part of it: taken once";

    for (size_t i = 0; *proc->key && i < proc->n; i++) {
        struct pack_part *other = &proc->part[i];
        int less = is_in(part, other);
        if (!less && !is_in(other, part))
            continue;
        p->copies++;
        p->say(p->ctx, less ? part->path : other->path, line);
        if (less)
            return 1;
        free(other->at);
        memmove(other, other + 1, (proc->n - i - 1) * sizeof *other);
        proc->n--;
        i--;
    }
    return 0;
}

/* Counts the rows of a trace that was read by reader_loss(). Symbols are not counted: packing looks them up anew. */
static void count_rows(const struct reader *r, struct pack_part *part) {
    for (size_t i = 0; i < reader_blocks(r); i++) {
        const struct reader_block *b = reader_block(r, i);
        if (b->state != READER_GOOD)
            continue;
        if (b->kind == TRACE_KIND_DATA && !(b->types >> TRACE_symbol & 1))
            part->rows += b->count;
        part->has_end |= (int)(b->types >> TRACE_end & 1);
    }
}

static int add(struct pack *p, struct reader *r, const char *path, unsigned number) {
    struct pack_process who, *proc;
    struct pack_part part = {.path = path, .number = number};
    struct reader_loss loss;
    char line[200];

    if (reader_loss(r, &loss) != 0)
        return -ENOMEM;
    if (loss.newer_blocks || loss.unknown_blocks) {
        p->failed++;
        p->say(p->ctx, path, "it has blocks of a newer version of Probing: pack it with that one");
        return 0;
    }
    int known = identify(r, &who, &part);
    if (known < 0) {
        free(part.at);
        return known;
    }
    if (!known)
        who.key[0] = 0;
    count_rows(r, &part);
    part.bytes = reader_size(r);
    part.end = reader_end(r);
    part.damaged_records = loss.damaged_records;
    part.damaged_blocks = loss.damaged_blocks + loss.excess_blocks + loss.missing_blocks;
    part.tail_bytes = loss.tail_bytes;
    if (part.damaged_blocks || loss.damaged_bytes || part.tail_bytes) {
        snprintf(
            line, sizeof line,
            "damaged: %llu block%s (%llu records) missing or not readable, %llu bytes cut off at "
            "the end; the good blocks are packed",
            (unsigned long long)part.damaged_blocks, part.damaged_blocks == 1 ? "" : "s",
            (unsigned long long)part.damaged_records, (unsigned long long)part.tail_bytes);
        p->say(p->ctx, path, line);
        p->damaged++;
    }
    p->bytes_in += part.bytes;
    proc = process_of(p, &who);
    if (proc && proc->rank < 0)
        proc->rank = who.rank;
    if (proc && is_copy(p, proc, &part)) {
        free(part.at);
        return 0;
    }
    struct pack_part *list = proc ? more(proc->part, proc->n, &proc->cap, sizeof *list) : NULL;
    if (!list) {
        free(part.at);
        return -ENOMEM;
    }
    proc->part = list;
    size_t i = proc->n++;
    for (; i > 0 && list[i - 1].first > part.first; i--)
        list[i] = list[i - 1];
    list[i] = part;
    return 0;
}

int pack_find(struct pack *p, const struct inputs *in) {
    int rc = 0;

    for (size_t i = 0; !rc && i < in->n; i++) {
        const char *path = in->file[i].path;
        struct reader *r;
        unsigned number = 1;
        int more_traces = 1, err = reader_open(&r, path);
        if (err == -ENOMEM)
            return err;
        if (err) {
            p->failed++;
            p->say(p->ctx, path, reader_strerror(err));
            continue;
        }
        for (; !rc && more_traces > 0; number++) {
            rc = p->tick && p->tick(p->ctx) ? -EINTR : add(p, r, path, number);
            if (!rc && (more_traces = reader_next(r)) < 0)
                rc = -ENOMEM;
        }
        reader_close(r);
    }
    return rc;
}

/* Returns whether b has every `process` record of a. */
static int says_all(const struct pack_part *b, const struct pack_part *a) {
    size_t k = 0;

    for (size_t i = 0; i < a->said; i++) {
        for (k = 0; k < b->said && b->at[k] != a->at[i];)
            k++;
        if (k == b->said)
            return 0;
    }
    return 1;
}

int pack_is_packed(const struct pack_process *proc, const char *path) {
    struct pack_process who;
    struct pack_part there = {.path = path};
    struct reader_loss loss;
    struct reader *r;
    uint64_t rows = 0;
    int rc = *proc->key ? reader_open(&r, path) : -ENOENT;

    if (rc)
        return rc == -ENOMEM ? rc : 0;
    int known = reader_loss(r, &loss) ? -ENOMEM : identify(r, &who, &there);
    count_rows(r, &there);
    int same = known > 0 && !loss.damaged_blocks && !loss.damaged_bytes && !loss.excess_blocks &&
               reader_is_last(r) && strcmp(who.key, proc->key) == 0 &&
               there.has_end == proc->part[proc->n - 1].has_end &&
               !loss.tail_bytes == !proc->part[proc->n - 1].tail_bytes;
    for (size_t i = 0; i < proc->n; i++) {
        rows += proc->part[i].rows;
        same = same && says_all(&there, &proc->part[i]);
    }
    free(there.at);
    reader_close(r);
    return known < 0 ? known : same && there.rows == rows;
}

void pack_free(struct pack *p) {
    for (size_t i = 0; i < p->n; i++) {
        for (size_t k = 0; k < p->process[i].n; k++)
            free(p->process[i].part[k].at);
        free(p->process[i].part);
    }
    free(p->process);
    if (p->ready)
        complete_free(&p->complete);
    memset(p, 0, sizeof *p);
}
