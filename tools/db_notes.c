/* SPDX-License-Identifier: Apache-2.0 */
#include "db_notes.h"

#include "common.h"
#include "open_db.h"

void db_note_runs(sqlite3 *db, const char *advice) {
    sqlite3_stmt *st = NULL;

    if (sqlite3_prepare_v2(db, "SELECT count(DISTINCT run) FROM trace_file", -1, &st, NULL) ==
            SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0) > 1)
        tool_say("this is over %d runs: %s", sqlite3_column_int(st, 0), advice);
    sqlite3_finalize(st);
}

void db_note_ranks(sqlite3 *db) {
    sqlite3_stmt *st = NULL;

    if (sqlite3_prepare_v2(db,
                           "SELECT count(DISTINCT rank), max(world_size) FROM trace_file"
                           " WHERE rank IS NOT NULL GROUP BY run"
                           " HAVING count(DISTINCT rank) < max(world_size) LIMIT 1",
                           -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        tool_say("traces of %d of %d ranks are here: what the others did is not known",
                 sqlite3_column_int(st, 0), sqlite3_column_int(st, 1));
    sqlite3_finalize(st);
    /* A program that a rank starts has the rank's number, too, but none of the job's process groups. A process that it forks inherits them, but has a
     * parent of the same rank. */
    if (sqlite3_prepare_v2(
            db,
            "WITH parent AS MATERIALIZED (SELECT DISTINCT run, rank, boot_id, pid FROM trace_file WHERE rank IS NOT NULL)"
            " SELECT rank, count(*), group_concat(iif(nth <= 4, pid || ' on ' || coalesce(host, '?'), NULL), ', ') || iif(count(*) > 4, ', ...', '')"
            " FROM (SELECT *, row_number() OVER (PARTITION BY run, attempt, rank ORDER BY host, pid) AS nth FROM ("
            "SELECT DISTINCT t.run, attempt, t.rank, host, t.pid, process_ts"
            " FROM trace_file t LEFT JOIN parent p ON p.pid = t.ppid AND p.rank = t.rank AND p.run IS t.run AND p.boot_id IS t.boot_id"
            " WHERE t.rank IS NOT NULL AND role IS NOT 'dataloader' AND p.pid IS NULL"
            " AND EXISTS (SELECT 1 FROM process_group g WHERE g.trace = t.id)))"
            " GROUP BY run, attempt, rank HAVING count(*) > 1 ORDER BY rank LIMIT 1",
            -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        tool_say(
            "%d processes say that they are rank %d (%.200s): what is said of that rank is of all of them",
            sqlite3_column_int(st, 1), sqlite3_column_int(st, 0),
            (const char *)sqlite3_column_text(st, 2));
    sqlite3_finalize(st);
}

void db_note_clocks(sqlite3 *db, const char *path) {
    sqlite3_stmt *st = NULL;

    if (db_is_database(path) &&
        sqlite3_prepare_v2(
            db,
            "WITH most AS MATERIALIZED (SELECT run, clock_group FROM (SELECT run, clock_group,"
            " row_number() OVER (PARTITION BY run ORDER BY count(*) DESC, clock_group) AS nth, count(*) OVER (PARTITION BY run) AS n"
            " FROM trace_file WHERE clock_group NOT NULL GROUP BY run, clock_group) WHERE nth = 1 AND n > 1),"
            " alone AS (SELECT DISTINCT f.run, f.boot_id, f.host, f.clock_group IS NOT m.clock_group AS is_alone"
            " FROM most m JOIN trace_file f ON f.run IS m.run)"
            " SELECT sum(is_alone), count(*), group_concat(iif(nth <= 4, coalesce(host, 'one without a name'), NULL), ', ') || iif(sum(is_alone) > 4, ', ...', '')"
            " FROM (SELECT *, iif(is_alone, row_number() OVER (PARTITION BY is_alone ORDER BY host), NULL) AS nth FROM alone)",
            -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0))
        tool_say(
            "the clocks of %d of %d machines (%.200s) cannot be compared with the others': times between them are as good as their own clocks (view clock_alignment)",
            sqlite3_column_int(st, 0), sqlite3_column_int(st, 1),
            (const char *)sqlite3_column_text(st, 2));
    sqlite3_finalize(st);
    if (sqlite3_prepare_v2(
            db,
            "SELECT count(*), max(file) FROM trace_file WHERE clock = 'none' AND start_ts < 1e17",
            -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0))
        tool_say(
            "%d trace%s no time of day (%.200s): its times count from when its machine was started, and look like ones of 1970",
            sqlite3_column_int(st, 0), sqlite3_column_int(st, 0) > 1 ? "s have" : " has",
            (const char *)sqlite3_column_text(st, 1));
    sqlite3_finalize(st);
}
