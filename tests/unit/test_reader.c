/* SPDX-License-Identifier: Apache-2.0 */
/* reader: whatever happens to a file, every good block is found, and what cannot be read is counted. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "converter/dict.h"
#include "converter/reader.h"
#include "synthetic.h"
#include "trace_reader.h"

static char dir[] = "/tmp/test_reader.XXXXXX";
static uint8_t *file; /* a trace of many small blocks */
static size_t size;
static struct {
    size_t pos, len; /* hint and frame */
    uint32_t count;
} blocks[256];
static size_t nblocks;

static int setup(void **state) {
    char path[64];
    struct synthetic s = {.samples = 600, .threads = 2, .stacks = 5, .flush = 50};
    struct reader *r;

    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/t.zst", dir);
    if (synthetic_trace(path, dir, &s) != 0)
        return -1;
    file = slurp(path, &size);
    unlink(path);
    if (reader_open_memory(&r, file, size) != 0)
        return -1;
    nblocks = reader_blocks(r);
    for (size_t i = 0; i < nblocks; i++) {
        const struct reader_block *b = reader_block(r, i);
        blocks[i].pos = b->pos;
        blocks[i].len = (b->off - b->pos) + b->compressed;
        blocks[i].count = b->count;
    }
    reader_close(r);
    return nblocks >= 12 && nblocks < 256 ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    free(file);
    return rmdir(dir);
}

