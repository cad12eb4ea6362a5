/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/comm/comm.h"

#include "agent/base/loaded.h"
#include "agent/core/meta.h"
#include "agent/core/part.h"
#include "agent/core/producer.h"
#include "agent/core/steps.h"
#include "agent/python/capi.h"
#include "agent/python/gil.h"
#include "agent/torch/torch_lib.h"

#define NOTE_AFTER SYS_SECOND /* an operation that takes longer is written while incomplete */
#define SOON       20000000u  /* ns between rounds while torch is being imported */
#define NAME_TRIES 40
#define FILL_MS    100 /* wait for a call whose fields are just being filled in */
#define EXPECT     64  /* operations without a completion after which none is expected */

static struct comm_group groups[COMM_GROUPS];
static uint32_t ngroups, group_lock; /* (a) */
static struct comm_op ops[COMM_OPS];
static uint32_t used;                 /* (a) slots of `ops` from here on were never taken */
static uint32_t published;            /* (a) tickets so far */
static uint64_t numbers, refused;     /* (a) operations begun; operations and groups refused */
static uint32_t observed;             /* (a) some completion has been seen */
static unsigned noted, noted_refused; /* whether the notes are in this recording */
static uint32_t owner;                /* pid of the process that the operations belong to */

/* ---- groups ---- */

struct comm_group *comm_group_at(unsigned i) {
    return i < __atomic_load_n(&ngroups, __ATOMIC_ACQUIRE) ? &groups[i] : NULL;
}

struct comm_group *comm_group_find(const void *self) {
    for (uint32_t n = __atomic_load_n(&ngroups, __ATOMIC_ACQUIRE); n-- > 0;)
        if (__atomic_load_n(&groups[n].self, __ATOMIC_RELAXED) == self)
            return &groups[n];
    return NULL;
}

struct comm_group *comm_group_of(void *self, enum comm_backend backend) {
    struct comm_group *g = comm_group_find(self);
    if (g)
        return g;
    sys_lock(&group_lock);
    g = comm_group_find(self);
    if (!g && ngroups < COMM_GROUPS) {
        g = &groups[ngroups];
        *g = (struct comm_group){
            .self = self, .backend = backend, .number = ngroups + 1, .rank = -1, .size = -1};
        __atomic_store_n(&ngroups, ngroups + 1, __ATOMIC_RELEASE);
    } else if (!g) {
        __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
    }
    sys_unlock(&group_lock);
    gil_pending(comm_python_names); /* the main thread asks torch for the group's name */
    return g;
}

uint64_t comm_pair_count(struct comm_group *g, int peer, int received) {
    uint64_t key = ((uint64_t)(uint32_t)peer << 1 | (received != 0)) + 2, count = 0;
    sys_lock(&g->pairs_lock);
    for (unsigned i = 0; i < sizeof g->pair / sizeof *g->pair; i++) {
        if (g->pair[i].key && g->pair[i].key != key)
            continue;
        g->pair[i].key = key;
        count = ++g->pair[i].count;
        break;
    }
    sys_unlock(&g->pairs_lock);
    return count;
}

/* ---- operations ---- */

struct comm_op *comm_op_at(unsigned i) {
    return i < COMM_OPS ? &ops[i] : NULL;
}

struct comm_op *comm_begin(void) {
    uint32_t n;
    if (!producer_recording())
        return NULL;
    /* Take the lowest free slot, so that the search stays short. */
    for (struct comm_op *op = ops; op < ops + COMM_OPS; op++) {
        if (__atomic_load_n(&op->state, __ATOMIC_RELAXED) || sys_swap(&op->state, 0, 1))
            continue;
        if (!producer_recording()) { /* it has just ended: drop_all() may have been here */
            __atomic_store_n(&op->state, 0, __ATOMIC_RELEASE);
            return NULL;
        }
        while ((n = __atomic_load_n(&used, __ATOMIC_RELAXED)) <= op - ops)
            sys_swap(&used, n, (uint32_t)(op - ops) + 1);
        memset(&op->open, 0,
               sizeof *op - offsetof(struct comm_op, open)); /* all fields after `state` */
        op->src = op->dst = -1;
        op->open = 1;
        op->dtype = "";
        op->number = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
        op->claimed = op->number << 16;
        op->tid = (uint32_t)syscall(SYS_gettid);
        return op;
    }
    __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
    return NULL;
}

void comm_abandon(struct comm_op *op) {
    __atomic_store_n(&op->state, 0, __ATOMIC_RELEASE);
}

