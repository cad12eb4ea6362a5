/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_shell.h - `probing query DB` without SQL: a prompt for it.
 *
 *     struct sql_run run = {.db = db, .format = "table", .out = stdout};
 *     return query_shell(&run, paths, n);
 *
 * Statements end with a semicolon and may go over several lines; lines that begin with a backslash are its own commands
 * (\? lists them). Tab completes tables, columns and functions; Ctrl-C drops the line, or ends the query that runs; Ctrl-D
 * leaves. What is longer than the screen goes through PAGER, lines are cut to the screen else.
 */
#ifndef PROBING_TOOLS_QUERY_SHELL_H
#define PROBING_TOOLS_QUERY_SHELL_H

#include "sql_run.h"

/* `paths`: what run->db was opened from (open_db.h): of a process that is being recorded (live_target.h) it is opened anew
 * where an answer would be over a second old. One at a time in a program. The exit code. */
int query_shell(struct sql_run *run, char *const *paths, int n);

#endif
