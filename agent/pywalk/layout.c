/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the layout of the target's CPython: the generated table, or _Py_DebugOffsets checked against it. */
#include "mem.h"
#include "offsets.h"

static const struct {
    uint32_t low, high; /* PY_VERSION_HEX, inclusive */
    struct pywalk_fields fields;
} table[] = {
#include "offsets_table.inc"
};

/* _Py_DebugOffsets of 3.13: the index of each 64-bit word that is used. The table is another one in every minor version. */
enum {
    DO_COOKIE = 0,
    DO_VERSION = 1,
    DO_FREE_THREADED = 2,
    DO_RUNTIME_SIZE = 3,
    DO_INTERP_HEAD = 5,
    DO_INTERP_SIZE = 6,
    DO_INTERP_ID = 7,
    DO_INTERP_NEXT = 8,
    DO_THREADS_HEAD = 9,
    DO_CEVAL_GIL = 14,
    DO_GIL = 15,
    DO_GIL_LOCKED = 17,
    DO_GIL_HOLDER = 18,
    DO_THREAD_SIZE = 19,
    DO_THREAD_NEXT = 21,
    DO_THREAD_INTERP = 22,
    DO_THREAD_FRAME = 23,
    DO_THREAD_ID = 24,
    DO_NATIVE_ID = 25,
    DO_CHUNK = 26,
    DO_FRAME_SIZE = 28,
    DO_FRAME_PREVIOUS = 29,
    DO_FRAME_CODE = 30,
    DO_FRAME_INSTR = 31,
    DO_FRAME_LOCALS = 32,
    DO_FRAME_OWNER = 33,
    DO_CODE_SIZE = 34,
    DO_CODE_FILE = 35,
    DO_CODE_NAME = 36,
    DO_CODE_QUALNAME = 37,
    DO_CODE_LINETABLE = 38,
    DO_CODE_FIRSTLINE = 39,
    DO_CODE_BYTECODE = 43,
    DO_OBJECT_SIZE = 44,
    DO_OBJECT_TYPE = 45,
    DO_BYTES_SIZE = 64,
    DO_BYTES_LENGTH = 65,
    DO_BYTES_DATA = 66,
    DO_STR_SIZE = 67,
    DO_STR_STATE = 68,
    DO_STR_LENGTH = 69,
    DO_STR_ASCII = 70,
    DO_WORDS = 73
};

static int debug_offsets_read(const struct pywalk *pw, uint64_t *w, size_t words) {
    int rc = mem_read(pw, pw->runtime, w, words * sizeof *w);
    if (rc == 0 && memcmp(&w[DO_COOKIE], "xdebugpy", 8) != 0)
        rc = -ENOTSUP;
    return rc;
}

/* Every offset is of a field of `width` bytes inside a structure whose size is known too. */
static bool inside(const uint64_t *w, int field, int size, unsigned width, uint64_t limit) {
    return w[size] <= limit && w[field] <= w[size] && w[size] - w[field] >= width;
}

