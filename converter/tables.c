/* SPDX-License-Identifier: Apache-2.0 */
#include "tables.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "schema_part.h"

static const char schema[] = {
#include "converter/schema.sql.inc"
    0};

#define AFTER_LOAD "--@ after load"
#define NO_STACKS  "--@ no stacks"

/* Runs the part of the schema between two marks. Returns an SQLite result code. */
static int run_part(sqlite3 *db, const char *from, const char *to) {
    const char *begin = strstr(schema, from), *end = to ? strstr(begin, to) : begin + strlen(begin);
    char *sql = sqlite3_mprintf("%.*s", (int)(end - begin), begin);
    int rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

    sqlite3_free(sql);
    return rc;
}

static struct schema_part
    live_parts; /* of all; a question asks for some of them up to three times */
static int live_rc;

static void find_live_parts(void) {
    const char *after = strstr(schema, AFTER_LOAD), *live = strstr(schema, "--@ not stored"),
               *end = strstr(live, NO_STACKS);

    live_rc = schema_part_add(&live_parts, schema, (size_t)(after - schema));
    if (live_rc == SQLITE_OK)
        live_rc = schema_part_add(&live_parts, live, (size_t)(end - live));
}

/* For a recording that is going on: selects all tables and views, but of `kinds` only those that `sql` can refer to. */
static int live_part(struct schema_part *p, const char *sql, int kinds, int no_stacks) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *others = strstr(schema, NO_STACKS), *end = strstr(others, "--@ clones");

    pthread_once(&once, find_live_parts);
    *p = live_parts;
    /* space as schema_part_add() has it, in powers of two */
    p->v = live_rc == SQLITE_OK ? malloc(2 * live_parts.n * sizeof *p->v) : NULL;
    if (!p->v)
        return SQLITE_NOMEM;
    memcpy(p->v, live_parts.v, p->n * sizeof *p->v);
    int rc = no_stacks ? schema_part_add(p, others, (size_t)(end - others)) : SQLITE_OK;
    if (rc == SQLITE_OK)
        schema_part_want(p, sql, kinds);
    return rc;
}

int tables_make_live(sqlite3 *db, const char *sql) {
    struct schema_part p = {0};
    int rc = live_part(&p, sql, SCHEMA_TABLES | SCHEMA_VIEWS, 0);

    if (rc == SQLITE_OK)
        rc = schema_part_make(&p, db);
    schema_part_free(&p);
    return rc;
}

int tables_have_views(sqlite3 *db, const char *sql) {
    struct schema_part p = {0};
    size_t n = 1;
    int rc = live_part(&p, sql, SCHEMA_VIEWS, 0);

    if (rc == SQLITE_OK)
        rc = schema_part_missing(&p, db, &n);
    schema_part_free(&p);
    return rc == SQLITE_OK && n == 0;
}

int tables_has_name(const char *name) {
    struct schema_part p = {0};
    int has = live_part(&p, NULL, 0, 0) != SQLITE_OK;

    for (size_t i = 0; i < p.n; i++)
        has |= p.v[i].name_len == strlen(name) &&
               sqlite3_strnicmp(p.v[i].name, name, (int)p.v[i].name_len) == 0;
    schema_part_free(&p);
    return has;
}

int tables_make(sqlite3 *db) {
    return run_part(db, schema, AFTER_LOAD);
}

int tables_add_live(sqlite3 *db, const char *sql, int no_stacks, size_t *added) {
    struct schema_part p = {0};
    int rc = live_part(&p, sql, SCHEMA_VIEWS, no_stacks);

    if (rc == SQLITE_OK && added)
        rc = schema_part_missing(&p, db, added);
    if (rc == SQLITE_OK)
        rc = schema_part_make(&p, db);
    schema_part_free(&p);
    return rc;
}

int tables_number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;
    int n = -1;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return n;
}

/* Returns 1 when the planner's statistics still fit this database: its size at that time is stored with them (90_after_load.sql). */
static int is_analyzed(sqlite3 *db) {
    return tables_number(
               db, "SELECT (SELECT sum(bytes) FROM trace_file) <= 1.25 *"
                   " (SELECT CAST(stat AS INTEGER) FROM sqlite_stat1 WHERE tbl = 'bytes')") == 1;
}

/* Returns 1 when a live question's database has rows of the kinds that come with each tick, step or second. Without these, when only sums
 * were wanted, indexes and statistics would take a sixth of the time and be of no use. */
static int has_many(sqlite3 *db) {
    return tables_number(
               db,
               "SELECT EXISTS (SELECT 1 FROM sample) OR EXISTS (SELECT 1 FROM torch_step)"
               " OR EXISTS (SELECT 1 FROM cpu) OR EXISTS (SELECT 1 FROM comm)"
               " OR EXISTS (SELECT 1 FROM event) OR EXISTS (SELECT 1 FROM variable)"
               " OR EXISTS (SELECT 1 FROM gpu) OR EXISTS (SELECT 1 FROM torch_module_total)") != 0;
}

int tables_have_functions(sqlite3 *db) {
    return tables_number(db, "SELECT EXISTS (SELECT 1 FROM function_total WHERE trace = 0)");
}

int tables_forget_functions(sqlite3 *db) {
    return sqlite3_exec(db, "DELETE FROM function_total WHERE trace = 0", NULL, NULL, NULL);
}

int tables_forget_stacks(sqlite3 *db) {
    return sqlite3_exec(
        db, "DELETE FROM stack WHERE id NOT IN (SELECT stack FROM sample WHERE stack IS NOT NULL)",
        NULL, NULL, NULL);
}

