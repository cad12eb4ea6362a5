/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extension.c - the virtual tables and SQL functions as a loadable SQLite extension:
 *
 *     sqlite3> .load PREFIX/lib/probing/probing
 *     sqlite3> CREATE VIRTUAL TABLE temp.s USING probing_trace('trace.zst', 'sample');
 *
 *     sqlite3> SELECT hour(timestamp), percentile(rss, 95) FROM memory_usage GROUP BY 1;     -- sql_functions.h
 *     sqlite3> SELECT table_name FROM information_schema.tables;                             -- sql_schemas.h
 *     sqlite3> .read question.sql            -- made by probing ask what_if --sql; replay.h, overlap.h, sql_running.h
 *
 * An extension calls SQLite through a table of pointers, so the files that call SQLite are compiled a second time: here, and
 * those with many names of their own one by one (extension.h).
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

#include "dict.c"
#include "interval.c"
#include "keys.c"
#include "overlap.h"
#include "reader.c"
#include "reader_index.c"
#include "reader_load.c"
#include "reader_store.c"
#include "regex.c"
#include "replay.h"
#include "source.c"
#include "sql_aggregates.c"
#include "sql_calendar.c"
#include "sql_casts.c"
#include "sql_functions.c"
#include "sql_lists.c"
#include "sql_mode.c"
#include "sql_numbers.c"
#include "sql_ordered.c"
#include "sql_picks.c"
#include "sql_regex.c"
#include "sql_running.c"
#include "sql_schemas.c"
#include "sql_series.c"
#include "sql_texts.c"
#include "strips.c"
#include "text.c"
#include "time_format.c"
#include "time_read.c"
#include "vtab.c"
#include "when.c"

__attribute__((visibility("default"))) int sqlite3_probing_init(sqlite3 *db, char **msg,
                                                                const sqlite3_api_routines *api) {
    (void)msg;
    SQLITE_EXTENSION_INIT2(api);
    int rc = vtab_register(db, NULL);
    if (rc == SQLITE_OK)
        rc = sql_functions_register(db);
    if (rc == SQLITE_OK)
        rc = overlap_register(db);
    if (rc == SQLITE_OK)
        rc = replay_register(db);
    if (rc == SQLITE_OK)
        rc = sql_running_register(db);
    /* attach the same file as `python`, for names like python.torch_trace, as `probing query` does */
    const char *file = sqlite3_db_filename(db, "main");
    char *attach = file && *file ? sqlite3_mprintf("ATTACH %Q AS python", file) : NULL;
    if (attach)
        sqlite3_exec(db, attach, NULL, NULL, NULL);
    sqlite3_free(attach);
    return rc == SQLITE_OK ? sql_schemas_attach(db, NULL) : rc;
}
