/* SPDX-License-Identifier: Apache-2.0 */
/* agent/unwind/cfi.h: entries in every form that a linker or a code generator may write, at every address in and around them, and cut off anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "agent/unwind/cfi.c"
#include "agent/unwind/cfi_program.c"

#define BASE 0x500000ull /* where the memory that is read lies: the header first */
#define HDR  (BASE + 16)
#define CODE 0x400000ull
#define SIZE 64u /* of each function */

static struct {
    uint8_t bytes[1024];
    uint64_t n, cut; /* reads that reach `cut` fail */
} image;

static int read_image(void *ctx, uint64_t addr, void *buf, size_t n) {
    (void)ctx;
    memset(buf, 0xa5, n); /* what a failed read leaves is no data */
    if (addr < BASE || addr - BASE + n > image.cut)
        return -EFAULT;
    memcpy(buf, image.bytes + (addr - BASE), n);
    return 0;
}

static const struct cfi_memory memory = {.read = read_image};

static void put(uint64_t v, size_t n) {
    memcpy(image.bytes + image.n, &v, n);
    image.n += n;
}

/* Begins an entry; returns where its id lies. The length is filled in by close_entry(). */
static uint64_t open_new(int wide) {
    if (wide)
        put(0xffffffff, 4);
    put(0, wide ? 8 : 4);
    return image.n;
}

static void close_entry(uint64_t id, int wide) {
    uint64_t len = image.n - id;
    memcpy(image.bytes + id - (wide ? 8 : 4), &len, wide ? 8 : 4);
}

static void put_address(uint8_t enc, uint64_t v, int is_length) {
    if ((enc & 0x70) == 0x10 && !is_length)
        v -= BASE + image.n;
    if ((enc & 0x0f) == 1 ||
        (enc & 0x0f) == 9) { /* LEB128, in five bytes: signed or not, these are positive */
        for (int i = 0; i < 5; i++, v >>= 7)
            put((v & 0x7f) | (i < 4 ? 0x80 : 0), 1);
    } else {
        put(v, (enc & 7) == 3 ? 4 : 8);
    }
}

/* What a CIE says beside its instructions, a letter for each: z, R as in C, P and L as in C++ (what handles its exceptions), and one of the future. */
static const char *augmentation = "zR";

static void put_augmentation(uint8_t enc) {
    uint64_t len = image.n;
    put(0, 1);
    for (const char *a = augmentation + 1; *a; a++) {
        if (*a == 'P') { /* encoding and address of a function */
            put(0x9b, 1);
            put(0x0c070805, 4);
        } else { /* L: the encoding of addresses that are not read; it is another than R's */
            put(*a == 'R' ? enc : *a == 'L' ? 0x2e : 0x7f, 1);
        }
    }
    image.bytes[len] = (uint8_t)(image.n - len - 1);
}

/* Makes a header and two functions of SIZE bytes, at CODE and at CODE + SIZE. Each pushes rbx in its fifth instruction byte. */
static void make(uint8_t enc, int wide, int version) {
    uint64_t fde[2];
    memset(&image, 0, sizeof image);
    image.cut = sizeof image.bytes;
    image.n = 128;
    uint64_t cie = open_new(wide);
    put(0, 4);
    put((uint64_t)version, 1);
    for (const char *a = augmentation; *a; a++)
        put((uint64_t)*a, 1);
    put(0, 1);
    put(1, 1);    /* unit of addresses */
    put(0x78, 1); /* of offsets: -8 */
    put(16, 1);   /* the return address's column */
    put_augmentation(enc);
    put(0x0c | 7 << 8 | 8 << 16, 3); /* CFA = rsp + 8 */
    put(0x90 | 1 << 8, 2);           /* the return address at CFA - 8 */
    close_entry(cie, wide);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t start = image.n, id = open_new(wide);
        fde[i] = BASE + start;
        put(id - (cie - (wide ? 12 : 4)), 4);
        put_address(enc, CODE + i * SIZE, 0);
        put_address(enc, SIZE, 1);
        put(strchr(augmentation, 'L') ? 4 : 0, 1);
        if (strchr(augmentation, 'L')) /* where the function's handlers are: of no use here */
            put(0x08, 4);
        put(0x40 | 5, 1);       /* advance 5 */
        put(0x0e | 16 << 8, 2); /* CFA = rsp + 16 */
        put(0x83 | 2 << 8, 2);  /* rbx at CFA - 16 */
        close_entry(id, wide);
    }
    uint64_t end = image.n;
    image.n = HDR - BASE;
    put(1 | 0x1b << 8 | 0x03 << 16 | 0x3b << 24, 4);
    put(0, 4); /* where .eh_frame lies: not needed */
    put(2, 4);
    for (unsigned i = 0; i < 2; i++) {
        put(CODE + i * SIZE - HDR, 4);
        put(fde[i] - HDR, 4);
    }
    image.n = end;
}