static void spill(const char *path, const uint8_t *p, size_t n) {
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Everything that can be read of n bytes. */
struct result {
    int err;
    size_t good;
    uint64_t rows, samples;
    struct reader_loss loss;
};

static struct result read_all(const uint8_t *p, size_t n) {
    struct result res = {0};
    struct reader *r;
    struct reader_data d = {0};
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    struct epochs *es;
    int type;

    res.err = reader_open_memory(&r, p, n);
    if (res.err)
        return res;
    es = epochs_new(r);
    assert_non_null(es);
    for (size_t i = 0; i < reader_blocks(r); i++) {
        if (reader_load(r, i, &d) != 0)
            continue;
        res.good++;
        trace_rows_start(&rows, &d.h, d.data);
        while ((type = trace_rows_next(&rows, UINT64_MAX, v)) > 0) {
            const struct trace_record *rec = trace_record_by_id((unsigned)type);
            res.rows++;
            res.samples += type == TRACE_sample;
            for (unsigned k = 0; k < rec->nfields; k++) {
                uint64_t prev = 0, x;
                struct trace_value list = v[k];
                if (rec->fields[k].type == TRACE_REFS || rec->fields[k].type == TRACE_US)
                    while (trace_list_next(&list, &prev, &x))
                        ;
            }
            if (type == TRACE_sample) {
                const struct dict *dict = epochs_get(es, d.h.epoch);
                assert_non_null(dict);
                dict_stack(dict, v[TRACE_sample_stack].u);
            }
        }
        if (type < 0)
            reader_damaged(r, i);
    }
    assert_int_equal(reader_loss(r, &res.loss), 0);
    reader_data_free(&d);
    epochs_free(es);
    reader_close(r);
    return res;
}

static uint64_t rows_of(size_t from, size_t to) {
    uint64_t n = 0;
    for (size_t i = from; i < to; i++)
        n += blocks[i].count;
    return n;
}

static void clean(void **state) {
    struct result r = read_all(file, size);

    (void)state;
    assert_int_equal(r.err, 0);
    assert_int_equal(r.good, nblocks);
    assert_int_equal(r.samples, 600);
    assert_int_equal(r.rows, rows_of(0, nblocks));
    assert_int_equal(r.loss.damaged_blocks, 0);
    assert_int_equal(r.loss.damaged_bytes, 0);
    assert_int_equal(r.loss.missing_blocks, 0);
    assert_int_equal(r.loss.tail_bytes, 0);
    assert_int_equal(r.loss.seek_table, 1);
}

/* A file that is cut after n bytes: all blocks before the cut are read, and no others. */
static void truncated_anywhere(void **state) {
    (void)state;
    for (size_t n = 0; n < size; n++) {
        uint8_t *copy = malloc(n ? n : 1); /* its own piece: ASan sees a read past the cut */
        memcpy(copy, file, n);
        struct result r = read_all(copy, n);
        size_t whole = 0;
        free(copy);
        while (whole < nblocks && blocks[whole].pos + blocks[whole].len <= n)
            whole++;
        if (n == 0) {
            assert_int_equal(r.err, -ENODATA);
        } else if (whole == 0) {
            assert_int_equal(r.err, -ENOMSG);
        } else {
            assert_int_equal(r.err, 0);
            assert_int_equal(r.good, whole);
            assert_int_equal(r.rows, rows_of(0, whole));
            size_t end = blocks[whole - 1].pos + blocks[whole - 1].len;
            if (whole < nblocks)
                assert_int_equal(r.loss.tail_bytes + r.loss.damaged_bytes, n - end);
            assert_int_equal(r.loss.damaged_blocks, 0);
        }
    }
}

/* One byte is changed: at most the block that it is in is lost. */
static void one_byte_changed(void **state) {
    uint8_t *copy = malloc(size);
    size_t kept = 0;

    (void)state;
    memcpy(copy, file, size);
    for (size_t at = 0; at < blocks[nblocks - 1].pos + blocks[nblocks - 1].len; at++) {
        size_t hit = 0;
        while (at >= blocks[hit].pos + blocks[hit].len)
            hit++;
        copy[at] ^= (uint8_t)(1 << at % 8);
        struct result r = read_all(copy, size);
        copy[at] = file[at];
        kept += r.good == nblocks;
        assert_int_equal(r.err, 0);
        if (r.good == nblocks) /* it hit the hint, or a bit of the frame that means nothing */
            assert_int_equal(r.rows, rows_of(0, nblocks));
        else
            assert_int_equal(r.good, nblocks - 1);
        if (r.good < nblocks) {
            assert_int_equal(r.rows, rows_of(0, nblocks) - blocks[hit].count);
            assert_true(r.loss.damaged_blocks + r.loss.missing_blocks >= 1 || hit == nblocks - 1);
            assert_true(r.loss.damaged_bytes > 0);
        }
    }
    /* frames behind a damaged hint are found, damaged frames are not taken for good ones */
    assert_true(kept > nblocks * TRACE_HINT_SIZE / 2);
    assert_true(kept < nblocks * (TRACE_HINT_SIZE + 16));
    free(copy);
}

static void garbage_between(void **state) {
    uint8_t *copy = malloc(size + 1000);

    (void)state;
    for (size_t k = 0; k < nblocks; k++) {
        for (int kind = 0; kind < 3; kind++) {
            size_t cut = blocks[k].pos, n = 1 + k * 37 % 999;
            memcpy(copy, file, cut);
            for (size_t i = 0; i < n; i++) /* zeros, noise, the beginnings of frames */
                copy[cut + i] = kind == 0   ? 0
                                : kind == 1 ? (uint8_t)(i * 167 + 13)
                                            : (uint8_t) "\x5d\x2a\x4d\x18\x28\xb5\x2f\xfd"[i % 8];
            memcpy(copy + cut + n, file + cut, size - cut);
            struct result r = read_all(copy, size + n);
            assert_int_equal(r.err, 0);
            assert_int_equal(r.good, nblocks);
            assert_int_equal(r.loss.damaged_bytes, n);
        }
    }
    free(copy);
}

static void bytes_missing(void **state) {
    uint8_t *copy = malloc(size);

    (void)state;
    for (size_t k = 1; k + 1 < nblocks; k++) { /* some bytes of the middle of a block are gone */
        size_t at = blocks[k].pos + blocks[k].len / 2, n = 7;
        memcpy(copy, file, at);
        memcpy(copy + at, file + at + n, size - at - n);
        struct result r = read_all(copy, size - n);
        assert_int_equal(r.err, 0);
        assert_int_equal(r.good, nblocks - 1);
        assert_int_equal(r.rows, rows_of(0, nblocks) - blocks[k].count);
    }
    free(copy);
}

static void blocks_moved(void **state) {
    uint8_t *copy = malloc(2 * size);
    size_t a = nblocks / 3, b = 2 * nblocks / 3, n = 0;

    (void)state;
#define PUT(i) memcpy(copy + n, file + blocks[i].pos, blocks[i].len), n += blocks[i].len
    /* two swapped: both are read */
    for (size_t i = 0; i < nblocks; i++)
        PUT(i == a ? b : i == b ? a : i);
    struct result r = read_all(copy, n);
    assert_int_equal(r.good, nblocks);
    assert_int_equal(r.loss.missing_blocks, 0);
    assert_int_equal(r.loss.damaged_bytes, 0);
    /* one left out: missed */
    n = 0;
    for (size_t i = 0; i < nblocks; i++)
        if (i != a)
            PUT(i);
    r = read_all(copy, n);
    assert_int_equal(r.good, nblocks - 1);
    assert_int_equal(r.loss.missing_blocks, 1);
    /* one there twice: taken once */
    n = 0;
    for (size_t i = 0; i < nblocks; i++) {
        PUT(i);
        if (i == a)
            PUT(i);
    }
    r = read_all(copy, n);
    assert_int_equal(r.good, nblocks);
    assert_int_equal(r.rows, rows_of(0, nblocks));
    assert_int_equal(r.loss.repeated_blocks, 1);
    assert_int_equal(r.loss.damaged_bytes, 0);
    free(copy);
}

static void foreign(void **state) {
    static const char text[] =
        "%PDF-1.4 this is something else entirely, and longer than a hint is";
    uint8_t buf[256];
    size_t n = ZSTD_compress(buf, sizeof buf, text, sizeof text, 1);

    (void)state;
    assert_int_equal(read_all((const uint8_t *)text, sizeof text).err, -EILSEQ);
    assert_int_equal(read_all(buf, n).err, -EBADMSG);
    assert_int_equal(read_all((const uint8_t *)"", 0).err, -ENODATA);
    assert_int_equal(read_all((const uint8_t *)"x", 1).err, -EILSEQ);
}

/* Makes a block as a frame with its hint, with the caller's header. Returns the length. */
static size_t make_block(uint8_t *out, size_t cap, const uint8_t *raw, size_t n, uint32_t claim) {
    size_t c = ZSTD_compress(out + TRACE_HINT_SIZE, cap - TRACE_HINT_SIZE, raw, n, 3);
    struct trace_hint h = {.kind = TRACE_KIND_DATA, .seq = 1000, .count = 1, .raw = claim};

    assert_false(ZSTD_isError(c));
    h.compressed = (uint32_t)c;
    h.types = ~0ull;
    trace_hint_put(out, &h);
    return TRACE_HINT_SIZE + c;
}

static void newer_version(void **state) {
    uint8_t raw[TRACE_BLOCK_HEADER + 8] = {0}, out[512];
    struct trace_block_header h = {.kind = TRACE_KIND_META, .body_len = 8, .encoding = 1};

    (void)state;
    trace_block_header_put(raw, &h);
    raw[8] = TRACE_VERSION + 1;
    size_t n = make_block(out, sizeof out, raw, sizeof raw, sizeof raw);
    assert_int_equal(read_all(out, n).err, -EPROTONOSUPPORT);
    /* one such block behind good ones: they are kept, it is counted */
    uint8_t *both = malloc(size + n);
    memcpy(both, file, size);
    memcpy(both + size, out, n);
    struct result r = read_all(both, size + n);
    assert_int_equal(r.err, 0);
    assert_int_equal(r.good, nblocks);
    assert_true(r.loss.newer_blocks >= 1);
    free(both);
}

/* A small frame that claims to hold a gigabyte, or more than a block may hold, is refused. */
static void bomb(void **state) {
    size_t n = 64u << 20;
    uint8_t *zeros = calloc(1, n), *out = malloc(1 << 20);

    (void)state;
    trace_block_header_put(zeros, &(struct trace_block_header){.kind = TRACE_KIND_DATA,
                                                               .encoding = 1,
                                                               .body_len = (uint32_t)n - 120});
    size_t len = make_block(out, 1 << 20, zeros, n, (uint32_t)n);
    assert_int_equal(read_all(out, len).err, -EBADMSG); /* by the hint */
    len = make_block(out, 1 << 20, zeros, n, 4096);
    assert_int_equal(read_all(out, len).err, -EBADMSG); /* by the frame */
    free(zeros);
    free(out);
}

/* Random damage of every kind: nothing crashes, nothing hangs, and there are no more rows than before. */
static void random_damage(void **state) {
    uint8_t *copy = malloc(2 * size);
    uint64_t seed = 42, rows = rows_of(0, nblocks);

    (void)state;
#define RANDOM(n)                                                                                  \
    ((size_t)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33) % (n))
    for (int round = 0; round < 1500; round++) {
        size_t n = size;
        memcpy(copy, file, size);
        for (size_t k = RANDOM(6) + 1; k > 0; k--) {
            size_t at = RANDOM(n - 64), len = RANDOM(64), to = RANDOM(n - 64);
            switch (RANDOM(5)) {
            case 0:
                copy[at] ^= (uint8_t)(1 << RANDOM(8));
                break;
            case 1:
                memset(copy + at, (int)RANDOM(256), len);
                break;
            case 2:
                memmove(copy + at, copy + to, len);
                break;
            case 3: /* bytes gone */
                memmove(copy + at, copy + at + len, n - at - len);
                n -= len;
                break;
            case 4: /* bytes more */
                memmove(copy + at + len, copy + at, n - at);
                n += len;
                break;
            }
        }
        struct result r = read_all(copy, n);
        if (r.err == 0)
            assert_true(r.rows <= rows);
    }
    free(copy);
}