void comm_publish(struct comm_op *op) {
    __atomic_store_n(&op->state, 2, __ATOMIC_RELEASE);
    __atomic_fetch_add(&published, 1, __ATOMIC_RELEASE);
}

int comm_claim(struct comm_op *op, uint64_t number) {
    for (uint64_t n; (n = __atomic_load_n(&op->claimed, __ATOMIC_RELAXED)) >> 16 == number &&
                     (uint16_t)n < __atomic_load_n(&op->tickets, __ATOMIC_ACQUIRE);)
        if (sys_swap(&op->claimed, n, n + 1) == n)
            return 1;
    return 0;
}

struct comm_op *comm_executing(struct comm_op *current, const char *title, const void *record,
                               const void *(*tensor_of)(const void *record)) {
    struct comm_op *best = current;
    uint64_t number = best ? best->number : 0;
    const void *tensor = NULL;
    uint32_t before;
    int asked = 0;
    /* Another thread may have taken the ticket that was meant for this one; then the one that was meant for the other is left, perhaps in a
     * slot that the search had passed. So none is left only if no ticket was added while the slots were searched. */
    while (!best || !comm_claim(best, number)) {
        best = NULL;
        before = __atomic_load_n(&published, __ATOMIC_ACQUIRE);
        for (struct comm_op *op = ops; op < ops + __atomic_load_n(&used, __ATOMIC_ACQUIRE); op++) {
            uint64_t its = __atomic_load_n(&op->number, __ATOMIC_ACQUIRE); /* before its state */
            if (__atomic_load_n(&op->state, __ATOMIC_ACQUIRE) != 2 || strcmp(op->title, title) ||
                (uint16_t)__atomic_load_n(&op->claimed, __ATOMIC_RELAXED) >= op->tickets)
                continue;
            if (best && !asked) { /* the tensor matters only when there are two */
                tensor = tensor_of(record);
                asked = 1;
            }
            int fits = tensor && op->tensor == tensor,
                fitted = best && tensor && best->tensor == tensor;
            if (best && fits <= fitted && (fits < fitted || its > number))
                continue;
            best = op;
            number = its;
        }
        if (!best && before == __atomic_load_n(&published, __ATOMIC_ACQUIRE))
            return NULL;
    }
    __atomic_store_n(&observed, 1, __ATOMIC_RELAXED);
    return best;
}

/* Writes a comm record, on the service thread (w) or on a thread of the program (NULL). */
static void emit(struct writer *w, const struct comm_op *op, uint64_t duration, uint64_t host,
                 unsigned flags) {
    const struct writer_value *v =
        WRITER_VALUES(comm, .ts = op->enter, .number = op->number, .tid = op->tid, .pg = op->group,
                      .seq = op->seq, .op = value_text(op->op), .bytes = op->bytes,
                      .dtype = value_text(op->dtype), .duration = duration, .host = host,
                      .src = op->src, .dst = op->dst, .flags = flags);
    if (w)
        writer_emit(w, TRACE_comm, v);
    else
        producer_emit(0, TRACE_comm, v);
}

void comm_release(struct comm_op *op, uint64_t now) {
    if (now)
        steps_alive(now);
    for (uint64_t last; now > (last = __atomic_load_n(&op->last, __ATOMIC_RELAXED)) &&
                        sys_swap(&op->last, last, now) != last;)
        ;
    if (__atomic_sub_fetch(&op->open, 1, __ATOMIC_ACQ_REL))
        return;
    __atomic_store_n(&op->state, 1, __ATOMIC_RELAXED);
    if (!op->last) { /* no part of it was seen to end */
        op->last = op->enter + op->host;
        op->flags |= COMM_UNSEEN;
    }
    emit(NULL, op, op->last - op->enter, op->host, op->flags);
    comm_abandon(op);
}

int comm_expected(void) {
    return __atomic_load_n(&observed, __ATOMIC_RELAXED) ||
           __atomic_load_n(&numbers, __ATOMIC_RELAXED) < EXPECT;
}

/* ---- the service thread's part ---- */

static void emit_group(struct writer *w, struct comm_group *g, uint64_t now) {
    static const char *const backends[COMM_BACKENDS] = {"gloo", "nccl"};
    WRITER_EMIT(w, process_group, .ts = now, .pg = g->number, .name = value_text(g->name),
                .backend = value_text(backends[g->backend]), .rank = g->rank, .size = g->size,
                .ranks = {.p = g->ranks, .n = g->nranks}, .desc = value_text(g->desc));
}

/* Writes the groups whose names are known, or all groups. */
static void write_groups(struct writer *w, uint64_t now, int all) {
    struct comm_group *g;
    /* Each segment of each recording must be readable alone. */
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
        gil_pending(comm_python_names);
}

