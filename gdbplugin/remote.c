/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Method "pep768", 3.14 and later: the interpreter's own remote debugging. The path of a staged script goes into the
 * main thread's state, a flag beside it and a bit of its eval breaker are set, all while the process stands still
 * (to set the bit is not atomic otherwise); the main thread runs the script at its next safe point. What it does not
 * take in time is taken back.
 *
 * Offsets: the process's own _Py_DebugOffsets (CPython, Include/internal/pycore_debug_offsets.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "journal.h"
#include "say.h"
#include "script.h"

#define TAKEN_MS    500
#define PLEASE_STOP (1u << 5) /* _PY_EVAL_PLEASE_STOP_BIT */

struct remote {
    struct inject *in;
    uint64_t tstate;
    /* struct _debugger_support */
    struct {
        uint64_t breaker, support, enabled, pending, path, path_size;
    } at;
    struct journal j;
};

static int get(struct remote *r, uint64_t addr, void *buf, size_t n) {
    return proc_read(r->in->pid, addr, buf, n);
}

static int no(struct remote *r, int rc, const char *why) {
    snprintf(r->in->why, sizeof r->in->why, "%s", why);
    return rc;
}

static int find(struct remote *r) {
    struct pywalk_found py;
    uint64_t head[11], interp = 0, version;
    int32_t enabled = 0;
    int rc = script_python(r->in, &py);

    if (rc < 0)
        return rc;
    version = py.target.version >> 16;
    if (version < 0x030e)
        return no(r, -ENOTSUP, "for Python 3.14 and later only");
    if (version > 0x030f)
        return no(r, -ENOTSUP, "this Python is not known");
    /* cookie, version, free_threaded; runtime: size, finalizing, interpreters_head; interpreter: size, id, next,
     * threads_head, threads_main */
    if (get(r, py.target.runtime, head, sizeof head) < 0 || memcmp(head, "xdebugpy", 8) ||
        head[1] >> 16 != version ||
        get(r, py.target.runtime + (version == 0x030e ? 712 : 840), &r->at, sizeof r->at) < 0 ||
        get(r, py.target.runtime + head[5], &interp, 8) < 0 || !interp ||
        get(r, interp + head[10], &r->tstate, 8) < 0 || !r->tstate)
        return no(r, -ENOTSUP, "its debug offsets make no sense");
    if (r->at.breaker > 4096 || r->at.support > 65536 || r->at.pending > 4096 ||
        r->at.path > 4096 || r->at.path_size < 64 || r->at.path_size > 4096 ||
        get(r, interp + r->at.enabled, &enabled, sizeof enabled) < 0)
        return no(r, -ENOTSUP, "its debug offsets make no sense");
    if (enabled != 1)
        return no(r, -ENOTSUP, "remote debugging is disabled in it");
    return 0;
}

/* Nothing of another debugger's may stand there. */
static int look(struct remote *r) {
    int32_t pending = 0;

    if (get(r, r->tstate + r->at.support + r->at.pending, &pending, sizeof pending) < 0)
        return no(r, -ENOTSUP, "its main thread cannot be read");
    return pending ? no(r, -EAGAIN, "another debugger's script waits in it") : 0;
}

int remote_possible(struct inject *in) {
    struct remote *r = calloc(1, sizeof *r);
    int rc = -ENOMEM;

    if (r) {
        r->in = in;
        rc = find(r);
    }
    free(r);
    return rc;
}

static int taken(void *ctx) {
    struct remote *r = ctx;
    int32_t pending = 1;

    return get(r, r->tstate + r->at.support + r->at.pending, &pending, sizeof pending) == 0 &&
           pending == 0;
}

static int lay(struct remote *r, const char *path) {
    uint64_t support = r->tstate + r->at.support, word;
    int32_t one = 1;
    size_t n = strlen(path) + 1;
    int rc;

    if (n > r->at.path_size || n > JOURNAL_BYTES)
        return no(r, -ENOTSUP, "the run directory's path is too long");
    rc = journal_write(&r->j, support + r->at.path, path, n);
    if (rc == 0)
        rc = journal_write(&r->j, support + r->at.pending, &one, sizeof one);
    if (rc == 0 && get(r, r->tstate + r->at.breaker, &word, sizeof word) < 0)
        rc = -EFAULT;
    if (rc == 0 && !(word & PLEASE_STOP)) {
        uint32_t low = (uint32_t)word | PLEASE_STOP;
        rc = journal_write(&r->j, r->tstate + r->at.breaker, &low, sizeof low);
    }
    return rc;
}

int remote_load(struct inject *in, char **why) {
    struct remote *r = calloc(1, sizeof *r);
    char script[SCRIPT_MAX], path[4096];
    struct stop s;
    int rc = -ENOMEM;

    if (!r)
        return rc;
    r->in = in;
    r->j.mem = -1;
    rc = find(r);
    if (rc == 0)
        rc = script_make(in, script, sizeof script);
    if (rc == 0)
        rc = stage_file(&in->stage, "inject.py", script, path, sizeof path);
    if (rc == 0)
        rc = journal_begin(&r->j, in->pid);
    if (rc == 0)
        rc = inject_stand(in, &s, why);
    if (rc == 0) {
        rc = look(r);
        if (rc == 0)
            rc = lay(r, path);
        if (rc < 0)
            journal_undo(&r->j);
        inject_release(r->in, &s);
    }
    if (rc == 0) {
        rc = script_wait(in, taken, r, TAKEN_MS);
        if (rc == -EAGAIN && inject_stand(in, &s, why) == 0) {
            int was = taken(r);
            if (!was)
                journal_undo(&r->j);
            inject_release(r->in, &s);
            rc = was ? script_wait(in, taken, r, 0)
                     : no(r, rc, "the main thread has not run Python for half a second");
        }
    }
    if (rc == 0)
        in->means = "loaded by the interpreter's remote debugging";
    journal_end(&r->j);
    free(r);
    return rc;
}
