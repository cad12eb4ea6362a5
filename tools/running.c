/* SPDX-License-Identifier: Apache-2.0 */
#include "running.h"

#include <string.h>

#include "common.h"
#include "live_scan.h"

struct who {
    const char *boot;
    sqlite3_int64 pid;
};

static int is_it(const struct live_seen *seen, void *arg) {
    const struct who *w = arg;

    if (!seen->l || seen->l->pid != w->pid || strcmp(seen->l->boot_id, w->boot) != 0 ||
        !live_seen_alive(seen))
        return 0;
    return live_seen_stopped(seen) ? 2 : 1;
}

static void is_running(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    struct who w = {.boot = (const char *)sqlite3_value_text(argv[0]),
                    .pid = sqlite3_value_int64(argv[1])};

    (void)argc;
    sqlite3_result_int(ctx, w.boot ? live_scan(is_it, &w) : 0);
}

int running_register(sqlite3 *db) {
    return sqlite3_create_function_v2(db, "is_running", 2, SQLITE_UTF8, NULL, is_running, NULL,
                                      NULL, NULL);
}

void running_note(sqlite3 *db) {
    sqlite3_stmt *st = NULL;

    if (sqlite3_prepare_v2(db,
                           "SELECT count(*), min(pid) FROM trace_file"
                           " WHERE end_reason IS NULL AND is_running(boot_id, pid)",
                           -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0) == 1)
        tool_say("process %d still runs: this is of what it has done until now",
                 sqlite3_column_int(st, 1));
    else if (st && sqlite3_column_int(st, 0) > 1)
        tool_say("%d processes still run: this is of what they have done until now",
                 sqlite3_column_int(st, 0));
    sqlite3_finalize(st);
}
