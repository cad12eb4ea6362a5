/* SPDX-License-Identifier: Apache-2.0 */
#include "open_db.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../converter/convert.h"
#include "../converter/output.h"
#include "common.h"
#include "live_inputs.h"

int db_is_database(const char *path) {
    char magic[16];
    struct stat st;
    int fd; /* a FIFO is opened once, by who reads it */

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        (fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) < 0)
        return 0;
    ssize_t n = read(fd, magic, sizeof magic);
    close(fd);
    return n == sizeof magic && memcmp(magic, "SQLite format 3", 16) == 0;
}

static int pragma(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st = NULL;
    int value = 0;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        value = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return value;
}

static int is_newer(sqlite3 *db) {
    return pragma(db, "PRAGMA application_id") == OUTPUT_APPLICATION_ID &&
           pragma(db, "PRAGMA user_version") > OUTPUT_SCHEMA_VERSION;
}

static int open_file(sqlite3 **out, const char *path, const char *name) {
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);

    /* The file is first touched by the first query: ask one, so that what is wrong is found here. */
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "SELECT 1 FROM sqlite_master", NULL, NULL, NULL);
    if (rc != SQLITE_OK) {
        rc = tool_fail("cannot open %s: %s", name, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
        sqlite3_close(db);
        return rc;
    }
    if (is_newer(db))
        tool_say("%s was made by a newer probing-convert: names may differ", name);
    /* The names of Probing's Python side: python.memory is memory. A file that moves away meanwhile merely has none. */
    char *attach = sqlite3_mprintf("ATTACH %Q AS python", path);
    if (attach)
        sqlite3_exec(db, attach, NULL, NULL, NULL);
    sqlite3_free(attach);
    *out = db;
    return TOOL_OK;
}

/* ---- traces: into a temporary database ---- */

static volatile sig_atomic_t stopped_by;

static void stop(int sig) {
    stopped_by = sig;
}

static int tick(void *ctx, double part) {
    (void)ctx;
    (void)part;
    return stopped_by;
}

static void say(void *ctx, const char *file, const char *line) {
    (void)ctx;
    tool_say("%s: %s", file, line);
}

static int open_traces(sqlite3 **out, const struct inputs *in) {
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM};
    struct convert_options opt = {.say = say, .tick = tick};
    static struct convert_result res; /* a large error text */
    struct sigaction sa = {.sa_handler = stop}, old[3];

    stopped_by = 0;
    for (int i = 0; i < 3; i++) {
        sigaction(signals[i], NULL, &old[i]);
        if (old[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &sa, NULL);
    }
    int rc = convert(in, &opt, &res);
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &old[i], NULL);
    if (rc == -EINTR && stopped_by)
        raise(stopped_by);
    if (rc < 0)
        return tool_fail("cannot convert: %s", *res.error ? res.error : strerror(-rc));
    *out = res.db;
    return res.damaged || res.failed ? TOOL_PARTIAL : TOOL_OK;
}

void db_note_runs(sqlite3 *db, const char *advice) {
    int runs = pragma(db, "SELECT count(DISTINCT run) FROM trace_file");

    if (runs > 1)
        tool_say("this is over %d runs: %s", runs, advice);
}

int db_open(sqlite3 **out, char *const *paths, int n) {
    struct inputs in = {0};
    int rc = 0;

    *out = NULL;
    for (int i = 0; i < n; i++) {
        if (!db_is_database(paths[i]))
            continue;
        if (n > 1)
            return tool_usage(
                "%s is a database: it is asked alone (convert the traces together for one "
                "over all)",
                paths[i]);
        return open_file(out, paths[i], paths[i]);
    }
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = inputs_add(&in, paths[i], INPUTS_SIBLINGS);
        if (rc < 0)
            rc = tool_fail("cannot open %s: %s", paths[i],
                           rc == -ENODATA ? "no trace (*.zst) in this directory" : strerror(-rc));
    }
    if (rc == 0) {
        live_inputs(&in);
        rc = open_traces(out, &in);
    }
    inputs_free(&in);
    return rc;
}
