/* SPDX-License-Identifier: Apache-2.0 */
/* dict: how much memory the dictionary of a trace with many functions takes. */
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

/* If ids ascend without a gap, entries are found by the id itself, and no table of ids is kept. */
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

/* Compares the contents of two dictionaries, as far as the first one goes. */
static size_t compare(const struct dict *a, const struct dict *b) {
    const struct dict_stack *x, *y;
    const struct dict_frame *f, *g;
    size_t n = 0, len, len2;

    for (; (f = dict_frame(a, n + 1)); n++) {
        assert_non_null(g = dict_frame(b, n + 1));
        assert_memory_equal(f, g, sizeof *f);
        const char *p = dict_string(a, f->name, &len), *q = dict_string(b, f->name, &len2);
        assert_int_equal(len, len2);
        assert_memory_equal(p, q, len);
    }
    assert_null(dict_frame(b, n + 1));
    for (uint64_t id = 1; (x = dict_stack(a, id)); id++) {
        assert_non_null(y = dict_stack(b, id));
        assert_int_equal(x->flags, y->flags);
        struct trace_value v = x->python, w = y->python;
        for (uint64_t i = 0, k = 0, one, other = 0; trace_list_next(&v, &i, &one);) {
            assert_true(trace_list_next(&w, &k, &other));
            assert_int_equal(one, other);
        }
        assert_int_equal(w.n, 0);
        assert_int_equal(x->native.n, y->native.n);
    }
    return n;
}

/* A saved dictionary has the same contents for the next reader of the trace, who reads no block of it; a damaged one is not used. */
static void test_a_kept_one(void **state) {
    char dir[] = "/tmp/probing-dict.XXXXXX", path[64];
    struct reader *r;
    uint32_t epoch;
    size_t n, more;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/t.zst", dir);
    assert_int_equal(synthetic_many(path, dir, SYNTHETIC_FUNCTIONS, FUNCTIONS), 0);
    assert_int_equal(reader_open(&r, path), 0);
    assert_int_equal(reader_check(r), 0);
    struct epochs *es = epochs_new(r), *other;
    assert_non_null(es);
    assert_true(epochs_at(es, 0, &epoch));
    assert_null(epochs_keep(es, &n)); /* none was read */
    const struct dict *d = epochs_get(es, epoch);
    uint8_t *kept = epochs_keep(es, &n);
    assert_non_null(kept);
    for (size_t i = 0; i < reader_blocks(r); i++)
        if (reader_block(r, i)->kind == TRACE_KIND_DICT)
            reader_damaged(r, i);

    other = epochs_new(r);
    epochs_take(other, kept, n);
    assert_true(compare(d, epochs_get(other, epoch)) > FUNCTIONS / 2);
    assert_null(epochs_keep(other, &more)); /* that one is as good */
    epochs_free(other);
    for (int i = 0; i < 4; i++) { /* cut off, changed, of other records */
        other = epochs_new(r);
        if (i == 3)
            epochs_without_modules(other);
        kept[i == 1 ? n / 2 : n - 1] ^= i == 1 || i == 2;
        epochs_take(other, kept, n - (i == 0));
        assert_null(dict_frame(epochs_get(other, epoch), 1));
        kept[i == 1 ? n / 2 : n - 1] ^= i == 1 || i == 2;
        epochs_free(other);
    }
    free(kept);
    epochs_free(es);
    reader_close(r);
    unlink(path);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids_without_a_hole),
                                       cmocka_unit_test(test_a_kept_one)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
