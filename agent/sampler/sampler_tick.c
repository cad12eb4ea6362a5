/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens with each thread at a tick: agent/README.md, life of a sample, 1-4.
 *
 * Why a running thread gets a signal, also when only its Python frames are wanted: reading it from outside without one was tried on two call chains that never
 * mix (8,000 samples at 1 kHz). 3.8: seven samples in ten unreadable; 3.11: one in two unreadable, 4 % impossible stacks; 3.13: 15 % impossible, and a caller
 * at a line where it is not calling in more. With the signal: none of 8,000, on each. The handler takes 1-3 us (5 with cold caches); waking the sampler thread,
 * about 20 us on another CPU, is the same for both ways. A thread that is runnable but has no CPU is read from outside (its clock proves that it stood still).
 */

#include "agent/sampler/sampler_threads.h"

#define BUSY_MAX_NS   1000000000u
#define BURST_WAIT_MS 50
#define NEW_POSTS     4u    /* a thread is new until it has got so many signals */
#define NEW_CHECKS    3     /* additional reads of a new thread's mask before each signal, */
#define NEW_GAP_NS    15000 /* so many ns apart */
#define NEW_WAITS     8u    /* waits for a CPU in which a new thread gets no signal */

enum run_state { STATE_RUNNING, STATE_BLOCKED, STATE_UNKNOWN };

/* Returns whether the thread sleeps in the kernel, and sets *regs to where (sp 0: not known). `text` gets the file of /proc that tells. */
static enum run_state run_state(struct sampler_table *s, struct sampled *t,
                                struct unwind_regs *regs, char text[256]) {
    struct proc_call call;
    uint64_t set;
    *regs = (struct unwind_regs){.sp = 0};
    if (!sampled_read(s, t, SAMPLED_SYSCALL, text, 256)) {
        sampled_read(s, t, SAMPLED_STAT, text, 256); /* readable after setuid(), too */
        const char *state = proc_stat_field(text, 3);
        return !state ? STATE_UNKNOWN : *state == 'R' ? STATE_RUNNING : STATE_BLOCKED;
    }
    if (!proc_call(text, &call))
        return text[0] == 'r' ? STATE_RUNNING : STATE_UNKNOWN;
    *regs = (struct unwind_regs){.sp = call.sp, .pc = call.pc};
    /* While a thread waits for signals here, its mask shows these signals as not blocked. */
    if (call.number == SYS_rt_sigtimedwait &&
        !s->pages.mem.read(s->pages.mem.ctx, call.first, &set, sizeof set) &&
        set >> (handler_signo() - 1) & 1)
        t->shut = t->wary > SHUT_CHECKS ? t->wary : SHUT_CHECKS;
    return STATE_BLOCKED;
}

/* Returns a number that changes whenever the thread runs, or 0 when that cannot be known. */
static uint64_t activity(struct sampler_table *s, struct sampled *t, uint64_t cpu) {
    if (!s->coarse)
        return cpu;
    char text[256];
    struct unwind_regs regs;
    if (run_state(s, t, &regs, text) != STATE_BLOCKED)
        return 0;
    uint64_t h = known_text(1, text);
    sampled_read(s, t, SAMPLED_SCHEDSTAT, text, sizeof text);
    return known_text(h, text);
}

struct bracket {
    struct sampler_table *s;
    struct sampled *t;
    uint64_t before;
};

static int bracket_holds(void *ctx) {
    struct bracket *b = ctx;
    uint64_t cpu;
    return sampled_cpu(b->t, &cpu) == 0 && activity(b->s, b->t, cpu) == b->before;
}

/* Counts `n` more ticks with this stack, the last one at `last`, for a thread that sleeps or waits for a CPU. */
static void still_sample(struct sampler_table *s, struct sampled *t, uint64_t last, uint64_t n,
                         uint64_t stack, uint64_t pc, uint64_t cpu_us, unsigned flags) {
    struct pending *p = &t->pending;
    uint64_t first = last - (n - 1) * s->period;
    if (p->count && (p->stack != stack || p->pc != pc || p->flags != flags ||
                     first - p->last > s->period + s->period / 2))
        sampled_flush(s, t);
    if (!p->count) {
        p->ts = first < s->at ? first - first % 1000 : s->at; /* `last` may be in the future */
        p->stack = stack;
        p->pc = pc;
        p->flags = flags;
    }
    p->cpu_us += cpu_us;
    p->count += n;
    p->last = last;
}

