/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/hash.h"
#include "reader_inside.h"

void reader_known(struct reader *r, size_t n, const uint64_t lost[TRACE_NLOST]) {
    for (size_t i = 0; i < r->nblocks; i++)
        r->blocks[i].state = i < n ? READER_GOOD : READER_UNREAD;
    memcpy(r->lost, lost, sizeof r->lost);
}

uint64_t reader_digest(const struct reader *r, size_t n) {
    uint64_t h = HASH_START;

    for (size_t i = 0; i < n && i < r->nblocks; i++) {
        const struct reader_block *b = &r->blocks[i];
        const uint64_t facts[] = {b->pos - r->begin,
                                  b->compressed,
                                  (uint64_t)b->seq << 32 | b->epoch,
                                  (uint64_t)b->count << 8 | b->kind,
                                  b->first_ts,
                                  b->last_ts,
                                  b->types};
        for (size_t k = 0; k < sizeof facts / sizeof *facts; k++) {
            h = (h ^ facts[k]) * 0xff51afd7ed558ccdu;
            h ^= h >> 32;
        }
    }
    return h;
}

uint64_t reader_mark(struct reader *r) {
    uint64_t h = HASH_START;
    size_t n;

    for (uint32_t at = 0; at < r->first.compressed; at += (uint32_t)n) {
        const uint8_t *p = source_view(&r->src, r->first.off + at, r->first.compressed - at, &n);
        if (!p)
            break;
        h = hash_bytes(h, p, n);
    }
    return hash_spread(h);
}

int reader_error(const struct reader *r) {
    return r->src.error;
}

int reader_check(struct reader *r) {
    struct reader_data d = {0};
    int err = 0;

    for (size_t i = 0; i < r->nblocks && err != -ENOMEM; i++)
        if (r->blocks[i].state == READER_UNREAD)
            err = reader_load(r, i, &d);
    reader_data_free(&d);
    return err == -ENOMEM ? err : 0;
}

void reader_damaged(struct reader *r, size_t i) {
    r->blocks[i].state = READER_BAD;
}

uint64_t reader_gaps(const struct reader *r, uint64_t *tail) {
    *tail = r->tail;
    if (!r->nblocks)
        return 0;
    uint32_t last = r->left_out ? r->last_seq : r->blocks[r->nblocks - 1].seq;
    return (uint64_t)last + 1 - r->nblocks - r->left_out;
}

int reader_loss(struct reader *r, struct reader_loss *out) {
    uint64_t covered = r->skipped, have = r->end - r->begin;
    int err = reader_check(r);

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < r->nblocks; i++) {
        struct reader_block *b = &r->blocks[i];
        if (b->state == READER_BAD) {
            out->damaged_blocks++;
            out->damaged_records += b->count;
        } else {
            covered += b->off - b->pos + b->compressed;
            out->newer_blocks += b->state == READER_NEWER;
            out->unknown_blocks += b->state == READER_UNKNOWN;
            out->excess_blocks += b->state == READER_EXCESS;
        }
    }
    out->missing_blocks = reader_gaps(r, &out->tail_bytes);
    covered += r->left_bytes;
    out->wrong_hints = r->wrong_hints;
    out->repeated_blocks = r->repeated;
    covered += r->tail + r->repeated_bytes;
    out->damaged_bytes = have > covered ? have - covered : 0;
    out->seek_table = r->seek_table;
    return err;
}

void reader_totals(const struct reader *r, struct reader_totals *out) {
    memset(out, 0, sizeof *out);
    memcpy(out->lost, r->lost, sizeof out->lost);
    for (size_t i = 0; i < r->nblocks; i++) {
        const struct reader_block *b = &r->blocks[i];
        if (b->state > READER_GOOD)
            continue;
        out->records += b->count;
        if (b->last_ts && (!out->last_ts || b->first_ts < out->first_ts))
            out->first_ts = b->first_ts;
        if (b->last_ts > out->last_ts)
            out->last_ts = b->last_ts;
    }
}

