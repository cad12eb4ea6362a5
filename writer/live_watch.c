/* SPDX-License-Identifier: Apache-2.0 */
/* live_watch.c - a live file that its owner may cut short while we have it mapped: declared in live.h. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "live.h"

static struct live *watched[8]; /* (a) */
static struct sigaction before; /* while there are any */
static unsigned nwatched;

/* The whole mapping becomes zeros, which say that the process is gone. Another's fault goes to who handled it before us. */
static void on_bus(int sig, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    int saved = errno;

    (void)context;
    for (unsigned i = 0; i < sizeof watched / sizeof *watched; i++) {
        struct live *l = __atomic_load_n(&watched[i], __ATOMIC_ACQUIRE);
        if (l && at - (uintptr_t)l < sizeof *l &&
            mmap(l, sizeof *l, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0) != MAP_FAILED) {
            errno = saved;
            return;
        }
    }
    sigaction(sig, &before, NULL); /* it happens again */
}

int live_watch(struct live *l) {
    struct sigaction sa = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER};

    for (unsigned i = 0; i < sizeof watched / sizeof *watched; i++) {
        if (watched[i])
            continue;
        if (nwatched++ == 0)
            sigaction(SIGBUS, &sa, &before);
        __atomic_store_n(&watched[i], l, __ATOMIC_RELEASE);
        return 0;
    }
    return -EMFILE;
}

void live_unwatch(struct live *l) {
    for (unsigned i = 0; l && i < sizeof watched / sizeof *watched; i++) {
        if (watched[i] != l)
            continue;
        __atomic_store_n(&watched[i], NULL, __ATOMIC_RELEASE);
        if (--nwatched == 0)
            sigaction(SIGBUS, &before, NULL);
    }
}
