/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk along a thread's frames.
 *
 * Two passes: first the chain alone (frames, code pointers, instructions), then each code object is checked and
 * frames that are still being set up are dropped. Both are written once and compiled twice, with `direct` as a constant.
 *
 * Not direct: through the read callback, a page at a time, because frames lie side by side.
 *
 * Direct (the calling thread's own frames, in a signal handler): plain loads. CPython's own pointers lead to memory that exists; but from
 * 3.11 on the pointer to the current frame, or from a frame to the one before it, can be stale in the instant in which a frame is
 * entered or left, and a chunk of the data stack may have just been given back. So a frame is only touched when it lies in a chunk
 * that the thread state holds, or when the kernel says that its page can be read.
 */
#include "mem.h"
#include "offsets.h"

#define INLINE static inline __attribute__((always_inline))
#define PAGE   PYWALK_PAGE
#define SPAN   256u /* the largest piece asked for at once; fr_span is below it (layout.c) */

struct window {
    const struct pywalk *pw;
    /* not direct: the last page read (1: none), and a piece that crosses a page's end */
    uint64_t page;
    uint8_t *bytes, *piece, *heads;
    /* direct: a range that can be read, the data-stack chunk before it, and pages that the kernel was asked for */
    uint64_t low, high, chunk;
    uint64_t asked[4];
    unsigned n_asked;
};

/* Makes a chunk of the data stack, which the thread state holds, the range that can be read. */
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

/* Direct: whether n bytes at addr may be touched. */
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

/* Returns n bytes at addr, or NULL. What an earlier call returned is no longer valid. `sure`: addr was read from memory that cannot be
 * freed meanwhile, so it need not be checked before it is read. */
INLINE const uint8_t *window_at(struct window *w, uint64_t addr, size_t n, const bool sure,
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

/* Reads a word in the thread state, its C frame or a chunk, which always exist. */
INLINE int window_u64(struct window *w, uint64_t addr, uint64_t *v, const bool direct) {
    if (!pywalk_plausible(addr))
        return -EBADMSG;
    const uint8_t *p = window_at(w, addr, 8, true, direct);
    if (p == NULL)
        return -EFAULT;
    *v = load64(p);
    return 0;
}

/* ---- the walk ---- */

#define MAX_CHUNKS (1 << 14) /* of 16 KB each at least: more than a million frames */

/* What the first pass has learnt about the chain as a whole. */
struct chain {
    size_t count;
    bool cut;
    /* The innermost and the outermost frame on the data stack, and the innermost's code (3.11, 3.12). */
    uint64_t top_frame, top_code, bottom_frame;
    uint64_t saved; /* a frame seen before */
    size_t steps, next_save;
};

/* Whether the chain has a cycle: the frame saved some steps ago comes again. A frame is saved at growing distances. */
INLINE bool comes_again(struct chain *c, uint64_t frame) {
    if (frame == c->saved && frame != 0)
        return true;
    if (++c->steps == c->next_save) {
        c->saved = frame;
        c->next_save *= 2;
    }
    return false;
}

/* How many bytes the frame of this code takes on the data stack. */
INLINE int frame_size(struct window *w, const struct pywalk_fields *f, uint64_t code,
                      uint64_t *size, const bool direct) {
    const uint8_t *p;
    uint32_t locals, stack;

    if (!pywalk_plausible(code))
        return -EBADMSG;
    p = window_at(w, code, f->co_nlocalsplus + 4, false, direct); /* co_stacksize lies before it */
    if (p == NULL)
        return -EFAULT;
    locals = load32(p + f->co_nlocalsplus);
    stack = load32(p + f->co_stacksize);
    if (locals > 1 << 24 || stack > 1 << 24 ||
        (w->pw->code_type != 0 && load64(p + f->ob_type) != w->pw->code_type))
        return -EBADMSG;
    *size = ((uint64_t)locals + stack) * 8 + f->fr_span;
    return 0;
}

/*
 * 3.11 and 3.12: checks that the chain is the one that runs. The frame that is named as the current one may be stale (see first_frame), or the chain may have
 * been torn where a generator is just being suspended. But the data stack is always in order: its newest frame is the innermost of the chain, or one that is
 * just being set up or cleared lies above it; and its first slot is the chain's outermost one.
 */
INLINE int data_stack_check(struct window *w, const struct pywalk_fields *f, uint64_t tstate,
                            const struct chain *c, const bool direct) {
    uint64_t newest = 0, chunk, previous = 0, top = 0, size = 0, code = 0, end;
    int rc = window_u64(w, tstate + f->ts_chunk, &newest, direct);

    if (rc == 0)
        rc = window_u64(w, tstate + f->ts_datatop, &top, direct);
    if (rc == 0 && newest == 0)
        return c->top_frame == 0 ? 0 : -EBADMSG;
    if (rc == 0)
        rc = window_u64(w, newest + f->chunk_previous, &previous, direct);
    if (rc != 0)
        return rc;
    /* The first slot of a thread's first chunk stays free, so that the chunk is never given back. */
    end = newest + f->chunk_data + (previous == 0 ? 8 : 0);
    if (c->top_frame >= end && c->top_frame < top) {
        rc = frame_size(w, f, c->top_code, &size, direct);
        end = c->top_frame + size;
    }
    if (rc == 0 && end != top) {
        rc = end + f->fr_span <= top ? window_u64(w, end + f->fr_code, &code, direct) : -EBADMSG;
        if (rc == 0)
            rc = frame_size(w, f, code, &size, direct);
        if (rc == 0 && end + size != top)
            rc = -EBADMSG;
    }
    chunk = newest;
    for (size_t guard = 0; rc == 0 && previous != 0; guard++) {
        chunk = previous;
        rc = guard < MAX_CHUNKS ? window_u64(w, chunk + f->chunk_previous, &previous, direct)
                                : -EBADMSG;
    }
    if (rc == 0 && !c->cut && c->top_frame != 0 && c->bottom_frame != chunk + f->chunk_data + 8)
        rc = -EBADMSG;
    /* only generators, called from C */
    if (rc == 0 && !c->cut && c->top_frame == 0 && chunk != newest)
        rc = -EBADMSG;
    return rc;
}

/* 3.11 and 3.12: the C frame of the running eval loop names the current Python frame. The C frame is linked in
 * before its pointer to that is set: for some instructions the pointer is what was on the C stack before. */
INLINE int first_frame(struct window *w, const struct pywalk_fields *f, uint64_t tstate,
                       uint64_t *frame, const bool direct) {
    uint64_t cframe = 0;

    if (f->ts_cframe == 0)
        return window_u64(w, tstate + f->ts_frame, frame, direct);
    int rc = window_u64(w, tstate + f->ts_cframe, &cframe, direct);
    if (rc == 0)
        rc = window_u64(w, cframe + f->cframe_current, frame, direct);
    if (rc == 0 && *frame == 0 && cframe != tstate + f->ts_root_cframe)
        rc = -EBADMSG; /* only outside any eval loop there is none */
    return rc;
}

/* The chain of _PyInterpreterFrames, from 3.11 on. */
INLINE int chain_new(struct window *w, const struct pywalk *pw, uint64_t tstate,
                     struct pywalk_frame *out, size_t max, struct chain *c, const bool direct) {
    const struct pywalk_offsets *o = pywalk_offsets(pw);
    const struct pywalk_fields *f = &o->f;
    const bool shims = o->first_shim < OWNERS;
    const uint64_t untag = ~(uint64_t)o->tag_bits;
    uint64_t frame = 0, chunk = 0, base = 0;
    bool at_base = true; /* there may be no frame at all */
    int rc = window_u64(w, tstate + f->ts_chunk, &chunk, direct);

    if (rc == 0)
        rc = first_frame(w, f, tstate, &frame, direct);
    if (rc != 0 || frame == 0)
        return rc;
    if (direct && chunk != 0)
        window_chunk(w, f, chunk);
    while (frame != 0) {
        const uint8_t *p;
        if (!pywalk_plausible(frame))
            return -EBADMSG;
        p = window_at(w, frame, f->fr_span, false, direct);
        if (p == NULL)
            return -EFAULT;
        uint8_t owner = p[f->fr_owner];
        uint64_t previous = load64(p + f->fr_back);
        if (owner >= o->first_shim && owner <= o->last_shim) {
            at_base = true;
            base = frame;
            if (c->count > 0)
                out[c->count - 1].flags |= PYWALK_ENTRY;
        } else if (owner <= OWNER_FRAME_OBJECT) {
            if (c->count == max) {
                c->cut = true;
                break;
            }
            uint64_t code = load64(p + f->fr_code) & untag;
            int64_t lasti = (int64_t)(load64(p + f->fr_instr) - (code + f->co_bytecode));
            at_base = false;
            if (!pywalk_plausible(code) || lasti < -2 || lasti > INT32_MAX || (lasti & 1) != 0)
                return -EBADMSG;
            if (owner == OWNER_THREAD) {
                if (c->top_frame == 0) {
                    c->top_frame = frame;
                    c->top_code = code;
                }
                c->bottom_frame = frame;
            }
            if (!shims)
                at_base = p[f->fr_is_entry] != 0;
            out[c->count].frame = frame;
            out[c->count].code = code;
            out[c->count].lasti = (int32_t)lasti;
            out[c->count].flags = (!shims && at_base ? PYWALK_ENTRY : 0) |
                                  (owner == OWNER_GENERATOR ? PYWALK_GENERATOR : 0);
            c->count++;
        } else {
            return -EBADMSG;
        }
        /* There is one shim between two frames at most, and the base (3.15). */
        if (comes_again(c, previous) || c->steps > 2 * max + 64)
            return -EBADMSG;
        frame = previous;
    }
    /* The outermost frame must have been entered from C: else a part of the chain was torn off. */
    if (!at_base && !c->cut)
        return -EBADMSG;
    /* 3.15: every complete chain ends in one frame of the thread state. */
    if (f->ts_base_frame != 0 && !c->cut) {
        rc = window_u64(w, tstate + f->ts_base_frame, &frame, direct);
        if (rc != 0 || frame != base)
            return rc != 0 ? rc : -EBADMSG;
    }
    return f->ts_cframe != 0 ? data_stack_check(w, f, tstate, c, direct) : 0;
}

/* The chain of PyFrameObjects, 3.6 to 3.10: each is run by a native frame of its own. */
INLINE int chain_old(struct window *w, const struct pywalk *pw, uint64_t tstate,
                     struct pywalk_frame *out, size_t max, struct chain *c, const bool direct) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    const int32_t scale = (int32_t)pywalk_offsets(pw)->lasti_scale;
    uint64_t frame = 0;
    int rc = window_u64(w, tstate + f->ts_frame, &frame, direct);

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
        p = window_at(w, frame, f->fr_span, false, direct);
        if (p == NULL)
            return -EFAULT;
        uint64_t previous = load64(p + f->fr_back), code = load64(p + f->fr_code);
        uint64_t gen = load64(p + f->fr_gen);
        int32_t lasti = (int32_t)load32(p + f->fr_lasti);
        /* f_executing; 3.10: f_state, executing or unwinding an exception */
        bool running = scale == 2 ? (p[f->fr_state] & ~2) == 0 : p[f->fr_state] == 1;
        /* A frame that is being freed loses its f_back, but its reference count is 0 by then; a generator's f_back is cleared
         * when it has stopped running. A frame that runs and has no f_back is the base. */
        if (load64(p + f->fr_refcnt) == 0 || !pywalk_plausible(code) || lasti < -1 ||
            lasti > INT32_MAX / 2 || (previous == 0 && !running))
            return -EBADMSG;
        /* Read from outside, the two may have been read at different times. */
        if (!direct && previous == 0 && gen != 0 &&
            (mem_u64(pw, frame + f->fr_back, &previous) != 0 || previous != 0))
            return -EBADMSG;
        out[c->count].frame = frame;
        out[c->count].code = code;
        out[c->count].lasti = lasti < 0 ? -1 : lasti * scale;
        out[c->count].flags = PYWALK_ENTRY | (gen != 0 ? PYWALK_GENERATOR : 0);
        c->count++;
        if (comes_again(c, previous))
            return -EBADMSG;
        frame = previous;
    }
    return 0;
}

