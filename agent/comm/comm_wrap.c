/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_wrap.c - the backends' virtual functions, entered through ours.
 *
 * By the C++ ABI of x86-64 and GCC such a function is, in C, a function of (place of the result, this, arguments ...): the result
 * (an intrusive_ptr) is returned in memory, references are pointers. Ours take as many arguments as any has and hand
 * all of them on; where a function has fewer, what is handed on beyond is never looked at. A C++ exception passes
 * through: there is nothing to clean up but the thread's current operation, which the next call replaces.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/patch.h"
#include "agent/base/values.h"
#include "agent/comm/comm.h"

enum shape {           /* where the tensors are */
             TENSORS1, /* first argument: vector<Tensor> & */
             TENSORS2, /* second */
             TENSOR2,  /* second: Tensor & */
             NO_TENSORS,
};
enum role {
    PLAIN,
    BROADCAST, /* source in the options: comm_layout.root[] */
    REDUCE,
    GATHER,
    SCATTER,
    SEND, /* second argument: the peer */
    RECV,
    RECV_ANY,
};

/* clang-format off */
static const struct method {
    const char *symbol; /* after the class's name */
    const char *op;
    const char *title; /* of the RecordFunction that gloo makes of it */
    enum shape shape;
    enum role role;
} methods[] = {
#define VEC                                   "RSt6vectorIN2at6TensorESaIS3_EE"
#define VECS                                  "RSt6vectorIS1_IN2at6TensorESaIS3_EESaIS5_EERS5_"
#define OPTS                                  "RKNS_"
#define METHOD(name, symbol, op, title, shape, role) {symbol, op, title, shape, role},
#define METHODS                                                                                                                                                                      \
    METHOD(broadcast, "9broadcastE" VEC OPTS "16BroadcastOptionsE", "broadcast", "gloo:broadcast", TENSORS1, BROADCAST)                                                              \
    METHOD(allreduce, "9allreduceE" VEC OPTS "16AllreduceOptionsE", "all_reduce", "gloo:all_reduce", TENSORS1, PLAIN)                                                                \
    METHOD(allreduce_sparse, "16allreduce_sparseE" VEC OPTS "16AllreduceOptionsE", "all_reduce", "gloo:sparse_all_reduce", TENSORS1, PLAIN)                                          \
    METHOD(allreduce_coalesced, "19allreduce_coalescedE" VEC OPTS "25AllreduceCoalescedOptionsE", "all_reduce_coalesced", "gloo:all_reduce", TENSORS1, PLAIN)                        \
    METHOD(reduce, "6reduceE" VEC OPTS "13ReduceOptionsE", "reduce", "gloo:reduce", TENSORS1, REDUCE)                                                                                \
    METHOD(allgather, "9allgatherE" VECS OPTS "16AllgatherOptionsE", "all_gather", "gloo:all_gather", TENSORS2, PLAIN)                                                               \
    METHOD(allgather_base, "15_allgather_baseERN2at6TensorES3_" OPTS "16AllgatherOptionsE", "all_gather", "gloo:all_gather", TENSOR2, PLAIN)                                         \
    METHOD(allgather_coalesced, "19allgather_coalescedE" VECS OPTS "16AllgatherOptionsE", "all_gather_coalesced", "gloo:all_gather", TENSORS2, PLAIN)                                \
    METHOD(allgather_into, "31allgather_into_tensor_coalescedE" VEC "S6_" OPTS "16AllgatherOptionsE", "all_gather_coalesced", "gloo:all_gather", TENSORS2, PLAIN)                    \
    METHOD(gather, "6gatherE" VECS OPTS "13GatherOptionsE", "gather", "gloo:gather", TENSORS2, GATHER)                                                                               \
    METHOD(scatter, "7scatterE" VEC "RS1_IS5_SaIS5_EE" OPTS "14ScatterOptionsE", "scatter", "gloo:scatter", TENSORS1, SCATTER)                                                       \
    METHOD(reduce_scatter, "14reduce_scatterE" VEC "RS1_IS5_SaIS5_EE" OPTS "20ReduceScatterOptionsE", "reduce_scatter", "gloo:all_reduce", TENSORS1, PLAIN)                          \
    METHOD(reduce_scatter_base, "20_reduce_scatter_baseERN2at6TensorES3_" OPTS "20ReduceScatterOptionsE", "reduce_scatter", "gloo:all_reduce", TENSOR2, PLAIN)                       \
    METHOD(reduce_scatter_coalesced, "31reduce_scatter_tensor_coalescedE" VEC "S6_" OPTS "20ReduceScatterOptionsE", "reduce_scatter_coalesced", "gloo:all_reduce", TENSORS2, PLAIN)  \
    METHOD(alltoall_base, "13alltoall_baseERN2at6TensorES3_RSt6vectorIlSaIlEES7_" OPTS "15AllToAllOptionsE", "all_to_all", "gloo:all_to_all", TENSOR2, PLAIN)                        \
    METHOD(alltoall, "8alltoallE" VEC "S6_" OPTS "15AllToAllOptionsE", "all_to_all", "gloo:all_to_all", TENSORS2, PLAIN)                                                             \
    METHOD(all_gather_single, "17all_gather_singleERN2at6TensorES3_" OPTS "16AllgatherOptionsE", "all_gather", "gloo:all_gather", TENSOR2, PLAIN) /* these five: 2.14 */             \
    METHOD(all_gather_single_coalesced, "27all_gather_single_coalescedE" VEC "S6_" OPTS "16AllgatherOptionsE", "all_gather_coalesced", "gloo:all_gather", TENSORS2, PLAIN)           \
    METHOD(reduce_scatter_single, "21reduce_scatter_singleERN2at6TensorES3_" OPTS "20ReduceScatterOptionsE", "reduce_scatter", "gloo:all_reduce", TENSOR2, PLAIN)                    \
    METHOD(reduce_scatter_single_coalesced, "31reduce_scatter_single_coalescedE" VEC "S6_" OPTS "20ReduceScatterOptionsE", "reduce_scatter_coalesced", "gloo:all_reduce", TENSORS2, PLAIN)\
    METHOD(all_to_all_single, "17all_to_all_singleERN2at6TensorES3_RSt6vectorIlSaIlEES7_" OPTS "15AllToAllOptionsE", "all_to_all", "gloo:all_to_all", TENSOR2, PLAIN)                \
    METHOD(send, "4sendE" VEC "ii", "send", "gloo:send", TENSORS1, SEND)                                                                                                             \
    METHOD(recv, "4recvE" VEC "ii", "recv", "gloo:recv", TENSORS1, RECV)                                                                                                             \
    METHOD(recv_any, "13recvAnysourceE" VEC "i", "recv", "gloo:recvAnySource", TENSORS1, RECV_ANY)                                                                                   \
    METHOD(barrier, "7barrierE" OPTS "14BarrierOptionsE", "barrier", "gloo:barrier", NO_TENSORS, PLAIN)                                                                             
    METHODS
#undef METHOD
};
/* clang-format on */
enum { NMETHODS = sizeof methods / sizeof *methods };

