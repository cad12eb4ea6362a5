/* SPDX-License-Identifier: Apache-2.0 */
/* threading.Thread.name: every thread that threading starts has Thread._bootstrap(self) as its outermost frame, on all versions. */
#include "object_render.h"

#define READS 2000

static int first_local(void *ctx, const struct pywalk_local *local) {
    *(uint64_t *)ctx = local->object;
    return 1;
}

int pywalk_thread_name(const struct pywalk_objects *ob, const struct pywalk_frame *outermost,
                       char *buf, size_t n) {
    struct pywalk_limits limits = {.reads = READS};
    struct pywalk_code code;
    struct object_type t;
    struct render r;
    uint64_t self = 0, name;
    char unused[16];
    int rc = pywalk_code(ob->pw, outermost->code, &code);

    if (rc == 0 &&
        (!obj_ends_with(code.name, "_bootstrap") || !obj_ends_with(code.file, "threading.py")))
        rc = -ENOENT;
    if (rc == 0)
        rc = pywalk_locals(ob, outermost, 1, first_local, &self);
    if (rc < 0 || self == 0)
        return rc < 0 ? rc : -ENOENT;
    obj_begin(&r, ob, &limits, unused, sizeof unused);
    rc = obj_type_of(&r, self, &t);
    if (rc == 0)
        rc = obj_attrs_find(&r, self, &t, "_name", &name);
    if (rc == 0)
        rc = obj_type_of(&r, name, &t);
    if (rc == 0 && t.kind != KIND_STR)
        rc = -EBADMSG;
    return rc == 0 ? pywalk_str(&r.pw, name, buf, n) : rc;
}
