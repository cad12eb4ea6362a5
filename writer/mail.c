/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mail.c - the mailbox of the live file: client and agent side, declared in live.h.
 *
 *     client: lock, IDLE/DONE -> POSTED         TAKEN -> DONE: agent
 *     agent:  POSTED -> TAKEN                   POSTED -> IDLE: client gave up before it was taken
 *
 * A client that gives up while its request is TAKEN releases the lock; the next client waits for
 * DONE before it fills in its own request, so a late reply is never taken for that of another request.
 */
#include <signal.h>

#include "live.h"

#define GRACE_NS SYS_SECOND     /* time for interrupted code to end */
#define CHECK_NS (100 * SYS_MS) /* interval of the checks whether the process still exists */

static uint32_t interrupts; /* (a) how often the user interrupted, during the call or before it */

/* Takes the lock; waits for other clients, but not for dead ones. Returns 0, -EBUSY at the deadline, -EINTR or -ESRCH. */
static int take_lock(struct live *l, uint32_t me, uint64_t deadline) {
    uint32_t *lock = &l->mail.lock, holder;

    while ((holder = sys_swap(lock, 0, me))) {
        uint64_t now = sys_now();
        if (kill((pid_t)holder, 0) < 0 && errno == ESRCH && sys_swap(lock, holder, me) == holder)
            break;
        if (now >= deadline)
            return -EBUSY;
        if (__atomic_load_n(&interrupts, __ATOMIC_RELAXED))
            return -EINTR;
        if (!live_process_alive(l))
            return -ESRCH;
        sys_wait(lock, holder, now + CHECK_NS < deadline ? now + CHECK_NS : deadline);
    }
    return 0;
}

static void wake(struct live *l) {
    __atomic_fetch_add(&l->wake, 1, __ATOMIC_RELEASE);
    sys_wake(&l->wake);
}

static void cancel(struct live *l) {
    __atomic_store_n(&l->mail_cancel, 1, __ATOMIC_RELEASE);
    wake(l);
}

/* Waits while the state is `a` or `b`, until `deadline`. Returns 0, -ETIMEDOUT, -ECANCELED or -ESRCH. */
static int wait_while(struct live *l, uint32_t a, uint32_t b, uint64_t deadline) {
    for (int waited = 0;; waited = 1) { /* the caller has just seen the process alive */
        uint32_t s = __atomic_load_n(&l->mail.state, __ATOMIC_ACQUIRE);
        if (s != a && s != b)
            return 0;
        if (waited && !live_process_alive(l))
            return -ESRCH;
        uint64_t now = sys_now();
        if (now >= deadline)
            return -ETIMEDOUT;
        if (__atomic_load_n(&interrupts, __ATOMIC_RELAXED) > 1)
            return -ECANCELED;
        sys_wait(&l->mail.state, s, now + CHECK_NS < deadline ? now + CHECK_NS : deadline);
    }
}

int live_mail_call(struct live *l, enum mail_kind kind, const char *request, size_t len,
                   int timeout_ms, int *status, char *reply, size_t n, size_t *reply_len) {
    struct live_mail *m = &l->mail;
    uint64_t deadline = sys_now() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * SYS_MS;
    int rc, late = 0;

    if (len > LIVE_MAIL)
        return -EMSGSIZE;
    if (!live_process_alive(l))
        return -ESRCH;
    rc = take_lock(l, (uint32_t)getpid(), deadline);
    if (rc)
        return rc;
    /* A dead client may have left a request that nobody has taken: replace it. */
    sys_swap(&m->state, MAIL_POSTED, MAIL_IDLE);
    rc = wait_while(l, MAIL_TAKEN, MAIL_TAKEN, deadline);
    if (rc)
        goto out;
    m->kind = kind;
    m->request_len = (uint32_t)len;
    if (len)
        memcpy(m->request, request, len);
    m->reply_len = 0;
    /* Drop an interruption of an earlier request; those since the user's request are for this one. */
    __atomic_store_n(&l->mail_cancel, 0, __ATOMIC_RELEASE);
    if (__atomic_load_n(&interrupts, __ATOMIC_SEQ_CST))
        cancel(l);
    __atomic_store_n(&m->state, MAIL_POSTED, __ATOMIC_RELEASE);
    wake(l);
    rc = wait_while(l, MAIL_POSTED, MAIL_TAKEN, deadline);
    if (rc == -ETIMEDOUT && (kind == MAIL_EVAL || kind == MAIL_ASK)) {
        cancel(l); /* for the sake of what it has printed */
        rc = wait_while(l, MAIL_TAKEN, MAIL_TAKEN, deadline + GRACE_NS);
        late = rc == 0 && __atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == MAIL_DONE;
        rc = late || rc ? rc : -ETIMEDOUT;
    }
    /* Withdraw it, unless it has just been taken. */
    if ((rc == -ETIMEDOUT || rc == -ECANCELED) &&
        sys_swap(&m->state, MAIL_POSTED, MAIL_IDLE) == MAIL_DONE)
        rc = 0;
    if (rc)
        goto out;
    size_t got = __atomic_load_n(&m->reply_len, __ATOMIC_RELAXED); /* once, as the agent owns it */
    got = got > LIVE_MAIL ? LIVE_MAIL : got;
    *status = m->status;
    *reply_len = got;
    got = got > n - 1 ? n - 1 : got;
    memcpy(reply, m->reply, got);
    reply[got] = '\0';
out:
    __atomic_store_n(&m->lock, 0, __ATOMIC_RELEASE);
    sys_wake(&m->lock);
    if (rc == -ETIMEDOUT || rc == -ECANCELED) { /* tells the agent that nobody waits any more */
        wake(l);
        /* Until it knows, it could take our next call for this one. */
        wait_while(l, MAIL_TAKEN, MAIL_TAKEN, sys_now() + CHECK_NS);
    }
    return rc ? rc : late;
}

void live_mail_interrupt(struct live *l) {
    __atomic_fetch_add(&interrupts, 1, __ATOMIC_SEQ_CST);
    if (l && __atomic_load_n(&l->mail.lock, __ATOMIC_SEQ_CST) == (uint32_t)getpid())
        cancel(l); /* else ours still waits for another client's request to end */
}

void live_mail_forget(void) {
    __atomic_store_n(&interrupts, 0, __ATOMIC_RELAXED);
}

int live_mail_take(struct live *l, enum mail_kind *kind, const char **request, size_t *len) {
    struct live_mail *m = &l->mail;
    if (sys_swap(&m->state, MAIL_POSTED, MAIL_TAKEN) != MAIL_POSTED)
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
    sys_wake(&m->state);
}
