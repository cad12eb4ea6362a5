/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_stacks.c - `probing stacks`: shows what every rank did at one time, its stacks merged into one tree. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../converter/bind.h"
#include "../converter/when.h"
#include "db_notes.h"
#include "open_db.h"
#include "options.h"
#include "running.h"
#include "stack_print.h"
#include "stack_tree.h"

#define DEPTH     1024
#define LAST_S    60     /* seconds of traces that are read first: mostly enough for main threads */
#define ROWS_BACK 200000 /* most samples of a trace that are searched for each thread's last one */

static const char help[] =
    "usage: probing stacks [OPTION...] DB|TRACE...|PID\n"
    "\n"
    "What every rank did at one time, all stacks merged into one tree from the outermost frame on,\n"
    "with the ranks on each branch; where it divides, those that few ranks are on come first.\n"
    "\n"
    "      --at TIME        at that time: 'YYYY-MM-DD HH:MM:SS' (UTC), HH:MM:SS of the last day that was\n"
    "                       recorded, seconds since the epoch, +90s after the first record, or -10 (s,\n"
    "                       min, h) before the end. Default: the end of each trace\n"
    "      --trigger N      when trigger N was (view triggers, column trigger_id); last, or a kind such\n"
    "                       as hang: the last one, of that kind\n"
    "      --threads        every thread, by its name; otherwise the main threads\n"
    "      --native         native frames too\n"
    "      --run RUN        of that run only (view runs)\n"
    "      --json           for programs: nested objects {frame, count, ranks, waited, children}\n"
    "      --flat           the same as one list, each with the number of its parent\n"
    "  -h, --help           this text\n"
    "      --version        print the version\n"
    "\n"
    "Processes without a rank are left out where others have one; where none has, the numbers are pids.\n"
    "Exit code: 0; 1 when a damaged trace was read in part, or there are no samples; 2 usage; 3 nothing\n"
    "could be read.\n";

struct stacks {
    sqlite3 *db;
    const char *at, *run;
    const char *trigger;
    int threads, native, json, by_pid; /* json: 1 nested objects, bit 2 a flat list */
    int64_t from_end, until; /* ns: before the end (--at below 0); in UTC; both 0: the end */
    int64_t trigger_ts;
    int is_last; /* only the last minute was read */
    struct stack_tree *tree;
    sqlite3_stmt *sample, *frames;
    unsigned stacks, processes;
    char *text[DEPTH]; /* a stack's frames, innermost first; allocated by malloc() */
};

/* Writes the frames of a stack as texts to s->text[0..n), innermost first. Returns n, -ENOMEM, or -EIO for an error of SQLite. */
static int read_frames(struct stacks *s, int64_t stack) {
    unsigned n = 0;
    int rc;

    sqlite3_reset(s->frames);
    sqlite3_bind_int64(s->frames, 1, stack);
    while ((rc = sqlite3_step(s->frames)) == SQLITE_ROW && n < DEPTH - 1) {
        const char *func = (const char *)sqlite3_column_text(s->frames, 0);
        const char *file = (const char *)sqlite3_column_text(s->frames, 1);
        int is_python = sqlite3_column_int(s->frames, 3) == 0,
            line = sqlite3_column_int(s->frames, 2);
        if (!is_python && !s->native)
            continue;
        free(s->text[n]);
        if (asprintf(&s->text[n], line ? "%s (%s:%d)" : "%s (%s)", func, file ? file : "?", line) <
            0) {
            s->text[n] = NULL;
            return -ENOMEM;
        }
        n++;
    }
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? (int)n : -EIO;
}

/* Adds one thread's stack to the tree. name: the thread's name, its outermost frame; NULL: the tree does not show it. */
static int add_stack(struct stacks *s, int who, const char *name, int64_t stack, double waited) {
    const char *frames[DEPTH];
    int n = read_frames(s, stack), k = 0;

    if (n < 0)
        return n;
    if (name)
        frames[k++] = name;
    for (int i = n; i-- > 0;)
        frames[k++] = s->text[i];
    if (!n) /* as in a process that is about to end */
        frames[k++] = s->native ? "(no frames)" : "(no Python frames: see --native)";
    s->stacks++;
    return stack_tree_add(s->tree, who, frames, (unsigned)k, waited);
}

