/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds names that code objects do not have: those of threads, and qualified names before 3.11, where a code object has only its plain name.
 *
 * A method's qualified name is found by its first argument: the classes of that argument's method resolution order are searched for the function with
 * this very code, and the function knows its qualified name. A generator or coroutine has its own. Where there is neither (a nested
 * function, a lambda, a list comprehension, a method whose decorator keeps no __wrapped__), the plain name is kept.
 */
#include "object_render.h"

#define READS      20000
#define NAME_READS 2000 /* for a thread's name */
#define MAX_MRO    64
#define MAX_NAMES  2000
#define MAX_WRAPS  5
#define MAX_CELLS  16

/* Reads one word of the target's; in direct mode the kernel is asked first, so a wild pointer does no harm. */
static uint64_t word(const struct pywalk *pw, uint64_t addr) {
    uint64_t v;

    if (!pywalk_plausible(addr & ~7ull) ||
        (pw->mem.read == pywalk_read_direct && !pywalk_mem_probe(addr)))
        return 0;
    return mem_u64(pw, addr, &v) == 0 ? v : 0;
}

/* The first argument of a running frame: in its slot, or, if an inner function uses it, in a cell. */
static uint64_t first_argument(const struct pywalk *pw, const struct object_fields *f,
                               const struct pywalk_frame *frame) {
    uint64_t slots = frame->frame + f->fr_slots, obj = word(pw, slots), n, cells;
    uint64_t name = word(pw, word(pw, frame->code + f->co_varnames) + f->tuple_items);

    if ((uint32_t)word(pw, frame->code + f->co_argcount) == 0 || obj != 0 || name == 0)
        return obj;
    cells = word(pw, frame->code + f->co_cellvars);
    n = word(pw, cells + f->ob_size);
    slots += 8 * (uint64_t)(uint32_t)word(pw, frame->code + f->co_nlocals);
    for (uint64_t i = 0; i < n && i < MAX_CELLS; i++)
        if (word(pw, cells + f->tuple_items + 8 * i) == name)
            return word(pw, word(pw, slots + 8 * i) + f->cell_value);
    return 0;
}

uint64_t pywalk_owner(const struct pywalk_objects *ob, const struct pywalk *pw,
                      const struct pywalk_frame *frame) {
    const struct object_fields *f = ob->f;
    const struct pywalk_fields *o = &pywalk_offsets(pw)->f;
    uint64_t obj, type;

    if (f == NULL || o->co_qualname != 0 || !pywalk_plausible(frame->frame))
        return 0;
    if (frame->flags & PYWALK_GENERATOR)
        return word(pw, word(pw, frame->frame + o->fr_gen) + f->generator_qualname) | 1;
    obj = first_argument(pw, f, frame);
    type = obj != 0 ? word(pw, obj + o->ob_type) : 0;
    /* a class method's first argument is the class itself */
    return type && word(pw, type + f->tp_flags) & f->flag_type ? obj : type;
}

/* The qualified name (a str) of the function with this code, searched for in `obj`, an attribute of a class. 0: it is another function, or none. */
static uint64_t function_in(struct render *r, uint64_t obj, uint64_t code, unsigned depth) {
    static const char *const inner[] = {"__wrapped__", "func"};
    struct object_type t;
    uint64_t v, found = 0;
    unsigned places;

    if (depth == MAX_WRAPS || !obj_type_of(r, obj, &t))
        return 0;
    if (t.kind == KIND_FUNCTION && obj_u64(r, obj + r->f->function_code) == code)
        return obj_u64(r, obj + r->f->function_qualname);
    /* the functions that these hold come first in them: one, or three in a property */
    places = strcmp(t.native, "property") == 0       ? 3
             : strcmp(t.native, "staticmethod") == 0 ? 1
             : strcmp(t.native, "classmethod") == 0  ? 1
                                                     : 0;
    for (unsigned i = 0; !found && i < places; i++)
        if ((v = obj_pointer(r, obj + r->f->ob_size + 8 * i)) != 0)
            found = function_in(r, v, code, depth + 1);
    for (unsigned i = 0; !found && !places && i < 2; i++)
        if (obj_attrs_find(r, obj, &t, inner[i], &v))
            found = function_in(r, v, code, depth + 1);
    return found;
}

