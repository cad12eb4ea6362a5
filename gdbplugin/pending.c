/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Method "pending", 3.7 to 3.13: the process is stopped for a moment, a line of Python is laid into the unused rest of
 * libpython's last page of zeroed data, and a pending call of PyRun_SimpleString on it into the interpreter's own
 * list, as Py_AddPendingCall would. Nothing is called by us: the main thread does it at its next safe point. A call
 * that is not taken in time is taken back.
 *
 * Layouts: pending_layouts.inc (gen_pending.py, from CPython's headers), each checked against the live process:
 * the lock is free, the indices are in range, the slot is unused.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pywalk/image.h"
#include "journal.h"
#include "say.h"
#include "script.h"

#define TAKEN_MS 500
#define SLOTS    300

struct layout {
    unsigned minor, in_interp;
    unsigned calls, slot, slots, first, last, lock, mutex, to_do;
    unsigned rt_breaker, interp_breaker, ts_breaker, breaker_bit;
};
static const struct layout layouts[] = {
#include "pending_layouts.inc"
};

struct pending {
    struct inject *in;
    const struct layout *l;
    uint64_t base, interp, tstate;
    uint64_t run;  /* PyRun_SimpleString */
    uint64_t text; /* SCRIPT_MAX unused bytes */
    int32_t first, last;
    struct journal j;
};

static int get(struct pending *p, uint64_t addr, void *buf, size_t n) {
    return proc_read(p->in->pid, addr, buf, n);
}

static int no(struct pending *p, int rc, const char *why) {
    snprintf(p->in->why, sizeof p->in->why, "%s", why);
    return rc;
}

/* The rest of the page after the image's data: the kernel has zeroed it, and nobody owns it. */
static void find_room(struct pending *p, const struct pywalk_image *im) {
    static const char zero[SCRIPT_MAX];
    char there[SCRIPT_MAX];

    for (unsigned i = 0; i < im->segments && !p->text; i++) {
        uint64_t end = im->segment[i].start + im->segment[i].size;
        uint64_t at = (end + 63) & ~63ull, page = (end + 4095) & ~4095ull;
        if (im->segment[i].flags & 2 && page >= at + sizeof there && /* PF_W */
            get(p, at, there, sizeof there) == 0 && memcmp(there, zero, sizeof there) == 0)
            p->text = at;
    }
}

static int find(struct pending *p) {
    struct pywalk_mem mem = {pywalk_read_process, (void *)(intptr_t)p->in->pid};
    struct pywalk_found py;
    struct pywalk_image im;
    unsigned minor;
    int rc = script_python(p->in, &py);

    if (rc < 0)
        return rc;
    minor = py.target.version >> 16 & 255;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i].minor == minor)
            p->l = &layouts[i];
    }
    if (!p->l)
        return no(p, -ENOTSUP, "for Python 3.7 to 3.13 only");
    if (pywalk_image_open(&im, mem, py.image) < 0 ||
        pywalk_image_symbol(&im, "PyRun_SimpleString", &p->run, NULL) < 0)
        return no(p, -ENOTSUP, "there is no PyRun_SimpleString");
    find_room(p, &im);
    /* Others' will do, too, but the loader's: its first allocator lives there. */
    for (size_t i = 0; i < p->in->maps.n && !p->text; i++) {
        const struct proc_map *m = &p->in->maps.v[i];
        if (m->path[0] == '/' && m->offset == 0 && !strstr(m->path, "/ld-") &&
            strstr(m->path, ".so") && pywalk_image_open(&im, mem, m->start) == 0)
            find_room(p, &im);
    }
    if (!p->text)
        return no(p, -ENOTSUP, "there is no unused memory in it");
    p->tstate = script_main_thread(p->in, &py.target);
    if (!p->tstate)
        return no(p, -ENOTSUP, "the interpreter is not (or no longer) initialised");
    p->base = py.target.runtime;
    if (p->l->in_interp || p->l->interp_breaker) {
        struct pywalk pw;
        struct pywalk_thread v[1];
        int more;
        if (pywalk_init(&pw, mem, &py.target) < 0 || pywalk_threads(&pw, v, 1, &more) < 1)
            return no(p, -EAGAIN, "the threads are changing");
        p->interp = v[0].interp;
        if (v[0].interp_id != 0)
            return no(p, -ENOTSUP, "there are subinterpreters");
        if (p->l->in_interp)
            p->base = p->interp;
    }
    return 0;
}

