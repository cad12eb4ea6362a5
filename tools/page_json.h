/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_json.h - values as JSON that may stand in a <script> of an HTML page, whatever they hold.
 *
 *     fputs("{\"name\":", out);
 *     page_text(out, name);
 *     fputs("}", out);
 *
 * Names come from recorded programs and are not to be trusted. '<', '>' and '&' are written as \u escapes, so that nothing ends the
 * script or begins a comment in it; what is not UTF-8, control characters (but newline and tab) and characters that turn the
 * direction of writing become U+FFFD, so that a name shows as what it is. Write errors stay in the stream.
 */
#ifndef PROBING_TOOLS_PAGE_JSON_H
#define PROBING_TOOLS_PAGE_JSON_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* In quotes. */
void page_text(FILE *f, const char *text);
void page_bytes(FILE *f, const void *text, size_t n);
/* With `digits` significant digits, 17 the fewest that read back as the same number; null for what is no number. */
void page_real(FILE *f, double v, int digits);
/* Column i of the row that the statement stands on. Blobs are null. */
void page_column(FILE *f, sqlite3_stmt *st, int i);
/* Bytes as base64, in quotes. */
void page_base64(FILE *f, const uint8_t *p, size_t n);
/* The same of what zlib makes of them, which the page unpacks (DecompressionStream). 0 or -ENOMEM, with "" written. */
int page_packed(FILE *f, const void *p, size_t n);

#endif
