/* SPDX-License-Identifier: Apache-2.0 */
/* export.c - the table of formats, and the choice of what is exported. */
#include "export.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../common.h"

#define LOOK 4096 /* rows between two looks at signals and the clock */

#define EXPORT_FORMAT(name) &export_##name,
const struct export_format *const export_formats[] = {
#include "formats.def"
    NULL};
#undef EXPORT_FORMAT

const struct export_format *export_format_of(const char *name) {
    for (size_t i = 0; export_formats[i]; i++) {
        if (strcmp(export_formats[i]->name, name) == 0)
            return export_formats[i];
    }
    return NULL;
}

const struct export_format *export_format_by_suffix(const char *path) {
    const struct export_format *found = NULL;
    size_t n = strlen(path), longest = 0; /* x.speedscope.json also ends with .json */

    for (size_t i = 0; export_formats[i]; i++) {
        const char *suffix = export_formats[i]->suffix;
        size_t k = suffix ? strlen(suffix) : 0;
        if (k > longest && n > k && strcmp(path + n - k, suffix) == 0) {
            found = export_formats[i];
            longest = k;
        }
    }
    return found;
}

/* ---- SQL ---- */

int export_wrong(struct export *x, int rc, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(x->why, sizeof x->why, fmt, ap);
    va_end(ap);
    return rc;
}

static int sql_error(struct export *x, int rc) {
    if (rc == SQLITE_NOMEM)
        return -ENOMEM;
    return export_wrong(x, -EIO, "%s (is it a database made by probing-convert?)",
                        sqlite3_errmsg(x->db));
}

static void bind(sqlite3_stmt *st, const char *name, int64_t value) {
    int i = sqlite3_bind_parameter_index(st, name);

    if (i)
        sqlite3_bind_int64(st, i, value);
}

int export_prepare(struct export *x, const char *sql, sqlite3_stmt **out) {
    int rc = sqlite3_prepare_v2(x->db, sql, -1, out, NULL);

    if (rc != SQLITE_OK)
        return sql_error(x, rc);
    bind(*out, ":from", x->from);
    bind(*out, ":to", x->to);
    bind(*out, ":cpu", x->cpu);
    if (x->only)
        bind(*out, ":only", x->only->id);
    return 0;
}

int export_step(struct export *x, sqlite3_stmt *st) {
    char count[TOOL_TEXT];
    int rc;

    if (++x->rows % LOOK == 0) {
        if (progress_stopped())
            return -EINTR;
        if (ferror(x->out)) /* the reader is gone or the disk is full: the opener reports it */
            return -EPIPE;
        if (progress_due(&x->progress))
            progress_draw(&x->progress, "%s rows", tool_count(x->rows, count));
    }
    rc = sqlite3_step(st);
    return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : sql_error(x, rc);
}

const char *export_text(sqlite3_stmt *st, int column) {
    const char *text = (const char *)sqlite3_column_text(st, column);
    return text ? text : "";
}

/* ---- who ---- */

/* Returns a list such as "0,3-5" as SQL: "f.rank BETWEEN 0 AND 0 OR f.rank BETWEEN 3 AND 5". NULL: it is no list (*bad 1), or no memory (*bad 0). */
static char *ranks_sql(const char *list, int *bad) {
    sqlite3_str *sql = sqlite3_str_new(NULL);
    const char *p = list;

    *bad = 0;
    do {
        unsigned lo, hi;
        int n = 0, m = 0;
        if (*p < '0' || *p > '9' || sscanf(p, "%9u%n", &lo, &n) != 1)
            *bad = 1;
        p += n;
        hi = lo = *bad ? 0 : lo;
        if (!*bad && *p == '-') {
            *bad = p[1] < '0' || p[1] > '9' || sscanf(p + 1, "%9u%n", &hi, &m) != 1 || hi < lo;
            p += 1 + m;
        }
        sqlite3_str_appendf(sql, "%sf.rank BETWEEN %u AND %u",
                            p == list || !sqlite3_str_length(sql) ? "" : " OR ", lo, hi);
    } while (!*bad && *p++ == ',');
    if (!*bad && p[-1])
        *bad = 1;
    char *text = sqlite3_str_finish(sql);
    if (*bad) {
        sqlite3_free(text);
        text = NULL;
    }
    return text;
}

