/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples a running thread that must not be signalled because it blocks the signal. There the signal would stay pending until the thread takes it by
 * sigwait(), a signalfd or sigpending(), and the program would see a signal that it does not expect. So a thread's mask is read just before each
 * signal (0.7 us); a thread seen to block it gets none for a while; if a thread has blocked it in between, the signal is discarded (handler_unpend).
 *
 * The thread's Python frames are read from outside while it runs. The inner frames may have been read at an earlier time than the outer ones, so a
 * reading counts only if two more readings find the same frames. Where calls end too soon for that (some us), the sample is the frames around them.
 */
#include <signal.h>

#include "agent/sampler/sampler_threads.h"

#define FDS_KEPT   400u     /* most threads whose files stay open, in our own fd table */
#define OWN_NS     2000000u /* a thread that runs longer with our handler's mask has set it */
#define BIT(signo) (1ull << ((signo)-1))
#define MASK_SHOWN 0x7fffffffull /* signals that /proc/PID/stat shows; those our handler blocks: */
#define MASK_OWN                                                                                   \
    (MASK_SHOWN &                                                                                  \
     ~(BIT(SIGILL) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGSEGV) | BIT(SIGKILL) | BIT(SIGSTOP)))
#define TRIES 4 /* tries of three readings each; one reading takes up to 2 * TRIES tries */

