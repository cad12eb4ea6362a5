/* SPDX-License-Identifier: Apache-2.0 */
/* The interface, and the formats for programs except Arrow (rows_arrow.c). The formats for people are in rows_table.c. */
#include "rows_format.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "../traces/utf8.h"
#include "../traces/visible.h"
#include "numbers.h"

/* ---- values as text ---- */

static void put_hex(FILE *f, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%02x", (unsigned char)p[i]);
}

/* ---- csv ---- */

static void csv_text(struct rows *r, const char *p, size_t n) {
    char *seen = NULL;
    size_t nseen = 0;
    FILE *f = r->to_terminal ? open_memstream(&seen, &nseen) : NULL;

    /* A program gets the bytes as they are, as CSV has no escapes. On a terminal, which would obey control characters, they are made visible. */
    if (f) {
        visible_bytes(f, p, n);
        fclose(f);
        p = seen ? seen : "";
        n = nseen;
    }
    int quote = n == 0 || memchr(p, ',', n) || memchr(p, '"', n) || memchr(p, '\n', n) ||
                memchr(p, '\r', n) || p[0] == ' ' || p[n - 1] == ' ';

    if (!quote) {
        put_bytes(r->f, p, n);
    } else {
        put_char(r->f, '"');
        for (size_t i = 0; i < n; i++) {
            if (p[i] == '"')
                put_char(r->f, '"');
            put_char(r->f, p[i]);
        }
        put_char(r->f, '"');
    }
    free(seen);
}

static int csv_begin(struct rows *r) {
    for (unsigned i = 0; i < r->ncols; i++) {
        if (i)
            put_char(r->f, ',');
        csv_text(r, r->names[i], strlen(r->names[i]));
    }
    put_text(r->f, "\r\n");
    return 0;
}

static int csv_row(struct rows *r, const struct rows_value *v) {
    for (unsigned i = 0; i < r->ncols; i++) {
        if (i)
            put_char(r->f, ',');
        switch (v[i].kind) {
        case ROWS_NULL:
            break;
        case ROWS_INTEGER:
            put_int(r->f, v[i].i);
            break;
        case ROWS_REAL:
            put_real(r->f, v[i].f);
            break;
        case ROWS_TEXT:
            csv_text(r, v[i].p, v[i].n);
            break;
        case ROWS_BLOB:
            put_hex(r->f, v[i].p, v[i].n);
            break;
        }
    }
    put_text(r->f, "\r\n");
    return 0;
}

/* ---- json ---- */

static void json_text(FILE *f, const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;
    uint32_t c;

    put_char(f, '"');
    while (n) {
        size_t len = 0;
        while (len < n && p[len] >= ' ' && p[len] < 0x7f && p[len] != '"' && p[len] != '\\')
            len++;
        put_bytes(f, p, len); /* nearly always the whole text */
        p += len;
        if (!(n -= len))
            break;
        len = utf8_char(p, n, &c);
        if (len == 0) {
            fputs("\xef\xbf\xbd", f);
            len = 1;
        } else if (*p == '"' || *p == '\\') {
            fprintf(f, "\\%c", *p);
        } else if (*p == '\n') {
            fputs("\\n", f);
        } else if (*p == '\t') {
            fputs("\\t", f);
        } else if (!visible_char(c) && c <= 0xffff) {
            fprintf(f, "\\u%04x", (unsigned)c); /* means the same, and cannot control a terminal */
        } else {
            fwrite(p, 1, len, f);
        }
        p += len;
        n -= len;
    }
    put_char(f, '"');
}

/* An object's keys must differ: the second "x" of a join is written as "x:2". */
static void json_name(FILE *f, const struct rows *r, unsigned col) {
    char name[300];
    unsigned same = 1;

    for (unsigned i = 0; i < col; i++)
        same += strcmp(r->names[i], r->names[col]) == 0;
    if (same == 1) {
        json_text(f, r->names[col], strlen(r->names[col]));
    } else {
        snprintf(name, sizeof name, "%.280s:%u", r->names[col], same);
        json_text(f, name, strlen(name));
    }
}

