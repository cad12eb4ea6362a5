/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_top.c - `probing top`: shows what a recorded process does now, and draws it again every two seconds. It reads the last blocks of the trace;
 * the process is only asked to write out its records. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../converter/when.h"
#include "live_target.h"
#include "open_db.h"
#include "options.h"
#include "rows.h"
#include "screen.h"
#include "top.h"

static const char help[] =
    "usage: probing top [OPTION...] PID|DB|TRACE...\n"
    "       probing -t HOST:PORT top PID [OPTION...]    where `probing serve` runs\n"
    "\n"
    "What a process that is being recorded does now: functions, threads, modules or ranks by the time of\n"
    "the last seconds, with step and loss in the first line. Of a database or a trace: all of it.\n"
    "\n"
    "      --window TIME    of the last 10s (default), 5min, ...\n"
    "      --interval S     draw again every S seconds (2)\n"
    "      --view NAME      begin with functions (default), native, threads, modules or ranks\n"
    "  -n, --count N        print it N times as plain text, without a screen (without a terminal: once)\n"
    "      --json           each time an object: the first line, the seconds, and all views, of each\n"
    "                       the 100 rows that are largest by any column\n"
    "  -h, --help           this text\n"
    "      --version        print the version\n"
    "\n"
    "Keys: f n t m r another view; 1 2 3 sort by that column; p stand still; + - a longer, a shorter\n"
    "window; q ends.\n"
    "\n"
    "Exit code: 0; 1 a damaged trace was read in part, or the process ended; 2 usage; 3 nothing could be\n"
    "read.\n"
    "\n"
    "  probing top 4711\n";

#define COLUMNS 4   /* three numbers and a name */
#define ALL     100 /* for JSON: rows of a view that are kept by each of its columns */

/* The SQL of each view gives three numbers and a name; :wall is the length of the time shown, in seconds. */
static const struct view {
    const char *name;
    char key;
    const char *head[COLUMNS];
    const char *sql;
} views[] = {
    {"functions",
     'f',
     {"%Own", "%Total", "Seconds", "Function (file:line)"},
     "SELECT 100 * python_seconds / :wall, 100 * total_seconds / :wall, python_seconds,"
     " func || CASE WHEN file IS NULL THEN '' ELSE ' (' || file || coalesce(':' || firstline, '') || ')' END"
     " FROM hot_functions WHERE frame_type = 'Python'"},
    {"native",
     'n',
     {"%Own", "%Total", "Seconds", "Function [library]"},
     "SELECT 100 * seconds / :wall, 100 * total_seconds / :wall, seconds,"
     " func || coalesce(' [' || coalesce(module, file) || ']', '')"
     " FROM hot_functions WHERE frame_type <> 'Python'"},
    {"threads",
     't',
     {"%CPU", "%Run", "Samples", "Thread"},
     "SELECT 100 * sum(cpu_seconds) / :wall, 100.0 * sum(running) / max(sum(samples), 1), sum(samples),"
     " name || ' (' || tid || coalesce(', rank ' || rank, '') || ')' FROM threads WHERE samples > 0 GROUP BY thread_id"},
    {"modules",
     'm',
     {"Self s", "Total s", "Calls", "Module"},
     "SELECT sum(self_seconds), sum(seconds), sum(calls), module || ' ' || stage || coalesce(' (' || type || ')', '')"
     " FROM torch_modules GROUP BY module, stage, type"},
    {"ranks",
     'r',
     {"Step s", "Comm s", "Steps", "Rank"},
     "SELECT avg(s.duration), avg(s.communication), count(*), 'rank ' || coalesce(s.rank, '-') || ', process ' || s.pid"
     " || coalesce(', data ' || round(avg(s.data), 3) || ' s', '') FROM steps s JOIN trace_file t ON t.id = s.trace_id"
     " WHERE s.source <> 'evaluation' GROUP BY coalesce(t.program, t.id)"},
};
#define NVIEWS (sizeof views / sizeof *views)

