/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/sampler_threads.h"

#include <dlfcn.h>
#include <stdio.h>

#include "agent/core/threads.h"

#define NAME_TRIES  20   /* one at each listing; later ones are every three seconds */
#define END_WAIT_MS 1000 /* wait for a handler whose thread has lost its CPU */

int sampler_threads_init(struct sampler_table *s, struct live *live, uint32_t tid) {
    s->live = s->dict.live = live;
    s->pages = (struct pywalk_pages){{memory_read, NULL}, SAMPLER_PAGES, s->page};
    s->ring = live_ring_get(live, tid);
    s->epoch = __atomic_load_n(&live->epoch, __ATOMIC_ACQUIRE);
    return s->ring ? 0 : -EBUSY;
}

void sampler_threads_free(struct sampler_table *s) {
    if (s->ring)
        live_ring_orphan(s->ring);
    unwind_free(&s->unwind);
}

int sampler_threads_attach(struct sampler_table *s, const struct agent_python *py) {
    struct pywalk_mem mem = {pywalk_pages_read, &s->pages};
    pywalk_pages_forget(&s->pages);
    int rc = pywalk_init(&s->pw, mem, &py->found.target);
    if (rc)
        return rc;
    pywalk_objects_init(&s->dict.objects, &s->pw);
    s->handler.pw = s->pw;
    s->handler.pw.mem = (struct pywalk_mem){pywalk_read_direct, NULL};
    s->handler.far = s->pw;
    s->handler.far.mem = (struct pywalk_mem){pywalk_read_process, (void *)(intptr_t)getpid()};
    s->handler.live = s->live;
    s->handler.dict = &s->dict;
    s->handler.unwind = &s->unwind;
    s->handler.this_tstate = dlsym(py->handle, "PyGILState_GetThisThreadState");
    return s->handler.this_tstate ? 0 : -ENOTSUP;
}

/* ---- records ---- */

void sampler_threads_note(struct sampler_table *s, uint64_t now, unsigned level, const char *text) {
    WRITER_PUT(s->ring, note, .ts = now, .level = level, .part = value_text("sampler"),
               .text = value_text(text));
}

static void record_thread(struct sampler_table *s, const struct sampled *t, uint64_t now,
                          unsigned alive) {
    WRITER_PUT(s->ring, thread, .ts = now, .tid = t->tid, .name = value_text(t->name),
               .ident = t->ident, .state = alive, .python_name = value_text(t->python_name));
}

void sampled_flush(struct sampler_table *s, struct sampled *t) {
    struct pending *p = &t->pending;
    if (!p->count)
        return;
    if (request_record(t->request, s->live, s->ring, p->ts, p->stack, p->pc, p->cpu_us, p->count,
                       p->flags))
        live_lose(s->live, TRACE_LOST_ring_full, p->count - 1); /* the ring has counted one */
    p->count = 0;
    p->cpu_us = 0;
}

void sampler_threads_flush(struct sampler_table *s) {
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++)
        sampled_flush(s, t);
}

void sampler_threads_set_period(struct sampler_table *s, uint64_t period) {
    if (period == s->period)
        return;
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++) {
        t->backoff = (struct backoff){0};
        if (!s->period && t->seen) /* after a pause, whose CPU time is in no sample */
            sampled_cpu(t, &t->request->cpu_base);
    }
    s->period = period;
}

/* ---- threads come and go ---- */

int sampled_open(uint32_t tid, const char *what) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%u/%s", tid, what);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void read_name(uint32_t tid, char name[16]) {
    proc_file(getpid(), (pid_t)tid, "comm", name, 16);
    name[strcspn(name, "\n")] = 0;
}

/* Reads the name that Python's threading module gives to the thread. Fails at times while the thread runs: call it again later. Returns 1 when it has changed. */
static int read_python_name(struct sampler_table *s, struct sampled *t) {
    struct capture *c = &s->capture;
    char name[sizeof t->python_name] = "";
    int cut = 0, rc = -ENOENT;
    int n =
        s->dict.objects.f ? pywalk_frames(&s->pw, t->tstate, c->frames, CAPTURE_FRAMES, &cut) : 0;
    if (n > 0 && !cut)
        rc = pywalk_thread_name(&s->dict.objects, &c->frames[n - 1], name, sizeof name);
    if (rc < 0)
        *name = 0;
    if (n > 0 && rc == -ENOENT && t->tid == (uint32_t)getpid())
        strcpy(name, "MainThread"); /* a main thread's frames do not name it */
    t->name_tries++;
    if (!*name || !strcmp(name, t->python_name))
        return 0;
    strcpy(t->python_name, name);
    return 1;
}