static int debug_offsets_apply(const uint64_t *w, struct pywalk_fields *f) {
    static const struct {
        uint16_t field, size, width;
        uint32_t limit; /* the largest structure that is believed */
        uint16_t to;
    } rule[] = {
#define RULE(f_, s_, w_, l_, member) {f_, s_, w_, l_, offsetof(struct pywalk_fields, member)}
        RULE(DO_INTERP_HEAD, DO_RUNTIME_SIZE, 8, 1 << 24, rt_interp_head),
        RULE(DO_INTERP_ID, DO_INTERP_SIZE, 8, 1 << 24, interp_id),
        RULE(DO_INTERP_NEXT, DO_INTERP_SIZE, 8, 1 << 24, interp_next),
        RULE(DO_THREADS_HEAD, DO_INTERP_SIZE, 8, 1 << 24, interp_threads),
        RULE(DO_CEVAL_GIL, DO_INTERP_SIZE, 8, 1 << 24, interp_gil),
        RULE(DO_THREAD_NEXT, DO_THREAD_SIZE, 8, 1 << 16, ts_next),
        RULE(DO_THREAD_INTERP, DO_THREAD_SIZE, 8, 1 << 16, ts_interp),
        RULE(DO_THREAD_FRAME, DO_THREAD_SIZE, 8, 1 << 16, ts_frame),
        RULE(DO_THREAD_ID, DO_THREAD_SIZE, 8, 1 << 16, ts_thread_id),
        RULE(DO_NATIVE_ID, DO_THREAD_SIZE, 8, 1 << 16, ts_native_id),
        RULE(DO_CHUNK, DO_THREAD_SIZE, 8, 1 << 16, ts_chunk),
        RULE(DO_FRAME_PREVIOUS, DO_FRAME_SIZE, 8, 248, fr_back),
        RULE(DO_FRAME_CODE, DO_FRAME_SIZE, 8, 248, fr_code),
        RULE(DO_FRAME_INSTR, DO_FRAME_SIZE, 8, 248, fr_instr),
        RULE(DO_FRAME_LOCALS, DO_FRAME_SIZE, 8, 248, fr_span),
        RULE(DO_FRAME_OWNER, DO_FRAME_SIZE, 1, 248, fr_owner),
        RULE(DO_CODE_FILE, DO_CODE_SIZE, 8, 1 << 12, co_filename),
        RULE(DO_CODE_NAME, DO_CODE_SIZE, 8, 1 << 12, co_name),
        RULE(DO_CODE_QUALNAME, DO_CODE_SIZE, 8, 1 << 12, co_qualname),
        RULE(DO_CODE_LINETABLE, DO_CODE_SIZE, 8, 1 << 12, co_linetable),
        RULE(DO_CODE_FIRSTLINE, DO_CODE_SIZE, 4, 1 << 12, co_firstlineno),
        RULE(DO_CODE_BYTECODE, DO_CODE_SIZE, 1, 1 << 12, co_bytecode),
        RULE(DO_OBJECT_TYPE, DO_OBJECT_SIZE, 8, 64, ob_type),
        RULE(DO_BYTES_LENGTH, DO_BYTES_SIZE, 8, 128, ob_size),
        RULE(DO_BYTES_DATA, DO_BYTES_SIZE, 1, 128, bytes_data),
        RULE(DO_STR_STATE, DO_STR_SIZE, 4, 256, str_state),
        RULE(DO_STR_LENGTH, DO_STR_SIZE, 8, 256, str_length),
        RULE(DO_STR_ASCII, DO_STR_SIZE, 8, 256, str_ascii_data),
#undef RULE
    };
    const struct pywalk_fields generated = *f;

    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++) {
        if (!inside(w, rule[i].field, rule[i].size, rule[i].width, rule[i].limit))
            return -ENOTSUP;
        *(uint32_t *)((char *)f + rule[i].to) = (uint32_t)w[rule[i].field];
    }
    /* The GIL's fields are given from the start of the interpreter, which holds one of its own. */
    if (!inside(w, DO_GIL_LOCKED, DO_INTERP_SIZE, 4, 1 << 24) ||
        !inside(w, DO_GIL_HOLDER, DO_INTERP_SIZE, 8, 1 << 24) || w[DO_GIL] > w[DO_GIL_LOCKED] ||
        w[DO_GIL] > w[DO_GIL_HOLDER])
        return -ENOTSUP;
    f->gil_locked = (uint32_t)(w[DO_GIL_LOCKED] - w[DO_GIL]);
    f->gil_holder = (uint32_t)(w[DO_GIL_HOLDER] - w[DO_GIL]);

    /* The debug offsets lack a few fields that come from the headers: then their neighbours must agree. */
    if (f->co_bytecode != generated.co_bytecode || f->co_linetable != generated.co_linetable ||
        f->str_ascii_data != generated.str_ascii_data || f->fr_span <= f->fr_owner)
        return -ENOTSUP;
    return 0;
}

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
    uint64_t words[DO_WORDS];
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
        rc = debug_offsets_read(pw, words, DO_WORDS);
        if (rc != 0)
            return rc;
        if (words[DO_VERSION] > UINT32_MAX || words[DO_FREE_THREADED] != 0 ||
            (pw->version != 0 && pw->version != words[DO_VERSION]))
            return -ENOTSUP;
        pw->version = (uint32_t)words[DO_VERSION];
    }
    while (i < sizeof table / sizeof *table &&
           (pw->version < table[i].low || pw->version > table[i].high))
        i++;
    if (i == sizeof table / sizeof *table)
        return -ENOTSUP;
    o->f = table[i].fields;
    if (pw->version >= PYWALK_3(13))
        rc = debug_offsets_apply(words, &o->f);
    if (rc != 0)
        return rc;
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
