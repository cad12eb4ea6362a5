/* SPDX-License-Identifier: Apache-2.0 */
/*
 * debug_offsets.h - _Py_DebugOffsets: the table of offsets at the beginning of _PyRuntime, from 3.13 on. Private to
 * agent/pywalk.
 *
 *     rc = pywalk_debug_version(pw, &version);              // 0, or why not
 *     rc = pywalk_debug_offsets(pw, version, &fields);      // fields: those generated for the version
 *
 * It is what this very build says of itself, so it goes before the generated numbers; but it lies in the
 * target's memory, so every number is checked against the size of its structure, and fields that it does not
 * have are believed only when their generated neighbours agree with it.
 */
#ifndef PROBING_PYWALK_DEBUG_OFFSETS_H
#define PROBING_PYWALK_DEBUG_OFFSETS_H

#include "offsets.h"

/* The index of each 64-bit word that is used: debug_table.inc, written by gen_offsets.py --debug. Word 0 is the cookie: 0
 * here means that this version does not have it. */
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

/* PY_VERSION_HEX as the table says. -ENOTSUP: no such table (before 3.13), or a build without a GIL. */
int pywalk_debug_version(const struct pywalk *pw, uint32_t *version);
/* Sets the fields that the table has. -ENOTSUP: it is not one that we know, or does not fit. */
int pywalk_debug_offsets(const struct pywalk *pw, uint32_t version, struct pywalk_fields *f);

#endif
