/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of agent/unwind/unwind.c from a frame to its caller's, one at a time: what a step depends on must be known, and consistent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/base/known.h"
#include "agent/base/loaded.c"
#include "agent/base/memory.c"
#include "agent/unwind/cfi.c"
#include "agent/unwind/cfi_program.c"
#include "agent/unwind/modmap.c"
#include "agent/unwind/rules.c"
#include "agent/unwind/unwind.c"

static struct guard guard;

/* A caller's frame lies above and is aligned: otherwise a walk could go on for ever over the same words. */
static void a_frame_must_lie_above(void **state) {
    static const struct {
        int32_t off;
        int rc;
    } cases[] = {{0, -EBADMSG}, {-8, -EBADMSG}, {4, -EBADMSG}, {8, 0}, {16, 0}};
    struct cfi_memory mem = {.read = guard_read, .ctx = &guard, .direct = 1};
    uint64_t words[8] = {0, 0, 77, 88};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cfi_rule rule = {.kind = CFI_OFFSET,
                                .reg = CFI_RSP,
                                .cfa_off = cases[i].off,
                                .rbp_off = CFI_KEPT,
                                .rbx_off = CFI_KEPT};
        struct state s = {.pc = 1, .sp = (uint64_t)(uintptr_t)&words[2]}, to;
        struct unwind_regs regs = {.known = 0};
        struct stack stack = {.mem = &mem};
        assert_int_equal(step(&stack, &regs, &rule, &s, &to), cases[i].rc);
        if (!cases[i].rc) {
            assert_int_equal(to.pc, words[2 + cases[i].off / 8 - 1]);
            assert_int_equal(to.sp, s.sp + (uint64_t)cases[i].off);
        }
    }
}

/* The base of a CFA is a register's value only while it is known: rbp and rbx in any frame, r10 before the first call is stepped out of. */
static void a_base_must_be_known(void **state) {
    static const struct {
        unsigned reg, bit, used;
        uint64_t value;
        int32_t innermost; /* it is known in the innermost frame only */
    } cases[] = {{CFI_RBP, UNWIND_BP, USED_BP, 0x1000, 0},
                 {CFI_RBX, UNWIND_BX, USED_BX, 0x2000, 0},
                 {CFI_R10, UNWIND_R10, USED_OTHER, 0x3000, 1}};
    uint64_t saved[2] = {0x4000, 0x5000}, base;
    struct cfi_memory mem = {.read = guard_read, .ctx = &guard};
    struct stack stack = {.mem = &mem};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned known = 0; known < 8; known++)
            for (int exact = 0; exact < 2; exact++) {
                struct unwind_regs r = {.bp = 0x1000, .bx = 0x2000, .r10 = 0x3000};
                struct state s = {.sp = 8, .base = 77, .exact = exact};
                r.known = (known & 1 ? UNWIND_BP : 0) | (known & 2 ? UNWIND_BX : 0) |
                          (known & 4 ? UNWIND_R10 : 0);
                int can = (r.known & cases[i].bit) && (exact || !cases[i].innermost);
                assert_int_equal(base_of(&stack, &r, &s, cases[i].reg, &base), can ? 0 : -ENOENT);
                assert_int_equal(s.used, cases[i].used);
                assert_int_equal(s.base, can ? cases[i].value : 0);
                if (can)
                    assert_int_equal(base, cases[i].value);
                /* Saved in a frame further in: so it is the word there, whatever is in the register. */
                s.bp_at = (uint64_t)(uintptr_t)&saved[0];
                s.bx_at = (uint64_t)(uintptr_t)&saved[1];
                if (cases[i].innermost)
                    continue;
                assert_int_equal(base_of(&stack, &r, &s, cases[i].reg, &base), 0);
                assert_int_equal(base, saved[i]);
                assert_int_equal(s.base, saved[i]);
                assert_int_equal(base_of(&stack, &r, &s, CFI_RSP, &base), 0);
                assert_int_equal(base, 8);
                assert_int_equal(s.used | s.base, 0);
            }
}

/* The kernel stored all registers: behind a signal's handler everything is known again, and the program counter is that of an instruction. */
static void behind_a_signal(void **state) {
    static ucontext_t uc;
    struct cfi_memory mem = {.read = guard_read, .ctx = &guard};
    struct unwind_regs r = {.bp = 1, .bx = 2, .r10 = 3};
    struct state s = {.pc = 4, .sp = (uint64_t)(uintptr_t)&uc, .bp_at = 5, .bx_at = 6};
    (void)state;
    for (int i = 0; i < NGREG; i++)
        uc.uc_mcontext.gregs[i] = 1000 + i;
    assert_int_equal(step_signal(&mem, &r, &s), 0);
    assert_int_equal(r.bp, 1000 + REG_RBP);
    assert_int_equal(r.bx, 1000 + REG_RBX);
    assert_int_equal(r.r10, 1000 + REG_R10);
    assert_int_equal(r.known, UNWIND_BP | UNWIND_BX | UNWIND_R10);
    assert_int_equal(s.pc, 1000 + REG_RIP);
    assert_int_equal(s.sp, 1000 + REG_RSP);
    assert_true(s.exact && !s.bp_at && !s.bx_at); /* they are in the registers */
    s.sp = 4096;
    assert_int_equal(step_signal(&mem, &r, &s), -EFAULT);
}

/* What the last walk knew of a frame holds while everything that its step depended on is unchanged, and not if that is not known. */
static void a_step_that_still_leads(void **state) {
    uint64_t words[4] = {0x1111, 0x2222, 0x3333, 0x4444};
    struct cfi_memory mem = {.read = guard_read, .ctx = &guard};
    struct stack stack = {.mem = &mem};
    struct unwind_frame next = {.pc = 0x2222, .sp = (uint64_t)(uintptr_t)&words[2]};
    struct unwind_regs r = {.bp = 7, .bx = 9, .known = UNWIND_BP | UNWIND_BX};
    struct unwind_frame f = {.sp = (uint64_t)(uintptr_t)words};
    (void)state;
    assert_int_equal(leads(&stack, &r, &f, &next), 1);
    f.bp_down = USED_OTHER;
    assert_int_equal(leads(&stack, &r, &f, &next), 0);
    f.bp_down = USED_BP;
    assert_int_equal(leads(&stack, &r, &f, &next), 0); /* its base was another */
    f.base = 7;
    assert_int_equal(leads(&stack, &r, &f, &next), 1);
    f.bp_down = USED_BX;
    assert_int_equal(leads(&stack, &r, &f, &next), 0);
    f.base = 9;
    assert_int_equal(leads(&stack, &r, &f, &next), 1);
    r.known = UNWIND_BP;
    assert_int_equal(leads(&stack, &r, &f, &next), 0);
    f = (struct unwind_frame){.sp = (uint64_t)(uintptr_t)&words[3], .base = 0x1111};
    f.bp_down = 24 | USED_BP; /* saved three words below */
    assert_int_equal(leads(&stack, &r, &f, &next), 1);
    words[0]++;
    assert_int_equal(leads(&stack, &r, &f, &next), 0);
    words[0]--;
    words[1]++; /* the return address */
    assert_int_equal(leads(&stack, &r, &f, &next), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_must_lie_above),
        cmocka_unit_test(a_base_must_be_known),
        cmocka_unit_test(behind_a_signal),
        cmocka_unit_test(a_step_that_still_leads),
    };
    return memory_init() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
