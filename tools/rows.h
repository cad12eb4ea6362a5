/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h - writes rows of values to a stream, as an aligned table, Markdown, CSV, JSON or Arrow.
 *
 *     struct rows *r;
 *     if (rows_open(&r, "table", stdout) < 0) ...            // -EINVAL: no such format
 *     rows_begin(r, 2, (const char *const[]){"pid", "command"});
 *     rows_row(r, (struct rows_value[]){rows_int(1), rows_text("init")});
 *     rows_end(r);
 *
 * table: columns as wide as the first ROWS_AHEAD rows need (later rows follow in constant memory);
 *        numbers are right-aligned; control characters are escaped, so that no
 *        file name can manipulate the terminal.
 * box, markdown: the same, with lines between the columns.
 * csv:   RFC 4180, CRLF, names in the first line; NULL is an empty field, an empty text is "".
 * jsonl: one object on each line, and nothing around them.
 * json:  an array of objects, one on each line. Invalid UTF-8 becomes U+FFFD; blobs are hexadecimal.
 * arrow: a stream in Arrow's IPC format, in batches (rows_arrow.c defines the types of columns).
 *
 * Write errors stay in the stream (ferror()), where main() checks for them.
 */
#ifndef PROBING_TOOLS_ROWS_H
#define PROBING_TOOLS_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ROWS_AHEAD   1000
#define ROWS_FORMATS "table, box, markdown, csv, json, jsonl or arrow"

enum rows_kind { ROWS_NULL, ROWS_INTEGER, ROWS_REAL, ROWS_TEXT, ROWS_BLOB };
struct rows_value {
    enum rows_kind kind;
    int64_t i;
    double f;
    const char *p; /* borrowed during the call */
    size_t n;
};

static inline struct rows_value rows_null(void) {
    return (struct rows_value){.kind = ROWS_NULL};
}
static inline struct rows_value rows_int(int64_t i) {
    return (struct rows_value){.kind = ROWS_INTEGER, .i = i};
}
static inline struct rows_value rows_real(double f) {
    return (struct rows_value){.kind = ROWS_REAL, .f = f};
}
static inline struct rows_value rows_text(const char *p) {
    return (struct rows_value){.kind = ROWS_TEXT, .p = p, .n = strlen(p)};
}

struct rows;

/* Returns 0; -EINVAL: no such format; -ENOMEM. */
int rows_open(struct rows **out, const char *format, FILE *f);
/* Starts a result; names are copied. Returns 0 or -ENOMEM. */
int rows_begin(struct rows *r, unsigned ncols, const char *const *names);
/* Writes one row of ncols values. Returns 0, -ENOMEM, or (arrow only) -EDOM: a value has another type than its column. */
int rows_row(struct rows *r, const struct rows_value *v);
/* Ends the result; another rows_begin() may follow. Returns the number of rows; rows_why() tells whether they are complete. */
uint64_t rows_end(struct rows *r);
/* Returns in words what went wrong since rows_begin(); NULL: nothing. */
const char *rows_why(const struct rows *r);
void rows_close(struct rows *r);
/* Writes a text as a JSON string, in quotes. */
void rows_json_text(FILE *f, const char *text);
/* Returns 1 when there is a format of this name. */
int rows_is_format(const char *name);
/* Returns 1 when a stream in this format can hold only one result (csv, json, jsonl, arrow). */
int rows_has_one(const struct rows *r);

#endif
