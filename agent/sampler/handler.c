/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/handler.h"

#include "agent/base/quiesce.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#define WRITE_MS    10          /* interval of the checks for other signals while a pipe is full */
#define VALUE_MAGIC 0x50726f62u /* upper half of the signal's value; the lower: a request's index */
#define WARM        96u         /* most frames of the last sample that are prefetched */

static struct {
    struct handler *armed; /* (a) NULL: handlers do nothing */
    uint32_t active;       /* (a) handlers running, in all threads (quiesce.h) */
    int signo;             /* (a) */
    pid_t pid;             /* (a) */
    uid_t uid;
    uint32_t nrequests; /* (a) */
    uint32_t nfree;
    struct request *requests[HANDLER_REQUESTS];
    uint32_t free[HANDLER_REQUESTS];
} g;

/* ---- recording ---- */

uint64_t request_take_cpu(struct request *s, uint64_t cpu) {
    if (cpu <= s->cpu_base) /* possible when the sampler calls this while the handler runs */
        return 0;
    uint64_t us = (cpu - s->cpu_base) / 1000;
    s->cpu_base += us * 1000; /* the rest, below 1 us, counts for the next sample */
    return us;
}

int request_record(struct request *s, struct live *live, struct ring *ring, uint64_t ts,
                   uint64_t stack, uint64_t pc, uint64_t cpu_us, uint64_t count, unsigned flags) {
    if (WRITER_PUT(ring, sample, .ts = ts, .tid = s->tid, .stack = stack, .pc = pc,
                   .cpu_us = cpu_us, .count = count, .flags = flags))
        return -ENOBUFS;
    __atomic_fetch_add(&live->samples, count, __ATOMIC_RELAXED);
    return 0;
}

static void capture_native(struct request *s, struct unwind *u, const ucontext_t *uc) {
    const greg_t *g_ = uc->uc_mcontext.gregs;
    struct cfi_memory mem = {.read = guard_read, .ctx = &s->guard, .direct = 1};
    struct unwind_regs regs = {.pc = (uint64_t)g_[REG_RIP],
                               .sp = (uint64_t)g_[REG_RSP],
                               .bp = (uint64_t)g_[REG_RBP],
                               .bx = (uint64_t)g_[REG_RBX],
                               .r10 = (uint64_t)g_[REG_R10],
                               .known = UNWIND_BP | UNWIND_BX | UNWIND_R10};
    struct capture *c = &s->capture;
    c->npcs = (uint32_t)unwind_walk(u, &mem, &regs, &s->memo, c->pcs, CAPTURE_PCS, &c->pcs_cut);
}

/* Prefetches the cache lines of the last sample's stack, all at once: most of that stack is the same now, and a walk would wait for one line after
 * the other (a tenth of the handler's time). */
static void warm(const struct handler *h, const struct request *s) {
    const struct capture *c = &s->capture;
    unwind_warm(h->unwind, &s->memo);
    for (uint32_t i = 0; i < c->nframes && i < WARM; i++) {
        const char *code = (const char *)(uintptr_t)c->frames[i].code;
        const char *frame = (const char *)(uintptr_t)c->frames[i].frame;
        __builtin_prefetch(code + 64);
        __builtin_prefetch(code + 128);
        __builtin_prefetch(frame);
        __builtin_prefetch(frame + 64);
    }
}

/* Records the stack of the interrupted thread, which is the one that `s` belongs to. */
static void record(struct handler *h, struct request *s, const ucontext_t *uc) {
    struct capture *c = &s->capture;
    struct live *live = h->live;
    unsigned flags = SAMPLE_ON_CPU;
    uint64_t key, tstate, states[CAPTURE_STATES + 1], *in = states;
    warm(h, s);
    c->nframes = c->npcs = 0;
    c->frames_cut = c->pcs_cut = 0;
    /* A thread state that the sampler has not seen yet belongs to an interpreter that was entered from the known ones; or it has replaced the
     * known state of the same interpreter, which has been freed: that memory may be another thread's state by now. */
    tstate = states[0] = (uint64_t)(uintptr_t)h->this_tstate();
    for (uint32_t i = 0; i < CAPTURE_STATES; i++) {
        states[i + 1] = __atomic_load_n(&s->states[i], __ATOMIC_RELAXED);
        in = states[i + 1] == tstate ? states + 1 : in;
    }
    if (in == states && tstate && pywalk_interp(&h->pw, tstate) == s->interp)
        states[1] = 0;
    const struct pywalk *pw = in[1] ? &h->far : &h->pw;
    if (tstate && capture_python(c, pw, in, (uint64_t)uc->uc_mcontext.gregs[REG_RSP], s->ident)) {
        /* interrupted in the few instructions that link a frame */
        live_lose(live, TRACE_LOST_torn, s->count);
        return;
    }
    if (__atomic_load_n(&live->native, __ATOMIC_RELAXED))
        capture_native(s, h->unwind, uc);
    if (tstate && pywalk_holds_gil(pw, in))
        flags |= SAMPLE_GIL;
    int rc = capture_store(c, h->dict, pw, s->ring, NULL, &key);
    if (rc) {
        if (rc != -ENOBUFS)
            live_lose(live, TRACE_LOST_torn, s->count);
        return;
    }
    request_record(s, live, s->ring, s->tick, key, c->npcs ? c->pcs[0] : 0,
                   request_take_cpu(s, s->cpu), s->count, flags);
}

