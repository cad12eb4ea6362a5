/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_exit.c - a library whose exit handler loads $SLOW_EXIT_LOADS, prints "exiting" and takes a second more. Handlers run in reverse
 * order: everything that was loaded after this library is destroyed by then.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_a_little(void) {
    const char *more = getenv("SLOW_EXIT_LOADS");
    if (more && !dlopen(more, RTLD_NOW))
        _exit(9);
    if (write(1, "exiting\n", 8) == 8)
        usleep(1000000);
}

__attribute__((constructor)) static void loaded(void) {
    atexit(wait_a_little);
}
