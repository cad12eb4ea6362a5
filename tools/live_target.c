/* SPDX-License-Identifier: Apache-2.0 */
#include "live_target.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../gdbplugin/inspect.h"
#include "../writer/sys.h"
#include "common.h"
#include "host_pid.h"
#include "live_scan.h"

static int asked; /* the process that is asked; 0: none */

int live_pid(void) {
    return asked;
}

/* ---- python.backtrace ---- */

static int is_attached(sqlite3 *db) {
    const char *file = sqlite3_db_filename(db, "python");

    return sqlite3_table_column_metadata(db, "python", "backtrace", "lineno", NULL, NULL, NULL,
                                         NULL, NULL) == SQLITE_OK &&
           file && !*file;
}

/* Attaches the schema `python` in memory, with an empty table backtrace. */
static int attach_python(sqlite3 *db) {
    sqlite3_exec(db, "DETACH python", NULL, NULL, NULL);
    int rc = sqlite3_exec(db,
                          sqlite3_db_readonly(db, "main") == 1
                              ? "ATTACH 'file:python?mode=memory' AS python"
                              : "ATTACH ':memory:' AS python",
                          NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(
            db,
            "CREATE TABLE python.backtrace(timestamp REAL, depth INTEGER, func TEXT, file TEXT,"
            " lineno INTEGER, frame_type TEXT, module TEXT, thread TEXT, tid INTEGER, pid INTEGER)",
            NULL, NULL, NULL);
    return rc;
}

/* Adds to the schema `python` a name for each view of main that the SQL may mean. Planning all views would take seconds where nothing is stored (store.c). */
static int name_views(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(
        db,
        "SELECT printf('CREATE VIRTUAL TABLE IF NOT EXISTS python.\"%w\" USING"
        " probing_name(''SELECT * FROM main.\"%w\"'')', name, name) FROM main.sqlite_master"
        " WHERE type = 'view' AND name <> 'backtrace' AND instr(lower(?), lower(name))",
        -1, &st, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(st, 1, sql, -1, SQLITE_STATIC);
    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        rc = sqlite3_exec(db, (const char *)sqlite3_column_text(st, 0), NULL, NULL, NULL);
    sqlite3_finalize(st);
    return rc;
}

static void bind_text(sqlite3_stmt *st, int i, const cJSON *frame, const char *name,
                      const char *other) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(frame, name));

    if (!text && other)
        text = cJSON_GetStringValue(cJSON_GetObjectItem(frame, other));
    sqlite3_bind_text(st, i, text, -1, SQLITE_TRANSIENT);
}

