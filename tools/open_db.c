/* SPDX-License-Identifier: Apache-2.0 */
#include "open_db.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../converter/convert.h"
#include "../converter/output.h"
#include "../converter/overlap.h"
#include "../converter/replay.h"
#include "../converter/sql_dialect.h"
#include "../converter/sql_functions.h"
#include "../converter/sql_schemas.h"
#include "../converter/tables.h"
#include "../converter/vtab.h"
#include "attached.h"
#include "cache.h"
#include "common.h"
#include "last_calls.h"
#include "live_inputs.h"
#include "live_target.h"
#include "need.h"
#include "progress.h"
#include "running.h"
#include "target.h"
#include "time_range.h"

#define BUSY_MS 5000
/* Bytes of traces from which on a question with a range of time reads that range only. A database of shorter ones is soon made, and answers the next
 * question, too. */
#define IS_LONG (16 << 20)

int db_is_database(const char *path) {
    char magic[16];
    struct stat st;
    int fd; /* never a FIFO's: only the code that reads it may open it */

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        (fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) < 0)
        return 0;
    ssize_t n = read(fd, magic, sizeof magic);
    close(fd);
    return n == sizeof magic && memcmp(magic, "SQLite format 3", 16) == 0;
}

int db_exists(const char *path) {
    return access(path, F_OK) == 0;
}

static int pragma(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st = NULL;
    int value = 0;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        value = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return value;
}

/* Reports a database of another version. It has its own views and columns, and an older one lacks some that a question may ask for. */
static void say_version(sqlite3 *db, const char *name) {
    int version = pragma(db, "PRAGMA user_version");

    if (pragma(db, "PRAGMA application_id") != OUTPUT_APPLICATION_ID ||
        version == OUTPUT_SCHEMA_VERSION)
        return;
    if (version > OUTPUT_SCHEMA_VERSION)
        tool_say("%s was made by a newer probing-convert: names may differ", name);
    else
        tool_say(
            "%s was made by an older probing-convert (schema %d, not %d): where a name is missing, convert its traces anew",
            name, version, OUTPUT_SCHEMA_VERSION);
}

/* Attaches the file a second time as `python`, for the names of Probing's Python side: python.memory is memory. If the file was moved meanwhile, these
 * names are just missing. */
static void attach_python(sqlite3 *db, const char *path, int flags) {
    char *attach = flags & DB_NO_PYTHON
                       ? NULL
                       : sqlite3_mprintf("ATTACH '%q%q' AS python",
                                         strncmp(path, "file:", 5) == 0 ? "./" : "", path);

    if (attach)
        sqlite3_exec(db, attach, NULL, NULL, NULL);
    sqlite3_free(attach);
}

static int open_file(sqlite3 **out, const char *path, const char *name, int flags) {
    sqlite3 *db = NULL;
    /* SQLITE_OPEN_URI is for the schemas in memory that are attached later. */
    int rc = output_open(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);

    if (rc == SQLITE_OK)
        sqlite3_busy_timeout(db, BUSY_MS); /* another process may be adding to the file */
    /* SQLite reads the file only at the first query: run one, so that errors are found here. */
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "SELECT 1 FROM sqlite_master", NULL, NULL, NULL);
    if (rc != SQLITE_OK) {
        rc = tool_fail("cannot open %s: %s", name, output_why(db));
        sqlite3_close(db);
        return rc;
    }
    say_version(db, name);
    attach_python(db, path, flags);
    *out = db;
    return TOOL_OK;
}

/* ---- traces: into a temporary database ---- */

static int said; /* lines about the traces: they are to be said again with the next question */
static const char
    *kept; /* the cache's database that is being written: the user does not know its name */

static int tick(void *ctx, double part) {
    (void)ctx;
    (void)part;
    return progress_stopped();
}

static void say(void *ctx, const char *file, const char *line) {
    const int *flags = ctx;

    said++;
    if (!(*flags & DB_SAID))
        tool_say("%s: %s", kept && strcmp(file, kept) == 0 ? "traces" : file, line);
}

