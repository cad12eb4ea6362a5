/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_texts.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MOST 100000000 /* bytes that a function makes: SQLite takes no more than 1e9 */

/* Gets the texts of the first n arguments. Returns 1 when all are there. */
static int texts_get(sqlite3_value **v, const char **text, int n) {
    int all = 1;

    for (int i = 0; i < n; i++)
        all &= (text[i] = (const char *)sqlite3_value_text(v[i])) != NULL;
    return all;
}

/* ---- characters ---- */

static const char *texts_next(const char *p) {
    for (p += *p != 0; (*p & 0xc0) == 0x80; p++)
        ;
    return p;
}

static int64_t texts_length(const char *p) {
    int64_t n = 0;

    for (; *p; p = texts_next(p))
        n++;
    return n;
}

/* Returns the place of the character number n, or the end. */
static const char *texts_at(const char *p, int64_t n) {
    for (; n > 0 && *p; n--)
        p = texts_next(p);
    return p;
}

/* Decodes the character at p. */
static uint32_t texts_code(const char *p) {
    unsigned char c = (unsigned char)*p;
    uint32_t code = c < 0xc0 ? c : c < 0xe0 ? c & 0x1f : c < 0xf0 ? c & 0x0f : c & 0x07;

    for (p++; c >= 0xc0 && (*p & 0xc0) == 0x80; p++)
        code = code << 6 | (*p & 0x3f);
    return code;
}

/* ---- texts that are made piece by piece ---- */

static void texts_add(sqlite3_str *s, const char *p, size_t n) {
    if (sqlite3_str_length(s) + (int64_t)n <= TEXTS_MOST)
        sqlite3_str_append(s, p, (int)n);
    else
        sqlite3_str_appendchar(s, 0x7fffffff, ' '); /* sets SQLITE_TOOBIG */
}

static void texts_result(sqlite3_context *ctx, sqlite3_str *s) {
    int err = sqlite3_str_errcode(s), n = sqlite3_str_length(s);
    char *text = sqlite3_str_finish(s);

    if (err == SQLITE_TOOBIG)
        sqlite3_result_error_toobig(ctx);
    else if (err)
        sqlite3_result_error_nomem(ctx);
    else
        sqlite3_result_text(ctx, text ? text : "", n, text ? sqlite3_free : SQLITE_STATIC);
    if (err)
        sqlite3_free(text);
}

static sqlite3_str *texts_new(sqlite3_context *ctx) {
    return sqlite3_str_new(sqlite3_context_db_handle(ctx));
}

/* ---- whether and where ---- */

enum { TEXTS_BEGIN, TEXTS_END, TEXTS_INSIDE, TEXTS_PLACE };
static void texts_find(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *t[2], *at;

    (void)n;
    if (!texts_get(v, t, 2))
        return;
    size_t all = strlen(t[0]), part = strlen(t[1]);
    switch ((intptr_t)sqlite3_user_data(ctx)) {
    case TEXTS_BEGIN:
        sqlite3_result_int(ctx, strncmp(t[0], t[1], part) == 0);
        break;
    case TEXTS_END:
        sqlite3_result_int(ctx, part <= all && memcmp(t[0] + all - part, t[1], part) == 0);
        break;
    case TEXTS_INSIDE:
        sqlite3_result_int(ctx, strstr(t[0], t[1]) != NULL);
        break;
    default:
        at = strstr(t[0], t[1]);
        int64_t place = at ? 1 : 0;
        for (const char *p = t[0]; at && p < at; p = texts_next(p))
            place++;
        sqlite3_result_int64(ctx, place);
    }
}

/* find_in_set('b', 'a,b') is 2. */
static void texts_in_set(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *t[2];
    int nth = 0;

    (void)n;
    if (!texts_get(v, t, 2))
        return;
    size_t len = strlen(t[0]);
    for (const char *p = t[1]; *p; p += *p == ',') {
        size_t k = strcspn(p, ",");
        nth++;
        if (k == len && memcmp(p, t[0], k) == 0) {
            sqlite3_result_int(ctx, nth);
            return;
        }
        p += k;
    }
    sqlite3_result_int(ctx, 0);
}

