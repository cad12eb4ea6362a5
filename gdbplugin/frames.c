/* SPDX-License-Identifier: Apache-2.0 */
#include "stacks.h"

#include "agent/pywalk/object.h"
#include "core.h"
#include "text.h"
#include "traces/merge.h"
#include "traces/symbol.h"

#define MAX_PYTHON 65536
#define MAX_NATIVE 32768
#define CODES      4096

/* ---- locals: as text, read from memory only, at most 4 KB of text each ---- */

#define LOCALS_MOST 20000 /* values in one backtrace: the process may be stopped meanwhile */
#define MAX_LOCALS  100   /* per frame */
#define MAX_TEXT    4096

struct locals {
    struct pywalk_pages *cache; /* locals are close together, and of the same few types */
    struct pywalk pw;           /* reads through the cache */
    struct pywalk_objects ob;
    size_t *left; /* number of values that may still be read */
    struct stack_frame *out;
    char text[MAX_TEXT];
};

static int one(void *ctx, const struct pywalk_local *local) {
    struct locals *l = ctx;
    struct stack_local *v = &l->out->locals[l->out->nlocals];
    int n, cut = l->out->nlocals == MAX_LOCALS; /* there are more locals */

    if (*l->left == 0)
        return 1;
    --*l->left;
    v->flags = local->flags;
    v->name = strdup(cut ? "..." : local->name);
    n = cut ? 0 : pywalk_type_name(&l->ob, local->object, l->text, sizeof l->text);
    v->type = n > 0 ? strdup(l->text) : NULL;
    n = cut ? 0 : pywalk_repr(&l->ob, local->object, NULL, l->text, sizeof l->text);
    v->value = strdup(n > 0 ? l->text : cut ? "..." : "?");
    l->out->nlocals++; /* frames_free() frees what there is */
    return !v->name || !v->value;
}

/* Opens the reader of locals. The caller must free the cache in any case. */
static int locals_open(struct locals *l, const struct pywalk *pw, size_t *left) {
    l->cache = pywalk_pages_new(pw->mem);
    l->pw = *pw;
    l->pw.mem = (struct pywalk_mem){pywalk_pages_read, l->cache};
    l->left = left;
    return l->cache ? pywalk_objects_init(&l->ob, &l->pw) : -ENOMEM;
}

static void locals_read(struct locals *l, const struct pywalk_frame *frame,
                        struct stack_frame *out) {
    if (*l->left > 0)
        out->locals = calloc(MAX_LOCALS + 1, sizeof *out->locals);
    if (!out->locals)
        return;
    l->out = out;
    /* keep what there is, even if incomplete */
    out->has_locals = pywalk_locals(&l->ob, frame, MAX_LOCALS + 1, one, l) >= 0;
}

/* ---- frames ---- */

/* Code objects read already. Addresses are reused, so each is also checked by its identity. */
struct known_code {
    uint64_t addr, identity;
    const struct python *py;
    struct pywalk_code code;
};

static const struct pywalk_code *read_code(struct frames_reader *r, const struct python *py,
                                           const struct pywalk_frame *f) {
    const uint64_t addr = f->code;
    struct pywalk_objects ob;
    char name[sizeof(*r->codes)->code.name];
    struct known_code **known = &r->codes[(addr * 0x9e3779b97f4a7c15u) >> 52];
    uint64_t identity = 0;

    if (pywalk_code_identity(&py->pw, addr, &identity) < 0)
        return NULL;
    if (*known && (*known)->addr == addr && (*known)->identity == identity && (*known)->py == py)
        return &(*known)->code;
    if (!*known && !(*known = calloc(1, sizeof **known)))
        return NULL;
    (*known)->addr = 0;
    if (pywalk_code(&py->pw, addr, &(*known)->code) < 0)
        return NULL;
    uint64_t owner = pywalk_objects_init(&ob, &py->pw) == 0 ? pywalk_owner(&ob, &py->pw, f) : 0;
    if (owner && pywalk_qualname(&ob, addr, owner, name, sizeof name) > 0)
        memcpy((*known)->code.name, name, sizeof name);
    (*known)->addr = addr;
    (*known)->identity = identity;
    (*known)->py = py;
    return &(*known)->code;
}

static void fill_python(struct frames_reader *r, int which, const struct pywalk_frame *f,
                        struct locals *locals, struct stack_frame *out) {
    const struct python *py = &r->py[which];
    const struct pywalk_code *code = read_code(r, py, f);

    out->python = which + 1;
    out->flags = f->flags;
    out->at = (struct pywalk_position){0, 0, -1, -1};
    if (locals)
        locals_read(locals, f, out);
    if (!code)
        return;
    out->func = py->pw.keep && !code->name[0] ? NULL : strdup(code->name);
    out->file = py->pw.keep && !code->file[0] ? NULL : strdup(code->file);
    pywalk_position(&py->pw, code, f->lasti, &out->at);
}

