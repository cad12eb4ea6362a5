/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locals.h - the arguments and local variables of a Python frame, as text (agent/pywalk/object.h makes it, from memory
 * alone).
 *
 *     rc = locals_read(&py->pw, &frame, &left, &out);   // out: a struct stack_frame; frames_free() frees it
 *
 * Bounds: 100 variables a frame, 4 KB of text each, and *left values in all.
 */
#ifndef PROBING_INSPECT_LOCALS_H
#define PROBING_INSPECT_LOCALS_H

#include "agent/pywalk/pywalk.h"
#include "stacks.h"

#define LOCALS_MOST 20000 /* values in one backtrace: the process may be standing still meanwhile */

/* Sets out->locals, nlocals and has_locals. *left: how many values may still be read; counted down. 0; -ENOTSUP: the
 * objects of this version are not known; -EBADMSG, -EFAULT: the frame's names cannot be read; -ENOMEM; -EDQUOT. */
int locals_read(const struct pywalk *pw, const struct pywalk_frame *frame, size_t *left,
                struct stack_frame *out);

#endif
