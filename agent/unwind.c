/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "known.h"
#include "memory.h"

/* Two words that are written one after the other without a lock: the tag holds the program counter
 * XORed with the rule, so that a mixture of two writes matches nobody. */
struct unwind_entry {
    uint64_t tag, rule;
};

int unwind_init(struct unwind *u) {
    memset(u, 0, sizeof *u);
    void *p = mmap(NULL, UNWIND_CACHE * sizeof *u->cache, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -ENOMEM;
    u->cache = p;
    return 0;
}

void unwind_free(struct unwind *u) {
    modmap_reclaim(&u->map);
    if (u->map.view)
        munmap(u->map.view, u->map.view->bytes);
    u->map.view = NULL;
    if (u->cache)
        munmap(u->cache, UNWIND_CACHE * sizeof *u->cache);
    u->cache = NULL;
}

int unwind_refresh(struct unwind *u) {
    return modmap_refresh(&u->map);
}

static int find_rule(struct unwind *u, const struct modmap_view *view, const struct cfi_memory *mem,
                     uint64_t pc, struct cfi_rule *rule) {
    uint64_t id = known_mix(view->generation + 1, pc);
    struct unwind_entry *e = &u->cache[id % UNWIND_CACHE];
    uint64_t word = __atomic_load_n(&e->rule, __ATOMIC_RELAXED);
    if (word && (__atomic_load_n(&e->tag, __ATOMIC_RELAXED) ^ word) == id) {
        cfi_unpack(word, rule);
        return 0;
    }
    const struct modmap_module *m = modmap_find(view, pc);
    if (!m) {
        modmap_miss(&u->map, pc);
        return -ENOENT;
    }
    if (!m->hdr)
        return -ENOENT;
    int rc = cfi_find(mem, m->hdr, pc, rule);
    if (rc)
        return rc;
    word = cfi_pack(rule);
    if (word) {
        __atomic_store_n(&e->rule, word, __ATOMIC_RELAXED);
        __atomic_store_n(&e->tag, id ^ word, __ATOMIC_RELAXED);
    }
    return 0;
}

/* The stack as a walk reads it: word after word, mostly in the page of the word before. */
struct stack {
    const struct cfi_memory *mem;
    uint64_t
        page; /* number + 1 of the page that was read last, where it may be loaded from directly */
};

/* No sanitizer: the words may be anybody's. */
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

/* Through the kernel's signal frame: at the trampoline, rsp points to the ucontext. */
static int step_signal(const struct cfi_memory *mem, struct unwind_regs *r) {
    greg_t g[NGREG];
    uint64_t at = r->sp + offsetof(ucontext_t, uc_mcontext.gregs);
    int rc = mem->read(mem->ctx, at, g, sizeof g);
    if (rc)
        return rc;
    r->pc = (uint64_t)g[REG_RIP];
    r->sp = (uint64_t)g[REG_RSP];
    r->bp = (uint64_t)g[REG_RBP];
    r->bx = (uint64_t)g[REG_RBX];
    r->r10 = (uint64_t)g[REG_R10];
    r->known = UNWIND_BP | UNWIND_BX | UNWIND_R10;
    return 0;
}

static int base_of(const struct unwind_regs *r, unsigned reg, uint64_t *base) {
    unsigned need = reg == CFI_RBP   ? UNWIND_BP
                    : reg == CFI_RBX ? UNWIND_BX
                    : reg == CFI_R10 ? UNWIND_R10
                                     : 0;
    if ((r->known & need) != need)
        return -ENOENT;
    *base = reg == CFI_RBP ? r->bp : reg == CFI_RBX ? r->bx : reg == CFI_R10 ? r->r10 : r->sp;
    return 0;
}

/* One frame outwards. 0; -errno when the stack does not make sense. */
static int step(struct stack *mem, const struct cfi_rule *rule, struct unwind_regs *r) {
    uint64_t base, cfa, pc;
    int rc = base_of(r, rule->reg, &base);
    if (rc)
        return rc;
    cfa = base + (uint64_t)(int64_t)rule->cfa_off;
    if (rule->kind == CFI_DEREF && word_at(mem, cfa, &cfa))
        return -EFAULT;
    if (cfa <= r->sp || cfa & 7) /* a caller's frame lies above */
        return -EBADMSG;
    rc = word_at(mem, cfa - 8, &pc);
    if (rc)
        return rc;
    uint64_t saved = rule->kind == CFI_DEREF ? base : cfa;
    if (rule->rbp_off != CFI_KEPT) {
        rc = word_at(mem, saved + (uint64_t)(int64_t)rule->rbp_off, &r->bp);
        if (rc)
            return rc;
        r->known |= UNWIND_BP;
    }
    if (rule->rbx_off != CFI_KEPT) {
        rc = word_at(mem, cfa + (uint64_t)(int64_t)rule->rbx_off, &r->bx);
        if (rc)
            return rc;
        r->known |= UNWIND_BX;
    }
    r->known &= ~(unsigned)UNWIND_R10; /* a scratch register: of the innermost frame only */
    r->pc = pc;
    r->sp = cfa;
    return 0;
}

size_t unwind_walk(struct unwind *u, const struct cfi_memory *mem, const struct unwind_regs *regs,
                   uint64_t *pcs, uint64_t *sps, size_t max, int *cut) {
    const struct modmap_view *view = modmap_view(&u->map);
    struct unwind_regs r = *regs;
    struct stack stack = {.mem = mem};
    size_t n = 1;
    int exact = 1; /* pc is that of an instruction, not a return address after a call */
    pcs[0] = r.pc;
    if (sps)
        sps[0] = r.sp;
    *cut = 1;
    if (!view)
        return n;
    for (;;) {
        struct cfi_rule rule;
        /* A return address may be the first byte after its function: look up the call. */
        if (find_rule(u, view, mem, exact ? r.pc : r.pc - 1, &rule))
            break;
        if (rule.kind == CFI_END) {
            *cut = 0;
            break;
        }
        exact = rule.kind == CFI_SIGNAL;
        if (rule.kind == CFI_SIGNAL ? step_signal(mem, &r) : step(&stack, &rule, &r))
            break;
        if (r.pc == 0) {
            *cut = 0;
            break;
        }
        if (n == max)
            break;
        if (sps)
            sps[n] = r.sp;
        pcs[n++] = r.pc;
    }
    return n;
}

void unwind_warm(const struct unwind *u, const uint64_t *pcs, const uint64_t *sps, size_t n) {
    const struct modmap_view *view = modmap_view(&u->map);
    if (!view)
        return;
    for (size_t i = 1; i < n; i++) {
        __builtin_prefetch(&u->cache[known_mix(view->generation + 1, pcs[i] - 1) % UNWIND_CACHE]);
        __builtin_prefetch((const void *)(uintptr_t)(sps[i] - 8));
    }
}