/*
 * `missed` ticks passed while the sampler itself had no CPU. A thread whose CPU time grew by less than the time that passed was blocked for the difference,
 * and a blocked thread's stack does not change: these ticks are not lost. They count for the stack that the thread was blocked with before, if it was blocked,
 * else for the present one. Returns the number of ticks that belong to the present stack; ticks in which the thread ran are counted as lost.
 */
static uint64_t share_missed(struct sampler_table *s, struct sampled *t, uint64_t cpu,
                             const struct tick *tick) {
    uint64_t missed = tick->missed, used = cpu > t->seen ? cpu - t->seen : 0;
    uint64_t elapsed = (missed + tick->span) * s->period;
    uint64_t waited = elapsed > used ? (elapsed - used) / s->period : 0;
    if (waited > missed)
        waited = missed;
    if (!t->seen && t->tid != (uint32_t)getpid()) { /* the thread may have begun meanwhile */
        missed = used / s->period < missed ? used / s->period : missed;
        waited = 0;
    }
    if (missed)
        live_lose(s->live, TRACE_LOST_missed_tick, missed - waited);
    if (waited && t->settled && t->pending.count) {
        t->pending.count += waited;
        t->pending.last += waited * s->period;
        return 0;
    }
    return waited;
}

/*
 * Reads the stack of a thread that does not run, without waking it. The result is valid if the thread has
 * used no CPU time meanwhile. Returns 0 when it was sampled (or counted as lost); -EAGAIN when it has run.
 */
static int read_outside(struct sampler_table *s, struct sampled *t, uint64_t last, uint64_t n,
                        uint64_t cpu, uint64_t act, enum run_state seen,
                        const struct unwind_regs *regs) {
    struct capture *c = &s->capture;
    struct bracket b = {s, t, act};
    struct capture_check check = {bracket_holds, &b};
    uint64_t key = 0;
    c->npcs = 0;
    c->pcs_cut = 0;
    memory_read_again(&s->pages);
    int rc = capture_python(c, &s->pw, t->states, regs->sp, t->ident);
    if (rc >= 0) {
        if (regs->sp && __atomic_load_n(&s->live->native, __ATOMIC_RELAXED)) {
            struct cfi_memory mem = {.read = pywalk_pages_read, .ctx = &s->pages};
            c->npcs = (uint32_t)unwind_walk(&s->unwind, &mem, regs, NULL, c->pcs, CAPTURE_PCS,
                                            &c->pcs_cut);
        }
        rc = capture_store(c, &s->dict, &s->pw, s->ring, &check, &key);
    }
    if (rc == -EAGAIN || (rc && !bracket_holds(&b)))
        return -EAGAIN;
    if (rc == -ENOBUFS) { /* counted by the ring; the next tick tries again */
        sampled_flush(s, t);
        return 0;
    }
    /* A thread that sleeps with an unreadable stack (rc) gets a sample without a stack. */
    t->settled = act;
    t->cut = c->pcs_cut;
    if (t->redefine == act && !rc)
        t->pending.stack = key; /* still the same stack, under its key of this epoch */
    t->redefine = 0;
    still_sample(s, t, last, n, rc ? 0 : key, !rc && c->npcs ? c->pcs[0] : 0,
                 request_take_cpu(t->request, cpu),
                 seen == STATE_RUNNING ? sampled_flags(s, t) : SAMPLE_OUTSIDE);
    return 0;
}

static int has_ring(struct sampler_table *s, struct sampled *t) {
    if (!t->request->ring)
        t->request->ring = live_ring_get(s->live, t->tid);
    return t->request->ring != NULL;
}

