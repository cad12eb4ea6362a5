/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collapsed.c - writes a line for each stack, "process;thread;outermost;...;innermost TICKS", which many flame graph tools read. It has all
 * samples and frames as they were recorded; `probing flamegraph --folded` leaves out idle threads and the interpreter's own frames.
 */
#include "../flame.h"
#include "samples.h"
#include "stacks.h"

static int put_stack(struct export *x, struct export_stacks *stacks, const struct export_sum *sum) {
    const struct export_thread *t = export_thread(x, sum->thread);
    const struct export_frame *const *frame;
    char name[400];
    size_t n;
    int rc = export_stack(stacks, sum->stack, &frame, &n);

    if (rc < 0 || !t)
        return rc;
    flame_put_folded(export_process_name(t->process, name, sizeof name), x->out);
    fputc(';', x->out);
    flame_put_folded(export_thread_name(t, name, sizeof name), x->out);
    if (!n)
        fputs(";" EXPORT_UNREAD, x->out);
    for (size_t i = 0; i < n; i++) {
        const char *place = export_place(frame[i]);
        fputc(';', x->out);
        flame_put_folded(frame[i]->name, x->out);
        if (*place) {
            fputs(" (", x->out);
            flame_put_folded(place, x->out);
            fputc(')', x->out);
        }
    }
    fprintf(x->out, " %llu\n", (unsigned long long)sum->count);
    return 0;
}

static int write_collapsed(struct export *x) {
    struct export_stacks *stacks = NULL;
    struct export_sums sums;
    int rc = export_sums(x, &sums);

    if (rc == 0)
        rc = export_stacks_open(&stacks, x);
    for (size_t i = 0; rc == 0 && i < sums.n; i++) {
        const struct export_sum sum = export_sum(&sums, i);
        rc = put_stack(x, stacks, &sum);
    }
    export_stacks_close(stacks);
    export_sums_free(&sums);
    return rc;
}

const struct export_format export_collapsed = {
    "collapsed", ".collapsed", "a line a stack, for flame graph tools", 0, write_collapsed};
