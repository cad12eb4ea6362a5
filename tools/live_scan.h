/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live_scan.h - finds the live files of this user's recordings (writer/live.h says what they are).
 *
 *     static int each(const struct live_seen *s, void *arg) { ... return 0; }
 *     live_scan(each, &state);
 *
 * Looks into $PROBING_RUN_DIR alone when it can be used; else into every place that an agent of this user may have chosen
 * (live_place() says which, and a recording may have been started from a session with another environment). Directories
 * that are not there are passed over, and so are, with one line, those of another user or open to others; files of
 * another user are given as an error. What injections that were killed have left there is removed, and live files of dead
 * processes that recorded nothing.
 */
#ifndef PROBING_TOOLS_LIVE_SCAN_H
#define PROBING_TOOLS_LIVE_SCAN_H

#include "../writer/live.h"

struct live_seen {
    const char *path; /* of the live file */
    const struct live
        *l;    /* a copy of the head, during the call; NULL when it could not be opened */
    int error; /* then: -errno of live_open() */
};

/* Whether its process still runs, and has it mapped. Takes a millisecond of a large process: to be asked last. */
int live_seen_alive(const struct live_seen *seen);
/* Whether all its threads are stopped, by SIGSTOP or by a debugger: it would not answer before the time is over, and of a job that hangs
 * and was stopped each rank would be waited for. */
int live_seen_stopped(const struct live_seen *seen);

/* Calls fn for each live file; stops and returns fn's value when that is not 0. Else 0. */
int live_scan(int (*fn)(const struct live_seen *seen, void *arg), void *arg);

#endif
