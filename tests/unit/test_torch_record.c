/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the fields of a RecordFunction are found, in objects like those of PyTorch 1.13 and 2.x, and in objects like none that exist.
 * (tests/e2e/test_torch.py tests the real ones.) The agent is no library: its source is part of this program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "agent/torch/torch_record.c"

struct torch_lib torch_lib;

/* A class, by the places of its fields; 0: it has no such field. */
static struct {
    unsigned sequence, twin, thread, handle, async, debug,
        more; /* more: a second byte that _setAsync changes */
} layout;
static struct torch_callback callback;
static uint64_t handles;
static unsigned registered;

static void set(void *rf, unsigned at, uint64_t value, size_t n) {
    if (at)
        memcpy((char *)rf + at, &value, n);
}

static void construct(void *rf, uint8_t scope) {
    assert_int_equal(scope, TORCH_SCOPE_UNUSED);
    set(rf, layout.sequence, UINT64_MAX, 8);
    set(rf, layout.thread, 0, 8);
    set(rf, layout.handle, callback.ids ? ++handles : 0, 8);
    set(rf, layout.async, 0, 1);
    set(rf, layout.more, 0, 1);
    set(rf, layout.debug, UINT64_MAX, 8);
}

int torch_lib_before(void *rf, const char *name, int64_t sequence) {
    void *mark = &layout;
    void *(*start)(void *, const void *);
    (void)name;
    set(rf, layout.sequence, (uint64_t)sequence, 8);
    set(rf, layout.twin, (uint64_t)sequence, 8);
    memcpy(&start, &callback.start, sizeof start);
    if (registered)
        start(&mark, rf);
    assert_null(mark);
    return 0;
}

static void set_async(void *rf) {
    set(rf, layout.async, 1, 1);
    set(rf, layout.more, 1, 1);
}

static void destroy(void *rf) {
    memset(rf, 0xdd, 512);
}

void torch_lib_add(uint64_t *handle, struct torch_callback cb) {
    assert_true(cb.scopes[TORCH_SCOPE_UNUSED] && !cb.scopes[TORCH_SCOPE_BACKWARD]);
    callback = cb;
    registered++;
    *handle = 77;
}

void torch_lib_remove(uint64_t *handle) {
    assert_int_equal(*handle, 77);
    registered--;
}

/* Stands for the library's `before` function, which torch_lib_before() would call. */
static void never(void *rf, const char *name, int64_t sequence) {
    (void)rf, (void)name, (void)sequence;
    fail();
}

static uint64_t thread_id(void) {
    return 1;
}

static int find(struct torch_record *at, char *why, size_t n) {
    int err;
    torch_lib = (struct torch_lib){.loaded = 1,
                                   .thread_id = thread_id,
                                   .construct = construct,
                                   .destroy = destroy,
                                   .before = never,
                                   .set_async = set_async};
    err = torch_record_find(at, why, n);
    assert_int_equal(registered, 0);
    return err;
}

static void known(void **state) {
    struct torch_record at;
    char why[120];
    (void)state;
    memset(&layout, 0, sizeof layout);
    layout.sequence = 208; /* 1.13 */
    layout.thread = 248;
    layout.handle = 256;
    layout.async = 264;
    layout.debug = 272;
    assert_int_equal(find(&at, why, sizeof why), 0);
    assert_int_equal(at.sequence, 208);
    assert_int_equal(at.thread, 248);
    assert_string_equal(why, "");
    layout.thread = 304; /* 2.x: more inputs */
    layout.handle = 312;
    layout.async = 320;
    layout.debug = 328;
    assert_int_equal(find(&at, why, sizeof why), 0);
    assert_int_equal(at.thread, 304);
}

static void unknown(void **state) {
    struct torch_record at;
    char why[120];
    (void)state;
    for (int i = 0; i < 8; i++) {
        memset(&layout, 0, sizeof layout);
        layout.sequence = 208;
        layout.thread = 304;
        layout.handle = 312;
        layout.async = 320;
        layout.debug = 328;
        switch (i) {
        case 0: /* something between */
            layout.async = 328;
            layout.debug = 336;
            break;
        case 1: /* another order */
            layout.thread = 312;
            layout.handle = 304;
            break;
        case 2:
            layout.async = 321;
            break;
        case 3:
            layout.debug = 336;
            break;
        case 4:
            layout.more = 340;
            break;
        case 5: /* nothing that the constructor clears */
            layout.thread = 0;
            break;
        case 6:
            layout.handle = 0;
            break;
        default: /* before the sequence number */
            layout.sequence = 360;
            break;
        }
        assert_int_equal(find(&at, why, sizeof why), -ENOTSUP);
        assert_int_equal(at.sequence, 0);
        assert_int_equal(at.thread, 0);
        assert_non_null(strstr(why, "which thread"));
    }
}

static void no_number(void **state) {
    struct torch_record at;
    char why[120];
    (void)state;
    memset(&layout, 0, sizeof layout);
    assert_int_equal(find(&at, why, sizeof why), -ENOTSUP);
    assert_non_null(strstr(why, "found 0 times"));
    layout.sequence = 200;
    layout.twin = 400;
    assert_int_equal(find(&at, why, sizeof why), -ENOTSUP);
    assert_int_equal(at.sequence, 0);
    assert_non_null(strstr(why, "found 2 times"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known),
        cmocka_unit_test(unknown),
        cmocka_unit_test(no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