/* Asks the thread's handler for a sample, for n ticks from `first` on; a thread that must not be signalled is read from outside. */
static int ask(struct sampler_table *s, struct sampled *t, uint64_t first, uint64_t n,
               uint64_t cpu) {
    if (s->no_signal || t->shut) {
        sampled_read_running(s, t, first, n, cpu);
        return 0;
    }
    t->request->tick = first;
    t->request->cpu = cpu;
    t->request->count = n;
    t->posts += t->posts < NEW_POSTS;
    return handler_post(t->request);
}

/* Samples a thread that seems to run. Returns 0; -EAGAIN when it sleeps by now: try again (not returned at the `last` try). */
static int signal_thread(struct sampler_table *s, struct sampled *t, const struct tick *tick,
                         uint64_t n, uint64_t cpu, int last) {
    t->settled = 0;
    if (!has_ring(s, t)) {
        sampled_flush(s, t);
        live_lose(s->live, TRACE_LOST_no_ring, n);
        return 0;
    }
    if (!s->checked) { /* only once in a tick, because it is a system call */
        s->checked = 1;
        int signo = handler_signo();
        s->no_signal = handler_check() != 0;
        for (struct sampled *o = s->thread; o < s->thread + s->n && handler_signo() != signo; o++)
            o->shut = SHUT_CHECKS; /* whether it blocks the new signal is not known yet */
    }
    /* A sample that stands for several ticks of a span has the time at which it was taken. */
    uint64_t now, first = tick->at - (n - tick->span) * s->period;
    first -= first % 1000;
    unsigned at = sampled_signals(s, t);
    /* A new thread's mask is read several times, to detect a thread that blocks the signal now and then before it gets one. */
    for (int i = t->posts < NEW_POSTS ? NEW_CHECKS : 0;
         i-- && !t->shut && !(at & SAMPLED_ASLEEP);) {
        for (uint64_t from = sys_now(); sys_now() - from < NEW_GAP_NS;)
            ;
        at = sampled_signals(s, t);
    }
    if (at & SAMPLED_ASLEEP && !last)
        return -EAGAIN;
    /* The mask of a new thread that waits for a CPU is not trusted either: it may do so in sigtimedwait(), see run_state(). */
    if (t->posts < NEW_POSTS && !s->coarse && !sampled_cpu(t, &now) && now == cpu) {
        int ran = cpu - t->waited > s->period / 2; /* since the last wait that counted */
        t->waited = ran ? cpu : t->waited;
        if (!t->shut)
            t->shut = !ran || t->waits < NEW_WAITS;
        t->waits += ran; /* grows fast where the sampler itself has that CPU */
    }
    int rc = ask(s, t, first, n, cpu);
    if (rc && rc != -ESRCH)
        live_lose(s->live, TRACE_LOST_unanswered, n);
    sampled_flush(s, t);
    return 0;
}

