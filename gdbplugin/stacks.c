/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the stacks of a source: Python and native frames of each thread, merged. */
#include "stacks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge.h"
#include "python.h"
#include "say.h"

#define MAX_PYTHON 65536
#define MAX_NATIVE 32768
#define TRIES      3 /* of a thread that runs while it is read */
#define CODES      4096

/* Code objects read already. Addresses are reused, so each is known by its identity too. */
struct known_code {
    uint64_t addr, identity;
    const struct python *py;
    struct pywalk_code code;
};

struct reader {
    struct origin *s;
    struct stacks *st;
    unsigned flags;
    struct python *py;
    int npy;
    struct known_code **codes;
    /* of the thread at hand */
    struct native_frame *nframes;
    struct pywalk_frame *pframes;
    unsigned char *eval, *entry;
    struct merge_item *items, *before;
};

/* ---- frames ---- */

static const struct pywalk_code *read_code(struct reader *r, const struct python *py,
                                           uint64_t addr) {
    struct known_code **slot = &r->codes[(addr * 0x9e3779b97f4a7c15u) >> 52];
    uint64_t identity = 0;

    if (pywalk_code_identity(&py->pw, addr, &identity) < 0)
        return NULL;
    if (*slot && (*slot)->addr == addr && (*slot)->identity == identity && (*slot)->py == py)
        return &(*slot)->code;
    if (!*slot && !(*slot = calloc(1, sizeof **slot)))
        return NULL;
    (*slot)->addr = 0;
    if (pywalk_code(&py->pw, addr, &(*slot)->code) < 0)
        return NULL;
    (*slot)->addr = addr;
    (*slot)->identity = identity;
    (*slot)->py = py;
    return &(*slot)->code;
}

static void fill_python(struct reader *r, const struct python *py, const struct pywalk_frame *f,
                        struct stack_frame *out) {
    const struct pywalk_code *code = read_code(r, py, f->code);

    out->python = 1;
    out->generator = (f->flags & PYWALK_GENERATOR) != 0;
    out->column = out->end_column = -1;
    if (!code)
        return;
    out->func = strdup(code->name);
    out->file = strdup(code->file);
    out->line = pywalk_frame_line(&py->pw, code, f->lasti);
    if (out->line < 0)
        out->line = 0;
}

static void free_frames(struct stack_thread *t) {
    for (size_t i = 0; i < t->n; i++) {
        struct stack_frame *f = &t->frames[i];
        for (size_t k = 0; k < f->nlocals; k++) {
            free(f->locals[k].name);
            free(f->locals[k].type);
            free(f->locals[k].value);
        }
        free(f->locals);
        free(f->func);
        free(f->file);
    }
    free(t->frames);
    t->frames = NULL;
    t->n = 0;
    free(t->problem);
    t->problem = NULL;
}

static int is_eval_of(const struct python *py, int npy, const struct native_frame *f,
                      const char *symbol) {
    return merge_is_eval(symbol) && (npy == 1 || (f->probe >= py->start && f->probe < py->end));
}

/*
 * One thread's frames into t. Where there are two Pythons each one's frames are merged into what the one
 * before has given: its eval loops are native frames there. 0, or -errno of the last Python that cannot be read.
 */