/* The SQL function attached_nodes(), for the table cluster.nodes: returns the hosts that `probing cluster attach` keeps, as JSON. */
static void attached_nodes(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    struct attached a = {0};
    cJSON *list = cJSON_CreateArray();

    (void)argc, (void)argv;
    attached_read(&a);
    for (size_t i = 0; i < a.n; i++) {
        const char *address = a.v[i].address,
                   *host = strncmp(address, "https://", 8) == 0 ? address + 8 : address;
        char *name = strndup(host, (size_t)(strrchr(host, ':') - host));
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "host", name ? name : host);
        cJSON_AddStringToObject(j, "address", address);
        cJSON_AddItemToArray(list, j);
        free(name);
    }
    char *text = cJSON_PrintUnformatted(list);
    sqlite3_result_text(ctx, text ? text : "[]", -1, SQLITE_TRANSIENT);
    cJSON_free(text);
    cJSON_Delete(list);
    attached_free(&a);
}

/* Adds functions and names that SQLite lacks: those that the SQL `asked` can need; NULL: all. */
static void add_words(sqlite3 *db, const char *asked) {
    sqlite3_exec(db, "PRAGMA query_only = OFF", NULL, NULL,
                 NULL); /* the names are made in memory */
    /* "steps" that is no column is an error, as in other engines: SQLite would take it for a text */
    sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
    sqlite3_create_function_v2(db, "attached_nodes", 0, SQLITE_UTF8, NULL, attached_nodes, NULL,
                               NULL, NULL);
    if (sql_functions_register(db) != SQLITE_OK || replay_register(db) != SQLITE_OK ||
        overlap_register(db) != SQLITE_OK || running_register(db) != SQLITE_OK ||
        sql_schemas_attach(db, asked) != SQLITE_OK)
        tool_say("functions and information_schema are not there: %s", sqlite3_errmsg(db));
    sqlite3_exec(db, "PRAGMA query_only = ON", NULL, NULL, NULL);
}

static int find_kept(const struct inputs *in, const struct db_part *p, uint64_t need,
                     struct cache_name *out) {
    const int64_t how[] = {p->since.from, p->since.ns, p->until.from, p->until.ns, (int64_t)need};

    int whole = p->since.from == WHEN_NOT && p->until.from == WHEN_NOT;

    return cache_find(in, whole, how, sizeof how, out) == 0;
}

/* Converts the traces and opens the result. cached: where the database is kept; NULL: it is temporary. */
static int open_traces(sqlite3 **out, const struct inputs *in, const struct db_part *part,
                       uint64_t need, const struct cache_name *cached, int flags) {
    struct convert_options opt = {.say = say,
                                  .tick = tick,
                                  .ctx = &flags,
                                  .out = cached ? cached->path : NULL,
                                  .names_in = cached ? cached->dir : NULL,
                                  .force = 1,
                                  .need = need,
                                  .since = part->since,
                                  .until = part->until};
    static struct convert_result res; /* static: it holds a large error text */
    struct progress g;

    said = 0;
    kept = opt.out;
    mode_t mask = umask(077);
    progress_begin(&g, PROGRESS_UNDRAWN);
    int rc = convert(in, &opt, &res);
    int stopped_by = progress_stopped();
    progress_end(&g);
    umask(mask);
    if (stopped_by) /* raised again, even if it came too late to stop the conversion: the handler from before gets it */
        raise(stopped_by);
    if (rc < 0 && cached && rc != -ENODATA) /* no space for it, for example: do without */
        return open_traces(out, in, part, need, NULL, flags);
    if (rc == -ENODATA) /* the reason was reported; the database's name would not help the user */
        return tool_fail("nothing could be read");
    if (rc < 0)
        return tool_fail("cannot convert: %s", *res.error ? res.error : strerror(-rc));
    *out = res.db;
    if (cached && (rc = open_file(out, cached->path, cached->path, flags)) != TOOL_OK)
        return rc;
    rc = res.damaged || res.failed ? TOOL_PARTIAL : TOOL_OK;
    struct cache_name now; /* are the inputs still what they were before they were read? */
    int same = cached && find_kept(in, part, need, &now) && strcmp(now.path, cached->path) == 0;
    if (cached && (rc != TOOL_OK || said || !same))
        unlink(cached->path);
    else if (cached)
        cache_kept(cached);
    return rc;
}

/* The memory of an answer comes in huge pages: a page of 4 KB takes a microsecond when it is touched first, and an answer needs thousands of them. It is
 * one heap for all threads, since that of another thread would come in small pages. */
static void use_huge_pages(void) {
    const uintptr_t size = 24 << 20, huge = 2 << 20;

    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    mallopt(M_TOP_PAD, (int)size);
    uintptr_t from = ((uintptr_t)sbrk(0) + huge - 1) / huge * huge;
    /* More than is free, so the heap grows by that and `size`. volatile: the compiler would leave out both calls. */
    void *volatile p = malloc(1 << 20);
    free(p);
    uintptr_t end = (uintptr_t)sbrk(0) / huge * huge;
    if (from < end)
        madvise((void *)from, end - from, MADV_HUGEPAGE);
    mallopt(M_TOP_PAD, 512 << 10);
}