struct top {
    char *const *inputs;
    const struct top_way *way; /* how to ask another machine; NULL: the inputs are on this one */
    int ninputs, live, sort, still, count, json;
    unsigned view;
    double interval;
    int64_t window; /* ns */
    sqlite3 *db;    /* with a way: has the table `shown`, the rows of all views */
    double wall;
    char *head, *answer; /* answer: the JSON that came by the way */
};

/* ---- what is there ---- */

/* Returns the first column of the first row as text, "" when there is none; to be freed. */
static char *ask(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st = NULL;
    char *out = NULL;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW &&
        sqlite3_column_text(st, 0))
        out = strdup((const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return out ? out : strdup("");
}

static char *head_line(struct top *t) {
    static const char sql[] =
        "SELECT coalesce((SELECT command FROM trace ORDER BY rank IS NULL, rank LIMIT 1), '')"
        " || coalesce((SELECT '  step ' || max(step) FROM steps), '')"
        " || coalesce((SELECT '  ' || round(avg(duration), 4) || ' s a step' FROM steps), '')"
        " || coalesce((SELECT '  ' || group_concat(name || '=' || value, '  ') FROM (SELECT name, substr(value, 1, 20) AS value,"
        " max(timestamp) FROM variables GROUP BY name LIMIT 4)), '')"
        " || coalesce((SELECT '  ' || CAST(avg(cpu_percent) AS INT) || ' % CPU' FROM cpu_utilization), '')";
    char *text = ask(t->db, sql), *line = NULL, lost[64] = "",
         *n = ask(t->db, "SELECT sum(lost) FROM trace");

    if (strtod(n, NULL) > 0)
        snprintf(lost, sizeof lost, "  lost %s", n);
    if (asprintf(&line, "%s%s", text, lost) < 0)
        line = NULL;
    free(text);
    free(n);
    return line;
}

/* Puts the answer that came by the way into a database in memory, and sets t->head and t->wall from it. */
static int take_answer(struct top *t, sqlite3 *db) {
    static const char *const sql[] = {
        "CREATE TABLE shown(view, a, b, c, d)",
        "INSERT INTO shown SELECT v.key, json_extract(r.value, '$[0]'), json_extract(r.value, '$[1]'),"
        " json_extract(r.value, '$[2]'), json_extract(r.value, '$[3]')"
        " FROM json_each(?1, '$.views') v, json_each(v.value, '$.rows') r",
        "SELECT json_extract(?1, '$.head'), json_extract(?1, '$.seconds')"};
    sqlite3_stmt *st = NULL;
    int rc = SQLITE_DONE;

    for (int i = 0; i < 3 && rc == SQLITE_DONE; i++) {
        sqlite3_finalize(st);
        st = NULL;
        if ((rc = sqlite3_prepare_v2(db, sql[i], -1, &st, NULL)) != SQLITE_OK)
            break;
        if (i)
            sqlite3_bind_text(st, 1, t->answer, -1, SQLITE_STATIC);
        rc = sqlite3_step(st);
    }
    if (rc == SQLITE_ROW && sqlite3_column_text(st, 0)) {
        free(t->head);
        t->head = strdup((const char *)sqlite3_column_text(st, 0));
        t->wall = sqlite3_column_double(st, 1);
    }
    sqlite3_finalize(st);
    return rc == SQLITE_ROW ? TOOL_OK
                            : tool_fail("the answer cannot be read: %s", sqlite3_errmsg(db));
}

/* Asks by the way and returns its code. If t->answer is NULL then, there was no answer, and `top` ends with that code. */
static int read_from_server(struct top *t) {
    char window[40];
    sqlite3 *db = NULL;

    free(t->answer);
    t->answer = NULL;
    snprintf(window, sizeof window, "%lldns", (long long)t->window);
    int code = t->way->ask(t->way->arg, window, &t->answer);
    if (!t->answer)
        return code;
    int rc =
        sqlite3_open(":memory:", &db) == SQLITE_OK ? take_answer(t, db) : tool_fail("no memory");
    if (rc != TOOL_OK) {
        sqlite3_close(db);
        free(t->answer);
        t->answer = NULL;
        return rc;
    }
    sqlite3_close(t->db);
    t->db = db;
    return code;
}

/* Reads the recording again. Returns TOOL_OK, TOOL_PARTIAL, or the exit code of an error that was reported. */
static int read_again(struct top *t) {
    struct db_part part = {.since.from = WHEN_NOT, .until.from = WHEN_NOT};
    sqlite3 *db;

    if (t->way)
        return read_from_server(t);
    if (t->live)
        part.since = (struct when){.from = WHEN_BEFORE_LAST, .ns = t->window};
    int code = db_open_part(&db, t->inputs, t->ninputs, t->live ? DB_NO_CACHE : 0, &part);
    if (!db)
        return code;
    sqlite3_close(t->db);
    t->db = db;
    char *wall = ask(
        db,
        "SELECT max(m.b) - min(m.a) FROM (SELECT min(timestamp) AS a, max(timestamp + seconds) AS b FROM samples) m");
    t->wall = strtod(wall, NULL);
    free(wall);
    if (!(t->wall > 0))
        t->wall = (double)t->window / 1e9;
    free(t->head);
    t->head = head_line(t);
    return code;
}

/* ---- as a screen, or as text ---- */

static void put_line(struct screen *s, int style, const char *text) {
    if (s) {
        screen_line(s, style, "%s", text);
    } else {
        screen_text(stdout, text, 0);
        putchar('\n');
    }
}

static int cannot_show(const struct top *t, const struct view *v) {
    return tool_fail("cannot show %s: %s", v->name, sqlite3_errmsg(t->db));
}

/* Prepares *st to give a view's rows: the first `rows` by the chosen column or, with `all`, those that are among the first by any column. Returns
 * TOOL_OK, or the exit code of an error that was reported. */
static int begin_rows(struct top *t, const struct view *v, int all, int rows, sqlite3_stmt **st) {
    char *sql = NULL, there[100];
    int n;

    snprintf(there, sizeof there, "SELECT a, b, c, d FROM shown WHERE view = '%s'", v->name);
    const char *from = t->way ? there : v->sql;
    if (all)
        n = asprintf(&sql,
                     "WITH v(a, b, c, d) AS (%s) SELECT a, b, c, d FROM (SELECT *, min(row_number()"
                     " OVER (ORDER BY a DESC), row_number() OVER (ORDER BY b DESC), row_number()"
                     " OVER (ORDER BY c DESC)) AS n FROM v) WHERE n <= %d ORDER BY a DESC",
                     from, rows);
    else
        n = asprintf(&sql, "SELECT * FROM (%s) ORDER BY %d DESC LIMIT %d", from, t->sort + 1, rows);
    if (n < 0)
        return tool_fail("no memory");
    int rc = sqlite3_prepare_v2(t->db, sql, -1, st, NULL);
    free(sql);
    if (rc != SQLITE_OK)
        return cannot_show(t, v);
    int at = sqlite3_bind_parameter_index(*st, ":wall");
    if (at)
        sqlite3_bind_double(*st, at, t->wall);
    return TOOL_OK;
}

/* Shortens a name with its file to "main (.../train.py:6)" if it is longer than `room` bytes: the end of a path tells most. */
static void shorten(char *name, size_t room) {
    size_t n = strlen(name);
    char *path = strstr(name, " (/");

    if (n <= room || !path || name[n - 1] != ')')
        return;
    path += 2;
    size_t before = (size_t)(path - name) + 3; /* bytes of the name before the path, and of "..." */
    const char *rest = name + n - (room > before ? room - before : 0);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        if (slash < rest && strchr(slash + 1, '/'))
            continue;
        if (slash - path > 3) {
            memcpy(path, "...", 3);
            memmove(path + 3, slash, strlen(slash) + 1);
        }
        return;
    }
}

