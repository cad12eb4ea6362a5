/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler_seat.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define END_WAIT_MS 1000 /* for a handler whose thread has lost its CPU */
#define FDS_KEPT    400u /* open files of ours at most, in a table of our own */

static void *pages_alloc(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void pages_release(void *p, size_t n) {
    if (p)
        munmap(p, n);
}

int seats_init(struct seats *s, struct live *live, uint32_t tid) {
    memset(s, 0, sizeof *s);
    s->live = live;
    int rc = capture_dict_init(&s->dict, live);
    if (!rc)
        rc = unwind_init(&s->unwind);
    s->pages = pages_alloc(sizeof *s->pages);
    s->capture = pages_alloc(sizeof *s->capture);
    s->seat = pages_alloc(HANDLER_SLOTS * sizeof *s->seat);
    s->list = pages_alloc(HANDLER_SLOTS * sizeof *s->list);
    s->ring = live_ring_get(live, tid);
    if (!rc && (!s->pages || !s->capture || !s->seat || !s->list))
        rc = -ENOMEM;
    if (!rc && !s->ring)
        rc = -EBUSY;
    s->epoch = __atomic_load_n(&live->epoch, __ATOMIC_ACQUIRE);
    return rc;
}

void seats_free(struct seats *s) {
    if (s->ring)
        live_ring_orphan(s->ring);
    capture_dict_free(&s->dict);
    unwind_free(&s->unwind);
    pages_release(s->pages, sizeof *s->pages);
    pages_release(s->capture, sizeof *s->capture);
    pages_release(s->seat, HANDLER_SLOTS * sizeof *s->seat);
    pages_release(s->list, HANDLER_SLOTS * sizeof *s->list);
    memset(s, 0, sizeof *s);
}

int seats_attach(struct seats *s, const struct agent_python *py) {
    struct pywalk_mem mem = {pages_read, s->pages};
    pages_forget(s->pages);
    int rc = pywalk_init(&s->pw, mem, &py->target);
    if (rc)
        return rc;
    s->handler.live = s->live;
    s->handler.dict = &s->dict;
    s->handler.unwind = &s->unwind;
    s->handler.this_tstate =
        (void *(*)(void))(uintptr_t)dlsym(py->handle, "PyGILState_GetThisThreadState");
    return s->handler.this_tstate ? 0 : -ENOTSUP;
}

/* ---- records ---- */

static void lose(struct seats *s, enum trace_lost why, uint64_t n) {
    __atomic_fetch_add(&s->live->lost[why], n, __ATOMIC_RELAXED);
}

void seats_note(struct seats *s, uint64_t now, unsigned level, const char *text) {
    static const char part[] = "sampler";
    size_t used = 0, n = strlen(text);
    uint64_t *r = ring_reserve(s->ring, TRACE_note, TRACE_note_NFIELDS, 8 + ((n + 7) & ~(size_t)7));
    if (!r)
        return;
    r[TRACE_note_ts] = now;
    r[TRACE_note_level] = level;
    ring_put_bytes(r, TRACE_note_NFIELDS, TRACE_note_part, part, sizeof part - 1, &used);
    ring_put_bytes(r, TRACE_note_NFIELDS, TRACE_note_text, text, n, &used);
    ring_commit(r);
}

static int record_thread(struct seats *s, const struct seat *t, uint64_t now, unsigned alive) {
    size_t used = 0, n = strlen(t->name);
    uint64_t *r = ring_reserve(s->ring, TRACE_thread, TRACE_thread_NFIELDS, (n + 7) & ~(size_t)7);
    if (!r)
        return -ENOBUFS;
    r[TRACE_thread_ts] = now;
    r[TRACE_thread_tid] = t->tid;
    ring_put_bytes(r, TRACE_thread_NFIELDS, TRACE_thread_name, t->name, n, &used);
    r[TRACE_thread_ident] = t->ident;
    r[TRACE_thread_state] = alive;
    ring_commit(r);
    return 0;
}

static void flush(struct seats *s, struct seat *t) {
    struct pending *p = &t->pending;
    if (!p->count)
        return;
    if (slot_record(t->slot, s->live, s->ring, p->ts, p->stack, p->pc, p->cpu_us, p->count,
                    SAMPLE_OUTSIDE))
        lose(s, TRACE_LOST_ring_full, p->count - 1); /* the ring has counted one */
    p->count = 0;
    p->cpu_us = 0;
}

void seats_flush(struct seats *s) {
    for (uint32_t i = 0; i < s->n; i++)
        flush(s, &s->seat[i]);
}

/* ---- threads come and go ---- */

static int open_task(uint32_t tid, const char *what) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%u/%s", tid, what);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void read_name(uint32_t tid, char name[16]) {
    int fd = open_task(tid, "comm");
    ssize_t n = fd >= 0 ? read(fd, name, 15) : 0;
    if (fd >= 0)
        close(fd);
    name[n > 0 ? n : 0] = 0;
    name[strcspn(name, "\n")] = 0;
}

