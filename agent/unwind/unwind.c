/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/unwind/unwind.h"

#include <ucontext.h>

#include "agent/base/memory.h"
#include "writer/sys.h"

void unwind_free(struct unwind *u) {
    modmap_reclaim(&u->map);
    if (u->map.view)
        munmap(u->map.view, u->map.view->bytes);
    u->map.view = NULL;
}

static int find_rule(struct unwind *u, const struct modmap_view *view, const struct cfi_memory *mem,
                     uint64_t pc, int leaf, struct cfi_rule *rule) {
    /* The list of modules may be older than the module's end: so its table is never read directly, as a stack is. */
    static const struct cfi_memory tables = {.read = memory_read};
    struct cfi_span span;
    if (rules_get(&u->rules, view->generation, pc, leaf, rule))
        return 0;
    const struct modmap_module *m = modmap_find(view, pc);
    if (!m)
        modmap_miss(&u->map, pc);
    if (!m || !m->hdr)
        return -ENOENT;
    int rc = cfi_find(mem->direct ? &tables : mem, m->hdr, pc, rule, &span);
    if (!rc)
        rules_put(&u->rules, view->generation, pc, leaf, rule, &span);
    return rc;
}

/* The stack as a walk reads it: word after word, mostly in the page of the word before. */
struct stack {
    const struct cfi_memory *mem;
    uint64_t page; /* number + 1 of the last page read, if it may be read directly; else 0 */
};

/* Not checked by a sanitizer: the words may belong to anything in the program. */
__attribute__((no_sanitize("address"))) static inline int word_at(struct stack *s, uint64_t addr,
                                                                  uint64_t *v) {
    uint64_t page = addr / MEMORY_PAGE + 1;
    if (page == s->page && addr % 8 == 0) {
        *v = *(const volatile uint64_t *)(uintptr_t)addr;
        return 0;
    }
    int rc = s->mem->read(s->mem->ctx, addr, v, sizeof *v);
    if (!rc && s->mem->direct)
        s->page = page;
    return rc;
}

/* ---- the step from a frame to its caller's ---- */

/*
 * A frame of the walk. Only the return address is loaded from each frame: for rbp and rbx, the walk notes where they were saved, and
 * loads them only when a frame's CFA depends on them, which is rare.
 */
struct state {
    uint64_t pc, sp;
    uint64_t bp_at, bx_at; /* 0: still in the register */
    uint64_t base;         /* value of rbp or rbx, if the step to the caller used it */
    unsigned used;         /* which of them that step used, USED_* */
    int exact;             /* pc is that of an instruction, not a return address after a call */
};
/* These bits are also in unwind_frame.bp_down, which is a multiple of 8 without them. */
enum { USED_BP = 1, USED_BX = 2, USED_OTHER = 4, USED_MASK = 7 };

/* Steps through the kernel's signal frame: at the trampoline, rsp points to the ucontext. */
static int step_signal(const struct cfi_memory *mem, struct unwind_regs *r, struct state *s) {
    greg_t g[NGREG];
    uint64_t at = s->sp + offsetof(ucontext_t, uc_mcontext.gregs);
    int rc = mem->read(mem->ctx, at, g, sizeof g);
    if (rc)
        return rc;
    *r = (struct unwind_regs){.bp = (uint64_t)g[REG_RBP],
                              .bx = (uint64_t)g[REG_RBX],
                              .r10 = (uint64_t)g[REG_R10],
                              .known = UNWIND_BP | UNWIND_BX | UNWIND_R10};
    *s = (struct state){.pc = (uint64_t)g[REG_RIP], .sp = (uint64_t)g[REG_RSP], .exact = 1};
    return 0;
}

/* Gets the value of rbp (USED_BP) or rbx (USED_BX) in a frame: from where it was saved, or from the register. */
static inline int value_of(struct stack *mem, const struct unwind_regs *r, const struct state *s,
                           unsigned which, uint64_t *v) {
    uint64_t at = which == USED_BP ? s->bp_at : s->bx_at;
    if (at)
        return word_at(mem, at, v);
    *v = which == USED_BP ? r->bp : r->bx;
    return r->known & (which == USED_BP ? UNWIND_BP : UNWIND_BX) ? 0 : -ENOENT;
}