/* Checks that two readers report the same blocks and losses of a file. */
static void assert_same(struct reader *a, struct reader *b) {
    struct reader_loss x, y;

    assert_int_equal(reader_blocks(a), reader_blocks(b));
    for (size_t i = 0; i < reader_blocks(a); i++)
        assert_memory_equal(reader_block(a, i), reader_block(b, i), sizeof *reader_block(a, i));
    assert_int_equal(reader_digest(a, reader_blocks(a)), reader_digest(b, reader_blocks(b)));
    assert_int_equal(reader_loss(a, &x), 0);
    assert_int_equal(reader_loss(b, &y), 0);
    assert_memory_equal(&x, &y, sizeof x);
}

/* What was found out once is not searched for again; a file of another size is another file. */
static void opened_again(void **state) {
    struct reader *first, *again, *anew;
    char path[64];
    size_t room = 1 << 20, few = 64;

    (void)state;
    snprintf(path, sizeof path, "%s/again.zst", dir);
    for (int damaged = 0; damaged < 2; damaged++) {
        uint8_t *p = malloc(size);
        assert_non_null(p);
        memcpy(p, file, size);
        if (damaged)
            memset(p + blocks[nblocks / 2].pos + 8, 0x55, 200);
        spill(path, p, size);
        assert_int_equal(reader_open(&first, path), 0);
        assert_null(reader_keep(first, &few));
        assert_int_equal(few, 64);
        struct reader_kept *kept = reader_keep(first, &room);
        assert_non_null(kept);
        assert_true(room < 1 << 20);
        assert_int_equal(reader_open_kept(&again, path, kept), 0);
        assert_same(first, again);
        reader_close(again);
        /* nothing is walked: with every hint gone the index is what it was */
        for (size_t i = 0; i < nblocks; i++)
            memset(p + blocks[i].pos, 0, 12);
        spill(path, p, size);
        assert_int_equal(reader_open_kept(&again, path, kept), 0);
        assert_int_equal(reader_blocks(again), reader_blocks(first));
        reader_close(again);
        spill(path, file, blocks[nblocks - 1].pos);
        assert_int_equal(reader_open_kept(&again, path, kept), 0);
        assert_int_equal(reader_open(&anew, path), 0);
        assert_same(anew, again);
        assert_int_equal(reader_blocks(again), nblocks - 1);
        reader_close(again);
        reader_close(anew);
        reader_close(first);
        free(kept);
        free(p);
    }
    unlink(path);
    assert_int_equal(reader_open_kept(&again, path, NULL), -ENOENT);
}

