/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_decode.h - decodes the events of a torch_calls record, one after the other.
 *
 *     struct torch_decode d;
 *     struct torch_item e;
 *     torch_decode_start(&d, ts, bytes, n);
 *     while (torch_decode_next(&d, &e) > 0) ... e.kind, e.ts ...
 *
 * Nothing in the bytes is trusted: an invalid event ends the record. Pure.
 */
#ifndef PROBING_CONVERTER_TORCH_DECODE_H
#define PROBING_CONVERTER_TORCH_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "../traces/torch_events.h"

struct torch_decode {
    const uint8_t *p, *end;
    uint64_t ts;
};

struct torch_item {
    unsigned kind; /* enum torch_event */
    uint64_t ts;   /* ns; for OPEN: when the call began */
    uint64_t arg;  /* id of a name, span, flags or source */
    uint64_t a, b; /* BACK: distance; BACK_AT: tid, call; STEP: number, ns since; OPEN: call, tid */
    uint64_t c;    /* OPEN: the kind of event that it began with */
};

void torch_decode_start(struct torch_decode *d, uint64_t ts, const uint8_t *p, size_t n);
/* Returns 1; 0 at the end; -EBADMSG. */
int torch_decode_next(struct torch_decode *d, struct torch_item *e);
/*
 * For a reader of steps alone: passes over events in which intervals begin or end, up to the next STEP, and leaves d->ts at the time of the last
 * of them. Their times ascend from the previous event's. It may stop earlier, and before an event that is invalid.
 */
void torch_decode_pass(struct torch_decode *d);

#endif
