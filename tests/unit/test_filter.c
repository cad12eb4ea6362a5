/* SPDX-License-Identifier: Apache-2.0 */
/* filter_judge(), compared with a machine that runs the filter's program with real arguments. */
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "traces/filter.h"

#define ARG(n)                 (unsigned)offsetof(struct seccomp_data, args[n])
#define NUMBER                 (unsigned)offsetof(struct seccomp_data, nr)
#define ARCH                   (unsigned)offsetof(struct seccomp_data, arch)
#define LOAD(at)               BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define IF(op, value, yes, no) BPF_JUMP(BPF_JMP | (op) | BPF_K, value, yes, no)
#define RET(action)            BPF_STMT(BPF_RET | BPF_K, action)
#define ERROR                  (SECCOMP_RET_ERRNO | 1)

static const char *judge(const struct sock_filter *f, size_t size) {
    return filter_judge(f, size / sizeof *f);
}
#define JUDGE(...)                                                                                 \
    judge((const struct sock_filter[]){__VA_ARGS__},                                               \
          sizeof((const struct sock_filter[]){__VA_ARGS__}))

static void test_by_number(void **state) {
    (void)state;
    assert_null(JUDGE(RET(SECCOMP_RET_ALLOW)));
    assert_null(JUDGE(RET(ERROR)));
    assert_null(JUDGE(RET(SECCOMP_RET_LOG)));
    assert_string_equal(JUDGE(RET(SECCOMP_RET_KILL_PROCESS)), "restart_syscall");
    const unsigned deadly[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP};
    for (int i = 0; i < 3; i++) {
        assert_string_equal(JUDGE(LOAD(NUMBER), IF(BPF_JEQ, SYS_membarrier, 0, 1), RET(deadly[i]),
                                  RET(SECCOMP_RET_ALLOW)),
                            "membarrier");
        assert_string_equal(JUDGE(LOAD(NUMBER), IF(BPF_JGT, SYS_clone3 - 1, 0, 2),
                                  IF(BPF_JGE, SYS_clone3 + 1, 1, 0), RET(deadly[i]),
                                  RET(SECCOMP_RET_ALLOW)),
                            "clone3");
    }
    /* Calls that the agent does not make, and calls of another architecture. */
    assert_null(JUDGE(LOAD(NUMBER), IF(BPF_JEQ, SYS_reboot, 0, 1), RET(SECCOMP_RET_KILL_PROCESS),
                      RET(ERROR)));
    assert_null(JUDGE(LOAD(ARCH), IF(BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0),
                      RET(SECCOMP_RET_KILL_PROCESS), RET(ERROR)));
}

/* Whatever the filter asks about the arguments may be true. */
static void test_by_argument(void **state) {
    (void)state;
    assert_string_equal(JUDGE(LOAD(NUMBER), IF(BPF_JEQ, SYS_prctl, 0, 3), LOAD(ARG(0)),
                              IF(BPF_JEQ, 15, 1, 0), RET(SECCOMP_RET_TRAP), RET(SECCOMP_RET_ALLOW)),
                        "prctl");
    assert_null(JUDGE(LOAD(NUMBER), IF(BPF_JEQ, SYS_clone, 0, 4), LOAD(ARG(0)),
                      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x7e020000), IF(BPF_JEQ, 0, 1, 0),
                      RET(ERROR), RET(SECCOMP_RET_ALLOW)));
    assert_string_equal(JUDGE(LOAD(ARG(0)), BPF_STMT(BPF_RET | BPF_A, 0)), "restart_syscall");
}

static unsigned seed = 7;
static unsigned any(unsigned n) {
    seed = seed * 1103515245u + 12345u;
    return (seed >> 16) % n;
}

