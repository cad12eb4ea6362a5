/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the layout of the target's CPython: the generated table, or _Py_DebugOffsets checked against it. */
#include "debug_offsets.h"
#include "mem.h"
#include "offsets.h"

static const struct {
    uint32_t low, high; /* PY_VERSION_HEX, inclusive */
    struct pywalk_fields fields;
} table[] = {
#include "offsets_table.inc"
};

/* Does what the layout finds look like Python's structures? An interpreter's first thread points back to it. */
static int layout_check(const struct pywalk *pw) {
    const struct pywalk_offsets *o = pywalk_offsets(pw);
    uint64_t interp = o->interp_head, tstate = 0, back = 0;
    int rc = 0;

    if (interp == 0)
        rc = mem_u64(pw, pw->runtime + o->f.rt_interp_head, &interp);
    if (rc != 0 || interp == 0) /* not initialised yet: pywalk_threads will say so */
        return rc;
    if (!pywalk_plausible(interp))
        return -EBADMSG;
    rc = mem_u64(pw, interp + o->f.interp_threads, &tstate);
    if (rc == 0 && tstate != 0) {
        rc = pywalk_plausible(tstate) ? mem_u64(pw, tstate + o->f.ts_interp, &back) : -EBADMSG;
        if (rc == 0 && back != interp)
            rc = -EBADMSG;
    }
    return rc;
}

int pywalk_init(struct pywalk *pw, struct pywalk_mem mem, const struct pywalk_target *t) {
    struct pywalk_offsets *o = (struct pywalk_offsets *)pw->private_;
    uint32_t version = 0;
    size_t i = 0;
    int rc = 0;

    memset(pw, 0, sizeof *pw);
    pw->mem = mem;
    pw->version = t->version;
    pw->runtime = t->runtime;
    pw->code_type = t->code_type;
    if (pw->version == 0 || pw->version >= PYWALK_3(13)) {
        if (pw->runtime == 0)
            return -ENOTSUP;
        rc = pywalk_debug_version(pw, &version);
        if (rc == 0 && pw->version != 0 && pw->version != version)
            rc = -ENOTSUP;
        if (rc != 0)
            return rc;
        pw->version = version;
    }
    while (i < sizeof table / sizeof *table &&
           (pw->version < table[i].low || pw->version > table[i].high))
        i++;
    if (i == sizeof table / sizeof *table)
        return -ENOTSUP;
    o->f = table[i].fields;
    if (pw->version >= PYWALK_3(13))
        rc = pywalk_debug_offsets(pw, version, &o->f);
    if (rc != 0)
        return rc;
    o->tag_bits = pw->version >= PYWALK_3(14) ? 3 : 0;
    o->first_shim = pw->version < PYWALK_3(12) ? OWNERS : OWNER_SHIM;
    o->last_shim =
        pw->version >= PYWALK_3(14) && pw->version < PYWALK_3(15) ? OWNER_C_STACK : OWNER_SHIM;
    o->lasti_scale = pw->version >= PYWALK_3(10) ? 2 : 1;
    o->pthread_tid_off = t->pthread_tid_off < 1 << 16 ? (uint32_t)t->pthread_tid_off : 0;
    if (pw->version < PYWALK_3(7)) {
        o->interp_head = t->interp_head;
        o->current = t->current;
        if (o->interp_head == 0)
            return -EAGAIN;
    } else if (pw->runtime == 0) {
        return -ENOTSUP;
    }
    return layout_check(pw);
}
