/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Method "pending", 3.7 to 3.13: stops the process, writes a line of Python into the unused end of libpython's last page of zeroed data, and adds a
 * pending call of PyRun_SimpleString with it to the interpreter's own list, as Py_AddPendingCall would. We call nothing ourselves: the main thread
 * makes the call at its next safe point. A call that is not taken in time is taken back.
 *
 * Layouts: pending_layouts.inc (gen_pending.py, from CPython's headers), each checked against the live process:
 * the lock is free, the indices are in range, the slot is unused.
 */

#include "agent/pywalk/image.h"
#include "script.h"

#define SLOTS   300
#define THREADS 65536

struct layout {
    unsigned minor, in_interp;
    unsigned calls, slot, slots, first, last, lock, mutex, to_do;
    unsigned rt_breaker, interp_breaker, ts_breaker, breaker_bit;
};
static const struct layout layouts[] = {
#include "pending_layouts.inc"
};

struct pending {
    struct script s;
    const struct layout *l;
    uint64_t base, interp, tstate;
    uint64_t run;  /* address of PyRun_SimpleString */
    uint64_t text; /* address of SCRIPT_MAX unused bytes */
    int32_t first, last;
};

/* Finds zeros in the rest of the page after the image's data, which nobody uses. In a program the kernel has zeroed that rest; in a library
 * it has the file's contents, and zeros behind the file's end. */
static void find_space(struct script *s, const struct pywalk_image *im) {
    struct pending *p = (struct pending *)s;
    static const char zero[SCRIPT_MAX];
    char there[4096];

    for (unsigned i = 0; i < im->segments; i++) {
        uint64_t end = im->segment[i].start + im->segment[i].size;
        uint64_t first = (end + 63) & ~63ull, page = (end + 4095) & ~4095ull;
        if (!(im->segment[i].flags & PF_W) || script_read(s, first, there, page - first) < 0)
            continue;
        for (uint64_t at = first; !p->text && at + SCRIPT_MAX <= page; at += 64)
            p->text = memcmp(there + (at - first), zero, sizeof zero) == 0 ? at : 0;
    }
}

/* Finds the main thread's state and, if the list is kept there, the interpreter. */
static int find_threads(struct script *s) {
    struct pending *p = (struct pending *)s;
    AUTO_FREE struct pywalk_thread *v = calloc(THREADS, sizeof *v);
    struct pywalk pw = {.version = 0};
    int more, n = 0;

    if (v && pywalk_init(&pw, pywalk_process(s->in->pid), &s->in->pre.python) == 0)
        n = pywalk_threads(&pw, v, THREADS, &more);
    for (int i = 0; i < n && !p->tstate; i++)
        p->tstate = v[i].flags & PYWALK_MAIN ? v[i].tstate : 0;
    if (!p->tstate)
        return script_no(s, -ENOTSUP, "the interpreter is not (or no longer) initialised");
    p->interp = v[0].interp; /* the newest interpreter comes first */
    if (!p->l->in_interp && !p->l->interp_breaker)
        return 0;
    if (p->l->in_interp)
        p->base = p->interp;
    return v[0].interp_id ? script_no(s, -ENOTSUP, "there are subinterpreters") : 0;
}

static int find(struct script *s) {
    struct pending *p = (struct pending *)s;
    struct pywalk_mem mem = pywalk_process(s->in->pid);
    const struct pywalk_target *python = &s->in->pre.python;
    const unsigned minor = python->version >> 16 & 255;
    struct pywalk_image im;

    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].minor == minor)
            p->l = &layouts[i];
    if (!p->l)
        return script_no(s, -ENOTSUP, "for Python 3.7 to 3.13 only");
    if (pywalk_image_open(&im, mem, s->in->pre.image) < 0 ||
        pywalk_image_symbol(&im, "PyRun_SimpleString", &p->run, NULL) < 0)
        return script_no(s, -ENOTSUP, "there is no PyRun_SimpleString");
    find_space(s, &im);
    /* Other images will do, too, except the loader: its first allocator uses that memory. */
    for (size_t i = 0; i < s->in->maps.n && !p->text; i++) {
        const struct proc_map *m = &s->in->maps.v[i];
        if (m->path[0] == '/' && m->offset == 0 && !strstr(m->path, "/ld-") &&
            strstr(m->path, ".so") && pywalk_image_open(&im, mem, m->start) == 0)
            find_space(s, &im);
    }
    if (!p->text)
        return script_no(s, -ENOTSUP, "there is no unused memory in it");
    p->base = python->runtime;
    return find_threads(s);
}

