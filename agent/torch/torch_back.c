/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_back.h"

#include <stdio.h>

#include "agent/base/loaded.h"
#include "agent/torch/torch_cuda.h"
#include "agent/torch/torch_record.h"

#define PATH_MAX_CALLS 64u

int back_on;
static struct torch_record where; /* offsets of a node's number and its thread */
static uint64_t pass_end;         /* (a) when the last outermost pass ended */
static uint32_t passes;           /* (a) number of outermost passes that have ended */

/* ---- forward: who owns which numbers ---- */

void back_own(struct torch_thread *l, uint64_t next) {
    uint64_t from = l->sequence;
    if (!l->owners) {
        if (torch_thread_own(l))
            return;
        from = next; /* earlier nodes belong to no call */
    }
    if (!l->torch_id) {
        __atomic_store_n(&l->torch_id, torch_lib.thread_id(), __ATOMIC_RELAXED);
        __atomic_store_n(&l->owned, l->generation, __ATOMIC_RELEASE);
    }
    if (from > next || next - from > TORCH_OWNERS)
        from = next > TORCH_OWNERS ? next - TORCH_OWNERS : 0;
    for (; from < next; from++)
        __atomic_store_n(&l->owners[from & (TORCH_OWNERS - 1)], (from & 0xffffffff) << 32 | l->call,
                         __ATOMIC_RELAXED);
    l->sequence = next;
}

static int owner_in(const struct torch_thread *l, uint64_t sequence, uint32_t *call) {
    const uint64_t *owners = __atomic_load_n(&l->owners, __ATOMIC_ACQUIRE);
    uint64_t o =
        owners ? __atomic_load_n(&owners[sequence & (TORCH_OWNERS - 1)], __ATOMIC_RELAXED) : 0;
    if (!owners || o >> 32 != (sequence & 0xffffffff) || sequence >= l->sequence)
        return 0;
    *call = (uint32_t)o;
    return 1;
}

static int is_of(const struct torch_thread *l, uint64_t thread, uint32_t generation) {
    return __atomic_load_n(&l->torch_id, __ATOMIC_ACQUIRE) == thread &&
           __atomic_load_n(&l->owned, __ATOMIC_RELAXED) == generation;
}

static const struct torch_thread *maker(struct torch_thread *l, uint64_t thread) {
    const struct torch_thread *other = l->maker;
    if (l->torch_id == thread)
        return l;
    if (other && is_of(other, thread, l->generation))
        return other;
    for (unsigned i = 0; (other = torch_thread_at(i)); i++)
        if (is_of(other, thread, l->generation))
            return l->maker = other;
    return NULL;
}

/* The thread whose forward pass made the node, and the call; NULL: within no call. Each thread numbers its nodes from 0. */
static const struct torch_thread *owner(struct torch_thread *l, uint64_t sequence, uint64_t thread,
                                        uint32_t *call) {
    const struct torch_thread *of = maker(l, thread);
    if (!of || !owner_in(of, sequence, call))
        return NULL;
    if (of != l && !is_of(of, thread, l->generation)) { /* another thread has the struct now */
        *call = 0;
        return NULL;
    }
    return of;
}

/* ---- nodes where the engine calls them ---- */

/*
 * Sees autograd's nodes begin where the engine calls them, not by a callback of RecordFunction: for that each node needs a RecordFunction
 * and a name, made from a demangled type, which takes 1 to 2 us. The engine calls Engine::evaluate_function(node) through
 * libtorch_cpu's table of imported functions, and a node that is really executed asks getStepCallbacksUnlessEmpty(BACKWARD) through
 * the same table. Our functions in these two entries pass the node on: a few ns, no lock, nothing allocated.
 *
 * The offsets of the sequence number and the thread in a node are verified, not assumed: at first the callback is installed as well and reports
 * both for the same node. Once NODES_PROOF nodes agree, the callback is removed (nodes_proven); at the first that disagrees, our entries are.
 *
 * In torch::autograd::Node (torch/csrc/autograd/function.h, 1.13 to 2.14) these four follow each other, behind the virtual table and
 * the reference counts, which take 16 bytes in 1.13 and 8 in 2.13. has_parent_ is a bool.
 *
 *     sequence_nr_ (8)  topological_nr_ (8)  has_parent_ (1, and 7 unused)  thread_id_ (8)
 */