static int base_of(struct stack *mem, const struct unwind_regs *r, struct state *s, unsigned reg,
                   uint64_t *base) {
    int rc = 0;
    s->used = 0;
    s->base = 0;
    if (reg == CFI_RBP || reg == CFI_RBX) {
        s->used = reg == CFI_RBP ? USED_BP : USED_BX;
        rc = value_of(mem, r, s, s->used, base);
    } else if (reg == CFI_R10) { /* a scratch register: known in the innermost frame only */
        s->used = USED_OTHER;
        *base = r->r10;
        rc = s->exact && (r->known & UNWIND_R10) ? 0 : -ENOENT;
    } else {
        *base = s->sp;
        return 0;
    }
    s->base = rc ? 0 : *base;
    return rc;
}

/* Steps from *s to its caller's frame, *to; sets s->base and s->used. Returns 0; -errno when the stack is not consistent. */
static int step(struct stack *mem, const struct unwind_regs *r, const struct cfi_rule *rule,
                struct state *s, struct state *to) {
    uint64_t base, cfa, pc;
    int rc = base_of(mem, r, s, rule->reg, &base);
    if (rc)
        return rc;
    cfa = base + (uint64_t)(int64_t)rule->cfa_off;
    if (rule->kind == CFI_DEREF) {
        s->used |= USED_OTHER;
        if (word_at(mem, cfa, &cfa))
            return -EFAULT;
    }
    if (cfa <= s->sp || cfa & 7) /* a caller's frame lies above */
        return -EBADMSG;
    rc = word_at(mem, cfa - 8, &pc);
    if (rc)
        return rc;
    *to = (struct state){.pc = pc, .sp = cfa, .bp_at = s->bp_at, .bx_at = s->bx_at};
    if (rule->rbp_off != CFI_KEPT)
        to->bp_at = (rule->kind == CFI_DEREF ? base : cfa) + (uint64_t)(int64_t)rule->rbp_off;
    if (rule->rbx_off != CFI_KEPT)
        to->bx_at = cfa + (uint64_t)(int64_t)rule->rbx_off;
    return 0;
}

/* ---- the last walk ---- */

/* Returns the distance of a place below sp; 0 when there is no place; UINT32_MAX when the distance cannot be stored. */
static uint32_t down(uint64_t sp, uint64_t at) {
    if (!at)
        return 0;
    return at < sp && sp - at < INT32_MAX && !(at & 7) ? (uint32_t)(sp - at) : UINT32_MAX;
}

static void remember(struct unwind_frame *f, const struct state *s) {
    uint32_t bp = down(s->sp, s->bp_at), bx = down(s->sp, s->bx_at);
    if (s->exact || bp == UINT32_MAX || bx == UINT32_MAX) /* depends on more than is kept */
        bp = bx = USED_OTHER;
    *f = (struct unwind_frame){
        .pc = s->pc, .sp = s->sp, .base = s->base, .bp_down = bp | s->used, .bx_down = bx};
}

static void recall(const struct unwind_frame *f, struct state *s) {
    uint32_t bp = f->bp_down & ~(uint32_t)USED_MASK;
    *s = (struct state){.pc = f->pc,
                        .sp = f->sp,
                        .bp_at = bp ? f->sp - bp : 0,
                        .bx_at = f->bx_down ? f->sp - f->bx_down : 0};
}

static int same(const struct unwind_frame *f, const struct state *s) {
    return f->pc == s->pc && f->sp == s->sp && !s->exact && !(f->bp_down & USED_OTHER) &&
           (f->bp_down & ~(uint32_t)USED_MASK) == down(s->sp, s->bp_at) &&
           f->bx_down == down(s->sp, s->bx_at);
}

/* Returns whether the step from f still leads to `next`, the next frame of the last walk. */
static int leads(struct stack *mem, const struct unwind_regs *r, const struct unwind_frame *f,
                 const struct unwind_frame *next) {
    struct state s;
    uint64_t v;
    if (f->bp_down & USED_OTHER)
        return 0;
    if (f->bp_down & USED_MASK) {
        recall(f, &s);
        if (value_of(mem, r, &s, f->bp_down & USED_MASK, &v) || v != f->base)
            return 0;
    }
    return !word_at(mem, next->sp - 8, &v) && v == next->pc;
}

