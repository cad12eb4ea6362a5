/* SPDX-License-Identifier: Apache-2.0 */
#include "clock_rows.h"

#include <stdio.h>
#include <stdlib.h>

#include "bind.h"
#include "output.h"
#include "retime.h"

static int put_knots(sqlite3 *db, const struct align_boot *b, sqlite3_int64 id,
                     sqlite3_stmt *knot) {
    int rc = SQLITE_OK;

    for (size_t k = 0; rc == SQLITE_OK && k < b->map->n; k++) {
        sqlite3_bind_int64(knot, 1, id);
        sqlite3_bind_int64(knot, 2, b->map->a[k].mono);
        sqlite3_bind_int64(knot, 3, b->map->a[k].real);
        rc = sqlite3_step(knot) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
        sqlite3_reset(knot);
    }
    return rc;
}

/* Updates a boot that the database already has by what was learned since. Its rows keep their line, and so do the statements about it; a
 * boot that had only its anchors, and that others are now mapped onto, becomes a line by itself. */
static int go_on(sqlite3 *db, const struct align_boot *b, sqlite3_stmt *knot) {
    static const char shared[] =
        "UPDATE clock_boot SET method = ?2, matches = max(matches, ?5), from_ts = CASE WHEN matches THEN min(from_ts, ?3) ELSE ?3 END,"
        " to_ts = CASE WHEN matches THEN max(to_ts, ?4) ELSE ?4 END, offset_ns = ?8, drift = coalesce(drift, 0.0),"
        " residual_ns = coalesce(residual_ns, 0), uncertainty_ns = coalesce(uncertainty_ns, ?6), reference = reference OR ?7 AND NOT EXISTS"
        " (SELECT 1 FROM clock_boot o WHERE o.\"group\" = clock_boot.\"group\" AND o.reference) WHERE id = ?1";
    static const char anchors[] =
        "UPDATE clock_boot SET method = ?2, from_ts = nullif(?3, ?4), to_ts = nullif(?4, ?3) WHERE id = ?1";
    static const char traces[] =
        "UPDATE trace_file SET clock = ?2, clock_uncertainty_ns = ?6 WHERE clock <> ?2"
        " AND " ALIGN_KEY " = (SELECT boot_id FROM clock_boot WHERE id = ?1)";
    const char *const sql[] = {b->shared ? shared : anchors, b->shared ? traces : NULL};
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < 2 && sql[i]; i++) {
        sqlite3_stmt *st;
        rc = sqlite3_prepare_v2(db, sql[i], -1, &st, NULL);
        if (rc != SQLITE_OK)
            break;
        sqlite3_bind_int64(st, 1, b->known);
        sqlite3_bind_text(st, 2, align_method_name(b->method), -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 3, b->from);
        sqlite3_bind_int64(st, 4, b->to);
        sqlite3_bind_int64(st, 5, (sqlite3_int64)b->matches);
        bind_known(st, 6, b->uncertainty >= 0, (int64_t)b->uncertainty);
        sqlite3_bind_int(st, 7, b->reference);
        sqlite3_bind_int64(st, 8, b->offset);
        sqlite3_step(st);
        rc = sqlite3_finalize(st);
    }
    return rc == SQLITE_OK && !b->shared ? put_knots(db, b, b->known, knot) : rc;
}

/* Returns its name in a sentence; when the beginning of a trace is lost, its machine is not known. */
static const char *name_of(const struct align_boot *b) {
    return *b->host ? b->host : "one without a name";
}

/* Returns the first boot of the largest group (groups are numbered from 1); NULL: no memory. */
static const struct align_boot *of_most(const struct align *a) {
    size_t n = align_boots(a), best = 0;
    size_t *count = calloc(n + 1, sizeof *count);

    for (size_t i = 0; count && i < n; i++)
        if (align_boot(a, i)->group <= n)
            count[align_boot(a, i)->group]++;
    for (size_t i = 1; count && i < n; i++)
        if (align_boot(a, i)->group <= n &&
            count[align_boot(a, i)->group] > count[align_boot(a, best)->group])
            best = i;
    free(count);
    return count && n ? align_boot(a, best) : NULL;
}

/* Reports aligned machines whose times of day are far apart: the times of their group are right relative to each other, but they may all be
 * of a wrong day. */
static void say_wrong(const struct align *a, char *line, size_t size) {
    const struct align_boot *first = NULL;
    size_t n = align_boots(a), wrong = 0;

    for (size_t i = 0; i < n; i++) {
        const struct align_boot *b = align_boot(a, i);
        if (b->method < ALIGN_MESSAGES || llabs(b->offset) < ALIGN_WRONG)
            continue;
        first = first ? first : b;
        wrong++;
    }
    if (wrong)
        snprintf(
            line, size,
            "the time of day of %zu of %zu machines (%.64s%s) is wrong: %.1f days %s that of the others%s. Their traces are"
            " aligned by what they have in common (view clock_alignment)",
            wrong, n, name_of(first), wrong > 1 ? ", ..." : "",
            (double)llabs(first->offset) / 86400e9, first->offset < 0 ? "behind" : "ahead of",
            2 * wrong == n ? ", or these are: the later time was taken" : "");
}

