/* SPDX-License-Identifier: Apache-2.0 */
#include "dict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dict_inside.h"

#define SAID_MAX (1u << 20) /* maximum bytes returned by epochs_save() */

#define STACKS_TYPES (1ull << TRACE_frame | 1ull << TRACE_stack)

struct said {
    uint64_t id;
    uint32_t epoch, n; /* n: bytes of text that follow */
};

static void clear(struct dict *d) {
    for (int i = 0; i < NTABLES; i++) {
        keys_free(&d->t[i].ids);
        free(d->t[i].entries);
    }
    for (size_t i = 0; i < d->nblocks; i++)
        free(d->blocks[i].p);
    free(d->blocks);
    memset(d, 0, sizeof *d);
}

static const void *find(const struct dict *d, int which, uint64_t id) {
    const struct table *t = &d->t[which];
    size_t i = id;

    if (id > t->dense) {
        uint32_t n = keys_find(&t->ids, &id, sizeof id);
        i = n ? t->dense + n : 0;
    }
    return i ? t->entries + (i - 1) * dict_entry_size[which] : NULL;
}

/* Returns the number of the new entry `id`; 0: it exists already or, with *err set, there is no memory. */
static size_t number(struct table *t, uint64_t id, int is_next, int *err) {
    int is_new;

    if (is_next)
        return ++t->dense;
    uint32_t n = keys_put(&t->ids, &id, sizeof id, &is_new);
    if (n == 0)
        *err = -ENOMEM;
    return is_new ? t->dense + n : 0;
}

/* Returns the place for entry `id`, NULL when it exists already (the first definition of an id stays), when the dictionary is full, or
 * (*err is set) when there is no memory. */
static void *place(struct dict *d, int which, uint64_t id, int *err) {
    struct table *t = &d->t[which];
    int is_next = id == t->dense + 1 && t->ids.n == 0;
    size_t takes = dict_entry_size[which] + (is_next ? 0 : DICT_ID);

    if (id <= t->dense || takes > DICT_MAX - d->bytes)
        return NULL;
    if (t->dense + t->ids.n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        uint8_t *p = realloc(t->entries, cap * dict_entry_size[which]);
        if (!p) {
            *err = -ENOMEM;
            return NULL;
        }
        t->entries = p;
        t->cap = cap;
    }
    size_t i = number(t, id, is_next, err);
    if (i == 0)
        return NULL;
    d->bytes += takes;
    return t->entries + (i - 1) * dict_entry_size[which];
}

static int take_row(struct dict *d, int type, const struct trace_value *v) {
    int err = 0;
    void *p;

    switch (type) {
    case TRACE_string:
        if ((p = place(d, STRINGS, v[TRACE_string_id].u, &err)))
            *(struct dict_text *)p =
                (struct dict_text){v[TRACE_string_text].p, v[TRACE_string_text].n};
        break;
    case TRACE_frame:
        if ((p = place(d, FRAMES, v[TRACE_frame_id].u, &err)))
            *(struct dict_frame *)p =
                (struct dict_frame){v[TRACE_frame_name].u, v[TRACE_frame_file].u,
                                    v[TRACE_frame_firstline].u, v[TRACE_frame_line].u};
        break;
    case TRACE_stack:
        if ((p = place(d, STACKS, v[TRACE_stack_id].u, &err)))
            *(struct dict_stack *)p = (struct dict_stack){
                v[TRACE_stack_flags].u, v[TRACE_stack_python], v[TRACE_stack_native]};
        break;
    case TRACE_module:
        if ((p = place(d, MODULES, v[TRACE_module_id].u, &err)))
            *(struct dict_module *)p = (struct dict_module){
                .path = v[TRACE_module_path].u,
                .build_id = v[TRACE_module_build_id].p,
                .build_id_len = v[TRACE_module_build_id].n,
                .start = v[TRACE_module_start].u,
                .end = v[TRACE_module_end].u,
                .bias = v[TRACE_module_bias].u,
                .ts = v[TRACE_module_ts].u,
            };
        break;
    case TRACE_native_file:
        if ((p = place(d, NATIVE_FILES, v[TRACE_native_file_id].u, &err)))
            *(struct dict_native_file *)p = (struct dict_native_file){
                v[TRACE_native_file_path].u, v[TRACE_native_file_build_id].p,
                v[TRACE_native_file_build_id].n};
        break;
    }
    return err;
}