/* Opens a recording that goes on: adds what was recorded since the last question to the database which that left. `when`: the time at which the process
 * was asked to write out its records. */
static int open_live(sqlite3 **out, const struct inputs *in, const struct cache_name *cached,
                     uint64_t need, const char *asked, const struct timespec *when, int flags) {
    struct convert_options opt = {.say = say,
                                  .tick = tick,
                                  .ctx = &flags,
                                  .out = cached->path,
                                  .append = 1,
                                  .cache = 1,
                                  .names_in = cached->dir,
                                  .need = need,
                                  .asked = asked};
    static struct convert_result res;
    struct progress g;
    int is_new = !db_exists(cached->path);

    opt.threads = !is_new; /* starting threads mostly takes longer than what is added */

    use_huge_pages();
    said = 0;
    kept = opt.out;
    mode_t mask = umask(077);
    progress_begin(&g, PROGRESS_UNDRAWN);
    int rc = convert(in, &opt, &res);
    if (rc == -ESTALE || rc == -EPROTONOSUPPORT) {
        opt.append = 0;
        opt.force = 1;
        rc = convert(in, &opt, &res);
    }
    int stopped_by = progress_stopped();
    progress_end(&g);
    umask(mask);
    if (stopped_by) /* raised again, even if it came too late to stop the conversion: the handler from before gets it */
        raise(stopped_by);
    if (rc < 0)
        return rc;
    cache_asked(cached, when);
    if (res.db)
        attach_python(*out = res.db, cached->path, flags);
    else if (open_file(out, cached->path, cached->path, flags) != TOOL_OK)
        return -EIO;
    if (is_new)
        cache_kept(cached);
    if (res.damaged || res.failed || said) /* the next question is to report it again */
        unlink(cached->path);
    return res.damaged || res.failed ? TOOL_PARTIAL : TOOL_OK;
}

/* Opens the database that an earlier question left, if there is one. Returns 1 if one may be kept under the name in *cached. */
static int open_kept(sqlite3 **out, const struct inputs *in, const struct db_part *part,
                     uint64_t need, struct cache_name *cached, int flags) {
    if (flags & DB_NO_CACHE || !find_kept(in, part, need, cached))
        return 0;
    if (cache_take(cached) && db_is_database(cached->path))
        open_file(out, cached->path, cached->path, flags);
    return 1;
}

int db_open(sqlite3 **out, char *const *paths, int n, int flags) {
    const struct db_part all = {.since.from = WHEN_NOT, .until.from = WHEN_NOT};

    return db_open_part(out, paths, n, flags, &all);
}

/* If the only input is a number, puts the trace of the process with that pid in its place. Returns TOOL_OK, or reports an error and returns the exit code. */
static int of_process(char *const **paths, int n) {
    static char trace[LIVE_PATH];
    static char *const live[1] = {trace};
    const char *name = n == 1 ? (*paths)[0] : "";
    int pid, code;

    if (!*name || name[strspn(name, "0123456789")] || db_exists(name))
        return TOOL_OK;
    if ((code = target_pid(name, &pid)) == TOOL_OK && (code = live_trace(pid, trace)) == TOOL_OK)
        *paths = live;
    return code;
}

/* Puts the range of time that the SQL asks for into *part, if it names one and the traces are long. Returns as time_range_of(). */
static int narrow(struct db_part *part, const struct inputs *in) {
    struct stat st;
    off_t bytes = 0;

    if (!part->sql || part->since.from != WHEN_NOT || part->until.from != WHEN_NOT)
        return 0;
    for (size_t i = 0; i < in->n; i++)
        if (stat(in->file[i].path, &st) == 0 && S_ISREG(st.st_mode))
            bytes += st.st_size;
    return bytes >= IS_LONG ? time_range_of(part->sql, &part->since, &part->until) : 0;
}

/* Opens an empty database, for a question that reads nothing of what was recorded. */
static int open_nothing(sqlite3 **out) {
    if (sqlite3_open(":memory:", out) == SQLITE_OK)
        return TOOL_OK;
    sqlite3_close(*out);
    *out = NULL;
    return tool_fail("cannot answer: no memory");
}