#define NODES_PROOF 64u
#define THREAD      3u                    /* words from the sequence number to the thread */
#define FIRST       1u                    /* the first word at which the sequence number may lie, */
#define BEHIND      (TORCH_NODE - THREAD) /* and the first at which it may not */

/* By the C++ ABI of x86-64 and GCC: this and references are pointers, an optional that is not trivial is returned in memory. */
typedef void evaluate_fn(void *engine, void *task, const void *node, void *inputs, void *queue);
typedef void *callbacks_fn(void *result, uint8_t scope);

enum { NOTHING, CALLED, COPIED, BEGUN, RUNS };

static struct {
    void **entry[2], *original[2]; /* evaluate_function, getStepCallbacksUnlessEmpty */
    uint32_t hooked;               /* (a) */
    uint32_t agreed;               /* (a) nodes on which callback and entries agreed */
    uint32_t words;                /* (a) bit i: the number may lie in word i */
} nodes = {.words = (1u << BEHIND) - (1u << FIRST)};

/* The only word left in which the number may lie; 0: several or none are left, or too few nodes agreed. */
static uint32_t place(void) {
    uint32_t bits = __atomic_load_n(&nodes.words, __ATOMIC_ACQUIRE);
    return bits && !(bits & (bits - 1)) &&
                   __atomic_load_n(&nodes.agreed, __ATOMIC_ACQUIRE) >= NODES_PROOF
               ? (uint32_t)__builtin_ctz(bits)
               : 0;
}

/* Returns 1 if our entries alone suffice to see the nodes; 0: the callback is needed. */
static int nodes_proven(void) {
    return __atomic_load_n(&nodes.hooked, __ATOMIC_ACQUIRE) && place();
}

/* Returns 1 if this PyTorch's nodes are not as expected; that never changes again. */
static int nodes_refuted(void) {
    return !__atomic_load_n(&nodes.words, __ATOMIC_ACQUIRE);
}

/* Compares what the callback says of the node that begins on this thread with the words that evaluate() copied. */
static void nodes_agree(struct torch_thread *l, uint64_t sequence, uint64_t thread) {
    uint32_t bits = 0;
    if (!__atomic_load_n(&nodes.hooked, __ATOMIC_ACQUIRE) || l->node.state != BEGUN)
        return; /* it was in progress when we came, or was not called by the engine */
    l->node.state = RUNS;
    for (uint32_t i = FIRST; i < BEHIND && thread; i++)
        if (l->words[i] == sequence && l->words[i + THREAD] == thread)
            bits |= 1u << i;
    __atomic_fetch_and(&nodes.words, bits, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&nodes.agreed, 1, __ATOMIC_ACQ_REL);
}

/* Stands in for evaluate_function. A C++ exception may pass through: then l->node stays until the next node replaces it, so it must hold no pointer. */
static void evaluate(void *engine, void *task, const void *node, void *inputs, void *queue) {
    evaluate_fn *original = nodes.original[0];
    struct torch_thread *l =
        __atomic_load_n(&back_on, __ATOMIC_RELAXED) ? torch_thread_here() : NULL;
    const uint64_t *words = node;
    uint32_t i = place();
    if (!l) {
        original(engine, task, node, inputs, queue);
        return;
    }
    struct torch_thread_node outer = l->node;
    if (i) {
        l->node = (struct torch_thread_node){words[i], words[i + THREAD], CALLED};
    } else {
        l->node.state = COPIED;
        memcpy(l->words, words, sizeof l->words);
    }
    original(engine, task, node, inputs, queue);
    /* If this node belonged to a pass within another node's execution, that other node goes on. */
    l->node = outer;
}

static void back_begins_at(struct torch_thread *l, uint64_t sequence, uint64_t thread);

static void begins(void) {
    struct torch_thread *l =
        __atomic_load_n(&back_on, __ATOMIC_RELAXED) ? torch_thread_here() : NULL;
    if (!l)
        return;
    /* What a node executes by itself is no node of the engine's: then the state is neither of these. */
    if (l->node.state == COPIED) {
        l->node.state = BEGUN;
    } else if (l->node.state == CALLED) {
        l->node.state = RUNS;
        if (l->node.sequence != UINT64_MAX && nodes_proven())
            back_begins_at(l, l->node.sequence, l->node.thread);
    }
}

