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

#define ROW     "(?,?,?,?,?,?,?,?,?,?,?,?,?)"
#define COLUMNS 13

static void bind(sqlite3_stmt *st, unsigned nth, const struct torch_row *r) {
    int i = (int)nth * COLUMNS;

    sqlite3_bind_int64(st, i + 1, r->id);
    sqlite3_bind_int64(st, i + 2, r->ts);
    bind_if(st, i + 3, r->has_duration, r->duration);
    sqlite3_bind_int64(st, i + 4, r->thread);
    sqlite3_bind_int(st, i + 5, r->stage);
    sqlite3_bind_int64(st, i + 6, r->module);
    bind_if(st, i + 7, r->call != 0, r->call);
    bind_if(st, i + 8, r->parent != 0, r->parent);
    sqlite3_bind_int64(st, i + 9, r->depth);
    sqlite3_bind_int64(st, i + 10, r->flags);
    bind_if(st, i + 11, r->has_step, r->step);
    sqlite3_bind_int64(st, i + 12, r->seq);
    bind_if(st, i + 13, r->call_tid != 0, r->call_tid);
}

static int insert(sqlite3_stmt *st, const struct torch_row *r) {
    if (!st)
        return SQLITE_OK;
    bind(st, 0, r);
    return sql_done(st);
}

static int prepare_many(struct torch_rows *t, sqlite3 *db) {
    char sql[64 + TORCH_ROWS_MANY * sizeof "," ROW] = "INSERT INTO torch_call VALUES" ROW;

    for (unsigned i = 1; i < TORCH_ROWS_MANY; i++)
        strcat(sql, "," ROW);
    return sqlite3_prepare_v2(db, sql, -1, &t->insert_many, NULL);
}

int torch_rows_start(struct torch_rows *t, sqlite3 *db, int64_t base, int64_t begun) {
    memset(t, 0, sizeof *t);
    t->base = base;
    t->begun = begun;
    t->first = begun + 1;
    t->wait = malloc(TORCH_ROWS_WAIT * sizeof *t->wait);
    t->rc = t->wait ? SQLITE_OK : SQLITE_NOMEM;
    if (t->rc == SQLITE_OK && db)
        t->rc = sqlite3_prepare_v2(db, "INSERT INTO torch_call VALUES" ROW, -1, &t->insert, NULL);
    if (t->rc == SQLITE_OK && db)
        t->rc = prepare_many(t, db);
    return t->rc;
}

/* A row whose turn it is. */
static void put_next(struct torch_rows *t, const struct torch_row *r) {
    if (!t->insert)
        return;
    t->held[t->nheld++] = *r;
    if (t->nheld < TORCH_ROWS_MANY)
        return;
    for (unsigned i = 0; i < t->nheld; i++)
        bind(t->insert_many, i, &t->held[i]);
    t->nheld = 0;
    t->rc = sql_done(t->insert_many);
}

/* Puts rows up to the first that has not ended, or (all) those too that lie behind it: it is put when it ends. */
static void put_waiting(struct torch_rows *t, int all) {
    for (; t->rc == SQLITE_OK && t->first <= t->begun; t->first++) {
        const struct torch_row *r = at(t, t->first);
        if (r->ended == OPEN && !all)
            return;
        if (r->ended == ENDED)
            put_next(t, r);
    }
}

int64_t torch_rows_begin(struct torch_rows *t) {
    if (t->begun - t->first + 1 >= TORCH_ROWS_WAIT)
        put_waiting(t, 1);
    if (t->rc != SQLITE_OK)
        return 0;
    at(t, ++t->begun)->ended = OPEN;
    return t->base + t->begun;
}

int torch_rows_put(struct torch_rows *t, const struct torch_row *row) {
    int64_t number = row->id - t->base;

    if (t->rc == SQLITE_OK && number < t->first) {
        t->rc = insert(t->insert, row);
    } else if (t->rc == SQLITE_OK) {
        *at(t, number) = *row;
        at(t, number)->ended = ENDED;
        put_waiting(t, 0);
    }
    return t->rc;
}

int torch_rows_leave_out(struct torch_rows *t, int64_t id) {
    int64_t number = id - t->base;

    if (t->rc == SQLITE_OK && number >= t->first) {
        at(t, number)->ended = LEFT_OUT;
        put_waiting(t, 0);
    }
    return t->rc;
}

int torch_rows_end(struct torch_rows *t) {
    put_waiting(t, 1);
    for (unsigned i = 0; i < t->nheld && t->rc == SQLITE_OK; i++)
        t->rc = insert(t->insert, &t->held[i]);
    sqlite3_finalize(t->insert_many);
    sqlite3_finalize(t->insert);
    free(t->wait);
    return t->rc;
}
