/* SPDX-License-Identifier: Apache-2.0 */
#include "arrow_stop.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 100000000 /* a look needs the GIL, for which other threads of Python may wait */

/* Only the main thread uses what follows. */
static struct {
    int (*is_initialized)(void);
    int (*ensure)(void);
    void (*release)(int state);
    void *(*occurred)(void);
    int (*check_signals)(void);
    void (*fetch)(void **type, void **value, void **traceback);
    void (*restore)(void *type, void *value, void *traceback);
    int (*add_pending_call)(int (*call)(void *arg), void *arg);
} python;
static void *raised[3]; /* by a handler, and not yet raised in the program */
static int64_t looked;

static int find_python(void) {
    static const struct {
        const char *name;
        void *to;
    } needed[] = {{"PyGILState_Ensure", &python.ensure},
                  {"PyGILState_Release", &python.release},
                  {"PyErr_Occurred", &python.occurred},
                  {"PyErr_CheckSignals", &python.check_signals},
                  {"PyErr_Fetch", &python.fetch},
                  {"PyErr_Restore", &python.restore},
                  {"Py_AddPendingCall", &python.add_pending_call},
                  {"Py_IsInitialized", &python.is_initialized}};

    for (size_t i = 0; !python.is_initialized && i < sizeof needed / sizeof *needed; i++) {
        void *function = dlsym(RTLD_DEFAULT, needed[i].name);
        if (!function)
            return 0;
        *(void **)needed[i].to = function;
    }
    return python.is_initialized();
}

/* Called by Python between two of its instructions: what it returns, and sets, is raised there. */
static int raise_now(void *arg) {
    (void)arg;
    python.restore(raised[0], raised[1], raised[2]);
    raised[0] = NULL;
    return -1;
}

int arrow_stopped(void) {
    struct timespec now;

    if (syscall(SYS_gettid) != getpid() || clock_gettime(CLOCK_MONOTONIC_COARSE, &now) != 0)
        return 0;
    if (raised[0])
        return 1;
    int64_t at = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (at - looked < LOOK_NS || !find_python())
        return 0;
    looked = at;
    int state = python.ensure();
    if (!python.occurred() && python.check_signals() != 0) {
        python.fetch(&raised[0], &raised[1], &raised[2]);
        if (python.add_pending_call(raise_now, NULL) != 0) /* too many of them: it is raised here */
            raise_now(NULL);
    }
    int stopped = raised[0] || python.occurred();
    python.release(state);
    return stopped;
}