/* Replaces the digits of a thread's name: "pt_main_thread-3" and "pt_main_thread-7" have one role. */
static void role_of(const char *name, char *role, size_t n) {
    snprintf(role, n, "thread %s", name && *name ? name : "?");
    for (char *p = role; *p; p++) {
        if (*p >= '0' && *p <= '9')
            *p = '#';
    }
}

/* Adds, for each thread that is asked for, its last sample before the time that is asked for. */
static int add_trace(struct stacks *s, int64_t first, int64_t last, int64_t end, int who) {
    int64_t until = s->until ? s->until : end - s->from_end, seen[512];
    unsigned nseen = 0, rows = 0;
    int rc, err = 0;

    sqlite3_reset(s->sample);
    sqlite3_bind_int64(s->sample, 1, first);
    sqlite3_bind_int64(s->sample, 2, last);
    sqlite3_bind_int64(s->sample, 3, until);
    while (!err && (rc = sqlite3_step(s->sample)) == SQLITE_ROW && ++rows < ROWS_BACK) {
        int64_t thread = sqlite3_column_int64(s->sample, 0),
                ts = sqlite3_column_int64(s->sample, 1);
        unsigned i = 0;
        while (i < nseen && seen[i] != thread)
            i++;
        if (i < nseen || nseen == sizeof seen / sizeof *seen)
            continue;
        seen[nseen++] = thread;
        int is_main = sqlite3_column_int(s->sample, 3), running = sqlite3_column_int(s->sample, 5);
        /* A thread that ended more than a second before that time did nothing at that time. */
        int gone = sqlite3_column_type(s->sample, 6) != SQLITE_NULL &&
                   sqlite3_column_int64(s->sample, 6) < (until < end ? until : end) - 1000000000;
        if ((!is_main && !s->threads) || gone)
            continue;
        char role[80];
        role_of((const char *)sqlite3_column_text(s->sample, 4), role, sizeof role);
        err = add_stack(s, who, s->threads ? is_main ? "main thread" : role : NULL,
                        sqlite3_column_int64(s->sample, 2),
                        running ? -1 : (double)(until - ts) / 1e9);
        if (!s->threads)
            break;
    }
    return err || rc == SQLITE_ROW || rc == SQLITE_DONE ? err : -EIO;
}

static int add_trigger(struct stacks *s, int64_t first, int64_t last, int who) {
    sqlite3_stmt *st;
    int err = 0,
        rc = sqlite3_prepare_v2(
            s->db,
            "SELECT s.stack, h.tid = t.pid, h.name, s.flags & 1 FROM sample s JOIN thread h ON h.id = (s.id >> 40 << 40) + s.thread"
            " JOIN trace_file t ON t.id = h.trace WHERE s.count = 0 AND s.ts = ?1 AND s.id BETWEEN ?2 AND ?3"
            " AND NOT EXISTS (SELECT 1 FROM sample o WHERE o.count = 0 AND o.ts = s.ts AND o.thread = s.thread AND +o.id BETWEEN ?2 AND s.id - 1)",
            -1, &st, NULL);
    if (rc != SQLITE_OK)
        return -EIO;
    sqlite3_bind_int64(st, 1, s->trigger_ts);
    sqlite3_bind_int64(st, 2, first);
    sqlite3_bind_int64(st, 3, last);
    while (!err && sqlite3_step(st) == SQLITE_ROW) {
        char role[80];
        int is_main = sqlite3_column_int(st, 1);
        if ((!is_main && !s->threads) || sqlite3_column_type(st, 0) == SQLITE_NULL)
            continue;
        role_of((const char *)sqlite3_column_text(st, 2), role, sizeof role);
        err = add_stack(s, who, s->threads ? is_main ? "main thread" : role : NULL,
                        sqlite3_column_int64(st, 0), -1);
    }
    return sql_end(st, SQLITE_OK) == SQLITE_OK || err ? err : -EIO;
}

