/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_mirror.h - processes of which no trace is here, or not yet, as far as their messages with others tell of them.
 *
 *     struct mirror m = {0};
 *     mirror_add(&m, job, rank, call, 1);  // of that message the end of `rank`, which sends it, was not recorded
 *     mirror_join(&m, job, meeting, call); // and that is a collective of all ranks
 *     mirror_arrive(&m, job, rank, call, usual, late); // and that is a collective to which it came, too
 *     mirror_make(&m, job);                // appends their ranks and calls to the job
 *     mirror_free(&m);
 *
 * Somebody waits for each message that came late; if its sender has no trace, that time would stay as it was in a replay in which the sender, too, has
 * its messages earlier. So a sender is assumed to work from the last message that it got, or from the last collective of all, until what it sends
 * arrives; and a receiver, to wait for what it is sent. It is assumed to work until it comes to a collective if it was the last to come there: if
 * those who are recorded stayed there longer than such a collective takes. Else it was there before them. What else holds it up is not known.
 */
#ifndef PROBING_CONVERTER_REPLAY_MIRROR_H
#define PROBING_CONVERTER_REPLAY_MIRROR_H

#include "replay_job.h"

struct mirror_end {
    sqlite3_int64 rank; /* of the process that is not recorded */
    double time;        /* when it is assumed to come to it */
    size_t call;        /* the message at the recorded end, or a call of the collective */
    int meeting;        /* of a collective; else -1 */
    int sends;          /* that process is the sender */
    int arrives;        /* it comes to that collective */
    double
        usual; /* < 0: it was there before the others; else it was the last, and the transfer took so long */
};

struct mirror {
    struct mirror_end *end;
    size_t n, cap;
    unsigned char *known; /* by rank: mirror_has() */
    size_t nknown;
    int err; /* -ENOMEM: something is missing */
};

void mirror_add(struct mirror *m, const struct replay_job *j, sqlite3_int64 rank, size_t call,
                int sends);
void mirror_join(struct mirror *m, const struct replay_job *j, int meeting, size_t call);
/* call: of those who are recorded, the last to come. late: that process came even later, `usual` seconds before the end. */
void mirror_arrive(struct mirror *m, const struct replay_job *j, sqlite3_int64 rank, size_t call,
                   double usual, int late);
/* Returns whether messages of that process are known: only such a one is replayed. */
int mirror_has(const struct mirror *m, sqlite3_int64 rank);
/* Returns 0 or -ENOMEM. Before the job's points are made: j->needed must have room for a meeting more for each message. */
int mirror_make(struct mirror *m, struct replay_job *j);
void mirror_free(struct mirror *m);

#endif
