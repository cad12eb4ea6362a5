/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preload.c - the stub for LD_PRELOAD (agent.h). Every program of the run gets it, so it needs libc
 * alone and does nothing in a program that is not Python.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"

#define AGENT        "libprobing-agent.so"
#define EXIT_WAIT_MS 2000

/* Set when the agent has been loaded; the agent itself knows whether it runs in this very process. */
static void (*stop)(const char *reason, int timeout_ms);

static int is_python(void) {
    int found = dlsym(RTLD_DEFAULT, "Py_BytesMain") || dlsym(RTLD_DEFAULT, "Py_Main") ||
                dlsym(RTLD_DEFAULT, "_PyRuntime");
    dlerror(); /* the program is not to find our error */
    return found;
}

static void start_agent(void) {
    char path[4096];
    Dl_info own;
    int (*start)(const char *, const char *);
    if (!dladdr(AGENT, &own) || !own.dli_fname)
        return;
    const char *slash = strrchr(own.dli_fname, '/');
    size_t dir = slash ? (size_t)(slash + 1 - own.dli_fname) : 0;
    if (dir + sizeof AGENT > sizeof path)
        return;
    memcpy(path, own.dli_fname, dir);
    memcpy(path + dir, AGENT, sizeof AGENT);
    /* RTLD_LOCAL: the agent's libunwind must not stand in for libgcc's unwinder in the program. */
    void *agent = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!agent)
        return;
    start = (int (*)(const char *, const char *))dlsym(agent, "probing_agent_start");
    stop = (void (*)(const char *, int))dlsym(agent, "probing_agent_stop");
    if (start)
        start(NULL, "preload");
}

__attribute__((constructor)) static void preload(void) {
    int saved = errno;
    if (is_python())
        start_agent();
    errno = saved;
}

/* exit() runs destructors; these do not, so the end of the recording is called from here. */
static __attribute__((noreturn)) void leave(int status) {
    if (stop)
        stop("_exit", EXIT_WAIT_MS);
    for (;;)
        syscall(SYS_exit_group, status);
}

PROBING_EXPORT void _exit(int status) {
    leave(status);
}

PROBING_EXPORT void _Exit(int status) {
    leave(status);
}
