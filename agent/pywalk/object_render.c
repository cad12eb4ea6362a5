/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of the target's objects; and how a renderer writes text into a buffer of fixed size and reads memory within a budget. */
#include "object_render.h"
#include "traces/utf8.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- the layout of the target's objects, compared with what the target says of itself ---- */

static const struct {
    uint32_t low, high; /* PY_VERSION_HEX, inclusive */
    struct object_fields fields;
} table[] = {
#include "object_table.inc"
};

#define MAX_WORDS 512 /* of _Py_DebugOffsets */

/* Detects a build that is no final release: the table is for final releases, which never move a structure. */
static int compare(const struct pywalk *pw, const struct object_fields *f) {
    const struct {
        int64_t word, value;
    } same[] = {
        {f->word_tp_name, f->tp_name},
        {f->word_tp_flags, f->tp_flags},
        {f->word_tuple_items, f->tuple_items},
        {f->word_list_items, f->list_items},
        {f->word_dict_keys, f->dict_keys},
        {f->word_dict_values, f->dict_values},
        {f->word_float_value, f->float_value},
        {f->word_int_size, f->int_size},
        {f->word_int_digits, f->int_digits},
        {f->word_argcount, f->co_argcount},
        {f->word_localsplusnames, f->co_localsplusnames},
        {f->word_localspluskinds, f->co_localspluskinds},
        {f->word_slots, f->fr_slots},
    };
    uint64_t word;
    int rc = 0;

    for (size_t i = 0; i < sizeof same / sizeof *same && rc == 0; i++) {
        if (same[i].word <= 0 || same[i].word >= f->words || f->words > MAX_WORDS)
            return -ENOTSUP;
        rc = mem_u64(pw, pw->runtime + (uint64_t)same[i].word * 8, &word);
        if (rc == 0 && word != (uint64_t)same[i].value)
            rc = -ENOTSUP;
    }
    return rc;
}

int pywalk_objects_init(struct pywalk_objects *ob, const struct pywalk *pw) {
    const typeof(*table) *row = PYWALK_ROW(table, pw->version);

    ob->pw = pw;
    ob->f = NULL;
    if (pw->mem.read == pywalk_read_direct)
        return -EINVAL;
    if (row == NULL)
        return -ENOTSUP;
    ob->f = &row->fields;
    return ob->f->words != 0 ? compare(pw, ob->f) : 0;
}

/* ---- a render ---- */

#define TAIL 4 /* bytes that are kept for "..." and NUL */

static int counted_read(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct render *r = ctx;

    if (r->full || r->limit.reads == 0) {
        r->full = true;
        return -E2BIG;
    }
    r->limit.reads--;
    if (addr < PYWALK_PAGE || addr >= 1ull << 47 || n > PYWALK_PAGE)
        return -EFAULT;
    return r->mem.read(r->mem.ctx, addr, buf, n) == 0 ? 0 : -EFAULT;
}

static uint32_t choose(uint32_t wanted, uint32_t usual, uint32_t most) {
    return wanted == 0 ? usual : wanted < most ? wanted : most;
}

void obj_begin(struct render *r, const struct pywalk_objects *ob,
               const struct pywalk_limits *limits, char *buf, size_t n) {
    static const struct pywalk_limits none;

    if (limits == NULL)
        limits = &none;
    *r = (struct render){
        .f = ob->f, .mem = ob->pw->mem, .pw = *ob->pw, .buf = buf, .space = n - TAIL};
    r->pw.mem = (struct pywalk_mem){counted_read, r};
    r->limit.depth = choose(limits->depth, 4, PYWALK_MAX_DEPTH);
    r->limit.items = choose(limits->items, 20, 1 << 24);
    r->limit.string = choose(limits->string, 200, 1 << 24);
    r->limit.reads = choose(limits->reads, 5000, 1 << 24);
}

void obj_begin_reads(struct render *r, const struct pywalk_objects *ob, uint32_t reads) {
    const struct pywalk_limits limits = {.reads = reads};
    static char nothing[TAIL]; /* never written: there is no space */

    obj_begin(r, ob, &limits, nothing, sizeof nothing);
}

int obj_end(struct render *r) {
    if (r->full) {
        memcpy(r->buf + r->n, "...", 3);
        r->n += 3;
    }
    r->buf[r->n] = '\0';
    return (int)r->n;
}

/* ---- writing ------------------------------------------------------------------------------------ */

void obj_put_bytes(struct render *r, const char *s, size_t n) {
    if (r->full)
        return;
    if (n > r->space - r->n) {
        n = r->space - r->n;
        while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) /* do not cut a character */
            n--;
        r->full = true;
    }
    memcpy(r->buf + r->n, s, n);
    r->n += n;
}

