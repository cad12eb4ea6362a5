/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extension.c - the virtual table as a loadable SQLite extension:
 *
 *     sqlite3> .load PREFIX/lib/probing/probing
 *     sqlite3> CREATE VIRTUAL TABLE temp.s USING probing_trace('trace.zst', 'sample');
 *
 * An extension calls SQLite through a table of pointers, so the parts that do are compiled once more here.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

#include "dict.c"
#include "keys.c"
#include "reader.c"
#include "reader_index.c"
#include "source.c"
#include "strips.c"
#include "text.c"
#include "vtab.c"

__attribute__((visibility("default"))) int sqlite3_probing_init(sqlite3 *db, char **msg,
                                                                const sqlite3_api_routines *api) {
    (void)msg;
    SQLITE_EXTENSION_INIT2(api);
    return vtab_register(db, NULL);
}