static int read_frames(struct reader *r, const struct origin_thread *src, struct stack_thread *t) {
    struct stacks *st = r->st;
    size_t total = 0, n = 0, done = 0;
    int nnative = 0, complete = 0, rc = 0;

    if (!(r->flags & INSPECT_PYTHON) && st->native)
        nnative = native_walk(st->native, r->s, src, r->nframes, MAX_NATIVE, &complete);
    if (nnative < 0)
        nnative = 0;
    t->frames = calloc((size_t)nnative + 1, sizeof *t->frames);
    if (!t->frames)
        return -ENOMEM;
    for (int i = 0; i < nnative; i++) {
        t->frames[i].pc = r->nframes[i].pc;
        t->frames[i].probe = r->nframes[i].probe;
        r->items[i] = (struct merge_item){0, (size_t)i};
    }
    total = n = (size_t)nnative;
    for (int p = 0; p < r->npy && !(r->flags & INSPECT_NATIVE); p++) {
        struct python *py = &r->py[p];
        const struct pywalk_thread *pt =
            python_thread(py, src->tid, src->known == REGS_ALL ? src->regs.fs_base : 0);
        int cut = 0, count;
        struct stack_frame *grown;

        if (!pt)
            continue;
        t->python = 1;
        t->interp = pt->interp_id;
        t->gil = (pt->flags & PYWALK_HOLDS_GIL) != 0;
        count = pywalk_frames(&py->pw, pt->tstate, r->pframes, MAX_PYTHON, &cut);
        if (count < 0) {
            rc = count;
            continue;
        }
        if (cut && !t->problem)
            t->problem = say("the Python stack is deeper than what is shown");
        grown = realloc(t->frames, (total + (size_t)count + 1) * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        t->frames = grown;
        memset(grown + total, 0, ((size_t)count + 1) * sizeof *grown);
        for (int k = 0; k < count; k++) {
            fill_python(r, py, &r->pframes[k], &grown[total + (size_t)k]);
            t->n = total + (size_t)k + 1;
            r->entry[k] = (r->pframes[k].flags & PYWALK_ENTRY) != 0;
        }
        for (size_t i = 0; i < n; i++) {
            size_t at = r->items[i].index;
            struct native_name name;
            r->eval[i] = 0;
            if (count > 0 && !r->items[i].python) {
                struct native_frame f = {grown[at].pc, grown[at].probe};
                native_name(st->native, &f, &name);
                r->eval[i] = (unsigned char)is_eval_of(py, r->npy, &f, name.symbol);
            }
        }
        memcpy(r->before, r->items, n * sizeof *r->items);
        done = inspect_merge(r->eval, n, complete, r->entry, (size_t)count, r->items);
        for (size_t i = 0; i < done; i++) {
            if (r->items[i].python)
                r->items[i].index += total;
            else
                r->items[i] = r->before[r->items[i].index];
        }
        n = done;
        total += (size_t)count;
    }
    t->n = total;
    /* In the merged order. What was replaced (eval loops) owns nothing. */
    struct stack_frame *merged = calloc(n + 1, sizeof *merged);
    if (!merged)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        merged[i] = t->frames[r->items[i].index];
    free(t->frames);
    t->frames = merged;
    t->n = n;
    return rc;
}

/* ---- threads ---- */

static int is_idle(const struct user_regs_struct *regs) {
    long nr = (long)regs->orig_rax, ret = (long)regs->rax;

    return nr >= 0 && (ret == -4 || (ret <= -512 && ret >= -516));
}

static void start_thread(const struct origin_thread *src, struct stack_thread *t) {
    free_frames(t);
    t->tid = src->tid;
    memcpy(t->name, src->name, sizeof t->name);
    t->interp = -1;
    t->python = t->gil = 0;
}

static void say_torn(struct stack_thread *t, int rc) {
    if (rc < 0 && !t->problem)
        t->problem = say("its Python frames cannot be read: %s",
                         rc == -ENOMEM ? "out of memory" : "the thread was just changing them");
}

/* A thread that stands still. */
static void read_still(struct reader *r, const struct origin_thread *src, struct stack_thread *t) {
    start_thread(src, t);
    say_torn(t, read_frames(r, src, t));
    t->consistent = 1;
    if (src->known == REGS_ALL)
        t->state = is_idle(&src->regs) ? STATE_IDLE : STATE_RUNNING;
}

/* A thread of a running process: consistent when it was asleep before and after, and not awake in between. */
static void read_running(struct reader *r, struct origin_thread *src, struct stack_thread *t) {
    struct origin_sleep before, after;
    int rc = 0;

    for (int i = 0; i < TRIES; i++) {
        origin_look(r->s, src->tid, &before);
        src->known = before.asleep ? REGS_PC_SP : REGS_NONE;
        src->regs = (struct user_regs_struct){.rip = before.pc, .rsp = before.sp};
        if (i > 0) {
            for (int p = 0; p < r->npy; p++)
                python_list(&r->py[p], r->s);
        }
        start_thread(src, t);
        rc = read_frames(r, src, t);
        origin_look(r->s, src->tid, &after);
        t->consistent = before.asleep && after.asleep && before.ran_ns == after.ran_ns &&
                        before.sp == after.sp && before.pc == after.pc;
        t->state = before.asleep && after.asleep ? before.call >= 0 ? STATE_IDLE : STATE_STOPPED
                                                 : STATE_RUNNING;
        if (t->consistent || (rc == 0 && i > 0))
            break;
    }
    /* Its native frames were of another moment than the rest. */
    if (!t->consistent) {
        size_t k = 0;
        for (size_t i = 0; i < t->n; i++) {
            if (t->frames[i].python)
                t->frames[k++] = t->frames[i];
        }
        t->n = k;
    }
    say_torn(t, rc);
}

static int wanted(const struct reader *r, const struct origin_thread *src, pid_t tid) {
    if (r->flags & INSPECT_MAIN)
        return src->tid == r->s->pid;
    return tid == 0 || src->tid == tid;
}

static int read_threads(struct reader *r, pid_t tid) {
    struct stacks *st = r->st;

    st->v = calloc(r->s->n + 1, sizeof *st->v);
    if (!st->v)
        return -ENOMEM;
    for (size_t i = 0; i < r->s->n; i++) {
        struct stack_thread *t = &st->v[st->n];
        if (!wanted(r, &r->s->v[i], tid))
            continue;
        if (r->s->kind == ORIGIN_RUNNING)
            read_running(r, &r->s->v[i], t);
        else
            read_still(r, &r->s->v[i], t);
        st->n++;
    }
    return 0;
}

static void note_python(struct reader *r) {
    struct stacks *st = r->st;
    int bad = 0;

    for (int p = 0; p < r->npy; p++) {
        python_list(&r->py[p], r->s);
        for (int i = 0; i < 20 && r->py[p].n < 0 && r->s->kind == ORIGIN_RUNNING; i++)
            python_list(&r->py[p], r->s);
        if (r->py[p].n < 0)
            bad = r->py[p].n;
    }
    if (r->npy)
        snprintf(st->python, sizeof st->python, "%s", r->py[0].version);
    if (bad && !st->note)
        st->note = say("no Python frames: %s", bad == -EAGAIN
                                                   ? "Python is not initialised yet, or has ended"
                                                   : "its thread list cannot be read");
    if (r->npy == 0 && !st->note)
        st->note = say("no Python in this process: native frames only");
}

static int open_reader(struct reader *r) {
    r->codes = calloc(CODES, sizeof *r->codes);
    r->nframes = calloc(MAX_NATIVE, sizeof *r->nframes);
    r->pframes = calloc(MAX_PYTHON, sizeof *r->pframes);
    r->eval = calloc(1, MAX_NATIVE + PYTHON_MAX * MAX_PYTHON);
    r->entry = calloc(1, MAX_PYTHON);
    r->items = calloc(MAX_NATIVE + PYTHON_MAX * MAX_PYTHON, sizeof *r->items);
    r->before = calloc(MAX_NATIVE + PYTHON_MAX * MAX_PYTHON, sizeof *r->before);
    return r->codes && r->nframes && r->pframes && r->eval && r->entry && r->items && r->before
               ? 0
               : -ENOMEM;
}

static void close_reader(struct reader *r) {
    for (int i = 0; r->codes && i < CODES; i++)
        free(r->codes[i]);
    free(r->codes);
    free(r->nframes);
    free(r->pframes);
    free(r->eval);
    free(r->entry);
    free(r->items);
    free(r->before);
    python_free(r->py, r->npy);
}

int stacks_read(struct stacks **out, struct origin *s, unsigned flags, pid_t tid, char **why) {
    struct stacks *st = calloc(1, sizeof *st);
    struct reader r = {.s = s, .st = st, .flags = flags};
    int rc = st ? open_reader(&r) : -ENOMEM;

    *why = NULL;
    *out = NULL;
    if (rc < 0)
        goto out;
    st->pid = s->pid;
    st->signal = s->signal;
    memcpy(st->command, s->command, sizeof st->command);
    /* What can be learnt without the stop is learnt before. */
    r.npy = python_find(&r.py, s, &st->note);
    if (!(flags & INSPECT_PYTHON) && native_open_origin(&st->native, s, NATIVE_DEBUG) < 0)
        st->native = NULL;
    if (s->kind == ORIGIN_RUNNING && flags & (INSPECT_STOP | INSPECT_BORROW)) {
        rc = origin_stop(s, (flags & INSPECT_BORROW) != 0, why);
        if (rc < 0)
            goto out;
        for (int p = 0; p < r.npy; p++)
            r.py[p].pw.mem = s->mem;
    }
    st->kind = s->kind;
    note_python(&r);
    rc = read_threads(&r, tid);
    st->stood_ns = origin_go(s);
    if (rc == 0 && tid && st->n == 0) {
        *why = say("process %d has no thread %d", s->pid, tid);
        rc = -ENOENT;
    }
    st->missing = origin_missing(s);
out:
    close_reader(&r);
    if (rc == 0)
        *out = st;
    else
        stacks_free(st);
    return rc;
}

void stacks_free(struct stacks *st) {
    if (!st)
        return;
    for (size_t i = 0; i < st->n; i++)
        free_frames(&st->v[i]);
    free(st->v);
    free(st->missing);
    free(st->note);
    free(st->tasks);
    native_close(st->native);
    free(st);
}
