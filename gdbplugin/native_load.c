/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Method "native": stops the process for about a millisecond at a time until no thread is inside malloc, the loader and the like (safety_stack), and in that
 * stop lets one thread call dlopen on the stub (call.h). The stub only starts a thread, which loads the agent when the process runs again.
 *
 * Slow work is done while the process runs: before the judgement, the stacks are copied in a first, short stop and unwound from the copy, so that the files,
 * their unwind tables and symbols are in memory. A stop that takes longer than it should is given up, and the next one finds more of them in memory.
 */
#include <signal.h>
#include <sys/resource.h>

#include "agent/pywalk/image.h"
#include "inject.h"
#include "text.h"
#include "traces/hash.h"

#define TRY_NS        2000000000u /* how long to wait for a safe point */
#define CALL_MS       1000        /* for dlopen alone, with all others stopped */
#define CALL_MORE_MS  5000        /* then, with all others running */
#define ADOPT_MS      1000
#define STACK_NEEDED  49152    /* dlopen and the frame need less */
#define JUDGE_NS      4000000u /* for judging the stacks, plus this per thread: */
#define JUDGE_EACH_NS 30000u
#define PRIORITY      (-20) /* while the target is stopped, if permitted */

/* ---- is it safe? ---- */

/* Whether s is one of the blank-separated words. A word that ends in '*' matches as a prefix. */
static int any(const char *s, const char *words) {
    while (*words) {
        size_t n = strcspn(words, " ");
        if (words[n - 1] == '*' ? strncmp(s, words, n - 1) == 0
                                : strncmp(s, words, n) == 0 && s[n] == 0)
            return 1;
        words += n + strspn(words + n, " ");
    }
    return 0;
}

static const char libc_files[] = "libc.so.6 libc-2.* libpthread* libdl.so* libdl-2.*";
static const char loader_files[] = "ld-linux* ld-2.* ld.so*";
static const char malloc_files[] = "libjemalloc* libtcmalloc* libmimalloc* libtbbmalloc* libhoard* "
                                   "libsnmalloc* librpmalloc* libasan* libtsan*";

/* Functions of the C library. Internal ones are only seen where its symbols or debug files exist. */
static const struct {
    const char *what, *names;
} forbidden[] = {
    {"malloc",
     "malloc free calloc realloc reallocarray cfree memalign aligned_alloc posix_memalign valloc "
     "pvalloc malloc_* mallopt mallinfo* __libc_malloc* __libc_free* __libc_calloc "
     "__libc_realloc* __libc_memal* __libc_valloc __libc_pvall* _int_* sysmalloc* systrim* arena_* "
     "tcache_* heap_trim* new_heap* munmap_chunk __malloc_* unlink_chunk* sbrk brk"},
    {"the loader",
     "dlopen dlclose dlsym dlvsym dlmopen dladdr* dlinfo dlerror dl_iterate_phdr __libc_dl* _dl_* "
     "__dlopen* __dlclose* __dlsym* dlopen_*"},
    {"fork",
     "fork __fork __libc_fork _Fork vfork __vfork daemon posix_spawn* __spawn* __posix_spawn* "
     "__libc_spawn* __run_*fork* __run_fork_handlers*"},
    {"thread creation",
     "pthread_create __pthread_create* pthread_exit __pthread_exit* __nptl_* allocate_stack* "
     "__deallocate_stack* create_thread* pthread_cancel __pthread_unwind* __libc_unwind_link_get "
     "setxid_* pthread_atfork __register_atfork __libc_thread_freeres*"},
    {"exit",
     "exit __run_exit_handlers _exit _Exit quick_exit __cxa_finalize __cxa_atexit __new_exitfn "
     "__cxa_thread_atexit* __call_tls_dtors"},
};

