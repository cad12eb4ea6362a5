/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the stacks of an origin: Python and native frames of each thread, merged. */

#include "stacks.h"
#include "core.h"
#include "text.h"

#define TRIES 3  /* readings of a thread that runs meanwhile */
#define STOPS 4  /* stops of a process with threads that cannot be read just then */
#define WARM  64 /* threads that are read before the stop */

static int is_idle(const struct user_regs_struct *regs) {
    long nr = (long)regs->orig_rax, ret = (long)regs->rax;

    return nr >= 0 && (ret == -4 || (ret <= -512 && ret >= -516));
}

static void start_thread(const struct origin_thread *src, struct stack_thread *t) {
    frames_free(t);
    t->tid = src->tid;
    snprintf(t->name, sizeof t->name, "%s", src->name);
    t->interp = -1;
}

static int is_cut(const struct origin *s) {
    return s->kind == ORIGIN_CORE && s->core->cut;
}

static void say_torn(const struct frames_reader *r, struct stack_thread *t, int rc) {
    t->torn = rc < 0;
    if (rc < 0 && !t->problem)
        t->problem = say("its Python frames cannot be read: %s", frames_why(r->s, rc));
}

/* Reads a thread that is stopped. */
static void read_still(struct frames_reader *r, const struct origin_thread *src,
                       struct stack_thread *t) {
    start_thread(src, t);
    say_torn(r, t, frames_read(r, src, t));
    t->consistent = 1;
    if (src->known == REGS_ALL)
        t->state = src->state == 'T'     ? STATE_STOPPED
                   : is_idle(&src->regs) ? STATE_IDLE
                                         : STATE_RUNNING;
}

/* Observes a thread; if it sleeps, its stack is read from that place. */
static void observe(struct origin *s, struct origin_thread *src, struct origin_sleep *seen) {
    origin_observe(s, src->tid, seen);
    src->known = seen->asleep ? REGS_PC_SP : REGS_NONE;
    src->regs = (struct user_regs_struct){.rip = seen->pc, .rsp = seen->sp};
}

static void list_python(struct frames_reader *r) {
    for (int p = 0; p < r->npy; p++) {
        r->py[p].pw.mem = r->s->mem;
        python_list(&r->py[p], r->s);
        for (int i = 0; i < 20 && r->py[p].n < 0 && r->s->kind == ORIGIN_RUNNING; i++)
            python_list(&r->py[p], r->s);
    }
}

/* Reads a thread of a running process. It is consistent when it was asleep before and after, and did not run in between. */
static void read_running(struct frames_reader *r, struct origin_thread *src,
                         struct stack_thread *t) {
    struct origin_sleep before, after;
    int rc = 0;

    if (proc_is_over(src->state)) { /* the main thread, when others go on */
        start_thread(src, t);
        t->state = STATE_ENDED;
        t->consistent = 1;
        return;
    }
    for (int i = 0; i < TRIES; i++) {
        observe(r->s, src, &before);
        if (i > 0)
            list_python(r);
        start_thread(src, t);
        rc = frames_read(r, src, t);
        origin_observe(r->s, src->tid, &after);
        t->consistent = before.asleep && after.asleep && before.ran_ns == after.ran_ns &&
                        before.sp == after.sp && before.pc == after.pc;
        t->state = src->state == 'T' || src->state == 't' ? STATE_STOPPED
                   : before.asleep && after.asleep        ? STATE_IDLE
                                                          : STATE_RUNNING;
        if (t->consistent || (rc == 0 && i > 0))
            break;
    }
    if (!t->consistent) { /* the native frames were read at another time than the Python ones */
        t->n -= t->nnative;
        memmove(t->frames, t->frames + t->nnative, t->n * sizeof *t->frames);
        t->nnative = 0;
    }
    say_torn(r, t, rc);
}

static int wanted(const struct frames_reader *r, const struct origin_thread *src, pid_t tid) {
    return r->flags & INSPECT_MAIN ? src->tid == r->s->pid : tid == 0 || src->tid == tid;
}

