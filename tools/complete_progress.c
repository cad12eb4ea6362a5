/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete_progress.c - adds symbols to the traces that a command has just finished, and shows progress: declared in complete.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "complete.h"
#include "progress.h"

static struct progress progress; /* one is enough: a process runs one command */
static char *urls; /* DEBUGINFOD_URLS: symbols_new() unsets it, complete_end() sets it again */

static int tick(void *ctx) {
    const struct complete *c = ctx;
    char text[TOOL_TEXT];

    if (progress_due(&progress))
        progress_draw(&progress,
                      "looking up the names of native code, %s so far (Ctrl-C leaves them out)",
                      tool_count(c->addresses, text));
    return progress_stopped();
}

void complete_begin(struct complete *c) {
    progress_begin(&progress, 0);
    const char *set = getenv("DEBUGINFOD_URLS");
    urls = set ? strdup(set) : NULL;
    if (complete_init(c, 0, tick, c) < 0)
        c->error = -ENOMEM;
}

void complete_ended(struct complete *c, const char *path) {
    if (!c->symbols || c->error == -EINTR)
        return;
    int rc = complete_trace(c, path);
    /* No error: the trace is another user's, still written, or torn. It keeps what it has. */
    if (rc < 0 && rc != -EBUSY && rc != -EPERM && rc != -ENOTSUP && rc != -EBADMSG &&
        rc != -ENODATA && rc != -ENOMSG && !c->error)
        c->error = rc;
}

void complete_end(struct complete *c) {
    progress_end(&progress);
    if (c->error)
        tool_say("the names of native code are not in all traces: %s (probing pack adds them)",
                 c->error == -EINTR ? "stopped" : strerror(-c->error));
    complete_free(c);
    if (urls)
        setenv("DEBUGINFOD_URLS", urls, 1);
    free(urls);
    urls = NULL;
}
