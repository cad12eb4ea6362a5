/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps.h - which training step was in progress when.
 *
 *     struct export_steps steps = {0};
 *     int rc = export_steps_of(x, &steps, process);        // of one process, in place of the one before
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

/* 0 or -errno. Of whom it is already: nothing is read. */
int export_steps_of(struct export *x, struct export_steps *s, const struct export_process *p);
int64_t export_step_at(struct export_steps *s, int64_t ts);
void export_steps_free(struct export_steps *s);

#endif