const char *safety_stack(const struct native_name *names, size_t n, char *buf, size_t cap) {
    int outside = 0; /* some frame is outside the C library */
    int named = 0;   /* or is in it, with a name that tells what it does */

    for (size_t i = 0; i < n; i++) {
        const struct native_name *f = &names[i];
        int libc = any(f->module, libc_files);

        if (any(f->module, loader_files))
            return "in the loader";
        if (any(f->module, malloc_files)) {
            snprintf(buf, cap, "in the allocator %s", f->module);
            return buf;
        }
        outside |= !libc;
        named |= libc && f->symbol[0] && strncmp(f->symbol, "clone", 5) &&
                 strncmp(f->symbol, "__clone", 7) && strcmp(f->symbol, "start_thread");
        for (size_t k = 0; f->symbol[0] && k < sizeof forbidden / sizeof *forbidden; k++) {
            /* The program may have a malloc of its own, so the names of malloc count everywhere;
             * the others only in the C library (a program's own "fork" means nothing). */
            if ((libc || k == 0) && any(f->symbol, forbidden[k].names)) {
                if (!libc && any(f->symbol, "malloc_* _int_* arena_* tcache_* new_heap*"))
                    continue;
                snprintf(buf, cap, "in %s (%s)", forbidden[k].what, f->symbol);
                return buf;
            }
        }
    }
    if (n && !outside && !named)
        return "starting or ending a thread";
    return NULL;
}

const char *safety_carrier(const struct native_name *names, size_t n, int complete) {
    if (!complete)
        return "its stack cannot be unwound to its start";
    for (size_t i = 0; i < n; i++) {
        if (strstr(names[i].symbol, "restore_rt") ||
            strcmp(names[i].symbol, "__kernel_rt_sigreturn") == 0)
            return "it runs a signal handler";
        if (names[i].module[0] == 0 && i == 0)
            return "it runs generated code";
    }
    return NULL;
}

/* ---- before a stop ---- */

static uint64_t maps_stamp(const struct proc_maps *m) {
    uint64_t h = m->n;

    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].perms[2] == 'x')
            h = hash_step(h, m->v[i].start ^ m->v[i].end << 7 ^ m->v[i].inode << 13);
    return h;
}

/* Finds files other than the C library that define malloc: a function in them may hold an allocator's lock. */
static int find_allocators(struct inject *in) {
    struct pywalk_mem mem = pywalk_process(in->pid);
    struct pywalk_image im;
    uint64_t at;

    free(in->allocators);
    in->nallocators = 0;
    in->allocators = calloc(in->maps.n + 1, sizeof *in->allocators);
    if (!in->allocators)
        return -ENOMEM;
    for (size_t i = 0; i < in->maps.n; i++) {
        const struct proc_map *m = &in->maps.v[i];
        if (m->path[0] == '/' && m->offset == 0 && pywalk_image_open(&im, mem, m->start) == 0 &&
            pywalk_image_symbol(&im, "malloc", &at, NULL) == 0)
            in->allocators[in->nallocators++] = m->start;
    }
    return 0;
}

/* Before each stop: makes mappings and unwinder know what is loaded now. Returns 1 when they have changed. */
static int refresh(struct inject *in) {
    struct native_source source = {&in->maps, pywalk_process(in->pid), in->pid, NULL};
    int rc = inject_maps(in);

    if (rc < 0)
        return rc;
    uint64_t stamp = maps_stamp(&in->maps);
    if (in->native && stamp == in->stamp)
        return 0;
    native_close(in->native);
    in->native = NULL;
    in->stamp = stamp;
    rc = find_allocators(in);
    if (rc == 0)
        rc = native_open(&in->native, &source, 0);
    return rc < 0 ? rc : 1;
}

/* Whether the thread has enough of a stack of its own: the process's, or the one with its control block (fs_base) on top. How far a stack that the program
 * switches to (a coroutine's, a goroutine's) reaches, nothing says: it may be 2 KiB of a large mapping. */
static int has_stack(const struct inject *in, const struct user_regs_struct *r) {
    const struct proc_map *m = proc_maps_at(&in->maps, r->rsp);

    return m && m->perms[1] == 'w' && r->rsp - m->start >= STACK_NEEDED &&
           (strcmp(m->path, "[stack]") == 0 || r->fs_base - r->rsp < m->end - r->rsp);
}

/* Whether the thread is in a system call that continues afterwards; under a seccomp filter, one with a timeout would not (call.c). */
static int blocked(const struct inject *in, const struct user_regs_struct *r) {
    long nr = (long)r->orig_rax, ret = (long)r->rax;

    return nr >= 0 && ret <= -512 && ret >= (in->pre.code.filtered ? -515 : -516);
}

