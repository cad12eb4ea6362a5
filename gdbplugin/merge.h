/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.h - one stack out of two: the Python frames and the native frames of a thread.
 *
 * CPython runs Python frames in a native function, _PyEval_EvalFrameDefault. From 3.11 on one native
 * frame of it can run several Python frames; the outermost of them is marked PYWALK_ENTRY. So Python frames
 * form groups, each ending in an entry frame, and each group stands in the place of one native eval frame:
 *
 *     native (innermost first)          Python                    merged
 *       clock_nanosleep                                             clock_nanosleep
 *       time_sleep                                                  time_sleep
 *       _PyEval_EvalFrameDefault        inner                       inner
 *                                       middle  <- entry            middle
 *       list_sort                                                   list_sort
 *       _PyEval_EvalFrameDefault        main    <- entry            main
 *       _start                                                      _start
 *
 * Where the counts differ (a stack was cut, a frame is just being entered or left), groups are matched from
 * the outermost end when the native walk reached it, else from the innermost. No Python frame is ever dropped.
 */
#ifndef PROBING_INSPECT_MERGE_H
#define PROBING_INSPECT_MERGE_H

#include <stddef.h>

struct merge_item {
    int python; /* 1: index into the Python frames, 0: into the native frames */
    size_t index;
};

/* eval[i]: native frame i is the eval loop; entry[i]: Python frame i is an entry frame. out must hold
 * nnative + npython items. Returns how many were written. */
size_t inspect_merge(const unsigned char *eval, size_t nnative, int native_complete,
                     const unsigned char *entry, size_t npython, struct merge_item *out);

/* Whether a function of this name is the eval loop. */
int merge_is_eval(const char *symbol);

#endif
