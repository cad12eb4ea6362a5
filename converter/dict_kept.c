/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a dictionary as it was read for a program that reads the same trace again: decoding it anew takes longer than everything recorded since. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dict_inside.h"

#define LEAST (4u << 10) /* bytes; a smaller one is decoded just as fast */
#define MOST  (16u << 20)

/* Header of a kept dictionary. It is followed by the entries of the tables, the ids of entries that need them, and the blocks; pointers in
 * entries are stored as offsets into the blocks. */
struct head {
    uint64_t check, want, blocks, epoch, data;
    uint64_t n[NTABLES], dense[NTABLES];
};

static inline void add_words(uint64_t sum[4], const uint8_t *p) {
    uint64_t v[4];

    memcpy(v, p, sizeof v);
    for (int i = 0; i < 4; i++) {
        sum[i] = (sum[i] ^ v[i]) * 0x9e3779b97f4a7c15u;
        sum[i] ^= sum[i] >> 32;
    }
}

/* Checksum of everything behind the field `check`. It computes four sums at a time, because a single one would wait for each product. */
static uint64_t check_of(const struct head *h, size_t n) {
    const uint8_t *p = (const uint8_t *)h + sizeof h->check;
    uint64_t sum[4] = {n, 1, 2, 3}, last[4] = {0};

    for (n -= sizeof h->check; n >= sizeof last; n -= sizeof last, p += sizeof last)
        add_words(sum, p);
    memcpy(last, p, n);
    add_words(sum, (const uint8_t *)last);
    for (int i = 1; i < 4; i++)
        sum[0] = (sum[0] ^ sum[i]) * 0xbf58476d1ce4e5b9u ^ sum[0] >> 29;
    return sum[0];
}

/* Returns the i-th pointer of an entry; NULL: there are no more. */
static const uint8_t **pointer(int table, void *entry, int i) {
    switch (table) {
    case STRINGS:
        return i == 0 ? &((struct dict_text *)entry)->p : NULL;
    case STACKS:
        return i == 0   ? &((struct dict_stack *)entry)->python.p
               : i == 1 ? &((struct dict_stack *)entry)->native.p
                        : NULL;
    case MODULES:
        return i == 0 ? &((struct dict_module *)entry)->build_id : NULL;
    case NATIVE_FILES:
        return i == 0 ? &((struct dict_native_file *)entry)->build_id : NULL;
    }
    return NULL;
}

/* Clears the padding after numbers of four bytes: it is uninitialized and must not get into a file. */
static void clear_padding(int table, void *entry) {
    uint32_t *const n[NTABLES][2] = {
        [STRINGS] = {&((struct dict_text *)entry)->n},
        [STACKS] = {&((struct dict_stack *)entry)->python.n,
                    &((struct dict_stack *)entry)->native.n},
        [MODULES] = {&((struct dict_module *)entry)->build_id_len},
        [NATIVE_FILES] = {&((struct dict_native_file *)entry)->build_id_len}};

    for (int i = 0; i < 2 && n[table][i]; i++)
        memset(n[table][i] + 1, 0, sizeof(uint32_t));
}

static size_t count(const struct table *t) {
    return t->dense + t->ids.n;
}

/* ---- keeping ---- */

/* Returns the offset in the blocks of what p points at. *last and *before remember the block of the previous call, as entries refer to the
 * blocks in order. */
static uint64_t place_of(const struct dict *d, const uint8_t *p, size_t *last, uint64_t *before) {
    uint64_t at = (uint64_t)(p - d->taken);

    if (p >= d->taken && p <= d->taken + d->ntaken && d->taken)
        return at;
    for (size_t i = 0; i <= d->nblocks && d->nblocks; i++) {
        const struct dict_block *b = &d->blocks[*last];
        if (p >= b->p && p <= b->p + b->n)
            return *before + (uint64_t)(p - b->p);
        *before += b->n;
        if (++*last == d->nblocks) {
            *last = 0;
            *before = d->ntaken;
        }
    }
    return 0; /* an empty text, which points nowhere */
}

static size_t put_entries(uint8_t *out, const struct dict *d) {
    uint8_t *p = out;

    for (int k = 0; k < NTABLES; k++) {
        size_t size = dict_entry_size[k], last = 0;
        uint64_t before = d->ntaken;
        for (size_t i = 0; i < count(&d->t[k]); i++, p += size) {
            const uint8_t **at;
            memcpy(p, d->t[k].entries + i * size, size);
            clear_padding(k, p);
            for (int m = 0; (at = pointer(k, p, m)); m++)
                *at = (const uint8_t *)(uintptr_t)place_of(d, *at, &last, &before);
        }
    }
    for (int k = 0; k < NTABLES; k++)
        for (uint32_t id = 1; id <= d->t[k].ids.n; id++, p += sizeof(uint64_t))
            memcpy(p, keys_key(&d->t[k].ids, id, NULL), sizeof(uint64_t));
    return (size_t)(p - out);
}

