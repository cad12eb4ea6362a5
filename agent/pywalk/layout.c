/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the layout of the target's CPython: the generated table, from 3.13 on _Py_DebugOffsets checked against it. */
#include "mem.h"
#include "offsets.h"

static const struct {
    uint32_t low, high; /* PY_VERSION_HEX, inclusive */
    struct pywalk_fields fields;
} table[] = {
#include "offsets_table.inc"
};

static const struct {
    uint32_t low, high;
    struct pywalk_debug_words at;
} debug_table[] = {
#include "debug_table.inc"
};

enum { COOKIE, VERSION, FREE_THREADED, MAX_WORDS = 192 };
#define HUGE_SIZE (1u << 24) /* the largest structure that is believed */

/* Word `field` is the offset of `width` bytes inside a structure whose size is word `size`. */
static bool inside(const uint64_t *w, unsigned field, unsigned size, unsigned width,
                   uint64_t limit) {
    return w[size] <= limit && w[field] <= w[size] && w[size] - w[field] >= width;
}

static int apply(const uint64_t *w, const struct pywalk_debug_words *at, struct pywalk_fields *f) {
    const struct {
        uint16_t field, size, width, to;
        uint32_t limit;
    } rule[] = {
#define RULE(name, s_, w_, l_) {at->name, at->s_, w_, offsetof(struct pywalk_fields, name), l_}
        RULE(rt_interp_head, runtime_size, 8, HUGE_SIZE),
        RULE(rt_finalizing, runtime_size, 8, HUGE_SIZE),
        RULE(interp_id, interp_size, 8, HUGE_SIZE),
        RULE(interp_next, interp_size, 8, HUGE_SIZE),
        RULE(interp_threads, interp_size, 8, HUGE_SIZE),
        RULE(interp_gil, interp_size, 8, HUGE_SIZE),
        RULE(ts_next, ts_size, 8, 1 << 16),
        RULE(ts_interp, ts_size, 8, 1 << 16),
        RULE(ts_frame, ts_size, 8, 1 << 16),
        RULE(ts_thread_id, ts_size, 8, 1 << 16),
        RULE(ts_native_id, ts_size, 8, 1 << 16),
        RULE(ts_chunk, ts_size, 8, 1 << 16),
        RULE(ts_base_frame, ts_size, 8, 1 << 16),
        RULE(fr_back, fr_size, 8, 248),
        RULE(fr_code, fr_size, 8, 248),
        RULE(fr_instr, fr_size, 8, 248),
        RULE(fr_span, fr_size, 8, 248),
        RULE(fr_owner, fr_size, 1, 248),
        RULE(co_filename, co_size, 8, 1 << 12),
        RULE(co_name, co_size, 8, 1 << 12),
        RULE(co_qualname, co_size, 8, 1 << 12),
        RULE(co_linetable, co_size, 8, 1 << 12),
        RULE(co_firstlineno, co_size, 4, 1 << 12),
        RULE(co_bytecode, co_size, 1, 1 << 12),
        RULE(ob_type, ob_head, 8, 64),
        RULE(bytes_data, bytes_size, 1, 128),
        RULE(str_state, str_size, 4, 256),
        RULE(str_length, str_size, 8, 256),
        RULE(str_ascii_data, str_size, 8, 256),
#undef RULE
    };
    const struct pywalk_fields generated = *f;

    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++) {
        if (rule[i].field == 0)
            continue;
        if (!inside(w, rule[i].field, rule[i].size, rule[i].width, rule[i].limit))
            return -ENOTSUP;
        *(uint32_t *)((char *)f + rule[i].to) = (uint32_t)w[rule[i].field];
    }
    if (!inside(w, at->bytes_length, at->bytes_size, 8, 128))
        return -ENOTSUP;
    f->ob_size = (uint32_t)w[at->bytes_length];
    /* The GIL's fields are given from the start of the interpreter, which holds one of its own. */
    if (!inside(w, at->gil_locked, at->interp_size, 4, HUGE_SIZE) ||
        !inside(w, at->gil_holder, at->interp_size, 8, HUGE_SIZE) ||
        w[at->gil] > w[at->gil_locked] || w[at->gil] > w[at->gil_holder])
        return -ENOTSUP;
    f->gil_locked = (uint32_t)(w[at->gil_locked] - w[at->gil]);
    f->gil_holder = (uint32_t)(w[at->gil_holder] - w[at->gil]);
    if (!inside(w, at->gc_collecting, at->gc_size, 4, 1 << 16) ||
        !inside(w, at->interp_gc, at->interp_size, (unsigned)w[at->gc_size], HUGE_SIZE))
        return -ENOTSUP;
    f->interp_collecting = (uint32_t)(w[at->interp_gc] + w[at->gc_collecting]);

    /* The fields that come from the headers. */
    if (f->co_bytecode != generated.co_bytecode || f->co_linetable != generated.co_linetable ||
        f->str_ascii_data != generated.str_ascii_data || f->ts_chunk != generated.ts_chunk ||
        f->fr_span <= f->fr_owner)
        return -ENOTSUP;
    if (f->interp_threads != generated.interp_threads)
        f->interp_finalizing = 0;
    return 0;
}

/* PY_VERSION_HEX as the table at _PyRuntime says. -ENOTSUP: no such table (before 3.13), or a build without a GIL. */
static int debug_version(const struct pywalk *pw, uint32_t *version) {
    uint64_t w[FREE_THREADED + 1];
    int rc = mem_read(pw, pw->runtime, w, sizeof w);

    if (rc != 0)
        return rc;
    *version = (uint32_t)w[VERSION];
    return memcmp(&w[COOKIE], "xdebugpy", 8) == 0 && w[VERSION] <= UINT32_MAX &&
                   w[FREE_THREADED] == 0
               ? 0
               : -ENOTSUP;
}

/* Sets the fields that the table has. -ENOTSUP: it is not one that we know, or does not fit. */
static int debug_offsets(const struct pywalk *pw, struct pywalk_fields *f) {
    const typeof(*debug_table) *row = PYWALK_ROW(debug_table, pw->version);
    uint64_t w[MAX_WORDS];
    int rc;

    if (row == NULL || row->at.words > MAX_WORDS)
        return -ENOTSUP;
    rc = mem_read(pw, pw->runtime, w, row->at.words * sizeof *w);
    return rc != 0 ? rc : apply(w, &row->at, f);
}

/* ---- the layout ---- */

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
    const typeof(*table) *row;
    uint32_t version = 0;
    int rc = 0;

    memset(pw, 0, sizeof *pw);
    pw->mem = mem;
    pw->version = t->version;
    pw->runtime = t->runtime;
    pw->code_type = t->code_type;
    if (pw->version == 0 || pw->version >= PYWALK_3(13)) {
        if (pw->runtime == 0)
            return -ENOTSUP;
        rc = debug_version(pw, &version);
        if (rc == 0 && pw->version != 0 && pw->version != version)
            rc = -ENOTSUP;
        if (rc != 0)
            return rc;
        pw->version = version;
    }
    row = PYWALK_ROW(table, pw->version);
    if (row == NULL)
        return -ENOTSUP;
    o->f = row->fields;
    if (pw->version >= PYWALK_3(13))
        rc = debug_offsets(pw, &o->f);
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
