/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.h - everything that was recorded with a time of its own, except samples, for formats that draw timelines.
 *
 *     static int put_track(void *ctx, const struct export_track *t);     // called before the first event of each track
 *     static int put_event(void *ctx, const struct export_event *e) {
 *         struct rows_value v;
 *         ... e->kind, e->track->id, e->ts, e->duration, e->name ...
 *         for (int i = 0; i < e->nargs; i++)
 *             const char *name = export_event_arg(e, i, &v);             // v is ROWS_NULL where there is nothing to say
 *         return 0;
 *     }
 *     int rc = export_events(x, put_track, put_event, mine);
 *
 * Events come one kind after the other, and within a kind process by process and by time. Slices on a track are nested or disjoint, they
 * never partly overlap: where recorded ones do (collectives that run at the same time) the later one is put on another lane, which is a
 * track of its own. Of two slices that begin at the same time, the shorter one lies within the longer one. Times are on aligned clocks,
 * durations on the machine's own clock: an overlap that is no larger than two clocks may differ is cut off, and the slice stays on its
 * track; `recorded` has the whole duration.
 */
#ifndef PROBING_TOOLS_EXPORT_EVENTS_H
#define PROBING_TOOLS_EXPORT_EVENTS_H

#include "../rows.h"
#include "event_kind.h"
#include "export.h"

struct export_track {
    uint64_t id; /* 1, 2, ... in the order of the calls */
    enum export_kind kind;
    const struct export_process *process;
    /* NULL: the track belongs to the process, or the thread is not known */
    const struct export_thread *thread;
    const char
        *name; /* "steps", "modules", "collectives NAME", "spans", "marks"; a counter's own */
    const char *unit; /* for a counter: "bytes", "percent", ...; else "" */
    unsigned lane;    /* 0, 1, ... */
};

struct export_event {
    enum export_kind kind;
    const struct export_track *track;
    int64_t ts, duration; /* ns UTC; ns */
    int64_t recorded;     /* the duration as it was recorded, which SQL adds up */
    int open;             /* its end was not seen: the duration is until the end of its process */
    const char *name, *category;
    double value; /* for a counter */
    /* The slices of other ranks that are the same collective, and the other end of a send, have the same number. The arrow goes from the
     * one that began first through the next ones to the last one. */
    uint64_t flow;
    enum export_flow place;
    int nargs;
    sqlite3_stmt *st; /* private */
};

typedef int export_track_call(void *ctx, const struct export_track *track); /* 0 or -errno */
typedef int export_event_call(void *ctx, const struct export_event *event);
/* Returns 0 or -errno. Borrowed pointers are valid during the call, a track until export_events() returns. */
int export_events(struct export *x, export_track_call *track, export_event_call *each, void *ctx);
/* Returns the name of an argument, and sets *v to its value. */
const char *export_event_arg(const struct export_event *e, int i, struct rows_value *v);

#endif
