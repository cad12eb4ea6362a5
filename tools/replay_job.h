/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_job.h - the calls of a job as replay.c replays them, and how they are read from a database (replay_load.c).
 *
 * A call arrives at one meeting (`in`) and may wait on one (`on`): the same of a collective; of a message the receiver waits on the
 * meeting that the sender arrives at. Arrays are owned by the job; single-threaded.
 */
#ifndef PROBING_TOOLS_REPLAY_JOB_H
#define PROBING_TOOLS_REPLAY_JOB_H

#include <sqlite3.h>
#include <stddef.h>

struct replay_call {
    double enter, exit; /* as recorded, seconds */
    double work;        /* from the last point of this rank before it; < 0: its first */
    double loading;     /* of the work: waiting for data */
    double transfer;    /* from when all that it waits for is there until it goes on */
    int in, on;         /* meetings; -1: none */
    int rank;           /* index */
    int peers;          /* class of calls that do the same in this stage */
    int is_send;
};

struct replay_rank {
    sqlite3_int64 trace, rank;
    char *host;
    int stage;         /* -1: none */
    size_t first, end; /* its calls */
};

struct replay_point {
    double time;
    size_t call;
    int is_exit;
};

struct replay_job {
    struct replay_call *call;
    struct replay_rank *rank;
    struct replay_point *point; /* 2 for each call, those of a rank together, by time */
    int *needed;                /* of each meeting: how many arrive */
    size_t ncalls;
    int nranks, nmeetings, npeers;
};

/* The largest run of the database. SQLITE_OK or SQLite's code; an empty job is none. replay_job_free() in any case. */
int replay_job_load(struct replay_job *j, sqlite3 *db);
void replay_job_free(struct replay_job *j);

#endif
