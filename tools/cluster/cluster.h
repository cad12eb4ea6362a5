/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster.h - `probing cluster`: one question to many `probing serve` at once. A program of its own (lib/probing/probing-cluster), so
 * that no other command loads an HTTP library.
 *
 *     main.c      the words of the command line, and what each asks
 *     hosts.c     which hosts: a list, Slurm's, a file's, torchrun's
 *     ask.c       libcurl's multi interface: requests in parallel, bounded in number, time and size
 *     answers.c   rows of all of them in one table, with the node as a column and times on one clock
 *     stacks.c    merged trees of stacks, merged
 *     fetch.c     the traces themselves
 *
 * A request that fails is an `error` in its `struct ask`, one line without the node's name; ask_failed() says them all.
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
    double timeout;      /* of a request, s */
    int parallel;        /* requests at once */
    double max_bytes;    /* of an answer */
    struct sql_run rows; /* how rows are printed */
    int json, flat;      /* flat: stacks as JSON, one list */
};
extern volatile sig_atomic_t cluster_interrupted;

/* ---- hosts.c: each adds to `a`; TOOL_OK or the exit code, said ---- */
int hosts_list(struct attached *a, const char *list, int port, const char *token_file);
int hosts_file(struct attached *a, const char *path, int port, const char *token_file);
int hosts_slurm(struct attached *a, int port, const char *token_file);
int hosts_torchrun(struct attached *a, int port, const char *token_file);

/* ---- ask.c ---- */
struct ask {
    const struct attached_node *node;
    const char *path; /* /api/v1/... */
    const char *body; /* of a POST; NULL: GET */
    FILE *out;        /* where the answer goes; NULL: into text */
    size_t max_bytes; /* 0: the cluster's */
    /* Filled in: */
    char *text; /* ends with a NUL; until `done` returns */
    size_t n;   /* bytes of the answer */
    int ok;
    char error[256];
    char server[40]; /* the server's own name, "": an old one */
    double offset,
        uncertainty; /* s that its clock is ahead of ours, and how well that is known; NAN: it did not say */
};
/* All of them; done() for each as its answer is there, in any order: what it returns, if not 0, becomes the error -errno of that answer
 * (it has filled in `error`). 0, or -errno where nothing could be asked. */
int ask_all(const struct cluster *c, struct ask *asks, size_t n,
            int (*done)(void *ctx, struct ask *ask), void *ctx);
/* An ask for each node: malloc; NULL, said. */
struct ask *ask_each(const struct cluster *c, const char *path, const char *body);
/* A server that is reached under two names counts once: the later ones get an error. */
void ask_twice(struct ask *asks, size_t n);
/* Says who did not answer, grouped by reason, and gives the exit code: all, some, none answered. */
int ask_failed(const struct ask *asks, size_t n);
/* The same as JSON: [{"node": ..., "error": ...}] */
void ask_failed_json(FILE *f, const struct ask *asks, size_t n);

/* ---- answers.c ---- */
struct answers;
struct answers *answers_new(void);
void answers_free(struct answers *a);
sqlite3 *answers_db(struct answers *a);
/* An array of objects, of which each becomes a row of the table `answers`. 0; -EBADMSG with `error`, and nothing of it was added. */
int answers_add(struct answers *a, struct ask *ask, size_t place);
/* The columns of `answers` in the order that they are shown in, and how rows are sorted: a SELECT; sqlite3_free(). NULL: no rows came. */
char *answers_select(struct answers *a);

/* ---- stacks.c, fetch.c ---- */
int cluster_stacks(struct cluster *c, int threads, int native);
/* Into dir/NODE/; *n: how many traces. The exit code. */
int cluster_fetch(struct cluster *c, const char *dir, size_t *n);

#endif