static int thread_cpu(const struct seat *t, uint64_t *ns) {
    struct timespec v;
    if (clock_gettime(t->clock, &v))
        return -ESRCH;
    *ns = (uint64_t)v.tv_sec * 1000000000u + (uint64_t)v.tv_nsec;
    return 0;
}

static void seat_add(struct seats *s, const struct pywalk_thread *th, uint64_t now) {
    if (s->n == HANDLER_SLOTS)
        return;
    struct seat *t = &s->seat[s->n];
    memset(t, 0, sizeof *t);
    t->slot = slot_new(th->tid, th->ident);
    if (!t->slot)
        return;
    t->tid = th->tid;
    t->ident = th->ident;
    t->clock = (clockid_t)(~th->tid << 3 | 6u); /* the kernel's name for a thread's CPU clock */
    t->syscall_fd = -1;
    t->slot->pw = s->pw;
    t->slot->pw.mem = (struct pywalk_mem){guard_read, &t->slot->guard};
    t->tstate = th->tstate;
    t->interp = t->slot->interp = th->interp;
    t->listed = s->listing;
    read_name(t->tid, t->name);
    s->n++;
    record_thread(s, t, now, 1);
}

static void seat_remove(struct seats *s, uint32_t i, uint64_t now) {
    struct seat *t = &s->seat[i];
    flush(s, t);
    record_thread(s, t, now, 0);
    if (t->syscall_fd >= 0)
        close(t->syscall_fd);
    slot_free(t->slot);
    s->seat[i] = s->seat[--s->n];
}

static struct seat *seat_find(struct seats *s, uint32_t tid, uint32_t hint) {
    if (hint < s->n && s->seat[hint].tid == tid)
        return &s->seat[hint];
    for (uint32_t i = 0; i < s->n; i++)
        if (s->seat[i].tid == tid)
            return &s->seat[i];
    return NULL;
}

int seats_list(struct seats *s, uint64_t now) {
    int more = 0;
    pages_forget(s->pages);
    int n = pywalk_threads(&s->pw, s->list, HANDLER_SLOTS, &more);
    if (n < 0)
        return n;
    s->listing++;
    /* Oldest first: a state that CPython prepares for a thread to come bears its creator's ids until
     * that thread runs, and must not take the creator's seat. */
    for (int i = n; i-- > 0;) {
        const struct pywalk_thread *th = &s->list[i];
        if (th->tid == 0)
            continue;
        struct seat *t = seat_find(s, th->tid, (uint32_t)(n - 1 - i));
        if (t && t->listed == s->listing)
            continue;
        if (t && t->ident != th->ident) { /* the id was given to another thread */
            seat_remove(s, (uint32_t)(t - s->seat), now);
            t = NULL;
        }
        if (!t) {
            seat_add(s, th, now);
            continue;
        }
        t->listed = s->listing;
        if (t->tstate != th->tstate)
            t->settled = 0;
        t->tstate = th->tstate;
        /* BUSY or POSTED: the handler reads it, and gets a pointer that is as good as the old one. */
        t->interp = t->slot->interp = th->interp;
    }
    for (uint32_t i = s->n; i-- > 0;) {
        uint64_t cpu;
        struct seat *t = &s->seat[i];
        if (t->listed != s->listing && thread_cpu(t, &cpu))
            seat_remove(s, i, now);
    }
    return 0;
}

void seats_modules(struct seats *s) {
    if (unwind_refresh(&s->unwind) != 1)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->seat[i].cut)
            s->seat[i].settled = 0;
}

void seats_rename(struct seats *s, uint64_t now) {
    for (uint32_t i = 0; i < s->n; i++) {
        struct seat *t = &s->seat[i];
        char name[16];
        read_name(t->tid, name);
        if (*name && strcmp(name, t->name)) {
            memcpy(t->name, name, sizeof name);
            record_thread(s, t, now, 1);
        }
    }
}

/* ---- a tick ---- */

