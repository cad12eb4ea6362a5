/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks_said.h"

#include <string.h>

#define NAMED "8" /* maximum number of ranks that are named */

/* Queries for a sentence about the first run that it is true of; they give one row or none. */
static const char missing[] =
    "WITH RECURSIVE job AS (SELECT run, max(world_size) AS size, count(DISTINCT rank) AS there"
    " FROM trace_file WHERE run IS NOT NULL AND rank BETWEEN 0 AND world_size - 1 GROUP BY run"
    " HAVING there < size AND 4 * (size - there) < size ORDER BY run LIMIT 1),"
    " n(rank) AS (SELECT 0 FROM job UNION ALL SELECT rank + 1 FROM n, job WHERE rank + 1 < size),"
    " gone AS (SELECT n.rank FROM n, job WHERE n.rank NOT IN"
    " (SELECT f.rank FROM trace_file f WHERE f.run = job.run AND f.rank IS NOT NULL) LIMIT " NAMED
    ")"
    " SELECT printf('no trace of rank%s %s%s of %d of run %s', iif(size - there > 1, 's', ''),"
    " (SELECT group_concat(rank, ', ') FROM gone), iif(size - there > " NAMED ", ', ...', ''),"
    " size, run) FROM job";
/* Processes forked by a rank (data loaders) are left out, because they have inherited its number and its groups. */
static const char twice[] =
    "WITH parent AS MATERIALIZED (SELECT DISTINCT run, rank, boot_id, pid FROM trace_file WHERE rank IS NOT NULL)"
    " SELECT printf('%d processes say that they are rank %d of run %s (%s)',"
    " count(DISTINCT f.boot_id || ' ' || f.pid || ' ' || process_ts), f.rank, f.run,"
    " group_concat(DISTINCT coalesce(host || ' ', '') || f.pid)) FROM trace_file f"
    " LEFT JOIN parent p ON p.pid = f.ppid AND p.rank = f.rank AND p.run = f.run AND p.boot_id IS f.boot_id"
    " WHERE f.run IS NOT NULL AND f.rank IS NOT NULL AND p.pid IS NULL"
    " AND EXISTS (SELECT 1 FROM process_group g WHERE g.trace = f.id) GROUP BY f.run, attempt, f.rank"
    " HAVING count(DISTINCT f.boot_id || ' ' || f.pid || ' ' || process_ts) > 1 ORDER BY f.run, attempt, f.rank LIMIT 1";

/* Appends the sentence of a query, if there is one. */
static int add(sqlite3 *db, const char *sql, char *line, size_t size) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    if (rc != SQLITE_OK)
        return rc;
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_text(st, 0)) {
        size_t n = strlen(line);
        sqlite3_snprintf((int)(size - n), line + n, "%s%s", n ? "; " : "",
                         (const char *)sqlite3_column_text(st, 0));
    }
    return sqlite3_finalize(st);
}

int ranks_said(sqlite3 *db, char *line, size_t size) {
    *line = 0;
    int rc = add(db, missing, line, size);
    return rc == SQLITE_OK ? add(db, twice, line, size) : rc;
}