static int draw_rows(struct top *t, struct screen *s, int rows) {
    const struct view *v = &views[t->view];
    char line[4096];
    sqlite3_stmt *st;
    int n = 0, code;

    snprintf(line, sizeof line, "%9s %9s %9s  %s", v->head[0], v->head[1], v->head[2], v->head[3]);
    put_line(s, SCREEN_REVERSE, line);
    if ((code = begin_rows(t, v, 0, rows, &st)) != TOOL_OK)
        return code;
    for (; sqlite3_step(st) == SQLITE_ROW; n++) {
        const char *name = (const char *)sqlite3_column_text(st, 3);
        int used = 0;
        for (int i = 0; i < 3; i++) {
            double x = sqlite3_column_double(st, i);
            used += snprintf(line + used, sizeof line - (size_t)used,
                             sqlite3_column_type(st, i) == SQLITE_INTEGER ? "%9.0f " : "%9.2f ", x);
        }
        snprintf(line + used, sizeof line - (size_t)used, " %s", name ? name : "");
        if (s && screen_columns(s) > used + 1)
            shorten(line + used + 1, (size_t)(screen_columns(s) - used - 1));
        put_line(s, SCREEN_PLAIN, line);
    }
    if (sqlite3_finalize(st) != SQLITE_OK)
        return cannot_show(t, v);
    if (!n)
        put_line(s, SCREEN_DIM,
                 t->view < 3 ? "  no samples yet" : "  nothing of PyTorch was recorded");
    return TOOL_OK;
}