/* The kernel's name for a thread's CPU clock. */
static clockid_t cpu_clock(uint32_t tid) {
    return (clockid_t)(~tid << 3 | 6u);
}

/* Returns whether `tid` is a thread of the program that has not ended. (In a forked child, a state of a dead thread that CPython did not drop may seem
 * to belong to a thread of ours that got its stack: so no new thread is accepted while one of ours begins. Threads in the table are not affected.) */
static int is_alive(uint32_t tid, int is_new) {
    struct timespec v;
    return tid && clock_gettime(cpu_clock(tid), &v) == 0 && !threads_is_ours(tid, is_new) &&
           !(threads_main_ended() && tid == (uint32_t)getpid());
}

int sampled_cpu(const struct sampled *t, uint64_t *ns) {
    struct timespec v;
    if (clock_gettime(t->clock, &v))
        return -ESRCH;
    *ns = (uint64_t)v.tv_sec * 1000000000u + (uint64_t)v.tv_nsec;
    return 0;
}

void sampled_new_request(struct sampled *t) {
    struct request *old = t->request, *fresh = request_new(old->tid, old->ident);
    if (!fresh)
        return;
    fresh->interp = old->interp;
    fresh->cpu_base = old->cpu_base;
    fresh->ring = old->ring; /* no other thread may get it: that handler may write yet */
    t->request = fresh;      /* the old one is lost on purpose */
}

static void sampled_add(struct sampler_table *s, const struct pywalk_thread *th, uint64_t now) {
    if (s->n == HANDLER_REQUESTS)
        return;
    struct sampled *t = &s->thread[s->n];
    memset(t, 0, sizeof *t);
    t->request = request_new(th->tid, th->ident);
    if (!t->request)
        return;
    t->tid = th->tid;
    t->ident = th->ident;
    t->clock = cpu_clock(th->tid);
    uint64_t cpu, most = sys_now() - s->since;
    t->request->cpu_base = !sampled_cpu(t, &cpu) && cpu > most ? cpu - most : 0;
    t->tstate = t->states[0] = th->tstate;
    t->interp = t->request->interp = th->interp;
    t->listed = s->listing;
    read_name(t->tid, t->name);
    read_python_name(s, t);
    s->n++;
    record_thread(s, t, now, 1);
}

static void sampled_remove(struct sampler_table *s, uint32_t i, uint64_t now) {
    struct sampled *t = &s->thread[i];
    sampled_flush(s, t);
    record_thread(s, t, now, 0);
    sampled_close(t);
    if (handler_withdraw(t->request) != -EBUSY) /* else its handler still writes into it */
        request_free(t->request);
    s->thread[i] = s->thread[--s->n];
}

static struct sampled *sampled_find(struct sampler_table *s, uint32_t tid, uint32_t hint) {
    for (uint32_t i = hint; i < hint + s->n; i++)
        if (s->thread[i % s->n].tid == tid)
            return &s->thread[i % s->n];
    return NULL;
}

/* CPython 3.11 and later stores a thread's id. In the child of a fork() that did not go through CPython (perhaps before the agent came), that is the
 * parent's id. libc has the right id: returns it if `ident` is the main thread, else 0. */
static uint32_t main_thread(uint64_t ident) {
    int offset = pywalk_find_pthread_tid_off();
    uint32_t tid = 0;
    int err = offset <= 0 || memory_read_self(ident + (uint64_t)offset, &tid, sizeof tid);
    return !err && tid == (uint32_t)getpid() ? tid : 0;
}

