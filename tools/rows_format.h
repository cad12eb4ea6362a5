/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows_format.h - what rows.c, rows_table.c and rows_arrow.c share: a format is one struct of operations over struct rows. Internal to
 * them; others use rows.h.
 */
#ifndef PROBING_TOOLS_ROWS_FORMAT_H
#define PROBING_TOOLS_ROWS_FORMAT_H

#include "rows.h"

struct rows_format {
    const char *name;
    int one_result; /* a stream holds one result, no more */
    int (*begin)(struct rows *r);
    int (*row)(struct rows *r, const struct rows_value *v);
    int (*end)(struct rows *r);
    void (*forget)(struct rows *r); /* NULL: nothing of its own */
};

extern const struct rows_format rows_table, rows_box, rows_markdown, rows_arrow;

struct rows_cell {
    char *text;
    unsigned width; /* columns on the screen */
    int right;      /* a number */
};

struct rows {
    const struct rows_format *format;
    FILE *f;
    int to_terminal;
    unsigned ncols;
    char **names;
    char **heads; /* json: what stands before each value */
    uint64_t count;
    char why[200]; /* what was wrong with a row; "": nothing */
    struct rows_arrow *arrow;
    /* rows_table.c: rows held back until the widths are known */
    struct rows_cell *ahead;
    unsigned nahead;
    unsigned *width;
    int flushed;
};

#endif
