/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_backtrace(): stops the process or borrows the stop, walks both kinds of stacks, merges them,
 * writes them down. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pywalk/find.h"
#include "agent/pywalk/pywalk.h"
#include "inspect.h"
#include "merge.h"
#include "native.h"
#include "proc.h"
#include "say.h"
#include "stop.h"
#include "text.h"

#define MAX_PYTHON  16384
#define MAX_NATIVE  4096
#define MAX_THREADS 8192

struct walk {
    pid_t pid;
    unsigned flags;
    struct stop stop;
    struct native *native;
    struct pywalk pw;
    int python; /* pw is usable */
    struct pywalk_thread *threads;
    int nthreads;
    /* of the thread at hand */
    struct native_frame nframes[MAX_NATIVE];
    struct native_name *names;
    struct pywalk_frame pframes[MAX_PYTHON];
    unsigned char eval[MAX_NATIVE], entry[MAX_PYTHON];
    struct merge_item items[MAX_NATIVE + MAX_PYTHON];
    struct pywalk_code code;
    struct text t;
};

static int is_idle(const struct user_regs_struct *r) {
    long nr = (long)r->orig_rax, ret = (long)r->rax;

    return nr >= 0 && (ret == -4 || (ret <= -512 && ret >= -516));
}

static const struct pywalk_thread *python_thread(const struct walk *w,
                                                 const struct stop_thread *t) {
    for (int i = 0; i < w->nthreads; i++) {
        /* threading.get_ident() is pthread_self(), which is the thread's FS base. */
        if (w->threads[i].ident == t->regs.fs_base ||
            (w->threads[i].tid && w->threads[i].tid == (uint32_t)t->tid))
            return &w->threads[i];
    }
    return NULL;
}

static void put_python(struct walk *w, size_t depth, const struct pywalk_frame *f) {
    int line = 0;

    if (pywalk_code(&w->pw, f->code, &w->code) < 0) {
        strcpy(w->code.name, "?");
        strcpy(w->code.file, "?");
    } else
        line = pywalk_frame_line(&w->pw, &w->code, f->lasti);
    if (line < 0)
        line = 0;
    if (w->flags & INSPECT_JSON) {
        text_add(&w->t, "{\"depth\":%zu,\"type\":\"Python\",\"func\":", depth);
        text_json(&w->t, w->code.name);
        text_add(&w->t, ",\"file\":");
        text_json(&w->t, w->code.file);
        text_add(&w->t, ",\"line\":%d}", line);
    } else
        text_add(&w->t, "  #%-3zu %s (%s:%d)\n", depth, w->code.name, w->code.file, line);
}

static void put_native(struct walk *w, size_t depth, const struct native_frame *f,
                       const struct native_name *name) {
    const char *module = name->module[0] ? name->module : NULL;

    if (w->flags & INSPECT_JSON) {
        text_add(&w->t, "{\"depth\":%zu,\"type\":\"Native\",\"func\":", depth);
        text_json(&w->t, name->symbol[0] ? name->symbol : NULL);
        text_add(&w->t, ",\"module\":");
        text_json(&w->t, module);
        text_add(&w->t, ",\"address\":\"0x%lx\",\"offset\":%lu}", f->pc, name->offset);
    } else if (name->symbol[0])
        text_add(&w->t, "  #%-3zu %s [%s]\n", depth, name->symbol, module ? module : "?");
    else
        text_add(&w->t, "  #%-3zu 0x%lx [%s]\n", depth, f->pc, module ? module : "?");
}

static void put_thread(struct walk *w, const struct stop_thread *t, const struct pywalk_thread *p,
                       const char *problem) {
    const char *state = is_idle(&t->regs) ? "idle" : "running";
    char name[64] = "?";

    proc_task(w->pid, t->tid, name, sizeof name, NULL);
    if (w->flags & INSPECT_JSON) {
        text_add(&w->t, "{\"tid\":%d,\"name\":", t->tid);
        text_json(&w->t, name);
        text_add(&w->t, ",\"main\":%s,\"python\":%s,\"gil\":%s,\"state\":\"%s\",\"error\":",
                 t->tid == w->pid ? "true" : "false", p ? "true" : "false",
                 p && p->flags & PYWALK_HOLDS_GIL ? "true" : "false", state);
        text_json(&w->t, problem);
        text_add(&w->t, ",\"frames\":[");
        return;
    }
    text_add(&w->t, "Thread %d \"%s\"%s, %s%s\n", t->tid, name, t->tid == w->pid ? " (main)" : "",
             state, p && p->flags & PYWALK_HOLDS_GIL ? ", holds the GIL" : "");
    if (problem)
        text_add(&w->t, "  (%s)\n", problem);
}