/* Checks that these are the pending calls, and that there is a place among them. Returns 0; -EAGAIN: not just now; -ENOTSUP: they are not. */
static int check(struct script *s) {
    struct pending *p = (struct pending *)s;
    const struct layout *l = p->l;
    unsigned char slots[SLOTS * 24];
    uint64_t lock = 0;
    int32_t to_do = 0, held = 0;
    uint8_t mutex = 0;

    if (script_read(s, p->base + l->calls, slots, l->slots * l->slot) < 0 ||
        script_read(s, p->base + l->first, &p->first, 4) < 0 ||
        script_read(s, p->base + l->last, &p->last, 4) < 0 ||
        script_read(s, p->base + l->to_do, &to_do, 4) < 0)
        return script_no(s, -ENOTSUP, "its pending calls cannot be read");
    if (p->first < 0 || p->last < 0 || p->first >= (int)l->slots || p->last >= (int)l->slots ||
        to_do < 0 || to_do > (int)l->slots)
        return script_no(s, -ENOTSUP, "its pending calls are not where they should be");
    for (unsigned i = 0; i < l->slots; i++) {
        uint64_t f;
        memcpy(&f, slots + (size_t)i * l->slot, sizeof f);
        if (f && !proc_maps_at(&s->in->maps, f))
            return script_no(s, -ENOTSUP, "its pending calls are not where they should be");
    }
    if (l->lock) {
        /* A POSIX semaphore: 1 is free. */
        if (script_read(s, p->base + l->lock, &lock, 8) < 0 ||
            (lock && script_read(s, lock, &held, 4) < 0))
            return script_no(s, -ENOTSUP,
                             "the lock of its pending calls is not where it should be");
        held = lock && held != 1;
    } else if (script_read(s, p->base + l->mutex, &mutex, 1) == 0)
        held = mutex != 0;
    if (held)
        return script_no(s, -EAGAIN, "its pending calls are locked just now");
    if (p->first != p->last || (l->mutex && to_do))
        return script_no(s, -EAGAIN, "it has other pending calls just now");
    return 0;
}

/* Adds the call in the way of Py_AddPendingCall. */
static int lay(struct script *s) {
    struct pending *p = (struct pending *)s;
    const struct layout *l = p->l;
    uint64_t slot = p->base + l->calls + (uint64_t)p->last * l->slot;
    uint64_t call[3] = {p->run, p->text, 0};
    uint64_t breaker = l->ts_breaker       ? p->tstate + l->ts_breaker
                       : l->interp_breaker ? p->interp + l->interp_breaker
                                           : p->base + l->rt_breaker;
    int32_t next = (p->last + 1) % (int32_t)l->slots, to_do = 1;
    int rc = script_write(s, p->text, s->text, strlen(s->text) + 1);

    if (rc == 0)
        rc = script_write(s, slot, call, l->slot < sizeof call ? 16 : sizeof call);
    if (rc == 0)
        rc = script_write(s, p->base + l->last, &next, sizeof next);
    if (rc == 0)
        rc = script_write(s, p->base + l->to_do, &to_do, sizeof to_do);
    return rc == 0 ? script_set(s, breaker, l->breaker_bit) : rc;
}

static int taken(struct script *s) {
    struct pending *p = (struct pending *)s;
    int32_t first = 0;

    return script_read(s, p->base + p->l->first, &first, 4) == 0 && first != p->first;
}

static void take_back(struct script *s) {
    static const char nothing[1] = "";
    struct pending *p = (struct pending *)s;
    int32_t last;

    if (script_read(s, p->base + p->l->last, &last, 4) == 0 &&
        last == (p->last + 1) % (int32_t)p->l->slots)
        script_undo(s);
    else /* another call follows ours: make ours do nothing */
        script_write(s, p->text, nothing, sizeof nothing);
}

/* Restores the memory of the text. */
static void clean(struct script *s) {
    struct stop stop;
    AUTO_FREE char *why = NULL;

    if (inject_stand(s->in, &stop, &why) == 0) {
        s->n = 1; /* only the text: the interpreter has consumed the rest */
        script_undo(s);
        inject_release(s->in, &stop);
    }
}

const struct script_method pending_method = {.size = sizeof(struct pending),
                                             .means = "loaded by a pending call",
                                             .find = find,
                                             .check = check,
                                             .lay = lay,
                                             .taken = taken,
                                             .take_back = take_back,
                                             .clean = clean};
