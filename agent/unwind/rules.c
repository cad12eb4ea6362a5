/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/unwind/rules.h"

#include "agent/base/known.h"

#define BLOCK    256u /* bytes of code: a piece of a function has an entry for each block */
#define SPAN_MIN 16u  /* shorter pieces are not worth an entry */
#define WAYS     4u   /* possible places of a return address, in one cache line */

static uint64_t identity(uint32_t generation, uint64_t v) {
    return known_mix(generation + 1ull, v);
}

static uint64_t span_tag(uint64_t id, uint64_t rule, uint64_t lo, uint64_t hi) {
    return known_mix(known_mix(id ^ rule, lo), hi);
}

static struct rules_pc *places(const struct rules *r, uint64_t id) {
    return (struct rules_pc *)&r->pcs[id % (RULES_PCS / WAYS) * WAYS];
}

/* Returns the two possible places of a piece of a function, which are in one cache line. */
static struct rules_span *span_places(const struct rules *r, uint64_t id) {
    return (struct rules_span *)&r->spans[id % (RULES_SPANS / 2) * 2];
}

static uint64_t span_get(const struct rules_span *s, uint64_t id, uint64_t pc) {
    uint64_t lo = __atomic_load_n(&s->lo, __ATOMIC_RELAXED);
    uint64_t hi = __atomic_load_n(&s->hi, __ATOMIC_RELAXED);
    uint64_t word = __atomic_load_n(&s->rule, __ATOMIC_RELAXED);
    if (!word || pc < lo || pc >= hi ||
        __atomic_load_n(&s->tag, __ATOMIC_RELAXED) != span_tag(id, word, lo, hi))
        return 0;
    return word;
}

static uint64_t spans_get(const struct rules *r, uint32_t generation, uint64_t pc) {
    uint64_t id = identity(generation, pc / BLOCK);
    const struct rules_span *s = span_places(r, id);
    uint64_t word = span_get(s, id, pc);
    return word ? word : span_get(s + 1, id, pc);
}

static uint64_t pcs_get(const struct rules *r, uint32_t generation, uint64_t pc) {
    uint64_t id = identity(generation, pc);
    const struct rules_pc *e = places(r, id);
    for (unsigned i = 0; i < WAYS; i++) {
        uint64_t word = __atomic_load_n(&e[i].rule, __ATOMIC_RELAXED);
        if (word && (__atomic_load_n(&e[i].tag, __ATOMIC_RELAXED) ^ word) == id)
            return word;
    }
    return 0;
}

int rules_get(const struct rules *r, uint32_t generation, uint64_t pc, int leaf,
              struct cfi_rule *rule) {
    uint64_t word = leaf ? spans_get(r, generation, pc) : pcs_get(r, generation, pc);
    if (!word)
        word = leaf ? pcs_get(r, generation, pc) : spans_get(r, generation, pc);
    if (word)
        cfi_unpack(word, rule);
    return word != 0;
}

static void span_put(struct rules *r, uint32_t generation, uint64_t pc, uint64_t word,
                     const struct cfi_span *span) {
    uint64_t id = identity(generation, pc / BLOCK);
    struct rules_span *s = span_places(r, id);
    if (__atomic_load_n(&s->rule, __ATOMIC_RELAXED) &&
        (!__atomic_load_n(&s[1].rule, __ATOMIC_RELAXED) || pc / SPAN_MIN % 2)) /* any one */
        s++;
    __atomic_store_n(&s->tag, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&s->lo, span->lo, __ATOMIC_RELAXED);
    __atomic_store_n(&s->hi, span->hi, __ATOMIC_RELAXED);
    __atomic_store_n(&s->rule, word, __ATOMIC_RELAXED);
    __atomic_store_n(&s->tag, span_tag(id, word, span->lo, span->hi), __ATOMIC_RELAXED);
}

void rules_put(struct rules *r, uint32_t generation, uint64_t pc, int leaf,
               const struct cfi_rule *rule, const struct cfi_span *span) {
    uint64_t word = cfi_pack(rule), id = identity(generation, pc);
    if (!word)
        return;
    int wide = span->hi - span->lo >= SPAN_MIN;
    if (wide)
        span_put(r, generation, pc, word, span);
    if (wide && leaf)
        return;
    struct rules_pc *e = places(r, id);
    unsigned way = 0;
    while (way < WAYS && __atomic_load_n(&e[way].rule, __ATOMIC_RELAXED))
        way++;
    e += way < WAYS ? way : (id >> 40) % WAYS; /* any one */
    __atomic_store_n(&e->rule, word, __ATOMIC_RELAXED);
    __atomic_store_n(&e->tag, id ^ word, __ATOMIC_RELAXED);
}

void rules_warm(const struct rules *r, uint32_t generation, uint64_t pc) {
    __builtin_prefetch(places(r, identity(generation, pc)));
}