/* Returns what the system said of a read that failed, or -EIO if reader_strerror() takes that for something else. */
static int read_error(int err) {
    return err == -EINTR || reader_strerror(err) == strerror(-err) ? err : -EIO;
}

/* Decides why no block was found: a newer version, another zstd file, or something else. */
static int why_nothing(struct reader *r) {
    static const uint8_t ours[12] = {0x5d, 0x2a, 0x4d, 0x18, 60, 0, 0, 0, 'P', 'R', 'B', 'h'};
    size_t n;
    const uint8_t *p = source_view(&r->src, 0, sizeof ours, &n);

    if (r->newer)
        return -EPROTONOSUPPORT;
    if (r->src.error || !p)
        return r->src.error ? read_error(r->src.error) : -EIO;
    if (memcmp(p, ours, n) == 0 && (r->tail || r->src.size < TRACE_HINT_SIZE))
        return -ENOMSG;
    if (n >= 4 && (memcmp(p, "\x28\xb5\x2f\xfd", 4) == 0 ||
                   ((p[0] & 0xf0) == 0x50 && memcmp(p + 1, "\x2a\x4d\x18", 3) == 0)))
        return -EBADMSG;
    return -EILSEQ;
}

int reader_open_source(struct reader **out, struct reader *r) {
    int err = r->src.size == 0 ? -ENODATA : reader_index(r);
    size_t good = 0;

    /* one readable block makes it a trace, because damage may have hit any of them */
    struct reader_data d = {0};
    for (size_t i = 0; !err && i < r->nblocks && !good; i++) {
        int e = reader_load(r, i, &d);
        if (e == -ENOMEM)
            err = e;
        good += e == 0;
    }
    reader_data_free(&d);
    if (!err && !good)
        err = why_nothing(r);
    if (err) {
        reader_close(r);
        return err;
    }
    *out = r;
    return 0;
}

struct reader_kept {
    struct reader r; /* a copy; its source is closed */
    struct reader_block blocks[];
};

struct reader_kept *reader_keep(const struct reader *r, size_t *budget) {
    size_t n = sizeof(struct reader_kept) + r->nblocks * sizeof *r->blocks;
    struct reader_kept *k = reader_is_last(r) && n <= *budget ? malloc(n) : NULL;

    if (!k)
        return NULL;
    *budget -= n;
    k->r = *r;
    memcpy(k->blocks, r->blocks, r->nblocks * sizeof *r->blocks);
    return k;
}

/* Makes r, whose source is open, as it was when it was kept. Returns 0 or -ENOMEM. */
static int take_kept(struct reader *r, const struct reader_kept *k) {
    struct source src = r->src;
    struct reader_block *blocks = malloc((k->r.nblocks + 1) * sizeof *blocks);

    if (!blocks)
        return -ENOMEM;
    memcpy(blocks, k->blocks, k->r.nblocks * sizeof *blocks);
    *r = k->r;
    r->src = src;
    r->blocks = blocks;
    r->cap = r->nblocks + 1;
    return 0;
}

int reader_open_kept(struct reader **out, const char *path, const struct reader_kept *kept) {
    struct reader *r = calloc(1, sizeof *r);

    *out = NULL;
    if (!r)
        return -ENOMEM;
    int err = source_open(&r->src, path);
    if (err) {
        free(r);
        return err;
    }
    if (!kept || kept->r.src.size != r->src.size)
        return reader_open_source(out, r);
    if ((err = take_kept(r, kept)) != 0)
        reader_close(r);
    else
        *out = r;
    return err;
}

int reader_open(struct reader **out, const char *path) {
    return reader_open_kept(out, path, NULL);
}

int reader_open_memory(struct reader **out, const void *p, size_t n) {
    struct reader *r = calloc(1, sizeof *r);

    *out = NULL;
    if (!r)
        return -ENOMEM;
    source_memory(&r->src, p, n);
    return reader_open_source(out, r);
}

void reader_close(struct reader *r) {
    if (!r)
        return;
    source_close(&r->src);
    free(r->blocks);
    free(r);
}