/* Prepares what stands before each value, as it is the same in all rows. */
static int jsonl_begin(struct rows *r) {
    if (!(r->heads = calloc(r->ncols ? r->ncols : 1, sizeof *r->heads)))
        return -ENOMEM;
    for (unsigned i = 0; i < r->ncols; i++) {
        size_t n;
        FILE *f = open_memstream(&r->heads[i], &n);
        if (!f)
            return -ENOMEM;
        fputs(i ? ", " : "{", f);
        json_name(f, r, i);
        fputs(": ", f);
        if (fclose(f) != 0)
            return -ENOMEM;
    }
    return 0;
}

static int json_begin(struct rows *r) {
    fputc('[', r->f);
    return jsonl_begin(r);
}

static void json_object(struct rows *r, const struct rows_value *v) {
    if (!r->ncols)
        put_char(r->f, '{');
    for (unsigned i = 0; i < r->ncols; i++) {
        put_text(r->f, r->heads[i]);
        switch (v[i].kind) {
        case ROWS_NULL:
            put_text(r->f, "null");
            break;
        case ROWS_INTEGER:
            put_int(r->f, v[i].i);
            break;
        case ROWS_REAL:
            if (isfinite(v[i].f))
                put_real(r->f, v[i].f);
            else /* JSON has no infinity; this number is so large that every reader makes it infinity */
                put_text(r->f, v[i].f > 0 ? "1e999" : "-1e999");
            break;
        case ROWS_TEXT:
            json_text(r->f, v[i].p, v[i].n);
            break;
        case ROWS_BLOB:
            put_char(r->f, '"');
            put_hex(r->f, v[i].p, v[i].n);
            put_char(r->f, '"');
            break;
        }
    }
    put_char(r->f, '}');
}

static int json_row(struct rows *r, const struct rows_value *v) {
    put_text(r->f, r->count ? ",\n " : "\n ");
    json_object(r, v);
    return 0;
}

static int json_end(struct rows *r) {
    fputs(r->count ? "\n]\n" : "]\n", r->f);
    return 0;
}

static int jsonl_row(struct rows *r, const struct rows_value *v) {
    json_object(r, v);
    put_char(r->f, '\n');
    return 0;
}

static int nothing(struct rows *r) {
    (void)r;
    return 0;
}

static const struct rows_format csv = {"csv", 1, csv_begin, csv_row, nothing, NULL},
                                json = {"json", 1, json_begin, json_row, json_end, NULL},
                                jsonl = {"jsonl", 1, jsonl_begin, jsonl_row, nothing, NULL};
static const struct rows_format *const formats[] = {&rows_table, &rows_box, &rows_markdown, &csv,
                                                    &json,       &jsonl,    &rows_arrow};

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
        r->to_terminal = isatty(fileno(f));
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
    if (r->format->forget)
        r->format->forget(r);
    for (unsigned i = 0; r->names && i < r->ncols; i++)
        free(r->names[i]);
    for (unsigned i = 0; r->heads && i < r->ncols; i++)
        free(r->heads[i]);
    free(r->names);
    free(r->heads);
    free(r->ahead);
    free(r->width);
    r->names = NULL;
    r->heads = NULL;
    r->ahead = NULL;
    r->width = NULL;
    r->ncols = 0;
}

/* Keeps the reason of a failure if the format has not set it. */
static int noted(struct rows *r, int rc) {
    if (rc < 0 && !*r->why)
        snprintf(r->why, sizeof r->why, "%s", rc == -ENOMEM ? "no memory" : strerror(-rc));
    return rc;
}

int rows_begin(struct rows *r, unsigned ncols, const char *const *names) {
    forget(r);
    r->count = 0;
    r->why[0] = '\0';
    if (!(r->names = calloc(ncols ? ncols : 1, sizeof *r->names)))
        return -ENOMEM;
    r->ncols = ncols;
    for (unsigned i = 0; i < ncols; i++) {
        if (!(r->names[i] = strdup(names[i])))
            return -ENOMEM;
    }
    return noted(r, r->format->begin(r));
}

int rows_row(struct rows *r, const struct rows_value *v) {
    int rc = noted(r, r->format->row(r, v));

    if (rc == 0)
        r->count++;
    return rc;
}

uint64_t rows_end(struct rows *r) {
    noted(r, r->format->end(r));
    return r->count;
}

const char *rows_why(const struct rows *r) {
    return *r->why ? r->why : NULL;
}

void rows_close(struct rows *r) {
    if (!r)
        return;
    for (unsigned i = 0; r->ahead && i < r->nahead * r->ncols; i++)
        free(r->ahead[i].text);
    forget(r);
    free(r);
}