size_t sampled_read(struct sampler_table *s, struct sampled *t, enum sampled_file file, char *text,
                    size_t size) {
    static const char *const names[SAMPLED_FILES] = {"syscall", "stat", "status", "schedstat"};
    int fd = t->fd[file] ? t->fd[file] - 1 : sampled_open(t->tid, names[file]);
    ssize_t n = fd >= 0 ? pread(fd, text, size - 1, 0) : -1;
    t->fd[file] = 0;
    if (s->private_files && s->n <= FDS_KEPT && file <= SAMPLED_STAT && n > 0)
        t->fd[file] = fd + 1;
    else if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

void sampled_close(struct sampled *t) {
    for (int i = 0; i < SAMPLED_FILES; i++)
        if (t->fd[i])
            close(t->fd[i] - 1);
    memset(t->fd, 0, sizeof t->fd);
}

static uint64_t signal_set(const char *text, const char *name) {
    const char *line = strstr(text, name);
    return line ? strtoull(line + strlen(name), NULL, 16) : 0;
}

unsigned sampled_signals(struct sampler_table *s, struct sampled *t) {
    char text[4096];
    int signo = handler_signo();
    uint64_t bit = 1ull << (signo - 1), pending, blocked, cpu;
    const char *state;
    uint32_t *in = &t->request->inside, queued, ours = __atomic_load_n(in, __ATOMIC_RELAXED);
    if (signo >= 31) { /* `stat` does not show real-time signals */
        sampled_read(s, t, SAMPLED_STATUS, text, sizeof text);
        state = strstr(text, "\nState:\t");
        state += state ? 8 : 0;
        pending = signal_set(text, "\nSigPnd:");
        blocked = signal_set(text, "\nSigBlk:");
    } else {
        sampled_read(s, t, SAMPLED_STAT, text, sizeof text);
        state = proc_stat_field(text, 3);
        char *p = proc_stat_field(text, 31);
        pending = p ? strtoull(p, &p, 10) : bit;
        blocked = p ? strtoull(p, NULL, 10) : 0;
    }
    if (!state) { /* nobody knows what it blocks */
        t->shut += !t->shut && !sampled_cpu(t, &cpu);
        return SAMPLED_PENDING;
    }
    /* The mask is our handler's. No code of the program will find the signal pending while the thread is in the handler, or (the kernel has
     * taken the signal, but `queued` is still set) on the way into it: it may lose its CPU there, or write to a pipe for long. */
    if ((blocked & MASK_SHOWN) == MASK_OWN) {
        queued = __atomic_load_n(&t->request->queued, __ATOMIC_ACQUIRE);
        ours |= __atomic_load_n(in, __ATOMIC_RELAXED) || (queued && !(pending & bit));
        t->stranger |= !ours && queued && !sampled_cpu(t, &cpu) && cpu > t->request->cpu + OWN_NS;
        blocked = t->stranger && !ours ? blocked : 0;
    }
    /* A thread that waits (for the GIL or a CPU) may not block the signal in several checks, and block it once it runs: each such error adds checks. */
    if (blocked & bit || __atomic_exchange_n(&t->request->narrow, 0, __ATOMIC_RELAXED)) {
        t->wary += (!t->shut || !t->wary) && t->wary < SHUT_NARROW ? t->wary + SHUT_CHECKS : 0;
        t->shut = blocked & bit ? t->wary : SHUT_NARROW;
    } else if (t->shut && !sampled_cpu(t, &cpu) && cpu - t->open > s->period / 2) {
        t->open = cpu;
        t->shut--;
    }
    return (pending & bit ? SAMPLED_PENDING : 0) | (blocked & bit ? SAMPLED_BLOCKED : 0) |
           (*state != 'R' && !s->coarse ? SAMPLED_ASLEEP : 0);
}

struct reading {
    struct sampler_table *s;
    struct sampled *t;
    uint32_t same; /* how many of s->capture's frames, outermost first, the next reading found */
};

static int walk(const struct reading *r, struct pywalk_frame *frames, int *cut) {
    int n = -EAGAIN;
    for (int i = 0; i < 2 * TRIES && n <= 0; i++) {
        pywalk_pages_forget(&r->s->pages);
        n = pywalk_frames(&r->s->pw, r->t->tstate, frames, CAPTURE_FRAMES, cut);
    }
    return n;
}

/* Returns whether s->capture's frames are still on the stack, and the innermost frame's code object has not been replaced. */
static int same_again(void *ctx) {
    struct reading *r = ctx;
    struct sampler_table *s = r->s;
    const struct capture *c = &s->capture;
    uint64_t before = 0, now = 0;
    int cut;
    r->same = 0;
    int rc = pywalk_code_identity(&s->pw, c->frames[0].code, &before);
    int n = walk(r, s->again, &cut);
    const struct pywalk_frame *a = c->frames + c->nframes, *b = s->again + (n > 0 ? n : 0);
    while (a > c->frames && b > s->again && (--a)->frame == (--b)->frame && a->code == b->code) {
        r->same++;
        if (a->lasti != b->lasti) /* this frame has continued: what it called is gone */
            break;
    }
    return !rc && r->same == c->nframes && !pywalk_code_identity(&s->pw, c->frames[0].code, &now) &&
           now == before;
}

unsigned sampled_flags(struct sampler_table *s, const struct sampled *t) {
    return SAMPLE_ON_CPU | SAMPLE_OUTSIDE | (pywalk_holds_gil(&s->pw, t->states) ? SAMPLE_GIL : 0);
}

void sampled_read_running(struct sampler_table *s, struct sampled *t, uint64_t ts, uint64_t n,
                          uint64_t cpu) {
    struct capture *c = &s->capture;
    struct reading r = {.s = s, .t = t};
    struct capture_check check = {same_again, &r};
    uint64_t key = 0;
    int rc = -EAGAIN;
    for (int left = TRIES; left-- && rc && rc != -ENOBUFS;) {
        key = c->npcs = 0; /* an earlier try's stack may not be in the trace */
        c->frames_cut = c->pcs_cut = 0;
        if ((rc = walk(&r, c->frames, &c->frames_cut)) <= 0)
            continue; /* 0: the thread begins or ends, its sample has no stack */
        c->nframes = (uint32_t)rc;
        rc = -EAGAIN;
        if (same_again(&r)) /* capture_store() checks it once more */
            rc = capture_store(c, &s->dict, &s->pw, s->ring, &check, &key);
        if (rc && rc != -ENOBUFS && left < 2 && (same_again(&r), r.same)) {
            /* The innermost calls are too short: take the frames around them. */
            memmove(c->frames, c->frames + c->nframes - r.same, r.same * sizeof *c->frames);
            c->nframes = r.same;
            rc = capture_store(c, &s->dict, &s->pw, s->ring, &check, &key);
        }
    }
    t->settled = 0;
    sampled_flush(s, t);
    if (rc) {
        if (rc != -ENOBUFS)
            live_lose(s->live, TRACE_LOST_torn, n);
        return;
    }
    request_record(t->request, s->live, s->ring, ts, key, 0, request_take_cpu(t->request, cpu), n,
                   sampled_flags(s, t));
}
