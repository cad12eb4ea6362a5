/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql.c - runs SQL over the database that was opened: one statement per request, whose rows are streamed as they come.
 *
 * Each request borrows one of a few connections to the database, which can only read (sql_guard.h), and is refused if none becomes free in
 * the time that a query and its answer may take. A progress handler ends the statement when its time is over or its client has gone. A client
 * that does not take its rows by then is disconnected, so that no client can occupy a connection to the database. The first row is fetched
 * before the answer begins, so that an error has a status of its own.
 */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "converter/sql_dialect.h"
#include "converter/sql_heads.h"
#include "converter/sql_select.h"
#include "tools/common.h"
#include "tools/open_db.h"
#include "tools/rows.h"
#include "tools/serve/serve.h"
#include "tools/sql_guard.h"
#include "tools/sql_run.h"

#define POOL    8
#define GRACE   2   /* seconds after the timeout in which the client must have taken the answer */
#define LOOK_MS 100 /* between two looks of one who waits whether its client has gone */
#define STEPS   100000 /* steps of SQLite's virtual machine between two looks: about a millisecond */
#define BLOCK   65536
#define HEAP    (1ll << 30) /* most bytes that SQLite may allocate in this process */

static struct {
    sqlite3 *db[POOL];
    int free[POOL], n, nfree;
    pthread_mutex_t lock;
    pthread_cond_t back;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .back = PTHREAD_COND_INITIALIZER};

struct stream {
    struct request request;
    int conn; /* index in the pool */
    sqlite3_stmt *st;
    double end; /* when its time is over */
    int step;   /* result of the last sqlite3_step() */
    struct rows *rows;
    FILE *out; /* writes into text */
    char *text;
    size_t n, at, cap;
    struct rows_value *v;
};

/* ---- the database ---- */

static int add_connection(sqlite3 *db) {
    sql_guard(db);
    pool.db[pool.n] = db;
    pool.free[pool.nfree++] = pool.n++;
    return TOOL_OK;
}

int serve_sql_open(void) {
    sqlite3 *db;

    if (!serve.nsources)
        return TOOL_OK;
    int code = db_open(&db, serve.sources, serve.nsources, 0), more = TOOL_OK;
    if (!db)
        return code;
    add_connection(db);
    sqlite3_hard_heap_limit64(HEAP);
    /* A temporary database has one connection: its name is removed, and what has that name by now may be anybody's. */
    const char *file = sqlite3_db_filename(db, "main");
    int moved = 1;
    if (!file || !*file ||
        sqlite3_file_control(db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || moved)
        return code;
    char *path[] = {strdup(file)};
    while (path[0] && pool.n < POOL && more == TOOL_OK) {
        more = db_open(&db, path, 1, 0);
        if (db)
            add_connection(db);
    }
    free(path[0]);
    return code;
}

void serve_sql_close(void) {
    for (int i = 0; i < pool.n; i++)
        sqlite3_close(pool.db[i]);
}

/* Waits for a connection for so many seconds, while the client is there. Returns its index, or -1. */
static int take(const struct request *r, double seconds) {
    double end = tool_seconds() + seconds;
    int i = -1;

    pthread_mutex_lock(&pool.lock);
    while (!pool.nfree && tool_seconds() < end && !serve_gone(r)) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_clockwait(&pool.back, &pool.lock, CLOCK_MONOTONIC, &until);
    }
    if (pool.nfree)
        i = pool.free[--pool.nfree];
    pthread_mutex_unlock(&pool.lock);
    return i;
}

static void give_back(int i) {
    pthread_mutex_lock(&pool.lock);
    pool.free[pool.nfree++] = i;
    pthread_cond_signal(&pool.back);
    pthread_mutex_unlock(&pool.lock);
}

/* ---- an answer ---- */

const char *serve_format(const char *name) {
    static const char *const types[][2] = {{"json", "application/json"},
                                           {"csv", "text/csv; charset=utf-8"},
                                           {"arrow", "application/vnd.apache.arrow.stream"}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i][0], name) == 0)
            return types[i][1];
    return NULL;
}