/* Strings that were asked for once are given to the next reader of the trace, who reads no block of a dictionary for them. */
static void strings_are_given(void **state) {
    struct reader *r;
    struct epochs *es;
    char was[40][256];
    size_t n, some = 0;
    uint32_t epoch;
    void *saved = NULL;

    (void)state;
    assert_int_equal(reader_open_memory(&r, file, size), 0);
    for (int again = 0; again < 3; again++) {
        assert_non_null(es = epochs_new(r));
        epochs_without_stacks(es);
        if (again == 1)
            epochs_give(es, saved, n);
        assert_int_equal(epochs_at(es, 0, &epoch), 1);
        for (uint64_t id = 1; id < 40; id++) {
            size_t len;
            const char *p = dict_string(epochs_get(es, epoch), id, &len);
            if (again == 0)
                snprintf(was[id], sizeof was[id], "%.*s", (int)len, p);
            some += again == 0 && len;
            assert_true(len < sizeof was[id]);
            assert_int_equal(len, again == 2 ? 0 : strlen(was[id]));
            assert_memory_equal(p, was[id], len);
        }
        if (again == 0) {
            assert_non_null(saved = epochs_save(es, &n));
            for (size_t i = 0; i < reader_blocks(r); i++)
                if (reader_block(r, i)->kind == TRACE_KIND_DICT)
                    reader_damaged(r, i);
        }
        epochs_free(es);
    }
    assert_true(some > 5);
    /* A part that is cut off is left out. */
    assert_non_null(es = epochs_new(r));
    epochs_without_stacks(es);
    epochs_give(es, saved, n - 1);
    assert_non_null(epochs_get(es, epoch));
    epochs_free(es);
    free(saved);
    reader_close(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_given),  cmocka_unit_test(clean),
        cmocka_unit_test(truncated_anywhere), cmocka_unit_test(one_byte_changed),
        cmocka_unit_test(garbage_between),    cmocka_unit_test(bytes_missing),
        cmocka_unit_test(blocks_moved),       cmocka_unit_test(foreign),
        cmocka_unit_test(newer_version),      cmocka_unit_test(bomb),
        cmocka_unit_test(random_damage),      cmocka_unit_test(opened_again),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
