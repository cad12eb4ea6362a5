/* SPDX-License-Identifier: Apache-2.0 */
#include "resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"
#include "traces/merge.h"

#define FRAMES_MAX 65536      /* of one stack; more is damage */
#define CACHE_MAX  (1u << 20) /* distinct (stack, pc) remembered at a time */

struct place {
    uint64_t stack, pc;
    uint32_t epoch, generation;
};

struct resolver {
    struct epochs *es;
    const struct modules *m;
    struct callsites *cs;
    struct resolver_options opt;
    struct keys places; /* struct place -> place_total[id - 1] */
    uint32_t *place_total;
    size_t places_cap;
    struct keys sites; /* callsite -> totals[id - 1] */
    struct resolver_total *totals;
    size_t totals_cap;
    struct place last; /* a thread often does the same at several ticks */
    uint32_t last_total;
    struct merge_python *py;
    struct merge_native *nat;
    uint32_t *out;
    size_t room;
    size_t depth; /* of the stack resolved last */
    int spent;    /* the trace has said more than its length allows */
};

struct resolver *resolver_new(struct epochs *es, const struct modules *m, struct callsites *cs,
                              const struct resolver_options *opt) {
    struct resolver *rs = calloc(1, sizeof *rs);

    if (!rs)
        return NULL;
    rs->es = es;
    rs->m = m;
    rs->cs = cs;
    rs->opt = *opt;
    return rs;
}

void resolver_free(struct resolver *rs) {
    if (!rs)
        return;
    keys_free(&rs->places);
    keys_free(&rs->sites);
    free(rs->place_total);
    free(rs->totals);
    free(rs->py);
    free(rs->nat);
    free(rs->out);
    free(rs);
}

static int make_room(struct resolver *rs, size_t n) {
    if (n <= rs->room)
        return 0;
    n += n / 2;
    void *py = realloc(rs->py, n * sizeof *rs->py);
    if (py)
        rs->py = py;
    void *nat = realloc(rs->nat, n * sizeof *rs->nat);
    if (nat)
        rs->nat = nat;
    void *out = realloc(rs->out, 2 * n * sizeof *rs->out);
    if (out)
        rs->out = out;
    if (!py || !nat || !out)
        return -1;
    rs->room = n;
    return 0;
}

/* The frame id of a Python frame of the dictionary; 0: no memory. */
static uint32_t python_frame(struct resolver *rs, const struct dict *d, uint64_t id) {
    const struct dict_frame *f = dict_frame(d, id);
    uint32_t fn = 0;
    size_t n;

    if (!f) { /* its dictionary block was lost */
        fn = callsites_function(rs->cs, CALLSITE_PYTHON, "[unknown]", NULL, 0, NULL);
        return fn ? callsites_frame(rs->cs, fn, 0, NULL) : 0;
    }
    const char *p = dict_string(d, f->name, &n);
    char *name = text_utf8(p, n, NULL);
    p = dict_string(d, f->file, &n);
    char *file = text_utf8(p, n, NULL);
    if (name && file) {
        const char *full = meta_qualname(rs->opt.meta, name, file, f->firstline);
        fn = callsites_function(rs->cs, CALLSITE_PYTHON,
                                full    ? full
                                : *name ? name
                                        : "[unknown]",
                                file, f->firstline, NULL);
    }
    free(name);
    free(file);
    return fn ? callsites_frame(rs->cs, fn, f->line, NULL) : 0;
}

/* The frames of a native address, at rs->nat[*n]: those inlined there come before it. `call`: it is a return address, the call lies
 * before it. 0, -1: no memory. */
static int native_frames(struct resolver *rs, uint64_t pc, int call, uint64_t ts, size_t *n) {
    uint64_t at = call && pc ? pc - 1 : pc;
    const struct module *mod = modules_at(rs->m, at, ts);
    char text[32];
    struct symbol sym = {.name = text};

    snprintf(text, sizeof text, "0x%llx", (unsigned long long)at);
    if (mod && symbols_lookup(mod->file, at - mod->bias, &sym) != 0)
        return -1;
    enum merge_owner owner = mod ? merge_owner(mod->path) : MERGE_PROGRAM;
    const char *path = mod ? mod->path : NULL;
    const struct symbol *s = &sym, *own = s;
    while (own->into)
        own = own->into;
    int eval = own->eval || (at >= rs->opt.eval_start && at < rs->opt.eval_end) ||
               (at >= rs->opt.cold_start && at < rs->opt.cold_end);
    if (eval) /* Python frames take its place: what is inlined there is their own time, on every build */
        s = own;
    for (; s; s = s->into) {
        uint32_t fn = callsites_function(rs->cs, CALLSITE_NATIVE, s->name, NULL, 0, path);
        uint32_t frame = fn ? callsites_frame(rs->cs, fn, s->line, s->source) : 0;
        if (!frame || make_room(rs, *n + 1) != 0)
            return -1;
        rs->nat[(*n)++] = (struct merge_native){frame, eval, owner};
    }
    return 0;
}

