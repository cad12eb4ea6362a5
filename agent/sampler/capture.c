/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/capture.h"

#define NAMES_A_TIME 4

enum {
    STACK_ALL_ENTRY = 1,
    STACK_PYTHON_CUT = 2,
    STACK_NATIVE_CUT = 4
}; /* records.def, stack.flags */

static int holds(const struct capture_check *check) {
    return !check || check->holds(check->ctx);
}

static void ask_owner(struct capture_dict *d, const struct pywalk *pw,
                      const struct pywalk_frame *f) {
    uint64_t owner = pywalk_owner(&d->objects, pw, f);
    uint32_t i = __atomic_load_n(&d->owners_in, __ATOMIC_RELAXED) % CAPTURE_OWNERS;
    if (owner < 2 || __atomic_load_n(&d->owners[i].code, __ATOMIC_ACQUIRE))
        return;
    i = __atomic_fetch_add(&d->owners_in, 1, __ATOMIC_RELAXED) % CAPTURE_OWNERS;
    __atomic_store_n(&d->owners[i].owner, owner, __ATOMIC_RELAXED);
    __atomic_store_n(&d->owners[i].code, f->code, __ATOMIC_RELEASE);
}

static void write_name(struct capture_dict *d, struct ring *ring, uint64_t code, uint64_t owner) {
    uint64_t epoch = __atomic_load_n(&d->live->epoch, __ATOMIC_ACQUIRE), identity = 0;
    struct pywalk_code known;
    char name[sizeof known.name];
    if (pywalk_code_identity(d->objects.pw, code, &identity) ||
        pywalk_code(d->objects.pw, code, &known))
        return;
    uint64_t done = known_mix(known_mix(0xc0de + epoch, code), identity);
    uint64_t failed = known_mix(done, owner);
    if (known_has(d->named, CAPTURE_NAMED, done) || known_has(d->named, CAPTURE_NAMED, failed))
        return;
    if (pywalk_qualname(&d->objects, code, owner, name, sizeof name) < 0 ||
        !strcmp(name, known.name)) {
        known_add(d->named, CAPTURE_NAMED, failed);
        return;
    }
    if (!WRITER_PUT(ring, code_name, .key = done, .name = value_text(known.name),
                    .file = value_text(known.file),
                    .firstline = known.firstline > 0 ? (uint64_t)known.firstline : 0,
                    .qualname = value_text(name)))
        known_add(d->named, CAPTURE_NAMED, done);
}

void capture_names(struct capture_dict *d, struct ring *ring) {
    for (int k = 0; k < NAMES_A_TIME; k++) {
        uint32_t i = d->owners_out % CAPTURE_OWNERS;
        uint64_t code = __atomic_load_n(&d->owners[i].code, __ATOMIC_ACQUIRE);
        uint64_t owner = __atomic_load_n(&d->owners[i].owner, __ATOMIC_RELAXED);
        if (!code)
            return;
        __atomic_store_n(&d->owners[i].code, 0, __ATOMIC_RELEASE);
        d->owners_out++;
        write_name(d, ring, code, owner);
    }
}

static int define_frame(struct capture *c, struct capture_dict *d, const struct pywalk *pw,
                        struct ring *ring, const struct capture_check *check,
                        const struct pywalk_frame *f, uint64_t key) {
    struct pywalk_code *code = &c->code;
    int rc = pywalk_code(pw, f->code, code);
    if (rc)
        return rc;
    int line = pywalk_frame_line(pw, code, f->lasti);
    if (!holds(check))
        return -EAGAIN;
    if (WRITER_PUT(ring, frame, .key = key, .name = value_text(code->name),
                   .file = value_text(code->file),
                   .firstline = code->firstline > 0 ? (uint64_t)code->firstline : 0,
                   .line = line > 0 ? (uint64_t)line : 0))
        return -ENOBUFS;
    known_add(d->frames, CAPTURE_KNOWN, key);
    ask_owner(d, pw, f);
    return 0;
}