static ssize_t put(void *cookie, const char *p, size_t n) {
    struct stream *s = cookie;

    if (s->n + n > s->cap) {
        size_t cap = (s->n + n) * 2;
        char *more = realloc(s->text, cap);
        if (!more)
            return 0;
        s->text = more;
        s->cap = cap;
    }
    memcpy(s->text + s->n, p, n);
    s->n += n;
    return (ssize_t)n;
}

static void end(void *arg) {
    struct stream *s = arg;

    if (!s)
        return;
    rows_close(s->rows);
    if (s->out)
        fclose(s->out);
    sqlite3_finalize(s->st);
    sqlite3_progress_handler(pool.db[s->conn], 0, NULL, NULL);
    give_back(s->conn);
    free(s->v);
    free(s->text);
    free(s);
}

static int is_over(void *arg) {
    struct stream *s = arg;

    return tool_seconds() > s->end || serve_gone(&s->request);
}

/* Writes rows until the block is full. */
static void fill(struct stream *s) {
    int n = sqlite3_column_count(s->st);

    if (s->at == s->n)
        s->n = s->at = 0;
    while (s->step == SQLITE_ROW && s->n < BLOCK) {
        for (int i = 0; i < n; i++)
            s->v[i] = sql_run_value(s->st, i);
        rows_row(s->rows, s->v);
        fflush(s->out);
        s->step = rows_why(s->rows) ? SQLITE_MISMATCH : sqlite3_step(s->st);
    }
    if (s->step == SQLITE_DONE) {
        rows_end(s->rows);
        fflush(s->out);
        s->step = rows_why(s->rows) ? SQLITE_MISMATCH : SQLITE_OK; /* no more */
    }
    if (ferror(s->out))
        s->step = SQLITE_NOMEM;
}

