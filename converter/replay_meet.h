/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_meet.h - which calls of a job meet: who waits for whom, and how long the transfer takes then.
 *
 *     meet_make(job, keys, &absent); // sets in, on, transfer and peers of each call, and what the job knows of meetings
 *     meet_points(job);              // then the points of each rank, and its work between them
 */
#ifndef PROBING_CONVERTER_REPLAY_MEET_H
#define PROBING_CONVERTER_REPLAY_MEET_H

#include <stdint.h>

#include "replay_absent.h"
#include "replay_job.h"

enum meet_kind { MEET_ALL, MEET_FROM_ROOT, MEET_TO_ROOT, MEET_SEND, MEET_RECV };

/* Hashes that decide which calls belong together, used until meetings and classes have numbers. */
struct meet_key {
    uint64_t meeting, peers;
    uint64_t group, sort; /* of a collective: its group; the operation and the group's size */
    int other, size;      /* the rank at the other end of a message, -1: not known; of the group */
    enum meet_kind kind;
    unsigned is_root : 1, is_later : 1; /* is_later: its group has had calls before */
};

/* keys: one for each call. Both return SQLITE_OK or SQLITE_NOMEM. */
int meet_make(struct replay_job *j, const struct meet_key *keys, struct absent *absent);
int meet_points(struct replay_job *j);

#endif