typedef void *(*function)(void *result, void *self, void *a, void *b, void *c, void *d, void *e,
                          void *f);
static function originals[COMM_BACKENDS][NMETHODS];
static __thread struct comm_op *current;
static __thread const void *current_frame;

struct comm_op *comm_wrap_current(void) {
    return current;
}

/* ---- tensors ---- */

static const struct {
    uint16_t size;
    const char *name;
} dtypes[] = {
    [0] = {1, "uint8"},
    [1] = {1, "int8"},
    [2] = {2, "int16"},
    [3] = {4, "int32"},
    [4] = {8, "int64"},
    [5] = {2, "float16"},
    [6] = {4, "float32"},
    [7] = {8, "float64"},
    [8] = {4, "complex32"},
    [9] = {8, "complex64"},
    [10] = {16, "complex128"},
    [11] = {1, "bool"},
    [15] = {2, "bfloat16"},
    [23] = {1, "float8_e5m2"},
    [24] = {1, "float8_e4m3fn"},
    [25] = {1, "float8_e5m2fnuz"},
    [26] = {1, "float8_e4m3fnuz"},
    [27] = {2, "uint16"},
    [28] = {4, "uint32"},
    [29] = {8, "uint64"},
};

static void add_tensor(struct comm_op *op, const char *impl) {
    int64_t numel;
    uint16_t type;
    if (!impl || comm_layout.numel < 0)
        return;
    memcpy(&numel, impl + comm_layout.numel, sizeof numel);
    memcpy(&type, impl + comm_layout.dtype, sizeof type);
    if (numel < 0 || type >= sizeof dtypes / sizeof *dtypes || !dtypes[type].name)
        return;
    if (!op->tensor)
        op->tensor = impl;
    op->bytes += (uint64_t)numel * dtypes[type].size;
    op->dtype = dtypes[type].name;
}

