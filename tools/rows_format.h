/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows_format.h - shared by rows.c, rows_table.c and rows_arrow.c: a format is one struct of operations on struct rows. All other files use
 * rows.h.
 */
#ifndef PROBING_TOOLS_ROWS_FORMAT_H
#define PROBING_TOOLS_ROWS_FORMAT_H

#include "rows.h"

struct rows_format {
    const char *name;
    int one_result; /* 1: a stream can hold only one result */
    int (*begin)(struct rows *r);
    int (*row)(struct rows *r, const struct rows_value *v);
    int (*end)(struct rows *r);
    void (*forget)(struct rows *r); /* frees what the format allocated; NULL: nothing */
};

extern const struct rows_format rows_table, rows_box, rows_markdown, rows_arrow;

struct rows_cell {
    char *text;
    unsigned width; /* columns on the screen */
    int right;      /* align right: it is a number */
};

struct rows {
    const struct rows_format *format;
    FILE *f;
    int to_terminal;
    unsigned ncols;
    char **names;
    char **heads; /* json: the text in front of each value */
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
