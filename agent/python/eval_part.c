/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eval_part.c - evaluations asked for through the mailbox, one at a time. Each runs on its own thread (eval.h) and is
 * answered when it ends; when its client has left, the mailbox is freed for the next one and the late result is thrown away.
 */
#include <errno.h>
#include <string.h>

#include "agent/python/eval.h"
#include "agent/python/python_part.h"

static struct eval *current; /* the evaluation in progress, or NULL */
static uint32_t client;      /* whose it is: live->mail.lock at its start */

static void reply_text(struct live *l, int status, const char *text) {
    live_mail_reply(l, status, text, strlen(text));
}

/* MAIL_EVAL is source alone, MAIL_ASK has a line of options before it. */
static int start(struct live *l, enum mail_kind kind, const char *source, size_t len) {
    char options[EVAL_OPTIONS] = "eval";
    int err = 0;
    if (kind != MAIL_EVAL && kind != MAIL_ASK)
        return 0;
    if (kind == MAIL_ASK) {
        const char *end = memchr(source, '\n', len);
        size_t n = end ? (size_t)(end - source) : len;
        if (!end || n >= sizeof options) {
            reply_text(l, -EINVAL, "want a line of options");
            return 1;
        }
        memcpy(options, source, n);
        options[n] = 0;
        source = end + 1;
        len -= n + 1;
    }
    __atomic_store_n(&l->mail_cancel, 0, __ATOMIC_RELEASE);
    err = eval_start(&current, options, source, len);
    client = __atomic_load_n(&l->mail.lock, __ATOMIC_ACQUIRE);
    if (err == -EBUSY)
        reply_text(l, err, "earlier evaluations still wait for the interpreter (GIL)");
    else if (err)
        reply_text(l, err, "no thread could be started for the evaluation");
    return 1;
}

static int serve(struct live *l) {
    const char *reply;
    size_t n;
    if (!current)
        return 0;
    if (eval_done(current)) {
        int status = eval_status(current, &reply, &n);
        live_mail_reply(l, status, reply, n);
        eval_free(current);
        current = NULL;
    } else if (__atomic_load_n(&l->mail.lock, __ATOMIC_ACQUIRE) != client) {
        eval_interrupt(current); /* the client has left */
        eval_free(current);
        current = NULL;
        reply_text(l, -ETIMEDOUT, "");
    } else if (__atomic_exchange_n(&l->mail_cancel, 0, __ATOMIC_ACQ_REL)) {
        eval_interrupt(current);
    }
    return current != NULL;
}

static int ended(struct live *l) {
    int was = current != NULL;
    (void)l;
    if (was)
        eval_free(current);
    current = NULL;
    return was;
}

static void child(int whole) {
    (void)whole;
    current = NULL;
    eval_after_fork();
}

const struct agent_part eval_part = {
    .name = "eval",
    .child = child,
    .request = start,
    .attend = serve,
    .ended = ended,
};
