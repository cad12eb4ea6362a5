/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"

static const char into_total[] =
    "INSERT INTO stack_total VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET samples = samples + ?3, count = count + ?4,"
    " running = running + ?5, cpu_us = cpu_us + ?6, ns = ns + ?7, running_ns = running_ns + ?8";
static const char into_sums[] =
    "INSERT INTO function_total VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT DO UPDATE SET"
    " self = self + ?3, self_ns = self_ns + ?4, running = running + ?5, running_ns = running_ns + ?6, cpu_us = cpu_us + ?7,"
    " total = total + ?8, total_ns = total_ns + ?9, total_running_ns = total_running_ns + ?10, leaf = leaf + ?11,"
    " leaf_ns = leaf_ns + ?12, leaf_running_ns = leaf_running_ns + ?13";
static const struct {
    const char *sql;
    int values; /* number of leading columns with numbers; the texts follow */
} inserts[QUEUE_TABLES] = {
    [QUEUE_PART] = {"INSERT INTO part(id, frames) VALUES(?1, ?2)", 1},
    [QUEUE_STACK] =
        {"INSERT INTO stack SELECT ?1, ?2, ?3, ?4, name, coalesce(file, module), line, type, ?5 FROM frame WHERE id = ?3",
         4},
    [QUEUE_TOTAL] = {into_total, 8},
    [QUEUE_SUMS] = {into_sums, 13},
    [QUEUE_FUNCTION] =
        {"INSERT INTO function(id, type, firstline, name, file, module) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
         3},
    [QUEUE_FRAME] = {
        "INSERT INTO frame SELECT ?1, ?2, ?3, coalesce(?4, file), type, name, module FROM function WHERE id = ?2",
        3}};

void queue_init(struct queue *q) {
    memset(q, 0, sizeof *q);
    pthread_mutex_init(&q->lock, NULL);
}

static void rows_free(struct queue_rows *r) {
    free(r->rows);
    free(r->text);
}

void queue_end(struct queue *q) {
    for (int k = 0; k < QUEUE_TABLES; k++) {
        sqlite3_finalize(q->insert[k]);
        q->insert[k] = NULL;
    }
    q->db = NULL;
}

void queue_free(struct queue *q) {
    queue_end(q);
    rows_free(&q->waiting);
    rows_free(&q->going);
    pthread_mutex_destroy(&q->lock);
}

void queue_lock(struct queue *q) {
    pthread_mutex_lock(&q->lock);
}

void queue_unlock(struct queue *q) {
    pthread_mutex_unlock(&q->lock);
}

int queue_is_full(struct queue *q) {
    queue_lock(q);
    size_t bytes = q->waiting.n * sizeof *q->waiting.rows + q->waiting.ntext;
    queue_unlock(q);
    return bytes >= QUEUE_MOST;
}

struct queue_row *queue_row(struct queue *q, enum queue_table table, size_t text_max) {
    struct queue_rows *r = &q->waiting;

    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 256;
        void *p = realloc(r->rows, cap * sizeof *r->rows);
        if (!p)
            return NULL;
        r->rows = p;
        r->cap = cap;
    }
    if (r->text_cap - r->ntext < text_max) {
        size_t cap = r->text_cap * 2 + text_max + 4096;
        char *p = realloc(r->text, cap);
        if (!p)
            return NULL;
        r->text = p;
        r->text_cap = cap;
    }
    struct queue_row *at = &r->rows[r->n++];
    *at = (struct queue_row){.table = table, .text = r->ntext};
    return at;
}

char *queue_text(struct queue *q, const struct queue_row *r) {
    return q->waiting.text + r->text;
}

void queue_text_end(struct queue *q, struct queue_row *r, size_t len) {
    r->len = (uint32_t)len;
    q->waiting.ntext += len;
}

/* is_all: inserts it with trace 0, which stands for all traces, in place of its own trace. */
static int insert(sqlite3_stmt *st, const struct queue_row *r, const char *text, int is_all) {
    int column = inserts[r->table].values;

    for (int i = 0; i < column; i++)
        sqlite3_bind_int64(st, i + 1, i || !is_all ? r->v[i] : 0);
    if (r->table == QUEUE_STACK && r->v[3] == r->v[1]) /* it has no Python frame */
        sqlite3_bind_null(st, 4);
    if ((r->table == QUEUE_FUNCTION || r->table == QUEUE_FRAME) && r->v[2] == 0) /* no line */
        sqlite3_bind_null(st, 3);
    if (r->table == QUEUE_PART || r->table == QUEUE_STACK) {
        sqlite3_bind_text(st, column + 1, text, (int)r->len, SQLITE_STATIC);
    } else {
        for (const char *p = text, *end = text + r->len; p < end; p += strlen(p) + 1) {
            column++;
            if (*p || (r->table == QUEUE_FUNCTION && p == text)) /* a name is never NULL */
                sqlite3_bind_text(st, column, p, -1, SQLITE_STATIC);
            else
                sqlite3_bind_null(st, column);
        }
    }
    return sql_done(st);
}

int queue_put(struct queue *q, enum queue_table table, const int64_t *v, size_t n) {
    queue_lock(q);
    struct queue_row *r = queue_row(q, table, 0);
    if (r)
        memcpy(r->v, v, n * sizeof *v);
    queue_unlock(q);
    return r ? 0 : -ENOMEM;
}

static int is_of_another(const struct queue_row *r, uint32_t trace) {
    return (r->table == QUEUE_TOTAL || r->table == QUEUE_SUMS) && r->v[0] != trace;
}

int queue_drain(struct queue *q, sqlite3 *db, uint32_t trace) {
    sqlite3_stmt **st = q->insert;
    struct queue_rows *rows = &q->going, empty = *rows;
    int rc = SQLITE_OK;

    if (db != q->db)
        queue_end(q);
    q->db = db;
    queue_lock(q);
    *rows = q->waiting;
    q->waiting = empty;
    queue_unlock(q);
    for (size_t i = 0; db && rc == SQLITE_OK && i < rows->n; i++) {
        const struct queue_row *r = &rows->rows[i];
        if (is_of_another(r, trace)) {
            rc = queue_put(q, r->table, r->v, QUEUE_VALUES) ? SQLITE_NOMEM : SQLITE_OK;
            continue;
        }
        if (!st[r->table])
            rc = sqlite3_prepare_v3(db, inserts[r->table].sql, -1, SQLITE_PREPARE_PERSISTENT,
                                    &st[r->table], NULL);
        if (rc == SQLITE_OK)
            rc = insert(st[r->table], r, rows->text + r->text,
                        r->table == QUEUE_SUMS && q->only_all);
        if (rc == SQLITE_OK && r->table == QUEUE_SUMS && q->adds_all && !q->only_all) {
            sqlite3_bind_int64(st[r->table], 1, 0);
            rc = sql_done(st[r->table]);
        }
    }
    rows->n = rows->ntext = 0;
    if (rows->cap * sizeof *rows->rows + rows->text_cap > 2 * QUEUE_MOST) {
        rows_free(rows);
        *rows = (struct queue_rows){0};
    }
    return rc;
}
