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

/* Whether word `field` is the offset of `width` bytes inside a structure whose size is word `size`. */
static bool inside(const uint64_t *w, unsigned field, unsigned size, unsigned width,
                   uint64_t limit) {
    return w[size] <= limit && w[field] <= w[size] && w[size] - w[field] >= width;
}

static int apply(const uint64_t *w, const struct pywalk_debug_words *at, struct pywalk_fields *f) {
    const struct {
        uint16_t size;  /* the word with the structure's size, */
        uint32_t limit; /* and the largest that is believed */
        struct {
            uint16_t word, width, to;
        } field[8];
    } groups[] = {
#define F(name, width) {at->name, width, offsetof(struct pywalk_fields, name)}
        {at->runtime_size, HUGE_SIZE, {F(rt_interp_head, 8), F(rt_finalizing, 8)}},
        {at->interp_size,
         HUGE_SIZE,
         {F(interp_id, 8), F(interp_next, 8), F(interp_threads, 8), F(interp_gil, 8)}},
        {at->ts_size,
         1 << 16,
         {F(ts_next, 8), F(ts_interp, 8), F(ts_frame, 8), F(ts_thread_id, 8), F(ts_native_id, 8),
          F(ts_chunk, 8), F(ts_base_frame, 8)}},
        /* What is read at once ends before fr_span, co_linetable and str_state. */
        {at->fr_size, 248, {F(fr_span, 8)}},
        {at->fr_span, 240, {F(fr_back, 8), F(fr_code, 8), F(fr_instr, 8), F(fr_owner, 1)}},
        {at->co_size, 1 << 12, {F(co_linetable, 8), F(co_bytecode, 1)}},
        {at->co_linetable,
         1 << 12,
         {F(co_filename, 8), F(co_name, 8), F(co_qualname, 8), F(co_firstlineno, 4)}},
        {at->ob_head, 64, {F(ob_type, 8)}},
        {at->bytes_size, 128, {F(bytes_data, 1)}},
        {at->str_size, 256, {F(str_state, 4), F(str_ascii_data, 8)}},
        {at->str_state, 124, {F(str_length, 8)}},
#undef F
    };
    const struct pywalk_fields generated = *f;

    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        for (unsigned i = 0; i < 8; i++) {
            const typeof(*groups->field) *r = &groups[g].field[i];
            if (r->word == 0)
                continue;
            if (!inside(w, r->word, groups[g].size, r->width, groups[g].limit))
                return -ENOTSUP;
            *(uint32_t *)((char *)f + r->to) = (uint32_t)w[r->word];
        }
    }
    if (!inside(w, at->bytes_length, at->bytes_size, 8, 128))
        return -ENOTSUP;
    f->ob_size = (uint32_t)w[at->bytes_length];
    /* The table gives the GIL's fields from the start of the interpreter, which contains a GIL of its own. */
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

    /* Fields that come from the headers are trusted only if these agree. */
    if (f->co_bytecode != generated.co_bytecode || f->co_linetable != generated.co_linetable ||
        f->str_ascii_data != generated.str_ascii_data || f->ts_chunk != generated.ts_chunk)
        return -ENOTSUP;
    if (f->interp_threads != generated.interp_threads)
        f->interp_finalizing = 0;
    return 0;
}

/* Reads PY_VERSION_HEX from the table at _PyRuntime. -ENOTSUP: no such table (before 3.13), or a build without a GIL. */
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

/* Sets the fields that the table has. -ENOTSUP: its layout is not known, or its numbers do not fit. */
static int debug_offsets(const struct pywalk *pw, struct pywalk_fields *f) {
    const typeof(*debug_table) *row = PYWALK_ROW(debug_table, pw->version);
    uint64_t w[MAX_WORDS];

    if (row == NULL || row->at.words > MAX_WORDS)
        return -ENOTSUP;
    int rc = mem_read(pw, pw->runtime, w, row->at.words * sizeof *w);
    return rc != 0 ? rc : apply(w, &row->at, f);
}

/* ---- the layout ---- */

/* Checks that the memory that the layout leads to holds Python's structures: an interpreter's first thread state must point back to it. */
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