/* Decodes, names, merges. The callsite; *err on no memory. */
static uint32_t resolve(struct resolver *rs, const struct dict *d, const struct dict_stack *st,
                        uint64_t pc, uint64_t ts, int *err) {
    size_t np = 0, nn = 0;
    uint64_t prev = 0, x;
    struct trace_value list = st->python;
    size_t want = (size_t)st->python.n + st->native.n + 1;

    *err = 1;
    if (want > FRAMES_MAX)
        want = FRAMES_MAX;
    if (make_room(rs, want) != 0)
        return 0;
    while (np < want && trace_list_next(&list, &prev, &x)) {
        if (x == 0) { /* marks the frame before it */
            if (np)
                rs->py[np - 1].entry = 1;
            continue;
        }
        uint32_t f = python_frame(rs, d, x);
        if (!f)
            return 0;
        rs->py[np++] = (struct merge_python){f, (st->flags & 1) != 0};
    }
    list = st->native;
    prev = 0;
    if (pc && native_frames(rs, pc, 0, ts, &nn) != 0)
        return 0;
    while (nn < FRAMES_MAX && trace_list_next(&list, &prev, &x))
        if (native_frames(rs, x, 1, ts, &nn) != 0)
            return 0;
    size_t n = merge_stacks(rs->py, np, rs->nat, nn, (st->flags & 6) != 0, rs->out);
    uint32_t site = 0;
    rs->depth = n;
    for (size_t i = n; i > 0; i--) /* from the root */
        if (!(site = callsites_push(rs->cs, site, rs->out[i - 1])))
            return 0;
    *err = 0;
    return site;
}

static uint32_t total_of(struct resolver *rs, uint32_t site) {
    int is_new;
    uint32_t id = keys_put(&rs->sites, &site, sizeof site, &is_new);

    if (id > rs->totals_cap) {
        size_t cap = rs->totals_cap ? rs->totals_cap * 2 : 256;
        void *p = realloc(rs->totals, cap * sizeof *rs->totals);
        if (!p)
            return 0;
        rs->totals = p;
        rs->totals_cap = cap;
    }
    if (id && is_new) {
        rs->totals[id - 1] = (struct resolver_total){.site = site};
        if (site && callsites_use(rs->cs, site) != 0)
            return 0;
        rs->spent = !reader_allow(rs->opt.reader, rs->depth); /* the next one is not resolved */
    }
    return id;
}

/* The total of a place not seen before (or forgotten). */
static uint32_t new_place(struct resolver *rs, const struct place *k, uint64_t ts) {
    uint32_t site = 0;
    int err = 0;

    if (k->stack) {
        const struct dict *d = epochs_get(rs->es, k->epoch);
        const struct dict_stack *st = d ? dict_stack(d, k->stack) : NULL;
        if (!d)
            return 0;
        if (st && !rs->spent)
            site = resolve(rs, d, st, k->pc, ts, &err);
    }
    return err ? 0 : total_of(rs, site);
}

struct resolver_total *resolver_stack(struct resolver *rs, uint32_t epoch, uint64_t stack,
                                      uint64_t pc, uint64_t ts) {
    struct place k = {stack, pc, epoch, rs->m->nbounds ? modules_generation(rs->m, ts) : 0};
    int is_new;

    if (rs->last_total && memcmp(&k, &rs->last, sizeof k) == 0)
        return &rs->totals[rs->last_total - 1];
    if (rs->places.n >= CACHE_MAX) {
        keys_free(&rs->places);
        keys_init(&rs->places);
    }
    uint32_t id = keys_put(&rs->places, &k, sizeof k, &is_new);
    if (id > rs->places_cap) {
        size_t cap = rs->places_cap ? rs->places_cap * 2 : 4096;
        void *p = realloc(rs->place_total, cap * sizeof *rs->place_total);
        if (!p)
            return NULL;
        rs->place_total = p;
        rs->places_cap = cap;
    }
    if (id == 0)
        return NULL;
    if (is_new)
        rs->place_total[id - 1] = new_place(rs, &k, ts);
    uint32_t total = rs->place_total[id - 1];
    if (total == 0)
        return NULL;
    rs->last = k;
    rs->last_total = total;
    return &rs->totals[total - 1];
}

struct resolver_total *resolver_total(struct resolver *rs, size_t i) {
    return i < rs->sites.n ? &rs->totals[i] : NULL;
}
