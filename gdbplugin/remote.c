/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Method "pep768", 3.14 and later: uses the interpreter's own remote debugging. While the process is stopped, the path of a staged script is written into the
 * main thread's state, and a flag beside it and a bit of its eval breaker are set (setting the bit would not be atomic otherwise). The main thread runs the
 * script at its next safe point. A script that is not taken in time is taken back.
 *
 * Offsets: the process's own _Py_DebugOffsets (CPython, Include/internal/pycore_debug_offsets.h).
 */

#include "script.h"

#define PLEASE_STOP (1u << 5) /* _PY_EVAL_PLEASE_STOP_BIT */

struct remote {
    struct script s;
    uint64_t tstate;
    /* struct _debugger_support */
    struct {
        uint64_t breaker, support, enabled, pending, path, path_size;
    } at;
    char path[4096]; /* path of the script, as seen by the target */
};

static int find(struct script *s) {
    struct remote *r = (struct remote *)s;
    const uint64_t runtime = s->in->pre.python.runtime, version = s->in->pre.python.version >> 16;
    uint64_t head[11], interp = 0;
    int32_t enabled = 0;

    if (version < 0x030e)
        return script_no(s, -ENOTSUP, "for Python 3.14 and later only");
    if (version > 0x030f)
        return script_no(s, -ENOTSUP, "this Python is not known");
    /* cookie, version, free_threaded; runtime: size, finalizing, interpreters_head; interpreter: size, id, next, threads_head, threads_main */
    if (script_read(s, runtime, head, sizeof head) < 0 || memcmp(head, "xdebugpy", 8) ||
        head[1] >> 16 != version ||
        script_read(s, runtime + (version == 0x030e ? 712 : 840), &r->at, sizeof r->at) < 0 ||
        script_read(s, runtime + head[5], &interp, 8) < 0 || !interp ||
        script_read(s, interp + head[10], &r->tstate, 8) < 0 || !r->tstate)
        return script_no(s, -ENOTSUP, "its debug offsets make no sense");
    if (r->at.breaker > 4096 || r->at.support > 65536 || r->at.pending > 4096 ||
        r->at.path > 4096 || r->at.path_size < 64 || r->at.path_size > 4096 ||
        script_read(s, interp + r->at.enabled, &enabled, sizeof enabled) < 0)
        return script_no(s, -ENOTSUP, "its debug offsets make no sense");
    if (enabled != 1)
        return script_no(s, -ENOTSUP, "remote debugging is disabled in it");
    return 0;
}

/* No script of another debugger may be waiting. */
static int check(struct script *s) {
    struct remote *r = (struct remote *)s;
    int32_t pending = 0;

    if (script_read(s, r->tstate + r->at.support + r->at.pending, &pending, sizeof pending) < 0)
        return script_no(s, -ENOTSUP, "its main thread cannot be read");
    return pending ? script_no(s, -EAGAIN, "another debugger's script waits in it") : 0;
}

static int taken(struct script *s) {
    struct remote *r = (struct remote *)s;
    int32_t pending = 1;

    return script_read(s, r->tstate + r->at.support + r->at.pending, &pending, sizeof pending) ==
               0 &&
           pending == 0;
}

/* Stages the script. */
static int prepare(struct script *s) {
    struct remote *r = (struct remote *)s;

    return stage_file(&s->in->stage, "inject.py", s->text, r->path, sizeof r->path);
}

static int lay(struct script *s) {
    struct remote *r = (struct remote *)s;
    uint64_t support = r->tstate + r->at.support;
    size_t n = strlen(r->path) + 1;
    int32_t one = 1;

    if (n > r->at.path_size || n > SCRIPT_BYTES)
        return script_no(s, -ENOTSUP, "the run directory's path is too long");
    int rc = script_write(s, support + r->at.path, r->path, n);
    if (rc == 0)
        rc = script_write(s, support + r->at.pending, &one, sizeof one);
    return rc == 0 ? script_set(s, r->tstate + r->at.breaker, PLEASE_STOP) : rc;
}

const struct script_method remote_method = {.size = sizeof(struct remote),
                                            .means = "loaded by the interpreter's remote debugging",
                                            .find = find,
                                            .check = check,
                                            .prepare = prepare,
                                            .lay = lay,
                                            .taken = taken,
                                            .take_back = script_undo};
