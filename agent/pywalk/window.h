/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.h - how frames.c looks at memory: everything here is compiled twice, with `direct` constant.
 *
 * Not direct: through the read callback, a page at a time, because frames lie side by side.
 *
 * Direct (the calling thread's own frames, in a signal handler): plain loads. What CPython's own pointers lead to is there;
 * but from 3.11 on the pointer to the current frame, or a frame's to the one before it, can be a stale one in
 * the instant in which a frame is entered or left, and a chunk of the data stack may have just been given back. So a
 * frame is only touched when it lies in a chunk that the thread state holds, or when the kernel says that its
 * page can be read.
 */
#ifndef PROBING_PYWALK_WINDOW_H
#define PROBING_PYWALK_WINDOW_H

#include "mem.h"
#include "offsets.h"

#define INLINE static inline __attribute__((always_inline))
#define PAGE   PYWALK_PAGE
#define SPAN   256u /* the largest piece asked for at once; fr_span is below it (layout.c) */

struct window {
    const struct pywalk *pw;
    /* not direct: the last page read (1: none), and a piece that crosses a page's end */
    uint64_t page;
    uint8_t *bytes, *piece;
    /* direct: a range that is there, the data-stack chunk before it, and pages that were asked for */
    uint64_t low, high, chunk;
    uint64_t asked[4];
    unsigned n_asked;
};

/* Sets out from a chunk of the data stack, which the thread state holds. */
static inline void window_chunk(struct window *w, const struct pywalk_fields *f, uint64_t chunk) {
    const uint8_t *p = (const uint8_t *)(uintptr_t)chunk;

    w->low = chunk;
    w->high = chunk + load64(p + f->chunk_size);
    w->chunk = load64(p + f->chunk_previous);
}

static inline bool window_ask(struct window *w, uint64_t page) {
    for (unsigned i = 0; i < sizeof w->asked / sizeof *w->asked; i++)
        if (w->asked[i] == page)
            return true;
    if (!pywalk_mem_probe(page * PAGE))
        return false;
    w->asked[w->n_asked++ % (sizeof w->asked / sizeof *w->asked)] = page;
    return true;
}

/* Direct: may n bytes at addr be touched? */
static inline bool window_has(struct window *w, uint64_t addr, size_t n) {
    const struct pywalk_fields *f = &pywalk_offsets(w->pw)->f;

    if (addr >= w->low && addr + n <= w->high)
        return true;
    if (w->chunk != 0 && addr > w->chunk &&
        addr + n <= w->chunk + load64((const uint8_t *)(uintptr_t)(w->chunk + f->chunk_size))) {
        window_chunk(w, f, w->chunk);
        return true;
    }
    return window_ask(w, addr / PAGE) &&
           (addr / PAGE == (addr + n - 1) / PAGE || window_ask(w, (addr + n - 1) / PAGE));
}

/* n bytes at addr, or NULL. What an earlier call returned is no longer valid. `sure`: addr was read from memory that cannot be
 * freed meanwhile, so it need not be checked before it is read. */
INLINE const uint8_t *look(struct window *w, uint64_t addr, size_t n, const bool sure,
                           const bool direct) {
    uint64_t page = addr & ~(uint64_t)(PAGE - 1);
    bool within = addr - page + n <= PAGE;

    if (direct)
        return sure || window_has(w, addr, n) ? (const uint8_t *)(uintptr_t)addr : NULL;
    if (within && w->page != page) /* a core or a remote target may have less than the page */
        w->page = mem_read(w->pw, page, w->bytes, PAGE) == 0 ? page : 1;
    if (within && w->page == page)
        return w->bytes + (addr - page);
    return mem_read(w->pw, addr, w->piece, n) == 0 ? w->piece : NULL;
}

/* A word in the thread state, its C frame or a chunk: these are always there. */
INLINE int look64(struct window *w, uint64_t addr, uint64_t *v, const bool direct) {
    const uint8_t *p;

    if (!pywalk_plausible(addr))
        return -EBADMSG;
    p = look(w, addr, 8, true, direct);
    if (p == NULL)
        return -EFAULT;
    *v = load64(p);
    return 0;
}

#endif
