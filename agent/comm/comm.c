/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/comm/comm.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/loaded.h"
#include "agent/base/values.h"
#include "agent/core/meta.h"
#include "agent/core/producer.h"
#include "agent/core/steps.h"
#include "agent/python/capi.h"
#include "agent/python/pending_call.h"

#define TELL_AFTER                                                                                 \
    1000000000ull            /* an operation that takes longer is written as incomplete meanwhile */
#define SOON       20000000u /* ns: rounds while torch is being imported */
#define NAME_TRIES 40
#define FILL_MS    100 /* for a call that is just being taken down */
#define EXPECT     64  /* operations without any completion seen: then none is waited for */

static struct comm_group groups[COMM_GROUPS];
static uint32_t ngroups, group_lock; /* (a) */
static struct comm_op ops[COMM_OPS];
static uint32_t in_flight;        /* (a) ops that are not free */
static uint64_t numbers, refused; /* (a) */
static uint32_t observed;         /* (a) some completion has been seen */
static int noted_refused;
static uint32_t said;  /* generation of the recording that has been told */
static uint32_t owner; /* pid whose operations these are */

/* Short and between equals: no signal handler comes here. */
static void lock(uint32_t *l) {
    while (__atomic_exchange_n(l, 1, __ATOMIC_ACQUIRE))
        __builtin_ia32_pause();
}

static void unlock(uint32_t *l) {
    __atomic_store_n(l, 0, __ATOMIC_RELEASE);
}

/* ---- groups ---- */

struct comm_group *comm_group_at(unsigned i) {
    return i < __atomic_load_n(&ngroups, __ATOMIC_ACQUIRE) ? &groups[i] : NULL;
}

static struct comm_group *find(void *self) {
    for (uint32_t n = __atomic_load_n(&ngroups, __ATOMIC_ACQUIRE); n-- > 0;)
        if (__atomic_load_n(&groups[n].self, __ATOMIC_RELAXED) == self)
            return &groups[n];
    return NULL;
}

struct comm_group *comm_group_of(void *self, enum comm_backend backend) {
    struct comm_group *g = find(self);
    if (g)
        return g;
    lock(&group_lock);
    g = find(self);
    if (!g && ngroups < COMM_GROUPS) {
        g = &groups[ngroups];
        memset(g, 0, sizeof *g);
        g->self = self;
        g->backend = backend;
        g->number = ngroups + 1;
        g->rank = g->size = -1;
        __atomic_store_n(&ngroups, ngroups + 1, __ATOMIC_RELEASE);
    }
    unlock(&group_lock);
    pending_call_ask(comm_python_names); /* the main thread will know, when it is back in Python */
    return g;
}

uint64_t comm_pair_count(struct comm_group *g, int peer, int received) {
    uint64_t key = ((uint64_t)(uint32_t)peer << 1 | (received != 0)) + 2, count = 0;
    lock(&g->pairs_lock);
    for (unsigned i = 0; i < sizeof g->pair / sizeof *g->pair; i++) {
        if (g->pair[i].key && g->pair[i].key != key)
            continue;
        g->pair[i].key = key;
        count = ++g->pair[i].count;
        break;
    }
    unlock(&g->pairs_lock);
    return count;
}

/* ---- operations ---- */

struct comm_op *comm_begin(void) {
    if (!producer_recording())
        return NULL;
    for (uint32_t i = 0; i < COMM_OPS;
         i++) { /* the lowest free one: looking through them stays short */
        struct comm_op *op = &ops[i];
        uint32_t none = 0;
        if (__atomic_load_n(&op->state, __ATOMIC_RELAXED) ||
            !__atomic_compare_exchange_n(&op->state, &none, 1, 0, __ATOMIC_SEQ_CST,
                                         __ATOMIC_RELAXED))
            continue;
        if (!producer_recording()) { /* it has ended just now: drop_all() may have been here already */
            __atomic_store_n(&op->state, 0, __ATOMIC_RELEASE);
            return NULL;
        }
        __atomic_fetch_add(&in_flight, 1, __ATOMIC_RELEASE);
        memset((char *)op + sizeof op->state, 0, sizeof *op - sizeof op->state);
        op->src = op->dst = -1;
        op->open = 1;
        op->dtype = "";
        op->number = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
        op->tid = (uint32_t)syscall(SYS_gettid);
        return op;
    }
    __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
    return NULL;
}