/* Finds the trigger and its process's trace. The other processes are shown at the same time. */
static int find_trigger(struct stacks *s, int64_t *trace) {
    char *sql = sqlite3_mprintf(
        "SELECT id >> 40, ts, tick FROM trigger_event WHERE (%d OR id = %Q OR kind = %Q) AND tick"
        " ORDER BY ts DESC LIMIT 1",
        strcmp(s->trigger, "last") == 0, s->trigger, s->trigger);
    sqlite3_stmt *st = NULL;
    int rc = sql ? sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) : SQLITE_NOMEM;

    *trace = 0;
    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
        *trace = sqlite3_column_int64(st, 0);
        s->until = sqlite3_column_int64(st, 1);
        s->trigger_ts = sqlite3_column_int64(st, 2);
    }
    sqlite3_finalize(st);
    sqlite3_free(sql);
    return *trace
               ? TOOL_OK
               : tool_fail(
                     "there is no trigger %s with stacks (probing query: SELECT trigger_id, kind, stacks FROM triggers)",
                     s->trigger);
}

static int collect(struct stacks *s) {
    sqlite3_stmt *st;
    int64_t trace = 0, process = 0;
    unsigned before = 0;
    int code, err = 0, rc = SQLITE_DONE;

    if (s->trigger && (code = find_trigger(s, &trace)) != TOOL_OK)
        return code;
    if (sqlite3_prepare_v2(
            s->db,
            "SELECT h.id, s.ts, s.stack, h.tid = t.pid, h.name, s.flags & 1, CASE WHEN t.program IS NULL THEN h.end_ts ELSE"
            " (SELECT max(o.end_ts) FROM trace_file f JOIN thread o ON o.trace = f.id AND o.tid = h.tid WHERE f.program = t.program) END FROM sample s"
            " CROSS JOIN thread h ON h.id = (s.id >> 40 << 40) + s.thread CROSS JOIN trace_file t ON t.id = h.trace"
            " WHERE s.id BETWEEN ?1 AND ?2 AND s.ts <= ?3 AND s.stack IS NOT NULL ORDER BY s.id DESC",
            -1, &s->sample, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(
            s->db,
            "SELECT f.name, coalesce(r.file, f.file, f.module), r.line, f.type FROM stack_frame k"
            " CROSS JOIN frame r ON r.id = k.frame CROSS JOIN function f ON f.id = r.function"
            " WHERE k.stack = ?1 ORDER BY k.depth",
            -1, &s->frames, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(
            s->db,
            "SELECT id, first_id, last_id, coalesce((SELECT max(o.end_ts) FROM trace_file o WHERE o.program = t.program), end_ts),"
            " rank, pid, (SELECT count(rank) FROM trace_file), coalesce(program, id) FROM trace_file t"
            " WHERE ?1 IS NULL OR run = ?1 ORDER BY rank, 8, coalesce(finish_ts, end_ts) DESC",
            -1, &st, NULL) != SQLITE_OK)
        return tool_fail(
            "cannot read the stacks: %s (was the database made by this version of probing-convert?)",
            sqlite3_errmsg(s->db));
    if (s->run)
        sqlite3_bind_text(st, 1, s->run, -1, SQLITE_STATIC);
    while (!err && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        int has_rank = sqlite3_column_type(st, 4) != SQLITE_NULL;
        int64_t first = sqlite3_column_int64(st, 1), last = sqlite3_column_int64(st, 2);
        s->by_pid = sqlite3_column_int(st, 6) == 0;
        if (!has_rank && !s->by_pid)
            continue;
        int who = sqlite3_column_int(st, s->by_pid ? 5 : 4);
        if (sqlite3_column_int64(st, 7) != process) {
            process = sqlite3_column_int64(st, 7);
            before = s->stacks;
            s->processes++;
        } else if (s->stacks != before) {
            continue; /* an earlier file of a recording in several (rotation) */
        }
        if (trace && sqlite3_column_int64(st, 0) == trace)
            err = add_trigger(s, first, last, who);
        else
            err = add_trace(s, first, last, sqlite3_column_int64(st, 3), who);
    }
    if (rc != SQLITE_DONE && !err)
        err = -EIO;
    code = !err ? TOOL_OK
                : tool_fail("cannot read the stacks: %s",
                            err == -ENOMEM ? "no memory" : sqlite3_errmsg(s->db));
    sqlite3_finalize(st);
    return code;
}

/* Returns an aggregate of all recordings (of the run, if one is given), such as their first time: an SQL expression. 0: there is none. */
static int64_t number_of(struct stacks *s, const char *what) {
    char *sql = sqlite3_mprintf("SELECT %s FROM trace_file WHERE ?1 IS NULL OR run = ?1", what);
    sqlite3_stmt *st = NULL;
    int64_t n = 0;

    if (sql && sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) == SQLITE_OK) {
        sqlite3_bind_text(st, 1, s->run, -1, SQLITE_STATIC);
        n = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    }
    sqlite3_finalize(st);
    sqlite3_free(sql);
    return n;
}

/* Reports that no process has a sample at that time, and which times were recorded. Returns the exit code. */
static int say_nothing(struct stacks *s) {
    char times[2][32] = {"?", "?"};

    if (s->run && !number_of(s, "count(*)"))
        return tool_fail("there is no run %s (view runs lists them)", s->run);
    for (int i = 0; i < 2; i++) {
        time_t t = (time_t)(number_of(s, i ? "max(end_ts)" : "min(start_ts)") / 1000000000);
        struct tm tm;
        strftime(times[i], sizeof times[i], "%Y-%m-%d %H:%M:%S", gmtime_r(&t, &tm));
    }
    tool_say("no samples then: %u process%s recorded from %s to %s", s->processes,
             s->processes == 1 ? " was" : "es were", times[0], times[1]);
    return TOOL_PARTIAL;
}

static int answer(struct stacks *s) {
    const struct stack_node *root = stack_tree_root(s->tree);
    if (!root->nwho)
        return say_nothing(s);
    struct stack_who who = {.by_pid = s->by_pid};
    if (s->json) {
        (s->json & 2 ? stack_print_flat : stack_print_json)(stdout, root, &who);
    } else {
        stack_print(stdout, root, &who);
        if (root->nwho < s->processes)
            tool_say("%u of %u processes have no sample then", s->processes - root->nwho,
                     s->processes);
    }
    return TOOL_OK;
}

/* Returns the time in ns UTC that --at 17:05:12.248 means, a form that answers print: the last one before the recordings end. 0: it is not of this form. */
static int64_t time_of_day(struct stacks *s) {
    const int64_t day = INT64_C(86400000000000);
    int64_t end = number_of(s, "max(end_ts)");
    unsigned h, m;
    double seconds = 0;
    int n = 0, more = 0;

    if (sscanf(s->at, "%2u:%2u%n", &h, &m, &n) < 2)
        return 0;
    if (s->at[n] == ':' && sscanf(s->at + n + 1, "%lf%n", &seconds, &more) == 1)
        n += 1 + more;
    if (s->at[n] || h > 23 || m > 59 || !(seconds >= 0 && seconds < 60))
        return 0;
    int64_t at = (int64_t)(h * 60 + m) * 60000000000 + (int64_t)(seconds * 1e9);
    at += end - end % day;
    return at > end ? at - day : at;
}

/* Puts the time of --at into s->until or s->from_end. Returns TOOL_OK or the exit code. */
static int parse_at(struct stacks *s) {
    struct when w;

    if ((s->until = time_of_day(s)) != 0)
        return TOOL_OK;
    if (when_parse(s->at, &w) != 0)
        return tool_usage(
            "--at '%s': no time: 'YYYY-MM-DD HH:MM:SS' in UTC, HH:MM:SS, seconds since the epoch, "
            "+90s after the first record, -5min before the end",
            s->at);
    if (w.from == WHEN_BEFORE_LAST)
        s->from_end = w.ns;
    else
        s->until = when_utc(&w, number_of(s, "min(start_ts)"), 0);
    return TOOL_OK;
}

/* Opens the inputs. part.sql names what is needed here, and nothing else is read, even of ten thousand traces. For a trigger all is read, as it may have
 * been at any time. */
static int open_stacks(struct stacks *s, char **paths, int n, int flags) {
    struct db_part part = {
        .since.from = WHEN_NOT,
        .until.from = WHEN_NOT,
        .alone = 1,
        .python = !s->native && !s->threads, /* other threads may have no Python frames */
        .sql =
            s->trigger
                ? NULL
                : "SELECT s.ts, s.stack, s.flags, h.tid, h.name, h.end_ts, t.pid, k.depth, r.line, f.name"
                  " FROM sample s, thread h, trace_file t, stack_frame k, frame r, function f"};

    if (s->is_last)
        part.since = (struct when){WHEN_BEFORE_LAST, LAST_S * 1000000000ll + s->from_end};
    return db_open_part(&s->db, paths, n, flags, &part);
}

/* Returns whether the last minute may be enough: the inputs are traces, and only main threads shortly before the end are asked for. */
static int may_be_last(const struct stacks *s, char **paths, int n) {
    for (int i = 0; i < n; i++)
        if (db_is_database(paths[i]) || !paths[i][strspn(paths[i], "0123456789")] ||
            !strcmp(paths[i], "-"))
            return 0;
    return !s->threads && !s->trigger && (!s->at || *s->at == '-') &&
           s->from_end < INT64_C(86400000000000);
}

/* Opens the inputs and makes the tree. Returns TOOL_OK or TOOL_PARTIAL, or reports an error and returns the exit code. */
static int read_all(struct stacks *s, char **paths, int n, int flags) {
    int code = open_stacks(s, paths, n, flags), rc;

    if (!s->db)
        return code;
    s->processes = 0;
    if (!(s->tree = stack_tree_new()))
        return tool_fail("cannot read the stacks: no memory");
    rc = s->at ? parse_at(s) : TOOL_OK;
    if (rc == TOOL_OK)
        rc = collect(s);
    return rc != TOOL_OK ? rc : code;
}

static void close_all(struct stacks *s) {
    stack_tree_free(s->tree);
    sqlite3_finalize(s->sample);
    sqlite3_finalize(s->frames);
    sqlite3_close(s->db);
    s->tree = NULL;
    s->sample = s->frames = NULL;
    s->db = NULL;
}

int cmd_stacks(int argc, char **argv) {
    static struct stacks s;
    const struct tool_option options[] = {
        OPTION_TEXT("at", 0, &s.at),           OPTION_TEXT("trigger", 0, &s.trigger),
        OPTION_FLAG("threads", 0, &s.threads), OPTION_FLAG("native", 0, &s.native),
        OPTION_TEXT("run", 0, &s.run),         OPTION_FLAG("json", 0, &s.json),
        OPTION_BITS("flat", 0, &s.json, 2),    {0}};
    int code = tool_options(argc, argv, help, options);

    if (code != TOOL_OK)
        return code;
    if (s.at && s.trigger)
        return tool_usage("--at or --trigger, not both");
    argv += optind;
    argc -= optind;
    if (argc == 0)
        return tool_usage("a database or a trace is needed");
    struct when before;
    if (s.at && when_parse(s.at, &before) == 0 && before.from == WHEN_BEFORE_LAST)
        s.from_end = before.ns;
    s.is_last = may_be_last(&s, argv, argc);
    code = read_all(&s, argv, argc, 0);
    /* A process without a sample in the last minute may have ended earlier: read all. */
    if (s.is_last && s.tree && stack_tree_root(s.tree)->nwho < s.processes) {
        close_all(&s);
        s.is_last = 0;
        code = read_all(&s, argv, argc, DB_SAID);
    }
    if (code == TOOL_OK || code == TOOL_PARTIAL) {
        if (!s.run)
            db_note_runs(s.db, "choose one by --run (view runs)");
        db_note_clocks(s.db, argv[0]);
        running_note(s.db);
        int rc = answer(&s);
        code = rc != TOOL_OK ? rc : code;
    }
    close_all(&s);
    for (unsigned i = 0; i < DEPTH; i++)
        free(s.text[i]);
    return code;
}
