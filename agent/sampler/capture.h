/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h - takes one stack from a thread into the trace.
 *
 * The reader of a stack fills in frames[] and pcs[] and then calls capture_store(), which hashes the stack and, if the trace does not have
 * it yet, writes the definitions of its new frames and of the stack into the ring. So the sample itself needs only the stack's key,
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

#define CAPTURE_STATES 5u /* a thread's states, one for each nested interpreter, and a 0 */

struct capture {
    uint32_t nframes, npcs; /* npcs counts the leaf program counter, pcs[0] */
    int frames_cut, pcs_cut;
    struct pywalk_frame frames[CAPTURE_FRAMES];
    uint64_t pcs[CAPTURE_PCS];
    /* Work space of capture_python() and capture_store(): a handler may run on an alternate stack of 8 KB. */
    uint64_t keys[2 * CAPTURE_FRAMES];
    struct pywalk_code code;
};

#define CAPTURE_OWNERS 256u
#define CAPTURE_KNOWN  (1u << 14)
#define CAPTURE_NAMED  (1u << 12)

/* State that all captures share. Initially all zeros except `live`. */
struct capture_dict {
    struct live *live;
    uint64_t frames[CAPTURE_KNOWN], stacks[CAPTURE_KNOWN]; /* known.h */
    /* `owners`: queue of functions whose qualified names are to be found (before 3.11). Any capture adds one, capture_names() removes it.
     * When the queue is full, the function is not added; it will be with its next new line. `named`: functions done (known.h). */
    uint64_t named[CAPTURE_NAMED];
    struct pywalk_objects objects; /* f NULL: no names */
    struct {
        uint64_t code, owner;
    } owners[CAPTURE_OWNERS];
    uint32_t owners_in, owners_out;
};

/* Called before each definition is written. `holds` returns 1 when what was read is still valid, else 0. A NULL check: it is always valid. */
struct capture_check {
    int (*holds)(void *ctx);
    void *ctx;
};

/* Reads a thread's Python frames: those of its `states`, newest first, up to a 0. Skips newer states that the thread is not in any more (its stack
 * reaches from `sp` to `ident`) or that cannot be read; for an unreadable older state, sets frames_cut. With one state, `pw` may read directly. 0 or -errno. */
int capture_python(struct capture *c, const struct pywalk *pw,
                   const uint64_t states[CAPTURE_STATES], uint64_t sp, uint64_t ident);

/*
 * Makes sure that the stack in `c` is defined, and sets *key to its key. `pw` reads the code objects (which must not be freed
 * meanwhile: either the thread itself reads them, or `check` detects it). Returns 0; -EAGAIN when the check failed; -ENOBUFS
 * when the ring had no space (it counts the loss); another -errno when an object could not be read.
 */
int capture_store(struct capture *c, struct capture_dict *d, const struct pywalk *pw,
                  struct ring *ring, const struct capture_check *check, uint64_t *key);

/* Writes the qualified names (code_name) of a few functions that captures have queued. Not for signal handlers. */
void capture_names(struct capture_dict *d, struct ring *ring);

#endif
