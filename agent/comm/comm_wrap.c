/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_wrap.c - wraps the backends' virtual functions.
 *
 * In the C++ ABI of x86-64 and GCC, such a function is, in C, a function of (address of the result, this, arguments ...): the result
 * (an intrusive_ptr) is returned in memory, and references are pointers. The wrappers take as many arguments as any function has, and
 * pass all of them on; a function that has fewer never uses the rest.
 *
 * A method may call others (gloo's reduce_scatter calls all_reduce) through the same vtable: those are parts of the operation. Only a method that calls no
 * other is executed by a thread of gloo's and has a RecordFunction, so the first part takes its caller's ticket, and each further part adds a ticket. A C++
 * exception (an operation that gloo does not have, tensors that do not fit) passes through our frames; the personality routine of call() notices it.
 */
#include <stdio.h>

#include "agent/base/loaded.h"
#include "agent/comm/comm.h"
#include "agent/core/steps.h"
#include "writer/sys.h"

enum shape {           /* where the tensors are */
             TENSORS1, /* first argument: vector<Tensor> & */
             TENSORS2, /* second argument: vector<Tensor> & */
             TENSOR2,  /* second argument: Tensor & */
             NO_TENSORS,
};
enum role {
    PLAIN,
    COALESCED, /* like PLAIN; with one tensor it is the method in the row above */
    BROADCAST, /* source in the options: comm_layout.root[] */
    REDUCE,
    GATHER,
    SCATTER,
    SEND, /* second argument: the peer */
    RECV,
    RECV_ANY,
    WATCHED, /* like PLAIN, but made of sends and receives, and complete when the call returns. Returns nothing, so `this` is the first argument */
    GONE,    /* the destructor: `this` is the first argument, too */
};

/* clang-format off */
static const struct method {
    const char *symbol; /* after the class's name */
    const char *op;
    const char *title; /* name of the RecordFunction that gloo makes for it */
    enum shape shape;
    enum role role;
} methods[] = {
#define VEC                                   "RSt6vectorIN2at6TensorESaIS3_EE"
#define VECS                                  "RSt6vectorIS1_IN2at6TensorESaIS3_EESaIS5_EERS5_"
#define OPTS                                  "RKNS_"
#define ROW(name, symbol, op, title, shape, role) {symbol, op, title, shape, role},
#define METHODS(X)                                                                                                                                                                   \
    X(broadcast, "9broadcastE" VEC OPTS "16BroadcastOptionsE", "broadcast", "gloo:broadcast", TENSORS1, BROADCAST)                                                              \
    X(allreduce, "9allreduceE" VEC OPTS "16AllreduceOptionsE", "all_reduce", "gloo:all_reduce", TENSORS1, PLAIN)                                                                \
    X(allreduce_sparse, "16allreduce_sparseE" VEC OPTS "16AllreduceOptionsE", "all_reduce", "gloo:all_reduce", TENSORS1       , PLAIN)                                          \
    X(allreduce_coalesced, "19allreduce_coalescedE" VEC OPTS "25AllreduceCoalescedOptionsE", "all_reduce_coalesced", "gloo:all_reduce", TENSORS1, COALESCED)                    \
    X(reduce, "6reduceE" VEC OPTS "13ReduceOptionsE", "reduce", "gloo:reduce", TENSORS1, REDUCE)                                                                                \
    X(allgather, "9allgatherE" VECS OPTS "16AllgatherOptionsE", "all_gather", "gloo:all_gather", TENSORS2, PLAIN)                                                               \
    X(allgather_into, "31allgather_into_tensor_coalescedE" VEC "S6_" OPTS "16AllgatherOptionsE", "all_gather_coalesced", "gloo:all_gather", TENSORS2, COALESCED)                \
    X(allgather_base, "15_allgather_baseERN2at6TensorES3_" OPTS "16AllgatherOptionsE", "all_gather", "gloo:all_gather", TENSOR2, PLAIN)                                         \
    X(allgather_coalesced, "19allgather_coalescedE" VECS OPTS "16AllgatherOptionsE", "all_gather_coalesced", "gloo:all_gather", TENSORS2, COALESCED)                            \
    X(gather, "6gatherE" VECS OPTS "13GatherOptionsE", "gather", "gloo:gather", TENSORS2, GATHER)                                                                               \
    X(scatter, "7scatterE" VEC "RS1_IS5_SaIS5_EE" OPTS "14ScatterOptionsE", "scatter", "gloo:scatter", TENSORS1, SCATTER)                                                       \
    X(reduce_scatter, "14reduce_scatterE" VEC "RS1_IS5_SaIS5_EE" OPTS "20ReduceScatterOptionsE", "reduce_scatter", "gloo:all_reduce", TENSORS1, PLAIN)                          \
    X(reduce_scatter_base, "20_reduce_scatter_baseERN2at6TensorES3_" OPTS "20ReduceScatterOptionsE", "reduce_scatter", "gloo:all_reduce", TENSOR2, PLAIN)                       \
    X(reduce_scatter_coalesced, "31reduce_scatter_tensor_coalescedE" VEC "S6_" OPTS "20ReduceScatterOptionsE", "reduce_scatter_coalesced", "gloo:all_reduce", TENSORS2, COALESCED)  \
    X(alltoall_base, "13alltoall_baseERN2at6TensorES3_RSt6vectorIlSaIlEES7_" OPTS "15AllToAllOptionsE", "all_to_all", "gloo:all_to_all", TENSOR2, PLAIN)                        \
    X(alltoall, "8alltoallE" VEC "S6_" OPTS "15AllToAllOptionsE", "all_to_all", "gloo:all_to_all", TENSORS2, PLAIN)                                                             \
    X(all_gather_single, "17all_gather_singleERN2at6TensorES3_" OPTS "16AllgatherOptionsE", "all_gather", "gloo:all_gather", TENSOR2, PLAIN) /* these five: 2.14 */             \
    X(all_gather_single_coalesced, "27all_gather_single_coalescedE" VEC "S6_" OPTS "16AllgatherOptionsE", "all_gather_coalesced", "gloo:all_gather", TENSORS2, COALESCED)       \
    X(reduce_scatter_single, "21reduce_scatter_singleERN2at6TensorES3_" OPTS "20ReduceScatterOptionsE", "reduce_scatter", "gloo:all_reduce", TENSOR2, PLAIN)                    \
    X(reduce_scatter_single_coalesced, "31reduce_scatter_single_coalescedE" VEC "S6_" OPTS "20ReduceScatterOptionsE", "reduce_scatter_coalesced", "gloo:all_reduce", TENSORS2, COALESCED)\
    X(all_to_all_single, "17all_to_all_singleERN2at6TensorES3_RSt6vectorIlSaIlEES7_" OPTS "15AllToAllOptionsE", "all_to_all", "gloo:all_to_all", TENSOR2, PLAIN)                \
    X(send, "4sendE" VEC "ii", "send", "gloo:send", TENSORS1, SEND)                                                                                                             \
    X(recv, "4recvE" VEC "ii", "recv", "gloo:recv", TENSORS1, RECV)                                                                                                             \
    X(recv_any, "13recvAnysourceE" VEC "i", "recv", "gloo:recvAnySource", TENSORS1, RECV_ANY)                                                                                   \
    X(barrier, "7barrierE" OPTS "14BarrierOptionsE", "barrier", "gloo:barrier", NO_TENSORS, PLAIN)                                                                                \
    X(monitored_barrier, "16monitoredBarrierE" OPTS "14BarrierOptionsEb", "monitored_barrier", "gloo:barrier", NO_TENSORS, WATCHED)                                                       \
    X(gone, "D0Ev", "", "", NO_TENSORS, GONE)
    METHODS(ROW)
};
/* clang-format on */
#define NUMBER(name, ...) METHOD_##name,
enum { METHODS(NUMBER) NMETHODS };

typedef void *(*function)(void *result, void *self, void *a, void *b, void *c, void *d, void *e,
                          void *f);
static function originals[COMM_BACKENDS][NMETHODS];
static uint64_t (*nccl_count)(void *self); /* getSequenceNumberForGroup(): collectives so far */

/* A call in progress on this thread. While a method calls another, there is a level for each. */
struct level {
    struct level *outer;
    struct comm_op *op;
    unsigned parts; /* number of methods called from within it */
};
static __thread struct level *innermost;

struct comm_op *comm_wrap_current(void) {
    return innermost ? innermost->op : NULL;
}

/* ---- tensors ---- */

/* Types, indexed by the number of c10::ScalarType. */
static const struct {
    const char *name;
    uint32_t size;
    char kind;
} dtypes[] = {
#define TORCH_TYPES
#include "agent/pywalk/torch_table.inc"
#undef TORCH_TYPES
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
    op->bytes += (uint64_t)numel * dtypes[type].size;
    op->dtype = dtypes[type].name;
}

/* Returns a call's tensors, up to *end, and sets how its RecordFunction is known. An at::Tensor points to a TensorImpl; a vector begins with begin and end. */
static const char **tensors(struct comm_op *op, const struct method *m, void *a, void *b,
                            const char ***end) {
    void *v = m->shape == TENSORS1 ? a : b;
    int none = m->shape == NO_TENSORS, one = m->shape == TENSOR2;
    const char **p = none ? NULL : one ? v : ((const char ***)v)[0];
    *end = none ? NULL : one ? p + 1 : ((const char ***)v)[1];
    op->title = m->title;
    op->tensor = p < *end ? *p : NULL;
    return p;
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
    int32_t peer = (int)(intptr_t)b, mine = __atomic_load_n(&g->rank, __ATOMIC_RELAXED);
    op->src = role == BROADCAST ? root_of(b, 0)
              : role == SCATTER ? root_of(c, 3)
              : role == SEND    ? mine
              : role == RECV    ? peer
                                : -1;
    op->dst = role == REDUCE                     ? root_of(b, 1)
              : role == GATHER                   ? root_of(c, 2)
              : role == SEND                     ? peer
              : role == RECV || role == RECV_ANY ? mine
                                                 : -1;
}

static uint64_t next_seq(struct comm_group *g, const struct method *m, void *self, void *b) {
    if (m->role >= SEND && m->role <= RECV_ANY)
        return comm_pair_count(g, m->role == RECV_ANY ? -1 : (int)(intptr_t)b, m->role != SEND);
    if (g->backend == COMM_GLOO && comm_layout.tag >= 0) {
        uint32_t tag;
        memcpy(&tag, (const char *)self + comm_layout.tag, sizeof tag);
        __atomic_store_n(&g->seq, (uint64_t)tag + 1, __ATOMIC_RELAXED);
        return (uint64_t)tag + 1;
    }
    /* Torch's count includes operations between two recordings, but counts coalesced operations as one: so take the greater count. */
    uint64_t count = g->backend == COMM_NCCL && nccl_count ? nccl_count(self) : 0;
    if (count > __atomic_load_n(&g->seq, __ATOMIC_RELAXED))
        __atomic_store_n(&g->seq, count, __ATOMIC_RELAXED);
    return __atomic_add_fetch(&g->seq, 1, __ATOMIC_RELAXED);
}

static void fill(struct comm_op *op, struct comm_group *g, const struct method *m, void *self,
                 void *a, void *b, void *c) {
    op->group = g->number;
    const char **end, **p = tensors(op, m, a, b, &end);
    op->op = m[-(m->role == COALESCED && p + 1 == end)].op; /* so a DTensor's all_gather comes */
    while (p < end)
        add_tensor(op, *p++);
    set_ends(op, g, m->role, b, c);
    op->seq = next_seq(g, m, self, b);
    op->tickets = 1;
    op->open = 2;
    op->enter = sys_now();
    steps_alive(op->enter);
}

/* Called when the call has returned. watched: its parts may go on, and their ends are seen. */
static void over(struct comm_op *op, int watched, unsigned flags) {
    uint64_t now = sys_now();
    op->host = now - op->enter;
    if (watched && comm_observed() && comm_expected()) {
        comm_release(op, 0);
        return;
    }
    op->flags |= flags;
    while (comm_claim(op, op->number))
        comm_release(op, now);
    comm_release(op, now);
}

/* Called for a method that is called within another. */
static void nest(struct level *outer, const struct method *m, void *a, void *b) {
    struct comm_op *op = outer->op;
    const char **end;
    tensors(op, m, a, b, &end);
    if (outer->parts++) {
        __atomic_fetch_add(&op->open, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&op->tickets, 1, __ATOMIC_RELEASE);
        comm_publish(op);
    }
}

/*
 * The personality routine of call(), as the C++ ABI has it: the unwinder calls it first to ask whether the frame catches, and
 * again (actions & 2) as it leaves the frame. There is nothing to run in the frame, so no landing pad is needed, nor libgcc.
 */
int comm_wrap_left(int version, int actions, uint64_t class, void *exception, void *context);
__attribute__((visibility("hidden"), used)) int comm_wrap_left(int version UNUSED, int actions,
                                                               uint64_t class UNUSED,
                                                               void *exception UNUSED,
                                                               void *context UNUSED) {
    struct level *l = innermost;
    if (actions & 2 && l) {
        innermost = l->outer;
        if (!l->outer)
            over(l->op, 0, COMM_RAISED);
        else if (!l->parts &&
                 comm_claim(l->op, l->op->number)) /* its RecordFunction will not come */
            comm_release(l->op, 0);
    }
    return 8; /* _URC_CONTINUE_UNWIND */
}

static __attribute__((noinline)) void *call(enum comm_backend backend, unsigned i, void *result,
                                            void *self, void *a, void *b, void *c, void *d, void *e,
                                            void *f) {
    __asm__ volatile(".cfi_personality 0x1b, comm_wrap_left"); /* pc-relative, 4 bytes */
    function original = originals[backend][i];
    const struct method *m = &methods[i];
    void *object = m->role >= WATCHED ? result : self;
    struct level level = {.outer = innermost};
    struct comm_group *g = NULL;
    if (m->role == GONE) {
        if ((g = comm_group_find(object)))
            __atomic_store_n(&g->self, NULL, __ATOMIC_RELAXED);
    } else if (level.outer) {
        level.op = level.outer->op;
        nest(level.outer, m, a, b);
    } else if ((level.op = comm_begin()) && !(g = comm_group_of(object, backend))) {
        comm_abandon(level.op);
        level.op = NULL;
    }
    if (!level.op)
        return original(result, self, a, b, c, d, e, f);
    if (!level.outer) {
        comm_observe_begin();
        fill(level.op, g, m, object, a, b, c);
        comm_publish(level.op);
    }
    innermost = &level;
    void *answer = original(result, self, a, b, c, d, e, f);
    innermost = level.outer;
    if (!level.outer)
        /* NCCL's records end with the call, too: the GPU goes on, and comm_nccl.c sees it end. */
        over(level.op, backend == COMM_GLOO && m->role != WATCHED,
             m->role == WATCHED || level.op->gpu ? 0 : COMM_UNSEEN);
    return answer;
}

#define WRAPPER(backend, name)                                                                     \
    static void *backend##_##name(void *result, void *self, void *a, void *b, void *c, void *d,    \
                                  void *e, void *f) {                                              \
        return call(backend, METHOD_##name, result, self, a, b, c, d, e, f);                       \
    }
#define WRAP_GLOO(name, ...) WRAPPER(COMM_GLOO, name)
#define WRAP_NCCL(name, ...) WRAPPER(COMM_NCCL, name)
METHODS(WRAP_GLOO)
METHODS(WRAP_NCCL)
#define GLOO(name, ...) COMM_GLOO_##name,
#define NCCL(name, ...) COMM_NCCL_##name,
static const function wrappers[COMM_BACKENDS][NMETHODS] = {{METHODS(GLOO)}, {METHODS(NCCL)}};

/* ---- patching the vtable ---- */

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
        function original = dlsym(handle, name);
        for (size_t k = 2; original && k < n && !rc; k++) {
            if (vtable[k] != original)
                continue;
            originals[backend][i] = original;
            rc = loaded_patch(&vtable[k], wrappers[backend][i]);
            patched += !rc;
        }
    }
    if (backend == COMM_NCCL)
        nccl_count = dlsym(handle, "_ZN4c10d16ProcessGroupNCCL25getSequenceNumberForGroupEv");
    return rc ? rc : patched ? patched : -ENOSYS;
}
