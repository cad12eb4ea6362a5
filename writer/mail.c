/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mail.c - the mailbox of the live file: client and agent side, declared in live.h.
 *
 *     client: lock, IDLE/DONE -> POSTED         TAKEN -> DONE: agent
 *     agent:  POSTED -> TAKEN                   POSTED -> IDLE: client gave up before it was taken
 *
 * A client that gives up while its request is TAKEN lets go of the lock; the next one waits for
 * DONE before it fills in its own, so a late reply is never taken for another's.
 */
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "live.h"

static void futex_wake(uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static void futex_wait(uint32_t *word, uint32_t value, int ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int take_lock(struct live_mail *m, uint32_t me) {
    uint32_t holder = 0;
    if (__atomic_compare_exchange_n(&m->lock, &holder, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return 0;
    if (kill((pid_t)holder, 0) == 0 || errno != ESRCH)
        return -EBUSY;
    return __atomic_compare_exchange_n(&m->lock, &holder, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
               ? 0
               : -EBUSY;
}

#define GRACE_MS 1000 /* for code that is interrupted to end */

static uint32_t interrupts; /* (a) by the user, during the call */

static void cancel(struct live *l) {
    __atomic_store_n(&l->mail_cancel, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&l->wake, 1, __ATOMIC_RELEASE);
    futex_wake(&l->wake);
}

/* Waits while the state is `a` or `b`, until `deadline`. 0, -ETIMEDOUT, -ECANCELED or -ESRCH. */
static int wait_while(struct live *l, uint32_t a, uint32_t b, int64_t deadline) {
    for (;;) {
        uint32_t s = __atomic_load_n(&l->mail.state, __ATOMIC_ACQUIRE);
        if (s != a && s != b)
            return 0;
        if (!live_process_alive(l))
            return -ESRCH;
        int64_t left = deadline - now_ms();
        if (left <= 0)
            return -ETIMEDOUT;
        if (__atomic_load_n(&interrupts, __ATOMIC_RELAXED) > 1)
            return -ECANCELED;
        futex_wait(&l->mail.state, s, left < 100 ? (int)left : 100);
    }
}

int live_mail_call(struct live *l, enum mail_kind kind, const char *request, size_t len,
                   int timeout_ms, int *status, char *reply, size_t n, size_t *reply_len) {
    struct live_mail *m = &l->mail;
    int64_t deadline = now_ms() + timeout_ms;
    int rc, late = 0;

    __atomic_store_n(&interrupts, 0, __ATOMIC_RELAXED);
    if (len > LIVE_MAIL)
        return -E2BIG;
    if (!live_process_alive(l))
        return -ESRCH;
    rc = take_lock(m, (uint32_t)getpid());
    if (rc)
        return rc;
    /* A dead client may have left a request that nobody has taken: it is ours to replace. */
    uint32_t posted = MAIL_POSTED;
    __atomic_compare_exchange_n(&m->state, &posted, MAIL_IDLE, 0, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
    rc = wait_while(l, MAIL_TAKEN, MAIL_TAKEN, deadline);
    if (rc)
        goto out;
    m->kind = kind;
    m->request_len = (uint32_t)len;
    if (len)
        memcpy(m->request, request, len);
    m->reply_len = 0;
    __atomic_store_n(&m->state, MAIL_POSTED, __ATOMIC_RELEASE);
    __atomic_fetch_add(&l->wake, 1, __ATOMIC_RELEASE);
    futex_wake(&l->wake);
    rc = wait_while(l, MAIL_POSTED, MAIL_TAKEN, deadline);
    if (rc == -ETIMEDOUT && (kind == MAIL_EVAL || kind == MAIL_ASK)) {
        cancel(l); /* what it has printed is worth having */
        rc = wait_while(l, MAIL_TAKEN, MAIL_TAKEN, deadline + GRACE_MS);
        late = rc == 0 && __atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == MAIL_DONE;
        rc = late || rc ? rc : -ETIMEDOUT;
    }
    if (rc == -ETIMEDOUT ||
        rc == -ECANCELED) { /* withdraw it, unless it was taken at this very moment */
        posted = MAIL_POSTED;
        if (!__atomic_compare_exchange_n(&m->state, &posted, MAIL_IDLE, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE) &&
            posted == MAIL_DONE)
            rc = 0;
    }
    if (rc)
        goto out;
    size_t got = __atomic_load_n(&m->reply_len, __ATOMIC_RELAXED); /* once: it is somebody else's */
    if (got > LIVE_MAIL)
        got = LIVE_MAIL;
    if (status)
        *status = m->status;
    if (reply_len)
        *reply_len = got;
    if (n) {
        if (got > n - 1)
            got = n - 1;
        memcpy(reply, m->reply, got);
        reply[got] = '\0';
    }
out:
    __atomic_store_n(&m->lock, 0, __ATOMIC_RELEASE);
    if (rc == -ETIMEDOUT || rc == -ECANCELED) { /* the agent is to see that nobody waits any more */
        __atomic_fetch_add(&l->wake, 1, __ATOMIC_RELEASE);
        futex_wake(&l->wake);
    }
    return rc ? rc : late;
}

void live_mail_interrupt(struct live *l) {
    __atomic_fetch_add(&interrupts, 1, __ATOMIC_RELAXED);
    cancel(l);
}

int live_mail_take(struct live *l, enum mail_kind *kind, const char **request, size_t *len) {
    struct live_mail *m = &l->mail;
    uint32_t posted = MAIL_POSTED;
    if (!__atomic_compare_exchange_n(&m->state, &posted, MAIL_TAKEN, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return 0;
    *kind = (enum mail_kind)m->kind;
    *request = m->request;
    *len = __atomic_load_n(&m->request_len, __ATOMIC_RELAXED);
    if (*len > LIVE_MAIL)
        *len = LIVE_MAIL;
    return 1;
}

void live_mail_reply(struct live *l, int status, const char *reply, size_t n) {
    struct live_mail *m = &l->mail;
    if (n > LIVE_MAIL)
        n = LIVE_MAIL;
    if (n)
        memcpy(m->reply, reply, n);
    m->reply_len = (uint32_t)n;
    m->status = status;
    __atomic_store_n(&m->state, MAIL_DONE, __ATOMIC_RELEASE);
    futex_wake(&m->state);
}
