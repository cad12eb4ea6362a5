/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk along a thread's frames.
 *
 * Two passes: first the chain alone (frames, code pointers, instructions), then each code object is checked and
 * frames that are still being set up are dropped. Both are written once and compiled twice: with `direct`
 * true every access is a plain load (the signal handler), with false it goes through the read callback, by pages for
 * the frames (they lie side by side) and in batches for the code objects.
 */
#include "mem.h"
#include "offsets.h"

#include <stdbool.h>

#define INLINE static inline __attribute__((always_inline))
#define PAGE   4096u
#define SPAN   256u /* the largest piece asked for at once; fr_span is below it (layout.c) */

/* The last page read, and one piece that crosses a page's end. */
struct window {
    const struct pywalk *pw;
    uint64_t page; /* 1: none */
    uint8_t bytes[PAGE];
    uint8_t piece[SPAN];
};

/* n bytes at addr, or NULL. What an earlier call returned is no longer valid. */
INLINE const uint8_t *look(struct window *w, uint64_t addr, size_t n, const bool direct) {
    if (direct)
        return (const uint8_t *)(uintptr_t)addr;
    uint64_t page = addr & ~(uint64_t)(PAGE - 1);
    if (addr - page + n > PAGE)
        return mem_read(w->pw, addr, w->piece, n) == 0 ? w->piece : NULL;
    if (w->page != page) {
        if (mem_read(w->pw, page, w->bytes, PAGE) != 0) {
            /* A core or a remote target may have less than the page. */
            w->page = 1;
            return mem_read(w->pw, addr, w->piece, n) == 0 ? w->piece : NULL;
        }
        w->page = page;
    }
    return w->bytes + (addr - page);
}

INLINE int look64(struct window *w, uint64_t addr, uint64_t *v, const bool direct) {
    const uint8_t *p;
    if (!pywalk_plausible(addr))
        return -EBADMSG;
    p = look(w, addr, 8, direct);
    if (p == NULL)
        return -EFAULT;
    *v = load64(p);
    return 0;
}

/* What the first pass has learnt about the chain as a whole. */
struct chain {
    size_t count;
    bool cut;
    uint64_t outermost_on_stack; /* 3.11: the last frame on the data stack */
};

/* 3.11 keeps a thread's first frame in the first slot of its first data-stack chunk: a chain that ends elsewhere was
 * torn (a generator that is just being suspended has no previous frame). */
INLINE int base_check_3_11(struct window *w, const struct pywalk_fields *f, uint64_t tstate,
                           const struct chain *c, const bool direct) {
    uint64_t chunk = 0, previous = 0, slot, top = 0;
    int rc = look64(w, tstate + f->ts_chunk, &chunk, direct);
    bool first = true;

    if (rc == 0)
        rc = look64(w, tstate + f->ts_datatop, &top, direct);
    if (rc != 0)
        return rc;
    if (chunk == 0)
        return c->outermost_on_stack == 0 ? 0 : -EBADMSG;
    for (size_t guard = 0;; guard++) {
        rc = look64(w, chunk + f->chunk_previous, &previous, direct);
        if (rc != 0 || guard > 1 << 20)
            return rc != 0 ? rc : -EBADMSG;
        if (previous == 0)
            break;
        chunk = previous;
        first = false;
    }
    /* The slot before it is left free, so that the chunk is never given back. */
    slot = chunk + f->chunk_data + 8;
    if (c->outermost_on_stack != 0)
        return c->outermost_on_stack == slot ? 0 : -EBADMSG;
    /* Only generators, called from C: then nothing is on the data stack. */
    return first && top == slot ? 0 : -EBADMSG;
}

