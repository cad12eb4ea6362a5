/* SPDX-License-Identifier: Apache-2.0 */
/* The interface, and the formats for programs; those for people: rows_table.c. */
#include "rows_format.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

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

static void put_hex(FILE *f, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%02x", (unsigned char)p[i]);
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

static void json_object(struct rows *r, const struct rows_value *v) {
    char number[64];

    fputc('{', r->f);
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
}

static int json_row(struct rows *r, const struct rows_value *v) {
    fputs(r->count ? ",\n " : "\n ", r->f);
    json_object(r, v);
    return 0;
}

static int json_end(struct rows *r) {
    fputs(r->count ? "\n]\n" : "]\n", r->f);
    return 0;
}

static int jsonl_row(struct rows *r, const struct rows_value *v) {
    json_object(r, v);
    fputc('\n', r->f);
    return 0;
}

static int nothing(struct rows *r) {
    (void)r;
    return 0;
}

static const struct rows_format csv = {"csv", 1, csv_begin, csv_row, nothing},
                                json = {"json", 1, json_begin, json_row, json_end},
                                jsonl = {"jsonl", 1, nothing, jsonl_row, nothing};
static const struct rows_format *const formats[] = {&rows_table, &rows_box, &rows_markdown,
                                                    &csv,        &json,     &jsonl};

/* ---- the interface ---- */

int rows_open(struct rows **out, const char *format, FILE *f) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i]->name, format) != 0)
            continue;
        struct rows *r = calloc(1, sizeof *r);
        if (!r)
            return -ENOMEM;
        r->format = formats[i];
        r->f = f;
        *out = r;
        return 0;
    }
    return -EINVAL;
}

void rows_json_text(FILE *f, const char *text) {
    json_text(f, text, strlen(text));
}

int rows_is_format(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i]->name, name) == 0)
            return 1;
    }
    return 0;
}

int rows_has_one(const struct rows *r) {
    return r->format->one_result;
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