/* Stands in for getStepCallbacksUnlessEmpty. Every operator calls it, too: that costs one comparison. */
static void *callbacks(void *result, uint8_t scope) {
    callbacks_fn *original = nodes.original[1];
    if (__builtin_expect(scope == TORCH_SCOPE_BACKWARD, 0))
        begins();
    return original(result, scope);
}

/* Puts our functions into the two entries. Returns 0; -ENOTSUP: this library has no such entries, or other functions are in them. Service thread. */
static int nodes_hook(void) {
    static const char *const names[] = {
        "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_"
        "4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE",
        "_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE"};
    void *const ours[2] = {evaluate, callbacks};
    if (__atomic_load_n(&nodes.hooked, __ATOMIC_ACQUIRE))
        return 0;
    if (nodes_refuted())
        return -ENOTSUP;
    for (int i = 0; i < 2; i++) {
        void *was = nodes.original[i] = dlsym(torch_lib.handle, names[i]);
        nodes.entry[i] = was ? loaded_import(torch_lib.handle, names[i], was) : NULL;
        if (!nodes.entry[i])
            return -ENOTSUP;
    }
    for (int i = 0; i < 2; i++)
        if (loaded_patch(nodes.entry[i], ours[i])) {
            if (i)
                loaded_patch(nodes.entry[0], nodes.original[0]);
            return -ENOTSUP;
        }
    __atomic_store_n(&nodes.hooked, 1, __ATOMIC_RELEASE);
    return 0;
}

/* Restores the two entries. Service thread. */
static void nodes_unhook(void) {
    if (!__atomic_exchange_n(&nodes.hooked, 0, __ATOMIC_ACQ_REL))
        return;
    for (int i = 0; i < 2; i++)
        loaded_patch(nodes.entry[i], nodes.original[i]);
}

/* ---- backward ---- */

/* Ends the intervals at `depth` and deeper. pass: they ended with that pass, at time `at`; 0: they end now. */
static void leave(struct torch_thread *l, uint32_t depth, uint64_t at, uint32_t pass) {
    uint64_t now;
    for (; l->depth > depth; l->depth--) {
        if (__builtin_expect(l->cuda != NULL, 0))
            cuda_back_end(l, l->depth - 1, pass);
        uint8_t *p = torch_thread_begin(l, &now);
        if (p)
            torch_thread_done(l, torch_thread_head(l, p, at ? at : now, TORCH_EXIT, 0));
    }
}

static void enter(struct torch_thread *l, const struct torch_thread *of,
                  const struct torch_thread_call *c) {
    uint64_t now;
    uint32_t tid = of == l ? 0 : of->tid;
    uint8_t *p = torch_thread_begin(l, &now);
    torch_thread_push(l, now, tid ? TORCH_BACK_AT : TORCH_BACK, c->id, c->call, tid);
    if (!p)
        return;
    p = torch_thread_head(l, p, now, tid ? TORCH_BACK_AT : TORCH_BACK, c->id);
    if (tid) {
        p = varint_put(p, tid);
        p = varint_put(p, c->call);
    } else {
        p = varint_put(p, l->next_call - c->call);
    }
    torch_thread_done(l, p);
    if (__builtin_expect(cuda_on, 0))
        cuda_back_begin(l);
}

/* A node of `call` begins: ends the intervals that it does not lie in, and begins those that it lies in. */
static void back_node(struct torch_thread *l, const struct torch_thread *of, uint32_t call) {
    const struct torch_thread_call *path[PATH_MAX_CALLS];
    uint32_t n = 0, k = 0, tid = of && of != l ? of->tid : 0;
    l->back_call = call;
    l->back_of = of;
    for (uint32_t c = call; c && of && of->calls && n < PATH_MAX_CALLS;) {
        const struct torch_thread_call *e = &of->calls[c & (TORCH_CALLS - 1)];
        if (e->call != c)
            break; /* too long ago */
        path[n++] = e;
        c = e->parent;
    }
    while (k < n && l->back_depth + k < l->depth) {
        const struct torch_thread_open *o = &l->open[l->back_depth + k];
        if (o->call != path[n - 1 - k]->call || o->tid != tid)
            break;
        k++;
    }
    leave(l, l->back_depth + k, 0, 0);
    for (; k < n && l->depth < TORCH_DEPTH - 8; k++)
        enter(l, of, path[n - 1 - k]);
}

