/* SPDX-License-Identifier: Apache-2.0 */
/* Reading torch's calls twice: what the first reading passes over tells no step, and the second one decompresses nothing. */
#include "torch_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include "converter/torch_decode.h"
#include "converter/torch_read.h"
#include "converter/torch_steps.h"

#define MOST 4096 /* events of a record */

static char dir[] = "/tmp/test_torch_read.XXXXXX";

static void program_emit(unsigned record, const struct writer_value *v) {
    assert_int_equal(writer_emit(g.w, record, v), 0);
}

static void program_drain(void) {
    assert_int_equal(writer_drain(g.w, WRITER_FLUSH), 0);
}

static void program_turn(void) {}

/* ---- passing over events ---- */

struct told {
    uint64_t steps[MOST], n, first, last;
};

/* Collects what a record tells of steps: their places, and when its first and its last event were. */
static void tell(const uint8_t *p, size_t n, int passes, struct told *out) {
    struct torch_decode d;
    struct torch_item e;

    *out = (struct told){.first = UINT64_MAX};
    torch_decode_start(&d, 1u << 20, p, n);
    while (torch_decode_next(&d, &e) > 0) {
        if (e.kind == TORCH_OPEN)
            continue;
        if (e.kind == TORCH_STEP)
            out->steps[out->n++] = e.ts ^ e.a << 32 ^ e.arg << 60;
        out->first = e.ts < out->first ? e.ts : out->first;
        if (passes)
            torch_decode_pass(&d);
        out->last = d.ts > out->last ? d.ts : out->last;
    }
}

static void check(const uint8_t *p, size_t n) {
    static struct told all, passed;

    tell(p, n, 0, &all);
    tell(p, n, 1, &passed);
    assert_memory_equal(&all, &passed, sizeof all);
}

static void test_what_is_passed_over_tells_no_step(void **state) {
    static const unsigned more[] = {
        [TORCH_BACK] = 1, [TORCH_BACK_AT] = 2, [TORCH_STEP] = 2, [TORCH_OPEN] = 3};
    uint8_t bytes[1024], *p;

    (void)state;
    for (unsigned i = 1; i < 3000; i++) {
        g.seed = i;
        for (p = bytes; p - bytes < 900;) {
            unsigned kind = any(12) ? any(TORCH_STEP) : any(TORCH_OPEN + 1);
            p = varint_put(p, kind | (uint64_t)any(1u << any(20)) << 4);
            for (unsigned k = 0; k <= more[kind]; k++) /* the time, and what the kind adds */
                p = varint_put(p, (uint64_t)any(1u << any(30)) << any(8));
        }
        check(bytes, (size_t)(p - bytes) - any(9));
        for (unsigned k = any(4); k;
             k--) /* damage: numbers that are too long, kinds of a newer writer */
            memset(bytes + any(880), any(256) | (any(2) ? 0x80 : 0), any(14));
        check(bytes, (size_t)(p - bytes));
    }
}

/* ---- reading twice ---- */

static uint8_t *file(const char *path, size_t *n) {
    struct stat st;
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    uint8_t *p = malloc((size_t)st.st_size);
    assert_non_null(p);
    *n = fread(p, 1, (size_t)st.st_size, f);
    fclose(f);
    return p;
}

/* Returns a hash of all events of the trace; *records: how many records they are in. */
static uint64_t events(struct torch_read *t, unsigned *records) {
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    uint64_t hash = 0;

    *records = 0;
    for (size_t i = 0; i < reader_blocks(t->reader); i++)
        if (torch_read_block(t, i, TRACE_torch_calls, &rows) == 0)
            while (trace_rows_next(&rows, 1ull << TRACE_torch_calls, v) > 0) {
                const struct trace_value *e = &v[TRACE_torch_calls_events];
                for (uint32_t k = 0; k < e->n; k++)
                    hash = (hash ^ e->p[k]) * 0x9e3779b97f4a7c15u;
                hash ^= v[TRACE_torch_calls_ts].u;
                ++*records;
            }
    return hash;
}

static void test_the_second_reading_decompresses_nothing(void **state) {
    struct torch_read t = {0};
    struct synthetic s = {.pid = 7};
    unsigned once, again;
    char path[64];
    size_t n;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/t.zst", dir);
    program_start(5, 3);
    assert_int_equal(
        writer_open(&g.w, &(struct writer_options){.trace_path = path, .run_dir = dir}), 0);
    synthetic_process(g.w, &s);
    program_names();
    train(&g.t[LEADER], 60, TORCH_BY_OPTIMIZER);
    program_end();
    assert_int_equal(writer_close(g.w, "exit"), 0);
    uint8_t *bytes = file(path, &n);
    assert_int_equal(reader_open_memory(&t.reader, bytes, n), 0);
    uint64_t hash = events(&t, &once);
    assert_true(once > 100);
    memset(bytes, 0, n); /* nobody may read it any more */
    assert_true(events(&t, &again) == hash);
    assert_int_equal(again, once);
    torch_read_free(&t);
    reader_close(t.reader);
    free(bytes);
    unlink(path);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_passed_over_tells_no_step),
        cmocka_unit_test(test_the_second_reading_decompresses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
