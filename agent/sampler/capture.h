/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h - one stack on its way from a thread into the trace.
 *
 * Whoever reads a stack fills frames[] and pcs[] and then calls capture_store(): it hashes the stack and, when the trace does not have
 * it yet, writes the definitions of its new frames and of the stack into the ring. So the sample itself needs the stack's key only,
 * and a process killed at any instruction leaves no sample whose stack cannot be resolved.
 *
 * Async-signal-safe; a capture belongs to one reader at a time. Large: never on a thread's stack.
 */
#ifndef PROBING_AGENT_CAPTURE_H
#define PROBING_AGENT_CAPTURE_H

#include "agent/base/known.h"
#include "agent/pywalk/object.h"
#include "writer/writer.h"

#define CAPTURE_FRAMES 1024u
#define CAPTURE_PCS    512u

#define CAPTURE_STATES 5u /* interpreters that a thread is in, one called by the other, and a 0 */

struct capture {
    uint32_t nframes, npcs; /* npcs counts the leaf program counter, pcs[0] */
    int frames_cut, pcs_cut;
    struct pywalk_frame frames[CAPTURE_FRAMES];
    uint64_t pcs[CAPTURE_PCS];
    /* Work space of both functions below: a handler may be on an alternate stack of 8 KB. */
    uint64_t keys[2 * CAPTURE_FRAMES];
    struct pywalk_code code;
};

#define CAPTURE_OWNERS 256u
#define CAPTURE_KNOWN  (1u << 14)
#define CAPTURE_NAMED  (1u << 12)

/* What all captures share: all zeros but `live` at first. */
struct capture_dict {
    struct live *live;
    uint64_t frames[CAPTURE_KNOWN], stacks[CAPTURE_KNOWN]; /* known.h */
    /* Functions whose qualified names are to be found (before 3.11): any capture puts one in, capture_names() takes it out. When
     * all places are taken it is left out, and comes again with the function's next new line. */
    uint64_t named[CAPTURE_NAMED];
    struct pywalk_objects objects; /* f NULL: no names */
    struct {
        uint64_t code, owner;
    } owners[CAPTURE_OWNERS];
    uint32_t owners_in, owners_out;
};

/* Asked before each definition is written: whether what was read still holds. 1 yes, 0 no. NULL: it does. */
struct capture_check {
    int (*holds)(void *ctx);
    void *ctx;
};

/* A thread's Python frames: those of its states, innermost first (0: no more), but for inner ones that it is not in (any more; its stack is
 * from `sp` to `ident`) or that cannot be read. An outer one that cannot is cut off. `pw` may read directly where there is one. 0 or -errno. */
int capture_python(struct capture *c, const struct pywalk *pw,
                   const uint64_t states[CAPTURE_STATES], uint64_t sp, uint64_t ident);

/*
 * Makes sure that the stack in `c` is defined and returns its key in *key. `pw` reads the code objects (their
 * owner must not free them meanwhile: the thread itself reads, or `check` says). 0; -EAGAIN the check
 * failed; -ENOBUFS the ring had no space (counted there); other -errno: an object could not be read.
 */
int capture_store(struct capture *c, struct capture_dict *d, const struct pywalk *pw,
                  struct ring *ring, const struct capture_check *check, uint64_t *key);

/* Writes the qualified names of a few functions that captures met (code_name). Not for signal handlers. */
void capture_names(struct capture_dict *d, struct ring *ring);

#endif