static void check(uint64_t pc) {
    struct cfi_rule r;
    struct cfi_span s;
    uint64_t start = pc < CODE + SIZE ? CODE : CODE + SIZE, in = pc - start;
    int rc = cfi_find(&memory, HDR, pc, &r, &s);
    if (pc < CODE || pc >= CODE + 2 * SIZE) {
        assert_int_equal(rc, -ENOENT);
        return;
    }
    assert_int_equal(rc, 0);
    assert_true(r.kind == CFI_OFFSET && r.reg == CFI_RSP && r.rbp_off == CFI_KEPT);
    assert_int_equal(r.cfa_off, in < 5 ? 8 : 16);
    assert_int_equal(r.rbx_off, in < 5 ? CFI_KEPT : -16);
    assert_true(s.lo == (in < 5 ? start : start + 5) &&
                s.hi == (in < 5 ? start + 5 : start + SIZE));
}

/* sdata4 relative, udata4, the same of data, udata8, absptr, sdata8, uleb128, sleb128 */
static const uint8_t encodings[] = {0x1b, 0x03, 0x33, 0x04, 0x00, 0x0c, 0x01, 0x09};

static void every_form_of_an_entry(void **state) {
    (void)state;
    for (size_t e = 0; e < sizeof encodings; e++)
        for (int wide = 0; wide < 2; wide++)
            for (int version = 1; version <= 3; version += 2) {
                make(encodings[e], wide, version);
                for (uint64_t pc = CODE - 2; pc < CODE + 2 * SIZE + 2; pc++)
                    check(pc);
            }
}

static void every_augmentation(void **state) {
    static const char *const all[] = {"zR", "zPLR", "zLR", "zPR", "zRPL", "zRL", "zRx", "zPLRx"};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        augmentation = all[i];
        for (size_t e = 0; e < sizeof encodings; e++) {
            make(encodings[e], e & 1, 1);
            for (uint64_t pc = CODE - 2; pc < CODE + 2 * SIZE + 2; pc++)
                check(pc);
        }
    }
    augmentation = "zR";
}

static void cut_off_anywhere(void **state) {
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        make(0x1b, wide, 1);
        struct cfi_rule whole, r;
        struct cfi_span s;
        assert_int_equal(cfi_find(&memory, HDR, CODE + SIZE + 9, &whole, &s), 0);
        for (image.cut = 0; image.cut < image.n; image.cut += image.cut < 128 ? 1 : 64) {
            memset(&r, 0, sizeof r);
            int rc = cfi_find(&memory, HDR, CODE + SIZE + 9, &r, &s);
            assert_true(rc < 0 || !memcmp(&r, &whole, sizeof r));
        }
        image.cut = HDR - BASE;
        assert_int_equal(cfi_find(&memory, HDR, CODE, &r, &s), -EFAULT);
    }
}

