/* SPDX-License-Identifier: Apache-2.0 */
/* Thread states: listing them, which frames are further in, who holds the GIL, and where glibc keeps a thread's kernel id. */
#include "mem.h"
#include "offsets.h"

#include <pthread.h>
#include <unistd.h>

#define MAX_INTERPRETERS 4096
#define MAX_THREADS      (1 << 20)
#define STACK_WORDS      64        /* of the C stack, read at a time */
#define STACK_MOST       (1 << 20) /* bytes of it that are searched */

/* Sets *tstate to the thread state of `interp` that holds its GIL (0: none of them). Two to four reads. -ENOTSUP: not known (3.6 without target.current). */
static int gil_holder(const struct pywalk *pw, uint64_t interp, uint64_t *tstate) {
    const struct pywalk_offsets *o = pywalk_offsets(pw);
    uint64_t holder = 0, gil = 0, back = 0;
    int32_t locked = 0;
    int rc;

    *tstate = 0;
    if (o->f.interp_gil != 0) {
        rc = mem_u64(pw, interp + o->f.interp_gil, &gil);
        if (rc != 0 || gil == 0)
            return rc;
        rc = mem_read(pw, gil + o->f.gil_locked, &locked, sizeof locked);
        /* -1 before the GIL exists; last_holder stays set after release. */
        if (rc != 0 || locked <= 0)
            return rc;
        rc = mem_u64(pw, gil + o->f.gil_holder, &holder);
    } else if (pw->version >= PYWALK_3(7)) {
        rc = mem_u64(pw, pw->runtime + o->f.rt_current, &holder);
    } else {
        rc = o->current != 0 ? mem_u64(pw, o->current, &holder) : -ENOTSUP;
    }
    if (rc != 0 || holder == 0)
        return rc;
    /* Check that the holder is of this interpreter: the field's place has moved within 3.7, and interpreters may share a GIL. The
     * holder may also be gone by now. */
    if (!pywalk_plausible(holder))
        rc = -EBADMSG;
    else if (pw->mem.read == pywalk_read_direct && !pywalk_mem_probe(holder + o->f.ts_interp))
        rc = -EFAULT;
    else
        rc = mem_u64(pw, holder + o->f.ts_interp, &back);
    if (rc == 0 && back == interp)
        *tstate = holder;
    return rc;
}

/* Fills in which thread it is, from the bytes of the thread state (from offset 0 on); *t is zeroed. */
static void thread_fill(const struct pywalk *pw, const uint8_t *bytes, struct pywalk_thread *t) {
    const struct pywalk_offsets *o = pywalk_offsets(pw);

    uint32_t tid = 0;

    t->ident = load64(bytes + o->f.ts_thread_id);
    if (o->f.ts_native_id != 0)
        tid = (uint32_t)load64(bytes + o->f.ts_native_id);
    /* The thread may be gone, and its struct pthread with it. */
    else if (o->pthread_tid_off == 0 || !pywalk_plausible(t->ident) ||
             mem_read(pw, t->ident + o->pthread_tid_off, &tid, sizeof tid) != 0)
        return;
    t->tid = tid <= INT32_MAX ? tid : 0;
}

/* The value of a field; 0 also where this version does not have it, or it cannot be read. */
static uint64_t field_of(const struct pywalk *pw, uint64_t base, uint32_t field) {
    uint64_t v;

    return field != 0 && mem_u64(pw, base + field, &v) == 0 ? v : 0;
}

