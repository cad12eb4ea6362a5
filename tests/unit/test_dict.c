/* SPDX-License-Identifier: Apache-2.0 */
/* dict: what the dictionary of a trace with many functions takes in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <malloc.h>
#include <unistd.h>

#include "converter/dict.h"
#include "synthetic.h"

#define FUNCTIONS 20000u

static size_t allocated(void) {
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* Ids that ascend without a hole are found by their number, and no table of them is kept. */
static void test_ids_without_a_hole(void **state) {
    char dir[] = "/tmp/probing-dict.XXXXXX", path[64];
    struct reader *r;
    uint32_t epoch;
    size_t len;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/t.zst", dir);
    assert_int_equal(synthetic_many(path, dir, SYNTHETIC_FUNCTIONS, FUNCTIONS), 0);
    assert_int_equal(reader_open(&r, path), 0);
    assert_int_equal(reader_check(r), 0);
    struct epochs *es = epochs_new(r);
    assert_non_null(es);
    assert_true(epochs_at(es, 0, &epoch));

    size_t before = allocated();
    const struct dict *d = epochs_get(es, epoch);
    size_t taken = allocated() - before, n = 0;
    assert_non_null(d);
    for (const struct dict_frame *f; (f = dict_frame(d, n + 1)); n++) {
        char name[32];
        snprintf(name, sizeof name, "generated_%zu", (size_t)f->firstline - 1);
        const char *text = dict_string(d, f->name, &len);
        assert_int_equal(len, strlen(name));
        assert_memory_equal(text, name, len);
        assert_non_null(dict_stack(d, n + 1));
    }
    assert_true(n > FUNCTIONS / 2);
    assert_null(dict_frame(d, 0));
    assert_null(dict_frame(d, UINT64_MAX));
    print_message("%zu bytes for each of %zu functions\n", taken / n, n);
    assert_true(taken / n < 290);

    epochs_free(es);
    reader_close(r);
    unlink(path);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids_without_a_hole)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
