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
#include <stdint.h>

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
    sqlite3_int64 trace, rank; /* trace: the first of its process */
    char *host;
    int stage;         /* -1: none */
    size_t first, end; /* its calls */
};

struct replay_point {
    double time;
    uint32_t call, is_exit; /* meetings are counted by int: there are no more calls */
};

struct replay_job {
    struct replay_call *call;
    struct replay_rank *rank;
    struct replay_point *point; /* 2 for each call, those of a rank together, by time */
    int *needed;                /* of each meeting: how many arrive */
    size_t ncalls;
    int nranks, nmeetings, npeers;
    size_t most;  /* given: no more calls than about so many, the last ones; 0: all */
    double part;  /* of the attempt's calls, how many these are: 1, or less */
    double since; /* when the first of them began, at the earliest */
    char *run;    /* whose calls these are; NULL: a run without a name */
    sqlite3_int64 attempt;
};

/* The largest attempt of the database's runs (where ranks are started again, collectives count from 0 again). SQLITE_OK or SQLite's code; an
   empty job is none. replay_job_free() in any case. */
int replay_job_load(struct replay_job *j, sqlite3 *db);
void replay_job_free(struct replay_job *j);

#endif
