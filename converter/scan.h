/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.h - inside load: what its virtual tables have in common. Each table is scanned once, from its first row to its last; *now says which
 * trace it reads.
 *
 *     struct cursor { struct scan_cursor scan; ... };     // the module's own, zeroed
 *
 *     connect:  return scan_connect(db, "CREATE TABLE x(a, b)", aux, out);
 *     open:     return scan_open(base, sizeof(struct cursor), out);
 *     module:   {SCAN_METHODS, .xCreate = connect, .xConnect = connect, .xOpen = open, .xFilter = ..., .xRowid = ...}
 *     register: sqlite3_create_module_v2(db, name, &module, now, NULL);
 */
#ifndef PROBING_CONVERTER_SCAN_H
#define PROBING_CONVERTER_SCAN_H

#include "load_state.h"

struct scan_cursor {
    sqlite3_vtab_cursor base;
    struct load *l; /* now->load at the time when the cursor was opened */
};

/* SQLite result codes. */
int scan_connect(sqlite3 *db, const char *columns, const struct load_now *now, sqlite3_vtab **out);
int scan_open(sqlite3_vtab *table, size_t size, sqlite3_vtab_cursor **out);

int scan_disconnect(sqlite3_vtab *table);
int scan_best_index(sqlite3_vtab *table, sqlite3_index_info *info);
int scan_close(sqlite3_vtab_cursor *cursor);
#define SCAN_METHODS                                                                               \
    .xBestIndex = scan_best_index, .xDisconnect = scan_disconnect, .xDestroy = scan_disconnect,    \
    .xClose = scan_close

#endif
