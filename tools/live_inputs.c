/* SPDX-License-Identifier: Apache-2.0 */
#include "live_inputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "../writer/writer.h"
#include "cause.h"
#include "common.h"
#include "complete.h"
#include "host_pid.h"
#include "live_scan.h"
#include "progress.h"

#define FLUSH_MS  1000 /* how long a recorded process gets to write out what it has */
#define FINISH_MS 5000 /* how long we wait for a program that completes a dead one's trace */

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
    struct complete complete; /* adds symbols to the traces that were completed here */
    int begun;
};

/* Completes a trace. If another program is doing so (probing-record, another question) it waits for that: until then the trace may lack nearly all. */
static int finish(const char *path, int signal, struct writer_finished *done) {
    int rc;

    for (int left = FINISH_MS / 5;; left--) {
        rc = cause_finish(path, signal, done);
        if ((rc != -EAGAIN && rc != -EBUSY) || left == 0)
            return rc;
        sys_sleep(5 * SYS_MS);
    }
}

/* Completes the trace of a process that died, from its live file. */
static void complete(struct work *w, const struct live_seen *seen, const struct input *input) {
    static struct writer_finished done; /* static, as it is large: it holds a path */
    int pid = host_pid(seen->l), signal = cause_signal(pid);
    int rc = finish(seen->path, signal, &done);

    if (rc == -EAGAIN || rc == -EBUSY)
        tool_say("%s: another program is still completing it: its last moments may be missing",
                 input->path);
    else if (rc < 0 && rc != -ENOENT)
        tool_say("%s: what its process had not written yet cannot be added: %s", input->path,
                 strerror(-rc));
    if (rc == 0) {
        char why[CAUSE_TEXT];
        if (cause_find(done.trace_path, pid, seen->l->start_mono, signal, why))
            complete_fact(done.trace_path, "end", "cause", why);
        if (!w->begun++)
            complete_begin(&w->complete);
        complete_ended(&w->complete, input->path);
    }
}

/* Says, of one process, that its answer lacks what it could not write out. */
static void say_late(int pid, const char *why) {
    static int said;

    if (!said++)
        tool_say("process %d %s: what it recorded in its last moments is missing here", pid, why);
}

/* Asks the process to write out its records. Returns 1 if it died instead. */
static int flush(const char *path, int pid) {
    struct live *l;
    int status, rc, dead;
    char reply[1];
    size_t len;

    if (live_open(&l, path, 1) != 0)
        return 0;
    rc = live_watch(l);
    if (rc == 0)
        rc = live_mail_call(l, MAIL_FLUSH, NULL, 0, FLUSH_MS, &status, reply, sizeof reply, &len);
    dead = rc < 0 && !live_process_alive(l);
    if ((rc == -ETIMEDOUT || rc == -EBUSY) && !dead)
        say_late(pid, "did not write out its records in time");
    live_unwatch(l);
    live_close(l);
    return dead;
}

static int each_live(const struct live_seen *seen, void *arg) {
    struct work *w = arg;
    struct input *input = seen->l ? find(w->in, seen->l->trace_path) : NULL;

    if (progress_stopped()) /* of many processes, each may take FLUSH_MS */
        return 1;
    if (!input)
        return 0;
    int pid = host_pid(seen->l), alive = live_seen_alive(seen);
    int is_stopped = alive && live_seen_stopped(seen);
    if (is_stopped)
        say_late(pid, "is stopped");
    input->recording = alive && (is_stopped || !flush(seen->path, pid));
    if (!input->recording)
        complete(w, seen, input);
    return 0;
}

void live_inputs(struct inputs *in) {
    struct work w = {.in = in};

    live_scan(each_live, &w);
    if (w.begun)
        complete_end(&w.complete);
}
