/* SPDX-License-Identifier: Apache-2.0 */
/* The ready-made read callbacks, and the characters of str objects. */
#include "mem.h"
#include "offsets.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int pywalk_read_direct(void *ctx, uint64_t addr, void *buf, size_t n) {
    (void)ctx;
    memcpy(buf, (const void *)(uintptr_t)addr, n);
    return 0;
}

int pywalk_read_process(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct iovec local = {buf, n}, remote = {(void *)(uintptr_t)addr, n};
    int saved = errno; /* a signal handler may be the caller */
    ssize_t got = process_vm_readv((pid_t)(intptr_t)ctx, &local, 1, &remote, 1, 0);
    if (got < 0 && errno == ESRCH && (pid_t)(intptr_t)ctx == getpid())
        got = process_vm_readv(gettid(), &local, 1, &remote, 1, 0); /* our main thread has ended */
    errno = saved;
    return got == (ssize_t)n ? 0 : -EFAULT;
}

/* rt_sigprocmask copies the mask in before it checks `how`, which is invalid here: so nothing is ever changed,
 * and the error says whether addr could be read. Cheaper than process_vm_readv, and no seccomp filter forbids it. */
bool pywalk_mem_probe(uint64_t addr) {
    int saved = errno;
    long rc = syscall(SYS_rt_sigprocmask, ~0L, (void *)(uintptr_t)addr, NULL, 8);
    bool ok = rc == -1 && errno == EINVAL;

    errno = saved;
    return ok;
}

int pywalk_mem_many(const struct pywalk *pw, const uint64_t *addr, size_t count, void *buf,
                    size_t n) {
    int rc = 0;
    if (pw->mem.read == pywalk_read_process && count <= MEM_MANY) {
        struct iovec local = {buf, count * n}, remote[MEM_MANY];
        int saved = errno;
        for (size_t i = 0; i < count; i++)
            remote[i] = (struct iovec){(void *)(uintptr_t)addr[i], n};
        ssize_t got = process_vm_readv((pid_t)(intptr_t)pw->mem.ctx, &local, 1, remote, count, 0);
        errno = saved;
        if (got == (ssize_t)(count * n))
            return 0; /* else one by one: our main thread may have ended */
    }
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = mem_read(pw, addr[i], (uint8_t *)buf + i * n, n);
    return rc;
}

/* ---- by the page ---- */

#define PAGES 1024 /* pages of a cache that is allocated here */

void pywalk_pages_forget(struct pywalk_pages *p) {
    for (uint32_t i = 0; i < p->n; i++)
        p->page[i].number = p->page[i].used = 0;
}

struct pywalk_pages *pywalk_pages_new(struct pywalk_mem mem) {
    struct pywalk_pages *p = calloc(1, sizeof *p + PAGES * sizeof *p->page);

    if (p != NULL)
        *p = (struct pywalk_pages){mem, PAGES, (struct pywalk_page *)(p + 1)};
    return p;
}

int pywalk_pages_read(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct pywalk_pages *p = ctx;
    uint8_t *out = buf;

    if (n != 0 && addr + n - 1 < addr)
        return -EFAULT;
    while (n != 0) {
        uint64_t number = addr / PYWALK_PAGE + 1;
        size_t at = addr % PYWALK_PAGE, part = n < PYWALK_PAGE - at ? n : PYWALK_PAGE - at;
        struct pywalk_page *kept = &p->page[number % p->n];
        if (kept->number != number) {
            kept->number = 0;
            if (p->mem.read(p->mem.ctx, addr - at, kept->bytes, PYWALK_PAGE) == 0)
                kept->number = number;
            else if (p->mem.read(p->mem.ctx, addr, out, part) != 0) /* a core may have a part */
                return -EFAULT;
        }
        kept->used = kept->number == number;
        if (kept->used)
            memcpy(out, kept->bytes + at, part);
        out += part;
        addr += part;
        n -= part;
    }
    return 0;
}

/* ---- str objects: where their characters are, and as UTF-8 ---- */

#define PIECE 256 /* bytes of character data read at once; a multiple of 4 */

size_t pywalk_utf8(uint32_t c, char *buf) {
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        buf[i] = (char)(0x80 | (c & 0x3f));
    buf[0] = (char)(first[n] | c);
    return n;
}

uint32_t pywalk_char(const uint8_t *p, unsigned unit) {
    uint32_t c = p[0];

    if (unit >= 2)
        c |= (uint32_t)p[1] << 8;
    if (unit == 4)
        c |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return c;
}

int pywalk_chars(const struct pywalk *pw, uint64_t obj, struct pywalk_chars *out) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint8_t head[128];

    if (!pywalk_plausible(obj) || f->str_state + 4 > sizeof head || f->str_length + 8 > sizeof head)
        return -EBADMSG;
    int rc = mem_read(pw, obj, head, f->str_state + 4);
    if (rc != 0)
        return rc;
    out->length = load64(head + f->str_length);
    uint32_t state = load32(head + f->str_state);
    out->unit = (state & f->str_kind_mask) / (f->str_kind_mask & -f->str_kind_mask);
    out->data = obj + f->str_ascii_data;
    if ((state & f->str_ascii_mask) == 0)
        out->data = obj + f->str_compact_data;
    if ((state & f->str_compact_mask) == 0) {
        if (out->unit == 0)
            return -EAGAIN;
        rc = mem_u64(pw, obj + f->str_any, &out->data);
        if (rc == 0 && !pywalk_plausible(out->data & ~7ull))
            rc = -EBADMSG;
    }
    if (rc == 0 &&
        ((out->unit != 1 && out->unit != 2 && out->unit != 4) || out->length > 1ull << 40))
        rc = -EBADMSG;
    return rc;
}

int pywalk_str(const struct pywalk *pw, uint64_t obj, char *buf, size_t n) {
    struct pywalk_chars s;
    uint8_t piece[PIECE];
    char utf8[4];
    size_t out = 0;

    if (n == 0)
        return -EINVAL;
    int rc = pywalk_chars(pw, obj, &s);
    if (rc == -EAGAIN)
        rc = -EBADMSG;
    while (rc == 0 && s.length > 0 && out + 1 < n) {
        size_t count = s.length < PIECE / s.unit ? s.length : PIECE / s.unit;
        if (count > n - 1 - out) /* a character takes a byte at least */
            count = n - 1 - out;
        rc = mem_read(pw, s.data, piece, count * s.unit);
        for (size_t i = 0; rc == 0 && i < count; i++) {
            uint32_t c = pywalk_char(piece + i * s.unit, s.unit);
            /* A lone surrogate is no character; a value above the last character means a torn string. */
            size_t len = pywalk_utf8((c >= 0xd800 && c < 0xe000) || c > 0x10ffff ? '?' : c, utf8);
            if (len > n - 1 - out) {
                s.length = count; /* full: ends the outer loop */
                break;
            }
            memcpy(buf + out, utf8, len);
            out += len;
        }
        s.length -= count;
        s.data += count * s.unit;
    }
    buf[rc == 0 ? out : 0] = '\0';
    return rc == 0 ? (int)out : rc;
}