/* ---- parts ---- */

/* split_part('a/b/c', '/', 2) is 'b'; -1 is the last part, and '' a part that does not exist. */
static void texts_split_part(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *t[2], *end;
    int64_t nth = sqlite3_value_int64(v[2]), parts = 1;

    (void)n;
    if (!texts_get(v, t, 2) || sqlite3_value_type(v[2]) == SQLITE_NULL)
        return;
    size_t len = strlen(t[1]);
    for (const char *p = t[0]; len && (p = strstr(p, t[1])); p += len)
        parts++;
    if (nth < 0)
        nth += parts + 1;
    if (nth < 1 || nth > parts) {
        sqlite3_result_text(ctx, "", 0, SQLITE_STATIC);
        return;
    }
    while (--nth)
        t[0] = strstr(t[0], t[1]) + len;
    end = len ? strstr(t[0], t[1]) : NULL;
    sqlite3_result_text(ctx, t[0], end ? (int)(end - t[0]) : -1, SQLITE_TRANSIENT);
}

/* substr_index('a.b.c', '.', 2) is 'a.b'; -2: 'b.c'. */
static void texts_substr_index(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *t[2];
    int64_t count = sqlite3_value_int64(v[2]), parts = 0;

    (void)n;
    if (!texts_get(v, t, 2) || sqlite3_value_type(v[2]) == SQLITE_NULL)
        return;
    size_t len = strlen(t[1]);
    for (const char *p = t[0]; len && (p = strstr(p, t[1])); p += len)
        parts++;
    const char *from = t[0], *to = t[0] + strlen(t[0]);
    if (!len || count == 0)
        to = from;
    else if (count > 0 && count <= parts)
        for (to = strstr(t[0], t[1]); --count; to = strstr(to + len, t[1]))
            ;
    else if (count < 0 && count >= -parts)
        for (int64_t skip = parts + count + 1; skip; skip--)
            from = strstr(from, t[1]) + len;
    sqlite3_result_text(ctx, from, (int)(to - from), SQLITE_TRANSIENT);
}

/* text_left(x, n); with user data text_right. A negative n leaves that many out at the other end. */
static void texts_end_of(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text = (const char *)sqlite3_value_text(v[0]);
    int64_t many = sqlite3_value_int64(v[1]), all;

    (void)n;
    if (!text || sqlite3_value_type(v[1]) == SQLITE_NULL)
        return;
    all = texts_length(text);
    many = many < 0 ? all + many : many;
    many = many < 0 ? 0 : many > all ? all : many;
    if (sqlite3_user_data(ctx))
        sqlite3_result_text(ctx, texts_at(text, all - many), -1, SQLITE_TRANSIENT);
    else
        sqlite3_result_text(ctx, text, (int)(texts_at(text, many) - text), SQLITE_TRANSIENT);
}

/* ---- made from others ---- */

/* lpad(x, n[, FILL]); with user data rpad. */
static void texts_pad(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text = (const char *)sqlite3_value_text(v[0]),
               *fill = n > 2 ? (const char *)sqlite3_value_text(v[2]) : " ";
    int64_t width = sqlite3_value_int64(v[1]);

    if (!text || !fill || sqlite3_value_type(v[1]) == SQLITE_NULL)
        return;
    width = width < 0 ? 0 : width;
    int64_t more = width - texts_length(text);
    const char *end = more < 0 ? texts_at(text, width) : text + strlen(text), *p = fill;
    sqlite3_str *s = texts_new(ctx);
    if (sqlite3_user_data(ctx))
        texts_add(s, text, (size_t)(end - text));
    for (; more > 0 && *fill && !sqlite3_str_errcode(s); more--) {
        const char *next = texts_next(p);
        texts_add(s, p, (size_t)(next - p));
        p = *next ? next : fill;
    }
    if (!sqlite3_user_data(ctx))
        texts_add(s, text, (size_t)(end - text));
    texts_result(ctx, s);
}