/* Lists all thread states of one interpreter in out, from *n on. */
static int interp_threads(const struct pywalk *pw, uint64_t interp, int64_t id, bool is_main,
                          struct pywalk_thread *out, size_t max, size_t *n, int *more) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint8_t bytes[512];
    const uint32_t fields[] = {f->ts_next, f->ts_interp, f->ts_thread_id, f->ts_native_id};
    uint32_t last = 0;
    /* The thread states that finalise Python and the interpreter, and whether garbage is being collected (an int). */
    const uint64_t ends[] = {field_of(pw, pw->runtime, f->rt_finalizing),
                             field_of(pw, interp, f->interp_finalizing)};
    const bool collecting = (uint32_t)field_of(pw, interp, f->interp_collecting) == 1 ||
                            (uint32_t)field_of(pw, pw->runtime, f->rt_collecting) == 1;
    uint64_t ts = 0, holder = 0; /* 0: not known */
    size_t first = *n, seen = 0;

    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        last = fields[i] > last ? fields[i] : last;
    if (last > sizeof bytes - 8)
        return -ENOTSUP;
    gil_holder(pw, interp, &holder);
    int rc = mem_u64(pw, interp + f->interp_threads, &ts);
    while (rc == 0 && ts != 0) {
        if (*n == max) {
            *more = 1;
            return 0;
        }
        rc = pywalk_plausible(ts) && ++seen < MAX_THREADS ? mem_read(pw, ts, bytes, last + 8)
                                                          : -EBADMSG;
        if (rc == 0 && load64(bytes + f->ts_interp) != interp)
            rc = -EBADMSG;
        if (rc != 0)
            break;
        struct pywalk_thread *t = &out[(*n)++];
        *t = (struct pywalk_thread){.tstate = ts, .interp = interp, .interp_id = id};
        thread_fill(pw, bytes, t);
        if (ts == holder)
            t->flags |= PYWALK_HOLDS_GIL;
        if (collecting)
            t->flags |= ts == holder ? PYWALK_COLLECTING : PYWALK_MAY_COLLECT;
        if (ts == ends[0] || ts == ends[1])
            t->flags |= PYWALK_FINALIZING;
        ts = load64(bytes + f->ts_next);
    }
    if (rc == 0 && *n == first + 1 && out[first].flags & PYWALK_MAY_COLLECT)
        out[first].flags ^= PYWALK_MAY_COLLECT | PYWALK_COLLECTING;
    if (rc == 0 && is_main && *n > first)
        out[*n - 1].flags |= PYWALK_MAIN;
    return rc;
}

/*
 * 3.10 to 3.12: a subinterpreter's thread state bears the ids of the thread that created it, but another thread may run in it. The C frame
 * tells which: glibc's struct pthread lies at the outer end of its thread's stack, except for the main thread.
 */
static void find_runner(const struct pywalk *pw, struct pywalk_thread *all, size_t n,
                        struct pywalk_thread *t) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    const struct pywalk_thread *by = NULL;
    uint64_t cframe = field_of(pw, t->tstate, f->ts_cframe);

    if (cframe == 0 || cframe == t->tstate + f->ts_root_cframe)
        return;
    for (size_t i = 0; i < n; i++)
        if (all[i].interp_id == 0 && all[i].ident > cframe && (!by || all[i].ident < by->ident))
            by = &all[i];
    for (size_t i = 0; i < n && !by; i++)
        by = all[i].flags & PYWALK_MAIN ? &all[i] : NULL;
    if (by) {
        t->ident = by->ident;
        t->tid = by->tid;
    }
}

uint64_t pywalk_interp(const struct pywalk *pw, uint64_t tstate) {
    return field_of(pw, tstate, pywalk_offsets(pw)->f.ts_interp);
}

int pywalk_holds_gil(const struct pywalk *pw, const uint64_t *states) {
    uint64_t holder = 0, interp;

    while (*states && !((interp = pywalk_interp(pw, *states)) != 0 &&
                        gil_holder(pw, interp, &holder) == 0 && holder == *states))
        states++;
    return *states != 0;
}

int pywalk_runs_on(const struct pywalk *pw, uint64_t tstate, uint64_t sp, uint64_t ident) {
    const uint32_t field = pywalk_offsets(pw)->f.ts_cframe;
    uint64_t cframe = field_of(pw, tstate, field);

    /* The main thread's struct pthread is not on its stack, which is above all others. */
    return field == 0 || (cframe != 0 && cframe >= sp && (ident < sp || cframe < ident));
}

/*
 * Before 3.10 no frame leads to the C stack; but the loop that runs it has a pointer to it there. Looks for the frames' addresses from the outermost on, each
 * further in than the last: the innermost frame's is the place of all. (Where callees have been, there may be old copies: further in than the loop.)
 */
static uint64_t find_place(const struct pywalk *pw, uint64_t sp, uint64_t ident,
                           const struct pywalk_frame *frames, size_t n) {
    uint64_t words[STACK_WORDS], end = sp & ~(uint64_t)(sizeof words - 1), place = 0;

    while (end < sp + STACK_MOST && (ident < sp || end < ident) &&
           mem_read(pw, end, words, sizeof words) == 0)
        end += sizeof words;
    while (end > sp && mem_read(pw, end -= sizeof words, words, sizeof words) == 0)
        for (size_t i = STACK_WORDS; i-- > 0 && n > 0;)
            if (words[i] == frames[n - 1].frame)
                place = end + i * sizeof *words, n--;
    return place;
}

