/* SPDX-License-Identifier: Apache-2.0 */
#include "scan.h"

#include <stdlib.h>

struct table {
    sqlite3_vtab base;
    const struct load_now *now;
};

int scan_connect(sqlite3 *db, const char *columns, const struct load_now *now, sqlite3_vtab **out) {
    int rc = sqlite3_declare_vtab(db, columns);
    struct table *t = rc == SQLITE_OK ? calloc(1, sizeof *t) : NULL;

    if (rc == SQLITE_OK && !t)
        rc = SQLITE_NOMEM;
    if (t) {
        t->now = now;
        *out = &t->base;
    }
    return rc;
}

int scan_disconnect(sqlite3_vtab *table) {
    free(table);
    return SQLITE_OK;
}

int scan_best_index(sqlite3_vtab *table, sqlite3_index_info *info) {
    (void)table;
    info->estimatedCost = 1e6;
    return SQLITE_OK;
}

int scan_open(sqlite3_vtab *table, size_t size, sqlite3_vtab_cursor **out) {
    struct scan_cursor *c = calloc(1, size);

    if (!c)
        return SQLITE_NOMEM;
    c->l = ((struct table *)table)->now->load;
    *out = &c->base;
    return SQLITE_OK;
}

int scan_close(sqlite3_vtab_cursor *cursor) {
    free(cursor);
    return SQLITE_OK;
}
