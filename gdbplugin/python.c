/* SPDX-License-Identifier: Apache-2.0 */
#include "python.h"

#include <ctype.h>
#include <elf.h>

#include "agent/pywalk/offsets.h"
#include "core.h"
#include "text.h"

#define MAX_THREADS 65536

/* libpython; the program; any other file that is mapped from its first byte on. */
enum { RANK_LIBPYTHON, RANK_PROGRAM, RANK_OTHER, RANKS };

static int rank_of(const struct origin *s, const struct proc_map *m) {
    if (m->path[0] != '/' || m->offset != 0 || m->perms[0] != 'r' || proc_maps_is_copy(&s->maps, m))
        return RANKS;
    if (strncmp(basename(m->path), "libpython", 9) == 0)
        return RANK_LIBPYTHON;
    return strcmp(m->path, s->exe) == 0 ? RANK_PROGRAM : RANK_OTHER;
}

static void say_version(uint32_t version, char text[24]) {
    snprintf(text, 24, "%u.%u.%u", version >> 24, version >> 16 & 255, version >> 8 & 255);
}

/* Explains errors that pywalk does not explain itself. */
static void say_unknown(char **note, const struct origin *s, const struct proc_map *m,
                        const struct pywalk_target *t, int rc) {
    char version[24];

    if (*note)
        return;
    say_version(t->version, version);
    if (rc == -EAGAIN)
        *note = say("Python is not initialised yet, or has ended");
    else if (pywalk_free_threaded(s->mem, t))
        *note = say(
            "no Python frames: the CPython %s in %s is a free-threaded build, and only those with a GIL are known",
            version, m->path);
    else if (s->kind == ORIGIN_CORE && rc != -ENOTSUP)
        *note = say("no Python frames: memory of the CPython in %s is not in the core", m->path);
    else if (t->version)
        *note =
            say("no Python frames: the layout of CPython %s in %s is not known", version, m->path);
    else
        *note = say("no Python frames: the version of the CPython in %s is not known", m->path);
}

/* Before 3.11 the kernel's id of a thread is only in its struct pthread. Uses the offset of our own glibc if the ids found there are the process's threads. */
static void confirm_tids(struct python *py, struct origin *s) {
    int off, good = 0;

    if (s->kind != ORIGIN_RUNNING || py->pw.version >= 0x030b0000)
        return;
    off = pywalk_find_pthread_tid_off();
    if (off <= 0)
        return;
    py->found.target.pthread_tid_off = (uint64_t)off;
    if (pywalk_init(&py->pw, s->mem, &py->found.target) == 0)
        python_list(py, s);
    for (int i = 0; i < py->n; i++) {
        for (size_t k = 0; k < s->n && !good; k++)
            good = s->v[k].inner == (pid_t)py->threads[i].tid;
    }
    if (good == 0) {
        py->found.target.pthread_tid_off = 0;
        pywalk_init(&py->pw, s->mem, &py->found.target);
    }
}

/*
 * ---- a core on a machine without the libpython (or the program) that ran ----
 * The symbols are missing, but the data is in the core. So each word of it is tried as the start of the runtime. The right one is the one whose interpreters
 * point to thread states that point back, where one state belongs to a thread of the core (by pthread_self()) and has a valid stack.
 */

#define MAX_DATA (64u << 20)
#define MAX_TRY  64

/* Gets the minor version from .../libpython3.11.so.1.0 or .../python3.11; 0: the name does not tell it. */
static unsigned minor_of(const char *path) {
    const char *p = path;
    unsigned minor = 0;

    while ((p = strstr(p, "python3."))) {
        p += 8;
        if (isdigit((unsigned char)*p))
            minor = (unsigned)strtoul(p, NULL, 10);
    }
    return minor < 100 ? minor : 0;
}

