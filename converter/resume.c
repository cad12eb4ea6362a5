/* SPDX-License-Identifier: Apache-2.0 */
#include "resume.h"

#include <stdlib.h>
#include <string.h>

#include "../traces/hash.h"

#define BIT(type) (1ull << TRACE_##type)

/* Eight bytes at a time: hundreds of modules, with their paths and build ids, are hashed for each answer. */
static uint64_t mix(uint64_t h, const void *p, size_t n) {
    for (const uint8_t *b = p; n; b += n < 8 ? n : 8, n -= n < 8 ? n : 8) {
        uint64_t word = 0;
        memcpy(&word, b, n < 8 ? n : 8);
        h = hash_spread(hash_step(h, word) ^ n);
    }
    return h;
}

/* Returns a digest of the modules that were loaded until then; *n: how many they are. */
static uint64_t digest_modules(const struct modules *mods, uint64_t last, uint64_t *n) {
    uint64_t h = HASH_START;

    *n = 0;
    for (size_t i = 0; i < mods->n; i++) {
        const struct module *m = &mods->m[i];
        if (m->load > last)
            continue;
        const uint64_t facts[] = {m->start, m->end, m->bias, m->load};
        h = mix(h, facts, sizeof facts);
        h = mix(h, m->path, strlen(m->path) + 1);
        h = mix(h, m->build_id, strlen(m->build_id) + 1);
        ++*n;
    }
    return h;
}

static uint64_t eval_of(const struct meta *m) {
    const uint64_t at[] = {m->eval_start, m->eval_end, m->cold_start, m->cold_end};

    return mix(HASH_START, at, sizeof at);
}

void resume_of(struct resume *now, const struct reader *r, const struct meta *m,
               const struct modules *mods, const struct resume *was) {
    struct reader_totals totals;

    reader_totals(r, &totals);
    *now = (struct resume){.blocks = reader_blocks(r),
                           .digest = reader_digest(r, reader_blocks(r)),
                           .last = totals.last_ts,
                           .eval = eval_of(m),
                           .names = m->code_names.n};
    for (size_t i = 0; i < mods->n; i++)
        if (mods->m[i].load > now->modules_last)
            now->modules_last = mods->m[i].load;
    if (was && was->modules_last == now->modules_last) {
        now->modules_digest = was->modules_digest;
        now->modules = was->modules;
    } else {
        now->modules_digest = digest_modules(mods, now->modules_last, &now->modules);
    }
}

int resume_begins(const struct resume *was, const struct reader *r) {
    return was->blocks && was->blocks <= reader_blocks(r) &&
           reader_digest(r, was->blocks) == was->digest;
}

/* Checks that new modules do not overlap the addresses of others, and that no earlier address was left without a module. */
static int same_modules(const struct resume *was, const struct resume_rows *rows,
                        const struct modules *mods) {
    uint64_t n, top = 0;
    int was_new = 0, more;

    if (digest_modules(mods, was->modules_last, &n) != was->modules_digest || n != was->modules)
        return 0;
    if (n == mods->n)
        return 1;
    for (size_t i = 0; i < mods->n; i++) { /* sorted by start */
        const struct module *m = &mods->m[i];
        more = m->load > was->modules_last;
        if (m->start < top && (more || was_new))
            return 0;
        was_new = m->end > top ? more : was_new;
        top = m->end > top ? m->end : top;
    }
    return !rows->has_bare;
}

/* Checks that each thread id belongs to the same thread as before, at all times that were read then. */
static int same_threads(const struct resume *was, const struct resume_rows *rows,
                        const struct threads *t) {
    for (size_t i = 0; i < rows->threads && i < t->n; i++) {
        const struct thread *th = &t->t[i];
        if (th->tid != rows->tids[i] ||
            (th->next > rows->threads && (th->end == UINT64_MAX || th->end <= was->last)))
            return 0;
    }
    return 1;
}

/* Checks that no function that has rows has got another name since. */
static int same_names(const struct resume *was, const struct meta *m, const struct callsites *cs) {
    for (uint64_t i = was->names; i < m->code_names.n; i++) {
        const char *name, *file;
        uint64_t firstline;
        code_names_at(&m->code_names, (uint32_t)i, &name, &file, &firstline);
        if (callsites_has(cs, CALLSITE_PYTHON, name, file, firstline))
            return 0;
    }
    return m->code_names.n >= was->names;
}

int resume_fits(const struct resume *was, const struct resume_rows *rows, const struct reader *r,
                struct meta *m, const struct modules *mods, const struct callsites *cs) {
    uint64_t periods = 0;

    for (size_t i = was->blocks; i < reader_blocks(r); i++)
        if (reader_block(r, i)->types & (BIT(native_file) | BIT(symbol)))
            return 0;
    for (size_t i = 0; i < m->nperiods; i++)
        periods += m->periods[i].since <= was->last;
    if (eval_of(m) != was->eval || periods != rows->periods || !same_modules(was, rows, mods) ||
        !same_threads(was, rows, &m->threads) || !same_names(was, m, cs))
        return 0;
    for (size_t i = m->threads.n; i < rows->threads; i++)
        if (threads_at(&m->threads, rows->tids[i], 0) != &m->threads.t[i])
            return 0;
    return 1;
}
