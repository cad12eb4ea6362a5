/* SPDX-License-Identifier: Apache-2.0 */
/* Functions, methods, modules, classes, generators, code, cells: told by their names. */
#include "object_render.h"

/* The str that the pointer at `at` leads to. */
static void put_name_at(struct render *r, uint64_t at) {
    char name[160];
    uint64_t str;
    int rc = obj_get_pointer(r, at, &str);

    if (rc == 0)
        rc = pywalk_str(&r->pw, str, name, sizeof name);
    obj_put_clean(r, rc < 0 ? "?" : name);
}

static void put_builtin(struct render *r, uint64_t addr) {
    const struct object_fields *f = r->f;
    struct object_type t;
    uint64_t def = 0, text = 0, self = 0;
    char name[64] = "?";
    int rc = obj_get_pointer(r, addr + (uint64_t)f->builtin_def, &def);

    if (rc == 0)
        rc = get_u64(r, def, &text); /* PyMethodDef.ml_name comes first */
    for (size_t i = 0; rc == 0 && i < sizeof name - 1; i++) {
        rc = get(r, text + i, name + i, 1);
        name[i + 1] = '\0';
        if (name[i] == '\0')
            break;
    }
    if (rc == 0)
        rc = obj_get_pointer(r, addr + (uint64_t)f->builtin_self, &self);
    obj_put(r, "<built-in ");
    if (rc == 0 && self != 0 && obj_type_of(r, self, &t) == 0 && t.kind != KIND_MODULE)
        obj_put(r, "method ");
    else
        obj_put(r, "function ");
    obj_put_clean(r, rc == 0 ? name : "?");
    obj_put(r, ">");
}

/* "<bound method NAME of TYPE object at 0x...>" */
static void put_method(struct render *r, uint64_t addr) {
    const struct object_fields *f = r->f;
    struct object_type t;
    uint64_t function = 0, self = 0;
    int rc = obj_get_pointer(r, addr + (uint64_t)f->method_function, &function);

    if (rc == 0)
        rc = obj_get_pointer(r, addr + (uint64_t)f->method_self, &self);
    obj_put(r, "<bound method ");
    if (rc == 0 && obj_type_of(r, function, &t) == 0 && t.kind == KIND_FUNCTION)
        put_name_at(r, function + (uint64_t)f->function_qualname);
    else
        obj_put(r, "?");
    if (rc == 0 && obj_type_of(r, self, &t) == 0) {
        obj_put(r, " of ");
        obj_put_type(r, &t, true);
        obj_put_format(r, " object at 0x%llx", (unsigned long long)self);
    }
    obj_put(r, ">");
}

static void put_module(struct render *r, uint64_t addr) {
    uint64_t dict, name;
    char text[160];
    int rc = obj_get_pointer(r, addr + (uint64_t)r->f->module_dict, &dict);

    if (rc == 0)
        rc = obj_dict_find(r, dict, "__name__", &name);
    if (rc == 0)
        rc = pywalk_str(&r->pw, name, text, sizeof text);
    obj_put(r, "<module '");
    obj_put_clean(r, rc >= 0 ? text : "?");
    obj_put(r, "'>");
}

void obj_put_named(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct object_fields *f = r->f;
    struct object_type its;
    uint64_t value;
    int rc;

    switch (t->kind) {
    case KIND_FUNCTION:
        obj_put(r, "<function ");
        put_name_at(r, addr + (uint64_t)f->function_qualname);
        obj_put_format(r, " at 0x%llx>", (unsigned long long)addr);
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
        obj_put(r, "<");
        obj_put_clean(r, t->native);
        obj_put(r, " object ");
        put_name_at(r, addr + (uint64_t)f->generator_qualname);
        obj_put_format(r, " at 0x%llx>", (unsigned long long)addr);
        break;
    case KIND_CODE:
        obj_put(r, "<code object ");
        put_name_at(r, addr + (uint64_t)f->co_name);
        obj_put_format(r, " at 0x%llx>", (unsigned long long)addr);
        break;
    case KIND_TYPE:
        rc = obj_type_read(r, addr, &its);
        if (rc != 0) {
            obj_put_error(r, rc, addr);
            break;
        }
        obj_put(r, "<class '");
        obj_put_type(r, &its, true);
        obj_put(r, "'>");
        break;
    default: /* KIND_CELL */
        rc = obj_get_pointer(r, addr + (uint64_t)f->cell_value, &value);
        if (rc != 0) {
            obj_put_error(r, rc, addr);
        } else if (value == 0) {
            obj_put(r, "<cell: empty>");
        } else if (!obj_enter(r, addr)) {
            obj_put(r, "<cell: ...>");
        } else {
            obj_put(r, "<cell: ");
            obj_render(r, value);
            obj_put(r, ">");
            obj_leave(r);
        }
    }
}