/* Stores the file of a frame, and the function's name if it matters: searching a big library's symbols takes milliseconds. */
static void name_frame(struct inject *in, const struct native_frame *f, struct native_name *out) {
    const struct proc_map *m = proc_maps_at(&in->maps, f->probe);
    const char *base = m ? basename(m->path) : "";
    /* In the C library or the loader the function matters. */
    int wanted = any(base, libc_files) || any(base, loader_files) || any(base, malloc_files);

    for (size_t i = 0; m && !wanted && i < in->nallocators; i++) {
        const struct proc_map *a = proc_maps_at(&in->maps, in->allocators[i]);
        wanted = a && a->inode == m->inode && strcmp(a->path, m->path) == 0;
    }
    if (wanted)
        native_name(in->native, f->probe, out);
    else
        out->offset = out->symbol[0] = 0;
    snprintf(out->module, sizeof out->module, "%s", base);
    if (!out->symbol[0] &&
        f->probe - in->pre.malloc_start < in->pre.malloc_end - in->pre.malloc_start)
        snprintf(out->symbol, sizeof out->symbol, "malloc");
    if (f->pc == in->pre.code.restorer)
        snprintf(out->symbol, sizeof out->symbol, "__restore_rt");
}

/* Unwinds one thread's stack and names its frames. Returns their number. */
static int name_stack(struct inject *in, struct stop *s, size_t i, int *complete) {
    int n = native_walk(in->native, (struct pywalk_mem){stop_read, s}, s->v[i].tid, &s->v[i].regs,
                        1, in->frames, NATIVE_MAX, complete);

    for (int k = 0; k < n; k++)
        name_frame(in, &in->frames[k], &in->names[k]);
    return n;
}

/* Judges every thread. Returns 0 with *carrier, or -EAGAIN: not now, in->why says why. */
static int choose(struct inject *in, struct stop *s, size_t *carrier) {
    /* When the time is not enough (a busy machine), the next stop may take longer. Once all stacks have been read the time no longer matters. */
    uint64_t deadline = sys_now() + JUDGE_NS + s->n * JUDGE_EACH_NS * (1 + in->stops / 2);
    int best = 0;

    snprintf(in->why, sizeof in->why, "no thread that could make the call");
    for (size_t i = 0; i < s->n; i++) {
        int complete, n = name_stack(in, s, i, &complete), score;
        char buf[128];
        const char *why = safety_stack(in->names, (size_t)n, buf, sizeof buf);

        if (why) {
            snprintf(in->why, sizeof in->why, "thread %d is %s", s->v[i].tid, why);
            return -EAGAIN;
        }
        if (i + 1 < s->n && sys_now() > deadline) {
            snprintf(in->why, sizeof in->why, "the stacks of %zu threads could not be read in time",
                     s->n);
            return -EAGAIN;
        }
        if (s->v[i].signal || safety_carrier(in->names, (size_t)n, complete))
            continue;
        if (!has_stack(in, &s->v[i].regs)) {
            snprintf(in->why, sizeof in->why,
                     "no thread could call: %d is on a coroutine's stack; use probing-record",
                     s->v[i].tid);
            continue;
        }
        /* Best: asleep in the kernel. Second: in the program's own code. */
        score = blocked(in, &s->v[i].regs) ? 3 : strncmp(in->names[0].module, "libc", 4) ? 2 : 1;
        if (score > best) {
            best = score;
            *carrier = i;
        }
    }
    return best ? 0 : -EAGAIN;
}

/* Reads the message of the target's dlerror(). */
static void load_error(struct inject *in, struct call *c, char *buf, size_t n) {
    uint64_t at = 0;

    snprintf(buf, n, "no reason given");
    if (in->pre.dlerror && call_function(c, in->pre.dlerror, 0, 0, CALL_MS, &at) == 0 && at) {
        for (size_t len = n - 1; len > 0; len /= 2) { /* it may end near unreadable memory */
            if (proc_read(in->pid, at, buf, len) == 0) {
                buf[len] = 0;
                break;
            }
        }
    }
}

