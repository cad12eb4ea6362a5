/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_shell.h - the interactive prompt of `probing query DB` when no SQL is given.
 *
 *     struct sql_run run = {.db = db, .format = "table", .out = stdout};
 *     return query_shell(&run, paths, n);
 *
 * Statements end with a semicolon and may span several lines; lines that begin with a backslash are commands of the prompt itself (\? lists
 * them). Tab completes tables, columns and functions; Ctrl-C drops the line, or ends the running query; Ctrl-D leaves. A result longer than
 * the screen is shown by PAGER; otherwise lines are cut at the width of the screen.
 */
#ifndef PROBING_TOOLS_QUERY_SHELL_H
#define PROBING_TOOLS_QUERY_SHELL_H

#include "sql_run.h"

/* `paths`: what run->db was opened from (open_db.h). The database of a process that is being recorded (live_target.h) is opened anew
 * whenever an answer would be more than a second old. One prompt at a time in a program. Returns the exit code. */
int query_shell(struct sql_run *run, char *const *paths, int n);

#endif