/* Samples a thread. Returns 0 when it has slept, or waited for a CPU, since its last sample, else 1. */
static uint32_t sample_thread(struct sampler_table *s, struct sampled *t, const struct tick *tick) {
    uint64_t cpu, again, act, n, owed = 0, ticks = tick->span + tick->missed;
    int posted = handler_withdraw(t->request);
    if (sampled_cpu(t, &cpu))
        return 1;
    if (posted == -EBUSY) {
        live_lose(s->live, TRACE_LOST_unanswered, ticks);
        if (cpu > t->seen + BUSY_MAX_NS) /* no handler takes that long: it was left by longjmp */
            sampled_new_request(t);
        return s->coarse || sampled_cpu(t, &again) || again != cpu; /* 0: waits for a CPU */
    }
    if (posted) {
        int barely = cpu < t->request->cpu + s->period / 4; /* has hardly run since it was asked */
        /* It has not run since the last tick: so its signal mask has not changed either. */
        int still = cpu == t->seen && !s->coarse;
        unsigned at = still ? SAMPLED_PENDING : sampled_signals(s, t);
        if (at & SAMPLED_PENDING && at & SAMPLED_BLOCKED) {
            handler_unpend(t->request);
        } else if (at & SAMPLED_PENDING || (barely && !t->shut)) {
            /* It has executed none of its code since: it waits for a CPU, or runs in the kernel. So the answer will be
             * true for this tick, too. (If the handler came too late for the last request, this sends a new signal.) */
            t->request->count += ticks;
            t->seen = cpu;
            handler_post(t->request);
            return !still;
        } else { /* the kernel keeps only one SIGURG, and somebody else's was pending */
            __atomic_store_n(&t->request->queued, 0, __ATOMIC_RELEASE);
        }
        if (barely) /* it fell asleep soon after it was asked: these ticks count for the stack it sleeps with */
            owed = t->request->count;
        else
            live_lose(s->live, TRACE_LOST_unanswered, t->request->count);
    }
    if (cpu < t->request->cpu_base) /* another thread with the same id */
        t->request->cpu_base = 0;
    act = activity(s, t, cpu);
    if (act && act == t->settled) {
        still_sample(s, t, tick->last, ticks, t->pending.stack, t->pending.pc, 0, t->pending.flags);
        return 0;
    }
    n = tick->span + owed + share_missed(s, t, cpu, tick);
    int busy = cpu - t->seen > ticks * s->period / 10;
    t->seen = cpu;
    for (int attempt = 0;; attempt++) {
        char text[256];
        struct unwind_regs regs;
        enum run_state seen = STATE_RUNNING;
        if (sampled_cpu(t, &again))
            return 1;
        if (again == cpu || s->coarse) /* else its clock runs: so does the thread */
            seen = run_state(s, t, &regs, text);
        if (seen == STATE_UNKNOWN && !s->coarse) /* /proc does not show it, as after chroot() */
            seen = busy ? STATE_RUNNING : STATE_BLOCKED;
        /* Runnable, but not running (we may have its CPU): if no native frames are wanted, reading from outside saves
         * a signal. But that cannot read its registers, which tell in which of several interpreters it is. */
        int still = seen == STATE_BLOCKED ||
                    (seen == STATE_RUNNING && again == cpu && !s->coarse && !t->states[1] &&
                     !__atomic_load_n(&s->live->native, __ATOMIC_RELAXED));
        if (still) /* while it sleeps elsewhere than in sigtimedwait(), its mask shows what it blocks */
            sampled_signals(s, t);
        if (still && act && read_outside(s, t, tick->last, n, cpu, act, seen, &regs) == 0)
            return 1;
        if ((!still || attempt == 2) && signal_thread(s, t, tick, n, cpu, attempt == 2) == 0)
            return 1;
        if (sampled_cpu(t, &cpu))
            return 1;
        act = activity(s, t, cpu);
    }
}

/* In a new dictionary epoch no key is valid any more: makes the sampler read and define all stacks anew. */
static void follow_epoch(struct sampler_table *s) {
    uint32_t epoch = __atomic_load_n(&s->live->epoch, __ATOMIC_ACQUIRE);
    if (epoch == s->epoch)
        return;
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++) {
        t->redefine = t->settled;
        t->settled = 0;
        t->backoff.due = 0; /* now: until it is sampled, `pending` must not be written */
    }
    s->epoch = epoch;
}

uint32_t sampler_threads_tick(struct sampler_table *s, const struct tick *tick) {
    uint32_t ran = 0;
    follow_epoch(s);
    s->checked = 0, s->at = tick->at;
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++) {
        struct tick mine;
        if (t->listed != s->listing)
            continue;
        int due = backoff_due(&t->backoff, s->period, tick, &mine);
        if (due && sample_thread(s, t, &mine)) {
            t->backoff.asleep = 0;
        } else if (due) {
            s->random = known_mix(s->random, mine.last ^ t->tid);
            backoff_give(&t->backoff, s->period, mine.span + mine.missed, s->random);
        }
        ran += t->backoff.asleep == 0;
    }
    return ran;
}

int sampler_threads_waiting(const struct sampler_table *s, uint32_t except) {
    for (const struct sampled *t = s->thread; t < s->thread + s->n; t++)
        if (t->tid != except &&
            __atomic_load_n(&t->request->state, __ATOMIC_ACQUIRE) != REQUEST_IDLE)
            return 1;
    return 0;
}