/* Returns whether the thread was written. */
static int one_thread(struct walk *w, size_t i, int first) {
    const struct stop_thread *t = &w->stop.v[i];
    const struct pywalk_thread *p = w->python ? python_thread(w, t) : NULL;
    int npython = 0, nnative = 0, cut = 0, complete = 0;
    const char *problem = NULL;
    size_t n, depth = 0;

    if (p) {
        npython = pywalk_frames(&w->pw, p->tstate, w->pframes, MAX_PYTHON, &cut);
        if (npython < 0) {
            problem = "its Python frames cannot be read: the thread was just changing them";
            npython = 0;
        } else if (cut)
            problem = "the Python stack is deeper than what is shown";
    }
    if (w->flags & INSPECT_PYTHON && npython == 0 && !problem)
        return 0;
    if (!(w->flags & INSPECT_PYTHON) && w->native)
        nnative = native_stack(w->native, &w->stop, i, w->nframes, MAX_NATIVE, &complete);
    for (int k = 0; k < nnative; k++) {
        native_name(w->native, &w->nframes[k], &w->names[k]);
        w->eval[k] = npython > 0 && merge_is_eval(w->names[k].symbol);
    }
    for (int k = 0; k < npython; k++)
        w->entry[k] = (w->pframes[k].flags & PYWALK_ENTRY) != 0;
    n = inspect_merge(w->eval, (size_t)nnative, complete, w->entry, (size_t)npython, w->items);

    if (!first)
        text_add(&w->t, w->flags & INSPECT_JSON ? "," : "\n");
    put_thread(w, t, p, problem);
    for (size_t k = 0; k < n; k++, depth++) {
        if (k && w->flags & INSPECT_JSON)
            text_add(&w->t, ",");
        if (w->items[k].python)
            put_python(w, depth, &w->pframes[w->items[k].index]);
        else
            put_native(w, depth, &w->nframes[w->items[k].index], &w->names[w->items[k].index]);
    }
    if (w->flags & INSPECT_JSON)
        text_add(&w->t, "]}");
    return 1;
}

/* PY_VERSION_HEX as people write it; the "final" is not said. */
static const char *version(uint32_t hex, char *buf, size_t n) {
    snprintf(buf, n, "%u.%u.%u", hex >> 24, hex >> 16 & 255, hex >> 8 & 255);
    return buf;
}

static void all_threads(struct walk *w) {
    char v[32];
    int shown = 0;

    if (w->flags & INSPECT_JSON) {
        text_add(&w->t, "{\"pid\":%d,\"python\":", w->pid);
        text_json(&w->t, w->python ? version(w->pw.version, v, sizeof v) : NULL);
        text_add(&w->t, ",\"threads\":[");
    }
    if (w->nthreads < 0 && !(w->flags & INSPECT_JSON))
        text_add(&w->t, "(no Python frames: %s)\n",
                 w->nthreads == -EAGAIN ? "Python is not initialised"
                                        : "its thread list cannot be read");
    if (w->nthreads < 0)
        w->nthreads = 0;
    for (size_t i = 0; i < w->stop.n; i++)
        shown += one_thread(w, i, shown == 0);
    if (w->flags & INSPECT_JSON)
        text_add(&w->t, "]}\n");
    else if (!shown)
        text_add(&w->t, "no thread of process %d runs Python%s\n", w->pid,
                 w->python ? "" : " (it has no Python that we know)");
}

int inspect_backtrace(int pid, unsigned flags, char **out) {
    struct walk *w = calloc(1, sizeof *w);
    struct pywalk_found py = {0};
    int rc = -ENOMEM, more;

    *out = NULL;
    if (!w)
        return rc;
    w->pid = pid;
    w->flags = flags;
    w->names = calloc(MAX_NATIVE, sizeof *w->names);
    w->threads = calloc(MAX_THREADS, sizeof *w->threads);
    if (!w->names || !w->threads)
        goto out;
    /* What can be learnt without the stop is learnt before. */
    if (pywalk_find(pid, &py) == 0)
        w->python = 1;
    if (!(flags & INSPECT_PYTHON) && native_open(&w->native, pid, NATIVE_DEBUG) < 0)
        w->native = NULL;
    rc = flags & INSPECT_BORROW ? stop_borrow(&w->stop, pid) : stop_seize(&w->stop, pid, 1000);
    if (rc < 0) {
        *out = say_stop(pid, rc, &w->stop);
        goto out;
    }
    if (w->python) {
        w->python = pywalk_init(&w->pw, (struct pywalk_mem){stop_read, &w->stop}, &py.target) == 0;
        if (w->python)
            w->nthreads = pywalk_threads(&w->pw, w->threads, MAX_THREADS, &more);
    }
    all_threads(w);
    stop_release(&w->stop);
    *out = text_take(&w->t);
    rc = *out ? 0 : -ENOMEM;
out:
    native_close(w->native);
    text_free(&w->t);
    free(w->names);
    free(w->threads);
    free(w);
    return rc;
}