/* concat(...); with user data concat_ws(BY, ...). */
static void texts_concat(sqlite3_context *ctx, int n, sqlite3_value **v) {
    int with = sqlite3_user_data(ctx) != NULL, any = 0;

    if (n < 1 + with) {
        sqlite3_result_error(ctx, "concat(x, ...), concat_ws(separator, x, ...)", -1);
        return;
    }
    if (with && sqlite3_value_type(v[0]) == SQLITE_NULL)
        return;
    sqlite3_str *s = texts_new(ctx);
    for (int i = with; i < n; i++) {
        if (sqlite3_value_type(v[i]) == SQLITE_NULL)
            continue;
        if (with && any++)
            texts_add(s, (const char *)sqlite3_value_text(v[0]), (size_t)sqlite3_value_bytes(v[0]));
        const char *text = (const char *)sqlite3_value_text(v[i]);
        texts_add(s, text ? text : "", (size_t)sqlite3_value_bytes(v[i]));
    }
    texts_result(ctx, s);
}

static void texts_repeat(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text = (const char *)sqlite3_value_text(v[0]);

    (void)n;
    if (!text || sqlite3_value_type(v[1]) == SQLITE_NULL)
        return;
    size_t len = strlen(text);
    sqlite3_str *s = texts_new(ctx);
    for (int64_t i = sqlite3_value_int64(v[1]); len && i > 0 && !sqlite3_str_errcode(s); i--)
        texts_add(s, text, len);
    texts_result(ctx, s);
}

static void texts_reverse(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text = (const char *)sqlite3_value_text(v[0]);

    (void)n;
    if (!text)
        return;
    sqlite3_str *s = texts_new(ctx);
    for (const char *end = text + strlen(text), *p; end > text; end = p) {
        for (p = end - 1; p > text && (*p & 0xc0) == 0x80; p--)
            ;
        texts_add(s, p, (size_t)(end - p));
    }
    texts_result(ctx, s);
}

static void texts_initcap(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text = (const char *)sqlite3_value_text(v[0]);
    int inside = 0;

    (void)n;
    if (!text)
        return;
    sqlite3_str *s = texts_new(ctx);
    for (const char *p = text; *p; p++) {
        int c = (unsigned char)*p;
        char to = (char)(inside ? tolower(c) : toupper(c));
        texts_add(s, &to, 1);
        inside = c >= 0x80 || isalnum(c);
    }
    texts_result(ctx, s);
}

static void texts_translate(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *t[3];

    (void)n;
    if (!texts_get(v, t, 3))
        return;
    sqlite3_str *s = texts_new(ctx);
    for (const char *p = t[0], *next; *p; p = next) {
        const char *from = t[1], *to = t[2];
        next = texts_next(p);
        for (; *from && texts_code(from) != texts_code(p); from = texts_next(from))
            to = texts_next(to);
        if (!*from)
            texts_add(s, p, (size_t)(next - p));
        else if (*to) /* else it is dropped */
            texts_add(s, to, (size_t)(texts_next(to) - to));
    }
    texts_result(ctx, s);
}

/* overlay(x, y, at[, n]): y in place of n characters of x; n is the length of y when it is not given. */
static void texts_overlay(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *t[2];
    int64_t at = sqlite3_value_int64(v[2]);

    at = at > 0 ? at - 1 : 0;
    if (!texts_get(v, t, 2) || sqlite3_value_type(v[2]) == SQLITE_NULL)
        return;
    int64_t many = n > 3 ? sqlite3_value_int64(v[3]) : texts_length(t[1]);
    const char *from = texts_at(t[0], at), *to = texts_at(from, many);
    sqlite3_str *s = texts_new(ctx);
    texts_add(s, t[0], (size_t)(from - t[0]));
    texts_add(s, t[1], strlen(t[1]));
    texts_add(s, to, strlen(to));
    texts_result(ctx, s);
}

/* ---- numbers ---- */

