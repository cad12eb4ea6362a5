/* SPDX-License-Identifier: Apache-2.0 */
/* reader_store(): a file that grows is opened as if for the first time, but what was known of it is not read again. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "converter/reader.h"
#include "synthetic.h"
#include "trace_reader.h"

static char dir[] = "/tmp/test_reader_store.XXXXXX";
static char path[64];
static struct writer *w;
static unsigned ticks;

static int setup(void **state) {
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/t.zst", dir);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return rmdir(dir);
}

static void begin(unsigned pid) {
    struct synthetic s = {.pid = pid};

    unlink(path);
    assert_int_equal(writer_open(&w, &(struct writer_options){.trace_path = path, .run_dir = dir}),
                     0);
    synthetic_process(w, &s);
    ticks = 0;
}

/* Adds n blocks of data, and clock anchors between them. */
static void grow(unsigned n) {
    for (; n; n--, ticks++) {
        uint64_t ts = SYNTHETIC_MONO + ticks * 1000000ull;
        if (ticks % 10 == 0) {
            synthetic_clock(w, ts);
            assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
        }
        WRITER_EMIT(w, memory, .ts = ts, .rss = ticks);
        assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    }
}

static void end(void) {
    assert_int_equal(writer_close(w, "exit"), 0);
    unlink(path);
}

static struct reader_stored store(const struct reader_stored *was) {
    struct reader_stored s;
    struct reader *r;

    assert_int_equal(reader_open_stored(&r, path, was, was != NULL), 0);
    s.p = reader_store(r, &s.n);
    reader_close(r);
    return s;
}

/* Both readers give the same blocks, with the same contents. */
static void same(struct reader *a, struct reader *b) {
    struct reader_data da = {0}, db = {0};

    assert_int_equal(reader_blocks(a), reader_blocks(b));
    assert_true(reader_digest(a, SIZE_MAX) == reader_digest(b, SIZE_MAX));
    for (size_t i = 0; i < reader_blocks(a); i++) {
        assert_int_equal(reader_load(a, i, &da), 0);
        assert_int_equal(reader_load(b, i, &db), 0);
        assert_int_equal(da.len, db.len);
        assert_memory_equal(da.data, db.data, da.len);
        assert_memory_equal(&da.h, &db.h, sizeof da.h);
    }
    reader_data_free(&da);
    reader_data_free(&db);
    struct reader_loss la, lb;
    assert_int_equal(reader_loss(a, &la), 0);
    assert_int_equal(reader_loss(b, &lb), 0);
    assert_memory_equal(&la, &lb, sizeof la);
    assert_int_equal(la.wrong_hints + la.damaged_bytes + la.missing_blocks, 0);
}

/* Opens the file with the index and without. */
static void compare(const struct reader_stored *s, size_t n) {
    struct reader *a, *b;

    assert_int_equal(reader_open_stored(&a, path, s, n), 0);
    assert_int_equal(reader_open(&b, path), 0);
    same(a, b);
    reader_close(a);
    reader_close(b);
}

static void it_grows(void **state) {
    (void)state;
    begin(77);
    grow(100);
    struct reader_stored s = store(NULL);
    assert_non_null(s.p);
    compare(&s, 1);
    grow(30);
    compare(&s, 1);
    /* not again for a few blocks more */
    struct reader_stored same_again = store(&s);
    assert_null(same_again.p);
    assert_int_equal(same_again.n, 0);
    grow(100);
    struct reader_stored more = store(&s);
    assert_non_null(more.p);
    assert_true(more.n > s.n);
    grow(5);
    compare(&more, 1);
    free((void *)s.p);
    free((void *)more.p);
    end();
}

/* A block in the middle is not looked at, nor are the clock anchors read from the file. */
static void it_is_not_read_again(void **state) {
    static const uint8_t nothing[16];
    struct reader *r;
    struct reader_data d = {0};
    size_t anchors = 0, n;

    (void)state;
    begin(77);
    grow(100);
    struct reader_stored s = store(NULL);
    assert_int_equal(reader_open(&r, path), 0);
    n = reader_blocks(r);
    int fd = open(path, O_WRONLY);
    for (size_t i = 1; i + 1 < n; i++) {
        const struct reader_block *b = reader_block(r, i);
        if (i == n / 2)
            assert_int_equal(pwrite(fd, nothing, sizeof nothing, (off_t)b->pos), sizeof nothing);
        if (reader_has_anchors_alone(r, i))
            assert_int_equal(pwrite(fd, nothing, sizeof nothing, (off_t)b->off), sizeof nothing);
    }
    close(fd);
    reader_close(r);
    grow(3);
    assert_int_equal(reader_open_stored(&r, path, &s, 1), 0);
    assert_int_equal(reader_blocks(r), n + 4); /* an anchor, too */
    for (size_t i = 0; i < n; i++) {
        if (!reader_has_anchors_alone(r, i))
            continue;
        assert_int_equal(reader_load(r, i, &d), 0);
        anchors++;
    }
    assert_true(anchors >= 9);
    reader_data_free(&d);
    reader_close(r);
    free((void *)s.p);
    writer_close(w, "exit"); /* it finds the damage */
    unlink(path);
}

static void another_file(void **state) {
    struct reader_stored s[2];

    (void)state;
    begin(77);
    grow(100);
    s[0] = store(NULL);
    end();
    begin(78);
    grow(40);
    compare(s, 1); /* shorter */
    grow(100);
    compare(s, 1);
    s[1] = store(NULL);
    grow(10);
    compare(s, 2);
    /* an index that is cut off */
    for (size_t n = 0; n < s[1].n; n += s[1].n / 7) {
        struct reader_stored cut = {s[1].p, n};
        compare(&cut, 1);
    }
    end();
    free((void *)s[0].p);
    free((void *)s[1].p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_grows),
        cmocka_unit_test(it_is_not_read_again),
        cmocka_unit_test(another_file),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
