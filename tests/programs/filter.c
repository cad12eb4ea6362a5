/* SPDX-License-Identifier: Apache-2.0 */
/* filter ACTION CALL,CALL,... COMMAND: runs the command under a seccomp filter that does this ("kill" the process, "kill_thread",
 * "trap": SIGSYS, "error") at the system calls of these numbers, and allows all others. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static unsigned action(const char *name) {
    return !strcmp(name, "kill")          ? SECCOMP_RET_KILL_PROCESS
           : !strcmp(name, "kill_thread") ? SECCOMP_RET_KILL_THREAD
           : !strcmp(name, "trap")        ? SECCOMP_RET_TRAP
                                          : SECCOMP_RET_ERRNO | ENOSYS;
}

int main(int argc, char **argv) {
    struct sock_filter f[100] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short n = 1;
    if (argc < 4)
        return 2;
    for (char *p = strtok(argv[2], ","); p && n < 97; p = strtok(NULL, ",")) {
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(p), 0, 1);
        f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action(argv[1]));
    }
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog prog = {n, f};
    if (!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
        !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
        execvp(argv[3], argv + 3);
    perror(argv[3]);
    return 99;
}
