/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locals.h - the arguments and local variables of Python frames, as text (agent/pywalk/object.h makes it, from memory
 * alone).
 *
 *     struct locals *l = locals_open(&py->pw, &left);   // for the frames of one thread, read at one moment
 *     rc = locals_read(l, &frame, &out);                // out: a struct stack_frame; frames_free() frees it
 *     locals_close(l);
 *
 * Bounds: 100 variables a frame, 4 KB of text each, and *left values in all.
 */
#ifndef PROBING_INSPECT_LOCALS_H
#define PROBING_INSPECT_LOCALS_H

#include "agent/pywalk/pywalk.h"
#include "stacks.h"

#define LOCALS_MOST 20000 /* values in one backtrace: the process may be standing still meanwhile */

struct locals;
/* NULL: no memory, or the objects of this version are not known; the other functions take it. Pages of the target's
 * memory are kept until locals_close(). *left is counted down. */
struct locals *locals_open(const struct pywalk *pw, size_t *left);
/* Sets out->locals, nlocals and has_locals. 0; -ENOTSUP; -EBADMSG, -EFAULT: the frame's names cannot be read; -ENOMEM;
 * -EDQUOT: none left. */
int locals_read(struct locals *l, const struct pywalk_frame *frame, struct stack_frame *out);
void locals_close(struct locals *l);

#endif
