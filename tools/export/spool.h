/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool.h - columns that are produced side by side but follow one another in the file: each is first written to a temporary file of its
 * own.
 *
 *     struct export_spool s = {0};
 *     FILE *f = export_column(&s, 0);             // NULL: errno says why
 *     fprintf(f, "%s1", export_comma(&s, 0));     // "" the first time, then ","
 *     rc = export_columns(&s, out, 0, names, 3);  // writes "name":[...],"name":[...] of columns 0 to 2, and empties them. 0 or -errno
 *     export_spool_free(&s);
 */
#ifndef PROBING_TOOLS_EXPORT_SPOOL_H
#define PROBING_TOOLS_EXPORT_SPOOL_H

#include <stdio.h>

#define EXPORT_COLUMNS 16

struct export_spool {
    FILE *column[EXPORT_COLUMNS];
    int begun[EXPORT_COLUMNS];
};

FILE *export_column(struct export_spool *s, unsigned i);
const char *export_comma(struct export_spool *s, unsigned i);
int export_columns(struct export_spool *s, FILE *out, unsigned first, const char *const *names,
                   unsigned n);
void export_spool_free(struct export_spool *s);

#endif