static void add_tensors(struct comm_op *op, enum shape shape, void *a, void *b) {
    const char **p,
        **end; /* at::Tensor is a pointer to its TensorImpl, a vector begins with begin and end */
    switch (shape) {
    case TENSORS1:
    case TENSORS2:
        p = ((const char ***)(shape == TENSORS1 ? a : b))[0];
        end = ((const char ***)(shape == TENSORS1 ? a : b))[1];
        while (p < end)
            add_tensor(op, *p++);
        break;
    case TENSOR2:
        add_tensor(op, *(const char **)b);
        break;
    case NO_TENSORS:
        break;
    }
}

/* ---- an operation ---- */

static int32_t root_of(const void *options, int which) {
    int64_t root;
    if (comm_layout.root[which] < 0)
        return -1;
    memcpy(&root, (const char *)options + comm_layout.root[which], sizeof root);
    return (int32_t)root;
}

static void set_ends(struct comm_op *op, struct comm_group *g, enum role role, void *b, void *c) {
    int peer = (int)(intptr_t)b;
    switch (role) {
    case PLAIN:
        break;
    case BROADCAST:
        op->src = root_of(b, 0);
        break;
    case REDUCE:
        op->dst = root_of(b, 1);
        break;
    case GATHER:
        op->dst = root_of(c, 2);
        break;
    case SCATTER:
        op->src = root_of(c, 3);
        break;
    case SEND:
        op->dst = peer;
        op->src = __atomic_load_n(&g->rank, __ATOMIC_RELAXED);
        break;
    case RECV:
        op->src = peer;
        op->dst = __atomic_load_n(&g->rank, __ATOMIC_RELAXED);
        break;
    case RECV_ANY:
        op->dst = __atomic_load_n(&g->rank, __ATOMIC_RELAXED);
        break;
    }
}

static uint64_t next_seq(struct comm_group *g, const struct method *m, void *self, void *b) {
    if (m->role >= SEND)
        return comm_pair_count(g, m->role == RECV_ANY ? -1 : (int)(intptr_t)b, m->role != SEND);
    if (g->backend == COMM_GLOO && comm_layout.tag >= 0) {
        uint32_t tag;
        memcpy(&tag, (const char *)self + comm_layout.tag, sizeof tag);
        __atomic_store_n(&g->seq, (uint64_t)tag + 1, __ATOMIC_RELAXED);
        return (uint64_t)tag + 1;
    }
    return __atomic_add_fetch(&g->seq, 1, __ATOMIC_RELAXED);
}

/* Whether the operation on record is really being called further out on this stack: an exception may have ended it. */
static int is_nested(const void *frame) {
    return current && (const char *)current_frame > (const char *)frame;
}

static void fill(struct comm_op *op, struct comm_group *g, const struct method *m, void *self,
                 void *a, void *b, void *c) {
    op->op = m->op;
    op->title = m->title;
    op->group = g->number;
    add_tensors(op, m->shape, a, b);
    set_ends(op, g, m->role, b, c);
    op->seq = next_seq(g, m, self, b);
    op->tickets = 1;
    op->open = 2;
    op->enter = values_now();
}

