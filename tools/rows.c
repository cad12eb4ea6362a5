/* SPDX-License-Identifier: Apache-2.0 */
/* One struct of operations per format, all over the same struct rows. */
#include "rows.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <wchar.h>

struct rows_format {
    const char *name;
    int (*begin)(struct rows *r);
    int (*row)(struct rows *r, const struct rows_value *v);
    int (*end)(struct rows *r);
};

struct cell {
    char *text;
    unsigned width; /* columns on the screen */
    int right;      /* a number */
};

struct rows {
    const struct rows_format *format;
    FILE *f;
    unsigned ncols;
    char **names;
    uint64_t count;
    /* table only: rows held back until the widths are known */
    struct cell *ahead;
    unsigned nahead;
    unsigned *width;
    int flushed;
};

/* ---- values as text ---- */

/* Shortest text that reads back as the same number, always with a point or exponent. */
static void exact_real(double f, char *buf, size_t n) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, n, "%.*g", digits, f);
        if (strtod(buf, NULL) == f)
            break;
    }
    if (isfinite(f) && !strpbrk(buf, ".e"))
        strcat(buf, ".0");
}

/* For people: six decimals at most (a microsecond, in times), no tail of zeros. */
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

static void put_hex(FILE *f, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%02x", (unsigned char)p[i]);
}

/* ---- table ---- */

/* Text made safe for a terminal, and its width. */
static int make_cell(struct cell *c, const struct rows_value *v) {
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
        int wide = len >= 1 && len <= n ? wcwidth(w) : -1;
        if (wide >= 0) {
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

static void put_cell(struct rows *r, unsigned col, const struct cell *c) {
    int pad = r->width[col] > c->width ? (int)(r->width[col] - c->width) : 0;
    int last = col + 1 == r->ncols;

    if (col)
        fputs("  ", r->f);
    if (c->right)
        fprintf(r->f, "%*s%s", pad, "", c->text);
    else
        fprintf(r->f, "%s%*s", c->text, last ? 0 : pad, "");
    if (last)
        fputc('\n', r->f);
}

static int table_flush(struct rows *r) {
    struct cell name;

    for (unsigned i = 0; i < r->ncols; i++) {
        struct rows_value v = rows_text(r->names[i]);
        if (make_cell(&name, &v) < 0)
            return -ENOMEM;
        if (name.width > r->width[i])
            r->width[i] = name.width;
        name.right = r->nahead && r->ahead[i].right; /* over a column of numbers */
        put_cell(r, i, &name);
        free(name.text);
    }
    for (unsigned i = 0; i < r->ncols; i++) {
        if (i)
            fputs("  ", r->f);
        for (unsigned k = 0; k < r->width[i]; k++)
            fputc('-', r->f);
    }
    fputc('\n', r->f);
    for (unsigned i = 0; i < r->nahead * r->ncols; i++) {
        put_cell(r, i % r->ncols, &r->ahead[i]);
        free(r->ahead[i].text);
    }
    r->nahead = 0;
    r->flushed = 1;
    return 0;
}

static int table_begin(struct rows *r) {
    /* Without a UTF-8 locale every é would be shown as bytes. */
    setlocale(LC_CTYPE, "C.UTF-8");
    r->ahead = calloc((size_t)ROWS_AHEAD * r->ncols, sizeof *r->ahead);
    r->width = calloc(r->ncols, sizeof *r->width);
    r->nahead = 0;
    r->flushed = 0;
    return r->ahead && r->width ? 0 : -ENOMEM;
}

static int table_row(struct rows *r, const struct rows_value *v) {
    struct cell c;

    if (!r->flushed && r->nahead == ROWS_AHEAD && table_flush(r) < 0)
        return -ENOMEM;
    for (unsigned i = 0; i < r->ncols; i++) {
        if (make_cell(&c, &v[i]) < 0)
            return -ENOMEM;
        if (r->flushed) {
            put_cell(r, i, &c);
            free(c.text);
            continue;
        }
        if (c.width > r->width[i])
            r->width[i] = c.width;
        r->ahead[r->nahead * r->ncols + i] = c;
    }
    if (!r->flushed)
        r->nahead++;
    return 0;
}

static int table_end(struct rows *r) {
    return r->flushed ? 0 : table_flush(r);
}

/* ---- csv ---- */

static void csv_text(struct rows *r, const char *p, size_t n) {
    int quote = n == 0 || memchr(p, ',', n) || memchr(p, '"', n) || memchr(p, '\n', n) ||
                memchr(p, '\r', n) || p[0] == ' ' || p[n - 1] == ' ';

    if (!quote) {
        fwrite(p, 1, n, r->f);
        return;
    }
    fputc('"', r->f);
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '"')
            fputc('"', r->f);
        fputc(p[i], r->f);
    }
    fputc('"', r->f);
}

static int csv_begin(struct rows *r) {
    for (unsigned i = 0; i < r->ncols; i++) {
        if (i)
            fputc(',', r->f);
        csv_text(r, r->names[i], strlen(r->names[i]));
    }
    fputs("\r\n", r->f);
    return 0;
}

static int csv_row(struct rows *r, const struct rows_value *v) {
    char number[64];

    for (unsigned i = 0; i < r->ncols; i++) {
        if (i)
            fputc(',', r->f);
        switch (v[i].kind) {
        case ROWS_NULL:
            break;
        case ROWS_INTEGER:
            fprintf(r->f, "%" PRId64, v[i].i);
            break;
        case ROWS_REAL:
            exact_real(v[i].f, number, sizeof number);
            fputs(number, r->f);
            break;
        case ROWS_TEXT:
            csv_text(r, v[i].p, v[i].n);
            break;
        case ROWS_BLOB:
            put_hex(r->f, v[i].p, v[i].n);
            break;
        }
    }
    fputs("\r\n", r->f);
    return 0;
}

