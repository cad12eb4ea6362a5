/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_json.h - writes values as JSON that is safe inside a <script> of an HTML page, whatever the values are.
 *
 *     fputs("{\"name\":", out);
 *     page_text(out, name);
 *     fputs("}", out);
 *
 * Names come from recorded programs and are not trusted. '<', '>' and '&' are written as \u escapes, so that nothing can end the script or
 * begin a comment in it. Invalid UTF-8, control characters (except newline and tab) and characters that change the direction of writing
 * become U+FFFD, so that a name is shown as what it is. Write errors stay in the stream (ferror()).
 */
#ifndef PROBING_TOOLS_PAGE_JSON_H
#define PROBING_TOOLS_PAGE_JSON_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Write a text in quotes. */
void page_text(FILE *f, const char *text);
void page_bytes(FILE *f, const void *text, size_t n);
/* Writes v with `digits` significant digits (17 are the fewest that always read back as the same number); null for a NaN or an infinity. */
void page_real(FILE *f, double v, int digits);
/* Writes column i of the current row of the statement. Blobs become null. */
void page_column(FILE *f, sqlite3_stmt *st, int i);
/* Writes bytes as base64, in quotes. */
void page_base64(FILE *f, const uint8_t *p, size_t n);
/* Does the same with the bytes compressed by zlib, which the page unpacks (DecompressionStream). Returns 0, or -ENOMEM after writing "". */
int page_packed(FILE *f, const void *p, size_t n);

#endif
