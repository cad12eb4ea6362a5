/* SPDX-License-Identifier: Apache-2.0 */
#include "live_inputs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "../writer/writer.h"
#include "common.h"
#include "live_scan.h"

#define FLUSH_MS 1000 /* how long a recorded process gets to write out what it has */

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

static int each_live(const struct live_seen *seen, void *arg) {
    static struct writer_finished done; /* holds a path: large */
    struct input *input = seen->l ? find(arg, seen->l->trace_path) : NULL;
    struct live *l;

    if (!input)
        return 0;
    if (!seen->alive) {
        int rc = writer_finish(seen->path, "killed", 0, &done);
        /* Another finisher is at it, or has just been. */
        if (rc < 0 && rc != -EAGAIN && rc != -ENOENT)
            tool_say("%s: what its process had not written yet cannot be added: %s", input->path,
                     strerror(-rc));
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
    live_scan(each_live, in);
}
