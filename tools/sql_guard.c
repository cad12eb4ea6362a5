/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_guard.h"

#include <stddef.h>
#include <strings.h>

static int authorize(void *ctx, int action, const char *a, const char *b, const char *c,
                     const char *d) {
    static const char *const pragmas[] = {"table_info", "table_xinfo", "table_list", "index_list",
                                          "function_list"}; /* GROUP BY ALL asks it */
    (void)ctx;
    (void)c;
    (void)d;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_FUNCTION:
        return b && (strcasecmp(b, "load_extension") == 0 || strcasecmp(b, "fts3_tokenizer") == 0)
                   ? SQLITE_DENY
                   : SQLITE_OK;
    case SQLITE_PRAGMA:
        for (size_t i = 0; i < sizeof pragmas / sizeof *pragmas; i++) {
            if (a && strcasecmp(a, pragmas[i]) == 0)
                return SQLITE_OK;
        }
        return SQLITE_DENY;
    default:
        return SQLITE_DENY;
    }
}

/* Makes the tables that are functions, while that is allowed: to SQLite it is a CREATE TABLE. */
static void make_functions(sqlite3 *db) {
    static const char *const all[] = {
        "SELECT 1 FROM json_each('[]')", "SELECT 1 FROM json_tree('[]')",
        "SELECT 1 FROM generate_series(1, 1)", "SELECT 1 FROM pragma_function_list",
        "SELECT 1 FROM pragma_table_info('t')"};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sqlite3_stmt *st = NULL;
        sqlite3_prepare_v2(db, all[i], -1, &st, NULL);
        sqlite3_finalize(st);
    }
}

void sql_guard(sqlite3 *db) {
    make_functions(db);
    sqlite3_set_authorizer(db, authorize, NULL);
}
