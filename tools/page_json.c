/* SPDX-License-Identifier: Apache-2.0 */
#include "page_json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "../traces/utf8.h"
#include "../traces/visible.h"
#include "numbers.h"

static int is_plain(unsigned char c) {
    return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&';
}

void page_bytes(FILE *f, const void *text, size_t n) {
    const unsigned char *p = text;
    uint32_t c = 0;

    put_char(f, '"');
    while (n) {
        size_t len = 0;
        while (len < n && is_plain(p[len]))
            len++;
        put_bytes(f, p, len); /* nearly always the whole text */
        p += len;
        if (!(n -= len))
            break;
        len = utf8_char(p, n, &c);
        if (len == 0 || !visible_char(c)) {
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
    put_char(f, '"');
}

void page_text(FILE *f, const char *text) {
    page_bytes(f, text, strlen(text));
}

void page_real(FILE *f, double v, int digits) {
    if (!isfinite(v))
        put_text(f, "null");
    else if (digits >= 17)
        put_real(f, v);
    else
        fprintf(f, "%.*g", digits, v);
}

void page_column(FILE *f, sqlite3_stmt *st, int i) {
    switch (sqlite3_column_type(st, i)) {
    case SQLITE_INTEGER:
        put_int(f, sqlite3_column_int64(st, i));
        break;
    case SQLITE_FLOAT:
        /* Larger values are times since the epoch: of these, nine digits would leave steps of ten seconds. */
        page_real(f, sqlite3_column_double(st, i),
                  fabs(sqlite3_column_double(st, i)) < 1e6 ? 9 : 16);
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
        put_char(f, digit[v >> 18]);
        put_char(f, digit[v >> 12 & 63]);
        put_char(f, i + 1 < n ? digit[v >> 6 & 63] : '=');
        put_char(f, i + 2 < n ? digit[v & 63] : '=');
    }
    fputc('"', f);
}

int page_packed(FILE *f, const void *p, size_t n) {
    uLongf packed = compressBound(n);
    uint8_t *to = malloc(packed);
    int ok = to && compress2(to, &packed, p, n, Z_DEFAULT_COMPRESSION) == Z_OK;

    page_base64(f, to, ok ? packed : 0);
    free(to);
    return ok ? 0 : -ENOMEM;
}
