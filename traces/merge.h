/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.h - merges a thread's Python frames and its native frames into one call stack.
 *
 * CPython's eval loop is a C function. Each of its native frames runs a group of Python frames: the
 * entry frame that the loop was called for, and the frames that it entered without recursing (3.11
 * and later; before, each Python frame has a native frame of its own). So, innermost first:
 *
 *     native   memcpy  array_add  EVAL  PyObject_Call  EVAL         main
 *     Python                      f g*                 h* module    (* entry frame)
 *     merged   memcpy  array_add  f g   PyObject_Call  h module     main
 *
 * When both sides are whole, the groups and the eval frames are matched from the outermost inwards:
 * at the inner end a loop may just be starting (no Python frame yet) or an eval frame may not have been recognised.
 * When the outer part of either is cut off, they are matched from the innermost outwards. No Python
 * frame is ever dropped: groups left over stay next to their neighbours. An eval frame left over
 * stays as the native frame that it is.
 *
 * A greenlet's Python frames end at its own outermost frame; the native frames outside of it belong to the code that started it.
 * So where code that switches stacks (MERGE_SWITCH) called an eval loop, and there are enough loops inside, that is the outer end.
 *
 * The agent's own frames (MERGE_AGENT) are left out, as those of the eval loop are: the agent stands between a caller and PyTorch,
 * and waits while a trigger's stacks are taken. At the inner end, frames of the C library called by it are left out too. Pure functions.
 */
#ifndef PROBING_TRACES_MERGE_H
#define PROBING_TRACES_MERGE_H

#include <stddef.h>
#include <stdint.h>

struct merge_python {
    uint32_t frame;
    int entry; /* called by native code: the last frame of its group */
};

enum merge_owner { MERGE_PROGRAM, MERGE_AGENT, MERGE_LIBC, MERGE_SWITCH };

struct merge_native {
    uint32_t frame;
    int eval; /* a frame of the eval loop */
    enum merge_owner owner;
};

/* Tells whose code a mapped file is, by its path (NULL: not known). */
enum merge_owner merge_owner(const char *path);

/* Merges both lists, innermost first. `cut`: the outer part of either is missing. Writes at most np
 * + nn frames to out, innermost first, and returns how many. */
size_t merge_stacks(const struct merge_python *py, size_t np, const struct merge_native *nat,
                    size_t nn, int cut, uint32_t *out);

#endif