/* Returns whether the request belongs to the calling thread. The sampler may give it to another thread at any time: then this signal is late. */
static int is_mine(const struct request *s) {
    return __atomic_load_n(&s->ident, __ATOMIC_ACQUIRE) == (uint64_t)pthread_self();
}

int handler_here(uint64_t tick, const void *uc) {
    static struct request *spare;
    static uint32_t busy; /* (a) */
    struct handler *h;
    int rc = -ESRCH;
    h = quiesce_enter(&g.active, &g.armed);
    if (!h || __atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
        goto out;
    if (!spare) /* the thread's own request may be in use by the handler that this has interrupted */
        spare = sys_pages(sizeof *spare);
    rc = -ENOMEM;
    if (spare) {
        spare->tid = (uint32_t)syscall(SYS_gettid);
        spare->ident = (uint64_t)pthread_self();
        spare->interp = 0;
        memset(spare->states, 0, sizeof spare->states);
        for (uint32_t i = 0; i < __atomic_load_n(&g.nrequests, __ATOMIC_ACQUIRE); i++)
            if (is_mine(g.requests[i])) {
                spare->interp = g.requests[i]->interp;
                memcpy(spare->states, g.requests[i]->states, sizeof spare->states);
            }
        spare->tick = tick;
        spare->count = 0;
        spare->cpu = spare->cpu_base = sys_clock(CLOCK_THREAD_CPUTIME_ID);
        guard_forget(&spare->guard);
        unwind_forget(&spare->memo);
        spare->ring = live_ring_get(h->live, spare->tid);
        if (spare->ring) {
            record(h, spare, uc);
            live_ring_orphan(spare->ring);
            rc = 0;
        }
    }
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
out:
    quiesce_leave(&g.active);
    return rc;
}

/* ---- the signal ---- */

/* Returns whether another signal will be delivered when this handler returns. */
static int others_wait(const ucontext_t *uc) {
    uint64_t closed, pending = 0;
    memcpy(&closed, &uc->uc_sigmask, sizeof closed);
    closed |= 1ull << (handler_signo() - 1);
    return syscall(SYS_rt_sigpending, &pending, sizeof pending) || (pending & ~closed);
}

/* A signal sent to the process (Ctrl-C) wakes its main thread to take it. Until the main thread gets a CPU, any other thread that returns from the
 * kernel takes the signal instead, and then Python's main thread sleeps on. Our sampling signal makes this thread return from the kernel. So while
 * a signal is pending that this thread would take, the handler waits, up to a millisecond, for the main thread to take it. */
static void leave_signals(const struct request *s, const ucontext_t *uc) {
    for (int i = 0; i < 10 && (pid_t)s->tid != g.pid && others_wait(uc); i++)
        sys_sleep(50000);
}

static void answer(struct handler *h, struct request *s, const ucontext_t *uc) {
    if (!h || !is_mine(s))
        return;
    __atomic_store_n(&s->queued, 0, __ATOMIC_RELEASE);
    if (sys_swap(&s->state, REQUEST_POSTED, REQUEST_BUSY) == REQUEST_POSTED) {
        uint64_t start = sys_now();
        record(h, s, uc);
        __atomic_fetch_add(&h->live->handler_ns, sys_now() - start, __ATOMIC_RELAXED);
        __atomic_store_n(&s->state, REQUEST_IDLE, __ATOMIC_RELEASE);
    }
    leave_signals(s, uc);
}

/* ---- the system call that the signal has interrupted ---- */

static int number_at(uint64_t address) {
    uint64_t number;
    return memory_read_self(address, &number, sizeof number) || number > 0xffff ? -1 : (int)number;
}

/* call_number() for glibc 2.41 and later, where one function makes all cancellable calls. Its code is `mov N(%rsp), %rax; syscall`; or it passes the
 * number in %rsi (by `mov N(%rsp), %rsi`, moves of other registers and a call) to a function whose code is `arch` below. */
static int number_on_stack(uint64_t pc, uint64_t sp) {
    static const uint8_t arch[] = {0x48, 0x89, 0xf0, 0x48, 0x89, 0xd7, 0x48, 0x89, 0xce, 0x4c, 0x89,
                                   0xc2, 0x4d, 0x89, 0xca, 0x4c, 0x8b, 0x44, 0x24, 0x08, 0x4c, 0x8b,
                                   0x4c, 0x24, 0x10, 0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05};
    uint8_t code[sizeof arch];
    const uint8_t *at = code + sizeof code - 7;
    uint64_t from;
    if (memory_read_self(pc - sizeof code, code, sizeof code))
        return -1;
    if (!memcmp(at, "\x48\x8b\x44\x24", 4))
        return number_at(sp + at[4]);
    if (memcmp(code, arch, sizeof arch) || memory_read_self(sp, &from, sizeof from) ||
        memory_read_self(from - sizeof code, code, sizeof code))
        return -1;
    at = code + sizeof code - 5;
    if (*at != 0xe8)
        return -1;
    while (at - code >= 8 && (at[-3] & 0xfa) == 0x48 && at[-2] == 0x89 && at[-1] >= 0xc0 &&
           (at[-3] & 1 || ((at[-1] & 7) != 4 && (at[-1] & 7) != 6))) /* not to rsp, rsi */
        at -= 3;
    return memcmp(at - 5, "\x48\x8b\x74\x24", 4) ? -1 : number_at(sp + 8 + at[-1]);
}

/* Returns the number of the system call that returns to `pc`, or -1: not known. The kernel does not tell it, but the code before `pc` does:
 * `mov $number, %eax` (or `xor %eax, %eax`), at most a load of an argument, `syscall`. */
static int call_number(uint64_t pc, uint64_t sp) {
    uint8_t code[20];
    const uint8_t *at = code + sizeof code - 2;
    int number = number_on_stack(pc, sp);
    if (number >= 0)
        return number;
    if (memory_read_self(pc - sizeof code, code, sizeof code) || at[0] != 0x0f || at[1] != 0x05)
        return -1;
    if (at[-2] == 0x31 && at[-1] == 0xc0)
        return SYS_read;
    for (at -= 5; at > code; at--)
        if (at[0] == 0xb8 && at[3] == 0 && at[4] == 0 && (at[-1] & 0xf0) != 0x40)
            return at[1] | at[2] << 8;
    return -1;
}

/* A write() to a pipe that waits for the reader returns early, with a short count, when a signal comes: `python -u` then loses the end of a long
 * line. So the rest of a write that our signal has cut short is written here, in pieces that a pipe with space takes without blocking. */
static void finish_write(ucontext_t *uc) {
    greg_t *r = uc->uc_mcontext.gregs;
    int fd = (int)r[REG_RDI];
    struct stat st;
    if (r[REG_RAX] <= 0 || r[REG_RAX] >= r[REG_RDX] || r[REG_RCX] != r[REG_RIP] ||
        call_number((uint64_t)r[REG_RIP], (uint64_t)r[REG_RSP]) != SYS_write || fstat(fd, &st) ||
        !S_ISFIFO(st.st_mode) || fcntl(fd, F_GETFL) & O_NONBLOCK)
        return;
    while (r[REG_RAX] < r[REG_RDX] && !others_wait(uc)) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        size_t left = (size_t)(r[REG_RDX] - r[REG_RAX]);
        if (syscall(SYS_poll, &p, 1, WRITE_MS) == 0) /* poll() is a cancellation point */
            continue;
        if (p.revents != POLLOUT)
            break;
        long n = syscall(SYS_write, fd, (const char *)r[REG_RSI] + r[REG_RAX],
                         left < PIPE_BUF ? left : PIPE_BUF);
        if (n <= 0)
            break;
        r[REG_RAX] += n;
    }
}

