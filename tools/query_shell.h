/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_shell.h - the interactive prompt of `probing query DB` when no SQL is given.
 *
 *     struct sql_run run = {.db = db, .format = "table", .out = stdout};
 *     query_allow(db, 0);
 *     return query_shell(&run, paths, n, 0);
 *
 * Statements end with a semicolon and may span several lines; lines that begin with a backslash are commands of the prompt itself (\? lists
 * them). Tab completes tables, columns and functions; Ctrl-C drops the line, or ends the running query; Ctrl-D leaves. A result longer than
 * the screen is shown by PAGER; otherwise lines are cut at the width of the screen.
 */
#ifndef PROBING_TOOLS_QUERY_SHELL_H
#define PROBING_TOOLS_QUERY_SHELL_H

#include "sql_run.h"

/* What of sqlite_master is shown to people: not the views from which others are stored (66_views_stored.sql). Views of the program's own
 * tables (own_tables.h), whose names are quoted, may end the same way. */
#define QUERY_SHOWN                                                                                \
    "type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"                                       \
    " AND NOT (name GLOB '*_made' AND sql NOT LIKE 'CREATE VIEW \"%')"

/* `paths`: what run->db was opened from (open_db.h). The database of a process that is being recorded (live_target.h) is opened anew
 * whenever an answer would be more than a second old, and is then as restricted as before. One prompt at a time in a program. Returns the exit code. */
int query_shell(struct sql_run *run, char *const *paths, int n, int restricted);

/* Says what SQL may do on the opened database. restricted: read it and nothing else (sql_guard.h); otherwise temporary tables may be made,
 * but the file stays read-only. */
void query_allow(sqlite3 *db, int restricted);

#endif
