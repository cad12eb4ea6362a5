/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offsets.h - the layout of CPython's structures in one version, as far as pywalk needs it. Private to agent/pywalk.
 *
 *     const struct pywalk_offsets *o = pywalk_offsets(pw);
 *     uint64_t next = load64(bytes + o->ts_next);
 *
 * Offsets are in bytes from the start of their structure. 0 means that this version has no such field: a field that a version
 * may lack is never at offset 0. Filled by pywalk_init (layout.c) from offsets_table.inc, and for 3.13+ from _Py_DebugOffsets.
 */
#ifndef PROBING_PYWALK_OFFSETS_H
#define PROBING_PYWALK_OFFSETS_H

#include "pywalk.h"

struct pywalk_fields {
    /* _PyRuntimeState; rt_collecting: only 3.7 and 3.8, later it belongs to the interpreter (interp_collecting) */
    uint32_t rt_interp_head, rt_current, rt_finalizing, rt_collecting;
    /* PyInterpreterState, and its GIL (3.12+: a pointer to it, and the GIL's fields) */
    uint32_t interp_collecting, interp_finalizing;
    uint32_t interp_next, interp_threads, interp_id, interp_gil, gil_holder, gil_locked;
    /* PyThreadState; the data stack's chunks; 3.10-3.12: the C frame of its eval loop (from 3.11 on, names the current frame) */
    uint32_t ts_next, ts_interp, ts_thread_id, ts_native_id, ts_frame, ts_cframe;
    uint32_t ts_root_cframe, cframe_current, cframe_previous;
    uint32_t ts_base_frame; /* 3.15+ */
    uint32_t ts_chunk, ts_datatop, chunk_previous, chunk_size, chunk_data;
    /* PyFrameObject (up to 3.10) or _PyInterpreterFrame; the first fr_span bytes of it hold all of these */
    uint32_t fr_refcnt, fr_back, fr_code, fr_lasti, fr_gen, fr_state; /* to 3.10 */
    uint32_t fr_instr, fr_owner, fr_is_entry;                         /* 3.11+ */
    uint32_t fr_span;
    /* PyObject, PyVarObject, PyCodeObject, bytes */
    uint32_t ob_type, ob_size;
    uint32_t co_name, co_filename, co_firstlineno, co_qualname, co_firsttraceable, co_bytecode;
    uint32_t co_stacksize, co_nlocalsplus;
    uint32_t co_linetable, bytes_data;
    /* str: the state's word, the masks in it, and where the data of each kind begins */
    uint32_t str_length, str_state, str_kind_mask, str_compact_mask, str_ascii_mask;
    uint32_t str_ascii_data, str_compact_data, str_any;
};

/* Lives in pywalk.private_, hence may_alias. */
struct __attribute__((may_alias)) pywalk_offsets {
    struct pywalk_fields f;
    uint32_t tag_bits;              /* tag mask of a _PyStackRef, which f_executable is (3.14+) */
    uint32_t first_shim, last_shim; /* owners of frames that are not Python frames; see below */
    uint32_t lasti_scale;           /* bytes in a unit of f_lasti (to 3.10) */
    uint32_t pthread_tid_off;       /* see struct pywalk_target */
    uint64_t interp_head;           /* 3.6 only: address of the first interpreter */
    uint64_t current;               /* 3.6 only: address of _PyThreadState_Current */
};
_Static_assert(sizeof(struct pywalk_offsets) <= sizeof(((struct pywalk *)0)->private_),
               "the offsets fit into struct pywalk");

static inline const struct pywalk_offsets *pywalk_offsets(const struct pywalk *pw) {
    return (const struct pywalk_offsets *)pw->private_;
}

/*
 * Values of _PyInterpreterFrame.owner. CPython calls OWNER_SHIM C_STACK in 3.12 and 3.13, and INTERPRETER from 3.14 on; in 3.14 C_STACK is 4, in 3.15 it is gone.
 */
enum {
    OWNER_THREAD = 0,
    OWNER_GENERATOR = 1,
    OWNER_FRAME_OBJECT = 2,
    OWNER_SHIM = 3,
    OWNER_C_STACK = 4,
    OWNERS
};

/* The row of a generated table (fields low and high: PY_VERSION_HEX, inclusive) that is for this version, or NULL. */
#define PYWALK_ROW(table, version)                                                                 \
    ({                                                                                             \
        const size_t rows_ = sizeof(table) / sizeof *(table);                                      \
        size_t i_ = 0;                                                                             \
        while (i_ < rows_ && ((version) < (table)[i_].low || (version) > (table)[i_].high))        \
            i_++;                                                                                  \
        i_ < rows_ ? &(table)[i_] : NULL;                                                          \
    })

#define PYWALK_3(minor) (0x03000000u | (uint32_t)(minor) << 16)

/*
 * Where to find each offset in _Py_DebugOffsets, the table at the beginning of _PyRuntime from 3.13 on. That table describes this very build, so it has
 * precedence over the generated numbers; but it lies in the target's memory, so every number is checked against the size of its structure, and generated
 * numbers for fields that it lacks are trusted only when their generated neighbours agree with it. Each member is the index of a 64-bit word of the table,
 * from debug_table.inc, written by gen_offsets.py --debug. Word 0 is the cookie, so an index of 0 means that this version lacks the word.
 */
struct pywalk_debug_words {
    uint16_t words;
    uint16_t runtime_size, rt_finalizing, rt_interp_head;
    uint16_t interp_size, interp_id, interp_next, interp_threads, interp_gc, interp_gil;
    uint16_t gil, gil_locked, gil_holder, gc_size, gc_collecting;
    uint16_t ts_size, ts_next, ts_interp, ts_frame, ts_thread_id, ts_native_id, ts_chunk;
    uint16_t ts_base_frame;
    uint16_t fr_size, fr_back, fr_code, fr_instr, fr_span, fr_owner;
    uint16_t co_size, co_filename, co_name, co_qualname, co_linetable, co_firstlineno, co_bytecode;
    uint16_t ob_head, ob_type, bytes_size, bytes_length, bytes_data;
    uint16_t str_size, str_state, str_length, str_ascii_data;
};

#endif