enum look { LOOK_RUNNING, LOOK_BLOCKED, LOOK_UNKNOWN };

/* Whether the thread sleeps in the kernel, and where: "running", or
 * "NR ARG ARG ARG ARG ARG ARG SP PC", or "-1 SP PC". The text goes to `text`. */
static enum look look(struct seats *s, struct seat *t, struct unwind_regs *regs, char text[256]) {
    int fd = t->syscall_fd;
    if (fd < 0)
        fd = open_task(t->tid, "syscall");
    ssize_t n = fd >= 0 ? pread(fd, text, 255, 0) : -1;
    if (s->private_files && s->n <= FDS_KEPT && n > 0)
        t->syscall_fd = fd;
    else if (fd >= 0) {
        close(fd);
        t->syscall_fd = -1;
    }
    memset(regs, 0, sizeof *regs);
    text[n > 0 ? n : 0] = 0;
    if (n <= 0)
        return LOOK_UNKNOWN;
    if (text[0] == 'r')
        return LOOK_RUNNING;
    char *pc = strrchr(text, ' '), *sp = NULL;
    if (pc) {
        *pc = 0;
        sp = strrchr(text, ' ');
        *pc = ' ';
    }
    if (!sp)
        return LOOK_UNKNOWN;
    regs->sp = strtoull(sp, NULL, 16);
    regs->pc = strtoull(pc, NULL, 16);
    return LOOK_BLOCKED;
}

/* A number that is different whenever the thread has run in between. 0 when that cannot be told. */
static uint64_t activity(struct seats *s, struct seat *t, uint64_t cpu) {
    if (!s->coarse)
        return cpu;
    char text[256];
    struct unwind_regs regs;
    uint64_t h = 1;
    if (look(s, t, &regs, text) != LOOK_BLOCKED)
        return 0;
    for (const char *p = text; *p; p++)
        h = known_mix(h, (uint8_t)*p);
    int fd = open_task(t->tid, "schedstat");
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < n; i++)
        h = known_mix(h, (uint8_t)text[i]);
    return h;
}

struct bracket {
    struct seats *s;
    struct seat *t;
    uint64_t before;
};

static int bracket_holds(void *ctx) {
    struct bracket *b = ctx;
    uint64_t cpu;
    return thread_cpu(b->t, &cpu) == 0 && activity(b->s, b->t, cpu) == b->before;
}

/* One more tick with this stack, for a thread that is not running. */
static void idle_sample(struct seats *s, struct seat *t, uint64_t tick, uint64_t stack, uint64_t pc,
                        uint64_t cpu_us) {
    struct pending *p = &t->pending;
    if (p->count &&
        (p->stack != stack || p->pc != pc || tick - p->last > s->period + s->period / 2))
        flush(s, t);
    if (!p->count) {
        p->ts = tick;
        p->stack = stack;
        p->pc = pc;
    }
    p->cpu_us += cpu_us;
    p->count++;
    p->last = tick;
}

/*
 * Reads the stack of a thread that does not run: nobody is woken. What was read holds when the thread has
 * used no CPU time meanwhile. 0: sampled (or counted as lost); -EAGAIN: it has run.
 */
static int read_outside(struct seats *s, struct seat *t, uint64_t tick, uint64_t cpu, uint64_t act,
                        const struct unwind_regs *regs) {
    struct capture *c = s->capture;
    struct bracket b = {s, t, act};
    struct capture_check check = {bracket_holds, &b};
    uint64_t key = 0;
    c->nframes = c->npcs = 0;
    c->frames_cut = c->pcs_cut = 0;
    pages_forget(s->pages);
    int rc = pywalk_frames(&s->pw, t->tstate, c->frames, CAPTURE_FRAMES, &c->frames_cut);
    if (rc >= 0) {
        c->nframes = (uint32_t)rc;
        if (regs && __atomic_load_n(&s->live->native, __ATOMIC_RELAXED)) {
            struct cfi_memory mem = {pages_read, s->pages};
            c->npcs =
                (uint32_t)unwind_walk(&s->unwind, &mem, regs, c->pcs, CAPTURE_PCS, &c->pcs_cut);
        }
        rc = capture_store(c, &s->dict, &s->pw, s->ring, &check, &key);
    }
    if (rc == -EAGAIN || (rc && !bracket_holds(&b)))
        return -EAGAIN;
    if (rc == -ENOBUFS) { /* counted by the ring; the next tick tries again */
        flush(s, t);
        return 0;
    }
    /* It sleeps with a stack that cannot be read: that is worth a sample without one. */
    t->settled = act;
    t->cut = c->pcs_cut;
    if (t->redefine == act && !rc)
        t->pending.stack = key; /* still the same stack, under its key of this epoch */
    t->redefine = 0;
    idle_sample(s, t, tick, rc ? 0 : key, !rc && c->npcs ? c->pcs[0] : 0,
                slot_take_cpu(t->slot, cpu));
    return 0;
}

