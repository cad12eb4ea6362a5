/* SPDX-License-Identifier: Apache-2.0 */
/* A frame's arguments and local variables. */
#include "object_render.h"

#include <stdio.h>

#define MAX_SLOTS 4096
#define MAX_READS 100000

struct walk {
    struct render r; /* for its reads only */
    const struct pywalk_frame *frame;
    size_t max, count;
    pywalk_local_fn fn;
    void *ctx;
    bool ended;
    uint32_t flags;
    int32_t arguments, locals; /* how many are arguments; local variables (to 3.10) */
};

static int get_i32(struct render *r, uint64_t addr, int32_t *v) {
    int rc = get(r, addr, v, sizeof *v);

    return rc == 0 && (*v < 0 || *v > 1 << 20) ? -EBADMSG : rc;
}

static void tell(struct walk *w, const struct pywalk_local *local) {
    if (w->count == w->max || w->ended)
        w->ended = true;
    else if (w->fn(w->ctx, local) != 0)
        w->ended = true;
    else
        w->count++;
}

/* A cell's value; what is no cell is left alone (an argument before its cell was made). */
static int open_cell(struct render *r, uint64_t *object) {
    struct object_type t;
    int rc = obj_type_of(r, *object, &t);

    if (rc == 0 && t.kind == KIND_CELL)
        rc = obj_get_pointer(r, *object + (uint64_t)r->f->cell_value, object);
    return rc;
}

/* The variable in the slot at `at`, called by the str at `names`. */
static int one_slot(struct walk *w, uint64_t at, uint64_t names, uint32_t flags) {
    struct pywalk_local local = {.flags = flags};
    uint64_t name;
    int rc = get_u64(&w->r, at, &local.object);

    local.object &= ~(uint64_t)pywalk_offsets(&w->r.pw)->tag_bits; /* 3.14+ */
    if (rc != 0 || local.object == 0)
        return rc;
    rc = obj_get_pointer(&w->r, names, &name);
    if (rc == 0)
        rc = pywalk_str(&w->r.pw, name, local.name, sizeof local.name);
    if (rc < 0)
        return rc;
    rc = 0;
    /* What cannot be opened is told all the same: it will be shown as corrupt. */
    if ((flags & (PYWALK_LOCAL_CELL | PYWALK_LOCAL_FREE)) != 0)
        (void)open_cell(&w->r, &local.object);
    if (local.object != 0)
        tell(w, &local);
    return rc;
}

/* 3.11+: one array of slots, with a byte for each that says what it is. */
static int slots_new(struct walk *w, uint64_t code) {
    const struct object_fields *f = w->r.f;
    uint64_t names = 0, kinds = 0, length = 0, slots = w->frame->frame + (uint64_t)f->fr_slots;
    int32_t n = 0;
    uint8_t kind = 0;
    int rc = get_i32(&w->r, code + (uint64_t)f->co_nlocalsplus, &n);

    if (rc == 0)
        rc = obj_get_pointer(&w->r, code + (uint64_t)f->co_localsplusnames, &names);
    if (rc == 0)
        rc = obj_get_pointer(&w->r, code + (uint64_t)f->co_localspluskinds, &kinds);
    if (rc == 0)
        rc = names != 0 ? obj_get_count(&w->r, names + (uint64_t)f->ob_size, &length) : -EBADMSG;
    if (rc == 0 && (length != (uint64_t)n || n > MAX_SLOTS || kinds == 0))
        rc = -EBADMSG;
    for (int32_t i = 0; rc == 0 && i < n && !w->ended; i++) {
        uint32_t flags = i < w->arguments ? PYWALK_LOCAL_ARGUMENT : 0;
        rc = get(&w->r, kinds + pywalk_offsets(&w->r.pw)->f.bytes_data + (uint64_t)i, &kind, 1);
        if ((kind & f->kind_cell) != 0)
            flags |= PYWALK_LOCAL_CELL;
        if ((kind & f->kind_free) != 0)
            flags |= PYWALK_LOCAL_FREE;
        if (rc == 0)
            rc = one_slot(w, slots + (uint64_t)i * 8,
                          names + (uint64_t)(f->tuple_items + (int64_t)i * 8), flags);
    }
    return rc;
}