/* The chain of _PyInterpreterFrames, 3.11 to 3.13. */
INLINE int chain_new(struct window *w, const struct pywalk *pw, uint64_t tstate,
                     struct pywalk_frame *out, size_t max, struct chain *c, const bool direct) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    const bool shims = pw->version >= PYWALK_3(12);
    uint64_t frame = 0, saved = 0, at = tstate + f->ts_frame;
    size_t steps = 0, check_at = 8;
    bool at_base = false;
    int rc = 0;

    if (f->ts_cframe != 0) {
        rc = look64(w, tstate + f->ts_cframe, &at, direct);
        at += f->cframe_current;
    }
    if (rc == 0)
        rc = look64(w, at, &frame, direct);
    if (rc != 0 || frame == 0)
        return rc;
    while (frame != 0) {
        const uint8_t *p;
        if (!pywalk_plausible(frame))
            return -EBADMSG;
        p = look(w, frame, f->fr_span, direct);
        if (p == NULL)
            return -EFAULT;
        uint8_t owner = p[f->fr_owner];
        uint64_t previous = load64(p + f->fr_back);
        if (owner == OWNER_C_STACK && shims) {
            at_base = true;
            if (c->count > 0)
                out[c->count - 1].flags |= PYWALK_ENTRY;
        } else if (owner <= OWNER_FRAME_OBJECT) {
            if (c->count == max) {
                c->cut = true;
                return 0;
            }
            uint64_t code = load64(p + f->fr_code);
            int64_t lasti = (int64_t)(load64(p + f->fr_instr) - (code + f->co_bytecode));
            at_base = false;
            if (!pywalk_plausible(code) || lasti < -2 || lasti > INT32_MAX || (lasti & 1) != 0)
                return -EBADMSG;
            if (!shims) {
                at_base = p[f->fr_is_entry] != 0;
                if (owner == OWNER_THREAD)
                    c->outermost_on_stack = frame;
            }
            out[c->count].frame = frame;
            out[c->count].code = code;
            out[c->count].lasti = (int32_t)lasti;
            out[c->count].flags = (!shims && at_base ? PYWALK_ENTRY : 0) |
                                  (owner == OWNER_GENERATOR ? PYWALK_GENERATOR : 0);
            c->count++;
        } else {
            return -EBADMSG;
        }
        /* A cycle: the frame remembered some steps ago comes again; remembered at growing distances. */
        if (previous == saved && saved != 0)
            return -EBADMSG;
        if (++steps == check_at) {
            saved = previous;
            check_at *= 2;
        }
        frame = previous;
    }
    /* The outermost frame was entered from C: else something in between was torn off. */
    if (!at_base)
        return -EBADMSG;
    return shims ? 0 : base_check_3_11(w, f, tstate, c, direct);
}

/* The chain of PyFrameObjects, 3.6 to 3.10: each is run by a native frame of its own. */
INLINE int chain_old(struct window *w, const struct pywalk *pw, uint64_t tstate,
                     struct pywalk_frame *out, size_t max, struct chain *c, const bool direct) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    const int32_t scale = (int32_t)pywalk_offsets(pw)->lasti_scale;
    uint64_t frame = 0, saved = 0;
    size_t steps = 0, check_at = 8;
    int rc = look64(w, tstate + f->ts_frame, &frame, direct);

    if (rc != 0)
        return rc;
    while (frame != 0) {
        const uint8_t *p;
        if (!pywalk_plausible(frame))
            return -EBADMSG;
        if (c->count == max) {
            c->cut = true;
            return 0;
        }
        p = look(w, frame, f->fr_span, direct);
        if (p == NULL)
            return -EFAULT;
        uint64_t previous = load64(p + f->fr_back), code = load64(p + f->fr_code);
        uint64_t gen = load64(p + f->fr_gen);
        int32_t lasti = (int32_t)load32(p + f->fr_lasti);
        bool running = scale == 2 ? p[f->fr_state] == 0 : p[f->fr_state] == 1;
        /* A frame that is being freed loses its f_back, but its count is 0 by then; a generator's is
         * cleared when it has stopped running. What is left with no f_back is the base. */
        if (load64(p + f->fr_refcnt) == 0 || !pywalk_plausible(code) || lasti < -1 ||
            lasti > INT32_MAX / 2 || (previous == 0 && gen != 0 && !running))
            return -EBADMSG;
        out[c->count].frame = frame;
        out[c->count].code = code;
        out[c->count].lasti = lasti < 0 ? -1 : lasti * scale;
        out[c->count].flags = PYWALK_ENTRY | (gen != 0 ? PYWALK_GENERATOR : 0);
        c->count++;
        if (previous == saved && saved != 0)
            return -EBADMSG;
        if (++steps == check_at) {
            saved = previous;
            check_at *= 2;
        }
        frame = previous;
    }
    return 0;
}