static int take_block(struct dict *d, const struct reader_data *data, uint64_t want) {
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    int type = 0, err = 0;

    if (data->len > DICT_MAX - d->bytes)
        return 0;
    struct dict_block *blocks = realloc(d->blocks, (d->nblocks + 1) * sizeof *blocks);
    if (!blocks)
        return -ENOMEM;
    d->blocks = blocks;
    uint8_t *copy = malloc(data->len);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, data->data, data->len);
    d->blocks[d->nblocks++] = (struct dict_block){copy, data->len};
    d->bytes += data->len;
    trace_rows_start(&rows, &data->h, copy);
    while (!err && (type = trace_rows_next(&rows, want, v)) > 0)
        err = take_row(d, type, v);
    return err ? err : type;
}

/* Reads the next block of the dictionary. Returns 1; 0: there is none; -ENOMEM. */
static int read_more(struct dict *d) {
    struct epochs *es = d->es;
    int err;

    if (d->next >= d->end)
        return 0;
    size_t block = es->order[d->next++].block;
    const struct reader_block *b = reader_block(es->r, block);
    if (b->state == READER_GOOD && !(b->types & es->want)) /* what it holds is known already */
        return 1;
    err = reader_load(es->r, block, &es->data);
    if (!err)
        err = take_block(d, &es->data, es->want);
    if (err == -EBADMSG)
        reader_damaged(es->r, block);
    return err == -ENOMEM ? err : 1;
}

/* Takes the strings of this epoch that were given to epochs_give(). Returns 0 or -ENOMEM. */
static int take_given(struct epochs *es, struct dict *d) {
    const uint8_t *p = es->given, *end = p + es->ngiven;
    int err = 0;

    while (!err && (size_t)(end - p) >= sizeof(struct said)) {
        struct said s;
        struct dict_text *t;
        memcpy(&s, p, sizeof s);
        p += sizeof s;
        if (s.n > (size_t)(end - p))
            break;
        if (s.epoch == d->epoch && (t = place(d, STRINGS, s.id, &err)))
            *t = (struct dict_text){p, s.n};
        p += s.n;
    }
    return err;
}

static int load(struct epochs *es, struct dict *d, uint32_t epoch) {
    int more = !es->as_asked;

    d->es = es;
    d->epoch = epoch;
    d->used = 1;
    for (int i = 0; i < NTABLES; i++)
        keys_init(&d->t[i].ids);
    size_t hi = es->norder;
    while (d->next < hi) { /* find the first block of this epoch */
        size_t mid = (d->next + hi) / 2;
        if (es->order[mid].epoch < epoch)
            d->next = mid + 1;
        else
            hi = mid;
    }
    for (d->end = d->next; d->end < es->norder && es->order[d->end].epoch == epoch;)
        d->end++;
    if ((es->given && take_given(es, d) != 0) || (es->taken && es->take(d) != 0))
        more = -ENOMEM;
    while (more > 0)
        more = read_more(d);
    if (more < 0)
        clear(d);
    return more;
}

static int by_epoch(const void *a, const void *b) {
    const struct place *x = a, *y = b;

    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

struct epochs *epochs_new(struct reader *r) {
    struct epochs *es = calloc(1, sizeof *es);
    size_t n = 0;

    if (!es)
        return NULL;
    es->r = r;
    keys_init(&es->asked);
    es->want =
        STACKS_TYPES | 1ull << TRACE_string | 1ull << TRACE_module | 1ull << TRACE_native_file;
    for (size_t i = 0; i < reader_blocks(r); i++)
        n += reader_block(r, i)->kind == TRACE_KIND_DICT;
    es->order = malloc((n + 1) * sizeof *es->order);
    es->distinct = malloc((n + 1) * sizeof *es->distinct);
    if (!es->order || !es->distinct) {
        epochs_free(es);
        return NULL;
    }
    for (size_t i = 0; i < reader_blocks(r); i++)
        if (reader_block(r, i)->kind == TRACE_KIND_DICT)
            es->order[es->norder++] = (struct place){reader_block(r, i)->epoch, i};
    qsort(es->order, n, sizeof *es->order, by_epoch);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || es->order[i].epoch != es->order[i - 1].epoch)
            es->distinct[es->ndistinct++] = es->order[i].epoch;
    return es;
}

void epochs_without_stacks(struct epochs *es) {
    es->want = 1ull << TRACE_string;
    es->as_asked = 1;
}

void epochs_without_modules(struct epochs *es) {
    es->want &= ~(1ull << TRACE_module | 1ull << TRACE_native_file);
}

int epochs_have_stacks(const struct epochs *es) {
    return !es->as_asked;
}

void epochs_give(struct epochs *es, const void *saved, size_t n) {
    es->given = saved;
    es->ngiven = saved ? n : 0;
}

void *epochs_save(const struct epochs *es, size_t *n) {
    void *out = malloc(es->nsaid + 1);

    if (out && es->nsaid)
        memcpy(out, es->said, es->nsaid);
    *n = es->nsaid;
    return out;
}

