/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mailbox.c - the agent's side of the live file's mailbox: what each kind of request does.
 *
 * What it does not know is offered to the parts (part.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/core/part.h"
#include "agent/core/settings.h"
#include "agent/core/state.h"

static void reply_text(struct live *l, int status, const char *text) {
    live_mail_reply(l, status, text, strlen(text));
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

int mailbox_serve(struct agent *a) {
    struct live *l = writer_live(a->writer);
    enum mail_kind kind;
    const char *request;
    size_t len;
    int err, taken = 0;
    a->asked = 0;
    PARTS_SUM(a->asked, attend, l);
    if (!live_mail_take(l, &kind, &request, &len))
        return 0;
    switch (kind) {
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
    default:
        break;
    }
    PARTS_SUM(taken, request, l, kind, request, len);
    if (!taken)
        reply_text(l, -ENOTSUP, "unknown request");
    return 0;
}

void mailbox_stopped(struct live *l, int asked) {
    enum mail_kind kind;
    const char *request;
    size_t len;
    int open = 0;
    PARTS_SUM(open, ended, l);
    if (open) {
        reply_text(l, -ESHUTDOWN, "the recording has ended");
    } else if (asked) {
        reply_text(l, 0, "");
    }
    if (live_mail_take(l, &kind, &request, &len))
        reply_text(l, -ESHUTDOWN, "the recording has ended");
}
