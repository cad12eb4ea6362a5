/* SPDX-License-Identifier: Apache-2.0 */
/* The three line-table formats: lnotab (to 3.9), pairs (3.10), location table (3.11+). */
#include "mem.h"
#include "offsets.h"

/* Bytes one after the other, from memory at hand or in pieces from the target. */
struct bytes {
    const uint8_t *p;
    uint32_t have; /* bytes at p */
    uint32_t left; /* in the target, beyond those */
    uint64_t addr; /* of the next piece */
    const struct pywalk *pw;
    int rc;
    uint8_t piece[128];
};

/* The next byte, or -1 at the end or on an error (rc). */
static inline int next(struct bytes *b) {
    if (b->have == 0) {
        uint32_t n = b->left < sizeof b->piece ? b->left : (uint32_t)sizeof b->piece;
        if (n == 0 || b->rc != 0)
            return -1;
        b->rc = mem_read(b->pw, b->addr, b->piece, n);
        if (b->rc != 0)
            return -1;
        b->p = b->piece;
        b->have = n;
        b->left -= n;
        b->addr += n;
    }
    b->have--;
    return *b->p++;
}

/* Lines are ints in CPython; in a torn table the sum may be anything, so it is kept unsigned. */
static int line_or_none(uint32_t line) {
    return (int32_t)line > 0 ? (int32_t)line : 0;
}

static int lnotab(struct bytes *b, uint32_t line, int32_t lasti) {
    int64_t addr = 0;
    int a, d;

    while ((a = next(b)) >= 0 && (d = next(b)) >= 0) {
        addr += a;
        if (addr > lasti)
            break;
        line += (uint32_t)(int32_t)(int8_t)d;
    }
    return line_or_none(line);
}

static int pairs(struct bytes *b, uint32_t line, int32_t lasti) {
    int64_t end = 0;
    int a, d;

    while ((a = next(b)) >= 0 && (d = next(b)) >= 0) {
        end += a;
        if ((int8_t)d != -128)
            line += (uint32_t)(int32_t)(int8_t)d;
        if (end > lasti) /* the end is exclusive */
            return (int8_t)d == -128 ? 0 : line_or_none(line);
    }
    return 0;
}

/* The first byte of the next entry: all others have bit 7 clear. */
static int next_entry(struct bytes *b) {
    int c;

    do
        c = next(b);
    while (c >= 0 && (c & 0x80) == 0);
    return c;
}

/* 6 bits a byte, the lowest first; bit 6: more follow. */
static uint32_t varint(struct bytes *b) {
    uint32_t v = 0;
    unsigned shift = 0;
    int c;

    do {
        c = next(b);
        if (c < 0)
            return 0;
        if (shift < 32)
            v |= (uint32_t)(c & 0x3f) << shift;
        shift += 6;
    } while ((c & 0x40) != 0);
    return v;
}

/* The number's lowest bit is its sign. */
static uint32_t signed_varint(struct bytes *b) {
    uint32_t v = varint(b);
    return (v & 1) != 0 ? 0u - (v >> 1) : v >> 1;
}

/* The rest of an entry whose line is known: in which columns, and to which line. */
static void columns(struct bytes *b, int code, uint32_t line, struct pywalk_position *out) {
    if (code < 10) { /* short: a column below 80, and few characters */
        int c = next(b);
        if (c >= 0) {
            out->column = code * 8 + (c >> 4 & 7);
            out->end_column = out->column + (c & 15);
        }
    } else if (code < 13) {
        out->column = next(b);
        out->end_column = next(b);
    } else if (code == 14) {
        out->end_line = line_or_none(line + varint(b));
        out->column = (int32_t)varint(b) - 1;
        out->end_column = (int32_t)varint(b) - 1;
    }
    /* 13: none */
}

/* `out` may be NULL: only the line is asked for. */
static int locations(struct bytes *b, uint32_t line, int32_t lasti, struct pywalk_position *out) {
    int64_t end = 0;
    int c;

    while ((c = next_entry(b)) >= 0) {
        int code = c >> 3 & 15;
        end += ((c & 7) + 1) * 2;
        if (code >= 11 && code <= 12)
            line += (uint32_t)(code - 10);
        else if (code >= 13 && code <= 14)
            line += signed_varint(b);
        if (end > lasti) {
            if (code == 15)
                return 0;
            if (out != NULL) {
                out->end_line = line_or_none(line);
                columns(b, code, line, out);
            }
            return line_or_none(line);
        }
    }
    return 0;
}

static int decode(uint32_t version, struct bytes *b, int firstline, int32_t lasti,
                  struct pywalk_position *out) {
    int line;

    if (lasti < 0)
        line = line_or_none((uint32_t)firstline);
    else if (version < PYWALK_3(10))
        line = lnotab(b, (uint32_t)firstline, lasti);
    else if (version < PYWALK_3(11))
        line = pairs(b, (uint32_t)firstline, lasti);
    else
        line = locations(b, (uint32_t)firstline, lasti, out);
    return b->rc != 0 ? b->rc : line;
}

int pywalk_line(uint32_t version, const uint8_t *table, size_t len, int firstline, int32_t lasti) {
    struct bytes b;

    b.p = table;
    b.have = len < UINT32_MAX ? (uint32_t)len : UINT32_MAX;
    b.left = 0;
    b.rc = 0;
    return decode(version, &b, firstline, lasti, NULL);
}

static void open_table(struct bytes *b, const struct pywalk *pw, const struct pywalk_code *code) {
    b->p = b->piece;
    b->have = 0;
    b->left = code->linetable_len;
    b->addr = code->linetable;
    b->pw = pw;
    b->rc = 0;
}

int pywalk_frame_line(const struct pywalk *pw, const struct pywalk_code *code, int32_t lasti) {
    struct bytes b;

    open_table(&b, pw, code);
    return decode(pw->version, &b, code->firstline, lasti, NULL);
}

int pywalk_position(const struct pywalk *pw, const struct pywalk_code *code, int32_t lasti,
                    struct pywalk_position *out) {
    struct bytes b;
    int line;

    *out = (struct pywalk_position){0, 0, -1, -1};
    open_table(&b, pw, code);
    line = decode(pw->version, &b, code->firstline, lasti, out);
    if (line <= 0 || out->end_line < line || out->column < 0 || out->end_column < 0 ||
        (out->end_line == line && out->end_column < out->column))
        *out = (struct pywalk_position){line > 0 ? line : 0, line > 0 ? line : 0, -1, -1};
    out->line = line > 0 ? line : 0;
    return line < 0 ? line : 0;
}
