/* SPDX-License-Identifier: Apache-2.0 */
/* Code objects: their identity, their names, and the lines of their instructions. */
#include "mem.h"
#include "offsets.h"

#include <limits.h>

int pywalk_code_identity(const struct pywalk *pw, uint64_t code, uint64_t *hash) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint8_t bytes[256];
    const uint8_t *p = bytes;

    if (!pywalk_plausible(code) || f->co_linetable + 8 > sizeof bytes)
        return -EBADMSG;
    if (pw->mem.read == pywalk_read_direct) {
        p = (const uint8_t *)(uintptr_t)code;
    } else {
        /* in all versions the line table follows the names */
        int rc = mem_read(pw, code, bytes, f->co_linetable + 8);
        if (rc != 0)
            return rc;
    }
    uint64_t h = mem_mix(code, load64(p + f->co_name));
    h = mem_mix(h, load64(p + f->co_filename));
    h = mem_mix(h, load32(p + f->co_firstlineno));
    *hash = mem_mix(h, load64(p + f->co_linetable));
    return 0;
}

/* A bytes object's data and length. */
static int bytes_at(const struct pywalk *pw, uint64_t obj, uint64_t *data, uint32_t *len) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint64_t size = 0;
    int rc = pywalk_plausible(obj) ? mem_u64(pw, obj + f->ob_size, &size) : -EBADMSG;

    if (rc == 0 && size > INT_MAX)
        rc = -EBADMSG;
    *data = obj + f->bytes_data;
    *len = (uint32_t)size;
    return rc;
}

int pywalk_code(const struct pywalk *pw, uint64_t code, struct pywalk_code *out) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint8_t bytes[256];
    const int keep = pw->keep != 0;

    memset(out, 0, sizeof *out);
    if (!pywalk_plausible(code) || f->co_linetable + 8 > sizeof bytes)
        return -EBADMSG;
    int rc = mem_read(pw, code, bytes, f->co_linetable + 8);
    if (rc != 0)
        return rc;
    if (pw->code_type != 0 && load64(bytes + f->ob_type) != pw->code_type)
        return -EBADMSG;
    out->firstline = (int32_t)load32(bytes + f->co_firstlineno);
    rc = pywalk_str(pw, load64(bytes + (f->co_qualname != 0 ? f->co_qualname : f->co_name)),
                    out->name, sizeof out->name);
    if (rc >= 0 || keep)
        rc = pywalk_str(pw, load64(bytes + f->co_filename), out->file, sizeof out->file);
    if (rc >= 0 || keep)
        rc = bytes_at(pw, load64(bytes + f->co_linetable), &out->linetable, &out->linetable_len);
    if (rc < 0 && keep) /* then no line is known */
        rc = out->firstline = 0;
    return rc < 0 ? rc : 0;
}

/* ---- the three line-table formats: lnotab (to 3.9), pairs (3.10), location table (3.11+) ---- */

/* A stream of bytes, read from the target in pieces. */
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

/* Reads a number of 6 bits a byte, the lowest first; bit 6: more follow. */
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

/* Reads such a number whose lowest bit is its sign. */
static uint32_t signed_varint(struct bytes *b) {
    uint32_t v = varint(b);
    return (v & 1) != 0 ? 0u - (v >> 1) : v >> 1;
}

/* Reads the rest of an entry whose line is known: its columns and its last line. */
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
        out->column = (int32_t)(varint(b) - 1);
        out->end_column = (int32_t)(varint(b) - 1);
    }
    /* 13: none */
}

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
            out->end_line = line_or_none(line);
            columns(b, code, line, out);
            return line_or_none(line);
        }
    }
    return 0;
}

int pywalk_position(const struct pywalk *pw, const struct pywalk_code *code, int32_t lasti,
                    struct pywalk_position *out) {
    struct bytes b = {.left = code->linetable_len, .addr = code->linetable, .pw = pw};
    uint32_t first = (uint32_t)code->firstline;

    *out = (struct pywalk_position){0, 0, -1, -1};
    int line = lasti < 0                    ? line_or_none(first)
               : pw->version < PYWALK_3(10) ? lnotab(&b, first, lasti)
               : pw->version < PYWALK_3(11) ? pairs(&b, first, lasti)
                                            : locations(&b, first, lasti, out);
    if (b.rc != 0)
        line = b.rc;
    if (line <= 0 || out->end_line < line || out->column < 0 || out->end_column < 0 ||
        (out->end_line == line && out->end_column < out->column))
        *out = (struct pywalk_position){0, line > 0 ? line : 0, -1, -1};
    out->line = line > 0 ? line : 0;
    return line < 0 ? line : 0;
}

int pywalk_frame_line(const struct pywalk *pw, const struct pywalk_code *code, int32_t lasti) {
    struct pywalk_position at;
    int rc = pywalk_position(pw, code, lasti, &at);

    return rc < 0 ? rc : at.line;
}