/* Writes the operations in flight that began before `before` (ns) as incomplete, each one once. */
static void comm_note(struct writer *w, uint64_t before) {
    uint64_t now = sys_now();
    for (struct comm_op *o = ops; o < ops + COMM_OPS; o++) {
        if (__atomic_load_n(&o->state, __ATOMIC_ACQUIRE) != 2 || o->noted || o->enter > before)
            continue;
        struct comm_op op = *o;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&o->state, __ATOMIC_ACQUIRE) != 2 || o->number != op.number)
            continue;
        __atomic_store_n(&o->noted, 1, __ATOMIC_RELAXED);
        uint64_t since = now > op.enter ? now - op.enter : 0;
        emit(w, &op, since, op.host ? op.host : since, op.flags | COMM_INCOMPLETE);
    }
}

/* The result of the installation. */
static struct {
    int done;              /* (a) */
    int blind, gloo, nccl; /* completions are not seen; functions wrapped, or -errno */
} installed;

void comm_install(void) {
    void *cpu = NULL, *cuda = NULL;
    if (loaded_find("libtorch_cpu.so", &cpu))
        return;
    installed.blind = torch_lib.loaded <= 0;
    installed.gloo = comm_wrap_install(COMM_GLOO, cpu);
    if (!loaded_find("libtorch_cuda.so", &cuda))
        installed.nccl = comm_wrap_install(COMM_NCCL, cuda);
    __atomic_store_n(&installed.done, 1, __ATOMIC_RELEASE);
}

/* Writes the notes, each once in a recording. Called in each round, and at the end for a program that ends before the next round. */
static void say(struct writer *w) {
    if (__atomic_load_n(&refused, __ATOMIC_RELAXED) && !noted_refused++)
        meta_note(w, 1, "comm",
                  "more than %d operations in flight, or %d groups: some are not recorded",
                  COMM_OPS, COMM_GROUPS);
    if (!__atomic_load_n(&installed.done, __ATOMIC_ACQUIRE) || noted++)
        return;
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

static void begin(struct writer *w UNUSED) {
    uint32_t pid = (uint32_t)getpid();
    if (owner != pid && owner) { /* a forked child: those operations are the parent's */
        for (struct comm_op *op = ops; op < ops + COMM_OPS; op++)
            op->state = 0;
        group_lock = 0;
        comm_nccl_after_fork();
    }
    owner = pid;
    refused = noted = noted_refused = 0;
}

/* Returns whether torch is loaded (or being loaded) and nothing is installed yet. */
static int comm_wanted(void) {
    return capi_loaded() && !__atomic_load_n(&installed.done, __ATOMIC_ACQUIRE) &&
           torch_lib_load() != -ENOENT;
}

int comm_soon;

static uint64_t comm_wait(uint64_t now UNUSED) {
    return !comm_wanted()                                  ? UINT64_MAX
           : __atomic_load_n(&comm_soon, __ATOMIC_RELAXED) ? SOON / 10
                                                           : SOON;
}

static void comm_round(struct writer *w, uint64_t now) {
    if (!__atomic_load_n(&installed.done, __ATOMIC_ACQUIRE)) {
        if (comm_wanted())
            gil_pending(comm_python_measure);
        return;
    }
    if (installed.nccl > 0)
        comm_nccl_round(w, now);
    say(w);
    write_groups(w, now, 0);
    comm_note(w, now > NOTE_AFTER ? now - NOTE_AFTER : 0);
}

/* Ends the operations that no backend has begun to execute, because the callback that would see them begin is removed. Else they would
 * stay in flight for ever, and take the completions of later operations in the next recording. */
static void drop_all(void) {
    for (struct comm_op *op = ops; op < ops + COMM_OPS; op++) {
        for (int n = 0; n < FILL_MS && __atomic_load_n(&op->state, __ATOMIC_SEQ_CST) == 1; n++)
            sys_sleep(SYS_MS);
        if (__atomic_load_n(&op->state, __ATOMIC_SEQ_CST) == 2)
            while (comm_claim(op, op->number))
                comm_release(op, 0);
        comm_nccl_drop(op);
    }
}

static void comm_close(struct writer *w) {
    say(w);
    write_groups(w, sys_now(), 1);
    comm_note(w, UINT64_MAX);
    drop_all();
}

const struct agent_part comm_part = {
    .open = begin,
    .round = comm_round,
    .wait = comm_wait,
    .triggered = comm_note,
    .quit = comm_nccl_quit,
    .close = comm_close,
    .leave = comm_observe_end,
};
