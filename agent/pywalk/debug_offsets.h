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

/* PY_VERSION_HEX as the table says. -ENOTSUP: no such table (before 3.13), or a build without a GIL. */
int pywalk_debug_version(const struct pywalk *pw, uint32_t *version);
/* Sets the fields that the table has. -ENOTSUP: it is not one that we know, or does not fit. */
int pywalk_debug_offsets(const struct pywalk *pw, uint32_t version, struct pywalk_fields *f);

#endif