/* To 3.10: the local variables, then cells, then free variables, each with a tuple of names. */
static int slots_old(struct walk *w, uint64_t code) {
    const struct object_fields *f = w->r.f;
    const struct {
        int64_t names;
        uint32_t flags;
    } parts[] = {{f->co_varnames, 0},
                 {f->co_cellvars, PYWALK_LOCAL_CELL},
                 {f->co_freevars, PYWALK_LOCAL_FREE}};
    uint64_t slot = w->frame->frame + (uint64_t)f->fr_slots, names = 0, n = 0;
    int rc = 0;

    for (unsigned p = 0; p < 3 && rc == 0; p++) {
        rc = obj_get_pointer(&w->r, code + (uint64_t)parts[p].names, &names);
        if (rc == 0)
            rc = names != 0 ? obj_get_count(&w->r, names + (uint64_t)f->ob_size, &n) : -EBADMSG;
        if (rc == 0 && (n > MAX_SLOTS || (p == 0 && n != (uint64_t)w->locals)))
            rc = -EBADMSG;
        for (uint64_t i = 0; rc == 0 && i < n && !w->ended; i++, slot += 8) {
            uint32_t flags = parts[p].flags;
            if (p == 0 && i < (uint64_t)w->arguments)
                flags |= PYWALK_LOCAL_ARGUMENT;
            rc = one_slot(w, slot, names + (uint64_t)f->tuple_items + i * 8, flags);
        }
    }
    return rc;
}

/* What a module holds besides its variables. */
static bool is_furniture(struct walk *w, const struct pywalk_local *local) {
    struct object_type t;

    if (strncmp(local->name, "__", 2) == 0)
        return true;
    return obj_type_of(&w->r, local->object, &t) == 0 &&
           (t.kind == KIND_MODULE || t.kind == KIND_FUNCTION || t.kind == KIND_TYPE ||
            t.kind == KIND_BUILTIN);
}

/* A module's or a class body's names. */
static int names_of_dict(struct walk *w, uint64_t dict, bool module) {
    struct pywalk_local local = {.flags = module ? PYWALK_LOCAL_GLOBAL : 0};
    struct dict_iter it;
    struct object_type t;
    uint64_t key;
    int rc = obj_type_of(&w->r, dict, &t);

    if (rc == 0 &&
        t.kind != KIND_DICT) /* what a metaclass has made; or locals() that was given to exec() */
        return 0;
    if (rc == 0)
        rc = obj_dict_open(&w->r, dict, &it);
    while (rc == 0 && !w->ended) {
        rc = obj_dict_next(&w->r, &it, &key, &local.object);
        if (rc <= 0)
            return rc;
        rc = 0;
        if (pywalk_str(&w->r.pw, key, local.name, sizeof local.name) >= 0 &&
            !(module && is_furniture(w, &local)))
            tell(w, &local);
    }
    return rc;
}

int pywalk_locals(const struct pywalk_objects *ob, const struct pywalk_frame *frame, size_t max,
                  pywalk_local_fn fn, void *ctx) {
    const struct object_fields *f = ob->f;
    struct walk w = {.frame = frame, .max = max, .fn = fn, .ctx = ctx};
    struct pywalk_limits limits = {.reads = MAX_READS};
    uint64_t code = frame->code, locals = 0, globals = 0;
    int32_t flags = 0, more = 0;
    char unused[16];
    int rc;

    if (!pywalk_plausible(code) || !pywalk_plausible(frame->frame))
        return -EBADMSG;
    obj_begin(&w.r, ob, &limits, unused, sizeof unused);
    rc = get(&w.r, code + (uint64_t)f->co_flags, &flags, sizeof flags);
    if (rc == 0)
        rc = get_i32(&w.r, code + (uint64_t)f->co_argcount, &w.arguments);
    if (rc == 0)
        rc = get_i32(&w.r, code + (uint64_t)f->co_kwonlyargcount, &more);
    if (rc == 0)
        rc = get_i32(&w.r, code + (uint64_t)f->co_nlocals, &w.locals);
    w.arguments += more + ((flags & f->flag_varargs) != 0) + ((flags & f->flag_varkeywords) != 0);
    if (rc == 0 && (flags & f->flag_optimized) == 0) {
        rc = obj_get_pointer(&w.r, frame->frame + (uint64_t)f->fr_locals, &locals);
        if (rc == 0)
            rc = obj_get_pointer(&w.r, frame->frame + (uint64_t)f->fr_globals, &globals);
        if (rc == 0 && locals == 0)
            locals = globals;
        if (rc == 0)
            rc = names_of_dict(&w, locals, locals == globals);
    }
    if (rc == 0)
        rc = f->co_nlocalsplus != 0 ? slots_new(&w, code) : slots_old(&w, code);
    if (rc == -E2BIG) /* enough */
        rc = 0;
    return rc < 0 ? rc : (int)w.count;
}
