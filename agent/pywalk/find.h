/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.h - finds the CPython of an ELF image, from outside. Nothing is stopped or changed.
 *
 *     struct pywalk_found py;
 *     rc = pywalk_find_image(mem, start_of_mapping, &py);
 *     rc = pywalk_init(&pw, mem, &py.target);
 *
 * Works for static and shared libpython, PIE or not, stripped or not, in a container or with the file
 * deleted: only dynamic symbols are used, read from the image in memory. Not async-signal-safe.
 */
#ifndef PROBING_PYWALK_FIND_H
#define PROBING_PYWALK_FIND_H

#include "pywalk.h"

struct pywalk_found {
    struct pywalk_target target;
    uint64_t eval_start, eval_end; /* _PyEval_EvalFrameDefault; 0: not known */
    uint64_t cold_start, cold_end; /* its .cold part; 0: none */
    uint64_t image, image_end;     /* the image of libpython or of the program */
};

/*
 * Finds the CPython of the image whose first byte is at `start`. Returns 0; -ENOENT: it is no Python; -ENOTSUP: a Python whose version is
 * not known; -EAGAIN: 3.6, not initialised yet; -EFAULT. target.pthread_tid_off stays 0.
 */
int pywalk_find_image(struct pywalk_mem mem, uint64_t start, struct pywalk_found *out);

/* Parses the version that the n bytes at s begin with ("3.8.18", "3.9.0rc1+"). Returns PY_VERSION_HEX and sets *end to its end; 0: no version from 3.6 on. */
uint32_t pywalk_parse_version(const char *s, size_t n, const char **end);

/* Whether the target is a free-threaded build (3.13 and later), whose layouts are not known. */
int pywalk_free_threaded(struct pywalk_mem mem, const struct pywalk_target *t);

#endif
