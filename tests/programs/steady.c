/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steady.c - notices when anything about its thread is disturbed: errno, the red zone, vector registers,
 * the flags. Runs for argv[1] seconds, prints "steady" and exits 0, or says what changed and exits 1.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Keeps values in xmm registers, in a callee-clobbered integer register, in the red zone and under the stack
 * pointer for a while, without any call; returns whether all are as they were. */
static int hold(void) {
    unsigned long ok = 0, spins = 2000000;

    __asm__ volatile("movabs $0x1122334455667788, %%r10\n\t"
                     "movq %%r10, %%xmm0\n\t"
                     "movq %%r10, %%xmm15\n\t"
                     "mov %%r10, -64(%%rsp)\n\t"
                     "std\n\t"
                     "1: sub $1, %1\n\t"
                     "jnz 1b\n\t"
                     "pushfq\n\t"
                     "pop %%r11\n\t"
                     "cld\n\t"
                     "mov $0, %0\n\t"
                     "and $0x400, %%r11\n\t"
                     "jz 2f\n\t"
                     "movq %%xmm0, %%r11\n\t"
                     "cmp %%r10, %%r11\n\t"
                     "jne 2f\n\t"
                     "movq %%xmm15, %%r11\n\t"
                     "cmp %%r10, %%r11\n\t"
                     "jne 2f\n\t"
                     "cmp %%r10, -64(%%rsp)\n\t"
                     "jne 2f\n\t"
                     "mov $1, %0\n\t"
                     "2:\n\t"
                     : "=&r"(ok), "+&r"(spins)
                     :
                     : "r10", "r11", "xmm0", "xmm15", "cc", "memory");
    return (int)ok;
}

int main(int argc, char **argv) {
    double end = now() + (argc > 1 ? atof(argv[1]) : 1);

    puts("ready");
    fflush(stdout);
    while (now() < end) {
        errno = 4711;
        if (!hold()) {
            puts("registers or the red zone changed");
            return 1;
        }
        if (errno != 4711) {
            printf("errno changed to %d\n", errno);
            return 1;
        }
    }
    puts("steady");
    return 0;
}