static struct stack_frame *more(struct stack_thread *t, size_t n) {
    struct stack_frame *v = realloc(t->frames, (t->n + n + 1) * sizeof *v);

    if (!v)
        return NULL;
    t->frames = v;
    memset(v + t->n, 0, (n + 1) * sizeof *v);
    return v + t->n;
}

static int read_native(struct frames_reader *r, const struct origin_thread *src,
                       struct stack_thread *t) {
    int n = 0;

    t->complete = 0;
    if (src->known != REGS_NONE)
        n = native_walk(r->native, (struct pywalk_mem){origin_read, r->s}, src->tid, &src->regs,
                        src->known == REGS_ALL, r->nframes, MAX_NATIVE, &t->complete);
    struct stack_frame *f = n > 0 ? more(t, (size_t)n) : NULL;
    if (n > 0 && !f)
        return -ENOMEM;
    for (int i = 0; i < n; i++, t->n++, t->nnative++) {
        f[i].pc = r->nframes[i].pc;
        f[i].probe = r->nframes[i].probe;
    }
    return 0;
}

const char *frames_why(const struct origin *s, int rc) {
    return rc == -ENOMEM                              ? "out of memory"
           : s->kind == ORIGIN_CORE && s->core->cut   ? "that part of the core is missing"
           : s->kind == ORIGIN_CORE && rc == -EFAULT  ? "memory of theirs is not in the core"
           : s->kind == ORIGIN_GIVEN && rc == -EFAULT ? "GDB cannot read memory of theirs"
           : s->kind == ORIGIN_CORE ? "they are damaged, or the thread was just changing them"
                                    : "the thread was just changing them";
}

/* Reads the frames of one interpreter that the thread is in, and puts them between the *n that r->pframes has of others. */
static int read_state(struct frames_reader *r, const struct python *py,
                      const struct origin_thread *src, const struct pywalk_thread *pt, size_t *n,
                      struct stack_thread *t) {
    struct pywalk_frame *all = r->pframes, *v = all + *n;
    int cut = 0, more;

    t->python = 1;
    if (t->interp < 0)
        t->interp = pt->interp_id;
    t->flags |= pt->flags;
    if (r->flags & INSPECT_NATIVE)
        return 0;
    more = pywalk_frames(&py->pw, pt->tstate, v, MAX_PYTHON - *n, &cut);
    if (more < 0)
        return more;
    t->cut |= cut != 0;
    if (cut > 0 && !t->problem)
        t->problem = say("the Python stack is deeper than what is shown");
    else if (cut < 0 && !t->problem)
        t->problem = say(cut == -EFAULT ? "only a part of its Python frames can be read: %s"
                                        : "its Python frames are not whole or not exact: %s",
                         frames_why(r->s, cut));
    if (more == 0)
        return 0;
    struct pywalk_objects ob;
    char name[sizeof t->name];
    if (!cut && pywalk_objects_init(&ob, &py->pw) == 0 &&
        pywalk_thread_name(&ob, &v[more - 1], name, sizeof name) > 0)
        memcpy(t->name, name, sizeof name);
    v[more - 1].flags |= cut ? STACK_FRAME_CUT : 0;
    const uint64_t first = v->frame;
    pywalk_place(&py->pw, pt->tstate, src->regs.rsp, pt->ident, all, *n, *n + (size_t)more);
    *n += (size_t)more;
    if (all->frame == first)
        t->interp = pt->interp_id;
    return 0;
}

/* Adds the n frames in r->pframes. */
static int add_frames(struct frames_reader *r, int which, size_t n, struct stack_thread *t) {
    struct python *py = &r->py[which];
    const int wanted = (r->flags & INSPECT_LOCALS) != 0;
    struct locals locals = {.cache = NULL};
    struct stack_frame *f = more(t, n);

    if (!f)
        return -ENOMEM;
    int known = wanted && locals_open(&locals, &py->pw, &r->values) == 0;
    for (size_t i = 0; i < n; i++, t->n++)
        fill_python(r, which, &r->pframes[i], known ? &locals : NULL, &f[i]);
    free(locals.cache);
    for (size_t i = 0; i < n && py->pw.keep && !t->problem; i++)
        if (!f[i].func || !f[i].file)
            t->problem = say(
                "names of some of its Python frames or files cannot be read: they are damaged or missing");
    if (wanted && !known && !t->problem)
        t->problem =
            say("its locals cannot be read: objects of Python %s are not known", py->version);
    else if (known && r->values == 0 && !t->problem)
        t->problem = say("there are more than %d locals: the rest is left out", LOCALS_MOST);
    return 0;
}

