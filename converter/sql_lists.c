/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_lists.h"

#include <stddef.h>

/* A function's value is that of its SELECT, which has the arguments as ?1 and ?2. */
static void lists_run(sqlite3_context *ctx, int n, sqlite3_value **v) {
    sqlite3 *db = sqlite3_context_db_handle(ctx);
    sqlite3_stmt *st = NULL;

    if (sqlite3_value_type(v[0]) == SQLITE_NULL)
        return;
    int rc = sqlite3_prepare_v2(db, sqlite3_user_data(ctx), -1, &st, NULL);
    for (int i = 0; rc == SQLITE_OK && i < n; i++)
        rc = sqlite3_bind_value(st, i + 1, v[i]);
    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        sqlite3_result_value(ctx, sqlite3_column_value(st, 0));
    else
        sqlite3_result_error(ctx, sqlite3_errmsg(db), -1);
    sqlite3_finalize(st);
}

int sql_lists_register(sqlite3 *db) {
    static const char length[] = "SELECT json_array_length(?1)",
                      contains[] = "SELECT EXISTS (SELECT 1 FROM json_each(?1) WHERE value = ?2)",
                      joined[] = "SELECT group_concat(value, ?2) FROM json_each(?1)",
                      sorted[] = "SELECT json_group_array(value) FROM (SELECT value FROM"
                                 " json_each(?1) ORDER BY value NULLS LAST)",
                      distinct[] =
                          "SELECT json_group_array(value) FROM (SELECT value FROM"
                          " json_each(?1) WHERE value NOT NULL GROUP BY value ORDER BY min(key))";
    static const struct {
        const char *name;
        int args;
        const char *sql;
    } all[] = {{"array_length", 1, length},
               {"cardinality", 1, length},
               {"list_contains", 2, contains},
               {"list_has", 2, contains},
               {"array_contains", 2, contains},
               {"array_has", 2, contains},
               {"array_to_string", 2, joined},
               {"list_sort", 1, sorted},
               {"array_sort", 1, sorted},
               {"list_distinct", 1, distinct},
               {"array_distinct", 1, distinct},
               {"list_sum", 1, "SELECT sum(value) FROM json_each(?1)"},
               {"list_avg", 1, "SELECT avg(value) FROM json_each(?1)"},
               {"list_min", 1, "SELECT min(value) FROM json_each(?1)"},
               {"list_max", 1, "SELECT max(value) FROM json_each(?1)"}};
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof all / sizeof *all; i++)
        rc = sqlite3_create_function_v2(db, all[i].name, all[i].args,
                                        SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                        (void *)(size_t)all[i].sql, lists_run, NULL, NULL, NULL);
    return rc;
}