/* Is `head`, the beginning of a code object, one, and does the frame run it properly? 1: keep it, 0: the frame is
 * still being set up, or -EBADMSG. *type is the type that all code objects must have. */
INLINE int code_check(const struct pywalk_fields *f, const uint8_t *head, uint64_t *type,
                      struct pywalk_frame *frame) {
    uint64_t its = load64(head + f->ob_type);

    if (*type == 0)
        *type = its;
    if (its != *type)
        return -EBADMSG;
    if (f->co_bytecode == 0)
        return 1;
    if (frame->lasti >= 0 && (uint64_t)frame->lasti >= load64(head + f->ob_size) * 2)
        return -EBADMSG;
    /* Before its first traceable instruction a frame is not there yet for Python either; a generator's is
     * complete from the start. The code that cleans up after __init__ (3.13) never gets that far. */
    if ((frame->flags & PYWALK_GENERATOR) == 0 &&
        frame->lasti < (int32_t)load32(head + f->co_firsttraceable) * 2)
        return 0;
    if (frame->lasti < 0)
        frame->lasti = -1;
    return 1;
}

/* The second pass; returns the number of frames kept, or -errno. */
INLINE int check_codes(const struct pywalk *pw, struct pywalk_frame *out, size_t count,
                       const bool direct) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    const uint32_t n = f->co_bytecode != 0 ? f->co_firsttraceable + 4 : f->ob_type + 8;
    uint64_t type = pw->code_type;
    size_t kept = 0;

    for (size_t i = 0; i < count; i += MEM_MANY) {
        size_t many = count - i < MEM_MANY ? count - i : MEM_MANY;
        uint8_t heads[direct ? 1 : MEM_MANY * SPAN];
        if (!direct) {
            uint64_t addr[MEM_MANY];
            for (size_t k = 0; k < many; k++)
                addr[k] = out[i + k].code;
            if (mem_read_many(pw, addr, many, heads, n) != 0)
                return -EFAULT;
        }
        for (size_t k = 0; k < many; k++) {
            struct pywalk_frame frame = out[i + k];
            const uint8_t *head = direct ? (const uint8_t *)(uintptr_t)frame.code : heads + k * n;
            int keep = code_check(f, head, &type, &frame);
            if (keep < 0)
                return keep;
            if (keep > 0)
                out[kept++] = frame;
        }
    }
    return (int)kept;
}

INLINE int walk(struct window *w, const struct pywalk *pw, uint64_t tstate,
                struct pywalk_frame *out, size_t max, int *cut, const bool direct) {
    struct chain c = {0, false, 0};
    int rc;

    *cut = 0;
    if (max > INT32_MAX)
        max = INT32_MAX;
    if (!pywalk_plausible(tstate))
        return -EBADMSG;
    if (pw->version >= PYWALK_3(11))
        rc = chain_new(w, pw, tstate, out, max, &c, direct);
    else
        rc = chain_old(w, pw, tstate, out, max, &c, direct);
    if (rc == 0)
        rc = check_codes(pw, out, c.count, direct);
    if (rc >= 0)
        *cut = c.cut;
    return rc;
}

static __attribute__((noinline)) int walk_direct(const struct pywalk *pw, uint64_t tstate,
                                                 struct pywalk_frame *out, size_t max, int *cut) {
    return walk(NULL, pw, tstate, out, max, cut, true);
}

static __attribute__((noinline)) int walk_far(const struct pywalk *pw, uint64_t tstate,
                                              struct pywalk_frame *out, size_t max, int *cut) {
    struct window w;
    w.pw = pw;
    w.page = 1;
    return walk(&w, pw, tstate, out, max, cut, false);
}

int pywalk_frames(const struct pywalk *pw, uint64_t tstate, struct pywalk_frame *out, size_t max,
                  int *cut) {
    int dummy;

    if (cut == NULL)
        cut = &dummy;
    if (pw->mem.read == pywalk_read_direct)
        return walk_direct(pw, tstate, out, max, cut);
    return walk_far(pw, tstate, out, max, cut);
}
