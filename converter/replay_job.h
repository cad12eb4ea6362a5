/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_job.h - the calls of a job in the form that replay.c replays, read from a database by replay_load.c.
 *
 * A call arrives at one meeting (`in`) and may wait for one (`on`). For a collective the two are the same; for a message the receiver waits
 * for the meeting that the sender arrives at. The job owns its arrays; single-threaded.
 */
#ifndef PROBING_CONVERTER_REPLAY_JOB_H
#define PROBING_CONVERTER_REPLAY_JOB_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

struct replay_call {
    double enter, exit; /* as recorded, seconds */
    double work;        /* time since this rank's previous point; < 0: this is its first */
    double loading;     /* the part of `work` spent waiting for data */
    double transfer;    /* from when all that it waits for is there until the call ends */
    int in, on;         /* meetings; -1: none */
    int rank;           /* index */
    int peers;          /* class of the calls that do the same thing in the same stage */
    int is_send;
    int is_idle; /* of a process that is not recorded (replay_mirror.h): it is not known to do anything before */
};

struct replay_rank {
    sqlite3_int64 trace, rank; /* trace: the first trace of its process */
    char *host;
    int stage; /* -1: none */
    int joins; /* its recording began later than those of the ranks that it first meets: when it came there is not known */
    uint64_t boot; /* hash of the boot of its machine; 0: not known */
    sqlite3_int64 clock;
    double
        uncertainty; /* of its times on clock `clock`; < 0: they cannot be compared with those of other boots */
    size_t first, end; /* range of its calls */
};

struct replay_point {
    double time;
    /* meetings are counted with an int, so there are no more calls than that */
    uint32_t call, is_exit;
};

struct replay_job {
    struct replay_call *call;
    struct replay_rank *rank;
    struct replay_point *point; /* two for each call, grouped by rank and sorted by time */
    int *needed;                /* for each meeting, how many calls arrive at it */
    size_t ncalls, nread;       /* nread: those that were recorded, the first ones */
    size_t nlost;               /* messages of which only one end was recorded */
    int nabsent;                /* members of its groups that have no trace */
    int nranks, nmeetings, npeers;
    size_t most;  /* set by the caller: about how many calls to read, the last ones; 0: all */
    double part;  /* share of the attempt's calls that were read: 1, or less */
    double since; /* lower bound of the time when the first of them began */
    char *run;    /* the run of these calls; NULL: a run without a name */
    sqlite3_int64 attempt;
};

/* A hash of what identifies things: of a text, or a number, and those before it (h). */
uint64_t replay_hash(uint64_t h, const unsigned char *text);
uint64_t replay_mix(uint64_t h, uint64_t number);

/* Loads the largest attempt of the database's runs (when ranks are started again, collectives count from 0 again). Returns SQLITE_OK or
 * SQLite's code; a job without calls means that there are none. Call replay_job_free() in any case. */
int replay_job_load(struct replay_job *j, sqlite3 *db);
void replay_job_free(struct replay_job *j);

#endif
