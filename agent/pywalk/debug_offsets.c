/* SPDX-License-Identifier: Apache-2.0 */
/* _Py_DebugOffsets, read as untrusted input. */
#include "debug_offsets.h"

#include "mem.h"

static const struct {
    uint32_t low, high; /* PY_VERSION_HEX, inclusive */
    struct pywalk_debug_words at;
} table[] = {
#include "debug_table.inc"
};

enum { COOKIE = 0, VERSION = 1, FREE_THREADED = 2, HEAD_WORDS = 3, MAX_WORDS = 192 };
#define HUGE_SIZE (1u << 24) /* the largest structure that is believed */

int pywalk_debug_version(const struct pywalk *pw, uint32_t *version) {
    uint64_t w[HEAD_WORDS];
    int rc = mem_read(pw, pw->runtime, w, sizeof w);

    *version = 0;
    if (rc == 0 && memcmp(&w[COOKIE], "xdebugpy", 8) != 0)
        rc = -ENOTSUP;
    if (rc == 0 && (w[VERSION] > UINT32_MAX || w[FREE_THREADED] > 1))
        rc = -ENOTSUP;
    if (rc == 0)
        *version = (uint32_t)w[VERSION];
    if (rc == 0 && w[FREE_THREADED] != 0)
        rc = -ENOTSUP;
    return rc;
}

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

int pywalk_debug_offsets(const struct pywalk *pw, uint32_t version, struct pywalk_fields *f) {
    uint64_t w[MAX_WORDS];
    size_t i = 0;
    int rc;

    while (i < sizeof table / sizeof *table && (version < table[i].low || version > table[i].high))
        i++;
    if (i == sizeof table / sizeof *table || table[i].at.words > MAX_WORDS)
        return -ENOTSUP;
    rc = mem_read(pw, pw->runtime, w, table[i].at.words * sizeof *w);
    return rc != 0 ? rc : apply(w, &table[i].at, f);
}
