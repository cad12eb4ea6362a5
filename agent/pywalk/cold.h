/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cold.h - where a compiler put the rest of a function.
 *
 *     rc = pywalk_cold_part(&im, start, end, &cold_start, &cold_end);
 *
 * GCC moves a function's unlikely code (.cold) elsewhere. In a stripped program nothing names it; but the
 * function jumps there, and its unwind information (.eh_frame) shows a piece that does not begin as functions
 * do: its stack frame is there from the first instruction on. An interpreter of tail calls (3.14+ of
 * some compilers) even calls its instructions from there, so that every Python stack has such return addresses.
 *
 * Reads the image's unwind table once (some 100 KB) through its callback; allocates; not for signal handlers.
 */
#ifndef PROBING_PYWALK_COLD_H
#define PROBING_PYWALK_COLD_H

#include "image.h"

/* 0; -ENOENT: it has no such part, or there is no table of the known kind; -EFAULT; -ENOMEM. */
int pywalk_cold_part(const struct pywalk_image *im, uint64_t start, uint64_t end,
                     uint64_t *cold_start, uint64_t *cold_end);

#endif
