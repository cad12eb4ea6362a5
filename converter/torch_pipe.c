/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_pipe.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "scan.h"

#define BATCH   512
#define BATCHES 4

struct torch_pipe {
    int (*make)(void *ctx, struct torch_pipe *p);
    void *ctx;
    size_t n; /* number of rows in the batch that is being filled */
    /* Used by the inserting thread. */
    const struct torch_row *now, *end; /* rows of the current batch; NULL: none */
    int64_t last;                      /* highest id in the table */
    int numbers;                       /* SQLite assigns the ids */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Access with the lock held. */
    size_t filled, taken; /* total numbers of batches; taken: those that may be filled again */
    int ended, stop;
    int rc; /* result of make */
    size_t rows[BATCHES];
    struct torch_row row[BATCHES][BATCH];
};

/* Hands the filled batch to the other thread, and begins the next one. */
static int hand_over(struct torch_pipe *p) {
    pthread_mutex_lock(&p->lock);
    p->rows[p->filled % BATCHES] = p->n;
    p->filled++;
    p->n = 0;
    pthread_cond_broadcast(&p->changed);
    while (!p->stop && p->filled - p->taken == BATCHES)
        pthread_cond_wait(&p->changed, &p->lock);
    int rc = p->stop ? SQLITE_INTERRUPT : SQLITE_OK;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

int torch_pipe_put(struct torch_pipe *p, const struct torch_row *row) {
    p->row[p->filled % BATCHES][p->n++] = *row;
    return p->n < BATCH ? SQLITE_OK : hand_over(p);
}

static void *run(void *arg) {
    struct torch_pipe *p = arg;
    int rc = p->make(p->ctx, p);

    if (p->n)
        hand_over(p);
    pthread_mutex_lock(&p->lock);
    p->rc = rc;
    p->ended = 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the virtual table ---- */

enum { ID, TS, DURATION, THREAD, STAGE, MODULE, CALL, PARENT, DEPTH, FLAGS, STEP, SEQ, CALL_TID };

struct cursor {
    struct scan_cursor scan;
    int any; /* 1: this statement has had a row */
};

static int calls_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **msg) {
    (void)argc, (void)argv, (void)msg;
    return scan_connect(db,
                        "CREATE TABLE x(id, ts, duration, thread, stage, module, call,"
                        " parent, depth, flags, step, seq, call_tid)",
                        aux, out);
}

static int calls_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out) {
    return scan_open(table, sizeof(struct cursor), out);
}

static struct torch_pipe *pipe_of(const sqlite3_vtab_cursor *base) {
    return ((const struct scan_cursor *)base)->l->calls;
}

/* Moves to the first row of the next batch, if there is one. */
static void next_batch(struct torch_pipe *p) {
    pthread_mutex_lock(&p->lock);
    p->taken += p->now != NULL;
    pthread_cond_broadcast(&p->changed);
    while (p->filled == p->taken && !p->ended)
        pthread_cond_wait(&p->changed, &p->lock);
    size_t k = p->taken % BATCHES;
    p->now = p->filled == p->taken ? NULL : p->row[k];
    p->end = p->row[k] + p->rows[k];
    pthread_mutex_unlock(&p->lock);
}

static int calls_next(sqlite3_vtab_cursor *base) {
    struct cursor *c = (struct cursor *)base;
    struct torch_pipe *p = pipe_of(base);

    c->any = 1;
    p->last = p->now->id > p->last ? p->now->id : p->last;
    if (++p->now == p->end)
        next_batch(p);
    return SQLITE_OK;
}

static int calls_filter(sqlite3_vtab_cursor *base, int idx, const char *str, int argc,
                        sqlite3_value **argv) {
    (void)base, (void)idx, (void)str, (void)argc, (void)argv;
    return SQLITE_OK;
}

/* Returns 1 at the end, and where the other one of the two statements must continue. */
static int calls_eof(sqlite3_vtab_cursor *base) {
    const struct cursor *c = (struct cursor *)base;
    const struct torch_pipe *p = pipe_of(base);

    if (!p->now)
        return 1;
    return p->numbers ? p->now->id != p->last + 1 : c->any && p->now->id == p->last + 1;
}

