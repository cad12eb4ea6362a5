/* SPDX-License-Identifier: Apache-2.0 */
#include "page_json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

size_t page_utf8(const unsigned char *p, size_t n, uint32_t *c) {
    size_t len = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;

    if (len == 0 || len > n)
        return 0;
    *c = len == 1 ? *p : *p & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        *c = *c << 6 | (p[i] & 0x3fu);
    }
    /* Surrogates, longer forms than needed, beyond the last character. */
    if ((*c >= 0xd800 && *c < 0xe000) || (len == 3 && *c < 0x800) || (len == 4 && *c < 0x10000) ||
        *c > 0x10ffff)
        return 0;
    return len;
}

int page_shows(uint32_t c) {
    if (c == '\n' || c == '\t')
        return 1;
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xfeff || (c & 0xfffe) == 0xfffe)
        return 0;
    /* Marks, embeddings, overrides and isolates of bidirectional text; line and paragraph separators lie between them. */
    return !(c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
             (c >= 0x2066 && c <= 0x2069));
}

void page_bytes(FILE *f, const void *text, size_t n) {
    const unsigned char *p = text;
    uint32_t c = 0;

    fputc('"', f);
    while (n) {
        size_t len = page_utf8(p, n, &c);
        if (len == 0 || !page_shows(c)) {
            fputs("\xef\xbf\xbd", f);
            len = len ? len : 1;
        } else if (c == '"' || c == '\\') {
            fprintf(f, "\\%c", (int)c);
        } else if (c < 0x20 || c == '<' || c == '>' || c == '&') {
            fprintf(f, "\\u%04" PRIx32, c);
        } else {
            fwrite(p, 1, len, f);
        }
        p += len;
        n -= len;
    }
    fputc('"', f);
}

void page_text(FILE *f, const char *text) {
    page_bytes(f, text, strlen(text));
}

void page_real(FILE *f, double v, int digits) {
    if (isfinite(v))
        fprintf(f, "%.*g", digits, v);
    else
        fputs("null", f);
}

void page_column(FILE *f, sqlite3_stmt *st, int i) {
    switch (sqlite3_column_type(st, i)) {
    case SQLITE_INTEGER:
        fprintf(f, "%" PRId64, (int64_t)sqlite3_column_int64(st, i));
        break;
    case SQLITE_FLOAT:
        page_real(f, sqlite3_column_double(st, i), 9);
        break;
    case SQLITE_TEXT:
        page_bytes(f, sqlite3_column_text(st, i), (size_t)sqlite3_column_bytes(st, i));
        break;
    default:
        fputs("null", f);
    }
}

void page_base64(FILE *f, const uint8_t *p, size_t n) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    fputc('"', f);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0);
        fputc(digit[v >> 18], f);
        fputc(digit[v >> 12 & 63], f);
        fputc(i + 1 < n ? digit[v >> 6 & 63] : '=', f);
        fputc(i + 2 < n ? digit[v & 63] : '=', f);
    }
    fputc('"', f);
}
