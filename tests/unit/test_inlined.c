/* SPDX-License-Identifier: Apache-2.0 */
/* inlined: a thousand functions of one compilation unit are found through a list of them, each with the same result as if it were asked for alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "traces/inlined.h"

static volatile int number;
static inline __attribute__((always_inline)) int inlined_test_inner(int a) {
    return a * number + 1;
}

#define ONE(n)                                                                                     \
    __attribute__((noinline, used)) static int inlined_test_##n(int a) {                           \
        number += a;                                                                               \
        return inlined_test_inner(a) + 1##n;                                                       \
    }
#define FOUR(n)                                                                                    \
    ONE(n##0)                                                                                      \
    ONE(n##1)                                                                                      \
    ONE(n##2)                                                                                      \
    ONE(n##3)
#define SIXTEEN(n)                                                                                 \
    FOUR(n##0)                                                                                     \
    FOUR(n##1)                                                                                     \
    FOUR(n##2)                                                                                     \
    FOUR(n##3)
#define MANY64(n)                                                                                  \
    SIXTEEN(n##0)                                                                                  \
    SIXTEEN(n##1)                                                                                  \
    SIXTEEN(n##2)                                                                                  \
    SIXTEEN(n##3)
#define MANY256(n)                                                                                 \
    MANY64(n##0)                                                                                   \
    MANY64(n##1)                                                                                   \
    MANY64(n##2)                                                                                   \
    MANY64(n##3)
#define MANY1024(n)                                                                                \
    MANY256(n##0)                                                                                  \
    MANY256(n##1)                                                                                  \
    MANY256(n##2)                                                                                  \
    MANY256(n##3)
MANY1024(0)

/* Replaces libdw's function, and counts how many entries are visited. */
static size_t steps;
int dwarf_siblingof(Dwarf_Die *die, Dwarf_Die *result) {
    static int (*real)(Dwarf_Die *, Dwarf_Die *);

    if (!real)
        real = (int (*)(Dwarf_Die *, Dwarf_Die *))(uintptr_t)dlsym(RTLD_NEXT, "dwarf_siblingof");
    steps++;
    return real(die, result);
}

static int same(const struct inlined_frame *a, const struct inlined_frame *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (a[i].line != b[i].line || strcmp(a[i].file, b[i].file) != 0 ||
            (a[i].name ? a[i].name : "") != (b[i].name ? b[i].name : "")) /* libdw's own texts */
            return 0;
    return 1;
}

static void test_a_list_says_what_a_search_says(void **state) {
    static const Dwfl_Callbacks how = {.find_elf = dwfl_build_id_find_elf,
                                       .find_debuginfo = dwfl_standard_find_debuginfo,
                                       .section_address = dwfl_offline_section_address};
    struct inlined *all = inlined_new();
    size_t asked = 0, lines = 0, inner = 0, searched, listed;
    Dwfl *dwfl = dwfl_begin(&how);

    (void)state;
    dwfl_report_begin(dwfl);
    Dwfl_Module *mod = dwfl_report_offline(dwfl, "self", "/proc/self/exe", -1);
    dwfl_report_end(dwfl, NULL, NULL);
    assert_non_null(mod);
    int symbols = dwfl_module_getsymtab(mod);
    steps = searched = listed = 0;
    for (int i = 0; i < symbols; i++) {
        GElf_Sym sym;
        GElf_Addr addr;
        const char *name = dwfl_module_getsym_info(mod, i, &sym, &addr, NULL, NULL, NULL);
        if (!name || strncmp(name, "inlined_test_", 13) != 0 || !sym.st_size)
            continue;
        for (GElf_Addr at = addr; at < addr + sym.st_size; at += sym.st_size / 6 + 1) {
            struct inlined *alone = inlined_new();
            struct inlined_frame *a, *b;
            size_t before = steps, n = inlined_frames(alone, mod, at, 1, &a);
            searched += steps - before;
            before = steps;
            assert_int_equal(inlined_frames(all, mod, at, 1, &b), n);
            listed += steps - before;
            assert_true(same(a, b, n));
            lines += n > 0;
            inner += n > 1;
            asked++;
            free(a);
            free(b);
            inlined_free(alone);
        }
    }
    inlined_free(all);
    dwfl_end(dwfl);
    if (!lines) /* built without -g */
        skip();
    assert_true(asked >= 2000 && lines > asked / 2 && inner > 100);
    /* The first three questions search the unit, the others use the list. */
    assert_true(searched > 500 * 1000 && listed < searched / 50);
}

static void test_whose_lines_are_not_asked_for(void **state) {
    (void)state;
    static const char *const worth[] = {"/usr/bin/python3.11", "_greenlet.cpython-311.so",
                                        "/usr/lib/libmkl_core.so", "/usr/lib/libtorch_cpu.so",
                                        NULL},
                             *const not [] = {"/lib/x86_64-linux-gnu/libc.so.6",
                                              "libm.so.6",
                                              "/lib/libm-2.31.so",
                                              "/lib/libmvec.so.1",
                                              "/usr/lib/probing/libprobing-agent.so",
                                              NULL};

    for (const char *const *path = worth; *path; path++)
        assert_true(inlined_is_worth(*path));
    for (const char *const *path = not ; *path; path++)
        assert_false(inlined_is_worth(*path));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_list_says_what_a_search_says),
                                       cmocka_unit_test(test_whose_lines_are_not_asked_for)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
