/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - what two runs, or two ranks, took and how they were set, side by side in one database.
 *
 *     struct diff_side sides[2] = {{.db = a}, {.db = b, .rank = "3"}};
 *     sqlite3 *both;
 *     int code = diff_gather(&both, sides);       // said what was wrong
 *     ... question_find("diff") asked of `both` ...
 *     sqlite3_close(both);
 *
 * Tables of `both`: item(side, section, name, value, noise), setting(side, kind, name, value); side is 'a' or 'b'. Single-threaded.
 */
#ifndef PROBING_TOOLS_DIFF_H
#define PROBING_TOOLS_DIFF_H

#include <sqlite3.h>

struct diff_side {
    sqlite3 *db;
    const char *run, *rank; /* NULL: all of them */
};

/* Names the runs of one database that are not named: the first two. TOOL_OK; TOOL_PARTIAL: there is one only, said unless `quiet`. The
 * names live until the next call. */
int diff_runs(struct diff_side sides[2], int quiet);
/* TOOL_OK, or the exit code, said. Both databases get temporary tables and lose them again. */
int diff_gather(sqlite3 **out, const struct diff_side sides[2]);
/* What is asked of each side. */
const char *diff_side_sql(void);

#endif
