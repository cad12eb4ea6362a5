/* SPDX-License-Identifier: Apache-2.0 */
/*
 * die_in_call.c - what becomes of a process when its injector is killed while one of its threads runs a call of ours
 * (gdbplugin/call.h).
 *
 *     die_in_call PID USEC      a child makes its first thread call usleep(200000), and is killed after USEC
 *
 * Prints nothing. Exits with 0 if the child was killed during the call, otherwise with 1.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/pywalk/image.h"
#include "gdbplugin/call.h"

#define CALL_US 200000

static int call(pid_t pid, int ready) {
    static struct call c;
    struct pywalk_mem mem = pywalk_process(pid);
    struct call_code code = {0};
    struct pywalk_image im;
    struct proc_maps maps;
    struct stop s;
    uint64_t function = 0;
    const struct proc_map *libc;

    if (proc_maps_read(pid, &maps) < 0 || !(libc = proc_maps_library(&maps, "libc.so.6")) ||
        pywalk_image_open(&im, mem, libc->start) < 0 ||
        pywalk_image_symbol(&im, "usleep", &function, NULL) < 0 ||
        pywalk_image_symbol(&im, "__errno_location", &code.errno_location, NULL) < 0 ||
        call_find_restorer(pid, &maps, libc->start, &code.restorer) < 0)
        return 1;
    if (stop_seize(&s, pid, 2000) < 0 || call_begin(&c, &s, 0, &code) < 0)
        return 1;
    if (write(ready, "x", 1) != 1)
        return 1;
    call_function(&c, function, CALL_US, 0, 10000, NULL);
    return 1; /* nobody has killed us */
}

int main(int argc, char **argv) {
    int ready[2], st;
    char byte;
    pid_t child;

    if (argc != 3 || pipe(ready) < 0)
        return 1;
    child = fork();
    if (child == 0)
        _exit(call((pid_t)atoi(argv[1]), ready[1]));
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    usleep((useconds_t)atoi(argv[2]));
    kill(child, SIGKILL);
    waitpid(child, &st, 0);
    return WIFSIGNALED(st) ? 0 : 1;
}