static int add_frames(sqlite3 *db, const cJSON *thread) {
    const cJSON *frame;
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, "INSERT INTO python.backtrace VALUES(?,?,?,?,?,?,?,?,?,?)", -1,
                                &st, NULL);

    double now = (double)sys_clock(CLOCK_REALTIME) / 1e9;
    cJSON_ArrayForEach(frame, cJSON_GetObjectItem(thread, "frames")) {
        const cJSON *line = cJSON_GetObjectItem(frame, "line");
        if (rc != SQLITE_OK)
            break;
        sqlite3_bind_double(st, 1, now);
        sqlite3_bind_int(st, 2, (int)cJSON_GetNumberValue(cJSON_GetObjectItem(frame, "depth")));
        bind_text(st, 3, frame, "func", NULL);
        bind_text(st, 4, frame, "file", "module");
        if (cJSON_IsNumber(line))
            sqlite3_bind_int(st, 5, line->valueint);
        bind_text(st, 6, frame, "type", NULL);
        bind_text(st, 7, frame, "module", NULL);
        bind_text(st, 8, thread, "name", NULL);
        sqlite3_bind_int(st, 9, (int)cJSON_GetNumberValue(cJSON_GetObjectItem(thread, "tid")));
        sqlite3_bind_int(st, 10, asked);
        rc = sqlite3_step(st) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
        sqlite3_reset(st);
        sqlite3_clear_bindings(st);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Reads the present stack of the main thread. Returns TOOL_OK with *answer to be freed, or reports an error and returns the exit code. */
static int ask_stack(cJSON **answer) {
    struct inspect_stacks want = {.flags = INSPECT_JSON | INSPECT_MAIN};
    char *out = NULL;
    int rc = inspect_backtrace(asked, &want, &out), code = TOOL_OK;

    if (rc < 0)
        code = tool_fail("%s", out ? out : strerror(-rc));
    else if (!(*answer = cJSON_Parse(out)))
        code = tool_fail("cannot read the stack of process %d: no memory", asked);
    inspect_free(out);
    return code;
}

int live_backtrace(sqlite3 *db, const char *sql) {
    int is_there = is_attached(db), has_stack = strcasestr(sql, "backtrace") != NULL;
    cJSON *answer = NULL;
    const cJSON *thread;

    if (!asked || !strcasestr(sql, "python") || (!has_stack && !is_there))
        return TOOL_OK;
    int code = has_stack ? ask_stack(&answer) : TOOL_OK;
    if (code != TOOL_OK)
        return code;
    sqlite3_exec(db, "PRAGMA query_only = OFF", NULL, NULL, NULL);
    int rc = is_there ? SQLITE_OK : attach_python(db);
    if (rc == SQLITE_OK)
        rc = name_views(db, sql);
    if (rc == SQLITE_OK && has_stack)
        rc = sqlite3_exec(db, "DELETE FROM python.backtrace", NULL, NULL, NULL);
    cJSON_ArrayForEach(thread, cJSON_GetObjectItem(answer, "threads")) {
        if (rc == SQLITE_OK)
            rc = add_frames(db, thread);
    }
    sqlite3_exec(db, "PRAGMA query_only = ON", NULL, NULL, NULL);
    cJSON_Delete(answer);
    if (rc != SQLITE_OK)
        code = tool_fail("cannot show the stack of process %d: %s", asked, sqlite3_errmsg(db));
    return code;
}

/* ---- the commands ---- */

struct found {
    int pid;
    char *trace; /* has LIVE_PATH bytes */
};

static int each(const struct live_seen *seen, void *arg) {
    struct found *f = arg;

    if (!seen->l || !*seen->l->trace_path || host_pid(seen->l) != f->pid || !live_seen_alive(seen))
        return 0;
    snprintf(f->trace, LIVE_PATH, "%s", seen->l->trace_path);
    return 1;
}

int live_is_recorded(int pid, char path[LIVE_PATH]) {
    struct found f = {pid, path};

    return live_scan(each, &f) == 1;
}

int live_trace(int pid, char path[LIVE_PATH]) {
    char proc[32];
    struct stat st;

    if (live_is_recorded(pid, path)) {
        asked = pid;
        return TOOL_OK;
    }
    snprintf(proc, sizeof proc, "/proc/%d", pid);
    if (stat(proc, &st) != 0)
        return tool_fail("process %d is not being recorded: there is none (what is: probing list)",
                         pid);
    if (st.st_uid != geteuid()) /* even root does not trust another user's live file */
        return tool_fail(
            "process %d is user %u's: only that user may ask its recording (sudo -u '#%u'; or convert the trace that "
            "probing -t %d status names)",
            pid, (unsigned)st.st_uid, (unsigned)st.st_uid, pid);
    return tool_fail(
        "process %d is not being recorded (begin: probing -t %d inject; what is: probing list)",
        pid, pid);
}

static int run_memory(int argc, char **argv) {
    static char sql[] =
        "SELECT timestamp, step, rss_mb, vms_mb, gpu_mb, gpu_reserved_mb FROM"
        " (SELECT * FROM memory ORDER BY timestamp DESC LIMIT 20) ORDER BY timestamp";
    char *all[16];
    int n = 0;

    if (argc + 3 > (int)(sizeof all / sizeof *all))
        return tool_usage("memory takes the options of query (--json, --csv), and no more");
    for (; n < argc; n++)
        all[n] = argv[n];
    all[n++] = sql;
    all[n] = NULL;
    return cmd_query(n, all);
}

static const struct {
    const char *word, *name; /* name: the program's name in messages */
    int (*run)(int argc, char **argv);
} commands[] = {{"query", "probing-query", cmd_query},
                {"memory", "probing-query", run_memory},
                {"top", "probing-top", cmd_top},
                {"flamegraph", "probing-flamegraph", cmd_flamegraph}};
#define NCOMMANDS (sizeof commands / sizeof *commands)

int live_is_command(const char *word) {
    for (size_t i = 0; i < NCOMMANDS; i++) {
        if (strcmp(word, commands[i].word) == 0)
            return 1;
    }
    return 0;
}

int live_command(int pid, const char *word, int argc, char **argv) {
    static char trace[LIVE_PATH];
    size_t i = 0;

    while (strcmp(word, commands[i].word) != 0)
        i++;
    int code = live_trace(pid, trace);
    if (code != TOOL_OK)
        return code;
    /* The trace comes first, so that SQL stays the last word. */
    char **all = calloc((size_t)argc + 2, sizeof *all);
    if (!all)
        return tool_fail("cannot start: no memory");
    tool_name = all[0] = (char *)(uintptr_t)commands[i].name;
    all[1] = trace;
    memcpy(all + 2, argv + 1, (size_t)(argc - 1) * sizeof *all);
    code = commands[i].run(argc + 1, all);
    free(all);
    return code;
}
