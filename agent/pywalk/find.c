/* SPDX-License-Identifier: Apache-2.0 */
/* Finding CPython: its image, its version, its roots. */
#include "find.h"

#include "image.h"
#include "mem.h"
#include "offsets.h"

#include <ctype.h>
#include <sys/mman.h>

/* ---- the version -------------------------------------------------------------------------- */

static unsigned digits(const char *s, size_t n, size_t *i) {
    unsigned v = 0;

    for (; *i < n && isdigit((unsigned char)s[*i]) && v < 100; ++*i)
        v = v * 10 + (unsigned)(s[*i] - '0');
    return v;
}

uint32_t pywalk_parse_version(const char *s, size_t n, const char **end) {
    unsigned minor, patch, level = 0xf, serial = 0;
    size_t i = 2;

    if (n < 5 || memcmp(s, "3.", 2) != 0 || !isdigit((unsigned char)s[2]))
        return 0;
    minor = digits(s, n, &i);
    if (i + 1 >= n || s[i] != '.' || !isdigit((unsigned char)s[i + 1]))
        return 0;
    i++;
    patch = digits(s, n, &i);
    if (i < n && (s[i] == 'a' || s[i] == 'b' || s[i] == 'r')) {
        level = s[i] == 'a' ? 0xa : s[i] == 'b' ? 0xb : 0xc;
        i += s[i] == 'r' ? 2 : 1;
        serial = digits(s, n, &i);
    }
    if (i < n && s[i] == '+')
        i++;
    *end = s + i;
    return minor < 6 || minor > 99 || patch > 99
               ? 0
               : PYWALK_3(minor) | patch << 8 | level << 4 | (serial & 15);
}

struct version_scan {
    uint32_t found[16]; /* distinct version strings */
    unsigned n;
    uint32_t minors; /* bit M: "python3.M" is there */
};

static void scan_bytes(struct version_scan *v, const char *buf, size_t n, size_t tail) {
    static const char word[] = "python3.";

    for (size_t i = 1; i + 1 < n && i <= n - tail; i++) {
        const char *p = memchr(buf + i, '3', n - i);
        if (p == NULL)
            break;
        i = (size_t)(p - buf);
        if (i >= 7 && i + 3 < n && memcmp(p - 6, word, sizeof word - 1) == 0 &&
            isdigit((unsigned char)p[2])) {
            unsigned minor = (unsigned)(p[2] - '0');
            if (isdigit((unsigned char)p[3]))
                minor = minor * 10 + (unsigned)(p[3] - '0');
            if (minor < 32)
                v->minors |= 1u << minor;
        }
        if (isalnum((unsigned char)p[-1]) || p[-1] == '.')
            continue;
        const char *end = buf + n;
        uint32_t version = pywalk_parse_version(p, n - i, &end);
        if (version >= PYWALK_3(11) || end == buf + n || *end != '\0')
            version = 0;
        for (unsigned k = 0; k < v->n && version != 0; k++)
            if (v->found[k] == version)
                version = 0;
        if (version != 0 && v->n < sizeof v->found / sizeof *v->found)
            v->found[v->n++] = version;
    }
}

/* Before 3.11 nothing exported holds the version: it is searched for among the constants, and must be the only
 * one whose minor version the library path names as well. */