void pywalk_place(const struct pywalk *pw, uint64_t tstate, uint64_t sp, uint64_t ident,
                  struct pywalk_frame *frames, size_t from, size_t n) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint64_t place = pw->version < PYWALK_3(10) ? find_place(pw, sp, ident, frames + from, n - from)
                                                : field_of(pw, tstate, f->ts_cframe);

    for (size_t i = from, end = from; i < n;) {
        while (end < n && !(frames[end++].flags & PYWALK_ENTRY))
            ;
        if (pw->version >= PYWALK_3(13)) /* the shim that the loop has on the C stack */
            place = field_of(pw, frames[end - 1].frame, f->fr_back);
        for (; i < end; i++)
            frames[i].place = place;
        if (f->cframe_previous != 0)
            place = field_of(pw, place, f->cframe_previous);
    }
    for (size_t i = from, k; i < n; i++) {
        const struct pywalk_frame frame = frames[i];
        for (k = i; k > 0 && frame.place != 0 && frame.place < frames[k - 1].place; k--)
            frames[k] = frames[k - 1];
        frames[k] = frame;
    }
}

int pywalk_threads(const struct pywalk *pw, struct pywalk_thread *out, size_t max, int *more) {
    const struct pywalk_offsets *o = pywalk_offsets(pw);
    uint64_t interp = o->interp_head, next = 0, id = 0;
    size_t n = 0, interps = 0;
    int rc = 0, broken = 0, dummy;

    if (more == NULL)
        more = &dummy;
    *more = 0;
    if (max > INT32_MAX)
        max = INT32_MAX;
    if (interp == 0)
        rc = mem_u64(pw, pw->runtime + o->f.rt_interp_head, &interp);
    if (rc == 0 && interp == 0)
        rc = -EAGAIN;
    while (rc == 0 && interp != 0 && *more == 0) {
        if (!pywalk_plausible(interp) || ++interps > MAX_INTERPRETERS) {
            rc = -EBADMSG;
            break;
        }
        next = 0;
        rc = mem_u64(pw, interp + o->f.interp_next, &next);
        if (rc == 0 && o->f.interp_id != 0)
            rc = mem_u64(pw, interp + o->f.interp_id, &id);
        if (rc == 0) /* newest first: the main interpreter is the last */
            rc = interp_threads(pw, interp, (int64_t)id, next == 0, out, max, &n, more);
        if (rc != 0 && pw->keep != 0) /* as far as it can be read */
            broken = rc, rc = 0;
        interp = next;
    }
    if (rc == 0)
        rc = broken;
    if (rc != 0 && pw->keep != 0 && n > 0)
        *more = rc, rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (out[i].interp_id != 0)
            find_runner(pw, out, n, &out[i]);
    return rc != 0 ? rc : (int)n;
}

int pywalk_threads_newest(const struct pywalk *pw, uint64_t *stamp) {
    const struct pywalk_offsets *o = pywalk_offsets(pw);
    uint64_t interp = o->interp_head, ts = 0, ident = 0, tid = 0;
    int rc = interp != 0 ? 0 : mem_u64(pw, pw->runtime + o->f.rt_interp_head, &interp);

    if (rc == 0 && interp == 0)
        rc = -EAGAIN;
    if (rc == 0)
        rc = pywalk_plausible(interp) ? mem_u64(pw, interp + o->f.interp_threads, &ts) : -EBADMSG;
    if (rc == 0 && ts != 0)
        rc = pywalk_plausible(ts) ? mem_u64(pw, ts + o->f.ts_thread_id, &ident) : -EBADMSG;
    if (rc == 0 && ts != 0 && o->f.ts_native_id != 0)
        rc = mem_u64(pw, ts + o->f.ts_native_id, &tid);
    *stamp = mem_mix(mem_mix(mem_mix(interp, ts), ident), tid);
    return rc;
}

/* ---- the kernel's thread id in glibc's struct pthread ----------------------------------------- */

#define PTHREAD_WORDS 384 /* fewer than any struct pthread has (about 575) */

static void *find_tid(void *hits) {
    const uint8_t *self = (const uint8_t *)pthread_self();
    uint32_t tid = (uint32_t)gettid();

    for (size_t i = 0; i < PTHREAD_WORDS; i++)
        ((bool *)hits)[i] = load32(self + i * 4) == tid;
    return NULL;
}

int pywalk_find_pthread_tid_off(void) {
    static int known; /* (a) it is the same at every call */
    bool mine[PTHREAD_WORDS], other[PTHREAD_WORDS];
    pthread_t thread;
    int rc = __atomic_load_n(&known, __ATOMIC_RELAXED);

    if (rc != 0)
        return rc;
    find_tid(mine);
    rc = pthread_create(&thread, NULL, find_tid, other);
    if (rc != 0)
        return -rc;
    pthread_join(thread, NULL);
    rc = -ENOENT;
    for (size_t i = 0; i < PTHREAD_WORDS && rc < 0; i++)
        if (mine[i] && other[i])
            rc = (int)(i * 4);
    __atomic_store_n(&known, rc, __ATOMIC_RELAXED);
    return rc;
}