/* A node begins that has this number; `thread` is PyTorch's number of the thread that made it. */
static void back_begins_at(struct torch_thread *l, uint64_t sequence, uint64_t thread) {
    uint32_t call = 0;
    uint32_t unseen = __atomic_load_n(&torch_threads_unseen, __ATOMIC_RELAXED);
    if (__builtin_expect(unseen, 0) && (l->unseen || !l->passes))
        return;
    if (!l->passes) { /* one of the engine's own threads, which is not told that a pass has ended */
        uint32_t ended = __atomic_load_n(&passes, __ATOMIC_ACQUIRE);
        if (l->engine_pass != ended) {
            uint32_t depth = l->depth;
            while (depth && (l->open[depth - 1].kind == TORCH_BACK ||
                             l->open[depth - 1].kind == TORCH_BACK_AT))
                depth--;
            leave(l, depth, __atomic_load_n(&pass_end, __ATOMIC_RELAXED), ended);
            l->engine_pass = ended;
            l->back_call = 0;
            l->back_depth = depth;
        }
    }
    const struct torch_thread *of = owner(l, sequence, thread, &call);
    if (call != l->back_call || of != l->back_of)
        back_node(l, of, call);
}

int back_begins(const void *rf) {
    struct torch_thread *l;
    uint64_t sequence, thread;
    if (!back_on)
        return 0;
    memcpy(&sequence, (const char *)rf + where.sequence, sizeof sequence);
    if (sequence == UINT64_MAX) /* a mark; or a gradient's accumulation, whose name is no mark's */
        return 0;
    if (!(l = torch_thread_here()) || (nodes_proven() && l->node.state != BEGUN))
        return 1;
    memcpy(&thread, (const char *)rf + where.thread, sizeof thread);
    nodes_agree(l, sequence, thread);
    back_begins_at(l, sequence, thread);
    return 1;
}

uint32_t back_begin(struct torch_thread *l, struct back_pass *save) {
    back_entered(l);
    *save = (struct back_pass){l->back_call, l->back_depth, l->back_of};
    uint32_t depth = torch_thread_enter(l, TORCH_SPAN, TORCH_SPAN_BACKWARD);
    l->passes++;
    l->back_call = 0;
    l->back_depth = l->depth;
    return depth;
}

int back_end(struct torch_thread *l, const struct back_pass *save, uint32_t depth, unsigned flags) {
    if (__builtin_expect(l->cuda != NULL, 0))
        leave(l, depth + 1, 0, 0);
    torch_thread_exit(l, depth, flags);
    l->back_call = save->call;
    l->back_depth = save->depth;
    l->back_of = save->of;
    if (--l->passes)
        return 0;
    l->node.state = NOTHING; /* the pass may have failed */
    if (__builtin_expect(cuda_on, 0))
        cuda_pass(l, __atomic_load_n(&passes, __ATOMIC_RELAXED) + 1);
    __atomic_store_n(&pass_end, l->last, __ATOMIC_RELAXED);
    __atomic_fetch_add(&passes, 1, __ATOMIC_RELEASE);
    return 1;
}

/* ---- life ---- */

int back_start(char *why, size_t n) {
    char reason[120] = "this PyTorch lacks the count of nodes";
    why[0] = 0;
    if (back_on)
        return 0;
    if (!where.sequence && (!torch_lib.peek || torch_record_find(&where, reason, sizeof reason))) {
        snprintf(why, n, "modules' backward is off: %s", reason);
        return -ENOTSUP;
    }
    nodes_hook(); /* if that fails, the callback alone is used */
    __atomic_store_n(&back_on, 1, __ATOMIC_RELEASE);
    return 0;
}

int back_proven(void) {
    return back_on && nodes_proven();
}

int back_round(void) {
    static uint32_t noted; /* the recording in which it was said */
    if (nodes_refuted())
        nodes_unhook();
    if (!back_proven() || noted == agent_word.torch)
        return 0;
    noted = agent_word.torch;
    return 1;
}

void back_stop(void) {
    __atomic_store_n(&back_on, 0, __ATOMIC_RELEASE);
    nodes_unhook();
}
