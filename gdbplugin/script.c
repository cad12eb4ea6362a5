/* SPDX-License-Identifier: Apache-2.0 */
#include "script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOADED_NS 1000000000u /* dlopen, once the text is being run */
#define THREADS   65536

int script_make(struct inject *in, char *buf, size_t n) {
    const char *p = in->stage.lib_there, *base = strrchr(p, '/');

    if (strpbrk(p, "'\"\\\n")) {
        snprintf(in->why, sizeof in->why, "the run directory's path cannot be quoted");
        return -ENOTSUP;
    }
    if (snprintf(buf, n,
                 "exec(\"try:\\n import _imp\\n class s:name='libprobing';origin='%.*s/.%s'\\n "
                 "_imp.create_dynamic(s)\\nexcept BaseException:pass\",{})\n",
                 (int)(base - p), p, base) < (int)n) /* "/./": agent/core/inject.c */
        return 0;
    snprintf(in->why, sizeof in->why, "the run directory's path is too long");
    return -ENOTSUP;
}

int script_python(struct inject *in, struct pywalk_found *py) {
    int rc = pywalk_find(in->pid, py);

    if (rc == 0)
        return 0;
    snprintf(in->why, sizeof in->why,
             rc == -ENOENT ? "there is no Python" : "this Python is not known");
    return -ENOTSUP;
}

uint64_t script_main_thread(struct inject *in, const struct pywalk_target *t) {
    struct pywalk_thread *v = calloc(THREADS, sizeof *v);
    uint64_t tstate = 0;
    struct pywalk pw;
    int more, n = 0;

    if (v && pywalk_init(&pw, (struct pywalk_mem){pywalk_read_process, (void *)(intptr_t)in->pid},
                         t) == 0)
        n = pywalk_threads(&pw, v, THREADS, &more);
    for (int i = 0; i < n && !tstate; i++)
        tstate = v[i].flags & PYWALK_MAIN ? v[i].tstate : 0;
    free(v);
    return tstate;
}

int script_wait(struct inject *in, int (*taken)(void *), void *ctx, int ms) {
    uint64_t deadline = proc_now() + (uint64_t)ms * 1000000u;

    while (!taken(ctx)) {
        if (proc_now() > deadline || inject_maps(in) < 0)
            return -EAGAIN;
        proc_sleep_us(1000);
    }
    deadline = proc_now() + LOADED_NS;
    while (!inject_mapped(in)) {
        if (proc_now() > deadline) {
            snprintf(in->why, sizeof in->why,
                     "the interpreter ran our line but did not load the agent (an audit "
                     "hook, perhaps)");
            return -ENOTSUP;
        }
        proc_sleep_us(1000);
    }
    return 0;
}