/* ---- json ---- */

/* Length of the well-formed UTF-8 sequence at p, 0 if there is none (RFC 3629: no surrogates, shortest form). */
static size_t utf8_length(const unsigned char *p, size_t n) {
    unsigned char lo = 0x80, hi = 0xbf;
    size_t len;

    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] == 0xe0)
        lo = 0xa0;
    else if (p[0] == 0xed)
        hi = 0x9f;
    else if (p[0] == 0xf0)
        lo = 0x90;
    else if (p[0] == 0xf4)
        hi = 0x8f;
    if (n < len || p[1] < lo || p[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++) {
        if (p[i] < 0x80 || p[i] > 0xbf)
            return 0;
    }
    return len;
}

static void json_text(FILE *f, const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;

    fputc('"', f);
    while (n) {
        size_t len = utf8_length(p, n);
        if (len == 0) {
            fputs("\xef\xbf\xbd", f);
            len = 1;
        } else if (*p == '"' || *p == '\\') {
            fprintf(f, "\\%c", *p);
        } else if (*p == '\n') {
            fputs("\\n", f);
        } else if (*p == '\t') {
            fputs("\\t", f);
        } else if (*p < 0x20 || *p == 0x7f) {
            fprintf(f, "\\u%04x", *p);
        } else {
            fwrite(p, 1, len, f);
        }
        p += len;
        n -= len;
    }
    fputc('"', f);
}

static int json_begin(struct rows *r) {
    fputc('[', r->f);
    return 0;
}

/* An object's keys must differ: the second "x" of a join is written as "x:2". */
static void json_name(struct rows *r, unsigned col) {
    char name[300];
    unsigned same = 1;

    for (unsigned i = 0; i < col; i++)
        same += strcmp(r->names[i], r->names[col]) == 0;
    if (same == 1) {
        json_text(r->f, r->names[col], strlen(r->names[col]));
    } else {
        snprintf(name, sizeof name, "%.280s:%u", r->names[col], same);
        json_text(r->f, name, strlen(name));
    }
}

static int json_row(struct rows *r, const struct rows_value *v) {
    char number[64];

    fputs(r->count ? ",\n {" : "\n {", r->f);
    for (unsigned i = 0; i < r->ncols; i++) {
        if (i)
            fputs(", ", r->f);
        json_name(r, i);
        fputs(": ", r->f);
        switch (v[i].kind) {
        case ROWS_NULL:
            fputs("null", r->f);
            break;
        case ROWS_INTEGER:
            fprintf(r->f, "%" PRId64, v[i].i);
            break;
        case ROWS_REAL:
            if (isfinite(v[i].f))
                exact_real(v[i].f, number, sizeof number);
            else /* JSON has no infinity; this overflows to it in every reader */
                strcpy(number, v[i].f > 0 ? "1e999" : "-1e999");
            fputs(number, r->f);
            break;
        case ROWS_TEXT:
            json_text(r->f, v[i].p, v[i].n);
            break;
        case ROWS_BLOB:
            fputc('"', r->f);
            put_hex(r->f, v[i].p, v[i].n);
            fputc('"', r->f);
            break;
        }
    }
    fputc('}', r->f);
    return 0;
}

static int json_end(struct rows *r) {
    fputs(r->count ? "\n]\n" : "]\n", r->f);
    return 0;
}

static int nothing(struct rows *r) {
    (void)r;
    return 0;
}

static const struct rows_format formats[] = {
    {"table", table_begin, table_row, table_end},
    {"csv", csv_begin, csv_row, nothing},
    {"json", json_begin, json_row, json_end},
};

/* ---- the interface ---- */

int rows_open(struct rows **out, const char *format, FILE *f) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, format) != 0)
            continue;
        struct rows *r = calloc(1, sizeof *r);
        if (!r)
            return -ENOMEM;
        r->format = &formats[i];
        r->f = f;
        *out = r;
        return 0;
    }
    return -EINVAL;
}

static void forget(struct rows *r) {
    for (unsigned i = 0; r->names && i < r->ncols; i++)
        free(r->names[i]);
    free(r->names);
    free(r->ahead);
    free(r->width);
    r->names = NULL;
    r->ahead = NULL;
    r->width = NULL;
    r->ncols = 0;
}

int rows_begin(struct rows *r, unsigned ncols, const char *const *names) {
    forget(r);
    r->count = 0;
    if (!(r->names = calloc(ncols ? ncols : 1, sizeof *r->names)))
        return -ENOMEM;
    r->ncols = ncols;
    for (unsigned i = 0; i < ncols; i++) {
        if (!(r->names[i] = strdup(names[i])))
            return -ENOMEM;
    }
    return r->format->begin(r);
}

int rows_row(struct rows *r, const struct rows_value *v) {
    int rc = r->format->row(r, v);

    if (rc == 0)
        r->count++;
    return rc;
}

uint64_t rows_end(struct rows *r) {
    r->format->end(r);
    return r->count;
}

void rows_close(struct rows *r) {
    if (!r)
        return;
    for (unsigned i = 0; r->ahead && i < r->nahead * r->ncols; i++)
        free(r->ahead[i].text);
    forget(r);
    free(r);
}
