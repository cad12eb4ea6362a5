/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - gathers what two runs, or two ranks, spent their time on and how they were configured, side by side in one database.
 *
 *     struct diff_side sides[2] = {{.db = a}, {.db = b, .rank = "3"}};
 *     sqlite3 *both;
 *     int code = diff_gather(&both, sides);       // prints what was wrong
 *     ... ask `both` the question question_find("diff") ...
 *     sqlite3_close(both);
 *
 * Tables of `both`: item(side, section, name, value, noise), setting(side, kind, name, value), where side is 'a' or 'b'. Single-threaded.
 */
#ifndef PROBING_TOOLS_DIFF_H
#define PROBING_TOOLS_DIFF_H

#include <sqlite3.h>

struct diff_side {
    sqlite3 *db;
    const char *run, *rank; /* NULL: all of them */
};

/* Fills in the runs that the caller did not name, with the first two runs of the single database. Returns TOOL_OK; TOOL_PARTIAL: there is
 * only one run (printed unless `quiet`). The names live until the next call. */
int diff_runs(struct diff_side sides[2], int quiet);
/* Returns TOOL_OK, or the exit code after printing what is wrong. Makes temporary tables in both databases, and removes them again. */
int diff_gather(sqlite3 **out, const struct diff_side sides[2]);
/* Returns the SQL that is run on each side. */
const char *diff_side_sql(void);

#endif