/* Checks that `head` is the beginning of a code object, and that the frame runs it properly. Returns 1: keep the frame; 0: the frame
 * is still being set up; or -EBADMSG. *type is the type that all code objects must have. */
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
    /* Before its first traceable instruction a frame does not exist for Python either; a generator's is
     * complete from the start. The code that cleans up after __init__ (3.13) never gets that far. */
    if ((frame->flags & PYWALK_GENERATOR) == 0 &&
        frame->lasti < 2 * (int64_t)(int32_t)load32(head + f->co_firsttraceable))
        return 0;
    if (frame->lasti < 0)
        frame->lasti = -1;
    return 1;
}

/* The second pass; returns the number of frames kept, or -errno. `keep`: frames without a code object too. */
INLINE int check_codes(struct window *w, const struct pywalk *pw, struct pywalk_frame *out,
                       size_t count, const bool keep, const bool direct) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    const uint32_t n = f->co_bytecode != 0 ? f->co_firsttraceable + 4 : f->ob_type + 8;
    uint64_t type = pw->code_type;
    size_t kept = 0;

    for (size_t i = 0; i < count; i += keep ? 1 : MEM_MANY) {
        size_t many = keep ? 1 : count - i < MEM_MANY ? count - i : MEM_MANY;
        int rc = 0;
        if (!direct) {
            uint64_t addr[MEM_MANY];
            for (size_t k = 0; k < many; k++)
                addr[k] = out[i + k].code;
            rc = pywalk_mem_many(pw, addr, many, w->heads, n);
            if (rc != 0 && !keep)
                return -EFAULT;
        }
        for (size_t k = 0; k < many; k++) {
            struct pywalk_frame frame = out[i + k];
            const uint8_t *head =
                direct ? (const uint8_t *)(uintptr_t)frame.code : w->heads + k * n;
            /* The chain was found to be the one that runs, so its code objects exist; except for the innermost frame's, about
             * which less is known where there is no data_stack_check. */
            if (direct && i + k == 0 && !window_has(w, frame.code, n))
                return -EFAULT;
            int good = rc != 0 ? rc : code_check(f, head, &type, &frame);
            if (good < 0 && (!keep || (good != -EFAULT && pw->keep < 2)))
                return good;
            if (good < 0)
                frame.code = 0;
            if (good != 0)
                out[kept++] = frame;
        }
    }
    return (int)kept;
}

