/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.h - replays the communication of a job to estimate how long it would have taken if some of its work had been shorter.
 *
 *     replay_register(db);      // then, in SQL on that connection:
 *     SELECT replay('rank', 5), replay('node', 'node001'), replay('stage', 2), replay('median'), replay('data');
 *
 * What is replayed: each rank works for its own time between two points of its communication; a collective lets all ranks go when the last
 * one has arrived, a receive when the message was sent, a broadcast when its root has arrived, each plus the time that the transfer took.
 * The first point of a rank stays where it was, unless its recording began later than the others': then it waits there for them. Work is
 * measured by the rank's own clock; messages need comparable clocks, and so does what a rank takes longer to leave a collective than the
 * others: where clocks cannot be compared, all leave at once.
 *
 * replay(what, which): seconds that would be saved, compared with a replay in which nothing is changed. NULL: there is no data to compute it from.
 *   rank R     rank R takes no longer than the slowest of its peers: the ranks of the same pipeline stage, at the same call
 *   node HOST  the same for all ranks of that host, compared with peers on other hosts
 *   group      the same for all ranks that are late together (replay_group.h), compared with the others
 *   stage S    pipeline stage S works no longer in total than the next slowest stage (the stage is the index in dimension pp of view roles, else
 *              the rank in the group of the messages)
 *   median     every rank takes the median time of its peers
 *   data       no time between two calls is spent waiting for a data loader
 * replay('nth rank', N), ('nth node', N), ('nth stage', 1): the one with the N-th largest lateness; NULL: there are fewer than N.
 * replay('late'): the ranks that are late together, as a JSON array; NULL: none are. replay('ranks of stage', S): those of a pipeline stage.
 * replay('length'), replay('seen'): seconds that the unchanged replay takes, and that the job took. replay('calls'): number of calls.
 * replay('absent'): number of ranks in the groups of the job that have no trace.
 * replay('lost'): messages of which one end was not recorded; what is known of that process is replayed (replay_mirror.h), and it may save more.
 * Only the largest run, and its largest attempt when a launcher started the ranks again, is replayed: replay('run'), replay('attempt').
 * Of a job with more than a million calls the last million are replayed, so that a day of many ranks takes no more time and memory than its
 * last hours: replay('part') is their share of all calls. replay('most', N) sets this limit to N (0: no limit). The calls are read at the
 * first use, and again only when the database has grown. Every connection of open_db.h has the function.
 */
#ifndef PROBING_CONVERTER_REPLAY_H
#define PROBING_CONVERTER_REPLAY_H

#include <sqlite3.h>

/* Registers the function. Returns SQLITE_OK or SQLite's code. */
int replay_register(sqlite3 *db);

#endif