/* Returns 1 when view hangs_made may have a row, else 0. The view is not asked when nothing waits, as planning it takes longer than
 * everything else for a short trace. */
static int may_hang(sqlite3 *db) {
    return tables_number(
               db,
               "SELECT EXISTS (SELECT 1 FROM comm WHERE flags & 1)"
               /* only the last collective of each group matters: others came to every later one */
               " OR EXISTS (SELECT 1 FROM (SELECT missing, max(seq) FROM collective"
               " GROUP BY run, attempt, \"group\") WHERE missing IS NOT NULL)"
               " OR EXISTS (SELECT 1 FROM comm WHERE flags & 5 = 4)"
               " OR EXISTS (SELECT 1 FROM comm WHERE flags & 9 = 8)") != 0;
}

int tables_hold_hangs(sqlite3 *db) {
    static const char table[] = "CREATE TABLE hang(";
    const char *columns = strstr(schema, table) + strlen(table);

    if (tables_number(db, "SELECT EXISTS (SELECT 1 FROM main.sqlite_master WHERE type = 'view' AND"
                          " name = 'hangs') AND EXISTS (SELECT 1 FROM main.sqlite_master"
                          " WHERE type = 'view' AND name = 'hang')") != 1)
        return SQLITE_OK;
    char *sql = sqlite3_mprintf("CREATE TEMP TABLE hangs(%.*s)",
                                (int)(strstr(columns, ");") - columns), columns);
    int rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (rc == SQLITE_OK && may_hang(db)) {
        rc = sqlite3_exec(db, "INSERT INTO temp.hangs SELECT * FROM main.hangs", NULL, NULL, NULL);
        if (rc != SQLITE_OK)
            sqlite3_exec(db, "DROP TABLE temp.hangs", NULL, NULL, NULL);
    }
    return rc;
}

/* HAS_RANKS: or attempts */
enum {
    HAS_JOBS = 1,
    HAS_RUNS = 2,
    HAS_RANKS = 4,
    HAS_SEGMENTS = 8,
    HAS_BOOTS = 16,
    HAS_MASTERS = 32
};

/* Returns what the traces have, in one statement as each takes longer to prepare than to run; all of it when that cannot be told. */
static int kinds_of_traces(sqlite3 *db) {
    return tables_number(db, "SELECT (count(job) > 0) + 2 * (min(run) IS NOT max(run))"
                             " + 4 * coalesce(max(attempt OR rank IS NOT NULL), 0)"
                             " + 8 * coalesce(max(end_reason IS 'rotated'), 0)"
                             " + 16 * (min(boot_id) IS NOT max(boot_id))"
                             " + 32 * (min(master) IS NOT max(master)) FROM trace_file");
}

int tables_finish(sqlite3 *db, int adding, int is_cache) {
    static const char is_told
        [] = "SELECT EXISTS (SELECT 1 FROM temp.sqlite_master WHERE name = 'known_place')",
 is_stored[] = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'hang')",
 has_calls[] = "SELECT EXISTS (SELECT 1 FROM torch_step)"
               " OR EXISTS (SELECT 1 FROM torch_module_total)",
 /* joined anew, because a process that is added may have nothing to do with the job but its first run */
        unjoin[] = "UPDATE trace_file SET run = first_run WHERE run IS NOT first_run";
    /* a live question's database stores no view's rows, and takes no place from another */
    int rc = SQLITE_OK, stored = is_cache ? 0 : tables_number(db, is_stored),
        analyzed = adding && is_analyzed(db), is_plain = is_cache && !analyzed && !has_many(db);

    if (adding)
        rc = sqlite3_exec(db, unjoin, NULL, NULL, NULL);
    int kinds = kinds_of_traces(db);
    if (rc == SQLITE_OK && kinds & HAS_SEGMENTS)
        rc = run_part(db, "--@ segments", "--@ functions");
    if (rc == SQLITE_OK && kinds & HAS_BOOTS) {
        rc = run_part(db, "--@ clones", "--@ runs");
        kinds = kinds_of_traces(db);
    }
    if (rc == SQLITE_OK && kinds & HAS_JOBS) {
        rc = run_part(db, "--@ runs", "--@ jobs");
        kinds = kinds_of_traces(db);
    }
    if (rc == SQLITE_OK && kinds & HAS_RUNS) {
        rc = run_part(db, "--@ jobs", "--@ trials");
        kinds = kinds_of_traces(db);
    }
    if (rc == SQLITE_OK && kinds & HAS_RANKS && kinds & (HAS_BOOTS | HAS_MASTERS))
        rc = run_part(db, "--@ trials", "--@ sums");
    if (rc == SQLITE_OK && kinds & HAS_RANKS)
        rc = run_part(db, "--@ sums", "--@ places");
    if (rc == SQLITE_OK && !is_cache && tables_number(db, is_told) == 1)
        rc = run_part(db, "--@ places", "--@ segments");
    if (rc == SQLITE_OK && (!is_cache || tables_have_functions(db) == 0))
        rc = run_part(db, "--@ functions", "--@ modules");
    if (rc == SQLITE_OK && tables_number(db, has_calls) != 0)
        rc = run_part(db, "--@ modules", "--@ indexes");
    if (rc == SQLITE_OK && !is_plain && !(is_cache && analyzed))
        rc = run_part(db, "--@ indexes", "--@ stored");
    if (rc == SQLITE_OK && stored)
        rc = run_part(db, "--@ stored", "--@ hangs");
    if (rc == SQLITE_OK && stored && may_hang(db))
        rc = run_part(db, "--@ hangs", "--@ analyze");
    if (rc == SQLITE_OK && !is_plain && !analyzed)
        rc = run_part(db, "--@ analyze", NULL);
    return rc;
}
