/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A core on a machine that has not the libpython (or the program) that ran. Its symbols are gone, but its data is in the
 * core: each word of it is tried as the start of the runtime, and the right one is the one whose interpreters lead to thread
 * states that lead back, of which one belongs to a thread of the core (by pthread_self()) and has a sound stack.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pywalk/offsets.h"
#include "core.h"
#include "python.h"

#define MAX_DATA (64u << 20)
#define MAX_TRY  64

/* 3.minor from .../libpython3.11.so.1.0 or .../python3.11; 0: the name does not say. */
static unsigned minor_of(const char *path) {
    const char *p = path;
    unsigned minor = 0;

    while ((p = strstr(p, "python3."))) {
        p += 8;
        if (isdigit((unsigned char)*p))
            minor = (unsigned)strtoul(p, NULL, 10);
    }
    return minor < 100 ? minor : 0;
}

/* "3.11.2 (main, ..." in the data: what Py_GetVersion() built. */
static uint32_t version_in(const unsigned char *p, size_t n, unsigned minor) {
    for (size_t i = 0; i + 16 < n; i++) {
        const unsigned char *q = memchr(p + i, '3', n - 16 - i);
        unsigned m = 0, patch = 0;
        const unsigned char *d;

        if (!q)
            break;
        i = (size_t)(q - p);
        if (q[1] != '.' || !isdigit(q[2]))
            continue;
        for (d = q + 2; isdigit(*d) && m < 100; d++)
            m = m * 10 + (unsigned)(*d - '0');
        if (*d != '.' || !isdigit(d[1]) || (minor && m != minor) || m < 6)
            continue;
        for (d++; isdigit(*d) && patch < 100; d++)
            patch = patch * 10 + (unsigned)(*d - '0');
        if (patch < 100 && (memcmp(d, " (", 2) == 0 || memcmp(d, "+ (", 3) == 0))
            return PYWALK_3(m) | patch << 8 | 0xf0;
    }
    return 0;
}

/* Not from files: nearly all words that are tried lead somewhere by chance. */
static int read_own(void *ctx, uint64_t addr, void *buf, size_t n) {
    return core_read_own(((struct origin *)ctx)->core, addr, buf, n);
}

static int sound(struct origin *s, struct pywalk_target *t) {
    struct pywalk_mem mem = {read_own, s};
    struct pywalk_thread v[MAX_TRY];
    struct pywalk_frame f[MAX_TRY];
    struct pywalk pw;
    int n;

    if (pywalk_init(&pw, mem, t) != 0 || (n = pywalk_threads(&pw, v, MAX_TRY, NULL)) <= 0)
        return 0;
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < s->n; k++) {
            /* Its code objects tell their type, by which shims are known (3.14+). */
            if (s->v[k].regs.fs_base == v[i].ident &&
                pywalk_frames(&pw, v[i].tstate, f, MAX_TRY, NULL) > 0 &&
                read_own(s, f[0].code + pywalk_offsets(&pw)->f.ob_type, &t->code_type, 8) == 0)
                return 1;
        }
    }
    return 0;
}

/* The words of one writable range. */
static int search(struct origin *s, uint64_t start, const unsigned char *p, size_t n,
                  struct pywalk_target *t) {
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t word, dummy;

        memcpy(&word, p + i, sizeof word);
        if (t->version < PYWALK_3(7)) { /* a pointer to the interpreter itself */
            if (word < 4096 || (word & 7) || core_read_own(s->core, word, &dummy, 8) < 0)
                continue;
            t->interp_head = word;
        } else if (t->version >= PYWALK_3(13)) {
            if (memcmp(p + i, "xdebugpy", 8) != 0)
                continue;
            t->runtime = start + i;
        } else
            t->runtime = start + i;
        if (sound(s, t))
            return 0;
    }
    return -ENOENT;
}

/* The program's data, and the anonymous memory behind it (.bss). */
int python_search(struct origin *s, const struct proc_map *first, struct pywalk_target *out) {
    const struct core *c = s->core;
    unsigned minor = minor_of(first->path);
    uint64_t end = first->end;
    uint32_t version = 0;
    int rc = -EFAULT;

    for (size_t i = 0; i < c->maps.n; i++) {
        if (strcmp(c->maps.v[i].path, first->path) == 0)
            end = c->maps.v[i].end;
    }
    for (int pass = 0; pass < 2 && rc != 0; pass++) {
        for (size_t i = 0; i < c->nsegments && rc != 0; i++) {
            const struct core_segment *g = &c->segments[i];
            size_t n = g->filed < MAX_DATA ? g->filed : MAX_DATA;

            if (g->addr < first->start || g->addr > end || !(g->flags & 2) || n == 0)
                continue;
            if (pass == 0 && version == 0)
                version = version_in(c->bytes + g->offset, n, minor);
            if (pass == 1) {
                memset(out, 0, sizeof *out);
                out->version = version;
                rc = search(s, g->addr, c->bytes + g->offset, n, out);
            }
        }
        if (version == 0)
            return -EFAULT; /* no Python, or one that was never asked for its version */
    }
    return rc;
}
