// SPDX-License-Identifier: Apache-2.0
// A library: wait_in_vfork() puts the calling thread into uninterruptible sleep for some seconds, in which the parent of a
// vfork waits.
#include <unistd.h>

int wait_in_vfork(int seconds) {
    pid_t pid = vfork();

    if (pid == 0) {
        sleep((unsigned)seconds);
        _exit(0);
    }
    return pid > 0 ? 0 : -1;
}