/* Searches the dict of a class for the function. Names are interned: equal names are the same object, except those that the compiler mangled (__x). */
static uint64_t function_of(struct render *r, uint64_t dict, uint64_t code, const char *name,
                            uint64_t name_at) {
    int mangled = name[0] == '_' && name[1] == '_' && !obj_ends_with(name, "__");
    uint64_t key, value, found = 0;
    struct dict_iter it;
    char have[256];

    obj_dict_open(r, dict, &it);
    for (unsigned i = 0; !found && i < MAX_NAMES && obj_dict_next(r, &it, &key, &value); i++) {
        if (key == name_at || (mangled && pywalk_str(&r->pw, key, have, sizeof have) > 0 &&
                               obj_ends_with(have, name)))
            found = function_in(r, value, code, 0);
        obj_error(r);
    }
    obj_error(r);
    return found;
}

int pywalk_qualname(const struct pywalk_objects *ob, uint64_t code, uint64_t owner, char *buf,
                    size_t n) {
    const struct object_fields *f = ob->f;
    uint64_t mro, count, class, name_at, found = 0;
    struct pywalk_code known;
    struct render r;
    int rc = pywalk_code(ob->pw, code, &known);

    if (rc != 0)
        return rc;
    obj_begin_reads(&r, ob, READS);
    if (owner & 1) {
        found = owner & ~1ull;
    } else {
        name_at = obj_u64(&r, code + pywalk_offsets(ob->pw)->f.co_name);
        mro = obj_u64(&r, owner + f->tp_dictoffset + 56); /* tp_mro, in all of these versions */
        count = obj_u64(&r, mro + f->ob_size);
        for (uint64_t i = 0; !found && i < count && i < MAX_MRO; i++) {
            class = obj_u64(&r, mro + f->tuple_items + 8 * i);
            if (!obj_ok(&r, i != 0 || class == owner))
                break;
            found = function_of(&r, obj_u64(&r, class + f->tp_dict), code, known.name, name_at);
        }
    }
    if (!pywalk_plausible(found))
        return -ENOENT;
    rc = pywalk_str(&r.pw, found, buf, n);
    return rc < 0 ? rc : obj_ends_with(buf, known.name) ? rc : -ENOENT;
}

/* Every thread that threading starts has Thread._bootstrap(self) as its outermost frame, on all versions. */
static int first_local(void *ctx, const struct pywalk_local *local) {
    *(uint64_t *)ctx = local->object;
    return 1;
}

int pywalk_thread_name(const struct pywalk_objects *ob, const struct pywalk_frame *outermost,
                       char *buf, size_t n) {
    struct pywalk_code code;
    struct object_type t;
    struct render r;
    uint64_t self = 0, name;
    int rc = pywalk_code(ob->pw, outermost->code, &code);

    if (rc == 0 &&
        (!obj_ends_with(code.name, "_bootstrap") || !obj_ends_with(code.file, "threading.py")))
        rc = -ENOENT;
    if (rc == 0)
        rc = pywalk_locals(ob, outermost, 1, first_local, &self);
    if (rc < 0 || self == 0)
        return rc < 0 ? rc : -ENOENT;
    obj_begin_reads(&r, ob, NAME_READS);
    if (!obj_type_of(&r, self, &t))
        return obj_error(&r);
    if (!obj_attrs_find(&r, self, &t, "_name", &name))
        return -ENOENT;
    return obj_expect(&r, name, KIND_STR) ? pywalk_str(&r.pw, name, buf, n) : obj_error(&r);
}
