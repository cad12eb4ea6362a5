/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_node.h"

#include <errno.h>
#include <string.h>

#include "agent/base/patch.h"
#include "agent/torch/torch_back.h"
#include "agent/torch/torch_lib.h"
#include "agent/torch/torch_thread.h"

/*
 * In torch::autograd::Node (torch/csrc/autograd/function.h, 1.13 to 2.14) these four follow each other, behind the virtual table and
 * the counts of references, which take 16 bytes in 1.13 and 8 in 2.13. has_parent_ is a bool.
 *
 *     sequence_nr_ (8)  topological_nr_ (8)  has_parent_ (1, and 7 unused)  thread_id_ (8)
 */
#define THREAD 3u                    /* words from the sequence number to the thread */
#define FIRST  1u                    /* the first word at which the sequence number may lie, */
#define BEHIND (TORCH_NODE - THREAD) /* and the first at which it may not */

/* By the C++ ABI of x86-64 and GCC: this and references are pointers, an optional that is not trivial is returned in memory. */
typedef void evaluate_fn(void *engine, void *task, const void *node, void *inputs, void *queue);
typedef void *callbacks_fn(void *result, uint8_t scope);

enum { NOTHING, CALLED, LOOKED_AT, BEGUN };

static struct {
    void **slot, *original;
} places[2]; /* evaluate_function, getStepCallbacksUnlessEmpty */
static evaluate_fn *evaluate_was;
static callbacks_fn *callbacks_was;
static uint32_t hooked; /* (a) */
static uint32_t agreed; /* (a) nodes of which both said the same */
static uint32_t at =
    (1u << BEHIND) - (1u << FIRST); /* (a) bits: words at which the sequence number may lie still */

/* The only word left, 0: more than one, or none. */
static uint32_t place(void) {
    uint32_t bits = __atomic_load_n(&at, __ATOMIC_ACQUIRE);
    return bits && !(bits & (bits - 1)) && __atomic_load_n(&agreed, __ATOMIC_ACQUIRE) >= NODES_PROOF
               ? (uint32_t)__builtin_ctz(bits)
               : 0;
}

int nodes_proven(void) {
    return __atomic_load_n(&hooked, __ATOMIC_ACQUIRE) && place();
}

int nodes_refuted(void) {
    return !__atomic_load_n(&at, __ATOMIC_ACQUIRE);
}

int nodes_asks(const struct torch_thread *l) {
    return l->node.state == BEGUN;
}

void nodes_agree(struct torch_thread *l, uint64_t sequence, uint64_t thread) {
    struct torch_thread_node *n = &l->node;
    uint32_t bits = 0;
    if (!__atomic_load_n(&hooked, __ATOMIC_ACQUIRE) || n->state != BEGUN)
        return; /* it was in progress when we came, or somebody else than the engine has called it */
    n->state = NOTHING;
    for (uint32_t i = FIRST; i < BEHIND && thread; i++)
        if (n->words[i] == sequence && n->words[i + THREAD] == thread)
            bits |= 1u << i;
    __atomic_fetch_and(&at, bits, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&agreed, 1, __ATOMIC_ACQ_REL);
}

/* ---- in place of libtorch's ---- */

/* A C++ exception passes through: what is left in the thread then is replaced by the next node, so it holds no pointer. */
static void evaluate(void *engine, void *task, const void *node, void *inputs, void *queue) {
    struct torch_thread *l =
        __atomic_load_n(&back_on, __ATOMIC_RELAXED) ? torch_thread_here() : NULL;
    const uint64_t *words = node;
    struct torch_thread_node outer;
    uint32_t i = place();
    if (!l) {
        evaluate_was(engine, task, node, inputs, queue);
        return;
    }
    outer.sequence = l->node.sequence;
    outer.thread = l->node.thread;
    outer.state = l->node.state;
    if (i) {
        l->node.sequence = words[i];
        l->node.thread = words[i + THREAD];
    } else {
        memcpy(l->node.words, words, sizeof l->node.words);
    }
    l->node.state = i ? CALLED : LOOKED_AT;
    evaluate_was(engine, task, node, inputs, queue);
    /* A pass within a node's execution is over, and that node goes on. */
    l->node.sequence = outer.sequence;
    l->node.thread = outer.thread;
    l->node.state = outer.state;
}

static void begins(void) {
    struct torch_thread *l =
        __atomic_load_n(&back_on, __ATOMIC_RELAXED) ? torch_thread_here() : NULL;
    if (!l)
        return;
    /* What a node executes by itself is no node of the engine's: it finds neither state. */
    if (l->node.state == LOOKED_AT) {
        l->node.state = BEGUN;
    } else if (l->node.state == CALLED) {
        l->node.state = NOTHING;
        if (l->node.sequence != UINT64_MAX && nodes_proven())
            back_begins_at(l, l->node.sequence, l->node.thread);
    }
}

/* Every operator asks, too: one comparison. */
static void *callbacks(void *result, uint8_t scope) {
    if (__builtin_expect(scope == TORCH_SCOPE_BACKWARD, 0))
        begins();
    return callbacks_was(result, scope);
}

/* ---- life ---- */

int nodes_hook(void) {
    static const char *const names[] = {
        "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_"
        "4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE",
        "_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE"};
    void *ours[2];
    evaluate_fn *first = evaluate;
    callbacks_fn *second = callbacks;
    if (__atomic_load_n(&hooked, __ATOMIC_ACQUIRE))
        return 0;
    if (nodes_refuted())
        return -ENOTSUP;
    memcpy(&ours[0], &first, sizeof first);
    memcpy(&ours[1], &second, sizeof second);
    for (int i = 0; i < 2; i++) {
        places[i].original = torch_lib_symbol(names[i]);
        places[i].slot = places[i].original
                             ? patch_import(torch_lib.handle, names[i], places[i].original)
                             : NULL;
        if (!places[i].slot)
            return -ENOTSUP;
    }
    memcpy(&evaluate_was, &places[0].original, sizeof evaluate_was);
    memcpy(&callbacks_was, &places[1].original, sizeof callbacks_was);
    for (int i = 0; i < 2; i++)
        if (patch_word(places[i].slot, ours[i])) {
            if (i)
                patch_word(places[0].slot, places[0].original);
            return -ENOTSUP;
        }
    __atomic_store_n(&hooked, 1, __ATOMIC_RELEASE);
    return 0;
}

void nodes_unhook(void) {
    if (!__atomic_exchange_n(&hooked, 0, __ATOMIC_ACQ_REL))
        return;
    for (int i = 0; i < 2; i++)
        patch_word(places[i].slot, places[i].original);
}
