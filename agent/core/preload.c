/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preload.c - the stub for LD_PRELOAD (agent.h). Every program of the run loads it, so it depends on libc
 * only and does nothing in a program that is not Python.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "agent/core/agent.h"
#include "agent/core/report.h"
#include "writer/sys.h"

#define AGENT "libprobing-agent.so"

/* Functions of the agent, set once it is loaded; the agent itself checks whether it runs in this very process. */
static void (*stop)(const char *reason, int status, int timeout_ms);
static int (*threads)(void);
static void (*leaving)(void);
static int (*next_execve)(const char *, char *const *, char *const *);
static void *python_base; /* load address of the object that contains CPython */

static int is_python(void) {
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "Py_Main");
    if (!symbol) /* CPython is linked statically, and the program has a main() of its own */
        symbol = dlsym(RTLD_DEFAULT, "_PyRuntime");
    dlerror(); /* clear our error, so that the program does not see it */
    if (symbol && dladdr(symbol, &info))
        python_base = info.dli_fbase;
    return symbol != NULL;
}

static void start_agent(void) {
    char path[4096];
    Dl_info own;
    if (!dladdr(AGENT, &own) || !own.dli_fname)
        return;
    const char *slash = strrchr(own.dli_fname, '/');
    int dir = slash ? (int)(slash + 1 - own.dli_fname) : 0;
    if (snprintf(path, sizeof path, "%.*s" AGENT, dir, own.dli_fname) >= (int)sizeof path)
        return;
    /* RTLD_LOCAL: no symbol of the agent may take precedence over one of the program. */
    void *agent = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!agent) {
        report(getenv("PROBING_REPORT"), "cannot load the agent", AGENT, dlerror());
        return;
    }
    int (*start)(const char *, const char *) = dlsym(agent, "probing_agent_start");
    stop = dlsym(agent, "probing_agent_stop");
    threads = dlsym(agent, "probing_agent_threads");
    leaving = dlsym(agent, "probing_agent_exec");
    if (start &&
        start(NULL, "preload") == -EAGAIN) /* the agent reports other failures itself (service.c) */
        report(getenv("PROBING_REPORT"), "cannot start a thread", AGENT, strerror(EAGAIN));
}

__attribute__((constructor)) static void preload(void) {
    int saved = errno;
    /* Looked up here, because execve() may be called in a child of vfork(), where dlsym() must not be. */
    next_execve = dlsym(RTLD_NEXT, "execve");
    if (is_python())
        start_agent();
    errno = saved;
}

/* CPython 3.8 and later call this first of all when they are initialized, and hardly anything else does: so here we notice a program that has
 * loaded libpython by itself (uWSGI's plugin, PyInstaller's programs). */
PROBING_EXPORT int pthread_condattr_setclock(pthread_condattr_t *attr, clockid_t clock) {
    int (*next)(pthread_condattr_t *, clockid_t) = dlsym(RTLD_NEXT, "pthread_condattr_setclock");
    Dl_info info;
    if (!python_base && dladdr(__builtin_return_address(0), &info) &&
        strstr(info.dli_fname, "/libpython")) {
        python_base = info.dli_fbase;
        start_agent();
    }
    return next ? next(attr, clock) : ENOSYS; /* glibc before 2.34, libpthread not loaded */
}

/* The address sanitizer calls this for its options. By default it ends programs that have anything, such as this stub, preloaded before it. */
PROBING_EXPORT const char *__asan_default_options(void) {
    return "verify_asan_link_order=0";
}

/* The thread sanitizer knows nothing of our atomics. */
PROBING_EXPORT const char *__tsan_default_suppressions(void) {
    return "race:libprobing-agent.so";
}

/* ---- os.fork() of 3.12 and later --------------------------------------------------------------- */

/*
 * It reads the number of threads from /proc/self/stat and prints a DeprecationWarning when there are several. The agent's threads are safe for fork (agent.c),
 * and the program must not print what it would not print without us: so CPython itself, and no other caller, is shown that file without our threads.
 */
static FILE *open_stat_without_us(void) {
    char buf[1024], *number, *tail;
    proc_read_file("/proc/self/stat", buf, sizeof buf);
    number = proc_stat_field(buf, 20);
    FILE *out = number ? fmemopen(NULL, sizeof buf + 16, "w+") : NULL;
    if (out) {
        long count = strtol(number, &tail, 10);
        fprintf(out, "%.*s%ld%s", (int)(number - buf), buf, count - threads(), tail);
        rewind(out);
    }
    return out;
}

PROBING_EXPORT FILE *fopen64(const char *path, const char *mode) {
    static FILE *(*next)(const char *, const char *);
    Dl_info info;
    FILE *out = threads && threads() && !strcmp(path, "/proc/self/stat") &&
                        dladdr(__builtin_return_address(0), &info) && info.dli_fbase == python_base
                    ? open_stat_without_us()
                    : NULL;
    if (!next) /* threads that get here at the same time find the same function */
        next = dlsym(RTLD_NEXT, "fopen64");
    return out || !next ? out : next(path, mode);
}

/* ---- ends of the process that do not go through exit() -------------------------------------------- */

/* exit() runs destructors, the functions below do not: so they end the recording themselves. */
PROBING_EXPORT void _exit(int status) {
    if (stop)
        stop("_exit", status, EXIT_WAIT_MS);
    for (;;)
        syscall(SYS_exit_group, status);
}

PROBING_EXPORT __attribute__((alias("_exit"))) void _Exit(int status);

PROBING_EXPORT int execve(const char *path, char *const *argv, char *const *env) {
    if (leaving)
        leaving();
    return next_execve ? next_execve(path, argv, env) : (int)syscall(SYS_execve, path, argv, env);
}

PROBING_EXPORT int execv(const char *path, char *const *argv) {
    return execve(path, argv, environ);
}