/* In a core, a thread whose FS base has no thread state is looked up by its id, unless that id belongs to another thread, of another pid namespace. */
static int is_anothers(const struct origin *s, const struct pywalk_thread *pt) {
    int found = 0;

    for (size_t i = 0; i < s->n; i++)
        found |= s->v[i].known == REGS_ALL && s->v[i].regs.fs_base == pt->ident;
    return found;
}

static int read_python(struct frames_reader *r, int which, const struct origin_thread *src,
                       struct stack_thread *t) {
    struct python *py = &r->py[which];
    uint64_t fs_base = src->known == REGS_ALL ? src->regs.fs_base : 0;
    const struct pywalk_thread *pt = NULL;
    size_t n = 0;
    int rc = 0;

    if (py->pw.keep && fs_base && !python_thread(py, src->inner, fs_base, NULL))
        fs_base = 0;
    while ((pt = python_thread(py, src->inner, fs_base, pt))) {
        if (py->pw.keep && !fs_base && is_anothers(r->s, pt))
            continue;
        int err = read_state(r, py, src, pt, &n, t);
        rc = err < 0 ? err : rc;
    }
    return (n > 0 ? add_frames(r, which, n, t) : 0) ?: rc;
}

/* GDB's gcore writes zeros for memory behind a page that it cannot read: the guard page of a thread's stack, if that is not a mapping of its own. */
static int is_blank(struct origin *s, const struct origin_thread *src) {
    static const uint64_t zeros[16];
    uint64_t words[16];

    return s->kind == ORIGIN_CORE && src->known != REGS_NONE &&
           origin_read(s, src->regs.rsp, words, sizeof words) == 0 &&
           memcmp(words, zeros, sizeof zeros) == 0;
}

int frames_read(struct frames_reader *r, const struct origin_thread *src, struct stack_thread *t) {
    int rc = r->native ? read_native(r, src, t) : 0;

    if (is_blank(r->s, src))
        t->problem = say(
            "its stack is all zeros in the core: gcore could not read it (the kernel's own, as of kill -ABRT, has it)");
    for (int i = 0; i < r->npy && rc != -ENOMEM; i++) {
        int err = read_python(r, i, src, t);
        rc = err < 0 ? err : rc;
    }
    return rc;
}

/* ---- merging ---- */

/* Describes a frame for the merge of one Python (-1: of none). */
static struct merge_native native_of(const struct frames_reader *r, const struct stack_thread *t,
                                     int which, uint32_t index) {
    const struct stack_frame *f = &t->frames[index];
    const struct python *py = which < 0 ? NULL : &r->py[which];
    struct merge_native out = {.frame = index};
    struct native_name name;

    if (f->python)
        return out;
    native_name(r->native, f->probe, &name);
    out.owner = merge_owner(name.path);
    if (py && (r->npy == 1 || (f->probe >= py->found.image && f->probe < py->found.image_end)))
        out.eval = python_is_eval(py, f->probe) || symbol_is_eval(name.symbol);
    return out;
}

/* Merges the frames of one Python, `count` of them from `first` on, into the n frames that are in order already. Its
 * eval loops are native frames there, whatever has been merged before. Returns the new number of frames. */
static size_t merge_one(const struct frames_reader *r, const struct stack_thread *t, int which,
                        size_t first, size_t count, uint32_t *order, size_t n,
                        struct merge_native *nat, struct merge_python *py) {
    int own = t->python == 0; /* a thread of the agent itself is shown unchanged */

    for (size_t i = 0; i < n; i++) {
        nat[i] = native_of(r, t, which, order[i]);
        own &= nat[i].owner == MERGE_AGENT || nat[i].owner == MERGE_LIBC;
    }
    if (own)
        return n;
    for (size_t i = 0; i < count; i++)
        py[i] =
            (struct merge_python){(uint32_t)(first + i), t->frames[first + i].flags & PYWALK_ENTRY};
    return merge_stacks(py, count, nat, n, !t->complete || t->cut, order);
}

/* Whether CPython's garbage collector is on the stack, by the names of its functions since 3.7. */
static int collects(const struct frames_reader *r, const struct stack_thread *t) {
    for (size_t i = 0; i < t->nnative; i++) {
        struct native_name name;
        native_name(r->native, t->frames[i].probe, &name);
        if (!strncmp(name.symbol, "gc_collect", 10) || strstr(name.symbol, "PyGC_Collect") ||
            !strcmp(name.symbol, "collect") || !strncmp(name.symbol, "collect_", 8))
            return 1;
    }
    return 0;
}

