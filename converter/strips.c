/* SPDX-License-Identifier: Apache-2.0 */
#include "strips.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/varint.h"

static int make_space(struct strips *st, size_t n) {
    size_t cap = n * 2 + 64;

    if (n <= st->nblocks)
        return 0;
    void *p = realloc(st->at, cap * sizeof *st->at);
    if (!p)
        return -ENOMEM;
    st->at = p;
    memset(st->at + st->nblocks, 0, (cap - st->nblocks) * sizeof *st->at);
    st->nblocks = cap;
    return 0;
}

/* Walks the rows, and copies those to `keep` to out, if it is set. Returns their bytes, or SIZE_MAX when rows are invalid. */
static size_t walk(const uint8_t *p, const uint8_t *end, uint64_t keep, uint8_t *out) {
    size_t n = 0;

    while (p < end) {
        uint64_t id, len;
        const uint8_t *row = p;
        p = varint_get(p, end, &id);
        if (p)
            p = varint_get(p, end, &len);
        if (!p || len > (uint64_t)(end - p))
            return SIZE_MAX;
        p += len;
        if (id <= TRACE_MAX_ID && !(keep >> id & 1))
            continue;
        if (out)
            memcpy(out + n, row, (size_t)(p - row));
        n += (size_t)(p - row);
    }
    return n;
}

int strips_take(struct strips *st, size_t i, const struct trace_block_header *h,
                const uint8_t *block, uint64_t keep) {
    const uint8_t *rows = block + h->header_len;
    size_t n = walk(rows, rows + h->body_len, keep, NULL);
    struct strip s = {.n = (uint32_t)n, .taken = 1, .first_ts = h->first_ts};

    if (n == SIZE_MAX || n > STRIPS_MAX - st->bytes)
        return 0;
    if (make_space(st, i + 1) != 0 || (n && !(s.rows = malloc(n))))
        return -ENOMEM;
    if (n)
        walk(rows, rows + h->body_len, keep, s.rows);
    free(st->at[i].rows);
    st->at[i] = s;
    st->bytes += n;
    return 0;
}

int strips_rows(const struct strips *st, size_t i, struct trace_block_header *h,
                const uint8_t **rows) {
    static const uint8_t nothing[1];

    if (i >= st->nblocks || !st->at[i].taken)
        return 0;
    memset(h, 0, sizeof *h);
    h->first_ts = st->at[i].first_ts;
    h->body_len = st->at[i].n;
    *rows = st->at[i].n ? st->at[i].rows : nothing;
    return 1;
}

void strips_free(struct strips *st) {
    for (size_t i = 0; i < st->nblocks; i++)
        free(st->at[i].rows);
    free(st->at);
    memset(st, 0, sizeof *st);
}