enum { TEXTS_CHARACTERS, TEXTS_BYTES, TEXTS_BITS, TEXTS_FIRST };
static void texts_number(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text = (const char *)sqlite3_value_text(v[0]);
    int64_t bytes = sqlite3_value_bytes(v[0]);

    (void)n;
    if (!text)
        return;
    switch ((intptr_t)sqlite3_user_data(ctx)) {
    case TEXTS_CHARACTERS:
        bytes = texts_length(text);
        break;
    case TEXTS_BITS:
        bytes *= 8;
        break;
    case TEXTS_FIRST:
        bytes = texts_code(text);
        break;
    }
    sqlite3_result_int64(ctx, bytes);
}

static void texts_hex(sqlite3_context *ctx, int n, sqlite3_value **v) {
    char text[24];

    (void)n;
    if (sqlite3_value_type(v[0]) == SQLITE_NULL)
        return;
    sqlite3_snprintf(sizeof text, text, "%llx", sqlite3_value_int64(v[0]));
    sqlite3_result_text(ctx, text, -1, SQLITE_TRANSIENT);
}

/* How many characters must be changed, added or dropped. */
static void texts_levenshtein(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *t[2];

    (void)n;
    if (!texts_get(v, t, 2))
        return;
    int64_t width = texts_length(t[1]);
    if (strlen(t[0]) > 10000 || width > 10000) {
        sqlite3_result_error_toobig(ctx);
        return;
    }
    int *row = sqlite3_malloc64(((size_t)width + 1) * sizeof *row), i = 0;
    if (!row) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    for (int k = 0; k <= width; k++)
        row[k] = k;
    for (const char *a = t[0]; *a; a = texts_next(a)) {
        int before = row[0], k = 0;
        row[0] = ++i;
        for (const char *b = t[1]; *b; b = texts_next(b)) {
            int above = row[++k], best = before + (texts_code(a) != texts_code(b));
            best = above + 1 < best ? above + 1 : best;
            row[k] = row[k - 1] + 1 < best ? row[k - 1] + 1 : best;
            before = above;
        }
    }
    sqlite3_result_int(ctx, row[width]);
    sqlite3_free(row);
}

int sql_texts_register(sqlite3 *db) {
    static const struct {
        const char *name;
        int args;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
        intptr_t arg;
    } all[] = {{"starts_with", 2, texts_find, TEXTS_BEGIN},
               {"prefix", 2, texts_find, TEXTS_BEGIN},
               {"ends_with", 2, texts_find, TEXTS_END},
               {"suffix", 2, texts_find, TEXTS_END},
               {"contains", 2, texts_find, TEXTS_INSIDE},
               {"strpos", 2, texts_find, TEXTS_PLACE},
               {"find_in_set", 2, texts_in_set, 0},
               {"split_part", 3, texts_split_part, 0},
               {"substr_index", 3, texts_substr_index, 0},
               {"substring_index", 3, texts_substr_index, 0},
               {"text_left", 2, texts_end_of, 0},
               {"text_right", 2, texts_end_of, 1},
               {"lpad", 2, texts_pad, 0},
               {"lpad", 3, texts_pad, 0},
               {"rpad", 2, texts_pad, 1},
               {"rpad", 3, texts_pad, 1},
               {"concat", -1, texts_concat, 0},
               {"concat_ws", -1, texts_concat, 1},
               {"repeat", 2, texts_repeat, 0},
               {"reverse", 1, texts_reverse, 0},
               {"initcap", 1, texts_initcap, 0},
               {"translate", 3, texts_translate, 0},
               {"overlay", 3, texts_overlay, 0},
               {"overlay", 4, texts_overlay, 0},
               {"char_length", 1, texts_number, TEXTS_CHARACTERS},
               {"character_length", 1, texts_number, TEXTS_CHARACTERS},
               {"len", 1, texts_number, TEXTS_CHARACTERS},
               {"octet_length", 1, texts_number, TEXTS_BYTES},
               {"bit_length", 1, texts_number, TEXTS_BITS},
               {"ascii", 1, texts_number, TEXTS_FIRST},
               {"to_hex", 1, texts_hex, 0},
               {"levenshtein", 2, texts_levenshtein, 0}};
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof all / sizeof *all; i++)
        rc = sqlite3_create_function_v2(db, all[i].name, all[i].args,
                                        SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                        (void *)all[i].arg, all[i].run, NULL, NULL, NULL);
    return rc;
}