void sampler_threads_recheck(struct sampler_table *s) {
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++) {
        uint64_t cpu;
        if (__atomic_load_n(&t->request->state, __ATOMIC_ACQUIRE) != REQUEST_POSTED ||
            (~sampled_signals(s, t) & (SAMPLED_PENDING | SAMPLED_BLOCKED)) ||
            handler_withdraw(t->request) != 1)
            continue;
        handler_unpend(t->request);
        if (sampled_cpu(t, &cpu) == 0)
            sampled_read_running(s, t, t->request->tick, t->request->count, cpu);
    }
}

/* ---- bursts: every thread's stack at one time, outside of the ticks; samples that stand for no tick ---- */

/* Writes a sleeping thread's stack as a sample with count 0. Returns 0; -EAGAIN when the thread runs. */
static int burst_outside(struct sampler_table *s, struct sampled *t, uint64_t tick) {
    char text[256];
    struct unwind_regs regs;
    uint64_t cpu, act;
    for (int attempt = 0; attempt < 3; attempt++) {
        if (sampled_cpu(t, &cpu))
            return 0;
        act = activity(s, t, cpu);
        if (!act)
            return -EAGAIN;
        if (act != t->settled) {
            if (run_state(s, t, &regs, text) == STATE_RUNNING)
                return -EAGAIN;
            if (read_outside(s, t, tick, 0, cpu, act, STATE_BLOCKED, &regs) || t->settled != act)
                continue;
        }
        request_record(t->request, s->live, s->ring, tick, t->pending.stack, t->pending.pc, 0, 0,
                       SAMPLE_OUTSIDE);
        return 0;
    }
    return -EAGAIN;
}

/* Signals a running thread. Returns 1 when it must not be signalled: then it is read later. */
static int burst_signal(struct sampler_table *s, struct sampled *t, uint64_t tick) {
    uint64_t cpu;
    t->settled = 0;
    s->no_signal = handler_check() != 0;
    if (!has_ring(s, t) || sampled_cpu(t, &cpu))
        return 0;
    sampled_signals(s, t);
    return s->no_signal || t->shut || (ask(s, t, tick, 0, cpu), 0);
}

/* Returns whether there are threads that were not read yet. A thread that must not be signalled may be about to sleep (as one that waits in our hook
 * for its trigger); that is awaited, because while it runs it could be read only without native frames. */
static int burst_waits(struct sampler_table *s, uint64_t tick, uint32_t except) {
    int late = 0;
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++)
        if (t->late)
            late |= t->late = burst_outside(s, t, tick) != 0;
    return late || sampler_threads_waiting(s, except);
}

void sampler_threads_burst(struct sampler_table *s, uint64_t tick, uint32_t except) {
    follow_epoch(s);
    s->at = tick;
    if (__atomic_load_n(&s->live->native, __ATOMIC_RELAXED)) /* libraries may just be loaded */
        sampler_threads_modules(s);
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++) {
        int posted = t->tid == except ? -EBUSY : handler_withdraw(t->request);
        t->late = 0;
        if (posted == -EBUSY)
            continue;
        if (posted) /* the last tick's sample is given up */
            live_lose(s->live, TRACE_LOST_unanswered, t->request->count);
        sampled_flush(s, t);
        t->late = burst_outside(s, t, tick) && burst_signal(s, t, tick);
    }
    for (int ms = 0; ms < BURST_WAIT_MS && burst_waits(s, tick, except); ms++)
        sys_sleep(SYS_MS);
    /* Threads that got no CPU in time: each may sleep now, or have lost its CPU within the handler. */
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++) {
        int posted = t->tid == except ? 0 : handler_withdraw(t->request);
        uint64_t cpu = 0;
        if (posted == -EBUSY || ((t->late || (posted && t->request->count == 0)) &&
                                 burst_outside(s, t, tick) && !sampled_cpu(t, &cpu)))
            sampled_read_running(s, t, tick, 0, cpu);
    }
}