/* The call has returned; its parts may go on. */
static void returned(struct comm_op *op, enum comm_backend backend) {
    uint64_t now = values_now();
    op->host = now - op->enter;
    if (backend == COMM_GLOO && comm_observed() && comm_expected()) {
        comm_release(op, 0);
        return;
    }
    op->flags |= COMM_UNSEEN; /* NCCL's records end with the call, too: the GPU goes on */
    while (comm_claim(op))
        comm_release(op, now);
    comm_release(op, now);
}

/* A method that is made of others: those are parts of it. */
static void nest(struct comm_op *op, const struct method *m) {
    op->title = m->title;
    if (op->nested++) {
        __atomic_fetch_add(&op->open, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&op->tickets, 1, __ATOMIC_RELEASE);
    }
}

static void *call(enum comm_backend backend, unsigned i, void *result, void *self, void *a, void *b,
                  void *c, void *d, void *e, void *f) {
    function original = originals[backend][i];
    const struct method *m = &methods[i];
    void *frame = __builtin_frame_address(0), *answer;
    struct comm_group *g = NULL;
    struct comm_op *op = NULL;
    if (is_nested(frame))
        nest(current, m);
    else if ((op = comm_begin()) && !(g = comm_group_of(self, backend))) {
        comm_abandon(op);
        op = NULL;
    }
    if (!op)
        return original(result, self, a, b, c, d, e, f);
    comm_observe_begin();
    fill(op, g, m, self, a, b, c);
    current = op;
    current_frame = frame;
    comm_commit(op);
    answer = original(result, self, a, b, c, d, e, f);
    current = NULL;
    returned(op, backend);
    return answer;
}

#define WRAPPER(backend, name)                                                                     \
    static void *backend##_##name(void *result, void *self, void *a, void *b, void *c, void *d,    \
                                  void *e, void *f) {                                              \
        return call(backend, METHOD_##name, result, self, a, b, c, d, e, f);                       \
    }
enum {
#define METHOD(name, symbol, op, title, shape, role) METHOD_##name,
    METHODS
#undef METHOD
};
#define METHOD(name, symbol, op, title, shape, role) WRAPPER(COMM_GLOO, name)
METHODS
#undef METHOD
#define METHOD(name, symbol, op, title, shape, role) WRAPPER(COMM_NCCL, name)
METHODS
#undef METHOD
static const function wrappers[COMM_BACKENDS][NMETHODS] = {
    {
#define METHOD(name, symbol, op, title, shape, role) COMM_GLOO_##name,
        METHODS
#undef METHOD
    },
    {
#define METHOD(name, symbol, op, title, shape, role) COMM_NCCL_##name,
        METHODS
#undef METHOD
    },
};

/* ---- into the vtable ---- */

int comm_wrap_install(enum comm_backend backend, void *handle) {
    static const char *const classes[COMM_BACKENDS] = {"N4c10d16ProcessGroupGloo",
                                                       "N4c10d16ProcessGroupNCCL"};
    char name[256];
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    int patched = 0, rc = 0;
    snprintf(name, sizeof name, "_ZTV%sE", classes[backend]);
    function *vtable = dlsym(handle, name);
    if (!vtable || !dladdr1(vtable, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
        return -ENOSYS;
    size_t n = symbol->st_size / sizeof *vtable;
    for (unsigned i = 0; i < NMETHODS && !rc; i++) {
        snprintf(name, sizeof name, "_Z%s%s", classes[backend], methods[i].symbol);
        void *p = dlsym(handle, name);
        function original;
        memcpy(&original, &p, sizeof original);
        for (size_t k = 2; p && k < n && !rc; k++) {
            if (vtable[k] != original)
                continue;
            originals[backend][i] = original;
            void *wrapper;
            memcpy(&wrapper, &wrappers[backend][i], sizeof wrapper);
            rc = patch_word(&vtable[k], wrapper);
            patched += !rc;
        }
    }
    return rc ? rc : patched ? patched : -ENOSYS;
}
