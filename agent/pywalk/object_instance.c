/* SPDX-License-Identifier: Apache-2.0 */
/* Instances of classes: data classes, enumerations, modules of torch.nn, anything with attributes. */
#include "object_render.h"

/* Is the class of classes one of enum's? (EnumMeta; from 3.11 EnumType) */
static bool is_enum(struct render *r, const struct object_type *t) {
    struct object_type meta;

    return t->heap && type_read(r, t->meta, &meta) == 0 && meta.heap &&
           (type_is(r, &meta, "enum", "EnumMeta") || type_is(r, &meta, "enum", "EnumType"));
}

bool put_enum(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t name, value;
    char text[96];

    if (!is_enum(r, t) || attrs_find(r, addr, t, "_name_", &name) != 0 ||
        attrs_find(r, addr, t, "_value_", &value) != 0 ||
        pywalk_str(&r->pw, name, text, sizeof text) < 0)
        return false;
    if (!render_enter(r, addr))
        return false;
    put(r, "<");
    put_clean(r, t->name);
    put(r, ".");
    put_clean(r, text);
    put(r, ": ");
    render_object(r, value);
    put(r, ">");
    render_leave(r);
    return true;
}

void put_instance(struct render *r, uint64_t addr, const struct object_type *t) {
    struct attrs_iter it;
    uint64_t value, unused;
    char name[96];
    uint32_t shown = 0;
    bool record, module;
    int rc = 1;

    if (put_enum(r, addr, t))
        return;
    record = t->heap && type_attribute(r, t, "__dataclass_fields__", &unused) == 0;
    /* torch's modules keep parameters and hooks in attributes of their own: too much to show */
    module = t->heap && type_is(r, t, "torch.nn.modules.module", "Module");
    if (record) {
        put_type(r, t, false);
        put(r, "(");
    } else {
        put(r, "<");
        put_type(r, t, module);
        put_format(r, " at 0x%llx", (unsigned long long)addr);
    }
    attrs_open(r, addr, t, &it);
    if (!render_enter(r, addr)) {
        put(r, record ? "..." : ": ...");
        rc = 0;
    } else {
        for (uint32_t i = 0; !r->full; i++) {
            rc = attrs_next(r, &it, name, sizeof name, &value);
            if (rc != 1)
                break;
            if (module && name[0] == '_')
                continue;
            put(r, shown > 0 ? ", " : record ? "" : ": ");
            if (shown++ == r->limit.items) {
                put(r, "...");
                break;
            }
            put_clean(r, name);
            put(r, "=");
            render_object(r, value);
        }
        render_leave(r);
    }
    if (rc < 0) {
        put(r, shown > 0 ? ", " : record ? "" : ": ");
        put_error(r, rc, addr);
    }
    put(r, record ? ")" : ">");
}
