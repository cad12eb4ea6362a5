/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h - the rows that all traces of a conversion share (functions, frames, stacks), on their way to the database. One thread makes them
 * while another one inserts them, so that none stays in memory for longer than that.
 *
 *     queue_init(&q);
 *     queue_lock(&q);                                    // one thread
 *     if ((r = queue_row(&q, QUEUE_FRAME, text_max))) ...    // then fill in r->v, and r->len bytes of text at queue_text(&q, r)
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

/* The values v of a row, then its texts. */
enum queue_table {
    QUEUE_PART,  /* id; frames */
    QUEUE_STACK, /* id, depth, frame (put before it), leaf (depth: none); parts. The other columns of table `stack` are copied from its frame */
    QUEUE_TOTAL, /* the columns of stack_total (stack 0: samples without a stack) */
    QUEUE_SUMS,  /* the columns of function_total */
    QUEUE_FUNCTION, /* id, type, firstline; name NUL file NUL module NUL */
    QUEUE_FRAME, /* id, function, line; file of its own, NUL. The other columns of table `frame` are copied from its function */
    QUEUE_TABLES
};

#define QUEUE_VALUES 13
/* bytes; above this the thread that makes rows should wait */
#define QUEUE_MOST ((size_t)4 << 20)

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
    int only_all; /* rows of QUEUE_SUMS are added to those of trace 0 only */
    int adds_all; /* rows of QUEUE_SUMS are also added to those of trace 0, which stands for all traces (otherwise these sums are made at
                   * the end, if there are several traces) */
    pthread_mutex_t lock; /* protects `waiting` */
    struct queue_rows waiting, going;
    sqlite3 *
        db; /* the database of the statements below, which are kept because planning them takes as long as inserting the rows of a block */
    sqlite3_stmt *insert[QUEUE_TABLES];
};

void queue_init(struct queue *q);
void queue_free(struct queue *q);
void queue_lock(struct queue *q);
void queue_unlock(struct queue *q);
/* Returns 1 when QUEUE_MOST bytes or more are waiting. */
int queue_is_full(struct queue *q);
/* Returns a row of zeros with space for `text_max` bytes of text, valid until the next call; NULL: no memory. Call with the lock held. */
struct queue_row *queue_row(struct queue *q, enum queue_table table, size_t text_max);
/* queue_text() returns where to write the text of the row; queue_text_end() then says how long it is. Call both once, before the next row. */
char *queue_text(struct queue *q, const struct queue_row *r);
void queue_text_end(struct queue *q, struct queue_row *r, size_t len);
/* Adds a row without text. Returns 0 or -ENOMEM. */
int queue_put(struct queue *q, enum queue_table table, const int64_t *v, size_t n);
/*
 * Inserts the waiting rows (with db NULL: drops them). Returns an SQLite result code. Sums of samples of other traces than this one stay in
 * the queue, because the old rows that the database has of such a trace may have to be deleted first (append_forget()).
 */
int queue_drain(struct queue *q, sqlite3 *db, uint32_t trace);
/* Frees the statements that it has prepared. */
void queue_end(struct queue *q);

#endif