/* ---- the walk ---- */

struct walk {
    const struct modmap_view *view;
    struct unwind_regs regs;
    struct stack stack;
    struct unwind_memo *memo; /* or NULL */
    uint32_t nold, old;       /* frames of the last walk; first of them that may still be met */
    uint64_t *pcs;
    size_t n, max;
};

/*
 * Adds the frame *s to pcs, and all frames of the last walk that still follow it. Sets *s to the outermost frame added. Returns 1
 * when that was the outermost frame of the last walk, which had reached the end of the stack.
 */
static int take(struct walk *w, struct state *s) {
    struct unwind_memo *m = w->memo;
    w->pcs[w->n++] = s->pc;
    if (!m || w->n > UNWIND_MEMO)
        return 0;
    const struct unwind_frame *old = m->frame[m->now];
    struct unwind_frame *fresh = m->frame[!m->now];
    while (w->old < w->nold && old[w->old].sp < s->sp)
        w->old++;
    if (w->old == w->nold || !same(&old[w->old], s))
        return 0;
    while (w->old + 1 < w->nold && w->n < w->max && w->n < UNWIND_MEMO &&
           leads(&w->stack, &w->regs, &old[w->old], &old[w->old + 1])) {
        fresh[w->n - 1] = old[w->old++];
        w->pcs[w->n++] = old[w->old].pc;
    }
    recall(&old[w->old], s);
    if (w->old + 1 < w->nold || m->cut) /* the list of modules may be longer now */
        return 0;
    fresh[w->n - 1] = old[w->old];
    return 1;
}

size_t unwind_walk(struct unwind *u, const struct cfi_memory *mem, const struct unwind_regs *regs,
                   struct unwind_memo *memo, uint64_t *pcs, size_t max, int *cut) {
    struct walk w = {.view = modmap_view(&u->map),
                     .regs = *regs,
                     .stack = {.mem = mem},
                     .memo = memo,
                     .pcs = pcs,
                     .max = max};
    struct state s = {.pc = regs->pc, .sp = regs->sp, .exact = 1}, to = s;
    if (memo && w.view)
        w.nold = memo->generation == w.view->generation + 1ull ? memo->n : 0;
    *cut = 1;
    for (;;) {
        struct cfi_rule rule;
        if (take(&w, &s)) {
            *cut = 0;
            break;
        }
        /* A return address may be the first byte after its function: look up the call. */
        int rc =
            w.view ? find_rule(u, w.view, mem, s.exact ? s.pc : s.pc - 1, s.exact, &rule) : -ENOENT;
        int end = !rc && rule.kind == CFI_END;
        if (!rc && !end) {
            if (rule.kind == CFI_SIGNAL) {
                s.used = USED_OTHER;
                to = s;
                rc = step_signal(mem, &w.regs, &to);
            } else {
                rc = step(&w.stack, &w.regs, &rule, &s, &to);
            }
        }
        if (w.memo && w.n <= UNWIND_MEMO) /* the step from the last frame is done */
            remember(&w.memo->frame[!w.memo->now][w.n - 1], &s);
        if (rc)
            break;
        if (end || to.pc == 0) {
            *cut = 0;
            break;
        }
        if (w.n == max)
            break;
        s = to;
    }
    if (memo && w.view) {
        memo->generation = w.view->generation + 1ull;
        memo->n = w.n < UNWIND_MEMO ? (uint32_t)w.n : UNWIND_MEMO;
        memo->cut = *cut || w.n > UNWIND_MEMO;
        memo->now = !memo->now;
    }
    return w.n;
}

#define WARM_STACK 96u /* most frames whose words on the stack are prefetched */
#define WARM_RULES 16u /* the same for rules: frames further out mostly do not change */

void unwind_warm(const struct unwind *u, const struct unwind_memo *memo) {
    const struct modmap_view *view = modmap_view(&u->map);
    const struct unwind_frame *f = memo->frame[memo->now];
    if (!view)
        return;
    for (uint32_t i = 1; i < memo->n && i < WARM_STACK; i++) {
        __builtin_prefetch((const void *)(uintptr_t)(f[i].sp - 8));
        if (i < WARM_RULES)
            rules_warm(&u->rules, view->generation, f[i].pc - 1);
    }
}