static void foreign_forms_are_refused(void **state) {
    struct cfi_rule r;
    struct cfi_span s;
    (void)state;
    make(0x1b, 0, 1);
    image.bytes[HDR - BASE] = 2; /* the header's version */
    assert_int_equal(cfi_find(&memory, HDR, CODE, &r, &s), -ENOTSUP);
    make(0x1b, 0, 4); /* a CIE's version */
    assert_int_equal(cfi_find(&memory, HDR, CODE, &r, &s), -ENOTSUP);
    make(0x1b, 0, 1);
    image.bytes[HDR - BASE + 3] = 0x1b; /* the table's encoding */
    assert_int_equal(cfi_find(&memory, HDR, CODE, &r, &s), -ENOTSUP);
    make(0x1b, 0, 1);
    image.bytes[HDR - BASE + 8] = 0; /* no entries */
    assert_int_equal(cfi_find(&memory, HDR, CODE, &r, &s), -ENOENT);
}

static void what_does_not_fit_into_a_word(void **state) {
    struct cfi_rule r = {.kind = CFI_NONE, .cfa_off = 8, .rbp_off = CFI_KEPT, .rbx_off = CFI_KEPT};
    (void)state;
    assert_int_equal(cfi_pack(&r), 0);
    r.kind = CFI_OFFSET;
    assert_true(cfi_pack(&r) != 0);
    r.cfa_off = 1 << 20;
    assert_int_equal(cfi_pack(&r), 0);
    r.cfa_off = -(1 << 20);
    assert_true(cfi_pack(&r) != 0);
    for (int i = 0; i < 2; i++) {
        int32_t *off = i ? &r.rbx_off : &r.rbp_off;
        static const int32_t wrong[] = {4, -12, 8 << 16,
                                        -(8 << 16)}; /* the last is the word of CFI_KEPT */
        for (size_t k = 0; k < 4; k++) {
            *off = wrong[k];
            assert_int_equal(cfi_pack(&r), 0);
        }
        *off = 8 - (8 << 16);
        assert_true(cfi_pack(&r) != 0);
    }
}

static uint64_t taken(uint8_t enc, uint64_t bytes, size_t n, int *status) {
    struct cfi_cursor c;
    image.n = 0;
    put(bytes, n);
    put(0x1234567890, 8); /* behind it: what an indirect pointer may lead to */
    cfi_cursor_set(&c, &memory, BASE, BASE + n);
    uint64_t v = cfi_take_encoded(&c, enc, 0x1000);
    *status = c.status;
    return v;
}

static void encoded_pointers(void **state) {
    int status;
    (void)state;
    image.cut = 64;
    assert_int_equal(taken(0x03, 0xfffffffe, 4, &status), 0xfffffffe);
    assert_int_equal(taken(0x0b, 0xfffffffe, 4, &status), UINT64_MAX - 1);
    assert_int_equal(taken(0x02, 0xfffe, 2, &status), 0xfffe);
    assert_int_equal(taken(0x0a, 0xfffe, 2, &status), UINT64_MAX - 1);
    assert_int_equal(taken(0x3b, 0xfffffffe, 4, &status), 0x1000 - 2);
    assert_int_equal(taken(0x1b, 0xfffffffe, 4, &status), BASE - 2);
    assert_int_equal(taken(0x09, 0x7e, 1, &status), UINT64_MAX - 1);
    assert_int_equal(taken(0x01, 0x7e, 1, &status), 0x7e);
    assert_int_equal(taken(0x83, BASE + 4, 4, &status), 0x1234567890);
    assert_int_equal(status, 0);
    image.cut = 8; /* the pointer can be read, but not what it leads to */
    assert_true(!taken(0x83, BASE + 4, 4, &status) && status == -EFAULT);
    assert_true(!taken(0x03, 0, 3, &status) && status == -EBADMSG);
    assert_true(!taken(0x05, 0, 8, &status) && status == -ENOTSUP);
    assert_true(!taken(0x43, 0, 4, &status) && status == -ENOTSUP);
}

/* Expressions for the CFA: those that are known, each byte of them changed, and what follows them in the entry. The PLT's is the linker's rule for a
 * stub that has pushed a word from its byte `k` on. */
