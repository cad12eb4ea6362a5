/* SPDX-License-Identifier: Apache-2.0 */
#include "live_inputs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "../writer/writer.h"
#include "cause.h"
#include "common.h"
#include "complete.h"
#include "host_pid.h"
#include "live_scan.h"

#define FLUSH_MS 1000 /* how long a recorded process gets to write out what it has */

int live_inputs_add(struct inputs *in, char *const *paths, int n, unsigned flags) {
    int missing = 0;

    for (int i = 0; i < n; i++) {
        int err = inputs_add(in, paths[i], flags);
        if (!err)
            continue;
        missing = 1;
        tool_say("%s: %s", paths[i],
                 err == -ENODATA ? "a directory without traces (*.zst)" : strerror(-err));
    }
    return missing;
}

static struct input *find(struct inputs *in, const char *path) {
    struct stat st;

    if (stat(path, &st) < 0)
        return NULL;
    for (size_t i = 0; i < in->n; i++) {
        if (in->file[i].dev == st.st_dev && in->file[i].ino == st.st_ino)
            return &in->file[i];
    }
    return NULL;
}

struct work {
    struct inputs *in;
    struct complete complete; /* of what was finished here */
    int begun;
};

static int each_live(const struct live_seen *seen, void *arg) {
    static struct writer_finished done; /* holds a path: large */
    struct work *w = arg;
    struct input *input = seen->l ? find(w->in, seen->l->trace_path) : NULL;
    struct live *l;

    if (!input)
        return 0;
    if (!seen->alive) {
        int pid = host_pid(seen->l), signal = cause_signal(pid);
        uint64_t start = seen->l->start_mono;
        int rc = writer_finish(seen->path, "killed", signal, &done);
        /* Another finisher is at it, or has just been. */
        if (rc < 0 && rc != -EAGAIN && rc != -ENOENT)
            tool_say("%s: what its process had not written yet cannot be added: %s", input->path,
                     strerror(-rc));
        if (rc == 0) {
            char why[CAUSE_TEXT];
            if (cause_find(done.trace_path, pid, start, signal, why))
                complete_fact(done.trace_path, "end", "cause", why);
            if (!w->begun++)
                complete_begin(&w->complete);
            complete_ended(&w->complete, input->path);
        }
        return 0;
    }
    input->recording = 1;
    if (live_open(&l, seen->path, 1) == 0) {
        int status;
        size_t len;
        if (live_watch(l) == 0)
            live_mail_call(l, MAIL_FLUSH, NULL, 0, FLUSH_MS, &status, NULL, 0, &len);
        live_unwatch(l);
        live_close(l);
    }
    return 0;
}

void live_inputs(struct inputs *in) {
    struct work w = {.in = in};

    live_scan(each_live, &w);
    if (w.begun)
        complete_end(&w.complete);
}