void comm_commit(struct comm_op *op) {
    __atomic_store_n(&op->state, 2, __ATOMIC_RELEASE);
}

void comm_abandon(struct comm_op *op) {
    __atomic_store_n(&op->state, 0, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&in_flight, 1, __ATOMIC_RELEASE);
}

int comm_claim(struct comm_op *op) {
    uint32_t n = __atomic_load_n(&op->claimed, __ATOMIC_RELAXED);
    while (n < __atomic_load_n(&op->tickets, __ATOMIC_ACQUIRE))
        if (__atomic_compare_exchange_n(&op->claimed, &n, n + 1, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return 1;
    return 0;
}

/* One part of an operation begins. */
static int begins(struct comm_op *op) {
    int is = comm_claim(op);
    if (is)
        __atomic_store_n(&observed, 1, __ATOMIC_RELAXED);
    return is;
}

struct comm_op *comm_executing(struct comm_op *current, const char *title, const void *record,
                               const void *(*tensor_of)(const void *record)) {
    struct comm_op *best = NULL;
    const void *tensor = NULL;
    uint32_t left = __atomic_load_n(&in_flight, __ATOMIC_ACQUIRE);
    int asked = 0;
    if (current && begins(current))
        return current;
    for (unsigned i = 0; i < COMM_OPS && left; i++) {
        struct comm_op *op = &ops[i];
        uint32_t is = __atomic_load_n(&op->state, __ATOMIC_ACQUIRE);
        left -= is != 0;
        if (is != 2 || strcmp(op->title, title) ||
            __atomic_load_n(&op->claimed, __ATOMIC_RELAXED) >= op->tickets)
            continue;
        if (best && !asked) { /* only now it matters */
            tensor = tensor_of(record);
            asked = 1;
        }
        int fits = tensor && op->tensor == tensor,
            fitted = best && tensor && best->tensor == tensor;
        if (!best || fits > fitted || (fits == fitted && op->number < best->number))
            best = op;
    }
    return best && begins(best) ? best : NULL;
}

static void write_op(const struct comm_op *op) {
    size_t nop = strlen(op->op), ndtype = strlen(op->dtype), used = 0;
    struct producer *p = producer_enter();
    if (!p)
        return;
    uint64_t *f = ring_reserve(p->ring, TRACE_comm, TRACE_comm_NFIELDS,
                               ((nop + 7) & ~(size_t)7) + ((ndtype + 7) & ~(size_t)7));
    if (f) {
        f[TRACE_comm_ts] = op->enter;
        f[TRACE_comm_number] = op->number;
        f[TRACE_comm_tid] = op->tid;
        f[TRACE_comm_pg] = op->group;
        f[TRACE_comm_seq] = op->seq;
        ring_put_bytes(f, TRACE_comm_NFIELDS, TRACE_comm_op, op->op, nop, &used);
        f[TRACE_comm_bytes] = op->bytes;
        ring_put_bytes(f, TRACE_comm_NFIELDS, TRACE_comm_dtype, op->dtype, ndtype, &used);
        f[TRACE_comm_duration] = op->last - op->enter;
        f[TRACE_comm_host] = op->host;
        f[TRACE_comm_src] = (uint64_t)(int64_t)op->src;
        f[TRACE_comm_dst] = (uint64_t)(int64_t)op->dst;
        f[TRACE_comm_flags] = op->flags;
        ring_commit(f);
    }
    producer_leave(p);
}

void comm_release(struct comm_op *op, uint64_t now) {
    if (now)
        steps_alive(now);
    uint64_t last = __atomic_load_n(&op->last, __ATOMIC_RELAXED);
    while (now > last && !__atomic_compare_exchange_n(&op->last, &last, now, 0, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED))
        ;
    if (__atomic_sub_fetch(&op->open, 1, __ATOMIC_ACQ_REL))
        return;
    __atomic_store_n(&op->state, 1, __ATOMIC_RELAXED);
    if (!op->last) { /* nobody saw a part of it end */
        op->last = op->enter + op->host;
        op->flags |= COMM_UNSEEN;
    }
    write_op(op);
    comm_abandon(op);
}

int comm_expected(void) {
    return __atomic_load_n(&observed, __ATOMIC_RELAXED) ||
           __atomic_load_n(&numbers, __ATOMIC_RELAXED) < EXPECT;
}

/* ---- the service thread's part ---- */

static void emit_group(struct writer *w, struct comm_group *g, uint64_t now) {
    static const char *const backends[COMM_BACKENDS] = {"gloo", "nccl"};
    const struct writer_value v[TRACE_process_group_NFIELDS] = {
        [TRACE_process_group_ts] = value_u(now),
        [TRACE_process_group_pg] = value_u(g->number),
        [TRACE_process_group_name] = value_text(g->name),
        [TRACE_process_group_backend] = value_text(backends[g->backend]),
        [TRACE_process_group_rank] = value_i(g->rank),
        [TRACE_process_group_size] = value_i(g->size),
        [TRACE_process_group_ranks] = {.p = g->ranks, .n = g->nranks},
    };
    writer_emit(w, TRACE_process_group, v);
}

/* Writes groups as soon as their names are known. `all`: whatever is known. */
static void write_groups(struct writer *w, uint64_t now, int all) {
    struct comm_group *g;
    /* Each recording and each segment of it is a trace of its own. */
    uint32_t file =
        producer_generation() << 20 ^ __atomic_load_n(&writer_live(w)->segment, __ATOMIC_RELAXED);
    int unnamed = 0;
    for (unsigned i = 0; (g = comm_group_at(i)); i++) {
        uint32_t named = __atomic_load_n(&g->named, __ATOMIC_ACQUIRE);
        if (!named && g->tries < NAME_TRIES)
            unnamed = 1;
        if ((named || all) && g->written != file) {
            emit_group(w, g, now);
            g->written = file;
        }
    }
    if (unnamed)
        pending_call_ask(comm_python_names);
}

/* Writes what is in flight now and entered before `before` (ns) as incomplete, once each. */
static void comm_tell(struct writer *w, uint64_t before) {
    uint64_t now = values_now();
    for (unsigned i = 0; i < COMM_OPS; i++) {
        struct comm_op op;
        if (__atomic_load_n(&ops[i].state, __ATOMIC_ACQUIRE) != 2 || ops[i].told ||
            ops[i].enter > before)
            continue;
        op = ops[i];
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&ops[i].state, __ATOMIC_ACQUIRE) != 2 || ops[i].number != op.number)
            continue;
        __atomic_store_n(&ops[i].told, 1, __ATOMIC_RELAXED);
        const struct writer_value v[TRACE_comm_NFIELDS] = {
            [TRACE_comm_ts] = value_u(op.enter),
            [TRACE_comm_number] = value_u(op.number),
            [TRACE_comm_tid] = value_u(op.tid),
            [TRACE_comm_pg] = value_u(op.group),
            [TRACE_comm_seq] = value_u(op.seq),
            [TRACE_comm_op] = value_text(op.op),
            [TRACE_comm_bytes] = value_u(op.bytes),
            [TRACE_comm_dtype] = value_text(op.dtype),
            [TRACE_comm_duration] = value_u(now > op.enter ? now - op.enter : 0),
            [TRACE_comm_host] = value_u(op.host          ? op.host
                                        : now > op.enter ? now - op.enter
                                                         : 0),
            [TRACE_comm_src] = value_i(op.src),
            [TRACE_comm_dst] = value_i(op.dst),
            [TRACE_comm_flags] = value_u(op.flags | COMM_INCOMPLETE),
        };
        writer_emit(w, TRACE_comm, v);
    }
}

