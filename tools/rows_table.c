/* SPDX-License-Identifier: Apache-2.0 */
/* The formats for people: columns as wide as their values, with or without lines between them. */
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <wchar.h>

#include "../traces/visible.h"
#include "rows_format.h"

/* What stands between the columns of a line, and before and after them. */
struct frame {
    const char *left, *between, *right;
};
static const struct frame plain = {"", "  ", ""}, box = {"│ ", " │ ", " │"},
                          box_top = {"┌─", "─┬─", "─┐"}, box_middle = {"├─", "─┼─", "─┤"},
                          box_bottom = {"└─", "─┴─", "─┘"}, bar = {"| ", " | ", " |"};

/* Writes a number for people: at most six decimals (a microsecond, in times), without zeros at the end. */
static void short_real(double f, char *buf, size_t n) {
    double a = fabs(f);

    if (!isfinite(f) || a >= 1e15 || (a > 0 && a < 1e-4)) {
        snprintf(buf, n, "%.6g", f);
        return;
    }
    snprintf(buf, n, "%.6f", f);
    char *end = buf + strlen(buf);
    while (end[-1] == '0' && end[-2] != '.')
        *--end = '\0';
}

/* Makes a cell of a value: its text, made safe for a terminal, and the text's width. */
static int make_cell(const struct rows *r, struct rows_cell *c, const struct rows_value *v) {
    char number[64];
    const char *p = number;
    size_t n, at = 0;

    memset(c, 0, sizeof *c);
    switch (v->kind) {
    case ROWS_NULL:
        n = 0;
        break;
    case ROWS_INTEGER:
        n = (size_t)snprintf(number, sizeof number, "%" PRId64, v->i);
        c->right = 1;
        break;
    case ROWS_REAL:
        short_real(v->f, number, sizeof number);
        n = strlen(number);
        c->right = 1;
        break;
    default:
        p = v->p;
        n = v->n;
    }
    char *text = malloc(n * 4 + 1);
    if (!text)
        return -ENOMEM;
    mbstate_t state = {0};
    while (n) {
        wchar_t w;
        size_t len = v->kind == ROWS_BLOB ? (size_t)-1 : mbrtowc(&w, p, n, &state);
        int wide = len >= 1 && len <= n && visible_char((uint32_t)w) ? wcwidth(w) : -1;
        if (wide >= 0 && *p == '|' && r->format == &rows_markdown) {
            text[at++] = '\\';
            c->width++;
        }
        if (wide >= 0 && *p == '<' && r->format == &rows_markdown) {
            memcpy(text + at, "&lt;", 4); /* so that no text becomes HTML */
            at += 4;
            c->width += 4;
        } else if (wide >= 0) {
            memcpy(text + at, p, len);
            at += len;
            c->width += (unsigned)wide;
        } else {
            static const char *const known[] = {"\\t", "\\n", NULL, NULL, "\\r"};
            unsigned char b = (unsigned char)*p;
            const char *e = b >= 9 && b <= 13 ? known[b - 9] : NULL;
            int k = e ? sprintf(text + at, "%s", e) : sprintf(text + at, "\\x%02x", b);
            at += (size_t)k;
            c->width += (unsigned)k;
            len = 1;
            memset(&state, 0, sizeof state);
        }
        p += len;
        n -= len;
    }
    text[at] = '\0';
    c->text = text;
    return 0;
}

static void put_times(FILE *f, const char *sign, unsigned n) {
    while (n--)
        fputs(sign, f);
}

static const struct frame *frame_of(const struct rows *r) {
    return r->format == &rows_box ? &box : r->format == &rows_markdown ? &bar : &plain;
}

static void put_row(struct rows *r, const struct rows_cell *c) {
    const struct frame *f = frame_of(r);

    fputs(f->left, r->f);
    for (unsigned i = 0; i < r->ncols; i++) {
        unsigned pad = r->width[i] > c[i].width ? r->width[i] - c[i].width : 0;
        if (i)
            fputs(f->between, r->f);
        if (c[i].right)
            put_times(r->f, " ", pad);
        fputs(c[i].text, r->f);
        if (!c[i].right && (i + 1 < r->ncols || *f->right))
            put_times(r->f, " ", pad);
    }
    fputs(f->right, r->f);
    fputc('\n', r->f);
}

/* Prints a line of `sign` over or under the columns. */
static void put_rule(struct rows *r, const struct frame *f, const char *sign) {

    fputs(f->left, r->f);
    for (unsigned i = 0; i < r->ncols; i++) {
        if (i)
            fputs(f->between, r->f);
        put_times(r->f, sign, r->width[i]);
    }
    fputs(f->right, r->f);
    fputc('\n', r->f);
}

static void free_cells(struct rows_cell *c, unsigned n) {
    for (unsigned i = 0; c && i < n; i++) {
        free(c[i].text);
        c[i].text = NULL;
    }
}

static int flush(struct rows *r) {
    struct rows_cell *names = calloc(r->ncols, sizeof *names);
    int rc = names ? 0 : -ENOMEM;

    for (unsigned i = 0; rc == 0 && i < r->ncols; i++) {
        struct rows_value v = rows_text(r->names[i]);
        rc = make_cell(r, &names[i], &v);
        if (names[i].width > r->width[i])
            r->width[i] = names[i].width;
        names[i].right = r->nahead && r->ahead[i].right; /* over a column of numbers */
    }
    if (rc == 0) {
        if (r->format == &rows_box)
            put_rule(r, &box_top, "─");
        put_row(r, names);
        if (r->format == &rows_box)
            put_rule(r, &box_middle, "─");
        else
            put_rule(r, frame_of(r), "-");
        for (unsigned i = 0; i < r->nahead; i++)
            put_row(r, &r->ahead[i * r->ncols]);
        free_cells(r->ahead, r->nahead * r->ncols);
        r->nahead = 0;
        r->flushed = 1;
    }
    free_cells(names, r->ncols);
    free(names);
    return rc;
}

static int begin(struct rows *r) {
    /* Without a UTF-8 locale every é would be shown as bytes. */
    setlocale(LC_CTYPE, "C.UTF-8");
    r->ahead = calloc((size_t)ROWS_AHEAD * r->ncols, sizeof *r->ahead);
    r->width = calloc(r->ncols, sizeof *r->width);
    r->nahead = 0;
    r->flushed = 0;
    return r->ahead && r->width ? 0 : -ENOMEM;
}

static int add_row(struct rows *r, const struct rows_value *v) {
    int rc = 0;

    if (r->nahead == ROWS_AHEAD && flush(r) < 0)
        return -ENOMEM;
    struct rows_cell *c = &r->ahead[r->nahead * r->ncols]; /* nahead stays 0 once flushed */
    for (unsigned i = 0; rc == 0 && i < r->ncols; i++) {
        rc = make_cell(r, &c[i], &v[i]);
        if (!r->flushed && c[i].width > r->width[i])
            r->width[i] = c[i].width;
    }
    if (r->flushed) {
        if (rc == 0)
            put_row(r, c);
        free_cells(c, r->ncols);
    } else if (rc == 0) {
        r->nahead++;
    } else {
        free_cells(c, r->ncols);
    }
    return rc;
}

static int end(struct rows *r) {
    int rc = r->flushed ? 0 : flush(r);

    if (rc == 0 && r->format == &rows_box)
        put_rule(r, &box_bottom, "─");
    return rc;
}

const struct rows_format rows_table = {"table", 0, begin, add_row, end, NULL};
const struct rows_format rows_box = {"box", 0, begin, add_row, end, NULL};
const struct rows_format rows_markdown = {"markdown", 0, begin, add_row, end, NULL};