/* Searches the data for "3.11.2 (main, ...", which Py_GetVersion() built. */
static uint32_t version_in(const char *p, size_t n, unsigned minor) {
    for (size_t i = 0; i + 16 < n; i++) {
        const char *q = memchr(p + i, '3', n - 16 - i), *end;
        uint32_t version;

        if (!q)
            break;
        i = (size_t)(q - p);
        version = pywalk_parse_version(q, n - i, &end);
        if (version && end + 1 < p + n && memcmp(end, " (", 2) == 0 &&
            (!minor || minor == (version >> 16 & 255)))
            return version;
    }
    return 0;
}

static int sound(struct origin *s, struct pywalk_target *t) {
    /* Only from the core itself, not from files: nearly all words that are tried point somewhere by chance. */
    struct pywalk_mem mem = {core_read_own, s->core};
    struct pywalk_thread v[MAX_TRY];
    struct pywalk_frame f[MAX_TRY];
    struct pywalk pw = {.version = 0};
    int n;

    if (pywalk_init(&pw, mem, t) != 0 || (n = pywalk_threads(&pw, v, MAX_TRY, NULL)) <= 0)
        return 0;
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < s->n; k++) {
            /* The type of code objects, which tells shims apart (3.14+): every code object points to it. */
            if (s->v[k].regs.fs_base == v[i].ident &&
                pywalk_frames(&pw, v[i].tstate, f, MAX_TRY, NULL) > 0 &&
                core_read_own(s->core, f[0].code + pywalk_offsets(&pw)->f.ob_type, &t->code_type,
                              8) == 0)
                return 1;
        }
    }
    return 0;
}

/* Tries the words of one writable range. */
static int search(struct origin *s, uint64_t start, const unsigned char *p, size_t n,
                  struct pywalk_target *t) {
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t word, dummy;

        memcpy(&word, p + i, sizeof word);
        if (t->version < PYWALK_3(7)) { /* a pointer to the interpreter itself */
            if (word < 4096 || (word & 7) || core_read_own(s->core, word, &dummy, 8) < 0)
                continue;
            t->interp_head = word;
        } else if (t->version >= PYWALK_3(13)) {
            if (memcmp(p + i, "xdebugpy", 8) != 0)
                continue;
            t->runtime = start + i;
        } else
            t->runtime = start + i;
        if (sound(s, t))
            return 0;
    }
    return -ENOENT;
}

/* Searches the program's data, and the anonymous memory behind it (.bss). Returns -EFAULT or -ENOENT when it is not there. */
static int search_core(struct origin *s, const struct proc_map *first, struct pywalk_target *out) {
    struct core *c = s->core;
    unsigned minor = minor_of(first->path);
    uint64_t end = first->end;
    uint32_t version = 0;
    int rc = -EFAULT;

    for (size_t i = 0; i < c->maps.n; i++)
        if (strcmp(c->maps.v[i].path, first->path) == 0)
            end = c->maps.v[i].end;
    for (int pass = 0; pass < 2 && rc != 0; pass++) {
        for (size_t i = 0; i < c->nsegments && rc != 0; i++) {
            const struct core_segment *g = &c->segments[i];
            size_t n = g->filed < MAX_DATA ? g->filed : MAX_DATA;

            if (g->addr < first->start || g->addr > end || !(g->flags & PF_W) || n == 0)
                continue;
            int err;
            AUTO_FREE unsigned char *data = core_copy(c, g->offset, n, &err);
            if (pass == 0 && version == 0 && data)
                version = version_in((const char *)data, n, minor);
            if (pass == 1 && data) {
                memset(out, 0, sizeof *out);
                out->version = version;
                rc = search(s, g->addr, data, n, out);
            }
        }
        if (version == 0)
            return -EFAULT; /* no Python is there, or nothing has called Py_GetVersion() in it */
    }
    return rc;
}

/* ---- finding a Python ---- */

/* Whether this is a core and the file was not found: symbols or the constants with the version are missing then. */
static int is_gone(struct origin *s, const struct proc_map *m) {
    const struct core_module *mod = s->kind == ORIGIN_CORE ? core_module(s->core, m->start) : NULL;

    return mod && mod->fd < 0;
}

