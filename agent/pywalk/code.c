/* SPDX-License-Identifier: Apache-2.0 */
/* Code objects: who they are and what they are called. */
#include "mem.h"
#include "offsets.h"

#include <limits.h>

static inline uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

int pywalk_code_identity(const struct pywalk *pw, uint64_t code, uint64_t *hash) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint8_t bytes[256];
    const uint8_t *p = bytes;
    uint64_t h;

    if (!pywalk_plausible(code) || f->co_linetable + 8 > sizeof bytes ||
        f->co_name + 8 > sizeof bytes)
        return -EBADMSG;
    if (pw->mem.read == pywalk_read_direct) {
        p = (const uint8_t *)(uintptr_t)code;
    } else {
        /* in all versions the line table follows the names */
        int rc = mem_read(pw, code, bytes, f->co_linetable + 8);
        if (rc != 0)
            return rc;
    }
    h = mix(code, load64(p + f->co_name));
    h = mix(h, load64(p + f->co_filename));
    h = mix(h, load32(p + f->co_firstlineno));
    *hash = mix(h, load64(p + f->co_linetable));
    return 0;
}

/* A bytes object's data and length. */
static int bytes_at(const struct pywalk *pw, uint64_t obj, uint64_t *data, uint32_t *len) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint64_t size = 0;
    int rc = pywalk_plausible(obj) ? mem_u64(pw, obj + f->ob_size, &size) : -EBADMSG;

    if (rc == 0 && size > INT_MAX)
        rc = -EBADMSG;
    *data = obj + f->bytes_data;
    *len = (uint32_t)size;
    return rc;
}

int pywalk_code(const struct pywalk *pw, uint64_t code, struct pywalk_code *out) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint8_t bytes[256];
    uint32_t unused;
    const int keep = pw->keep != 0;
    int rc;

    memset(out, 0, sizeof *out);
    if (!pywalk_plausible(code) || f->co_linetable + 8 > sizeof bytes)
        return -EBADMSG;
    rc = mem_read(pw, code, bytes, f->co_linetable + 8);
    if (rc != 0)
        return rc;
    if (pw->code_type != 0 && load64(bytes + f->ob_type) != pw->code_type)
        return -EBADMSG;
    out->firstline = (int32_t)load32(bytes + f->co_firstlineno);
    rc = pywalk_str(pw, load64(bytes + (f->co_qualname != 0 ? f->co_qualname : f->co_name)),
                    out->name, sizeof out->name);
    if (rc >= 0 || keep)
        rc = pywalk_str(pw, load64(bytes + f->co_filename), out->file, sizeof out->file);
    if (rc >= 0 || keep)
        rc = bytes_at(pw, load64(bytes + f->co_linetable), &out->linetable, &out->linetable_len);
    if (rc < 0 && keep) /* then no line is known */
        rc = out->firstline = 0;
    if (rc >= 0) {
        out->bytecode = code + f->co_bytecode;
        if (f->co_bytecode == 0)
            rc = bytes_at(pw, load64(bytes + f->co_code), &out->bytecode, &unused);
    }
    return rc < 0 && !keep ? rc : 0;
}