static void signal_thread(struct seats *s, struct seat *t, uint64_t tick, uint64_t cpu) {
    t->settled = 0;
    flush(s, t);
    if (!t->slot->ring)
        t->slot->ring = live_ring_get(s->live, t->tid);
    if (!t->slot->ring) {
        lose(s, TRACE_LOST_no_ring, 1);
        return;
    }
    if (!s->checked) { /* once a tick: a system call */
        s->checked = 1;
        s->no_signal = handler_check() != 0;
    }
    if (s->no_signal) {
        lose(s, TRACE_LOST_unanswered, 1);
        return;
    }
    t->slot->tick = tick;
    t->slot->cpu = cpu;
    t->slot->count = 1;
    int rc = handler_post(t->slot);
    if (rc && rc != -ESRCH)
        lose(s, TRACE_LOST_unanswered, 1);
}

static void seat_tick(struct seats *s, struct seat *t, uint64_t tick) {
    uint64_t cpu, again, act;
    int posted = handler_withdraw(t->slot);
    if (posted == -EBUSY)
        lose(s, TRACE_LOST_unanswered, 1);
    if (posted == -EBUSY || thread_cpu(t, &cpu))
        return;
    if (posted &&
        cpu == t->slot->cpu) { /* it waits for a CPU: the answer will be true of now too */
        t->slot->count++;
        handler_post(t->slot);
        return;
    }
    if (posted) /* it ran, and blocks the signal */
        lose(s, TRACE_LOST_unanswered, t->slot->count);
    if (cpu < t->slot->cpu_base) /* another thread with the same id */
        t->slot->cpu_base = 0;
    act = activity(s, t, cpu);
    if (act && act == t->settled) {
        idle_sample(s, t, tick, t->pending.stack, t->pending.pc, 0);
        return;
    }
    for (int attempt = 0; attempt < 3; attempt++) {
        char text[256];
        struct unwind_regs regs;
        if (thread_cpu(t, &again))
            return;
        if (again != cpu && !s->coarse) /* its clock runs: so does the thread */
            break;
        enum look seen = look(s, t, &regs, text);
        if (seen == LOOK_UNKNOWN)
            break;
        /* Runnable, but not running (we may have its CPU): without native frames, reading from outside
         * saves it a signal. Its registers cannot be had so. */
        if (seen == LOOK_RUNNING &&
            (s->coarse || __atomic_load_n(&s->live->native, __ATOMIC_RELAXED)))
            break;
        if (act && read_outside(s, t, tick, cpu, act, seen == LOOK_BLOCKED ? &regs : NULL) == 0)
            return;
        if (thread_cpu(t, &cpu))
            return;
        act = activity(s, t, cpu);
    }
    signal_thread(s, t, tick, cpu);
}

void seats_tick(struct seats *s, uint64_t tick) {
    uint32_t epoch = __atomic_load_n(&s->live->epoch, __ATOMIC_ACQUIRE);
    if (epoch != s->epoch) { /* the stacks' keys are of the past: read and define them anew */
        for (uint32_t i = 0; i < s->n; i++) {
            s->seat[i].redefine = s->seat[i].settled;
            s->seat[i].settled = 0;
        }
        s->epoch = epoch;
    }
    s->checked = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->seat[i].listed == s->listing)
            seat_tick(s, &s->seat[i], tick);
}

void seats_end(struct seats *s) {
    seats_flush(s);
    for (uint32_t i = 0; i < s->n; i++) {
        struct seat *t = &s->seat[i];
        int posted = handler_withdraw(t->slot);
        for (int ms = 0; posted == -EBUSY && ms < END_WAIT_MS; ms++) {
            struct timespec one = {0, 1000000};
            nanosleep(&one, NULL);
            posted = handler_withdraw(t->slot);
        }
        if (posted)
            lose(s, TRACE_LOST_unanswered, t->slot->count);
        if (t->syscall_fd >= 0)
            close(t->syscall_fd);
        if (posted != -EBUSY) /* else the handler writes into it still: it stays taken */
            slot_free(t->slot);
    }
    s->n = 0;
}
