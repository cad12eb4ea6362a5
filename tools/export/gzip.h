/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gzip.h - a stream whose bytes are written to another stream in compressed form (RFC 1952).
 *
 *     FILE *f = gzip_open(out);              // NULL: errno says why
 *     fwrite(..., f);
 *     if (fclose(f) != 0) ...                // writes the end; `out` stays open. EOF: a write failed
 *
 * The same bytes always give the same file: the header contains neither a name nor a time.
 */
#ifndef PROBING_TOOLS_EXPORT_GZIP_H
#define PROBING_TOOLS_EXPORT_GZIP_H

#include <stdio.h>

FILE *gzip_open(FILE *out);

#endif
