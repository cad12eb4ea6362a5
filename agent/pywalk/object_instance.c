/* SPDX-License-Identifier: Apache-2.0 */
/* Instances of classes: data classes, enumerations, modules of torch.nn, anything with attributes. */
#include "object_render.h"

/* Is the class of classes one of enum's? (EnumMeta; from 3.11 EnumType) */
static bool is_enum(struct render *r, const struct object_type *t) {
    struct object_type meta;

    return t->heap && obj_type_read(r, t->meta, &meta) == 0 && meta.heap &&
           (obj_type_is(r, &meta, "enum", "EnumMeta") || obj_type_is(r, &meta, "enum", "EnumType"));
}

bool obj_put_enum(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t name, value;
    char text[96];

    if (!is_enum(r, t) || obj_attrs_find(r, addr, t, "_name_", &name) != 0 ||
        obj_attrs_find(r, addr, t, "_value_", &value) != 0 ||
        pywalk_str(&r->pw, name, text, sizeof text) < 0)
        return false;
    if (!obj_enter(r, addr))
        return false;
    obj_put(r, "<");
    obj_put_clean(r, t->name);
    obj_put(r, ".");
    obj_put_clean(r, text);
    obj_put(r, ": ");
    obj_render(r, value);
    obj_put(r, ">");
    obj_leave(r);
    return true;
}

void obj_put_instance(struct render *r, uint64_t addr, const struct object_type *t) {
    struct attrs_iter it;
    uint64_t value, unused;
    char name[96];
    uint32_t shown = 0;
    bool record, module;
    int rc = 1;

    if (obj_put_enum(r, addr, t) || obj_put_pandas(r, addr, t))
        return;
    record = t->heap && obj_type_attribute(r, t, "__dataclass_fields__", &unused) == 0;
    /* torch's modules keep parameters and hooks in attributes of their own: too much to show */
    module = t->heap && obj_type_is(r, t, "torch.nn.modules.module", "Module");
    if (record) {
        obj_put_type(r, t, false);
        obj_put(r, "(");
    } else {
        obj_put(r, "<");
        obj_put_type(r, t, module);
        obj_put_format(r, " at 0x%llx", (unsigned long long)addr);
    }
    obj_attrs_open(r, addr, t, &it);
    if (!obj_enter(r, addr)) {
        obj_put(r, record ? "..." : ": ...");
        rc = 0;
    } else {
        for (uint32_t i = 0; !r->full; i++) {
            rc = obj_attrs_next(r, &it, name, sizeof name, &value);
            if (rc != 1)
                break;
            if (module && name[0] == '_')
                continue;
            obj_put(r, shown > 0 ? ", " : record ? "" : ": ");
            if (shown++ == r->limit.items) {
                obj_put(r, "...");
                break;
            }
            obj_put_clean(r, name);
            obj_put(r, "=");
            obj_render(r, value);
        }
        obj_leave(r);
    }
    if (rc < 0) {
        obj_put(r, shown > 0 ? ", " : record ? "" : ": ");
        obj_put_error(r, rc, addr);
    }
    obj_put(r, record ? ")" : ">");
}
