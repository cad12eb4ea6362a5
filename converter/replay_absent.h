/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_absent.h - the members of a job's groups of which no trace is here, and the collectives to which they came.
 *
 *     struct absent a = {0};
 *     absent_load(&a, job, db);                           // who they are
 *     absent_met(&a, call, group, sort, missing, is_all); // each collective that was recorded by somebody
 *     absent_arrive(&a, job, &mirror);                    // after the last one
 *     absent_free(&a);
 *
 * Who is recorded waits in a collective until all have come. If that took longer than collectives of that sort take of which all calls are here, one
 * who is not recorded was the last to come. When messages tell what such a process waited for before, it is replayed, so that it comes earlier in a
 * replay in which they do (replay_mirror.h). Otherwise the time that the others waited stays as it was.
 */
#ifndef PROBING_CONVERTER_REPLAY_ABSENT_H
#define PROBING_CONVERTER_REPLAY_ABSENT_H

#include "replay_job.h"
#include "replay_mirror.h"

struct absent {
    struct absent_member {
        uint64_t group;
        int rank;
    } * member; /* sorted by group */
    struct absent_met {
        uint64_t group, sort;
        size_t call; /* of those who are recorded, the last to come */
        int missing, is_all;
    } * met;
    size_t nmembers, members_cap, nmet, met_cap;
    int err; /* -ENOMEM: something is missing */
};

/* Sets job->nabsent, too. Returns SQLITE_OK or SQLite's code. */
int absent_load(struct absent *a, struct replay_job *j, sqlite3 *db);
/* group: a hash of its name, by replay_hash(). sort: equal for collectives that do the same among as many. missing: number of calls that are not
 * here. is_all: it is one of all ranks. */
void absent_met(struct absent *a, size_t call, uint64_t group, uint64_t sort, int missing,
                int is_all);
/* Adds to the mirror what those who are not recorded did. Returns 0 or -ENOMEM. */
int absent_arrive(struct absent *a, struct replay_job *j, struct mirror *m);
void absent_free(struct absent *a);

#endif
