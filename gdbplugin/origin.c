/* SPDX-License-Identifier: Apache-2.0 */
/* What all sources share, and the source that GDB gives. */
#include "origin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "say.h"

struct origin_thread *origin_add(struct origin *s) {
    struct origin_thread *v;

    if ((s->n & (s->n - 1)) == 0) { /* room for the next power of two */
        v = realloc(s->v, (s->n ? s->n * 2 : 1) * sizeof *v);
        if (!v)
            return NULL;
        s->v = v;
    }
    v = &s->v[s->n++];
    memset(v, 0, sizeof *v);
    return v;
}

struct origin_thread *origin_thread(struct origin *s, pid_t tid) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].tid == tid)
            return &s->v[i];
    }
    return NULL;
}

int origin_by_tid(const void *a, const void *b) {
    const struct origin_thread *x = a, *y = b;

    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* ---- given ---- */

static int given_page(struct origin *s, uint64_t page, const struct stop_page **out) {
    struct stop_page *p = &s->pages[(page >> 12) % STOP_PAGES];

    if (p->addr != page || page == 0) {
        p->addr = 0;
        if (s->given->read(page, p->bytes, sizeof p->bytes) != 0)
            return -EFAULT;
        p->addr = page;
    }
    *out = p;
    return 0;
}

static int given_read(struct origin *s, uint64_t addr, char *out, size_t n) {
    while (n > 0) {
        uint64_t page = addr & ~4095ull;
        size_t off = (size_t)(addr - page), len = 4096 - off < n ? 4096 - off : n;
        const struct stop_page *p;

        if (given_page(s, page, &p) == 0)
            memcpy(out, p->bytes + off, len);
        else if (s->given->read(addr, out, len) != 0) /* not the whole page is there */
            return -EFAULT;
        out += len;
        addr += len;
        n -= len;
    }
    return 0;
}

int origin_given(struct origin *s, const struct inspect_given *given, char **why) {
    int rc = -ENOMEM;

    memset(s, 0, sizeof *s);
    *why = NULL;
    s->kind = ORIGIN_GIVEN;
    s->pid = given->pid;
    s->given = given;
    s->mem = (struct pywalk_mem){origin_read, s};
    if (given->exe)
        snprintf(s->exe, sizeof s->exe, "%s", given->exe);
    s->pages = calloc(STOP_PAGES, sizeof *s->pages);
    if (!s->pages)
        goto fail;
    rc = proc_maps_parse(given->maps, &s->maps);
    for (uint64_t i = 0; rc == 0 && i < given->n; i++) {
        struct origin_thread *t = origin_add(s);
        if (!t) {
            rc = -ENOMEM;
            break;
        }
        t->tid = t->inner = given->threads[i].tid;
        t->known = REGS_ALL;
        snprintf(t->name, sizeof t->name, "%s", given->threads[i].name);
        _Static_assert(sizeof t->regs == sizeof given->threads[i].regs, "the kernel's own order");
        memcpy(&t->regs, given->threads[i].regs, sizeof t->regs);
    }
    if (rc < 0)
        goto fail;
    qsort(s->v, s->n, sizeof *s->v, origin_by_tid);
    return 0;
fail:
    origin_close(s);
    return rc;
}

/* ---- all ---- */

int origin_read(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct origin *s = ctx;

    switch (s->kind) {
    case ORIGIN_STOPPED:
        return stop_read(&s->stop, addr, buf, n);
    case ORIGIN_CORE:
        return core_read(s->core, addr, buf, n);
    case ORIGIN_GIVEN:
        return given_read(s, addr, buf, n);
    default:
        return proc_read(s->reader, addr, buf, n);
    }
}

char *origin_missing(struct origin *s) {
    return s->core ? core_missing(s->core) : NULL;
}

void origin_close(struct origin *s) {
    stop_release(&s->stop);
    core_close(s->core);
    proc_maps_free(&s->maps);
    free(s->v);
    free(s->pages);
    memset(s, 0, sizeof *s);
}