int clock_rows_write(sqlite3 *db, const struct align *a, char *line, size_t size) {
    static const char sql[] = "INSERT INTO clock_boot VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)";
    char names[200] = "";
    unsigned alone = 0;
    size_t n = align_boots(a), used = 0;
    uint64_t id = 0;
    unsigned groups = 0; /* number of groups that the database had */
    const struct align_boot *most = of_most(a);
    sqlite3_stmt *st = NULL, *knot = NULL;
    int rc = n && !most ? SQLITE_NOMEM : retime(db, a);

    if (rc == SQLITE_OK)
        rc =
            sqlite3_prepare_v2(db, "SELECT max(id), max(\"group\") FROM clock_boot", -1, &st, NULL);

    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
        id = (uint64_t)sqlite3_column_int64(st, 0);
        groups = (unsigned)sqlite3_column_int64(st, 1);
    }
    sqlite3_finalize(st);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, "INSERT OR IGNORE INTO clock_knot VALUES(?,?,?)", -1, &knot,
                                NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
        const struct align_boot *b = align_boot(a, i);
        int lines = b->method >= ALIGN_MESSAGES;
        if (b->known) {
            if (b->extended || b->shared)
                rc = go_on(db, b, knot);
            continue;
        }
        sqlite3_bind_int64(st, 1, (sqlite3_int64)++id);
        bind_text(st, 2, b->key);
        bind_text(st, 3, b->host);
        sqlite3_bind_text(st, 4, align_method_name(b->method), -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 5, b->group);
        sqlite3_bind_int(st, 6, b->reference);
        sqlite3_bind_int64(st, 7, (sqlite3_int64)b->matches);
        bind_known(st, 8, lines, b->offset);
        if (lines)
            sqlite3_bind_double(st, 9, b->drift);
        bind_known(st, 10, lines, (int64_t)b->residual);
        bind_known(st, 11, lines && b->uncertainty >= 0, (int64_t)b->uncertainty);
        bind_known(st, 12, b->from != b->to, b->from);
        bind_known(st, 13, b->from != b->to, b->to);
        rc = sqlite3_step(st) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
        sqlite3_reset(st);
        sqlite3_clear_bindings(st);
        if (rc == SQLITE_OK)
            rc = put_knots(db, b, (sqlite3_int64)id, knot);
        if (groups ? b->group <= groups : b->group == most->group)
            continue;
        alone++;
        if (used < sizeof names - 80)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.64s", used ? ", " : "",
                                     name_of(b));
    }
    sqlite3_finalize(st);
    sqlite3_finalize(knot);
    const char *more = used >= sizeof names - 80 ? ", ..." : "";
    *line = 0;
    if (rc == SQLITE_OK && alone && groups)
        snprintf(
            line, size,
            "the clocks of %u added machines (%s%s) cannot be compared with those that were there. Name the traces that are there, too: "
            "they are not converted again, and what they have in common aligns the clocks",
            alone, names, more);
    else if (rc == SQLITE_OK && alone)
        snprintf(
            line, size,
            "the clocks of %u of %zu machines (%s%s) cannot be compared with those of %.64s: no collective or message in common. "
            "Times between them are as good as their own clocks (view clock_alignment)",
            alone, n, names, more, name_of(most));
    else if (rc == SQLITE_OK)
        say_wrong(a, line, size);
    return rc;
}

/* Copies the rows of `st`, in one database, by `to`, in another one. */
static int copy(sqlite3_stmt *st, sqlite3_stmt *to) {
    int rc, n = sqlite3_column_count(st);

    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        for (int i = 0; i < n; i++)
            sqlite3_bind_value(to, i + 1, sqlite3_column_value(st, i));
        rc = sqlite3_step(to);
        sqlite3_reset(to);
        if (rc != SQLITE_DONE)
            break;
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int clock_rows_take(sqlite3 *db, const char *from, const struct align *a) {
    static const char *const sql[][2] = {
        {"SELECT * FROM clock_boot WHERE boot_id = ?1",
         "INSERT OR IGNORE INTO clock_boot VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)"},
        {"SELECT k.* FROM clock_knot k JOIN clock_boot b ON b.id = k.boot WHERE b.boot_id = ?1",
         "INSERT OR IGNORE INTO clock_knot VALUES(?,?,?)"},
    };
    sqlite3 *other = NULL;
    int rc = output_open(from, &other, SQLITE_OPEN_READONLY);

    for (size_t k = 0; rc == SQLITE_OK && k < 2; k++) {
        sqlite3_stmt *st = NULL, *to = NULL;
        rc = sqlite3_prepare_v2(other, sql[k][0], -1, &st, NULL);
        if (rc == SQLITE_OK)
            rc = sqlite3_prepare_v2(db, sql[k][1], -1, &to, NULL);
        for (size_t i = 0; rc == SQLITE_OK && i < align_boots(a); i++) {
            sqlite3_bind_text(st, 1, align_boot(a, i)->key, -1, SQLITE_TRANSIENT);
            rc = copy(st, to);
        }
        sqlite3_finalize(st);
        sqlite3_finalize(to);
    }
    sqlite3_close(other);
    return rc;
}

int clock_rows_map(sqlite3 *db, const char *key, struct clock_map *map) {
    struct clock_map m = {0};
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(
        db,
        "SELECT k.mono, k.utc FROM clock_knot k JOIN clock_boot b ON b.id = k.boot WHERE b.boot_id = ?1",
        -1, &st, NULL);

    sqlite3_bind_text(st, 1, key, -1, SQLITE_TRANSIENT);
    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        if (clock_add(&m, (uint64_t)sqlite3_column_int64(st, 0),
                      (uint64_t)sqlite3_column_int64(st, 1), 0) != 0)
            rc = SQLITE_NOMEM;
    rc = sql_end(st, rc);
    if (rc == SQLITE_OK && m.n == 0)
        rc = SQLITE_NOTFOUND;
    if (rc != SQLITE_OK) {
        clock_free(&m);
        return rc;
    }
    clock_ready(&m);
    clock_free(map);
    *map = m;
    return SQLITE_OK;
}
