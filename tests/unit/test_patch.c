/* SPDX-License-Identifier: Apache-2.0 */
/* agent/base/loaded.h: this program's own import of getppid() is redirected and restored, also if its table is read-only. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/known.h"
#include "agent/base/loaded.c"
#include "agent/base/memory.c"

/* Not inlined, and not kept in a register: each call uses the table. */
__attribute__((noinline)) static pid_t ask(void) {
    __asm__ volatile("" ::: "memory");
    return getppid();
}

static void test_import(void **state) {
    void *self = dlopen(NULL, RTLD_LAZY), *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *parent = dlsym(libc, "getppid"), *own = dlsym(libc, "getpid");
    (void)state;
    assert_true(self && libc && parent && own);
    assert_int_not_equal(ask(), getpid()); /* now it is bound, however lazily */
    assert_null(loaded_import(self, "no_such_function", parent));
    void **slot = loaded_import(self, "getppid", parent);
    if (!slot)
        skip(); /* a compiler that calls without such a table (-fno-plt) */
    assert_ptr_equal(*slot, parent);
    assert_int_equal(loaded_patch(slot, own), 0);
    assert_int_equal(ask(), getpid());
    /* Another library's function is in it, so it is not our place to change. */
    assert_null(loaded_import(self, "getppid", parent));
    assert_int_equal(loaded_patch(slot, parent), 0);
    assert_int_equal(ask(), getppid());
    assert_int_not_equal(ask(), getpid());
    dlclose(libc);
    dlclose(self);
}

static int one, other;
static int *const volatile table[2] = {
    &one, &one}; /* relocated, so in RELRO of a position-independent program */

static void test_read_only(void **state) {
    (void)state;
    assert_int_equal(loaded_patch((void *)&table[1], &other), 0);
    assert_ptr_equal(table[0], &one);
    assert_ptr_equal(table[1], &other);
    assert_int_equal(loaded_patch((void *)&table[1], &one), 0);
    assert_ptr_equal(table[1], &one);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_import),
                                       cmocka_unit_test(test_read_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
