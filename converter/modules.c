/* SPDX-License-Identifier: Apache-2.0 */
#include "modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "keys.h"
#include "meta.h"
#include "text.h"

#define MODULES_MAX 65536

/* State while loading: the modules known so far, and the module that an (epoch, id) stands for. */
struct loading {
    struct modules *m;
    struct symbols *s;
    const struct recorded *rec;
    struct keys known; /* key: path, range, bias, build-id; its id is the index + 1 */
    struct keys ids;   /* key: (epoch, id) */
    struct reader *r;
    struct epochs *es;
    struct meta *meta; /* for the time of day; NULL: not needed until now */
    uint32_t *which;   /* for each of ids: index in m->m */
    size_t which_cap;
};

/*
 * Returns 1 when the file at the path cannot be the one that was mapped at ts, which has no build-id to tell by: that one is gone, or this one
 * came, or was changed, later. Its names would be wrong ones. Returns -ENOMEM, or else 0.
 */
static int is_another(struct loading *l, const char *path, int gone, uint64_t ts) {
    struct stat st;

    if (gone || *path != '/' || stat(path, &st) != 0)
        return gone;
    if (!l->meta) {
        struct meta *m = calloc(1, sizeof *m);
        if (!m || meta_load(m, l->r, l->es) != 0) {
            free(m);
            return -ENOMEM;
        }
        l->meta = m;
    }
    return l->meta->clock.n && (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec >
                                   clock_utc(&l->meta->clock, ts);
}

static int add(struct loading *l, const struct dict *d, const struct dict_module *dm,
               uint32_t *index) {
    struct modules *m = l->m;
    size_t n;
    int is_new = 0;
    const char *bytes = dict_string(d, dm->path, &n);
    struct module mod = {.path = text_utf8(bytes, n, NULL),
                         .build_id = text_hex(dm->build_id, dm->build_id_len),
                         .start = dm->start,
                         .end = dm->end,
                         .bias = dm->bias,
                         .load = dm->ts,
                         .unload = UINT64_MAX};
    char *path = malloc(n + 1); /* the bytes as they are, to open the file */
    size_t len = 4 * sizeof(uint64_t) + n + 1 + dm->build_id_len;
    char *key = malloc(len);
    uint32_t id = 0;

    if (mod.path && mod.build_id && path && key) {
        uint64_t nums[4] = {dm->start, dm->end, dm->bias, dm->ts};
        memcpy(path, bytes, n);
        path[n] = 0;
        memcpy(key, nums, sizeof nums);
        memcpy(key + sizeof nums, path, n + 1);
        if (dm->build_id_len)
            memcpy(key + sizeof nums + n + 1, dm->build_id, dm->build_id_len);
        /* unlinked, or replaced by an upgrade: the build-id tells whether the file there is the same */
        static const char gone[] = " (deleted)";
        int is_gone = n > sizeof gone && strcmp(path + n - (sizeof gone - 1), gone) == 0;
        if (is_gone)
            path[n - (sizeof gone - 1)] = 0;
        mod.recorded = recorded_file(l->rec, path, strlen(path), dm->build_id, dm->build_id_len);
        int other = dm->build_id_len ? 0 : is_another(l, path, is_gone, dm->ts);
        /* a build-id that no file has: then no file is used */
        mod.file = other < 0 ? NULL
                   : other   ? symbols_file(l->s, path, (const uint8_t *)"", 1)
                             : symbols_file(l->s, path, dm->build_id, dm->build_id_len);
        id = mod.file ? keys_put(&l->known, key, len, &is_new) : 0;
    }
    free(path);
    free(key);
    if (id && id > m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 128;
        struct module *p = realloc(m->m, cap * sizeof *p);
        if (p) {
            m->m = p;
            m->cap = cap;
        } else {
            id = 0;
        }
    }
    if (!id || !is_new) {
        free(mod.path);
        free(mod.build_id);
    } else {
        m->m[m->n++] = mod;
    }
    *index = id - 1;
    return id ? 0 : -ENOMEM;
}

static int load_epoch(struct loading *l, const struct dict *d, uint32_t epoch) {
    const struct dict_module *dm;
    uint64_t id;
    int err = 0;

    for (size_t i = 0; !err && (dm = dict_module_at(d, i, &id)); i++) {
        uint64_t key[2] = {epoch, id};
        uint32_t index;
        if (dm->end <= dm->start || l->m->n >= MODULES_MAX)
            continue;
        err = add(l, d, dm, &index);
        uint32_t k = err ? 0 : keys_put(&l->ids, key, sizeof key, NULL);
        if (k > l->which_cap) {
            size_t cap = l->which_cap * 2 + 128;
            uint32_t *p = realloc(l->which, cap * sizeof *p);
            if (!p)
                return -ENOMEM;
            l->which = p;
            l->which_cap = cap;
        }
        if (k)
            l->which[k - 1] = index;
        else
            err = -ENOMEM;
    }
    return err;
}

static int load_unloads(struct loading *l, struct reader *r) {
    struct reader_data data = {0};
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    int err = 0;

    for (size_t i = 0; i < reader_blocks(r) && err != -ENOMEM; i++) {
        const struct reader_block *b = reader_block(r, i);
        if (!reader_may_hold(r, i, 1ull << TRACE_module_unload) ||
            (err = reader_load(r, i, &data)) != 0)
            continue;
        trace_rows_start(&rows, &data.h, data.data);
        while (trace_rows_next(&rows, 1ull << TRACE_module_unload, v) > 0) {
            uint64_t key[2] = {b->epoch, v[TRACE_module_unload_module].u};
            uint32_t k = keys_find(&l->ids, key, sizeof key);
            struct module *mod = k ? &l->m->m[l->which[k - 1]] : NULL;
            uint64_t ts = v[TRACE_module_unload_ts].u;
            if (mod && ts >= mod->load && ts < mod->unload)
                mod->unload = ts;
        }
    }
    reader_data_free(&data);
    return err == -ENOMEM ? err : 0;
}

static int by_place(const void *x, const void *y) {
    const struct module *a = x, *b = y;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->load < b->load ? -1 : a->load > b->load;
}

static int by_value(const void *x, const void *y) {
    const uint64_t *a = x, *b = y;

    return *a < *b ? -1 : *a > *b;
}

/* Sorts the modules, and finds the times at which a later module took over an address range. */
static int arrange(struct modules *m) {
    uint64_t top = 0; /* end of the ranges so far */
    size_t before = 0;

    if (m->n)
        qsort(m->m, m->n, sizeof *m->m, by_place);
    m->bounds = malloc((2 * m->n + 1) * sizeof *m->bounds);
    if (!m->bounds)
        return -ENOMEM;
    for (size_t i = 0; i < m->n; i++) {
        const struct module *a = &m->m[i];
        if (a->end - a->start > m->reach)
            m->reach = a->end - a->start;
        if (i > 0 && a->start < top) {
            m->bounds[m->nbounds++] = a->load;
            m->bounds[m->nbounds++] = m->m[before].load;
        }
        if (a->end > top) {
            top = a->end;
            before = i;
        }
    }
    qsort(m->bounds, m->nbounds, sizeof *m->bounds, by_value);
    return 0;
}

int modules_load(struct modules *m, struct reader *r, struct epochs *es, struct symbols *s,
                 const struct recorded *rec) {
    struct loading l = {.m = m, .s = s, .rec = rec, .r = r, .es = es};
    uint32_t epoch;
    int err = 0;

    memset(m, 0, sizeof *m);
    keys_init(&l.known);
    keys_init(&l.ids);
    for (size_t i = 0; !err && epochs_at(es, i, &epoch); i++) {
        const struct dict *d = epochs_get(es, epoch);
        err = d ? load_epoch(&l, d, epoch) : -ENOMEM;
    }
    if (!err)
        err = load_unloads(&l, r);
    if (!err)
        err = arrange(m);
    keys_free(&l.known);
    keys_free(&l.ids);
    if (l.meta)
        meta_free(l.meta);
    free(l.meta);
    free(l.which);
    return err;
}

struct module *modules_at(const struct modules *m, uint64_t pc, uint64_t ts) {
    struct module *best = NULL;
    size_t lo = 0, hi = m->n; /* find the first module that starts after pc */

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (m->m[mid].start > pc)
            hi = mid;
        else
            lo = mid + 1;
    }
    for (; lo > 0; lo--) {
        struct module *a = &m->m[lo - 1];
        if (pc - a->start >= m->reach)
            break;
        if (pc >= a->end)
            continue;
        /* take the one loaded last before ts; since a module is noticed a little after it was loaded, the earliest one is better than none */
        if (!best || (a->load <= ts && (best->load > ts || a->load > best->load)) ||
            (a->load > ts && best->load > ts && a->load < best->load))
            best = a;
    }
    return best;
}

uint32_t modules_generation(const struct modules *m, uint64_t ts) {
    size_t lo = 0, hi = m->nbounds;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (m->bounds[mid] > ts)
            hi = mid;
        else
            lo = mid + 1;
    }
    return (uint32_t)lo;
}

void modules_free(struct modules *m) {
    for (size_t i = 0; i < m->n; i++) {
        free(m->m[i].path);
        free(m->m[i].build_id);
    }
    free(m->m);
    free(m->bounds);
    memset(m, 0, sizeof *m);
}
