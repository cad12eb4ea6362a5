/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trigger_fatal.c - fatal signals: all stacks are recorded first, then the signal has the same effect as without the agent.
 *
 * Our handler runs on the thread's alternate signal stack if there is one. It records the stack of its own thread at the fault (unless
 * the alternate stack is too small for that), posts the trigger and waits, two seconds at most, while the sampler and service threads
 * record the other threads. Then it restores the previous action and returns: a fault happens again at the same instruction; a signal that was
 * sent is sent to the thread once more with the same siginfo. The previous action (faulthandler, Python's handler, the default with
 * its core dump) handles it as without the agent: exit status, core dump and output are the same.
 *
 * A handler that is installed after ours and chains to it ends at the same previous action. One that does not chain (torch's in DataLoader
 * workers) hides ours, so the service thread checks each second and installs ours again on top. The previous actions form a stack of
 * layers, and each signal pops one. If the program survives the signal, ours is installed again after two seconds, a limited number of times.
 *
 * SIGTERM and the like are handled only where the program does not handle them: a scheduler or launcher sends one as its last warning, often unseen by Python code.
 */
#include <signal.h>

#include "agent/core/producer.h"
#include "agent/sampler/handler.h"
#include "agent/trigger/trigger.h"

#define SURVIVED_NS 2000000000u /* a program that lives longer after the signal has survived it */
#define LAYERS      3
#define AGAIN_MOST  1 /* a program that survives more often uses the signal itself (a run-time) */