static int calls_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int col) {
    const struct torch_row *r = pipe_of(base)->now;
    int64_t v = 0;
    int known = 1;

    switch (col) {
    case ID:
        v = r->id;
        break;
    case TS:
        v = r->ts;
        break;
    case DURATION:
        v = r->duration;
        known = r->has_duration;
        break;
    case THREAD:
        v = r->thread;
        break;
    case STAGE:
        v = r->stage;
        break;
    case MODULE:
        v = r->module;
        break;
    case CALL:
        v = r->call;
        known = v != 0;
        break;
    case PARENT:
        v = r->parent;
        known = v != 0;
        break;
    case DEPTH:
        v = r->depth;
        break;
    case FLAGS:
        v = r->flags;
        break;
    case STEP:
        v = r->step;
        known = r->has_step;
        break;
    case SEQ:
        v = r->seq;
        break;
    case CALL_TID:
        v = r->call_tid;
        known = v != 0;
        break;
    }
    if (known)
        sqlite3_result_int64(ctx, v);
    return SQLITE_OK;
}

static int calls_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid) {
    *rowid = pipe_of(base)->now->id;
    return SQLITE_OK;
}

static sqlite3_module module = {
    SCAN_METHODS,        .xCreate = calls_connect, .xConnect = calls_connect,
    .xOpen = calls_open, .xFilter = calls_filter,  .xNext = calls_next,
    .xEof = calls_eof,   .xColumn = calls_column,  .xRowid = calls_rowid,
};

int torch_pipe_register(sqlite3 *db, struct load_now *now) {
    return sqlite3_create_module_v2(db, "probing_calls", &module, now, NULL);
}

/*
 * Rows nearly always come in the order of their ids, and SQLite needs a fifth less time for a row whose id it can assign itself than for
 * one whose place it has to look up. The exceptions are rows that were open for long, and the row after a call that was left out.
 */
static int insert(struct load *l, struct torch_pipe *p) {
    static const char columns[] = "ts, duration, thread, stage, module, call, parent, depth, flags,"
                                  " step, seq, call_tid";
    sqlite3_stmt *st[2] = {NULL, NULL}; /* indexed by p->numbers */
    char *numbered = sqlite3_mprintf("INSERT INTO torch_call(%s) SELECT %s FROM temp.record_calls",
                                     columns, columns);
    sqlite3_int64 last;
    int rc = sqlite3_exec(
        l->db, "CREATE VIRTUAL TABLE IF NOT EXISTS temp.record_calls USING probing_calls", NULL,
        NULL, NULL);

    if (rc == SQLITE_OK)
        rc = sql_number(l->db, "SELECT max(id) FROM torch_call", &last);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(l->db, "INSERT INTO torch_call SELECT * FROM temp.record_calls", -1,
                                &st[0], NULL);
    if (rc == SQLITE_OK)
        rc = numbered ? sqlite3_prepare_v2(l->db, numbered, -1, &st[1], NULL) : SQLITE_NOMEM;
    if (rc == SQLITE_OK) {
        p->last = last;
        next_batch(p);
    }
    while (rc == SQLITE_OK && p->now) {
        p->numbers = p->now->id == p->last + 1;
        rc = sql_done(st[p->numbers]);
    }
    sqlite3_finalize(st[0]);
    sqlite3_finalize(st[1]);
    sqlite3_free(numbered);
    return rc;
}

int torch_pipe_run(struct load *l, int (*make)(void *ctx, struct torch_pipe *p), void *ctx) {
    struct torch_pipe *p = l->alone ? NULL : malloc(sizeof *p);
    sigset_t all, old;
    pthread_t thread;

    if (!p)
        return make(ctx, NULL);
    memset(p, 0, offsetof(struct torch_pipe, row));
    p->make = make;
    p->ctx = ctx;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    sigfillset(&all); /* signals are for the caller's thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int beside = pthread_create(&thread, NULL, run, p) == 0, rc;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (beside) {
        l->calls = p;
        rc = insert(l, p);
        l->calls = NULL;
        pthread_mutex_lock(&p->lock);
        p->stop = 1;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
        pthread_join(thread, NULL);
        rc = rc == SQLITE_OK ? p->rc : rc;
    } else {
        rc = make(ctx, NULL);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    free(p);
    return rc;
}