/* Opens what `part` asks for; its SQL is in SQLite's dialect by now. With `least`, if the last calls may be enough for the SQL, a live process's
 * database gets no others. */
static int open_part(sqlite3 **out, char *const *paths, int n, int flags,
                     const struct db_part *part, int least) {
    static struct cache_name cached;
    struct inputs in = {0};
    int rc;

    if ((rc = of_process(&paths, n)) != TOOL_OK)
        return rc;
    for (int i = 0; i < n; i++) {
        if (!db_is_database(paths[i]))
            continue;
        if (n > 1)
            return tool_usage(
                "%s is a database: it is asked alone (convert the traces together for one "
                "over all)",
                paths[i]);
        if (part->since.from != WHEN_NOT || part->until.from != WHEN_NOT)
            return tool_usage(
                "%s is a database, and holds all of the time: write it into the SQL, as in "
                "WHERE timestamp > now() - INTERVAL '5 min'",
                paths[i]);
        return open_file(out, paths[i], paths[i], flags);
    }
    const uint64_t left_out =
        (part->alone ? VTAB_NO_GROUPS : 0) | (part->alone && part->python ? VTAB_PYTHON : 0);
    int is_all = part->since.from == WHEN_NOT && part->until.from == WHEN_NOT;
    int live = is_all && !(flags & DB_NO_CACHE) && cache_live(paths, n, 0, &cached) == 0;
    uint64_t need = 0; /* what a first question needs; 0: all */
    if (live && live_pid() && part->sql && !db_exists(cached.path) &&
        (need = cache_number(part->sql, need_of_live))) {
        need &= least || need == NEED_NOTHING ? ~0ull : ~VTAB_LAST_CALLS;
        live = cache_live(paths, n, need, &cached) == 0;
    }
    if (need == NEED_NOTHING) /* for example, only the present stack of the process */
        return open_nothing(out);
    if (live && cache_fresh(&cached) &&
        open_file(out, cached.path, cached.path, flags) == TOOL_OK) {
        if (tables_have_views(*out, part->sql))
            return TOOL_OK;
        sqlite3_close(*out);
        *out = NULL;
    }
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = inputs_add(&in, paths[i], INPUTS_SIBLINGS);
        if (rc < 0)
            rc = tool_fail("cannot open %s: %s", paths[i], inputs_strerror(rc));
    }
    if (rc == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        live_inputs(&in);
        for (size_t i = 0; i < in.n; i++) /* a live trace changes until the next question */
            flags |= in.file[i].recording ? DB_NO_CACHE : 0;
        if (live && flags & DB_NO_CACHE)
            rc = open_live(out, &in, &cached, need, part->sql, &now, flags);
        rc = *out ? rc : 0;
        int usable = open_kept(out, &in, part, need = 0, &cached, flags);
        struct db_part asked = *part;
        int narrowed = *out ? 0 : narrow(&asked, &in);
        if (!*out && part->sql)
            need = usable && is_all && !narrowed && !part->alone
                       ? need_of_traces(part->sql) /* the next question may be about anything */
                       : need_of_part(part->sql);
        need |= need ? left_out : 0;
        while (!*out && rc == 0) {
            if (need || narrowed)
                usable = open_kept(out, &in, &asked, need, &cached, flags);
            if (!*out)
                rc = open_traces(out, &in, &asked, need, usable ? &cached : NULL, flags);
            if (*out && narrowed == TIME_RANGE_CHECK && asked.until.from != WHEN_NOT &&
                !time_range_is_whole(*out, &asked.until)) {
                sqlite3_close(*out);
                *out = NULL;
                asked.until.from = WHEN_NOT;
                flags |= DB_SAID;
                rc = TOOL_OK;
            }
        }
    }
    inputs_free(&in);
    return rc;
}

int db_open_part(sqlite3 **out, char *const *paths, int n, int flags, const struct db_part *part) {
    struct db_part plain = *part;
    char *text = NULL, why[SQL_DIALECT_WHY];

    *out = NULL;
    if (part->sql) /* errors in the SQL are reported when it runs */
        plain.sql = sql_dialect(part->sql, &text, why) == 0 ? text : NULL;
    int rc = open_part(out, paths, n, flags, &plain, 1);
    if (*out && live_pid() && !last_calls_suffice(*out, plain.sql)) {
        sqlite3_close(*out);
        *out = NULL;
        rc = open_part(out, paths, n, flags, &plain, 0);
    }
    if (*out)
        add_words(*out, plain.sql);
    free(text);
    return rc;
}
