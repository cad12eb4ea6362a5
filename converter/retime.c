/* SPDX-License-Identifier: Apache-2.0 */
#include "retime.h"

#include <string.h>

#include "bind.h"

/* SQL function probing_retime(ns UTC). NULL, and the value that stands for "always", stay as they are. */
static void new_time(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    struct align_move *m = sqlite3_user_data(ctx);

    (void)argc;
    if (sqlite3_value_type(argv[0]) != SQLITE_INTEGER)
        return;
    sqlite3_int64 t = sqlite3_value_int64(argv[0]);
    sqlite3_result_int64(ctx, t == INT64_MIN ? t : clock_utc(&m->map, (uint64_t)t));
}

/* Changes, by generated statements, the time columns of all tables whose rows belong to a trace. */
static int change_rows(sqlite3 *db, const struct align_move *m) {
    static const char tables[] =
        "SELECT t.name, group_concat('\"' || c.name || '\" = probing_retime(\"' || c.name || '\")', ', '),"
        " (SELECT CASE WHEN sum(k.name = 'trace') THEN 'trace' WHEN t.name = 'trace_file' THEN 'id' WHEN sum(k.name = 'id') THEN 'id >> 40'"
        "   WHEN sum(k.name = 'thread') THEN 'thread >> 40' END FROM pragma_table_info(t.name) k) AS whose"
        " FROM sqlite_master t, pragma_table_info(t.name) c"
        " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name NOT LIKE 'clock%' AND"
        " c.name IN ('ts', 'start_ts', 'end_ts', 'process_ts', 'finish_ts', 'unload_ts', 'since', 'tick', 'told')"
        " GROUP BY t.name HAVING whose IS NOT NULL";
    sqlite3_stmt *st;
    char *all = sqlite3_mprintf(
        "CREATE TEMP TABLE moving AS SELECT id FROM trace_file WHERE clock_group = %u;", m->from);
    int rc = sqlite3_exec(db, all, NULL, NULL, NULL);

    sqlite3_free(all);
    all = NULL;
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, tables, -1, &st, NULL);
    if (rc != SQLITE_OK)
        return rc;
    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
        char *more = sqlite3_mprintf("%z UPDATE main.\"%w\" SET %s WHERE %s IN moving;", all,
                                     sqlite3_column_text(st, 0), sqlite3_column_text(st, 1),
                                     sqlite3_column_text(st, 2));
        all = more;
        rc = more ? SQLITE_OK : SQLITE_NOMEM;
    }
    rc = sql_end(st, rc);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, all, NULL, NULL, NULL);
    sqlite3_free(all);
    return rc;
}

/* Changes the knots of one boot. */
static int change_knots(sqlite3 *db, struct align_move *m, sqlite3_int64 boot) {
    struct clock_map was = {0}, now = {0};
    sqlite3_stmt *st;
    int err = 0, rc = sqlite3_prepare_v2(db, "SELECT mono, utc FROM clock_knot WHERE boot = ?", -1,
                                         &st, NULL);

    sqlite3_bind_int64(st, 1, boot);
    while (!err && rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        err = clock_add(&was, (uint64_t)sqlite3_column_int64(st, 0),
                        (uint64_t)sqlite3_column_int64(st, 1), 0);
    rc = sql_end(st, rc);
    st = NULL;
    clock_ready(&was);
    if (!err && rc == SQLITE_OK && was.n)
        err = align_moved(m, &was, &now);
    if (rc == SQLITE_OK)
        rc = err ? SQLITE_NOMEM
                 : sqlite3_prepare_v2(db, "INSERT OR REPLACE INTO clock_knot VALUES(?,?,?)", -1,
                                      &st, NULL);
    for (size_t k = 0; rc == SQLITE_OK && k < now.n; k++) {
        sqlite3_bind_int64(st, 1, boot);
        sqlite3_bind_int64(st, 2, now.a[k].mono);
        sqlite3_bind_int64(st, 3, now.a[k].real);
        rc = sqlite3_step(st) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    clock_free(&was);
    clock_free(&now);
    return rc;
}

static int change_boots(sqlite3 *db, struct align_move *m) {
    sqlite3_stmt *st;
    char *sql = sqlite3_mprintf("SELECT id FROM clock_boot WHERE \"group\" = %u", m->from);
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    sqlite3_free(sql);
    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        rc = change_knots(db, m, sqlite3_column_int64(st, 0));
    rc = sql_end(st, rc);
    if (rc != SQLITE_OK)
        return rc;
    sql = sqlite3_mprintf(
        "UPDATE clock_boot SET offset_ns = coalesce(offset_ns, 0) - (probing_retime(from_ts) - from_ts), from_ts = probing_retime(from_ts),"
        " to_ts = probing_retime(to_ts), \"group\" = %u, reference = 0 WHERE \"group\" = %u;"
        "UPDATE trace_file SET clock_group = %u WHERE clock_group = %u",
        m->to, m->from, m->to, m->from);
    rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    sqlite3_free(sql);
    return rc;
}

/* Updates the row of the boot that connects the two groups. */
static int change_teller(sqlite3 *db, const struct align_boot *b) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(
        db,
        "UPDATE clock_boot SET method = ?2, matches = ?3, offset_ns = ?4, drift = ?5, residual_ns = ?6, uncertainty_ns = ?7, from_ts = ?8,"
        " to_ts = ?9 WHERE id = ?1",
        -1, &st, NULL);

    sqlite3_bind_int64(st, 1, b->known);
    sqlite3_bind_text(st, 2, align_method_name(b->method), -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, (sqlite3_int64)b->matches);
    sqlite3_bind_int64(st, 4, b->offset);
    sqlite3_bind_double(st, 5, b->drift);
    sqlite3_bind_int64(st, 6, (sqlite3_int64)b->residual);
    bind_known(st, 7, b->uncertainty >= 0, (int64_t)b->uncertainty);
    sqlite3_bind_int64(st, 8, b->from);
    sqlite3_bind_int64(st, 9, b->to);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
    sqlite3_finalize(st);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(
            db,
            "UPDATE trace_file SET clock = ?2, clock_uncertainty_ns = ?3 WHERE " ALIGN_KEY
            " = (SELECT boot_id FROM clock_boot WHERE id = ?1)",
            -1, &st, NULL);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_bind_int64(st, 1, b->known);
    sqlite3_bind_text(st, 2, align_method_name(b->method), -1, SQLITE_STATIC);
    bind_known(st, 3, b->uncertainty >= 0, (int64_t)b->uncertainty);
    rc = sqlite3_step(st) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
    sqlite3_finalize(st);
    return rc;
}

int retime(sqlite3 *db, const struct align *a) {
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < align_moves(a); i++) {
        struct align_move *m = align_move(a, i);
        rc = sqlite3_create_function_v2(db, "probing_retime", 1, SQLITE_UTF8, m, new_time, NULL,
                                        NULL, NULL);
        if (rc == SQLITE_OK)
            rc = change_rows(db, m);
        if (rc == SQLITE_OK)
            rc = change_boots(db, m);
        if (rc == SQLITE_OK)
            rc = change_teller(db, m->by);
        sqlite3_create_function_v2(db, "probing_retime", 1, SQLITE_UTF8, NULL, NULL, NULL, NULL,
                                   NULL);
        if (rc == SQLITE_OK)
            rc = sqlite3_exec(db, "DROP TABLE temp.moving", NULL, NULL, NULL);
    }
    return rc;
}
