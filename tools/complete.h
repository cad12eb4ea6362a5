/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.h - symbols for traces: what lies at the addresses that their stacks name, looked up in the ELF files of
 * this machine and written into the traces, so that they can be read anywhere (traces/FORMAT.md, 5.6).
 *
 *     struct complete c;
 *     complete_init(&c, debuginfod, tick, ctx);
 *     rc = complete_trace(&c, "trace.zst");          // for each; the ELF files are opened once
 *     complete_free(&c);
 *
 * A trace whose process still writes it is left alone (-EBUSY), and one that is none of ours (-EPERM). What is there already
 * is not looked up again. Whatever goes wrong (a full disk), the trace is as it was. One thread at a time; where ELF files
 * cannot be read nothing is written for them.
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
    /* Called now and then; not 0: stop (-EINTR). May be NULL. */
    int (*tick)(void *ctx);
    void *ctx;
    int recorded_only;  /* complete_records() looks nothing up */
    int error;          /* the first that complete_ended() met */
    uint64_t addresses; /* named so far */
    unsigned traces;    /* that got some */
};

/* 0 or -ENOMEM */
int complete_init(struct complete *c, int debuginfod, int (*tick)(void *ctx), void *ctx);
void complete_free(struct complete *c);
/* Appends to the trace. 0 (also when nothing was missing), -EBUSY, -EINTR; -ENOTSUP: it has no end or a torn one, or
 * is several traces joined; or -errno. */
int complete_trace(struct complete *c, const char *path);
/* Appends one fact record, in the same way. */
int complete_fact(const char *path, const char *kind, const char *key, const char *value);
/* The same for traces whose process has ended, as a command does it: progress on a terminal when it takes over a second; SIGINT, SIGTERM
 * and SIGHUP end it. `begin` first; `end` says, in one line, what stopped it. */
void complete_begin(struct complete *c);
void complete_ended(struct complete *c, const char *path);
void complete_end(struct complete *c);
/*
 * The records alone, of the reader's trace, into b, whose epoch must be none of the trace's; also those that the trace has
 * already. done: addresses that are in b, a table for all traces that b is made of (keys_init). 0, -EINTR or -errno.
 */
int complete_records(struct complete *c, struct reader *r, struct block_out *b, struct keys *done);

#endif
