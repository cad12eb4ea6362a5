/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_events.h - the bytes of torch_calls.events, as the agent writes and the converter reads them (FORMAT.md, 5.3).
 *
 * Each event is varint (kind | arg << 4), varint dt, and what its kind adds (below). dt is the time in ns since the previous event
 * (for the first one, since the record's ts); for OPEN it is the age: ns from the interval's beginning to the record's ts.
 */
#ifndef PROBING_TRACES_TORCH_EVENTS_H
#define PROBING_TRACES_TORCH_EVENTS_H

enum torch_event {
    TORCH_ENTER = 0, /* arg: name id. A forward call begins; it gets the thread's next number */
    TORCH_EXIT = 1,  /* arg: flags, TORCH_FAILED. The innermost open interval ends */
    TORCH_AGAIN =
        2, /* like ENTER: a forward call within a backward pass (recomputed by checkpointing) */
    TORCH_BACK =
        3, /* arg: name id; varint: the thread's next number minus the forward call's. Its backward begins */
    TORCH_BACK_AT =
        4,          /* arg: name id; varint tid, varint number: a forward call of another thread */
    TORCH_SPAN = 5, /* arg: enum torch_span. Such an interval begins */
    TORCH_STEP =
        6, /* arg: enum torch_source; varint number of the step that ended, varint ns since it ended */
    TORCH_OPEN =
        7, /* arg: kind of the event that began it; varint name id or span, varint call, varint tid (0: own). An interval that began
                         * in an earlier record and goes on; outermost first, before all other events */
};

enum torch_span {
    TORCH_SPAN_BACKWARD = 0,  /* a whole backward pass */
    TORCH_SPAN_OPTIMIZER = 1, /* the outermost Optimizer.step */
    TORCH_SPAN_DATA = 2,      /* waiting for the DataLoader's next batch */
};

enum torch_source {
    TORCH_BY_OPTIMIZER = 0,
    TORCH_BY_ROOT = 1,
    TORCH_BY_MARK = 2,
    TORCH_EVALUATION =
        3, /* no step has ended: the time since the last end was evaluation; number: of the next step */
    TORCH_BY_PASS =
        4, /* as BY_ROOT, before any backward pass, for what may be part of the first step: a call with gradients, or one alone without */
    TORCH_GOES_ON =
        5, /* the EVALUATION that ended last extends to here: it is made of the parts of a call that is not seen (m.__call__) */
    TORCH_PART =
        6 /* no step has ended: evaluation begins amid an accumulation, and the time since the last end is a part of the next step */
};

enum { TORCH_FAILED = 1 /* the call was left by an exception */ };

#endif