static void expressions_of_the_cfa(void **state) {
    static const uint8_t plt[] = {0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x30, 0x2a, 0x33, 0x24, 0x22};
    static const uint8_t others[][4] = {
        {0x77, 0x10}, {0x76, 0x70}, {0x76, 0x78, 0x06}, {0x5a, 0}, {0x03, 1}};
    static const uint8_t lengths[] = {2, 2, 3, 1, 2};
    struct cfi_cursor c;
    (void)state;
    for (unsigned changed = 0; changed <= sizeof plt; changed++)
        for (unsigned k = 0; k < 32; k++)
            for (uint64_t pc = CODE; pc < CODE + 16; pc++) {
                struct row row = {.kind = CFI_END};
                image.n = 0;
                image.cut = 64;
                put(sizeof plt, 1);
                for (size_t i = 0; i < sizeof plt; i++)
                    put((uint64_t)((i == 6 ? plt[i] + k : plt[i]) ^ (changed == i ? 0x40 : 0)), 1);
                cfi_cursor_set(&c, &memory, BASE, BASE + image.n + 8);
                cfa_expression(&c, pc, &row);
                assert_int_equal(c.status, 0);
                assert_int_equal(c.at, BASE + image.n);
                if (changed < sizeof plt &&
                    changed > 1) { /* 0 and 1: the register and the offset */
                    assert_int_equal(row.kind, CFI_NONE);
                    continue;
                }
                if (changed < sizeof plt)
                    continue;
                assert_true(row.kind == CFI_OFFSET && row.reg == CFI_RSP && row.only_here);
                assert_int_equal(row.off, (pc & 15) >= k ? 16 : 8);
            }
    for (size_t i = 0; i < sizeof lengths; i++) {
        static const enum cfi_kind kinds[] = {CFI_OFFSET, CFI_OFFSET, CFI_DEREF, CFI_NONE,
                                              CFI_NONE};
        struct row row = {.kind = CFI_END};
        image.n = 0;
        put(lengths[i], 1);
        for (size_t j = 0; j < lengths[i]; j++)
            put(others[i][j], 1);
        cfi_cursor_set(&c, &memory, BASE, BASE + image.n + 8);
        cfa_expression(&c, CODE, &row);
        assert_int_equal(row.kind, kinds[i]);
        assert_int_equal(c.at, BASE + image.n); /* the next instruction */
        if (i < 3) {
            assert_int_equal(row.reg, i ? CFI_RBP : CFI_RSP);
            assert_int_equal(row.off, i == 0 ? 16 : i == 1 ? -16 : -8);
        }
    }
}

/* Expressions for where a register was saved: only rbp's as rbp + n is known; all others are passed over as a whole. */
static void expressions_of_registers(void **state) {
    static const uint8_t registers[] = {CFI_RBP, CFI_RBX, CFI_RA, 12};
    struct cfi_cursor c;
    (void)state;
    for (size_t i = 0; i < sizeof registers; i++)
        for (int more = 0; more < 2; more++) {
            struct row row = {.at = {1, 2, 3, 4}, .rbp_reg_off = 5};
            image.n = 0;
            image.cut = 64;
            put(registers[i], 1);
            put((uint64_t)(2 + more), 1);
            put(0x76 | 0x70 << 8 | 0x06 << 16,
                (size_t)(2 + more)); /* rbp - 16; the last byte: the word there */
            cfi_cursor_set(&c, &memory, BASE, BASE + image.n + 8);
            saved_expression(&c, 1, &row);
            assert_int_equal(c.at, BASE + image.n); /* the next instruction */
            if (i || !more) {                       /* no compiler writes the other form for rbp */
                assert_int_equal(row.at[RBP], i == 0 ? CFI_KEPT : 1);
                assert_int_equal(row.rbp_reg_off, i == 0 ? -16 : 5);
            }
            assert_int_equal(row.at[RBX], 2);
            assert_int_equal(row.at[RA], i == 2 ? ELSEWHERE : 3);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_an_entry),
        cmocka_unit_test(every_augmentation),
        cmocka_unit_test(expressions_of_the_cfa),
        cmocka_unit_test(expressions_of_registers),
        cmocka_unit_test(cut_off_anywhere),
        cmocka_unit_test(foreign_forms_are_refused),
        cmocka_unit_test(what_does_not_fit_into_a_word),
        cmocka_unit_test(encoded_pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
