/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_rows.h"

#include <stdlib.h>
#include <string.h>

#include "bind.h"

enum { OPEN, ENDED, LEFT_OUT };

static struct torch_row *at(struct torch_rows *t, int64_t number) {
    return &t->wait[number % TORCH_ROWS_WAIT];
}

static void bind_if(sqlite3_stmt *st, int i, int known, int64_t v) {
    if (known)
        sqlite3_bind_int64(st, i, v);
    else
        sqlite3_bind_null(st, i);
}

static int put_row(struct torch_rows *t, const struct torch_row *r) {
    sqlite3_stmt *st = t->insert;

    if (t->pipe)
        return torch_pipe_put(t->pipe, r);
    if (!st)
        return SQLITE_OK;
    sqlite3_bind_int64(st, 1, r->id);
    sqlite3_bind_int64(st, 2, r->ts);
    bind_if(st, 3, r->has_duration, r->duration);
    sqlite3_bind_int64(st, 4, r->thread);
    sqlite3_bind_int(st, 5, r->stage);
    sqlite3_bind_int64(st, 6, r->module);
    bind_if(st, 7, r->call != 0, r->call);
    bind_if(st, 8, r->parent != 0, r->parent);
    sqlite3_bind_int64(st, 9, r->depth);
    sqlite3_bind_int64(st, 10, r->flags);
    bind_if(st, 11, r->has_step, r->step);
    sqlite3_bind_int64(st, 12, r->seq);
    bind_if(st, 13, r->call_tid != 0, r->call_tid);
    return sql_done(st);
}

int torch_rows_start(struct torch_rows *t, sqlite3 *db, struct torch_pipe *pipe, int64_t base,
                     int64_t begun) {
    memset(t, 0, sizeof *t);
    t->pipe = pipe;
    t->base = base;
    t->begun = begun;
    t->first = begun + 1;
    t->has_none = !db && !pipe;
    t->wait = malloc(TORCH_ROWS_WAIT * sizeof *t->wait);
    t->rc = t->wait ? SQLITE_OK : SQLITE_NOMEM;
    if (t->rc == SQLITE_OK && db && !pipe)
        t->rc = sqlite3_prepare_v2(db, "INSERT INTO torch_call VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
                                   -1, &t->insert, NULL);
    return t->rc;
}

/* Puts rows up to the first that has not ended; with `all`, also the rows behind it, so that it is put later, when it ends. */
static void put_waiting(struct torch_rows *t, int all) {
    for (; t->rc == SQLITE_OK && t->first <= t->begun; t->first++) {
        const struct torch_row *r = at(t, t->first);
        if (r->ended == OPEN && !all)
            return;
        if (r->ended == ENDED)
            t->rc = put_row(t, r);
    }
}

int64_t torch_rows_begin(struct torch_rows *t) {
    if (t->has_none)
        return t->base + ++t->begun;
    if (t->begun - t->first + 1 >= TORCH_ROWS_WAIT)
        put_waiting(t, 1);
    if (t->rc != SQLITE_OK)
        return 0;
    at(t, ++t->begun)->ended = OPEN;
    return t->base + t->begun;
}

int torch_rows_put(struct torch_rows *t, const struct torch_row *row) {
    int64_t number = row->id - t->base;

    if (t->has_none)
        return t->rc;
    if (t->rc == SQLITE_OK && number < t->first) {
        t->rc = put_row(t, row);
    } else if (t->rc == SQLITE_OK) {
        *at(t, number) = *row;
        at(t, number)->ended = ENDED;
        put_waiting(t, 0);
    }
    return t->rc;
}

int torch_rows_leave_out(struct torch_rows *t, int64_t id) {
    int64_t number = id - t->base;

    if (t->rc == SQLITE_OK && number >= t->first && !t->has_none) {
        at(t, number)->ended = LEFT_OUT;
        put_waiting(t, 0);
    }
    return t->rc;
}

int torch_rows_end(struct torch_rows *t) {
    if (!t->has_none)
        put_waiting(t, 1);
    sqlite3_finalize(t->insert);
    free(t->wait);
    return t->rc;
}
