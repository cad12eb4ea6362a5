/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.h - adds symbols to traces: the addresses that their stacks contain are looked up in the ELF files of this machine and the names
 * written into the traces, so that the traces can be read anywhere (traces/FORMAT.md, 5.6).
 *
 *     struct complete c;
 *     complete_init(&c, debuginfod, tick, ctx);
 *     rc = complete_trace(&c, "trace.zst");          // once for each trace; ELF files are opened only once
 *     complete_free(&c);
 *
 * A trace that its process is still writing is left alone (-EBUSY), and so is one that is not ours (-EPERM). Names that the trace has
 * already are not looked up again. If anything goes wrong (a full disk), the trace is as it was before; after a SIGKILL it may end in the
 * beginning of what was being added, which the next one removes. One thread at a time. Where ELF files cannot be read, nothing is written
 * for them.
 */
#ifndef PROBING_TOOLS_COMPLETE_H
#define PROBING_TOOLS_COMPLETE_H

#include <stdint.h>

#include "../converter/keys.h"
#include "../converter/symbols.h"
#include "block_out.h"

struct reader;
struct symbols;

struct complete {
    struct symbols *symbols;
    /* Called now and then; a nonzero result stops the work (-EINTR). May be NULL. */
    int (*tick)(void *ctx);
    void *ctx;
    /* complete_records() looks nothing up, and uses only the names that the trace has */
    int recorded_only;
    int error;          /* the first error that complete_ended() met */
    uint64_t addresses; /* number of addresses named so far */
    unsigned traces;    /* number of traces that got some */
};

/* Returns 0 or -ENOMEM. */
int complete_init(struct complete *c, int debuginfod, int (*tick)(void *ctx), void *ctx);
void complete_free(struct complete *c);
/* Appends the missing symbols to the trace. Returns 0 (also when nothing was missing); -EBUSY; -EINTR; -ENOTSUP: the trace has no end or a
 * torn one, or the file holds several joined traces; or another -errno. */
int complete_trace(struct complete *c, const char *path);
/* Appends one fact record, under the same conditions. */
int complete_fact(const char *path, const char *kind, const char *key, const char *value);
/* Do the same for traces whose process has ended, in the way of a command: show progress on a terminal when it takes over a second; SIGINT,
 * SIGTERM and SIGHUP end it. Call complete_begin() first; complete_end() says in one line what stopped it. */
void complete_begin(struct complete *c);
void complete_ended(struct complete *c, const char *path);
void complete_end(struct complete *c);
/*
 * Puts only the symbol records for the reader's trace into b, including those that the trace has already. The epoch of b must not be one of
 * the trace's. done: the addresses that are already in b, a table shared by all traces that b is made from (keys_init()). Returns 0, -EINTR
 * or -errno.
 */
int complete_records(struct complete *c, struct reader *r, struct block_out *b, struct keys *done);

#endif
