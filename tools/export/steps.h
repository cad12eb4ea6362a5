/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps.h - tells which training step was in progress at a given time.
 *
 *     struct export_steps steps = {0};
 *     int rc = export_steps_of(x, &steps, process);        // reads the steps of one process, in place of those read before
 *     int64_t step = export_step_at(&steps, sample.ts);    // -1: none (before the first, between two, in an evaluation)
 *     export_steps_free(&steps);
 */
#ifndef PROBING_TOOLS_EXPORT_STEPS_H
#define PROBING_TOOLS_EXPORT_STEPS_H

#include "export.h"

struct export_steps {
    struct export_step_time {
        int64_t from, to, number; /* from <= time < to */
    } * step;                     /* by time */
    size_t n, cap, last;
    const struct export_process *of;
};

/* Returns 0 or -errno. Reads nothing when *s has the steps of this process already. */
int export_steps_of(struct export *x, struct export_steps *s, const struct export_process *p);
int64_t export_step_at(struct export_steps *s, int64_t ts);
void export_steps_free(struct export_steps *s);

#endif
