/* SPDX-License-Identifier: Apache-2.0 */
/* agent/unwind/rules.h: what was put is found, and nothing else; however many leaf program counters come, return addresses stay. A rule fits
 * into a word or is refused; and a table of known keys (agent/base/known.h) forgets the oldest first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/base/known.h"
#include "agent/unwind/cfi.c"
#include "agent/unwind/cfi_program.c"
#include "agent/unwind/rules.c"

static struct cfi_rule rule_of(int32_t cfa_off) {
    return (struct cfi_rule){CFI_OFFSET, CFI_RSP, cfa_off, CFI_KEPT, CFI_KEPT};
}

static int offset_of(const struct rules *r, uint32_t generation, uint64_t pc, int leaf) {
    struct cfi_rule rule;
    return rules_get(r, generation, pc, leaf, &rule) ? rule.cfa_off : 0;
}

static void test_spans(void **state) {
    static struct rules r;
    struct cfi_rule a = rule_of(16), b = rule_of(32), c = rule_of(48);
    (void)state;
    assert_int_equal(offset_of(&r, 1, 0x401010, 1), 0);
    /* Two pieces of one function within a block, with a piece of a few bytes between them. */
    rules_put(&r, 1, 0x401010, 1, &a, &(struct cfi_span){0x401000, 0x401020});
    rules_put(&r, 1, 0x401028, 1, &b, &(struct cfi_span){0x401024, 0x401080});
    rules_put(&r, 1, 0x401022, 1, &c, &(struct cfi_span){0x401020, 0x401024});
    for (uint64_t pc = 0x400ff8; pc < 0x401088; pc++) {
        int wide = pc < 0x401000   ? 0
                   : pc < 0x401020 ? 16
                   : pc < 0x401024 ? 0
                   : pc < 0x401080 ? 32
                                   : 0;
        assert_int_equal(offset_of(&r, 1, pc, 1), pc == 0x401022 ? 48 : wide);
        assert_int_equal(offset_of(&r, 1, pc, 0), pc == 0x401022 ? 48 : wide);
        assert_int_equal(offset_of(&r, 2, pc, 1), 0); /* of another list of modules */
    }
}

static void test_leaves_take_no_place_of_others(void **state) {
    static struct rules r;
    struct cfi_rule ret = rule_of(8), leaf = rule_of(64);
    (void)state;
    /* A thousand return addresses, in pieces of 16 bytes as with calls in a row; then a million program counters in a loop over numbers. */
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t pc = 0x500000 + i * 4093;
        rules_put(&r, 7, pc, 0, &ret, &(struct cfi_span){pc, pc + 16});
    }
    int before = 0, after = 0;
    for (uint64_t i = 0; i < 1000; i++)
        before += offset_of(&r, 7, 0x500000 + i * 4093, 0) == 8;
    for (uint64_t i = 0; i < 1000000; i++) {
        uint64_t pc = 0x7f0000000000 + i * 37;
        rules_put(&r, 7, pc, 1, &leaf, &(struct cfi_span){pc & ~31ull, (pc & ~31ull) + 32});
        if (i % 1000 == 0)
            assert_int_equal(offset_of(&r, 7, pc, 1), 64); /* just put */
    }
    for (uint64_t i = 0; i < 1000; i++)
        after += offset_of(&r, 7, 0x500000 + i * 4093, 0) == 8;
    assert_true(before > 990); /* a hash may send five of them to one line of four */
    assert_true(after >= before - 1);
    assert_int_equal(offset_of(&r, 7, 0x4fffff, 0), 0);
}

static void rules_survive_packing(void **state) {
    static const int32_t offs[] = {CFI_KEPT, 0, -16, -56, 8, -(1 << 18)};
    (void)state;
    for (int kind = CFI_OFFSET; kind <= CFI_END; kind++)
        for (int32_t cfa = -(1 << 20); cfa < (1 << 20); cfa += 4099)
            for (size_t i = 0; i < 6; i++) {
                struct cfi_rule a = {.kind = (enum cfi_kind)kind,
                                     .reg = CFI_R10,
                                     .cfa_off = cfa,
                                     .rbp_off = offs[i],
                                     .rbx_off = offs[5 - i]};
                struct cfi_rule b;
                uint64_t w = cfi_pack(&a);
                assert_true(w != 0);
                cfi_unpack(w, &b);
                assert_memory_equal(&a, &b, sizeof a);
            }
    struct cfi_rule wide = {
        .kind = CFI_OFFSET, .cfa_off = 1 << 21, .rbp_off = CFI_KEPT, .rbx_off = CFI_KEPT};
    assert_int_equal(cfi_pack(&wide), 0);
    wide.cfa_off = 0;
    wide.rbp_off = 4; /* not a multiple of 8 */
    assert_int_equal(cfi_pack(&wide), 0);
}

static void known_keys(void **state) {
    uint64_t k[1024] = {0}, h = 1, found = 0;
    (void)state;
    for (int i = 0; i < 400; i++) {
        h = known_mix(h, (uint64_t)i);
        assert_false(known_has(k, 1024, h));
        known_add(k, 1024, h);
        assert_true(known_has(k, 1024, h));
    }
    for (int i = 0, g = 0; i < 400; i++, g++) {
        h = i ? known_mix(h, (uint64_t)i) : known_mix(1, 0);
        found += (uint64_t)known_has(k, 1024, h);
    }
    assert_true(found > 300); /* the rest gave way to newer ones */
    memset(k, 0, sizeof k);
    /* A key has two places: the third key that comes there takes the place of the oldest. */
    for (uint64_t i = 1; i < 6; i++) {
        known_add(k, 1024, i << 32 | 5);
        assert_true(known_has(k, 1024, i << 32 | 5));
        assert_int_equal(known_has(k, 1024, (i - 1) << 32 | 5), i > 1);
        assert_false(i > 1 && known_has(k, 1024, (i - 2) << 32 | 5));
    }
    known_add(k, 1024, 9ull << 32 | 4); /* the two places are each other's second */
    assert_true(known_has(k, 1024, 9ull << 32 | 4) &&
                known_has(k, 1024, 4ull << 32 | 5) + known_has(k, 1024, 5ull << 32 | 5) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_leaves_take_no_place_of_others),
        cmocka_unit_test(rules_survive_packing),
        cmocka_unit_test(known_keys),
    };
    return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