/* Some system calls return EINTR after a handler in spite of SA_RESTART (signal(7)), and C code may not expect that. A call that our signal has
 * interrupted is made again, as if it had not come: the arguments are still in the registers, the call has had no effect (a connect() goes on with what
 * it began), and it began just now (the sampler signals running threads), so its time-out may start anew. Not if another signal is pending, which must end it. */
static void call_again(ucontext_t *uc) {
    /* clang-format off */
    static const uint16_t calls[] = {
        SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pause, SYS_nanosleep, SYS_clock_nanosleep, SYS_futex,
        SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2,
        SYS_accept, SYS_accept4, SYS_connect, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg,
        SYS_recvmmsg, SYS_io_getevents, SYS_semop, SYS_semtimedop, SYS_msgsnd, SYS_msgrcv, SYS_rt_sigtimedwait, SYS_rt_sigsuspend,
    };
    /* clang-format on */
    greg_t *r = uc->uc_mcontext.gregs;
    if (r[REG_RAX] != -EINTR || r[REG_RCX] != r[REG_RIP]) /* where `syscall` leaves it */
        return;
    int number = call_number((uint64_t)r[REG_RIP], (uint64_t)r[REG_RSP]);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i] == number && !others_wait(uc)) {
            r[REG_RAX] = number;
            r[REG_RIP] -= 2;
        }
}