static int print_view(struct top *t, const struct view *v) {
    sqlite3_stmt *st;
    int code = begin_rows(t, v, 1, ALL, &st);

    printf("%s\"%s\": {\"columns\": [", v == views ? "" : ",\n ", v->name);
    for (int i = 0; i < COLUMNS; i++) {
        fputs(i ? ", " : "", stdout);
        rows_json_text(stdout, v->head[i]);
    }
    fputs("], \"rows\": [", stdout);
    for (int n = 0; code == TOOL_OK && sqlite3_step(st) == SQLITE_ROW; n++) {
        const char *name = (const char *)sqlite3_column_text(st, COLUMNS - 1);
        fputs(n ? ", [" : "[", stdout);
        for (int i = 0; i < COLUMNS - 1; i++)
            printf(sqlite3_column_type(st, i) == SQLITE_INTEGER ? "%.0f, " : "%.6f, ",
                   sqlite3_column_double(st, i));
        rows_json_text(stdout, name ? name : "");
        putchar(']');
    }
    fputs("]}", stdout);
    return code == TOOL_OK && sqlite3_finalize(st) != SQLITE_OK ? cannot_show(t, v) : code;
}

static int print_json(struct top *t) {
    int code = TOOL_OK;

    if (t->way) {
        fputs(t->answer, stdout);
        return TOOL_OK;
    }
    fputs("{\"head\": ", stdout);
    rows_json_text(stdout, t->head ? t->head : "");
    printf(", \"seconds\": %.6f, \"views\": {", t->wall);
    for (unsigned i = 0; i < NVIEWS && code == TOOL_OK; i++)
        code = print_view(t, &views[i]);
    puts("}}");
    return code;
}

static int draw(struct top *t, struct screen *s) {
    char clock[32], window[TOOL_TEXT], line[1024];
    time_t now = time(NULL);
    struct tm tm;

    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &tm));
    snprintf(line, sizeof line, "%s  %s: %s%s%s", clock, views[t->view].name,
             t->live ? "last " : "", tool_duration(t->wall, window),
             t->still ? "  (standing still: p)" : "");
    put_line(s, SCREEN_BOLD, t->head ? t->head : "");
    put_line(s, SCREEN_PLAIN, line);
    int code = draw_rows(t, s, s ? screen_rows(s) - 4 : 30);
    if (s) {
        screen_line(
            s, SCREEN_DIM,
            "f functions n native t threads m modules r ranks 1-3 sort p pause +- time q quit");
        screen_show(s);
    }
    return code;
}

/* Returns what a key asks for: 1 draw again, 2 read again, 0 nothing, -1 end. */
static int take_key(struct top *t, int key) {
    for (unsigned i = 0; i < NVIEWS; i++) {
        if (key == views[i].key) {
            t->view = i;
            t->sort = 0;
            return 1;
        }
    }
    if (key >= '1' && key <= '3') {
        t->sort = key - '1';
        return 1;
    }
    if (key == 'p' || key == ' ') {
        t->still = !t->still;
        return 1;
    }
    if (key == SCREEN_REDRAW)
        return 1;
    if ((key == '+' && t->window < 3600000000000ll) || (key == '-' && t->window > 2000000000ll)) {
        t->window = key == '+' ? t->window * 2 : t->window / 2;
        return 2;
    }
    return key < 0 || key == 'q' || key == 'Q' || key == 4 ? -1 : 0;
}