static size_t tables_size(const struct head *h) {
    size_t n = 0;

    for (int k = 0; k < NTABLES; k++)
        n += h->n[k] * dict_entry_size[k] + (h->n[k] - h->dense[k]) * sizeof(uint64_t);
    return n;
}

static const struct dict *last_of(const struct epochs *es) {
    const struct dict *d = NULL;

    for (int i = 0; i < KEPT && es->ndistinct; i++)
        if (es->d[i].used && es->d[i].epoch == es->distinct[es->ndistinct - 1])
            d = &es->d[i];
    return d;
}

void *epochs_keep(const struct epochs *es, size_t *n) {
    const struct dict *d = last_of(es);

    *n = 0;
    if (!d || es->as_asked || d->next < d->end || d->bytes < LEAST || d->bytes > MOST ||
        d->bytes - d->kept < d->kept / 4 || d->bytes == d->kept)
        return NULL;
    struct head h = {
        .want = es->want, .blocks = reader_blocks(es->r), .epoch = d->epoch, .data = d->ntaken};
    for (int k = 0; k < NTABLES; k++) {
        h.n[k] = count(&d->t[k]);
        h.dense[k] = d->t[k].dense;
    }
    for (size_t i = 0; i < d->nblocks; i++)
        h.data += d->blocks[i].n;
    *n = sizeof h + tables_size(&h) + h.data;
    uint8_t *out = malloc(*n), *p = out ? out + sizeof h : NULL;
    if (!out)
        return NULL;
    memcpy(out, &h, sizeof h);
    p += put_entries(p, d);
    if (d->ntaken)
        memcpy(p, d->taken, d->ntaken);
    p += d->ntaken;
    for (size_t i = 0; i < d->nblocks; p += d->blocks[i++].n)
        memcpy(p, d->blocks[i].p, d->blocks[i].n);
    h.check = check_of((const struct head *)out, *n);
    memcpy(out, &h.check, sizeof h.check);
    return out;
}

/* ---- taking ---- */

/* Returns 1 when the kept dictionary is complete, and was made for these records. */
static int is_right(const struct epochs *es, const struct head *h, const struct dict *d) {
    size_t left = es->ntaken;

    if (left < sizeof *h || h->epoch != d->epoch || h->want != es->want || es->as_asked ||
        h->blocks > reader_blocks(es->r) || h->data > left - sizeof *h)
        return 0;
    left -= sizeof *h + h->data;
    for (int k = 0; k < NTABLES; k++)
        if (h->n[k] > left / dict_entry_size[k] || h->dense[k] > h->n[k])
            return 0;
    return tables_size(h) == left && check_of(h, es->ntaken) == h->check;
}

static int take_table(struct dict *d, int k, const struct head *h, const uint8_t *from,
                      const uint8_t *ids) {
    struct table *t = &d->t[k];
    size_t n = h->n[k], size = dict_entry_size[k];
    const uint8_t **at;

    if (!n)
        return 0;
    t->cap = n + n / 8 + 16;
    if (!(t->entries = malloc(t->cap * size)))
        return -ENOMEM;
    memcpy(t->entries, from, n * size);
    for (size_t i = 0; i < n && pointer(k, t->entries, 0); i++)
        for (int m = 0; (at = pointer(k, t->entries + i * size, m)); m++)
            *at = d->taken + (uintptr_t)*at;
    t->dense = h->dense[k];
    for (size_t i = t->dense; i < n; i++, ids += sizeof(uint64_t))
        if (!keys_put(&t->ids, ids, sizeof(uint64_t), NULL))
            return -ENOMEM;
    return 0;
}

static int take(struct dict *d) {
    struct epochs *es = d->es;
    const struct head *h = es->taken;
    int err = 0;

    if (!is_right(es, h, d))
        return 0;
    const uint8_t *from = (const uint8_t *)(h + 1), *ids = from;
    d->taken = (const uint8_t *)h + es->ntaken - h->data;
    d->ntaken = h->data;
    for (int k = 0; k < NTABLES; k++)
        ids += h->n[k] * dict_entry_size[k];
    for (int k = 0; !err && k < NTABLES; k++) {
        err = take_table(d, k, h, from, ids);
        from += h->n[k] * dict_entry_size[k];
        ids += (h->n[k] - h->dense[k]) * sizeof(uint64_t);
        d->bytes += h->n[k] * dict_entry_size[k] + (h->n[k] - h->dense[k]) * DICT_ID;
    }
    d->bytes += h->data;
    d->kept = d->bytes;
    while (d->next < d->end && es->order[d->next].block < h->blocks)
        d->next++;
    return err;
}

void epochs_take(struct epochs *es, const void *kept, size_t n) {
    es->taken = kept;
    es->ntaken = kept ? n : 0;
    es->take = take;
}