/* What the installation came to; said once in each recording. */
static struct {
    int done; /* (a) */
    int blind, gloo, nccl;
} installed;

void comm_install(void) {
    void *cpu = NULL, *cuda = NULL;
    if (loaded_find("libtorch_cpu.so", &cpu))
        return;
    installed.blind = comm_observe_install(cpu);
    installed.gloo = comm_wrap_install(COMM_GLOO, cpu);
    if (!loaded_find("libtorch_cuda.so", &cuda))
        installed.nccl = comm_wrap_install(COMM_NCCL, cuda);
    __atomic_store_n(&installed.done, 1, __ATOMIC_RELEASE);
}

static void say_installed(struct writer *w) {
    if (installed.gloo < 0 && installed.nccl <= 0)
        meta_note(w, 1, "comm", "communication is not recorded: %s",
                  strerrordesc_np(-installed.gloo));
    else
        meta_note(w, installed.blind != 0, "comm",
                  "recording communication: gloo %d, nccl %d functions%s%s",
                  installed.gloo < 0 ? 0 : installed.gloo, installed.nccl < 0 ? 0 : installed.nccl,
                  installed.blind ? "; completions cannot be seen" : "",
                  comm_layout.numel < 0 ? "; sizes cannot be read" : "");
}

static void begin(struct writer *w) {
    uint32_t pid = (uint32_t)getpid();
    (void)w;
    if (owner != pid && owner) /* a forked child: those operations are the parent's */
        memset(ops, 0, sizeof ops), in_flight = 0, comm_observe_after_fork();
    owner = pid;
    noted_refused = 0;
    group_lock = 0;
}