struct action { /* the kernel's struct: restored unchanged, by a system call that needs no stack */
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static struct fatal {
    int signo;
    enum trigger_kind kind;
    const char *name;
    uint64_t gone;  /* (a) when an action of `old` was restored because of a signal, ns */
    unsigned again; /* how often our action was installed after that */
    unsigned depth; /* (a) number of actions in `old` */
    struct action old[LAYERS];
} fatal[] = {
#define SIGNAL(n, k)                                                                               \
    { .signo = SIG##n, .kind = TRIGGER_##k, .name = "SIG" #n }
    SIGNAL(SEGV, fatal), SIGNAL(BUS, fatal), SIGNAL(FPE, fatal), SIGNAL(ILL, fatal),
    SIGNAL(ABRT, fatal), SIGNAL(TERM, term), SIGNAL(HUP, term),  SIGNAL(USR1, term),
    SIGNAL(USR2, term),  SIGNAL(XCPU, term),
};
enum { NFATAL = sizeof fatal / sizeof *fatal };
static pid_t busy; /* (a) process that records a signal: its others are consequences, ignored */

static long action(int signo, const struct action *new, struct action *old) {
    return syscall(SYS_rt_sigaction, signo, new, old, sizeof new->mask);
}

static void describe(struct trigger *t, const struct fatal *f, const siginfo_t *si) {
    trigger_say(t, f->name);
    if (si->si_code > 0 && f->kind == TRIGGER_fatal && f->signo != SIGABRT) {
        trigger_say(t, " at address ");
        trigger_say_number(t, (uint64_t)(uintptr_t)si->si_addr, 16);
    } else if (si->si_code == SI_USER || si->si_code == SI_TKILL || si->si_code == SI_QUEUE) {
        trigger_say(t, si->si_pid == getpid() ? " raised by the process itself, pid "
                                              : " sent by pid ");
        trigger_say_number(t, (uint64_t)si->si_pid, 10);
    }
}

static void report(const struct fatal *f, const siginfo_t *si, const void *uc) {
    struct trigger *t = trigger_new(f->kind);
    if (!t)
        return;
    describe(t, f, si);
    if (handler_here(t->tick, uc) == 0)
        t->except = t->tid;
    trigger_post(t, TRIGGER_WAIT_MS);
}

/* Records the signal. Returns the time, ns. */
static __attribute__((noinline)) uint64_t heard(const struct fatal *f, const siginfo_t *si,
                                                const void *uc) {
    uint64_t gone = __atomic_load_n(&f->gone, __ATOMIC_RELAXED);
    int echo = gone && sys_now() - gone < SURVIVED_NS; /* a handler above chained to us */
    if (!echo && producer_recording() &&
        __atomic_exchange_n(&busy, getpid(), __ATOMIC_ACQUIRE) != getpid()) {
        report(f, si, uc);
        __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    }
    return sys_now();
}

static void on_fatal(int signo, siginfo_t *si, void *uc, unsigned layer) {
    int saved = errno;
    struct fatal *f = fatal;
    while (f < fatal + NFATAL - 1 && f->signo != signo)
        f++;
    __atomic_store_n(&f->gone, handler_has_room(uc) ? heard(f, si, uc) : 1, __ATOMIC_RELAXED);
    /* Restore the action that this layer covered. If that is a handler that chains to us, it chains to a layer below, which restores the one below. */
    __atomic_store_n(&f->depth, layer, __ATOMIC_RELEASE);
    action(signo, &f->old[layer], NULL);
    /* A fault happens again by itself. A signal that was sent, or raised by abort(), is sent again: it stays pending until we return. */
    pid_t pid = getpid(), tid = (pid_t)syscall(SYS_gettid);
    if ((si->si_code <= 0 || signo == SIGABRT || f->kind == TRIGGER_term) &&
        syscall(SYS_rt_tgsigqueueinfo, pid, tid, signo, si)) /* a seccomp filter refuses it */
        syscall(SYS_tgkill, pid, tid, signo);
    errno = saved;
}

/* A handler for each layer: the program may put back an action that it found (faulthandler.disable()), and the layers above it then no longer count. */
#define LAYER(n)                                                                                   \
    static void layer##n(int signo, siginfo_t *si, void *uc) {                                     \
        on_fatal(signo, si, uc, n);                                                                \
    }
LAYER(0)
LAYER(1)
LAYER(2)
static void (*const layers[])(int, siginfo_t *, void *) = {layer0, layer1, layer2};

/* Returns the layer whose handler the action has, or -1: it is not ours. */
static int layer_of(const struct action *now) {
    int i = LAYERS - 1;
    while (i >= 0 && now->handler != layers[i])
        i--;
    return i;
}

void trigger_fatal_install(void) {
    struct sigaction sa = {.sa_flags = SA_SIGINFO | SA_ONSTACK}, was; /* no signal is masked */
    for (struct fatal *f = fatal; f < fatal + NFATAL; f++) {
        struct action now;
        uint64_t gone = __atomic_load_n(&f->gone, __ATOMIC_RELAXED);
        if (!trigger_is_on(f->kind) || f->again > AGAIN_MOST ||
            (gone && sys_now() - gone < SURVIVED_NS) || action(f->signo, NULL, &now))
            continue;
        int layer = layer_of(&now);
        if (layer >= 0)
            __atomic_store_n(&f->depth, (unsigned)layer + 1, __ATOMIC_RELEASE);
        unsigned depth = __atomic_load_n(&f->depth, __ATOMIC_ACQUIRE);
        if (layer >= 0 || depth == LAYERS || now.handler == (void *)SIG_IGN ||
            (f->kind == TRIGGER_term && now.handler != (void *)SIG_DFL))
            continue;
        f->again += gone != 0;
        f->gone = 0;
        f->old[depth] = now;
        __atomic_store_n(&f->depth, depth + 1, __ATOMIC_RELEASE);
        sa.sa_sigaction = layers[depth];
        if (!sigaction(f->signo, &sa, &was) && (void *)was.sa_sigaction != (void *)now.handler) {
            sigaction(f->signo, &was, NULL); /* the program has set it since we looked */
            __atomic_store_n(&f->depth, depth, __ATOMIC_RELEASE);
        }
    }
}

void trigger_fatal_remove(void) {
    for (struct fatal *f = fatal; f < fatal + NFATAL; f++) {
        struct action now, was;
        int layer = action(f->signo, NULL, &now) ? -1 : layer_of(&now);
        if (layer < 0 || action(f->signo, &f->old[layer], &was))
            continue;
        __atomic_store_n(&f->depth, (unsigned)layer, __ATOMIC_RELEASE);
        if (was.handler != now.handler) /* the program has set it since we looked */
            action(f->signo, &was, NULL);
    }
}
