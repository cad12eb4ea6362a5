/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.h - the job's communication, replayed: how long it would have taken if some of its work had been shorter.
 *
 *     replay_register(db);      // then, in SQL on that connection:
 *     SELECT replay('rank', 5), replay('node', 'node001'), replay('stage', 2), replay('median'), replay('data');
 *
 * What is replayed: each rank works for a time of its own between two points of its communication; a collective lets all go when the
 * last has come, a receive when the message was sent, a broadcast when its root has come, each plus the time that the transfer took.
 * The first of a rank is where it was. Work is by a rank's own clock; only messages need clocks that can be compared.
 *
 * replay(what, which): seconds that would be saved, against a replay with nothing changed. NULL: there is nothing to say it from.
 *   rank R     R takes no longer than the slowest of its peers: those of the same pipeline stage, at the same call
 *   node HOST  the same for the ranks of that host, and peers elsewhere
 *   stage S    the pipeline stage S works no longer in all than the next slowest (the stage is the place in roles' dimension pp, else in
 *              the group of the messages)
 *   median     every rank takes its peers' median time
 *   data       no time between two calls goes into waiting for a data loader
 * replay('nth rank', N), ('nth node', N), ('nth stage', 1): whose lateness is the N-th largest; NULL: there are not so many.
 * replay('length'), replay('seen'): seconds that the replay with nothing changed takes, and that it took. replay('calls'): how many.
 * Of the runs, and where a launcher started the ranks again of their attempts, the largest is replayed: replay('run'), replay('attempt').
 * Of a job with more than a million calls its last million are replayed, so that a day of many ranks takes no more time and memory than its last
 * hours: replay('part') is the share that these are. replay('most', N): from now on N (0: all).
 * It is read at the first call, and again only when the database has more of it. Every connection of open_db.h has the function.
 */
#ifndef PROBING_TOOLS_REPLAY_H
#define PROBING_TOOLS_REPLAY_H

#include <sqlite3.h>

/* Makes the function known. SQLITE_OK or SQLite's code. */
int replay_register(sqlite3 *db);

#endif