int capture_python(struct capture *c, const struct pywalk *pw,
                   const uint64_t states[CAPTURE_STATES], uint64_t sp, uint64_t ident) {
    _Static_assert(sizeof c->keys >= PYWALK_SPACE, "they serve as the walk's work space, too");
    const int several = *states && states[1];
    int rc = 0;
    c->nframes = 0;
    c->frames_cut = 0;
    for (int cut = 0; *states; states++, cut = 0) {
        if (states[1] && !pywalk_runs_on(pw, *states, sp, ident))
            continue;
        rc = pywalk_frames_in(pw, *states, c->frames + c->nframes, CAPTURE_FRAMES - c->nframes,
                              &cut, c->keys);
        c->frames_cut |= cut || (rc < 0 && c->nframes);
        uint32_t from = c->nframes;
        c->nframes += rc > 0 ? (uint32_t)rc : 0;
        if (several && rc > 0)
            pywalk_place(pw, *states, sp, ident, c->frames, from, c->nframes);
    }
    return rc < 0 && !c->nframes ? rc : 0;
}

/* Fills in keys[], with a 0 after each entry frame unless all frames are entry frames. Returns how many, or -errno. */
static int list_keys(struct capture *c, const struct pywalk *pw, uint64_t seed, uint64_t *flags) {
    uint32_t n = 0, entries = 0;
    uint64_t identity = 0;
    for (uint32_t i = 0; i < c->nframes; i++)
        entries += c->frames[i].flags & PYWALK_ENTRY ? 1 : 0;
    int all = c->nframes && entries == c->nframes;
    for (uint32_t i = 0; i < c->nframes; i++) {
        const struct pywalk_frame *f = &c->frames[i];
        if (i == 0 || f->code != f[-1].code) { /* recursion: the same code object, read it once */
            int rc = pywalk_code_identity(pw, f->code, &identity);
            if (rc)
                return rc;
        }
        uint64_t key = known_mix(known_mix(known_mix(seed, f->code), identity), (uint32_t)f->lasti);
        c->keys[n++] = key ? key : 1;
        if (!all && (f->flags & PYWALK_ENTRY))
            c->keys[n++] = 0;
    }
    *flags = (all ? STACK_ALL_ENTRY : 0) | (c->frames_cut ? STACK_PYTHON_CUT : 0) |
             (c->pcs_cut ? STACK_NATIVE_CUT : 0);
    return (int)n;
}

int capture_store(struct capture *c, struct capture_dict *d, const struct pywalk *pw,
                  struct ring *ring, const struct capture_check *check, uint64_t *key) {
    /* Ids start anew in each epoch: so the keys depend on the epoch, and everything is defined again. */
    uint64_t seed = known_mix(0x5eed, __atomic_load_n(&d->live->epoch, __ATOMIC_ACQUIRE));
    uint64_t flags = 0;
    int nkeys = list_keys(c, pw, seed, &flags);
    if (nkeys < 0)
        return nkeys;
    uint64_t h = known_mix(known_mix(seed, flags), (uint32_t)nkeys);
    for (int i = 0; i < nkeys; i++)
        h = known_mix(h, c->keys[i]);
    for (uint32_t i = 1; i < c->npcs; i++)
        h = known_mix(h, c->pcs[i]);
    *key = h ? h : 1;
    if (known_has(d->stacks, CAPTURE_KNOWN, *key))
        return holds(check) ? 0 : -EAGAIN;
    for (int i = 0, k = 0; i < (int)c->nframes; i++, k++) {
        if (!known_has(d->frames, CAPTURE_KNOWN, c->keys[k])) {
            int rc = define_frame(c, d, pw, ring, check, &c->frames[i], c->keys[k]);
            if (rc)
                return rc;
        }
        if (k + 1 < nkeys && c->keys[k + 1] == 0)
            k++;
    }
    if (!holds(check))
        return -EAGAIN;
    if (WRITER_PUT(ring, stack, .key = *key, .python = {.p = c->keys, .n = (uint32_t)nkeys},
                   .native = {.p = c->pcs + 1, .n = c->npcs ? c->npcs - 1 : 0}, .flags = flags))
        return -ENOBUFS;
    known_add(d->stacks, CAPTURE_KNOWN, *key);
    return 0;
}
