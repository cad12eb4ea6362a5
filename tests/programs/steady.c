/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steady.c - detects any disturbance of its thread: of errno, the red zone, vector registers or the flags. Runs without any system
 * call until SIGTERM comes, then prints "steady" and exits with 0; or prints what changed, and exits with 1.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static unsigned char want[32][64], got[32][64];

/*
 * Keeps values in all vector registers that there are, in a callee-clobbered integer register, in the red zone and under the
 * stack pointer for a while, without any call; returns whether the red zone and the memory under the stack pointer are
 * unchanged, and leaves the registers in `got`.
 */
#define SIXTEEN         "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define MORE            SIXTEEN ",16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"
#define EACH(which, op) ".irp n," which "\n\t" op "\n\t.endr\n\t"
#define HOLD(name, load, store, after)                                                             \
    static int hold_##name(void) {                                                                 \
        unsigned long ok = 0, spins = 2000000;                                                     \
        __asm__ volatile("movabs $0x1122334455667788, %%r10\n\t" load "mov %%r10, -64(%%rsp)\n\t"  \
                         "std\n\t"                                                                 \
                         "1: sub $1, %1\n\t"                                                       \
                         "jnz 1b\n\t"                                                              \
                         "pushfq\n\t"                                                              \
                         "pop %%r11\n\t"                                                           \
                         "cld\n\t" store "mov $0, %0\n\t"                                          \
                         "and $0x400, %%r11\n\t"                                                   \
                         "jz 2f\n\t"                                                               \
                         "cmp %%r10, -64(%%rsp)\n\t"                                               \
                         "jne 2f\n\t"                                                              \
                         "mov $1, %0\n\t"                                                          \
                         "2:\n\t" after                                                            \
                         : "=&r"(ok), "+&r"(spins)                                                 \
                         : "r"(want), "r"(got)                                                     \
                         : "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",   \
                           "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",    \
                           "xmm15", "cc", "memory");                                               \
        return (int)ok;                                                                            \
    }

HOLD(sse, EACH(SIXTEEN, "movdqu 64*\\n(%2), %%xmm\\n"),
     EACH(SIXTEEN, "movdqu %%xmm\\n, 64*\\n(%3)"), "")
HOLD(avx, EACH(SIXTEEN, "vmovdqu 64*\\n(%2), %%ymm\\n"),
     EACH(SIXTEEN, "vmovdqu %%ymm\\n, 64*\\n(%3)"), "vzeroupper")
HOLD(avx512, EACH(MORE, "vmovdqu64 64*\\n(%2), %%zmm\\n"),
     EACH(MORE, "vmovdqu64 %%zmm\\n, 64*\\n(%3)"), "vzeroupper")

static int hold(void) {
    int more = __builtin_cpu_supports("avx512f"), wide = __builtin_cpu_supports("avx");
    if (!(more ? hold_avx512() : wide ? hold_avx() : hold_sse()))
        return 0;
    for (int i = 0; i < (more ? 32 : 16); i++)
        if (memcmp(want[i], got[i], more ? 64 : wide ? 32 : 16) != 0)
            return 0;
    return 1;
}

static volatile sig_atomic_t ended;

static void end(int sig) {
    (void)sig;
    ended = 1;
}

int main(void) {
    signal(SIGTERM, end);
    for (size_t i = 0; i < sizeof want; i++)
        want[i / 64][i % 64] = (unsigned char)(i * 7 + i / 64 + 1);
    puts("ready");
    fflush(stdout);
    while (!ended) {
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
