/* SPDX-License-Identifier: Apache-2.0 */
#include "visible.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

int visible_char(uint32_t c) {
    if (c == '\n' || c == '\t')
        return 1;
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xfeff || (c & 0xfffe) == 0xfffe)
        return 0;
    /* bidirectional marks, embeddings, overrides and isolates; line and paragraph separators lie between them */
    return !(c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
             (c >= 0x2066 && c <= 0x2069));
}

void visible_bytes(FILE *f, const void *text, size_t n) {
    const unsigned char *p = text;
    uint32_t c = 0;

    for (size_t len; n; p += len, n -= len) {
        len = utf8_char(p, n, &c);
        if (len && c >= 0x20 && visible_char(c))
            fwrite(p, 1, len, f);
        else if (!len || c < 0x80)
            fprintf(f, "\\x%02x", *p);
        else
            fprintf(f, "\\u%04x", (unsigned)c);
        len = len ? len : 1;
    }
}

void visible_text(FILE *f, const char *text) {
    visible_bytes(f, text, strlen(text));
}

/* In JSON, escapes of characters beyond U+FFFF are pairs of surrogates. */
static void put_escape(FILE *f, uint32_t c) {
    if (c > 0xffff)
        fprintf(f, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                0xdc00 + ((c - 0x10000) & 0x3ff));
    else
        fprintf(f, "\\u%04x", (unsigned)c);
}

char *visible_json(char *json) {
    char *out = NULL;
    size_t n = 0;
    FILE *f = json ? open_memstream(&out, &n) : NULL;
    uint32_t c = 0;

    for (const char *p = json; f && *p;) {
        size_t len = utf8_char(p, 4, &c);
        if (!len)
            fputs("\xef\xbf\xbd", f);
        else if (!visible_char(c))
            put_escape(f, c);
        else
            fwrite(p, 1, len, f);
        p += len ? len : 1;
    }
    free(json);
    if (f && fclose(f) != 0) {
        free(out);
        out = NULL;
    }
    return out;
}

/* Returns whether the message would show the text in another form: a newline, or bytes that are no UTF-8. */
static int is_odd(const char *text) {
    char *shown = NULL;
    size_t size;
    FILE *f = open_memstream(&shown, &size);

    if (!f)
        return 0;
    visible_text(f, text);
    int odd = fclose(f) == 0 && strcmp(shown, text) != 0;
    free(shown);
    return odd;
}

/* $'a\012b', which bash, zsh and ksh read. */
static const char *quote_odd(const char *text, char *buf, size_t n) {
    size_t k = (size_t)snprintf(buf, n, "$'");

    for (; *text && k + 6 < n; text++) {
        unsigned char c = (unsigned char)*text;
        int plain = c >= ' ' && c < 0x7f && c != '\'' && c != '\\';
        k += (size_t)snprintf(buf + k, n - k, plain ? "%c" : "\\%03o", c);
    }
    snprintf(buf + k, n - k, "'");
    return buf;
}

const char *visible_quoted(const char *text, char *buf, size_t n) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-+=:,./@%";
    size_t k = 0;

    if (*text && text[strspn(text, safe)] == 0) {
        snprintf(buf, n, "%s", text);
        return buf;
    }
    if (is_odd(text))
        return quote_odd(text, buf, n);
    buf[k++] = '\'';
    for (; *text && k + 6 < n; text++) {
        if (*text != '\'') {
            buf[k++] = *text;
        } else {
            memcpy(buf + k, "'\\''", 4);
            k += 4;
        }
    }
    buf[k++] = '\'';
    buf[k] = 0;
    return buf;
}
