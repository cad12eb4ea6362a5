/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster.h - `probing cluster`: asks many `probing serve` processes one question at the same time. It is a separate program
 * (lib/probing/probing-cluster), so that no other command loads an HTTP library.
 *
 *     main.c      the words of the command line, and what each of them asks
 *     hosts.c     which hosts: from a list, from Slurm, from a file, from torchrun
 *     ask.c       libcurl's multi interface: parallel requests, limited in number, time and size
 *     answers.c   the rows of all answers in one table, with the node as a column and times on one clock
 *     stacks.c    merges the merged trees of stacks
 *     fetch.c     fetches the traces themselves
 *
 * A failed request sets `error` in its struct ask, one line without the node's name; ask_failed() prints them all.
 */
#ifndef PROBING_TOOLS_CLUSTER_H
#define PROBING_TOOLS_CLUSTER_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/attached.h"
#include "tools/sql_run.h"

struct cluster {
    struct attached nodes;
    double timeout;      /* of a request, in s */
    int parallel;        /* number of requests at a time */
    double max_bytes;    /* limit for an answer */
    struct sql_run rows; /* how rows are printed */
    int json, flat;      /* flat: print stacks as JSON in one list */
};
extern volatile sig_atomic_t cluster_interrupted;

/* ---- hosts.c: each adds nodes to `a`; returns TOOL_OK or the exit code after printing why ---- */
int hosts_list(struct attached *a, const char *list, int port, const char *token_file);
int hosts_file(struct attached *a, const char *path, int port, const char *token_file);
int hosts_slurm(struct attached *a, int port, const char *token_file);
int hosts_torchrun(struct attached *a, int port, const char *token_file);

/* ---- ask.c ---- */
struct ask {
    const struct attached_node *node;
    const char *path; /* /api/v1/... */
    const char *body; /* of a POST; NULL: GET */
    FILE *out;        /* receives the answer; NULL: it goes into text */
    size_t max_bytes; /* 0: the limit of the cluster */
    /* Filled in: */
    char *text; /* ends with a NUL; valid until `done` returns */
    size_t n;   /* bytes of the answer */
    int ok;
    char error[256];
    char server[40]; /* the server's own name, "" for an old server */
    double offset,
        uncertainty; /* s that its clock is ahead of ours, and the uncertainty of that; NAN: the server did not tell */
};
/* Sends all requests, and calls done() for each answer when it has arrived, in any order. A nonzero result of done(), which has then set
 * `error`, becomes the error -errno of that answer. Returns 0, or -errno when nothing could be asked. */
int ask_all(const struct cluster *c, struct ask *asks, size_t n,
            int (*done)(void *ctx, struct ask *ask), void *ctx);
/* Makes a request for each node, malloc'ed; NULL after printing why. */
struct ask *ask_each(const struct cluster *c, const char *path, const char *body);
/* A server that is reached under two names counts once: its later requests get an error. */
void ask_twice(struct ask *asks, size_t n);
/* Prints who did not answer, grouped by reason, and returns the exit code, which depends on whether all, some or none answered. */
int ask_failed(const struct ask *asks, size_t n);
/* Writes the same as JSON: [{"node": ..., "error": ...}] */
void ask_failed_json(FILE *f, const struct ask *asks, size_t n);

/* ---- answers.c ---- */
struct answers;
struct answers *answers_new(void);
void answers_free(struct answers *a);
sqlite3 *answers_db(struct answers *a);
/* Adds an array of objects, each of which becomes a row of table `answers`. Returns 0, or -EBADMSG with `error`; then nothing of it was added. */
int answers_add(struct answers *a, struct ask *ask, size_t place);
/* Returns a SELECT with the columns of `answers` in the order in which they are shown, and the rows sorted; for sqlite3_free(). NULL: no rows came. */
char *answers_select(struct answers *a);

/* ---- stacks.c, fetch.c ---- */
int cluster_stacks(struct cluster *c, int threads, int native);
/* Writes into dir/NODE/; *n: number of traces. Returns the exit code. */
int cluster_fetch(struct cluster *c, const char *dir, size_t *n);

#endif
