/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_events.h - the bytes of torch_calls.events, as the agent writes and the converter reads them (FORMAT.md, 5.3).
 *
 * Each event: varint (kind | arg << 4), varint dt, and what the kind says. dt: ns since the event before (the record's
 * ts before the first); for OPEN the age: ns from its beginning to the record's ts.
 */
#ifndef PROBING_TRACES_TORCH_EVENTS_H
#define PROBING_TRACES_TORCH_EVENTS_H

enum torch_event {
    TORCH_ENTER = 0, /* arg: name id. A forward call begins; it gets the thread's next number */
    TORCH_EXIT = 1,  /* arg: flags, TORCH_FAILED. The innermost open interval ends */
    TORCH_AGAIN =
        2, /* as ENTER: a forward call within a backward pass (recomputed by checkpointing) */
    TORCH_BACK =
        3, /* arg: name id; varint: next number of this thread - the call's. Its backward begins */
    TORCH_BACK_AT =
        4,          /* arg: name id; varint tid, varint number: a forward call of another thread */
    TORCH_SPAN = 5, /* arg: enum torch_span. It begins */
    TORCH_STEP =
        6, /* arg: enum torch_source; varint number of the step that ended, varint ns since it ended */
    TORCH_OPEN =
        7, /* arg: the kind it began with; varint name id or span, varint call, varint tid (0: own). Began in
                         * an earlier record and goes on; outermost first, before all other events */
};

enum torch_span {
    TORCH_SPAN_BACKWARD = 0,  /* a whole backward pass */
    TORCH_SPAN_OPTIMIZER = 1, /* Optimizer.step, the outermost */
    TORCH_SPAN_DATA = 2,      /* waiting for the DataLoader's next batch */
};

enum torch_source {
    TORCH_BY_OPTIMIZER = 0,
    TORCH_BY_ROOT = 1,
    TORCH_BY_MARK = 2,
    TORCH_EVALUATION =
        3, /* no step has ended: what was since the last end was evaluation; number: of the step that comes */
    TORCH_BY_PASS =
        4, /* as BY_ROOT, before any backward pass, of what may be a part of the first step: a call with gradients, or one alone without */
    TORCH_GOES_ON =
        5 /* the EVALUATION that ended last goes on to here: the parts of a call that is not seen (m.__call__) */
};

enum { TORCH_FAILED = 1 /* left by an exception */ };

#endif