static ssize_t more(void *arg, uint64_t pos, char *buf, size_t max) {
    struct stream *s = arg;
    (void)pos;
    if (s->at == s->n && (s->step == SQLITE_ROW || s->step == SQLITE_DONE)) {
        fill(s);
        serve_active(&s->request);
    }
    if (s->at == s->n)
        return s->step == SQLITE_OK ? MHD_CONTENT_READER_END_OF_STREAM
                                    : MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = s->n - s->at < max ? s->n - s->at : max;
    memcpy(buf, s->text + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

/* Answers a statement that failed before its answer began, by a status and one line. Frees s. */
static enum MHD_Result failed(struct stream *s, int rc) {
    struct request r = s->request;
    int late = rc == SQLITE_INTERRUPT && tool_seconds() > s->end, denied = rc == SQLITE_AUTH;
    char why[1024];

    snprintf(why, sizeof why, "%s",
             rc == SQLITE_MISMATCH ? rows_why(s->rows) : sqlite3_errmsg(pool.db[s->conn]));
    end(s);
    if (late)
        return serve_error(&r, MHD_HTTP_REQUEST_TIMEOUT, "the query took longer than its timeout");
    if (rc == SQLITE_NOMEM)
        return serve_error(&r, MHD_HTTP_CONTENT_TOO_LARGE,
                           "the query needs more memory than it may have");
    return serve_error(&r, denied ? MHD_HTTP_FORBIDDEN : MHD_HTTP_CONFLICT, "%s", why);
}

/* Prepares the one statement of `sql`. Returns SQLITE_OK, SQLite's error, or -1 after it has answered and freed s. */
static int prepare(struct stream *s, const char *sql, enum MHD_Result *done) {
    char *text = NULL, *plain = NULL, why[SQL_DIALECT_WHY] = "no memory";
    const char *rest = "";
    struct request r = s->request;

    if (sql_dialect(sql, &text, why) != 0 || sql_select(pool.db[s->conn], text, &plain, why) != 0) {
        free(text);
        end(s);
        *done = serve_error(&r, MHD_HTTP_CONFLICT, "%s", why);
        return -1;
    }
    int rc = sqlite3_prepare_v2(pool.db[s->conn], plain ? plain : text, -1, &s->st, &rest);
    rest += strspn(rest, " \t\r\n;");
    int one = s->st && sqlite3_column_count(s->st) > 0 && !*rest;
    free(text);
    free(plain);
    if (rc != SQLITE_OK || one)
        return rc;
    end(s);
    *done = serve_error(&r, MHD_HTTP_CONFLICT, "one statement with an answer is needed");
    return -1;
}

enum MHD_Result serve_sql(const struct request *r) {
    const char *sql = serve_text(r, "sql"), *format = serve_text(r, "format");
    const cJSON *limit = r->body ? cJSON_GetObjectItemCaseSensitive(r->body, "timeout") : NULL;
    const char **names = NULL;
    char *heads = NULL;
    enum MHD_Result done = MHD_NO;

    if (!sql || !*sql)
        return serve_error(r, MHD_HTTP_BAD_REQUEST, "sql, a text, is missing");
    if (r->body && cJSON_GetObjectItemCaseSensitive(r->body, "format") && !format)
        return serve_error(r, MHD_HTTP_BAD_REQUEST, "format must be json, csv or arrow");
    format = format ? format : "json";
    if (!serve_format(format))
        return serve_error(r, MHD_HTTP_BAD_REQUEST, "format must be json, csv or arrow");
    if (limit && (!cJSON_IsNumber(limit) || !(limit->valuedouble > 0)))
        return serve_error(r, MHD_HTTP_BAD_REQUEST, "timeout must be seconds, more than 0");
    double seconds =
        limit && limit->valuedouble < serve.timeout ? limit->valuedouble : serve.timeout;
    const cJSON *live = r->body ? cJSON_GetObjectItemCaseSensitive(r->body, "live") : NULL;
    if (live && !cJSON_IsBool(live))
        return serve_error(r, MHD_HTTP_BAD_REQUEST, "live must be true or false");
    if (!pool.n || cJSON_IsTrue(live))
        return serve_live_query(r, sql, format, seconds);
    int conn = take(r, seconds + GRACE);
    if (conn < 0)
        return serve_error(r, MHD_HTTP_SERVICE_UNAVAILABLE,
                           "as many queries run as may (%d), and none has ended within %.1f s",
                           pool.n, seconds + GRACE);
    struct stream *s = calloc(1, sizeof *s);
    if (!s) {
        give_back(conn);
        return MHD_NO;
    }
    s->request = *r;
    s->request.body = NULL; /* it is freed before rows are streamed */
    s->conn = conn;
    s->end = tool_seconds() + seconds;
    serve_until(r, seconds + GRACE);
    sqlite3_progress_handler(pool.db[s->conn], STEPS, is_over, s);
    int rc = prepare(s, sql, &done);
    if (rc < 0)
        return done;
    if (rc == SQLITE_OK) {
        int n = sqlite3_column_count(s->st);
        s->out = fopencookie(s, "w", (cookie_io_functions_t){.write = put});
        s->v = calloc((size_t)n, sizeof *s->v);
        names = calloc((size_t)n, sizeof *names);
        for (int i = 0; names && i < n; i++) {
            if (!(names[i] = sqlite3_column_name(s->st, i)))
                rc = SQLITE_NOMEM;
        }
        if (rc != SQLITE_OK || !s->out || !s->v || !names ||
            sql_heads(sql, names, n, &heads) != 0 || rows_open(&s->rows, format, s->out) < 0)
            rc = SQLITE_NOMEM;
        else
            s->step = rc = sqlite3_step(s->st);
        if ((rc == SQLITE_ROW || rc == SQLITE_DONE) && rows_begin(s->rows, (unsigned)n, names) == 0)
            rc = SQLITE_OK;
        free(heads);
        free(names);
    }
    if (rc != SQLITE_OK)
        return failed(s, rc);
    fflush(s->out);
    struct MHD_Response *response;
    fill(s);
    if (s->step != SQLITE_OK && s->step != SQLITE_ROW)
        return failed(s, s->step);
    if (s->step == SQLITE_OK) { /* complete: has its length, and the connection is free again */
        response = MHD_create_response_from_buffer(s->n, s->text, MHD_RESPMEM_MUST_COPY);
        end(s);
    } else if (!(response =
                     MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, more, s, end))) {
        end(s);
    }
    return serve_queue(r, MHD_HTTP_OK, serve_format(format), response);
}
