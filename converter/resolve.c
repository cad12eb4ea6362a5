/* SPDX-License-Identifier: Apache-2.0 */
#include "resolve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resolve_inside.h"
#include "text.h"

#define FRAMES_MAX 65536        /* frames of one stack; more is damage */
#define PLACES_MAX (256u << 10) /* distinct (stack, pc) that are remembered */
#define SUMS_MAX   (16u << 10)  /* functions whose sums are held */
/* sizes of the caches, as powers of two; FEW: for few samples (see resolver_options) */
#define SEEN_BITS       14
#define RECENT_BITS     11
#define SEEN_BITS_FEW   9
#define RECENT_BITS_FEW 7
/* flag in place_total: what the place refers to is missing in the trace */
#define MISSING (1u << 31)

struct resolver *resolver_new(struct epochs *es, const struct modules *m, struct callsites *cs,
                              struct stackset *stacks, const struct resolver_options *opt) {
    struct resolver *rs = calloc(1, sizeof *rs);

    if (!rs)
        return NULL;
    rs->es = es;
    rs->m = m;
    rs->cs = cs;
    rs->stacks = stacks;
    rs->opt = *opt;
    rs->seen_bits = opt->few ? SEEN_BITS_FEW : SEEN_BITS;
    rs->recent_bits = opt->few ? RECENT_BITS_FEW : RECENT_BITS;
    rs->seen = calloc((size_t)1 << rs->seen_bits, sizeof *rs->seen);
    rs->recent = calloc((size_t)1 << rs->recent_bits, sizeof *rs->recent);
    if (!rs->seen || !rs->recent) {
        resolver_free(rs);
        return NULL;
    }
    return rs;
}

void resolver_free(struct resolver *rs) {
    if (!rs)
        return;
    keys_free(&rs->places);
    keys_free(&rs->sites);
    keys_free(&rs->addresses);
    free(rs->seen);
    free(rs->recent);
    free(rs->sum_of);
    free(rs->place_total);
    free(rs->totals);
    free(rs->frames);
    free(rs->sums);
    free(rs->named);
    free(rs->at);
    free(rs->known);
    free(rs->py);
    free(rs->nat);
    free(rs->out);
    free(rs);
}

int resolver_reserve(void *array, size_t *cap, size_t n, size_t size) {
    void *old, *p;

    if (n <= *cap)
        return 0;
    n += n / 2 + 64;
    memcpy(&old, array, sizeof old);
    if (!(p = realloc(old, n * size)))
        return -1;
    memcpy(array, &p, sizeof p);
    *cap = n;
    return 0;
}

static int make_space(struct resolver *rs, size_t n) {
    if (n <= rs->capacity)
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
    rs->capacity = n;
    return 0;
}