void obj_put(struct render *r, const char *s) {
    obj_put_bytes(r, s, strlen(s));
}

void obj_put_clean(struct render *r, const char *s) {
    while (*s != '\0') {
        uint32_t c = 0;
        size_t n = utf8_char(s, 4, &c);
        bool good = n > 0 && c >= 0x20 && (c < 0x7f || c >= 0xa0);
        obj_put_bytes(r, good ? s : "?", good ? n : 1);
        s += n > 0 ? n : 1;
    }
}

void obj_put_format(struct render *r, const char *fmt, ...) {
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0)
        obj_put_bytes(r, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void obj_put_error(struct render *r, uint64_t addr) {
    int rc = obj_error(r);

    if (rc == -E2BIG)
        r->full = true;
    else if (rc != 0)
        obj_put_format(r, "<%s at 0x%lx>", rc == -EFAULT ? "unreadable" : "corrupt", addr);
}

const char *obj_short(const char *name) {
    const char *dot = strrchr(name, '.');

    return dot != NULL ? dot + 1 : name;
}

/* ---- reading ------------------------------------------------------------------------------------- */

bool obj_get(struct render *r, uint64_t addr, void *buf, size_t n) {
    if (r->rc == 0 && n > 0)
        r->rc = r->pw.mem.read(r, addr, buf, n);
    if (r->rc != 0)
        memset(buf, 0, n);
    return r->rc == 0;
}

#define READ(name, type)                                                                           \
    type name(struct render *r, uint64_t addr) {                                                   \
        type v;                                                                                    \
        obj_get(r, addr, &v, sizeof v);                                                            \
        return v;                                                                                  \
    }
READ(obj_u8, uint8_t)
READ(obj_u32, uint32_t)
READ(obj_u64, uint64_t)

uint64_t obj_pointer(struct render *r, uint64_t addr) {
    uint64_t v = obj_u64(r, addr);

    return obj_ok(r, v == 0 || pywalk_plausible(v)) ? v : 0;
}

uint64_t obj_count(struct render *r, uint64_t addr) {
    uint64_t v = obj_u64(r, addr);

    return obj_ok(r, v < 1ull << 40) ? v : 0;
}

bool obj_text(struct render *r, uint64_t str, char *buf, size_t n) {
    int rc = r->rc != 0 ? r->rc : pywalk_str(&r->pw, str, buf, n);

    if (rc < 0) {
        obj_fail(r, rc);
        buf[0] = '\0';
    }
    return rc >= 0;
}

void obj_c_text(struct render *r, uint64_t addr, char *buf, size_t n) {
    memset(buf, 0, n);
    /* first up to a boundary of 32 bytes */
    for (size_t at = 0; r->rc == 0 && at < n - 1 && memchr(buf, '\0', at) == NULL;) {
        size_t some = 32 - (addr + at) % 32;
        if (some > n - 1 - at)
            some = n - 1 - at;
        obj_get(r, addr + at, buf + at, some);
        at += some;
    }
}

/* ---- containers ----------------------------------------------------------------------------------- */

bool obj_enter(struct render *r, uint64_t addr) {
    if (r->depth >= r->limit.depth)
        return false;
    for (uint32_t i = 0; i < r->depth; i++)
        if (r->open[i] == addr)
            return false;
    r->open[r->depth++] = addr;
    return true;
}

void obj_leave(struct render *r) {
    r->depth--;
}

bool obj_open(struct render *r, uint64_t addr, uint64_t count, const char brackets[2]) {
    bool entered = count > 0 && obj_enter(r, addr);

    obj_put_bytes(r, brackets, 1);
    if (!entered) {
        obj_put(r, count > 0 ? "..." : "");
        obj_put_bytes(r, brackets + 1, 1);
    }
    return entered;
}

void obj_close(struct render *r, uint64_t addr, const char *end) {
    obj_put_error(r, addr);
    obj_put(r, end);
    obj_leave(r);
}

bool obj_next(struct render *r, uint64_t i, uint64_t most, const char *first) {
    if (r->full)
        return false;
    obj_put(r, i > 0 ? ", " : first);
    if (i == most)
        obj_put(r, "...");
    return i != most;
}

bool obj_more(struct render *r, uint64_t i, uint64_t count) {
    if (r->full || r->rc != 0 || i >= count)
        return false;
    if (i > 0)
        obj_put(r, ", ");
    if (i < r->limit.items)
        return true;
    obj_put_format(r, "... (%lu)", count);
    return false;
}
