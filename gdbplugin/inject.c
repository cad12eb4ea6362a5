/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all methods: stops the process, lets it run, and checks whether it still runs the same program. */
#include "inject.h"

#include "text.h"

#define STOP_MS 500

int inject_maps(struct inject *in) {
    proc_maps_free(&in->maps);
    int rc = proc_maps_read(in->pid, &in->maps);
    return rc == -ENOENT || (rc == 0 && in->maps.n == 0) ? -ESRCH : rc; /* none: a zombie */
}

void inject_release(struct inject *in, struct stop *s) {
    uint64_t took = stop_release(s);

    in->stood_ns += took;
    in->stops++;
    if (took > in->longest_ns)
        in->longest_ns = took;
}

void inject_adopt(struct inject *in, int timeout_ms) {
    if (in->child && stop_adopt(in->child, timeout_ms) != -ETIMEDOUT)
        in->child = 0;
}

int inject_same(const struct inject *in) {
    uint64_t now[2];

    return proc_image(in->pid, now) == 0 && memcmp(now, in->image, sizeof now) ? -ESTALE : 0;
}

int inject_stand(struct inject *in, struct stop *s, char **why) {
    int rc = stop_seize(s, in->pid, STOP_MS);

    /* The addresses that we know are invalid after an exec, which no thread can begin while all are stopped. */
    if (inject_same(in) < 0) {
        if (rc == 0)
            inject_release(in, s);
        return -ESTALE;
    }
    if (rc == -ETIMEDOUT) { /* it may end soon: a vfork, a disk write */
        snprintf(in->why, sizeof in->why,
                 "thread %d is in an uninterruptible system call, or gets no processor", s->stuck);
        return -EAGAIN;
    }
    if (rc < 0 && !*why)
        *why = say_stop(in->pid, rc, s);
    return rc;
}

int inject_mapped(struct inject *in) {
    const char *name = strrchr(in->stage.lib_there, '/');

    /* The path as we see it may have another root, but the directory's name is unique. */
    while (name > in->stage.lib_there && *--name != '/')
        ;
    return proc_has_mapped(in->pid, name) == 1;
}