/* Torch is there (or on its way) and nothing is installed yet. */
static int comm_wanted(void) {
    return capi_loaded() && !__atomic_load_n(&installed.done, __ATOMIC_ACQUIRE) &&
           !loaded_find("libtorch_cpu.so", NULL);
}

static uint64_t comm_wait(uint64_t now) {
    (void)now;
    return comm_wanted() ? SOON : UINT64_MAX;
}

static void comm_round(struct writer *w, uint64_t now) {
    if (!__atomic_load_n(&installed.done, __ATOMIC_ACQUIRE)) {
        if (comm_wanted())
            pending_call_ask(comm_python_measure);
        return;
    }
    if (said != producer_generation()) {
        said = producer_generation();
        say_installed(w);
    }
    write_groups(w, now, 0);
    comm_tell(w, now > TELL_AFTER ? now - TELL_AFTER : 0);
    if (__atomic_load_n(&refused, __ATOMIC_RELAXED) && !noted_refused) {
        noted_refused = 1;
        meta_note(w, 1, "comm", "more than %d operations in flight: some are not recorded",
                  COMM_OPS);
    }
}

/* What has not begun to be executed will not be seen to (the callback goes), and is nobody's in the next recording: else it
 * would stay in flight for ever, and take the completions of later ones. */
static void drop_all(void) {
    const struct timespec ms = {0, 1000000};
    for (unsigned i = 0; i < COMM_OPS; i++) {
        for (int n = 0; n < FILL_MS && __atomic_load_n(&ops[i].state, __ATOMIC_SEQ_CST) == 1; n++)
            nanosleep(&ms, NULL);
        if (__atomic_load_n(&ops[i].state, __ATOMIC_SEQ_CST) == 2)
            while (comm_claim(&ops[i]))
                comm_release(&ops[i], 0);
    }
}

static void comm_close(struct writer *w) {
    write_groups(w, values_now(), 1);
    comm_tell(w, UINT64_MAX);
    drop_all();
}

const struct agent_part comm_part = {
    .name = "comm",
    .open = begin,
    .round = comm_round,
    .wait = comm_wait,
    .triggered = comm_tell,
    .close = comm_close,
    .leave = comm_observe_end,
};