int reader_is_last(const struct reader *r) {
    return r->end >= r->src.size;
}

int reader_next(struct reader *r) {
    struct reader next = {.src = r->src, .begin = r->end, .blocks = r->blocks, .cap = r->cap};

    if (reader_is_last(r))
        return 0;
    *r = next;
    int err = reader_index(r);
    return err == -EINTR ? 0 : err ? err : 1; /* -EINTR: the caller stopped it, and knows that */
}

const char *reader_strerror(int err) {
    switch (err) {
    case 0:
        return "no error";
    case -ENODATA:
        return "the file is empty";
    case -ENOMSG:
        return "the trace is cut off within its first block: nothing to keep";
    case -EILSEQ:
        return "not a trace (not a zstd file)";
    case -EBADMSG:
        return "not a trace (a zstd file, but no block in it can be read)";
    case -ENOTBLK:
        return "a device, not a file or a pipe: no trace";
    case -ENXIO:
        return "a socket, not a file or a pipe: no trace";
    case -EINTR:
        return "stopped while it was read";
    case -EPROTONOSUPPORT:
        return "the trace was written by a newer version of probing: update this one";
    default:
        return strerror(-err);
    }
}

void reader_anchors(const struct reader *r, uint64_t lo, uint64_t hi, size_t *first, size_t *end) {
    size_t i = 0;

    *first = 0;
    for (; i < r->nblocks && !(reader_has_anchors_alone(r, i) && r->blocks[i].last_ts >= lo); i++)
        *first = reader_has_anchors_alone(r, i) ? i : *first;
    while (i < r->nblocks && !(reader_has_anchors_alone(r, i) && r->blocks[i].first_ts > hi))
        i++;
    *end = i < r->nblocks ? i + 1 : i;
}

int reader_has_anchors_alone(const struct reader *r, size_t i) {
    return r->blocks[i].types == 1ull << TRACE_clock;
}

/* A trace with one wrong hint may have more of them; and a hint that counts rows, but no type of them, is wrong. */
static int is_doubtful(const struct reader *r, const struct reader_block *b) {
    return b->state == READER_UNREAD && (r->wrong_hints || (b->count && !b->types));
}

int reader_may_hold(const struct reader *r, size_t i, uint64_t types) {
    return r->blocks[i].types & types || is_doubtful(r, &r->blocks[i]);
}

void reader_range(struct reader *r, uint64_t lo, uint64_t hi, uint64_t types) {
    size_t n = 0, first, end;

    if (r->nblocks)
        r->last_seq = r->blocks[r->nblocks - 1].seq;
    reader_anchors(r, lo, hi, &first, &end);
    for (size_t i = 0; i < r->nblocks; i++) {
        const struct reader_block *b = &r->blocks[i];
        int wanted =
            reader_has_anchors_alone(r, i) ? i >= first && i < end
            : b->kind != TRACE_KIND_DATA || b->types & READER_ALWAYS || is_doubtful(r, b)
                ? 1
                : b->types & types && (!b->last_ts || (b->last_ts >= lo && b->first_ts <= hi));
        if (wanted) {
            r->blocks[n++] = *b;
            continue;
        }
        r->left_out++;
        r->left_bytes += b->off - b->pos + b->compressed;
    }
    r->nblocks = n;
}

void reader_want(struct reader *r, uint64_t types) {
    for (size_t i = 0; i < r->nblocks; i++) {
        struct reader_block *b = &r->blocks[i];
        if (b->state == READER_UNREAD && b->kind == TRACE_KIND_DATA &&
            !reader_may_hold(r, i, types | READER_ALWAYS))
            b->state = READER_PASSED;
    }
}

size_t reader_blocks(const struct reader *r) {
    return r->nblocks;
}
const struct reader_block *reader_block(const struct reader *r, size_t i) {
    return &r->blocks[i];
}
uint64_t reader_file_size(const struct reader *r) {
    return r->src.size;
}

uint64_t reader_size(const struct reader *r) {
    return r->end - r->begin;
}

uint64_t reader_end(const struct reader *r) {
    return r->end;
}
