/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h - rows of what all traces of a conversion share (functions, frames, stacks), on their way to the database: one thread makes them while
 * another inserts. So none of them is kept in memory longer than that.
 *
 *     queue_init(&q);
 *     queue_lock(&q);                                    // one thread
 *     if ((r = queue_row(&q, QUEUE_FRAME, text_max))) ...    // fill in r->v; text: queue_text(&q, r), r->len of it
 *     queue_unlock(&q);
 *     queue_drain(&q, db, trace);                        // the thread of the database, at any time
 *     queue_end(&q);                                     // before the database is closed
 *     queue_free(&q);
 */
#ifndef PROBING_CONVERTER_QUEUE_H
#define PROBING_CONVERTER_QUEUE_H

#include <pthread.h>
#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

/* What v and the text of a row are. */
enum queue_table {
    QUEUE_PART,  /* id; frames */
    QUEUE_STACK, /* id, depth, frame (put before it), leaf (depth: none); parts. What else table `stack` has is its frame's */
    QUEUE_TOTAL, /* stack_total's columns (stack 0: samples without one) */
    QUEUE_SUMS,  /* function_total's columns */
    QUEUE_FUNCTION, /* id, type, firstline; name NUL file NUL module NUL */
    QUEUE_FRAME, /* id, function, line; its own file NUL. What else table `frame` has is its function's */
    QUEUE_TABLES
};

#define QUEUE_VALUES 13
#define QUEUE_MOST   ((size_t)4 << 20) /* bytes, from which on who makes rows should wait */

struct queue_row {
    enum queue_table table;
    uint32_t len;
    size_t text; /* offset */
    int64_t v[QUEUE_VALUES];
};

struct queue_rows {
    struct queue_row *rows;
    size_t n, cap;
    char *text;
    size_t ntext, text_cap;
};

struct queue {
    int only_all; /* they count in those of trace 0 alone */
    int adds_all; /* rows of QUEUE_SUMS also count in those of trace 0, all traces' (else they are summed up at the end, where there are several) */
    pthread_mutex_t lock; /* of waiting */
    struct queue_rows waiting, going;
    sqlite3 *
        db; /* of the statements below: to plan them takes as long as to insert the rows that a block brings */
    sqlite3_stmt *insert[QUEUE_TABLES];
};

void queue_init(struct queue *q);
void queue_free(struct queue *q);
void queue_lock(struct queue *q);
void queue_unlock(struct queue *q);
/* Whether QUEUE_MOST bytes wait. */
int queue_is_full(struct queue *q);
/* A row of zeros with space for `text_max` bytes of text, valid until the next call. The lock is held. NULL: no memory. */
struct queue_row *queue_row(struct queue *q, enum queue_table table, size_t text_max);
/* Where its text goes, and how much it was: once, before the next row. */
char *queue_text(struct queue *q, const struct queue_row *r);
void queue_text_end(struct queue *q, struct queue_row *r, size_t len);
/* Takes a row without text. 0 or -ENOMEM. */
int queue_put(struct queue *q, enum queue_table table, const int64_t *v, size_t n);
/*
 * Inserts the rows that wait (db NULL: drops them). An SQLite result code. What the samples of other traces than this one add up to waits on: what
 * the database has of such a trace may have to go first (append_forget()).
 */
int queue_drain(struct queue *q, sqlite3 *db, uint32_t trace);
/* Gives up what it holds of the database. */
void queue_end(struct queue *q);

#endif
