/* SPDX-License-Identifier: Apache-2.0 */
#include "script.h"

#define LOADED_NS 10000000000u /* for dlopen on any machine, once the text is being run */
#define TAKEN_NS  500000000u

/* ---- writes that can be undone ---- */

int script_read(struct script *s, uint64_t addr, void *buf, size_t n) {
    return proc_read(s->in->pid, addr, buf, n);
}

int script_write(struct script *s, uint64_t addr, const void *buf, size_t n) {
    struct script_write *w = &s->v[s->n];

    if (s->n == SCRIPT_WRITES || n > sizeof w->before)
        return -ENOSPC;
    w->addr = addr;
    w->n = n;
    memcpy(w->after, buf, n);
    int rc = script_read(s, addr, w->before, n);
    if (rc == 0) {
        s->n++; /* a partial write must be undone, too */
        rc = proc_write(s->in->pid, addr, buf, n);
    }
    return rc;
}

int script_set(struct script *s, uint64_t addr, uint32_t bits) {
    uint32_t word;
    int rc = script_read(s, addr, &word, sizeof word);

    if (rc == 0) {
        word |= bits;
        rc = script_write(s, addr, &word, sizeof word);
    }
    return rc;
}

void script_undo(struct script *s) {
    unsigned char now[SCRIPT_BYTES];

    while (s->n > 0) {
        const struct script_write *w = &s->v[--s->n];
        if (script_read(s, w->addr, now, w->n) == 0 && memcmp(now, w->after, w->n) == 0)
            proc_write(s->in->pid, w->addr, w->before, w->n);
    }
}

/* ---- running a method ---- */

int script_no(struct script *s, int rc, const char *why) {
    snprintf(s->in->why, sizeof s->in->why, "%s", why);
    return rc;
}

static int make_text(struct script *s) {
    const char *p = s->in->stage.lib_there, *base = strrchr(p, '/');

    if (strpbrk(p, "'\"\\\n"))
        return script_no(s, -ENOTSUP, "the run directory's path cannot be quoted");
    if (snprintf(s->text, sizeof s->text,
                 "exec(\"try:\\n import _imp\\n class s:name='libprobing';origin='%.*s/.%s'\\n "
                 "_imp.create_dynamic(s)\\nexcept BaseException:pass\",{})\n",
                 (int)(base - p), p, base) < (int)sizeof s->text) /* "/./": agent/core/inject.c */
        return 0;
    return script_no(s, -ENOTSUP, "the run directory's path is too long");
}

/* Waits until the text is taken and the stub is loaded. Returns 0, or -EAGAIN: not taken in time. */
static int wait_taken(struct script *s, const struct script_method *m) {
    uint64_t deadline = sys_now() + TAKEN_NS;

    while (!m->taken(s)) {
        if (sys_now() > deadline || inject_maps(s->in) < 0)
            return -EAGAIN;
        sys_sleep(SYS_MS);
    }
    deadline = sys_now() + LOADED_NS;
    while (!inject_mapped(s->in)) {
        if (sys_now() > deadline)
            return script_no(
                s, -ENOTSUP,
                "the interpreter ran our line but did not load the agent (an audit hook, "
                "perhaps)");
        sys_sleep(SYS_MS);
    }
    return 0;
}

/* Takes the text back. Returns 1 when it was taken just before, or cannot be taken back: then it will be taken some day, which does no harm. */
static int take_back(struct script *s, const struct script_method *m) {
    AUTO_FREE char *why = NULL;
    struct stop stop;
    int was = 1;

    if (inject_stand(s->in, &stop, &why) == 0) {
        was = m->taken(s);
        if (!was)
            m->take_back(s);
        inject_release(s->in, &stop);
    }
    return was;
}

static int run(struct script *s, const struct script_method *m, char **why) {
    struct stop stop;
    int rc = inject_stand(s->in, &stop, why);

    if (rc < 0)
        return rc;
    rc = m->check(s);
    if (rc == 0)
        rc = m->lay(s);
    if (rc < 0)
        script_undo(s);
    inject_release(s->in, &stop);
    if (rc < 0)
        return rc;
    rc = wait_taken(s, m);
    if (rc == -EAGAIN)
        rc = take_back(s, m)
                 ? wait_taken(s, m)
                 : script_no(s, rc, "the main thread has not run Python for half a second");
    return rc;
}

static struct script *begin(struct inject *in, const struct script_method *m, int *rc) {
    struct script *s = calloc(1, m->size);

    *rc = -ENOMEM;
    if (s) {
        s->in = in;
        *rc = in->pre.has_python ? m->find(s)
                                 : script_no(s, -ENOTSUP, "there is no Python that is known");
        if (*rc == 0 && (*rc = m->check(s)) == -EAGAIN)
            *rc = 0; /* there may be a place soon */
    }
    return s;
}

int script_possible(struct inject *in, const struct script_method *m) {
    int rc;
    free(begin(in, m, &rc));
    return rc;
}

int script_load(struct inject *in, const struct script_method *m, char **why) {
    int rc;
    AUTO_FREE struct script *s = begin(in, m, &rc);

    if (rc == 0)
        rc = make_text(s);
    if (rc == 0 && m->prepare)
        rc = m->prepare(s);
    if (rc == 0)
        rc = run(s, m, why);
    if (rc != -EAGAIN && s && s->n > 0 && m->clean) /* the text was taken */
        m->clean(s);
    if (rc == 0)
        in->means = m->means;
    return rc;
}