/* Calls dlopen on the chosen thread of the stopped process. */
static int load(struct inject *in, struct stop *s, size_t carrier, char **why) {
    AUTO_FREE struct call *c = malloc(sizeof *c);
    char text[512] = "";
    uint64_t path;

    if (!c)
        return -ENOMEM;
    int rc = call_begin(c, s, carrier, &in->pre.code);
    if (rc == 0 && (rc = inject_same(in)) < 0) /* an exec that was under way at the stop */
        call_end(c);
    if (rc < 0)
        return rc;
    c->until_clone = !in->watched;
    rc = call_string(c, in->stage.lib_there, &path);
    if (rc == 0)
        rc = call_function(c, in->pre.dlopen, path, in->pre.dlopen_flags, CALL_MS, NULL);
    if (rc == -ETIMEDOUT) {
        /* It waits for something that a stopped thread holds. With the other threads running this is a dlopen like any other, and returns like any other. */
        stop_release_others(s, carrier);
        rc = call_function(c, 0, 0, 0, CALL_MORE_MS, NULL);
    }
    in->child = c->child;
    if (rc == 0 && c->left && !inject_mapped(in)) {
        snprintf(in->why, sizeof in->why, "dlopen failed");
        in->watched = 1;
        rc = -EAGAIN;
    } else if (rc == 0 && !c->child && !inject_mapped(in)) {
        load_error(in, c, text, sizeof text);
        rc = -ELIBACC;
    }
    if (call_end(c) < 0)
        rc = -ESRCH; /* the thread has been killed */
    if (rc == -ELIBACC)
        *why = say("process %d cannot load the agent: %s", in->pid, text);
    else if (rc == -EFAULT)
        *why = say("dlopen crashed in process %d; the thread has been put back as it was", in->pid);
    else if (rc == -ETIMEDOUT)
        *why = say("dlopen has not returned in process %d after %u s; it is left to end by itself",
                   in->pid, (CALL_MS + CALL_MORE_MS) / 1000);
    return rc;
}

static void release(struct inject *in, struct stop *s) {
    inject_release(in, s);
    inject_adopt(in, ADOPT_MS);
}

/* Copies the stacks, and unwinds the copies while the process runs. */
static int prepare(struct inject *in, char **why) {
    struct stop s, copy;
    int rc = inject_stand(in, &s, why), complete;

    if (rc < 0)
        return rc;
    rc = stop_copy(&copy, &s, &in->maps);
    release(in, &s);
    for (size_t i = 0; rc == 0 && i < copy.n; i++) {
        int n = name_stack(in, &copy, i, &complete);
        char buf[128];
        safety_stack(in->names, (size_t)n, buf, sizeof buf); /* warms up its code, too */
    }
    stop_copy_free(&copy);
    return rc == -ENOMEM ? 0 : rc; /* without memory for the copy, go on without it */
}

static int attempt_here(struct inject *in, int fresh, char **why) {
    size_t carrier = 0;
    struct stop s;
    int rc = fresh ? prepare(in, why) : 0;

    if (rc == 0)
        rc = inject_stand(in, &s, why);
    if (rc < 0)
        return rc;
    rc = choose(in, &s, &carrier);
    if (rc == 0)
        rc = load(in, &s, carrier, why);
    release(in, &s);
    return rc;
}

static int attempt(struct inject *in, char **why) {
    int fresh = refresh(in), rc, nice, lifted = 0;
    sigset_t all, before;

    if (fresh < 0)
        return fresh;
    /* Dying in the middle would do no harm (call.h), but would leave the staged files behind. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = 0;
    nice = getpriority(PRIO_PROCESS, 0);
    if (errno == 0)
        lifted = setpriority(PRIO_PROCESS, 0, PRIORITY) == 0; /* of this thread; most may not */
    rc = attempt_here(in, fresh || in->stops % 16 == 15, why);
    if (lifted)
        setpriority(PRIO_PROCESS, 0, nice);
    raise(SIGCHLD); /* stop_wait() may have consumed one that the program around us waits for */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int native_load(struct inject *in, char **why) {
    uint64_t deadline = sys_now() + TRY_NS;
    unsigned pause_us = 1000;
    int rc;

    while ((rc = attempt(in, why)) == -EAGAIN && sys_now() < deadline) {
        sys_sleep(pause_us * 1000ull);
        /* irregular, so as not to be in step with a loop of the target */
        pause_us = pause_us * 3 % 4999 + 500;
    }
    if (rc == 0)
        in->means = "loaded by dlopen at a safe point";
    return rc;
}
