/* SPDX-License-Identifier: Apache-2.0 */
#include "recorded.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#define CHAIN_MAX 256 /* functions inlined into each other; more is damage */

struct address {
    uint64_t file, address;
};

/* Collects the rows of one address until the last one has come. */
struct chain {
    struct address at;
    struct symbol all[CHAIN_MAX];
    size_t n;
};

/* Returns path, NUL, build-id; malloc'ed. */
static char *file_key(const char *path, size_t n, const uint8_t *build_id, size_t len) {
    char *key = malloc(n + 1 + len);

    if (key) {
        memcpy(key, path, n);
        key[n] = 0;
        if (len)
            memcpy(key + n + 1, build_id, len);
    }
    return key;
}

uint32_t recorded_file(const struct recorded *rec, const char *path, size_t n,
                       const uint8_t *build_id, size_t len) {
    char *key = rec->files.n ? file_key(path, n, build_id, len) : NULL;
    uint32_t id = key ? keys_find(&rec->files, key, n + 1 + len) : 0;

    free(key);
    return id;
}

/* Returns the number of the file that a row refers to; 0: the trace does not say; -ENOMEM. */
static int64_t file_of(struct recorded *rec, const struct dict *d, uint64_t id) {
    const struct dict_native_file *f = dict_native_file(d, id);
    size_t n;

    if (!f)
        return 0;
    const char *path = dict_string(d, f->path, &n);
    char *key = file_key(path, n, f->build_id, f->build_id_len);
    uint32_t file = key ? keys_put(&rec->files, key, n + 1 + f->build_id_len, NULL) : 0;
    free(key);
    return file ? (int64_t)file : -ENOMEM;
}

/* Returns a string of the trace as UTF-8, which is kept. NULL: no memory. */
static const char *keep(struct recorded *rec, const struct dict *d, uint64_t id) {
    size_t n;
    const char *p = dict_string(d, id, &n);
    char *text = text_utf8(p, n, &n);
    uint32_t k = text ? keys_put(&rec->texts, text, n + 1, NULL) : 0;

    free(text);
    return k ? keys_key(&rec->texts, k, NULL) : NULL;
}

/* Stores a complete chain. A later chain of an address replaces an earlier one, because the address was looked up again since. */
static int put_chain(struct recorded *rec, struct chain *c) {
    struct symbol *all = malloc(c->n * sizeof *all);
    int is_new;
    uint32_t id = all ? keys_put(&rec->addresses, &c->at, sizeof c->at, &is_new) : 0;

    if (id > rec->chains_cap) {
        size_t cap = rec->chains_cap * 2 + 256;
        struct symbol **p = realloc(rec->chains, cap * sizeof *p);
        if (p) {
            rec->chains = p;
            rec->chains_cap = cap;
        } else {
            rec->addresses.n--;
            id = 0;
        }
    }
    if (!id) {
        free(all);
        return -ENOMEM;
    }
    memcpy(all, c->all, c->n * sizeof *all);
    for (size_t i = 0; i + 1 < c->n; i++)
        all[i].into = &all[i + 1];
    if (!is_new)
        free(rec->chains[id - 1]);
    rec->chains[id - 1] = all;
    c->n = 0;
    return 0;
}

static int take_row(struct recorded *rec, const struct dict *d, struct chain *c,
                    const struct trace_value *v) {
    int64_t file = file_of(rec, d, v[TRACE_symbol_file].u);
    struct address at = {(uint64_t)file, v[TRACE_symbol_address].u};
    uint64_t flags = v[TRACE_symbol_flags].u;
    const char *name = keep(rec, d, v[TRACE_symbol_name].u);
    const char *source = keep(rec, d, v[TRACE_symbol_source].u);

    if (file < 0 || !name || !source)
        return -ENOMEM;
    if (!file || !*name)
        return 0;
    if (c->n && memcmp(&at, &c->at, sizeof at) != 0)
        c->n =
            0; /* the rest of the previous chain was lost; its address is looked up again where possible */
    if (c->n < CHAIN_MAX)
        c->all[c->n++] = (struct symbol){.name = name,
                                         .source = *source ? source : NULL,
                                         .line = (uint32_t)v[TRACE_symbol_line].u,
                                         .named = !(flags & 4),
                                         .eval = (flags & 2) != 0};
    c->at = at;
    return flags & 1 ? 0 : put_chain(rec, c);
}

static int take_block(struct recorded *rec, struct epochs *es, const struct reader_data *data,
                      struct chain *c) {
    const struct dict *d = epochs_get(es, data->h.epoch);
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    int err = d ? 0 : -ENOMEM;

    c->n = 0;
    trace_rows_start(&rows, &data->h, data->data);
    while (!err && trace_rows_next(&rows, 1ull << TRACE_symbol, v) > 0)
        err = take_row(rec, d, c, v);
    return err;
}

int recorded_load(struct recorded *rec, struct reader *r, struct epochs *es) {
    struct chain *c = malloc(sizeof *c);
    struct reader_data data = {0};
    int err = c ? 0 : -ENOMEM;

    memset(rec, 0, sizeof *rec);
    keys_init(&rec->files);
    keys_init(&rec->addresses);
    keys_init(&rec->texts);
    for (size_t i = 0; err != -ENOMEM && i < reader_blocks(r); i++)
        if (reader_may_hold(r, i, 1ull << TRACE_symbol) && (err = reader_load(r, i, &data)) == 0)
            err = take_block(rec, es, &data, c);
    reader_data_free(&data);
    free(c);
    return err == -ENOMEM ? err : 0;
}

void recorded_free(struct recorded *rec) {
    for (uint32_t i = 0; i < rec->addresses.n; i++)
        free(rec->chains[i]);
    free(rec->chains);
    keys_free(&rec->files);
    keys_free(&rec->addresses);
    keys_free(&rec->texts);
    memset(rec, 0, sizeof *rec);
}

const struct symbol *recorded_at(const struct recorded *rec, uint32_t file, uint64_t address) {
    struct address at = {file, address};
    uint32_t id = file ? keys_find(&rec->addresses, &at, sizeof at) : 0;

    return id ? rec->chains[id - 1] : NULL;
}
