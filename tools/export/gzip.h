/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gzip.h - a stream whose bytes come out of another one compressed (RFC 1952), as they are written.
 *
 *     FILE *f = gzip_open(out);              // NULL: errno says why
 *     fwrite(..., f);
 *     if (fclose(f) != 0) ...                // writes the end; `out` stays open. EOF: something could not be written
 *
 * The same bytes give the same file: its header has neither name nor time.
 */
#ifndef PROBING_TOOLS_EXPORT_GZIP_H
#define PROBING_TOOLS_EXPORT_GZIP_H

#include <stdio.h>

FILE *gzip_open(FILE *out);

#endif