/* Runs the program as the kernel would. Returns the action. */
static uint32_t machine(const struct sock_filter *f, const struct seccomp_data *d) {
    uint32_t a = 0, x = 0, m[16] = {0};
    for (size_t i = 0;; i++) {
        uint32_t k = f[i].k, with = BPF_SRC(f[i].code) == BPF_X ? x : k;
        switch (f[i].code) {
        case BPF_LD | BPF_W | BPF_ABS:
            memcpy(&a, (const char *)d + k, 4);
            break;
        case BPF_LD | BPF_IMM:
            a = k;
            break;
        case BPF_LD | BPF_MEM:
            a = m[k];
            break;
        case BPF_ST:
            m[k] = a;
            break;
        case BPF_LDX | BPF_IMM:
            x = k;
            break;
        case BPF_MISC | BPF_TAX:
            x = a;
            break;
        case BPF_MISC | BPF_TXA:
            a = x;
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= k;
            break;
        case BPF_ALU | BPF_AND | BPF_X:
            a &= x;
            break;
        case BPF_ALU | BPF_ADD | BPF_K:
            a += k;
            break;
        case BPF_ALU | BPF_RSH | BPF_K:
            a >>= k;
            break;
        case BPF_JMP | BPF_JA:
            i += k;
            break;
        case BPF_RET | BPF_K:
            return k;
        case BPF_RET | BPF_A:
            return a;
        default: {
            int yes = BPF_OP(f[i].code) == BPF_JEQ   ? a == with
                      : BPF_OP(f[i].code) == BPF_JGT ? a > with
                      : BPF_OP(f[i].code) == BPF_JGE ? a >= with
                                                     : (a & with) != 0;
            i += yes ? f[i].jt : f[i].jf;
        }
        }
    }
}

/* No program that kills for one of the calls when the machine runs it is accepted. */
static void test_nothing_that_kills_is_let_in(void **state) {
    static const unsigned calls[] = {SYS_membarrier, SYS_prctl,  SYS_clone,
                                     SYS_exit,       SYS_openat, SYS_futex};
    static const unsigned codes[] = {BPF_LD | BPF_W | BPF_ABS,
                                     BPF_LD | BPF_W | BPF_ABS,
                                     BPF_LD | BPF_IMM,
                                     BPF_LD | BPF_MEM,
                                     BPF_ST,
                                     BPF_LDX | BPF_IMM,
                                     BPF_MISC | BPF_TAX,
                                     BPF_MISC | BPF_TXA,
                                     BPF_ALU | BPF_AND | BPF_K,
                                     BPF_ALU | BPF_AND | BPF_X,
                                     BPF_ALU | BPF_ADD | BPF_K,
                                     BPF_ALU | BPF_RSH | BPF_K,
                                     BPF_JMP | BPF_JA,
                                     BPF_RET | BPF_K,
                                     BPF_RET | BPF_A};
    static const unsigned tests[] = {BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET};
    static const unsigned ends[] = {SECCOMP_RET_ALLOW, SECCOMP_RET_ALLOW, ERROR, SECCOMP_RET_TRAP};
    unsigned killed = 0, passed = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct sock_filter f[24];
        size_t n = 4 + any(20);
        for (size_t i = 0; i < n; i++) {
            unsigned left = (unsigned)(n - i - 1), code = codes[any(sizeof codes / sizeof *codes)];
            f[i] = (struct sock_filter){.code = (uint16_t)code, .k = calls[any(6)]};
            if (i + 1 == n)
                f[i] = (struct sock_filter)RET(ends[any(4)]);
            else if (any(2))
                f[i] = (struct sock_filter)BPF_JUMP(
                    BPF_JMP | tests[any(4)] | (any(4) ? BPF_K : BPF_X), calls[any(6)],
                    (uint8_t)any(left), (uint8_t)any(left));
            else if (code == (BPF_LD | BPF_W | BPF_ABS))
                f[i].k = any(2) ? NUMBER : 4 * any(16);
            else if (BPF_CLASS(code) == BPF_ST || code == (BPF_LD | BPF_MEM))
                f[i].k = any(16);
            else if (code == (BPF_ALU | BPF_RSH | BPF_K))
                f[i].k = any(32);
            else if (code == (BPF_JMP | BPF_JA))
                f[i].k = any(left);
            else if (code == (BPF_RET | BPF_K))
                f[i].k = ends[any(4)];
        }
        int kills = 0;
        for (int i = 0; i < 60; i++) {
            struct seccomp_data d = {
                .nr = (int)calls[i % 6], .arch = AUDIT_ARCH_X86_64, .instruction_pointer = any(4)};
            for (int k = 0; k < 6; k++)
                d.args[k] = any(2) ? calls[any(6)] : any(5);
            kills |=
                (int32_t)(machine(f, &d) & SECCOMP_RET_ACTION_FULL) < (int32_t)SECCOMP_RET_ERRNO;
        }
        const char *name = filter_judge(f, n);
        killed += kills != 0;
        passed += name == NULL;
        if (kills)
            assert_non_null(name);
    }
    assert_true(killed > 2000 && passed > 2000); /* both were among them */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_number),
        cmocka_unit_test(test_by_argument),
        cmocka_unit_test(test_nothing_that_kills_is_let_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
