/* SPDX-License-Identifier: Apache-2.0 */
/* Functions, methods, modules, classes, generators, code, cells: told by their names. */
#include "object_render.h"

/* The str that the pointer at `at` leads to. */
static void put_name_at(struct render *r, uint64_t at) {
    char name[160];
    uint64_t str;
    int rc = get_pointer(r, at, &str);

    if (rc == 0)
        rc = pywalk_str(&r->pw, str, name, sizeof name);
    put_clean(r, rc < 0 ? "?" : name);
}

static void put_builtin(struct render *r, uint64_t addr) {
    const struct object_fields *f = r->f;
    struct object_type t;
    uint64_t def = 0, text = 0, self = 0;
    char name[64] = "?";
    int rc = get_pointer(r, addr + (uint64_t)f->builtin_def, &def);

    if (rc == 0)
        rc = get_u64(r, def, &text); /* PyMethodDef.ml_name comes first */
    for (size_t i = 0; rc == 0 && i < sizeof name - 1; i++) {
        rc = get(r, text + i, name + i, 1);
        name[i + 1] = '\0';
        if (name[i] == '\0')
            break;
    }
    if (rc == 0)
        rc = get_pointer(r, addr + (uint64_t)f->builtin_self, &self);
    put(r, "<built-in ");
    if (rc == 0 && self != 0 && type_of(r, self, &t) == 0 && t.kind != KIND_MODULE)
        put(r, "method ");
    else
        put(r, "function ");
    put_clean(r, rc == 0 ? name : "?");
    put(r, ">");
}

/* "<bound method NAME of TYPE object at 0x...>" */
static void put_method(struct render *r, uint64_t addr) {
    const struct object_fields *f = r->f;
    struct object_type t;
    uint64_t function = 0, self = 0;
    int rc = get_pointer(r, addr + (uint64_t)f->method_function, &function);

    if (rc == 0)
        rc = get_pointer(r, addr + (uint64_t)f->method_self, &self);
    put(r, "<bound method ");
    if (rc == 0 && type_of(r, function, &t) == 0 && t.kind == KIND_FUNCTION)
        put_name_at(r, function + (uint64_t)f->function_qualname);
    else
        put(r, "?");
    if (rc == 0 && type_of(r, self, &t) == 0) {
        put(r, " of ");
        put_type(r, &t, true);
        put_format(r, " object at 0x%llx", (unsigned long long)self);
    }
    put(r, ">");
}

static void put_module(struct render *r, uint64_t addr) {
    uint64_t dict, name;
    char text[160];
    int rc = get_pointer(r, addr + (uint64_t)r->f->module_dict, &dict);

    if (rc == 0)
        rc = dict_find(r, dict, "__name__", &name);
    if (rc == 0)
        rc = pywalk_str(&r->pw, name, text, sizeof text);
    put(r, "<module '");
    put_clean(r, rc >= 0 ? text : "?");
    put(r, "'>");
}

void put_named(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct object_fields *f = r->f;
    struct object_type its;
    uint64_t value;
    int rc;

    switch (t->kind) {
    case KIND_FUNCTION:
        put(r, "<function ");
        put_name_at(r, addr + (uint64_t)f->function_qualname);
        put_format(r, " at 0x%llx>", (unsigned long long)addr);
        break;
    case KIND_BUILTIN:
        put_builtin(r, addr);
        break;
    case KIND_METHOD:
        put_method(r, addr);
        break;
    case KIND_MODULE:
        put_module(r, addr);
        break;
    case KIND_GENERATOR:
        put(r, "<");
        put_clean(r, t->native);
        put(r, " object ");
        put_name_at(r, addr + (uint64_t)f->generator_qualname);
        put_format(r, " at 0x%llx>", (unsigned long long)addr);
        break;
    case KIND_CODE:
        put(r, "<code object ");
        put_name_at(r, addr + (uint64_t)f->co_name);
        put_format(r, " at 0x%llx>", (unsigned long long)addr);
        break;
    case KIND_TYPE:
        rc = type_read(r, addr, &its);
        if (rc != 0) {
            put_error(r, rc, addr);
            break;
        }
        put(r, "<class '");
        put_type(r, &its, true);
        put(r, "'>");
        break;
    default: /* KIND_CELL */
        rc = get_pointer(r, addr + (uint64_t)f->cell_value, &value);
        if (rc != 0) {
            put_error(r, rc, addr);
        } else if (value == 0) {
            put(r, "<cell: empty>");
        } else if (!render_enter(r, addr)) {
            put(r, "<cell: ...>");
        } else {
            put(r, "<cell: ");
            render_object(r, value);
            put(r, ">");
            render_leave(r);
        }
    }
}
