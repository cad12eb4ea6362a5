/* SPDX-License-Identifier: Apache-2.0 */
/* A frame's arguments and local variables. */
#include "object_render.h"

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
    int32_t arguments, locals; /* number of arguments; of local variables (up to 3.10) */
};

static int32_t get_i32(struct render *r, uint64_t addr) {
    int32_t v = obj_u32(r, addr);

    return obj_ok(r, v >= 0 && v <= 1 << 20) ? v : 0;
}

static void report(struct walk *w, const struct pywalk_local *local) {
    if (w->ended || w->count == w->max || w->fn(w->ctx, local) != 0)
        w->ended = true;
    else
        w->count++;
}

/* Reports the variable in the slot at `at`; its name is the str at `names`. */
static void one_slot(struct walk *w, uint64_t at, uint64_t names, uint32_t flags) {
    struct pywalk_local local = {.flags = flags};
    struct render *r = &w->r;
    uint64_t value;

    local.object = obj_u64(r, at) & ~(uint64_t)pywalk_offsets(&r->pw)->tag_bits; /* 3.14+ */
    if (local.object == 0 || !obj_text(r, obj_pointer(r, names), local.name, sizeof local.name))
        return;
    /* An object that is no cell is reported as it is (an argument before its cell was made), and so is a cell that cannot be
     * opened: it will be shown as corrupt. */
    if ((flags & (PYWALK_LOCAL_CELL | PYWALK_LOCAL_FREE)) != 0 &&
        obj_is(r, local.object, KIND_CELL)) {
        value = obj_pointer(r, local.object + r->f->cell_value);
        local.object = obj_error(r) == 0 ? value : local.object;
    }
    if (local.object != 0)
        report(w, &local);
}

/* 3.11+: one array of slots, with a byte for each that says what it is. */
static void slots_new(struct walk *w, uint64_t code) {
    const struct object_fields *f = w->r.f;
    struct render *r = &w->r;
    uint64_t slots = w->frame->frame + f->fr_slots, length, kinds;
    uint64_t n = get_i32(r, code + f->co_nlocalsplus);
    uint64_t names = obj_tuple(r, obj_pointer(r, code + f->co_localsplusnames), &length);

    kinds = obj_pointer(r, code + f->co_localspluskinds);
    if (!obj_ok(r, length == n && n <= MAX_SLOTS && kinds != 0))
        return;
    for (uint64_t i = 0; r->rc == 0 && i < n && !w->ended; i++) {
        uint32_t flags = i < (uint64_t)w->arguments ? PYWALK_LOCAL_ARGUMENT : 0;
        uint8_t kind = obj_u8(r, kinds + pywalk_offsets(&r->pw)->f.bytes_data + i);
        if ((kind & f->kind_cell) != 0)
            flags |= PYWALK_LOCAL_CELL;
        if ((kind & f->kind_free) != 0)
            flags |= PYWALK_LOCAL_FREE;
        one_slot(w, slots + i * 8, names + i * 8, flags);
    }
}

/* To 3.10: the local variables, then cells, then free variables, each with a tuple of names. */
static void slots_old(struct walk *w, uint64_t code) {
    const struct object_fields *f = w->r.f;
    const struct {
        int64_t names;
        uint32_t flags;
    } parts[] = {{f->co_varnames, 0},
                 {f->co_cellvars, PYWALK_LOCAL_CELL},
                 {f->co_freevars, PYWALK_LOCAL_FREE}};
    uint64_t slot = w->frame->frame + f->fr_slots, n;
    struct render *r = &w->r;

    for (unsigned p = 0; p < 3; p++) {
        uint64_t names = obj_tuple(r, obj_pointer(r, code + parts[p].names), &n);
        if (!obj_ok(r, n <= MAX_SLOTS && (p != 0 || n == (uint64_t)w->locals)))
            return;
        for (uint64_t i = 0; r->rc == 0 && i < n && !w->ended; i++, slot += 8) {
            bool argument = p == 0 && i < (uint64_t)w->arguments;
            one_slot(w, slot, names + i * 8,
                     parts[p].flags | (argument ? PYWALK_LOCAL_ARGUMENT : 0));
        }
    }
}

/* Whether this is one of the things that a module holds besides its variables. */
static bool is_definition(struct walk *w, const struct pywalk_local *local) {
    struct object_type t;
    bool known =
        strncmp(local->name, "__", 2) == 0 || (obj_type_of(&w->r, local->object, &t) &&
                                               (t.kind == KIND_MODULE || t.kind == KIND_FUNCTION ||
                                                t.kind == KIND_TYPE || t.kind == KIND_BUILTIN));

    if (w->r.rc != -E2BIG)
        obj_error(&w->r);
    return known;
}

/* Reports the names of a module or a class body. */
static void names_of_dict(struct walk *w, uint64_t dict, bool module) {
    struct pywalk_local local = {.flags = module ? PYWALK_LOCAL_GLOBAL : 0};
    struct dict_iter it;
    struct object_type t;
    uint64_t key;

    /* any other object was made by a metaclass, or given to exec() as its locals() */
    if (!obj_type_of(&w->r, dict, &t) || t.kind != KIND_DICT || !obj_dict_open(&w->r, dict, &it))
        return;
    while (!w->ended && obj_dict_next(&w->r, &it, &key, &local.object))
        if (pywalk_str(&w->r.pw, key, local.name, sizeof local.name) >= 0 &&
            !(module && is_definition(w, &local)))
            report(w, &local);
}

int pywalk_locals(const struct pywalk_objects *ob, const struct pywalk_frame *frame, size_t max,
                  pywalk_local_fn fn, void *ctx) {
    const struct object_fields *f = ob->f;
    struct walk w = {.frame = frame, .max = max, .fn = fn, .ctx = ctx};
    uint64_t code = frame->code, locals, globals;
    struct render *r = &w.r;
    int32_t flags;

    if (!pywalk_plausible(code) || !pywalk_plausible(frame->frame))
        return -EBADMSG;
    obj_begin_reads(r, ob, MAX_READS);
    flags = obj_u32(r, code + f->co_flags);
    w.arguments = get_i32(r, code + f->co_argcount) + get_i32(r, code + f->co_kwonlyargcount) +
                  ((flags & f->flag_varargs) != 0) + ((flags & f->flag_varkeywords) != 0);
    w.locals = get_i32(r, code + f->co_nlocals);
    if (r->rc == 0 && (flags & f->flag_optimized) == 0) {
        locals = obj_pointer(r, frame->frame + f->fr_locals);
        globals = obj_pointer(r, frame->frame + f->fr_globals);
        if (locals == 0)
            locals = globals;
        if (r->rc == 0)
            names_of_dict(&w, locals, locals == globals);
    }
    if (r->rc == 0 && f->co_nlocalsplus != 0)
        slots_new(&w, code);
    else if (r->rc == 0)
        slots_old(&w, code);
    return r->rc != 0 && r->rc != -E2BIG ? r->rc : (int)w.count; /* -E2BIG: reads used up */
}