int sampler_threads_list(struct sampler_table *s, uint64_t now) {
    int more = 0;
    pywalk_pages_forget(&s->pages);
    /* Read this before the list, so that a thread that begins in between is found the next time. */
    if (pywalk_threads_newest(&s->pw, &s->newest))
        s->newest = 0;
    int n = pywalk_threads(&s->pw, s->list, HANDLER_REQUESTS, &more);
    if (n < 0)
        return n;
    s->listing++;
    /* Oldest first: a state that CPython has prepared for a future thread has its creator's ids until
     * that thread runs, and must not take the creator's entry. */
    for (int i = n; i-- > 0;) {
        struct pywalk_thread *th = &s->list[i];
        if (!sampled_find(s, th->tid, (uint32_t)(n - 1 - i)) && !is_alive(th->tid, 1))
            th->tid = main_thread(th->ident);
        struct sampled *t = sampled_find(s, th->tid, (uint32_t)(n - 1 - i));
        if (!t && !is_alive(th->tid, 1))
            continue;
        if (t && t->listed == s->listing) {
            /* One more state of the thread. Before 3.10, another thread may run in it, if there is one (the main interpreter's
             * states come last). */
            if (th->interp != t->interp &&
                (s->pw.version >= 0x030a0000 || s->list[n - 2].interp_id) &&
                !t->states[CAPTURE_STATES - 2]) {
                memmove(t->states + 1, t->states, sizeof t->states - sizeof *t->states);
                t->states[0] = th->tstate;
            }
            continue;
        }
        if (!t || t->ident != th->ident) { /* new; its id may have been another thread's */
            if (t)
                sampled_remove(s, (uint32_t)(t - s->thread), now);
            sampled_add(s, th, now);
            continue;
        }
        t->listed = s->listing;
        memset(t->states, 0, sizeof t->states);
        t->states[0] = th->tstate;
        t->tstate = th->tstate;
        if (!*t->python_name && t->name_tries < NAME_TRIES && read_python_name(s, t))
            record_thread(s, t, now, 1);
        /* While BUSY or POSTED, the handler may read this; the new pointer is as good as the old one. */
        t->interp = t->request->interp = th->interp;
    }
    for (uint32_t i = s->n; i-- > 0;) {
        struct sampled *t = &s->thread[i];
        if (!is_alive(t->tid, 0)) {
            sampled_remove(s, i, now);
            continue;
        }
        for (uint32_t k = 0; k < CAPTURE_STATES; k++) {
            t->settled = t->states[k] == t->request->states[k] ? t->settled : 0;
            __atomic_store_n(&t->request->states[k], t->states[k], __ATOMIC_RELAXED);
        }
    }
    return 0;
}

int sampler_threads_list_if_new(struct sampler_table *s, uint64_t now) {
    uint64_t stamp;
    struct pywalk direct = s->pw; /* reads a few numbers, which need no pages */
    direct.mem = s->pages.mem;
    int rc = pywalk_threads_newest(&direct, &stamp);
    return rc || stamp != s->newest ? sampler_threads_list(s, now) : 0;
}

void sampler_threads_modules(struct sampler_table *s) {
    if (modmap_refresh(&s->unwind.map) != 1)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->thread[i].cut)
            s->thread[i].settled = 0;
}

void sampler_threads_rename(struct sampler_table *s, uint64_t now) {
    uint32_t segment = __atomic_load_n(&s->live->segment, __ATOMIC_ACQUIRE);
    int again = segment != s->segment;
    s->segment = segment;
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++) {
        char name[16];
        read_name(t->tid, name);
        int renamed = *name && strcmp(name, t->name);
        pywalk_pages_forget(&s->pages);
        if (read_python_name(s, t) + renamed + again) {
            if (renamed)
                memcpy(t->name, name, sizeof name);
            record_thread(s, t, now, 1);
        }
    }
}

void sampler_threads_end(struct sampler_table *s) {
    sampler_threads_flush(s);
    for (struct sampled *t = s->thread; t < s->thread + s->n; t++) {
        int posted = handler_withdraw(t->request);
        for (int ms = 0; posted == -EBUSY && ms < END_WAIT_MS; ms++) {
            sys_sleep(SYS_MS);
            posted = handler_withdraw(t->request);
        }
        if (posted)
            live_lose(s->live, TRACE_LOST_unanswered, t->request->count);
        sampled_close(t);
        if (posted != -EBUSY) /* else the handler still writes into it, and it is not used again */
            request_free(t->request);
    }
    s->n = 0;
}