/* Returns the frame id of a Python frame of the dictionary; 0: no memory. */
static uint32_t name_frame(struct resolver *rs, const struct dict *d, uint64_t id) {
    const struct dict_frame *f = dict_frame(d, id);
    uint32_t fn = 0;
    size_t n;

    if (!f) { /* the dictionary block was lost */
        fn = callsites_function(rs->cs, CALLSITE_PYTHON, "[unknown]", NULL, 0, NULL);
        return fn ? callsites_frame(rs->cs, fn, 0, NULL) : 0;
    }
    const char *p = dict_string(d, f->name, &n);
    char *name = text_utf8(p, n, NULL);
    p = dict_string(d, f->file, &n);
    char *file = text_utf8(p, n, NULL);
    if (name && file) {
        const char *full = code_names_find(&rs->opt.meta->code_names, name, file, f->firstline);
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

/* Looks up an address: in the trace's own symbols first, else in the files on this machine. Returns 0 or -ENOMEM. */
static int look_up(struct resolver *rs, struct module *mod, uint64_t addr, struct symbol *out) {
    const struct symbol *said = recorded_at(rs->opt.recorded, mod->recorded, addr);
    int err = said && said->named ? 0 : symbols_lookup(mod->file, addr, out);

    mod->asked = 1;
    if (said && (said->named || (!err && !out->named)))
        *out = *said;
    return err;
}

/* Does the same as name_frame(), but only once for each frame of an epoch. */
static uint32_t python_frame(struct resolver *rs, const struct dict *d, uint32_t epoch,
                             uint64_t id) {
    size_t was = rs->named_cap;

    if (epoch != rs->named_epoch) {
        if (was)
            memset(rs->named, 0, was * sizeof *rs->named);
        rs->named_epoch = epoch;
    }
    if (id >= 1u << 20) /* writers count from 1, so higher ids are unusual */
        return name_frame(rs, d, id);
    if (resolver_reserve(&rs->named, &rs->named_cap, id + 1, sizeof *rs->named) != 0)
        return 0;
    if (rs->named_cap > was)
        memset(rs->named + was, 0, (rs->named_cap - was) * sizeof *rs->named);
    if (!rs->named[id])
        rs->named[id] = name_frame(rs, d, id);
    return rs->named[id];
}

/* Puts the frames of a native address at rs->nat[*n], with those inlined there before it. Returns 0; -1: no memory. */
static int name_address(struct resolver *rs, uint64_t at, uint64_t ts, size_t *n) {
    struct module *mod = modules_at(rs->m, at, ts);
    enum merge_owner owner = mod ? merge_owner(mod->path) : MERGE_PROGRAM;
    char text[32];
    struct symbol sym = {.name = owner == MERGE_AGENT ? "[probing]" : text};

    if (!mod)
        snprintf(text, sizeof text, "0x%llx", (unsigned long long)at);
    else if (owner != MERGE_AGENT && look_up(rs, mod, at - mod->bias, &sym) != 0)
        return -1; /* the agent's frames are left out of all stacks: which function it was does not matter */
    const char *path = mod ? mod->path : NULL;
    const struct symbol *s = &sym, *own = s;
    while (own->into)
        own = own->into;
    int eval = own->eval || (at >= rs->opt.eval_start && at < rs->opt.eval_end) ||
               (at >= rs->opt.cold_start && at < rs->opt.cold_end);
    if (eval) /* Python frames replace it, and on every build what is inlined into it counts as their own time */
        s = own;
    for (; s; s = s->into) {
        uint32_t fn = callsites_function(rs->cs, CALLSITE_NATIVE, s->name, NULL, 0, path);
        uint32_t frame = fn ? callsites_frame(rs->cs, fn, s->line, s->source) : 0;
        if (!frame || make_space(rs, *n + 1) != 0)
            return -1;
        rs->nat[(*n)++] = (struct merge_native){frame, eval, owner};
    }
    return 0;
}

/* Does the same as name_address(), but only once for each address; called when `seen` does not have it. */
static int find_frames(struct resolver *rs, const struct address *k, struct native_seen *seen,
                       uint64_t ts, size_t *n) {
    size_t before = *n;
    int is_new = 0;

    if (rs->addresses.n >= RESOLVER_NATIVE) {
        keys_free(&rs->addresses);
        rs->nbase = 0;
        memset(rs->seen, 0, sizeof *rs->seen << rs->seen_bits);
        rs->nknown = 0;
    }
    uint32_t id = keys_put(&rs->addresses, k, sizeof *k, &is_new);
    if (!id || resolver_reserve(&rs->at, &rs->at_cap, id, sizeof *rs->at) != 0)
        return -1;
    struct native_at *a = &rs->at[id - 1];
    if (is_new) {
        *a = (struct native_at){0};
        if (name_address(rs, k->pc, ts, n) != 0 ||
            resolver_reserve(&rs->known, &rs->known_cap, rs->nknown + *n - before,
                             sizeof *rs->known) != 0)
            return -1;
        *a = (struct native_at){(uint32_t)rs->nknown, (uint32_t)(*n - before)};
        memcpy(rs->known + rs->nknown, rs->nat + before, a->n * sizeof *rs->nat);
        rs->nknown += a->n;
    } else {
        if (make_space(rs, *n + a->n) != 0)
            return -1;
        memcpy(rs->nat + *n, rs->known + a->first, a->n * sizeof *rs->nat);
        *n += a->n;
    }
    if (a->n == 1) /* nearly always the case */
        *seen = (struct native_seen){k->pc, k->generation, rs->known[a->first]};
    return 0;
}

/* Puts the frames of a native address; `call`: it is a return address, and the call is before it. Returns 0; -1: no memory. */
static inline int native_frames(struct resolver *rs, uint64_t pc, int call, uint32_t generation,
                                uint64_t ts, size_t *n) {
    const struct address k = {.pc = call && pc ? pc - 1 : pc, .generation = generation};
    struct native_seen *seen = &rs->seen[k.pc * 0x9e3779b97f4a7c15u >> (64 - rs->seen_bits)];

    if (seen->pc != k.pc || seen->generation != k.generation || !seen->is.frame ||
        *n >= rs->capacity)
        return find_frames(rs, &k, seen, ts, n);
    rs->nat[(*n)++] = seen->is;
    return 0;
}

/* Puts a single frame "[native]" in place of all native frames. Returns 0; -1: no memory. */
static int native_alone(struct resolver *rs, size_t *n) {
    uint32_t fn = callsites_function(rs->cs, CALLSITE_NATIVE, "[native]", NULL, 0, NULL);
    uint32_t frame = fn ? callsites_frame(rs->cs, fn, 0, NULL) : 0;

    if (!frame)
        return -1;
    rs->nat[(*n)++] = (struct merge_native){.frame = frame, .owner = MERGE_PROGRAM};
    return 0;
}

/* Decodes, names and merges a stack into rs->out. Returns the number of frames; sets *err when there is no memory. */
static size_t resolve(struct resolver *rs, const struct dict *d, const struct dict_stack *st,
                      const struct place *at, uint64_t ts, int *err) {
    uint64_t pc = at->pc;
    size_t np = 0, nn = 0;
    uint64_t prev = 0, x;
    struct trace_value list = st->python;
    size_t want = (size_t)st->python.n + st->native.n + 1;

    *err = 1;
    if (want > FRAMES_MAX)
        want = FRAMES_MAX;
    if (make_space(rs, want) != 0)
        return 0;
    while (np < want && trace_list_next(&list, &prev, &x)) {
        if (x == 0) { /* 0 marks the previous frame */
            if (np)
                rs->py[np - 1].entry = 1;
            continue;
        }
        uint32_t f = python_frame(rs, d, at->epoch, x);
        if (!f)
            return 0;
        rs->py[np++] = (struct merge_python){f, (st->flags & 1) != 0};
    }
    if (rs->opt.no_native) {
        *err = !np && (pc || st->native.n) && native_alone(rs, &nn) != 0;
        return *err ? 0 : merge_stacks(rs->py, np, rs->nat, nn, 0, rs->out);
    }
    list = st->native;
    prev = 0;
    if (pc && native_frames(rs, pc, 0, at->generation, ts, &nn) != 0)
        return 0;
    while (nn < FRAMES_MAX && trace_list_next(&list, &prev, &x))
        if (native_frames(rs, x, 1, at->generation, ts, &nn) != 0)
            return 0;
    *err = 0;
    return merge_stacks(rs->py, np, rs->nat, nn, (st->flags & 6) != 0, rs->out);
}

/* Returns the number of the total for the stack of n frames in rs->out. 0: no memory. */
static uint32_t total_of(struct resolver *rs, size_t n) {
    uint32_t leaf = 0, site = 0;
    const void *key = &site;
    size_t size = sizeof site;
    int is_new;

    if (rs->opt.functions_only) {
        if (n && stackset_mark(rs->stacks, rs->out, n, &leaf) != 0)
            return 0;
        if (n) {
            key = rs->out;
            size = n * sizeof *rs->out;
        }
    } else if (rs->stacks) {
        if (n && !(site = stackset_put(rs->stacks, rs->out, n, &leaf)))
            return 0;
    } else {
        for (size_t i = n; i > 0; i--) /* from the outermost frame on */
            if (!(site = callsites_push(rs->cs, site, rs->out[i - 1])))
                return 0;
    }
    uint32_t id = keys_put(&rs->sites, key, size, &is_new);
    if (!id || !is_new)
        return id;
    if (resolver_reserve(&rs->totals, &rs->totals_cap, id, sizeof *rs->totals) != 0 ||
        resolver_reserve(&rs->frames, &rs->frames_cap, rs->nframes + n, sizeof *rs->frames) != 0)
        return 0;
    rs->totals[id - 1] = (struct resolver_total){
        .site = site, .n = (uint32_t)n, .leaf = leaf, .frames = rs->nframes};
    if (n && rs->stacks)
        memcpy(rs->frames + rs->nframes, rs->out, n * sizeof *rs->frames);
    rs->nframes += rs->stacks ? n : 0;
    if (rs->opt.functions_only ||
        site > rs->newest) { /* if these are too many items, the next stack is not resolved */
        rs->newest = site;
        rs->spent = !reader_allow(rs->opt.reader, n);
    }
    return id;
}

/* Most places that are new differ from another one only by their pc, within one function or line, and so have the same frames: that is found without
 * decoding and merging the stack. Returns the number of the entry of place_total for the stack with the frame of its pc in place of the pc;
 * 0: the pc has no single frame, or there is no memory. *is_new: the entry is new, to be filled in. */
static uint32_t place_by_frame(struct resolver *rs, const struct place *k, uint64_t ts,
                               int *is_new) {
    struct place by = *k;
    size_t n = 0;

    if (rs->opt.no_native || !k->pc || make_space(rs, 1) != 0 ||
        native_frames(rs, k->pc, 0, k->generation, ts, &n) != 0 || n != 1)
        return 0;
    /* no pc of a program has the uppermost bit */
    by.pc = 1ull << 63 | (uint64_t)rs->nat->owner << 33 | (uint64_t)(rs->nat->eval != 0) << 32 |
            rs->nat->frame;
    uint32_t id = keys_put(&rs->places, &by, sizeof by, is_new);
    int err = resolver_reserve(&rs->place_total, &rs->places_cap, id, sizeof *rs->place_total);
    return err ? 0 : id;
}

/* Returns the number of the total for a place that is new (or was forgotten), with MISSING where that applies. 0: no memory. */
static uint32_t new_place(struct resolver *rs, const struct place *k, uint64_t ts) {
    uint32_t missing = 0, total, by = 0;
    size_t n = 0;
    int err = 0, is_new = 1;

    if (k->stack) {
        const struct dict *d = epochs_get(rs->es, k->epoch);
        const struct dict_stack *st = d ? dict_stack(d, k->stack) : NULL;
        if (!d)
            return 0;
        if (st && !rs->spent)
            by = place_by_frame(rs, k, ts, &is_new);
        if (by && !is_new)
            return rs->place_total[by - 1];
        if (st && !rs->spent)
            n = resolve(rs, d, st, k, ts, &err);
        else
            missing = MISSING;
    }
    total = err ? 0 : total_of(rs, n);
    if (by)
        rs->place_total[by - 1] = total;
    return total ? total | missing : 0;
}

static int flush(struct resolver *rs);

struct resolver_total *resolver_stack(struct resolver *rs, uint32_t epoch, uint64_t stack,
                                      uint64_t pc, uint64_t ts, int *missing) {
    struct place k = {stack, pc, epoch, rs->m->nbounds ? modules_generation(rs->m, ts) : 0};
    int is_new;

    if (rs->opt.no_stacks)
        k = (struct place){0};
    struct resolver_recent *recent =
        &rs->recent[(k.stack * 0x9e3779b97f4a7c15u ^ k.pc * 0xff51afd7ed558ccdu) >>
                    (64 - rs->recent_bits)];
    uint32_t total = recent->total;
    if (total && recent->k.stack == k.stack && recent->k.pc == k.pc && recent->k.epoch == k.epoch &&
        recent->k.generation == k.generation)
        goto out;
    if (rs->places.n >= PLACES_MAX)
        keys_free(&rs->places);
    if (rs->stacks && (rs->nframes >= RESOLVER_FRAMES || rs->sites.n >= RESOLVER_STACKS) &&
        flush(rs) != 0)
        return NULL;
    uint32_t id = keys_put(&rs->places, &k, sizeof k, &is_new);
    if (!id ||
        resolver_reserve(&rs->place_total, &rs->places_cap, id, sizeof *rs->place_total) != 0)
        return NULL;
    total = is_new ? new_place(rs, &k, ts) : rs->place_total[id - 1];
    rs->place_total[id - 1] = total;
    if (total == 0)
        return NULL;
    *recent = (struct resolver_recent){k, total};
out:
    if (missing)
        *missing = (total & MISSING) != 0;
    return &rs->totals[(total & ~MISSING) - 1];
}

const uint32_t *resolver_frames(const struct resolver *rs, const struct resolver_total *t) {
    return rs->frames + t->frames;
}

static struct resolver_function *sums_of(struct resolver *rs, uint32_t function) {
    size_t was = rs->sum_of_cap;

    if (resolver_reserve(&rs->sum_of, &rs->sum_of_cap, function + 1, sizeof *rs->sum_of) != 0)
        return NULL;
    if (rs->sum_of_cap > was)
        memset(rs->sum_of + was, 0, (rs->sum_of_cap - was) * sizeof *rs->sum_of);
    if (!rs->sum_of[function]) {
        if (resolver_reserve(&rs->sums, &rs->sums_cap, rs->nsums + 1, sizeof *rs->sums) != 0)
            return NULL;
        rs->sums[rs->nsums] = (struct resolver_function){.function = function};
        rs->sum_of[function] = (uint32_t)++rs->nsums;
    }
    return &rs->sums[rs->sum_of[function] - 1];
}

static int add_functions(struct resolver *rs, const struct resolver_total *t) {
    const uint32_t *frames = resolver_frames(rs, t);

    for (uint32_t i = 0; i < t->n; i++) {
        if (frames[i] & STACKSET_AGAIN)
            continue;
        struct resolver_function *f = sums_of(rs, callsites_function_in(rs->cs, frames[i]));
        if (!f)
            return -ENOMEM;
        f->total += (int64_t)t->count;
        f->total_ns += (int64_t)t->ns;
        f->total_running_ns += (int64_t)t->running_ns;
        if (i == 0) {
            f->self += (int64_t)t->count;
            f->self_ns += (int64_t)t->ns;
            f->running += (int64_t)t->running;
            f->running_ns += (int64_t)t->running_ns;
            f->cpu_us += (int64_t)t->cpu_us;
        }
        if (i == t->leaf) {
            f->leaf += (int64_t)t->count;
            f->leaf_ns += (int64_t)t->ns;
            f->leaf_running_ns += (int64_t)t->running_ns;
        }
    }
    return 0;
}

static int hand_on_sums(struct resolver *rs) {
    int err = 0;

    for (size_t i = 0; !err && i < rs->nsums; i++) {
        const struct resolver_function *f = &rs->sums[i];
        rs->sum_of[f->function] = 0;
        const int64_t v[QUEUE_VALUES] = {
            rs->opt.trace, f->function, f->self,           f->self_ns,  f->running,
            f->running_ns, f->cpu_us,   f->total,          f->total_ns, f->total_running_ns,
            f->leaf,       f->leaf_ns,  f->leaf_running_ns};
        err = queue_put(rs->stacks->rows, QUEUE_SUMS, v, QUEUE_VALUES);
    }
    rs->nsums = 0;
    return err;
}

/* Hands the sums by stack on to the queue, and adds them to the sums by function. Returns 0 or -ENOMEM. */
static int flush(struct resolver *rs) {
    int err = 0;

    for (size_t i = 0; !err && rs->opt.sums && i < rs->sites.n; i++) {
        const struct resolver_total *t = &rs->totals[i];
        int64_t v[] = {rs->opt.trace,       t->site,
                       (int64_t)t->samples, (int64_t)t->count,
                       (int64_t)t->running, (int64_t)t->cpu_us,
                       (int64_t)t->ns,      (int64_t)t->running_ns};
        if (!rs->opt.functions_only)
            err = queue_put(rs->stacks->rows, QUEUE_TOTAL, v, sizeof v / sizeof *v);
        if (!err)
            err = add_functions(rs, t);
        if (!err && rs->nsums >= SUMS_MAX)
            err = hand_on_sums(rs);
    }
    keys_free(&rs->sites);
    keys_free(&rs->places);
    rs->nframes = 0;
    memset(rs->recent, 0, sizeof *rs->recent << rs->recent_bits);
    return err;
}

int resolver_end(struct resolver *rs) {
    int err = flush(rs);

    return err ? err : hand_on_sums(rs);
}
