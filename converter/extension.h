/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extension.h - lets a file that calls SQLite be part of the loadable extension, which calls it through a table of pointers. The compiler is told to
 * include this before the file's own text:
 *
 *     $(CC) -include converter/extension.h -c converter/replay.c
 */
#ifndef PROBING_CONVERTER_EXTENSION_H
#define PROBING_CONVERTER_EXTENSION_H

#include <sqlite3ext.h>

extern const sqlite3_api_routines *sqlite3_api; /* set by sqlite3_probing_init() */

#endif