/* Remembers a string for epochs_save(). When there is no memory, it is just read again the next time. */
static void remember(struct epochs *es, uint32_t epoch, uint64_t id, const struct dict_text *t) {
    const uint64_t key[2] = {epoch, id};
    const struct said s = {id, epoch, t->n};
    size_t more = sizeof s + t->n;
    int is_new;

    if (more > SAID_MAX - es->nsaid || !keys_put(&es->asked, key, sizeof key, &is_new) || !is_new)
        return;
    if (es->nsaid + more > es->said_cap) {
        size_t cap = (es->nsaid + more) * 2;
        uint8_t *p = realloc(es->said, cap);
        if (!p)
            return;
        es->said = p;
        es->said_cap = cap;
    }
    memcpy(es->said + es->nsaid, &s, sizeof s);
    if (t->n)
        memcpy(es->said + es->nsaid + sizeof s, t->p, t->n);
    es->nsaid += more;
}

void epochs_free(struct epochs *es) {
    if (!es)
        return;
    keys_free(&es->asked);
    free(es->said);
    for (int i = 0; i < KEPT; i++)
        clear(&es->d[i]);
    reader_data_free(&es->data);
    free(es->order);
    free(es->distinct);
    free(es);
}

int epochs_at(const struct epochs *es, size_t i, uint32_t *epoch) {
    if (i >= es->ndistinct)
        return 0;
    *epoch = es->distinct[i];
    return 1;
}

static size_t bytes(const struct epochs *es) {
    size_t n = 0;

    for (int i = 0; i < KEPT; i++)
        n += es->d[i].bytes;
    return n;
}

static void forget(struct epochs *es) {
    for (int i = 0; i < KEPT; i++)
        clear(&es->d[i]);
}

const struct dict *epochs_get(struct epochs *es, uint32_t epoch) {
    struct dict *oldest = &es->d[0];

    if (es->no_memory)
        return NULL;
    for (int i = 0; i < KEPT; i++) {
        struct dict *d = &es->d[i];
        if (d->used && d->epoch == epoch) {
            d->stamp = ++es->clock;
            return d;
        }
        if (!d->used || d->stamp < oldest->stamp)
            oldest = d;
    }
    clear(oldest);
    if (bytes(es) > DICT_LARGE)
        forget(es);
    if (load(es, oldest, epoch) != 0)
        return NULL;
    oldest->stamp = ++es->clock;
    return oldest;
}

void epochs_trim(struct epochs *es) {
    if (bytes(es) > DICT_WAITING)
        forget(es);
}

/* Reads further blocks until the string is found: the names of threads and modules come early, and a long recording has many blocks. */
static const struct dict_text *read_string(struct dict *d, uint64_t id) {
    const struct dict_text *t = NULL;
    int more = id != 0;

    while (!t && (more = more > 0 ? read_more(d) : more) > 0)
        t = find(d, STRINGS, id);
    d->es->no_memory |= more < 0;
    return t;
}

const char *dict_string(const struct dict *d, uint64_t id, size_t *n) {
    const struct dict_text *t = find(d, STRINGS, id);

    if (!t && d->next < d->end) /* it belongs to a struct epochs, which is not const */
        t = read_string((struct dict *)(uintptr_t)d, id);
    if (t && d->es->as_asked)
        remember(d->es, d->epoch, id, t);
    *n = t ? t->n : 0;
    if (*n > DICT_STRING) /* do not cut within a character */
        for (*n = DICT_STRING; *n > DICT_STRING - 4 && (t->p[*n] & 0xc0) == 0x80;)
            --*n;
    return t ? (const char *)t->p : "";
}

const struct dict_frame *dict_frame(const struct dict *d, uint64_t id) {
    return find(d, FRAMES, id);
}

const struct dict_stack *dict_stack(const struct dict *d, uint64_t id) {
    return find(d, STACKS, id);
}

const struct dict_module *dict_module(const struct dict *d, uint64_t id) {
    return find(d, MODULES, id);
}

const struct dict_native_file *dict_native_file(const struct dict *d, uint64_t id) {
    return find(d, NATIVE_FILES, id);
}

const struct dict_module *dict_module_at(const struct dict *d, size_t i, uint64_t *id) {
    const struct table *t = &d->t[MODULES];

    if (i >= t->dense + t->ids.n)
        return NULL;
    *id = i + 1;
    if (i >= t->dense)
        memcpy(id, keys_key(&t->ids, (uint32_t)(i - t->dense) + 1, NULL), sizeof *id);
    return (const struct dict_module *)t->entries + i;
}