static int choose(struct export *x, const struct export_choice *choice) {
    char *ranks = NULL, *sql = NULL, *error = NULL;
    int bad = 0, rc = 0;

    if (choice->ranks && !(ranks = ranks_sql(choice->ranks, &bad)))
        return bad ? export_wrong(x, -EINVAL, "--ranks %s: write numbers as 0,3 or 0-7",
                                  choice->ranks)
                   : -ENOMEM;
    /* Allows the temporary table; the file itself is open read-only. */
    sql = sqlite3_mprintf(
        "PRAGMA query_only = OFF; PRAGMA cache_size = -65536;"
        "CREATE TEMP TABLE export_trace(process INTEGER, id INTEGER, PRIMARY KEY(process, id)) WITHOUT ROWID;"
        "INSERT INTO export_trace SELECT coalesce(o.program, o.id), o.id FROM trace_file o WHERE coalesce(o.program, o.id) IN ("
        "SELECT coalesce(f.program, f.id) FROM trace_file f WHERE (%s) AND (%Q IS NULL OR f.run = %Q)"
        " AND (%lld < 0 OR f.pid = %lld));"
        /* As in view threads. The numbers of a process's threads follow each other, wherever the rows lie. */
        "CREATE TEMP TABLE export_thread(id INTEGER PRIMARY KEY, thread INTEGER, process INTEGER, tid INTEGER, name TEXT, place INTEGER);"
        "INSERT INTO export_thread SELECT id, (program << 40) + dense_rank() OVER (PARTITION BY program ORDER BY first), program, tid, name, place"
        " FROM (SELECT *, min(id) OVER (PARTITION BY program, tid, nth) AS first"
        " FROM (SELECT *, sum(is_new) OVER (PARTITION BY program, tid ORDER BY place) AS nth FROM thread_files)"
        " WHERE program IN (SELECT process FROM temp.export_trace))",
        ranks ? ranks : "1", choice->run, choice->run, (long long)choice->pid,
        (long long)choice->pid);
    if (!sql)
        rc = -ENOMEM;
    else if (sqlite3_exec(x->db, sql, NULL, NULL, &error) != SQLITE_OK)
        rc = sql_error(x, SQLITE_ERROR);
    sqlite3_free(error);
    sqlite3_free(sql);
    sqlite3_free(ranks);
    return rc;
}

static const char *copy(sqlite3_stmt *st, int column, int *rc) {
    char *text = strdup(export_text(st, column));

    if (!text)
        *rc = -ENOMEM;
    return text;
}

/* Adds an element of `size` bytes, all zero, to an array. Returns it; NULL: no memory. */
static void *one_more(void **array, size_t *n, size_t size) {
    if ((*n & (*n - 1)) == 0) {
        void *more = realloc(*array, (*n ? *n * 2 : 1) * size);
        if (!more)
            return NULL;
        *array = more;
    }
    return memset((char *)*array + (*n)++ * size, 0, size);
}

static int64_t number(sqlite3_stmt *st, int column, int64_t null) {
    return sqlite3_column_type(st, column) == SQLITE_NULL ? null : sqlite3_column_int64(st, column);
}

static int find_processes(struct export *x) {
    sqlite3_stmt *st = NULL;
    int rc = export_prepare(
        x,
        "SELECT e.process, max(t.pid), max(t.rank), max(t.world_size), max(t.host), max(t.command), max(t.role), max(t.run),"
        " min(t.start_ts), max(t.end_ts),"
        " CASE WHEN t.program IS NULL THEN t.period_ns ELSE ("
        "SELECT o.period_ns FROM trace_file o WHERE o.program = t.program ORDER BY coalesce(o.finish_ts, o.end_ts) DESC LIMIT 1) END"
        " FROM temp.export_trace e JOIN trace_file t ON t.id = e.id GROUP BY e.process ORDER BY e.process",
        &st);

    while (rc == 0 && (rc = export_step(x, st)) > 0) {
        struct export_process *p =
            one_more((void **)&x->process, &x->nprocesses, sizeof *x->process);
        if (!p) {
            rc = -ENOMEM;
            break;
        }
        rc = 0;
        p->id = sqlite3_column_int64(st, 0);
        p->pid = sqlite3_column_int64(st, 1);
        p->rank = number(st, 2, -1);
        p->world_size = number(st, 3, -1);
        p->host = copy(st, 4, &rc);
        p->command = copy(st, 5, &rc);
        p->role = copy(st, 6, &rc);
        p->run = copy(st, 7, &rc);
        p->start = number(st, 8, 0);
        p->end = number(st, 9, p->start);
        p->start = p->start < x->from ? x->from : p->start;
        p->end = p->end > x->to ? x->to : p->end;
        p->end = p->end < p->start ? p->start : p->end;
        p->period = number(st, 10, 0);
        if (x->nprocesses == 1 || p->start < x->first)
            x->first = p->start;
        if (x->nprocesses == 1 || p->end > x->last)
            x->last = p->end;
    }
    sqlite3_finalize(st);
    st = NULL;
    if (rc == 0 &&
        (rc = export_prepare(
             x, "SELECT count(*) > (SELECT count(*) FROM temp.export_trace) FROM trace_file",
             &st)) == 0 &&
        (rc = export_step(x, st)) > 0) {
        x->part_of_ranks = sqlite3_column_int(st, 0);
        rc = 0;
    }
    sqlite3_finalize(st);
    return rc;
}

