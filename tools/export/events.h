/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.h - what was recorded with a time of its own, but for samples: for formats that draw timelines.
 *
 *     static int put_track(void *ctx, const struct export_track *t);     // before the first event of each
 *     static int put_event(void *ctx, const struct export_event *e) {
 *         struct rows_value v;
 *         ... e->kind, e->track->id, e->ts, e->duration, e->name ...
 *         for (int i = 0; i < e->nargs; i++)
 *             const char *name = export_event_arg(e, i, &v);             // v is ROWS_NULL where there is nothing to say
 *         return 0;
 *     }
 *     int rc = export_events(x, put_track, put_event, mine);
 *
 * One kind after the other, each process by process and by time. On a track slices lie in each other or apart, never across: where
 * recorded ones do (collectives that run beside each other) the later one is on another lane, a track of its own. A slice that begins when
 * another one does lies in the one that is longer. Times are on aligned clocks and durations on the machine's own: what overlaps by no
 * more than two clocks may differ is cut, and stays on its track; `recorded` has the whole duration.
 */
#ifndef PROBING_TOOLS_EXPORT_EVENTS_H
#define PROBING_TOOLS_EXPORT_EVENTS_H

#include "../rows.h"
#include "event_kind.h"
#include "export.h"

struct export_track {
    uint64_t id; /* 1, 2, ... as they come */
    enum export_kind kind;
    const struct export_process *process;
    const struct export_thread *thread; /* NULL: the process's, or a thread that is not known */
    const char
        *name; /* "steps", "modules", "collectives NAME", "spans", "marks"; a counter's own */
    const char *unit; /* of a counter: "bytes", "percent", ...; else "" */
    unsigned lane;    /* 0, 1, ... */
};

struct export_event {
    enum export_kind kind;
    const struct export_track *track;
    int64_t ts, duration; /* ns UTC; ns */
    int64_t recorded;     /* the duration as it was recorded: what SQL adds up */
    int open; /* it was never seen to end: the duration is until the end of its process */
    const char *name, *category;
    double value; /* of a counter */
    /* The slices of other ranks that are the same collective, or the other end of a send, have the same number: the arrow goes from the
     * one that began first over the next ones to the last. */
    uint64_t flow;
    enum export_flow place;
    int nargs;
    sqlite3_stmt *st; /* private */
};

typedef int export_track_call(void *ctx, const struct export_track *track); /* 0 or -errno */
typedef int export_event_call(void *ctx, const struct export_event *event);
/* 0 or -errno; borrowed pointers are valid during the call, a track until export_events() is back. */
int export_events(struct export *x, export_track_call *track, export_event_call *each, void *ctx);
/* Its name, and its value. */
const char *export_event_arg(const struct export_event *e, int i, struct rows_value *v);

#endif