static uint32_t version_scan(const struct pywalk_image *im) {
    enum { CHUNK = 1 << 16, TAIL = 32, MOST = 1 << 28 /* libpython has some MB */ };
    struct version_scan v = {{0}, 0, 0};
    char *buf =
        mmap(NULL, CHUNK + TAIL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t version = 0;

    if (buf == MAP_FAILED)
        return 0;
    for (unsigned s = 0; s < im->segments; s++) {
        if ((im->segment[s].flags & PF_W) != 0)
            continue;
        for (uint64_t at = 0; at < im->segment[s].size && at < MOST; at += CHUNK) {
            uint64_t left = im->segment[s].size - at;
            size_t n = left < CHUNK + TAIL ? (size_t)left : CHUNK + TAIL;
            if (im->mem.read(im->mem.ctx, im->segment[s].start + at, buf, n) == 0)
                scan_bytes(&v, buf, n, n == CHUNK + TAIL ? TAIL : 0);
        }
    }
    munmap(buf, CHUNK + TAIL);
    for (unsigned k = 0; k < v.n; k++) {
        if ((v.minors >> (v.found[k] >> 16 & 31) & 1) == 0)
            continue;
        if (version != 0)
            return 0;
        version = v.found[k];
    }
    return version;
}

/* ---- 3.6 ------------------------------------------------------------------------------------- */

/* The static variable interp_head is read by the smallest of exported functions, PyInterpreterState_Head: with or
 * without a frame, `mov interp_head(%rip), %rax` is its first instruction that matters. */
static int interp_head_address(const struct pywalk_image *im, uint64_t *addr) {
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa}, enter[] = {0x55, 0x48, 0x89, 0xe5},
                         load[] = {0x48, 0x8b, 0x05};
    uint8_t code[16];
    uint64_t function;
    size_t i = 0;
    int rc = pywalk_image_symbol(im, "PyInterpreterState_Head", &function, NULL);

    if (rc == 0)
        rc = im->mem.read(im->mem.ctx, function, code, sizeof code);
    if (rc != 0)
        return rc;
    if (memcmp(code + i, endbr64, sizeof endbr64) == 0)
        i += sizeof endbr64;
    if (memcmp(code + i, enter, sizeof enter) == 0)
        i += sizeof enter;
    if (memcmp(code + i, load, sizeof load) != 0)
        return -ENOTSUP;
    *addr = function + i + 7 + (uint64_t)(int64_t)(int32_t)load32(code + i + 3);
    return *addr >= im->start && *addr < im->end ? 0 : -ENOTSUP;
}

/* ---- one image ----------------------------------------------------------------------------- */

int pywalk_find_image(struct pywalk_mem mem, uint64_t start, struct pywalk_found *out) {
    struct pywalk_image im;
    struct pywalk_target *t = &out->target;
    uint64_t addr, size;
    int rc = pywalk_image_open(&im, mem, start);

    memset(out, 0, sizeof *out);
    if (rc != 0)
        return rc == -ENOEXEC ? -ENOENT : rc;
    if (pywalk_image_symbol(&im, "_PyRuntime", &t->runtime, NULL) != 0 &&
        pywalk_image_symbol(&im, "_PyThreadState_Current", &t->current, NULL) != 0)
        return -ENOENT;
    out->image = im.start;
    out->image_end = im.end;
    pywalk_image_symbol(&im, "PyCode_Type", &t->code_type, NULL);
    if (pywalk_image_symbol(&im, "_PyEval_EvalFrameDefault", &addr, &size) == 0) {
        out->eval_start = addr;
        out->eval_end = addr + size;
        if (pywalk_cold_part(&im, addr, addr + size, &out->cold_start, &out->cold_end) != 0)
            out->cold_start = out->cold_end = 0;
    }
    if (pywalk_image_symbol(&im, "Py_Version", &addr, NULL) == 0) {
        rc = mem.read(mem.ctx, addr, &size, sizeof size);
        t->version = (uint32_t)size;
    } else {
        t->version = version_scan(&im);
    }
    if (rc == 0 && t->version == 0)
        rc = -ENOTSUP;
    if (rc == 0 && t->runtime == 0) {
        rc = interp_head_address(&im, &addr);
        if (rc == 0)
            rc = mem.read(mem.ctx, addr, &t->interp_head, sizeof t->interp_head);
        if (rc == 0 && t->interp_head == 0)
            rc = -EAGAIN;
    }
    return rc;
}

int pywalk_free_threaded(struct pywalk_mem mem, const struct pywalk_target *t) {
    uint64_t head[3]; /* cookie, version, free_threaded */

    return t->runtime != 0 && t->version >= PYWALK_3(13) &&
           mem.read(mem.ctx, t->runtime, head, sizeof head) == 0 &&
           memcmp(head, "xdebugpy", sizeof head[0]) == 0 && head[2] != 0;
}