/* Handles a signal that we did not send. Its action was the default before we installed ours: restores the default and sends the signal again. */
static void pass_on(int signo) {
    sigset_t set;
    if (signo == SIGURG)
        return; /* ignored by default */
    signal(signo, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, signo);
    raise(signo);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static __attribute__((noinline)) void handle(int signo, struct request *s, void *uc) {
    int saved = errno;
    uint32_t nobody = 0, *inside = s && is_mine(s) ? &s->inside : &nobody;
    __atomic_store_n(inside, 1, __ATOMIC_RELAXED);
    struct handler *h = quiesce_enter(&g.active, &g.armed);
    if (s)
        answer(h, s, uc);
    else
        pass_on(signo);
    call_again(uc);
    quiesce_leave(&g.active);
    finish_write(uc); /* after quiesce_leave(): may take long */
    __atomic_store_n(inside, 0, __ATOMIC_RELAXED);
    errno = saved;
}

/* The signal handler. On a stack that is too small it calls nothing and tells the sampler, which loses the tick and then reads this thread from outside. */
static void on_signal(int signo, siginfo_t *si, void *uc) {
    uint64_t i = (uint64_t)(uintptr_t)si->si_value.sival_ptr - ((uint64_t)VALUE_MAGIC << 32);
    int ours = si->si_code == SI_QUEUE && si->si_pid == __atomic_load_n(&g.pid, __ATOMIC_RELAXED);
    uint32_t n = __atomic_load_n(&g.nrequests, __ATOMIC_ACQUIRE);
    struct request *s = ours && i < n ? g.requests[i] : NULL;
    /* When the user's limit of queued signals is reached (RLIMIT_SIGPENDING), the signal comes without the value that was sent. */
    for (i = si->si_code == SI_USER && !si->si_pid ? n : 0; i-- && !s;)
        if (is_mine(g.requests[i]) && __atomic_load_n(&g.requests[i]->queued, __ATOMIC_ACQUIRE))
            s = g.requests[i];
    if (handler_has_room(uc))
        handle(signo, s, uc);
    else if (s)
        __atomic_store_n(&s->narrow, 1, __ATOMIC_RELAXED);
}

static int is_ours(const struct sigaction *sa) {
    return (sa->sa_flags & SA_SIGINFO) && sa->sa_sigaction == on_signal;
}

/* Takes a signal that the program does not use: SIGURG, else the highest free real-time one. A signal that is pending when the target calls exec stays
 * pending, and meets the new program's default action: SIGURG is ignored, a real-time signal kills. Also, debuggers do not stop at SIGURG. */
static int install(void) {
    struct sigaction sa = {.sa_sigaction = on_signal,
                           /* The alternate stack where a thread has one: code that needs it (a
                            * foreign run-time's small stacks) has set it up for just this. */
                           .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    /* Block all signals except faults: see leave_signals(); and so no other handler can longjmp out of ours. */
    sigfillset(&sa.sa_mask);
    for (const char *fault = (const char[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL, 0}; *fault; fault++)
        sigdelset(&sa.sa_mask, *fault);
    for (int i = SIGRTMAX + 1; i >= SIGRTMIN; i--) {
        int signo = i > SIGRTMAX ? SIGURG : i;
        struct sigaction old;
        if (sigaction(signo, NULL, &old) ||
            (!is_ours(&old) && ((old.sa_flags & SA_SIGINFO) || old.sa_handler != SIG_DFL)) ||
            sigaction(signo, &sa, NULL))
            continue;
        __atomic_store_n(&g.signo, signo, __ATOMIC_RELEASE);
        return 0;
    }
    return -EBUSY;
}

int handler_arm(struct handler *h) {
    __atomic_store_n(&g.pid, getpid(), __ATOMIC_RELAXED);
    g.uid = getuid(); /* only passed on in siginfo: the kernel does not check it */
    g.nfree = 0;      /* all requests are free, those of an earlier sampler or the parent, too */
    for (uint32_t i = g.nrequests; i-- > 0;)
        g.free[g.nfree++] = i;
    int rc = install();
    if (!rc)
        quiesce_set(&g.armed, h);
    return rc;
}

void handler_disarm(void) {
    quiesce_set(&g.armed, NULL);
}

void handler_uninstall(void) {
    struct sigaction now, none = {.sa_handler = SIG_DFL};
    if (!g.signo || sigaction(g.signo, NULL, &now) || !is_ours(&now))
        return;
    /* A late SIGURG is ignored; a late real-time signal would kill. */
    for (uint32_t i = 0; g.signo != SIGURG && i < g.nrequests; i++)
        if (__atomic_load_n(&g.requests[i]->queued, __ATOMIC_ACQUIRE))
            return;
    sigaction(g.signo, &none, NULL);
}

void handler_after_fork(void) {
    handler_disarm();
    __atomic_store_n(&g.active, 0, __ATOMIC_RELEASE);
}

int handler_wait(int ms) {
    return quiesce_wait(&g.active, &ms);
}

int handler_check(void) {
    struct sigaction now;
    return !sigaction(g.signo, NULL, &now) && is_ours(&now) ? 0 : install();
}

int handler_signo(void) {
    return __atomic_load_n(&g.signo, __ATOMIC_ACQUIRE);
}

/* ---- requests ---- */

struct request *request_new(uint32_t tid, uint64_t ident) {
    struct request *s;
    if (g.nfree) {
        s = g.requests[g.free[--g.nfree]];
    } else {
        uint32_t n = g.nrequests;
        if (n == HANDLER_REQUESTS || !(s = sys_pages(sizeof *s)))
            return NULL;
        s->index = n;
        g.requests[n] = s;
        __atomic_store_n(&g.nrequests, n + 1, __ATOMIC_RELEASE);
    }
    s->tid = tid;
    s->ring = NULL;
    __atomic_store_n(&s->narrow, 0, __ATOMIC_RELAXED);
    s->cpu_base = 0;
    s->interp = 0;
    memset(s->states, 0, sizeof s->states);
    guard_forget(&s->guard);
    /* A memo of an earlier recording may refer to other modules under the same generation. */
    unwind_forget(&s->memo);
    __atomic_store_n(&s->queued, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&s->state, REQUEST_IDLE, __ATOMIC_RELAXED);
    __atomic_store_n(&s->ident, ident, __ATOMIC_RELEASE); /* a late signal finds all of the above */
    return s;
}

void request_free(struct request *s) {
    __atomic_store_n(&s->ident, 0, __ATOMIC_RELAXED);
    if (s->ring)
        live_ring_orphan(s->ring);
    s->ring = NULL;
    g.free[g.nfree++] = s->index;
}

int handler_post(struct request *s) {
    __atomic_store_n(&s->state, REQUEST_POSTED, __ATOMIC_RELEASE);
    if (__atomic_exchange_n(&s->queued, 1, __ATOMIC_ACQ_REL))
        return 0;
    siginfo_t si;
    memset(&si, 0, sizeof si);
    si.si_signo = g.signo;
    si.si_code = SI_QUEUE;
    si.si_pid = g.pid;
    si.si_uid = g.uid;
    si.si_value.sival_ptr = (void *)(uintptr_t)((uint64_t)VALUE_MAGIC << 32 | s->index);
    if (syscall(SYS_rt_tgsigqueueinfo, g.pid, s->tid, g.signo, &si) == 0)
        return 0;
    int rc = -errno;
    __atomic_store_n(&s->queued, 0, __ATOMIC_RELAXED);
    sys_swap(&s->state, REQUEST_POSTED, REQUEST_IDLE);
    return rc;
}

void handler_unpend(struct request *s) {
    /* Setting the action to ignore discards a pending signal, blocked or not; so does a default action that ignores. */
    struct sigaction ours, none = {.sa_handler = g.signo == SIGURG ? SIG_DFL : SIG_IGN};
    if (sigaction(g.signo, NULL, &ours) || !is_ours(&ours))
        return;
    sigaction(g.signo, &none, NULL);
    sigaction(g.signo, &ours, NULL);
    __atomic_store_n(&s->queued, 0, __ATOMIC_RELEASE);
}

int handler_withdraw(struct request *s) {
    uint32_t was = sys_swap(&s->state, REQUEST_POSTED, REQUEST_IDLE);
    return was == REQUEST_POSTED ? 1 : was == REQUEST_BUSY ? -EBUSY : 0;
}
