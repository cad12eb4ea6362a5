/* SPDX-License-Identifier: Apache-2.0 */
/* Finding CPython: its image, its version, its roots. */
#include "find.h"

#include "cold.h"
#include "image.h"
#include "mem.h"
#include "offsets.h"

#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- the version -------------------------------------------------------------------------- */

/* "3.8.18" or "3.9.0rc1+", ended by NUL: its PY_VERSION_HEX, or 0. */
static uint32_t parse_version(const char *s, size_t n) {
    unsigned minor = 0, patch = 0, level = 0xf, serial = 0;
    size_t i = 2;

    if (n < 6 || memcmp(s, "3.", 2) != 0 || !isdigit((unsigned char)s[2]))
        return 0;
    for (; i < n && isdigit((unsigned char)s[i]) && minor < 100; i++)
        minor = minor * 10 + (unsigned)(s[i] - '0');
    if (i + 1 >= n || s[i] != '.' || !isdigit((unsigned char)s[i + 1]))
        return 0;
    for (i++; i < n && isdigit((unsigned char)s[i]) && patch < 100; i++)
        patch = patch * 10 + (unsigned)(s[i] - '0');
    if (i < n && (s[i] == 'a' || s[i] == 'b' || s[i] == 'r')) {
        level = s[i] == 'a' ? 0xa : s[i] == 'b' ? 0xb : 0xc;
        i += s[i] == 'r' ? 2 : 1;
        for (; i < n && isdigit((unsigned char)s[i]) && serial < 16; i++)
            serial = serial * 10 + (unsigned)(s[i] - '0');
    }
    if (i < n && s[i] == '+')
        i++;
    if (i >= n || s[i] != '\0' || minor < 6 || minor > 10 || patch > 99)
        return 0;
    return PYWALK_3(minor) | patch << 8 | level << 4 | (serial & 15);
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
        uint32_t version = parse_version(p, n - i);
        for (unsigned k = 0; k < v->n && version != 0; k++)
            if (v->found[k] == version)
                version = 0;
        if (version != 0 && v->n < sizeof v->found / sizeof *v->found)
            v->found[v->n++] = version;
    }
}

/* Before 3.11 nothing exported holds the version: it is looked for among the constants, and must be the only
 * one whose minor version the library path names as well. */
static uint32_t version_scan(const struct pywalk_image *im) {
    enum { CHUNK = 1 << 16, TAIL = 32, MOST = 1 << 28 /* libpython has some MB */ };
    struct version_scan v = {{0}, 0, 0};
    char *buf = malloc(CHUNK + TAIL);
    uint32_t version = 0;

    for (unsigned s = 0; buf != NULL && s < im->segments; s++) {
        if ((im->segment[s].flags & PF_W) != 0)
            continue;
        for (uint64_t at = 0; at < im->segment[s].size && at < MOST; at += CHUNK) {
            uint64_t left = im->segment[s].size - at;
            size_t n = left < CHUNK + TAIL ? (size_t)left : CHUNK + TAIL;
            if (im->mem.read(im->mem.ctx, im->segment[s].start + at, buf, n) == 0)
                scan_bytes(&v, buf, n, n == CHUNK + TAIL ? TAIL : 0);
        }
    }
    free(buf);
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
    if (pywalk_image_symbol(&im, "PyCode_Type", &t->code_type, NULL) != 0)
        t->code_type = 0;
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

/* ---- a process ------------------------------------------------------------------------------ */

/* libpython, the program, anything else that is mapped from its first byte on. */
enum { RANK_LIBPYTHON, RANK_PROGRAM, RANK_OTHER, RANKS };

static int rank_of(const char *path, const char *exe) {
    const char *base = strrchr(path, '/');

    if (path[0] != '/')
        return RANKS;
    if (strncmp(base + 1, "libpython", 9) == 0)
        return RANK_LIBPYTHON;
    return strcmp(path, exe) == 0 ? RANK_PROGRAM : RANK_OTHER;
}

/* One pass over the mappings: tries those of one rank. */
static int find_ranked(pid_t pid, int rank, const char *exe, struct pywalk_found *out) {
    struct pywalk_mem mem = {pywalk_read_process, (void *)(intptr_t)pid};
    char name[64], *line = NULL, *path;
    unsigned long long start, offset;
    size_t room = 0;
    int rc = -ENOENT, at;
    FILE *maps;

    snprintf(name, sizeof name, "/proc/%d/maps", (int)pid);
    maps = fopen(name, "re");
    if (maps == NULL)
        return errno == ENOENT ? -ESRCH : -errno;
    while (rc == -ENOENT && getline(&line, &room, maps) > 0) {
        at = 0;
        if (sscanf(line, "%llx-%*x r%*3s %llx %*s %*s %n", &start, &offset, &at) < 2 || at == 0 ||
            offset != 0)
            continue;
        path = line + at;
        path[strcspn(path, "\n")] = '\0';
        if (rank_of(path, exe) != rank)
            continue;
        rc = pywalk_find_image(mem, start, out);
        if (rc == -EFAULT) /* unmapped meanwhile, or a device's memory */
            rc = -ENOENT;
        if (rc == 0)
            snprintf(out->path, sizeof out->path, "%s", path);
    }
    free(line);
    fclose(maps);
    return rc;
}

/* May the process be read at all? Where nothing is found, this says why. */
static int may_read(pid_t pid, uint64_t addr) {
    char c;
    struct iovec local = {&c, 1}, remote = {(void *)(uintptr_t)addr, 1};

    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1 || errno == EFAULT)
        return 0;
    return -errno;
}

/* Our glibc's offset of the kernel thread id, if in the target's main thread its own id is there. */
static void confirm_tid_offset(pid_t pid, struct pywalk_found *found) {
    struct pywalk_mem mem = {pywalk_read_process, (void *)(intptr_t)pid};
    struct pywalk_thread threads[64];
    struct pywalk pw;
    int off, n;

    if (found->target.version >= PYWALK_3(11))
        return;
    off = pywalk_find_pthread_tid_off();
    if (off <= 0)
        return;
    found->target.pthread_tid_off = (uint64_t)off;
    n = pywalk_init(&pw, mem, &found->target) == 0 ? pywalk_threads(&pw, threads, 64, NULL) : -1;
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "/proc/%d/task/%u", (int)pid, threads[i].tid);
        if (threads[i].tid != 0 && access(name, F_OK) == 0)
            return;
    }
    found->target.pthread_tid_off = 0;
}

int pywalk_find(pid_t pid, struct pywalk_found *out) {
    char name[64], exe[1024];
    ssize_t n;
    int rc;

    memset(out, 0, sizeof *out);
    rc = may_read(pid, 0);
    if (rc != 0)
        return rc;
    snprintf(name, sizeof name, "/proc/%d/exe", (int)pid);
    n = readlink(name, exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    rc = -ENOENT;
    for (int rank = 0; rank < RANKS && rc == -ENOENT; rank++)
        rc = find_ranked(pid, rank, exe, out);
    if (rc == 0)
        confirm_tid_offset(pid, out);
    return rc;
}