INLINE int walk(struct window *w, const struct pywalk *pw, uint64_t tstate,
                struct pywalk_frame *out, size_t max, int *cut, const bool direct) {
    struct chain c = {.next_save = 8};
    bool keep;
    int rc, why = 0;

    *cut = 0;
    if (max > INT32_MAX)
        max = INT32_MAX;
    if (!pywalk_plausible(tstate))
        return -EBADMSG;
    rc = pw->version >= PYWALK_3(11) ? chain_new(w, pw, tstate, out, max, &c, direct)
                                     : chain_old(w, pw, tstate, out, max, &c, direct);
    keep = !direct && pw->keep != 0 && c.count > 0;
    if (keep && (rc == -EFAULT || (rc != 0 && pw->keep > 1)))
        why = rc, rc = 0;
    if (rc == 0)
        rc = check_codes(w, pw, out, c.count, keep, direct);
    while (why != 0 && rc > 0 && out[rc - 1].code == 0) /* where it went astray */
        rc--;
    if (rc >= 0)
        *cut = why != 0 ? why : c.cut;
    return rc == 0 && why != 0 ? why : rc;
}

static __attribute__((noinline)) int walk_direct(const struct pywalk *pw, uint64_t tstate,
                                                 struct pywalk_frame *out, size_t max, int *cut) {
    struct window w = {.pw = pw, .page = 1};
    if (pw->version < PYWALK_3(11)) /* the chain holds references: nothing is ever stale */
        w.high = UINT64_MAX;
    return walk(&w, pw, tstate, out, max, cut, true);
}

int pywalk_frames_in(const struct pywalk *pw, uint64_t tstate, struct pywalk_frame *out, size_t max,
                     int *cut, void *space) {
    struct window w = {.pw = pw, .page = 1, .bytes = space};
    w.heads = (w.piece = w.bytes + PAGE) + SPAN;
    _Static_assert(PAGE + SPAN + MEM_MANY * SPAN <= PYWALK_SPACE, "what the window has");
    if (pw->mem.read == pywalk_read_direct)
        return walk_direct(pw, tstate, out, max, cut);
    return walk(&w, pw, tstate, out, max, cut, false);
}

int pywalk_frames(const struct pywalk *pw, uint64_t tstate, struct pywalk_frame *out, size_t max,
                  int *cut) {
    uint8_t space[PYWALK_SPACE];
    return pywalk_frames_in(pw, tstate, out, max, cut ? cut : (int[]){0}, space);
}
