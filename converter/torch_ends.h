/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_ends.h - what a trace has, at its beginning and at its end, of steps and calls that another file of the same process has the rest of
 * (rotation). 90_after_load.sql (part segments) joins them, whichever of the files comes first.
 *
 *     torch_ends_start(&e, &steps, from);               // once the steps are ready; from: the first block that is read, 0: all are
 *     torch_ends_begun(&e, &steps, step, id);           // for each call of a step, when its row begins
 *     err = torch_ends_call(&e, tid, &v, end, begun);   // a call that began in an earlier file (begun), or is open at the end (e.at_end)
 *     rc = torch_ends_write(l, &state, &e);             // into torch_edge and torch_open
 *     torch_ends_free(&e);
 */
#ifndef PROBING_CONVERTER_TORCH_ENDS_H
#define PROBING_CONVERTER_TORCH_ENDS_H

#include "load_state.h"
#include "torch_state.h"

struct torch_ends {
    int at_end; /* 1: all records are read, and the recording goes on in another file */
    int all;    /* 1: the trace is read from its beginning */
    size_t front;
    int64_t front_last; /* id of the last call of the first interval, 0: none */
    int64_t last_first; /* id of the first call of the last interval, 0: none */
    struct torch_ends_open {
        struct torch_interval v;
        uint64_t tid, end; /* end 0: not known */
        int begun, open;
    } * open;
    size_t n, cap;
};

void torch_ends_start(struct torch_ends *e, const struct torch_steps *s, size_t from);
void torch_ends_begun(struct torch_ends *e, const struct torch_steps *all,
                      const struct torch_step *s, int64_t id);
/* Returns 0 or -ENOMEM. */
int torch_ends_call(struct torch_ends *e, uint64_t tid, const struct torch_interval *v,
                    uint64_t end, int begun);
/* Returns an SQLite result code. */
int torch_ends_write(struct load *l, const struct torch_state *t, const struct torch_ends *e);
void torch_ends_free(struct torch_ends *e);

#endif
