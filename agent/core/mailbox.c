/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mailbox.c - the agent's side of the live file's mailbox: what each kind of request does.
 *
 * All but an evaluation is answered at once. An evaluation runs on its own thread (eval.h) and is
 * answered when it ends; when its client has left, the mailbox is freed for the next one and
 * the late result is thrown away.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/core/settings.h"
#include "agent/core/state.h"
#include "agent/python/eval.h"

static void reply_text(struct live *l, int status, const char *text) {
    live_mail_reply(l, status, text, strlen(text));
}

/* MAIL_EVAL is source alone, MAIL_ASK has a line of options before it. */
static void start_eval(struct agent *a, struct live *l, int kind, const char *source, size_t len) {
    char options[EVAL_OPTIONS] = "eval";
    int err = 0;
    if (kind == MAIL_ASK) {
        const char *end = memchr(source, '\n', len);
        size_t n = end ? (size_t)(end - source) : len;
        if (!end || n >= sizeof options) {
            reply_text(l, -EINVAL, "want a line of options");
            return;
        }
        memcpy(options, source, n);
        options[n] = 0;
        source = end + 1;
        len -= n + 1;
    }
    __atomic_store_n(&l->mail_cancel, 0, __ATOMIC_RELEASE);
    err = eval_start(&a->eval, options, source, len);
    a->eval_client = __atomic_load_n(&l->mail.lock, __ATOMIC_ACQUIRE);
    if (err == -EBUSY)
        reply_text(l, err, "earlier evaluations still wait for the interpreter (GIL)");
    else if (err)
        reply_text(l, err, "no thread could be started for the evaluation");
}

/* key=value changes a setting, and has taken effect when the reply comes; an empty request asks for all of them. */
static void change_config(struct agent *a, struct live *l, const char *request, size_t len) {
    char text[SETTING_ENV + SETTING_TEXT_MAX], why[SETTING_WHY] = "", *value;
    char *all = len ? NULL : malloc(LIVE_MAIL);
    int err;
    if (all) {
        size_t n = settings_json(all, LIVE_MAIL);
        live_mail_reply(l, 0, all, n);
        free(all);
        return;
    }
    if (!len || len >= sizeof text) {
        reply_text(l, len ? -EINVAL : -ENOMEM, len ? "too long" : "no memory");
        return;
    }
    memcpy(text, request, len);
    text[len] = 0;
    value = strchr(text, '=');
    if (!value) {
        reply_text(l, -EINVAL, "want key=value");
        return;
    }
    *value++ = 0;
    err = settings_set(text, value, why, sizeof why);
    if (!err)
        settings_apply(a->writer, 0);
    reply_text(l, err ? -EINVAL : 0, why);
}

static void serve_eval(struct agent *a, struct live *l) {
    const char *reply;
    size_t n;
    if (eval_done(a->eval)) {
        int status = eval_status(a->eval, &reply, &n);
        live_mail_reply(l, status, reply, n);
        eval_free(a->eval);
        a->eval = NULL;
    } else if (__atomic_load_n(&l->mail.lock, __ATOMIC_ACQUIRE) != a->eval_client) {
        eval_interrupt(a->eval); /* the client has left */
        eval_free(a->eval);
        a->eval = NULL;
        reply_text(l, -ETIMEDOUT, "");
    } else if (__atomic_exchange_n(&l->mail_cancel, 0, __ATOMIC_ACQ_REL)) {
        eval_interrupt(a->eval);
    }
}

int mailbox_serve(struct agent *a) {
    struct live *l = writer_live(a->writer);
    enum mail_kind kind;
    const char *request;
    size_t len;
    int err;
    if (a->eval)
        serve_eval(a, l);
    if (!live_mail_take(l, &kind, &request, &len))
        return 0;
    switch (kind) {
    case MAIL_EVAL:
    case MAIL_ASK:
        start_eval(a, l, kind, request, len);
        return 0;
    case MAIL_STOP:
        return 1;
    case MAIL_FLUSH:
        err = writer_drain(a->writer, WRITER_FLUSH);
        reply_text(l, err, err ? strerrordesc_np(-err) : "");
        return 0;
    case MAIL_CONFIG:
        change_config(a, l, request, len);
        return 0;
    case MAIL_START:
        reply_text(l, -EALREADY, writer_trace_path(a->writer));
        return 0;
    }
    reply_text(l, -ENOTSUP, "unknown request");
    return 0;
}

void mailbox_stopped(struct agent *a, struct live *l, int asked) {
    enum mail_kind kind;
    const char *request;
    size_t len;
    if (a->eval) {
        eval_free(a->eval);
        a->eval = NULL;
        reply_text(l, -ESHUTDOWN, "the recording has ended");
    } else if (asked) {
        reply_text(l, 0, "");
    }
    if (live_mail_take(l, &kind, &request, &len))
        reply_text(l, -ESHUTDOWN, "the recording has ended");
}