/* Returns 1 when a Python was added. */
static int try_image(struct python *py, struct origin *s, const struct proc_map *m, int rank,
                     char **note) {
    struct pywalk_found found;
    int rc = pywalk_find_image(s->mem, m->start, &found);

    if (rc != 0 && rank < RANK_OTHER && is_gone(s, m)) {
        memset(&found, 0, sizeof found);
        rc = search_core(s, m, &found.target);
        found.image = m->start;
        found.image_end = m->end;
    }
    if (rc == -ENOENT || rc == -EFAULT) {
        if (rank == RANK_LIBPYTHON && is_gone(s, m) && !s->core->cut)
            say_unknown(note, s, m, &found.target, -EFAULT);
        return 0;
    }
    py->found = found;
    if (rc == 0)
        rc = pywalk_init(&py->pw, s->mem, &found.target);
    if (rc < 0) {
        say_unknown(note, s, m, &found.target, rc);
        return 0;
    }
    say_version(py->pw.version, py->version);
    confirm_tids(py, s);
    return 1;
}

int python_find(struct python **out, struct origin *s, char **note) {
    struct python *py = calloc(PYTHON_MAX, sizeof *py);
    int n = 0;

    *out = py;
    *note = NULL;
    for (int rank = 0; py && rank < RANKS; rank++) {
        /* If the program has Python itself, do not search all its other files for more. */
        if (rank == RANK_OTHER && (n > 0 || *note))
            break;
        for (size_t i = 0; i < s->maps.n && n < PYTHON_MAX; i++)
            if (rank_of(s, &s->maps.v[i]) == rank)
                n += try_image(&py[n], s, &s->maps.v[i], rank, note);
    }
    return n;
}

/* CPython 3.11 and later stores a thread's id. In the child of a fork() that bypassed CPython that is the parent's id, while libc's own
 * structure has the id of the thread that became the main one. */
static void find_main(struct python *py, const struct origin *s) {
    int off = pywalk_find_pthread_tid_off();

    for (int i = 0; i < py->n; i++)
        if (py->threads[i].tid == (uint32_t)s->v[0].inner)
            return;
    for (int i = 0; off > 0 && i < py->n; i++) {
        uint32_t tid = 0;
        if (s->mem.read(s->mem.ctx, py->threads[i].ident + (uint64_t)off, &tid, sizeof tid) == 0 &&
            tid == (uint32_t)s->v[0].inner)
            py->threads[i].tid = tid;
    }
}

void python_list(struct python *py, struct origin *s) {
    py->pw.keep = s->kind == ORIGIN_CORE ? 2 : s->kind == ORIGIN_GIVEN;
    if (!py->threads)
        py->threads = calloc(MAX_THREADS, sizeof *py->threads);
    py->n = py->threads ? pywalk_threads(&py->pw, py->threads, MAX_THREADS, &py->more) : -ENOMEM;
    if (s->kind == ORIGIN_RUNNING && py->pw.version >= 0x030b0000 && s->n && s->v[0].tid == s->pid)
        find_main(py, s);
}

int python_is_eval(const struct python *py, uint64_t addr) {
    const struct pywalk_found *f = &py->found;
    return (addr >= f->eval_start && addr < f->eval_end) ||
           (addr >= f->cold_start && addr < f->cold_end);
}

const struct pywalk_thread *python_thread(const struct python *py, pid_t tid, uint64_t fs_base,
                                          const struct pywalk_thread *last) {
    /* threading.get_ident() is pthread_self(), which is the FS base. The kernel's id may be that of another pid
     * namespace. A state prepared for a thread that is yet to start has its creator's ids, and no frames. */
    for (int i = last ? (int)(last - py->threads) + 1 : 0; i < py->n; i++) {
        const struct pywalk_thread *t = &py->threads[i];
        if (fs_base ? t->ident == fs_base : t->tid == (uint32_t)tid)
            return t;
    }
    return NULL;
}

void python_free(struct python *py, int n) {
    for (int i = 0; py && i < n; i++)
        free(py[i].threads);
    free(py);
}
