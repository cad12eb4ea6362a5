/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live_scan.h - finds the live files of this user's recordings (writer/live.h says what they are).
 *
 *     static int each(const struct live_seen *s, void *arg) { ... return 0; }
 *     live_scan(each, &state);
 *
 * It looks only into $PROBING_RUN_DIR when that can be used, and otherwise into every place that an agent of this user may have chosen
 * (live_place() lists them; a recording may have been started from a session with another environment). Missing directories are skipped
 * silently; directories of another user, or open to others, are skipped with one line. A file of another user is reported to `fn` as an
 * error. Leftovers of injections that were killed are removed, and so are live files of dead processes that recorded nothing.
 */
#ifndef PROBING_TOOLS_LIVE_SCAN_H
#define PROBING_TOOLS_LIVE_SCAN_H

#include "../writer/live.h"

struct live_seen {
    const char *path; /* of the live file */
    const struct live
        *l;    /* a copy of the head, valid during the call; NULL when it could not be opened */
    int error; /* then: the -errno of live_open() */
};

/* Returns 1 when the process is still running and has the file mapped. This takes a millisecond for a large process, so call it last. */
int live_seen_alive(const struct live_seen *seen);
/* Returns 1 when all threads of the process are stopped, by SIGSTOP or a debugger. Such a process would not answer before the timeout, and
 * each rank of a job that hangs and was stopped would be waited for. */
int live_seen_stopped(const struct live_seen *seen);

/* Calls fn for each live file. Stops when fn returns nonzero, and returns that value; else returns 0. */
int live_scan(int (*fn)(const struct live_seen *seen, void *arg), void *arg);

#endif