static int read_threads(struct frames_reader *r, struct stacks *st, pid_t tid) {
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

/*
 * Does work before the stop that the stop would wait for: opens files, reads call frame information and code objects.
 * What is kept of it is checked again in the stop.
 */
static void warm(struct frames_reader *r, pid_t tid) {
    struct stack_thread t = {0};
    const unsigned flags = r->flags;

    r->flags &= ~INSPECT_LOCALS; /* their values would be from before the stop */
    list_python(r);
    for (size_t i = 0, n = 0; i < r->s->n && n < WARM; i++) {
        struct origin_thread *src = &r->s->v[i];
        struct origin_sleep seen;

        if (!wanted(r, src, tid))
            continue;
        observe(r->s, src, &seen);
        frames_read(r, src, &t);
        frames_merge(r, &t);
        frames_free(&t);
        n++;
    }
    r->flags = flags;
}

static void note_python(const struct frames_reader *r, struct stacks *st) {
    int bad = 0, more = 0;

    for (int p = 0; p < r->npy; p++) {
        bad = r->py[p].n < 0 ? r->py[p].n : bad;
        more = r->py[p].more < 0 ? r->py[p].more : more;
    }
    if (r->npy)
        snprintf(st->python, sizeof st->python, "%s", r->py[0].version);
    if (bad && !st->note)
        st->note =
            say("no Python frames: %s%s",
                bad == -EAGAIN && !is_cut(r->s) ? "Python is not initialised yet, or has ended"
                                                : "the list of its threads cannot be read: ",
                bad == -EAGAIN && !is_cut(r->s) ? "" : frames_why(r->s, bad));
    if (more && !st->note)
        st->note = say("the list of Python's threads is not whole: %s", frames_why(r->s, more));
    if (r->npy == 0 && !st->note)
        st->note =
            say(is_cut(r->s) ? "no Python found in what there is of the core: native frames only"
                             : "no Python in this process: native frames only");
}

static void free_threads(struct stacks *st) {
    for (size_t i = 0; i < st->n; i++)
        frames_free(&st->v[i]);
    free(st->v);
    st->v = NULL;
    st->n = 0;
}

/* Reads the asyncio tasks. In a running process reads again while a thread that Python knows was awake meanwhile. */
static int read_tasks(struct frames_reader *r, struct stacks *st) {
    const size_t n = r->s->kind == ORIGIN_RUNNING ? r->s->n : 0;
    AUTO_FREE struct origin_sleep *before = calloc(n + 1, sizeof *before);
    struct origin_sleep after;

    if (!before)
        return -ENOMEM;
    for (int i = 0; i < TRIES && !st->tasks_consistent; i++) {
        int same = 1;
        for (size_t k = 0; k < n; k++)
            origin_observe(r->s, r->s->v[k].tid, &before[k]);
        free(st->tasks);
        st->tasks = tasks_read(r->py, r->npy, (r->flags & INSPECT_JSON) != 0);
        if (!st->tasks)
            break;
        for (size_t k = 0; k < n && same; k++) {
            int known = 0;
            for (int p = 0; p < r->npy; p++)
                known |= python_thread(&r->py[p], r->s->v[k].inner, 0, NULL) != NULL;
            origin_observe(r->s, r->s->v[k].tid, &after);
            same = !known || (before[k].asleep && after.asleep && before[k].ran_ns == after.ran_ns);
        }
        st->tasks_consistent = same;
    }
    return st->tasks ? 0 : -ENOMEM;
}

static int read_once(struct frames_reader *r, struct stacks *st, pid_t tid) {
    list_python(r);
    int rc = read_threads(r, st, tid);
    if (rc == 0 && r->flags & INSPECT_TASKS) {
        st->tasks_consistent = 0;
        rc = read_tasks(r, st);
    }
    return rc;
}

static int is_torn(const struct frames_reader *r, const struct stacks *st) {
    int torn = 0;

    for (size_t i = 0; i < st->n; i++)
        torn |= st->v[i].torn;
    for (int p = 0; p < r->npy; p++)
        torn |= r->py[p].n < 0 && r->py[p].n != -EAGAIN;
    return torn;
}

/* Reads in a stop. A thread may be stopped where its frames cannot be read, for some instructions when it enters a
 * function: then the process goes on, and is stopped again. */
static int read_stopped(struct frames_reader *r, struct stacks *st, pid_t tid, char **why) {
    int rc;

    for (int i = 0;; i++) {
        rc = origin_stop(r->s, (r->flags & INSPECT_BORROW) != 0, why);
        if (rc < 0)
            return rc;
        rc = read_once(r, st, tid);
        st->stood_ns += stop_release(&r->s->stop);
        if (rc < 0 || i == STOPS - 1 || r->flags & INSPECT_BORROW || !is_torn(r, st))
            return rc;
        free_threads(st);
        sys_sleep(300000u);
    }
}

/* Reads the stacks. tid: the only thread wanted, 0: all. Returns 0 or -errno with *why. Stops and releases the origin's process, but leaves the origin open. */
static int stacks_read(struct stacks *st, struct origin *s, unsigned flags, pid_t tid, char **why) {
    struct frames_reader r = {.s = s, .flags = flags};
    const struct native_source source = {
        &s->maps, {origin_read, s}, s->core || s->given ? 0 : s->reader, s->core};
    int rc = frames_open(&r);

    if (rc < 0)
        goto out;
    /* Learn before the stop what needs no stop. */
    r.npy = python_find(&r.py, s, &st->note);
    if (r.npy == 0 && flags & INSPECT_NEED_PYTHON) {
        rc = fail(why, -ENODATA, "%s", st->note ? st->note : "no Python is found here");
        goto out;
    }
    if (!(flags & INSPECT_PYTHON))
        native_open(&r.native, &source, NATIVE_DEBUG);
    if (s->kind == ORIGIN_RUNNING && flags & INSPECT_STOP)
        warm(&r, tid);
    rc = s->kind == ORIGIN_RUNNING && flags & (INSPECT_STOP | INSPECT_BORROW)
             ? read_stopped(&r, st, tid, why)
             : read_once(&r, st, tid);
    if (rc < 0)
        goto out;
    note_python(&r, st);
    for (size_t i = 0; rc == 0 && i < st->n; i++) {
        rc = frames_merge(&r, &st->v[i]);
        rc = rc == 0 ? frames_name(&r, &st->v[i]) : rc;
    }
    if (rc == 0 && tid && st->n == 0)
        rc = fail(why, -ENOENT, "process %d has no thread %d", s->pid, tid);
    st->missing = s->missing ? s->missing(s) : NULL;
out:
    frames_close(&r);
    return rc;
}

int inspect_backtrace(int pid, struct inspect_stacks *want, char **out) {
    struct origin_files files = {want->sysroot, want->exe};
    struct origin s;
    struct stacks st = {.s = &s};

    *out = NULL;
    want->stood_ns = 0;
    int rc = want->core    ? origin_core(&s, want->core, &files, out)
             : want->given ? origin_given(&s, want->given, out)
                           : origin_running(&s, pid, out);
    if (rc < 0)
        return rc;
    rc = stacks_read(&st, &s, want->flags, want->tid, out);
    if (rc == 0) {
        want->stood_ns = st.stood_ns;
        *out = render(&st, want->flags);
        rc = *out ? 0 : -ENOMEM;
    }
    free_threads(&st);
    free(st.missing);
    free(st.note);
    free(st.tasks);
    origin_close(&s);
    return rc;
}