/* code: of the first read. Returns the exit code. */
static int loop(struct top *t, struct screen *s, int code) {
    char trace[LIVE_PATH];
    int what = 1;

    for (int n = 1; what >= 0 && code <= TOOL_PARTIAL; n++) {
        int drawn = t->json ? print_json(t) : draw(t, s);
        if (drawn != TOOL_OK)
            return drawn;
        if ((t->count && n >= t->count) || (!s && !t->count))
            return code;
        double left = t->interval;
        for (what = 0; left > 0 && what == 0;) {
            double from = tool_seconds();
            if (s)
                what = take_key(t, screen_key(s, (int)(left * 1000)));
            else
                usleep((useconds_t)(left * 1e6));
            left -= tool_seconds() - from + 1e-6;
        }
        if (t->live && (what == 2 || (what == 0 && !t->still))) {
            if (!t->way && !live_is_recorded(t->live, trace)) {
                tool_say("process %d has ended, or is no longer recorded", t->live);
                return TOOL_PARTIAL;
            }
            code = read_again(t);
            if (s && code > TOOL_PARTIAL && screen_ended()) { /* Ctrl-C during the read */
                screen_forget(s);
                return TOOL_OK;
            }
            if (t->way && !t->answer)
                return code;
        }
    }
    return code;
}

static int run(struct top *t) {
    struct screen *s = NULL;
    int code = read_again(t); /* before the screen opens, so that errors are printed as usual */

    if (!t->db)
        return code;
    if (!t->count && !t->json)
        screen_open(&s);
    code = loop(t, s, code);
    screen_close(s);
    sqlite3_close(t->db);
    free(t->head);
    free(t->answer);
    return code;
}

static int find_view(const char *option, const char *name, void *view) {
    for (unsigned i = 0; i < NVIEWS; i++) {
        if (strcmp(name, views[i].name) == 0) {
            *(unsigned *)view = i;
            return TOOL_OK;
        }
    }
    return tool_usage("no %s '%s': functions, native, threads, modules or ranks", option, name);
}

static int parse(int argc, char **argv, struct top *t) {
    const struct tool_option options[] = {
        OPTION_CALL("window", 0, option_duration, &t->window),
        OPTION_NUMBER("interval", 0, &t->interval, 0.1, 86400,
                      "the interval must be seconds, from 0.1, not '%s'"),
        OPTION_CALL("view", 0, find_view, &t->view),
        OPTION_FLAG("json", 0, &t->json),
        OPTION_WHOLE("count", 'n', &t->count, 1, 1e9,
                     "the count must be a number from 1, not '%s'"),
        {0}};

    setlocale(LC_CTYPE, "");
    return tool_options(argc, argv, help, options);
}

#define TOP_BEGIN                                                                                  \
    { .window = 10000000000ll, .interval = 2 }

int top_run(int argc, char **argv, const struct top_way *way) {
    struct top t = TOP_BEGIN;
    int rc = parse(argc, argv, &t);

    if (rc != TOOL_OK)
        return rc == TOOL_HELPED ? TOOL_OK : rc;
    if (optind < argc)
        return tool_usage("top takes no argument '%s'", argv[optind]);
    t.way = way;
    t.live = 1;
    return run(&t);
}

int cmd_top(int argc, char **argv) {
    struct top t = TOP_BEGIN;
    int rc = parse(argc, argv, &t);

    if (rc != TOOL_OK)
        return rc;
    t.inputs = argv + optind;
    t.ninputs = argc - optind;
    if (!t.ninputs)
        return tool_usage("a process, a database or a trace is needed");
    const char *name = t.ninputs == 1 ? t.inputs[0] : "";
    t.live = live_pid();
    if (!t.live && *name && !name[strspn(name, "0123456789")] && !db_exists(name))
        t.live = atoi(name);
    return run(&t);
}