int frames_merge(const struct frames_reader *r, struct stack_thread *t) {
    AUTO_FREE uint32_t *order = calloc(t->n + 1, sizeof *order);
    AUTO_FREE struct stack_frame *merged = calloc(t->n + 1, sizeof *merged);
    AUTO_FREE struct merge_native *nat = calloc(t->n + 1, sizeof *nat);
    AUTO_FREE struct merge_python *py = calloc(t->n + 1, sizeof *py);
    const size_t first = t->nnative;
    size_t n = first, at = first;

    if (t->flags & PYWALK_MAY_COLLECT && collects(r, t)) /* the native frames show it */
        t->flags |= PYWALK_COLLECTING;
    if (!order || !merged || !nat || !py)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (int p = 0; p < r->npy; p++) {
        size_t count = 0;
        while (at + count < t->n && t->frames[at + count].python == p + 1)
            count++;
        if (count)
            n = merge_one(r, t, p, at, count, order, n, nat, py);
        at += count;
    }
    if (n && at == first) /* no Python frames: still leave out those of the agent */
        n = merge_one(r, t, -1, at, 0, order, n, nat, py);
    for (size_t i = 0; i < n; i++)
        merged[i] = t->frames[order[i]];
    free(t->frames); /* the replaced frames, eval loops, own nothing */
    t->frames = merged;
    t->n = n;
    merged = NULL;
    return 0;
}

/* ---- names ---- */

static void free_frame(struct stack_frame *f) {
    for (size_t k = 0; k < f->nlocals; k++) {
        free(f->locals[k].name);
        free(f->locals[k].type);
        free(f->locals[k].value);
    }
    free(f->locals);
    free(f->func);
    free(f->file);
    free(f->symbol);
    free(f->module);
}

static char *copy(const char *text) {
    return text && *text ? strdup(text) : NULL;
}

/* Makes the frames of the functions at one native frame. `v` is NULL when no lines are known; the last function is the frame's own. */
static void name_native(const struct native_name *name, const struct inlined_frame *v, size_t n,
                        struct stack_frame *out) {
    for (size_t i = 0; i < n; i++, out++) {
        const char *raw = i + 1 < n ? v[i].name : name->symbol;
        out->func = symbol_readable(raw) ?: copy(raw);
        out->module = copy(name->module);
        out->file = v ? copy(v[i].file) : NULL;
        out->at.line = v ? (int)v[i].line : 0;
        out->inlined = i + 1 < n;
        out->symbol = out->inlined ? NULL : copy(raw);
        out->offset = name->offset;
    }
}

int frames_name(const struct frames_reader *r, struct stack_thread *t) {
    AUTO_FREE struct stack_frame *old = t->frames;
    size_t n = t->n, i;

    t->frames = NULL;
    t->n = 0;
    for (i = 0; i < n; i++) {
        const struct inlined_frame *v = NULL;
        struct native_name name;
        size_t k = old[i].python ? 1 : native_functions(r->native, old[i].probe, &v);
        struct stack_frame *f = more(t, k += k == 0);

        if (!f)
            break;
        for (size_t j = 0; j < k; j++)
            f[j] = old[i];
        if (!old[i].python) {
            native_name(r->native, old[i].probe, &name);
            name_native(&name, v, k, f);
        }
        t->n += k;
    }
    for (size_t k = i; k < n; k++)
        free_frame(&old[k]);
    return i < n ? -ENOMEM : 0;
}

/* ---- */

void frames_free(struct stack_thread *t) {
    for (size_t i = 0; i < t->n; i++)
        free_frame(&t->frames[i]);
    free(t->frames);
    free(t->problem);
    *t = (struct stack_thread){0};
}

int frames_open(struct frames_reader *r) {
    r->codes = calloc(CODES, sizeof *r->codes);
    r->nframes = calloc(MAX_NATIVE, sizeof *r->nframes);
    r->pframes = calloc(MAX_PYTHON, sizeof *r->pframes);
    r->values = LOCALS_MOST;
    return r->codes && r->nframes && r->pframes ? 0 : -ENOMEM;
}

void frames_close(struct frames_reader *r) {
    for (int i = 0; r->codes && i < CODES; i++)
        free(r->codes[i]);
    free(r->codes);
    free(r->nframes);
    free(r->pframes);
    native_close(r->native);
    python_free(r->py, r->npy);
}