static int find_threads(struct export *x) {
    sqlite3_stmt *st = NULL;
    int rc = export_prepare(
        x,
        "SELECT h.id, h.trace, h.tid, h.name FROM temp.export_trace e CROSS JOIN thread h ON h.trace = e.id"
        " WHERE (SELECT t.program FROM trace_file t WHERE t.id = e.id) IS NULL UNION ALL"
        " SELECT thread, process, tid, substr(max(printf('%09d', place) || name), 10) FROM temp.export_thread GROUP BY thread ORDER BY 1",
        &st);

    while (rc == 0 && (rc = export_step(x, st)) > 0) {
        struct export_thread *t = one_more((void **)&x->thread, &x->nthreads, sizeof *x->thread);
        if (!t) {
            rc = -ENOMEM;
            break;
        }
        rc = 0;
        t->id = sqlite3_column_int64(st, 0);
        t->process = export_process(x, sqlite3_column_int64(st, 1));
        t->tid = sqlite3_column_int64(st, 2);
        t->name = copy(st, 3, &rc);
        t->is_main = t->process && t->tid == t->process->pid;
    }
    sqlite3_finalize(st);
    return rc;
}

int export_begin(struct export *x, const struct export_choice *choice) {
    int rc = choose(x, choice);

    if (rc == 0)
        rc = find_processes(x);
    return rc == 0 ? find_threads(x) : rc;
}

void export_end(struct export *x) {
    for (size_t i = 0; i < x->nprocesses; i++) {
        free((char *)x->process[i].host);
        free((char *)x->process[i].command);
        free((char *)x->process[i].role);
        free((char *)x->process[i].run);
    }
    for (size_t i = 0; i < x->nthreads; i++)
        free((char *)x->thread[i].name);
    free(x->process);
    free(x->thread);
}

/* Compares a number with the id that processes and threads begin with. */
static int by_id(const void *key, const void *item) {
    int64_t a = *(const int64_t *)key, b = *(const int64_t *)item;
    return a < b ? -1 : a > b;
}

const struct export_process *export_process(const struct export *x, int64_t id) {
    return x->process ? bsearch(&id, x->process, x->nprocesses, sizeof *x->process, by_id) : NULL;
}

const struct export_thread *export_thread(const struct export *x, int64_t id) {
    return x->thread ? bsearch(&id, x->thread, x->nthreads, sizeof *x->thread, by_id) : NULL;
}

/* ---- names ---- */

const char *export_process_name(const struct export_process *p, char *buf, size_t n) {
    const char *command = p->command + strcspn(p->command, " ");
    char rank[40] = "";

    while (command > p->command && command[-1] != '/') /* without the interpreter's folder */
        command--;
    if (p->rank >= 0)
        snprintf(rank, sizeof rank, "rank %lld: ", (long long)p->rank);
    snprintf(buf, n, "%s%.200s (pid %lld on %.100s)", rank, command, (long long)p->pid, p->host);
    return buf;
}

const char *export_thread_name(const struct export_thread *t, char *buf, size_t n) {
    if (t->is_main)
        snprintf(buf, n, "main thread");
    else if (*t->name)
        snprintf(buf, n, "thread %s", t->name);
    else
        snprintf(buf, n, "thread %lld", (long long)t->tid);
    return buf;
}