/* Are these pending calls, and is there a place among them? 0; -EAGAIN: not just now; -ENOTSUP: they are not. */
static int look(struct pending *p) {
    const struct layout *l = p->l;
    unsigned char slots[SLOTS * 24];
    uint64_t lock = 0;
    int32_t to_do = 0, held = 0;
    uint8_t mutex = 0;

    if (get(p, p->base + l->calls, slots, l->slots * l->slot) < 0 ||
        get(p, p->base + l->first, &p->first, 4) < 0 ||
        get(p, p->base + l->last, &p->last, 4) < 0 || get(p, p->base + l->to_do, &to_do, 4) < 0)
        return no(p, -ENOTSUP, "its pending calls cannot be read");
    if (p->first < 0 || p->last < 0 || p->first >= (int)l->slots || p->last >= (int)l->slots ||
        to_do < 0 || to_do > (int)l->slots)
        return no(p, -ENOTSUP, "its pending calls are not where they should be");
    for (unsigned i = 0; i < l->slots; i++) {
        uint64_t f;
        memcpy(&f, slots + (size_t)i * l->slot, sizeof f);
        if (f && !proc_maps_at(&p->in->maps, f))
            return no(p, -ENOTSUP, "its pending calls are not where they should be");
    }
    if (l->lock) {
        /* A POSIX semaphore: 1 is free. */
        if (get(p, p->base + l->lock, &lock, 8) < 0 || (lock && get(p, lock, &held, 4) < 0))
            return no(p, -ENOTSUP, "the lock of its pending calls is not where it should be");
        held = lock && held != 1;
    } else if (get(p, p->base + l->mutex, &mutex, 1) == 0)
        held = mutex != 0;
    if (held)
        return no(p, -EAGAIN, "its pending calls are locked just now");
    if (p->first != p->last || (l->mutex && to_do))
        return no(p, -EAGAIN, "it has other pending calls just now");
    return 0;
}

int pending_possible(struct inject *in) {
    struct pending *p = calloc(1, sizeof *p);
    int rc = -ENOMEM;

    if (p) {
        p->in = in;
        rc = find(p);
        if (rc == 0)
            rc = look(p);
    }
    free(p);
    return rc == -EAGAIN ? 0 : rc;
}

static int breaker_write(struct pending *p) {
    const struct layout *l = p->l;
    uint64_t at = l->ts_breaker       ? p->tstate + l->ts_breaker
                  : l->interp_breaker ? p->interp + l->interp_breaker
                                      : p->base + l->rt_breaker;
    uint32_t word;

    if (get(p, at, &word, sizeof word) < 0)
        return -EFAULT;
    if (word & l->breaker_bit)
        return 0;
    word |= l->breaker_bit;
    return journal_write(&p->j, at, &word, sizeof word);
}

/* As Py_AddPendingCall does it; the process stands still. */
static int lay(struct pending *p) {
    const struct layout *l = p->l;
    char text[SCRIPT_MAX];
    uint64_t slot = p->base + l->calls + (uint64_t)p->last * l->slot,
             call[3] = {p->run, p->text, 0};
    int32_t next = (p->last + 1) % (int32_t)l->slots, to_do = 1;
    int rc = script_make(p->in, text, sizeof text);
    size_t n;

    if (rc < 0)
        return rc;
    n = strlen(text) + 1;
    rc = journal_write(&p->j, p->text, text, n);
    if (rc == 0)
        rc = journal_write(&p->j, slot, call, l->slot < sizeof call ? 16 : sizeof call);
    if (rc == 0)
        rc = journal_write(&p->j, p->base + l->last, &next, sizeof next);
    if (rc == 0)
        rc = journal_write(&p->j, p->base + l->to_do, &to_do, sizeof to_do);
    return rc == 0 ? breaker_write(p) : rc;
}

static int taken(void *ctx) {
    struct pending *p = ctx;
    int32_t first;

    return get(p, p->base + p->l->first, &first, 4) == 0 && first != p->first;
}

/* Takes back what was not taken. 0: all of it is as it was; 1: it was taken at the last moment. */
static int take_back(struct pending *p) {
    static const char nothing[1] = "";
    struct stop s;
    char *why = NULL;
    int rc = inject_stand(p->in, &s, &why), was;

    free(why);
    if (rc < 0)
        return 1; /* it cannot be stopped: what is laid will be taken one day, and does no harm */
    was = taken(p);
    if (!was) {
        int32_t last;
        if (get(p, p->base + p->l->last, &last, 4) == 0 &&
            last == (p->last + 1) % (int32_t)p->l->slots)
            journal_undo(&p->j);
        else /* another call stands behind ours: ours shall do nothing */
            journal_write(&p->j, p->text, nothing, sizeof nothing);
    }
    inject_release(p->in, &s);
    return was;
}

/* The text has been run: the memory is given back. */
static void clean(struct pending *p) {
    struct stop s;
    char *why = NULL;

    if (inject_stand(p->in, &s, &why) == 0) {
        p->j.n = 1; /* the text alone: all else the interpreter has used up */
        journal_undo(&p->j);
        inject_release(p->in, &s);
    }
    free(why);
}

int pending_load(struct inject *in, char **why) {
    struct pending *p = calloc(1, sizeof *p);
    struct stop s;
    int rc = -ENOMEM;

    if (!p)
        return rc;
    p->in = in;
    p->j.mem = -1;
    rc = find(p);
    if (rc == 0)
        rc = journal_begin(&p->j, in->pid);
    if (rc == 0)
        rc = inject_stand(in, &s, why);
    if (rc == 0) {
        rc = look(p);
        if (rc == 0)
            rc = lay(p);
        if (rc < 0)
            journal_undo(&p->j);
        inject_release(p->in, &s);
    }
    if (rc == 0) {
        rc = script_wait(in, taken, p, TAKEN_MS);
        if (rc == -EAGAIN && take_back(p))
            rc = script_wait(in, taken, p, TAKEN_MS);
        else if (rc == -EAGAIN)
            no(p, rc, "the main thread has not run Python for half a second");
        else
            clean(p);
    }
    if (rc == 0)
        in->means = "loaded by a pending call";
    journal_end(&p->j);
    free(p);
    return rc;
}
